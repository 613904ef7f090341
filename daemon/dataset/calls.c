/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/calls.h"

#include <sys/resource.h>

#include "core/clock.h"
#include "daemon/dataset/tuning.h"
#include "daemon/host/cpus.h"

/* A window: takings, at least, and how long. */
#define WINDOW_TOOK 8u
#define WINDOW_NS 50000000u

static uint64_t n_sleeps(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_nvcsw;
}

void stg_calls_now(struct stg_calls_time *ret)
{
    ret->n_sleeps = n_sleeps();
    ret->wall_ns = stg_now_ns();
    ret->cpu_ns = stg_thread_cpu_ns();
}

void stg_calls_since(const struct stg_calls_time *since, struct stg_calls_time *ret)
{
    ret->wall_ns = stg_now_ns() - since->wall_ns;
    ret->n_sleeps = n_sleeps() - since->n_sleeps;
    ret->cpu_ns = ret->wall_ns;
    if (ret->n_sleeps > 0)
        ret->cpu_ns = stg_thread_cpu_ns() - since->cpu_ns;
}

static void begin_window(struct stg_calls *calls)
{
    calls->window = (struct stg_tuner_sample){0};
    calls->n_took = 0;
    calls->began_ns = stg_now_ns();
}

static void count_trial(struct stg_calls *calls, bool runs)
{
    if (runs != calls->is_counted)
        stg_tuning_count_trial(calls->tuning, runs ? 1 : -1);
    calls->is_counted = runs;
}

void stg_calls_init(struct stg_calls *calls, const struct stg_dataset *dataset,
                    const struct stg_step *step, unsigned start, unsigned min,
                    unsigned max)
{
    uint32_t found = stg_tuning_recall(dataset->env.tuning, step);
    *calls = (struct stg_calls){
        .is_on = max > min, .step = step, .tuning = dataset->env.tuning};
    start = found > 0 ? found : start;
    stg_tuner_init(&calls->tuner, start < max ? start : max,
                   &(struct stg_tuner_limits){min, max, .cpus = stg_cpus()});
    stg_tuning_resume(calls->tuning, step, &calls->tuner);
    count_trial(calls, stg_tuner_in_trial(&calls->tuner));
    begin_window(calls);
}

void stg_calls_finish(struct stg_calls *calls)
{
    if (!calls->is_on)
        return;
    count_trial(calls, false);
    stg_tuning_keep(calls->tuning, calls->step, &calls->tuner);
}

void stg_calls_worked(struct stg_calls *calls, const struct stg_calls_time *spent)
{
    calls->window.busy_ns += spent->wall_ns;
    calls->window.cpu_ns += spent->cpu_ns;
}

void stg_calls_waited(struct stg_calls *calls, uint64_t ns)
{
    calls->window.wait_ns += ns;
}

/* Another tuner has a trial: nothing is measured until it is over. */
static bool is_held(struct stg_calls *calls)
{
    bool held = stg_tuning_is_held(calls->tuning) && !stg_tuner_in_trial(&calls->tuner);
    if (calls->was_held && !held) {
        stg_tuner_start_over(&calls->tuner);
        begin_window(calls);
    }
    calls->was_held = held;
    return held;
}

bool stg_calls_took(struct stg_calls *calls, int64_t n_records)
{
    struct stg_tuner_sample *window = &calls->window;
    struct stg_tuner_change change;
    if (!calls->is_on || is_held(calls))
        return false;
    calls->n_took++;
    if (calls->settle > 0 && calls->n_took >= calls->settle) {
        calls->settle = 0;
        begin_window(calls);
        return false;
    }
    window->n_items += (uint64_t)n_records;
    if (calls->settle > 0 || calls->n_took < WINDOW_TOOK)
        return false;
    uint64_t now = stg_now_ns();
    window->interval_ns = now - calls->began_ns;
    if (window->interval_ns < WINDOW_NS)
        return false;
    bool changed = stg_tuner_threads(&calls->tuner, window, &change);
    count_trial(calls, stg_tuner_in_trial(&calls->tuner));
    begin_window(calls);
    if (!changed)
        return false;
    calls->settle = change.from + change.to; /* what is made already */
    stg_tuning_note_step(calls->tuning, calls->step, "num_parallel_calls", &change);
    return true;
}
