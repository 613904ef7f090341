/* SPDX-License-Identifier: Apache-2.0
 *
 * The device of a trainer's graph: memory for its results, and copies of its variables
 * and constants. There are at least two results, so that the trainer reads one while the
 * device computes the next: the third run waits for the first. The place keeps memory
 * from run to run: a steady state allocates nothing. One thread at a time.
 */
#ifndef STG_COMPUTE_PLACE_H
#define STG_COMPUTE_PLACE_H

#include "client/compute/compute.h"
#include "ops/exec/device.h"

struct stg_place;

/* Creates a place. RESOURCE_EXHAUSTED, or an error of the device. */
int stg_place_create(const struct stg_compute_device *where, struct stg_place **ret,
                     struct stg_err *err);

/* Waits for what was enqueued; results that are kept go too. NULL is allowed. */
void stg_place_destroy(struct stg_place *place);

/* In a forked child: frees the host's memory and leaves the device alone. */
void stg_place_abandon(struct stg_place *place);

const struct stg_compute_device *stg_place_where(const struct stg_place *place);

/* ---- copies of what does not come with a batch ---- */

/* As keep of struct stg_run_device; a constant is `of`'s until stg_place_forget. Waits
 * for a copy. */
int stg_place_keep(struct stg_place *place, const struct stg_run *of, const void *data,
                   size_t bytes, bool is_variable, const void **ret, struct stg_err *err);

/* The variable was written: its copy is made again when it is read next. */
void stg_place_spoil(struct stg_place *place, const void *data);

/* Removes `of`, which ends: waits for the work that it enqueued, and frees its constants.
 * place and `of` may be NULL. */
void stg_place_forget(struct stg_place *place, const struct stg_run *of);

/* ---- results ---- */

/* Returns the error of an earlier run that is known only now: an invalid element, with
 * its batch, node and position. Returns 0 if there is none. Waits for the run before the
 * last, or for all runs. */
int stg_place_check(struct stg_place *place, bool all, struct stg_err *err);

/* Room for the results of one run of `of`, on batch `number`; after stg_place_check. What
 * the trainer enqueued up to here may read those of the last one. RESOURCE_EXHAUSTED, or
 * what the device says. */
int stg_place_begin(struct stg_place *place, const struct stg_run *of, uint64_t number,
                    struct stg_result **ret, struct stg_err *err);

/* Ends the last result, for a run that leaves none on the device. */
void stg_place_pass(struct stg_place *place);

/* Allocates device memory, aligned to 256, as part of the result. */
int stg_result_alloc(struct stg_result *result, size_t bytes, void **ret,
                     struct stg_err *err);

/* One word of the device a node of `of`, INT64_MAX: as in stg_op_device. */
int stg_result_bad(struct stg_result *result, int64_t **ret, struct stg_err *err);

/* Copies tensors of the host to the device; data is then the device's. Once a result, all
 * or none. */
int stg_result_copy_in(struct stg_result *result, struct stg_tensor *tensors, size_t n,
                       struct stg_err *err);

/* All is enqueued: the trainer's stream waits for it. is_launched: its nodes ran there,
 * and what stg_result_bad gave says how they went. */
int stg_result_end(struct stg_result *result, bool is_launched, struct stg_err *err);

/* As last, keep, drop and event of struct stg_compute. */
struct stg_result *stg_place_last(const struct stg_place *place);
void stg_result_keep(struct stg_result *result);
void stg_result_drop(struct stg_result *result, struct stg_stream *after);
struct stg_device_event *stg_result_event(const struct stg_result *result);

#endif
