/* SPDX-License-Identifier: Apache-2.0
 *
 * One op on many threads of a pool (intra_op_threads_num): batches of Criteo's rows
 * through decode_csv with its strings hashed, and integers through cast, the op with the
 * least work for each byte. Large batches, and batches barely large enough for two parts.
 * One thread and two take turns, and the best round of each counts, in wall time.
 */
#include <stdio.h>

#include "daemon/host/pool.h"
#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/ops/fixture.h"

#define N_BUCKETS 1000000

struct subject {
    const char *name;
    uint64_t bytes; /* of input; 0: twice the minimum of a part */
    bool is_csv;
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_bump bump;
    struct stg_tensor feed;
    struct stg_run *runs[2]; /* on one thread, and on all */
    uint64_t best_ns[2];
};

/* ---- graphs and their input ---- */

static void graph_text(bool is_csv, char *text, size_t bytes)
{
    FILE *to = fmemopen(text, bytes, "w");
    if (to == NULL)
        bench_die("no memory for the text of a graph");
    if (is_csv) {
        fprintf(to, "element record string [-1]\n"
                    "columns = decode_csv(record) record_defaults=[0");
        for (int i = 0; i < CRITEO_NUMBERS; i++)
            fprintf(to, ", 0.0");
        for (int i = 0; i < CRITEO_STRINGS; i++)
            fprintf(to, ", \"\"");
        fprintf(to, "]\n");
        for (int i = 0; i <= CRITEO_NUMBERS; i++)
            fprintf(to, "feature n%d = columns:%d\n", i, i);
        for (int i = 0; i < CRITEO_STRINGS; i++)
            fprintf(to,
                    "ids%d = string_to_hash_bucket_fast(columns:%d) num_buckets=%d\n"
                    "feature c%d = ids%d\n",
                    i, CRITEO_NUMBERS + 1 + i, N_BUCKETS, i, i);
    } else {
        fprintf(to, "element x int32 [-1]\n"
                    "y = cast(x) dtype=\"float32\"\n"
                    "feature y = y\n");
    }
    fclose(to);
}

static struct stg_tensor make_integers(struct stg_bump *bump, uint64_t bytes)
{
    int32_t *data = stg_bump_alloc(bump, bytes);
    if (data == NULL)
        bench_die("out of memory");
    for (uint64_t i = 0; i < bytes / 4; i++)
        data[i] = (int32_t)i;
    return (struct stg_tensor){.dtype = STAGER_INT32,
                               .ndim = 1,
                               .shape = {(int64_t)bytes / 4},
                               .data = data,
                               .data_bytes = bytes};
}

static void subject_init(struct subject *subject, const struct stg_parallel *parallel)
{
    static char text[16384];
    struct stg_err err = {0};
    uint64_t bytes = subject->bytes != 0 ? subject->bytes : 2 * parallel->part_bytes;
    graph_text(subject->is_csv, text, sizeof(text));
    if (fixture_parse(&subject->fx, text, &err) < 0 ||
        stg_graph_create(&subject->fx.spec, &subject->fx.element, NULL, &subject->graph,
                         &err) < 0)
        bench_die("%s", err.text);
    subject->feed = subject->is_csv ? criteo_records(&subject->bump, INT64_MAX, bytes)
                                    : make_integers(&subject->bump, bytes);
    for (int i = 0; i < 2; i++) {
        if (stg_run_create_stage(subject->graph, &subject->runs[i], &err) < 0 ||
            (i == 1 && stg_run_parallel(subject->runs[i], parallel, &err) < 0))
            bench_die("%s", err.text);
    }
}

static void subject_finish(struct subject *subject)
{
    for (int i = 0; i < 2; i++)
        stg_run_destroy(subject->runs[i]);
    stg_graph_destroy(subject->graph);
    stg_bump_finish(&subject->bump);
    fixture_finish(&subject->fx);
}

/* ---- rounds ---- */

static void run_round(struct subject *subject, int which)
{
    static struct stg_tensor outputs[64];
    struct stg_err err = {0};
    /* A small one many times, so that the clock's cost vanishes. */
    int n = subject->feed.data_bytes < (1u << 20) ? 64 : 1;
    uint64_t began = bench_now_ns();
    for (int i = 0; i < n; i++) {
        if (stg_run_exec(subject->runs[which], &subject->feed, NULL, NULL, outputs,
                         &err) < 0)
            bench_die("%s", err.text);
    }
    uint64_t ns = (bench_now_ns() - began) / (uint64_t)n;
    if (subject->best_ns[which] == 0 || ns < subject->best_ns[which])
        subject->best_ns[which] = ns;
}

static double gain(const struct subject *subject)
{
    return (double)subject->best_ns[0] / (double)subject->best_ns[1];
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 4.0, "One op on two threads of a pool.", &options);
    struct stg_thread_pool_spec spec = {.global_name = "bench",
                                        .inter_op_threads_num = 1,
                                        .intra_op_threads_num = 2,
                                        .numa_node = -1};
    struct stg_pools *pools;
    struct stg_err err = {0};
    if (stg_pools_create(&spec, 1, &pools, &err) < 0)
        bench_die("%s", err.text);
    const struct stg_parallel *parallel = stg_pool_parallel(stg_pools_get(pools, 0));
    static struct subject all[] = {
        {.name = "csv", .bytes = 8u << 20, .is_csv = true},
        {.name = "small csv", .is_csv = true},
        {.name = "cast", .bytes = 8u << 20},
        {.name = "small cast"},
    };
    for (size_t i = 0; i < 4; i++)
        subject_init(&all[i], parallel);
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    do {
        for (size_t i = 0; i < 4; i++) {
            run_round(&all[i], 0);
            run_round(&all[i], 1);
        }
    } while (bench_now_ns() < end);
    for (size_t i = 0; i < 4; i++)
        printf("%-10s %8llu bytes: %8.1f us on one thread, %8.1f us on two: %.2f\n",
               all[i].name, (unsigned long long)all[i].feed.data_bytes,
               (double)all[i].best_ns[0] / 1e3, (double)all[i].best_ns[1] / 1e3,
               gain(&all[i]));
    if (options.json)
        printf("{\"bench\": \"intra\", \"csv_ratio\": %.3f, \"small_csv_ratio\": %.3f, "
               "\"cast_ratio\": %.3f, \"small_cast_ratio\": %.3f}\n",
               gain(&all[0]), gain(&all[1]), gain(&all[2]), gain(&all[3]));
    for (size_t i = 0; i < 4; i++)
        subject_finish(&all[i]);
    stg_pools_destroy(pools);
    return 0;
}
