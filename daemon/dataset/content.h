/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes a key of the elements that an iterator yields: of its steps and its files.
 */
#ifndef STG_DAEMON_CONTENT_H
#define STG_DAEMON_CONTENT_H

#include "daemon/dataset/container.h"
#include "daemon/dataset/step.h"

/* Computes the key of the elements of `iter`, whose dataset is in a container. Opens
 * every file of the dataset on behalf of its user: a pipeline that finds the content is
 * therefore allowed to read it. Returns 1 if a version is unknown (a file on another
 * machine). Errors: those of the storage; CANCELLED. */
int stg_content_of(const struct stg_iter *iter, struct stg_content *ret,
                   struct stg_err *err);

/* Computes the same with a fixed hash key, so that the result is valid across restarts of
 * the daemon and can be stored on a disk. A file of unknown version counts by its name.
 */
int stg_content_lasting(const struct stg_iter *iter, struct stg_content *ret,
                        struct stg_err *err);

/* Computes the same as stg_content_lasting, but asks for the versions of the files once
 * in a pass, and returns 1 if one is unknown. Any thread. */
int stg_content_of_pass(const struct stg_iter *iter, struct stg_content *ret,
                        struct stg_err *err);

#endif
