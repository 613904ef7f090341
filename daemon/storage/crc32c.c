/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/crc32c.h"

#include <pthread.h>
#include <stdatomic.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define POLYNOMIAL 0x82f63b78u /* reflected */

struct stg_crc32c_tables stg_crc32c_tables;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static uint32_t times_x(uint32_t v)
{
    return (v >> 1) ^ (v & 1 ? POLYNOMIAL : 0);
}

static void make_tables(void)
{
    struct stg_crc32c_tables *t = &stg_crc32c_tables;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int k = 0; k < 8; k++)
            v = times_x(v);
        t->bytes[0][i] = v;
    }
    for (int k = 1; k < 8; k++) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t before = t->bytes[k - 1][i];
            t->bytes[k][i] = t->bytes[0][before & 255] ^ (before >> 8);
        }
    }
    t->power[1] = 1; /* x^31 */
    for (size_t i = 2; i < sizeof(t->power) / sizeof(t->power[0]); i++) {
        uint32_t v = t->power[i - 1];
        for (int k = 0; k < 64; k++)
            v = times_x(v);
        t->power[i] = v;
    }
}

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
    pthread_once(&tables_once, make_tables);
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
