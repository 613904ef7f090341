/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of Arrow files in the order and the number of an indices mapping, as Hugging
 * Face datasets writes it: an Arrow file with a column `indices` of uint64, numbers of
 * rows of all files from 0. Rows whose indices follow one another are one block. One
 * thread at a time.
 */
#ifndef STG_DAEMON_ARROW_INDICES_H
#define STG_DAEMON_ARROW_INDICES_H

#include "daemon/dataset/step.h"

/* Returns the file that the step names, or NULL. */
const char *stg_arrow_indices_of(const struct stg_step *step);

/* Checks where the step stands: input yields the names of files. */
int stg_arrow_indices_check(const struct stg_step *step, const struct stg_iter *input,
                            struct stg_err *err);

/* rows: of the same step, indexable; the new iterator owns it on success. Opens no file.
 */
int stg_arrow_indices_create(struct stg_iter *rows, struct stg_iter **ret,
                             struct stg_err *err);

#endif
