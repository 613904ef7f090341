/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of memory that may vanish: pages of a mapped file, which another process may
 * truncate, or which the device cannot read. The kernel then sends SIGBUS. Owns the
 * process's action for SIGBUS, which ends such a copy and nothing else: any other SIGBUS
 * has the action that was set before. Any thread.
 */
#ifndef STG_DAEMON_STORAGE_LOCAL_GUARD_H
#define STG_DAEMON_STORAGE_LOCAL_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Copies n bytes, and reads the byte at `behind` before and after them. Returns whether
 * all were there; if not, `to` may have changed. The first call sets the action. */
bool stg_guard_copy(void *to, const char *from, size_t n, const char *behind);

#endif
