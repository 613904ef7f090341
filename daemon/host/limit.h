/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings against the limits of the control group and of the process. Any thread.
 */
#ifndef STG_DAEMON_HOST_LIMIT_H
#define STG_DAEMON_HOST_LIMIT_H

#include <stdint.h>

#include "core/err.h"

/* Checks a memory_budget against memory.max of the process's control group and of each
 * one above it (v2; memory.limit_in_bytes in v1). INVALID_ARGUMENT has both numbers.
 * Budget 0 is always valid. root: "", or a folder that has proc/self/cgroup and
 * sys/fs/cgroup. */
int stg_limit_check_memory(const char *root, uint64_t budget, struct stg_err *err);

/* Raises the soft limit of descriptors to the hard one. */
void stg_limit_raise_files(void);

/* Returns how many descriptors the process may have. */
uint64_t stg_limit_files(void);

/* Returns how many descriptors max_clients take at most. */
uint64_t stg_limit_files_wanted(uint32_t max_clients);

#endif
