/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: reuse without growth, refusals with their arithmetic, small and large batches.
 */
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

static void apply_floats(struct fixture *fixture, const char *name, uint64_t n_floats,
                         const char *staged)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "name: %s\ndataset:\n  - range: {stop: 1000000000}\n"
             "graph:\n  - {name: x, op: constant, value: 1.5, shape: [%llu]}\n"
             "staged: {features: {i: value, x: x}, reconnect_grace_millis: 0%s%s}\n",
             name, (unsigned long long)n_floats, staged[0] != '\0' ? ", " : "", staged);
    fixture_apply(fixture, yaml);
}

/* Batches of the lines of a file. */
static void apply_lines(struct fixture *fixture, const char *name, const char *path,
                        int batch_size, const char *staged)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "name: %s\ndataset:\n  - files: {pattern: [%s]}\n  - text_line\n"
             "  - batch: {batch_size: %d}\nstaged: {%s}\n",
             name, path, batch_size, staged);
    fixture_apply(fixture, yaml);
}

/* A line of /proc/PID/status. */
static long status_kib(pid_t pid, const char *key)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    while (kib < 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtol(line + strlen(key) + 1, NULL, 10);
    }
    fclose(file);
    CHECK(kib >= 0);
    return kib;
}

static long rss_kib(pid_t pid)
{
    return status_kib(pid, "VmRSS");
}

static int count_fds(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    int n = 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static void run_batches(struct stager_stream *stream, int n)
{
    for (int i = 0; i < n; i++)
        stager_release(fixture_take(stream));
}

static void memory_is_reused_and_does_not_grow(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_floats(&fixture, "x", 200000, "capacity: 2, num_threads: 2");
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    run_batches(stream, 200);
    struct fixture_status before, after;
    fixture_status(&fixture, "x", &before);
    long kib = rss_kib(fixture.pid);
    run_batches(stream, 2000);
    fixture_status(&fixture, "x", &after);
    CHECK_INT(after.memory_bytes, before.memory_bytes);
#ifndef STG_SANITIZED /* sanitizers delay the release of memory */
    CHECK(rss_kib(fixture.pid) < kib + 4096);
#else
    (void)kib;
#endif
    stager_close(stream);
    fixture_finish(&fixture);
}

static bool one_client(const struct fixture_status *status, void *arg)
{
    return status->n_attached + status->n_detached == 1;
}

static uint64_t n_faults(pid_t pid)
{
    char path[64];
    unsigned long long n;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    CHECK_INT(fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %llu", &n), 1);
    fclose(file);
    return n;
}

/* Each block of 60000 lines takes 3 MB of the heap, which the next one reuses. */
static void batches_reuse_the_heap_without_page_faults(void)
{
#ifdef STG_SANITIZED
    SKIP("a sanitizer's malloc keeps what was freed");
#endif
    enum { WARM = 30, N = 100 };
    struct fixture fixture;
    char path[256], yaml[1024];
    fixture_start(&fixture, "");
    fixture_numbers(&fixture, "numbers", 1000000, 100000, path);
    snprintf(yaml, sizeof(yaml),
             "name: x\ndataset:\n  - files: {pattern: [%s]}\n  - text_line\n  - repeat\n"
             "  - batch: {batch_size: 60000}\nstaged: {capacity: 2, num_threads: 2}\n",
             path);
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    run_batches(stream, WARM);
    uint64_t before = n_faults(fixture.pid);
    run_batches(stream, N);
    uint64_t n = n_faults(fixture.pid) - before;
    printf("%llu page faults in %d batches\n", (unsigned long long)n, N);
    CHECK(n < 60 * N);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void attaching_and_leaving_costs_nothing_in_the_end(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_floats(&fixture, "x", 1000, "num_clients: 4");
    struct stager_stream *stay = fixture_open(&fixture, "x", "stay", 2);
    int fds = 0;
    for (int i = 0; i < 300; i++) {
        struct stager_stream *stream = fixture_open(&fixture, "x", "guest", 2);
        if (i % 3 == 0)
            stager_release(fixture_take(stream));
        stager_close(stream);
        if (i == 20 || i == 299) /* leaving takes time */
            fixture_wait(&fixture, "x", 10000, one_client, NULL);
        if (i == 20)
            fds = count_fds(fixture.pid);
    }
    stager_release(fixture_take(stay));
    CHECK(count_fds(fixture.pid) <= fds + 8);
    stager_close(stay);
    fixture_finish(&fixture);
}

#define N_PIPELINES 24

/* All of them run concurrently. */
static void use_pipelines(struct fixture *fixture, const char *file, int n)
{
    struct stager_stream *streams[N_PIPELINES];
    char name[16], yaml[1024];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        snprintf(yaml, sizeof(yaml),
                 "name: %s\ndataset:\n  - files: {pattern: [%s]}\n  - text_line\n"
                 "  - repeat\n  - shuffle: {buffer_size: 30000, seed: 7}\n"
                 "  - batch: {batch_size: 4000, drop_remainder: true}\n"
                 "staged: {num_threads: 2, capacity: 2, memory_budget: 64MiB}\n",
                 name, file);
        fixture_apply(fixture, yaml);
        streams[i] = fixture_open(fixture, name, "a", 2);
    }
    for (int i = 0; i < n; i++)
        run_batches(streams[i], 5);
    for (int i = 0; i < n; i++)
        stager_close(streams[i]);
    for (int i = 0; i < n; i++) {
        struct stg_reply reply;
        snprintf(name, sizeof(name), "p%d", i);
        stager_disconnect(fixture_ask(fixture, STG_REQUEST_DELETE, name, &reply));
    }
}

/* Returns whether, without a batch of any pipeline, the resident memory falls to that
 * value. */
static long rss_at_rest(pid_t pid, long wanted)
{
    int64_t end = now_millis() + fixture_millis(10000);
    long kib = LONG_MAX;
    while ((kib > wanted || status_kib(pid, "RssShmem") > 0) && now_millis() < end) {
        usleep(1000);
        kib = rss_kib(pid);
    }
    return kib;
}

static void deleted_pipelines_leave_no_memory_behind(void)
{
#ifdef STG_SANITIZED
    SKIP("a sanitizer's malloc keeps what was freed");
#endif
    struct fixture fixture;
    char path[256];
    fixture_start(&fixture, "memory_budget: 4GiB\n");
    fixture_numbers(&fixture, "numbers", 1000000, 50000, path);
    use_pipelines(&fixture, path, 1);
    long before = rss_at_rest(fixture.pid, LONG_MAX);
    use_pipelines(&fixture, path, N_PIPELINES);
    long most = before + before / 5, after = rss_at_rest(fixture.pid, most);
    printf("resident: %ld KiB after 1 pipeline, %ld KiB after %d more\n", before, after,
           N_PIPELINES);
    CHECK(after <= most);
    fixture_finish(&fixture);
}

static void check_floats(const struct stager_batch *batch, uint64_t n)
{
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    CHECK_INT(x.shape[0], n);
    CHECK_INT((uintptr_t)x.data % 64, 0);
    const float *data = x.data;
    for (uint64_t i = 0; i < n; i += 1021)
        CHECK(data[i] == 1.5f);
    CHECK(data[n - 1] == 1.5f);
}

/* ---- memory kept after a stream was closed ---- */

static int try_open(struct fixture *fixture, const char *name, struct stager_stream **ret)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime};
    return stager_open(NULL, name, &options, ret);
}

/* Returns the number of bytes of that pipeline that this process keeps, from the list. */
static uint64_t kept_by_us(struct fixture *fixture, const char *name)
{
    struct stg_reply reply;
    uint64_t bytes = 0;
    struct stager *client = fixture_ask(fixture, STG_REQUEST_LIST, NULL, &reply);
    for (size_t i = 0; i < reply.n_quarantined; i++) {
        const struct stg_quarantined *q = &reply.quarantined[i];
        CHECK_INT(q->pid, getpid());
        CHECK_INT(q->uid, getuid());
        CHECK(q->n_batches > 0 && q->program[0] != '\0');
        if (strcmp(q->pipeline, name) == 0)
            bytes += q->bytes;
    }
    stager_disconnect(client);
    return bytes;
}

static void wait_for_kept(struct fixture *fixture, const char *name, uint64_t least,
                          uint64_t most)
{
    int64_t end = now_millis() + fixture_millis(10000);
    uint64_t bytes = kept_by_us(fixture, name);
    while ((bytes < least || bytes > most) && now_millis() < end) {
        usleep(1000);
        bytes = kept_by_us(fixture, name);
    }
    printf("kept of %s: %.1f MiB\n", name, (double)bytes / 1048576.0);
    CHECK(bytes >= least && bytes <= most);
}

/* Gives a running stagerd the limit that the last error names, and checks that it is
 * enough. */
static struct stager_stream *open_with_named_limit(struct fixture *fixture)
{
    static const char before[] = "in stagerd.yaml to at least ";
    const char *named = strstr(stager_error_text(NULL), before);
    CHECK(named != NULL);
    FILE *file = fopen(fixture->config, "a+");
    char text[2048] = "";
    (void)!fread(text, 1, sizeof(text) - 1, file);
    char *line = strstr(text, "max_quarantined_memory: ");
    CHECK(line != NULL);
    *line = '\0';
    CHECK_INT(ftruncate(fileno(file), 0), 0);
    fprintf(file, "%smax_quarantined_memory: %luMiB\n", text,
            strtoul(named + strlen(before), NULL, 10));
    CHECK_INT(fclose(file), 0);
    kill(fixture->pid, SIGHUP);
    struct stager_stream *stream;
    int rc;
    do {
        rc = try_open(fixture, "x", &stream); /* the test's own limit ends the loop */
    } while (rc == -STAGER_RESOURCE_EXHAUSTED);
    CHECK_INT(rc, 0);
    return stream;
}

static void what_closed_streams_keep_is_shown_and_bounded(void)
{
    enum { MOST = 20 };
    struct fixture fixture;
    struct stager_stream *stream;
    struct stager_batch *kept[MOST];
    char holder[64];
    int n = 0;
    fixture_start(&fixture, "memory_budget: 1GiB\nmax_quarantined_memory: 100MiB\n");
    apply_floats(&fixture, "x", 1000000, "capacity: 2");
    int rc = try_open(&fixture, "x", &stream);
    while (rc == 0 && n < MOST) {
        kept[n++] = fixture_take(stream);
        stager_close(stream);
        rc = try_open(&fixture, "x", &stream);
    }
    snprintf(holder, sizeof(holder), "process %d (", (int)getpid());
    CHECK_INT(rc, -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(stager_error_text(NULL), holder);
    CHECK_CONTAINS(stager_error_text(NULL), "max_quarantined_memory is 100.0 MiB");
    CHECK_CONTAINS(stager_error_text(NULL),
                   "release those batches, end the processes, or raise");
    CHECK(n > 1 && n < MOST);
    stager_close(open_with_named_limit(&fixture));
    wait_for_kept(&fixture, "x", 100 << 20, 200 << 20);

    struct stg_reply reply;
    stager_disconnect(fixture_ask(&fixture, STG_REQUEST_DELETE, "x", &reply));
    wait_for_kept(&fixture, "x", 100 << 20, 200 << 20); /* delete does not free it */
    for (int i = 0; i < n; i++)
        stager_release(kept[i]);
    wait_for_kept(&fixture, "x", 0, 0);
    apply_floats(&fixture, "x", 1000000, "capacity: 2");
    stream = fixture_open(&fixture, "x", "a", 2);
    stager_release(fixture_take(stream));
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_small_batch_that_is_kept_keeps_little(void)
{
    struct fixture fixture;
    char path[256];
    fixture_start(&fixture, "memory_budget: 512MiB\n");
    fixture_numbers(&fixture, "numbers", 1000, 5000, path);
    apply_lines(&fixture, "t", path, 10, "reconnect_grace_millis: 0");
    struct stager_stream *stream = fixture_open(&fixture, "t", "a", 2);
    struct stager_batch *kept = fixture_take(stream);
    stager_close(stream);
    wait_for_kept(&fixture, "t", 1, 4 << 20);

    apply_floats(&fixture, "x", 1000, "max_batch_bytes: 1MiB, memory_budget: 512MiB");
    int64_t began = now_millis();
    char holder[64];
    snprintf(holder, sizeof(holder), "process %d (", (int)getpid());
    CHECK_INT(try_open(&fixture, "x", &stream), -STAGER_RESOURCE_EXHAUSTED);
    CHECK(now_millis() - began < fixture_millis(5000));
    CHECK_CONTAINS(stager_error_text(NULL), holder);
    CHECK_CONTAINS(stager_error_text(NULL), "closed a stream of pipeline t");
    CHECK_CONTAINS(stager_error_text(NULL), "raise memory_budget in stagerd.yaml to 5");
    stager_release(kept);
    stream = fixture_open(&fixture, "x", "a", 2);
    stager_release(fixture_take(stream));
    stager_close(stream);
    fixture_finish(&fixture);
}

static bool is_full_with_one_in_hand(const struct fixture_status *status, void *arg)
{
    (void)arg;
    return status->in_hand == 1 && status->buffered == status->capacity;
}

static void a_batch_in_work_counts_with_the_memory_that_it_has(void)
{
    struct fixture fixture;
    struct fixture_status status;
    char path[256];
    fixture_start(&fixture, "");
    fixture_numbers(&fixture, "numbers", 1000, 5000, path);
    apply_lines(&fixture, "t", path, 10, "capacity: 1, num_threads: 1");
    struct stager_stream *stream = fixture_open(&fixture, "t", "a", 2);
    struct stager_batch *batch = fixture_take(stream);
    fixture_wait(&fixture, "t", 20000, is_full_with_one_in_hand, NULL);
    fixture_status(&fixture, "t", &status);
    CHECK(status.memory_used_bytes > 0);
    CHECK(status.memory_used_bytes <= status.memory_bytes);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void many_small_pipelines_share_a_small_budget(void)
{
    enum { MANY = 40 };
    struct fixture fixture;
    static struct stager_stream *streams[MANY];
    char path[256], name[16];
    fixture_start(&fixture, "memory_budget: 512MiB\n");
    fixture_numbers(&fixture, "numbers", 1000, 5000, path);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        apply_lines(&fixture, name, path, 10, "");
        streams[i] = fixture_open(&fixture, name, "a", 2);
        stager_release(fixture_take(streams[i]));
    }
    for (int i = 0; i < MANY; i++)
        stager_close(streams[i]);
    fixture_finish(&fixture);
}

static void a_batch_that_finds_no_memory_names_the_holders(void)
{
    struct fixture fixture;
    struct stager_stream *stream, *large;
    struct stager_batch *batch;
    char path[256];
    fixture_start(&fixture, "memory_budget: 64MiB\n");
    fixture_numbers(&fixture, "numbers", 1000000, 900000, path);
    apply_lines(&fixture, "t", path, 400000, "");
    apply_floats(&fixture, "x", 1000, "max_batch_bytes: 1MiB, memory_budget: 53MiB");
    large = fixture_open(&fixture, "x", "a", 2);
    stream = fixture_open(&fixture, "t", "a", 2);
    CHECK_INT(stager_next(stream, 20000, &batch), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(stager_error_text(stream), "pipeline x 53.0 MiB");
    CHECK_CONTAINS(stager_error_text(stream), "raise memory_budget in stagerd.yaml to ");
    stager_close(stream);
    stager_close(large);
    fixture_finish(&fixture);
}

static void batches_of_a_kilobyte_and_of_300_megabytes(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 4GiB\n");
#ifdef STG_SANITIZED /* memory costs several times as much */
    const uint64_t sizes[] = {250, 16u << 20};
#else
    const uint64_t sizes[] = {250, 75u << 20};
#endif
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof(name), "x%d", i);
        apply_floats(&fixture, name, sizes[i], "");
        struct stager_stream *stream = fixture_open(&fixture, name, "a", 2);
        for (int k = 0; k < 3; k++) {
            struct stager_batch *batch = fixture_take(stream);
            check_floats(batch, sizes[i]);
            stager_release(batch);
        }
        stager_close(stream);
    }
    fixture_finish(&fixture);
}

static void a_pipeline_over_the_budget_is_refused_with_the_arithmetic(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 256MiB\n");
    struct stg_err err = {0};
    int rc = fixture_try_apply(
        &fixture,
        "name: big\ndataset:\n  - range: {stop: 10}\n"
        "graph:\n  - {name: x, op: constant, value: 1.0, shape: [10000000]}\n"
        "staged: {features: {x: x}, capacity: 4}\n",
        false, &err);
    CHECK_INT(rc, -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "8 batches");
    CHECK_CONTAINS(err.text, "256.0 MiB");
    rc = fixture_try_apply(
        &fixture,
        "name: big\ndataset:\n  - range: {stop: 10}\n"
        "graph:\n  - {name: x, op: constant, value: 1.0, shape: [1000000]}\n"
        "staged: {features: {x: x}, capacity: 4, memory_budget: 16MiB}\n",
        false, &err);
    CHECK_INT(rc, -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text,
                   "capacity 4 + num_threads 1 + num_clients 1 x max_in_flight 2 + 1");
    fixture_finish(&fixture);
}

static void the_budget_counts_all_pipelines_together(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 150MiB\n");
    apply_floats(&fixture, "one", 4000000, "capacity: 1"); /* 5 x 15.3 MiB + 8 */
    apply_floats(&fixture, "two", 4000000, "capacity: 1");
    struct stager_stream *one = fixture_open(&fixture, "one", "a", 2);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime};
    struct stager_stream *two;
    CHECK_INT(stager_open(NULL, "two", &options, &two), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(stager_error_text(NULL), "memory_budget is 150.0 MiB");
    stager_release(fixture_take(one));
    stager_close(one);
    two = fixture_open(&fixture, "two", "a", 2); /* the first one's memory was released */
    stager_release(fixture_take(two));
    stager_close(two);
    fixture_finish(&fixture);
}

static bool is_idle(const struct fixture_status *status, void *arg)
{
    return strcmp(status->state, "idle") == 0;
}

static void more_credits_than_there_is_memory_for_are_refused(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_floats(&fixture, "x", 100000, "num_clients: 2");
    struct stager_stream *a = fixture_open(&fixture, "x", "a", 2);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime,
                                     .max_in_flight = 100};
    struct stager_stream *b;
    CHECK_INT(stager_open(NULL, "x", &options, &b), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(stager_error_text(NULL), "max_in_flight 100 is too large");
    CHECK_CONTAINS(stager_error_text(NULL),
                   "open with at most 2, or let the first client open it with "
                   "max_in_flight 100, or raise num_clients to 51");
    b = fixture_open(&fixture, "x", "b", 2);
    struct stager_stream *c;
    CHECK_INT(try_open(&fixture, "x", &c), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(stager_error_text(NULL), "; raise num_clients to 3, or");
    stager_close(b);
    stager_close(a);
    fixture_wait(&fixture, "x", 20000, is_idle, NULL);
    a = fixture_open(&fixture, "x", "a", 100);
    CHECK_INT(stager_open(NULL, "x", &options, &b), 0);
    stager_close(b);
    stager_close(a);
    fixture_finish(&fixture);
}

static void a_batch_larger_than_max_batch_bytes_is_an_error_item(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    static char text[300000];
    memset(text, 'a', sizeof(text));
    memcpy(text, "short\n", 6);
    memcpy(text + sizeof(text) - 6, "\nlast\n", 6);
    char path[256], yaml[512];
    fixture_file(&fixture, "lines", text, sizeof(text), path);
    snprintf(yaml, sizeof(yaml),
             "name: x\ndataset:\n  - files: {pattern: [%s]}\n  - text_line: {}\n"
             "  - batch: {batch_size: 1}\nstaged: {max_batch_bytes: 128KiB}\n",
             path);
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    stager_release(fixture_take(stream));
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(stager_error_text(stream), "max_batch_bytes");
    batch = fixture_take(stream);
    struct stager_tensor record;
    CHECK_INT(stager_batch_tensor(batch, "record", &record), 0);
    CHECK_INT(record.data_bytes, 4);
    CHECK(memcmp(record.data, "last", 4) == 0);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static uint64_t mib_available(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL &&
           sscanf(line, "MemAvailable: %llu", &kib) != 1) {
    }
    if (file != NULL)
        fclose(file);
    return kib / 1024;
}

static void open_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime};
    struct stager_stream *stream;
    trainer_send(fd, stager_open(NULL, "x", &options, &stream));
}

static bool starting(const struct fixture_status *status, void *arg)
{
    return strcmp(status->state, "starting") == 0;
}

static void a_stop_while_memory_is_reserved_is_a_clean_one(void)
{
    if (mib_available() < 5000)
        SKIP("needs 5000 MiB of memory, there are %llu",
             (unsigned long long)mib_available());
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 4GiB\n");
    apply_floats(&fixture, "x", 1000, "max_batch_bytes: 700MiB, memory_budget: 4000MiB");
    struct trainer trainer;
    trainer_start(&trainer, open_body, &fixture, NULL);
    fixture_wait(&fixture, "x", 10000, starting, NULL);
    int64_t began = now_millis();
    fixture_stop(&fixture); /* checks the exit status */
    printf("    stopped after %lld ms\n", (long long)(now_millis() - began));
    CHECK_INT(trainer_recv(trainer.fd), -STAGER_UNAVAILABLE);
    trainer_join(&trainer);
    fixture_finish(&fixture);
}

/* The daemon starts with fewer descriptors than its clients will need, and its reply to
 * `status` has no room for all of them. */
static void hundreds_of_clients_are_served_and_listed(void)
{
    enum { N = 400 };
    static struct stager_stream *streams[N];
    struct rlimit limit;
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 5 * N)
        SKIP("needs %d descriptors, may have %llu", 5 * N,
             (unsigned long long)limit.rlim_max);
    limit.rlim_cur = N + 100;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_floats(&fixture, "x", 1000, "num_clients: 400");
    for (int i = 0; i < N; i++) {
        char id[121];
        snprintf(id, sizeof(id), "%0120d", i);
        streams[i] = fixture_open(&fixture, "x", id, 1);
    }
    stager_release(fixture_take(streams[N - 1]));
    struct fixture_status status;
    fixture_status(&fixture, "x", &status);
    CHECK_STR(status.state, "running");
    CHECK_INT(status.n_clients, 16); /* as many as the fixture keeps */
    for (int i = 0; i < N; i++)
        stager_close(streams[i]);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(hundreds_of_clients_are_served_and_listed, 180),
    TEST(a_stop_while_memory_is_reserved_is_a_clean_one),
    TEST(memory_is_reused_and_does_not_grow),
    TEST(batches_reuse_the_heap_without_page_faults),
    TEST(attaching_and_leaving_costs_nothing_in_the_end),
    TEST_SLOW(deleted_pipelines_leave_no_memory_behind, 60),
    TEST_SLOW(what_closed_streams_keep_is_shown_and_bounded, 60),
    TEST(a_small_batch_that_is_kept_keeps_little),
    TEST(a_batch_in_work_counts_with_the_memory_that_it_has),
    TEST(many_small_pipelines_share_a_small_budget),
    TEST(a_batch_that_finds_no_memory_names_the_holders),
    TEST_SLOW(batches_of_a_kilobyte_and_of_300_megabytes, 60),
    TEST(a_pipeline_over_the_budget_is_refused_with_the_arithmetic),
    TEST(the_budget_counts_all_pipelines_together),
    TEST(more_credits_than_there_is_memory_for_are_refused),
    TEST(a_batch_larger_than_max_batch_bytes_is_an_error_item),
};

TEST_MAIN(tests)
