/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of the models of examples/models, from what crosses the boundary: computed
 * by one thread of the host and by the device, and how much they differ. The device has
 * its inputs already, and is left alone: copies and stagerd are not part of it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/check.h"
#include "tests/client/compute/models.golden.h"
#include "tests/kernels/model.h"

#define N_LINES (sizeof(clicks) / sizeof(clicks[0]))
#define N_MODELS (sizeof(models) / sizeof(models[0]))
#define MEMORY_BYTES ((size_t)256 << 20)
#define AT_ONCE 8 /* launches between two waits */

static const size_t sizes[] = {512, 4096};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct figures {
    double host_ms, device_ms, difference;
    size_t n_nodes;
};

static double difference(const float *x, const float *y, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double apart = fabs((double)x[i] - (double)y[i]);
        most = apart > most || isnan(apart) ? apart : most;
    }
    return most;
}

/* Copies the scores to the host, which waits for all launches. */
static float *scores_of(const struct model *model, const struct stg_tensor *scores)
{
    return bench_down(model->bench, scores->data, (size_t)scores->data_bytes);
}

static double measure_host(const struct model *model, struct stg_run *run, double seconds)
{
    struct stg_tensor scores;
    uint64_t began = bench_now_ns(), n = 0;
    do {
        model_exec(model, run, &scores);
        n++;
    } while ((double)(bench_now_ns() - began) < seconds * 1e9);
    return (double)(bench_now_ns() - began) / 1e6 / (double)n;
}

static double measure_device(struct model *model, struct stg_run *run, double seconds)
{
    struct stg_tensor scores;
    uint64_t began = bench_now_ns(), n = 0;
    do {
        for (int i = 0; i < AT_ONCE; i++, n++)
            model_launch(model, run, &scores);
        free(scores_of(model, &scores));
    } while ((double)(bench_now_ns() - began) < seconds * 1e9);
    return (double)(bench_now_ns() - began) / 1e6 / (double)n;
}

static void measure(const struct bench *bench, const char *name, size_t n_rows,
                    double seconds, struct figures *ret)
{
    const char **lines = calloc(n_rows, sizeof(*lines));
    struct stg_tensor there, here;
    struct model model;
    if (lines == NULL)
        bench_die("no memory");
    for (size_t i = 0; i < n_rows; i++)
        lines[i] = clicks[i % N_LINES];
    model_init(&model, bench, name, lines, n_rows, MEMORY_BYTES);
    struct stg_run *run = model_run(&model, model.spec->targets[0]);
    struct stg_run *host = model_run(&model, model.spec->targets[0]);
    if (run == NULL || !model_launches(&model, run))
        bench_die("%s: a device cannot compute the scores", name);
    model_launch(&model, run, &there);
    model_exec(&model, host, &here);
    float *got = scores_of(&model, &there);
    ret->difference = difference(got, here.data, n_rows);
    ret->n_nodes = stg_run_n_nodes(run);
    ret->host_ms = measure_host(&model, host, seconds);
    ret->device_ms = measure_device(&model, run, seconds);
    free(got);
    stg_run_destroy(run);
    stg_run_destroy(host);
    model_finish(&model);
    free(lines);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    struct figures found[N_MODELS][N_SIZES];
    bench_options_parse(argc, argv, 10, "scores of five models, host and device",
                        &options);
    struct bench bench = bench_gpu();
    if (bench.kernels == NULL)
        stg_test_skip("the device has no kernels");
    for (size_t i = 0; i < N_MODELS; i++) {
        for (size_t k = 0; k < N_SIZES; k++) {
            struct figures *f = &found[i][k];
            measure(&bench, models[i].name, sizes[k],
                    options.seconds / (2 * N_MODELS * N_SIZES), f);
            printf("%-7s %5zu rows, %2zu nodes: %8.3f ms on the host, %8.3f on the "
                   "device; the scores differ by %.2g\n",
                   models[i].name, sizes[k], f->n_nodes, f->host_ms, f->device_ms,
                   f->difference);
        }
    }
    if (!options.json)
        return 0;
    printf("{\"bench\": \"gpu_scores\", \"models\": [");
    for (size_t i = 0; i < N_MODELS * N_SIZES; i++) {
        const struct figures *f = &found[i / N_SIZES][i % N_SIZES];
        printf("%s{\"model\": \"%s\", \"rows\": %zu, \"nodes\": %zu, \"host_ms\": %.4f, "
               "\"device_ms\": %.4f, \"difference\": %.3g}",
               i > 0 ? ", " : "", models[i / N_SIZES].name, sizes[i % N_SIZES],
               f->n_nodes, f->host_ms, f->device_ms, f->difference);
    }
    printf("]}\n");
    return 0;
}
