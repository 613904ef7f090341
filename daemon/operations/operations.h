/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations log: which user changed what by stagerd, and which requests a rule or a
 * quota refused. Records pass through a bounded queue to a thread that writes them: the
 * loop waits neither for journald nor for a disk. Each user has a limit of records a
 * second. What does not fit is counted, and a record has the number.
 */
#ifndef STG_DAEMON_OPERATIONS_OPERATIONS_H
#define STG_DAEMON_OPERATIONS_OPERATIONS_H

#include "core/err.h"
#include "daemon/operations/record.h"

/* Checks a value of operations_log: "auto", "journal", "off", or an absolute path.
 * INVALID_ARGUMENT. */
int stg_operations_check(const char *where, struct stg_err *err);

/* Writes records there from now on: "auto" is the journal if standard error is the
 * journal's, otherwise "off". The thread opens a file, anew on each call, and logs an
 * error. For the loop. RESOURCE_EXHAUSTED. */
int stg_operations_configure(const char *where, struct stg_err *err);

/* Queues a record. For the loop. */
void stg_operations_note(const struct stg_operation *operation);

/* Returns how many records are missing. */
uint64_t stg_operations_lost(void);

/* Writes the queue, for a second at most, and ends the thread. */
void stg_operations_finish(void);

#endif
