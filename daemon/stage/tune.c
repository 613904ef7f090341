/* SPDX-License-Identifier: Apache-2.0
 *
 * capacity: auto and num_threads: auto. Items that leave the runners' hands make windows;
 * what was measured in one is given to the tuners, one after the other, and what they
 * change holds from the next item on. All of it with the stage's lock held.
 */
#include <string.h>

#include "daemon/host/cpus.h"
#include "daemon/stage/delivery.h"

/* A window has at least so many items, and twice as many as there are runners, and lasts
 * so long. */
#define WINDOW_ITEMS 4u
#define WINDOW_NS 50000000u

static bool is_together(const struct stg_stage *stage)
{
    return stage->kind->together;
}

/* What a consumer waited since the window began, and how many items it was given. */
static uint64_t waited_of(struct stg_client *client, uint64_t now, bool mark,
                          uint64_t *ret_given)
{
    struct stg_client_mark *at = &client->tune_mark;
    uint64_t waits = client->wait_ns + stg_client_waits_ns(client, now);
    uint64_t ret = waits > at->wait_ns ? waits - at->wait_ns : 0;
    *ret_given = client->n_given - at->n_given;
    if (mark)
        *at = (struct stg_client_mark){waits, client->n_given};
    return ret;
}

/* Under split a client counts by what it takes. Together they are as fast as the one that
 * waits least. */
static uint64_t clients_waited(struct stg_stage *stage, uint64_t now)
{
    uint64_t least = UINT64_MAX, n_given = 0;
    double weighed = 0;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        uint64_t given;
        if (c->state != STG_CLIENT_ATTACHED)
            continue;
        uint64_t waited = waited_of(c, now, false, &given);
        least = waited < least ? waited : least;
        weighed += (double)waited * (double)given;
        n_given += given;
    }
    if (is_together(stage))
        return least != UINT64_MAX ? least : 0;
    return n_given > 0 ? (uint64_t)(weighed / (double)n_given) : 0;
}

/* How long finished items have waited for room so far, those that do so now too. */
static uint64_t room_ns(const struct stg_stage *stage, uint64_t now)
{
    const struct stg_runners *runners = &stage->runners;
    return stage->counts.wait_ns + runners->n_waiting * now - runners->waits_began_ns;
}

static void begin_window(struct stg_stage *stage)
{
    struct stg_stage_tune *tune = &stage->observers.tune;
    uint64_t now = stg_now_ns(), given;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        (void)waited_of(c, now, true, &given);
    tune->window = (struct stg_tuner_sample){0};
    stage->buffer.least = UINT32_MAX;
    tune->began_ns = now;
    tune->room_before_ns = room_ns(stage, now);
    tune->settle = 0;
}

static void use_numbers(struct stg_stage *stage)
{
    stage->runners.n_active = stage->observers.tune.threads.value;
    stage->buffer.capacity = stage->observers.tune.capacity.value;
    stage->observers.measure->n_runners = stage->runners.n_active;
}

static void apply(struct stg_stage *stage, const void *key, const char *what,
                  const struct stg_tuner_change *change)
{
    struct stg_stage_tune *tune = &stage->observers.tune;
    use_numbers(stage);
    stage->effects.wake |= STG_WAKE_ROOM | STG_WAKE_PASS;
    /* What is in hand or in the buffer was made as before. */
    tune->settle = (uint64_t)change->from + change->to;
    stg_tuning_note(tune->log, key, what, change);
}

/* Steps of the data set change their numbers on threads of their own. */
static void tell_changes(struct stg_stage *stage)
{
    struct stg_stage_tune *tune = &stage->observers.tune;
    struct stg_tuning_change changes[STG_TUNING_CHANGES];
    uint64_t n = stg_tuning_n_changes(tune->log);
    if (n == tune->n_told)
        return;
    size_t n_kept = stg_tuning_changes(tune->log, changes);
    size_t n_new = n - tune->n_told < n_kept ? (size_t)(n - tune->n_told) : n_kept;
    for (size_t i = n_kept - n_new; i < n_kept; i++) {
        const struct stg_tuner_change *change = &changes[i].change;
        stg_decide(&stage->observers.measure->decisions, stg_now_ns(), "auto",
                   "%s %u -> %u: %s", changes[i].what, change->from, change->to,
                   change->why);
        stg_stage_log(stage, STG_LOG_DEBUG, "pipeline %s: %s %u -> %u: %s",
                      stage->config.name, changes[i].what, change->from, change->to,
                      change->why);
    }
    tune->n_told = n;
}

/* One number at a time: while one proves itself the other one stays. */
static void decide(struct stg_stage *stage, const struct stg_tuner_sample *sample)
{
    struct stg_stage_tune *tune = &stage->observers.tune;
    struct stg_tuner_change change;
    if (!stg_tuner_in_trial(&tune->capacity) &&
        stg_tuner_threads(&tune->threads, sample, &change)) {
        stg_tuner_start_over(&tune->capacity);
        apply(stage, &stage->staged->num_threads, "num_threads", &change);
    } else if (!stg_tuner_in_trial(&tune->threads) &&
               stg_tuner_capacity(&tune->capacity, sample, tune->threads.value,
                                  &change)) {
        stg_tuner_start_over(&tune->threads);
        apply(stage, &stage->staged->capacity, "capacity", &change);
    }
}

static void end_window(struct stg_stage *stage, uint64_t now)
{
    struct stg_stage_tune *tune = &stage->observers.tune;
    struct stg_tuner_sample sample = tune->window;
    uint32_t waits = stg_buffer_n_rounds(&stage->buffer), least = stage->buffer.least;
    sample.interval_ns = now - tune->began_ns;
    sample.wait_ns = clients_waited(stage, now);
    sample.room_ns = room_ns(stage, now) - tune->room_before_ns;
    sample.least = waits < least ? waits : least;
    begin_window(stage);
    decide(stage, &sample);
}

static bool tries_own(const struct stg_stage *stage)
{
    return stg_tuner_in_trial(&stage->observers.tune.threads) ||
           stg_tuner_in_trial(&stage->observers.tune.capacity);
}

bool stg_tune_in_trial(const struct stg_stage *stage)
{
    return tries_own(stage) || stg_tuning_n_trials(stage->observers.tune.log) > 0;
}

/* While cuts are tried nothing is measured; what is being tried itself goes on. */
static bool is_held(struct stg_stage *stage)
{
    struct stg_stage_tune *tune = &stage->observers.tune;
    bool held = stg_tuning_is_held(tune->log) && !tries_own(stage);
    if (tune->was_held && !held) {
        stg_tuner_start_over(&tune->threads);
        stg_tuner_start_over(&tune->capacity);
        begin_window(stage);
    }
    tune->was_held = held;
    return held;
}

void stg_tune_item(struct stg_stage *stage, const struct stg_work *work)
{
    struct stg_stage_tune *tune = &stage->observers.tune;
    tell_changes(stage);
    if (!tune->is_on || is_held(stage))
        return;
    if (tune->settle > 0 || stage->members.n_attached == 0) {
        tune->settle -= tune->settle > 0;
        if (tune->settle == 0)
            begin_window(stage);
        return;
    }
    struct stg_tuner_sample *window = &tune->window;
    window->n_items++;
    window->busy_ns += work->draw_ns + work->busy_ns;
    window->serial_ns += work->draw_ns;
    window->cpu_ns += work->cpu_ns;
    if (window->n_items < WINDOW_ITEMS || window->n_items < 2 * stage->runners.n_active)
        return;
    uint64_t now = stg_now_ns();
    if (now - tune->began_ns >= WINDOW_NS)
        end_window(stage, now);
}

void stg_tune_forget(struct stg_stage *stage)
{
    if (!stage->observers.tune.is_on)
        return;
    stg_tuner_forget(&stage->observers.tune.threads);
    stg_tuner_forget(&stage->observers.tune.capacity);
    begin_window(stage);
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

/* With what the stage before came to, as far as that may be. */
static void go_on(struct stg_tuner *tuner, uint32_t found)
{
    if (found >= tuner->limits.min && found <= tuner->limits.max)
        tuner->value = found;
}

int stg_tune_init(struct stg_stage *stage, struct stg_err *err)
{
    const struct stg_staged *staged = stage->staged;
    struct stg_stage_tune *tune = &stage->observers.tune;
    const struct stg_stage_plan *plan = &stage->plan;
    struct stg_pool *pool = stage->config.pool;
    uint32_t max = plan->num_threads;
    double cpus = pool != NULL ? stg_pool_cpus(pool) : stg_cpus();
    if (pool != NULL && stg_pool_n_threads(pool) < max)
        max = stg_pool_n_threads(pool);
    tune->owns_log = stage->config.tuning == NULL;
    tune->log = tune->owns_log ? stg_tuning_create() : stage->config.tuning;
    if (tune->log == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    tune->n_told = stg_tuning_n_changes(tune->log);
    tuner_init(&tune->threads, staged->num_threads, 1, max, cpus);
    tuner_init(&tune->capacity, staged->capacity, 2, plan->capacity, 0);
    tune->capacity.limits.min = tune->capacity.value;
    go_on(&tune->threads, stg_tuning_recall(tune->log, &staged->num_threads));
    go_on(&tune->capacity, stg_tuning_recall(tune->log, &staged->capacity));
    tune->is_on = staged->num_threads == 0 || staged->capacity == 0;
    use_numbers(stage);
    return 0;
}

void stg_tune_finish(struct stg_stage *stage)
{
    if (stage->observers.tune.owns_log)
        stg_tuning_destroy(stage->observers.tune.log);
}
