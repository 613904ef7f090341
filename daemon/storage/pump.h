/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer over a source that is slow to read because it is decompressed: a separate
 * thread reads ahead, in order, into a few pieces, so that the reader of records does not
 * wait for the decoder. It reads forward only, as what is below it does. Without a thread
 * until a file proves to be large.
 */
#ifndef STG_DAEMON_PUMP_H
#define STG_DAEMON_PUMP_H

#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

/* Bytes that are read before a thread is started for the rest. */
#define STG_PUMP_START_BYTES ((uint64_t)1 << 20)

/* Puts the layer over *source, which then belongs to it; its errors, and whether it is
 * spoiled, are that one's, each behind the bytes before it. quota is borrowed for the
 * source's life; a dataset with little memory has no thread. path is for texts, and
 * borrowed too. RESOURCE_EXHAUSTED: *source is as it was. One thread at a time reads. */
int stg_pump_open(struct stg_quota *quota, const char *path, struct stg_source **source,
                  struct stg_err *err);

#endif
