/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries what the first batch of a pipeline will need of its files: lists each pattern
 * until files are found, opens the first as the applier and as stagerd, and reads its
 * first record through the reader that the pipeline has for it. A thread does that: a
 * file system that does not answer costs the caller no more than a moment.
 */
#ifndef STG_DAEMON_PIPELINE_PROBE_H
#define STG_DAEMON_PIPELINE_PROBE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/bump.h"

/* Copied. */
struct stg_probe_config {
    const char *text; /* of the pipeline, which was checked */
    size_t text_bytes;
    uid_t uid; /* of the applier */
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    uint64_t wait_ns; /* how long the caller waits */
};

/* Fills ret with up to n problems, each a line in bump that begins with "problem: ".
 * Returns how many there are. Files of other machines are not tried. */
size_t stg_probe(const struct stg_probe_config *config, struct stg_bump *bump,
                 const char **ret, size_t n);

#endif
