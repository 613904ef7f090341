/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures whether training hides the making of batches. A trainer sleeps t for each
 * batch and a stage sleeps s, s/t from 0.2 to 5, with one runner and with two: steps per
 * second, from the fifth to the last, relative to 1 / max(s / num_threads, t). Several
 * rounds, and the median counts. Beside each a process sleeps as long without stager: the
 * machine's share of the effect.
 *
 * Also the question of MLPerf's storage benchmark: how many emulated trainers, 20 ms for
 * each batch, stay busy for 90 % of their time on one pipeline of Criteo's rows, if each
 * gets a share of the batches, and if each gets all of them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/system/fixture.h"

#define TRAIN_NS UINT64_C(5000000)
#define SPIN_NS UINT64_C(200000)
#define N_SKIPPED 5
#define MIN_STEPS 20
#define QUICK_SECONDS 5

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u),
                            .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

/* Sleeps for exactly this time: a timer fires late by a share of a step that no stage
 * could hide, so the end of the wait is spun. A kernel on a GPU does not wait for a timer
 * either. */
static void train_for(uint64_t ns)
{
    uint64_t end = bench_now_ns() + ns;
    sleep_ns(ns - SPIN_NS);
    while (bench_now_ns() < end)
        ;
}

static void take_and_train(struct stager_stream *stream, uint64_t train_ns)
{
    struct stager_batch *batch = fixture_take(stream);
    train_for(train_ns);
    stager_release(batch);
}

/* ---- one trainer ---- */

static const double over[] = {0.2, 0.5, 1, 2, 5};
#define N_OVER (sizeof(over) / sizeof(over[0]))
#define MAX_THREADS 2
#define N_POINTS (N_OVER * MAX_THREADS)

#define MAX_ROUNDS 101

struct point {
    char name[32];
    double s_over_t;
    int num_threads;
    double ratios[MAX_ROUNDS], bares[MAX_ROUNDS];
    double ideal_per_s, ratio, best, bare;
};

/* Sleeps until it gets a request to end; sends the durations of the sleeps in parts per
 * million. */
static void sleep_bare(struct fixture *fixture, int fd, void *arg)
{
    uint64_t ns = *(const uint64_t *)arg, n = (uint64_t)trainer_recv(fd);
    uint64_t began = bench_now_ns();
    for (uint64_t i = 0; i < n; i++)
        sleep_ns(ns);
    double took = (double)(bench_now_ns() - began);
    trainer_send(fd, (int64_t)((double)(n * ns) / took * 1e6));
}

static double run_steps(struct fixture *fixture, const char *name, uint64_t n)
{
    struct stager_stream *stream = fixture_open(fixture, name, name, 2);
    uint64_t began = 0;
    for (uint64_t i = 0; i < n + N_SKIPPED; i++) {
        if (i == N_SKIPPED)
            began = bench_now_ns();
        take_and_train(stream, TRAIN_NS);
    }
    double took = (double)(bench_now_ns() - began);
    stager_close(stream);
    return (double)n * 1e9 / took;
}

static uint64_t stage_ns(const struct point *point)
{
    return (uint64_t)(point->s_over_t * (double)TRAIN_NS);
}

static void apply_point(struct fixture *fixture, struct point *point)
{
    char yaml[512];
    snprintf(point->name, sizeof(point->name), "overlap-%g-%d", point->s_over_t,
             point->num_threads);
    snprintf(
        yaml, sizeof(yaml),
        "name: %.31s\n"
        "dataset:\n  - range: {stop: 1000000000}\n"
        "graph:\n  - {name: x, op: sleep, input: [value], sleep_microseconds: %llu}\n"
        "staged: {features: {x: x}, capacity: 2, num_threads: %d}\n",
        point->name, (unsigned long long)(stage_ns(point) / 1000), point->num_threads);
    fixture_apply(fixture, yaml);
}

static void measure_point(struct fixture *fixture, struct point *point, size_t round,
                          double seconds)
{
    double made_ns = (double)stage_ns(point) / point->num_threads;
    bool stage_bound = made_ns > (double)TRAIN_NS;
    double step_ns = stage_bound ? made_ns : (double)TRAIN_NS;
    uint64_t n = (uint64_t)(seconds * 1e9 / step_ns);
    n = n < MIN_STEPS ? MIN_STEPS : n;

    uint64_t bare_ns = stage_bound ? stage_ns(point) : TRAIN_NS;
    struct trainer bare;
    trainer_start(&bare, sleep_bare, fixture, &bare_ns);
    trainer_send(bare.fd, (int64_t)((double)n * step_ns / (double)bare_ns));
    point->ideal_per_s = 1e9 / step_ns;
    point->ratios[round] = run_steps(fixture, point->name, n) / point->ideal_per_s;
    point->bares[round] = (double)trainer_recv(bare.fd) / 1e6;
    trainer_join(&bare);
}

static void measure_points(struct fixture *fixture, double seconds, struct point *points)
{
    size_t n_rounds = 0;
    double slice = seconds / 50 < 1 ? seconds / 50 : 1; /* five rounds */
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    for (size_t i = 0; i < N_POINTS; i++) {
        points[i] = (struct point){.s_over_t = over[i % N_OVER],
                                   .num_threads = 1 + (int)(i / N_OVER)};
        apply_point(fixture, &points[i]);
    }
    while (n_rounds < MAX_ROUNDS && (n_rounds == 0 || bench_now_ns() < end)) {
        for (size_t i = 0; i < N_POINTS; i++)
            measure_point(fixture, &points[i], n_rounds, slice);
        n_rounds++;
    }
    for (size_t i = 0; i < N_POINTS; i++) {
        struct point *point = &points[i];
        point->ratio = bench_median(point->ratios, n_rounds);
        point->bare = bench_median(point->bares, n_rounds);
        point->best = point->ratios[n_rounds - 1]; /* they are sorted now */
        printf("s/t %.1f, %d runners: %6.1f steps/s, %.3f of what is possible, at best "
               "%.3f (sleeps alone: %.3f)\n",
               point->s_over_t, point->num_threads, point->ratio * point->ideal_per_s,
               point->ratio, point->best, point->bare);
    }
}

/* ---- many trainers ---- */

#define MANY_TRAIN_NS UINT64_C(20000000)
#define FILE_ROWS (24 * CRITEO_BATCH_ROWS)
#define MAX_TRAINERS 64
#define BUSY 0.9

struct group {
    char name[32];
    double seconds;
};

/* Sends its busy time in parts per million. */
static void train(struct fixture *fixture, int fd, void *arg)
{
    const struct group *group = arg;
    struct stager_stream *stream = fixture_open(fixture, group->name, NULL, 2);
    trainer_send(fd, 0);
    trainer_recv(fd);
    for (int i = 0; i < N_SKIPPED; i++)
        take_and_train(stream, MANY_TRAIN_NS);
    uint64_t busy_ns = 0, began = bench_now_ns(), now = began;
    while (now - began < (uint64_t)(group->seconds * 1e9)) {
        struct stager_batch *batch = fixture_take(stream);
        uint64_t since = bench_now_ns();
        sleep_ns(MANY_TRAIN_NS);
        busy_ns += bench_now_ns() - since;
        stager_release(batch);
        now = bench_now_ns();
    }
    trainer_send(fd, (int64_t)((double)busy_ns / (double)(now - began) * 1e6));
    trainer_recv(fd); /* the others are still running */
    stager_close(stream);
}

/* Returns the busy time of the least busy of n trainers. */
static double busy_of(struct fixture *fixture, const char *path, const char *delivery,
                      unsigned n, double seconds)
{
    static char yaml[CRITEO_PIPELINE_BYTES];
    struct group group = {.seconds = seconds};
    struct trainer trainers[MAX_TRAINERS];
    char staged[128];
    snprintf(group.name, sizeof(group.name), "%s%u", delivery, n);
    snprintf(staged, sizeof(staged),
             "capacity: 4, num_threads: 2, num_clients: %u, delivery: %s", n, delivery);
    criteo_pipeline(group.name, path, "{}", staged, yaml);
    fixture_apply(fixture, yaml);
    for (unsigned i = 0; i < n; i++)
        trainer_start(&trainers[i], train, fixture, &group);
    for (unsigned i = 0; i < n; i++)
        trainer_recv(trainers[i].fd);
    for (unsigned i = 0; i < n; i++)
        trainer_send(trainers[i].fd, 0);
    double least = 1;
    for (unsigned i = 0; i < n; i++) {
        double busy = (double)trainer_recv(trainers[i].fd) / 1e6;
        least = busy < least ? busy : least;
    }
    for (unsigned i = 0; i < n; i++)
        trainer_send(trainers[i].fd, 0);
    for (unsigned i = 0; i < n; i++)
        trainer_join(&trainers[i]);
    printf("%2u trainers, %s: the least busy one is busy for %.1f %% of its time\n", n,
           delivery, least * 100);
    return least;
}

/* Also at the second try, if another program took the CPU during the first. */
static bool stay_busy(struct fixture *fixture, const char *path, const char *delivery,
                      unsigned n, double seconds)
{
    for (int i = 0; i < 2; i++) {
        if (busy_of(fixture, path, delivery, n, seconds) >= BUSY)
            return true;
    }
    return false;
}

/* Returns the largest number of trainers, up to `limit`, that all stay busy. */
static unsigned search(struct fixture *fixture, const char *path, const char *delivery,
                       unsigned limit, double seconds)
{
    unsigned good = 0, bad = limit + 1, n = limit < 4 ? limit : 4;
    while (bad - good > 1) {
        if (stay_busy(fixture, path, delivery, n, seconds))
            good = n;
        else
            bad = n;
        n = bad > limit && good > 0 ? (good * 2 < limit ? good * 2 : limit)
                                    : (good + bad) / 2;
    }
    return good;
}

static void write_json(const struct point *points, const struct point *least,
                       unsigned split, unsigned broadcast, unsigned limit)
{
    printf("{\"bench\": \"overlap\", \"points\": [");
    for (size_t i = 0; i < N_POINTS; i++)
        printf("%s{\"s_over_t\": %.1f, \"num_threads\": %d, \"steps_per_s\": %.2f, "
               "\"ratio\": %.3f, \"best\": %.3f, \"bare\": %.3f}",
               i > 0 ? ", " : "", points[i].s_over_t, points[i].num_threads,
               points[i].ratio * points[i].ideal_per_s, points[i].ratio, points[i].best,
               points[i].bare);
    printf("], \"ratio\": %.3f, \"bare\": %.3f, \"trainers_90\": %u, "
           "\"trainers_90_broadcast\": %u, \"trainers_limit\": %u}\n",
           least->ratio, least->bare, split, broadcast, limit);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 40, "steps per second of an emulated trainer",
                        &options);
    prctl(PR_SET_TIMERSLACK, 1ul); /* for children and stagerd too: sleeps are exact */
    static struct point points[N_POINTS];
    struct fixture fixture;
    char path[64];
    criteo_file(FILE_ROWS, ',', path);
    fixture_start(&fixture, "memory_budget: 1GiB\n");
    measure_points(&fixture, options.seconds * 3 / 4, points);
    unsigned limit = options.seconds < QUICK_SECONDS ? 2 : MAX_TRAINERS;
    double seconds = options.seconds / 40;
    unsigned split = search(&fixture, path, "split", limit, seconds);
    unsigned broadcast = search(&fixture, path, "broadcast", limit, seconds);
    fixture_finish(&fixture);
    unlink(path);

    const struct point *least = &points[0];
    for (size_t i = 0; i < N_POINTS; i++)
        least = points[i].ratio < least->ratio ? &points[i] : least;
    printf("least: %.3f (sleeps alone: %.3f); at least 90 %% busy: %u trainers that "
           "share, %u that get all\n",
           least->ratio, least->bare, split, broadcast);
    if (options.json)
        write_json(points, least, split, broadcast, limit);
    return 0;
}
