/* SPDX-License-Identifier: Apache-2.0
 *
 * The identity of the files that a pass reads: their paths, below the folder of their
 * pattern, and the sizes of local files. Sums, so that they have a fixed size, and one
 * file that was added or has another size can be named.
 */
#ifndef STG_DAEMON_DATASET_FILES_IDENTITY_H
#define STG_DAEMON_DATASET_FILES_IDENTITY_H

#include "daemon/dataset/dataset.h"

/* Computes the identity of the files of a dataset; all 0 if it reads none. A system call
 * for each local file. CANCELLED. */
int stg_dataset_identify(const struct stg_dataset *dataset,
                         const struct stg_pipeline_spec *spec,
                         struct stg_data_identity *ret, struct stg_err *err);

/* Returns the path of a file below the folder of its pattern, and the size of a local
 * one; 0 for others. */
const char *stg_identity_file(const struct stg_pipeline_spec *spec, const char *path,
                              uint64_t *ret_bytes);

/* Returns how many of the first names are the files of a state, which has the files of
 * this step only; n if no number is. */
size_t stg_identity_of_first(const struct stg_step *step, const char *const *names,
                             size_t n, const struct stg_data_identity *state);

/* Compares the identity of a state with that of the dataset. FAILED_PRECONDITION names
 * the file that was added or has another size, or counts what differs. */
int stg_dataset_compare(const struct stg_dataset *dataset,
                        const struct stg_pipeline_spec *spec,
                        const struct stg_data_identity *state,
                        const struct stg_data_identity *now, struct stg_err *err);

#endif
