/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/counts.h"

#include <stdatomic.h>

static _Atomic uint64_t counts[STG_N_STORAGE_COUNTS];

void stg_storage_count(enum stg_storage_count what, uint64_t n)
{
    atomic_fetch_add_explicit(&counts[what], n, memory_order_relaxed);
}

uint64_t stg_storage_counted(enum stg_storage_count what)
{
    return atomic_load_explicit(&counts[what], memory_order_relaxed);
}
