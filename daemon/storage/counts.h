/* SPDX-License-Identifier: Apache-2.0
 *
 * What all storage of the process has read, for metrics. Any thread.
 */
#ifndef STG_DAEMON_STORAGE_COUNTS_H
#define STG_DAEMON_STORAGE_COUNTS_H

#include <stdint.h>

enum stg_storage_count {
    STG_COUNT_LOCAL_READS,
    STG_COUNT_LOCAL_BYTES,
    STG_COUNT_REMOTE_READS,
    STG_COUNT_REMOTE_BYTES,
    STG_COUNT_REMOTE_RETRIES, /* attempts after a failed one */
    STG_COUNT_CACHE_HITS,     /* ranges that remote.cache_dir had */
    STG_COUNT_CACHE_MISSES,   /* and those that a server sent although it is set */
    STG_N_STORAGE_COUNTS
};

void stg_storage_count(enum stg_storage_count what, uint64_t n);
uint64_t stg_storage_counted(enum stg_storage_count what);

#endif
