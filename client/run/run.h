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

/* What the last stager_run gave on the device stays, and pins its memory, until
 * stg_run_drop. *ret_home: the handle whose stream has it, also after a reconnect. NULL:
 * nothing is there. */
struct stg_result *stg_run_keep(struct stager_stream *stream,
                                struct stager_batch **ret_home);

/* After a reconnect: results of the last stager_run stay in the retired stream that it
 * ran on, until the next one. Nothing is freed here. */
void stg_results_keep(struct stager_stream *stream, struct stager_stream *retired);
void stg_results_forget(struct stager_stream *stream);

/* Half of stg_run_drop: the pin stays. */
void stg_computer_drop(struct stager_stream *stream, struct stg_result *result,
                       bool has_native, void *native);

/* As stager_run_wait, of one that is kept; stream: the one that has it. */
int stg_result_wait(struct stager_stream *stream, const struct stg_result *result,
                    void *native);

#endif
