/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages on the daemon's thread pools: the threads that do the work, and the stages that
 * occupy them.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define POOLS                                                                            \
    "thread_pools:\n"                                                                    \
    "  - {global_name: io, nice: 10}\n"                                                  \
    "  - {global_name: parse, inter_op_threads_num: 2}\n"                                \
    "  - {global_name: wide, nice: 10, intra_op_threads_num: 3}\n"

static void apply(struct fixture *fixture, const char *name, int pool, const char *staged)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "name: %s\ndataset:\n  - range: {stop: 100000}\n"
             "graph:\n  - {name: v, op: sleep, input: [value]}\n"
             "staged: {features: {v: v}, use_stage_subgraph_thread_pool: true, "
             "stage_subgraph_thread_pool_id: %d, %s}\n",
             name, pool, staged);
    fixture_apply(fixture, yaml);
}

static void take(struct stager_stream *stream, int64_t value)
{
    struct stager_batch *batch = fixture_take(stream);
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, "v", &tensor), 0);
    CHECK_INT(*(const int64_t *)tensor.data, value);
    stager_release(batch);
}

/* False: the file does not exist because the thread has ended. */
static bool read_word(const char *path, char *ret, size_t bytes)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    size_t n = fread(ret, 1, bytes - 1, file);
    ret[n] = '\0';
    fclose(file);
    return true;
}

/* Returns the id of stagerd's thread of that name; 0: none. */
static long thread_of(struct fixture *fixture, const char *name)
{
    char path[512], comm[64];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)fixture->pid);
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    long found = 0;
    for (struct dirent *entry; found == 0 && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)fixture->pid,
                 entry->d_name);
        if (!read_word(path, comm, sizeof(comm)))
            continue;
        comm[strcspn(comm, "\n")] = '\0';
        if (strcmp(comm, name) == 0)
            found = atol(entry->d_name);
    }
    closedir(dir);
    return found;
}

/* Field `i` (from 3) of /proc/PID/task/TID/stat; field 2 is "(comm)". */
static long stat_field(struct fixture *fixture, long thread, int i)
{
    char path[128], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/task/%ld/stat", (int)fixture->pid, thread);
    CHECK(read_word(path, text, sizeof(text)));
    char *p = strrchr(text, ')') + 1;
    for (int field = 3; field < i; field++)
        p = strchr(p + 1, ' ');
    return atol(p);
}

static void the_work_is_done_by_the_pools_threads(void)
{
    struct fixture fixture;
    fixture_start(&fixture, POOLS);
    apply(&fixture, "p", 0, "num_threads: 3");
    long io = thread_of(&fixture, "io/0");
    CHECK(io != 0);
    CHECK(thread_of(&fixture, "parse/0") != 0);
    CHECK(thread_of(&fixture, "parse/1") != 0);
    CHECK(thread_of(&fixture, "parse/2") == 0);
    CHECK_INT(stat_field(&fixture, io, 19), 10); /* nice */
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int i = 0; i < 300; i++)
        take(stream, i);
    CHECK(thread_of(&fixture, "p/2") != 0);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* Returns how often it went to sleep; each sleep follows a piece of work. */
static long sleeps_of(struct fixture *fixture, long thread)
{
    static const char key[] = "\nvoluntary_ctxt_switches:";
    char path[128], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/task/%ld/status", (int)fixture->pid, thread);
    CHECK(read_word(path, text, sizeof(text)));
    const char *at = strstr(text, key);
    CHECK(at != NULL);
    return atol(at + sizeof(key) - 1);
}

#define WIDE_ROWS 200000

/* Checks for first, first + 1 …, twice; reads the whole batch. */
static void take_wide(struct stager_stream *stream, int64_t first)
{
    struct stager_batch *batch = fixture_take(stream);
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, "v", &tensor), 0);
    CHECK_INT(tensor.shape[0], WIDE_ROWS);
    for (int64_t i = 0; i < WIDE_ROWS; i++) {
        if (((const double *)tensor.data)[i] != 2.0 * (double)(first + i))
            FAIL("element %lld is %g", (long long)i, ((const double *)tensor.data)[i]);
    }
    stager_release(batch);
}

static void an_op_of_many_rows_is_done_by_all_threads_of_its_pool(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 256MiB\n" POOLS);
    fixture_apply(&fixture,
                  "name: p\ndataset:\n  - range: {stop: 100000000}\n  - batch: "
                  "{batch_size: 200000}\n"
                  "graph:\n  - {name: x, op: cast, input: [value], dtype: float64}\n"
                  "  - {name: v, op: add, input: [x, x]}\n"
                  "staged: {features: {v: v}, use_stage_subgraph_thread_pool: true, "
                  "stage_subgraph_thread_pool_id: 2, num_threads: 2}\n");
    long first = thread_of(&fixture, "wide+1"), second = thread_of(&fixture, "wide+2");
    CHECK(first != 0 && second != 0);
    CHECK(thread_of(&fixture, "wide/0") != 0);
    CHECK(thread_of(&fixture, "wide/1") == 0 && thread_of(&fixture, "wide+3") == 0);
    CHECK(thread_of(&fixture, "io+1") == 0);
    CHECK_INT(stat_field(&fixture, second, 19), 10); /* nice */
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    int64_t i = 0;
    while (sleeps_of(&fixture, first) < 5 || sleeps_of(&fixture, second) < 5)
        take_wide(stream, i++ * WIDE_ROWS);
    take_wide(stream, i * WIDE_ROWS);
    stager_close(stream);
    fixture_finish(&fixture);
}

static bool in_hand_is(const struct fixture_status *status, void *n)
{
    return status->in_hand == *(uint64_t *)n;
}

/* The pool has one thread, and every runner of the first pipeline waits for room. */
static void a_runner_that_waits_holds_no_thread_of_the_pool(void)
{
    struct fixture fixture;
    fixture_start(&fixture, POOLS);
    apply(&fixture, "full", 0, "num_threads: 8");
    apply(&fixture, "p", 0, "num_threads: 2");
    struct stager_stream *full = fixture_open(&fixture, "full", "f", 1);
    struct stager_batch *held = fixture_take(full);
    uint64_t n = 8;
    fixture_wait(&fixture, "full", 20000, in_hand_is, &n);
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int i = 0; i < 100; i++)
        take(stream, i);
    stager_release(held);
    for (int i = 1; i < 50; i++)
        take(full, i);
    stager_close(stream);
    stager_close(full);
    fixture_finish(&fixture);
}

static bool is_idle(const struct fixture_status *status, void *arg)
{
    return strcmp(status->state, "idle") == 0;
}

/* One stage takes long for each item; the other's runners queue behind it. */
static void a_stop_does_not_wait_for_a_thread_of_the_pool(void)
{
    struct fixture fixture;
    fixture_start(&fixture, POOLS);
    fixture_apply(&fixture,
                  "name: slow\ndataset:\n  - range: {stop: 100000}\n"
                  "graph:\n  - {name: v, op: sleep, input: [value], sleep_microseconds: "
                  "1500000}\n"
                  "staged: {features: {v: v}, use_stage_subgraph_thread_pool: true}\n");
    apply(&fixture, "p", 0, "num_threads: 4, reconnect_grace_millis: 0");
    struct stager_stream *slow = fixture_open(&fixture, "slow", "s", 1);
    uint64_t n = 1;
    fixture_wait(&fixture, "slow", 20000, in_hand_is, &n);
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 100, &batch), -STAGER_DEADLINE_EXCEEDED);
    stager_close(stream);
    CHECK(fixture_wait(&fixture, "p", 1000, is_idle, NULL) < fixture_millis(1000));
    stager_close(slow);
    fixture_finish(&fixture);
}

static void an_unknown_pool_is_refused_with_a_list_of_the_known_ones(void)
{
    struct fixture fixture;
    struct stg_err err = {0};
    fixture_start(&fixture, POOLS);
    const char *yaml = "name: p\ndataset:\n  - range: {stop: 4}\n"
                       "staged: {use_stage_subgraph_thread_pool: true, "
                       "stage_subgraph_thread_pool_id: 3}\n";
    CHECK_INT(fixture_try_apply(&fixture, yaml, false, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "stage_subgraph_thread_pool_id 3 is out of range [0, 3): "
                             "stagerd.yaml has the pools io, parse, wide");
    fixture_finish(&fixture);
}

#define ON_STREAM(number)                                                                \
    "name: p\ndataset:\n  - range: {stop: 4}\n"                                          \
    "staged: {stage_subgraph_stream_id: " number "}\n"

static void a_stream_that_is_not_there_is_refused(void)
{
    struct fixture fixture;
    struct stg_err err = {0};
    fixture_start(&fixture, "gpu: {use_multi_stream: true, multi_stream_num: 3}\n");
    CHECK_INT(fixture_try_apply(&fixture, ON_STREAM("1"), false, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "stage_subgraph_stream_id 1 is out of range [0, 1)");
    CHECK_CONTAINS(err.text, "stage_multi_stream: true");
    fixture_finish(&fixture);

    fixture_start(&fixture, "gpu: {use_multi_stream: true, multi_stream_num: 3, "
                            "stage_multi_stream: true}\n");
    fixture_apply(&fixture, ON_STREAM("2"));
    CHECK_INT(fixture_try_apply(&fixture, ON_STREAM("3"), true, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "stage_subgraph_stream_id 3 is out of range [0, 3)");
    CHECK_CONTAINS(err.text, "gpu.multi_stream_num");
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(the_work_is_done_by_the_pools_threads),
    TEST(an_op_of_many_rows_is_done_by_all_threads_of_its_pool),
    TEST(a_runner_that_waits_holds_no_thread_of_the_pool),
    TEST(a_stop_does_not_wait_for_a_thread_of_the_pool),
    TEST(an_unknown_pool_is_refused_with_a_list_of_the_known_ones),
    TEST(a_stream_that_is_not_there_is_refused),
};

TEST_MAIN(tests)
