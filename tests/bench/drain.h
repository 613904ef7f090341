/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline by a stagerd of its own, emptied by a trainer that does nothing else. What
 * comes of it is what a user gets: files, formats, ops, shared memory, the trainer's own
 * calls.
 */
#ifndef STG_TESTS_BENCH_DRAIN_H
#define STG_TESTS_BENCH_DRAIN_H

#include <stdint.h>

struct drain {
    double first_s;        /* from `apply` until the first batch is in hand */
    double first_cpu_s;    /* what the daemon computed until then */
    uint64_t first_bytes;  /* by how much its resident memory had grown */
    uint64_t n_rows;       /* taken after the first batch */
    double rows_per_s;     /* of these, by the clock on the wall */
    double rows_per_cpu_s; /* by CPU time of daemon and trainer together: on a busy
                              machine that takes longer, this stays the same */
};

/* Applies the pipeline and takes batches for about so long after the first one; with 0
 * seconds the first one only. Rows are counted along the first dimension of the first
 * feature. A pipeline that ends earlier has nothing wrong with it. Failures end the
 * program. */
void drain(const char *name, const char *yaml, double seconds, struct drain *ret);

#endif
