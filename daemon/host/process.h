/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that an earlier stagerd watched. Any thread.
 */
#ifndef STG_DAEMON_HOST_PROCESS_H
#define STG_DAEMON_HOST_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns a number of the process of a pidfd that no other process of this boot has, or,
 * before Linux 6.9, the same one for all. */
uint64_t stg_process_id(int pidfd);

/* Returns whether the process with that pid and number lives. pid 0, which no process
 * has here: it may. */
bool stg_process_lives(pid_t pid, uint64_t id);

/* Writes the id of this boot of the machine. ret has 40 bytes. */
void stg_process_boot(char *ret);

#endif
