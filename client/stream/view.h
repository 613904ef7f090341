/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks into a staged batch.
 */
#ifndef STG_CLIENT_STREAM_VIEW_H
#define STG_CLIENT_STREAM_VIEW_H

#include "client/stream/stream.h"

/* Checks a batch at rest before the first look at it. Not when it is taken: its head is
 * cold then, and the hand-off need not wait for memory. DATA_LOSS in err. */
int stg_lent_open(struct stager_stream *stream, struct stg_lent *lent,
                  struct stg_err *err);

/* Tensor i of the staged batch (open), a slice's part of it. */
void stg_batch_view(const struct stager_batch *batch, uint32_t i, struct stg_tensor *ret,
                    const char **ret_name);

/* A tensor in hand as the trainer sees it. */
void stg_tensor_show(const char *name, const struct stg_tensor *tensor,
                     struct stager_tensor *ret);

#endif
