/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/image/kernels.h"

static const struct stg_image_kernels *const tables[] = {
    &stg_image_kernels_plain,
#if defined(__x86_64__)
    &stg_image_kernels_avx2,
#endif
};

const struct stg_image_kernels *const *stg_image_kernels_all(size_t *ret_n)
{
    *ret_n = 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    *ret_n += __builtin_cpu_supports("avx2") != 0;
#endif
    return tables;
}

const struct stg_image_kernels *stg_image_kernels(void)
{
    size_t n;
    const struct stg_image_kernels *const *all = stg_image_kernels_all(&n);
    return all[n - 1];
}
