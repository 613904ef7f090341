/* SPDX-License-Identifier: Apache-2.0
 *
 * How cuBLAS is found, its handles, and its errors: with a fake one (tests/standin),
 * which the process loads by its path, as a framework does.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "cuda/blas.h"
#include "cuda/scope.h"
#include "tests/check.h"
#include "tests/standin/cublas.h"

static struct stg_err err;

struct CUstream_st *stg_cuda_stream_of(const struct stg_stream *stream)
{
    return stream != NULL ? stream->cuda : NULL;
}

static struct fake_cublas *load(void)
{
    const char *path = getenv("STG_FAKE_CUBLAS");
    CHECK(path != NULL);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        FAIL("%s", dlerror());
    void *symbol = dlsym(library, FAKE_CUBLAS_SYMBOL);
    struct fake_cublas *(*get)(void);
    CHECK(symbol != NULL);
    memcpy(&get, &symbol, sizeof(get));
    return get();
}

static float x[2][6] = {{1, 2, 3, 4, 5, 6}, {1, 0, 2, 1, 0, 3}}, y[4];

/* [2, 3] times [3, 2]. */
static struct stg_kernel_matmul product(void)
{
    return (struct stg_kernel_matmul){.dtype = STAGER_FLOAT32,
                                      .m = 2,
                                      .k = 3,
                                      .n = 2,
                                      .loops = {.n = 1, .size = {1}},
                                      .y = y,
                                      .x = {x[0], x[1]}};
}

static void a_library_that_the_process_has_loaded_is_found_by_its_name(void)
{
    static const float want[] = {5, 11, 14, 23};
    struct stg_stream stream = {0};
    struct fake_cublas *fake = load();
    struct stg_kernel_matmul how = product();
    CHECK_INT(stg_cuda_blas_matmul(&stream, &how, &err), 1);
    CHECK(memcmp(y, want, sizeof(want)) == 0);
    CHECK_INT(fake->n_calls, 1);
    stg_cuda_blas_finish(&stream.blas);
}

static void without_a_library_the_kernel_is_left(void)
{
    struct stg_stream stream = {0};
    struct stg_kernel_matmul how = product();
    if (dlopen("libcublas.so.13", RTLD_NOW) != NULL ||
        dlopen("libcublas.so.12", RTLD_NOW) != NULL)
        SKIP("this machine has cuBLAS");
    CHECK_INT(stg_cuda_blas_matmul(&stream, &how, &err), 0);
    CHECK_INT(stg_cuda_blas_matmul(&stream, &how, &err), 0);
    stg_cuda_blas_finish(&stream.blas);
}

static void a_stream_has_a_handle_until_it_ends(void)
{
    struct stg_stream streams[2] = {0};
    struct fake_cublas *fake = load();
    struct stg_kernel_matmul how = product();
    for (int i = 0; i < 4; i++)
        CHECK_INT(stg_cuda_blas_matmul(&streams[i % 2], &how, &err), 1);
    CHECK_INT(fake->n_created, 2);
    CHECK_INT(fake->n_handles, 2);
    CHECK(streams[0].blas.handle != streams[1].blas.handle);
    for (int i = 0; i < 2; i++)
        stg_cuda_blas_finish(&streams[i].blas);
    CHECK_INT(fake->n_handles, 0);
}

static void a_handle_that_cannot_be_made_is_not_tried_again(void)
{
    struct stg_stream stream = {0};
    struct fake_cublas *fake = load();
    struct stg_kernel_matmul how = product();
    fake->create = 3;
    for (int i = 0; i < 3; i++)
        CHECK_INT(stg_cuda_blas_matmul(&stream, &how, &err), 0);
    CHECK_INT(fake->n_created, 1);
    stg_cuda_blas_finish(&stream.blas);
}

static void an_error_names_the_status(void)
{
    struct stg_stream stream = {0};
    struct fake_cublas *fake = load();
    struct stg_kernel_matmul how = product();
    fake->product = 13;
    CHECK_INT(stg_cuda_blas_matmul(&stream, &how, &err), -STAGER_INTERNAL);
    CHECK_STR(err.text, "cuda: matmul: cuBLAS status 13");
    stg_cuda_blas_finish(&stream.blas);
}

static void check_left(const struct stg_kernel_matmul *how)
{
    struct stg_stream stream = {0};
    CHECK_INT(stg_cuda_blas_matmul(&stream, how, &err), 0);
    stg_cuda_blas_finish(&stream.blas);
}

static void what_cublas_does_not_take_is_left_to_the_kernel(void)
{
    struct fake_cublas *fake = load();
    struct stg_kernel_matmul how = product();
    how.dtype = STAGER_INT32;
    check_left(&how);
    how = product();
    how.k = 0;
    check_left(&how);
    how = product();
    how.n = INT64_C(1) << 31;
    check_left(&how);
    how = product();
    how.loops.size[0] = 65536;
    how.loops.stride[1][0] = 1;
    check_left(&how);
    CHECK_INT(fake->n_calls, 0);
}

static const struct stg_test tests[] = {
    TEST(a_library_that_the_process_has_loaded_is_found_by_its_name),
    TEST(without_a_library_the_kernel_is_left),
    TEST(a_stream_has_a_handle_until_it_ends),
    TEST(a_handle_that_cannot_be_made_is_not_tried_again),
    TEST(an_error_names_the_status),
    TEST(what_cublas_does_not_take_is_left_to_the_kernel),
};

TEST_MAIN(tests)
