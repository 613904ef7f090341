/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers, from the daemon's side: which worker gets a batch, and answers that no honest
 * worker would send. The worker is a forked child that speaks the protocol by hand.
 */
#include "daemon/pyworker/work.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/pipeline/definition.h"
#include "tests/check.h"

#define N_VALUES 1000

static const struct stg_identity unprivileged = {.uid = 65534, .gid = 65534};
static struct stg_budget budget;
static _Atomic int n_woken, is_stopped;

static void wake(void *owner)
{
    atomic_fetch_add(&n_woken, 1);
}

static void release(void *definition)
{
    stg_definition_unref(definition);
}

static struct stg_workers *make_workers(const char *arguments)
{
    char text[512];
    snprintf(text, sizeof(text),
             "dataset: [range: {stop: 9000}, batch: {batch_size: 1000, drop_remainder: "
             "true}, py_function: {function: \"m:f\"%s}]\n",
             arguments);
    struct stg_definition *definition;
    struct stg_err err = {0};
    CHECK_OK(stg_definition_create(text, strlen(text), "p.yaml", &unprivileged, NULL,
                                   &definition, &err),
             err);
    if (budget.total == 0)
        stg_budget_init(&budget, 64ull << 20);
    struct stg_workers_config config = {
        .spec = definition->spec,
        .keeper = definition,
        .release = release,
        .name = "p",
        .budget = &budget,
        .wake = wake,
    };
    struct stg_workers *workers;
    CHECK_OK(stg_workers_create(&config, &workers, &err), err);
    return workers;
}

/* ---- a worker ---- */

/* Runs a job: writes to its scratch memory, and returns the number of bytes it
 * reports. */
typedef uint64_t behave(const struct stg_work_job *job, const char *input, char *scratch);

struct memory {
    char *input, *scratch;
};

static void receive(int channel, struct stg_work_job *job, struct memory *memory)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * 2)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = job, .iov_len = sizeof(*job)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    if (recvmsg(channel, &message, 0) != sizeof(*job))
        _exit(0);
    int fds[2], i = 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    if ((job->memory & STG_WORK_INPUT) != 0)
        memory->input =
            mmap(NULL, job->input_segment_bytes, PROT_READ, MAP_SHARED, fds[i++], 0);
    if ((job->memory & STG_WORK_SCRATCH) != 0)
        memory->scratch = mmap(NULL, job->scratch_segment_bytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED, fds[i], 0);
    if (memory->input == MAP_FAILED || memory->scratch == MAP_FAILED)
        _exit(1);
}

static void work(int channel, behave *does)
{
    struct memory memory = {0};
    struct stg_work_job job;
    for (;;) {
        receive(channel, &job, &memory);
        struct stg_work_answer answer = {.magic = STG_MAGIC_WORK};
        answer.bytes = does(&job, memory.input, memory.scratch);
        answer.job = job.job;
        send(channel, &answer, sizeof(answer), MSG_NOSIGNAL);
    }
}

struct hand {
    struct stg_worker *worker;
    pid_t pid;
};

static struct hand hire(struct stg_workers *workers, behave *does)
{
    struct hand hand;
    struct stg_err err = {0};
    int channel;
    CHECK_OK(stg_workers_admit(workers, 17, 0, &hand.worker, &channel, &err), err);
    hand.pid = fork();
    if (hand.pid == 0)
        work(channel, does);
    close(channel);
    stg_worker_ready(hand.worker);
    return hand;
}

static void dismiss(struct hand *hand)
{
    stg_worker_leave(hand->worker);
    kill(hand->pid, SIGKILL);
    waitpid(hand->pid, NULL, 0);
}

/* ---- a call ---- */

static int64_t values[N_VALUES];

static int call(struct stg_workers *workers, bool is_computed, struct stg_err *err)
{
    struct stg_tensor tensor = {.dtype = STAGER_INT64,
                                .ndim = 1,
                                .shape = {N_VALUES},
                                .data = values,
                                .data_bytes = sizeof(values)};
    for (int i = 0; i < N_VALUES; i++)
        values[i] = i;
    struct stg_block block = {
        .n_components = 1, .tensors = &tensor, .n_records = 1, .n_rows = N_VALUES};
    struct stg_work_call one = {.block = &block,
                                .max_output_bytes = 1 << 20,
                                .is_computed = is_computed,
                                .start_timeout_millis = 200,
                                .stopped = &is_stopped};
    struct stg_tensor result[1];
    struct stg_worker *worker;
    int rc = stg_work_call(workers, &one, result, &worker, err);
    if (rc == 0) {
        CHECK_INT(result[0].shape[0], N_VALUES);
        CHECK_INT(result[0].data_bytes, sizeof(values));
        /* The range to copy lies inside the existing memory. */
        volatile const char *at = result[0].data;
        for (uint64_t i = 0; i < result[0].data_bytes; i += 64)
            (void)at[i];
    }
    stg_work_release(worker);
    return rc;
}

static int64_t *put_values(char *scratch, const struct stg_work_job *job,
                           struct stg_batch_writer *writer)
{
    struct stg_component component = {
        .name = "value", .dtype = STAGER_INT64, .ndim = 1, .shape = {N_VALUES}};
    struct stg_schema schema = {.components = &component, .n = 1};
    struct stg_tensor tensor;
    if (stg_batch_writer_begin(writer, scratch, job->scratch_segment_bytes, &schema,
                               NULL) < 0 ||
        stg_batch_writer_alloc(writer, 0, STAGER_INT64, 1, component.shape, 0, &tensor,
                               NULL) < 0)
        _exit(1);
    return tensor.data;
}

static uint64_t doubles(const struct stg_work_job *job, const char *input, char *scratch)
{
    struct stg_batch_writer writer;
    struct stg_tensor in;
    stg_batch_tensor_at(input, 0, &in, NULL);
    int64_t *to = put_values(scratch, job, &writer);
    for (int i = 0; i < N_VALUES; i++)
        to[i] = 2 * ((const int64_t *)in.data)[i];
    return stg_batch_writer_seal(&writer);
}

static struct stg_batch_header *header_of(char *scratch)
{
    return (struct stg_batch_header *)(void *)scratch;
}

static struct stg_tensor_entry *entry_of(char *scratch)
{
    return (struct stg_tensor_entry *)(void *)(scratch + sizeof(struct stg_batch_header));
}

/* One honest answer, corrupted at one place. */
#define SPOILED(name, change)                                                            \
    static uint64_t name(const struct stg_work_job *job, const char *input,              \
                         char *scratch)                                                  \
    {                                                                                    \
        uint64_t bytes = doubles(job, input, scratch);                                   \
        change;                                                                          \
        return bytes;                                                                    \
    }

SPOILED(too_many_bytes, bytes = job->scratch_segment_bytes + 1)
SPOILED(too_few_bytes, bytes = 8)
SPOILED(another_magic, header_of(scratch)->magic ^= 1)
SPOILED(another_kind, header_of(scratch)->kind = 7)
SPOILED(another_header, header_of(scratch)->header_bytes += 8)
SPOILED(another_number, header_of(scratch)->n_tensors = UINT32_MAX)
SPOILED(data_behind_the_end, entry_of(scratch)->data_offset = bytes)
SPOILED(data_far_away, entry_of(scratch)->data_offset = UINT64_MAX - 63)
SPOILED(data_in_the_header, entry_of(scratch)->data_offset = 64)
SPOILED(data_of_other_bytes, entry_of(scratch)->data_bytes -= 8)
SPOILED(many_dimensions, entry_of(scratch)->ndim = 9)
SPOILED(a_negative_dimension, entry_of(scratch)->shape[0] = -1000)
SPOILED(an_error_without_code,
        (header_of(scratch)->kind = STG_BATCH_ERROR, header_of(scratch)->error_code = 0))
SPOILED(an_error_far_away,
        (header_of(scratch)->kind = STG_BATCH_ERROR, header_of(scratch)->error_code = 3,
         header_of(scratch)->error_bytes = UINT32_MAX))

static void what_a_worker_gives_is_taken(void)
{
    struct stg_workers *workers = make_workers("");
    struct hand hand = hire(workers, doubles);
    struct stg_err err = {0};
    for (int i = 0; i < 100; i++)
        CHECK_OK(call(workers, i % 2 == 0, &err), err);
    struct stg_workers_counts counts;
    stg_workers_count(workers, &counts);
    CHECK_INT(counts.n_ready, 1);
    CHECK_INT(counts.n_calls, 100);
    CHECK_INT(counts.n_lost, 0);
    dismiss(&hand);
    stg_workers_unref(workers);
    CHECK_INT(stg_budget_used(&budget), 0);
}

static void an_answer_that_is_no_batch_costs_the_worker_its_place(void)
{
    static behave *const all[] = {
        too_many_bytes,        too_few_bytes,     another_magic,
        another_kind,          another_header,    another_number,
        data_behind_the_end,   data_far_away,     data_in_the_header,
        data_of_other_bytes,   many_dimensions,   a_negative_dimension,
        an_error_without_code, an_error_far_away,
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct stg_workers *workers = make_workers("");
        struct hand hand = hire(workers, all[i]);
        struct stg_err err = {0};
        int woken = atomic_load(&n_woken);
        CHECK_INT(call(workers, true, &err), -STAGER_ABORTED);
        CHECK_CONTAINS(err.text,
                       "m:f: its worker, pid 17, answered with a malformed batch");
        CHECK(stg_worker_is_disconnected(hand.worker));
        CHECK(atomic_load(&n_woken) > woken);
        CHECK_INT(call(workers, true, &err), -STAGER_FAILED_PRECONDITION);
        CHECK_CONTAINS(err.text, "the last one, pid 17, answered with a malformed batch");
        dismiss(&hand);
        stg_workers_unref(workers);
    }
    CHECK_INT(stg_budget_used(&budget), 0);
}

static uint64_t another_shape(const struct stg_work_job *job, const char *input,
                              char *scratch)
{
    uint64_t bytes = doubles(job, input, scratch);
    entry_of(scratch)->shape[0]--;
    return bytes;
}

static uint64_t says_no(const struct stg_work_job *job, const char *input, char *scratch)
{
    return stg_batch_write_error(scratch, job->scratch_segment_bytes, 3,
                                 "ValueError:\x1b[31m\nred");
}

static void a_worker_that_answers_with_an_error_or_another_shape_keeps_its_place(void)
{
    struct stg_workers *workers = make_workers("");
    struct stg_err err = {0};
    struct hand hand = hire(workers, another_shape);
    CHECK_INT(call(workers, false, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "value is int64 [999], but was declared as int64 [1000]");
    CHECK(!stg_worker_is_disconnected(hand.worker));
    dismiss(&hand);
    hand = hire(workers, says_no);
    CHECK_INT(call(workers, false, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "m:f: ValueError: [31m red");
    CHECK(!stg_worker_is_disconnected(hand.worker));
    dismiss(&hand);
    stg_workers_unref(workers);
}

/* Keeps flipping bytes of its answer while the daemon reads it. */
static uint64_t flips(const struct stg_work_job *job, const char *input, char *scratch)
{
    static pid_t flipper;
    uint64_t bytes = doubles(job, input, scratch);
    if (flipper != 0)
        return bytes;
    flipper = fork();
    if (flipper != 0)
        return bytes;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    uint64_t seed = 88172645463325252u;
    for (;;) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        volatile char *at = scratch + seed % 512;
        char before = *at;
        *at = (char)(seed >> 32);
        *at = before;
    }
}

/* The result depends on the time of the read: the result, its error, or none. */
static void bytes_that_change_while_they_are_read_cause_no_fault(void)
{
    struct stg_workers *workers = make_workers("");
    struct stg_err err = {0};
    for (int round = 0; round < 20; round++) {
        struct hand hand = hire(workers, flips);
        int rc = 0;
        for (int i = 0; i < 500 && rc != -STAGER_ABORTED; i++) {
            rc = call(workers, i % 2 == 0, &err);
            CHECK(rc == 0 || rc == -STAGER_INVALID_ARGUMENT || rc == -STAGER_ABORTED ||
                  (rc < 0 && rc >= -STAGER_UNAUTHENTICATED));
        }
        dismiss(&hand);
    }
    stg_workers_unref(workers);
    CHECK_INT(stg_budget_used(&budget), 0);
}

static uint64_t dies(const struct stg_work_job *job, const char *input, char *scratch)
{
    _exit(1);
}

static uint64_t hangs(const struct stg_work_job *job, const char *input, char *scratch)
{
    while (pause() < 0)
        continue;
    return 0;
}

static void a_worker_that_dies_or_hangs_costs_its_batch(void)
{
    struct stg_workers *workers = make_workers(", timeout_millis: 50");
    struct stg_err err = {0};
    struct hand dead = hire(workers, dies);
    CHECK_INT(call(workers, false, &err), -STAGER_ABORTED);
    CHECK_CONTAINS(err.text, "exited during a call");
    dismiss(&dead);
    struct hand stuck = hire(workers, hangs);
    CHECK_INT(call(workers, false, &err), -STAGER_ABORTED);
    CHECK_CONTAINS(err.text, "was still working after timeout_millis 50");
    CHECK(stg_worker_is_disconnected(stuck.worker));
    dismiss(&stuck);
    struct stg_workers_counts counts;
    stg_workers_count(workers, &counts);
    CHECK_INT(counts.n_lost, 2);
    CHECK_INT(counts.n_ready, 0);
    stg_workers_unref(workers);
}

static void a_batch_is_retried_if_the_step_allows_it(void)
{
    struct stg_workers *workers = make_workers(", retries: 1");
    struct stg_err err = {0};
    struct hand good = hire(workers, doubles);
    struct hand dead = hire(workers, dies); /* the newest worker gets the first job */
    CHECK_OK(call(workers, false, &err), err);
    CHECK(stg_worker_is_disconnected(dead.worker));
    dismiss(&dead);
    dismiss(&good);
    stg_workers_unref(workers);
}

static void *stop_soon(void *arg)
{
    poll(NULL, 0, 50);
    atomic_store(&is_stopped, 1);
    return NULL;
}

static void a_call_ends_when_all_is_stopped(void)
{
    struct stg_workers *workers = make_workers("");
    struct stg_err err = {0};
    struct hand stuck = hire(workers, hangs);
    pthread_t thread;
    pthread_create(&thread, NULL, stop_soon, NULL);
    CHECK_INT(call(workers, false, &err), -STAGER_CANCELLED);
    pthread_join(thread, NULL);
    CHECK_INT(call(workers, false, &err), -STAGER_CANCELLED);
    atomic_store(&is_stopped, 0);
    dismiss(&stuck);
    stg_workers_unref(workers);
}

static void stopped_workers_admit_no_process(void)
{
    struct stg_workers *workers = make_workers("");
    struct stg_err err = {0};
    struct hand hand = hire(workers, doubles);
    stg_workers_stop(workers, "replaced by generation 2");
    CHECK(stg_worker_is_disconnected(hand.worker));
    CHECK_INT(call(workers, false, &err), -STAGER_ABORTED);
    CHECK_CONTAINS(err.text, "replaced by generation 2");
    struct stg_worker *worker;
    int channel;
    CHECK_INT(stg_workers_admit(workers, 1, 0, &worker, &channel, &err), -STAGER_ABORTED);
    dismiss(&hand);
    stg_workers_unref(workers);
}

/* The answer to another job. */
static uint64_t answers_the_next(const struct stg_work_job *job, const char *input,
                                 char *scratch)
{
    ((struct stg_work_job *)(uintptr_t)job)->job++;
    return doubles(job, input, scratch);
}

static void a_worker_that_answers_without_a_request_is_disconnected(void)
{
    struct stg_workers *workers = make_workers("");
    struct stg_err err = {0};
    struct hand hand = hire(workers, answers_the_next);
    CHECK_INT(call(workers, false, &err), -STAGER_ABORTED);
    CHECK_CONTAINS(err.text, "sent an unexpected answer");
    CHECK(stg_worker_is_disconnected(hand.worker));
    dismiss(&hand);
    stg_workers_unref(workers);
}

/* A worker in this process, idle. */
static struct stg_worker *admit(struct stg_workers *workers, int *ret_channel)
{
    struct stg_worker *worker;
    struct stg_err err = {0};
    CHECK_OK(stg_workers_admit(workers, 17, 0, &worker, ret_channel, &err), err);
    stg_worker_ready(worker);
    return worker;
}

static void a_worker_beyond_the_limit_is_not_admitted(void)
{
    struct stg_workers *workers = make_workers("");
    struct stg_err err = {0};
    struct stg_worker *all[3], *none;
    int channels[3], channel;
    for (int i = 0; i < 2; i++)
        CHECK_OK(stg_workers_admit(workers, 17, 2, &all[i], &channels[i], &err), err);
    CHECK_INT(stg_workers_admit(workers, 18, 2, &none, &channel, &err),
              -STAGER_ALREADY_EXISTS);
    CHECK_CONTAINS(err.text, "pipeline p has all of the 2 workers");
    CHECK_OK(stg_workers_admit(workers, 18, 0, &all[2], &channels[2], &err), err);
    stg_worker_leave(all[0]);
    stg_worker_leave(all[1]);
    CHECK_OK(stg_workers_admit(workers, 18, 2, &all[0], &channel, &err), err);
    stg_worker_leave(all[0]);
    stg_worker_leave(all[2]);
    close(channel);
    for (size_t i = 0; i < 3; i++)
        close(channels[i]);
    stg_workers_unref(workers);
}

/* It died, or sent an answer without a request. It has no batch to lose. */
static void a_free_worker_that_is_found_lost_costs_no_batch(void)
{
    struct stg_workers *workers = make_workers("");
    struct stg_err err = {0};
    struct hand good = hire(workers, doubles);
    const struct stg_work_answer ends = {
        .magic = STG_MAGIC_WORK, .kind = STG_WORK_ENDED, .status = -9};
    const struct stg_work_answer none = {.magic = STG_MAGIC_WORK, .job = 99};
    const struct {
        const void *bytes;
        size_t n;
    } words[] = {{NULL, 0}, {&ends, sizeof(ends)}, {&none, sizeof(none)}, {"short", 5}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        int channel;
        struct stg_worker *worker = admit(workers, &channel);
        if (words[i].bytes != NULL)
            CHECK_INT(send(channel, words[i].bytes, words[i].n, 0), words[i].n);
        close(channel);
        CHECK_OK(call(workers, false, &err), err);
        CHECK(stg_worker_is_disconnected(worker));
        stg_worker_leave(worker);
    }
    dismiss(&good);
    CHECK_INT(call(workers, false, &err), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "the last one, pid 17, sent an unexpected answer");
    stg_workers_unref(workers);
}

struct ending {
    int channel;
    int32_t status;
    struct stg_worker *leaves; /* NULL: no worker */
};

static void *end_soon(void *arg)
{
    struct ending *ending = arg;
    struct pollfd poll_fd = {.fd = ending->channel, .events = POLLIN};
    poll(&poll_fd, 1, -1); /* for the job */
    if (ending->leaves != NULL)
        stg_worker_leave(ending->leaves);
    struct stg_work_answer answer = {
        .magic = STG_MAGIC_WORK, .kind = STG_WORK_ENDED, .status = ending->status};
    if (ending->status != 0)
        send(ending->channel, &answer, sizeof(answer), MSG_NOSIGNAL);
    return NULL;
}

static void check_ending(int32_t status, bool leaves, const char *text)
{
    struct stg_workers *workers = make_workers("");
    struct stg_err err = {0};
    struct ending ending = {.status = status};
    struct stg_worker *worker = admit(workers, &ending.channel);
    ending.leaves = leaves ? worker : NULL;
    pthread_t thread;
    pthread_create(&thread, NULL, end_soon, &ending);
    CHECK_INT(call(workers, false, &err), -STAGER_ABORTED);
    pthread_join(thread, NULL);
    CHECK_CONTAINS(err.text, text);
    struct stg_workers_counts counts;
    stg_workers_count(workers, &counts);
    CHECK_INT(counts.n_lost, 1);
    CHECK_INT(counts.n_ready, 0);
    close(ending.channel);
    if (!leaves)
        stg_worker_leave(worker);
    stg_workers_unref(workers);
    CHECK_INT(stg_budget_used(&budget), 0);
}

/* Also if the daemon notices the end of its connection first. */
static void the_exit_of_a_worker_is_reported_by_its_parent(void)
{
    for (int leaves = 0; leaves < 2; leaves++) {
        check_ending(3, leaves, "its worker, pid 17, ended with exit status 3 (its");
        check_ending(-9, leaves, "its worker, pid 17, was killed by signal 9 (SIGKILL)");
        check_ending(-1000, leaves, "its worker, pid 17, was killed by signal 1000");
        check_ending(INT32_MIN, leaves, "was killed by signal 2147483648");
    }
}

static void a_worker_whose_exit_is_not_reported_costs_its_batch(void)
{
    check_ending(0, true, "exited during a call");
}

static const struct stg_test tests[] = {
    TEST(what_a_worker_gives_is_taken),
    TEST(an_answer_that_is_no_batch_costs_the_worker_its_place),
    TEST(a_worker_that_answers_with_an_error_or_another_shape_keeps_its_place),
    TEST(bytes_that_change_while_they_are_read_cause_no_fault),
    TEST(a_worker_that_dies_or_hangs_costs_its_batch),
    TEST(a_batch_is_retried_if_the_step_allows_it),
    TEST(a_call_ends_when_all_is_stopped),
    TEST(stopped_workers_admit_no_process),
    TEST(a_worker_that_answers_without_a_request_is_disconnected),
    TEST(a_worker_beyond_the_limit_is_not_admitted),
    TEST(a_free_worker_that_is_found_lost_costs_no_batch),
    TEST(the_exit_of_a_worker_is_reported_by_its_parent),
    TEST(a_worker_whose_exit_is_not_reported_costs_its_batch),
};

TEST_MAIN(tests)
