/* SPDX-License-Identifier: Apache-2.0
 *
 * What daemon/autotune sees of a stage. The observers know no stage. stg_observe, called
 * by commit alone, passes the recorded events to them and applies the numbers that they
 * propose. partition.c does the same for the partition.
 */
#include "daemon/host/cpus.h"
#include "daemon/stage/priv.h"

#define MIN_WINDOW_NS UINT64_C(100000000) /* rates of less are noise */

/* ---- what they see ---- */

/* How long finished items have waited for room so far, those that wait now too. */
static uint64_t room_ns(const struct stg_stage *stage, uint64_t now)
{
    const struct stg_runners *runners = &stage->runners;
    return stage->counts.wait_ns + runners->n_waiting * now - runners->waits_began_ns;
}

/* Is a client in a pass? */
static bool is_read(const struct stg_stage *stage)
{
    return stage->members.n_attached > 0 && stage->pass.state != STG_PASS_NONE;
}

static void load_remote(const struct stg_stage *stage, struct stg_remote_load *ret)
{
    const struct stg_remote_part *remote = &stage->runners.remote;
    struct stg_remote_counts counts;
    if (remote->workers == NULL)
        return;
    stg_remote_counts(remote->workers, &counts);
    *ret = (struct stg_remote_load){.n_items = remote->n_published,
                                    .n_local = remote->n_local,
                                    .n_answers = counts.n_batches,
                                    .n_bytes = counts.n_bytes,
                                    .answer_ns = counts.answer_ns,
                                    .n_timed = counts.n_timed,
                                    .cpu_ns = counts.cpu_ns,
                                    .local_cpu_ns = remote->local_cpu_ns,
                                    .stall_ns = remote->stall_ns};
}

void stg_stage_measure(struct stg_stage *stage)
{
    uint64_t now = stg_now_ns();
    const struct stg_runners *runners = &stage->runners;
    const struct stg_counts *counts = &stage->counts;
    uint64_t began = atomic_load_explicit(&runners->pull_began_ns, memory_order_relaxed);
    uint64_t pulling = began != 0 && began < now ? now - began : 0;
    struct stg_load load = {
        .at_ns = now,
        .n_made = counts->n_made,
        .n_assigned = counts->n_assigned,
        .n_published = stage->buffer.n_published,
        .n_rows = stage->buffer.n_rows,
        .n_bytes = stage->buffer.n_bytes,
        .pull_ns = counts->pull_ns + pulling,
        .compute_ns = counts->busy_ns,
        .call_ns = counts->call_ns + runners->n_calling * now - runners->calls_began_ns,
        .room_ns = room_ns(stage, now),
        .sampled_pull_ns = counts->sampled_pull_ns,
        .sampled_cpu_ns = counts->sampled_cpu_ns,
        .clients_ns = stage->members.attached_ns + stage->members.n_attached * now,
        .clients_wait_ns = stg_clients_waited_ns(&stage->members, now),
        .cpu_ns = stg_process_cpu_ns(),
    };
    load_remote(stage, &load.remote);
    stg_measure_load(stage->observers.measure, &load, is_read(stage));
}

static struct stg_tune_view see_consumers(struct stg_stage *stage)
{
    uint64_t now = stg_now_ns();
    struct stg_tune_view view = {.now_ns = now,
                                 .room_ns = room_ns(stage, now),
                                 .n_rounds = stg_buffer_n_rounds(&stage->buffer),
                                 .together = stage->policy->together};
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED)
            continue;
        c->seen.wait_ns = c->wait_ns + stg_client_waits_ns(c, now);
        c->seen.n_given = c->n_given;
        c->seen.next = view.consumers;
        view.consumers = &c->seen;
    }
    return view;
}

/* ---- events ---- */

static void use_numbers(struct stg_stage *stage, const struct stg_tune_numbers *numbers)
{
    stage->runners.n_active = numbers->num_threads;
    stage->buffer.capacity = numbers->capacity;
    stage->observers.measure->n_runners = numbers->num_threads;
}

static void measure_item(struct stg_stage *stage, const struct stg_work *work)
{
    struct stg_measure *measure = stage->observers.measure;
    if (work->profiler->is_fresh)
        stg_profile_move(&measure->daemon, &work->profiler->profile);
    work->profiler->is_fresh = false;
    if (is_read(stage) && stg_measure_is_due(measure, stg_now_ns())) {
        stg_stage_measure(stage);
        stg_measure_mark(measure);
    }
}

/* Steps of the dataset change their numbers on threads of their own. */
static void report_changes(struct stg_stage *stage)
{
    struct stg_tuning_change changes[STG_TUNING_CHANGES];
    size_t n = stg_tune_news(&stage->observers.tune, changes);
    for (size_t i = 0; i < n; i++) {
        const struct stg_tuner_change *change = &changes[i].change;
        stg_decide(&stage->observers.measure->decisions, stg_now_ns(), "auto",
                   "%s %u -> %u: %s", changes[i].what, change->from, change->to,
                   change->why);
        stg_stage_log(stage, STG_LOG_DEBUG, "pipeline %s: %s %u -> %u: %s",
                      stage->config.name, changes[i].what, change->from, change->to,
                      change->why);
    }
}

/* Items were taken, the last one of that block of a trial. */
static void see_trial(struct stg_stage *stage, uint32_t tag)
{
    if (stage->boundary.has_trial)
        stg_partitioner_taken(stage->observers.partitioner, tag, stage->buffer.first,
                              stg_now_ns());
}

void stg_observe(struct stg_stage *stage)
{
    struct stg_events events = stage->effects.events;
    struct stg_tune *tune = &stage->observers.tune;
    const struct stg_work *work = events.published;
    struct stg_tune_numbers numbers;
    bool is_due = false;
    stage->effects.events = (struct stg_events){0};
    const struct stg_measure *measure = stage->observers.measure;
    if (measure != NULL && measure->is_over == is_read(stage))
        stg_stage_measure(stage);
    if (events.has_taken) {
        stg_tune_taken(tune, events.n_rounds);
        see_trial(stage, events.taken_tag);
    }
    if (work != NULL) {
        measure_item(stage, work);
        report_changes(stage);
        is_due = stg_tune_published(tune, work->pull_ns, work->busy_ns, work->cpu_ns,
                                    stage->members.n_attached > 0);
    }
    if (events.has_changed)
        is_due |= stg_tune_changed(tune);
    if (!is_due)
        return;
    struct stg_tune_view view = see_consumers(stage);
    if (stg_tune_look(tune, &view, &numbers)) {
        use_numbers(stage, &numbers);
        stage->effects.wake |= STG_WAKE_ROOM | STG_WAKE_PASS;
    }
}

/* ---- what is measured ---- */

static void load_marked(struct stg_stage *stage)
{
    struct stg_measure *measure = stage->observers.measure;
    if (measure != NULL && measure->marks[1].at_ns != 0)
        stg_stage_measure(stage);
}

void stg_stage_show_pace(struct stg_stage *stage, struct stg_pipeline_status *ret)
{
    const struct stg_measure *measure = stage->observers.measure;
    struct stg_pace pace;
    load_marked(stage);
    if (measure == NULL || measure->is_over || measure->marks[1].at_ns == 0)
        return;
    stg_measure_pace(measure, &pace);
    if (pace.elapsed_ns < MIN_WINDOW_NS)
        return;
    ret->window_ns = pace.elapsed_ns;
    ret->window_batches = pace.n_published;
    ret->window_rows = pace.n_rows;
    ret->window_clients_ns = pace.clients_ns;
    ret->window_wait_ns = pace.clients_wait_ns;
}

const struct stg_measure *stg_stage_look(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    return stage->observers.measure;
}

void stg_stage_unlook(struct stg_stage *stage)
{
    pthread_mutex_unlock(&stage->lock);
}

const struct stg_schema *stg_stage_crossing(const struct stg_stage *stage)
{
    return stage->boundary.partition != NULL
               ? stg_partition_schema(stage->boundary.partition->partition)
               : NULL;
}

struct stg_measure *stg_stage_take_measure(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    load_marked(stage);
    struct stg_measure *measure = stage->observers.measure;
    if (measure != NULL)
        measure->is_over = true;
    stage->observers.measure = NULL;
    pthread_mutex_unlock(&stage->lock);
    return measure;
}

void stg_stage_report(struct stg_stage *stage, const struct stg_report *report)
{
    pthread_mutex_lock(&stage->lock);
    if (stage->observers.measure != NULL)
        stg_measure_report(stage->observers.measure, report);
    pthread_mutex_unlock(&stage->lock);
}

/* ---- life ---- */

static int init_tune(struct stg_stage *stage, struct stg_err *err)
{
    struct stg_pool *pool = stage->config.pool;
    struct stg_tune_limits limits = {.max_threads = stage->plan.num_threads,
                                     .max_capacity = stage->plan.capacity,
                                     .cpus =
                                         pool != NULL ? stg_pool_cpus(pool) : stg_cpus()};
    struct stg_tune_numbers numbers;
    if (pool != NULL && stg_pool_n_threads(pool) < limits.max_threads)
        limits.max_threads = stg_pool_n_threads(pool);
    int rc = stg_tune_init(&stage->observers.tune, stage->staged, &limits,
                           stage->config.tuning, &numbers, err);
    if (rc == 0)
        use_numbers(stage, &numbers);
    return rc;
}

int stg_observers_init(struct stg_stage *stage, struct stg_err *err)
{
    struct stg_observers *observers = &stage->observers;
    observers->measure =
        stg_measure_create(stage->config.graph, stage->staged->num_threads);
    if (observers->measure == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return init_tune(stage, err);
}

void stg_observers_finish(struct stg_observers *observers)
{
    stg_tune_finish(&observers->tune);
    stg_measure_destroy(observers->measure);
}
