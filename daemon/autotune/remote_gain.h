/* SPDX-License-Identifier: Apache-2.0
 *
 * What stage workers saved over a window of time: pure, for any thread.
 *
 * The model: without workers, runners pull one after another and compute at once, so that
 * k of them make min(1 / pull, k / (pull + compute)) items a second, and no more than the
 * CPUs have time for. What an item takes is that of the items that were made here.
 */
#ifndef STG_DAEMON_AUTOTUNE_REMOTE_GAIN_H
#define STG_DAEMON_AUTOTUNE_REMOTE_GAIN_H

#include "daemon/autotune/bottleneck.h"

/* Writes the conclusion to buf. Returns the time of an item without workers, at least
 * that of the window; 0: not known. n_cpus: for which stagerd has time. */
uint64_t stg_remote_gain(const struct stg_pace *pace, double n_cpus, char *buf,
                         size_t bytes);

#endif
