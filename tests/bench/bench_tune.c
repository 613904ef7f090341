/* SPDX-License-Identifier: Apache-2.0
 *
 * `auto` relative to the best numbers set by hand: a stage that sleeps (a distant store)
 * with trainers that take 0, 2 and 8 ms for each batch, and a stage that computes (rows
 * of Criteo) with a trainer without work. Measures batches per second with each
 * num_threads and capacity of a sweep, and with auto for both, after its time to choose.
 * Several rounds, and the median counts.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/system/fixture.h"

#define STAGE_MICROS 8000
#define FILE_ROWS (24 * CRITEO_BATCH_ROWS)
#define MAX_ROUNDS 9

/* capacity and num_threads; the last one is compared with the others. */
static const char *const numbers[][2] = {
    {"1", "1"}, {"4", "1"}, {"4", "2"}, {"4", "4"}, {"4", "8"}, {"auto", "auto"},
};
#define N_NUMBERS (sizeof(numbers) / sizeof(numbers[0]))
#define AUTO (N_NUMBERS - 1)

struct scene {
    const char *name;
    bool sleeps;       /* the stage; otherwise it computes */
    uint64_t train_ns; /* of the trainer, for each batch */
    double rates[N_NUMBERS][MAX_ROUNDS], rate[N_NUMBERS];
    size_t best;
};

static struct scene scenes[] = {
    {.name = "sleeps, trainer 0 ms", .sleeps = true},
    {.name = "sleeps, trainer 2 ms", .sleeps = true, .train_ns = 2000000},
    {.name = "sleeps, trainer 8 ms", .sleeps = true, .train_ns = 8000000},
    {.name = "computes, trainer 0 ms"},
};
#define N_SCENES (sizeof(scenes) / sizeof(scenes[0]))

static void train(uint64_t ns)
{
    struct timespec left = {.tv_nsec = (long)ns};
    while (ns > 0 && clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

static void name_of(size_t scene, size_t i, char name[32])
{
    snprintf(name, 32, "tune-%zu-%zu", scene, i);
}

static void apply(struct fixture *fixture, const char *path, size_t s, size_t i)
{
    static char yaml[CRITEO_PIPELINE_BYTES];
    char name[32], staged[128];
    name_of(s, i, name);
    snprintf(staged, sizeof(staged), "capacity: %s, num_threads: %s", numbers[i][0],
             numbers[i][1]);
    if (scenes[s].sleeps)
        snprintf(yaml, sizeof(yaml),
                 "name: %s\n"
                 "dataset:\n  - range: {stop: 1000000000}\n"
                 "graph:\n  - {name: x, op: sleep, input: [value], "
                 "sleep_microseconds: %d}\n"
                 "staged: {features: {x: x}, %s}\n",
                 name, STAGE_MICROS, staged);
    else
        criteo_pipeline(name, path, "{}", staged, yaml);
    fixture_apply(fixture, yaml);
}

/* Batches per second, after a warm-up. */
static double measure(struct fixture *fixture, size_t s, size_t i, double warm,
                      double seconds)
{
    char name[32];
    name_of(s, i, name);
    struct stager_stream *stream = fixture_open(fixture, name, NULL, 2);
    uint64_t now = bench_now_ns(), n = 0;
    uint64_t counts = now + (uint64_t)(warm * 1e9);
    while (now < counts + (uint64_t)(seconds * 1e9)) {
        struct stager_batch *batch;
        int rc = stager_next(stream, 20000, &batch);
        if (rc == -STAGER_OUT_OF_RANGE && stager_rewind(stream) == 0)
            continue;
        if (rc < 0)
            bench_die("%s: %s", name, stager_error_text(NULL));
        train(scenes[s].train_ns);
        stager_release(batch);
        now = bench_now_ns();
        n += now >= counts;
    }
    stager_close(stream);
    return (double)n * 1e9 / (double)(now - counts);
}

/* Of 60 s auto gets 2 each time to choose its numbers, the others a tenth of one. */
static void measure_all(struct fixture *fixture, double seconds)
{
    size_t n_rounds = seconds < 20 ? 1 : 3;
    double find = seconds / 30, warm = find / 20;
    double rest = seconds / (double)n_rounds - N_SCENES * (find + AUTO * warm);
    double each = rest / (N_SCENES * N_NUMBERS);
    for (size_t round = 0; round < n_rounds; round++) {
        for (size_t s = 0; s < N_SCENES; s++) {
            for (size_t i = 0; i < N_NUMBERS; i++)
                scenes[s].rates[i][round] =
                    measure(fixture, s, i, i == AUTO ? find : warm, each);
        }
    }
    for (size_t s = 0; s < N_SCENES; s++) {
        struct scene *scene = &scenes[s];
        for (size_t i = 0; i < N_NUMBERS; i++)
            scene->rate[i] = bench_median(scene->rates[i], n_rounds);
        for (size_t i = 0; i < AUTO; i++)
            scene->best = scene->rate[i] > scene->rate[scene->best] ? i : scene->best;
    }
}

static double auto_over_best(const struct scene *scene)
{
    return scene->rate[AUTO] / scene->rate[scene->best];
}

static void write_json(double least)
{
    printf("{\"bench\": \"tune\", \"scenes\": [");
    for (size_t s = 0; s < N_SCENES; s++) {
        const struct scene *scene = &scenes[s];
        printf("%s{\"name\": \"%s\", \"auto_per_s\": %.1f, \"best_per_s\": %.1f, "
               "\"worst_given_per_s\": %.1f, \"best_capacity\": %s, "
               "\"best_num_threads\": %s, \"ratio\": %.3f}",
               s > 0 ? ", " : "", scene->name, scene->rate[AUTO],
               scene->rate[scene->best], scene->rate[0], numbers[scene->best][0],
               numbers[scene->best][1], auto_over_best(scene));
    }
    printf("], \"auto_over_best\": %.3f}\n", least);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 60, "auto over the best numbers given by hand",
                        &options);
    struct fixture fixture;
    char path[64];
    criteo_file(FILE_ROWS, ',', path);
    fixture_start(&fixture, "memory_budget: 2GiB\n");
    for (size_t s = 0; s < N_SCENES; s++) {
        for (size_t i = 0; i < N_NUMBERS; i++)
            apply(&fixture, path, s, i);
    }
    measure_all(&fixture, options.seconds);
    fixture_finish(&fixture);
    unlink(path);

    double least = auto_over_best(&scenes[0]);
    for (size_t s = 0; s < N_SCENES; s++) {
        const struct scene *scene = &scenes[s];
        double ratio = auto_over_best(scene);
        least = ratio < least ? ratio : least;
        printf("%-24s auto %8.1f/s, best given %8.1f/s (capacity %s, num_threads %s), "
               "with 1 and 1 %8.1f/s: %.3f\n",
               scene->name, scene->rate[AUTO], scene->rate[scene->best],
               numbers[scene->best][0], numbers[scene->best][1], scene->rate[0], ratio);
    }
    printf("auto over best, least: %.3f\n", least);
    if (options.json)
        write_json(least);
    return 0;
}
