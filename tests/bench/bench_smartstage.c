/* SPDX-License-Identifier: Apache-2.0
 *
 * The gain of smart_stage: steps per second of a trainer that computes a model by
 * stager_run, with `off`, `on` and `auto`, in slices that take turns. The result is the
 * median over the rounds of one relative to the other. The models of examples stage the
 * output of their dataset and compute the rest in the trainer, like graphs written
 * without stages, so that nodes can move. Also graphs of which one half must not move:
 * `auto` is compared with the best of all partitions, each written by hand.
 */
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
#define MODEL_ROWS 50000
#define CRITEO_ROWS (8 * CRITEO_BATCH_ROWS)

/* A graph, and its way to run. */
struct subject {
    const char *name;
    const char *fetch;
    size_t n_variants; /* the last is `auto` */
    char names[MAX_VARIANTS][32];
    double ratios[MAX_VARIANTS][MAX_ROUNDS]; /* steps, relative to those of the first */
    double of_best[MAX_ROUNDS];              /* auto relative to the best of the others */
    size_t n_rounds;
};

static struct {
    struct fixture fixture;
    char clicks[256], rows[64];
    double seconds; /* of one subject */
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

/* Replaces the features by the element itself, and puts their nodes behind it. */
static void stage_the_element(char *text)
{
    char *features = strstr(text, "  features: {");
    char *end = features != NULL ? strchr(features, '\n') : NULL;
    if (end == NULL)
        bench_die("a model without a line of features");
    memmove(features, end, strlen(end) + 1);
    replace(text, "input: [record]", "input: [\"staged:record\"]");
    static const char *const nodes[] = {"dense", "ids",      "user",
                                        "item",  "category", "history"};
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        char staged[64];
        snprintf(staged, sizeof(staged), "\"staged:%s\"", nodes[i]);
        replace(text, staged, nodes[i]);
    }
    replace(text, "\nstaged:\n", "\nstaged:\n  features: {record: record}\n");
}

static void model_text(const char *name, const char *as, const char *mode, char *text)
{
    char path[512], line[64];
    snprintf(path, sizeof(path), STG_MODELS "/%s.yaml.in", name);
    read_text(path, text);
    stage_the_element(text);
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
    buf[0] = '\0';
    size_t n = reply.explain.n_decisions;
    if (n > 0)
        snprintf(buf, bytes, "%s", reply.explain.decisions[n - 1].text);
    stager_disconnect(client);
}

/* Lets `auto` find its partition; keeps the others awake. */
static void warm_up(const struct subject *subject, const struct trainer *trainers)
{
    size_t last = subject->n_variants - 1;
    char text[256];
    uint64_t end = bench_now_ns() + (uint64_t)(bench.seconds * 2e9) + 1000000000u;
    do {
        run_for(&trainers[last], 0.5);
        for (size_t i = 0; i < last; i++)
            run_for(&trainers[i], 0.005);
        last_decision(subject->names[last], text, sizeof(text));
    } while (strncmp(text, "holds", 5) != 0 && bench_now_ns() < end);
    printf("%s: %s\n", subject->name, text);
}

/* Each variant in turn, forwards and then backwards. */
static void run_round(struct subject *subject, const struct trainer *trainers,
                      double slice)
{
    double pace[MAX_VARIANTS], best = 0;
    size_t n = subject->n_variants, round = subject->n_rounds;
    for (size_t i = 0; i < n; i++) {
        size_t at = round % 2 == 0 ? i : n - 1 - i;
        pace[at] = run_for(&trainers[at], slice);
    }
    for (size_t i = 0; i < n; i++) {
        subject->ratios[i][round] = pace[i] / pace[0];
        best = i + 1 < n && pace[i] > best ? pace[i] : best;
    }
    subject->of_best[round] = pace[n - 1] / best;
    subject->n_rounds++;
}

static void run_subject(struct subject *subject)
{
    struct trainer trainers[MAX_VARIANTS];
    struct runner runners[MAX_VARIANTS];
    for (size_t i = 0; i < subject->n_variants; i++) {
        runners[i].fetch = subject->fetch;
        snprintf(runners[i].name, sizeof(runners[i].name), "%s", subject->names[i]);
        trainer_start(&trainers[i], train, &bench.fixture, &runners[i]);
    }
    warm_up(subject, trainers);
    uint64_t end = bench_now_ns() + (uint64_t)(bench.seconds * 1e9);
    double slice = bench.seconds / 60 < 0.25 ? bench.seconds / 60 : 0.25;
    do {
        run_round(subject, trainers, slice);
    } while (subject->n_rounds < MAX_ROUNDS && bench_now_ns() < end);
    for (size_t i = 0; i < subject->n_variants; i++) {
        trainer_send(trainers[i].fd, 0);
        trainer_join(&trainers[i]);
    }
}

/* ---- subjects ---- */

static void run_modes(struct subject *subject, const char *name, bool is_model)
{
    static const char *const modes[] = {"off", "on", "auto"};
    static char text[YAML_BYTES];
    *subject = (struct subject){
        .name = name, .fetch = is_model ? "scores" : "rows", .n_variants = 3};
    for (size_t i = 0; i < 3; i++) {
        snprintf(subject->names[i], sizeof(subject->names[i]), "%s-%s", name, modes[i]);
        if (is_model)
            model_text(name, subject->names[i], modes[i], text);
        else
            criteo_text(subject->names[i], modes[i], text);
        fixture_apply(&bench.fixture, text);
    }
    run_subject(subject);
    printf("%s: on %.3f, auto %.3f of what off gives\n", name,
           bench_median(subject->ratios[1], subject->n_rounds),
           bench_median(subject->ratios[2], subject->n_rounds));
}

static void run_chain(struct subject *subject, const struct chain *chain)
{
    static char text[YAML_BYTES];
    *subject = (struct subject){.name = chain->name, .fetch = "target", .n_variants = 4};
    for (int i = 0; i < 4; i++) {
        snprintf(subject->names[i], sizeof(subject->names[i]), "%s-%d", chain->name, i);
        chain_text(chain, subject->names[i], i == 3 ? "auto" : "off", i == 3 ? 0 : i,
                   text);
        fixture_apply(&bench.fixture, text);
    }
    run_subject(subject);
    printf("%s: partitions 1, 2 and auto give %.3f, %.3f and %.3f of what partition 0 "
           "gives; auto "
           "%.3f of the best\n",
           chain->name, bench_median(subject->ratios[1], subject->n_rounds),
           bench_median(subject->ratios[2], subject->n_rounds),
           bench_median(subject->ratios[3], subject->n_rounds),
           bench_median(subject->of_best, subject->n_rounds));
}

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

static void write_json(struct subject *subjects)
{
    double least = 1e9;
    printf("{\"bench\": \"smartstage\", \"points\": [");
    for (size_t i = 0; i < N_MODELS; i++) {
        struct subject *s = &subjects[i];
        double on = bench_median(s->ratios[1], s->n_rounds);
        double self = bench_median(s->ratios[2], s->n_rounds);
        least = self < least ? self : least;
        printf("%s{\"graph\": \"%s\", \"auto_over_off\": %.3f, \"on_over_off\": %.3f}",
               i > 0 ? ", " : "", s->name, self, on);
    }
    for (size_t i = N_MODELS; i < N_MODELS + N_CHAINS; i++) {
        struct subject *s = &subjects[i];
        printf(", {\"graph\": \"%s\", \"auto_over_off\": %.3f, \"on_over_off\": %.3f, "
               "\"auto_over_best\": %.3f}",
               s->name, bench_median(s->ratios[3], s->n_rounds),
               bench_median(s->ratios[2], s->n_rounds),
               bench_median(s->of_best, s->n_rounds));
    }
    printf("], \"ratio\": %.3f}\n", least);
}

int main(int argc, char **argv)
{
    static struct subject subjects[N_MODELS + N_CHAINS];
    struct bench_options options;
    bench_options_parse(argc, argv, 90, "steps per second with smart_stage off, on, auto",
                        &options);
    bench.seconds = options.seconds / (double)(N_MODELS + N_CHAINS);
    fixture_start(&bench.fixture, "memory_budget: 1GiB\n");
    write_clicks();
    criteo_file(CRITEO_ROWS, ',', bench.rows);
    for (size_t i = 0; i < N_MODELS; i++)
        run_modes(&subjects[i], models[i], strcmp(models[i], "criteo") != 0);
    for (size_t i = 0; i < N_CHAINS; i++)
        run_chain(&subjects[N_MODELS + i], &chains[i]);
    fixture_finish(&bench.fixture);
    unlink(bench.rows);
    if (options.json)
        write_json(subjects);
    return 0;
}
