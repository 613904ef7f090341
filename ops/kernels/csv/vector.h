/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables that csv_vector.c is compiled into, once for each instruction set. Only
 * csv_kernels.c and tests name them: the CPU may not have what they need.
 */
#ifndef STG_OPS_KERNELS_CSV_VECTOR_H
#define STG_OPS_KERNELS_CSV_VECTOR_H

#include "ops/kernels/csv/csv.h"

extern const struct stg_csv_kernels stg_csv_kernels_avx2, stg_csv_kernels_avx512,
    stg_csv_kernels_neon;

#endif
