/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens when something dies, lies or is in the way. Named after the fault.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/stream.h"
#include "tests/check.h"
#include "tests/system/fixture.h"

static void apply_endless(struct fixture *fixture, const char *staged)
{
    char yaml[1024];
    snprintf(
        yaml, sizeof(yaml),
        "name: rows\n"
        "dataset:\n  - range: {stop: 64}\n  - repeat: {}\n  - batch: {batch_size: 2}\n"
        "graph:\n  - {name: pad, op: constant, value: 1.5, shape: [100000]}\n"
        "staged: {features: {value: value, pad: pad}, %s}\n",
        staged);
    fixture_apply(fixture, yaml);
}

static struct stager_batch *must_take(struct stager_stream *stream)
{
    struct stager_batch *batch;
    if (stager_next(stream, 10000, &batch) < 0)
        FAIL("next: %s", stager_error_text(stream));
    return batch;
}

static void check_pad(const struct stager_batch *batch)
{
    struct stager_tensor pad;
    CHECK_INT(stager_batch_tensor(batch, "pad", &pad), 0);
    const float *x = pad.data;
    for (int i = 0; i < 100000; i++) {
        if (x[i] != 1.5f)
            FAIL("pad[%d] is %f", i, (double)x[i]);
    }
}

/* Takes one batch, says so, and waits to be killed. With arg: leaves a child that holds
 * the socket. */
static void holder_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "rows", "holder", 2);
    struct stager_batch *batch = must_take(stream);
    struct stager_batch_info info;
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
        if (strcmp(status->clients[i].client_id, "holder") == 0)
            return false;
    }
    return status->quarantined_bytes == 0;
}

static void kill_a_holder(bool with_child)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_endless(&fixture, "capacity: 2, num_clients: 2");
    struct trainer holder;
    trainer_start(&holder, holder_body, &fixture, with_child ? &holder : NULL);
    int64_t held = trainer_recv(holder.fd);
    pid_t child = (pid_t)trainer_recv(holder.fd);
    struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
    stager_release(must_take(other));

    kill(holder.pid, SIGKILL);
    int64_t millis = fixture_wait(&fixture, "rows", 250, holder_gone, NULL);
    printf("    memory back after %lld ms\n", (long long)millis);
    trainer_kill(&holder);

    /* The other trains on, and is given what the dead one did not acknowledge. */
    bool redelivered = false;
    for (int i = 0; i < 50; i++) {
        struct stager_batch *batch = must_take(other);
        struct stager_batch_info info;
        stager_batch_info(batch, &info);
        redelivered = redelivered || (info.redelivered && info.number == (uint64_t)held);
        check_pad(batch);
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
    apply_endless(&fixture, "capacity: 2, num_clients: 2");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "leaver", 2);
    struct stager_batch *batch = must_take(stream);
    struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
    stager_close(stream);
    for (int i = 0; i < 100; i++)
        stager_release(must_take(other));
    check_pad(batch); /* I9: nobody wrote over it */
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
    apply_endless(&fixture, "capacity: 1, num_clients: 2, delivery: broadcast");
    struct stager_stream *a = fixture_open(&fixture, "rows", "a", 2);
    struct stager_stream *b = fixture_open(&fixture, "rows", "b", 2);
    struct stager_batch *in_hand = must_take(a), *batch;
    fixture_kill(&fixture);

    int64_t began = now_millis();
    int rc;
    while ((rc = stager_next(b, 10000, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_UNAVAILABLE);
    CHECK(now_millis() - began < 250);
    check_pad(in_hand);

    fixture_restart(&fixture); /* the same folders: a clean start, pipelines known */
    struct stager_stream *fresh = fixture_open(&fixture, "rows", "fresh", 2);
    struct stager_stream *fresh2 = fixture_open(&fixture, "rows", "fresh2", 2);
    stager_release(must_take(fresh));
    stager_release(must_take(fresh2));
    check_pad(in_hand);
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
        apply_endless(&fixture, "num_clients: 2, delivery: broadcast");
        struct trainer trainer;
        trainer_start(&trainer, sleep_body, &fixture, NULL);
        trainer_recv(trainer.fd);
        int64_t began = now_millis();
        if (by_kill)
            fixture_kill(&fixture);
        else
            fixture_stop(&fixture);
        CHECK_INT(trainer_recv(trainer.fd), -STAGER_UNAVAILABLE);
        CHECK(now_millis() - began < 2000);
        trainer_join(&trainer);
        fixture_finish(&fixture);
    }
}

static void no_daemon_is_said_at_once_with_the_cure(void)
{
    struct stager *client;
    int64_t began = now_millis();
    CHECK_INT(stager_connect("/nonexistent/stager", &client), -STAGER_UNAVAILABLE);
    CHECK(now_millis() - began < 100);
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
    char who[64];
    snprintf(who, sizeof(who), "another stagerd (pid %d)", (int)fixture.pid);
    CHECK_CONTAINS(text, who);
    struct stager *client; /* the first is unaffected */
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    stager_disconnect(client);
    fixture_finish(&fixture);
}

/* ---- hostile peers
 * ------------------------------------------------------------------------ */

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

static void a_client_of_another_version_is_told_both_ranges(void)
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
    CHECK_CONTAINS(reply.text, "1 to 1");
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
        char bell = '!';
        struct iovec iov = {.iov_base = &bell, .iov_len = 1};
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
    apply_endless(&fixture, "capacity: 1");
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
    stager_release(must_take(stream));
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

/* Writes into the control page what no client should. */
static void liar_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "rows", "liar", 2);
    struct stager_batch *batch = must_take(stream);
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

static void a_lying_client_is_detached_and_harms_nobody(void)
{
    for (int lie = 0; lie < 3; lie++) {
        struct fixture fixture;
        fixture_start(&fixture, "");
        apply_endless(&fixture, "capacity: 2, num_clients: 2");
        struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
        struct trainer liar;
        trainer_start(&liar, liar_body, &fixture, (void *)(intptr_t)lie);
        for (int i = 0; i < 200; i++) {
            struct stager_batch *batch = must_take(other);
            check_pad(batch);
            stager_release(batch);
        }
        CHECK_INT(trainer_recv(liar.fd), -STAGER_INVALID_ARGUMENT);
        trainer_join(&liar);
        stager_release(must_take(other));
        stager_close(other);
        fixture_finish(&fixture);
    }
}

static bool nobody_there(const struct fixture_status *status, void *arg)
{
    return status->n_clients == 0;
}

/* An empty pass costs no credit: only the rule that a client asks for one pass at a time
 * keeps the daemon from running them as fast as it can. */
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
    CHECK_CONTAINS(stager_error_text(stream), "ahead of the end");
    stager_close(stream);
    fixture_finish(&fixture);
}

static void shared_memory_cannot_be_written_by_a_client(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_endless(&fixture, "capacity: 1");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    struct stager_batch *batch = must_take(stream);
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
    apply_endless(&fixture, "capacity: 2, num_clients: 2");
    struct trainer holder;
    trainer_start(&holder, holder_body, &fixture, NULL);
    trainer_recv(holder.fd);
    kill(holder.pid, SIGSTOP);
    struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
    for (int i = 0; i < 500; i++) {
        struct stager_batch *batch = must_take(other);
        check_pad(batch);
        stager_release(batch);
    }
    kill(holder.pid, SIGCONT);
    trainer_kill(&holder);
    stager_close(other);
    fixture_finish(&fixture);
}

static void a_held_batch_that_others_wait_for_expires(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_endless(&fixture, "capacity: 1, num_clients: 2, delivery: broadcast, "
                            "hold_timeout_millis: 200");
    struct stager_stream *fast = fixture_open(&fixture, "rows", "fast", 2);
    struct stager_stream *stuck = fixture_open(&fixture, "rows", "stuck", 2);
    struct stager_batch *in_hand = must_take(stuck), *batch;
    for (int i = 0; i < 20; i++)
        stager_release(must_take(fast));
    check_pad(in_hand);
    int rc;
    stager_release(in_hand);
    while ((rc = stager_next(stuck, 10000, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(stuck), "hold_timeout_millis");
    stager_close(stuck);
    stager_close(fast);
    fixture_finish(&fixture);
}

static void the_batch_after_one_that_is_done_with_expires_too(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_endless(&fixture, "capacity: 1, num_clients: 2, delivery: broadcast, "
                            "hold_timeout_millis: 200");
    struct stager_stream *fast = fixture_open(&fixture, "rows", "fast", 2);
    struct stager_stream *stuck = fixture_open(&fixture, "rows", "stuck", 2);
    struct stager_batch *done = must_take(stuck), *in_hand = must_take(stuck), *batch;
    for (int i = 0; i < 20; i++)
        stager_release(must_take(fast));
    stager_release(done);
    stager_release(in_hand);
    int rc;
    while ((rc = stager_next(stuck, 10000, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(stuck), "held batch 1 ");
    stager_close(stuck);
    stager_close(fast);
    fixture_finish(&fixture);
}

/* Takes every batch and keeps the first, unacknowledged, for as long as it can. */
static void keeper_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_options options = {
        .runtime_dir = fixture->runtime, .client_id = "keeper", .ack_explicit = 1};
    struct stager_stream *stream;
    CHECK_INT(stager_open(NULL, "rows", &options, &stream), 0);
    trainer_send(fd, 1);
    struct stager_batch *first = must_take(stream);
    for (int i = 0; i < 6; i++)
        stager_release(must_take(stream));
    trainer_send(fd, 2);
    stager_release(first);
    stager_close(stream);
}

static bool two_are_held(const struct fixture_status *status, void *arg)
{
    for (uint32_t i = 0; i < status->n_clients; i++) {
        if (strcmp(status->clients[i].client_id, "slow") == 0)
            return status->clients[i].held == 2;
    }
    return false;
}

/* The keeper waits, but nobody waits for what it keeps: it is the other that is slow. */
static void a_client_that_only_waits_itself_is_not_expired(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_endless(&fixture, "capacity: 1, num_clients: 2, delivery: broadcast, "
                            "hold_timeout_millis: 300");
    struct trainer keeper;
    trainer_start(&keeper, keeper_body, &fixture, NULL);
    trainer_recv(keeper.fd);
    struct stager_stream *slow = fixture_open(&fixture, "rows", "slow", 2);
    fixture_wait(&fixture, "rows", 10000, two_are_held, NULL);
    /* Its own lateness expires, and lets the keeper go on. */
    CHECK_INT(trainer_recv(keeper.fd), 2);
    trainer_join(&keeper);
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(slow, 10000, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    stager_close(slow);
    fixture_finish(&fixture);
}

/* A process that left and keeps a batch costs that memory, not the pipeline. */
static void a_batch_kept_after_close_does_not_keep_the_pipeline(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_endless(&fixture, "capacity: 2, num_clients: 1");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "first", 2);
    struct stager_batch *kept = must_take(stream);
    stager_close(stream);
    int64_t began = now_millis();
    for (int i = 0; i < 3; i++) {
        stream = fixture_open(&fixture, "rows", "again", 2);
        stager_release(must_take(stream));
        stager_close(stream);
    }
    CHECK(now_millis() - began < 10000);
    check_pad(kept);
    stager_release(kept);
    fixture_finish(&fixture);
}

static void a_stop_does_not_wait_for_batches_in_hand(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_endless(&fixture, "capacity: 2");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    struct stager_batch *kept = must_take(stream);
    int64_t began = now_millis();
    fixture_stop(&fixture);
    CHECK(now_millis() - began < 1500);
    check_pad(kept);
    stager_release(kept);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* The thread of that name in stagerd, or 0. */
static pid_t find_thread(pid_t pid, const char *name)
{
    char path[64], comm[32];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    CHECK(tasks != NULL);
    pid_t found = 0;
    struct dirent *entry;
    while (found == 0 && (entry = readdir(tasks)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", (int)pid, entry->d_name);
        FILE *file = fopen(path, "re");
        if (file != NULL && fgets(comm, sizeof(comm), file) != NULL &&
            strncmp(comm, name, strlen(name)) == 0)
            found = (pid_t)atoi(entry->d_name);
        if (file != NULL)
            fclose(file);
    }
    closedir(tasks);
    return found;
}

/* A thread that a debugger holds is as deaf as one in a read of a dead server. */
static void a_runner_that_hangs_does_not_keep_the_daemon(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_endless(&fixture, "capacity: 2");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    stager_release(must_take(stream));
    pid_t runner = find_thread(fixture.pid, "rows/0");
    CHECK(runner > 0);
    if (ptrace(PTRACE_ATTACH, runner, NULL, NULL) < 0) {
        stager_close(stream);
        fixture_finish(&fixture);
        SKIP("ptrace is not allowed here");
    }
    int status;
    CHECK_INT(waitpid(runner, &status, __WALL), runner);
    CHECK(WIFSTOPPED(status));
    kill(fixture.pid, SIGTERM);
    CHECK_INT(waitpid(runner, &status, __WALL), runner);
    CHECK_INT(waitpid(fixture.pid, &status, 0), fixture.pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    char path[256];
    snprintf(path, sizeof(path), "%.128s/attach.sock", fixture.runtime);
    CHECK(access(path, F_OK) < 0);
    fixture.pid = 0;
    stager_close(stream);
    fixture_finish(&fixture);
}

static long cpu_ticks(pid_t pid)
{
    char path[64], text[1024] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL && fgets(text, sizeof(text), file) != NULL);
    fclose(file);
    unsigned long user, system;
    CHECK(sscanf(strrchr(text, ')') + 2,
                 "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                 &system) == 2);
    return (long)(user + system);
}

static void waiting_body(struct fixture *fixture, int fd, void *arg)
{
    trainer_send(fd, 1);
    struct stager_stream *stream = fixture_open(fixture, "late", arg, 2);
    stager_release(must_take(stream));
    trainer_send(fd, 2);
    stager_close(stream);
}

static void opens_that_wait_for_memory_cost_no_time(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 220000000\n"); /* for one run */
    apply_endless(&fixture, "capacity: 2, num_clients: 1");
    fixture_apply(&fixture, "name: late\n"
                            "dataset:\n  - range: {stop: 64}\n"
                            "  - batch: {batch_size: 2, drop_remainder: true}\n"
                            "staged: {num_clients: 2}\n");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "first", 2);
    struct stager_batch *kept = must_take(stream);
    stager_close(stream);
    struct trainer waiting[2];
    char names[2][2] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        trainer_start(&waiting[i], waiting_body, &fixture, names[i]);
        trainer_recv(waiting[i].fd);
    }
    long before = cpu_ticks(fixture.pid);
    int64_t began = now_millis();
    while (now_millis() - began < 1000)
        poll(NULL, 0, 100);
    long ticks = cpu_ticks(fixture.pid) - before;
    if (ticks * 4 > sysconf(_SC_CLK_TCK))
        FAIL("%ld ticks in a second of waiting", ticks);
    stager_release(kept);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(trainer_recv(waiting[i].fd), 2);
        trainer_join(&waiting[i]);
    }
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
    TEST(a_client_of_another_version_is_told_both_ranges),
    TEST(descriptors_that_a_client_sends_are_not_taken),
    TEST(garbage_on_the_socket_ends_that_connection_only),
    TEST(a_lying_client_is_detached_and_harms_nobody),
    TEST(a_client_cannot_ask_for_all_passes_at_once),
    TEST(shared_memory_cannot_be_written_by_a_client),
    TEST(a_file_in_the_sockets_place_is_not_removed),
    TEST(a_stopped_trainer_slows_only_itself),
    TEST(a_held_batch_that_others_wait_for_expires),
    TEST(the_batch_after_one_that_is_done_with_expires_too),
    TEST(a_client_that_only_waits_itself_is_not_expired),
    TEST(a_batch_kept_after_close_does_not_keep_the_pipeline),
    TEST(a_stop_does_not_wait_for_batches_in_hand),
    TEST(a_runner_that_hangs_does_not_keep_the_daemon),
    TEST(opens_that_wait_for_memory_cost_no_time),
};

TEST_MAIN(tests)
