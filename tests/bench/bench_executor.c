/* SPDX-License-Identifier: Apache-2.0
 *
 * The overhead of the executor: a chain of nodes that do nothing, and the graph of
 * examples/criteo_lr.yaml.in compared with its kernels in a plain loop with fixed order
 * and memory. The variants take turns, and the best round of each counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/graph/priv.h"
#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/ops/fixture.h"

#define N_EMPTY 250
#define N_ROWS 4096
#define MAX_OUTPUTS 64
#define ROUND_BATCHES 20

struct subject {
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
};

static void subject_init(struct subject *subject, const char *text)
{
    struct stg_err err = {0};
    if (fixture_parse(&subject->fx, text, &err) < 0 ||
        stg_graph_create(&subject->fx.spec, &subject->fx.element, NULL, &subject->graph,
                         &err) < 0 ||
        stg_run_create_stage(subject->graph, &subject->run, &err) < 0)
        bench_die("%s", err.text);
}

static void subject_finish(struct subject *subject)
{
    stg_run_destroy(subject->run);
    stg_graph_destroy(subject->graph);
    fixture_finish(&subject->fx);
}

static void exec(struct subject *subject, const struct stg_tensor *feed)
{
    static struct stg_tensor outputs[MAX_OUTPUTS];
    struct stg_err err = {0};
    if (stg_run_exec(subject->run, feed, NULL, NULL, outputs, &err) < 0)
        bench_die("%s", err.text);
}

/* ---- the texts ---- */

static FILE *open_text(char *text, size_t bytes)
{
    FILE *to = fmemopen(text, bytes, "w");
    if (to == NULL)
        bench_die("no memory for the text of a graph");
    return to;
}

static void empty_text(char *text, size_t bytes)
{
    FILE *to = open_text(text, bytes);
    fprintf(to, "element n0 float32 [-1]\n");
    for (int i = 1; i <= N_EMPTY; i++)
        fprintf(to, "n%d = identity(n%d)\n", i, i - 1);
    fprintf(to, "feature y = n%d\n", N_EMPTY);
    fclose(to);
}

static void print_columns(FILE *to, const char *name, int first, int n)
{
    fprintf(to, "%s = stack(", name);
    for (int i = 0; i < n; i++)
        fprintf(to, "columns:%d, ", first + i);
    fprintf(to, ") axis=1\n");
}

static void criteo_text(char *text, size_t bytes)
{
    FILE *to = open_text(text, bytes);
    fprintf(to, "element record string [-1]\n"
                "columns = decode_csv(record) record_defaults=[0");
    for (int i = 0; i < CRITEO_NUMBERS; i++)
        fprintf(to, ", 0.0");
    for (int i = 0; i < CRITEO_STRINGS; i++)
        fprintf(to, ", \"\"");
    fprintf(to, "]\n");
    print_columns(to, "counts", 1, CRITEO_NUMBERS);
    print_columns(to, "words", 1 + CRITEO_NUMBERS, CRITEO_STRINGS);
    fprintf(to, "zero = constant() value=0.0\n"
                "positive = maximum(counts, zero)\n"
                "dense = log1p(positive)\n"
                "ids = string_to_hash_bucket_fast(words) num_buckets=1048576\n"
                "feature label = columns:0\n"
                "feature dense = dense\n"
                "feature ids = ids\n");
    fclose(to);
}

/* ---- the plain loop ---- */

struct kernel {
    const struct stg_graph_node *node;
    struct stg_tensor inputs[MAX_OUTPUTS], outputs[MAX_OUTPUTS];
    struct stg_bump memory;
};

struct plain {
    const struct stg_graph *graph;
    const struct stg_tensor *feed;
    struct kernel *kernels; /* by node */
    struct stg_bump scratch;
};

/* Memory that is kept from the second batch on. */
static int plain_alloc(struct stg_op_run *ctx, size_t i, int dtype, int ndim,
                       const int64_t *shape, uint64_t string_bytes,
                       struct stg_tensor *ret, struct stg_err *err)
{
    struct kernel *kernel = ctx->executor;
    struct stg_tensor *tensor = &kernel->outputs[i];
    if (tensor->data != NULL) {
        *ret = *tensor;
        return 0;
    }
    uint64_t n, bytes;
    if (!stg_tensor_size(dtype, ndim, shape, string_bytes, &n, &bytes))
        bench_die("a tensor too large");
    *tensor = (struct stg_tensor){.dtype = dtype, .ndim = ndim, .data_bytes = bytes};
    memcpy(tensor->shape, shape, (size_t)ndim * sizeof(*shape));
    tensor->data = stg_bump_alloc(&kernel->memory, bytes);
    if (dtype == STAGER_STRING) {
        tensor->begin = stg_bump_alloc(&kernel->memory, (n + 1) * sizeof(int64_t));
        tensor->end = tensor->begin + 1;
    }
    *ret = *tensor;
    return 0;
}

static void run_kernel(struct plain *plain, struct kernel *kernel)
{
    struct stg_err err = {0};
    const struct stg_graph_node *node = kernel->node;
    for (size_t k = 0; k < node->n_inputs; k++) {
        const struct stg_ref *ref = &node->inputs[k];
        const struct stg_tensor *value = stg_graph_constant(plain->graph, ref);
        if (value == NULL)
            value = ref->kind == STG_REF_ELEMENT
                        ? plain->feed
                        : &plain->kernels[ref->index].outputs[ref->output];
        kernel->inputs[k] = *value;
    }
    struct stg_op_run ctx = {.plan = node->plan,
                             .inputs = kernel->inputs,
                             .n_inputs = node->n_inputs,
                             .scratch = &plain->scratch,
                             .alloc = plain_alloc,
                             .executor = kernel};
    if (node->op->run(&ctx, &err) < 0)
        bench_die("%s", err.text);
    stg_bump_reset(&plain->scratch);
}

static void run_plain(struct plain *plain)
{
    for (size_t i = 0; i < plain->graph->n_nodes; i++) {
        struct kernel *kernel = &plain->kernels[plain->graph->order[i]];
        if (kernel->node->values == NULL)
            run_kernel(plain, kernel);
    }
}

static void plain_init(struct plain *plain, const struct subject *subject,
                       const struct stg_tensor *feed)
{
    *plain = (struct plain){.graph = subject->graph, .feed = feed};
    plain->kernels = calloc(plain->graph->n_nodes, sizeof(*plain->kernels));
    if (plain->kernels == NULL)
        bench_die("out of memory");
    for (size_t i = 0; i < plain->graph->n_nodes; i++)
        plain->kernels[i].node = &plain->graph->nodes[i];
}

static void plain_finish(struct plain *plain)
{
    for (size_t i = 0; i < plain->graph->n_nodes; i++)
        stg_bump_finish(&plain->kernels[i].memory);
    free(plain->kernels);
    stg_bump_finish(&plain->scratch);
}

/* ---- rounds ---- */

static void keep_best(uint64_t began, uint64_t n, double *best)
{
    double ns = (double)(bench_now_ns() - began) / (double)n;
    if (*best == 0 || ns < *best)
        *best = ns;
}

static double measure_empty(void)
{
    static char text[16384];
    static struct subject empty;
    float values[2] = {1, 2};
    struct stg_tensor feed = {.dtype = STAGER_FLOAT32,
                              .ndim = 1,
                              .shape = {2},
                              .data = values,
                              .data_bytes = sizeof(values)};
    double best = 0;
    empty_text(text, sizeof(text));
    subject_init(&empty, text);
    for (int round = 0; round < 200; round++) {
        uint64_t began = bench_now_ns();
        for (int i = 0; i < ROUND_BATCHES; i++)
            exec(&empty, &feed);
        keep_best(began, (uint64_t)ROUND_BATCHES * N_EMPTY, &best);
    }
    subject_finish(&empty);
    return best;
}

int main(int argc, char **argv)
{
    static char text[16384];
    struct bench_options options;
    bench_options_parse(argc, argv, 4.0, "What the executor of a graph costs.", &options);
    double node_ns = measure_empty();

    static struct subject criteo;
    static struct plain plain;
    struct stg_bump bump = {0};
    criteo_text(text, sizeof(text));
    subject_init(&criteo, text);
    struct stg_tensor feed = criteo_records(&bump, N_ROWS, N_ROWS * CRITEO_MAX_ROW_BYTES);
    plain_init(&plain, &criteo, &feed);
    double executor_ns = 0, plain_ns = 0;
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    do {
        uint64_t began = bench_now_ns();
        exec(&criteo, &feed);
        keep_best(began, 1, &executor_ns);
        began = bench_now_ns();
        run_plain(&plain);
        keep_best(began, 1, &plain_ns);
    } while (bench_now_ns() < end);
    printf("a node that does nothing: %.1f ns\n"
           "Criteo, %d rows: executor %.1f us, plain loop %.1f us, ratio %.3f\n",
           node_ns, N_ROWS, executor_ns / 1e3, plain_ns / 1e3, plain_ns / executor_ns);
    if (options.json)
        printf("{\"bench\": \"executor\", \"node_ns\": %.1f, \"ratio\": %.3f, "
               "\"rows_per_s\": %.0f}\n",
               node_ns, plain_ns / executor_ns, N_ROWS / executor_ns * 1e9);
    plain_finish(&plain);
    subject_finish(&criteo);
    stg_bump_finish(&bump);
    return 0;
}
