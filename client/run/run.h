/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_run inside: what a stream computes with, and results on a device.
 */
#ifndef STG_CLIENT_RUN_RUN_H
#define STG_CLIENT_RUN_RUN_H

#include <stdbool.h>

#include "client/stager.h"

struct stg_computer;
struct stg_result;

/* Gives back the executors and the library, and while its device is there what it has of
 * it; in a forked child (ours false) leaves that alone. NULL is allowed. */
void stg_computer_destroy(struct stg_computer *computer, bool ours);

/* Waits for the runs on a device. Returns their first error that was not reported yet. */
int stg_computer_synchronize(struct stager_stream *stream);

/* What the last stager_run gave on the device stays, and pins the stream, until
 * stg_run_drop. NULL: nothing is there. */
struct stg_result *stg_run_keep(struct stager_stream *stream);

/* Half of stg_run_drop: the pin stays. */
void stg_computer_drop(struct stager_stream *stream, struct stg_result *result,
                       bool has_native, void *native);

/* As stager_run_wait, of one that is kept. */
int stg_result_wait(struct stager_stream *stream, const struct stg_result *result,
                    void *native);

#endif
