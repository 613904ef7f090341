/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitions that `smart_stage: auto` took in earlier runs, by the fingerprint of the
 * pipeline and the CPUs of the daemon: at most STG_MAX_PRIORS, the least recent one makes
 * room. A run begins with its prior, and compares it with the pipeline's own partition.
 *
 * On disk: a text of one line a prior, with the release of stagerd before and a checksum
 * behind. A text that is damaged, or of another release, is no text. One thread.
 */
#ifndef STG_DAEMON_PLACEMENT_PRIORS_H
#define STG_DAEMON_PLACEMENT_PRIORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define STG_MAX_PRIORS 128
#define STG_PRIOR_MAX_NODES 4096 /* a larger graph has no prior */

struct stg_prior {
    uint64_t fingerprint;
    unsigned cpus;
    double gain; /* measured, over the pipeline's own partition: 0.1 is a tenth faster */
    size_t n_nodes;
    bool *moved; /* as stg_partitions_n_nodes counts them */
};

struct stg_priors {
    struct stg_prior all[STG_MAX_PRIORS]; /* the most recent one first */
    size_t n;
};

/* Zero-initialise. */
void stg_priors_finish(struct stg_priors *priors);

/* NULL: there is none. Valid until the next change. */
const struct stg_prior *stg_priors_find(const struct stg_priors *priors,
                                        uint64_t fingerprint, unsigned cpus);

/* Keeps a copy of the prior in place of the one that it has now; moved NULL: removes that
 * one. Returns whether anything has changed that is worth a write: a gain alone is not.
 */
bool stg_priors_keep(struct stg_priors *priors, const struct stg_prior *prior);

/* Returns a copy that lives by itself, for stg_prior_destroy; NULL: out of memory. */
struct stg_prior *stg_prior_copy(const struct stg_prior *prior);
void stg_prior_destroy(struct stg_prior *prior); /* NULL is allowed */

/* Reads and writes the text. Load leaves the priors empty on failure. NOT_FOUND: no such
 * file; DATA_LOSS: damaged, or of another release; or the system's reason. */
int stg_priors_load(struct stg_priors *priors, const char *path, struct stg_err *err);
int stg_priors_save(const struct stg_priors *priors, const char *path,
                    struct stg_err *err);

#endif
