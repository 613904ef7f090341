/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer's cost to take a ready batch and release it: stager_next + stager_release,
 * for batches of 4 KB and of 256 MB, and of 4 KB in each of 8 concurrent processes on one
 * broadcast. Samples are taken once the daemon reports that every credit of every client
 * is used. The call that empties a ring rings the daemon's doorbell and is counted too.
 * For many clients the result is the median of all samples, and that of the slowest
 * client.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define QUICK_SECONDS 4
#define MAX_SAMPLES 200000u
#define MAX_CLIENTS 16u /* as many as fixture_status shows */

struct result {
    uint64_t p50_ns, p99_ns, worst_p50_ns;
    size_t n;
};

struct group {
    const char *name;
    unsigned n_clients, max_in_flight;
    uint64_t *samples; /* of client i from i * MAX_SAMPLES on; shared with them */
    struct trainer *trainers;
};

/* Returns whether that many batches were delivered to each client. The daemon may not
 * have noticed all releases, so credits do not show it. */
static bool all_ready(const struct fixture_status *status, void *wanted)
{
    for (size_t i = 0; i < status->n_clients; i++) {
        if (status->clients[i].assigned < *(uint64_t *)wanted)
            return false;
    }
    return true;
}

/* One turn for each number: that many samples exist before it; negative: no more. */
static void train(struct fixture *fixture, int fd, void *arg)
{
    const struct group *group = arg;
    struct stager_stream *stream =
        fixture_open(fixture, group->name, NULL, group->max_in_flight);
    trainer_send(fd, 0);
    uint64_t *samples = group->samples + trainer_recv(fd) * MAX_SAMPLES;
    int64_t n;
    while ((n = trainer_recv(fd)) >= 0) {
        for (unsigned i = 0; i < group->max_in_flight; i++) {
            struct stager_batch *batch;
            uint64_t began = bench_now_ns();
            int rc = stager_next(stream, 0, &batch);
            if (rc < 0)
                bench_die("next: %s", stager_error_text(stream));
            stager_release(batch);
            samples[n++] = bench_now_ns() - began;
        }
        trainer_send(fd, n);
    }
    stager_close(stream);
}

static void apply(struct fixture *fixture, const struct group *group, uint64_t n_floats)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "name: %s\n"
             "dataset:\n  - range: {stop: 1000000000}\n"
             "graph:\n  - {name: x, op: constant, value: 1.5, shape: [%llu]}\n"
             "staged: {features: {x: x}, capacity: 1, num_clients: %u, delivery: %s}\n",
             group->name, (unsigned long long)n_floats, group->n_clients,
             group->n_clients > 1 ? "broadcast" : "split");
    fixture_apply(fixture, yaml);
}

static size_t take_turns(struct fixture *fixture, const struct group *group,
                         double seconds)
{
    size_t n = 0;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    while (bench_now_ns() < end && n + group->max_in_flight <= MAX_SAMPLES) {
        uint64_t wanted = n + group->max_in_flight;
        fixture_wait(fixture, group->name, 20000, all_ready, &wanted);
        for (unsigned i = 0; i < group->n_clients; i++)
            trainer_send(group->trainers[i].fd, (int64_t)n);
        for (unsigned i = 0; i < group->n_clients; i++)
            trainer_recv(group->trainers[i].fd);
        n += group->max_in_flight;
    }
    return n;
}

/* Also merges all samples into one array. */
static void summarize(const struct group *group, size_t n, struct result *ret)
{
    uint64_t *samples = group->samples;
    *ret = (struct result){.n = n * group->n_clients};
    for (unsigned i = 0; i < group->n_clients; i++) {
        memmove(samples + i * n, samples + (size_t)i * MAX_SAMPLES, n * sizeof(*samples));
        uint64_t p50_ns = bench_percentile(samples + i * n, n, 0.5);
        ret->worst_p50_ns = p50_ns > ret->worst_p50_ns ? p50_ns : ret->worst_p50_ns;
    }
    ret->p50_ns = bench_percentile(samples, ret->n, 0.5);
    ret->p99_ns = bench_percentile(samples, ret->n, 0.99);
}

static void measure(struct fixture *fixture, const char *name, unsigned n_clients,
                    uint64_t n_floats, double seconds, struct result *ret)
{
    struct group group = {.name = name, .n_clients = n_clients, .max_in_flight = 8};
    size_t bytes = (size_t)n_clients * MAX_SAMPLES * sizeof(*group.samples);
    group.samples = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    group.trainers = calloc(n_clients, sizeof(group.trainers[0]));
    if (group.samples == MAP_FAILED || group.trainers == NULL)
        bench_die("no memory");
    apply(fixture, &group, n_floats);
    for (unsigned i = 0; i < n_clients; i++)
        trainer_start(&group.trainers[i], train, fixture, &group);
    for (unsigned i = 0; i < n_clients; i++)
        trainer_recv(group.trainers[i].fd);
    for (unsigned i = 0; i < n_clients; i++)
        trainer_send(group.trainers[i].fd, i);
    summarize(&group, take_turns(fixture, &group, seconds), ret);
    for (unsigned i = 0; i < n_clients; i++) {
        trainer_send(group.trainers[i].fd, -1);
        trainer_join(&group.trainers[i]);
    }
    free(group.trainers);
    munmap(group.samples, bytes);
}

static void show(const char *what, const struct result *result)
{
    printf("%-24s p50 %6llu ns  p99 %6llu ns  (%zu samples)\n", what,
           (unsigned long long)result->p50_ns, (unsigned long long)result->p99_ns,
           result->n);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse_clients(
        argc, argv, 6, 8, "stager_next + stager_release of a ready batch", &options);
    if (options.clients > MAX_CLIENTS)
        bench_die("--clients is at most %u", MAX_CLIENTS);
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 6GiB\n");
    uint64_t large_floats = options.seconds < QUICK_SECONDS ? 4u << 20 : 64u << 20;
    struct result small, large, many;
    double seconds = options.seconds / 3;
    measure(&fixture, "small", 1, 1024, seconds, &small);
    measure(&fixture, "large", 1, large_floats, seconds, &large);
    measure(&fixture, "many", options.clients, 1024, seconds, &many);
    fixture_finish(&fixture);

    char text[64];
    show("4 KB batches:", &small);
    snprintf(text, sizeof(text),
             "%llu MB batches:", (unsigned long long)(large_floats >> 18));
    show(text, &large);
    snprintf(text, sizeof(text), "4 KB batches, %u clients:", options.clients);
    show(text, &many);
    if (options.json)
        printf("{\"bench\": \"handoff\", \"p50_ns\": %llu, \"p99_ns\": %llu, "
               "\"large_p50_ns\": %llu, \"large_p99_ns\": %llu, \"ratio\": %.3f, "
               "\"clients\": %u, \"clients_p50_ns\": %llu, \"clients_p99_ns\": %llu, "
               "\"clients_worst_p50_ns\": %llu}\n",
               (unsigned long long)small.p50_ns, (unsigned long long)small.p99_ns,
               (unsigned long long)large.p50_ns, (unsigned long long)large.p99_ns,
               (double)large.p50_ns / (double)small.p50_ns, options.clients,
               (unsigned long long)many.p50_ns, (unsigned long long)many.p99_ns,
               (unsigned long long)many.worst_p50_ns);
    return 0;
}
