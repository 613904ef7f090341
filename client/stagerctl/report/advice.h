/* SPDX-License-Identifier: Apache-2.0
 *
 * What limits a pipeline, and what would change that, from the measurements of one reply
 * to `explain`. Pure; any thread.
 */
#ifndef STG_STAGERCTL_ADVICE_H
#define STG_STAGERCTL_ADVICE_H

#include "proto/wire.h"

struct stg_advice {
    const char *limit; /* cpu, one thread, storage, py_function, capacity, trainers, …;
                          "": nothing was measured */
    char text[256];
    const char *setting; /* NULL: no setting alone helps */
    uint32_t value;      /* of it */
    double gain;         /* of the rate; 0: the model does not tell */
};

/* n_cpus: of the machine. */
void stg_advice_find(const struct stg_explain *explain, uint32_t n_cpus,
                     struct stg_advice *ret);

#endif
