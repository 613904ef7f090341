/* SPDX-License-Identifier: Apache-2.0
 *
 * What the elements of an iterator follow from: its steps, and the files as they are.
 */
#ifndef STG_DAEMON_CONTENT_H
#define STG_DAEMON_CONTENT_H

#include "daemon/dataset/container.h"
#include "daemon/dataset/step.h"

/* Of what comes out of `iter`, of a dataset in a container. Opens every file of the
 * dataset on behalf of its user, so that a pipeline that finds the content may read it.
 * 1: unknown (a file on another machine). Errors: those of the storage;
 * CANCELLED. */
int stg_content_of(const struct stg_iter *iter, struct stg_content *ret,
                   struct stg_err *err);

/* The same, by a key that outlives the daemon: what it says may be kept on a disk. A file
 * whose version is unknown counts by its name. */
int stg_content_lasting(const struct stg_iter *iter, struct stg_content *ret,
                        struct stg_err *err);

#endif
