/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel says of this process. Any thread.
 */
#ifndef STG_DAEMON_METRICS_PROCESS_H
#define STG_DAEMON_METRICS_PROCESS_H

#include <stdint.h>

struct stg_process_usage {
    uint64_t resident_bytes, virtual_bytes, cpu_ns;
    uint64_t n_fds, max_fds, n_threads;
};

/* Reads /proc; what it does not say is 0. */
void stg_process_usage(struct stg_process_usage *ret);

#endif
