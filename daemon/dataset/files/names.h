/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that a reader step opens, one after the other. While it reads one, the names
 * of the next few are known already, and an idle thread opens them
 * (daemon/storage/ahead.h): opening a small file takes as long as reading it. One thread
 * at a time.
 */
#ifndef STG_DAEMON_NAMES_H
#define STG_DAEMON_NAMES_H

#include "daemon/dataset/step.h"

#define STG_MAX_NAMES STG_AHEAD_OPENS

/* A file whose turn has come, or an error item in its place. */
struct stg_name {
    struct stg_block *error; /* not NULL: nothing else is set */
    char *url;               /* malloc'ed */
    uint32_t file;           /* its index */
    uint64_t epoch;
};

struct stg_names {
    struct stg_iter *input; /* yields the names; borrowed, as is all above the queue */
    const struct stg_step *step;
    const struct stg_file_user *identity;
    struct stg_ahead *ahead; /* owned; NULL: none is opened before its turn */
    struct stg_name *queue;  /* a ring */
    size_t first, n, size;
    size_t n_planned; /* of them: the first, whose opens are planned */
    int ended;        /* not 0: what the input said behind the last of them */
    struct stg_err failure;
};

/* Zero bytes with the borrowed fields set are initialised. */

/* The next one, which the caller owns, and the file, if it was opened ahead, or
 * NULL. Otherwise as stg_iter_impl.next. */
int stg_names_next(struct stg_names *names, struct stg_name *ret,
                   struct stg_source **ret_source, struct stg_err *err);

/* Pulls names until there are n, or the input has no more. Returns how many there are. */
size_t stg_names_pull(struct stg_names *names, size_t n);
/* Returns name number i of those that are pulled. */
const struct stg_name *stg_names_at(const struct stg_names *names, size_t i);

/* Drops the first of those that are pulled, of which none is opened ahead. */
void stg_names_drop(struct stg_names *names);

/* Drops what is known, for the input to begin anew. finish frees the memory too. */
void stg_names_clear(struct stg_names *names);
void stg_names_finish(struct stg_names *names);

#endif
