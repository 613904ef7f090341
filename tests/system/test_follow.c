/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline is replaced under streams that follow it: where each delivery goes on, and
 * what ends a stream in place of that. The streams of a test are of one thread, which
 * calls each of them in turn.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define TAKE_MILLIS 20000
#define MAX 512

/* A stream, and what it got. */
struct seat {
    struct stager_stream *stream;
    int64_t values[MAX];
    uint64_t generations[MAX];
    uint32_t n, first; /* first: not looked at yet */
};

static struct stager_stream *open_stream(struct fixture *fixture, const char *id,
                                         uint32_t follow)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = id,
                                     .runtime_dir = fixture->runtime,
                                     .max_in_flight = 1,
                                     .follow = follow};
    struct stager_stream *stream;
    if (stager_open(NULL, "p", &options, &stream) < 0)
        FAIL("open: %s", stager_error_text(NULL));
    return stream;
}

static int64_t value_of(struct stager_batch *batch)
{
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, "value", &tensor), 0);
    return *(const int64_t *)tensor.data;
}

static uint64_t generation_of(struct stager_batch *batch)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    CHECK_INT(stager_batch_info(batch, &info), 0);
    return info.generation;
}

static struct stager_stream_info info_of(const struct stager_stream *stream)
{
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    CHECK_INT(stager_stream_info(stream, &info), 0);
    return info;
}

static int look(struct seat *seat, int millis)
{
    struct stager_batch *batch;
    int rc = stager_next(seat->stream, millis, &batch);
    if (rc != 0)
        return rc;
    CHECK(seat->n < MAX);
    seat->generations[seat->n] = generation_of(batch);
    seat->values[seat->n++] = value_of(batch);
    stager_release(batch);
    return 0;
}

/* Calls the seats in turn until one of them has a value that was not looked at. */
static void await(struct seat *seats, size_t n, size_t which)
{
    int64_t end = now_millis() + fixture_millis(TAKE_MILLIS);
    while (seats[which].first == seats[which].n) {
        for (size_t i = 0; i < n && seats[which].first == seats[which].n; i++) {
            size_t k = (which + i) % n;
            int rc = look(&seats[k], 5);
            if (rc < 0 && rc != -STAGER_DEADLINE_EXCEEDED)
                FAIL("seat %zu: %d: %s", k, rc, stager_error_text(seats[k].stream));
        }
        if (now_millis() > end)
            FAIL("seat %zu: %s", which, stager_error_text(seats[which].stream));
    }
}

static int64_t take(struct seat *seats, size_t n, size_t which)
{
    await(seats, n, which);
    return seats[which].values[seats[which].first++];
}

static void begin(struct fixture *fixture, const char *staged, struct seat *seats,
                  size_t n)
{
    static const char *const names[] = {"a", "b", "c"};
    fixture_start(fixture, "");
    fixture_apply_range(fixture, 40, staged);
    for (size_t i = 0; i < n; i++)
        seats[i] = (struct seat){.stream = open_stream(fixture, names[i], 1)};
}

static void end(struct fixture *fixture, struct seat *seats, size_t n)
{
    for (size_t i = 0; i < n; i++)
        stager_close(seats[i].stream);
    fixture_finish(fixture);
}

/* Another version of the same content: the items are the same. */
static void replace(struct fixture *fixture, int capacity, const char *staged)
{
    char keys[256];
    snprintf(keys, sizeof(keys), "capacity: %d%s%s", capacity,
             staged[0] != '\0' ? ", " : "", staged);
    fixture_apply_range(fixture, 40, keys);
}

/* Other content: values from `start` on. */
static const char *other(int start, const char *staged, char buf[512])
{
    snprintf(buf, 512,
             "name: p\ndataset:\n  - range: {start: %d, stop: 1000}\nstaged: {%s}\n",
             start, staged);
    return buf;
}

static void expect_end(struct seat *seat, int code, const char *text)
{
    int rc;
    while ((rc = look(seat, (int)fixture_millis(TAKE_MILLIS))) == 0) {
    }
    if (rc != -code)
        FAIL("%d: %s", rc, stager_error_text(seat->stream));
    CHECK_CONTAINS(stager_error_text(seat->stream), text);
    CHECK_INT(info_of(seat->stream).finished, 1);
}

/* Generations never go back. */
static void check_generations(const struct seat *seat)
{
    for (uint32_t i = 1; i < seat->n; i++)
        CHECK(seat->generations[i] >= seat->generations[i - 1]);
}

/* ---- the same content: each delivery goes on where it is ---- */

static void one_client_gets_each_item_once_and_in_order(void)
{
    struct fixture fixture;
    struct seat seat;
    begin(&fixture, "capacity: 3", &seat, 1);
    for (int i = 0; i < 40; i++) {
        if (i % 7 == 5)
            replace(&fixture, 2 + i % 3, "");
        CHECK_INT(take(&seat, 1, 0), i);
    }
    CHECK(info_of(seat.stream).generation >= 4);
    CHECK_INT(info_of(seat.stream).followed, info_of(seat.stream).generation - 1);
    CHECK_INT(info_of(seat.stream).reconnects, 0);
    check_generations(&seat);
    fixture_expect_code(seat.stream, STAGER_OUT_OF_RANGE, "end of pass 0");
    CHECK_INT(stager_rewind(seat.stream), 0);
    CHECK_INT(take(&seat, 1, 0), 0);
    end(&fixture, &seat, 1);
}

static uint32_t count(const struct seat *seats, size_t n, bool got[40])
{
    uint32_t n_got = 0;
    memset(got, 0, 40 * sizeof(*got));
    for (size_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < seats[k].n; i++) {
            if (got[seats[k].values[i]])
                FAIL("value %d is there again", (int)seats[k].values[i]);
            got[seats[k].values[i]] = true;
            n_got++;
        }
    }
    return n_got;
}

/* Calls the seats in turn until they have so many values together. */
static void share(struct seat *seats, size_t n, uint32_t n_values)
{
    bool got[40];
    int64_t end = now_millis() + fixture_millis(TAKE_MILLIS);
    for (size_t k = 0; count(seats, n, got) < n_values; k = (k + 1) % n) {
        int rc = look(&seats[k], 5);
        if (rc < 0 && rc != -STAGER_DEADLINE_EXCEEDED)
            FAIL("seat %zu: %d: %s", k, rc, stager_error_text(seats[k].stream));
        if (now_millis() > end)
            FAIL("%u values: %s", count(seats, n, got),
                 stager_error_text(seats[k].stream));
    }
}

static void clients_of_a_split_get_each_item_once(void)
{
    struct fixture fixture;
    struct seat seats[3];
    begin(&fixture, "num_clients: 3, capacity: 2", seats, 3);
    for (int i = 1; i <= 3; i++) {
        share(seats, 3, (uint32_t)(8 * i));
        replace(&fixture, 2 + i, "num_clients: 3");
    }
    share(seats, 3, 40);
    for (int i = 0; i < 3; i++) {
        fixture_expect_code(seats[i].stream, STAGER_OUT_OF_RANGE, "end of pass 0");
        CHECK_INT(info_of(seats[i].stream).generation, 4);
        check_generations(&seats[i]);
    }
    end(&fixture, seats, 3);
}

static void ranks_stay_in_step(void)
{
    struct fixture fixture;
    struct seat seats[3];
    begin(&fixture, "num_clients: 3, delivery: round_robin", seats, 3);
    for (int round = 0; round < 13; round++) {
        for (size_t k = 0; k < 3; k++)
            CHECK_INT(take(seats, 3, k), 3 * round + (int)k);
        if (round % 4 == 3)
            replace(&fixture, 2 + round / 4 % 2, "num_clients: 3, delivery: round_robin");
    }
    for (int i = 0; i < 3; i++)
        CHECK(info_of(seats[i].stream).generation >= 2);
    end(&fixture, seats, 3);
}

static void each_client_of_a_broadcast_gets_every_item(void)
{
    struct fixture fixture;
    struct seat seats[2];
    int64_t next[2] = {0, 0};
    begin(&fixture, "num_clients: 2, delivery: broadcast, capacity: 8", seats, 2);
    for (int n = 0; n < 3; n++) {
        for (int i = 0; i < 6; i++)
            CHECK_INT(take(seats, 2, 0), next[0]++);
        for (int i = 0; i < 2; i++)
            CHECK_INT(take(seats, 2, 1), next[1]++);
        replace(&fixture, 9 + n, "num_clients: 2, delivery: broadcast");
    }
    while (next[0] < 40)
        CHECK_INT(take(seats, 2, 0), next[0]++);
    while (next[1] < 40)
        CHECK_INT(take(seats, 2, 1), next[1]++);
    end(&fixture, seats, 2);
}

/* The items of a batch differ, and no element is lost. */
static void another_batch_size_goes_on_at_the_next_element(void)
{
    struct fixture fixture;
    struct seat seat = {0};
    fixture_start(&fixture, "");
    int64_t next = 0;
    for (int size = 2; size <= 4; size++) {
        char yaml[512];
        snprintf(yaml, sizeof(yaml),
                 "name: p\ndataset:\n  - range: {stop: 400}\n"
                 "  - batch: {batch_size: %d}\nstaged: {capacity: 2}\n",
                 size);
        fixture_apply(&fixture, yaml);
        if (size == 2)
            seat.stream = open_stream(&fixture, "a", 1);
        uint64_t generation = 0;
        while (generation < (uint64_t)size - 1) {
            struct stager_batch *batch = fixture_take(seat.stream);
            struct stager_batch_info info = {.struct_size = sizeof(info)};
            CHECK_INT(stager_batch_info(batch, &info), 0);
            CHECK_INT(value_of(batch), next);
            CHECK_INT(info.n_rows, (uint64_t)info.generation + 1);
            next += (int64_t)info.n_rows;
            generation = info.generation;
            stager_release(batch);
        }
    }
    end(&fixture, &seat, 1);
}

static void several_versions_in_a_row_are_one_step(void)
{
    struct fixture fixture;
    struct seat seats[2];
    begin(&fixture, "num_clients: 2", seats, 2);
    share(seats, 2, 10);
    for (int i = 0; i < 4; i++)
        replace(&fixture, 20 + i, "num_clients: 2");
    share(seats, 2, 40);
    CHECK_INT(info_of(seats[0].stream).followed, 1);
    CHECK_INT(info_of(seats[1].stream).followed, 1);
    end(&fixture, seats, 2);
}

/* The second version has no run yet: a waits for b there. */
static void a_version_is_replaced_while_clients_gather_for_it(void)
{
    struct fixture fixture;
    struct seat seats[2];
    begin(&fixture, "num_clients: 2", seats, 2);
    share(seats, 2, 10);
    replace(&fixture, 20, "num_clients: 2");
    int rc;
    while ((rc = look(&seats[0], 200)) == 0) {
    }
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(seats[0].stream), "replaced by generation 2");
    CHECK_INT(info_of(seats[0].stream).finished, 0);
    replace(&fixture, 21, "num_clients: 2");
    share(seats, 2, 40);
    CHECK_INT(info_of(seats[0].stream).generation, 3);
    CHECK_INT(info_of(seats[1].stream).generation, 3);
    end(&fixture, seats, 2);
}

static void a_rollback_is_followed(void)
{
    struct fixture fixture;
    struct seat seat;
    struct stager *client;
    struct stg_reply reply;
    struct stg_err err = {0};
    begin(&fixture, "capacity: 3", &seat, 1);
    replace(&fixture, 5, "");
    for (int i = 0; i < 9; i++)
        CHECK_INT(take(&seat, 1, 0), i);
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_ROLLBACK, .name = "p"};
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    stager_disconnect(client);
    for (int i = 9; i < 40; i++)
        CHECK_INT(take(&seat, 1, 0), i);
    CHECK_INT(info_of(seat.stream).generation, 3);
    end(&fixture, &seat, 1);
}

static void apply_warm(struct fixture *fixture, const char *yaml)
{
    struct stager *client;
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                  .text = yaml,
                                  .text_bytes = strlen(yaml),
                                  .warm = true,
                                  .replace = true};
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    stager_disconnect(client);
}

static void a_warm_version_is_followed(void)
{
    struct fixture fixture;
    struct seat seat;
    char yaml[512];
    begin(&fixture, "capacity: 3", &seat, 1);
    for (int i = 0; i < 9; i++)
        CHECK_INT(take(&seat, 1, 0), i);
    apply_warm(&fixture, "name: p\ndataset:\n  - range: {stop: 40}\n"
                         "staged: {capacity: 7}\n");
    for (int i = 9; i < 40; i++)
        CHECK_INT(take(&seat, 1, 0), i);
    apply_warm(&fixture, other(500, "capacity: 4", yaml));
    CHECK_INT(look(&seat, 0), -STAGER_OUT_OF_RANGE);
    CHECK_INT(stager_rewind(seat.stream), 0);
    for (int i = 500; i < 520; i++)
        CHECK_INT(take(&seat, 1, 0), i);
    end(&fixture, &seat, 1);
}

/* ---- other content: from its beginning ---- */

/* Returns the first value that is not of the old version, whose values go on from
 * `next`. */
static int64_t take_rest(struct seat *seats, size_t n, size_t which, int64_t next,
                         int64_t step)
{
    int64_t value = take(seats, n, which);
    while (value < 100) {
        CHECK_INT(value, next);
        next += step;
        value = take(seats, n, which);
    }
    return value;
}

static void other_content_begins_at_its_start(void)
{
    struct fixture fixture;
    struct seat seats[2];
    char yaml[512];
    begin(&fixture, "capacity: 3", seats, 1);
    CHECK_INT(take(seats, 1, 0), 0);
    fixture_apply(&fixture, other(100, "capacity: 3", yaml));
    CHECK_INT(take_rest(seats, 1, 0, 1, 1), 100);
    CHECK_INT(seats[0].generations[seats[0].n - 1], 2);
    CHECK_INT(take(seats, 1, 0), 101);
    check_generations(&seats[0]);
    end(&fixture, seats, 1);

    begin(&fixture, "num_clients: 2, delivery: broadcast", seats, 2);
    CHECK_INT(take(seats, 2, 0), 0);
    CHECK_INT(take(seats, 2, 1), 0);
    fixture_apply(&fixture, other(100, "num_clients: 2, delivery: broadcast", yaml));
    CHECK_INT(take_rest(seats, 2, 0, 1, 1), 100);
    CHECK_INT(take_rest(seats, 2, 1, 1, 1), 100);
    CHECK_INT(take(seats, 2, 0), 101);
    CHECK_INT(take(seats, 2, 1), 101);
    end(&fixture, seats, 2);

    begin(&fixture, "num_clients: 2, delivery: round_robin", seats, 2);
    CHECK_INT(take(seats, 2, 0), 0);
    CHECK_INT(take(seats, 2, 1), 1);
    fixture_apply(&fixture, other(100, "num_clients: 2, delivery: round_robin", yaml));
    int64_t a = take_rest(seats, 2, 0, 2, 2), b = take_rest(seats, 2, 1, 3, 2);
    CHECK_INT(a + b, 201); /* ranks are the order of joining */
    end(&fixture, seats, 2);
}

/* Batches that are on their way come first, and a batch in hand stays. */
static void batches_of_the_old_version_come_first(void)
{
    struct fixture fixture;
    char yaml[512];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 40, "capacity: 2");
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime,
                                     .max_in_flight = 4,
                                     .follow = 1};
    struct stager_stream *stream;
    CHECK_INT(stager_open(NULL, "p", &options, &stream), 0);
    struct stager_batch *held = fixture_take(stream), *batch;
    fixture_apply(&fixture, other(100, "capacity: 2", yaml));
    int64_t next = 1;
    for (;;) {
        batch = fixture_take(stream);
        if (generation_of(batch) == 2)
            break;
        CHECK_INT(value_of(batch), next++);
        stager_release(batch);
    }
    CHECK(next >= 3);
    CHECK_INT(value_of(batch), 100);
    CHECK_INT(value_of(held), 0);
    CHECK_INT(generation_of(held), 1);
    CHECK_INT(info_of(stream).held, 2);
    stager_release(held);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void another_number_of_clients_begins_at_the_start(void)
{
    struct fixture fixture;
    struct seat seat;
    begin(&fixture, "num_clients: 1", &seat, 1);
    for (int i = 0; i < 10; i++)
        CHECK_INT(take(&seat, 1, 0), i);
    fixture_apply_range(&fixture, 40, "num_clients: 2");
    int64_t next = 10, value;
    while ((value = take(&seat, 1, 0)) == next)
        next++;
    CHECK_INT(value, 0);
    CHECK_INT(take(&seat, 1, 0), 1);
    end(&fixture, &seat, 1);
}

/* ---- what ends it ---- */

static void without_follow_a_stream_ends_as_before(void)
{
    struct fixture fixture;
    struct seat seats[2];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 40, "num_clients: 2, delivery: broadcast, capacity: 4");
    seats[0] = (struct seat){.stream = open_stream(&fixture, "a", 1)};
    seats[1] = (struct seat){.stream = open_stream(&fixture, "b", 0)};
    CHECK_INT(take(seats, 2, 0), 0);
    replace(&fixture, 5, "num_clients: 2, delivery: broadcast");
    expect_end(&seats[1], STAGER_ABORTED, "replaced by generation 2");
    for (int i = 1; i < 10; i++)
        CHECK_INT(take(seats, 1, 0), i);
    end(&fixture, seats, 2);
}

/* A split goes on where it is only if all its clients do. */
static void a_split_with_a_client_that_ends_begins_at_the_start(void)
{
    struct fixture fixture;
    struct seat seats[2];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 40, "num_clients: 2");
    seats[0] = (struct seat){.stream = open_stream(&fixture, "a", 1)};
    seats[1] = (struct seat){.stream = open_stream(&fixture, "b", 0)};
    share(seats, 2, 10);
    replace(&fixture, 5, "num_clients: 2");
    expect_end(&seats[1], STAGER_ABORTED, "replaced by generation 2");
    while (info_of(seats[0].stream).generation == 1) {
        seats[0].first = seats[0].n;
        (void)take(seats, 1, 0);
    }
    CHECK_INT(seats[0].values[seats[0].n - 1], 0);
    end(&fixture, seats, 2);
}

static void delete_pipeline(struct fixture *fixture)
{
    struct stg_reply reply;
    stager_disconnect(fixture_ask(fixture, STG_REQUEST_DELETE, "p", &reply));
}

static void a_pipeline_that_is_deleted_is_not_followed(void)
{
    struct fixture fixture;
    struct seat seats[2];
    begin(&fixture, "num_clients: 2, delivery: broadcast", seats, 2);
    CHECK_INT(take(seats, 2, 0), 0);
    delete_pipeline(&fixture);
    fixture_apply_range(&fixture, 40, "num_clients: 2, delivery: broadcast");
    expect_end(&seats[0], STAGER_ABORTED, "the pipeline was deleted");
    stager_close(seats[0].stream);
    stager_close(seats[1].stream);

    /* Replaced, and deleted before the client has moved. */
    seats[0] = (struct seat){.stream = open_stream(&fixture, "a", 1)};
    seats[1] = (struct seat){.stream = open_stream(&fixture, "b", 1)};
    CHECK_INT(take(seats, 2, 0), 0);
    replace(&fixture, 5, "num_clients: 2, delivery: broadcast");
    delete_pipeline(&fixture);
    expect_end(&seats[0], STAGER_NOT_FOUND, "replaced by generation 2");
    replace(&fixture, 6, "num_clients: 2, delivery: broadcast");
    expect_end(&seats[1], STAGER_ABORTED, "replaced by generation 2");
    end(&fixture, seats, 2);
}

static void expect_refused(const char *yaml, int code, const char *text)
{
    struct fixture fixture;
    struct seat seat;
    begin(&fixture, "capacity: 2", &seat, 1);
    CHECK_INT(take(&seat, 1, 0), 0);
    fixture_apply(&fixture, yaml);
    expect_end(&seat, code, text);
    CHECK_CONTAINS(stager_error_text(seat.stream),
                   "replaced by generation 2, and the stream cannot follow: ");
    CHECK(seat.n >= 3); /* all that was published */
    end(&fixture, &seat, 1);
}

static void a_version_that_does_not_serve_the_client_is_named(void)
{
    expect_refused("name: p\ndataset:\n  - range: {stop: 40}\n"
                   "staged: {features: {number: value}}\n",
                   STAGER_FAILED_PRECONDITION,
                   "generation 2 of pipeline p lacks feature \"value\"");
    expect_refused("name: p\ndataset:\n  - range: {stop: 40}\n"
                   "graph:\n  - {name: f, op: cast, input: [value], dtype: float32}\n"
                   "staged: {features: {value: f}}\n",
                   STAGER_FAILED_PRECONDITION, "feature \"value\" is float32");
}

/* The source of the new version fails, as it would for any stream. */
static void a_version_that_cannot_start_ends_the_stream(void)
{
    struct fixture fixture;
    struct seat seat;
    begin(&fixture, "capacity: 2", &seat, 1);
    CHECK_INT(take(&seat, 1, 0), 0);
    fixture_apply(&fixture,
                  "name: p\ndataset:\n  - files: {pattern: /nowhere/at/all}\n"
                  "  - text_line\n"
                  "graph:\n  - {name: v, op: string_to_number, input: [record], "
                  "out_type: int64}\n"
                  "staged: {features: {value: v}}\n");
    expect_end(&seat, STAGER_NOT_FOUND, "/nowhere/at/all");
    end(&fixture, &seat, 1);
}

static void a_client_that_closes_its_stream_is_not_awaited(void)
{
    struct fixture fixture;
    struct seat seats[2];
    begin(&fixture, "num_clients: 2", seats, 2);
    share(seats, 2, 10);
    replace(&fixture, 5, "num_clients: 2");
    stager_close(seats[1].stream);
    seats[0].first = seats[0].n;
    int64_t began = now_millis();
    while (info_of(seats[0].stream).generation == 1) {
        seats[0].first = seats[0].n;
        (void)take(seats, 1, 0);
    }
    CHECK(now_millis() - began < fixture_millis(20000));
    end(&fixture, seats, 1);
}

static void a_close_in_the_middle_of_a_move_delays_no_other_client(void)
{
    struct fixture fixture;
    struct seat seats[3];
    begin(&fixture, "num_clients: 3", seats, 3);
    share(seats, 3, 12);
    replace(&fixture, 5, "num_clients: 3");
    int rc;
    while ((rc = look(&seats[2], 100)) == 0) {
    }
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED); /* it waits for the others */
    stager_close(seats[2].stream);
    bool got[40];
    uint32_t n = count(seats, 3, got);
    int64_t end_millis = now_millis() + fixture_millis(TAKE_MILLIS);
    while (n < 40 && now_millis() < end_millis) {
        (void)look(&seats[0], 5);
        (void)look(&seats[1], 5);
        n = count(seats, 3, got);
    }
    CHECK_INT(n, 40);
    end(&fixture, seats, 2);
}

/* ---- at the start, and with other events ---- */

static void a_client_that_waits_for_others_waits_in_the_new_version(void)
{
    struct fixture fixture;
    struct seat seats[2];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 40, "num_clients: 2, delivery: round_robin");
    seats[0] = (struct seat){.stream = open_stream(&fixture, "a", 1)};
    CHECK_INT(look(&seats[0], 10), -STAGER_DEADLINE_EXCEEDED);
    replace(&fixture, 5, "num_clients: 2, delivery: round_robin");
    CHECK_INT(look(&seats[0], 50), -STAGER_DEADLINE_EXCEEDED);
    seats[1] = (struct seat){.stream = open_stream(&fixture, "b", 1)};
    for (int round = 0; round < 5; round++) {
        CHECK_INT(take(seats, 2, 0), 2 * round);
        CHECK_INT(take(seats, 2, 1), 2 * round + 1);
    }
    CHECK_INT(info_of(seats[0].stream).followed, 1);
    end(&fixture, seats, 2);
}

/* stagerd is killed after the replace, before a client has moved. */
static void a_restart_in_the_middle_of_a_move_changes_nothing(void)
{
    struct fixture fixture;
    struct seat seats[2];
    begin(&fixture, "num_clients: 2", seats, 2);
    share(seats, 2, 10);
    replace(&fixture, 5, "num_clients: 2");
    fixture_kill(&fixture);
    fixture_restart(&fixture);
    share(seats, 2, 20);
    replace(&fixture, 6, "num_clients: 2");
    int rc;
    while ((rc = look(&seats[0], 100)) == 0) {
    }
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    fixture_kill(&fixture);
    fixture_restart(&fixture);
    share(seats, 2, 40);
    CHECK_INT(info_of(seats[0].stream).generation, 3);
    end(&fixture, seats, 2);
}

/* One of two clients has reconnected, and waits for the other one. */
static void replace_while_clients_reconnect(const char *delivery, int n_items, int step)
{
    struct fixture fixture;
    struct seat seats[2];
    char staged[64];
    snprintf(staged, sizeof(staged), "num_clients: 2, delivery: %s", delivery);
    begin(&fixture, staged, seats, 2);
    (void)take(seats, 2, 0);
    (void)take(seats, 2, 1);
    fixture_kill(&fixture);
    fixture_restart(&fixture);
    int rc;
    while ((rc = look(&seats[0], 100)) == 0) {
    }
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    replace(&fixture, 5, staged);
    if (step == 0)
        share(seats, 2, 40);
    for (int k = 0; step > 0 && k < 2; k++) {
        while ((int)seats[k].first < n_items)
            (void)take(seats, 2, (size_t)k);
        for (int i = 0; i < n_items; i++)
            CHECK_INT(seats[k].values[i], step * i + (step > 1 ? k : 0));
    }
    for (int k = 0; k < 2; k++)
        CHECK_INT(info_of(seats[k].stream).generation, 2);
    end(&fixture, seats, 2);
}

static void a_version_that_comes_while_clients_reconnect_is_followed(void)
{
    replace_while_clients_reconnect("split", 40, 0);
    replace_while_clients_reconnect("round_robin", 20, 2);
    replace_while_clients_reconnect("broadcast", 40, 1);
}

static void state_of(struct stager_stream *stream, char *buf)
{
    int rc = stager_state(stream, buf, STAGER_STATE_BYTES);
    if (rc < 0)
        FAIL("state: %s", stager_error_text(stream));
}

static void a_state_of_the_old_version_commits_where_it_is_valid(void)
{
    struct fixture fixture;
    struct seat seat;
    static char state[STAGER_STATE_BYTES];
    char yaml[512];
    begin(&fixture, "capacity: 2", &seat, 1);
    for (int i = 0; i < 5; i++)
        CHECK_INT(take(&seat, 1, 0), i);
    state_of(seat.stream, state);
    replace(&fixture, 5, "");
    while (info_of(seat.stream).generation == 1) {
        seat.first = seat.n;
        (void)take(&seat, 1, 0);
    }
    CHECK_INT(stager_commit(seat.stream, state, "five"), 0);
    fixture_apply(&fixture, other(100, "", yaml));
    while (info_of(seat.stream).generation == 2) {
        seat.first = seat.n;
        (void)take(&seat, 1, 0);
    }
    CHECK_INT(seat.values[seat.n - 1], 100); /* whatever was committed */
    CHECK_INT(stager_commit(seat.stream, state, "again"), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(seat.stream), "range");
    state_of(seat.stream, state);
    CHECK_INT(stager_commit(seat.stream, state, "other"), 0);
    end(&fixture, &seat, 1);
}

/* ---- in a loop ---- */

static void trainer_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = open_stream(fixture, arg, 1);
    struct stager_batch *batch;
    int rc;
    trainer_send(fd, -1);
    while ((rc = stager_next(stream, -1, &batch)) == 0) {
        int64_t value = value_of(batch);
        stager_release(batch);
        trainer_send(fd, value);
    }
    if (rc != -STAGER_OUT_OF_RANGE)
        FAIL("%d: %s", rc, stager_error_text(stream));
    trainer_send(fd, -2);
    trainer_recv(fd);
    stager_close(stream);
}

/* Replaces the pipeline after each hundred values, and ends stagerd after each third
 * replacement. */
static void replace_loop(const char *staged, uint32_t n_values, bool shares, bool kills)
{
    enum { N = 1200 };
    static const char *const names[] = {"a", "b"};
    struct fixture fixture;
    struct trainer trainers[2];
    static uint32_t got[N];
    char yaml[512];
    bool is_over[2] = {false, false};
    memset(got, 0, sizeof(got));
    fixture_start(&fixture, "");
    snprintf(yaml, sizeof(yaml),
             "name: p\ndataset:\n  - range: {stop: %d}\nstaged: {num_clients: 2, %s, "
             "capacity: 2}\n",
             N, staged);
    fixture_apply(&fixture, yaml);
    for (int i = 0; i < 2; i++)
        trainer_start(&trainers[i], trainer_body, &fixture, (void *)(uintptr_t)names[i]);
    for (int i = 0; i < 2; i++)
        CHECK_INT(trainer_recv(trainers[i].fd), -1);
    uint32_t n = 0, n_replaced = 0;
    while (!is_over[0] || !is_over[1]) {
        struct pollfd fds[2];
        for (int i = 0; i < 2; i++)
            fds[i] =
                (struct pollfd){.fd = is_over[i] ? -1 : trainers[i].fd, .events = POLLIN};
        CHECK(poll(fds, 2, (int)fixture_millis(60000)) > 0);
        for (int i = 0; i < 2; i++) {
            int64_t value = fds[i].revents != 0 ? trainer_recv(trainers[i].fd) : -1;
            is_over[i] |= value == -2;
            if (value >= 0 && ++got[value] > (shares ? 1u : 2u))
                FAIL("value %d is there again", (int)value);
            n += value >= 0;
        }
        if (n / 100 > n_replaced && n < n_values - 200) {
            snprintf(yaml, sizeof(yaml),
                     "name: p\ndataset:\n  - range: {stop: %d}\nstaged: {num_clients: 2, "
                     "%s, capacity: %u}\n",
                     N, staged, 3 + n_replaced % 5);
            fixture_apply(&fixture, yaml);
            n_replaced = n / 100;
            if (kills && n_replaced % 3 == 0) {
                fixture_kill(&fixture);
                fixture_restart(&fixture);
            }
        }
    }
    CHECK_INT(n, n_values);
    for (int i = 0; i < 2; i++) {
        trainer_send(trainers[i].fd, 1);
        trainer_join(&trainers[i]);
    }
    fixture_finish(&fixture);
}

static void trainers_read_through_a_loop_of_versions(void)
{
    replace_loop("delivery: split", 1200, true, false);
    replace_loop("delivery: round_robin", 1200, true, false);
    replace_loop("delivery: broadcast", 2400, false, false);
}

static void trainers_read_through_versions_and_kills(void)
{
    replace_loop("delivery: split", 1200, true, true);
    replace_loop("delivery: round_robin", 1200, true, true);
    replace_loop("delivery: broadcast", 2400, false, true);
}

static const struct stg_test tests[] = {
    TEST_SLOW(one_client_gets_each_item_once_and_in_order, 60),
    TEST_SLOW(clients_of_a_split_get_each_item_once, 60),
    TEST_SLOW(ranks_stay_in_step, 60),
    TEST_SLOW(each_client_of_a_broadcast_gets_every_item, 60),
    TEST_SLOW(another_batch_size_goes_on_at_the_next_element, 60),
    TEST_SLOW(several_versions_in_a_row_are_one_step, 60),
    TEST_SLOW(a_version_is_replaced_while_clients_gather_for_it, 60),
    TEST_SLOW(a_rollback_is_followed, 60),
    TEST_SLOW(a_warm_version_is_followed, 60),
    TEST_SLOW(other_content_begins_at_its_start, 60),
    TEST_SLOW(batches_of_the_old_version_come_first, 60),
    TEST_SLOW(another_number_of_clients_begins_at_the_start, 60),
    TEST_SLOW(without_follow_a_stream_ends_as_before, 60),
    TEST_SLOW(a_split_with_a_client_that_ends_begins_at_the_start, 60),
    TEST_SLOW(a_pipeline_that_is_deleted_is_not_followed, 60),
    TEST_SLOW(a_version_that_does_not_serve_the_client_is_named, 60),
    TEST_SLOW(a_version_that_cannot_start_ends_the_stream, 60),
    TEST_SLOW(a_client_that_closes_its_stream_is_not_awaited, 60),
    TEST_SLOW(a_close_in_the_middle_of_a_move_delays_no_other_client, 60),
    TEST_SLOW(a_client_that_waits_for_others_waits_in_the_new_version, 60),
    TEST_SLOW(a_restart_in_the_middle_of_a_move_changes_nothing, 60),
    TEST_SLOW(a_version_that_comes_while_clients_reconnect_is_followed, 60),
    TEST_SLOW(a_state_of_the_old_version_commits_where_it_is_valid, 60),
    TEST_SLOW(trainers_read_through_a_loop_of_versions, 120),
    TEST_SLOW(trainers_read_through_versions_and_kills, 120),
};
TEST_MAIN(tests)
