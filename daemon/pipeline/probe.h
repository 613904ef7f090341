/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries the files that the first batch of a pipeline needs: lists each pattern until it
 * finds a file, opens that file as the applier and as stagerd, and reads its first record
 * with the reader of the pipeline. A thread does that, so that a file system that does
 * not answer delays the caller for wait_ns at most.
 */
#ifndef STG_DAEMON_PIPELINE_PROBE_H
#define STG_DAEMON_PIPELINE_PROBE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/bump.h"

/* Copied. */
struct stg_probe_config {
    const char *text; /* of a pipeline that was checked */
    size_t text_bytes;
    uid_t uid; /* of the applier */
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    uint64_t wait_ns; /* the longest wait of the caller */
};

/* Fills ret with up to n lines in bump: problems, which begin with "problem: ", and
 * advice on a shuffle whose buffer is small beside the first file. Returns how many there
 * are. Files of other machines are not tried. */
size_t stg_probe(const struct stg_probe_config *config, struct stg_bump *bump,
                 const char **ret, size_t n);

#endif
