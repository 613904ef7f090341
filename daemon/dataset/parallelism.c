/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/parallelism.h"

#include <sys/resource.h>

#include "core/clock.h"
#include "daemon/dataset/tuning.h"
#include "daemon/host/cpus.h"

/* A window lasts for so many takings and so long, and where they are slow no longer than
 * that: what turns slow is seen soon. */
#define WINDOW_TOOK 8u
#define WINDOW_NS 50000000u
#define MAX_WINDOW_NS 300000000u

static uint64_t n_sleeps(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_nvcsw;
}

void stg_thread_time_now(struct stg_thread_time *ret)
{
    ret->n_sleeps = n_sleeps();
    ret->wall_ns = stg_now_ns();
    ret->cpu_ns = stg_thread_cpu_ns();
}

void stg_thread_time_since(const struct stg_thread_time *since,
                           struct stg_thread_time *ret)
{
    ret->wall_ns = stg_now_ns() - since->wall_ns;
    ret->n_sleeps = n_sleeps() - since->n_sleeps;
    ret->cpu_ns = ret->wall_ns;
    if (ret->n_sleeps > 0)
        ret->cpu_ns = stg_thread_cpu_ns() - since->cpu_ns;
}

static void begin_window(struct stg_parallelism *parallelism)
{
    parallelism->window = (struct stg_tuner_sample){0};
    parallelism->n_took = 0;
    parallelism->began_ns = stg_now_ns();
}

static void count_trial(struct stg_parallelism *parallelism, bool runs)
{
    if (runs != parallelism->is_counted)
        stg_tuning_count_trial(parallelism->tuning, runs ? 1 : -1);
    parallelism->is_counted = runs;
}

void stg_parallelism_init(struct stg_parallelism *parallelism,
                          const struct stg_dataset *dataset, const struct stg_step *step,
                          unsigned start, unsigned min, unsigned max)
{
    uint32_t found = stg_tuning_recall(dataset->env.tuning, step);
    *parallelism = (struct stg_parallelism){
        .is_on = max > min, .step = step, .tuning = dataset->env.tuning};
    start = found > 0 ? found : start;
    stg_tuner_init(&parallelism->tuner, start < max ? start : max,
                   &(struct stg_tuner_limits){min, max, .cpus = stg_cpus()});
    stg_tuning_resume(parallelism->tuning, step, &parallelism->tuner);
    count_trial(parallelism, stg_tuner_in_trial(&parallelism->tuner));
    begin_window(parallelism);
}

void stg_parallelism_finish(struct stg_parallelism *parallelism)
{
    if (!parallelism->is_on)
        return;
    count_trial(parallelism, false);
    stg_tuning_keep(parallelism->tuning, parallelism->step, &parallelism->tuner);
}

void stg_parallelism_worked(struct stg_parallelism *parallelism,
                            const struct stg_thread_time *spent)
{
    parallelism->window.busy_ns += spent->wall_ns;
    parallelism->window.cpu_ns += spent->cpu_ns;
}

void stg_parallelism_waited(struct stg_parallelism *parallelism, uint64_t ns)
{
    parallelism->window.wait_ns += ns;
}

/* Another tuner has a trial: nothing is measured until it is over. */
static bool is_held(struct stg_parallelism *parallelism)
{
    bool held = stg_tuning_is_held(parallelism->tuning) &&
                !stg_tuner_in_trial(&parallelism->tuner);
    if (parallelism->was_held && !held) {
        stg_tuner_start_over(&parallelism->tuner);
        begin_window(parallelism);
    }
    parallelism->was_held = held;
    return held;
}

bool stg_parallelism_took(struct stg_parallelism *parallelism, int64_t n_records)
{
    struct stg_tuner_sample *window = &parallelism->window;
    struct stg_tuner_change change;
    if (!parallelism->is_on || is_held(parallelism))
        return false;
    parallelism->n_took++;
    if (parallelism->n_to_skip > 0 && parallelism->n_took >= parallelism->n_to_skip) {
        parallelism->n_to_skip = 0;
        begin_window(parallelism);
        return false;
    }
    window->n_items += (uint64_t)n_records;
    if (parallelism->n_to_skip > 0)
        return false;
    window->interval_ns = stg_now_ns() - parallelism->began_ns;
    if (window->interval_ns <
        (parallelism->n_took >= WINDOW_TOOK ? WINDOW_NS : MAX_WINDOW_NS))
        return false;
    bool changed = stg_tuner_threads(&parallelism->tuner, window, &change);
    count_trial(parallelism, stg_tuner_in_trial(&parallelism->tuner));
    begin_window(parallelism);
    if (!changed)
        return false;
    parallelism->n_to_skip = change.from + change.to; /* what is made already */
    stg_tuning_note_step(parallelism->tuning, parallelism->step, "num_parallel_calls",
                         &change);
    return true;
}
