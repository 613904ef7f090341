/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline on a dedicated stagerd, drained by a trainer without other work. The result
 * includes everything that a user pays for: files, formats, ops, shared memory, the
 * trainer's calls.
 */
#ifndef STG_TESTS_BENCH_DRAIN_H
#define STG_TESTS_BENCH_DRAIN_H

#include <stdint.h>

struct drain {
    double first_s;        /* from `apply` until the trainer holds the first batch */
    double first_cpu_s;    /* the daemon's CPU time until then */
    uint64_t first_bytes;  /* growth of its resident memory until then */
    uint64_t n_rows;       /* taken after the first batch */
    double rows_per_s;     /* of these, in wall time */
    double rows_per_cpu_s; /* in CPU time of daemon and trainer together: a busy machine
                              hardly changes it */
};

/* Applies the pipeline and takes batches for about this long after the first one; with 0
 * seconds only the first one. Rows are counted along the first dimension of the first
 * feature. A pipeline may end earlier. Failures end the program. */
void drain(const char *name, const char *yaml, double seconds, struct drain *ret);

#endif
