/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/places.h"

#include <stdlib.h>
#include <string.h>

/* Fewer bytes between two stretches are fetched with them: a request takes longer. */
#define GAP_BYTES ((uint64_t)64 << 10)

/* ---- what is announced ---- */

static bool is_known(const struct stg_places *places, uint64_t begin, uint64_t end)
{
    for (size_t i = 0; i < places->n_announced; i++) {
        if (places->announced[i].begin == begin && places->announced[i].end == end)
            return true;
    }
    const struct stg_piece *first = stg_places_find(places, begin);
    const struct stg_piece *last = end > begin ? stg_places_find(places, end - 1) : NULL;
    return first != NULL && last != NULL && last->row == first->row &&
           last->turn == first->turn && !first->is_read;
}

void stg_places_announce(struct stg_places *places, uint64_t begin, uint64_t end)
{
    if (begin >= end || is_known(places, begin, end))
        return;
    if (places->n_announced == places->announced_size) {
        size_t size = places->announced_size > 0 ? 2 * places->announced_size : 16;
        struct stg_stretch *announced =
            realloc(places->announced, size * sizeof(*announced));
        if (announced == NULL)
            return;
        places->announced = announced;
        places->announced_size = size;
    }
    places->announced[places->n_announced++] = (struct stg_stretch){begin, end};
}

/* ---- pieces ---- */

static int by_begin(const void *a, const void *b)
{
    const struct stg_stretch *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int by_want(const void *a, const void *b)
{
    const struct stg_piece *x = a, *y = b;
    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void add(struct stg_places *places, const struct stg_piece *piece)
{
    if (places->n == places->size) {
        size_t size = places->size > 0 ? 2 * places->size : 32;
        struct stg_piece *pieces = realloc(places->pieces, size * sizeof(*pieces));
        if (pieces == NULL)
            return;
        places->pieces = pieces;
        places->size = size;
    }
    places->pieces[places->n++] = *piece;
}

static void add_row(struct stg_places *places, const struct stg_stretch *row,
                    uint64_t piece_bytes)
{
    for (uint64_t begin = row->begin; begin < row->end; begin += piece_bytes) {
        uint64_t left = row->end - begin;
        add(places,
            &(struct stg_piece){.begin = begin,
                                .end = begin + (left < piece_bytes ? left : piece_bytes),
                                .turn = places->turn,
                                .row = places->n_rows,
                                .at = (double)(begin - row->begin) /
                                      (double)(row->end - row->begin)});
    }
    places->n_rows++;
}

/* Those that overlap, or are small and close together, are one row. */
static void add_rows(struct stg_places *places, uint64_t piece_bytes)
{
    struct stg_stretch row = places->announced[0];
    for (size_t i = 1; i < places->n_announced; i++) {
        const struct stg_stretch *next = &places->announced[i];
        uint64_t end = next->end > row.end ? next->end : row.end;
        bool is_close =
            next->begin <= row.end + GAP_BYTES && end - row.begin <= piece_bytes;
        if (is_close || next->begin < row.end) {
            row.end = end;
            continue;
        }
        add_row(places, &row, piece_bytes);
        row = *next;
    }
    add_row(places, &row, piece_bytes);
}

static void drop_before(struct stg_places *places, uint32_t turn)
{
    size_t n = 0;
    while (n < places->n && places->pieces[n].turn < turn)
        n++;
    places->n -= n;
    memmove(places->pieces, places->pieces + n, places->n * sizeof(*places->pieces));
}

void stg_places_divide(struct stg_places *places, uint64_t piece_bytes, uint32_t reached)
{
    if (places->n_announced == 0)
        return;
    if (places->n > 0)
        drop_before(places, reached);
    qsort(places->announced, places->n_announced, sizeof(*places->announced), by_begin);
    places->turn++;
    places->n_rows = 0;
    add_rows(places, piece_bytes);
    places->n_announced = 0;
    if (places->n > 0)
        qsort(places->pieces, places->n, sizeof(*places->pieces), by_want);
}

struct stg_piece *stg_places_find(const struct stg_places *places, uint64_t offset)
{
    for (size_t i = places->n; i-- > 0;) {
        struct stg_piece *piece = &places->pieces[i];
        if (piece->begin <= offset && offset < piece->end)
            return piece;
    }
    return NULL;
}

void stg_places_begun(struct stg_places *places, uint64_t offset)
{
    struct stg_piece *piece = stg_places_find(places, offset);
    if (piece != NULL)
        piece->is_begun = true;
}

struct stg_piece *stg_places_next(const struct stg_places *places)
{
    for (size_t i = 0; i < places->n; i++) {
        if (!places->pieces[i].is_begun)
            return &places->pieces[i];
    }
    return NULL;
}

void stg_places_finish(struct stg_places *places)
{
    free(places->pieces);
    free(places->announced);
}
