/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STG_DAEMON_MAP_H
#define STG_DAEMON_MAP_H

#include "daemon/dataset/step.h"

/* `iter` is followed by a batch of that size: if it is a map, it works on as many records
 * at once, and where results have a known size writes them where the batch is to lie. */
void stg_map_fuse(struct stg_iter *iter, int64_t batch_size);

#endif
