/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/placement/smartstage.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

#define WARM_UP_NS (700 * MS)
#define UNMEASURED_NS (5000 * MS) /* then `explain` names what is missing */
#define WINDOW_NS (150 * MS)
#define WINDOW_MAX_NS (4000 * MS) /* then it has to do with fewer batches */
#define WINDOW_BATCHES 24u
#define WINDOW_MIN_BATCHES 3u
#define FLUSH_MAX_NS (4000 * MS)
#define TUNING_MAX_NS (4000 * MS) /* that others' trials are waited for */
#define TRIAL_TICK_MS 10
#define TICK_MS 250
#define IDLE_TICK_MS 1000

#define MIN_PAIRS 7u /* before anything is believed */
#define LEAST_GAIN 0.02
#define N_SIGMA 3.0 /* of the error of the median */
#define CHANGED 0.3 /* of the pace, or */
#define CORES 0.75  /* of free cores: the load is another one */
#define N_LOOKS 4u  /* in a row have to see it */
#define LOOK_NS (1000 * MS)
#define MAX_SHARE 20u /* trials may take one part in so many of the time */
#define MAX_IN_VAIN 8u

static const char what[] = "smart_stage";

void stg_smart_init(struct stg_smart *smart, struct stg_decisions *decisions)
{
    *smart = (struct stg_smart){.decisions = decisions, .n_partitions = 1};
    snprintf(smart->partitions[0].label, sizeof(smart->partitions[0].label),
             "the file's own partition");
}

/* ---- numbers ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, size_t n)
{
    double sorted[STG_SMART_MAX_PAIRS];
    memcpy(sorted, values, n * sizeof(*values));
    qsort(sorted, n, sizeof(*sorted), by_size);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* How far the median may be off, by the spread of what it is of: 1.4826 median deviations
 * are a standard deviation of the normal distribution, whose median errs by 1.2533 of it
 * over the root of n. */
static double noise(const double *values, size_t n, double middle)
{
    double off[STG_SMART_MAX_PAIRS];
    for (size_t i = 0; i < n; i++)
        off[i] = fabs(values[i] - middle);
    return N_SIGMA * 1.4826 * 1.2533 * median(off, n) / sqrt((double)n);
}

/* ---- trials ---- */

static void begin_window(struct stg_smart *smart, const struct stg_smart_view *view,
                         uint32_t partition)
{
    smart->state = STG_SMART_FLUSH;
    smart->in_force = partition;
    smart->made_at_switch = view->n_made;
    smart->since_ns = view->now_ns;
}

/* Now the baseline goes first, now the other. */
static uint32_t partition_of_window(const struct stg_smart *smart)
{
    bool baseline_first = smart->n_pairs % 2 == 0;
    return baseline_first == smart->is_second ? smart->trying : 0;
}

static void begin_trial(struct stg_smart *smart, const struct stg_smart_view *view,
                        uint32_t partition)
{
    smart->trying = partition;
    smart->n_pairs = 0;
    smart->is_second = false;
    begin_window(smart, view, partition_of_window(smart));
}

static void hold(struct stg_smart *smart, uint64_t now_ns)
{
    smart->state = STG_SMART_HOLD;
    smart->in_force = smart->chosen;
    smart->look_ns = 0;
    smart->held_pace = 0;
    smart->n_changed = 0;
    smart->since_ns = now_ns;
}

/* The last one was tried. */
static void end_trials(struct stg_smart *smart, const struct stg_smart_view *view)
{
    uint32_t before = smart->chosen;
    bool had_chosen = smart->n_partitions > 1 && smart->partitions[before].is_in_force;
    smart->chosen = smart->best;
    for (uint32_t i = 0; i < smart->n_partitions; i++)
        smart->partitions[i].is_in_force = i == smart->chosen;
    bool is_same = had_chosen ? smart->chosen == before : smart->chosen == 0;
    if (is_same && smart->n_in_vain < MAX_IN_VAIN)
        smart->n_in_vain++;
    uint64_t took = view->now_ns - smart->trial_began_ns;
    smart->next_trial_ns = view->now_ns + (took * (MAX_SHARE - 1) << smart->n_in_vain);
    stg_decide(
        smart->decisions, view->now_ns, what,
        "holds %s; looks again when the load has changed, not before %.0f s from now",
        smart->partitions[smart->chosen].label,
        (double)(smart->next_trial_ns - view->now_ns) / 1e9);
    hold(smart, view->now_ns);
}

enum verdict { GO_ON, KEEP, REJECT };

/* One that was kept before is held to less: that it is not slower. */
static enum verdict judge(const struct stg_smart *smart, double *ret_gain,
                          double *ret_noise)
{
    uint32_t n = smart->n_pairs;
    bool was_chosen = smart->partitions[smart->trying].is_in_force;
    double middle = median(smart->ratios, n), error = noise(smart->ratios, n, middle);
    double least = was_chosen ? 0 : LEAST_GAIN;
    *ret_gain = middle - 1;
    *ret_noise = error;
    if (n < MIN_PAIRS)
        return GO_ON;
    if (middle - 1 - error > least)
        return KEEP;
    if (middle - 1 + error < least)
        return REJECT;
    if (n < STG_SMART_MAX_PAIRS)
        return GO_ON;
    return was_chosen && middle >= 1 ? KEEP : REJECT;
}

/* Once one is liked, only those that are predicted to be better than it was found. */
static uint32_t next_to_try(const struct stg_smart *smart)
{
    uint32_t next = smart->trying + 1;
    while (smart->best != 0 && next < smart->n_partitions &&
           smart->partitions[next].predicted <= 1 + smart->best_gain)
        next++;
    return next;
}

static void end_pair(struct stg_smart *smart, const struct stg_smart_view *view)
{
    double gain, error;
    smart->is_second = false;
    enum verdict verdict = judge(smart, &gain, &error);
    if (verdict == GO_ON) {
        begin_window(smart, view, partition_of_window(smart));
        return;
    }
    const struct stg_smart_partition *partition = &smart->partitions[smart->trying];
    stg_decide(smart->decisions, view->now_ns, what,
               "%s %s: %+.1f %% in the median of %u pairs of windows, noise %.1f %%, "
               "predicted %+.1f %%",
               verdict == KEEP ? "likes" : "rejects", partition->label, gain * 100,
               smart->n_pairs, error * 100, (partition->predicted - 1) * 100);
    if (verdict == KEEP && (smart->best == 0 || gain > smart->best_gain)) {
        smart->best = smart->trying;
        smart->best_gain = gain;
    }
    uint32_t next = next_to_try(smart);
    if (next < smart->n_partitions)
        begin_trial(smart, view, next);
    else
        end_trials(smart, view);
}

static void end_window(struct stg_smart *smart, const struct stg_smart_view *view)
{
    double pace = (double)(view->n_taken - smart->window_taken) /
                  (double)(view->now_ns - smart->window_ns);
    if (!smart->is_second) {
        smart->first_pace = pace;
        smart->is_second = true;
        begin_window(smart, view, partition_of_window(smart));
        return;
    }
    bool tried_first = smart->n_pairs % 2 == 1;
    smart->ratios[smart->n_pairs++] =
        tried_first ? smart->first_pace / pace : pace / smart->first_pace;
    end_pair(smart, view);
}

static void look_at_window(struct stg_smart *smart, const struct stg_smart_view *view)
{
    uint64_t took = view->now_ns - smart->window_ns;
    uint64_t n = view->n_taken - smart->window_taken;
    bool is_enough = took >= WINDOW_NS && n >= WINDOW_BATCHES;
    if (is_enough || (took >= WINDOW_MAX_NS && n >= WINDOW_MIN_BATCHES))
        end_window(smart, view);
}

/* What was made before the switch is taken by now. */
static void look_at_settling(struct stg_smart *smart, const struct stg_smart_view *view)
{
    if (view->n_taken <= smart->made_at_switch &&
        view->now_ns - smart->since_ns < FLUSH_MAX_NS)
        return;
    smart->state = STG_SMART_WINDOW;
    smart->window_ns = view->now_ns;
    smart->window_taken = view->n_taken;
}

/* ---- plans ---- */

void stg_smart_plan(struct stg_smart *smart, uint64_t now_ns,
                    const struct stg_smart_partition *partitions, uint32_t n,
                    const char *why)
{
    assert(smart->state == STG_SMART_PLAN && n < STG_SMART_MAX_PARTITIONS);
    smart->n_partitions = n + 1;
    smart->chosen = 0;
    smart->has_others = false;
    for (uint32_t i = 0; i < n; i++) {
        smart->partitions[i + 1] = partitions[i];
        if (partitions[i].is_in_force)
            smart->chosen = i + 1;
    }
    smart->in_force = smart->chosen;
    smart->best = 0;
    smart->best_gain = 0;
    smart->trial_began_ns = now_ns;
    if (n > 0) {
        smart->trying = 0; /* the next tick begins */
        smart->state = STG_SMART_FLUSH;
        return;
    }
    stg_decide(smart->decisions, now_ns, what, "holds %s: %s", smart->partitions[0].label,
               why);
    smart->next_trial_ns = now_ns + (LOOK_NS * (MAX_SHARE - 1) << smart->n_in_vain);
    if (smart->n_in_vain < MAX_IN_VAIN)
        smart->n_in_vain++;
    hold(smart, now_ns);
}

/* ---- while nothing is tried ---- */

static bool is_another_load(const struct stg_smart *smart, double pace, double cores)
{
    double ratio = pace / smart->held_pace;
    return ratio > 1 + CHANGED || ratio < 1 - CHANGED ||
           fabs(cores - smart->held_cores) > CORES;
}

static void look_at_load(struct stg_smart *smart, const struct stg_smart_view *view)
{
    if (smart->look_ns == 0) {
        smart->look_ns = view->now_ns;
        smart->look_taken = view->n_taken;
        return;
    }
    if (view->now_ns - smart->look_ns < LOOK_NS)
        return;
    double pace = (double)(view->n_taken - smart->look_taken) /
                  (double)(view->now_ns - smart->look_ns);
    smart->look_ns = view->now_ns;
    smart->look_taken = view->n_taken;
    if (pace <= 0)
        return;
    if (smart->held_pace <= 0) {
        smart->held_pace = pace;
        smart->held_cores = view->free_cores;
        return;
    }
    bool changed = is_another_load(smart, pace, view->free_cores);
    smart->n_changed = changed ? smart->n_changed + 1 : 0;
    bool is_over = smart->n_changed >= N_LOOKS || smart->has_others;
    if (!is_over || view->now_ns < smart->next_trial_ns)
        return;
    stg_decide(smart->decisions, view->now_ns, what,
               "looks again: %s%.1f batches a second, %.1f when it was decided; %.1f "
               "cores are free, %.1f then",
               smart->has_others ? "trainers came or went; " : "", pace * 1e9,
               smart->held_pace * 1e9, view->free_cores, smart->held_cores);
    smart->state = STG_SMART_PLAN;
}

static void look_at_warm_up(struct stg_smart *smart, const struct stg_smart_view *view)
{
    if (smart->since_ns == 0)
        smart->since_ns = view->now_ns;
    uint64_t took = view->now_ns - smart->since_ns;
    if (view->is_measured && took >= WARM_UP_NS)
        smart->state = STG_SMART_PLAN;
    if (view->is_measured || took < UNMEASURED_NS || smart->has_told)
        return;
    smart->has_told = true;
    stg_decide(smart->decisions, view->now_ns, what,
               "holds %s until a few batches were measured on both sides: that needs "
               "trainers which call stager_run",
               smart->partitions[0].label);
}

/* ---- the clock ---- */

bool stg_smart_in_trial(const struct stg_smart *smart)
{
    return smart->state == STG_SMART_FLUSH || smart->state == STG_SMART_WINDOW;
}

/* Windows that something else disturbed are no windows. */
static void disturb(struct stg_smart *smart, const struct stg_smart_view *view)
{
    if (stg_smart_in_trial(smart) && smart->trying > 0) {
        smart->is_second = false;
        begin_window(smart, view, partition_of_window(smart));
    }
    smart->look_ns = 0;
    if (smart->state == STG_SMART_WARM_UP)
        smart->since_ns = 0;
}

/* Once no other trial runs. */
static void begin_first(struct stg_smart *smart, const struct stg_smart_view *view)
{
    if (!view->is_tuning || view->now_ns - smart->trial_began_ns >= TUNING_MAX_NS)
        begin_trial(smart, view, 1);
}

int stg_smart_tick(struct stg_smart *smart, const struct stg_smart_view *view)
{
    if (!view->is_running || view->n_changes != smart->n_changes) {
        smart->has_others |= view->n_changes != smart->n_changes;
        smart->n_changes = view->n_changes;
        disturb(smart, view);
        return IDLE_TICK_MS;
    }
    switch (smart->state) {
    case STG_SMART_WARM_UP: look_at_warm_up(smart, view); break;
    case STG_SMART_PLAN: break;
    case STG_SMART_FLUSH:
        if (smart->trying == 0)
            begin_first(smart, view);
        else
            look_at_settling(smart, view);
        break;
    case STG_SMART_WINDOW: look_at_window(smart, view); break;
    case STG_SMART_HOLD: look_at_load(smart, view); break;
    }
    return stg_smart_in_trial(smart) ? TRIAL_TICK_MS : TICK_MS;
}
