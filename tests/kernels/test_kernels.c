/* SPDX-License-Identifier: Apache-2.0
 *
 * Each kernel compared with the corresponding CPU op on the same inputs: on a GPU, and
 * (the same source) as plain C++.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "tests/check.h"
#include "tests/kernels/host.h"

static struct stg_err err;

/* Values that are critical for arithmetic, and whole numbers around the limits of
 * integers. */
static const double edges[] = {
    0.0,         -0.0,         0.5,          -0.5,        1.5,         2.5,
    -1.0,        127.0,        128.0,        -129.0,      255.0,       256.0,
    32767.0,     32768.0,      65504.0,      65519.9,     65520.0,     2147483647,
    2147483648., -2147483648., -2147483649., 4294967295., 4294967296., 0x1p63,
    -0x1p63,     0x1p64,       1e30,         -1e30,       1e300,       6e-8,
    1e-40,       5e-324,       INFINITY,     -INFINITY,   NAN,
};
#define N_EDGES (sizeof(edges) / sizeof(edges[0]))

/* n elements: edge cases first for floats of 4 or 8 bytes, then random bits. */
static void *make_elements(int dtype, size_t n, uint64_t seed)
{
    unsigned bytes = stg_dtype_bytes(dtype);
    void *data = malloc(n * bytes + 1);
    CHECK(data != NULL);
    host_random(seed, data, n * bytes);
    for (size_t i = 0; i < N_EDGES && i < n; i++) {
        if (dtype == STAGER_FLOAT64)
            ((double *)data)[i] = edges[i];
        if (dtype == STAGER_FLOAT32)
            ((float *)data)[i] = (float)edges[i];
    }
    return data;
}

/* Small numbers: their sums neither overflow nor vanish. */
static void *make_small(int dtype, size_t n, uint64_t seed)
{
    int64_t shape[1] = {(int64_t)n};
    double *wide = malloc((n + 1) * sizeof(*wide));
    unsigned char *random = malloc(n + 1);
    CHECK(wide != NULL && random != NULL);
    host_random(seed, random, n);
    for (size_t i = 0; i < n; i++)
        wide[i] = ((double)random[i] - 100.0) / 37.0;
    struct stg_tensor x = host_tensor(STAGER_FLOAT64, 1, shape, wide);
    char attrs[64];
    size_t bytes;
    snprintf(attrs, sizeof(attrs), "dtype=\"%s\"", stg_dtype_name(dtype));
    void *ret = host_run("cast", attrs, &x, 1, &bytes);
    CHECK_INT(bytes, n * stg_dtype_bytes(dtype));
    free(wide);
    free(random);
    return ret;
}

/* ---- cast ---- */

static const int numbers[] = {
    STAGER_FLOAT32, STAGER_FLOAT64, STAGER_FLOAT16, STAGER_BFLOAT16, STAGER_INT8,
    STAGER_INT16,   STAGER_INT32,   STAGER_INT64,   STAGER_UINT8,    STAGER_UINT16,
    STAGER_UINT32,  STAGER_UINT64,  STAGER_BOOL};
#define N_NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static void check_cast(const struct bench *bench, int from, int to)
{
    const size_t n = 1003;
    int64_t shape[1] = {(int64_t)n};
    void *data = make_elements(from, n, (uint64_t)(from * 31 + to));
    struct stg_tensor x = host_tensor(from, 1, shape, data);
    char attrs[64], what[64];
    size_t bytes;
    snprintf(attrs, sizeof(attrs), "dtype=\"%s\"", stg_dtype_name(to));
    snprintf(what, sizeof(what), "cast of %s", stg_dtype_name(from));
    void *want = host_run("cast", attrs, &x, 1, &bytes);
    void *in = bench_up(bench, data, x.data_bytes), *out = bench_room(bench, bytes);
    CHECK_OK(bench->kernels->cast(NULL, to, out, from, in, n, &err), err);
    void *got = bench_down(bench, out, bytes);
    host_same(what, to, got, want, n);
    bench_free(bench, in);
    bench_free(bench, out);
    free(got);
    free(want);
    free(data);
}

static void casts(struct bench bench)
{
    for (size_t i = 0; i < N_NUMBERS; i++) {
        for (size_t k = 0; k < N_NUMBERS; k++)
            check_cast(&bench, numbers[i], numbers[k]);
    }
    CHECK_INT(bench.kernels->cast(NULL, STAGER_STRING, NULL, STAGER_INT8, NULL, 0, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "string");
}

/* ---- log1p ---- */

static void logarithms(struct bench bench)
{
    const size_t n = 5003;
    int64_t shape[1] = {(int64_t)n};
    for (size_t i = 0; i < 4; i++) {
        int dtype = numbers[i];
        size_t bytes;
        void *data = make_elements(dtype, n, 7 + i);
        struct stg_tensor x = host_tensor(dtype, 1, shape, data);
        void *want = host_run("log1p", "", &x, 1, &bytes);
        void *at = bench_up(&bench, data, bytes);
        CHECK_OK(bench.kernels->log1p(NULL, dtype, at, at, n, &err), err);
        void *got = bench_down(&bench, at, bytes);
        host_near("log1p", dtype, got, want, n, 2);
        bench_free(&bench, at);
        free(got);
        free(want);
        free(data);
    }
    CHECK_INT(bench.kernels->log1p(NULL, STAGER_INT32, NULL, NULL, 0, &err),
              -STAGER_INVALID_ARGUMENT);
}

/* ---- bucketize ---- */

static void check_bucketize(const struct bench *bench, int dtype, const char *attrs,
                            const float *boundaries, size_t n_boundaries)
{
    const size_t n = 2011;
    int64_t shape[1] = {(int64_t)n};
    size_t bytes;
    void *data = make_elements(dtype, n, (uint64_t)dtype);
    for (size_t i = 0; i < n_boundaries; i++) /* a boundary value belongs above it */
        if (dtype == STAGER_FLOAT32)
            ((float *)data)[N_EDGES + i] = boundaries[i];
    struct stg_tensor x = host_tensor(dtype, 1, shape, data);
    void *want = host_run("bucketize", attrs, &x, 1, &bytes);
    void *in = bench_up(bench, data, x.data_bytes), *out = bench_room(bench, bytes);
    void *at = bench_up(bench, boundaries, n_boundaries * sizeof(*boundaries));
    CHECK_OK(bench->kernels->bucketize(NULL, out, dtype, in, n, at, n_boundaries, &err),
             err);
    void *got = bench_down(bench, out, bytes);
    host_same("bucketize", STAGER_INT32, got, want, n);
    bench_free(bench, in);
    bench_free(bench, out);
    bench_free(bench, at);
    free(got);
    free(want);
    free(data);
}

static void buckets(struct bench bench)
{
    static const int dtypes[] = {STAGER_INT32, STAGER_INT64, STAGER_FLOAT32,
                                 STAGER_FLOAT64};
    static const float boundaries[] = {-1e9f, -3.5f, 0.0f, 0.5f, 0.5f, 128.0f, 1e18f};
    for (size_t i = 0; i < 4; i++) {
        check_bucketize(&bench, dtypes[i],
                        "boundaries=[-1e9, -3.5, 0.0, 0.5, 0.5, 128.0, 1e18]", boundaries,
                        7);
        check_bucketize(&bench, dtypes[i], "boundaries=[0.0]", &boundaries[2], 1);
        check_bucketize(&bench, dtypes[i], "boundaries=[]", NULL, 0);
    }
    CHECK_INT(bench.kernels->bucketize(NULL, NULL, STAGER_UINT8, NULL, 0, NULL, 0, &err),
              -STAGER_INVALID_ARGUMENT);
}

/* ---- hash_bucket ---- */

static void hashes(struct bench bench)
{
    static const char *const buckets_of[] = {"1", "7", "1000003", "9223372036854775807"};
    enum { N = 600 };
    int64_t shape[1] = {N}, *offsets = malloc((N + 1) * sizeof(*offsets));
    CHECK(offsets != NULL);
    offsets[0] = 0;
    for (int i = 0; i < N; i++) /* every length of each path of the hash, unaligned */
        offsets[i + 1] = offsets[i] + i % 200;
    char *bytes = malloc((size_t)offsets[N] + 1);
    CHECK(bytes != NULL);
    host_random(5, bytes, (size_t)offsets[N]);
    struct stg_tensor x = {.dtype = STAGER_STRING,
                           .ndim = 1,
                           .data = bytes,
                           .data_bytes = (uint64_t)offsets[N],
                           .begin = offsets,
                           .end = offsets + 1};
    memcpy(x.shape, shape, sizeof(shape));
    void *text = bench_up(&bench, bytes, (size_t)offsets[N]);
    void *at = bench_up(&bench, offsets, (N + 1) * sizeof(*offsets));
    void *out = bench_room(&bench, N * sizeof(int64_t));
    for (size_t i = 0; i < 4; i++) {
        char attrs[64];
        size_t n_bytes;
        snprintf(attrs, sizeof(attrs), "num_buckets=%s", buckets_of[i]);
        void *want = host_run("string_to_hash_bucket_fast", attrs, &x, 1, &n_bytes);
        CHECK_OK(bench.kernels->hash_bucket(NULL, out, text, at, N,
                                            strtoull(buckets_of[i], NULL, 10), &err),
                 err);
        void *got = bench_down(&bench, out, n_bytes);
        host_same("hash_bucket", STAGER_INT64, got, want, N);
        free(got);
        free(want);
    }
    CHECK_INT(bench.kernels->hash_bucket(NULL, out, text, at, N, 0, &err),
              -STAGER_INVALID_ARGUMENT);
    bench_free(&bench, text);
    bench_free(&bench, at);
    bench_free(&bench, out);
    free(bytes);
    free(offsets);
}

/* ---- normalize_image ---- */

static void check_normalize(const struct bench *bench, int from, int to,
                            struct stg_kernel_normalize how, const char *attrs)
{
    size_t n = how.n * how.height * how.width * how.channels, bytes;
    int64_t shape[4] = {(int64_t)how.n, (int64_t)how.height, (int64_t)how.width,
                        (int64_t)how.channels};
    unsigned char *data = malloc(n * sizeof(float));
    CHECK(data != NULL);
    host_random(n, data, n);
    if (from == STAGER_FLOAT32) {
        free(data);
        data = make_small(STAGER_FLOAT32, n, n);
    }
    struct stg_tensor image = host_tensor(from, 4, shape, data);
    size_t image_bytes;
    /* The op takes floats, so the op before it converts; the kernel takes the image's
     * bytes. */
    void *floats = host_run("cast", "dtype=\"float32\"", &image, 1, &image_bytes);
    struct stg_tensor x = host_tensor(STAGER_FLOAT32, 4, shape, floats);
    void *want = host_run("normalize_image", attrs, &x, 1, &bytes);
    void *in = bench_up(bench, data, image.data_bytes), *out = bench_room(bench, bytes);
    how.x_dtype = from;
    how.y_dtype = to;
    CHECK_INT(bytes, n * stg_dtype_bytes(to));
    CHECK_OK(bench->kernels->normalize_image(NULL, &how, out, in, &err), err);
    void *got = bench_down(bench, out, bytes);
    host_same("normalize_image", to, got, want, n);
    bench_free(bench, in);
    bench_free(bench, out);
    free(got);
    free(want);
    free(floats);
    free(data);
}

static void images(struct bench bench)
{
    static const int dtypes[] = {STAGER_UINT8, STAGER_FLOAT32};
    struct stg_kernel_normalize rgb = {.n = 3,
                                       .height = 17,
                                       .width = 11,
                                       .channels = 3,
                                       .mean = {123.675f, 116.28f, 103.53f},
                                       .std = {58.395f, 57.12f, 57.375f}};
    struct stg_kernel_normalize gray = {
        .n = 2, .height = 1, .width = 70, .channels = 1, .mean = {127.5f}, .std = {3.0f}};
    for (size_t i = 0; i < 2; i++) {
        check_normalize(&bench, dtypes[i], STAGER_FLOAT32, rgb,
                        "mean=[123.675, 116.28, 103.53] std=[58.395, 57.12, 57.375]");
        check_normalize(&bench, dtypes[i], STAGER_FLOAT16, rgb,
                        "mean=[123.675, 116.28, 103.53] std=[58.395, 57.12, 57.375] "
                        "dtype=\"float16\"");
        check_normalize(&bench, dtypes[i], STAGER_FLOAT32, gray, "mean=127.5 std=3.0");
    }
    rgb.x_dtype = STAGER_UINT8;
    rgb.y_dtype = STAGER_FLOAT32;
    rgb.n = 0;
    CHECK_OK(bench.kernels->normalize_image(NULL, &rgb, NULL, NULL, &err), err);
    rgb.channels = 5;
    CHECK_INT(bench.kernels->normalize_image(NULL, &rgb, NULL, NULL, &err),
              -STAGER_INVALID_ARGUMENT);
}

/* ---- embedding_lookup ---- */

enum { ROWS = 40, WIDTH = 19, N_TABLE = 50 };

struct ragged {
    int64_t splits[ROWS + 1];
    int64_t wide[ROWS * 9];
    int32_t narrow[ROWS * 9];
    size_t n;
};

static void make_ragged(struct ragged *ids)
{
    *ids = (struct ragged){.n = 0};
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < r % 9; k++, ids->n++) /* some rows without ids */
            ids->wide[ids->n] = ids->narrow[ids->n] = (r * 7 + k * 13) % N_TABLE;
        ids->splits[r + 1] = (int64_t)ids->n;
    }
}

static void check_lookup(const struct bench *bench, int dtype, int ids_dtype,
                         enum stg_kernel_combiner combiner, const char *name,
                         bool weighted)
{
    static struct ragged ids;
    make_ragged(&ids);
    bool pools = combiner != STG_KERNEL_NONE;
    size_t n = pools ? ROWS : ids.n, bytes, wide = ids_dtype == STAGER_INT64;
    int64_t table_shape[2] = {N_TABLE, WIDTH}, n_ids[1] = {(int64_t)ids.n};
    int64_t n_splits[1] = {ROWS + 1};
    void *table = make_small(dtype, N_TABLE * WIDTH, 3);
    void *weights = make_small(dtype, ids.n, 4);
    void *id = wide ? (void *)ids.wide : (void *)ids.narrow;
    struct stg_tensor inputs[4] = {host_tensor(dtype, 2, table_shape, table),
                                   host_tensor(ids_dtype, 1, n_ids, id),
                                   host_tensor(STAGER_INT64, 1, n_splits, ids.splits),
                                   host_tensor(dtype, 1, n_ids, weights)};
    char attrs[64];
    snprintf(attrs, sizeof(attrs), "combiner=\"%s\" weighted=%s", name,
             weighted ? "true" : "false");
    void *want = host_run("embedding_lookup", attrs, inputs,
                          !pools      ? 2
                          : !weighted ? 3
                                      : 4,
                          &bytes);
    CHECK_INT(bytes, n * WIDTH * stg_dtype_bytes(dtype));
    void *at[4];
    for (int i = 0; i < 4; i++)
        at[i] = bench_up(bench, inputs[i].data, inputs[i].data_bytes);
    struct stg_kernel_lookup how = {.combiner = combiner,
                                    .dtype = dtype,
                                    .ids_dtype = ids_dtype,
                                    .n = (int64_t)n,
                                    .width = WIDTH,
                                    .n_table = N_TABLE,
                                    .y = bench_room(bench, bytes),
                                    .table = at[0],
                                    .ids = at[1],
                                    .splits = pools ? at[2] : NULL,
                                    .weights = weighted ? at[3] : NULL};
    CHECK_OK(bench->kernels->embedding_lookup(NULL, &how, &err), err);
    void *got = bench_down(bench, how.y, bytes);
    host_same(name, dtype, got, want, n * WIDTH);
    for (int i = 0; i < 4; i++)
        bench_free(bench, at[i]);
    bench_free(bench, how.y);
    free(got);
    free(want);
    free(weights);
    free(table);
}

static void lookups(struct bench bench)
{
    static const char *const names[] = {"none", "sum", "mean", "sqrtn"};
    for (size_t i = 0; i < 4; i++) {
        for (int combiner = 0; combiner < 4; combiner++) {
            for (int k = 0; k < 4; k++)
                if (combiner > 0 || k < 2)
                    check_lookup(
                        &bench, numbers[i], k % 2 == 0 ? STAGER_INT32 : STAGER_INT64,
                        (enum stg_kernel_combiner)combiner, names[combiner], k >= 2);
        }
    }
}

/* The op refuses such ids. A kernel cannot stop in time: it reports the id. */
static void bad_ids(struct bench bench)
{
    float table[6] = {1, 2, 3, 4, 5, 6}, want[6] = {3, 4, 0, 0, 1, 2};
    float pooled[2] = {3, 4};
    int32_t ids[3] = {1, 3, 0};
    int64_t splits[2] = {0, 2}, none = INT64_MAX;
    struct stg_kernel_lookup how = {.dtype = STAGER_FLOAT32,
                                    .ids_dtype = STAGER_INT32,
                                    .n = 3,
                                    .width = 2,
                                    .n_table = 3,
                                    .y = bench_room(&bench, sizeof(want)),
                                    .table = bench_up(&bench, table, sizeof(table)),
                                    .ids = bench_up(&bench, ids, sizeof(ids)),
                                    .bad = bench_up(&bench, &none, sizeof(none))};
    void *at = bench_up(&bench, splits, sizeof(splits));
    CHECK_OK(bench.kernels->embedding_lookup(NULL, &how, &err), err);
    void *got = bench_down(&bench, how.y, sizeof(want));
    host_same("a bad id", STAGER_FLOAT32, got, want, 6);
    int64_t *bad = bench_down(&bench, how.bad, sizeof(*bad));
    CHECK_INT(*bad, 1);
    free(got);
    free(bad);

    how.combiner = STG_KERNEL_SUM;
    how.n = 1;
    CHECK_INT(bench.kernels->embedding_lookup(NULL, &how, &err),
              -STAGER_INVALID_ARGUMENT);
    how.splits = at;
    CHECK_OK(bench.kernels->embedding_lookup(NULL, &how, &err), err);
    got = bench_down(&bench, how.y, sizeof(pooled));
    host_same("a bad id of a row", STAGER_FLOAT32, got, pooled, 2);
    free(got);
    bench_free(&bench, how.y);
    bench_free(&bench, (void *)(uintptr_t)how.table);
    bench_free(&bench, (void *)(uintptr_t)how.ids);
    bench_free(&bench, how.bad);
    bench_free(&bench, at);
}

/* ---- concat ---- */

enum { MOST = 70, BATCH = 23 };

/* n_x inputs of int8 with rows of width(i). */
static void check_concat(const struct bench *bench, size_t n_x, size_t (*width)(size_t))
{
    struct stg_tensor inputs[MOST] = {0};
    const void *at[MOST];
    size_t row_bytes[MOST], bytes;
    for (size_t i = 0; i < n_x; i++) {
        int64_t shape[2] = {BATCH, (int64_t)width(i)};
        row_bytes[i] = width(i);
        inputs[i] = host_tensor(STAGER_INT8, 2, shape,
                                make_elements(STAGER_INT8, BATCH * width(i), i));
        at[i] = bench_up(bench, inputs[i].data, inputs[i].data_bytes);
    }
    void *want = host_run("concat", "axis=1", inputs, n_x, &bytes);
    void *out = bench_room(bench, bytes);
    CHECK_OK(bench->kernels->concat(NULL, out, at, row_bytes, n_x, BATCH, &err), err);
    void *got = bench_down(bench, out, bytes);
    host_same("concat", STAGER_INT8, got, want, bytes);
    for (size_t i = 0; i < n_x; i++) {
        bench_free(bench, (void *)(uintptr_t)at[i]);
        free(inputs[i].data);
    }
    bench_free(bench, out);
    free(got);
    free(want);
}

static size_t odd(size_t i)
{
    return i % 5 * 3 + 1;
}

static size_t fours(size_t i)
{
    return 4 * (i % 3); /* some with no rows at all */
}

static size_t sixteens(size_t i)
{
    return 16 * (i + 1);
}

static void joins(struct bench bench)
{
    static const size_t counts[] = {2, 3, 63, 64, 65, MOST - 16};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        size_t n = counts[i] <= 62 ? counts[i] : 62; /* as many as the op's fixture has */
        check_concat(&bench, n, odd);
        check_concat(&bench, n, fours);
    }
    check_concat(&bench, 5, sixteens);
}

/* More inputs than one launch takes; the expected bytes are written by hand. */
static void many_joins(struct bench bench)
{
    const void *at[MOST];
    size_t row_bytes[MOST];
    unsigned char one[2 * BATCH], want[BATCH][2 * MOST];
    for (size_t i = 0; i < MOST; i++) {
        for (size_t k = 0; k < sizeof(one); k++) {
            one[k] = (unsigned char)(i * 5 + k);
            want[k / 2][2 * i + k % 2] = one[k];
        }
        at[i] = bench_up(&bench, one, sizeof(one));
        row_bytes[i] = 2;
    }
    void *out = bench_room(&bench, sizeof(want));
    CHECK_OK(bench.kernels->concat(NULL, out, at, row_bytes, MOST, BATCH, &err), err);
    void *got = bench_down(&bench, out, sizeof(want));
    host_same("concat of many", STAGER_UINT8, got, want, sizeof(want));
    CHECK_OK(bench.kernels->concat(NULL, out, at, row_bytes, 0, BATCH, &err), err);
    for (size_t i = 0; i < MOST; i++)
        bench_free(&bench, (void *)(uintptr_t)at[i]);
    bench_free(&bench, out);
    free(got);
}

#define EACH(X)                                                                          \
    X(casts)                                                                             \
    X(logarithms)                                                                        \
    X(buckets)                                                                           \
    X(hashes) X(images) X(lookups) X(bad_ids) X(joins) X(many_joins)
#define DEFINE(name)                                                                     \
    static void name##_are_those_of_the_cpu_in_c(void)                                   \
    {                                                                                    \
        name(bench_emulated());                                                          \
    }                                                                                    \
    static void name##_are_those_of_the_cpu_on_the_gpu(void)                             \
    {                                                                                    \
        name(bench_gpu());                                                               \
    }
EACH(DEFINE)
#define LIST(name)                                                                       \
    TEST_SLOW(name##_are_those_of_the_cpu_in_c, 60),                                     \
        TEST_SLOW(name##_are_those_of_the_cpu_on_the_gpu, 60),

static const struct stg_test tests[] = {EACH(LIST)};

TEST_MAIN(tests)
