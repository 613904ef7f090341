/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of a loader shared by k trainers: the daemon's CPU time for an epoch of
 * Criteo's rows, decoded and hashed, with k = 1, 2, 4, 8 processes on one broadcast,
 * relative to one process, before and after. All are attached from the beginning. Each
 * round gives one ratio for each k, and the median counts. The unit is CPU time in
 * nanoseconds: a busy machine makes the rounds longer, not the figure larger.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/system/fixture.h"

#define FILE_ROWS (24 * CRITEO_BATCH_ROWS)
#define REPEAT 2
#define EPOCH_BATCHES (24 * REPEAT)
#define MAX_K 8
#define MAX_ROUNDS 1000
#define MIN_ROUNDS 3

static const int n_clients[] = {1, 2, 4, MAX_K};
#define N (sizeof(n_clients) / sizeof(n_clients[0]))

struct group {
    char name[32];
    struct trainer trainers[MAX_K];
    double cpu_ns[MAX_ROUNDS], loop_ns[MAX_ROUNDS], ratios[MAX_ROUNDS];
};

static volatile int64_t sink;

static int64_t take_epoch(struct stager_stream *stream)
{
    int64_t n = 0;
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(stream, fixture_millis(20000), &batch)) == 0) {
        struct stager_tensor label;
        if (stager_batch_tensor(batch, "label", &label) < 0)
            bench_die("label: %s", stager_error_text(stream));
        for (int64_t i = 0; i < label.shape[0]; i++)
            sink += ((const int32_t *)label.data)[i];
        stager_release(batch);
        n++;
    }
    if (rc != -STAGER_OUT_OF_RANGE)
        bench_die("next: %s", stager_error_text(stream));
    return n;
}

/* Runs an epoch for each number that is not 0. */
static void train(struct fixture *fixture, int fd, void *arg)
{
    const struct group *group = arg;
    struct stager_stream *stream = fixture_open(fixture, group->name, NULL, 2);
    trainer_send(fd, 0);
    bool first = true;
    while (trainer_recv(fd) != 0) {
        if (!first && stager_rewind(stream) < 0)
            bench_die("rewind: %s", stager_error_text(stream));
        first = false;
        trainer_send(fd, take_epoch(stream));
    }
    stager_close(stream);
}

/* Time of its first thread, the loop, which receives the doorbells of clients. */
static uint64_t loop_ns(pid_t pid)
{
    char path[64];
    unsigned long long ns = 0;
    snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%llu", &ns) != 1)
        bench_die("cannot read %s", path);
    fclose(file);
    return ns;
}

static void run_epoch(struct fixture *fixture, struct group *group, int k, size_t round)
{
    uint64_t before = bench_process_ns(fixture->pid), loop_before = loop_ns(fixture->pid);
    for (int i = 0; i < k; i++)
        trainer_send(group->trainers[i].fd, 1);
    for (int i = 0; i < k; i++) {
        int64_t n = trainer_recv(group->trainers[i].fd);
        if (n != EPOCH_BATCHES)
            bench_die("an epoch of %d batches had %lld", EPOCH_BATCHES, (long long)n);
    }
    group->cpu_ns[round] = (double)(bench_process_ns(fixture->pid) - before);
    group->loop_ns[round] = (double)(loop_ns(fixture->pid) - loop_before);
}

static void start(struct fixture *fixture, const char *path, struct group *group, int k)
{
    static char yaml[CRITEO_PIPELINE_BYTES];
    char repeat[32], staged[128];
    snprintf(group->name, sizeof(group->name), "sharing%d", k);
    snprintf(repeat, sizeof(repeat), "{count: %d}", REPEAT);
    snprintf(staged, sizeof(staged), "capacity: 4, num_clients: %d, delivery: broadcast",
             k);
    criteo_pipeline(group->name, path, repeat, staged, yaml);
    fixture_apply(fixture, yaml);
    for (int i = 0; i < k; i++)
        trainer_start(&group->trainers[i], train, fixture, group);
    for (int i = 0; i < k; i++)
        trainer_recv(group->trainers[i].fd);
    run_epoch(fixture, group, k, 0); /* memory touched for the first time */
}

static void finish(struct group *group, int k)
{
    for (int i = 0; i < k; i++) {
        trainer_send(group->trainers[i].fd, 0);
        trainer_join(&group->trainers[i]);
    }
}

/* Measures one client before and after, because the CPU's clock and the machine's load
 * vary. No two epochs of the same client follow each other, because memory caches would
 * still hold its data.
 */
static void run_round(struct fixture *fixture, struct group *groups, size_t round)
{
    struct group *one = &groups[0];
    one->cpu_ns[round] = one->cpu_ns[round > 0 ? round - 1 : 0];
    for (size_t i = 1; i < N; i++) {
        double before = one->cpu_ns[round];
        run_epoch(fixture, &groups[i], n_clients[i], round);
        run_epoch(fixture, one, 1, round);
        groups[i].ratios[round] =
            groups[i].cpu_ns[round] * 2 / (before + one->cpu_ns[round]);
    }
    one->ratios[round] = 1;
}

static size_t measure(struct fixture *fixture, struct group *groups, double seconds)
{
    size_t n = 0;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    run_epoch(fixture, &groups[0], 1, 0);
    while (n < MAX_ROUNDS && (n < MIN_ROUNDS || bench_now_ns() < end))
        run_round(fixture, groups, n++);
    return n;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 20, "the daemon's CPU time for k trainers, over one",
                        &options);
    static struct group groups[N];
    struct fixture fixture;
    char path[64];
    criteo_file(FILE_ROWS, ',', path);
    fixture_start(&fixture, "memory_budget: 1GiB\n");
    for (size_t i = 0; i < N; i++)
        start(&fixture, path, &groups[i], n_clients[i]);
    size_t n = measure(&fixture, groups, options.seconds);
    for (size_t i = 0; i < N; i++)
        finish(&groups[i], n_clients[i]);
    fixture_finish(&fixture);
    unlink(path);

    double ratios[N], cpu_ns[N], loops[N], worst = 0;
    for (size_t i = 0; i < N; i++) {
        ratios[i] = bench_median(groups[i].ratios, n);
        cpu_ns[i] = bench_median(groups[i].cpu_ns, n);
        loops[i] = bench_median(groups[i].loop_ns, n);
        worst = ratios[i] > worst ? ratios[i] : worst;
        printf(
            "%d clients: %.3f ms of CPU for a batch of %d rows, %.3f of one client's\n",
            n_clients[i], cpu_ns[i] / EPOCH_BATCHES / 1e6, CRITEO_BATCH_ROWS, ratios[i]);
    }
    if (options.json) {
        printf("{\"bench\": \"sharing\", \"rounds\": %zu, \"points\": [", n);
        for (size_t i = 0; i < N; i++)
            printf("%s{\"clients\": %d, \"cpu_ns\": %.0f, \"loop_ns\": %.0f, \"ratio\": "
                   "%.3f}",
                   i > 0 ? ", " : "", n_clients[i], cpu_ns[i], loops[i], ratios[i]);
        printf("], \"ratio\": %.3f}\n", worst);
    }
    return 0;
}
