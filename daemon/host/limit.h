/* SPDX-License-Identifier: Apache-2.0
 *
 * What the control group and the process's limits leave, held against the settings. Any
 * thread.
 */
#ifndef STG_DAEMON_HOST_LIMIT_H
#define STG_DAEMON_HOST_LIMIT_H

#include <stdint.h>

#include "core/err.h"

/* INVALID_ARGUMENT with both numbers when a memory_budget is above memory.max of the
 * process's control group or of one above it (v2; memory.limit_in_bytes in v1). Budget 0
 * never is. root:
 * "", or a folder that has /proc/self/cgroup and /sys/fs/cgroup. */
int stg_limit_check_memory(const char *root, uint64_t budget, struct stg_err *err);

/* Raises the soft limit of descriptors to the hard one. */
void stg_limit_raise_files(void);

/* How many descriptors the process may have. */
uint64_t stg_limit_files(void);

/* How many max_clients take at most. */
uint64_t stg_limit_files_wanted(uint32_t max_clients);

#endif
