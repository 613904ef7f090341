/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings of an output that come one by one, and whose bytes together are known when the
 * last has come: collected in the op's scratch, then written at once. One thread.
 */
#ifndef STG_OPS_BASE_TEXT_COLUMN_H
#define STG_OPS_BASE_TEXT_COLUMN_H

#include "ops/base/op.h"

/* So many bytes more than a string has may be written behind it. */
#define STG_TEXT_SLACK 16

struct stg_text_column {
    struct stg_bump *bump;
    char *data;
    size_t used, capacity;
    int64_t *ends; /* of each string, in data */
    int64_t n;
};

/* Room for n strings. False: out of memory. */
bool stg_text_column_init(struct stg_text_column *column, struct stg_bump *bump,
                          uint64_t n);

/* Room for that many bytes and the slack behind `used`. False: out of memory. */
bool stg_text_column_reserve(struct stg_text_column *column, size_t bytes);

/* The next string is the `bytes` bytes at data + used. */
static inline void stg_text_column_end(struct stg_text_column *column, size_t bytes)
{
    column->used += bytes;
    column->ends[column->n++] = (int64_t)column->used;
}

/* The next string, copied. False: out of memory. */
bool stg_text_column_put(struct stg_text_column *column, const char *s, size_t n);

/* All elements of a tensor of strings. False: out of memory. */
bool stg_text_column_put_all(struct stg_text_column *column,
                             const struct stg_tensor *from);

/* Allocates output i and fills it. */
int stg_text_column_write(const struct stg_text_column *column, struct stg_op_run *ctx,
                          size_t i, int ndim, const int64_t *shape, struct stg_err *err);

#endif
