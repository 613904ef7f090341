/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/codec/crc32c.h"

#include <stdatomic.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* ---- choosing ---- */

extern const struct stg_crc32c_kernels stg_crc32c_plain, stg_crc32c_sse42,
    stg_crc32c_armv8;

static const struct stg_crc32c_kernels *const tables[] = {
    &stg_crc32c_plain,
#if defined(__x86_64__)
    &stg_crc32c_sse42,
#elif defined(__aarch64__)
    &stg_crc32c_armv8,
#endif
};

static size_t count_tables(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") ? 2 : 1;
#elif defined(__aarch64__)
    return getauxval(AT_HWCAP) & HWCAP_CRC32 ? 2 : 1;
#else
    return 1;
#endif
}

const struct stg_crc32c_kernels *const *stg_crc32c_all(size_t *ret_n)
{
    stg_crc32c_make_tables();
    *ret_n = count_tables();
    return tables;
}

static _Atomic(const struct stg_crc32c_kernels *) in_use;

void stg_crc32c_use(const struct stg_crc32c_kernels *kernels)
{
    atomic_store_explicit(&in_use, kernels, memory_order_release);
}

const struct stg_crc32c_kernels *stg_crc32c(void)
{
    const struct stg_crc32c_kernels *kernels =
        atomic_load_explicit(&in_use, memory_order_acquire);
    if (kernels == NULL) {
        size_t n;
        const struct stg_crc32c_kernels *const *all = stg_crc32c_all(&n);
        kernels = all[n - 1];
        stg_crc32c_use(kernels);
    }
    return kernels;
}
