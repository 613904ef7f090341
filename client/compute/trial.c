/* SPDX-License-Identifier: Apache-2.0 */
#include "client/compute/trial.h"

void stg_trial_steps(const struct stg_trial *trial, double *ret_baseline,
                     double *ret_other)
{
    *ret_baseline = trial->step_ns[0];
    *ret_other = trial->step_ns[1];
    for (unsigned i = 2; i < STG_TRIAL_TURNS; i += 2) {
        if (trial->step_ns[i] < *ret_baseline)
            *ret_baseline = trial->step_ns[i];
        if (trial->step_ns[i + 1] > *ret_other)
            *ret_other = trial->step_ns[i + 1];
    }
}

static bool is_better(const struct stg_trial *trial)
{
    double fastest, slowest;
    stg_trial_steps(trial, &fastest, &slowest);
    return slowest < fastest;
}

static void end_turn(struct stg_trial *trial, uint64_t took_ns, uint32_t n)
{
    trial->step_ns[trial->turn++] = (double)took_ns / (double)n;
    trial->n_steps = 0;
    if (trial->turn == STG_TRIAL_TURNS)
        trial->keeps = is_better(trial);
}

bool stg_trial_step(struct stg_trial *trial, uint64_t now_ns)
{
    if (trial->turn == STG_TRIAL_TURNS)
        return trial->keeps;
    if (trial->n_steps > STG_TRIAL_SKIPPED) {
        uint32_t n = trial->n_steps - STG_TRIAL_SKIPPED;
        uint64_t took_ns = now_ns - trial->began_ns;
        if (n >= STG_TRIAL_MAX_STEPS ||
            (n >= STG_TRIAL_MIN_STEPS && took_ns >= STG_TRIAL_MIN_NS))
            end_turn(trial, took_ns, n);
    }
    if (trial->turn == STG_TRIAL_TURNS)
        return trial->keeps;
    if (trial->n_steps++ == STG_TRIAL_SKIPPED)
        trial->began_ns = now_ns;
    return trial->turn % 2 == 1;
}
