/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/autotune/tune.h"

#include <string.h>

/* A window has at least so many items, and twice as many as there are runners, and lasts
 * so long. */
#define WINDOW_ITEMS 4u
#define WINDOW_NS 50000000u

/* ---- windows ---- */

static uint64_t waited_of(const struct stg_tune_consumer *consumer)
{
    return consumer->wait_ns > consumer->mark_wait_ns
               ? consumer->wait_ns - consumer->mark_wait_ns
               : 0;
}

/* Under split a client counts by what it takes. Together clients are as fast as the one
 * that waits least. */
static uint64_t consumers_waited(const struct stg_tune_view *view)
{
    uint64_t least = UINT64_MAX, n_given = 0;
    double weighed = 0;
    for (const struct stg_tune_consumer *c = view->consumers; c != NULL; c = c->next) {
        uint64_t waited = waited_of(c), given = c->n_given - c->mark_n_given;
        least = waited < least ? waited : least;
        weighed += (double)waited * (double)given;
        n_given += given;
    }
    if (view->together)
        return least != UINT64_MAX ? least : 0;
    return n_given > 0 ? (uint64_t)(weighed / (double)n_given) : 0;
}

static void begin_window(struct stg_tune *tune, const struct stg_tune_view *view)
{
    for (struct stg_tune_consumer *c = view->consumers; c != NULL; c = c->next) {
        c->mark_wait_ns = c->wait_ns;
        c->mark_n_given = c->n_given;
    }
    tune->window = (struct stg_tuner_sample){.least = UINT32_MAX};
    tune->began_ns = view->now_ns;
    tune->room_before_ns = view->room_ns;
    tune->n_to_skip = 0;
    tune->begins = false;
}

static void note(struct stg_tune *tune, const void *key, const char *what,
                 const struct stg_tuner_change *change)
{
    /* What is in hand or in the buffer was made as before. */
    tune->n_to_skip = (uint64_t)change->from + change->to;
    stg_tuning_note(tune->log, key, what, change);
}

/* One number at a time: while one proves itself the other one stays. */
static bool decide(struct stg_tune *tune, const struct stg_tuner_sample *sample)
{
    struct stg_tuner_change change;
    if (!stg_tuner_in_trial(&tune->capacity) &&
        stg_tuner_threads(&tune->threads, sample, &change)) {
        stg_tuner_start_over(&tune->capacity);
        note(tune, &tune->staged->num_threads, "num_threads", &change);
        return true;
    }
    if (!stg_tuner_in_trial(&tune->threads) &&
        stg_tuner_capacity(&tune->capacity, sample, tune->threads.value, &change)) {
        stg_tuner_start_over(&tune->threads);
        note(tune, &tune->staged->capacity, "capacity", &change);
        return true;
    }
    return false;
}

static bool end_window(struct stg_tune *tune, const struct stg_tune_view *view)
{
    struct stg_tuner_sample sample = tune->window;
    sample.interval_ns = view->now_ns - tune->began_ns;
    sample.wait_ns = consumers_waited(view);
    sample.room_ns = view->room_ns - tune->room_before_ns;
    if (view->n_rounds < sample.least)
        sample.least = view->n_rounds;
    begin_window(tune, view);
    return decide(tune, &sample);
}

bool stg_tune_look(struct stg_tune *tune, const struct stg_tune_view *view,
                   struct stg_tune_numbers *ret)
{
    bool changed = false;
    if (tune->begins)
        begin_window(tune, view);
    else if (view->now_ns - tune->began_ns >= WINDOW_NS)
        changed = end_window(tune, view);
    if (changed)
        *ret = (struct stg_tune_numbers){tune->threads.value, tune->capacity.value};
    return changed;
}

/* ---- events ---- */

static bool tries_own(const struct stg_tune *tune)
{
    return stg_tuner_in_trial(&tune->threads) || stg_tuner_in_trial(&tune->capacity);
}

bool stg_tune_in_trial(const struct stg_tune *tune)
{
    return tries_own(tune) || stg_tuning_n_trials(tune->log) > 0;
}

/* While partitions are tried nothing is measured; a trial of a number goes on. */
static bool is_held(struct stg_tune *tune)
{
    bool held = stg_tuning_is_held(tune->log) && !tries_own(tune);
    if (tune->was_held && !held) {
        stg_tuner_start_over(&tune->threads);
        stg_tuner_start_over(&tune->capacity);
        tune->begins = true;
    }
    tune->was_held = held;
    return held;
}

bool stg_tune_published(struct stg_tune *tune, uint64_t pull_ns, uint64_t busy_ns,
                        uint64_t cpu_ns, bool has_consumers)
{
    struct stg_tuner_sample *window = &tune->window;
    if (!tune->is_on || is_held(tune))
        return false;
    if (tune->n_to_skip > 0 || !has_consumers) {
        tune->n_to_skip -= tune->n_to_skip > 0;
        tune->begins |= tune->n_to_skip == 0;
        return tune->begins;
    }
    window->n_items++;
    window->busy_ns += pull_ns + busy_ns;
    window->serial_ns += pull_ns;
    window->cpu_ns += cpu_ns;
    return tune->begins || (window->n_items >= WINDOW_ITEMS &&
                            window->n_items >= 2 * (uint64_t)tune->threads.value);
}

void stg_tune_taken(struct stg_tune *tune, uint32_t n_rounds)
{
    if (n_rounds < tune->window.least)
        tune->window.least = n_rounds;
}

bool stg_tune_changed(struct stg_tune *tune)
{
    if (!tune->is_on)
        return false;
    stg_tuner_forget(&tune->threads);
    stg_tuner_forget(&tune->capacity);
    tune->begins = true;
    return true;
}

size_t stg_tune_news(struct stg_tune *tune,
                     struct stg_tuning_change ret[STG_TUNING_CHANGES])
{
    uint64_t n = stg_tuning_n_changes(tune->log);
    if (n == tune->n_reported)
        return 0;
    size_t n_retained = stg_tuning_changes(tune->log, ret);
    size_t n_new =
        n - tune->n_reported < n_retained ? (size_t)(n - tune->n_reported) : n_retained;
    memmove(ret, ret + n_retained - n_new, n_new * sizeof(*ret));
    tune->n_reported = n;
    return n_new;
}

/* ---- life ---- */

/* A number that was given is its own limit. */
static void tuner_init(struct stg_tuner *tuner, uint32_t given, uint32_t start,
                       uint32_t max, double cpus)
{
    struct stg_tuner_limits limits = {.min = 1, .max = max, .cpus = cpus};
    if (given != 0)
        limits.min = limits.max = start = given;
    stg_tuner_init(tuner, start < limits.max ? start : limits.max, &limits);
}

/* With what the stage before came to, as far as the limits allow. */
static void go_on(struct stg_tuner *tuner, uint32_t found)
{
    if (found >= tuner->limits.min && found <= tuner->limits.max)
        tuner->value = found;
}

int stg_tune_init(struct stg_tune *tune, const struct stg_staged *staged,
                  const struct stg_tune_limits *limits, struct stg_tuning *log,
                  struct stg_tune_numbers *ret, struct stg_err *err)
{
    *tune = (struct stg_tune){.staged = staged, .owns_log = log == NULL, .begins = true};
    tune->log = tune->owns_log ? stg_tuning_create() : log;
    if (tune->log == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    tune->n_reported = stg_tuning_n_changes(tune->log);
    tuner_init(&tune->threads, staged->num_threads, 1, limits->max_threads, limits->cpus);
    tuner_init(&tune->capacity, staged->capacity, 2, limits->max_capacity, 0);
    tune->capacity.limits.min = tune->capacity.value;
    go_on(&tune->threads, stg_tuning_recall(tune->log, &staged->num_threads));
    go_on(&tune->capacity, stg_tuning_recall(tune->log, &staged->capacity));
    tune->is_on = staged->num_threads == 0 || staged->capacity == 0;
    *ret = (struct stg_tune_numbers){tune->threads.value, tune->capacity.value};
    return 0;
}

void stg_tune_finish(struct stg_tune *tune)
{
    if (tune->owns_log)
        stg_tuning_destroy(tune->log);
}
