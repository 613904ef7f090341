/* SPDX-License-Identifier: Apache-2.0
 *
 * The half of an executor that a device may do: those of its fetches that need nothing
 * but nodes which run there. What they give is on the device either way: where the host
 * does it, copied. One thread at a time, as the executor.
 */
#ifndef STG_COMPUTE_ON_DEVICE_H
#define STG_COMPUTE_ON_DEVICE_H

#include "client/compute/measured.h"
#include "client/compute/place.h"
#include "client/compute/trial.h"

struct stg_on_device {
    struct stg_place *place;
    struct stg_run *run;  /* of the fetches that a device may do … */
    struct stg_run *rest; /* … and of the others; NULL: there are none */
    size_t *there, *here; /* which of all fetches those are */
    size_t n_there, n_here;
    struct stg_tensor *tensors; /* room for all of either */
    void **fed;                 /* where what is fed lies on the device; all NULL but what
                                   the caller sets before a run */
    bool has_failed;            /* the device; the host goes on */
    char failure[STG_ERR_TEXT_BYTES];
    bool was_there; /* the last run was the device's */
    struct stg_trial trial;
    struct stg_measured there_took, here_took; /* of run, of rest */
    struct stg_compute_node *nodes;            /* of both, of the last report */
};

/* NULL in *ret: a device can do none of them. `all`: the executor of all fetches on the
 * host. n_fed: of stg_run_feed. RESOURCE_EXHAUSTED. */
int stg_on_device_create(struct stg_place *place, const struct stg_graph *graph,
                         struct stg_resources *resources, const struct stg_run *all,
                         const char *const *fetches, size_t n_fetches, size_t n_fed,
                         struct stg_on_device **ret, struct stg_err *err);
void stg_on_device_destroy(struct stg_on_device *half);

/* What a run of the whole executor is given. */
struct stg_on_device_run {
    const struct stg_tensor *boundary;
    void *const *boundary_there; /* where it lies on the device */
    const struct stg_key *key;
    uint64_t number;
    struct stg_run *all;
};

/* Runs all fetches. is_there: one a fetch, whether its output is on the device. Errors:
 * the ops', and what stg_place_check says; a device that fails is none, the host does its
 * work from then on. */
int stg_on_device_exec(struct stg_on_device *half, const struct stg_on_device_run *what,
                       struct stg_tensor *outputs, bool *is_there, struct stg_err *err);

/* As `tell` of struct stg_compute. */
void stg_on_device_tell(const struct stg_on_device *half, char *buf, size_t bytes);

/* As `measured` of struct stg_compute, of runs that were the device's. */
bool stg_on_device_measured(struct stg_on_device *half, struct stg_compute_measured *ret);

#endif
