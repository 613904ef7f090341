/* SPDX-License-Identifier: Apache-2.0
 *
 * Crashes, hostile peers and obstacles. Each test is named after its fault.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/stream/stream.h"
#include "tests/check.h"
#include "tests/system/fixture.h"

/* Takes one batch, reports it, and waits to be killed. With arg: leaves a child that
 * holds the socket. */
static void holder_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "rows", "holder", 2);
    struct stager_batch *batch = fixture_take(stream);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    pid_t child = 0;
    if (arg != NULL) {
        child = fork();
        if (child == 0) {
            for (;;)
                pause();
        }
    }
    trainer_send(fd, (int64_t)info.number);
    trainer_send(fd, child);
    for (;;)
        pause();
}

static bool holder_gone(const struct fixture_status *status, void *arg)
{
    for (uint32_t i = 0; i < status->n_clients; i++) {
        if (strcmp(status->clients[i].client_id, "holder") == 0 &&
            strcmp(status->clients[i].state, "away") != 0)
            return false;
    }
    return status->quarantined_bytes == 0;
}

static void kill_a_holder(bool with_child)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2, num_clients: 2");
    struct trainer holder;
    trainer_start(&holder, holder_body, &fixture, with_child ? &holder : NULL);
    int64_t held = trainer_recv(holder.fd);
    pid_t child = (pid_t)trainer_recv(holder.fd);
    struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
    stager_release(fixture_take(other));

    kill(holder.pid, SIGKILL);
    int64_t millis = fixture_wait(&fixture, "rows", 250, holder_gone, NULL);
    printf("    memory back after %lld ms\n", (long long)millis);
    trainer_kill(&holder);

    /* The other trainer continues, and gets the batches that the dead one did not
     * acknowledge. */
    bool redelivered = false;
    for (int i = 0; i < 50; i++) {
        struct stager_batch *batch = fixture_take(other);
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        stager_batch_info(batch, &info);
        redelivered = redelivered || (info.redelivered && info.number == (uint64_t)held);
        fixture_check_pad(batch);
        stager_release(batch);
    }
    CHECK(redelivered);
    if (child != 0)
        kill(child, SIGKILL);
    stager_close(other);
    fixture_finish(&fixture);
}

static void a_dead_trainer_gives_back_its_extents(void)
{
    kill_a_holder(false);
}

static void a_dead_trainer_gives_back_its_extents_though_its_child_keeps_the_socket(void)
{
    kill_a_holder(true);
}

static void a_closed_stream_keeps_its_batches_readable_until_released(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2, num_clients: 2");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "leaver", 2);
    struct stager_batch *batch = fixture_take(stream);
    struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
    stager_close(stream);
    for (int i = 0; i < 100; i++)
        stager_release(fixture_take(other));
    fixture_check_pad(batch); /* I9: the batch was not overwritten */
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK(status.quarantined_bytes > 0);
    stager_release(batch);
    stager_close(other);
    fixture_finish(&fixture);
}

static void a_killed_daemon_is_unavailable_at_once_and_batches_stay_readable(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 1, num_clients: 2, delivery: broadcast");
    struct stager_stream *a = fixture_open(&fixture, "rows", "a", 2);
    struct stager_stream *b = fixture_open(&fixture, "rows", "b", 2);
    struct stager_batch *in_hand = fixture_take(a), *batch;
    fixture_kill(&fixture);

    int rc;
    while ((rc = stager_next(b, -1, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_UNAVAILABLE);
    fixture_check_pad(in_hand);

    fixture_restart(&fixture); /* the same folders: a clean start, pipelines known */
    struct stager_stream *fresh = fixture_open(&fixture, "rows", "fresh", 2);
    struct stager_stream *fresh2 = fixture_open(&fixture, "rows", "fresh2", 2);
    stager_release(fixture_take(fresh));
    stager_release(fixture_take(fresh2));
    fixture_check_pad(in_hand);
    stager_release(in_hand);
    stager_close(a);
    stager_close(b);
    stager_close(fresh);
    stager_close(fresh2);
    fixture_finish(&fixture);
}

static void sleep_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "rows", "sleeper", 2);
    trainer_send(fd, 1);
    struct stager_batch *batch;
    int rc = stager_next(stream, -1, &batch);
    trainer_send(fd, rc);
    stager_close(stream);
}

static void a_sleeping_trainer_learns_of_the_daemons_end(void)
{
    for (int by_kill = 0; by_kill < 2; by_kill++) {
        struct fixture fixture;
        fixture_start(&fixture, "");
        fixture_apply_endless(&fixture, "num_clients: 2, delivery: broadcast");
        struct trainer trainer;
        trainer_start(&trainer, sleep_body, &fixture, NULL);
        trainer_recv(trainer.fd);
        if (by_kill)
            fixture_kill(&fixture);
        else
            fixture_stop(&fixture);
        CHECK_INT(trainer_recv(trainer.fd), -STAGER_UNAVAILABLE);
        trainer_join(&trainer);
        fixture_finish(&fixture);
    }
}

static void no_daemon_is_said_at_once_with_the_cure(void)
{
    struct stager *client;
    int64_t began = now_millis();
    CHECK_INT(stager_connect("/nonexistent/stager", &client), -STAGER_UNAVAILABLE);
    CHECK(now_millis() - began < fixture_millis(5000)); /* not at a deadline */
    CHECK_CONTAINS(stager_error_text(NULL),
                   "cannot reach stagerd at /nonexistent/stager/attach.sock");
    CHECK_CONTAINS(stager_error_text(NULL), "start");
}

static void a_second_daemon_on_one_runtime_dir_is_refused(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fflush(NULL);
    int out[2];
    CHECK(pipe2(out, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], 2);
        execl(STAGERD_PATH, "stagerd", "--config", fixture.config, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    char text[2048] = "";
    size_t n = 0;
    ssize_t m;
    while ((m = read(out[0], text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)m;
    text[n] = '\0';
    close(out[0]);
    int status;
    waitpid(pid, &status, 0);
    CHECK_INT(WEXITSTATUS(status), 1);
    char holder[64];
    snprintf(holder, sizeof(holder), "another stagerd (pid %d)", (int)fixture.pid);
    CHECK_CONTAINS(text, holder);
    struct stager *client; /* the first is unaffected */
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    stager_disconnect(client);
    fixture_finish(&fixture);
}

/* ---- hostile peers ---- */

static int raw_connect(struct fixture *fixture)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/attach.sock",
             fixture->runtime);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

static void a_client_of_another_version_receives_both_version_ranges(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    int fd = raw_connect(&fixture);
    struct stg_request request = {.id = 7,
                                  .kind = STG_REQUEST_HELLO,
                                  .min_version = 900,
                                  .max_version = 901,
                                  .client = "future"};
    char buf[STG_MESSAGE_MAX_BYTES];
    long n = stg_wire_encode_request(&request, buf, sizeof(buf));
    CHECK(send(fd, buf, (size_t)n, 0) == n);
    ssize_t got = recv(fd, buf, sizeof(buf), 0);
    CHECK(got > 0);
    struct stg_bump bump;
    struct stg_reply reply;
    struct stg_err err = {0};
    stg_bump_init(&bump, 0);
    CHECK_OK(stg_wire_decode_reply(buf, (size_t)got, &bump, &reply, &err), err);
    CHECK_INT(reply.code, -STAGER_FAILED_PRECONDITION);
    char ours[32];
    snprintf(ours, sizeof(ours), "%u to %u", STG_PROTOCOL_MIN, STG_PROTOCOL_MAX);
    CHECK_CONTAINS(reply.text, ours);
    CHECK_CONTAINS(reply.text, "900 to 901");
    CHECK_INT(recv(fd, buf, sizeof(buf), 0), 0); /* and the connection ends */
    stg_bump_finish(&bump);
    close(fd);
    fixture_finish(&fixture);
}

static int count_fds(pid_t pid)
{
    char path[64], line[512];
    int n = 0;
    snprintf(path, sizeof(path), "ls /proc/%d/fd | wc -l", (int)pid);
    FILE *pipe = popen(path, "re");
    if (pipe != NULL && fgets(line, sizeof(line), pipe) != NULL)
        n = atoi(line);
    if (pipe != NULL)
        pclose(pipe);
    return n;
}

static void descriptors_that_a_client_sends_are_not_taken(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    int before = count_fds(fixture.pid);
    for (int round = 0; round < 20; round++) {
        int fd = raw_connect(&fixture);
        union {
            char bytes[CMSG_SPACE(sizeof(int) * 50)];
            struct cmsghdr align;
        } control;
        memset(&control, 0, sizeof(control));
        char doorbell = '!';
        struct iovec iov = {.iov_base = &doorbell, .iov_len = 1};
        struct msghdr message = {.msg_iov = &iov,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof(control.bytes)};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * 50);
        for (int i = 0; i < 50; i++)
            ((int *)(void *)CMSG_DATA(header))[i] = fd;
        CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) == 1);
        /* Any answer, or an end, shows that the message was read. */
        CHECK(send(fd, "??", 2, MSG_NOSIGNAL) == 2);
        char buf[4096];
        CHECK(recv(fd, buf, sizeof(buf), 0) >= 0);
        close(fd);
    }
    struct stager *client;
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    stager_disconnect(client);
    CHECK(count_fds(fixture.pid) <= before + 4);
    fixture_finish(&fixture);
}

static void garbage_on_the_socket_ends_that_connection_only(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 1");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    static char junk[70000];
    unsigned seed = 12345;
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof(junk); i++)
            junk[i] = (char)rand_r(&seed);
        int fd = raw_connect(&fixture);
        size_t n = round % 10 == 0 ? sizeof(junk) : 2 + (size_t)rand_r(&seed) % 300;
        send(fd, junk, n, MSG_NOSIGNAL);
        close(fd);
    }
    stager_release(fixture_take(stream));
    stager_close(stream);
    fixture_finish(&fixture);
}

static bool liar_found_out(const struct fixture_status *status, void *arg)
{
    for (uint32_t i = 0; i < status->n_clients; i++) {
        if (strcmp(status->clients[i].client_id, "liar") == 0)
            return status->clients[i].violations > 0;
    }
    return false;
}

/* Writes values into the control page that no client should write. */
static void liar_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "rows", "liar", 2);
    struct stager_batch *batch = fixture_take(stream);
    struct stg_control_page *page = stream->control.page;
    switch ((int)(intptr_t)arg) {
    case 0: atomic_store(&page->released, UINT64_MAX / 2); break;
    case 1:
        page->releases[0] = (struct stg_release_entry){12345678, 1};
        atomic_store(&page->released, 1);
        break;
    case 2:
        atomic_store(&page->asked, UINT64_MAX);
        atomic_store(&page->pass_wanted, UINT64_MAX);
        memset(page->releases, 0xff, sizeof(page->releases));
        atomic_store(&page->released, 3);
        break;
    }
    (void)!send(stream->client->fd, "!", 1, MSG_NOSIGNAL);
    fixture_wait(fixture, "rows", 10000, liar_found_out, NULL);
    stager_release(batch);
    int rc;
    while ((rc = stager_next(stream, 10000, &batch)) == 0)
        stager_release(batch);
    trainer_send(fd, rc);
    stager_close(stream);
}

static void a_lying_client_is_detached_and_the_others_continue(void)
{
    for (int lie = 0; lie < 3; lie++) {
        struct fixture fixture;
        fixture_start(&fixture, "");
        fixture_apply_endless(&fixture, "capacity: 2, num_clients: 2");
        struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
        struct trainer liar;
        trainer_start(&liar, liar_body, &fixture, (void *)(intptr_t)lie);
        for (int i = 0; i < 200; i++) {
            struct stager_batch *batch = fixture_take(other);
            fixture_check_pad(batch);
            stager_release(batch);
        }
        CHECK_INT(trainer_recv(liar.fd), -STAGER_INVALID_ARGUMENT);
        trainer_join(&liar);
        stager_release(fixture_take(other));
        stager_close(other);
        fixture_finish(&fixture);
    }
}

static bool nobody_there(const struct fixture_status *status, void *arg)
{
    return status->n_attached + status->n_detached == 0;
}

/* An empty pass costs no credit. Only the limit of one requested pass for each client
 * keeps the daemon from running passes at full speed. */
static void a_client_cannot_ask_for_all_passes_at_once(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: rows\n"
                            "dataset:\n  - range: {stop: 0}\n"
                            "  - batch: {batch_size: 2}\n");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "liar", 2);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_OUT_OF_RANGE);
    CHECK_INT(stager_rewind(stream), 0);
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_OUT_OF_RANGE);
    atomic_store(&stream->control.page->pass_wanted, UINT64_MAX);
    (void)!send(stream->client->fd, "!", 1, MSG_NOSIGNAL);
    fixture_wait(&fixture, "rows", 10000, nobody_there, NULL);
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK_INT(status.pass, 2);
    CHECK_INT(stager_rewind(stream), 0);
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream), "further passes before the end");
    stager_close(stream);
    fixture_finish(&fixture);
}

static void shared_memory_cannot_be_written_by_a_client(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 1");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    struct stager_batch *batch = fixture_take(stream);
    struct stager_tensor pad;
    CHECK_INT(stager_batch_tensor(batch, "pad", &pad), 0);
    uintptr_t page = (uintptr_t)pad.data & ~(uintptr_t)4095;
    CHECK(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE) < 0);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_file_in_the_sockets_place_is_not_removed(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_stop(&fixture);
    char path[256];
    fixture_file(&fixture, "run/attach.sock", "precious", 8, path);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        execl(STAGERD_PATH, "stagerd", "--config", fixture.config, (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK_INT(WEXITSTATUS(status), 1);
    CHECK(access(path, R_OK) == 0);
    fixture_finish(&fixture);
}

static void a_stopped_trainer_slows_only_itself(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2, num_clients: 2");
    struct trainer holder;
    trainer_start(&holder, holder_body, &fixture, NULL);
    trainer_recv(holder.fd);
    kill(holder.pid, SIGSTOP);
    struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
    for (int i = 0; i < 500; i++) {
        struct stager_batch *batch = fixture_take(other);
        fixture_check_pad(batch);
        stager_release(batch);
    }
    kill(holder.pid, SIGCONT);
    trainer_kill(&holder);
    stager_close(other);
    fixture_finish(&fixture);
}

/* The client sends its hello before or after stagerd closes the socket. */
static void a_connection_over_the_limit_receives_an_error(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "max_clients: 2\n");
    struct stager *clients[2], *refused;
    for (int n = 0; n < 2;) /* the fixture's connection may still exist */
        n += stager_connect(fixture.runtime, &clients[n]) == 0;
    for (int i = 0; i < 50; i++) {
        CHECK_INT(stager_connect(fixture.runtime, &refused), -STAGER_RESOURCE_EXHAUSTED);
        CHECK_CONTAINS(stager_error_text(NULL),
                       "max_clients 2 connections already: raise it in "
                       "stagerd.yaml to at least 3");
    }
    stager_disconnect(clients[0]);
    stager_disconnect(clients[1]);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(a_dead_trainer_gives_back_its_extents),
    TEST(a_dead_trainer_gives_back_its_extents_though_its_child_keeps_the_socket),
    TEST(a_closed_stream_keeps_its_batches_readable_until_released),
    TEST(a_killed_daemon_is_unavailable_at_once_and_batches_stay_readable),
    TEST(a_sleeping_trainer_learns_of_the_daemons_end),
    TEST(no_daemon_is_said_at_once_with_the_cure),
    TEST(a_second_daemon_on_one_runtime_dir_is_refused),
    TEST(a_client_of_another_version_receives_both_version_ranges),
    TEST(descriptors_that_a_client_sends_are_not_taken),
    TEST(garbage_on_the_socket_ends_that_connection_only),
    TEST(a_lying_client_is_detached_and_the_others_continue),
    TEST(a_client_cannot_ask_for_all_passes_at_once),
    TEST(shared_memory_cannot_be_written_by_a_client),
    TEST(a_file_in_the_sockets_place_is_not_removed),
    TEST(a_stopped_trainer_slows_only_itself),
    TEST(a_connection_over_the_limit_receives_an_error),
};

TEST_MAIN(tests)
