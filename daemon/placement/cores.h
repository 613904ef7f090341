/* SPDX-License-Identifier: Apache-2.0
 *
 * How many cores are idle, as the system counts them for all programs together.
 * Zero-initialise; one thread.
 */
#ifndef STG_DAEMON_PLACEMENT_CORES_H
#define STG_DAEMON_PLACEMENT_CORES_H

#include <stdint.h>

struct stg_cores {
    uint64_t at_ns;
    uint64_t idle, all; /* of /proc/stat, in its units */
    double free;
};

/* In the mean since the last look that is a second old or more; before there are two, all
 * that there are. */
double stg_cores_free(struct stg_cores *cores, uint64_t now_ns);

#endif
