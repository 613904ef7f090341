/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of Parquet files. A block shows the memory of the pages that its rows lie in; it
 * ends where a page of one of the columns ends, and where a list has another length.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/sources/columnar.h"
#include "daemon/dataset/sources/filters.h"
#include "daemon/dataset/sources/sieve.h"
#include "daemon/format/parquet/cursor.h"
#include "daemon/format/parquet/page_index.h"

#define NO_GROUP UINT32_MAX

struct parquet {
    struct stg_columnar table;
    struct stg_parquet_column *columns; /* table.n, as are wants and cursors */
    struct stg_parquet_want *wants;
    struct stg_parquet_cursor *cursors;
    struct stg_path_value *folders; /* what those of the open file say of each column */
    struct stg_parquet_reading reading;
    struct stg_parquet_pages pages; /* that the filter excludes */
    uint32_t group;                 /* that the cursors are in, or NO_GROUP */
    uint64_t in_group;              /* the row of it that they have reached */
};

/* ---- files ---- */

static uint64_t bytes_of(const struct stg_parquet_file *file)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < (uint64_t)file->n_groups * file->n_columns; i++)
        bytes += file->ranges[i].end - file->ranges[i].begin;
    return bytes;
}

/* Notes the columns whose values the folders of the file have. */
static int look_at_folders(struct stg_columnar *table, struct stg_err *err)
{
    struct parquet *p = (struct parquet *)table;
    int rc = 0;
    for (uint32_t c = 0; rc == 0 && c < table->n; c++)
        rc = stg_columnar_is_given(table, c, &p->wants[c].is_given, err);
    return rc;
}

static int parquet_open(struct stg_columnar *table, struct stg_source *source,
                        struct stg_columnar_file *ret, bool *ret_storage,
                        struct stg_err *err)
{
    const struct parquet *p = (const struct parquet *)table;
    struct stg_parquet_file *file;
    const struct stg_row_filter *filter =
        table->judged != NULL ? &table->judged->filter : NULL;
    *ret_storage = false;
    int rc = look_at_folders(table, err);
    if (rc == 0)
        rc = stg_parquet_open(source, p->reading.quota, p->wants, table->n, filter, &file,
                              ret_storage, err);
    if (rc == 0)
        *ret = (struct stg_columnar_file){.metadata = file,
                                          .n_rows = stg_parquet_n_rows(file),
                                          .n_parts = file->n_groups,
                                          .bytes = bytes_of(file)};
    return rc;
}

static void parquet_close(void *metadata)
{
    stg_parquet_close(metadata);
}

static uint64_t parquet_part_end(const void *metadata, uint32_t part)
{
    return ((const struct stg_parquet_file *)metadata)->ends[part];
}

/* A column has the value of its folder as the default of a file that lacks it. */
static void set_column(struct stg_columnar *table, uint32_t c)
{
    struct parquet *p = (struct parquet *)table;
    const struct stg_declared_column *from = &table->declared[c];
    const struct stg_parquet_file *file = table->file.metadata;
    struct stg_parquet_column *to = &p->columns[c];
    struct stg_path_value *folder = &p->folders[c];
    bool is_natural = from->dtype == STAGER_DT_INVALID && file->leaves[c].is_there;
    to->want.dtype = is_natural ? stg_parquet_leaf_dtype(&file->leaves[c]) : from->dtype;
    to->want.may_lack = from->has_default && c < table->n_shown;
    to->value = from->value;
    to->text = from->text;
    to->text_bytes = from->text_bytes;
    if (!stg_columnar_given(table, c, folder) || file->leaves[c].is_there)
        return;
    to->want.may_lack = true;
    to->value = folder->value;
    to->text = from->dtype == STAGER_STRING ? folder->text : NULL;
    to->text_bytes = from->dtype == STAGER_STRING ? folder->text_bytes : 0;
}

static void parquet_begin(struct stg_columnar *table)
{
    struct parquet *p = (struct parquet *)table;
    p->reading.source = table->source;
    p->group = NO_GROUP;
    stg_parquet_pages_finish(&p->pages);
    for (uint32_t c = 0; c < table->n; c++)
        set_column(table, c);
}

/* ---- rows ---- */

/* Returns the row group of a row. */
static uint32_t find_group(const struct stg_parquet_file *file, uint64_t row)
{
    uint32_t low = 0, high = file->n_groups;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (file->ends[middle] <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t begin_of(const struct stg_parquet_file *file, uint32_t group)
{
    return group > 0 ? file->ends[group - 1] : 0;
}

static bool is_in(const struct stg_parquet_file *file, uint32_t group, uint64_t row)
{
    return group != NO_GROUP && row >= begin_of(file, group) && row < file->ends[group];
}

/* A group of which rows will be read behind those of the one that was begun. */
static void announce(const struct stg_columnar *table, uint32_t group)
{
    const struct stg_storage *storage = table->source->storage;
    const struct stg_parquet_file *file = table->file.metadata;
    while (file->excluded != NULL && group < file->n_groups && file->excluded[group])
        group++;
    if (storage->will_need == NULL || group >= file->n_groups)
        return;
    for (uint32_t c = 0; c < table->n; c++) {
        const struct stg_parquet_range *range =
            &file->ranges[(uint64_t)group * table->n + c];
        if (range->end > range->begin && stg_columnar_is_read(table, c))
            storage->will_need(table->source, range->begin, range->end - range->begin);
    }
}

/* Makes the pages of the next row those of the cursors. */
static int parquet_go(struct stg_columnar *table, uint64_t want, struct stg_err *err)
{
    struct parquet *p = (struct parquet *)table;
    const struct stg_parquet_file *file = table->file.metadata;
    uint32_t before = p->group;
    uint32_t group =
        is_in(file, before, table->row) ? before : find_group(file, table->row);
    uint64_t row = table->row - begin_of(file, group);
    bool is_ahead = group == before && row >= p->in_group;
    bool is_next = before == NO_GROUP || group == before + 1 || table->judged != NULL;
    for (uint32_t c = 0; c < table->n && !is_ahead; c++) {
        if (stg_columnar_is_read(table, c))
            stg_parquet_cursor_begin(&p->cursors[c], file, c, group);
    }
    p->group = group;
    p->in_group = row;
    p->reading.want = want;
    for (uint32_t c = 0; c < table->n; c++) {
        struct stg_err why = {0};
        int rc = stg_columnar_is_wanted(table, c)
                     ? stg_parquet_cursor_go(&p->cursors[c], row, &why)
                     : 0;
        if (rc < 0 && !stg_columnar_ignores(table, rc, true))
            return stg_columnar_fail(table, rc, &why, err);
        if (rc < 0)
            stg_parquet_cursor_lose(&p->cursors[c], &why);
    }
    if (is_next && !is_ahead)
        announce(table, group + 1);
    return 0;
}

/* ---- the filter ---- */

/* All pages of a column are fetched from another machine at once, so that its page
 * index would spare nothing. */
static int parquet_pass(struct stg_columnar *table, uint64_t *ret, struct stg_err *err)
{
    struct parquet *p = (struct parquet *)table;
    const struct stg_row_filter *filter = &table->judged->filter;
    const struct stg_parquet_file *file = table->file.metadata;
    uint32_t group = find_group(file, table->row);
    if (file->excluded[group])
        *ret = file->ends[group] - table->row;
    if (file->excluded[group] || table->source->storage->remote)
        return 0;
    struct stg_err why = {0};
    int rc = stg_parquet_pages_read(&p->pages, table->source, file, p->columns, filter,
                                    group, &why);
    if (rc < 0)
        return stg_columnar_fail(table, rc, &why, err);
    *ret =
        stg_parquet_pages_excluded(&p->pages, filter, table->row - begin_of(file, group));
    return 0;
}

static uint64_t parquet_values(const struct stg_columnar *table, uint32_t c,
                               uint64_t want, struct stg_row_values *ret,
                               uint64_t *ret_at)
{
    const struct parquet *p = (const struct parquet *)table;
    const struct stg_parquet_cursor *cursor = &p->cursors[c];
    const struct stg_parquet_values *values = stg_parquet_cursor_values(cursor);
    uint64_t left = cursor->first + cursor->n - p->in_group;
    *ret_at = p->in_group - cursor->first;
    *ret = (struct stg_row_values){.dtype = p->columns[c].want.dtype,
                                   .fixed = values->fixed,
                                   .base = values->base,
                                   .begin = values->begin,
                                   .end = values->end,
                                   .valid = values->valid,
                                   .is_lost = cursor->lost.code != 0};
    return want < left ? want : left;
}

static uint64_t parquet_alike(const struct stg_columnar *table, uint32_t c, uint64_t want)
{
    const struct parquet *p = (const struct parquet *)table;
    const struct stg_parquet_cursor *cursor = &p->cursors[c];
    uint64_t at = p->in_group - cursor->first, left = cursor->n - at;
    uint64_t n = want < left ? want : left;
    if (!stg_columnar_is_read(table, c))
        return want;
    if (cursor->lost.code != 0)
        return 0;
    if (cursor->column->want.n_lists > 0)
        return stg_list_rows_alike(&cursor->lists.rows, cursor->column->shape,
                                   table->is_uneven, at, n);
    if (cursor->values.valid == NULL || c >= table->n_shown)
        return n;
    const uint8_t *valid = cursor->values.valid + at;
    const uint8_t *null = memchr(valid, 0, n);
    return null != NULL ? (uint64_t)(null - valid) : n;
}

static struct stg_column_view parquet_view(const struct stg_columnar *table, uint32_t c,
                                           uint64_t n)
{
    const struct parquet *p = (const struct parquet *)table;
    const struct stg_parquet_cursor *cursor = &p->cursors[c];
    return (struct stg_column_view){.column = &table->declared[c],
                                    .rows = &cursor->lists.rows,
                                    .at = p->in_group - cursor->first,
                                    .n = n,
                                    .is_uneven = table->is_uneven && n > 1};
}

static void parquet_explain(const struct stg_columnar *table, uint32_t c,
                            struct stg_err *ret)
{
    const struct stg_parquet_cursor *cursor =
        &((const struct parquet *)table)->cursors[c];
    struct stg_column_view view = parquet_view(table, c, 1);
    *ret = cursor->lost;
    if (ret->code != 0)
        return;
    stg_column_explain(&view, ret);
    stg_err_prefix(ret, ret->code,
                   "column %.256s, row group %" PRIu32 ", page at offset %" PRIu64,
                   cursor->column->want.name, cursor->group, cursor->at);
}

static void parquet_show(const struct stg_columnar *table, uint32_t c, uint64_t first,
                         uint64_t n, struct stg_tensor *tensor, struct stg_chunk **held,
                         uint32_t *n_held)
{
    const struct parquet *p = (const struct parquet *)table;
    const struct stg_parquet_values *values = stg_parquet_cursor_values(&p->cursors[c]);
    int dtype = p->columns[c].want.dtype;
    if (values->values != NULL)
        held[(*n_held)++] = values->values;
    if (values->codes != NULL) {
        tensor->data = (char *)(uintptr_t)values->base;
        tensor->data_bytes = values->base_bytes + p->columns[c].text_bytes;
        tensor->codes = values->codes + first;
        tensor->dictionary = &p->cursors[c].coded->strings;
        return;
    }
    if (dtype == STAGER_STRING) {
        tensor->data = (char *)(uintptr_t)values->base;
        tensor->data_bytes = values->base_bytes + p->columns[c].text_bytes;
        tensor->begin = values->begin + first;
        tensor->end = values->end + first;
    } else {
        unsigned width = stg_dtype_bytes(dtype);
        tensor->data = (char *)(uintptr_t)values->fixed + first * width;
        tensor->data_bytes = n * width;
    }
    if (values->data != NULL && (dtype == STAGER_STRING || values->values == NULL))
        held[(*n_held)++] = values->data;
}

static uint64_t parquet_offset(const struct stg_columnar *table)
{
    const struct stg_parquet_file *file = table->file.metadata;
    uint32_t group = ((const struct parquet *)table)->group;
    return file->ranges[(uint64_t)group * table->n].begin;
}

/* ---- life ---- */

static void parquet_finish(struct stg_columnar *table)
{
    struct parquet *p = (struct parquet *)table;
    for (uint32_t c = 0; p->cursors != NULL && c < table->n; c++)
        stg_parquet_cursor_finish(&p->cursors[c]);
    for (uint32_t c = 0; p->folders != NULL && c < table->n; c++)
        stg_path_value_finish(&p->folders[c]);
    free(p->cursors);
    free(p->folders);
    stg_parquet_pages_finish(&p->pages);
    stg_parquet_reading_finish(&p->reading);
}

static const struct stg_columnar_format format = {.open = parquet_open,
                                                  .close = parquet_close,
                                                  .part_end = parquet_part_end,
                                                  .begin = parquet_begin,
                                                  .go = parquet_go,
                                                  .alike = parquet_alike,
                                                  .explain = parquet_explain,
                                                  .view = parquet_view,
                                                  .show = parquet_show,
                                                  .offset = parquet_offset,
                                                  .pass = parquet_pass,
                                                  .values = parquet_values,
                                                  .finish = parquet_finish};

/* The filter compares strings, not codes. */
static bool is_compared(const struct stg_columnar *table, uint32_t c)
{
    const struct stg_judged *judged = table->judged;
    for (uint32_t k = 0; judged != NULL && k < judged->filter.n; k++) {
        if (judged->filter.conditions[k].column == c)
            return true;
    }
    return false;
}

static void declare(struct parquet *p)
{
    bool takes_codes = p->table.iter.dataset->takes_codes;
    for (uint32_t c = 0; c < p->table.n; c++) {
        const struct stg_declared_column *from = &p->table.declared[c];
        p->wants[c] = (struct stg_parquet_want){.name = from->name,
                                                .dtype = from->dtype,
                                                .n_lists = from->n_lists,
                                                .may_lack = from->has_default};
        p->columns[c] = (struct stg_parquet_column){
            .want = p->wants[c],
            .takes_codes = takes_codes && from->n_lists == 0 &&
                           from->dtype == STAGER_STRING && !is_compared(&p->table, c)};
        memcpy(p->columns[c].shape, from->shape, sizeof(from->shape));
        p->cursors[c].reading = &p->reading;
        p->cursors[c].column = &p->columns[c];
    }
}

static int parquet_create(struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          struct stg_iter **ret, struct stg_err *err)
{
    struct stg_columnar *table;
    int rc = stg_columnar_create(sizeof(struct parquet), &format, dataset, step, schema,
                                 input, &table, err);
    if (rc < 0)
        return rc;
    struct parquet *p = (struct parquet *)table;
    p->reading.quota = p->reading.codecs.quota = dataset->quota;
    p->columns = stg_bump_alloc(&dataset->bump, table->n * sizeof(*p->columns));
    p->wants = stg_bump_alloc(&dataset->bump, table->n * sizeof(*p->wants));
    p->cursors = calloc(table->n, sizeof(*p->cursors));
    p->folders = calloc(table->n, sizeof(*p->folders));
    if (p->columns == NULL || p->wants == NULL || p->cursors == NULL ||
        p->folders == NULL)
        return stg_columnar_lack(table, err);
    declare(p);
    rc = stg_sieve_create(table, ret, err);
    if (rc < 0)
        stg_columnar_destroy(table);
    return rc;
}

const struct stg_transformation stg_parquet = {.name = "parquet",
                                               .infer = stg_columnar_infer,
                                               .create = parquet_create,
                                               .passes_codes = true,
                                               .is_indexable = true,
                                               .is_unindexed = stg_filters_any};
