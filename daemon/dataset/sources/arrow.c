/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of Arrow files, a component for each declared column. A block shows the memory
 * that its rows were read to; it ends where a column was read no further. A row that
 * cannot be had is an error item, so that the batches have the number of each.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/sources/columns.h"
#include "daemon/dataset/sources/names.h"
#include "daemon/dataset/sources/reader.h"
#include "daemon/format/arrow/cursor.h"

#define UNKNOWN UINT64_MAX
#define NO_BATCH UINT32_MAX

struct file_count {
    uint64_t n; /* rows, or 1 for the error in their place; UNKNOWN */
    uint64_t bytes;
};

struct arrow {
    struct stg_iter iter;
    struct stg_declared_column *declared; /* n, as are columns, wants and cursors */
    struct stg_arrow_column *columns;
    struct stg_arrow_want *wants;
    struct stg_arrow_cursor *cursors;
    uint32_t n;
    struct stg_arrow_reading reading;
    struct stg_names names;

    struct stg_source *source; /* the open file, or NULL */
    struct stg_arrow_file *file;
    char *path;        /* its url */
    char shown[512];   /* of a url for texts, where it is not path itself */
    uint32_t index;    /* among the files of the dataset */
    uint64_t epoch;    /* of its name */
    uint64_t row;      /* that comes next */
    uint32_t batch;    /* that the cursors are in, or NO_BATCH */
    uint64_t in_batch; /* the row of it that they have reached */

    struct stg_block *error;   /* to be emitted next, or NULL */
    struct file_count *counts; /* of each file of the dataset; NULL: none was counted */
    /* Of the files of this iteration, in turn: the number of rows up to the end of each.
     * And how many of the files were begun. */
    uint64_t *ends;
    uint64_t n_ends, ends_size, n_begun;
};

static int out_of_memory(const struct arrow *p, struct stg_err *err)
{
    return stg_step_err(p->iter.step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
}

/* ---- options ---- */

static int arrow_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_reader_check(step, in, err);
    if (rc == 0 && !stg_arrow_is_built)
        rc =
            stg_step_err(step, -STAGER_UNIMPLEMENTED, err,
                         "this stagerd was built without flatbuffers, and reads no Arrow "
                         "files");
    return rc == 0 ? stg_columns_infer(step, bump, ret, err) : rc;
}

/* ---- files ---- */

static const char *shown(struct arrow *p)
{
    return stg_storage_shown(p->path, p->shown, sizeof(p->shown));
}

static void close_file(struct arrow *p)
{
    stg_arrow_close(p->file);
    p->file = NULL;
    if (p->source != NULL)
        p->source->storage->close(p->source);
    p->source = NULL;
    p->batch = NO_BATCH;
}

/* May the pass go on behind this error? That of a file costs that file. */
static bool is_ignored(const struct arrow *p, int code, bool is_storage)
{
    if (code == -STAGER_CANCELLED || code == -STAGER_RESOURCE_EXHAUSTED)
        return false;
    return !is_storage || (p->iter.dataset->env.ignored_codes & STG_CODE_BIT(-code)) != 0;
}

static int open_source(struct arrow *p, const char *url, struct stg_source **ret,
                       struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    int rc = stg_storage_find(url, &storage, &path, err);
    if (rc == 0 && storage->remote)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "%s: arrow reads local files only: copy the file", path);
    if (rc == 0 && *ret == NULL)
        rc = storage->open(path, &p->iter.dataset->identity, ret, err);
    return rc;
}

/* Opens a file and reads its footer. *source: open already, or NULL; it is closed on
 * failure. *ret_storage: the error is one of the storage. */
static int read_footer(struct arrow *p, const char *url, struct stg_source **source,
                       struct stg_arrow_file **ret, bool *ret_storage,
                       struct stg_err *err)
{
    char buf[512];
    *ret_storage = true;
    int rc = open_source(p, url, source, err);
    if (rc == 0) {
        stg_source_trace(*source, p->iter.dataset->env.trace, url);
        rc = stg_arrow_open(*source, p->iter.dataset->quota, p->wants, p->n, ret,
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

static uint64_t end_of(const struct arrow *p, uint64_t file)
{
    return file > 0 ? p->ends[file - 1] : 0;
}

/* Fails if the file that was begun last had another number of rows when all files were
 * counted: those of the files behind it would have other numbers. */
static int check_counted(struct arrow *p, uint64_t n, struct stg_err *err)
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

static int emit_error(struct arrow *p, const struct stg_err *why, struct stg_err *err)
{
    return stg_block_create_error(p->iter.dataset->quota, why, p->epoch, &p->error, err);
}

/* Begins the file p->path. Sets p->error if an error item stands for it. */
static int begin_file(struct arrow *p, struct stg_err *err)
{
    struct stg_err why = {0};
    bool is_storage;
    stg_activity_file(p->iter.dataset->env.activity, shown(p));
    int rc = read_footer(p, p->path, &p->source, &p->file, &is_storage, &why);
    p->row = 0;
    p->reading.source = p->source;
    if (rc == 0) {
        rc = check_counted(p, stg_arrow_n_rows(p->file), err);
        if (rc < 0) {
            close_file(p);
            return rc;
        }
        for (uint32_t c = 0; c < p->n; c++)
            stg_arrow_cursor_open(&p->cursors[c], p->file, c);
        return 0;
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
static int next_file(struct arrow *p, struct stg_err *err)
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

/* Returns the batch of a row of the open file. */
static uint32_t find_batch(const struct arrow *p, uint64_t row)
{
    uint32_t low = 0, high = p->file->n_batches;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->file->batches[middle].end <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t begin_of(const struct arrow *p, uint32_t batch)
{
    return batch > 0 ? p->file->batches[batch - 1].end : 0;
}

static int fail(struct arrow *p, int rc, const struct stg_err *why, struct stg_err *err)
{
    if (err != NULL)
        *err = *why;
    stg_err_prefix(err, rc, "%s", shown(p));
    return stg_step_prefix(p->iter.step, rc, err);
}

static int begin_batch(struct arrow *p, uint32_t batch, struct stg_err *err)
{
    struct stg_err why = {0};
    int rc = stg_arrow_cursors_begin(p->cursors, p->n, batch, &why);
    p->batch = batch;
    if (rc == 0)
        return 0;
    if (!is_ignored(p, rc, true))
        return fail(p, rc, &why, err);
    for (uint32_t c = 0; c < p->n; c++)
        stg_arrow_cursor_lose(&p->cursors[c], 0, &why);
    return 0;
}

/* Makes the cursors have the next row. */
static int go(struct arrow *p, uint64_t want, struct stg_err *err)
{
    bool is_there = p->batch != NO_BATCH && p->row >= begin_of(p, p->batch) &&
                    p->row < p->file->batches[p->batch].end;
    int rc = is_there ? 0 : begin_batch(p, find_batch(p, p->row), err);
    p->in_batch = p->row - begin_of(p, p->batch);
    for (uint32_t c = 0; rc == 0 && c < p->n; c++) {
        struct stg_err why = {0};
        rc = stg_arrow_cursor_go(&p->cursors[c], p->in_batch, want, &why);
        if (rc < 0 && is_ignored(p, rc, true)) {
            stg_arrow_cursor_lose(&p->cursors[c], p->in_batch, &why);
            rc = 0;
        } else if (rc < 0) {
            return fail(p, rc, &why, err);
        }
    }
    return rc;
}

/* What column c shows of the next n rows. */
static struct stg_column_view view_of(const struct arrow *p, uint32_t c, uint64_t n)
{
    const struct stg_arrow_cursor *cursor = &p->cursors[c];
    return (struct stg_column_view){.column = &p->declared[c],
                                    .rows = &cursor->lists.rows,
                                    .at = p->in_batch - cursor->first,
                                    .n = n};
}

/* Returns how many of n rows of a column are no error, and of one shape, from row `at` of
 * those that its cursor is at. */
static uint64_t count_alike(const struct stg_arrow_cursor *cursor, uint64_t at,
                            uint64_t n)
{
    const uint8_t *state = cursor->values.state;
    uint64_t i = 0;
    if (cursor->lost.code != 0)
        return 0;
    if (cursor->column->want.n_lists > 0)
        return stg_list_rows_alike(&cursor->lists.rows, cursor->column->shape, at, n);
    while (state != NULL && i < n && state[at + i] == STG_ARROW_GOOD)
        i++;
    return state != NULL ? i : n;
}

/* Returns how many of the next `want` rows can be had in one block; 0: the first of them
 * cannot, because of column *ret. */
static uint64_t count_good(const struct arrow *p, uint64_t want, uint32_t *ret)
{
    for (uint32_t c = 0; c < p->n && want > 0; c++) {
        const struct stg_arrow_cursor *cursor = &p->cursors[c];
        uint64_t at = p->in_batch - cursor->first, left = cursor->n - at;
        want = count_alike(cursor, at, want < left ? want : left);
        *ret = c;
    }
    return want;
}

static const char *reason_of(uint8_t state)
{
    switch (state) {
    case STG_ARROW_BAD_INDEX: return "its index is out of the range of its dictionary";
    case STG_ARROW_TOO_LARGE: return "the decimal is out of the range of int64";
    default: return "an offset of its string is out of range";
    }
}

/* Why a row that was read cannot be had. */
static void explain(const struct arrow *p, uint32_t c, struct stg_err *ret)
{
    const struct stg_arrow_cursor *cursor = &p->cursors[c];
    struct stg_column_view view = view_of(p, c, 1);
    bool is_list = cursor->column->want.n_lists > 0;
    uint8_t state = is_list ? view.rows->bad[view.at] : cursor->values.state[view.at];
    if (state == STG_ARROW_GOOD || state == STG_ARROW_IS_NULL)
        stg_column_explain(&view, ret);
    else
        stg_err(ret,
                state == STG_ARROW_TOO_LARGE ? -STAGER_INVALID_ARGUMENT
                                             : -STAGER_DATA_LOSS,
                "%s", reason_of(state));
    stg_err_prefix(ret, ret->code,
                   "column %.256s, record batch %" PRIu32 " at offset %" PRIu64,
                   cursor->column->want.name, cursor->batch,
                   p->file->batches[cursor->batch].piece.at);
}

/* The next row is an error item. */
static int make_bad(struct arrow *p, uint32_t c, struct stg_block **ret,
                    struct stg_err *err)
{
    struct stg_err why = p->cursors[c].lost;
    if (why.code == 0)
        explain(p, c, &why);
    stg_err_prefix(&why, why.code, "%s: row %" PRIu64, shown(p), p->row);
    p->row++;
    return stg_block_create_error(p->iter.dataset->quota, &why, p->epoch, ret, err);
}

/* Returns behind the components of the column. */
static struct stg_tensor *show(const struct arrow *p, uint32_t c, uint64_t n,
                               struct stg_block *block, struct stg_tensor *tensor,
                               struct stg_chunk **held, uint32_t *n_held)
{
    const struct stg_arrow_values *values = &p->cursors[c].values;
    struct stg_column_view view = view_of(p, c, n);
    uint64_t first, n_values;
    struct stg_tensor *ret = stg_column_show(&view, block, tensor, &first, &n_values);
    if (tensor->dtype == STAGER_STRING) {
        tensor->data = values->base;
        tensor->data_bytes = values->base_bytes + p->columns[c].text_bytes;
        tensor->begin = values->begin + first;
        tensor->end = values->end + first;
    } else {
        unsigned width = stg_dtype_bytes(tensor->dtype);
        tensor->data = values->fixed + first * width;
        tensor->data_bytes = n_values * width;
    }
    if (values->values != NULL)
        held[(*n_held)++] = values->values;
    if (values->data != NULL)
        held[(*n_held)++] = values->data;
    return ret;
}

static int make_block(struct arrow *p, uint64_t n, struct stg_block **ret,
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
    uint64_t offset = p->file->batches[p->batch].piece.body;
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

static int arrow_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct arrow *p = (struct arrow *)iter;
    uint32_t bad = 0;
    want = want < STG_BLOCK_MAX_RECORDS ? want : STG_BLOCK_MAX_RECORDS;
    while (p->error == NULL) {
        if (p->source != NULL && p->row < stg_arrow_n_rows(p->file)) {
            int rc = stg_iter_stopped(iter, err);
            if (rc == 0)
                rc = go(p, (uint64_t)want, err);
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

static int arrow_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                      struct stg_err *err)
{
    struct arrow *p = (struct arrow *)iter;
    uint64_t skipped = 0;
    int rc = 0;
    while (rc == 0 && skipped < n) {
        if (p->error != NULL) {
            stg_block_unref(p->error);
            p->error = NULL;
            skipped++;
        } else if (p->source != NULL) {
            uint64_t left = stg_arrow_n_rows(p->file) - p->row, now = n - skipped;
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

static int count_anew(struct arrow *p, const struct stg_name *name,
                      struct file_count *ret, struct stg_err *err)
{
    struct stg_source *source = NULL;
    struct stg_arrow_file *file;
    struct stg_err why = {0};
    bool is_storage;
    int rc = read_footer(p, name->url, &source, &file, &is_storage, &why);
    if (rc == 0) {
        *ret = (struct file_count){.n = stg_arrow_n_rows(file), .bytes = file->bytes};
        stg_arrow_close(file);
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
static int create_counts(struct arrow *p, struct stg_err *err)
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

static int count_file(struct arrow *p, const struct stg_name *name,
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

static bool arrow_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct arrow *p = (struct arrow *)iter;
    struct stg_names *names = &p->names;
    struct file_count count;
    *ret =
        (p->error != NULL) + (p->source != NULL ? stg_arrow_n_rows(p->file) - p->row : 0);
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

static void forget(struct arrow *p)
{
    close_file(p);
    stg_names_clear(&p->names);
    stg_block_unref(p->error);
    p->error = NULL;
}

static int grow_ends(struct arrow *p, uint64_t n, struct stg_err *err)
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
static int add_file(struct arrow *p, struct stg_extent *extent, struct stg_err *err)
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

static int arrow_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    struct arrow *p = (struct arrow *)iter;
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
static uint64_t find_file(const struct arrow *p, uint64_t n)
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

static int arrow_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct arrow *p = (struct arrow *)iter;
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

static int arrow_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    forget((struct arrow *)iter);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void arrow_destroy(struct stg_iter *iter)
{
    struct arrow *p = (struct arrow *)iter;
    struct stg_quota *quota = iter->dataset->quota;
    forget(p);
    stg_names_finish(&p->names);
    for (uint32_t c = 0; p->cursors != NULL && c < p->n; c++)
        stg_arrow_cursor_finish(&p->cursors[c]);
    free(p->cursors);
    stg_arrow_reading_finish(&p->reading);
    if (p->counts != NULL)
        stg_quota_give(quota, iter->dataset->n_files * sizeof(*p->counts));
    free(p->counts);
    stg_quota_give(quota, p->ends_size * sizeof(*p->ends));
    free(p->ends);
    free(p->path);
    free(p);
}

static const struct stg_iter_impl arrow_impl = {.next = arrow_next,
                                                .rewind = arrow_rewind,
                                                .destroy = arrow_destroy,
                                                .skip = arrow_skip,
                                                .left = arrow_left,
                                                .left_has_errors = true,
                                                .count = arrow_count,
                                                .seek = arrow_seek};

static void declare(struct arrow *p)
{
    for (uint32_t c = 0; c < p->n; c++) {
        const struct stg_declared_column *from = &p->declared[c];
        p->wants[c] = (struct stg_arrow_want){.name = from->name,
                                              .dtype = from->dtype,
                                              .n_lists = from->n_lists,
                                              .may_lack = from->has_default};
        p->columns[c] = (struct stg_arrow_column){.want = p->wants[c],
                                                  .value = from->value,
                                                  .text = from->text,
                                                  .text_bytes = from->text_bytes};
        memcpy(p->columns[c].shape, from->shape, sizeof(from->shape));
        p->cursors[c].reading = &p->reading;
        p->cursors[c].column = &p->columns[c];
    }
}

static int create_columns(struct arrow *p, struct stg_err *err)
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

static int arrow_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct arrow *p =
        stg_iter_create(sizeof(*p), &arrow_impl, dataset, step, schema, input, err);
    if (p == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    size_t n = 0;
    int rc = stg_columns_count(step, &n, err);
    p->n = (uint32_t)n;
    p->batch = NO_BATCH;
    p->reading.quota = p->reading.codecs.quota = dataset->quota;
    p->names.input = input;
    p->names.step = step;
    p->names.identity = &dataset->identity;
    if (rc == 0)
        rc = create_columns(p, err);
    if (rc < 0) {
        arrow_destroy(&p->iter);
        return rc;
    }
    dataset->has_records = true;
    *ret = &p->iter;
    return 0;
}

const struct stg_transformation stg_arrow = {
    .name = "arrow", .infer = arrow_infer, .create = arrow_create, .is_indexable = true};
