/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/slab.h"

#include <assert.h>
#include <stdlib.h>

#define SLAB_ALIGN 65536u
/* A little less than the alignment: malloc's own words fit between two slabs. */
#define SLAB_BYTES (SLAB_ALIGN - 64u)
#define HEAD_BYTES 64u
#define MIN_PIECE 32u
#define MAX_PIECE 16384u
#define MAX_EMPTY 4u

struct piece {
    struct piece *next;
};

/* At the start of its memory; found from a piece by its address. */
struct stg_slab {
    struct stg_slab *prev, *next; /* among partial or empty */
    struct piece *free_pieces;
    uint32_t n_used;  /* pieces out */
    uint32_t n_fresh; /* pieces never given out yet, at the end */
    uint32_t class_index;
};

/* Four classes a doubling: 32, 40, 48, 56, 64, 80 … 16384. */
static uint32_t class_of(uint64_t bytes)
{
    if (bytes <= MIN_PIECE)
        return 0;
    uint64_t last = bytes - 1;
    uint32_t log = 63u - (uint32_t)__builtin_clzll(last);
    return (log - 5) * 4 + (uint32_t)((last >> (log - 2)) & 3) + 1;
}

static uint32_t class_bytes(uint32_t class_index)
{
    uint32_t doubling = class_index / 4, quarter = class_index % 4;
    return (MIN_PIECE << doubling) + quarter * (MIN_PIECE << doubling) / 4;
}

static uint32_t pieces_of(uint32_t class_index)
{
    return (SLAB_BYTES - HEAD_BYTES) / class_bytes(class_index);
}

static void link_slab(struct stg_slab **list, struct stg_slab *slab)
{
    slab->prev = NULL;
    slab->next = *list;
    if (*list != NULL)
        (*list)->prev = slab;
    *list = slab;
}

static void unlink_slab(struct stg_slab **list, struct stg_slab *slab)
{
    if (slab->prev != NULL)
        slab->prev->next = slab->next;
    else
        *list = slab->next;
    if (slab->next != NULL)
        slab->next->prev = slab->prev;
}

static void *take(struct stg_slabs *slabs, uint64_t align, uint64_t bytes)
{
    if (stg_quota_take(slabs->quota, bytes, "", NULL) < 0)
        return NULL;
    void *ret = NULL;
    if (posix_memalign(&ret, align, bytes) != 0) {
        stg_quota_give(slabs->quota, bytes);
        return NULL;
    }
    slabs->taken += bytes;
    return ret;
}

static void give(struct stg_slabs *slabs, void *memory, uint64_t bytes)
{
    free(memory);
    stg_quota_give(slabs->quota, bytes);
    slabs->taken -= bytes;
}

void stg_slabs_finish(struct stg_slabs *slabs)
{
    while (slabs->empty != NULL) {
        struct stg_slab *slab = slabs->empty;
        unlink_slab(&slabs->empty, slab);
        give(slabs, slab, SLAB_BYTES);
    }
    slabs->n_empty = 0;
    assert(slabs->taken == 0);
}

static struct stg_slab *new_slab(struct stg_slabs *slabs, uint32_t class_index)
{
    static_assert(sizeof(struct stg_slab) <= HEAD_BYTES, "the head has room");
    struct stg_slab *slab = slabs->empty;
    if (slab != NULL) {
        unlink_slab(&slabs->empty, slab);
        slabs->n_empty--;
    } else {
        slab = take(slabs, SLAB_ALIGN, SLAB_BYTES);
        if (slab == NULL)
            return NULL;
    }
    slab->free_pieces = NULL;
    slab->n_used = 0;
    slab->n_fresh = pieces_of(class_index);
    slab->class_index = class_index;
    link_slab(&slabs->partial[class_index], slab);
    return slab;
}

void *stg_slabs_alloc(struct stg_slabs *slabs, uint64_t bytes)
{
    if (bytes > MAX_PIECE)
        return take(slabs, 64, bytes);
    uint32_t class_index = class_of(bytes);
    struct stg_slab *slab = slabs->partial[class_index];
    if (slab == NULL)
        slab = new_slab(slabs, class_index);
    if (slab == NULL)
        return NULL;
    struct piece *piece = slab->free_pieces;
    if (piece != NULL) {
        slab->free_pieces = piece->next;
    } else {
        uint32_t at = pieces_of(class_index) - slab->n_fresh--;
        piece =
            (struct piece *)((char *)slab + HEAD_BYTES + at * class_bytes(class_index));
    }
    slab->n_used++;
    if (slab->free_pieces == NULL && slab->n_fresh == 0)
        unlink_slab(&slabs->partial[class_index], slab);
    return piece;
}

void stg_slabs_free(struct stg_slabs *slabs, void *memory, uint64_t bytes)
{
    if (bytes > MAX_PIECE) {
        give(slabs, memory, bytes);
        return;
    }
    struct stg_slab *slab =
        (struct stg_slab *)((uintptr_t)memory & ~(uintptr_t)(SLAB_ALIGN - 1));
    struct piece *piece = memory;
    bool was_full = slab->free_pieces == NULL && slab->n_fresh == 0;
    piece->next = slab->free_pieces;
    slab->free_pieces = piece;
    slab->n_used--;
    if (was_full)
        link_slab(&slabs->partial[slab->class_index], slab);
    if (slab->n_used > 0)
        return;
    unlink_slab(&slabs->partial[slab->class_index], slab);
    if (slabs->n_empty < MAX_EMPTY) {
        link_slab(&slabs->empty, slab);
        slabs->n_empty++;
    } else {
        give(slabs, slab, SLAB_BYTES);
    }
}
