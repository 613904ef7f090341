/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainers of a build without some ops of the graph: a real daemon computes the nodes for
 * them, or reports why it cannot.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/transport/connect.h"
#include "tests/check.h"
#include "tests/system/fixture.h"

/* Item i has v = i and word = "<i> x". The trainer of an older build has neither multiply
 * nor floordiv nor string_split. */
static void apply(struct fixture *fixture, int n, const char *smart_stage,
                  const char *staged)
{
    char yaml[4096];
    snprintf(
        yaml, sizeof(yaml),
        "name: p\n"
        "dataset: [{range: {stop: %d}}, {batch: {batch_size: 1}}]\n"
        "graph:\n"
        "  - {name: more, op: add, input: [\"staged:v\", \"staged:v\"]}\n"
        "  - {name: square, op: multiply, input: [\"staged:v\", \"staged:v\"]}\n"
        "  - {name: cube, op: multiply, input: [square, \"staged:v\"]}\n"
        "  - {name: three, op: constant, value: 3, dtype: int64}\n"
        "  - {name: nine, op: multiply, input: [three, three]}\n"
        "  - {name: late, op: add, input: [\"staged:v\", nine]}\n"
        "  - {name: off, op: subtract, input: [\"staged:v\", three]}\n"
        "  - {name: part, op: floordiv, input: [\"staged:v\", off]}\n"
        "  - {name: bias, op: variable, shape: [1], initializer: ones, dtype: int64}\n"
        "  - {name: twice, op: multiply, input: [more, bias]}\n"
        "  - {name: sum, op: add, input: [cube, bias]}\n"
        "  - {name: share, op: add, input: [part, bias]}\n"
        "  - {name: most, op: reduce_sum, input: [cube]}\n"
        "  - {name: wide, op: multiply, input: [\"staged:v\", most]}\n"
        "  - {name: all, op: add, input: [wide, bias]}\n"
        "staged:\n  features: {v: value}\n%s"
        "targets: [sum, more]\nsmart_stage: %s\n",
        n, staged, smart_stage);
    fixture_apply(fixture, yaml);
}

/* From here on this process has the older build: a load of the library by its name
 * returns the one already loaded. */
static void be_older(void)
{
    if (dlopen(STG_UNSUPPORTED_PATH, RTLD_NOW | RTLD_LOCAL) == NULL)
        FAIL("%s", dlerror());
}

static int try_open(struct fixture *fixture, const char *id, const char *fetch,
                    uint32_t batch_size, struct stager_stream **ret)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime,
                                     .client_id = id,
                                     .batch_size = batch_size,
                                     .fetches = fetch != NULL ? &fetch : NULL,
                                     .n_fetches = fetch != NULL};
    return stager_open(NULL, "p", &options, ret);
}

static struct stager_stream *open_for(struct fixture *fixture, const char *fetch)
{
    struct stager_stream *stream;
    if (try_open(fixture, NULL, fetch, 0, &stream) < 0)
        FAIL("open: %s", stager_error_text(NULL));
    return stream;
}

static void check_refused(struct fixture *fixture, const char *fetch, const char *text)
{
    struct stager_stream *stream;
    CHECK_INT(try_open(fixture, NULL, fetch, 0, &stream), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(NULL), text);
}

/* Lists the nodes that run ahead, each preceded by a blank. */
static void check_moved(struct fixture *fixture, const char *moved)
{
    struct stg_reply reply;
    struct stager *client = fixture_ask(fixture, STG_REQUEST_STATUS, "p", &reply);
    char seen[256];
    fixture_moved(&reply.status, seen, sizeof(seen));
    CHECK_STR(seen, moved);
    stager_disconnect(client);
}

static int64_t value_of(const char *fetch, int64_t i)
{
    return strcmp(fetch, "sum") == 0      ? i * i * i + 1
           : strcmp(fetch, "square") == 0 ? i * i
           : strcmp(fetch, "share") == 0  ? i / (i - 3) - (i < 3 && i % (i - 3) != 0) + 1
                                          : 2 * i; /* more */
}

/* Takes the next item and checks it; UINT64_MAX: the end. */
static uint64_t step(struct stager_stream *stream, const char *fetch)
{
    struct stager_batch *batch;
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    struct stager_tensor t;
    int rc = stager_next(stream, fixture_millis(20000), &batch);
    if (rc == -STAGER_OUT_OF_RANGE)
        return UINT64_MAX;
    if (rc < 0)
        FAIL("next: %s", stager_error_text(stream));
    stager_batch_info(batch, &info);
    if (stager_run(stream, batch, &fetch, 1, &t) < 0)
        FAIL("run: %s", stager_error_text(stream));
    CHECK_INT(*(const int64_t *)t.data, value_of(fetch, (int64_t)info.index));
    stager_release(batch);
    return info.index;
}

/* ---- tests ---- */

static void what_a_trainer_lacks_runs_ahead_of_it(void)
{
    static const char *const modes[] = {"on", "auto"};
    for (int m = 0; m < 2; m++) {
        struct fixture fixture;
        fixture_start(&fixture, "");
        apply(&fixture, 5, modes[m], "");
        be_older();
        struct stager_stream *stream = open_for(&fixture, "sum");
        check_moved(&fixture, " square cube");
        for (uint64_t i = 0; i < 5; i++)
            CHECK_INT(step(stream, "sum"), i);
        CHECK(step(stream, "sum") == UINT64_MAX);
        stager_close(stream);
        fixture_finish(&fixture);
    }
}

static void unsupported_nodes_that_are_not_fetched_force_no_partition(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 5, "off", "");
    be_older();
    struct stager_stream *stream = open_for(&fixture, "more");
    check_moved(&fixture, "");
    CHECK_INT(step(stream, "more"), 0);
    /* Not declared at open, so the missing op only shows now. */
    struct stager_batch *batch = fixture_take(stream);
    const char *fetch = "cube";
    struct stager_tensor t;
    CHECK_INT(stager_run(stream, batch, &fetch, 1, &t), -STAGER_UNIMPLEMENTED);
    CHECK_CONTAINS(stager_error_text(stream), "node square (multiply)");
    CHECK_CONTAINS(stager_error_text(stream),
                   "this build of libstager-compute has no such op");
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void with_off_the_open_is_refused(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 5, "off", "");
    be_older();
    check_refused(&fixture, "sum", "node cube (multiply), line 6: this trainer's build");
    check_refused(&fixture, "sum", "smart_stage is off: set it to on or auto");
    check_refused(&fixture, NULL, "node cube (multiply)"); /* the targets */
    fixture_finish(&fixture);
}

static void what_may_not_run_ahead_is_refused_at_open(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 5, "on", "");
    be_older();
    check_refused(&fixture, "twice", "node twice (multiply), line 13");
    check_refused(&fixture, "twice", "it is or depends on a variable");
    check_refused(&fixture, "cube", "node cube (multiply)");
    check_refused(&fixture, "cube", "it is a fetch or depends on one");
    check_refused(&fixture, "late", "node nine (multiply), line 8");
    check_refused(&fixture, "late", "it does not depend on a staged tensor");
    struct stager_stream *stream;
    CHECK_INT(try_open(&fixture, NULL, "all", 1, &stream), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(NULL), "node wide (multiply)");
    CHECK_CONTAINS(stager_error_text(NULL), "batches are sliced");
    stream = open_for(&fixture, "sum"); /* it was not attached */
    CHECK_INT(step(stream, "sum"), 0);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* An error of a node that runs ahead because of a missing op belongs to its batch. */
static void an_error_of_what_is_lacked_comes_with_the_batch(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 6, "auto", "");
    be_older();
    struct stager_stream *stream = open_for(&fixture, "share");
    check_moved(&fixture, " off part");
    for (uint64_t i = 0; i < 3; i++)
        CHECK_INT(step(stream, "share"), i);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, fixture_millis(20000), &batch),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream), "node part (floordiv)");
    CHECK_INT(step(stream, "share"), 4);
    CHECK_INT(step(stream, "share"), 5);
    CHECK(step(stream, "share") == UINT64_MAX);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_client_that_cannot_be_asked_is_attached_as_ever(void)
{
    struct fixture fixture;
    struct stager *client;
    fixture_start(&fixture, "");
    apply(&fixture, 5, "off", "");
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_OPEN,
                                  .name = "p",
                                  .max_in_flight = 2,
                                  .has_unsupported = true};
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    CHECK(reply.asks && reply.boundary.n == 1 && reply.segment_bytes == 0);
    /* of another batch: requested again */
    request.unsupported_generation = reply.generation + 1;
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    CHECK(reply.asks);
    request.has_unsupported = false;
    int fds[3];
    size_t n_fds = 0;
    CHECK_OK(stg_client_call(client, &request, STG_OPEN_NS, &reply, fds, 3, &n_fds, &err),
             err);
    CHECK(!reply.asks && reply.segment_bytes > 0);
    CHECK_INT(n_fds, 3);
    while (n_fds > 0)
        close(fds[--n_fds]);
    stager_disconnect(client);
    fixture_finish(&fixture);
}

/* ---- beside clients with all ops ---- */

/* On request, opens with the whole build, reports that, then each item; ends on request
 * or with the pass. arg: its fetches. */
static void train(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream;
    uint64_t item;
    trainer_recv(fd);
    int rc = try_open(fixture, "whole", arg, 0, &stream);
    trainer_send(fd, rc);
    if (rc < 0) {
        CHECK_CONTAINS(stager_error_text(NULL), "this trainer and client older of");
        return;
    }
    while (trainer_recv(fd) != 0 && (item = step(stream, arg)) != UINT64_MAX)
        trainer_send(fd, (int64_t)item);
    stager_close(stream);
}

static void others_get_theirs_while_one_lacks(const char *delivery, const char *mode)
{
    struct fixture fixture;
    struct trainer whole;
    struct stager_stream *older;
    char staged[128], fetch[] = "sum";
    fixture_start(&fixture, "");
    snprintf(staged, sizeof(staged),
             "  num_clients: 2\n  delivery: %s\n  capacity: 2\n  num_threads: 2\n",
             delivery);
    apply(&fixture, 200, mode, staged);
    trainer_start(&whole, train, &fixture, fetch);
    trainer_send(whole.fd, 1);
    CHECK_INT(trainer_recv(whole.fd), 0);
    check_moved(&fixture, strcmp(mode, "on") == 0 ? " square cube" : "");
    be_older();
    CHECK_INT(try_open(&fixture, NULL, "sum", 0, &older), 0);
    check_moved(&fixture, " square cube");
    for (int i = 0; i < 20; i++) {
        trainer_send(whole.fd, 1);
        CHECK(step(older, "sum") != UINT64_MAX);
        trainer_recv(whole.fd);
    }
    stager_close(older);
    if (strcmp(delivery, "split") == 0) {
        check_moved(&fixture, strcmp(mode, "on") == 0 ? " square cube" : "");
        trainer_send(whole.fd, 1);
        trainer_recv(whole.fd);
    }
    trainer_send(whole.fd, 0);
    trainer_join(&whole);
    fixture_finish(&fixture);
}

static void others_get_theirs_while_one_lacks_what_is_split(void)
{
    others_get_theirs_while_one_lacks("split", "auto");
    others_get_theirs_while_one_lacks("split", "on");
}

static void others_get_theirs_while_one_lacks_what_all_get(void)
{
    others_get_theirs_while_one_lacks("broadcast", "auto");
    others_get_theirs_while_one_lacks("round_robin", "on");
}

/* One client's fetches run in its process; the other's missing ops do not run there. The
 * second client gets an error. */
static void a_client_may_not_fetch_a_node_that_another_client_does_not_support(void)
{
    struct fixture fixture;
    struct trainer whole;
    struct stager_stream *older;
    char fetch[] = "square";
    fixture_start(&fixture, "");
    apply(&fixture, 50, "on", "  num_clients: 2\n");
    trainer_start(&whole, train, &fixture, fetch);
    trainer_send(whole.fd, 1);
    CHECK_INT(trainer_recv(whole.fd), 0);
    be_older();
    CHECK_INT(try_open(&fixture, "older", "sum", 0, &older), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(NULL),
                   "this trainer and client whole of pipeline p");
    CHECK_CONTAINS(stager_error_text(NULL), "node square (multiply)");
    trainer_send(whole.fd, 0);
    trainer_join(&whole);
    fixture_finish(&fixture);
}

/* The same, with the older build attached first. */
static void a_second_client_that_fetches_an_unsupported_node_gets_an_error(void)
{
    struct fixture fixture;
    struct trainer whole;
    struct stager_stream *older;
    char fetch[] = "square";
    fixture_start(&fixture, "");
    apply(&fixture, 50, "on", "  num_clients: 2\n");
    trainer_start(&whole, train, &fixture, fetch);
    be_older();
    CHECK_INT(try_open(&fixture, "older", "sum", 0, &older), 0);
    trainer_send(whole.fd, 1);
    CHECK_INT(trainer_recv(whole.fd), -STAGER_FAILED_PRECONDITION);
    trainer_join(&whole);
    stager_close(older);
    fixture_finish(&fixture);
}

/* Its older build does not stop it from attaching. */
static void a_client_that_reconnects_with_another_build_gets_its_new_partition(void)
{
    struct fixture fixture;
    struct trainer whole;
    struct stager_stream *older;
    char fetch[] = "square";
    fixture_start(&fixture, "");
    apply(&fixture, 50, "on", "  num_clients: 2\n");
    trainer_start(&whole, train, &fixture, fetch);
    be_older();
    CHECK_INT(try_open(&fixture, "whole", "sum", 0, &older), 0);
    CHECK(step(older, "sum") != UINT64_MAX);
    stager_close(older);
    check_moved(&fixture, " square cube"); /* it may reconnect as before */
    trainer_send(whole.fd, 1);
    CHECK_INT(trainer_recv(whole.fd), 0);
    check_moved(&fixture, "");
    trainer_send(whole.fd, 1);
    CHECK(trainer_recv(whole.fd) > 0);
    trainer_send(whole.fd, 0);
    trainer_join(&whole);
    fixture_finish(&fixture);
}

/* A batch has room for the outputs of one client's missing ops or the other's, not for
 * both. */
static void what_two_of_them_lack_has_to_fit_together(void)
{
    struct fixture fixture;
    struct stager_stream *left, *right;
    fixture_start(&fixture, "");
    fixture_apply(
        &fixture,
        "name: p\n"
        "dataset: [{range: {stop: 5}}, {batch: {batch_size: 1, drop_remainder: true}}]\n"
        "graph:\n"
        "  - {name: big, op: constant, value: 1, dtype: int64, shape: [1, 5000]}\n"
        "  - {name: next, op: add, input: [big, \"staged:v\"]}\n"
        "  - {name: product, op: multiply, input: [next, \"staged:v\"]}\n"
        "  - {name: left, op: add, input: [product, big]}\n"
        "  - {name: quotient, op: floordiv, input: [\"staged:v\", next]}\n"
        "  - {name: right, op: add, input: [quotient, big]}\n"
        "staged: {features: {v: value}, num_clients: 2, max_batch_bytes: 64KiB}\n"
        "targets: [left]\nsmart_stage: on\n");
    be_older();
    CHECK_INT(try_open(&fixture, NULL, "left", 0, &left), 0);
    CHECK_INT(try_open(&fixture, NULL, "right", 0, &right), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(stager_error_text(NULL), "batches with the tensors that the trainers' "
                                            "libstager-compute cannot compute have 8");
    CHECK_CONTAINS(stager_error_text(NULL), "raise staged.max_batch_bytes to 131072");
    stager_close(left);
    CHECK_INT(try_open(&fixture, NULL, "right", 0, &right), 0);
    stager_close(right);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(what_a_trainer_lacks_runs_ahead_of_it),
    TEST(unsupported_nodes_that_are_not_fetched_force_no_partition),
    TEST(with_off_the_open_is_refused),
    TEST(what_may_not_run_ahead_is_refused_at_open),
    TEST(an_error_of_what_is_lacked_comes_with_the_batch),
    TEST(a_client_that_cannot_be_asked_is_attached_as_ever),
    TEST(others_get_theirs_while_one_lacks_what_is_split),
    TEST(others_get_theirs_while_one_lacks_what_all_get),
    TEST(a_client_may_not_fetch_a_node_that_another_client_does_not_support),
    TEST(a_second_client_that_fetches_an_unsupported_node_gets_an_error),
    TEST(a_client_that_reconnects_with_another_build_gets_its_new_partition),
    TEST(what_two_of_them_lack_has_to_fit_together),
};
TEST_MAIN(tests)
