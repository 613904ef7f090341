/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a staged batch that this consumer sees: which they are, where they are
 * in the batch, and access to them.
 */
#ifndef STG_CLIENT_STREAM_VIEW_H
#define STG_CLIENT_STREAM_VIEW_H

#include "client/stream/stream.h"

#define STG_NO_PLACE UINT32_MAX

/* Selects the tensors that `options` make visible, once boundary, slots and max_in_flight
 * are known. RESOURCE_EXHAUSTED: out of memory. */
int stg_fields_init(struct stager_stream *stream, const struct stager_options *options,
                    struct stg_err *err);

/* Returns, for each tensor of the boundary and then of slots, its index in the staged
 * batch, or STG_NO_PLACE. Returns NULL if the batch holds exactly the tensors of the
 * boundary, in their order. */
const uint32_t *stg_leased_places(const struct stager_stream *stream,
                                  const struct stg_leased *leased);

/* Returns the number of visible tensors of an open batch. */
uint32_t stg_batch_n_shown(const struct stager_batch *batch);
/* Returns the index in the staged batch of visible tensor i. */
uint32_t stg_batch_shown(const struct stager_batch *batch, uint32_t i);
/* Returns the number of the visible tensor `name`, or -1. */
int stg_batch_find_shown(const struct stager_batch *batch, const char *name);

/* Returns whether `name` is a feature that the stream's `fields` leave out. */
bool stg_stream_is_left_out(const struct stager_stream *stream, const char *name);

/* Checks a batch at the first access to it. The stream does not check it when it takes
 * the batch: the header is not in the cache then, and the hand-off must not wait for
 * memory. DATA_LOSS: the batch is damaged. */
int stg_leased_open(struct stager_stream *stream, struct stg_leased *leased,
                    struct stg_err *err);

/* Returns tensor i of the staged batch, which is open; in a slice, its part of that
 * tensor. */
void stg_batch_view(const struct stager_batch *batch, uint32_t i, struct stg_tensor *ret,
                    const char **ret_name);

/* Fills *ret with the trainer's view of a tensor. */
void stg_tensor_show(const char *name, const struct stg_tensor *tensor,
                     struct stager_tensor *ret);

#endif
