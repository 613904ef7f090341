/* SPDX-License-Identifier: Apache-2.0
 *
 * A staged batch in slices of batch_size rows.
 */
#ifndef STG_CLIENT_STREAM_SLICE_H
#define STG_CLIENT_STREAM_SLICE_H

#include "client/stream/stream.h"

/* May this boundary be sliced into batches of batch_size rows? INVALID_ARGUMENT gives the
 * reason; else the boundary becomes that of a slice. batch_rows: of a whole staged batch,
 * 0: not known. */
int stg_slice_boundary(struct stg_schema *boundary, uint32_t batch_size,
                       uint64_t batch_rows, const char *pipeline, struct stg_err *err);

/* The same for what batches may carry besides: its number of rows is not known. */
void stg_slice_slots(struct stg_schema *slots);

/* Opens a staged batch, checks that it can be sliced, and finds into how many slices,
 * without the rows that a state has: 0 if it has all of them. */
int stg_slice_prepare(struct stager_stream *stream, struct stg_leased *leased,
                      struct stg_err *err);

/* Makes `batch` the next slice of its leased batch. After an error it is nothing yet. */
int stg_slice_make(struct stager_batch *batch, uint32_t batch_size, struct stg_err *err);

#endif
