/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul by cuBLAS: by a fake one over host memory (tests/standin/cublas.c), and by
 * NVIDIA's on a GPU. The products are NumPy's.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/element.h"
#include "tests/check.h"
#include "tests/kernels/launch.h"
#include "tests/kernels/matmul.golden.h"
#include "tests/standin/cublas.h"

static const int dtypes[] = {STAGER_FLOAT32, STAGER_FLOAT64, STAGER_FLOAT16,
                             STAGER_BFLOAT16};

static void store(int dtype, double value, void *data, size_t i)
{
    switch (dtype) {
    case STAGER_FLOAT32: ((float *)data)[i] = (float)value; break;
    case STAGER_FLOAT64: ((double *)data)[i] = value; break;
    case STAGER_FLOAT16: ((uint16_t *)data)[i] = stg_f16_from_f64(value); break;
    default: ((uint16_t *)data)[i] = stg_bf16_from_f32((float)value); break;
    }
}

static struct stg_tensor make(int dtype, int ndim, const int64_t *shape, int k)
{
    struct stg_tensor ret = host_tensor(dtype, ndim, shape, NULL);
    int64_t n = stg_tensor_n(&ret);
    ret.data = malloc(ret.data_bytes + 1);
    CHECK(ret.data != NULL);
    for (int64_t i = 0; i < n; i++)
        store(dtype, (double)((i * 37 + 11 + k * 8) % 41 - 20) / 8, ret.data, (size_t)i);
    return ret;
}

static void check_product(const struct bench *bench, size_t which, int dtype)
{
    static const char *const attrs[2][2] = {
        {"", "transpose_b: true"},
        {"transpose_a: true", "transpose_a: true, transpose_b: true"}};
    struct stg_tensor inputs[2];
    struct launched results;
    char want[64 * 8];
    size_t n = (size_t)products[which].n;
    for (int k = 0; k < 2; k++)
        inputs[k] = make(dtype, products[which].ndim[k], products[which].shape[k], k);
    for (size_t i = 0; i < n; i++)
        store(dtype, products[which].y[i], want, i);
    launch_op(bench, "matmul",
              attrs[products[which].transpose[0]][products[which].transpose[1]], inputs,
              2, 1, false, &results);
    CHECK_INT(results.there[0].data_bytes, n * stg_dtype_bytes(dtype));
    host_same("matmul", dtype, results.there[0].data, want, n);
    launched_finish(&results);
    free(inputs[0].data);
    free(inputs[1].data);
}

static void check_products(const struct bench *bench)
{
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        for (size_t k = 0; k < 4; k++)
            check_product(bench, i, dtypes[k]);
    }
}

static const struct fake_cublas *load_fake(void)
{
    const char *path = getenv("STG_FAKE_CUBLAS");
    CHECK(path != NULL);
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL)
        FAIL("%s", dlerror());
    void *symbol = dlsym(library, FAKE_CUBLAS_SYMBOL);
    struct fake_cublas *(*get)(void);
    CHECK(symbol != NULL);
    memcpy(&get, &symbol, sizeof(get));
    return get();
}

static void cublas_multiplies_as_numpy_does(void)
{
    struct bench bench = bench_emulated();
    const struct fake_cublas *fake = load_fake();
    check_products(&bench);
    CHECK_INT(fake->n_created, 1);
    /* One call for each product, but two or three where outer loops are left. */
    CHECK_INT(fake->n_calls, 4 * (sizeof(products) / sizeof(products[0]) + 1 + 1 + 2));
}

static void without_it_the_kernel_multiplies_as_numpy_does(void)
{
    struct bench bench = bench_emulated();
    unsetenv("STG_FAKE_CUBLAS");
    check_products(&bench);
}

static void the_gpu_multiplies_as_numpy_does(void)
{
    struct bench bench = bench_gpu();
    check_products(&bench);
}

static const struct stg_test tests[] = {
    TEST(cublas_multiplies_as_numpy_does),
    TEST(without_it_the_kernel_multiplies_as_numpy_does),
    TEST(the_gpu_multiplies_as_numpy_does),
};

TEST_MAIN(tests)
