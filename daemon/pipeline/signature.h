/* SPDX-License-Identifier: Apache-2.0
 *
 * The signature of a pipeline: a short text of what its items depend on, part by part, so
 * that a state of another pipeline can be refused with the part that differs. It covers
 * steps, the graph before the boundary, features and seeds. It leaves out what only
 * affects speed, memory and delivery, the files (they have their own identity), and the
 * batch size, where a position does not depend on it. Pure functions; any thread.
 */
#ifndef STG_DAEMON_PIPELINE_SIGNATURE_H
#define STG_DAEMON_PIPELINE_SIGNATURE_H

#include "core/spec.h"
#include "core/state.h"

/* Writes the signature: "files:1a2b3c4d@7,batch:…,graph:…,features:…". Of a pipeline with
 * too many steps: their number and one hash. vocabularies: a hash of their content. */
void stg_signature_write(const struct stg_pipeline_spec *spec, uint64_t vocabularies,
                         char ret[STG_STATE_STEPS_BYTES]);

/* Returns a hash of the same, with the batch size, for the digest of batches. */
uint64_t stg_signature_content(const struct stg_pipeline_spec *spec,
                               uint64_t vocabularies);

/* Compares the signature of a state with that of the pipeline. FAILED_PRECONDITION: the
 * first part that differs. */
int stg_signature_compare(const char *pipeline, const char *state, struct stg_err *err);

/* Returns whether one element that the last batching step takes is one row, and each of
 * its batches one item: then the rows of an item can be added to a position. */
bool stg_signature_counts_rows(const struct stg_pipeline_spec *spec);

/* Returns the batch size that the signature leaves out; 0: it leaves none out. */
uint64_t stg_signature_batch_size(const struct stg_pipeline_spec *spec);

/* Returns NULL if a run gives the same items from a given position on, whatever the
 * timing; else the reason that it does not, in buf or a constant. */
const char *stg_signature_irreproducible(const struct stg_pipeline_spec *spec, char *buf,
                                         size_t bytes);

#endif
