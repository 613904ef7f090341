/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "ops/kernels/csv/csv.h"

/* From the reference to the fastest; each needs what the one before needs. */
static const struct stg_csv_kernels *const tables[] = {
    &stg_csv_kernels_scalar,
#if defined(__x86_64__)
    &stg_csv_kernels_avx2,
    &stg_csv_kernels_avx512,
#elif defined(__aarch64__)
    &stg_csv_kernels_neon,
#endif
};

static size_t count_tables(void)
{
    size_t n = 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("popcnt"))
        return n;
    n++;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi2"))
        n++;
#elif defined(__aarch64__)
    n++;
#endif
    return n;
}

const struct stg_csv_kernels *const *stg_csv_kernels_all(size_t *ret_n)
{
    *ret_n = count_tables();
    return tables;
}

static _Atomic(const struct stg_csv_kernels *) in_use;

void stg_csv_kernels_use(const struct stg_csv_kernels *kernels)
{
    atomic_store_explicit(&in_use, kernels, memory_order_relaxed);
}

const struct stg_csv_kernels *stg_csv_kernels(void)
{
    const struct stg_csv_kernels *kernels =
        atomic_load_explicit(&in_use, memory_order_relaxed);
    if (kernels == NULL) {
        kernels = tables[count_tables() - 1];
        stg_csv_kernels_use(kernels);
    }
    return kernels;
}
