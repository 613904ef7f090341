/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of Arrow files. A block shows the memory that its rows were read to; it ends where
 * a column was read no further.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/sources/arrow_indices.h"
#include "daemon/dataset/sources/columnar.h"
#include "daemon/dataset/sources/filters.h"
#include "daemon/dataset/sources/sieve.h"
#include "daemon/format/arrow/cursor.h"

#define NO_BATCH UINT32_MAX

struct arrow {
    struct stg_columnar table;
    struct stg_arrow_column *columns; /* table.n, as are wants and cursors */
    struct stg_arrow_want *wants;
    struct stg_arrow_cursor *cursors;
    struct stg_path_value *folders; /* what those of the open file say of each column */
    struct stg_arrow_reading reading;
    uint32_t batch;    /* that the cursors are in, or NO_BATCH */
    uint64_t in_batch; /* the row of it that they have reached */
};

/* ---- options ---- */

static int arrow_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    if (!stg_arrow_is_built)
        return stg_step_err(step, -STAGER_UNIMPLEMENTED, err,
                            "this stagerd was built without flatbuffers, and reads no "
                            "Arrow files");
    if (stg_arrow_indices_of(step) != NULL && stg_filters_any(step))
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "filters cannot be combined with indices: put the condition "
                            "into a step filter behind this step");
    return stg_columnar_infer(step, in, bump, ret, err);
}

/* ---- files ---- */

static int dtype_of(const struct stg_columnar *table, const struct stg_arrow_file *file,
                    uint32_t c)
{
    int dtype = table->declared[c].dtype;
    return dtype != STAGER_DT_INVALID ? dtype : stg_arrow_leaf_dtype(&file->leaves[c]);
}

/* The filter can compare what the columns are in this file. A column of type Null has
 * nothing to compare. */
static int check_filter(const struct stg_columnar *table,
                        const struct stg_arrow_file *file, struct stg_err *err)
{
    const struct stg_judged *judged = table->judged;
    for (uint32_t k = 0; judged != NULL && k < judged->filter.n; k++) {
        const struct stg_row_condition *condition = &judged->filter.conditions[k];
        uint32_t c = condition->column;
        const struct stg_arrow_leaf *leaf = &file->leaves[c];
        if (!leaf->is_there || leaf->field.type == STG_ARROW_NULL)
            continue;
        int rc = stg_row_condition_check(condition, dtype_of(table, file, c), err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "column %.256s", table->declared[c].name);
    }
    return 0;
}

static int arrow_open(struct stg_columnar *table, struct stg_source *source,
                      struct stg_columnar_file *ret, bool *ret_storage,
                      struct stg_err *err)
{
    const struct arrow *p = (const struct arrow *)table;
    struct stg_arrow_file *file = NULL;
    int rc = 0;
    *ret_storage = false;
    for (uint32_t c = 0; rc == 0 && c < table->n; c++) {
        p->wants[c].may_lack =
            table->declared[c].has_default || !stg_columnar_is_read(table, c);
        rc = stg_columnar_is_given(table, c, &p->wants[c].is_given, err);
    }
    if (rc == 0)
        rc = stg_arrow_open(source, p->reading.quota, p->wants, table->n, &file,
                            ret_storage, err);
    if (rc == 0)
        rc = check_filter(table, file, err);
    if (rc < 0)
        stg_arrow_close(file);
    if (rc == 0)
        *ret = (struct stg_columnar_file){.metadata = file,
                                          .n_rows = stg_arrow_n_rows(file),
                                          .n_parts = file->n_batches,
                                          .bytes = file->bytes};
    return rc;
}

static void arrow_close(void *metadata)
{
    stg_arrow_close(metadata);
}

static uint64_t arrow_part_end(const void *metadata, uint32_t part)
{
    return ((const struct stg_arrow_file *)metadata)->batches[part].end;
}

/* A column has the value of its folder as the default of a file that lacks it. */
static void set_column(struct stg_columnar *table, uint32_t c)
{
    struct arrow *p = (struct arrow *)table;
    const struct stg_declared_column *from = &table->declared[c];
    struct stg_path_value *folder = &p->folders[c];
    struct stg_arrow_column *to = &p->columns[c];
    bool is_given = stg_columnar_given(table, c, folder);
    to->want.dtype = dtype_of(table, table->file.metadata, c);
    to->want.may_lack = (from->has_default || is_given) && c < table->n_shown;
    bool is_text = is_given && from->dtype == STAGER_STRING;
    to->value = is_given ? folder->value : from->value;
    to->text = is_text ? folder->text : from->text;
    to->text_bytes = is_text ? folder->text_bytes : from->text_bytes;
}

static void arrow_begin(struct stg_columnar *table)
{
    struct arrow *p = (struct arrow *)table;
    p->reading.source = table->source;
    p->batch = NO_BATCH;
    for (uint32_t c = 0; c < table->n; c++) {
        const struct stg_arrow_file *file = table->file.metadata;
        set_column(table, c);
        stg_arrow_cursor_open(&p->cursors[c], file, c);
    }
}

/* ---- rows ---- */

static int begin_batch(struct stg_columnar *table, uint32_t batch, struct stg_err *err)
{
    struct arrow *p = (struct arrow *)table;
    struct stg_err why = {0};
    stg_arrow_announce(table->file.metadata, table->source, batch);
    int rc = stg_arrow_cursors_begin(p->cursors, table->n, batch, &why);
    p->batch = batch;
    if (rc == 0)
        return 0;
    if (!stg_columnar_ignores(table, rc, true))
        return stg_columnar_fail(table, rc, &why, err);
    for (uint32_t c = 0; c < table->n; c++)
        stg_arrow_cursor_lose(&p->cursors[c], 0, &why);
    return 0;
}

/* Makes the cursors have the next row. */
static int arrow_go(struct stg_columnar *table, uint64_t want, struct stg_err *err)
{
    struct arrow *p = (struct arrow *)table;
    const struct stg_arrow_file *file = table->file.metadata;
    bool is_there = p->batch != NO_BATCH &&
                    table->row >= stg_arrow_batch_begin(file, p->batch) &&
                    table->row < file->batches[p->batch].end;
    uint32_t before = p->batch;
    int rc =
        is_there ? 0 : begin_batch(table, stg_arrow_find_batch(file, table->row), err);
    p->in_batch = table->row - stg_arrow_batch_begin(file, p->batch);
    for (uint32_t c = 0; rc == 0 && c < table->n; c++) {
        struct stg_err why = {0};
        if (!stg_columnar_is_wanted(table, c))
            continue;
        rc = stg_arrow_cursor_go(&p->cursors[c], p->in_batch, want, &why);
        if (rc < 0 && !stg_columnar_ignores(table, rc, true))
            return stg_columnar_fail(table, rc, &why, err);
        if (rc < 0)
            stg_arrow_cursor_lose(&p->cursors[c], p->in_batch, &why);
        rc = 0;
    }
    bool is_next = before == NO_BATCH || p->batch == before + 1;
    if (rc == 0 && !is_there && is_next)
        stg_arrow_announce(file, table->source, p->batch + 1);
    return rc;
}

/* Returns how many of n values, from state[at] on, are had; is_null: or are null. */
static uint64_t count_had(const uint8_t *state, uint64_t at, uint64_t n, bool is_null)
{
    uint64_t i = 0;
    while (state != NULL && i < n &&
           (state[at + i] == STG_ARROW_GOOD ||
            (is_null && state[at + i] == STG_ARROW_IS_NULL)))
        i++;
    return state != NULL ? i : n;
}

static uint64_t arrow_alike(const struct stg_columnar *table, uint32_t c, uint64_t want)
{
    const struct arrow *p = (const struct arrow *)table;
    const struct stg_arrow_cursor *cursor = &p->cursors[c];
    uint64_t at = p->in_batch - cursor->first, left = cursor->n - at;
    uint64_t n = want < left ? want : left;
    if (!stg_columnar_is_read(table, c))
        return want;
    if (cursor->lost.code != 0)
        return 0;
    if (cursor->column->want.n_lists > 0)
        return stg_list_rows_alike(&cursor->lists.rows, cursor->column->shape,
                                   table->is_uneven, at, n);
    return count_had(cursor->values.state, at, n, c >= table->n_shown);
}

/* ---- the filter ---- */

/* Of values that are damaged, nothing is known. */
static uint64_t arrow_values(const struct stg_columnar *table, uint32_t c, uint64_t want,
                             struct stg_row_values *ret, uint64_t *ret_at)
{
    const struct arrow *p = (const struct arrow *)table;
    const struct stg_arrow_cursor *cursor = &p->cursors[c];
    const struct stg_arrow_values *values = &cursor->values;
    uint64_t at = p->in_batch - cursor->first, left = cursor->n - at;
    uint64_t n = want < left ? want : left;
    *ret_at = at;
    *ret = (struct stg_row_values){.dtype = p->columns[c].want.dtype,
                                   .fixed = values->fixed,
                                   .base = values->base,
                                   .begin = values->begin,
                                   .end = values->end,
                                   .null = values->state,
                                   .is_lost = cursor->lost.code != 0};
    uint64_t n_had = ret->is_lost ? n : count_had(values->state, at, n, true);
    ret->is_lost |= n_had == 0;
    return n_had > 0 ? n_had : 1;
}

static struct stg_column_view arrow_view(const struct stg_columnar *table, uint32_t c,
                                         uint64_t n)
{
    const struct arrow *p = (const struct arrow *)table;
    const struct stg_arrow_cursor *cursor = &p->cursors[c];
    return (struct stg_column_view){.column = &table->declared[c],
                                    .rows = &cursor->lists.rows,
                                    .at = p->in_batch - cursor->first,
                                    .n = n,
                                    .is_uneven = table->is_uneven && n > 1};
}

static const char *reason_of(uint8_t state)
{
    switch (state) {
    case STG_ARROW_BAD_INDEX: return "its index is out of the range of its dictionary";
    case STG_ARROW_BAD_LIST: return "an offset of its list is out of range";
    case STG_ARROW_TOO_LARGE: return "the decimal is out of the range of int64";
    default: return "an offset of its string is out of range";
    }
}

/* Why a row that was read cannot be had. */
static void explain_read(const struct stg_columnar *table, uint32_t c,
                         struct stg_err *ret)
{
    const struct stg_arrow_cursor *cursor = &((const struct arrow *)table)->cursors[c];
    const struct stg_arrow_file *file = table->file.metadata;
    struct stg_column_view view = arrow_view(table, c, 1);
    bool is_list = cursor->column->want.n_lists > 0;
    uint8_t state = is_list ? view.rows->bad[view.at] : cursor->values.state[view.at];
    if (state == STG_ARROW_GOOD || state == STG_ARROW_IS_NULL)
        stg_column_explain(&view, ret);
    else
        stg_err(ret,
                state == STG_ARROW_TOO_LARGE ? -STAGER_INVALID_ARGUMENT
                                             : -STAGER_DATA_LOSS,
                "%s", reason_of(state));
    stg_err_prefix(
        ret, ret->code, "column %.256s, record batch %" PRIu32 " at offset %" PRIu64,
        cursor->column->want.name, cursor->batch, file->batches[cursor->batch].piece.at);
}

static void arrow_explain(const struct stg_columnar *table, uint32_t c,
                          struct stg_err *ret)
{
    *ret = ((const struct arrow *)table)->cursors[c].lost;
    if (ret->code == 0)
        explain_read(table, c, ret);
}

static void arrow_show(const struct stg_columnar *table, uint32_t c, uint64_t first,
                       uint64_t n, struct stg_tensor *tensor, struct stg_chunk **held,
                       uint32_t *n_held)
{
    const struct arrow *p = (const struct arrow *)table;
    const struct stg_arrow_values *values = &p->cursors[c].values;
    if (tensor->dtype == STAGER_STRING) {
        tensor->data = values->base;
        tensor->data_bytes = values->base_bytes + p->columns[c].text_bytes;
        tensor->begin = values->begin + first;
        tensor->end = values->end + first;
    } else {
        unsigned width = stg_dtype_bytes(tensor->dtype);
        tensor->data = values->fixed + first * width;
        tensor->data_bytes = n * width;
    }
    if (values->values != NULL)
        held[(*n_held)++] = values->values;
    if (values->data != NULL)
        held[(*n_held)++] = values->data;
}

static uint64_t arrow_offset(const struct stg_columnar *table)
{
    const struct stg_arrow_file *file = table->file.metadata;
    return file->batches[((const struct arrow *)table)->batch].piece.body;
}

/* ---- life ---- */

static void arrow_finish(struct stg_columnar *table)
{
    struct arrow *p = (struct arrow *)table;
    for (uint32_t c = 0; p->cursors != NULL && c < table->n; c++)
        stg_arrow_cursor_finish(&p->cursors[c]);
    for (uint32_t c = 0; p->folders != NULL && c < table->n; c++)
        stg_path_value_finish(&p->folders[c]);
    free(p->cursors);
    free(p->folders);
    stg_arrow_reading_finish(&p->reading);
}

static const struct stg_columnar_format format = {.open = arrow_open,
                                                  .close = arrow_close,
                                                  .part_end = arrow_part_end,
                                                  .begin = arrow_begin,
                                                  .go = arrow_go,
                                                  .alike = arrow_alike,
                                                  .explain = arrow_explain,
                                                  .view = arrow_view,
                                                  .show = arrow_show,
                                                  .offset = arrow_offset,
                                                  .values = arrow_values,
                                                  .finish = arrow_finish};

static void declare(struct arrow *p)
{
    for (uint32_t c = 0; c < p->table.n; c++) {
        const struct stg_declared_column *from = &p->table.declared[c];
        p->wants[c] = (struct stg_arrow_want){.name = from->name,
                                              .dtype = from->dtype,
                                              .n_lists = from->n_lists,
                                              .may_lack = from->has_default};
        p->columns[c] = (struct stg_arrow_column){.want = p->wants[c]};
        memcpy(p->columns[c].shape, from->shape, sizeof(from->shape));
        p->cursors[c].reading = &p->reading;
        p->cursors[c].column = &p->columns[c];
    }
}

static int arrow_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct stg_columnar *table;
    bool has_indices = stg_arrow_indices_of(step) != NULL;
    int rc = has_indices ? stg_arrow_indices_check(step, input, err) : 0;
    if (rc < 0)
        return rc;
    rc = stg_columnar_create(sizeof(struct arrow), &format, dataset, step, schema, input,
                             &table, err);
    if (rc < 0)
        return rc;
    struct arrow *p = (struct arrow *)table;
    p->reading.quota = p->reading.codecs.quota = dataset->quota;
    p->columns = stg_bump_alloc(&dataset->bump, table->n * sizeof(*p->columns));
    p->wants = stg_bump_alloc(&dataset->bump, table->n * sizeof(*p->wants));
    p->cursors = calloc(table->n, sizeof(*p->cursors));
    p->folders = calloc(table->n, sizeof(*p->folders));
    if (p->columns == NULL || p->wants == NULL || p->cursors == NULL ||
        p->folders == NULL)
        return stg_columnar_lack(table, err);
    declare(p);
    table->is_numbered = has_indices;
    if (has_indices)
        rc = stg_arrow_indices_create(&table->iter, ret, err);
    else
        rc = stg_sieve_create(table, ret, err);
    if (rc < 0)
        table->iter.impl->destroy(&table->iter);
    return rc;
}

const struct stg_transformation stg_arrow = {.name = "arrow",
                                             .infer = arrow_infer,
                                             .create = arrow_create,
                                             .is_indexable = true,
                                             .is_unindexed = stg_filters_any};
