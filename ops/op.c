/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op.h"

#include <string.h>

extern const struct stg_op stg_op_constant;
extern const struct stg_op stg_op_decode_csv;
extern const struct stg_op stg_op_identity;

static const struct stg_op *const ops[] = {
    &stg_op_constant,
    &stg_op_decode_csv,
    &stg_op_identity,
};

#define N_OPS (sizeof(ops) / sizeof(ops[0]))

const struct stg_op *const *stg_op_all(size_t *ret_n)
{
    *ret_n = N_OPS;
    return ops;
}

const struct stg_op *stg_op_find(const char *name)
{
    for (size_t i = 0; i < N_OPS; i++) {
        if (strcmp(ops[i]->name, name) == 0)
            return ops[i];
    }
    return NULL;
}
