/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/columnar.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/sources/filters.h"
#include "daemon/dataset/sources/reader.h"

#define UNKNOWN UINT64_MAX

static int out_of_memory(const struct stg_columnar *table, struct stg_err *err)
{
    return stg_step_err(table->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                        "out of memory");
}

static int check_filters(const struct stg_step *step, struct stg_bump *bump,
                         struct stg_err *err)
{
    struct stg_declared_column *columns, *all;
    struct stg_row_filter filter;
    size_t n = 0, n_all;
    int rc = stg_columns_count(step, &n, err);
    if (rc < 0)
        return rc;
    columns = stg_bump_alloc(bump, n * sizeof(*columns));
    if (columns == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    rc = stg_columns_read(step, columns, err);
    return rc == 0 ? stg_filters_read(step, columns, n, bump, &filter, &all, &n_all, err)
                   : rc;
}

int stg_columnar_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_reader_check(step, in, err);
    if (rc == 0)
        rc = stg_columns_infer(step, bump, ret, err);
    return rc == 0 && stg_filters_any(step) ? check_filters(step, bump, err) : rc;
}

/* ---- files ---- */

static const char *shown(struct stg_columnar *table)
{
    return stg_storage_shown(table->path, table->shown, sizeof(table->shown));
}

static void close_file(struct stg_columnar *table)
{
    table->format->close(table->file.metadata);
    table->file = (struct stg_columnar_file){0};
    if (table->source != NULL)
        table->source->storage->close(table->source);
    table->source = NULL;
    if (table->judged != NULL)
        table->judged->n = 0;
}

bool stg_columnar_ignores(const struct stg_columnar *table, int code, bool is_storage)
{
    if (code == -STAGER_CANCELLED || code == -STAGER_RESOURCE_EXHAUSTED)
        return false;
    return !is_storage ||
           (table->iter.dataset->env.ignored_codes & STG_CODE_BIT(-code)) != 0;
}

static int open_source(struct stg_columnar *table, const char *url,
                       struct stg_source **ret, struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    int rc = stg_storage_find(url, &storage, &path, err);
    if (rc == 0 && *ret == NULL)
        rc = storage->open(path, &table->identity, ret, err);
    return rc;
}

/* Opens a file and reads its metadata. *source: open already, or NULL; it is closed on
 * failure. *ret_storage: the error is one of the storage. */
static int open_file(struct stg_columnar *table, const char *url,
                     struct stg_source **source, struct stg_columnar_file *ret,
                     bool *ret_storage, struct stg_err *err)
{
    char buf[512];
    *ret_storage = true;
    table->url = url;
    int rc = open_source(table, url, source, err);
    if (rc == 0) {
        stg_source_trace(*source, table->iter.dataset->env.trace, url);
        rc = table->format->open(table, *source, ret, ret_storage, err);
        if (rc < 0 && !*ret_storage)
            stg_err_prefix(err, rc, "%s", stg_storage_shown(url, buf, sizeof(buf)));
    }
    if (rc == 0)
        return 0;
    if (*source != NULL)
        (*source)->storage->close(*source);
    *source = NULL;
    return stg_step_prefix(table->iter.step, rc, err);
}

/* ---- files that were counted ---- */

static uint64_t end_of(const struct stg_columnar *table, uint64_t file)
{
    return file > 0 ? table->ends[file - 1] : 0;
}

/* Fails if the file that was begun last had another number of rows when all files were
 * counted: those of the files behind it would have other numbers. */
static int check_counted(struct stg_columnar *table, uint64_t n, struct stg_err *err)
{
    uint64_t file = table->n_begun - 1;
    uint64_t before = file < table->n_ends ? table->ends[file] - end_of(table, file) : n;
    if (n == before)
        return 0;
    return stg_step_err(table->iter.step, -STAGER_FAILED_PRECONDITION, err,
                        "%s has %" PRIu64 " rows now, and had %" PRIu64
                        " when they were counted: keep the files as they are during a "
                        "pass, or use a buffer_size without global",
                        shown(table), n, before);
}

static int emit_error(struct stg_columnar *table, const struct stg_err *why,
                      struct stg_err *err)
{
    return stg_block_create_error(table->iter.dataset->quota, why, table->epoch,
                                  &table->error, err);
}

/* Returns 1 if the folders of the file exclude it. */
static int look_at_folders(struct stg_columnar *table, struct stg_err *err)
{
    struct stg_judged *judged = table->judged;
    if (judged == NULL)
        return 0;
    const struct stg_row_filter *filter = &judged->filter;
    int rc = stg_filters_look(&judged->filter, table->declared, table->path, err);
    memset(judged->is_needed, 0, table->n * sizeof(*judged->is_needed));
    for (uint32_t k = 0; rc == 0 && k < filter->n; k++)
        judged->is_needed[filter->conditions[k].column] |=
            filter->fixed[k] == STG_ROW_VARIES;
    if (rc >= 0)
        return rc;
    stg_err_prefix(err, rc, "%s", shown(table));
    return stg_step_prefix(table->iter.step, rc, err);
}

int stg_columnar_is_given(const struct stg_columnar *table, uint32_t c, bool *ret,
                          struct stg_err *err)
{
    const struct stg_declared_column *column = &table->declared[c];
    struct stg_path_value folder;
    int dtype = column->dtype != STAGER_DT_INVALID ? column->dtype : STAGER_STRING;
    int rc = stg_path_value_find(table->url, column->name, dtype, &folder, err);
    *ret = rc == 0 && folder.is_there;
    if (rc == 0)
        stg_path_value_finish(&folder);
    return rc;
}

/* It was found, and converts, when the file was opened; without memory it is null. */
bool stg_columnar_given(const struct stg_columnar *table, uint32_t c,
                        struct stg_path_value *folder)
{
    const struct stg_declared_column *column = &table->declared[c];
    stg_path_value_finish(folder);
    return c < table->n_shown &&
           stg_path_value_find(table->path, column->name, column->dtype, folder, NULL) ==
               0 &&
           folder->is_there && !folder->is_null;
}

/* Begins the file table->path. Sets table->error if an error item stands for it. */
static int begin_file(struct stg_columnar *table, struct stg_err *err)
{
    struct stg_err why = {0};
    bool is_storage = false;
    int rc = look_at_folders(table, &why);
    if (rc == 1)
        return 0;
    stg_activity_file(table->iter.dataset->env.activity, shown(table));
    if (rc == 0)
        rc = open_file(table, table->path, &table->source, &table->file, &is_storage,
                       &why);
    table->row = 0;
    if (rc == 0) {
        rc = check_counted(table, table->file.n_rows, err);
        if (rc < 0)
            close_file(table);
        else
            table->format->begin(table);
        return rc;
    }
    if (!table->is_numbered && stg_columnar_ignores(table, rc, is_storage)) {
        rc = check_counted(table, 1, err);
        return rc == 0 ? emit_error(table, &why, err) : rc;
    }
    if (err != NULL)
        *err = why;
    return rc;
}

/* Opens the next file. 1: there is none. */
static int next_file(struct stg_columnar *table, struct stg_err *err)
{
    struct stg_name name;
    int rc = stg_iter_stopped(&table->iter, err);
    if (rc == 0)
        rc = stg_names_next(&table->names, &name, &table->source, err);
    if (rc != 0)
        return rc;
    table->n_begun++;
    if (name.error != NULL) {
        table->error = name.error;
        return 0;
    }
    free(table->path);
    table->path = name.url;
    table->index = name.file;
    table->epoch = name.epoch;
    return begin_file(table, err);
}

/* ---- rows ---- */

int stg_columnar_fail(struct stg_columnar *table, int rc, const struct stg_err *why,
                      struct stg_err *err)
{
    if (err != NULL)
        *err = *why;
    stg_err_prefix(err, rc, "%s", shown(table));
    return stg_step_prefix(table->iter.step, rc, err);
}

/* Returns how many of the next `want` rows can be had in one block; 0: the first of them
 * cannot, because of column *ret. */
static uint64_t count_good(const struct stg_columnar *table, uint64_t want, uint32_t *ret)
{
    for (uint32_t c = 0; c < table->n && want > 0; c++) {
        want = table->format->alike(table, c, want);
        *ret = c;
    }
    return want;
}

/* The next row is an error item. */
static int make_bad(struct stg_columnar *table, uint32_t c, struct stg_block **ret,
                    struct stg_err *err)
{
    struct stg_err why = {0};
    table->format->explain(table, c, &why);
    stg_err_prefix(&why, why.code, "%s: row %" PRIu64, shown(table), table->row);
    table->row++;
    return stg_block_create_error(table->iter.dataset->quota, &why, table->epoch, ret,
                                  err);
}

/* Returns behind the components of the column. */
static struct stg_tensor *show(const struct stg_columnar *table, uint32_t c, uint64_t n,
                               struct stg_block *block, struct stg_tensor *tensor,
                               struct stg_chunk **held, uint32_t *n_held)
{
    struct stg_column_view view = table->format->view(table, c, n);
    uint64_t first, n_values;
    struct stg_tensor *ret = stg_column_show(&view, block, tensor, &first, &n_values);
    table->format->show(table, c, first, n_values, tensor, held, n_held);
    return ret;
}

static int make_block(struct stg_columnar *table, uint64_t n, struct stg_block **ret,
                      struct stg_err *err)
{
    struct stg_block *block;
    struct stg_chunk **held;
    uint64_t held_bytes = 2 * (uint64_t)table->n_shown * sizeof(*held);
    uint64_t rows_bytes = n * sizeof(struct stg_provenance);
    uint64_t bytes = stg_block_room(rows_bytes) + 2 * stg_block_room(held_bytes);
    uint32_t n_held = 0;
    for (uint32_t c = 0; c < table->n_shown; c++) {
        struct stg_column_view view = table->format->view(table, c, n);
        bytes += stg_column_splits_room(&view);
    }
    int rc = stg_block_create(table->iter.dataset->quota, (uint32_t)table->iter.schema->n,
                              bytes, NULL, "a block of rows", &block, err);
    if (rc < 0)
        return stg_step_prefix(table->iter.step, rc, err);
    struct stg_provenance *rows = stg_block_carve(block, rows_bytes);
    uint64_t offset = table->format->offset(table), row = table->row;
    uint32_t file = table->index;
    for (uint64_t i = 0; i < n; i++)
        rows[i] =
            (struct stg_provenance){.file = file, .offset = offset, .record = row + i};
    held = stg_block_carve(block, held_bytes);
    struct stg_tensor *tensor = block->tensors;
    for (uint32_t c = 0; c < table->n_shown; c++)
        tensor = show(table, c, n, block, tensor, held, &n_held);
    stg_block_hold(block, held, n_held);
    for (uint32_t c = 0; c < block->n_components; c++)
        stg_block_hold_dictionary(block, c);
    block->rows = rows;
    block->n_records = block->n_rows = (int64_t)n;
    block->epoch = table->epoch;
    table->row += n;
    *ret = block;
    return 0;
}

/* ---- the filter ---- */

/* Finds out which of the next rows the filter keeps. */
static int judge(struct stg_columnar *table, struct stg_err *err)
{
    struct stg_judged *judged = table->judged;
    const struct stg_row_filter *filter = &judged->filter;
    uint64_t left = table->file.n_rows - table->row;
    uint64_t n = left < STG_JUDGED_ROWS ? left : STG_JUDGED_ROWS;
    if (table->row - judged->first < judged->n)
        return 0;
    table->is_judging = true;
    int rc = table->format->go(table, n, err);
    table->is_judging = false;
    for (uint32_t k = 0; rc == 0 && k < filter->n; k++) {
        if (filter->fixed[k] == STG_ROW_VARIES)
            n = table->format->values(table, filter->conditions[k].column, n,
                                      &judged->values[k], &judged->at[k]);
    }
    if (rc < 0)
        return rc;
    judged->first = table->row;
    judged->n = n;
    stg_row_filter_judge(filter, judged->values, judged->at, n, judged->keep);
    return 0;
}

/* Returns how many of the next rows the filter drops, of those that were judged. */
static uint64_t count_dropped(const struct stg_columnar *table)
{
    const struct stg_judged *judged = table->judged;
    uint64_t at = table->row - judged->first;
    const uint8_t *first = memchr(judged->keep + at, 1, judged->n - at);
    return first != NULL ? (uint64_t)(first - judged->keep) - at : judged->n - at;
}

/* Returns how many of the next rows, at most `want`, end with one that is kept. */
static uint64_t count_passing(const struct stg_columnar *table, uint64_t want)
{
    const struct stg_judged *judged = table->judged;
    uint64_t at = table->row - judged->first, left = judged->n - at;
    want = want < left ? want : left;
    const uint8_t *last = memrchr(judged->keep + at, 1, want);
    return (uint64_t)(last - judged->keep) + 1 - at;
}

int stg_columnar_sift(struct stg_columnar *table, uint64_t *ret, struct stg_err *err)
{
    *ret = 0;
    while (table->error == NULL) {
        uint64_t n = 0;
        int rc = stg_iter_stopped(&table->iter, err);
        if (rc < 0)
            return rc;
        if (table->source == NULL || table->row == table->file.n_rows) {
            close_file(table);
            rc = next_file(table, err);
            if (rc != 0)
                return rc;
            continue;
        }
        rc = table->format->pass != NULL ? table->format->pass(table, &n, err) : 0;
        if (rc < 0)
            return rc;
        if (n == 0) {
            rc = judge(table, err);
            if (rc < 0)
                return rc;
            n = count_dropped(table);
            if (n == 0)
                return 0;
        }
        table->row += n;
        *ret += n;
    }
    return 0;
}

int64_t stg_columnar_passing(struct stg_columnar *table, const struct stg_block *block,
                             const int64_t **ret)
{
    struct stg_judged *judged = table->judged;
    const uint8_t *keep =
        judged->keep + (table->row - (uint64_t)block->n_records - judged->first);
    int64_t n = 0;
    for (int64_t i = 0; i < block->n_records; i++) {
        judged->index[n] = i;
        n += keep[i];
    }
    *ret = judged->index;
    return n;
}

/* ---- blocks ---- */

static int columnar_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                         struct stg_err *err)
{
    struct stg_columnar *table = (struct stg_columnar *)iter;
    uint32_t bad = 0;
    want = want < STG_BLOCK_MAX_RECORDS ? want : STG_BLOCK_MAX_RECORDS;
    while (table->error == NULL) {
        if (table->source != NULL && table->row < table->file.n_rows) {
            int rc = stg_iter_stopped(iter, err);
            if (rc == 0 && table->judged != NULL)
                want = (int64_t)count_passing(table, (uint64_t)want);
            if (rc == 0)
                rc = table->format->go(table, (uint64_t)want, err);
            if (rc < 0)
                return rc;
            uint64_t n = count_good(table, (uint64_t)want, &bad);
            return n > 0 ? make_block(table, n, ret, err)
                         : make_bad(table, bad, ret, err);
        }
        close_file(table);
        int rc = next_file(table, err);
        if (rc != 0)
            return rc;
    }
    *ret = table->error;
    table->error = NULL;
    return 0;
}

/* ---- skipping ---- */

static int columnar_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                         struct stg_err *err)
{
    struct stg_columnar *table = (struct stg_columnar *)iter;
    uint64_t skipped = 0;
    int rc = 0;
    while (rc == 0 && skipped < n) {
        if (table->error != NULL) {
            stg_block_unref(table->error);
            table->error = NULL;
            skipped++;
        } else if (table->source != NULL) {
            uint64_t left = table->file.n_rows - table->row, now = n - skipped;
            now = now < left ? now : left;
            table->row += now;
            skipped += now;
            if (now == left)
                close_file(table);
        } else {
            rc = next_file(table, err);
        }
    }
    if (rc >= 0)
        *ret = skipped;
    return rc < 0 ? rc : 0;
}

/* ---- counting ---- */

static void drop_parts(struct stg_columnar *table, struct stg_columnar_count *count)
{
    stg_quota_give(table->iter.dataset->quota, count->n_ends * sizeof(uint64_t));
    free(count->ends);
    count->ends = NULL;
    count->n_ends = 0;
}

static int copy_parts(struct stg_columnar *table, const struct stg_columnar_file *file,
                      struct stg_columnar_count *ret, struct stg_err *err)
{
    struct stg_quota *quota = table->iter.dataset->quota;
    uint64_t bytes = file->n_parts * sizeof(uint64_t);
    int rc = stg_quota_take(quota, bytes, "the parts of the files", err);
    if (rc < 0)
        return stg_step_prefix(table->iter.step, rc, err);
    ret->ends = malloc(bytes + 1);
    if (ret->ends == NULL) {
        stg_quota_give(quota, bytes);
        return out_of_memory(table, err);
    }
    ret->n_ends = file->n_parts;
    for (uint32_t i = 0; i < file->n_parts; i++)
        ret->ends[i] = table->format->part_end(file->metadata, i);
    return 0;
}

static int count_anew(struct stg_columnar *table, const struct stg_name *name,
                      struct stg_columnar_count *ret, struct stg_err *err)
{
    struct stg_source *source = NULL;
    struct stg_columnar_file file;
    struct stg_err why = {0};
    bool is_storage;
    int rc = open_file(table, name->url, &source, &file, &is_storage, &why);
    if (rc == 0) {
        *ret = (struct stg_columnar_count){.n = file.n_rows, .bytes = file.bytes};
        rc = copy_parts(table, &file, ret, err);
        table->format->close(file.metadata);
        source->storage->close(source);
        return rc;
    }
    *ret = (struct stg_columnar_count){.n = 1};
    if (!table->is_numbered && stg_columnar_ignores(table, rc, is_storage))
        return 0;
    if (err != NULL)
        *err = why;
    return rc;
}

/* All of the dataset's. */
static int create_counts(struct stg_columnar *table, struct stg_err *err)
{
    struct stg_dataset *dataset = table->iter.dataset;
    uint64_t bytes = dataset->n_files * sizeof(*table->counts);
    if (table->counts != NULL)
        return 0;
    int rc = stg_quota_take(dataset->quota, bytes, "the sizes of the files", err);
    if (rc < 0)
        return stg_step_prefix(table->iter.step, rc, err);
    table->counts = malloc(bytes + 1);
    if (table->counts == NULL) {
        stg_quota_give(dataset->quota, bytes);
        return out_of_memory(table, err);
    }
    for (uint32_t i = 0; i < dataset->n_files; i++)
        table->counts[i] = (struct stg_columnar_count){.n = UNKNOWN};
    return 0;
}

static int count_file(struct stg_columnar *table, const struct stg_name *name,
                      struct stg_columnar_count *ret, struct stg_err *err)
{
    *ret = (struct stg_columnar_count){.n = 1};
    if (name->error != NULL)
        return 0;
    int rc = create_counts(table, err);
    if (rc < 0)
        return rc;
    if (name->file >= table->iter.dataset->n_files) {
        rc = count_anew(table, name, ret, err);
        drop_parts(table, ret);
        return rc;
    }
    struct stg_columnar_count *count = &table->counts[name->file];
    if (count->n == UNKNOWN)
        rc = count_anew(table, name, count, err);
    if (rc < 0)
        *count = (struct stg_columnar_count){.n = UNKNOWN};
    *ret = *count;
    return rc;
}

static bool columnar_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct stg_columnar *table = (struct stg_columnar *)iter;
    struct stg_names *names = &table->names;
    struct stg_columnar_count count;
    *ret = (table->error != NULL) +
           (table->source != NULL ? table->file.n_rows - table->row : 0);
    for (size_t i = 0; *ret < most; i++) {
        if (stg_names_pull(names, i + 1) == i)
            return names->ended == 1;
        if (count_file(table, stg_names_at(names, i), &count, NULL) < 0)
            return false;
        *ret = stg_count_add(*ret, count.n);
    }
    return true;
}

/* ---- any order ---- */

static void forget(struct stg_columnar *table)
{
    close_file(table);
    stg_names_clear(&table->names);
    stg_block_unref(table->error);
    table->error = NULL;
}

/* Makes room for n numbers in an array of *size. */
static int grow(struct stg_columnar *table, uint64_t **array, uint64_t *size, uint64_t n,
                struct stg_err *err)
{
    struct stg_quota *quota = table->iter.dataset->quota;
    if (n <= *size)
        return 0;
    uint64_t more = (n - *size) * sizeof(uint64_t);
    int rc = stg_quota_take(quota, more, "the numbers of the files", err);
    if (rc < 0)
        return stg_step_prefix(table->iter.step, rc, err);
    uint64_t *grown = realloc(*array, n * sizeof(*grown));
    if (grown == NULL) {
        stg_quota_give(quota, more);
        return out_of_memory(table, err);
    }
    *array = grown;
    *size = n;
    return 0;
}

/* Adds the parts of a file, the first row of which has the number `first`. An error is
 * one. */
static int add_parts(struct stg_columnar *table, const struct stg_columnar_count *count,
                     uint64_t first, struct stg_err *err)
{
    uint64_t n = table->n_parts + (count->ends != NULL ? count->n_ends : 1);
    uint64_t size = n > table->parts_size ? n + table->parts_size : n;
    int rc = grow(table, &table->parts, &table->parts_size, size, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < count->n_ends; i++)
        table->parts[table->n_parts++] = first + count->ends[i];
    if (count->ends == NULL)
        table->parts[table->n_parts++] = first + count->n;
    return 0;
}

/* Counts the next file. */
static int add_file(struct stg_columnar *table, struct stg_extent *extent,
                    struct stg_err *err)
{
    struct stg_columnar_count count;
    int rc = stg_iter_stopped(&table->iter, err);
    if (rc < 0)
        return rc;
    if (stg_names_pull(&table->names, 1) == 0) {
        if (table->names.ended < 0 && err != NULL)
            *err = table->names.failure;
        return table->names.ended;
    }
    rc = count_file(table, stg_names_at(&table->names, 0), &count, err);
    if (rc == 0)
        rc = add_parts(table, &count, extent->n, err);
    stg_names_drop(&table->names);
    if (rc < 0)
        return rc;
    extent->n = stg_count_add(extent->n, count.n);
    extent->bytes = stg_count_add(extent->bytes, count.bytes);
    table->ends[table->n_ends++] = extent->n;
    return 0;
}

static int columnar_count(struct stg_iter *iter, struct stg_extent *ret,
                          struct stg_err *err)
{
    struct stg_columnar *table = (struct stg_columnar *)iter;
    struct stg_extent files;
    forget(table);
    int rc = stg_iter_count(iter->input, &files, err);
    if (rc == 0)
        rc = grow(table, &table->ends, &table->ends_size, files.n, err);
    if (rc == 0 && files.n > 0)
        rc = stg_iter_seek(iter->input, 0, err);
    *ret = (struct stg_extent){0};
    table->n_ends = table->n_parts = 0;
    while (rc == 0 && table->n_ends < files.n)
        rc = add_file(table, ret, err);
    ret->ends = table->parts;
    ret->n_ends = table->n_parts;
    stg_names_clear(&table->names);
    table->n_begun = UNKNOWN;
    return rc < 0 ? rc : 0;
}

/* Returns the first file that ends behind row n. */
static uint64_t find_file(const struct stg_columnar *table, uint64_t n)
{
    uint64_t low = 0, high = table->n_ends;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (table->ends[middle] <= n)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int columnar_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct stg_columnar *table = (struct stg_columnar *)iter;
    uint64_t file = find_file(table, n);
    if (table->source == NULL || table->error != NULL || table->n_begun != file + 1) {
        forget(table);
        int rc = stg_iter_seek(iter->input, file, err);
        if (rc < 0)
            return rc;
        table->n_begun = file;
        rc = next_file(table, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    table->row = n - end_of(table, file);
    return 0;
}

/* ---- life ---- */

static void finish_judged(struct stg_judged *judged)
{
    if (judged == NULL)
        return;
    free(judged->is_needed);
    free(judged->values);
    free(judged->at);
    free(judged);
}

static int columnar_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    forget((struct stg_columnar *)iter);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void columnar_destroy(struct stg_iter *iter)
{
    struct stg_columnar *table = (struct stg_columnar *)iter;
    struct stg_quota *quota = iter->dataset->quota;
    forget(table);
    stg_names_finish(&table->names);
    table->format->finish(table);
    for (uint32_t i = 0; table->counts != NULL && i < iter->dataset->n_files; i++)
        drop_parts(table, &table->counts[i]);
    if (table->counts != NULL)
        stg_quota_give(quota, iter->dataset->n_files * sizeof(*table->counts));
    free(table->counts);
    stg_quota_give(quota, table->parts_size * sizeof(*table->parts));
    free(table->parts);
    stg_quota_give(quota, table->ends_size * sizeof(*table->ends));
    free(table->ends);
    finish_judged(table->judged);
    free(table->path);
    free(table);
}

static void columnar_allow_uneven(struct stg_iter *iter)
{
    ((struct stg_columnar *)iter)->is_uneven = true;
}

static const struct stg_iter_impl columnar_impl = {.next = columnar_next,
                                                   .rewind = columnar_rewind,
                                                   .destroy = columnar_destroy,
                                                   .skip = columnar_skip,
                                                   .left = columnar_left,
                                                   .left_has_errors = true,
                                                   .count = columnar_count,
                                                   .seek = columnar_seek,
                                                   .allow_uneven = columnar_allow_uneven};

void stg_columnar_destroy(struct stg_columnar *table)
{
    columnar_destroy(&table->iter);
}

int stg_columnar_lack(struct stg_columnar *table, struct stg_err *err)
{
    int rc = out_of_memory(table, err);
    columnar_destroy(&table->iter);
    return rc;
}

/* The columns of the filter, behind those of the step. */
static int declare_filter(struct stg_columnar *table, struct stg_err *err)
{
    struct stg_bump *bump = &table->iter.dataset->bump;
    struct stg_declared_column *all;
    size_t n;
    struct stg_judged *judged = calloc(1, sizeof(*judged));
    table->judged = judged;
    if (judged == NULL)
        return out_of_memory(table, err);
    int rc = stg_filters_read(table->iter.step, table->declared, table->n_shown, bump,
                              &judged->filter, &all, &n, err);
    if (rc < 0)
        return rc;
    table->declared = all;
    table->n = (uint32_t)n;
    judged->is_needed = calloc(n, sizeof(*judged->is_needed));
    judged->values = calloc(judged->filter.n, sizeof(*judged->values));
    judged->at = calloc(judged->filter.n, sizeof(*judged->at));
    bool ok = judged->is_needed != NULL && judged->values != NULL && judged->at != NULL;
    return ok ? 0 : out_of_memory(table, err);
}

static int declare(struct stg_columnar *table, struct stg_err *err)
{
    const struct stg_step *step = table->iter.step;
    size_t n = 0;
    int rc = stg_columns_count(step, &n, err);
    if (rc < 0)
        return rc;
    table->n = table->n_shown = (uint32_t)n;
    table->declared =
        stg_bump_alloc(&table->iter.dataset->bump, n * sizeof(*table->declared));
    if (table->declared == NULL)
        return out_of_memory(table, err);
    rc = stg_columns_read(step, table->declared, err);
    return rc == 0 && stg_filters_any(step) ? declare_filter(table, err) : rc;
}

int stg_columnar_create(size_t bytes, const struct stg_columnar_format *format,
                        struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_columnar **ret, struct stg_err *err)
{
    struct stg_columnar *table =
        stg_iter_create(bytes, &columnar_impl, dataset, step, schema, input, err);
    if (table == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    table->format = format;
    table->identity = dataset->identity;
    table->identity.in_places = true;
    table->names.input = input;
    table->names.step = step;
    table->names.identity = &table->identity;
    int rc = declare(table, err);
    if (rc < 0) {
        columnar_destroy(&table->iter);
        return rc;
    }
    dataset->has_records = true;
    *ret = table;
    return 0;
}
