/* SPDX-License-Identifier: Apache-2.0
 *
 * What a data file holds: the reply `schema`.
 */
#include <string.h>

#include "proto/wire_parts.h"

#define TEXTS(F) F(compression), F(delim), F(note)
#define NUMBERS(F) F(has_more), F(has_header), F(bytes), F(n_parts), F(first), F(n_total)
#define COLUMN_TEXTS(F) F(type), F(logical), F(encodings), F(codec), F(problem)
#define COLUMN_NUMBERS(F) F(nullable), F(has_dictionary), F(bytes), F(plain_bytes)

/* ---- encoding ---- */

static void column_fill(const struct stg_file_column *from, Stager__SchemaColumn *to)
{
    stager__schema_column__init(to);
    to->name = stg_wire_required(from->name);
    COLUMN_TEXTS(STG_PUT_TEXT);
    COLUMN_NUMBERS(STG_PUT_NUMBER);
    STG_PUT(to, dtype, (uint32_t)from->dtype);
    to->n_shape = (size_t)from->ndim;
    to->shape = (int64_t *)(uintptr_t)from->shape;
}

int stg_wire_schema_fill(const struct stg_file_schema *from, struct stg_bump *bump,
                         Stager__SchemaReply **ret)
{
    Stager__SchemaReply *to = stg_bump_alloc(bump, sizeof(*to));
    Stager__SchemaColumn **columns =
        stg_wire_messages(bump, from->n, sizeof(Stager__SchemaColumn));
    if (to == NULL || columns == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__schema_reply__init(to);
    to->url = stg_wire_required(from->url);
    to->format = stg_wire_required(from->format);
    TEXTS(STG_PUT_TEXT);
    NUMBERS(STG_PUT_NUMBER);
    to->has_n_rows = from->has_rows;
    to->n_rows = from->n_rows;
    for (size_t i = 0; i < from->n; i++)
        column_fill(&from->columns[i], columns[i]);
    to->column = columns;
    to->n_column = from->n;
    *ret = to;
    return 0;
}

/* ---- decoding ---- */

static int column_take(const Stager__SchemaColumn *from, struct stg_file_column *ret,
                       struct stg_err *err)
{
    if (from->n_shape > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: schema.column.shape: %zu dimensions",
                       from->n_shape);
    *ret = (struct stg_file_column){.name = from->name, .ndim = (int)from->n_shape};
    COLUMN_TEXTS(STG_TAKE_TEXT);
    COLUMN_NUMBERS(STG_TAKE_NUMBER);
    if (from->dtype <= INT32_MAX &&
        strcmp(stg_dtype_name((int)from->dtype), "invalid") != 0)
        ret->dtype = (int)from->dtype;
    for (size_t i = 0; i < from->n_shape; i++)
        ret->shape[i] = from->shape[i];
    return 0;
}

int stg_wire_schema_take(const Stager__SchemaReply *from, struct stg_bump *bump,
                         struct stg_file_schema *ret, struct stg_err *err)
{
    *ret = (struct stg_file_schema){.url = from->url,
                                    .format = from->format,
                                    .has_rows = from->has_n_rows != 0,
                                    .n_rows = from->n_rows,
                                    .n = from->n_column};
    TEXTS(STG_TAKE_TEXT);
    NUMBERS(STG_TAKE_NUMBER);
    ret->columns = stg_bump_alloc(bump, from->n_column * sizeof(*ret->columns));
    if (ret->columns == NULL)
        return stg_wire_fail_memory(err);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->n_column; i++)
        rc = column_take(from->column[i], &ret->columns[i], err);
    return rc;
}
