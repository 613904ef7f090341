/* SPDX-License-Identifier: Apache-2.0
 *
 * No timeout hangs or desynchronises trainers (docs/delivery.md): the effects of stopped,
 * killed and slow trainers, dropped items and error items on the other trainers, in all
 * three deliveries.
 */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/pipelines.h"

#define N_ITEMS 42 /* whole rounds of two and of three */

enum event { EVENT_STOP, EVENT_KILL };
static const char *const event_names[] = {"SIGSTOP", "kill"};

/* Items that fail, or are dropped while no trainer takes them. */
enum items { ITEMS_FINE, ITEMS_FAIL, ITEMS_DROP };
static const char *const items_names[] = {"fine items", "error items", "dropped items"};

static const char *const deliveries[] = {"split", "broadcast", "round_robin"};

#define FAIL_MODULUS 7
#define FAIL_REST 3
#define N_FAILING (N_ITEMS / FAIL_MODULUS)

static void apply_case(struct fixture *fixture, const char *delivery, int n_clients,
                       enum items items)
{
    char staged[256];
    snprintf(staged, sizeof(staged),
             "delivery: %s, num_clients: %d, capacity: 2, num_threads: 2, "
             "lease_timeout_millis: 1000, %s",
             delivery, n_clients,
             items == ITEMS_DROP ? "timeout_millis: 20, on_timeout: drop"
                                 : "on_timeout: wait");
    apply_rows(fixture, N_ITEMS,
               items == ITEMS_FAIL ? graph_failing(FAIL_MODULUS, FAIL_REST, "DATA_LOSS")
                                   : "",
               staged);
}

static void strike(struct actor *actor, enum event event)
{
    if (event == EVENT_STOP)
        actor_stop(actor);
    else
        actor_kill(actor);
}

static void recover(struct actor *actor, enum event event)
{
    if (event == EVENT_KILL)
        return;
    actor_continue(actor);
    actor_leave(actor);
}

/* ---- the end ---- */

/* Under split the other trainer got every item except those that failed or were dropped,
 * which are counted. */
static void check_all_came(struct fixture *fixture, const struct actor_log *log,
                           const char *what)
{
    struct fixture_status status;
    fixture_status(fixture, "rows", &status);
    bool seen[N_ITEMS] = {false};
    int n = 0, n_failed = 0;
    for (int i = 0; i < log->n; i++) {
        if (log->steps[i].rc < 0) {
            CHECK_INT(log->steps[i].rc, -STAGER_DATA_LOSS);
            n_failed++;
            continue;
        }
        int64_t value = log->steps[i].value;
        CHECK(value >= 0 && value < N_ITEMS && !seen[value]);
        seen[value] = true;
        n++;
    }
    if ((uint64_t)(n + n_failed) + status.dropped != N_ITEMS)
        FAIL("%s: %d batches, %d errors and %llu dropped are not %d items", what, n,
             n_failed, (unsigned long long)status.dropped, N_ITEMS);
}

/* The stopped trainer holds the first batch of the pass, and a second one lies in its
 * ring. */
static void withhold(int delivery, enum event event, enum items items)
{
    struct fixture fixture;
    struct actor actors[2];
    static struct actor_log log;
    char what[128];
    snprintf(what, sizeof(what), "%s, %s, %s", deliveries[delivery], event_names[event],
             items_names[items]);
    log = (struct actor_log){0};
    fixture_start(&fixture, "");
    apply_case(&fixture, deliveries[delivery], 2, items);
    actor_start(&actors[0], &fixture, NULL);
    actor_start(&actors[1], &fixture, NULL);
    actor_keep(&actors[0]);
    strike(&actors[0], event);
    actor_drain_all(&actors[1], 1, &log);
    if (strcmp(deliveries[delivery], "round_robin") == 0) {
        if (log.end.rc != -STAGER_ABORTED)
            FAIL("%s: the other got %d: %s", what, log.end.rc, log.end.text);
    } else {
        if (log.end.rc != -STAGER_OUT_OF_RANGE)
            FAIL("%s: the other got %d: %s", what, log.end.rc, log.end.text);
        check_all_came(&fixture, &log, what);
    }
    check_accounts(&fixture);
    recover(&actors[0], event);
    actor_leave(&actors[1]);
    fixture_finish(&fixture);
}

static void a_stopped_trainer_does_not_withhold_the_end(void)
{
    for (int delivery = 0; delivery < 3; delivery++) {
        for (int event = EVENT_STOP; event <= EVENT_KILL; event++) {
            for (int items = ITEMS_FINE; items <= ITEMS_DROP; items++)
                withhold(delivery, (enum event)event, (enum items)items);
        }
    }
}

/* ---- a pause ---- */

/* All trainers pause, as for an evaluation or a checkpoint, then continue. */
static void pause_and_go_on(int delivery, enum items items)
{
    struct fixture fixture;
    struct actor actors[2];
    static struct actor_log logs[2];
    memset(logs, 0, sizeof(logs));
    fixture_start(&fixture, "");
    char staged[256];
    snprintf(staged, sizeof(staged),
             "delivery: %s, num_clients: 2, capacity: 2, timeout_millis: 20, %s",
             deliveries[delivery],
             items == ITEMS_DROP ? "on_timeout: drop" : "on_timeout: wait");
    apply_rows(&fixture, N_ITEMS,
               items == ITEMS_FAIL ? graph_failing(FAIL_MODULUS, FAIL_REST, "DATA_LOSS")
                                   : "",
               staged);
    for (int i = 0; i < 2; i++)
        actor_start(&actors[i], &fixture, NULL);
    if (items == ITEMS_DROP)
        WAIT_FOR(&fixture, dropped, 5);
    else
        WAIT_FOR(&fixture, timeouts, 1);
    actor_drain_all(actors, 2, logs);
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK_INT(logs[0].end.rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(logs[1].end.rc, -STAGER_OUT_OF_RANGE);
    uint64_t came = (uint64_t)(logs[0].n + logs[1].n);
    if (strcmp(deliveries[delivery], "broadcast") == 0) {
        CHECK_INT(logs[0].n, logs[1].n);
        came = (uint64_t)logs[0].n;
    }
    if (strcmp(deliveries[delivery], "round_robin") == 0 && items == ITEMS_FAIL)
        CHECK_INT(logs[0].n, logs[1].n); /* an error ends a round for both */
    else
        CHECK_INT(came + status.dropped + status.incomplete_rounds, N_ITEMS);
    if (items != ITEMS_DROP)
        CHECK_INT(status.dropped, 0);
    check_accounts(&fixture);
    for (int i = 0; i < 2; i++)
        actor_leave(&actors[i]);
    fixture_finish(&fixture);
}

static void a_paused_evaluation_loses_no_batch_without_a_counter(void)
{
    for (int delivery = 0; delivery < 3; delivery++) {
        for (int items = ITEMS_FINE; items <= ITEMS_DROP; items++)
            pause_and_go_on(delivery, (enum items)items);
    }
}

/* ---- ranks ---- */

/* After a stop the surviving trainers have taken the same number of steps, and under
 * broadcast the same items. */
static void ranks_after(int delivery, enum event event, enum items items)
{
    struct fixture fixture;
    struct actor actors[3];
    static struct actor_log logs[3];
    memset(logs, 0, sizeof(logs));
    fixture_start(&fixture, "");
    apply_case(&fixture, deliveries[delivery], 3, items);
    for (int i = 0; i < 3; i++)
        actor_start(&actors[i], &fixture, NULL);
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < 3; i++) {
            struct actor_result got = actor_next(&actors[i], fixture_millis(20000));
            if (got.rc == 0)
                actor_release(&actors[i], got.number);
            else
                CHECK(items == ITEMS_FAIL && got.rc == -STAGER_DATA_LOSS);
        }
    }
    strike(&actors[2], event);
    actor_drain_all(actors, 2, logs);
    CHECK_INT(logs[0].end.rc, logs[1].end.rc);
    if (delivery != 0 && logs[0].n != logs[1].n)
        FAIL("%s, %s, %s: %d steps here, %d there", deliveries[delivery],
             event_names[event], items_names[items], logs[0].n, logs[1].n);
    for (int i = 0; i < logs[0].n && delivery != 0; i++) {
        CHECK_INT(logs[0].steps[i].rc, logs[1].steps[i].rc);
        if (delivery == 1)
            CHECK_INT(logs[0].steps[i].number, logs[1].steps[i].number);
    }
    check_accounts(&fixture);
    recover(&actors[2], event);
    actor_leave(&actors[0]);
    actor_leave(&actors[1]);
    fixture_finish(&fixture);
}

/* Without a stopped trainer, rounds run to the end, even if one trainer always asks
 * last. */
static void ranks_to_the_end(int delivery, enum items items)
{
    struct fixture fixture;
    struct actor actors[3];
    static struct actor_log logs[3];
    memset(logs, 0, sizeof(logs));
    fixture_start(&fixture, "");
    apply_case(&fixture, deliveries[delivery], 3, items);
    for (int i = 0; i < 3; i++)
        actor_start(&actors[i], &fixture, NULL);
    if (items == ITEMS_DROP)
        WAIT_FOR(&fixture, dropped, 4);
    actor_drain_all(actors, 3, logs);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(logs[i].end.rc, -STAGER_OUT_OF_RANGE);
        if (delivery != 0)
            CHECK_INT(logs[i].n, logs[0].n);
    }
    check_accounts(&fixture);
    for (int i = 0; i < 3; i++)
        actor_leave(&actors[i]);
    fixture_finish(&fixture);
}

static void ranks_never_differ_by_a_step(void)
{
    for (int delivery = 0; delivery < 3; delivery++) {
        for (int items = ITEMS_FINE; items <= ITEMS_DROP; items++) {
            for (int event = EVENT_STOP; event <= EVENT_KILL; event++)
                ranks_after(delivery, (enum event)event, (enum items)items);
            ranks_to_the_end(delivery, (enum items)items);
        }
    }
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_stopped_trainer_does_not_withhold_the_end, 120),
    TEST_SLOW(a_paused_evaluation_loses_no_batch_without_a_counter, 60),
    TEST_SLOW(ranks_never_differ_by_a_step, 120),
};

TEST_MAIN(tests)
