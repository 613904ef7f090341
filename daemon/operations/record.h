/* SPDX-License-Identifier: Apache-2.0
 *
 * One record of the operations log, and the forms in which it is written. Any thread.
 */
#ifndef STG_DAEMON_OPERATIONS_RECORD_H
#define STG_DAEMON_OPERATIONS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum stg_operation_kind {
    STG_OPERATION_APPLIED,
    STG_OPERATION_REPLACED,
    STG_OPERATION_ROLLED_BACK,
    STG_OPERATION_DELETED,
    STG_OPERATION_ATTACHED,
    STG_OPERATION_REFUSED, /* by a rule or a quota */
    STG_OPERATION_DRAINED,
    STG_OPERATION_RESUMED, /* drained no more */
    STG_OPERATION_RELOADED,
    STG_OPERATION_LOST, /* records are missing */
    STG_N_OPERATIONS
};

/* Strings are borrowed; NULL or "": the record has no such field. */
struct stg_operation {
    enum stg_operation_kind kind;
    bool has_user; /* uid, gid are known */
    uid_t uid;
    gid_t gid;
    pid_t pid;           /* 0: not known */
    const char *program; /* of the client, as it names itself */
    const char *request;
    const char *pipeline;
    uint64_t generation; /* 0: none */
    bool unchanged;      /* the definition was the same */
    const char *client;  /* client_id */
    const char *status;  /* the name of a status code */
    const char *reason;
    const char *settings; /* keys that a reload changed */
    uint64_t n_lost;
};

#define STG_OPERATION_BYTES 4096 /* of a record in either form, at most */

/* Writes the record as a message of journald's native protocol. Returns its bytes, 0 if
 * it does not fit. */
size_t stg_operation_for_journal(const struct stg_operation *operation,
                                 char buf[STG_OPERATION_BYTES]);

/* Writes the record as one line of JSON, with the time since 1970. Returns its bytes, 0
 * if it does not fit. */
size_t stg_operation_for_file(const struct stg_operation *operation, uint64_t time_ns,
                              char buf[STG_OPERATION_BYTES]);

#endif
