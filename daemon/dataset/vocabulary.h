/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabularies of a graph: files that are read on behalf of the applier of the
 * pipeline; those of the pipeline's graph when it is applied, by the loop; those of a
 * step's graph when a pass begins.
 */
#ifndef STG_DAEMON_VOCABULARY_H
#define STG_DAEMON_VOCABULARY_H

#include <sys/types.h>

#include "daemon/dataset/container.h"
#include "ops/graph/graph.h"

/* The user on whose behalf files are read. */
struct stg_vocabulary_reader {
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    struct stg_container *container; /* where the tables are kept; NULL: by the graph */
};

/* What was read. A zeroed one is nothing. */
struct stg_vocabularies {
    uint64_t fingerprint; /* of all of it; 0: nothing */
    uint64_t bytes;       /* that the graph's own tables take */
    uint32_t n;
    const char *file; /* of the last one; lives as long as the spec */
    struct stg_shared **shared;
    size_t n_shared;
};

/* Reads the file of every `vocabulary`. Errors are those of the storage, with node and
 * line before them; INVALID_ARGUMENT: what is in a file is no vocabulary. */
int stg_vocabularies_load(struct stg_graph *graph,
                          const struct stg_vocabulary_reader *reader,
                          struct stg_vocabularies *ret, struct stg_err *err);
/* Once the graph is gone, also when it failed. */
void stg_vocabularies_finish(struct stg_vocabularies *vocabularies);

#endif
