/* SPDX-License-Identifier: Apache-2.0
 *
 * The gain of smart_stage: steps per second of a trainer that computes a graph by
 * stager_run, with `off`, `on` and `auto`. The models are the files of examples/models.
 * Also graphs of which one half must not move: `auto` is compared with all partitions,
 * each written by hand.
 *
 * A run is a fresh daemon that has no prior. The variants run in slices that take
 * turns, forwards and then backwards, from the first batch on: trials of `auto` are in
 * its figures. Each round gives one ratio of two neighbouring slices; a figure is the
 * mean of their logarithms, and its `_low` the lower bound of the 95 % confidence
 * interval (Student's t). Of each graph there is a long run, and short ones for the
 * first seconds.
 *
 * STAGER_BENCH_GRAPHS: names of graphs, separated by commas; all without it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/system/fixture.h"

#define YAML_BYTES 16384
/* of one subject: off, on, auto; or partitions by hand, and auto */
#define MAX_VARIANTS 4
#define MAX_ROUNDS 400
#define N_BUFFERED 8 /* batches made while others ran, at most */
#define N_SHORT 5    /* runs of FIRST_S beside the long one */
#define SLICE_S 1.0  /* of a long run, ... */
#define LONG_S 60.0  /* ... which is this long in each variant */
#define FIRST_S 5.0
#define MODEL_ROWS 50000
#define CRITEO_ROWS (8 * CRITEO_BATCH_ROWS)

/* Logarithms of ratios. */
struct sample {
    double values[MAX_ROUNDS];
    size_t n;
};

/* A graph, and its way to run. */
struct subject {
    const char *name;
    const char *fetch;
    bool is_model;
    const struct chain *chain;
    size_t n_variants; /* the first is `off`, the last is `auto` */
    char names[MAX_VARIANTS][32];
    double steps[MAX_VARIANTS][MAX_ROUNDS]; /* per second, in each round of a run */
    size_t n_rounds;
    struct sample over_off, on_over_off, first, over_best;
    char decision[256];
};

static struct {
    struct fixture fixture;
    char clicks[256], rows[64];
    double long_s, first_s; /* of a variant in a run */
} bench;

/* ---- texts ---- */

/* Replaces every `from` in text by `to`. */
static void replace(char *text, const char *from, const char *to)
{
    static char copy[YAML_BYTES];
    snprintf(copy, sizeof(copy), "%s", text);
    size_t n = 0;
    for (const char *s = copy; *s != '\0';) {
        bool found = strncmp(s, from, strlen(from)) == 0;
        size_t bytes = found ? strlen(to) : 1;
        if (n + bytes >= YAML_BYTES)
            bench_die("a pipeline is too long");
        memcpy(text + n, found ? to : s, bytes);
        n += bytes;
        s += found ? strlen(from) : 1;
    }
    text[n] = '\0';
}

static void read_text(const char *path, char *text)
{
    FILE *file = fopen(path, "r");
    size_t n = file != NULL ? fread(text, 1, YAML_BYTES - 1, file) : 0;
    if (n == 0)
        bench_die("cannot read %s", path);
    text[n] = '\0';
    fclose(file);
}

static void model_text(const char *name, const char *as, const char *mode, char *text)
{
    char path[512], line[64];
    snprintf(path, sizeof(path), STG_MODELS "/%s.yaml.in", name);
    read_text(path, text);
    snprintf(line, sizeof(line), "\nname: %.31s\nsmart_stage: %.8s\n", as, mode);
    char before[64];
    snprintf(before, sizeof(before), "\nname: %.31s\n", name);
    replace(text, before, line);
    replace(text, "@DATA@", bench.clicks);
    replace(text, "batch_size: 32", "batch_size: 256");
    replace(text, "  - text_line: {}\n", "  - text_line: {}\n  - repeat: {}\n");
    replace(text, "max_batch_bytes: 1MiB", "max_batch_bytes: 4MiB");
}

/* Criteo's rows: decoded, hashed and summed up. */
static void criteo_text(const char *as, const char *mode, char *text)
{
    FILE *file = fmemopen(text, YAML_BYTES, "w");
    fprintf(file,
            "name: %s\nsmart_stage: %s\ndataset:\n  - files: {pattern: [%s]}\n"
            "  - text_line: {}\n  - repeat: {}\n  - batch: {batch_size: %d}\ngraph:\n",
            as, mode, bench.rows, CRITEO_BATCH_ROWS);
    criteo_nodes("staged:record", 1000, file);
    fprintf(file, "  - {name: ids, op: stack, axis: 1, input: [ids0");
    for (int i = 1; i < CRITEO_STRINGS; i++)
        fprintf(file, ", ids%d", i);
    fprintf(file,
            "]}\n  - {name: table, op: variable, shape: [1000, 8], initializer: "
            "random_normal, seed: 1}\n"
            "  - {name: rows, op: embedding_lookup, input: [table, ids]}\n"
            "staged: {capacity: 4, max_batch_bytes: 4MiB, features: {record: record}}\n"
            "targets: [rows]\n");
    if (fclose(file) != 0)
        bench_die("a pipeline is too long");
}

/* A chain of two nodes behind the boundary: x -> first -> second -> target. partition:
 * the number of them before the boundary of the text. */
struct chain {
    const char *name;
    const char *element;        /* nodes that make x; the tensor of its feature is "x" */
    const char *first, *second; /* "op: …, " without inputs */
    const char *target;         /* likewise, of the last node */
};

static void chain_text(const struct chain *chain, const char *as, const char *mode,
                       int partition, char *text)
{
    static const char *const last[] = {"x", "first", "second"};
    char first[64], second[64], target[64];
    snprintf(first, sizeof(first), partition == 0 ? "\"staged:f\"" : "x");
    snprintf(second, sizeof(second), partition == 1 ? "\"staged:f\"" : "first");
    snprintf(target, sizeof(target), partition == 2 ? "\"staged:f\"" : "second");
    snprintf(text, YAML_BYTES,
             "name: %s\nsmart_stage: %s\ndataset:\n  - range: {stop: 1000000000}\n"
             "  - batch: {batch_size: 1024}\ngraph:\n%s"
             "  - {name: first, %s, input: [%s]}\n  - {name: second, %s, input: [%s]}\n"
             "  - {name: target, %s, input: [%s]}\n"
             "staged: {capacity: 4, max_batch_bytes: 16MiB, features: {f: %s}}\n"
             "targets: [target]\n",
             as, mode, chain->element, chain->first, first, chain->second, second,
             chain->target, target, last[partition]);
}

/* ---- trainers ---- */

/* One variant of a subject, run by a separate process in its turn. */
struct runner {
    char name[32];
    const char *fetch;
};

static void step(struct stager_stream *stream, const struct runner *runner)
{
    struct stager_batch *batch = fixture_take(stream);
    struct stager_tensor ret;
    if (stager_run(stream, batch, &runner->fetch, 1, &ret) < 0)
        bench_die("%s: %s", runner->name, stager_error_text(stream));
    stager_release(batch);
}

/* Receives the nanoseconds to run, 0: to end; sends steps per second, in thousandths. */
static void train(struct fixture *fixture, int fd, void *arg)
{
    const struct runner *runner = arg;
    static const char *const nothing[1];
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime,
                                     .fields = nothing,
                                     .fetches = &runner->fetch,
                                     .n_fetches = 1};
    struct stager_stream *stream;
    if (stager_open(NULL, runner->name, &options, &stream) < 0)
        bench_die("%s: %s", runner->name, stager_error_text(NULL));
    int64_t ns;
    while ((ns = trainer_recv(fd)) > 0) {
        for (int i = 0; i < N_BUFFERED; i++)
            step(stream, runner);
        uint64_t n = 0, began = bench_now_ns(), now = began;
        for (; now - began < (uint64_t)ns; n++, now = bench_now_ns())
            step(stream, runner);
        trainer_send(fd, (int64_t)((double)n * 1e12 / (double)(now - began)));
    }
    stager_close(stream);
}

static double run_for(const struct trainer *trainer, double seconds)
{
    trainer_send(trainer->fd, (int64_t)(seconds * 1e9));
    return (double)trainer_recv(trainer->fd) / 1e3;
}

/* The last decision of stagerd for that pipeline. */
static void last_decision(const char *name, char *buf, size_t bytes)
{
    struct stg_reply reply;
    struct stager *client =
        fixture_ask(&bench.fixture, STG_REQUEST_EXPLAIN, name, &reply);
    size_t n = reply.explain.n_decisions;
    snprintf(buf, bytes, "%s", n > 0 ? reply.explain.decisions[n - 1].text : "");
    stager_disconnect(client);
}

/* ---- statistics ---- */

/* Of Student's t with so many degrees of freedom: 95 % within. */
static double t_95(size_t freedom)
{
    static const double values[] = {12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36,
                                    2.31,  2.26, 2.23, 2.20, 2.18, 2.16, 2.14};
    size_t n = sizeof(values) / sizeof(values[0]);
    if (freedom == 0)
        return INFINITY;
    return freedom <= n ? values[freedom - 1] : 1.96 + 2.6 / (double)freedom;
}

static void add(struct sample *sample, double ratio)
{
    if (sample->n < MAX_ROUNDS && ratio > 0)
        sample->values[sample->n++] = log(ratio);
}

/* Returns the mean ratio; *ret_low: the lower bound, 0 of a single value. */
static double mean(const struct sample *sample, double *ret_low)
{
    double sum = 0, squares = 0, n = (double)sample->n;
    for (size_t i = 0; i < sample->n; i++)
        sum += sample->values[i];
    for (size_t i = 0; i < sample->n; i++)
        squares += (sample->values[i] - sum / n) * (sample->values[i] - sum / n);
    double error = sample->n > 1 ? sqrt(squares / (n - 1) / n) : INFINITY;
    *ret_low = sample->n > 0 ? exp(sum / n - t_95(sample->n - 1) * error) : 0;
    return sample->n > 0 ? exp(sum / n) : 0;
}

/* ---- runs ---- */

static double sum_of(const struct subject *s, size_t variant, size_t first, size_t end)
{
    double sum = 0;
    for (size_t i = first; i < end; i++)
        sum += s->steps[variant][i];
    return sum;
}

/* Each variant in turn, forwards and then backwards. */
static void run_round(struct subject *subject, const struct trainer *trainers,
                      double slice)
{
    size_t n = subject->n_variants, round = subject->n_rounds++;
    for (size_t i = 0; i < n; i++) {
        size_t at = round % 2 == 0 ? i : n - 1 - i;
        subject->steps[at][round] = run_for(&trainers[at], slice);
    }
}

/* Without what an earlier run left: the partition that it took. */
static void start_afresh(void)
{
    char path[256];
    fixture_stop(&bench.fixture);
    snprintf(path, sizeof(path), "%s/home/state/smart_stage", bench.fixture.dir);
    unlink(path);
    fixture_restart(&bench.fixture);
}

static void apply_all(struct subject *subject)
{
    static const char *const modes[] = {"off", "on", "auto"};
    static char text[YAML_BYTES];
    for (int i = 0; i < (int)subject->n_variants; i++) {
        const char *name = subject->names[i];
        bool is_auto = i + 1 == (int)subject->n_variants;
        if (subject->chain != NULL)
            chain_text(subject->chain, name, is_auto ? "auto" : "off", is_auto ? 0 : i,
                       text);
        else if (subject->is_model)
            model_text(subject->name, name, modes[i], text);
        else
            criteo_text(name, modes[i], text);
        fixture_apply(&bench.fixture, text);
    }
}

static void run(struct subject *subject, double seconds, double slice)
{
    struct trainer trainers[MAX_VARIANTS];
    struct runner runners[MAX_VARIANTS];
    start_afresh();
    apply_all(subject);
    for (size_t i = 0; i < subject->n_variants; i++) {
        runners[i].fetch = subject->fetch;
        snprintf(runners[i].name, sizeof(runners[i].name), "%s", subject->names[i]);
        trainer_start(&trainers[i], train, &bench.fixture, &runners[i]);
    }
    subject->n_rounds = 0;
    while ((double)subject->n_rounds * slice < seconds * 0.999 &&
           subject->n_rounds < MAX_ROUNDS)
        run_round(subject, trainers, slice);
    if (subject->over_off.n == 0) /* of the long run */
        last_decision(subject->names[subject->n_variants - 1], subject->decision,
                      sizeof(subject->decision));
    for (size_t i = 0; i < subject->n_variants; i++) {
        trainer_send(trainers[i].fd, 0);
        trainer_join(&trainers[i]);
    }
}

static void add_first(struct subject *s, double slice)
{
    size_t last = s->n_variants - 1, n = (size_t)(bench.first_s / slice + 0.5);
    add(&s->first, sum_of(s, last, 0, n) / sum_of(s, 0, 0, n));
}

/* The last third is that of the partition that was found. */
static void add_long(struct subject *s)
{
    size_t last = s->n_variants - 1, best = 0, n = s->n_rounds;
    for (size_t i = 0; i < last; i++)
        best = sum_of(s, i, 0, n) > sum_of(s, best, 0, n) ? i : best;
    for (size_t i = 0; i < n; i++) {
        add(&s->over_off, s->steps[last][i] / s->steps[0][i]);
        add(&s->on_over_off, s->steps[last - 1][i] / s->steps[0][i]);
        if (i >= n - n / 3)
            add(&s->over_best, s->steps[last][i] / s->steps[best][i]);
    }
}

static void run_subject(struct subject *subject)
{
    double slice = bench.long_s * SLICE_S / LONG_S, low, first_low, best_low;
    run(subject, bench.long_s, slice);
    add_long(subject);
    add_first(subject, slice);
    for (int i = 0; i < N_SHORT; i++) {
        run(subject, bench.first_s, slice);
        add_first(subject, slice);
    }
    double ratio = mean(&subject->over_off, &low);
    double first = mean(&subject->first, &first_low);
    double best = mean(&subject->over_best, &best_low);
    printf("%s: auto over off %.3f (at least %.3f), in the first seconds %.3f (%.3f), "
           "over the best partition %.3f (%.3f)\n    %s\n",
           subject->name, ratio, low, first, first_low, best, best_low,
           subject->decision);
    fflush(stdout);
}

/* ---- subjects ---- */

#define HASHED(x)                                                                        \
    "  - {name: text, op: as_string, input: [value]}\n"                                  \
    "  - {name: " x                                                                      \
    ", op: string_to_hash_bucket_fast, input: [text], num_buckets: 500}\n"
#define SLEEP(microseconds) "op: sleep, sleep_microseconds: " microseconds

static const struct chain chains[] = {
    /* The second node makes 500 floats from an integer. */
    {"inflates", HASHED("x"), "op: identity", "op: one_hot, depth: 500",
     "op: reduce_sum, axis: [1]"},
    /* The daemon has one runner, which is slower than the trainer. */
    {"daemon_is_busy", HASHED("id") "  - {name: x, input: [id], " SLEEP("2000") "}\n",
     SLEEP("500"), SLEEP("500"), "op: identity"},
    {"trainer_is_busy", HASHED("x"), SLEEP("500"), SLEEP("500"), SLEEP("1500")},
};
#define N_CHAINS (sizeof(chains) / sizeof(chains[0]))

static const char *const models[] = {"deepfm", "dien", "din", "dlrm", "dssm", "criteo"};
#define N_MODELS (sizeof(models) / sizeof(models[0]))

static void write_clicks(void)
{
    static char rows[MODEL_ROWS * 96];
    uint64_t state = 1;
    size_t n = 0;
    for (int i = 0; i < MODEL_ROWS; i++) {
        uint64_t draw[4];
        for (int k = 0; k < 4; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            draw[k] = state >> 33;
        }
        n += (size_t)snprintf(rows + n, sizeof(rows) - n,
                              "%d,%.3f,%.2f,user%d,item%d,category%d,item%d item%d\n",
                              (int)(draw[0] % 2), (double)(draw[0] % 1000) / 1000,
                              (double)(18 + draw[1] % 62) / 100, (int)(draw[1] % 200),
                              (int)(draw[2] % 300), (int)(draw[2] % 20),
                              (int)(draw[3] % 300), (int)(draw[3] / 300 % 300));
    }
    fixture_file(&bench.fixture, "clicks.csv", rows, n, bench.clicks);
}

/* Prints `key` and `key`_low, and lowers *least to the latter. */
static void write_sample(const char *key, const struct sample *sample, double *least)
{
    double low, ratio = mean(sample, &low);
    printf(", \"%s\": %.3f, \"%s_low\": %.3f", key, ratio, key, low);
    *least = low < *least ? low : *least;
}

static void write_json(const struct subject *subjects, size_t n)
{
    double off = 1e9, on = 1e9, first = 1e9, best = 1e9, unused, least = 1e9;
    printf("{\"bench\": \"smartstage\", \"points\": [");
    for (size_t i = 0; i < n; i++) {
        const struct subject *s = &subjects[i];
        double ratio = mean(&s->over_off, &unused);
        least = ratio < least ? ratio : least;
        printf("%s{\"graph\": \"%s\"", i > 0 ? ", " : "", s->name);
        write_sample("auto_over_off", &s->over_off, &off);
        write_sample("first_over_off", &s->first, &first);
        write_sample("auto_over_best", &s->over_best, &best);
        write_sample("on_over_off", &s->on_over_off, &on);
        printf("}");
    }
    printf("], \"ratio\": %.3f, \"auto_over_off_low\": %.3f, \"first_over_off_low\": "
           "%.3f, \"auto_over_best_low\": %.3f}\n",
           least, off, first, best);
}

static bool is_wanted(const char *name)
{
    const char *graphs = getenv("STAGER_BENCH_GRAPHS");
    size_t n = strlen(name);
    for (const char *s = graphs; s != NULL && *s != '\0';) {
        size_t bytes = strcspn(s, ",");
        if (bytes == n && strncmp(s, name, n) == 0)
            return true;
        s += bytes + (s[bytes] == ',');
    }
    return graphs == NULL;
}

static size_t list_subjects(struct subject *subjects)
{
    size_t n = 0;
    for (size_t i = 0; i < N_MODELS + N_CHAINS; i++) {
        const struct chain *chain = i < N_MODELS ? NULL : &chains[i - N_MODELS];
        const char *name = chain != NULL ? chain->name : models[i];
        bool is_model = chain == NULL && strcmp(name, "criteo") != 0;
        if (!is_wanted(name))
            continue;
        subjects[n] = (struct subject){.name = name,
                                       .chain = chain,
                                       .is_model = is_model,
                                       .fetch = chain != NULL ? "target"
                                                : is_model    ? "scores"
                                                              : "rows",
                                       .n_variants = chain != NULL ? 4 : 3};
        for (size_t k = 0; k < subjects[n].n_variants; k++)
            snprintf(subjects[n].names[k], sizeof(subjects[n].names[k]), "%s-%zu", name,
                     k);
        n++;
    }
    if (n == 0)
        bench_die("STAGER_BENCH_GRAPHS names no graph");
    return n;
}

/* The seconds of one variant in the long run, of all that there is to measure. */
static double long_seconds(const struct subject *subjects, size_t n, double seconds)
{
    double runs = 0;
    for (size_t i = 0; i < n; i++)
        runs += (double)subjects[i].n_variants * (1 + N_SHORT * FIRST_S / LONG_S);
    return seconds / runs;
}

int main(int argc, char **argv)
{
    static struct subject subjects[N_MODELS + N_CHAINS];
    struct bench_options options;
    bench_options_parse(argc, argv, 2600,
                        "steps per second with smart_stage off, on, auto", &options);
    size_t n = list_subjects(subjects);
    bench.long_s = long_seconds(subjects, n, options.seconds);
    bench.first_s = bench.long_s * FIRST_S / LONG_S;
    fixture_start(&bench.fixture, "memory_budget: 1GiB\n");
    write_clicks();
    criteo_file(CRITEO_ROWS, ',', bench.rows);
    for (size_t i = 0; i < n; i++)
        run_subject(&subjects[i]);
    fixture_finish(&bench.fixture);
    unlink(bench.rows);
    if (options.json)
        write_json(subjects, n);
    return 0;
}
