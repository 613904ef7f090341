/* SPDX-License-Identifier: Apache-2.0
 *
 * What of a staged batch this consumer sees, where it lies, and a look into it.
 */
#ifndef STG_CLIENT_STREAM_VIEW_H
#define STG_CLIENT_STREAM_VIEW_H

#include "client/stream/stream.h"

#define STG_NO_PLACE UINT32_MAX

/* What options say is seen of batches, once boundary, slots and max_in_flight are known.
 * RESOURCE_EXHAUSTED. */
int stg_fields_init(struct stager_stream *stream, const struct stager_options *options,
                    struct stg_err *err);

/* Which tensor of the staged batch each of boundary and slots is, or STG_NO_PLACE. NULL:
 * those of the boundary lie there under their names, nothing else. */
const uint32_t *stg_leased_places(const struct stager_stream *stream,
                                  const struct stg_leased *leased);

/* How many tensors of an open batch are seen; which of the staged batch number i of them
 * is; the number of that name, or -1. */
uint32_t stg_batch_n_shown(const struct stager_batch *batch);
uint32_t stg_batch_shown(const struct stager_batch *batch, uint32_t i);
int stg_batch_find_shown(const struct stager_batch *batch, const char *name);

/* Is it a feature that was not asked for? */
bool stg_stream_is_left_out(const struct stager_stream *stream, const char *name);

/* Checks a batch at rest before the first look at it. Not when it is taken: its head is
 * cold then, and the hand-off need not wait for memory. DATA_LOSS in err. */
int stg_leased_open(struct stager_stream *stream, struct stg_leased *leased,
                    struct stg_err *err);

/* Tensor i of the staged batch (open), a slice's part of it. */
void stg_batch_view(const struct stager_batch *batch, uint32_t i, struct stg_tensor *ret,
                    const char **ret_name);

/* A tensor in hand as the trainer sees it. */
void stg_tensor_show(const char *name, const struct stg_tensor *tensor,
                     struct stager_tensor *ret);

#endif
