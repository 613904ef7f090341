/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares what the hosts of a job divide by `shard: auto`, through files in a folder
 * that all of them mount. Each host writes one note, reads those of the others, and
 * repeats their draws in its own. A note that repeats the own draw is of a host that runs
 * now: notes of earlier runs change nothing, and no clock is needed.
 */
#ifndef STG_DAEMON_CLUSTER_COMPARE_H
#define STG_DAEMON_CLUSTER_COMPARE_H

#include <stdatomic.h>

#include "daemon/cluster/note.h"

/* Where and as what a host compares; borrowed. */
struct stg_comparing {
    const char *dir; /* NULL: hosts are not compared */
    uint32_t timeout_millis;
    const char *signature; /* of the pipeline */
    uint64_t instance;     /* of the daemon */
    char job[64];          /* "": it has no name */
};

/* What the host has. */
struct stg_compared {
    const char *pipeline;
    uint32_t number, n_hosts;
    uint64_t batch_size, vocabularies;
    uint64_t n_files, span;            /* files, and how many a mark is of */
    const struct stg_file_mark *marks; /* n_files / span, rounded up */
    /* Returns the path of a file, for messages. */
    const char *(*file)(const void *owner, uint64_t i);
    const void *owner;
};

/* Blocks until the notes of all hosts are there, and compares them.
 * FAILED_PRECONDITION: hosts differ; on each of them the text names the first difference.
 * DEADLINE_EXCEEDED names a host without a note. CANCELLED: *stopped. Other codes: the
 * folder cannot be used. Removes notes of the pipeline that are a day old. */
int stg_hosts_compare(const struct stg_comparing *comparing,
                      const struct stg_compared *compared, const _Atomic int *stopped,
                      struct stg_err *err);

#endif
