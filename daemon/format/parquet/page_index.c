/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/page_index.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/format/parquet/statistics.h"
#include "daemon/format/parquet/thrift.h"

#define WHAT "the page index of a file"

/* Reads one of the two parts of the index; *chunk stays NULL if it cannot be had. */
static int read_part(struct stg_source *source, struct stg_quota *quota,
                     const struct stg_parquet_part *part, struct stg_chunk **chunk,
                     struct stg_thrift *ret, struct stg_err *err)
{
    bool is_storage;
    *chunk = NULL;
    if (part->bytes == 0 || stg_quota_is_large(quota, part->bytes))
        return 0;
    int rc = stg_chunk_create(quota, part->bytes, WHAT, chunk, err);
    if (rc < 0)
        return rc;
    if (stg_source_read_all(source, part->at, (*chunk)->data, part->bytes, &is_storage,
                            NULL) < 0) {
        stg_chunk_unref(*chunk);
        *chunk = NULL;
        return 0;
    }
    const uint8_t *data = (const uint8_t *)(*chunk)->data;
    *ret = (struct stg_thrift){.at = data, .end = data + part->bytes};
    return 0;
}

/* ---- OffsetIndex ---- */

static uint64_t first_row_of(struct stg_thrift *thrift)
{
    struct stg_thrift_field field = {0};
    int64_t row = -1;
    while (stg_thrift_next(thrift, &field)) {
        if (field.id == 3)
            row = stg_thrift_int(thrift, &field);
        else
            stg_thrift_skip(thrift, &field);
    }
    return row < 0 ? UINT64_MAX : (uint64_t)row;
}

/* Sets the rows up to the end of each page. Returns false unless each page has rows. */
static bool set_ends(struct stg_thrift *thrift, uint64_t n, uint64_t n_rows,
                     uint64_t *ends)
{
    if (n == 0 || first_row_of(thrift) != 0)
        return false;
    for (uint64_t i = 1; i < n; i++) {
        uint64_t begin = i > 1 ? ends[i - 2] : 0;
        ends[i - 1] = first_row_of(thrift);
        if (thrift->is_bad || ends[i - 1] <= begin || ends[i - 1] >= n_rows)
            return false;
    }
    ends[n - 1] = n_rows;
    return !thrift->is_bad;
}

/* Makes the arrays of a condition, and sets the ends of the pages; n stays 0 if they
 * cannot be right. */
static int read_ends(struct stg_thrift thrift, struct stg_quota *quota, uint64_t n_rows,
                     struct stg_parquet_paged *ret, struct stg_err *err)
{
    struct stg_thrift_field field = {0};
    while (stg_thrift_next(&thrift, &field) && field.id != 1)
        stg_thrift_skip(&thrift, &field);
    uint64_t n = stg_thrift_list(&thrift, &field, STG_THRIFT_STRUCT);
    uint64_t bytes = n * (sizeof(*ret->ends) + sizeof(*ret->may));
    if (n == 0 || stg_quota_is_large(quota, bytes))
        return 0;
    int rc = stg_chunk_create(quota, bytes, WHAT, &ret->memory, err);
    if (rc < 0)
        return rc;
    uint64_t *ends = (uint64_t *)(void *)ret->memory->data;
    ret->ends = ends;
    ret->may = (const uint8_t *)(ends + n);
    ret->n = set_ends(&thrift, n, n_rows, ends) ? n : 0;
    return 0;
}

/* ---- ColumnIndex ---- */

/* Its lists, of one element for each page. */
struct column_index {
    struct stg_thrift nulls, min, max, n_nulls;
    uint64_t n, n_min, n_max, n_counts;
};

/* A list of booleans may have either of two types. */
static uint64_t begin_bools(struct stg_thrift *list, const struct stg_thrift_field *field)
{
    struct stg_thrift other = *list;
    uint64_t n = stg_thrift_list(list, field, STG_THRIFT_TRUE);
    if (list->is_bad) {
        *list = other;
        n = stg_thrift_list(list, field, STG_THRIFT_FALSE);
    }
    return n;
}

static bool find_lists(struct stg_thrift *thrift, struct column_index *ret)
{
    struct stg_thrift_field field = {0};
    *ret = (struct column_index){0};
    while (stg_thrift_next(thrift, &field)) {
        struct stg_thrift list = *thrift;
        switch (field.id) {
        case 1:
            ret->n = begin_bools(&list, &field);
            ret->nulls = list;
            break;
        case 2:
            ret->n_min = stg_thrift_list(&list, &field, STG_THRIFT_BINARY);
            ret->min = list;
            break;
        case 3:
            ret->n_max = stg_thrift_list(&list, &field, STG_THRIFT_BINARY);
            ret->max = list;
            break;
        case 5:
            ret->n_counts = stg_thrift_list(&list, &field, STG_THRIFT_I64);
            ret->n_nulls = list;
            break;
        default: break;
        }
        stg_thrift_skip(thrift, &field);
    }
    return !thrift->is_bad && ret->n_min == ret->n && ret->n_max == ret->n &&
           (ret->n_counts == 0 || ret->n_counts == ret->n);
}

/* Returns what the index says of the next page, which has n rows. A page of nulls has
 * empty bounds. */
static struct stg_parquet_statistics next_page(struct column_index *index, uint64_t n)
{
    static const struct stg_thrift_field binary = {.type = STG_THRIFT_BINARY},
                                         number = {.type = STG_THRIFT_I64};
    struct stg_parquet_statistics ret = {.n_nulls = -1};
    ret.min.bytes = stg_thrift_binary(&index->min, &binary, &ret.min.data);
    ret.max.bytes = stg_thrift_binary(&index->max, &binary, &ret.max.data);
    if (index->n_counts > 0)
        ret.n_nulls = stg_thrift_int(&index->n_nulls, &number);
    bool is_null = index->nulls.at < index->nulls.end && *index->nulls.at == 1;
    index->nulls.at++;
    if (is_null)
        ret = (struct stg_parquet_statistics){.n_nulls = (int64_t)n};
    return ret;
}

/* ---- a condition ---- */

static bool judge_pages(const struct stg_parquet_file *file,
                        const struct stg_parquet_column *columns,
                        const struct stg_row_condition *condition,
                        struct column_index *index, const struct stg_parquet_paged *paged)
{
    uint8_t *may = (uint8_t *)(uintptr_t)paged->may;
    uint32_t c = condition->column;
    for (uint64_t i = 0; i < paged->n; i++) {
        uint64_t n = paged->ends[i] - (i > 0 ? paged->ends[i - 1] : 0);
        struct stg_parquet_statistics statistics = next_page(index, n);
        struct stg_row_bounds bounds = stg_parquet_bounds(
            &file->leaves[c], columns[c].want.dtype, &statistics, file->is_ordered[c], n);
        may[i] = stg_row_condition_may(condition, &bounds);
    }
    return !index->min.is_bad && !index->max.is_bad && !index->n_nulls.is_bad;
}

static int read_condition(struct stg_parquet_pages *pages, struct stg_source *source,
                          const struct stg_parquet_file *file,
                          const struct stg_parquet_column *columns,
                          const struct stg_row_condition *condition,
                          struct stg_parquet_paged *ret, struct stg_err *err)
{
    uint32_t group = pages->group, c = condition->column;
    const struct stg_parquet_index *at =
        &file->indexes[(uint64_t)group * file->n_columns + c];
    uint64_t n_rows = file->ends[group] - (group > 0 ? file->ends[group - 1] : 0);
    struct stg_thrift offsets = {0}, bounds = {0};
    struct stg_chunk *first = NULL, *second = NULL;
    struct column_index index;
    int rc = read_part(source, file->quota, &at->offsets, &first, &offsets, err);
    if (rc == 0 && first != NULL)
        rc = read_part(source, file->quota, &at->bounds, &second, &bounds, err);
    if (rc == 0 && second != NULL)
        rc = read_ends(offsets, file->quota, n_rows, ret, err);
    if (rc == 0 && ret->n > 0 &&
        !(find_lists(&bounds, &index) && index.n == ret->n &&
          judge_pages(file, columns, condition, &index, ret)))
        ret->n = 0;
    stg_chunk_unref(first);
    stg_chunk_unref(second);
    return rc;
}

/* ---- the row group ---- */

int stg_parquet_pages_read(struct stg_parquet_pages *pages, struct stg_source *source,
                           const struct stg_parquet_file *file,
                           const struct stg_parquet_column *columns,
                           const struct stg_row_filter *filter, uint32_t group,
                           struct stg_err *err)
{
    int rc = 0;
    if (pages->n > 0 && pages->group == group)
        return 0;
    stg_parquet_pages_finish(pages);
    pages->conditions = calloc(filter->n, sizeof(*pages->conditions));
    pages->may = calloc(filter->n, sizeof(*pages->may));
    if (pages->conditions == NULL || pages->may == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    pages->group = group;
    pages->n = rc == 0 ? filter->n : 0;
    for (uint32_t k = 0; rc == 0 && k < filter->n; k++)
        rc = read_condition(pages, source, file, columns, &filter->conditions[k],
                            &pages->conditions[k], err);
    if (rc < 0)
        stg_parquet_pages_finish(pages);
    return rc;
}

/* Returns the page of a row. */
static uint64_t page_of(const struct stg_parquet_paged *paged, uint64_t row)
{
    uint64_t low = 0, high = paged->n - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (paged->ends[middle] <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t stg_parquet_pages_excluded(struct stg_parquet_pages *pages,
                                    const struct stg_row_filter *filter, uint64_t row)
{
    uint64_t end = UINT64_MAX;
    for (uint32_t k = 0; k < pages->n; k++) {
        const struct stg_parquet_paged *paged = &pages->conditions[k];
        pages->may[k] = 1;
        if (paged->n == 0)
            continue;
        uint64_t i = page_of(paged, row);
        pages->may[k] = paged->may[i];
        end = paged->ends[i] < end ? paged->ends[i] : end;
    }
    bool is_known = end != UINT64_MAX && row < end;
    return is_known && !stg_row_filter_may(filter, pages->may) ? end - row : 0;
}

void stg_parquet_pages_finish(struct stg_parquet_pages *pages)
{
    for (uint32_t k = 0; pages->conditions != NULL && k < pages->n; k++)
        stg_chunk_unref(pages->conditions[k].memory);
    free(pages->conditions);
    free(pages->may);
    *pages = (struct stg_parquet_pages){0};
}
