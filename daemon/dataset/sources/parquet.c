/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of Parquet files, a component for each declared column; two for lists of lists
 * that vary in length. A block shows the memory of the pages that its rows lie in; it
 * ends where a page of one of the columns ends, and where a list has another length.
 * A row that cannot be had is an error item, so that the footer has the number of each.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/sources/columns.h"
#include "daemon/dataset/sources/names.h"
#include "daemon/dataset/sources/reader.h"
#include "daemon/format/parquet/cursor.h"

#define UNKNOWN UINT64_MAX
#define NO_GROUP UINT32_MAX

struct file_count {
    uint64_t n; /* rows, or 1 for the error in their place; UNKNOWN */
    uint64_t bytes;
};

struct parquet {
    struct stg_iter iter;
    struct stg_declared_column *declared; /* n, as are columns, wants and cursors */
    struct stg_parquet_column *columns;
    struct stg_parquet_want *wants;
    struct stg_parquet_cursor *cursors;
    uint32_t n;
    struct stg_parquet_reading reading;
    struct stg_file_user identity; /* of the dataset */
    struct stg_names names;

    struct stg_source *source; /* the open file, or NULL */
    struct stg_parquet_file *file;
    char *path;        /* its url */
    char shown[512];   /* of a url for texts, where it is not path itself */
    uint32_t index;    /* among the files of the dataset */
    uint64_t epoch;    /* of its name */
    uint64_t row;      /* that comes next */
    uint32_t group;    /* that the cursors are in, or NO_GROUP */
    uint64_t in_group; /* the row of it that they have reached */

    struct stg_block *error;   /* to be emitted next, or NULL */
    struct file_count *counts; /* of each file of the dataset; NULL: none was counted */
    /* Of the files of this iteration, in turn: the number of rows up to the end of each.
     * And how many of the files were begun. */
    uint64_t *ends;
    uint64_t n_ends, ends_size, n_begun;
};

static int out_of_memory(const struct parquet *p, struct stg_err *err)
{
    return stg_step_err(p->iter.step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
}

/* ---- options ---- */

static int parquet_infer(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_bump *bump, struct stg_schema *ret,
                         struct stg_err *err)
{
    int rc = stg_reader_check(step, in, err);
    return rc == 0 ? stg_columns_infer(step, bump, ret, err) : rc;
}

/* ---- files ---- */

static const char *shown(struct parquet *p)
{
    return stg_storage_shown(p->path, p->shown, sizeof(p->shown));
}

static void close_file(struct parquet *p)
{
    stg_parquet_close(p->file);
    p->file = NULL;
    if (p->source != NULL)
        p->source->storage->close(p->source);
    p->source = NULL;
    p->group = NO_GROUP;
}

/* May the pass go on behind this error? That of a file costs that file. */
static bool is_ignored(const struct parquet *p, int code, bool is_storage)
{
    if (code == -STAGER_CANCELLED || code == -STAGER_RESOURCE_EXHAUSTED)
        return false;
    return !is_storage || (p->iter.dataset->env.ignored_codes & STG_CODE_BIT(-code)) != 0;
}

static int open_source(struct parquet *p, const char *url, struct stg_source **ret,
                       struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    int rc = stg_storage_find(url, &storage, &path, err);
    if (rc == 0 && *ret == NULL)
        rc = storage->open(path, &p->identity, ret, err);
    return rc;
}

/* Opens a file and reads its footer. *source: open already, or NULL; it is closed on
 * failure. *ret_storage: the error is one of the storage. */
static int read_footer(struct parquet *p, const char *url, struct stg_source **source,
                       struct stg_parquet_file **ret, bool *ret_storage,
                       struct stg_err *err)
{
    char buf[512];
    *ret_storage = true;
    int rc = open_source(p, url, source, err);
    if (rc == 0) {
        stg_source_trace(*source, p->iter.dataset->env.trace, url);
        rc = stg_parquet_open(*source, p->iter.dataset->quota, p->wants, p->n, ret,
                              ret_storage, err);
        if (rc < 0 && !*ret_storage)
            stg_err_prefix(err, rc, "%s", stg_storage_shown(url, buf, sizeof(buf)));
    }
    if (rc == 0)
        return 0;
    if (*source != NULL)
        (*source)->storage->close(*source);
    *source = NULL;
    return stg_step_prefix(p->iter.step, rc, err);
}

/* ---- files that were counted ---- */

static uint64_t end_of(const struct parquet *p, uint64_t file)
{
    return file > 0 ? p->ends[file - 1] : 0;
}

/* Fails if the file that was begun last had another number of rows when all files were
 * counted: those of the files behind it would have other numbers. */
static int check_counted(struct parquet *p, uint64_t n, struct stg_err *err)
{
    uint64_t file = p->n_begun - 1;
    uint64_t before = file < p->n_ends ? p->ends[file] - end_of(p, file) : n;
    if (n == before)
        return 0;
    return stg_step_err(p->iter.step, -STAGER_FAILED_PRECONDITION, err,
                        "%s has %" PRIu64 " rows now, and had %" PRIu64
                        " when they were counted: keep the files as they are during a "
                        "pass, or use a buffer_size without global",
                        shown(p), n, before);
}

static int emit_error(struct parquet *p, const struct stg_err *why, struct stg_err *err)
{
    return stg_block_create_error(p->iter.dataset->quota, why, p->epoch, &p->error, err);
}

/* Begins the file p->path. Sets p->error if an error item stands for it. */
static int begin_file(struct parquet *p, struct stg_err *err)
{
    struct stg_err why = {0};
    bool is_storage;
    stg_activity_file(p->iter.dataset->env.activity, shown(p));
    int rc = read_footer(p, p->path, &p->source, &p->file, &is_storage, &why);
    p->row = 0;
    p->reading.source = p->source;
    if (rc == 0) {
        rc = check_counted(p, stg_parquet_n_rows(p->file), err);
        if (rc < 0)
            close_file(p);
        return rc;
    }
    if (is_ignored(p, rc, is_storage)) {
        rc = check_counted(p, 1, err);
        return rc == 0 ? emit_error(p, &why, err) : rc;
    }
    if (err != NULL)
        *err = why;
    return rc;
}

/* Opens the next file. 1: there is none. */
static int next_file(struct parquet *p, struct stg_err *err)
{
    struct stg_name name;
    int rc = stg_iter_stopped(&p->iter, err);
    if (rc == 0)
        rc = stg_names_next(&p->names, &name, &p->source, err);
    if (rc != 0)
        return rc;
    p->n_begun++;
    if (name.error != NULL) {
        p->error = name.error;
        return 0;
    }
    free(p->path);
    p->path = name.url;
    p->index = name.file;
    p->epoch = name.epoch;
    return begin_file(p, err);
}

/* ---- rows ---- */

/* Returns the group of a row of the open file. */
static uint32_t find_group(const struct parquet *p, uint64_t row)
{
    uint32_t low = 0, high = p->file->n_groups;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->file->ends[middle] <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A group of which rows will be read behind those of the one that was begun. */
static void announce(const struct parquet *p, uint32_t group)
{
    const struct stg_storage *storage = p->source->storage;
    if (storage->will_need == NULL || group >= p->file->n_groups)
        return;
    for (uint32_t c = 0; c < p->n; c++) {
        const struct stg_parquet_range *range =
            &p->file->ranges[(uint64_t)group * p->n + c];
        if (range->end > range->begin)
            storage->will_need(p->source, range->begin, range->end - range->begin);
    }
}

/* Makes the pages of the next row those of the cursors. */
static int go(struct parquet *p, struct stg_err *err)
{
    uint32_t group = p->group != NO_GROUP && p->row < p->file->ends[p->group] &&
                             p->row >= (p->group > 0 ? p->file->ends[p->group - 1] : 0)
                         ? p->group
                         : find_group(p, p->row);
    uint64_t row = p->row - (group > 0 ? p->file->ends[group - 1] : 0);
    bool is_ahead = group == p->group && row >= p->in_group;
    bool is_next = p->group == NO_GROUP || group == p->group + 1;
    for (uint32_t c = 0; c < p->n && !is_ahead; c++)
        stg_parquet_cursor_begin(&p->cursors[c], p->file, c, group);
    p->group = group;
    p->in_group = row;
    for (uint32_t c = 0; c < p->n; c++) {
        struct stg_err why = {0};
        int rc = stg_parquet_cursor_go(&p->cursors[c], row, &why);
        if (rc < 0 && is_ignored(p, rc, true)) {
            stg_parquet_cursor_lose(&p->cursors[c], &why);
        } else if (rc < 0) {
            if (err != NULL)
                *err = why;
            stg_err_prefix(err, rc, "%s", shown(p));
            return stg_step_prefix(p->iter.step, rc, err);
        }
    }
    if (is_next)
        announce(p, group + 1);
    return 0;
}

/* Returns how many of n rows of a column are no error, and of one shape, from row `at` of
 * those that its cursor is at. */
static uint64_t count_alike(const struct stg_parquet_cursor *cursor, uint64_t at,
                            uint64_t n)
{
    if (cursor->lost.code != 0)
        return 0;
    if (cursor->column->want.n_lists > 0)
        return stg_list_rows_alike(&cursor->lists.rows, cursor->column->shape, at, n);
    if (cursor->values.valid == NULL)
        return n;
    const uint8_t *valid = cursor->values.valid + at;
    const uint8_t *null = memchr(valid, 0, n);
    return null != NULL ? (uint64_t)(null - valid) : n;
}

/* Returns how many of the next `want` rows can be had in one block; 0: the first of them
 * cannot, because of column *ret. */
static uint64_t count_good(const struct parquet *p, uint64_t want, uint32_t *ret)
{
    for (uint32_t c = 0; c < p->n && want > 0; c++) {
        const struct stg_parquet_cursor *cursor = &p->cursors[c];
        uint64_t at = p->in_group - cursor->first, left = cursor->n - at;
        want = count_alike(cursor, at, want < left ? want : left);
        *ret = c;
    }
    return want;
}

/* What column c shows of the next n rows. */
static struct stg_column_view view_of(const struct parquet *p, uint32_t c, uint64_t n)
{
    const struct stg_parquet_cursor *cursor = &p->cursors[c];
    return (struct stg_column_view){.column = &p->declared[c],
                                    .rows = &cursor->lists.rows,
                                    .at = p->in_group - cursor->first,
                                    .n = n};
}

/* The next row is an error item. */
static int make_bad(struct parquet *p, uint32_t c, struct stg_block **ret,
                    struct stg_err *err)
{
    const struct stg_parquet_cursor *cursor = &p->cursors[c];
    struct stg_column_view view = view_of(p, c, 1);
    struct stg_err why = cursor->lost;
    if (why.code == 0) {
        stg_column_explain(&view, &why);
        stg_err_prefix(&why, why.code,
                       "column %.256s, row group %" PRIu32 ", page at offset %" PRIu64,
                       cursor->column->want.name, cursor->group, cursor->at);
    }
    stg_err_prefix(&why, why.code, "%s: row %" PRIu64, shown(p), p->row);
    p->row++;
    return stg_block_create_error(p->iter.dataset->quota, &why, p->epoch, ret, err);
}

/* Values from one on, as a tensor of that many; adds the memory that they lie in. */
static void show_values(const struct stg_parquet_column *column,
                        const struct stg_parquet_values *values, uint64_t at, uint64_t n,
                        struct stg_tensor *tensor, struct stg_chunk **held,
                        uint32_t *n_held)
{
    int dtype = column->want.dtype;
    if (values->values != NULL)
        held[(*n_held)++] = values->values;
    if (dtype == STAGER_STRING) {
        tensor->data = (char *)(uintptr_t)values->base;
        tensor->data_bytes = values->base_bytes + column->text_bytes;
        tensor->begin = values->begin + at;
        tensor->end = values->end + at;
    } else {
        unsigned width = stg_dtype_bytes(dtype);
        tensor->data = (char *)(uintptr_t)values->fixed + at * width;
        tensor->data_bytes = n * width;
    }
    if (values->data != NULL && (dtype == STAGER_STRING || values->values == NULL))
        held[(*n_held)++] = values->data;
}

/* Returns behind the components of the column. */
static struct stg_tensor *show(const struct parquet *p, uint32_t c, uint64_t n,
                               struct stg_block *block, struct stg_tensor *tensor,
                               struct stg_chunk **held, uint32_t *n_held)
{
    struct stg_column_view view = view_of(p, c, n);
    uint64_t first, n_values;
    struct stg_tensor *ret = stg_column_show(&view, block, tensor, &first, &n_values);
    show_values(&p->columns[c], stg_parquet_cursor_values(&p->cursors[c]), first,
                n_values, tensor, held, n_held);
    return ret;
}

static int make_block(struct parquet *p, uint64_t n, struct stg_block **ret,
                      struct stg_err *err)
{
    struct stg_block *block;
    struct stg_chunk **held;
    uint64_t held_bytes = 2 * (uint64_t)p->n * sizeof(*held);
    uint64_t rows_bytes = n * sizeof(struct stg_provenance);
    uint64_t bytes = stg_block_room(rows_bytes) + 2 * stg_block_room(held_bytes);
    uint32_t n_held = 0;
    for (uint32_t c = 0; c < p->n; c++) {
        struct stg_column_view view = view_of(p, c, n);
        bytes += stg_column_splits_room(&view);
    }
    int rc = stg_block_create(p->iter.dataset->quota, (uint32_t)p->iter.schema->n, bytes,
                              NULL, "a block of rows", &block, err);
    if (rc < 0)
        return stg_step_prefix(p->iter.step, rc, err);
    struct stg_provenance *rows = stg_block_carve(block, rows_bytes);
    uint64_t offset = p->file->ranges[(uint64_t)p->group * p->n].begin;
    for (uint64_t i = 0; i < n; i++)
        rows[i] = (struct stg_provenance){
            .file = p->index, .offset = offset, .record = p->row + i};
    held = stg_block_carve(block, held_bytes);
    struct stg_tensor *tensor = block->tensors;
    for (uint32_t c = 0; c < p->n; c++)
        tensor = show(p, c, n, block, tensor, held, &n_held);
    stg_block_hold(block, held, n_held);
    block->rows = rows;
    block->n_records = block->n_rows = (int64_t)n;
    block->epoch = p->epoch;
    p->row += n;
    *ret = block;
    return 0;
}

static int parquet_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                        struct stg_err *err)
{
    struct parquet *p = (struct parquet *)iter;
    uint32_t bad = 0;
    want = want < STG_BLOCK_MAX_RECORDS ? want : STG_BLOCK_MAX_RECORDS;
    while (p->error == NULL) {
        if (p->source != NULL && p->row < stg_parquet_n_rows(p->file)) {
            int rc = stg_iter_stopped(iter, err);
            if (rc == 0)
                rc = go(p, err);
            if (rc < 0)
                return rc;
            uint64_t n = count_good(p, (uint64_t)want, &bad);
            return n > 0 ? make_block(p, n, ret, err) : make_bad(p, bad, ret, err);
        }
        close_file(p);
        int rc = next_file(p, err);
        if (rc != 0)
            return rc;
    }
    *ret = p->error;
    p->error = NULL;
    return 0;
}

/* ---- skipping ---- */

static int parquet_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                        struct stg_err *err)
{
    struct parquet *p = (struct parquet *)iter;
    uint64_t skipped = 0;
    int rc = 0;
    while (rc == 0 && skipped < n) {
        if (p->error != NULL) {
            stg_block_unref(p->error);
            p->error = NULL;
            skipped++;
        } else if (p->source != NULL) {
            uint64_t left = stg_parquet_n_rows(p->file) - p->row, now = n - skipped;
            now = now < left ? now : left;
            p->row += now;
            skipped += now;
            if (now == left)
                close_file(p);
        } else {
            rc = next_file(p, err);
        }
    }
    if (rc >= 0)
        *ret = skipped;
    return rc < 0 ? rc : 0;
}

/* ---- counting ---- */

static uint64_t bytes_of(const struct stg_parquet_file *file)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < (uint64_t)file->n_groups * file->n_columns; i++)
        bytes += file->ranges[i].end - file->ranges[i].begin;
    return bytes;
}

static int count_anew(struct parquet *p, const struct stg_name *name,
                      struct file_count *ret, struct stg_err *err)
{
    struct stg_source *source = NULL;
    struct stg_parquet_file *file;
    struct stg_err why = {0};
    bool is_storage;
    int rc = read_footer(p, name->url, &source, &file, &is_storage, &why);
    if (rc == 0) {
        *ret =
            (struct file_count){.n = stg_parquet_n_rows(file), .bytes = bytes_of(file)};
        stg_parquet_close(file);
        source->storage->close(source);
        return 0;
    }
    *ret = (struct file_count){.n = 1};
    if (is_ignored(p, rc, is_storage))
        return 0;
    if (err != NULL)
        *err = why;
    return rc;
}

/* All of the dataset's. */
static int create_counts(struct parquet *p, struct stg_err *err)
{
    struct stg_dataset *dataset = p->iter.dataset;
    uint64_t bytes = dataset->n_files * sizeof(*p->counts);
    if (p->counts != NULL)
        return 0;
    int rc = stg_quota_take(dataset->quota, bytes, "the sizes of the files", err);
    if (rc < 0)
        return stg_step_prefix(p->iter.step, rc, err);
    p->counts = malloc(bytes + 1);
    if (p->counts == NULL) {
        stg_quota_give(dataset->quota, bytes);
        return out_of_memory(p, err);
    }
    for (uint32_t i = 0; i < dataset->n_files; i++)
        p->counts[i].n = UNKNOWN;
    return 0;
}

static int count_file(struct parquet *p, const struct stg_name *name,
                      struct file_count *ret, struct stg_err *err)
{
    *ret = (struct file_count){.n = 1};
    if (name->error != NULL)
        return 0;
    int rc = create_counts(p, err);
    if (rc < 0)
        return rc;
    if (name->file >= p->iter.dataset->n_files)
        return count_anew(p, name, ret, err);
    struct file_count *count = &p->counts[name->file];
    if (count->n == UNKNOWN)
        rc = count_anew(p, name, count, err);
    if (rc < 0)
        count->n = UNKNOWN;
    *ret = *count;
    return rc;
}

static bool parquet_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct parquet *p = (struct parquet *)iter;
    struct stg_names *names = &p->names;
    struct file_count count;
    *ret = (p->error != NULL) +
           (p->source != NULL ? stg_parquet_n_rows(p->file) - p->row : 0);
    for (size_t i = 0; *ret < most; i++) {
        if (stg_names_pull(names, i + 1) == i)
            return names->ended == 1;
        if (count_file(p, stg_names_at(names, i), &count, NULL) < 0)
            return false;
        *ret = stg_count_add(*ret, count.n);
    }
    return true;
}

/* ---- any order ---- */

static void forget(struct parquet *p)
{
    close_file(p);
    stg_names_clear(&p->names);
    stg_block_unref(p->error);
    p->error = NULL;
}

static int grow_ends(struct parquet *p, uint64_t n, struct stg_err *err)
{
    struct stg_quota *quota = p->iter.dataset->quota;
    if (n <= p->ends_size)
        return 0;
    uint64_t more = (n - p->ends_size) * sizeof(uint64_t);
    int rc = stg_quota_take(quota, more, "the numbers of the files", err);
    if (rc < 0)
        return stg_step_prefix(p->iter.step, rc, err);
    uint64_t *ends = realloc(p->ends, n * sizeof(*ends));
    if (ends == NULL) {
        stg_quota_give(quota, more);
        return out_of_memory(p, err);
    }
    p->ends = ends;
    p->ends_size = n;
    return 0;
}

/* Counts the next file. */
static int add_file(struct parquet *p, struct stg_extent *extent, struct stg_err *err)
{
    struct file_count count;
    int rc = stg_iter_stopped(&p->iter, err);
    if (rc < 0)
        return rc;
    if (stg_names_pull(&p->names, 1) == 0) {
        if (p->names.ended < 0 && err != NULL)
            *err = p->names.failure;
        return p->names.ended;
    }
    rc = count_file(p, stg_names_at(&p->names, 0), &count, err);
    stg_names_drop(&p->names);
    if (rc < 0)
        return rc;
    extent->n = stg_count_add(extent->n, count.n);
    extent->bytes = stg_count_add(extent->bytes, count.bytes);
    p->ends[p->n_ends++] = extent->n;
    return 0;
}

static int parquet_count(struct stg_iter *iter, struct stg_extent *ret,
                         struct stg_err *err)
{
    struct parquet *p = (struct parquet *)iter;
    struct stg_extent files;
    forget(p);
    int rc = stg_iter_count(iter->input, &files, err);
    if (rc == 0)
        rc = grow_ends(p, files.n, err);
    if (rc == 0 && files.n > 0)
        rc = stg_iter_seek(iter->input, 0, err);
    *ret = (struct stg_extent){0};
    p->n_ends = 0;
    while (rc == 0 && p->n_ends < files.n)
        rc = add_file(p, ret, err);
    stg_names_clear(&p->names);
    p->n_begun = UNKNOWN;
    return rc < 0 ? rc : 0;
}

/* Returns the first file that ends behind row n. */
static uint64_t find_file(const struct parquet *p, uint64_t n)
{
    uint64_t low = 0, high = p->n_ends;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (p->ends[middle] <= n)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int parquet_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct parquet *p = (struct parquet *)iter;
    uint64_t file = find_file(p, n);
    if (p->source == NULL || p->error != NULL || p->n_begun != file + 1) {
        forget(p);
        int rc = stg_iter_seek(iter->input, file, err);
        if (rc < 0)
            return rc;
        p->n_begun = file;
        rc = next_file(p, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    p->row = n - end_of(p, file);
    return 0;
}

/* ---- life ---- */

static int parquet_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    forget((struct parquet *)iter);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void parquet_destroy(struct stg_iter *iter)
{
    struct parquet *p = (struct parquet *)iter;
    struct stg_quota *quota = iter->dataset->quota;
    forget(p);
    stg_names_finish(&p->names);
    for (uint32_t c = 0; p->cursors != NULL && c < p->n; c++)
        stg_parquet_cursor_finish(&p->cursors[c]);
    free(p->cursors);
    stg_parquet_reading_finish(&p->reading);
    if (p->counts != NULL)
        stg_quota_give(quota, iter->dataset->n_files * sizeof(*p->counts));
    free(p->counts);
    stg_quota_give(quota, p->ends_size * sizeof(*p->ends));
    free(p->ends);
    free(p->path);
    free(p);
}

static const struct stg_iter_impl parquet_impl = {.next = parquet_next,
                                                  .rewind = parquet_rewind,
                                                  .destroy = parquet_destroy,
                                                  .skip = parquet_skip,
                                                  .left = parquet_left,
                                                  .left_has_errors = true,
                                                  .count = parquet_count,
                                                  .seek = parquet_seek};

static void declare(struct parquet *p)
{
    for (uint32_t c = 0; c < p->n; c++) {
        const struct stg_declared_column *from = &p->declared[c];
        p->wants[c] = (struct stg_parquet_want){.name = from->name,
                                                .dtype = from->dtype,
                                                .n_lists = from->n_lists,
                                                .may_lack = from->has_default};
        p->columns[c] = (struct stg_parquet_column){.want = p->wants[c],
                                                    .value = from->value,
                                                    .text = from->text,
                                                    .text_bytes = from->text_bytes};
        memcpy(p->columns[c].shape, from->shape, sizeof(from->shape));
        p->cursors[c].reading = &p->reading;
        p->cursors[c].column = &p->columns[c];
    }
}

static int create_columns(struct parquet *p, struct stg_err *err)
{
    struct stg_bump *bump = &p->iter.dataset->bump;
    p->declared = stg_bump_alloc(bump, p->n * sizeof(*p->declared));
    p->columns = stg_bump_alloc(bump, p->n * sizeof(*p->columns));
    p->wants = stg_bump_alloc(bump, p->n * sizeof(*p->wants));
    p->cursors = calloc(p->n, sizeof(*p->cursors));
    if (p->declared == NULL || p->columns == NULL || p->wants == NULL ||
        p->cursors == NULL)
        return out_of_memory(p, err);
    int rc = stg_columns_read(p->iter.step, p->declared, err);
    if (rc == 0)
        declare(p);
    return rc;
}

static int parquet_create(struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          struct stg_iter **ret, struct stg_err *err)
{
    struct parquet *p =
        stg_iter_create(sizeof(*p), &parquet_impl, dataset, step, schema, input, err);
    if (p == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    size_t n = 0;
    int rc = stg_columns_count(step, &n, err);
    p->n = (uint32_t)n;
    p->group = NO_GROUP;
    p->reading.quota = p->reading.codecs.quota = dataset->quota;
    p->names.input = input;
    p->names.step = step;
    p->identity = dataset->identity;
    p->identity.in_places = true;
    p->names.identity = &p->identity;
    if (rc == 0)
        rc = create_columns(p, err);
    if (rc < 0) {
        parquet_destroy(&p->iter);
        return rc;
    }
    dataset->has_records = true;
    *ret = &p->iter;
    return 0;
}

const struct stg_transformation stg_parquet = {.name = "parquet",
                                               .infer = parquet_infer,
                                               .create = parquet_create,
                                               .is_indexable = true};
