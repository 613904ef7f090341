/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of two ways is faster, tried in turns: the baseline, the other, the baseline …,
 * each for a while. The other one is kept only when its slowest turn was faster than the
 * baseline's fastest: by more than the noise. Reads no clock; one thread at a time.
 */
#ifndef STG_COMPUTE_TRIAL_H
#define STG_COMPUTE_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#define STG_TRIAL_TURNS 6 /* half of them the baseline's */
#define STG_TRIAL_SKIPPED 3
#define STG_TRIAL_MIN_STEPS 16
#define STG_TRIAL_MAX_STEPS 2000
#define STG_TRIAL_MIN_NS UINT64_C(20000000)

struct stg_trial {
    unsigned turn;                   /* STG_TRIAL_TURNS: it is over */
    bool keeps;                      /* then: the other one */
    uint32_t n_steps;                /* of this turn that began */
    uint64_t began_ns;               /* of the first one that counts */
    double step_ns[STG_TRIAL_TURNS]; /* the mean of each turn */
};

/* A step of the whole loop begins at now_ns: is it to go the other way? Begins with a
 * zeroed struct. The first steps of a turn do not count. */
bool stg_trial_step(struct stg_trial *trial, uint64_t now_ns);

/* Once it is over: what was held against each other, the baseline's fastest turn and the
 * other's slowest, in ns a step. */
void stg_trial_steps(const struct stg_trial *trial, double *ret_baseline,
                     double *ret_other);

#endif
