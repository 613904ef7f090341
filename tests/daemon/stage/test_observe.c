/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of a stage reach its observers at commit, and commit applies what they propose.
 * The stage makes nothing: the test publishes items, sets how long the trainer waited,
 * and sets the time (the linker's --wrap of clock_gettime).
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "daemon/pipeline/definition.h"
#include "daemon/stage/effects.h"
#include "daemon/stage/priv.h"
#include "tests/check.h"

#define TEXT                                                                             \
    "smart_stage: auto\n"                                                                \
    "dataset: [{range: {stop: 100}}, {batch: {batch_size: 4}}]\n"                        \
    "graph:\n"                                                                           \
    "  - {name: square, op: multiply, input: [\"staged:v\", \"staged:v\"]}\n"            \
    "  - {name: y, op: add, input: [square, square]}\n"                                  \
    "staged: {features: {v: value}, num_threads: auto, capacity: auto}\n"                \
    "targets: [y]\n"

static uint64_t now_ns; /* of CLOCK_MONOTONIC; 0: as on this machine */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (clock != CLOCK_MONOTONIC || now_ns == 0)
        return __real_clock_gettime(clock, ret);
    *ret = stg_timespec(now_ns);
    return 0;
}

static void spend(uint64_t millis)
{
    now_ns += millis * 1000000;
}

struct scene {
    struct stg_turn turn;
    struct stg_definition *definition;
    struct stg_stage stage;
    struct stg_client client;
    struct stg_control_page *control; /* of the client */
};

static void scene_init(struct scene *s)
{
    static const struct stg_identity unprivileged = {.uid = 65534, .gid = 65534};
    struct stg_err err = {0};
    *s = (struct scene){0};
    now_ns = 1000000000;
    CHECK_OK(stg_definition_create(TEXT, strlen(TEXT), "p", &unprivileged, NULL,
                                   &s->definition, &err),
             err);
    struct stg_stage *stage = &s->stage;
    stage->config = (struct stg_stage_config){.spec = s->definition->spec,
                                              .graph = s->definition->graph,
                                              .partitions = s->definition->partitions,
                                              .tuning = s->definition->tuning,
                                              .num_clients = 1,
                                              .name = "p"};
    stage->plan = (struct stg_stage_plan){
        .capacity = 16, .num_threads = 8, .max_batch_bytes = 1 << 20};
    stage->staged = &stage->config.spec->staged;
    stage->policy = stg_policy(STG_DELIVERY_SPLIT);
    stage->buffer.round_items = 1;
    stage->runners.turns = &s->turn;
    stage->runners.n_turns = 1;
    pthread_mutex_init(&stage->lock, NULL);
    CHECK_OK(stg_observers_init(stage, &err), err);

    struct stg_request request = {.kind = STG_REQUEST_OPEN};
    s->control = aligned_alloc(4096, STG_CONTROL_BYTES);
    CHECK(s->control != NULL);
    memset(s->control, 0, STG_CONTROL_BYTES);
    stg_control_format(s->control, 1);
    s->client.control.page = s->control;
    s->client.state = STG_CLIENT_ATTACHED;
    CHECK_OK(stg_needs_read(&request, stage->config.partitions, &s->client.needs, &err),
             err);
    stage->members.clients = &s->client;
    stage->members.n_attached = 1;
    pthread_mutex_lock(&stage->lock);
    stg_stage_recut(stage);
    stage->effects.events.has_changed = true;
    stg_stage_commit(stage);
}

static void scene_finish(struct scene *s)
{
    stg_observers_finish(&s->stage.observers);
    stg_stage_partition_unref(s->stage.boundary.partition);
    free(s->stage.boundary.chosen);
    stg_partition_needs_destroy(s->client.needs);
    free(s->control);
    pthread_mutex_destroy(&s->stage.lock);
    stg_definition_unref(s->definition);
}

/* n items that took 100 ms each, for which the trainer waits nearly all the time. */
static void give(struct scene *s, int n)
{
    for (int i = 0; i < n; i++) {
        struct stg_profiler profiler = {0};
        struct stg_work work = {.busy_ns = 100000000, .profiler = &profiler};
        spend(4);
        s->client.wait_ns += 3500000;
        s->client.n_given++;
        pthread_mutex_lock(&s->stage.lock);
        s->stage.effects.events.published = &work;
        stg_stage_commit(&s->stage);
    }
}

static void give_until_it_tries(struct scene *s)
{
    for (int i = 0; i < 200 && !stg_tune_in_trial(&s->stage.observers.tune); i++)
        give(s, 1);
    CHECK(stg_tune_in_trial(&s->stage.observers.tune));
}

static void a_number_that_the_trainer_waits_for_is_tried(void)
{
    struct scene s;
    scene_init(&s);
    CHECK_INT(s.stage.observers.tune.threads.value, 1);
    give_until_it_tries(&s);
    CHECK(s.stage.observers.tune.threads.value > 1);
    CHECK_INT(s.stage.runners.n_active, s.stage.observers.tune.threads.value);
    scene_finish(&s);
}

static void while_partitions_are_tried_no_number_is(void)
{
    struct scene s;
    scene_init(&s);
    stg_tuning_hold(s.stage.observers.tune.log, true);
    give(&s, 100); /* 400 ms, of which the half is enough */
    CHECK(!stg_tune_in_trial(&s.stage.observers.tune));
    CHECK_INT(s.stage.observers.tune.threads.n_windows, 0);
    CHECK_INT(s.stage.observers.tune.threads.value, 1);
    stg_tuning_hold(s.stage.observers.tune.log, false);
    give_until_it_tries(&s);
    scene_finish(&s);
}

static void what_is_being_tried_when_partitions_want_to_be_is_judged_first(void)
{
    struct scene s;
    scene_init(&s);
    give_until_it_tries(&s);
    stg_tuning_hold(s.stage.observers.tune.log, true);
    for (int i = 0; i < 1000 && stg_tune_in_trial(&s.stage.observers.tune); i++)
        give(&s, 1);
    CHECK(!stg_tune_in_trial(&s.stage.observers.tune)); /* it brought nothing */
    CHECK_INT(s.stage.observers.tune.threads.value, 1);
    give(&s, 60);
    CHECK(!stg_tune_in_trial(&s.stage.observers.tune));
    scene_finish(&s);
}

static void what_was_measured_with_another_partition_counts_no_more(void)
{
    struct scene s;
    struct stg_err err = {0};
    scene_init(&s);
    static const bool moved[] = {true};
    CHECK_INT(stg_partitions_n_nodes(s.definition->partitions), 1);
    for (int i = 0; i < 200 && s.stage.observers.tune.threads.n_windows == 0; i++)
        give(&s, 1);
    CHECK_INT(s.stage.observers.tune.threads.n_windows, 1);
    pthread_mutex_lock(&s.stage.lock);
    CHECK_OK(stg_stage_set_partition(&s.stage, moved, &err), err);
    stg_stage_commit(&s.stage);
    CHECK(s.stage.boundary.partition->number > 0);
    CHECK_INT(s.stage.observers.tune.threads.n_windows, 0);
    CHECK_INT(s.stage.observers.tune.window.n_items, 0);
    give_until_it_tries(&s);
    scene_finish(&s);
}

static void the_next_stage_begins_with_what_the_last_one_came_to(void)
{
    struct scene s;
    struct stg_err err = {0};
    scene_init(&s);
    give_until_it_tries(&s);
    uint32_t found = s.stage.observers.tune.threads.value;
    uint64_t n_changes = stg_tuning_n_changes(s.stage.observers.tune.log);
    CHECK(found > 1 && n_changes > 0);
    stg_observers_finish(&s.stage.observers);
    memset(&s.stage.observers, 0, sizeof(s.stage.observers));
    CHECK_OK(stg_observers_init(&s.stage, &err), err);
    CHECK_INT(s.stage.observers.tune.threads.value, found);
    CHECK_INT(s.stage.runners.n_active, found);
    CHECK_INT(s.stage.observers.tune.n_reported, n_changes); /* reported once */
    scene_finish(&s);
}

static const struct stg_test tests[] = {
    TEST(a_number_that_the_trainer_waits_for_is_tried),
    TEST(while_partitions_are_tried_no_number_is),
    TEST(what_is_being_tried_when_partitions_want_to_be_is_judged_first),
    TEST(what_was_measured_with_another_partition_counts_no_more),
    TEST(the_next_stage_begins_with_what_the_last_one_came_to),
};
TEST_MAIN(tests)
