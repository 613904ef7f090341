/* SPDX-License-Identifier: Apache-2.0
 *
 * Several trainers on one device, played by a stand-in: the copies shared by all of them,
 * and their fate if a trainer dies, stager-gpu dies, or memory runs out.
 */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "tests/check.h"
#include "tests/client/device/on_device.h"
#include "tests/system/fixture.h"

#define ROWS 50
#define MAX_TRAINERS 4
#define LAST INT64_MIN /* a trainer sends this, then its counts */

static const char *const shared = "gpu: {device: cuda:0}";

/* ---- trainers ---- */

struct course {
    char client_id[16];
    int64_t most;  /* batches before it waits to be killed; 0: runs to the end */
    int64_t rests; /* after this many it waits for a word; 0: never */
};

/* Checks every value of the batch, as the device holds it. */
static int64_t look(const struct stager_batch *batch)
{
    struct stager_tensor x, pad;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    CHECK_INT(stager_batch_tensor(batch, "pad", &pad), 0);
    CHECK_INT(x.device, 1);
    standin->synchronize(); /* its own copies; shared ones are not counted */
    const int64_t *values = standin->see(x.data);
    const float *pads = standin->see(pad.data);
    for (int i = 0; i < x.shape[0]; i++)
        CHECK_INT(values[i], values[0] + i);
    for (int i = 0; i < pad.shape[0]; i++)
        CHECK(pads[i] == 1.5f);
    return values[0] / ROWS;
}

static void train(struct fixture *fixture, int fd, void *arg)
{
    const struct course *course = arg;
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    struct stager_stream *stream;
    struct stager_batch *batch;
    on_device_load();
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = course->client_id,
                                     .runtime_dir = fixture->runtime,
                                     .device = "cuda:0"};
    if (stager_open(NULL, "p", &options, &stream) < 0)
        FAIL("open: %s", stager_error_text(NULL));
    trainer_send(fd, -1);
    int rc = 0;
    for (int64_t n = 0; course->most == 0 || n < course->most; n++) {
        rc = stager_next(stream, fixture_millis(20000), &batch);
        if (rc < 0)
            break;
        trainer_send(fd, look(batch));
        stager_release(batch);
        if (n + 1 == course->rests)
            trainer_recv(fd);
    }
    while (rc == 0)
        pause();
    stager_stream_info(stream, &info);
    trainer_send(fd, LAST);
    trainer_send(fd, rc);
    trainer_send(fd, (int64_t)info.batches);
    trainer_send(fd, (int64_t)info.device_shared);
    trainer_send(fd, (int64_t)standin->n_copies);
    trainer_recv(fd); /* as long as it is attached, the pipeline runs */
    stager_close(stream);
    CHECK_INT(standin->n_allocations, 0);
    CHECK_INT(standin->n_events, 0);
}

struct result {
    bool is_done;
    int64_t rc, batches, shared, copies;
};

/* Receives one number: a batch, or the end. */
static void hear(const struct trainer *trainer, unsigned *seen, int64_t n,
                 struct result *ret)
{
    int64_t value = trainer_recv(trainer->fd);
    if (value != LAST) {
        CHECK(value >= 0 && value < n);
        seen[value]++;
        return;
    }
    ret->is_done = true;
    ret->rc = trainer_recv(trainer->fd);
    ret->batches = trainer_recv(trainer->fd);
    ret->shared = trainer_recv(trainer->fd);
    ret->copies = trainer_recv(trainer->fd);
}

/* Counts the trainers' batches until all report the end; seen: n of each. */
static void hear_all(const struct trainer *trainers, unsigned n_trainers, unsigned *seen,
                     int64_t n, struct result *ret)
{
    for (unsigned left = n_trainers; left > 0;) {
        struct pollfd fds[MAX_TRAINERS];
        for (unsigned i = 0; i < n_trainers; i++)
            fds[i] = (struct pollfd){.fd = ret[i].is_done ? -1 : trainers[i].fd,
                                     .events = POLLIN};
        if (poll(fds, n_trainers, (int)fixture_millis(20000)) <= 0)
            FAIL("no trainer says anything");
        for (unsigned i = 0; i < n_trainers; i++) {
            if (fds[i].fd >= 0 && fds[i].revents != 0)
                hear(&trainers[i], seen + i * n, n, &ret[i]);
            left -= fds[i].fd >= 0 && ret[i].is_done;
        }
    }
}

static void finish(struct trainer *trainer)
{
    trainer_send(trainer->fd, 0);
    trainer_join(trainer);
}

static void start(struct trainer *trainers, struct course *courses, unsigned n,
                  struct fixture *fixture)
{
    for (unsigned i = 0; i < n; i++) {
        snprintf(courses[i].client_id, sizeof(courses[i].client_id), "t%u", i);
        trainer_start(&trainers[i], train, fixture, &courses[i]);
        CHECK_INT(trainer_recv(trainers[i].fd), -1);
    }
}

/* ---- the daemon ---- */

static void begin(struct fixture *fixture)
{
    setenv("STAGER_CUDA_DIR", getenv("STG_STANDIN_DIR"), 1);
    fixture_start(fixture, "");
    unsetenv("STG_STANDIN_DEVICES");
    unsetenv("STG_STANDIN_MEMORY");
    unsetenv("STG_STANDIN_NO_READ_ONLY");
}

static void apply(struct fixture *fixture, int n_batches, unsigned num_clients,
                  const char *staged, const char *gpu)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "name: p\ndataset:\n  - range: {stop: %d}\n  - batch: {batch_size: %d}\n"
             "graph:\n  - {name: pad, op: constant, value: 1.5, shape: [30000]}\n"
             "staged: {features: {x: value, pad: pad}, num_clients: %u, num_threads: 2, "
             "capacity: 3, reconnect_grace_millis: 0%s}\n%s\n",
             n_batches * ROWS, ROWS, num_clients, staged, gpu);
    fixture_apply(fixture, yaml);
}

static pid_t find_helper(pid_t parent)
{
    DIR *dir = opendir("/proc");
    pid_t found = 0;
    struct dirent *entry;
    while (found == 0 && (entry = readdir(dir)) != NULL) {
        char path[300], line[64] = "";
        int pid = atoi(entry->d_name), its_parent = 0;
        snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        FILE *file = pid > 0 ? fopen(path, "r") : NULL;
        if (file == NULL)
            continue;
        if (fscanf(file, "%*d (%63[^)]) %*c %d", line, &its_parent) == 2 &&
            its_parent == parent && strcmp(line, "stager-gpu") == 0)
            found = pid;
        fclose(file);
    }
    closedir(dir);
    return found;
}

struct gpu_status {
    uint64_t copies, published;
    char gpu[32], why[256];
};

static void look_at(struct fixture *fixture, struct gpu_status *ret)
{
    struct stg_reply reply;
    struct stager *client = fixture_ask(fixture, STG_REQUEST_STATUS, "p", &reply);
    *ret = (struct gpu_status){.copies = reply.status.gpu_copies,
                               .published = reply.status.published};
    snprintf(ret->gpu, sizeof(ret->gpu), "%s", reply.status.gpu);
    snprintf(ret->why, sizeof(ret->why), "%s", reply.status.gpu_why);
    stager_disconnect(client);
}

/* ---- one copy for all ---- */

static void all_get_all_of_one_copy(unsigned n)
{
    struct fixture fixture;
    struct trainer trainers[MAX_TRAINERS];
    struct course courses[MAX_TRAINERS] = {0};
    struct result results[MAX_TRAINERS] = {0};
    struct gpu_status status;
    unsigned seen[MAX_TRAINERS][200] = {0};
    begin(&fixture);
    apply(&fixture, 200, n, ", delivery: broadcast", shared);
    start(trainers, courses, n, &fixture);
    hear_all(trainers, n, seen[0], 200, results);
    for (unsigned i = 0; i < n; i++) {
        CHECK_INT(results[i].rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(results[i].batches, 200);
        CHECK_INT(results[i].shared, 200);
        CHECK_INT(results[i].copies, 0);
        for (int k = 0; k < 200; k++)
            CHECK_INT(seen[i][k], 1);
    }
    look_at(&fixture, &status);
    CHECK_STR(status.gpu, "cuda:0");
    CHECK_STR(status.why, "");
    CHECK_INT(status.published, 200);
    CHECK_INT(status.copies, 200);
    for (unsigned i = 0; i < n; i++)
        finish(&trainers[i]);
    fixture_finish(&fixture);
}

static void two_trainers_share_one_copy(void)
{
    all_get_all_of_one_copy(2);
}

static void four_trainers_share_one_copy(void)
{
    all_get_all_of_one_copy(4);
}

/* ---- deaths of trainers ---- */

/* One of two trainers is killed while it holds batches; the other one ends as
 * expected. */
static void one_is_killed(const char *staged, int rc, unsigned *seen)
{
    struct fixture fixture;
    struct trainer trainers[2];
    struct course courses[2] = {{.most = 20}, {.most = 0}};
    struct result result = {0};
    begin(&fixture);
    apply(&fixture, 300, 2, staged, shared);
    start(trainers, courses, 2, &fixture);
    for (int i = 0; i < 20; i++)
        seen[trainer_recv(trainers[0].fd)]++;
    trainer_kill(&trainers[0]);
    hear_all(&trainers[1], 1, seen, 300, &result);
    CHECK_INT(result.rc, rc);
    CHECK_INT(result.copies, 0);
    CHECK_INT(result.shared, result.batches);
    finish(&trainers[1]);
    fixture_finish(&fixture);
}

static void a_killed_trainer_costs_the_other_nothing_under_split(void)
{
    unsigned seen[300] = {0};
    one_is_killed("", -STAGER_OUT_OF_RANGE, seen);
    for (int i = 0; i < 300; i++)
        CHECK(seen[i] >= 1);
}

static void a_killed_trainer_costs_the_other_nothing_under_broadcast(void)
{
    unsigned seen[300] = {0};
    one_is_killed(", delivery: broadcast", -STAGER_OUT_OF_RANGE, seen);
    for (int i = 0; i < 300; i++)
        CHECK_INT(seen[i], i < 20 ? 2 : 1);
}

static void a_killed_trainer_ends_a_round_robin_for_the_other(void)
{
    unsigned seen[300] = {0};
    one_is_killed(", delivery: round_robin", -STAGER_ABORTED, seen);
    for (int i = 0; i < 300; i++)
        CHECK(seen[i] <= 1);
}

/* ---- deaths of stager-gpu ---- */

struct death {
    struct fixture *fixture;
    pid_t first;
};

static bool another_shares(const struct fixture_status *status, void *arg)
{
    const struct death *death = arg;
    struct gpu_status gpu;
    pid_t second = find_helper(death->fixture->pid);
    look_at(death->fixture, &gpu);
    return second > 0 && second != death->first && gpu.why[0] == '\0';
}

static void when_stager_gpu_dies_trainers_copy_until_it_is_back(void)
{
    struct fixture fixture;
    struct trainer trainers[2];
    struct course courses[2] = {{.rests = 1000}, {.rests = 1000}};
    struct result results[2] = {0};
    unsigned seen[2][1500] = {0};
    begin(&fixture);
    apply(&fixture, 1500, 2, ", delivery: broadcast", shared);
    start(trainers, courses, 2, &fixture);
    struct death death = {.fixture = &fixture};
    for (int i = 0; i < 1000; i++) {
        for (int k = 0; k < 2; k++)
            hear(&trainers[k], seen[k], 1500, &results[k]);
        if (i != 30)
            continue;
        death.first = find_helper(fixture.pid);
        CHECK(death.first > 0);
        CHECK_INT(kill(death.first, SIGKILL), 0);
    }
    fixture_wait(&fixture, "p", fixture_millis(20000), another_shares, &death);
    for (int i = 0; i < 2; i++)
        trainer_send(trainers[i].fd, 0);
    hear_all(trainers, 2, seen[0], 1500, results);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(results[i].rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(results[i].batches, 1500);
        CHECK_INT(results[i].shared + results[i].copies, 1500);
        CHECK(results[i].copies > 0 && results[i].shared > 400);
        for (int k = 0; k < 1500; k++)
            CHECK_INT(seen[i][k], 1);
    }
    for (int i = 0; i < 2; i++)
        finish(&trainers[i]);
    fixture_finish(&fixture);
}

/* ---- a device that cannot page-lock read-only mappings ---- */

#define BUFFER_TEXT "batches are copied through a buffer"

/* The first mapping is writable until stagerd seals the segment; the next one is not. */
static void the_first_stager_gpu_locks_pages_and_the_next_one_has_a_buffer(void)
{
    struct fixture fixture;
    struct trainer trainers[1];
    struct course courses[1] = {{.rests = 100}};
    struct result results[1] = {0};
    unsigned seen[600] = {0};
    setenv("STG_STANDIN_NO_READ_ONLY", "1", 1);
    begin(&fixture);
    apply(&fixture, 600, 1, "", shared);
    start(trainers, courses, 1, &fixture);
    for (int i = 0; i < 100; i++)
        hear(&trainers[0], seen, 600, &results[0]);
    CHECK_INT(fixture_count_log(&fixture, BUFFER_TEXT), 0);
    struct death death = {.fixture = &fixture, .first = find_helper(fixture.pid)};
    CHECK(death.first > 0);
    CHECK_INT(kill(death.first, SIGKILL), 0);
    fixture_wait(&fixture, "p", fixture_millis(20000), another_shares, &death);
    fixture_wait_log(&fixture, BUFFER_TEXT);
    CHECK_INT(fixture_count_log(&fixture, BUFFER_TEXT), 1);
    trainer_send(trainers[0].fd, 0);
    hear_all(trainers, 1, seen, 600, results);
    CHECK_INT(results[0].rc, -STAGER_OUT_OF_RANGE);
    CHECK(results[0].shared > 200);
    for (int k = 0; k < 600; k++)
        CHECK_INT(seen[k], 1);
    finish(&trainers[0]);
    fixture_finish(&fixture);
}

/* ---- nothing to share ---- */

static void each_copies_for_itself(const char *gpu, const char *why, int64_t most_shared)
{
    struct fixture fixture;
    struct trainer trainers[2];
    struct course courses[2] = {0};
    struct result results[2] = {0};
    struct gpu_status status;
    unsigned seen[2][100] = {0};
    begin(&fixture);
    apply(&fixture, 100, 2, ", delivery: broadcast", gpu);
    start(trainers, courses, 2, &fixture);
    hear_all(trainers, 2, seen[0], 100, results);
    look_at(&fixture, &status);
    CHECK_CONTAINS(status.why, why);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(results[i].rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(results[i].shared + results[i].copies, 100);
        CHECK(results[i].shared <= most_shared && results[i].copies > 0);
        for (int k = 0; k < 100; k++)
            CHECK_INT(seen[i][k], 1);
    }
    finish(&trainers[0]);
    finish(&trainers[1]);
    fixture_finish(&fixture);
}

static void without_a_device_each_copies_for_itself(void)
{
    setenv("STG_STANDIN_DEVICES", "0", 1);
    each_copies_for_itself(shared, "no device", 0);
}

static void without_room_on_the_device_each_copies_for_itself(void)
{
    setenv("STG_STANDIN_MEMORY", "65536", 1);
    each_copies_for_itself(shared, "no ", 0);
}

static void a_device_that_cannot_share_memory_is_reported(void)
{
    setenv("STG_STANDIN_MEMORY", "0", 1);
    each_copies_for_itself(shared, "descriptors", 0);
}

static void a_missing_device_is_reported(void)
{
    each_copies_for_itself("gpu: {device: cuda:3}", "stagerd sees 1", 0);
}

static void what_does_not_fit_the_memory_is_copied_by_each(void)
{
    each_copies_for_itself("gpu: {device: cuda, memory: 400000}", "", 99);
}

/* ---- clients that do not take part ---- */

static void a_client_without_a_device_reads_the_memory_of_the_host(void)
{
    struct fixture fixture;
    struct gpu_status status;
    struct stager_batch *batch;
    begin(&fixture);
    apply(&fixture, 50, 1, "", shared);
    struct stager_stream *stream = fixture_open(&fixture, "p", NULL, 2);
    for (int i = 0; i < 50; i++) {
        struct stager_tensor x;
        batch = fixture_take(stream);
        CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
        CHECK_INT(x.device, 0);
        CHECK_INT(*(const int64_t *)x.data, i * ROWS);
        stager_release(batch);
    }
    look_at(&fixture, &status);
    CHECK_INT(status.copies, 50);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_bad_device_is_refused_when_it_is_applied(void)
{
    struct fixture fixture;
    struct stg_err err = {0};
    begin(&fixture);
    const char *yaml = "name: p\ndataset:\n  - range: {stop: 4}\ngpu: {device: gpu0}\n";
    CHECK_INT(fixture_try_apply(&fixture, yaml, false, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "device is \"gpu0\"");
    fixture_finish(&fixture);
}

static void a_batch_is_not_written_over_while_work_reads_it(void)
{
    struct fixture fixture;
    struct stager_stream *stream;
    struct stager_batch *batch;
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    begin(&fixture);
    on_device_load();
    apply(&fixture, 200, 1, "", shared);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime,
                                     .device = "cuda:0"};
    CHECK_INT(stager_open(NULL, "p", &options, &stream), 0);
    int64_t *late;
    struct stg_stream *work;
    struct stg_err err = {0};
    CHECK_OK(device->host_alloc(sizeof(*late), (void **)&late, &err), err);
    CHECK_OK(device->stream_wrap(0, NULL, &work, &err), err);
    CHECK_INT(stager_next(stream, fixture_millis(20000), &batch), 0);
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    standin->block(work); /* the trainer's work is slow */
    CHECK_OK(device->copy_out(work, late, x.data, sizeof(*late), &err), err);
    stager_release(batch);
    stager_stream_info(stream, &info);
    CHECK(info.held > 0); /* its lease has not been released */
    standin->unblock();
    standin->synchronize();
    CHECK_INT(*late, 0);
    for (int i = 1; i < 200; i++) {
        CHECK_INT(stager_next(stream, fixture_millis(20000), &batch), 0);
        CHECK_INT(look(batch), i);
        stager_release(batch);
    }
    stager_close(stream);
    device->stream_destroy(work);
    device->host_free(late);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(two_trainers_share_one_copy, 60),
    TEST_SLOW(four_trainers_share_one_copy, 60),
    TEST_SLOW(a_killed_trainer_costs_the_other_nothing_under_split, 60),
    TEST_SLOW(a_killed_trainer_costs_the_other_nothing_under_broadcast, 60),
    TEST_SLOW(a_killed_trainer_ends_a_round_robin_for_the_other, 60),
    TEST_SLOW(when_stager_gpu_dies_trainers_copy_until_it_is_back, 60),
    TEST_SLOW(the_first_stager_gpu_locks_pages_and_the_next_one_has_a_buffer, 60),
    TEST_SLOW(without_a_device_each_copies_for_itself, 60),
    TEST_SLOW(without_room_on_the_device_each_copies_for_itself, 60),
    TEST_SLOW(a_device_that_cannot_share_memory_is_reported, 60),
    TEST_SLOW(a_missing_device_is_reported, 60),
    TEST_SLOW(what_does_not_fit_the_memory_is_copied_by_each, 60),
    TEST_SLOW(a_client_without_a_device_reads_the_memory_of_the_host, 60),
    TEST_SLOW(a_bad_device_is_refused_when_it_is_applied, 60),
    TEST_SLOW(a_batch_is_not_written_over_while_work_reads_it, 60),
};

TEST_MAIN(tests)
