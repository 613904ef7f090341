/* SPDX-License-Identifier: Apache-2.0
 *
 * The digest of what the batches of a pass are made of: the pipeline and its release, the
 * instructions of the CPU, and the files. Two stagerds with one digest make the same
 * bytes of a batch. Pure but for a system call for each local file; any thread.
 */
#ifndef STG_DAEMON_DATASET_FILES_DIGEST_H
#define STG_DAEMON_DATASET_FILES_DIGEST_H

#include "daemon/dataset/dataset.h"

/* The hexadecimal digits of a SHA-256, and a NUL. */
#define STG_DIGEST_BYTES 65

/* Computes the digest of the pass of a dataset. spec: its pipeline. content: the hash of
 * that (stg_signature_content). Of each file the name below the folder of its pattern
 * counts, in the order of the pass, and the size if it is local; of vocabularies the
 * content. Errors: CANCELLED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION (without
 * libcrypto).
 */
int stg_digest_write(const struct stg_dataset *dataset,
                     const struct stg_pipeline_spec *spec, uint64_t content,
                     char ret[STG_DIGEST_BYTES], struct stg_err *err);

#endif
