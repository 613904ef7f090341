/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of one tensor in another order: slices, transposes, padding. Strings too. No
 * state; any thread.
 */
#ifndef STG_OPS_BASE_MOVE_H
#define STG_OPS_BASE_MOVE_H

#include "ops/base/op.h"

/* One dimension of the output: where element i of it comes from, in elements of the
 * input. */
struct stg_move_dim {
    int64_t n;
    int64_t before, after; /* of n: how many at both ends are filled, not moved */
    int64_t stride;        /* element before + k is at k * stride */
    const int64_t *table;  /* or: element i is at table[i]; before and after are 0 */
};

struct stg_move {
    int ndim;
    struct stg_move_dim dims[STG_MAX_DIMS];
    int64_t first;    /* what is added to all of that */
    const void *fill; /* one element; NULL: nothing is filled */
    const char *text; /* strings: what is filled in */
    size_t text_bytes;
};

/* Writes output i, of the shape that the dims say. */
int stg_move_run(struct stg_op_run *ctx, size_t i, const struct stg_tensor *input,
                 const struct stg_move *move, struct stg_err *err);

/* Writes output i: element k is input string picks[k], or `text` where that is -1. */
int stg_move_strings(struct stg_op_run *ctx, size_t i, const struct stg_tensor *input,
                     const int64_t *picks, int ndim, const int64_t *shape,
                     const char *text, size_t text_bytes, struct stg_err *err);

/* Distance of neighbours in each dimension, row-major. */
void stg_move_strides(const struct stg_tensor *input, int64_t *ret);

/* out[0 .. n) = one element of that many bytes (1, 2, 4 or 8). */
void stg_move_fill(void *out, int64_t n, const void *element, size_t bytes);

/* The attribute `name` as an axis of `rank`, -rank <= axis < rank made positive. */
int stg_move_axis(const struct stg_node *node, const char *name, int64_t otherwise,
                  int rank, int *ret, struct stg_err *err);

#endif
