/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds libstager-compute.so.
 */
#ifndef STG_CLIENT_RUN_LOAD_H
#define STG_CLIENT_RUN_LOAD_H

#include "client/compute/compute.h"

/* From the folder stager/ beside libstager.so, else from places that builds and packages
 * use. UNAVAILABLE: it is in none; FAILED_PRECONDITION: it is of another build than this.
 * It stays loaded: threads of its own pools may still be on their way out. */
int stg_compute_load(const struct stg_compute **ret, struct stg_err *err);

#endif
