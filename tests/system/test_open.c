/* SPDX-License-Identifier: Apache-2.0
 *
 * An open takes effect if it succeeds, or not at all. A named client that dies at any
 * later moment keeps its place.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/transport/connect.h"
#include "tests/check.h"
#include "tests/system/fixture.h"

enum half { HALF_OPEN, HALF_JOINED };

/* Opens without libstager's stream: it stores nothing in its control page. Reports the
 * completed half, and waits to die. */
static void half_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager *client;
    struct stg_reply reply;
    struct stg_err err = {0};
    int fds[4];
    size_t n_fds = 0;
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_OPEN,
                                  .name = "p",
                                  .client_id = "victim",
                                  .named = true,
                                  .max_in_flight = 2};
    CHECK_OK(stg_client_call(client, &request, STG_OPEN_NS, &reply, fds, 4, &n_fds, &err),
             err);
    request.kind = STG_REQUEST_JOIN;
    if (*(const enum half *)arg == HALF_JOINED)
        CHECK_OK(stg_client_call(client, &request, STG_REQUEST_NS, &reply, NULL, 0, NULL,
                                 &err),
                 err);
    trainer_send(fd, 1);
    trainer_recv(fd);
}

static void kill_at(struct fixture *fixture, enum half half)
{
    struct trainer trainer;
    trainer_start(&trainer, half_body, fixture, &half);
    CHECK_INT(trainer_recv(trainer.fd), 1);
    trainer_kill(&trainer);
}

static bool none_is_joining(const struct fixture_status *status, void *arg)
{
    return status->n_clients == *(const uint32_t *)arg;
}

static bool one_is_away(const struct fixture_status *status, void *arg)
{
    return status->n_away == 1;
}

static void wait_away(struct fixture *fixture)
{
    fixture_wait(fixture, "p", 10000, one_is_away, NULL);
}

/* Both clients take everything in turns: `mine` of the victim's first items, which are
 * redelivered. */
static void share(struct stager_stream *victim, struct stager_stream *other, int first,
                  int n, int stride, int offset)
{
    for (int i = first; i < n; i += stride) {
        fixture_expect_value(victim, i);
        fixture_expect_value(other, i + offset);
    }
    fixture_expect_code(victim, STAGER_OUT_OF_RANGE, "end of pass");
    fixture_expect_code(other, STAGER_OUT_OF_RANGE, "end of pass");
}

/* The client dies after it joined, before it wrote to its control page; then twice during
 * a reconnect: before and after it joined. */
static void a_name_killed_before_its_first_request_keeps_its_place(void)
{
    static const char *const deliveries[] = {"broadcast", "round_robin"};
    for (int k = 0; k < 2; k++) {
        struct fixture fixture;
        char staged[128];
        snprintf(staged, sizeof(staged), "num_clients: 2, delivery: %s, capacity: 3",
                 deliveries[k]);
        fixture_start(&fixture, "");
        fixture_apply_range(&fixture, 12, staged);
        struct trainer trainer;
        enum half joined = HALF_JOINED;
        trainer_start(&trainer, half_body, &fixture, &joined);
        CHECK_INT(trainer_recv(trainer.fd), 1);
        struct stager_stream *other = fixture_open(&fixture, "p", "other", 2);
        fixture_expect_value(other, k);
        trainer_kill(&trainer);
        wait_away(&fixture);
        kill_at(&fixture, HALF_OPEN);
        wait_away(&fixture);
        kill_at(&fixture, HALF_JOINED);
        wait_away(&fixture);
        struct stager_stream *victim = fixture_open(&fixture, "p", "victim", 2);
        CHECK(fixture_expect_value(victim, 0));
        share(victim, other, k + 1, 12, k + 1, k);
        struct fixture_status status = fixture_balance(&fixture);
        CHECK_INT(status.acknowledged, 12);
        CHECK_INT(status.lost, 0);
        stager_close(other);
        stager_close(victim);
        fixture_finish(&fixture);
    }
}

static void a_split_pass_waits_for_a_name_killed_before_its_first_request(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 12, "capacity: 3");
    for (int i = 0; i < 3; i++) {
        kill_at(&fixture, HALF_JOINED);
        wait_away(&fixture);
        kill_at(&fixture, HALF_OPEN);
        wait_away(&fixture);
    }
    struct stager_stream *victim = fixture_open(&fixture, "p", "victim", 2);
    for (int i = 0; i < 12; i++)
        CHECK_INT(fixture_expect_value(victim, i), i < 2);
    fixture_expect_code(victim, STAGER_OUT_OF_RANGE, "end of pass");
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.acknowledged, 12);
    CHECK_INT(status.pass, 1);
    stager_close(victim);
    fixture_finish(&fixture);
}

/* Refused by the daemon, or by libstager after the daemon had replied. */
static void refuse(struct fixture *fixture, struct stager_options options, int code)
{
    struct stager_stream *stream;
    options.runtime_dir = fixture->runtime;
    options.client_id = "victim";
    CHECK_INT(stager_open(NULL, "p", &options, &stream), -code);
}

static void a_refused_open_begins_nothing(void)
{
    static const char *const deliveries[] = {"broadcast", "round_robin"};
    const char *const no_field[] = {"nope"};
    for (int k = 0; k < 2; k++) {
        struct fixture fixture;
        char staged[128];
        uint32_t one = 1;
        snprintf(staged, sizeof(staged), "num_clients: 2, delivery: %s, capacity: 3",
                 deliveries[k]);
        fixture_start(&fixture, "");
        fixture_apply_range(&fixture, 12, staged);
        /* The first client to open: the state that it created is removed. */
        refuse(&fixture,
               (struct stager_options){.struct_size = sizeof(struct stager_options),
                                       .batch_size = 3},
               STAGER_INVALID_ARGUMENT);
        struct stager_stream *other = fixture_open(&fixture, "p", "other", 2);
        refuse(&fixture,
               (struct stager_options){.struct_size = sizeof(struct stager_options),
                                       .fields = no_field,
                                       .n_fields = 1},
               STAGER_NOT_FOUND);
        refuse(&fixture,
               (struct stager_options){.struct_size = sizeof(struct stager_options),
                                       .fetches = no_field,
                                       .n_fetches = 1},
               STAGER_NOT_FOUND);
        refuse(&fixture,
               (struct stager_options){.struct_size = sizeof(struct stager_options),
                                       .batch_size = 3},
               STAGER_INVALID_ARGUMENT);
        refuse(&fixture,
               (struct stager_options){.struct_size = sizeof(struct stager_options),
                                       .max_in_flight = 200},
               STAGER_RESOURCE_EXHAUSTED);
        kill_at(&fixture, HALF_OPEN);
        fixture_wait(&fixture, "p", 10000, none_is_joining, &one);
        struct fixture_status status = fixture_balance(&fixture);
        CHECK_INT(status.n_attached, 1);
        CHECK_INT(status.n_gone, 0);
        CHECK_INT(status.assigned, 0);
        struct stager_batch *batch;
        CHECK_INT(stager_next(other, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
        struct stager_stream *victim = fixture_open(&fixture, "p", "victim", 2);
        share(other, victim, 0, 12, k + 1, k);
        stager_close(other);
        stager_close(victim);
        fixture_finish(&fixture);
    }
}

static void to_the_end_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "p", "victim", 2);
    struct stager_batch *batch;
    for (int i = 0; i < *(const int *)arg; i++)
        fixture_expect_value(stream, i);
    trainer_send(fd, stager_next(stream, fixture_millis(20000), &batch));
    trainer_recv(fd);
}

static void a_client_killed_at_the_end_gets_the_end_again(void)
{
    static const char *const deliveries[] = {"split", "broadcast", "round_robin"};
    for (int k = 0; k < 3; k++) {
        struct fixture fixture;
        char staged[128];
        int n = 2;
        snprintf(staged, sizeof(staged), "delivery: %s, capacity: 3", deliveries[k]);
        fixture_start(&fixture, "");
        fixture_apply_range(&fixture, n, staged);
        struct trainer victim;
        trainer_start(&victim, to_the_end_body, &fixture, &n);
        CHECK_INT(trainer_recv(victim.fd), -STAGER_OUT_OF_RANGE);
        trainer_kill(&victim);
        wait_away(&fixture);
        struct stager_stream *again = fixture_open(&fixture, "p", "victim", 2);
        fixture_expect_code(again, STAGER_OUT_OF_RANGE, "end of pass 0");
        CHECK_INT(stager_rewind(again), 0);
        fixture_expect_value(again, 0);
        stager_close(again);
        fixture_finish(&fixture);
    }
}

static int connect_raw(const struct fixture *fixture)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/attach.sock",
             fixture->runtime);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

static void send_raw(int fd, const struct stg_request *request)
{
    char buf[4096];
    long n = stg_wire_encode_request(request, buf, sizeof(buf));
    CHECK(n > 0 && send(fd, buf, (size_t)n, 0) == n);
}

static void expect_raw(int fd, uint64_t id, int code, const char *part)
{
    static char buf[STG_MESSAGE_MAX_BYTES];
    struct stg_bump bump;
    struct stg_reply reply;
    struct stg_err err = {0};
    stg_bump_init(&bump, 0);
    ssize_t n = recv(fd, buf, sizeof(buf), 0);
    CHECK(n > 0);
    CHECK_OK(stg_wire_decode_reply(buf, (size_t)n, &bump, &reply, &err), err);
    CHECK_INT(reply.id, id);
    CHECK_INT(reply.code, code);
    CHECK_CONTAINS(reply.text, part);
    stg_bump_finish(&bump);
}

/* While an open waits, stagerd refuses the next request of its connection: then the list
 * would be answered first, and not served. */
static void an_open_above_a_quota_that_no_run_will_free_fails_at_once(void)
{
    struct fixture fixture;
    char settings[128];
    snprintf(settings, sizeof(settings), "quotas: [{user: \"%u\", runners: 1}]\n",
             (unsigned)getuid());
    fixture_start(&fixture, settings);
    fixture_apply_range(&fixture, 10, "num_threads: 2");
    int fd = connect_raw(&fixture);
    send_raw(fd, &(struct stg_request){.kind = STG_REQUEST_HELLO,
                                       .id = 1,
                                       .min_version = STG_PROTOCOL_MIN,
                                       .max_version = STG_PROTOCOL_MAX});
    send_raw(fd, &(struct stg_request){
                     .kind = STG_REQUEST_OPEN, .id = 2, .name = "p", .max_in_flight = 2});
    send_raw(fd, &(struct stg_request){.kind = STG_REQUEST_LIST, .id = 3});
    expect_raw(fd, 1, 0, "");
    expect_raw(fd, 2, -STAGER_RESOURCE_EXHAUSTED, "is 1 runners, 0 of them are in use");
    expect_raw(fd, 3, 0, "");
    close(fd);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(a_name_killed_before_its_first_request_keeps_its_place),
    TEST(a_split_pass_waits_for_a_name_killed_before_its_first_request),
    TEST(a_refused_open_begins_nothing),
    TEST(a_client_killed_at_the_end_gets_the_end_again),
    TEST(an_open_above_a_quota_that_no_run_will_free_fails_at_once),
};

TEST_MAIN(tests)
