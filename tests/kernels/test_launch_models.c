/* SPDX-License-Identifier: Apache-2.0
 *
 * The models of examples/models: each node that a device can run, there and on the host,
 * and the scores, which NumPy computed too. On a GPU, and (the same kernels) as plain
 * C++.
 */
#include <math.h>
#include <stdlib.h>

#include "core/status.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/client/compute/models.golden.h"
#include "tests/kernels/model.h"

#define N_ROWS (sizeof(clicks) / sizeof(clicks[0]))
#define MEMORY_BYTES ((size_t)4 << 20)

/* Integers are the same; floats nearly: sums are taken in another order, and exp and tanh
 * are the device's. */
static void check_elements(const char *name, const struct stg_tensor *there,
                           const void *got, const struct stg_tensor *here)
{
    size_t n = (size_t)stg_tensor_n(here);
    const float *x = got, *y = here->data;
    CHECK_INT(there->dtype, here->dtype);
    CHECK_INT(there->ndim, here->ndim);
    for (int d = 0; d < here->ndim; d++)
        CHECK_INT(there->shape[d], here->shape[d]);
    if (here->dtype != STAGER_FLOAT32) {
        host_same(name, here->dtype, got, here->data, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(x[i] - y[i]) <= 1e-6f * (1 + fabsf(y[i]))))
            FAIL("%s: element %zu is %.9g, not %.9g", name, i, (double)x[i],
                 (double)y[i]);
    }
}

static void check_golden(const char *name, const float *got, const double *want)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (!(fabs((double)got[i] - want[i]) <= 2e-6))
            FAIL("%s: score %zu is %.9f, NumPy's %.9f", name, i, (double)got[i], want[i]);
    }
}

/* Returns whether a device can run it. scores: what NumPy makes of it; may be NULL. */
static bool check_node(struct model *model, const char *name, const double *scores)
{
    struct stg_tensor there, here;
    struct stg_run *run = model_run(model, name), *host = model_run(model, name);
    bool launches = run != NULL && model_launches(model, run);
    if (launches) {
        model_launch(model, run, &there);
        model_exec(model, host, &here);
        void *got = bench_down(model->bench, there.data, (size_t)there.data_bytes);
        check_elements(name, &there, got, &here);
        if (scores != NULL)
            check_golden(name, got, scores);
        free(got);
    }
    stg_run_destroy(run);
    stg_run_destroy(host);
    return launches;
}

static void check_models(struct bench bench)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct model model;
        unsigned n = 0;
        model_init(&model, &bench, models[i].name, clicks, N_ROWS, MEMORY_BYTES);
        for (size_t k = 0; k < model.spec->n_nodes; k++)
            n += check_node(&model, model.spec->nodes[k].name, NULL);
        if (n < 10)
            FAIL("%s: a device can do %u nodes", models[i].name, n);
        if (!check_node(&model, model.spec->targets[0], models[i].scores))
            FAIL("%s: a device cannot compute the scores", models[i].name);
        model_finish(&model);
    }
}

static void models_give_what_the_host_and_numpy_give_in_c(void)
{
    check_models(bench_emulated());
}

static void models_give_what_the_host_and_numpy_give_on_the_gpu(void)
{
    check_models(bench_gpu());
}

static const struct stg_test tests[] = {
    TEST(models_give_what_the_host_and_numpy_give_in_c),
    TEST(models_give_what_the_host_and_numpy_give_on_the_gpu),
};

TEST_MAIN(tests)
