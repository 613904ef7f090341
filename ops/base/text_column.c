/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/text_column.h"

#include <string.h>

bool stg_text_column_init(struct stg_text_column *column, struct stg_bump *bump,
                          uint64_t n)
{
    *column = (struct stg_text_column){.bump = bump};
    size_t bytes;
    if (!__builtin_mul_overflow(n, sizeof(*column->ends), &bytes))
        column->ends = stg_bump_alloc_raw(bump, bytes);
    return column->ends != NULL;
}

bool stg_text_column_reserve(struct stg_text_column *column, size_t bytes)
{
    if (column->capacity - column->used >= bytes + STG_TEXT_SLACK)
        return true;
    size_t capacity = column->capacity * 2 + bytes + 64 * STG_TEXT_SLACK;
    char *data =
        capacity > column->capacity ? stg_bump_alloc_raw(column->bump, capacity) : NULL;
    if (data == NULL)
        return false;
    if (column->used > 0)
        memcpy(data, column->data, column->used);
    column->data = data;
    column->capacity = capacity;
    return true;
}

bool stg_text_column_put(struct stg_text_column *column, const char *s, size_t n)
{
    if (!stg_text_column_reserve(column, n))
        return false;
    memcpy(column->data + column->used, s, n);
    stg_text_column_end(column, n);
    return true;
}

bool stg_text_column_put_all(struct stg_text_column *column,
                             const struct stg_tensor *from)
{
    int64_t n = stg_tensor_n(from);
    for (int64_t i = 0; i < n; i++) {
        if (!stg_text_column_put(column, (const char *)from->data + from->begin[i],
                                 (size_t)(from->end[i] - from->begin[i])))
            return false;
    }
    return true;
}

int stg_text_column_write(const struct stg_text_column *column, struct stg_op_run *ctx,
                          size_t i, int ndim, const int64_t *shape, struct stg_err *err)
{
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, i, STAGER_STRING, ndim, shape, column->used, &output, err);
    if (rc < 0 || column->n == 0)
        return rc;
    memcpy((void *)(uintptr_t)output.end, column->ends,
           (size_t)column->n * sizeof(*column->ends));
    if (column->used > 0)
        memcpy(output.data, column->data, column->used);
    return 0;
}
