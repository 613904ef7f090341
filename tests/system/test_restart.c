/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerd is killed and started again under streams that reconnect: what each delivery
 * gives them, and which clients stagerd waits for. One thread calls each stream of a test
 * in turn: stagerd waits for all.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define MAX 64
#define TAKE_MILLIS 20000

/* A stream, and what it got while another one was asked. */
struct seat {
    struct stager_stream *stream;
    bool *got; /* values, by any seat; NULL: those of this seat are below, in order */
    int64_t values[MAX];
    uint32_t n, first;
};

static struct stager_stream *open_stream(struct fixture *fixture, const char *id,
                                         const char *state)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = id,
                                     .runtime_dir = fixture->runtime,
                                     .max_in_flight = 1,
                                     .state = state};
    struct stager_stream *stream;
    if (stager_open(NULL, "p", &options, &stream) < 0)
        FAIL("open: %s", stager_error_text(NULL));
    return stream;
}

static int64_t release(struct stager_batch *batch)
{
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, "value", &tensor), 0);
    int64_t value = *(const int64_t *)tensor.data;
    stager_release(batch);
    return value;
}

static int look(struct seat *seat, int millis)
{
    struct stager_batch *batch;
    int rc = stager_next(seat->stream, millis, &batch);
    if (rc != 0)
        return rc;
    int64_t value = release(batch);
    if (seat->got == NULL) {
        seat->values[seat->n++ % MAX] = value;
    } else {
        if (seat->got[value])
            FAIL("value %d is there again", (int)value);
        seat->got[value] = true;
    }
    return rc;
}

/* Returns the next value of a seat. */
static int64_t take(struct seat *seats, size_t n, size_t which)
{
    struct seat *seat = &seats[which];
    int64_t end = now_millis() + fixture_millis(TAKE_MILLIS);
    while (seat->first == seat->n) {
        int rc = look(seat, 10);
        if (rc < 0 && rc != -STAGER_DEADLINE_EXCEEDED)
            FAIL("seat %zu: %d: %s", which, rc, stager_error_text(seat->stream));
        for (size_t i = 0; rc < 0 && i < n; i++) {
            if (i != which && seats[i].n - seats[i].first < MAX)
                (void)look(&seats[i], 0);
        }
        if (now_millis() > end)
            FAIL("seat %zu: %s", which, stager_error_text(seat->stream));
    }
    return seat->values[seat->first++ % MAX];
}

static void kill_and_restart(struct fixture *fixture)
{
    fixture_kill(fixture);
    fixture_restart(fixture);
}

static void begin(struct fixture *fixture, const char *staged, struct seat *seats,
                  size_t n)
{
    static const char *const names[] = {"a", "b", "c"};
    fixture_start(fixture, "");
    fixture_apply_range(fixture, 40, staged);
    for (size_t i = 0; i < n; i++)
        seats[i] = (struct seat){.stream = open_stream(fixture, names[i], NULL)};
}

static void end(struct fixture *fixture, struct seat *seats, size_t n)
{
    for (size_t i = 0; i < n; i++)
        stager_close(seats[i].stream);
    fixture_finish(fixture);
}

static void state_of(struct stager_stream *stream, char *buf)
{
    int rc = stager_state(stream, buf, STAGER_STATE_BYTES);
    if (rc < 0)
        FAIL("state: %s", stager_error_text(stream));
}

/* Until the stream has nothing more of the stagerd before. */
static void wait_for_end(struct seat *seat)
{
    int rc;
    while ((rc = look(seat, 10)) == 0) {
    }
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(seat->stream), "stagerd has ended");
}

static void expect_end(struct seat *seat, int code, const char *text)
{
    int rc;
    while ((rc = look(seat, (int)fixture_millis(TAKE_MILLIS))) == 0) {
    }
    if (rc != -code)
        FAIL("%d: %s", rc, stager_error_text(seat->stream));
    CHECK_CONTAINS(stager_error_text(seat->stream), text);
}

/* ---- deliveries ---- */

static uint32_t count(const bool *got)
{
    uint32_t n = 0;
    for (int i = 0; i < 40; i++)
        n += got[i];
    return n;
}

/* Calls each seat in turn until so many values came. */
static void share(struct seat *seats, size_t n, uint32_t n_values)
{
    int64_t end = now_millis() + fixture_millis(TAKE_MILLIS);
    while (count(seats[0].got) < n_values) {
        for (size_t i = 0; i < n && count(seats[0].got) < n_values; i++) {
            int rc = look(&seats[i], 10);
            if (rc < 0 && rc != -STAGER_DEADLINE_EXCEEDED)
                FAIL("seat %zu: %d: %s", i, rc, stager_error_text(seats[i].stream));
        }
        if (now_millis() > end)
            FAIL("%u values: %s", count(seats[0].got),
                 stager_error_text(seats[0].stream));
    }
}

static void states_of_before_and_after_a_restart_merge(void)
{
    struct fixture fixture;
    struct seat seats[2];
    static char before[STAGER_STATE_BYTES], after[STAGER_STATE_BYTES],
        merged[STAGER_STATE_BYTES];
    bool got[40] = {false}, saved[40];
    begin(&fixture, "num_clients: 2", seats, 2);
    seats[0].got = seats[1].got = got;
    share(seats, 2, 12);
    state_of(seats[0].stream, before);
    kill_and_restart(&fixture);
    share(seats, 2, 14);
    state_of(seats[0].stream, before);
    share(seats, 2, 15);
    memcpy(saved, got, sizeof(got));
    state_of(seats[0].stream, before);
    state_of(seats[1].stream, after);
    kill_and_restart(&fixture);
    share(seats, 2, 20);
    /* All restart at the step of the two states. */
    const char *states[] = {before, after};
    int rc = stager_merge_states(states, 2, merged, sizeof(merged));
    if (rc < 0)
        FAIL("merge: %s", stager_error_text(NULL));
    stager_close(seats[0].stream);
    stager_close(seats[1].stream);
    seats[0] = (struct seat){.stream = open_stream(&fixture, "a", merged), .got = saved};
    share(seats, 1, 40);
    fixture_expect_code(seats[0].stream, STAGER_OUT_OF_RANGE, "end of pass");
    end(&fixture, seats, 1);
}

/* A batch that comes with it is delivered again: the state is of before. */
static void reconnect(struct stager_stream *stream)
{
    struct stager_batch *batch;
    int rc = stager_next(stream, 0, &batch);
    if (rc == 0)
        stager_release(batch);
    else
        CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
}

/* The state of one client is of before a restart, that of the other one of after it. */
static void a_step_may_have_a_restart_in_it(void)
{
    struct fixture fixture;
    struct seat seats[2];
    static char first[STAGER_STATE_BYTES], second[STAGER_STATE_BYTES],
        merged[STAGER_STATE_BYTES];
    bool got[40] = {false};
    begin(&fixture, "num_clients: 2", seats, 2);
    seats[0].got = seats[1].got = got;
    share(seats, 2, 12);
    fixture_kill(&fixture);
    wait_for_end(&seats[0]);
    wait_for_end(&seats[1]);
    state_of(seats[0].stream, first);
    fixture_restart(&fixture);
    int rc = -STAGER_DEADLINE_EXCEEDED;
    while (rc == -STAGER_DEADLINE_EXCEEDED) { /* b alone takes something */
        struct stager_batch *batch;
        rc = stager_next(seats[1].stream, 10, &batch);
        if (rc == 0)
            got[release(batch)] = true;
        struct stager_stream_info info = {.struct_size = sizeof(info)};
        stager_stream_info(seats[0].stream, &info);
        if (rc != 0 && info.reconnects == 0)
            reconnect(seats[0].stream);
    }
    CHECK_INT(rc, 0);
    state_of(seats[1].stream, second);
    const char *states[] = {first, second};
    if (stager_merge_states(states, 2, merged, sizeof(merged)) < 0)
        FAIL("merge: %s", stager_error_text(NULL));
    stager_close(seats[0].stream);
    stager_close(seats[1].stream);
    seats[0] = (struct seat){.stream = open_stream(&fixture, "a", merged), .got = got};
    share(seats, 1, 40);
    fixture_expect_code(seats[0].stream, STAGER_OUT_OF_RANGE, "end of pass");
    end(&fixture, seats, 1);
}

static void ranks_go_on_in_step(void)
{
    struct fixture fixture;
    struct seat seats[3];
    begin(&fixture, "num_clients: 3, delivery: round_robin", seats, 3);
    for (int round = 0; round < 12; round++) {
        for (size_t k = 0; k < 3; k++)
            CHECK_INT(take(seats, 3, k), 3 * round + (int)k);
        if (round % 4 == 3)
            kill_and_restart(&fixture);
    }
    end(&fixture, seats, 3);
}

static void each_client_of_a_broadcast_goes_on_at_its_own_place(void)
{
    struct fixture fixture;
    struct seat seats[2];
    int64_t next[2] = {0, 0};
    begin(&fixture, "num_clients: 2, delivery: broadcast, capacity: 8", seats, 2);
    for (int kills = 0; kills < 3; kills++) {
        for (int i = 0; i < 6; i++)
            CHECK_INT(take(seats, 2, 0), next[0]++);
        for (int i = 0; i < 2; i++)
            CHECK_INT(take(seats, 2, 1), next[1]++);
        kill_and_restart(&fixture);
    }
    end(&fixture, seats, 2);
}

/* ---- which clients stagerd waits for ---- */

static bool is_reconnecting(const struct fixture_status *status, void *arg)
{
    return strcmp(status->state, "reconnecting") == 0 && status->n_clients == 2 &&
           strcmp(status->clients[0].state, status->clients[1].state) != 0;
}

static void waiter_body(struct fixture *fixture, int fd, void *arg)
{
    struct seat seat = {.stream = open_stream(fixture, "c", NULL)};
    trainer_send(fd, 1);
    trainer_send(fd, take(&seat, 1, 0));
    trainer_recv(fd);
    stager_close(seat.stream);
}

static void another_client_waits_for_those_that_reconnect(void)
{
    struct fixture fixture;
    struct seat seats[2];
    struct trainer trainer;
    bool got[40] = {false};
    begin(&fixture, "num_clients: 3", seats, 2);
    seats[0].got = seats[1].got = got;
    share(seats, 2, 8);
    kill_and_restart(&fixture);
    wait_for_end(&seats[0]);
    trainer_start(&trainer, waiter_body, &fixture, NULL);
    int64_t until = now_millis() + 300; /* a comes, and waits for b */
    while (now_millis() < until)
        (void)look(&seats[0], 10);
    fixture_wait(&fixture, "p", fixture_millis(10000), is_reconnecting, NULL);
    uint32_t n = count(got);
    share(seats, 2, n + 4);
    CHECK_INT(trainer_recv(trainer.fd), 1);
    int64_t value = trainer_recv(trainer.fd); /* it shares in what is left */
    CHECK(!got[value]);
    trainer_send(trainer.fd, 1);
    trainer_join(&trainer);
    end(&fixture, seats, 2);
}

static void a_client_that_comes_too_late_has_lost_its_batches(void)
{
    struct fixture fixture;
    struct seat seats[2];
    bool got[40] = {false};
    begin(&fixture, "num_clients: 2, start_timeout_millis: 1, reconnect_grace_millis: 1",
          seats, 2);
    seats[0].got = seats[1].got = got;
    share(seats, 2, 12);
    kill_and_restart(&fixture);
    seats[0].got = NULL; /* it gets those of b, too */
    wait_for_end(&seats[0]);
    seats[0].first = seats[0].n;
    (void)take(seats, 1, 0); /* after five seconds, without b */
    expect_end(&seats[1], STAGER_ABORTED, "b came back too late");
    end(&fixture, seats, 2);
}

static void a_late_client_of_a_broadcast_loses_nothing(void)
{
    struct fixture fixture;
    struct seat seats[2];
    begin(&fixture,
          "num_clients: 2, delivery: broadcast, capacity: 4, reconnect_grace_millis: 1",
          seats, 2);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(take(seats, 2, 0), i);
        CHECK_INT(take(seats, 2, 1), i);
    }
    kill_and_restart(&fixture);
    for (int i = 3; i < 20; i++)
        CHECK_INT(take(seats, 1, 0), i);
    for (int i = 3; i < 20; i++)
        CHECK_INT(take(&seats[1], 1, 0), i);
    end(&fixture, seats, 2);
}

static void a_client_that_never_reconnects_is_not_waited_for(void)
{
    struct fixture fixture;
    struct seat seats[1];
    begin(&fixture, "num_clients: 2, delivery: broadcast, capacity: 4", seats, 1);
    struct stager_stream *never = fixture_open(&fixture, "p", "never", 1);
    CHECK_INT(take(seats, 1, 0), 0);
    fixture_expect_value(never, 0);
    kill_and_restart(&fixture);
    int64_t began = now_millis();
    for (int i = 1; i < 10; i++)
        CHECK_INT(take(seats, 1, 0), i);
    CHECK(now_millis() - began < fixture_millis(4000));
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(never, 1000, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_UNAVAILABLE);
    stager_close(never);
    end(&fixture, seats, 1);
}

static void a_stream_that_was_closed_meanwhile_is_not_waited_for(void)
{
    struct fixture fixture;
    struct seat seats[1];
    begin(&fixture, "num_clients: 1", seats, 1);
    CHECK_INT(take(seats, 1, 0), 0);
    fixture_kill(&fixture);
    stager_close(seats[0].stream);
    fixture_restart(&fixture);
    int64_t began = now_millis();
    seats[0] = (struct seat){.stream = open_stream(&fixture, "a", NULL)};
    CHECK_INT(take(seats, 1, 0), 0); /* a run from the start */
    CHECK(now_millis() - began < fixture_millis(4000));
    end(&fixture, seats, 1);
}

static void a_second_kill_while_clients_reconnect_changes_nothing(void)
{
    struct fixture fixture;
    struct seat seats[2];
    bool got[40] = {false};
    begin(&fixture, "num_clients: 2", seats, 2);
    seats[0].got = seats[1].got = got;
    share(seats, 2, 10);
    for (int kills = 0; kills < 3; kills++) {
        kill_and_restart(&fixture);
        int64_t until = now_millis() + 300; /* a comes, and waits for b */
        while (now_millis() < until)
            (void)look(&seats[0], 10);
    }
    share(seats, 2, 40);
    end(&fixture, seats, 2);
}

/* Returns the pass of the record. */
static unsigned long recorded_pass(const struct fixture *fixture)
{
    char path[256], line[256];
    unsigned long pass = 0;
    snprintf(path, sizeof(path), "%s/runs/p", fixture->runtime);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, "run %*x %*u %lu", &pass);
    fclose(file);
    return pass;
}

/* At the start of a pass the numbers of consumers begin anew. */
static void a_second_kill_at_the_start_of_a_pass_leaves_no_old_number(void)
{
    static char states[2][STAGER_STATE_BYTES], merged[STAGER_STATE_BYTES];
    struct fixture fixture;
    struct fixture_status status;
    struct seat seats[2];
    bool got[40] = {false};
    begin(&fixture, "num_clients: 2", seats, 2);
    seats[0].got = seats[1].got = got;
    share(seats, 2, 40);
    for (size_t i = 0; i < 2; i++)
        fixture_expect_code(seats[i].stream, STAGER_OUT_OF_RANGE, "end of pass");
    while (recorded_pass(&fixture) == 0) /* until the test's own limit */
        usleep(1000);
    fixture_kill(&fixture);
    for (size_t i = 0; i < 2; i++)
        CHECK_INT(stager_rewind(seats[i].stream), 0);
    fixture_restart(&fixture);
    memset(got, 0, sizeof(got));
    int64_t until = now_millis() + fixture_millis(TAKE_MILLIS);
    do { /* a comes, and waits for b */
        int rc = look(&seats[0], 10);
        CHECK(rc == 0 || rc == -STAGER_DEADLINE_EXCEEDED);
        fixture_status(&fixture, "p", &status);
    } while (!is_reconnecting(&status, NULL) && now_millis() < until);
    share(&seats[1], 1, 2);
    kill_and_restart(&fixture);
    share(seats, 2, 20);
    for (size_t i = 0; i < 2; i++)
        state_of(seats[i].stream, states[i]);
    const char *both[] = {states[0], states[1]};
    if (stager_merge_states(both, 2, merged, sizeof(merged)) < 0)
        FAIL("merge: %s", stager_error_text(NULL));
    share(seats, 2, 40);
    end(&fixture, seats, 2);
}

static void a_stop_while_clients_reconnect_changes_nothing(void)
{
    static const char *const staged[] = {
        "num_clients: 2", "num_clients: 2, delivery: round_robin",
        "num_clients: 2, delivery: broadcast, capacity: 4"};
    for (size_t i = 0; i < sizeof(staged) / sizeof(staged[0]); i++) {
        struct fixture fixture;
        struct fixture_status status;
        struct seat seats[2];
        begin(&fixture, staged[i], seats, 2);
        (void)take(seats, 2, 0);
        (void)take(seats, 2, 1);
        kill_and_restart(&fixture);
        int64_t until = now_millis() + fixture_millis(TAKE_MILLIS);
        do { /* a comes, and waits for b */
            (void)look(&seats[0], 10);
            fixture_status(&fixture, "p", &status);
        } while (!is_reconnecting(&status, NULL) && now_millis() < until);
        fixture_stop(&fixture);
        fixture_restart(&fixture);
        for (int n = 0; n < 4; n++) {
            (void)take(seats, 2, 0);
            (void)take(seats, 2, 1);
        }
        end(&fixture, seats, 2);
    }
}

static void a_stream_that_was_closed_before_is_not_waited_for(void)
{
    struct fixture fixture;
    struct seat seats[2];
    bool got[40] = {false};
    begin(&fixture, "num_clients: 2", seats, 2);
    seats[0].got = seats[1].got = got;
    share(seats, 2, 8);
    stager_close(seats[1].stream);
    kill_and_restart(&fixture);
    share(seats, 1, 40);
    end(&fixture, seats, 1);
}

/* ---- a client that ends with stagerd ---- */

/* A client in another process, which looks for a batch when the test says so. */
static void puppet_body(struct fixture *fixture, int fd, void *state)
{
    struct seat seat = {.stream = open_stream(fixture, "a", state)};
    trainer_send(fd, 0);
    for (int64_t millis = trainer_recv(fd); millis >= 0; millis = trainer_recv(fd))
        trainer_send(fd, look(&seat, (int)millis));
    stager_close(seat.stream);
}

static void start_puppet(struct fixture *fixture, struct trainer *puppet, char *state)
{
    trainer_start(puppet, puppet_body, fixture, state);
    CHECK_INT(trainer_recv(puppet->fd), 0);
}

static int look_of(const struct trainer *puppet, int64_t millis)
{
    trainer_send(puppet->fd, millis);
    return (int)trainer_recv(puppet->fd);
}

static void kill_with_stagerd(struct fixture *fixture, struct trainer *puppet)
{
    fixture_kill(fixture);
    trainer_kill(puppet);
    fixture_restart(fixture);
}

static bool is_attached(struct fixture *fixture, uint32_t n)
{
    struct fixture_status status;
    fixture_status(fixture, "p", &status);
    return status.n_attached == n;
}

/* a has come back to stagerd, and waits for b. */
static void wait_for_arrival(struct fixture *fixture, const struct trainer *a)
{
    struct fixture_status status;
    int64_t until = now_millis() + fixture_millis(TAKE_MILLIS);
    do {
        (void)look_of(a, 10);
        fixture_status(fixture, "p", &status);
        CHECK(now_millis() < until);
    } while (!is_reconnecting(&status, NULL));
}

static void look_until_attached(struct fixture *fixture, struct seat *seat)
{
    int64_t until = now_millis() + fixture_millis(TAKE_MILLIS);
    while (!is_attached(fixture, 1)) {
        int rc = look(seat, 10);
        if (rc < 0 && rc != -STAGER_DEADLINE_EXCEEDED)
            FAIL("%d: %s", rc, stager_error_text(seat->stream));
        CHECK(now_millis() < until);
    }
}

/* Once b is back and a is not yet, stagerd is killed again, and a with it. */
static void a_run_that_goes_on_has_begun_before_all_are_back(void)
{
    static char early[STAGER_STATE_BYTES];
    struct fixture fixture;
    struct seat seats[2];
    struct trainer a;
    begin(&fixture, "num_clients: 2, delivery: broadcast, capacity: 4", seats, 0);
    start_puppet(&fixture, &a, NULL);
    seats[0] = (struct seat){.stream = open_stream(&fixture, "b", NULL)};
    CHECK_INT(look_of(&a, TAKE_MILLIS), 0);
    CHECK_INT(take(seats, 1, 0), 0);
    state_of(seats[0].stream, early);
    CHECK_INT(take(seats, 1, 0), 1);
    CHECK_INT(take(seats, 1, 0), 2);
    kill_and_restart(&fixture);
    wait_for_arrival(&fixture, &a);
    look_until_attached(&fixture, &seats[0]);
    kill_with_stagerd(&fixture, &a);
    CHECK_INT(take(seats, 1, 0), 3);
    CHECK_INT(take(seats, 1, 0), 4); /* without a */
    seats[1] = (struct seat){.stream = open_stream(&fixture, "a", early)};
    CHECK_INT(take(seats, 2, 1), 1); /* in a run of its own */
    CHECK_INT(take(seats, 2, 0), 5);
    end(&fixture, seats, 2);
}

/* The next stagerd makes no arena while that file is there. */
static void hold_arenas(struct fixture *fixture, char hold[128])
{
    snprintf(hold, 128, "%s/hold", fixture->dir);
    int fd = open(hold, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
    setenv("STG_HOLD", hold, 1);
    fixture->preload = SLOW_ARENA_PATH;
}

static bool is_being_made(struct fixture *fixture)
{
    struct fixture_status status;
    fixture_status(fixture, "p", &status);
    return strcmp(status.state, "reconnecting") != 0;
}

static void look_until_made(struct fixture *fixture, struct seat *seat)
{
    int64_t until = now_millis() + fixture_millis(TAKE_MILLIS);
    while (!is_being_made(fixture)) {
        (void)look(seat, 10);
        CHECK(now_millis() < until);
    }
}

/* Both have come back; a ends while stagerd makes the arena. */
static void a_client_that_ends_while_the_run_is_made_is_not_waited_for(void)
{
    struct fixture fixture;
    struct seat seats[1];
    struct trainer a;
    char hold[128];
    begin(&fixture, "num_clients: 2, delivery: broadcast, capacity: 4", seats, 0);
    start_puppet(&fixture, &a, NULL);
    seats[0] = (struct seat){.stream = open_stream(&fixture, "b", NULL)};
    for (int i = 0; i < 3; i++)
        CHECK_INT(take(seats, 1, 0), i);
    hold_arenas(&fixture, hold);
    kill_and_restart(&fixture);
    wait_for_arrival(&fixture, &a);
    look_until_made(&fixture, &seats[0]);
    trainer_kill(&a);
    int64_t until = now_millis() + 300; /* stagerd sees that */
    while (now_millis() < until)
        (void)look(&seats[0], 10);
    unlink(hold);
    CHECK_INT(take(seats, 1, 0), 3);
    CHECK_INT(take(seats, 1, 0), 4);
    end(&fixture, seats, 1);
}

/* A run that has nothing of the one before it. */
static void begin_anew(struct fixture *fixture)
{
    struct seat seats[2] = {{.stream = open_stream(fixture, "c", NULL)},
                            {.stream = open_stream(fixture, "d", NULL)}};
    for (int i = 0; i < 4; i++)
        CHECK_INT(take(seats, 2, (size_t)i % 2), i);
    end(fixture, seats, 2);
}

static void begin_ranks(struct fixture *fixture, struct trainer *a, struct seat *b)
{
    begin(fixture, "num_clients: 2, delivery: round_robin", b, 0);
    start_puppet(fixture, a, NULL);
    *b = (struct seat){.stream = open_stream(fixture, "b", NULL)};
    CHECK_INT(take(b, 1, 0), 1);
}

/* Both ranks have come back; a ends while stagerd makes the arena. */
static void a_rank_that_ends_while_the_run_is_made_is_named(void)
{
    struct fixture fixture;
    struct seat b;
    struct trainer a;
    char hold[128];
    begin_ranks(&fixture, &a, &b);
    hold_arenas(&fixture, hold);
    kill_and_restart(&fixture);
    wait_for_arrival(&fixture, &a);
    look_until_made(&fixture, &b);
    trainer_kill(&a);
    expect_end(&b, STAGER_ABORTED, "that had reconnected are missing: a (pid");
    unlink(hold);
    stager_close(b.stream);
    begin_anew(&fixture);
}

/* a attaches and ends, and b, which has come back before, attaches then. */
static void a_rank_that_ends_before_another_has_attached_is_named(void)
{
    struct fixture fixture;
    struct fixture_status status;
    struct seat b;
    struct trainer a;
    begin_ranks(&fixture, &a, &b);
    kill_and_restart(&fixture);
    int64_t until = now_millis() + fixture_millis(TAKE_MILLIS);
    do {
        (void)look(&b, 10);
        fixture_status(&fixture, "p", &status);
        CHECK(now_millis() < until);
    } while (!is_reconnecting(&status, NULL));
    while (!is_attached(&fixture, 1)) {
        (void)look_of(&a, 10);
        CHECK(now_millis() < until);
    }
    trainer_kill(&a);
    expect_end(&b, STAGER_ABORTED, "that had reconnected are missing: a (pid");
    stager_close(b.stream);
    begin_anew(&fixture);
}

static void a_client_that_ended_before_the_run_began_opens_again_at_its_state(void)
{
    static char early[STAGER_STATE_BYTES], late[STAGER_STATE_BYTES];
    struct fixture fixture;
    struct seat seats[3];
    struct trainer a;
    begin(&fixture, "num_clients: 3, delivery: broadcast, capacity: 8", seats, 3);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(take(seats, 3, 0), i);
        state_of(seats[0].stream, i == 0 ? early : late);
    }
    for (size_t i = 0; i < 3; i++)
        stager_close(seats[i].stream);
    start_puppet(&fixture, &a, early);
    seats[0] = (struct seat){.stream = open_stream(&fixture, "b", late)};
    for (int kills = 0; kills < 2; kills++) {
        if (kills == 0)
            kill_with_stagerd(&fixture, &a);
        else
            kill_and_restart(&fixture);
        CHECK_INT(look(&seats[0], 10), -STAGER_DEADLINE_EXCEEDED);
        look_until_attached(&fixture, &seats[0]);
    }
    seats[1] = (struct seat){.stream = open_stream(&fixture, "a", early)};
    seats[2] = (struct seat){.stream = open_stream(&fixture, "c", late)};
    CHECK_INT(take(seats, 3, 1), 1);
    CHECK_INT(take(seats, 3, 0), 4);
    CHECK_INT(take(seats, 3, 2), 4);
    end(&fixture, seats, 3);
}

/* ---- runs that cannot go on ---- */

static void record_path(const struct fixture *fixture, char path[256])
{
    snprintf(path, 256, "%s/runs/p", fixture->runtime);
}

static void a_damaged_record_ends_the_streams(void)
{
    struct fixture fixture;
    struct seat seats[1];
    struct stat st;
    char path[256], byte;
    begin(&fixture, "num_clients: 1", seats, 1);
    CHECK_INT(take(seats, 1, 0), 0);
    record_path(&fixture, path);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    fixture_kill(&fixture);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, &byte, 1, 30) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, 30) == 1);
    close(fd);
    fixture_restart(&fixture);
    fixture_wait_log(&fixture, "not a record of a run");
    expect_end(&seats[0], STAGER_ABORTED, "is not there any more");
    CHECK(stat(path, &st) < 0);
    end(&fixture, seats, 1);
}

static void a_record_goes_with_the_last_client_and_with_the_pipeline(void)
{
    struct fixture fixture;
    struct seat seats[1];
    struct stat st;
    char path[256];
    begin(&fixture, "num_clients: 1", seats, 1);
    record_path(&fixture, path);
    CHECK_INT(stat(path, &st), 0);
    stager_close(seats[0].stream);
    CHECK(stat(path, &st) < 0);
    seats[0] = (struct seat){.stream = open_stream(&fixture, "a", NULL)};
    CHECK_INT(stat(path, &st), 0);
    fixture_apply_range(&fixture, 41, "num_clients: 1");
    CHECK(stat(path, &st) < 0);
    end(&fixture, seats, 1);
}

static void a_record_goes_with_the_last_place_of_a_rank(void)
{
    struct fixture fixture;
    struct seat seats[2];
    struct stat st;
    char path[256];
    begin(&fixture, "num_clients: 2, delivery: round_robin, reconnect_grace_millis: 300",
          seats, 2);
    record_path(&fixture, path);
    CHECK_INT(take(seats, 2, 0), 0);
    stager_close(seats[0].stream);
    stager_close(seats[1].stream);
    CHECK_INT(stat(path, &st), 0); /* they are away */
    int64_t until = now_millis() + fixture_millis(10000);
    while (stat(path, &st) == 0 && now_millis() < until)
        usleep(1000);
    CHECK(stat(path, &st) < 0);
    fixture_finish(&fixture);
}

static void a_pipeline_that_was_replaced_meanwhile_ends_the_streams(void)
{
    struct fixture fixture;
    struct seat seats[2];
    bool got[40] = {false};
    begin(&fixture, "num_clients: 2", seats, 2);
    seats[0].got = seats[1].got = got;
    share(seats, 2, 8);
    kill_and_restart(&fixture);
    wait_for_end(&seats[0]);
    fixture_apply_range(&fixture, 50, "num_clients: 2");
    expect_end(&seats[0], STAGER_ABORTED, "stagerd was started again");
    expect_end(&seats[1], STAGER_ABORTED, "stagerd was started again");
    end(&fixture, seats, 2);
}

static void other_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = open_stream(fixture, "a", NULL);
    trainer_send(fd, 1);
    trainer_recv(fd);
    stager_close(stream);
}

static void a_later_attempt_fences_a_stream_that_reconnects(void)
{
    struct fixture fixture;
    struct seat seats[2];
    struct trainer other;
    begin(&fixture,
          "num_clients: 2, delivery: broadcast, capacity: 4, reconnect_grace_millis: 1",
          seats, 2);
    CHECK_INT(take(seats, 2, 0), 0);
    CHECK_INT(take(seats, 2, 1), 0);
    kill_and_restart(&fixture);
    for (int i = 1; i < 4; i++)
        CHECK_INT(take(&seats[1], 1, 0), i);
    trainer_start(&other, other_body, &fixture, NULL);
    CHECK_INT(trainer_recv(other.fd), 1);
    expect_end(&seats[0], STAGER_FAILED_PRECONDITION, "another trainer has taken over");
    trainer_send(other.fd, 1);
    trainer_join(&other);
    end(&fixture, seats, 2);
}

static const struct stg_test tests[] = {
    TEST_SLOW(states_of_before_and_after_a_restart_merge, 60),
    TEST_SLOW(a_step_may_have_a_restart_in_it, 60),
    TEST_SLOW(ranks_go_on_in_step, 60),
    TEST_SLOW(each_client_of_a_broadcast_goes_on_at_its_own_place, 60),
    TEST_SLOW(another_client_waits_for_those_that_reconnect, 60),
    TEST_SLOW(a_client_that_comes_too_late_has_lost_its_batches, 60),
    TEST_SLOW(a_late_client_of_a_broadcast_loses_nothing, 60),
    TEST_SLOW(a_client_that_never_reconnects_is_not_waited_for, 60),
    TEST_SLOW(a_stream_that_was_closed_meanwhile_is_not_waited_for, 60),
    TEST_SLOW(a_second_kill_while_clients_reconnect_changes_nothing, 60),
    TEST_SLOW(a_second_kill_at_the_start_of_a_pass_leaves_no_old_number, 60),
    TEST_SLOW(a_stop_while_clients_reconnect_changes_nothing, 60),
    TEST_SLOW(a_stream_that_was_closed_before_is_not_waited_for, 60),
    TEST_SLOW(a_run_that_goes_on_has_begun_before_all_are_back, 60),
    TEST_SLOW(a_client_that_ends_while_the_run_is_made_is_not_waited_for, 60),
    TEST_SLOW(a_rank_that_ends_while_the_run_is_made_is_named, 60),
    TEST_SLOW(a_rank_that_ends_before_another_has_attached_is_named, 60),
    TEST_SLOW(a_client_that_ended_before_the_run_began_opens_again_at_its_state, 60),
    TEST_SLOW(a_record_goes_with_the_last_place_of_a_rank, 60),
    TEST_SLOW(a_damaged_record_ends_the_streams, 60),
    TEST_SLOW(a_record_goes_with_the_last_client_and_with_the_pipeline, 60),
    TEST_SLOW(a_pipeline_that_was_replaced_meanwhile_ends_the_streams, 60),
    TEST_SLOW(a_later_attempt_fences_a_stream_that_reconnects, 60),
};
TEST_MAIN(tests)
