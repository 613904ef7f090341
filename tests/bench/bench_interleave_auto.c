/* SPDX-License-Identifier: Apache-2.0
 *
 * `num_parallel_calls: auto` of interleave relative to the best number of a sweep.
 * Inputs: lines and TFRecords in the page cache, in many small files and in a few large
 * ones, for a trainer without work and one that takes 2 ms for each batch; objects of a
 * distant server; files with slow reads; and files with reads that become fast, then slow
 * again, during a run. Measures batches per second, after auto had its time to choose.
 * Several rounds, and the median counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/bench/criteo_example.h"
#include "tests/bench/slow_server.h"
#include "tests/system/fixture.h"

#define CYCLE 8
#define N_OBJECTS 64
#define FAR_NS 50000000u
#define FAR_BYTES_PER_S 100000000u
#define SLOW_READ_NS 20000000u
#define MAX_ROUNDS 9
#define TEXT_BYTES 8192

static const char *const numbers[] = {"0", "1", "2", "4", "auto"};
#define N_NUMBERS (sizeof(numbers) / sizeof(numbers[0]))
#define AUTO (N_NUMBERS - 1)

enum where { LINES, RECORDS, SLOW_RECORDS, FAR };

struct scene {
    const char *name;
    enum where where;
    int n_files, n_rows; /* in the page cache */
    uint64_t train_ns;   /* of the trainer, for each batch */
    double rates[N_NUMBERS][MAX_ROUNDS], rate[N_NUMBERS];
    size_t best;
};

static struct scene scenes[] = {
    {"small text files, 0 ms", LINES, 1024, 64, 0},
    {"small text files, 2 ms", LINES, 1024, 64, 2000000},
    {"large text files, 0 ms", LINES, CYCLE, 32768, 0},
    {"large text files, 2 ms", LINES, CYCLE, 32768, 2000000},
    {"small TFRecord files, 0 ms", RECORDS, 1024, 64, 0},
    {"small TFRecord files, 2 ms", RECORDS, 1024, 64, 2000000},
    {"large TFRecord files, 0 ms", RECORDS, CYCLE, 16384, 0},
    {"large TFRecord files, 2 ms", RECORDS, CYCLE, 16384, 2000000},
    {"far objects, 0 ms", FAR, 0, 0, 0},
    {"far objects, 2 ms", FAR, 0, 0, 2000000},
    {"slow TFRecord files, 0 ms", SLOW_RECORDS, 0, 0, 0},
};
#define N_SCENES (sizeof(scenes) / sizeof(scenes[0]))
#define FAST_SCENE 6 /* the files of SLOW_SCENE */
#define SLOW_SCENE 10

/* A stream with auto that begins while the files are slow. */
static double turned[2][MAX_ROUNDS]; /* [fast, slow again] */
static const char *const turns[] = {"slow files that turn fast",
                                    "fast files that turn slow"};

static char dir[] = "/tmp/stg-bench-XXXXXX";
static struct slow_server server;
static _Atomic uint64_t *read_ns; /* of each pread of stagerd; a file in dir */

/* ---- files and pipelines ---- */

static void make_files(size_t s)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/%zu", dir, s);
    if (mkdir(path, 0755) < 0)
        bench_die("%s: cannot be made", path);
    for (int i = 0; i < scenes[s].n_files; i++) {
        snprintf(path, sizeof(path), "%s/%zu/%04d", dir, s, i);
        if (scenes[s].where == LINES)
            criteo_write((size_t)scenes[s].n_rows, ',', path);
        else
            criteo_example_file((size_t)scenes[s].n_rows, path);
    }
}

static void remove_files(size_t s)
{
    char path[64];
    for (int i = 0; i < scenes[s].n_files; i++) {
        snprintf(path, sizeof(path), "%s/%zu/%04d", dir, s, i);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/%zu", dir, s);
    rmdir(path);
}

static bool is_remote(const struct scene *scene)
{
    return scene->where == FAR;
}

/* Trainers of 0 and 2 ms have the same files. */
static size_t files_of(size_t s)
{
    return s == SLOW_SCENE ? FAST_SCENE : s - (scenes[s].train_ns > 0);
}

static void map_read_ns(void)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/read_ns", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(*read_ns)) < 0)
        bench_die("%s: cannot be made", path);
    read_ns = mmap(NULL, sizeof(*read_ns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (read_ns == MAP_FAILED)
        bench_die("%s: cannot be mapped", path);
    setenv("STG_SLOW_READS", path, 1);
}

static void unmap_read_ns(void)
{
    munmap((void *)read_ns, sizeof(*read_ns));
    unlink(getenv("STG_SLOW_READS"));
}

static void name_of(size_t s, size_t i, char name[32])
{
    snprintf(name, 32, "interleave-%zu-%zu", s, i);
}

static void apply(struct fixture *fixture, size_t s, size_t i)
{
    const struct scene *scene = &scenes[s];
    static char yaml[TEXT_BYTES];
    char name[32];
    FILE *to = fmemopen(yaml, sizeof(yaml), "w");
    name_of(s, i, name);
    fprintf(to, "name: %s\ndataset:\n  - files: {shuffle: false, pattern: [", name);
    if (!is_remote(scene))
        fprintf(to, "\"%s/%zu/*\"", dir, files_of(s));
    for (int k = 0; is_remote(scene) && k < N_OBJECTS; k++)
        fprintf(to, "%s\"http://127.0.0.1:%u/%d\"", k > 0 ? ", " : "", server.port, k);
    fprintf(to,
            "]}\n  - interleave: {cycle_length: %d, block_length: %d, "
            "num_parallel_calls: %s, reader: {%s: {}}}\n"
            "  - repeat: {}\n  - batch: {batch_size: %d}\n"
            "staged: {capacity: 4, max_batch_bytes: 4MiB}\n",
            CYCLE, is_remote(scene) ? 1 : 16, numbers[i],
            scene->where == LINES ? "text_line" : "tfrecord",
            is_remote(scene) ? 8 : 1024);
    fclose(to);
    fixture_apply(fixture, yaml);
}

/* ---- measuring ---- */

static void train(uint64_t ns)
{
    struct timespec left = {.tv_nsec = (long)ns};
    while (ns > 0 && clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

/* Batches per second, after a warm-up. */
static double take(struct stager_stream *stream, uint64_t train_ns, double warm,
                   double seconds)
{
    uint64_t now = bench_now_ns(), n = 0;
    uint64_t counts = now + (uint64_t)(warm * 1e9), first = 0;
    while (now < counts + (uint64_t)(seconds * 1e9) || n == 0) {
        struct stager_batch *batch;
        if (stager_next(stream, 20000, &batch) < 0)
            bench_die("%s", stager_error_text(stream));
        train(train_ns);
        stager_release(batch);
        now = bench_now_ns();
        n += first > 0;
        if (first == 0 && now >= counts)
            first = now;
    }
    return (double)n * 1e9 / (double)(now - first);
}

/* Of 60 s auto gets 2 to choose, and keeps its number in the following rounds. */
static double measure(struct fixture *fixture, size_t s, size_t i, size_t round,
                      double unit)
{
    bool is_slow = scenes[s].where == FAR || scenes[s].where == SLOW_RECORDS;
    char name[32];
    name_of(s, i, name);
    struct stager_stream *stream = fixture_open(fixture, name, NULL, 2);
    double warm = i == AUTO && round == 0 ? 60 : is_slow ? 12 : 4;
    double ret = take(stream, scenes[s].train_ns, warm * unit, (is_slow ? 20 : 8) * unit);
    stager_close(stream);
    return ret;
}

static void measure_turns(struct fixture *fixture, size_t round, double unit)
{
    char name[32];
    name_of(SLOW_SCENE, AUTO, name);
    struct stager_stream *stream = fixture_open(fixture, name, NULL, 2);
    atomic_store(read_ns, SLOW_READ_NS);
    take(stream, 0, 60 * unit, 0);
    atomic_store(read_ns, 0);
    turned[0][round] = take(stream, 0, 60 * unit, 8 * unit);
    atomic_store(read_ns, SLOW_READ_NS);
    turned[1][round] = take(stream, 0, 90 * unit, 20 * unit);
    atomic_store(read_ns, 0);
    stager_close(stream);
}

static void sum_up(struct scene *scene, size_t n_rounds)
{
    for (size_t i = 0; i < N_NUMBERS; i++)
        scene->rate[i] = bench_median(scene->rates[i], n_rounds);
    for (size_t i = 0; i < AUTO; i++)
        scene->best = scene->rate[i] > scene->rate[scene->best] ? i : scene->best;
}

/* A unit is 1/30 s for runs of 60 s and more. */
static size_t measure_all(struct fixture *fixture, double seconds)
{
    size_t n_rounds = seconds < 20 ? 1 : 3;
    double unit = seconds < 60 ? seconds / 60 / 30 : 1.0 / 30;
    for (size_t round = 0; round < n_rounds; round++) {
        for (size_t s = 0; s < N_SCENES; s++) {
            atomic_store(read_ns, scenes[s].where == SLOW_RECORDS ? SLOW_READ_NS : 0);
            for (size_t i = 0; i < N_NUMBERS; i++)
                scenes[s].rates[i][round] = measure(fixture, s, i, round, unit);
        }
        measure_turns(fixture, round, unit);
    }
    for (size_t s = 0; s < N_SCENES; s++)
        sum_up(&scenes[s], n_rounds);
    return n_rounds;
}

/* ---- report ---- */

static double auto_over_best(const struct scene *scene)
{
    return scene->rate[AUTO] / scene->rate[scene->best];
}

static double report(const double turn[2])
{
    double least = turn[0] < turn[1] ? turn[0] : turn[1];
    for (size_t s = 0; s < N_SCENES; s++) {
        const struct scene *scene = &scenes[s];
        double ratio = auto_over_best(scene);
        least = ratio < least ? ratio : least;
        printf("%-27s auto %8.1f/s, best given %8.1f/s (%s), 0: %8.1f/s, 1: %8.1f/s: "
               "%.3f\n",
               scene->name, scene->rate[AUTO], scene->rate[scene->best],
               numbers[scene->best], scene->rate[0], scene->rate[1], ratio);
    }
    for (int k = 0; k < 2; k++)
        printf("%-27s %.3f\n", turns[k], turn[k]);
    printf("auto over best, least: %.3f\n", least);
    return least;
}

static void write_json(const double turn[2], double least)
{
    printf("{\"bench\": \"interleave_auto\", \"scenes\": [");
    for (size_t s = 0; s < N_SCENES; s++) {
        const struct scene *scene = &scenes[s];
        printf("{\"name\": \"%s\", \"auto_per_s\": %.1f, \"best_per_s\": %.1f, "
               "\"none_per_s\": %.1f, \"one_per_s\": %.1f, \"best\": %s, "
               "\"ratio\": %.3f}, ",
               scene->name, scene->rate[AUTO], scene->rate[scene->best], scene->rate[0],
               scene->rate[1], numbers[scene->best], auto_over_best(scene));
    }
    printf("{\"name\": \"%s\", \"ratio\": %.3f}, {\"name\": \"%s\", \"ratio\": %.3f}], "
           "\"auto_over_best\": %.3f}\n",
           turns[0], turn[0], turns[1], turn[1], least);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(
        argc, argv, 100,
        "interleave's num_parallel_calls: auto over the best number given by hand",
        &options);
    struct fixture fixture;
    if (mkdtemp(dir) == NULL)
        bench_die("cannot make a folder in /tmp");
    slow_server_start(&server, FAR_NS, FAR_BYTES_PER_S);
    map_read_ns();
    fixture_start_enclosed(&fixture, "memory_budget: 8GiB\n", false, STG_SLOW_READS_LIB);
    for (size_t s = 0; s < N_SCENES; s++) {
        if (!is_remote(&scenes[s]) && files_of(s) == s)
            make_files(s);
        for (size_t i = 0; i < N_NUMBERS; i++)
            apply(&fixture, s, i);
    }
    size_t n_rounds = measure_all(&fixture, options.seconds);
    fixture_finish(&fixture);
    slow_server_stop(&server);
    for (size_t s = 0; s < N_SCENES; s++) {
        if (!is_remote(&scenes[s]) && files_of(s) == s)
            remove_files(s);
    }
    unmap_read_ns();
    rmdir(dir);

    const struct scene *fast = &scenes[FAST_SCENE], *slow = &scenes[SLOW_SCENE];
    double turn[2] = {bench_median(turned[0], n_rounds) / fast->rate[fast->best],
                      bench_median(turned[1], n_rounds) / slow->rate[slow->best]};
    double least = report(turn);
    if (options.json)
        write_json(turn, least);
    return 0;
}
