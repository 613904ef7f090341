/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/lists.h"

#include <stdatomic.h>
#include <string.h>

#include "daemon/format/parquet/flat_levels.h"

#define AT_ONCE 1024  /* levels in hand */
#define FIRST_SIZE 64 /* values of a row that is put together */

#define SHORT_LEVELS "its levels end early"
#define BAD_LEVEL "a level is out of range"

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its data is damaged: %s", what);
}

/* ---- levels ---- */

/* What levels are turned into: first counted, then written. */
struct scan {
    const struct stg_parquet_column *column;
    const struct stg_parquet_leaf *leaf;
    bool writes;
    bool goes_on, inner_goes_on;
    uint64_t n_levels, n_rows, n_inner, n_slots, n_valid;
    struct stg_list_rows rows;
    uint8_t *valid;
};

static bool is_deep(const struct scan *scan)
{
    return scan->column->want.n_lists > 1;
}

static void begin_row(struct scan *scan)
{
    if (scan->writes) {
        scan->rows.first[scan->n_rows] =
            (int64_t)(is_deep(scan) ? scan->n_inner : scan->n_slots);
        scan->rows.bad[scan->n_rows] = 0;
    }
    scan->n_rows++;
}

static void begin_inner(struct scan *scan)
{
    if (scan->writes)
        scan->rows.inner[scan->n_inner] = (int64_t)scan->n_slots;
    scan->n_inner++;
}

static void add_values(struct scan *scan, uint64_t n, bool is_valid)
{
    if (scan->writes)
        memset(scan->valid + scan->n_slots, is_valid, n);
    scan->n_slots += n;
    scan->n_valid += is_valid ? n : 0;
}

/* A null: without a default it costs the row. */
static void add_null(struct scan *scan)
{
    if (scan->writes && !scan->column->want.may_lack)
        scan->rows.bad[scan->n_rows - 1] = 1;
}

/* An inner list that is null has no values, or as many defaults as are declared. */
static void fill_inner(struct scan *scan, int64_t size)
{
    add_null(scan);
    if (scan->column->want.may_lack && size > 0)
        add_values(scan, (uint64_t)size, false);
}

/* Likewise a row. */
static void fill_row(struct scan *scan)
{
    const int64_t *shape = scan->column->shape;
    add_null(scan);
    if (!is_deep(scan)) {
        fill_inner(scan, shape[0]);
        return;
    }
    for (int64_t i = 0; scan->column->want.may_lack && i < shape[0]; i++) {
        begin_inner(scan);
        fill_inner(scan, shape[1]);
    }
}

/* A value at these levels, or a list that is empty or null. */
static bool add_level(struct scan *scan, uint32_t repeat, uint32_t level)
{
    const struct stg_parquet_leaf *leaf = scan->leaf;
    const unsigned *lists = leaf->list_levels;
    bool is_first = scan->n_levels++ == 0;
    if (repeat > leaf->n_lists || level > leaf->max_level ||
        (repeat > 0 && level < lists[repeat - 1]))
        return false;
    if (is_first) {
        scan->goes_on = repeat > 0;
        scan->inner_goes_on = repeat > 1;
    }
    if (repeat == 0 || is_first)
        begin_row(scan);
    if (level < lists[0]) {
        if (level + 1 < lists[0])
            fill_row(scan);
        return true;
    }
    if (is_deep(scan) && (repeat < 2 || is_first))
        begin_inner(scan);
    if (is_deep(scan) && level < lists[1]) {
        if (level + 1 < lists[1])
            fill_inner(scan, scan->column->shape[1]);
        return true;
    }
    if (level < leaf->max_level)
        add_null(scan);
    add_values(scan, 1, level == leaf->max_level);
    return true;
}

static int scan_levels(struct scan *scan, uint64_t n, struct stg_parquet_runs *repeats,
                       struct stg_parquet_runs *levels, struct stg_err *err)
{
    uint32_t repeat[AT_ONCE], level[AT_ONCE];
    while (n > 0) {
        uint64_t now = n < AT_ONCE ? n : AT_ONCE;
        if (!stg_parquet_runs_read(repeats, repeat, now) ||
            !stg_parquet_runs_read(levels, level, now))
            return damaged(err, SHORT_LEVELS);
        for (uint64_t i = 0; i < now; i++) {
            if (!add_level(scan, repeat[i], level[i]))
                return damaged(err, BAD_LEVEL);
        }
        n -= now;
    }
    return 0;
}

/* ---- a part ---- */

static uint64_t room_of(uint64_t n)
{
    return (n * sizeof(int64_t) + 63) & ~(uint64_t)63;
}

/* Memory for what was counted. */
static int take_arrays(struct stg_parquet_lists *lists, const struct scan *counted,
                       struct scan *scan, struct stg_err *err)
{
    uint64_t first = room_of(counted->n_rows + 1), inner = room_of(counted->n_inner + 1);
    uint64_t bytes = first + inner + counted->n_rows + counted->n_slots;
    int rc = stg_parquet_room(lists->quota, bytes, &lists->memory, err);
    if (rc < 0)
        return rc;
    char *at = lists->memory->data;
    *scan = (struct scan){.column = lists->column, .leaf = counted->leaf, .writes = true};
    scan->rows.first = (int64_t *)at;
    if (is_deep(scan))
        scan->rows.inner = (int64_t *)(at + first);
    scan->rows.bad = (uint8_t *)at + first + inner;
    scan->valid = scan->rows.bad + counted->n_rows;
    return 0;
}

static void end_scan(struct stg_parquet_lists *lists, const struct scan *scan)
{
    uint64_t n = is_deep(scan) ? scan->n_inner : scan->n_slots;
    lists->part = scan->rows;
    lists->part.n = scan->n_rows;
    lists->part.first[scan->n_rows] = (int64_t)n;
    if (is_deep(scan))
        lists->part.inner[scan->n_inner] = (int64_t)scan->n_slots;
    lists->goes_on = scan->goes_on;
    lists->inner_goes_on = scan->inner_goes_on;
    lists->n_slots = scan->n_slots;
    lists->n_valid = scan->n_valid;
    lists->valid = scan->valid;
    lists->n_had = 0;
}

/* Memory for n levels. A few bytes of a file may claim any number of them. */
static int take_masks(struct stg_parquet_lists *lists, uint64_t n, struct stg_err *err)
{
    uint64_t bytes = stg_parquet_n_masks(n) * sizeof(struct stg_parquet_mask);
    return stg_parquet_room(lists->quota, bytes, &lists->masks, err);
}

/* A null row of a list of constant length may have values: as many as the list. */
static bool may_fill(const struct stg_parquet_column *column)
{
    return column->want.may_lack && column->shape[0] > 0;
}

/* Levels of lists of values. Returns 1 if they are others. */
static int read_flat(struct stg_parquet_lists *lists, uint64_t n,
                     struct stg_parquet_runs *repeats, struct stg_parquet_runs *levels,
                     struct scan *scan, struct stg_err *err)
{
    const struct stg_parquet_column *column = lists->column;
    struct stg_parquet_runs next_repeats = *repeats, next_levels = *levels;
    struct stg_parquet_flat flat;
    if (!stg_parquet_is_flat(lists->leaf))
        return 1;
    struct stg_parquet_mask *masks = (struct stg_parquet_mask *)lists->masks->data;
    if (!stg_parquet_flat_read(lists->leaf, n, &next_repeats, &next_levels, masks, &flat))
        return damaged(err, flat.is_short ? SHORT_LEVELS : BAD_LEVEL);
    if (flat.n_null_lists > 0 && may_fill(column))
        return 1;
    const struct scan counted = {.column = column,
                                 .leaf = lists->leaf,
                                 .n_rows = flat.n_rows,
                                 .n_slots = flat.n_slots,
                                 .n_valid = flat.n_valid};
    int rc = take_arrays(lists, &counted, scan, err);
    if (rc < 0)
        return rc;
    bool has_nulls = flat.n_valid < flat.n_slots;
    scan->n_rows = scan->rows.n = flat.n_rows;
    scan->n_slots = flat.n_slots;
    scan->n_valid = flat.n_valid;
    scan->goes_on = flat.goes_on;
    scan->valid = has_nulls ? scan->valid : NULL;
    stg_parquet_flat_rows(masks, n, column->want.may_lack, &scan->rows, scan->valid);
    *repeats = next_repeats;
    *levels = next_levels;
    return 0;
}

static int read_any(struct stg_parquet_lists *lists, uint64_t n,
                    struct stg_parquet_runs *repeats, struct stg_parquet_runs *levels,
                    struct scan *scan, struct stg_err *err)
{
    struct stg_parquet_runs first_repeats = *repeats, first_levels = *levels;
    struct scan counted = {.column = lists->column, .leaf = lists->leaf};
    int rc = scan_levels(&counted, n, &first_repeats, &first_levels, err);
    if (rc == 0)
        rc = take_arrays(lists, &counted, scan, err);
    return rc == 0 ? scan_levels(scan, n, repeats, levels, err) : rc;
}

int stg_parquet_lists_read(struct stg_parquet_lists *lists, uint64_t n,
                           struct stg_parquet_runs *repeats,
                           struct stg_parquet_runs *levels,
                           const struct stg_parquet_values *values, struct stg_err *err)
{
    struct scan scan;
    lists->part.n = lists->n_had = 0;
    lists->part_values = values;
    int rc = take_masks(lists, n, err);
    if (rc == 0)
        rc = read_flat(lists, n, repeats, levels, &scan, err);
    if (rc == 1)
        rc = read_any(lists, n, repeats, levels, &scan, err);
    if (rc == 0)
        end_scan(lists, &scan);
    return rc;
}

/* ---- the row between parts ---- */

/* Makes a chunk have room for `bytes`, of which `used` stay. */
static int grow(struct stg_quota *quota, uint64_t used, uint64_t bytes,
                struct stg_chunk **chunk, struct stg_err *err)
{
    struct stg_chunk *old = *chunk, *more = NULL;
    if (old != NULL && old->capacity >= bytes)
        return 0;
    int rc = stg_parquet_room(quota, bytes > 2 * used ? bytes : 2 * used, &more, err);
    if (rc < 0)
        return rc;
    if (used > 0)
        memcpy(more->data, old->data, used);
    stg_chunk_unref(old);
    *chunk = more;
    return 0;
}

/* Drops memory that a block shows. */
static void own(struct stg_chunk **chunk)
{
    if (*chunk == NULL ||
        atomic_load_explicit(&(*chunk)->refs, memory_order_acquire) == 1)
        return;
    stg_chunk_unref(*chunk);
    *chunk = NULL;
}

static void open_seam(struct stg_parquet_lists *lists)
{
    own(&lists->seam.data);
    own(&lists->seam.values);
    lists->seam.n = lists->seam_bytes = lists->n_inner = 0;
    if (lists->seam.values == NULL) {
        lists->seam.begin = lists->seam.end = NULL;
        lists->seam_size = 0;
    }
    lists->seam_is_bad = 0;
    lists->is_open = true;
}

/* Begin and end of strings lie in one chunk, each with room for seam_size. */
static int grow_strings(struct stg_parquet_lists *lists, uint64_t n, struct stg_err *err)
{
    struct stg_parquet_values *seam = &lists->seam;
    struct stg_chunk *more = NULL;
    uint64_t size = FIRST_SIZE + (n > 2 * seam->n ? n : 2 * seam->n);
    if (n <= lists->seam_size)
        return 0;
    int rc = stg_parquet_room(lists->quota, 2 * size * sizeof(int64_t), &more, err);
    if (rc < 0)
        return rc;
    int64_t *begin = (int64_t *)more->data, *end = begin + size;
    if (seam->n > 0) {
        memcpy(begin, seam->begin, seam->n * sizeof(*begin));
        memcpy(end, seam->end, seam->n * sizeof(*end));
    }
    stg_chunk_unref(seam->values);
    seam->values = more;
    seam->begin = begin;
    seam->end = end;
    lists->seam_size = size;
    return 0;
}

static uint64_t string_bytes(const struct stg_parquet_values *from, int64_t first,
                             uint64_t n)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < n; i++)
        bytes +=
            (uint64_t)(from->end[first + (int64_t)i] - from->begin[first + (int64_t)i]);
    return bytes;
}

static int append_strings(struct stg_parquet_lists *lists, int64_t first, uint64_t n,
                          struct stg_err *err)
{
    const struct stg_parquet_values *from = lists->part_values;
    struct stg_parquet_values *seam = &lists->seam;
    uint64_t bytes = string_bytes(from, first, n);
    int rc = grow(lists->quota, lists->seam_bytes, lists->seam_bytes + bytes + 1,
                  &seam->data, err);
    if (rc == 0)
        rc = grow_strings(lists, seam->n + n, err);
    if (rc < 0)
        return rc;
    for (int64_t i = first; i < first + (int64_t)n; i++, seam->n++) {
        uint64_t length = (uint64_t)(from->end[i] - from->begin[i]);
        memcpy(seam->data->data + lists->seam_bytes, from->base + from->begin[i], length);
        seam->begin[seam->n] = (int64_t)lists->seam_bytes;
        lists->seam_bytes += length;
        seam->end[seam->n] = (int64_t)lists->seam_bytes;
    }
    seam->base = seam->data->data;
    seam->base_bytes = lists->seam_bytes;
    return 0;
}

static int append_numbers(struct stg_parquet_lists *lists, int64_t first, uint64_t n,
                          struct stg_err *err)
{
    struct stg_parquet_values *seam = &lists->seam;
    unsigned width = stg_dtype_bytes(lists->column->want.dtype);
    uint64_t used = seam->n * width;
    int rc = grow(lists->quota, used, used + n * width + 1, &seam->values, err);
    if (rc < 0)
        return rc;
    if (n > 0)
        memcpy(seam->values->data + used,
               lists->part_values->fixed + (uint64_t)first * width, n * width);
    seam->fixed = seam->values->data;
    seam->n += n;
    return 0;
}

/* The lists of a row; one that goes on has its beginning already. */
static int append_inner(struct stg_parquet_lists *lists, uint64_t row, bool goes_on,
                        struct stg_err *err)
{
    const struct stg_list_rows *part = &lists->part;
    int64_t first = part->first[row], end = part->first[row + 1];
    int64_t shift = (int64_t)lists->seam.n - part->inner[first];
    if (goes_on && lists->n_inner == 0)
        return damaged(err, "its first value goes on with a list that has not begun");
    uint64_t n = lists->n_inner + (uint64_t)(end - first);
    int rc = grow(lists->quota, lists->n_inner * sizeof(int64_t),
                  (n + 1) * sizeof(int64_t), &lists->seam_inner, err);
    if (rc < 0)
        return rc;
    int64_t *inner = (int64_t *)lists->seam_inner->data;
    for (int64_t i = first + goes_on; i < end; i++)
        inner[lists->n_inner++] = part->inner[i] + shift;
    return 0;
}

/* Appends a row of the part, or what it has of one. */
static int append_row(struct stg_parquet_lists *lists, uint64_t row, bool inner_goes_on,
                      struct stg_err *err)
{
    const struct stg_list_rows *part = &lists->part;
    int64_t first = stg_list_value_of(part, row);
    uint64_t n = (uint64_t)(stg_list_value_of(part, row + 1) - first);
    int rc = part->inner != NULL ? append_inner(lists, row, inner_goes_on, err) : 0;
    if (rc == 0)
        rc = lists->column->want.dtype == STAGER_STRING
                 ? append_strings(lists, first, n, err)
                 : append_numbers(lists, first, n, err);
    lists->seam_is_bad |= part->bad[row];
    return rc;
}

static void show_seam(struct stg_parquet_lists *lists)
{
    bool is_deep = lists->column->want.n_lists > 1;
    lists->is_open = false;
    lists->seam_first[0] = 0;
    lists->seam_first[1] = (int64_t)(is_deep ? lists->n_inner : lists->seam.n);
    lists->rows = (struct stg_list_rows){
        .n = 1, .first = lists->seam_first, .bad = &lists->seam_is_bad};
    if (is_deep) {
        lists->rows.inner = (int64_t *)lists->seam_inner->data;
        lists->rows.inner[lists->n_inner] = (int64_t)lists->seam.n;
    }
    lists->values = &lists->seam;
}

/* ---- rows ---- */

static void show_body(struct stg_parquet_lists *lists, uint64_t end)
{
    const struct stg_list_rows *part = &lists->part;
    lists->rows = (struct stg_list_rows){.n = end - lists->n_had,
                                         .first = part->first + lists->n_had,
                                         .inner = part->inner,
                                         .bad = part->bad + lists->n_had};
    lists->values = lists->part_values;
    lists->n_had = end;
}

/* What the part has of the row that is open. */
static int close_seam(struct stg_parquet_lists *lists, struct stg_err *err)
{
    if (lists->goes_on && lists->n_had == 0) {
        lists->n_had = 1;
        int rc = append_row(lists, 0, lists->inner_goes_on, err);
        if (rc < 0 || lists->part.n == 1)
            return rc;
    }
    show_seam(lists);
    return 0;
}

int stg_parquet_lists_next(struct stg_parquet_lists *lists, bool is_last, uint64_t *ret,
                           struct stg_err *err)
{
    int rc = 0;
    lists->rows.n = 0;
    while (rc == 0 && lists->rows.n == 0 && lists->n_had < lists->part.n) {
        if (lists->is_open) {
            rc = close_seam(lists, err);
        } else if (lists->goes_on && lists->n_had == 0) {
            rc = damaged(err, "its first value goes on with a row that has not begun");
        } else if (lists->n_had + 1 < lists->part.n) {
            show_body(lists, lists->part.n - 1);
        } else {
            open_seam(lists);
            rc = append_row(lists, lists->n_had++, false, err);
        }
    }
    if (rc == 0 && lists->rows.n == 0 && is_last && lists->is_open)
        show_seam(lists);
    *ret = lists->rows.n;
    return rc;
}

static uint64_t size_of(const int64_t *shape, unsigned n)
{
    uint64_t size = 1;
    for (unsigned d = 0; d < n; d++)
        size = shape[d] < 0 ? 0 : size * (uint64_t)shape[d];
    return size;
}

int stg_parquet_lists_fill(struct stg_parquet_lists *lists, uint64_t n,
                           const struct stg_parquet_values *values, uint64_t *ret,
                           struct stg_err *err)
{
    const struct stg_parquet_column *column = lists->column;
    unsigned n_lists = column->want.n_lists;
    struct stg_parquet_leaf leaf = {.n_lists = n_lists, .max_level = n_lists + 1};
    struct scan counted = {.column = column, .leaf = &leaf}, scan;
    for (unsigned d = 0; d < n_lists; d++)
        leaf.list_levels[d] = d + 2;
    counted.n_rows = n;
    counted.n_inner =
        n_lists > 1 && column->shape[0] > 0 ? n * (uint64_t)column->shape[0] : 0;
    counted.n_slots = n * size_of(column->shape, n_lists);
    int rc = take_arrays(lists, &counted, &scan, err);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < n; i++)
        add_level(&scan, 0, 0);
    end_scan(lists, &scan);
    lists->part_values = values;
    show_body(lists, n);
    *ret = scan.n_slots;
    return 0;
}

/* ---- life ---- */

void stg_parquet_lists_begin(struct stg_parquet_lists *lists)
{
    lists->rows.n = lists->part.n = lists->n_had = 0;
    lists->is_open = false;
}

void stg_parquet_lists_finish(struct stg_parquet_lists *lists)
{
    stg_parquet_values_finish(&lists->seam);
    stg_chunk_unref(lists->memory);
    stg_chunk_unref(lists->masks);
    stg_chunk_unref(lists->seam_inner);
    lists->memory = lists->masks = lists->seam_inner = NULL;
}
