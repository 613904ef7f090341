/* SPDX-License-Identifier: Apache-2.0
 *
 * What decode_csv has of its records once the pipeline is applied: its options,
 * checked, and the work of its columns' readers that it does too. Immutable.
 */
#ifndef STG_OPS_KERNELS_CSV_PLAN_H
#define STG_OPS_KERNELS_CSV_PLAN_H

#include "ops/base/op.h"
#include "ops/kernels/csv/csv.h"

#define STG_CSV_MAX_COLUMNS 65536

struct stg_csv_plan {
    struct stg_csv_dialect dialect;
    uint32_t n_columns;
    int *dtypes;
    uint32_t *fields; /* column -> field */
    struct stg_csv_rule *rules;
    const struct stg_csv_hash *const *hashes; /* column -> what hashes it; NULL: none */
};

/* infer and absorb of decode_csv; the plan is a struct stg_csv_plan. */
int stg_csv_plan_infer(struct stg_op_infer *ctx, struct stg_err *err);
const void *stg_csv_plan_absorb(const void *plan, struct stg_absorb *readers, size_t n,
                                struct stg_bump *bump);

#endif
