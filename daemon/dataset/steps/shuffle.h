/* SPDX-License-Identifier: Apache-2.0
 *
 * tf.data's shuffle: fill a buffer, pick one of it at random, fill its place. A repeat
 * right after it is taken in: the next epoch's records move in while the last ones of
 * this epoch leave, but are not picked before those are gone.
 */
#ifndef STG_DAEMON_SHUFFLE_H
#define STG_DAEMON_SHUFFLE_H

#include <stdint.h>

#include "daemon/dataset/step.h"

/* If iter is a shuffle that no repeat was taken into, it takes this one. */
bool stg_shuffle_fuse(struct stg_iter *iter, uint64_t count);

#endif
