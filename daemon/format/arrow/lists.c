/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/arrow/lists.h"

#include "core/batch.h"

#define MAX_ROWS 8192u /* and inner lists, that are decoded at once */

/* Lists in one another, from the outer ones: list i has the elements begin[i] to
 * begin[i + 1] - 1. There are n before the first list whose offsets are not valid. */
struct depth {
    uint64_t first, n;
    int64_t *begin;
    uint8_t *is_null;
    bool has_nulls;
};

/* Rows while they are decoded. */
struct decoding {
    const struct stg_arrow_request *request;
    struct stg_arrow_lists *lists;
    struct depth depths[STG_MAX_LISTS];
    uint64_t n; /* rows */
    uint8_t *bad;
};

void stg_arrow_lists_finish(struct stg_arrow_lists *lists)
{
    for (unsigned d = 0; d <= STG_MAX_LISTS; d++)
        stg_chunk_unref(lists->memory[d]);
    *lists = (struct stg_arrow_lists){0};
}

static bool is_deep(const struct stg_arrow_column *column)
{
    return column->want.n_lists > 1;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return b > 0 && a > UINT32_MAX / b ? UINT32_MAX : a * b;
}

uint64_t stg_arrow_lists_at_once(const struct stg_arrow_column *column,
                                 const struct stg_arrow_leaf *leaf)
{
    uint64_t most = stg_arrow_values_at_once(column, leaf), declared = 1, stored = 1;
    for (unsigned d = 0; d < column->want.n_lists; d++) {
        int64_t size = column->shape[d];
        declared = times(declared, size > 0 ? (uint64_t)size : 1);
        size = leaf->is_there ? (int64_t)leaf->lists[d].size : 0;
        stored = times(stored, size > 0 ? (uint64_t)size : 1);
    }
    uint64_t n = most / (declared > stored ? declared : stored);
    n = n > 0 ? n : 1;
    return n < MAX_ROWS ? n : MAX_ROWS;
}

/* ---- offsets ---- */

static int64_t offset_at(const char *raw, uint64_t i, unsigned bytes)
{
    int64_t wide;
    int32_t narrow;
    if (bytes == 8) {
        memcpy(&wide, raw + 8 * i, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, raw + 4 * i, sizeof(narrow));
    return narrow;
}

static int read_offsets(struct decoding *d, unsigned k, struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    struct depth *depth = &d->depths[k];
    unsigned bytes = request->leaf->lists[k].offset_bytes;
    char *raw;
    int rc = stg_arrow_input_read(request->reading, &request->inputs->lists[k],
                                  depth->first * bytes, (depth->n + 1) * bytes, 0,
                                  &request->reading->raw, &raw, err);
    if (rc < 0)
        return rc;
    int64_t before = 0, most = (int64_t)request->inputs->part.lists[k].n_items;
    for (uint64_t i = 0; i <= depth->n; i++) {
        int64_t begin = offset_at(raw, i, bytes);
        if (begin < before || begin > most) {
            depth->n = i > 0 ? i - 1 : 0;
            break;
        }
        depth->begin[i] = before = begin;
    }
    return 0;
}

static void count_offsets(struct decoding *d, unsigned k)
{
    struct depth *depth = &d->depths[k];
    uint64_t size = d->request->leaf->lists[k].size;
    for (uint64_t i = 0; i <= depth->n; i++)
        depth->begin[i] = (int64_t)((depth->first + i) * size);
}

static int take_memory(struct decoding *d, unsigned k, struct stg_err *err)
{
    struct depth *depth = &d->depths[k];
    struct stg_chunk **memory = &d->lists->memory[k];
    uint64_t bytes = (depth->n + 1) * sizeof(int64_t);
    int rc =
        stg_arrow_room(d->request->reading->quota, bytes + 2 * depth->n, memory, err);
    if (rc < 0)
        return rc;
    depth->begin = (int64_t *)(*memory)->data;
    depth->is_null = (uint8_t *)(*memory)->data + bytes;
    memset(depth->is_null, 0, 2 * depth->n);
    if (k == 0)
        d->bad = depth->is_null + depth->n;
    return 0;
}

static int read_depth(struct decoding *d, unsigned k, uint64_t first, uint64_t n,
                      struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    struct depth *depth = &d->depths[k];
    *depth = (struct depth){.first = first, .n = n};
    int rc = take_memory(d, k, err);
    if (rc == 0 && n > 0)
        rc = stg_arrow_read_nulls(request->reading, request->inputs, k, first, n,
                                  depth->is_null, err);
    depth->has_nulls = rc > 0;
    if (rc < 0)
        return rc;
    if (n == 0 || request->leaf->lists[k].offset_bytes == 0) {
        count_offsets(d, k);
        return 0;
    }
    return read_offsets(d, k, err);
}

/* ---- how many rows ---- */

static int64_t value_of(const struct decoding *d, uint64_t row)
{
    const struct depth *outer = &d->depths[0], *inner = &d->depths[1];
    bool deep = is_deep(d->request->column);
    return deep ? inner->begin[outer->begin[row] - outer->begin[0]] : outer->begin[row];
}

/* Leaves as many rows as have at most so many elements, but one at least. */
static void limit(struct decoding *d, uint64_t most,
                  int64_t (*at)(const struct decoding *d, uint64_t row))
{
    while (d->n > 1 && (uint64_t)(at(d, d->n) - at(d, 0)) > most)
        d->n = (uint64_t)(at(d, d->n / 2) - at(d, 0)) > most ? d->n / 2 : d->n - 1;
}

static int64_t element_of(const struct decoding *d, uint64_t row)
{
    return d->depths[0].begin[row];
}

/* The lists in those of the rows. Leaves the rows before one with a list whose offsets
 * are not valid. */
static int read_inner(struct decoding *d, struct stg_err *err)
{
    const int64_t *begin = d->depths[0].begin;
    limit(d, MAX_ROWS, element_of);
    int rc =
        read_depth(d, 1, (uint64_t)begin[0], (uint64_t)(begin[d->n] - begin[0]), err);
    while (rc == 0 && (uint64_t)(begin[d->n] - begin[0]) > d->depths[1].n)
        d->n--;
    return rc;
}

/* Leaves no row if the offsets of the first one are not valid. */
static int read_lists(struct decoding *d, struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    int rc = read_depth(d, 0, request->first, d->n, err);
    d->n = d->depths[0].n;
    if (rc == 0 && d->n > 0 && is_deep(request->column))
        rc = read_inner(d, err);
    if (rc == 0)
        limit(d, stg_arrow_values_at_once(request->column, request->leaf), value_of);
    return rc;
}

/* ---- values ---- */

/* Makes one row, which cannot be had, and has no elements. */
static int make_bad(struct decoding *d, struct stg_arrow_values *values,
                    struct stg_err *err)
{
    struct depth *outer = &d->depths[0], *inner = &d->depths[1];
    int rc = 0;
    d->n = 1;
    outer->begin[0] = outer->begin[1] = 0;
    outer->has_nulls = inner->has_nulls = false;
    d->bad[0] = STG_ARROW_BAD_LIST;
    if (is_deep(d->request->column)) {
        *inner = (struct depth){0};
        rc = take_memory(d, 1, err);
    }
    if (rc < 0)
        return rc;
    if (inner->begin != NULL)
        inner->begin[0] = 0;
    rc = stg_arrow_fill(d->request->reading, d->request->column, 1, values, err);
    values->n = 0;
    return rc;
}

static int decode_values(struct decoding *d, struct stg_arrow_values *values,
                         struct stg_err *err)
{
    struct stg_arrow_request request = *d->request;
    request.first = (uint64_t)value_of(d, 0);
    request.n = (uint64_t)value_of(d, d->n) - request.first;
    if (request.n == 0) {
        int rc = stg_arrow_fill(request.reading, request.column, 1, values, err);
        values->n = 0;
        return rc;
    }
    int rc = stg_arrow_decode(&request, values, err);
    if (rc < 0 || values->n == request.n)
        return rc;
    while (d->n > 0 && (uint64_t)value_of(d, d->n) - request.first > values->n)
        d->n--;
    if (d->n > 0)
        return 0;
    d->n = 1; /* its strings are long, or one of them is not valid */
    request.n = (uint64_t)value_of(d, 1) - request.first;
    request.is_whole = true;
    rc = stg_arrow_decode(&request, values, err);
    return rc == 0 && values->n < request.n ? make_bad(d, values, err) : rc;
}

/* Offsets in a batch become those in its rows. */
static void rebase(int64_t *begin, uint64_t n)
{
    int64_t first = begin[0];
    for (uint64_t i = 0; i <= n; i++)
        begin[i] -= first;
}

static void set_rows(struct decoding *d)
{
    struct depth *outer = &d->depths[0], *inner = &d->depths[1];
    bool deep = is_deep(d->request->column);
    uint64_t n_inner = (uint64_t)(outer->begin[d->n] - outer->begin[0]);
    rebase(outer->begin, d->n);
    if (deep)
        rebase(inner->begin, n_inner);
    d->lists->rows = (struct stg_list_rows){.n = d->n,
                                            .first = outer->begin,
                                            .inner = deep ? inner->begin : NULL,
                                            .bad = d->bad};
}

/* A row is as bad as the worst of its values. */
static void set_bad(const struct stg_list_rows *rows,
                    const struct stg_arrow_values *values)
{
    for (uint64_t row = 0; values->state != NULL && row < rows->n; row++) {
        int64_t end = stg_list_value_of(rows, row + 1);
        for (int64_t i = stg_list_value_of(rows, row); i < end; i++) {
            if (values->state[i] > rows->bad[row])
                rows->bad[row] = values->state[i];
        }
    }
}

/* ---- lists that are null ---- */

/* Without a default, a list that is null costs its row. */
static void mark_rows(struct decoding *d)
{
    const struct depth *outer = &d->depths[0], *inner = &d->depths[1];
    for (uint64_t row = 0; row < d->n; row++) {
        d->bad[row] = outer->is_null[row] != 0 ? STG_ARROW_IS_NULL : d->bad[row];
        for (int64_t i = outer->begin[row]; inner->has_nulls && i < outer->begin[row + 1];
             i++) {
            if (inner->is_null[i] != 0)
                d->bad[row] = STG_ARROW_IS_NULL;
        }
    }
}

/* With one it is empty, or has the declared number of defaults: the values in their new
 * order, which are first counted, then written. */
struct filling {
    const struct decoding *d;
    bool writes;
    int64_t n_inner, n_values;
    int64_t *first, *inner, *index;
};

static void put_values(struct filling *f, int64_t from, int64_t n, bool is_default)
{
    for (int64_t i = 0; f->writes && i < n; i++)
        f->index[f->n_values + i] = is_default ? -1 : from + i;
    f->n_values += n > 0 ? n : 0;
}

static void begin_inner(struct filling *f)
{
    if (f->writes)
        f->inner[f->n_inner] = f->n_values;
    f->n_inner++;
}

static void put_lists(struct filling *f, int64_t from, int64_t n, bool is_default)
{
    const struct depth *inner = &f->d->depths[1];
    int64_t size = f->d->request->column->shape[1];
    for (int64_t i = from; i < from + n; i++) {
        begin_inner(f);
        if (is_default || inner->is_null[i] != 0)
            put_values(f, 0, size, true);
        else
            put_values(f, inner->begin[i], inner->begin[i + 1] - inner->begin[i], false);
    }
}

static void put_rows(struct filling *f)
{
    const struct depth *outer = &f->d->depths[0];
    bool deep = is_deep(f->d->request->column);
    int64_t size = f->d->request->column->shape[0];
    f->n_inner = f->n_values = 0;
    for (uint64_t row = 0; row < f->d->n; row++) {
        bool is_null = outer->is_null[row] != 0;
        int64_t n = is_null ? size : outer->begin[row + 1] - outer->begin[row];
        if (f->writes)
            f->first[row] = deep ? f->n_inner : f->n_values;
        if (deep)
            put_lists(f, is_null ? 0 : outer->begin[row], n, is_null);
        else
            put_values(f, outer->begin[row], n, is_null);
    }
    if (f->writes)
        f->first[f->d->n] = deep ? f->n_inner : f->n_values;
    if (f->writes && deep)
        f->inner[f->n_inner] = f->n_values;
}

static int fill_lists(struct decoding *d, struct stg_arrow_values *values,
                      struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    struct filling f = {.d = d};
    put_rows(&f);
    uint64_t n = d->n + 1, n_inner = (uint64_t)f.n_inner + 1;
    uint64_t words = n + n_inner + (uint64_t)f.n_values;
    int rc = stg_arrow_room(request->reading->quota, words * sizeof(int64_t) + d->n,
                            &d->lists->memory[STG_MAX_LISTS], err);
    if (rc < 0)
        return rc;
    f.first = (int64_t *)d->lists->memory[STG_MAX_LISTS]->data;
    f.inner = f.first + n;
    f.index = f.inner + n_inner;
    f.writes = true;
    put_rows(&f);
    d->lists->rows.first = f.first;
    d->lists->rows.inner = is_deep(request->column) ? f.inner : NULL;
    return f.n_values == 0
               ? 0
               : stg_arrow_values_pick(request->reading, request->column, values, f.index,
                                       (uint64_t)f.n_values, err);
}

/* ---- rows ---- */

static int decode_rows(struct decoding *d, struct stg_arrow_values *values,
                       struct stg_err *err)
{
    bool has_nulls = d->depths[0].has_nulls || d->depths[1].has_nulls;
    int rc = 0;
    set_rows(d);
    if (has_nulls && d->request->column->want.may_lack)
        rc = fill_lists(d, values, err);
    else if (has_nulls)
        mark_rows(d);
    if (rc == 0)
        set_bad(&d->lists->rows, values);
    return rc;
}

int stg_arrow_lists_decode(const struct stg_arrow_request *request,
                           struct stg_arrow_lists *lists, struct stg_arrow_values *values,
                           struct stg_err *err)
{
    struct decoding d = {.request = request, .lists = lists, .n = request->n};
    int rc = read_lists(&d, err);
    if (rc == 0)
        rc = d.n > 0 ? decode_values(&d, values, err) : make_bad(&d, values, err);
    return rc == 0 ? decode_rows(&d, values, err) : rc;
}

int stg_arrow_lists_fill(struct stg_arrow_reading *reading,
                         const struct stg_arrow_column *column, uint64_t n,
                         struct stg_arrow_lists *lists, struct stg_arrow_values *values,
                         struct stg_err *err)
{
    static const struct stg_arrow_leaf leaf = {.field = {.type = STG_ARROW_NULL}};
    struct stg_arrow_request request = {
        .reading = reading, .column = column, .leaf = &leaf};
    uint64_t most = stg_arrow_lists_at_once(column, &leaf);
    struct decoding d = {.request = &request, .lists = lists, .n = n < most ? n : most};
    d.depths[0].n = d.n;
    int rc = take_memory(&d, 0, err);
    if (rc < 0)
        return rc;
    memset(d.depths[0].begin, 0, (d.n + 1) * sizeof(int64_t));
    memset(d.depths[0].is_null, 1, d.n);
    rc = take_memory(&d, 1, err);
    if (rc == 0)
        rc = stg_arrow_fill(reading, column, 1, values, err);
    if (rc < 0)
        return rc;
    d.depths[0].has_nulls = true;
    d.depths[1].begin[0] = 0;
    return decode_rows(&d, values, err);
}
