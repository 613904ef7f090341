/* SPDX-License-Identifier: Apache-2.0
 *
 * Control groups of the process, version 1 and 2: which folders hold their limits, and
 * the numbers in the files there. Keeps no state. Any thread.
 */
#ifndef STG_CORE_CGROUP_H
#define STG_CORE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void stg_cgroup_visit(void *owner, const char *folder, bool is_v1);

/* Calls visit with the folder of the process's control group and of each group above it
 * up to the mount, which is as far as a container sees. controller: "memory", "cpu"; in
 * version 1 it has a mount for itself, in version 2 all share one. root: "", or a folder
 * that holds proc/self/cgroup and sys/fs/cgroup. */
void stg_cgroup_each(const char *root, const char *controller, stg_cgroup_visit *visit,
                     void *owner);

/* Reads up to n numbers of a file in a group's folder. Returns how many it read before
 * the end or anything else, such as "max" or a negative number; 0 also without the file.
 */
size_t stg_cgroup_numbers(const char *folder, const char *file, uint64_t *ret, size_t n);

#endif
