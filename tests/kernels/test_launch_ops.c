/* SPDX-License-Identifier: Apache-2.0
 *
 * Each op of a model's dense part on a device, compared with the same op on the host: on
 * a GPU, and (the same kernels) as plain C++.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/element.h"
#include "tests/check.h"
#include "tests/kernels/launch.h"

/* ---- inputs ---- */

enum values {
    ANY,   /* random; floats with NaN, infinities and zeros of both signs among them */
    SMALL, /* from -2 to 2 */
    PLUS,  /* from 0 to 2: sums of them lose nothing by cancellation */
    BITS,  /* 0 and 1 */
    INDEX, /* from 0 to 6 */
};

static void store(int dtype, double value, void *data, size_t i)
{
    switch (dtype) {
    case STAGER_FLOAT32: ((float *)data)[i] = (float)value; break;
    case STAGER_FLOAT64: ((double *)data)[i] = value; break;
    case STAGER_FLOAT16: ((uint16_t *)data)[i] = stg_f16_from_f64(value); break;
    case STAGER_BFLOAT16: ((uint16_t *)data)[i] = stg_bf16_from_f32((float)value); break;
    default: {
        int64_t whole = (int64_t)value;
        unsigned bytes = stg_dtype_bytes(dtype);
        memcpy((char *)data + i * bytes, &whole, bytes);
        break;
    }
    }
}

static bool is_float(int dtype)
{
    return dtype == STAGER_FLOAT32 || dtype == STAGER_FLOAT64 ||
           dtype == STAGER_FLOAT16 || dtype == STAGER_BFLOAT16;
}

static void fill_any(int dtype, size_t n, uint64_t seed, void *data)
{
    static const double edges[] = {0.0, -0.0,  INFINITY, -INFINITY, NAN, 1.0, -1.0,
                                   0.5, 1e-40, 80.0,     -80.0,     1e4, 6e-8};
    host_random(seed, data, n * stg_dtype_bytes(dtype));
    /* Half of them have counterparts in another input that are equal. */
    for (size_t i = 0; is_float(dtype) && i < n; i++) {
        if (i % 3 != 0)
            store(dtype, edges[(i * (seed + 1)) % (sizeof(edges) / sizeof(edges[0]))],
                  data, i);
    }
    for (size_t i = 0; !is_float(dtype) && i < n; i += 2)
        store(dtype, (double)(i % 5), data, i);
}

static void *make(int dtype, size_t n, enum values values, uint64_t seed)
{
    void *data = malloc(n * stg_dtype_bytes(dtype) + 1);
    unsigned char *random = malloc(n + 1);
    CHECK(data != NULL && random != NULL);
    host_random(seed * 77 + n, random, n);
    if (values == ANY && dtype != STAGER_BOOL)
        fill_any(dtype, n, seed, data);
    for (size_t i = 0; i < n && (values != ANY || dtype == STAGER_BOOL); i++) {
        double value = values == INDEX   ? random[i] % 7
                       : values == PLUS  ? random[i] / 128.0
                       : values == SMALL ? (random[i] - 128) / 64.0
                                         : random[i] % 2;
        store(dtype, value, data, i);
    }
    free(random);
    return data;
}

/* ---- one case ---- */

struct input {
    int dtype; /* 0: of the case */
    int ndim;
    int64_t shape[4];
    enum values values;
};

struct row {
    const char *op, *attrs;
    struct input inputs[LAUNCH_INPUTS]; /* up to the first without a shape */
    size_t n_inputs, n_outputs;
    double ulps;  /* that the device may differ by, in the dtype of the output … */
    double least; /* … or by so much */
};

static double value_at(int dtype, const void *data, size_t i)
{
    switch (dtype) {
    case STAGER_FLOAT32: return (double)((const float *)data)[i];
    case STAGER_FLOAT64: return ((const double *)data)[i];
    case STAGER_FLOAT16: return (double)stg_f32_from_f16(((const uint16_t *)data)[i]);
    default: return (double)stg_f32_from_bf16(((const uint16_t *)data)[i]);
    }
}

static double epsilon_of(int dtype)
{
    return dtype == STAGER_FLOAT32   ? 0x1p-23
           : dtype == STAGER_FLOAT64 ? 0x1p-52
           : dtype == STAGER_FLOAT16 ? 0x1p-10
                                     : 0x1p-7;
}

static void check_near(const struct row *row, const struct stg_tensor *got,
                       const struct stg_tensor *want)
{
    size_t n = (size_t)stg_tensor_n(want);
    if (!is_float(want->dtype) || (row->ulps <= 0 && row->least <= 0)) {
        host_same(row->op, want->dtype, got->data, want->data, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double x = value_at(want->dtype, got->data, i);
        double y = value_at(want->dtype, want->data, i);
        double may = row->ulps * epsilon_of(want->dtype) * fabs(y) + row->least;
        bool same = isnan(y) ? isnan(x) : isinf(y) ? x == y : fabs(x - y) <= may;
        if (!same)
            FAIL("%s {%s} of %s: element %zu of %zu is %.17g, not %.17g", row->op,
                 row->attrs, stg_dtype_name(want->dtype), i, n, x, y);
    }
}

static void check_row(const struct bench *bench, const struct row *row, int dtype)
{
    struct stg_tensor inputs[LAUNCH_INPUTS];
    struct launched results;
    for (size_t i = 0; i < row->n_inputs; i++) {
        const struct input *input = &row->inputs[i];
        int is = input->dtype != 0 ? input->dtype : dtype;
        inputs[i] = host_tensor(is, input->ndim, input->shape, NULL);
        inputs[i].data = make(is, (size_t)stg_tensor_n(&inputs[i]), input->values, i + 3);
    }
    launch_op(bench, row->op, row->attrs, inputs, row->n_inputs, row->n_outputs, true,
              &results);
    CHECK_INT(results.bad, INT64_MAX);
    for (size_t i = 0; i < row->n_outputs; i++) {
        const struct stg_tensor *got = &results.there[i], *want = &results.here[i];
        CHECK_INT(got->dtype, want->dtype);
        CHECK_INT(got->ndim, want->ndim);
        for (int d = 0; d < want->ndim; d++)
            CHECK_INT(got->shape[d], want->shape[d]);
        check_near(row, got, want);
    }
    launched_finish(&results);
    for (size_t i = 0; i < row->n_inputs; i++)
        free(inputs[i].data);
}

static const int floats[] = {STAGER_FLOAT32, STAGER_FLOAT64, STAGER_FLOAT16,
                             STAGER_BFLOAT16};
static const int integers[] = {STAGER_INT8,  STAGER_INT16,  STAGER_INT32,  STAGER_INT64,
                               STAGER_UINT8, STAGER_UINT16, STAGER_UINT32, STAGER_UINT64};

static void each_float(const struct bench *bench, const struct row *row)
{
    for (size_t i = 0; i < 4; i++)
        check_row(bench, row, floats[i]);
}

static void each_integer(const struct bench *bench, const struct row *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_row(bench, row, integers[i]);
}

/* ---- elementwise ---- */

/* Shapes that are equal, repeated, missing, empty; and more elements than threads. */
static const struct {
    int ndim[2];
    int64_t shape[2][4];
} pairs[] = {
    {{1, 1}, {{1}, {1}}},
    {{0, 0}, {{0}, {0}}},
    {{1, 1}, {{0}, {0}}},
    {{2, 2}, {{5, 0}, {1, 0}}},
    {{1, 0}, {{331}, {0}}},
    {{0, 2}, {{0}, {7, 13}}},
    {{2, 2}, {{37, 3}, {37, 3}}},
    {{2, 1}, {{37, 11}, {11}}},
    {{2, 2}, {{37, 1}, {1, 11}}},
    {{3, 3}, {{4, 1, 5}, {4, 3, 5}}},
    {{4, 3}, {{2, 3, 1, 5}, {3, 4, 1}}},
};
#define N_PAIRS (sizeof(pairs) / sizeof(pairs[0]))

static void pairs_of(const struct bench *bench, const char *op, int dtype,
                     enum values values)
{
    for (size_t i = 0; i < N_PAIRS; i++) {
        struct row row = {.op = op, .attrs = "", .n_inputs = 2, .n_outputs = 1};
        for (int k = 0; k < 2; k++) {
            row.inputs[k] = (struct input){.ndim = pairs[i].ndim[k], .values = values};
            memcpy(row.inputs[k].shape, pairs[i].shape[k], sizeof(pairs[i].shape[k]));
        }
        check_row(bench, &row, dtype);
    }
}

static void binaries(struct bench bench)
{
    static const char *const ops[] = {"add",        "subtract", "multiply",     "minimum",
                                      "maximum",    "equal",    "not_equal",    "less",
                                      "less_equal", "greater",  "greater_equal"};
    for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
        for (size_t i = 0; i < 4; i++)
            pairs_of(&bench, ops[k], floats[i], ANY);
        for (size_t i = 0; i < 8; i++)
            pairs_of(&bench, ops[k], integers[i], ANY);
    }
    for (size_t i = 0; i < 4; i++)
        pairs_of(&bench, "divide", floats[i], ANY);
    pairs_of(&bench, "equal", STAGER_BOOL, BITS);
    pairs_of(&bench, "not_equal", STAGER_BOOL, BITS);
    pairs_of(&bench, "logical_and", STAGER_BOOL, BITS);
    pairs_of(&bench, "logical_or", STAGER_BOOL, BITS);
}

/* A device has at most 4096 blocks of 256 threads for one launch. */
static void large(struct bench bench)
{
    struct row row = {.op = "add",
                      .attrs = "",
                      .inputs = {{.ndim = 2, .shape = {100003, 11}, .values = SMALL},
                                 {.ndim = 1, .shape = {11}, .values = SMALL}},
                      .n_inputs = 2,
                      .n_outputs = 1};
    check_row(&bench, &row, STAGER_FLOAT32);
    row.op = "bias_add";
    check_row(&bench, &row, STAGER_FLOAT32);
}

static void unaries(struct bench bench)
{
    static const struct {
        const char *op;
        double ulps;
        size_t n_integers;
    } ops[] = {
        {"negative", 0, 4}, {"abs", 0, 4},  {"relu", 0, 8}, {"exp", 4, 0},
        {"log", 4, 0},      {"sqrt", 0, 0}, {"tanh", 4, 0}, {"sigmoid", 4, 0},
    };
    static const int64_t sizes[] = {0, 1, 97, 1003};
    for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
        for (size_t i = 0; i < 4; i++) {
            struct row row = {.op = ops[k].op,
                              .attrs = "",
                              .inputs = {{.ndim = 1, .shape = {sizes[i]}}},
                              .n_inputs = 1,
                              .n_outputs = 1,
                              .ulps = ops[k].ulps};
            /* What is too small to be normal is within a unit of the smallest number. */
            row.least = row.ulps > 0 ? 6e-8 : 0;
            each_float(&bench, &row);
            each_integer(&bench, &row, ops[k].n_integers);
        }
    }
    struct row row = {.op = "logical_not",
                      .attrs = "",
                      .inputs = {{.ndim = 2, .shape = {5, 31}, .values = BITS}},
                      .n_inputs = 1,
                      .n_outputs = 1};
    check_row(&bench, &row, STAGER_BOOL);
}

static void constants(struct bench bench)
{
    static const char *const attrs[] = {"", "dtype: float16", "dtype: int8",
                                        "dtype: bool"};
    for (size_t i = 0; i < 4; i++) {
        struct row row = {.op = "ones_like",
                          .attrs = attrs[i],
                          .inputs = {{.ndim = 2, .shape = {7, 29}}},
                          .n_inputs = 1,
                          .n_outputs = 1};
        each_float(&bench, &row);
        row.op = "zeros_like";
        each_integer(&bench, &row, 8);
        row.inputs[0].shape[0] = 0;
        each_float(&bench, &row);
    }
}

static void biases(struct bench bench)
{
    static const struct {
        const char *attrs;
        int ndim;
        int64_t shape[4], bias;
    } rows[] = {
        {"", 2, {37, 5}, 5},
        {"", 2, {0, 5}, 5},
        {"", 2, {5, 0}, 0},
        {"", 4, {2, 3, 4, 7}, 7},
        {"data_format: NCHW", 4, {2, 7, 4, 3}, 7},
        {"data_format: NCHW", 2, {3, 7}, 7},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct row row = {
            .op = "bias_add",
            .attrs = rows[i].attrs,
            .inputs = {{.ndim = rows[i].ndim}, {.ndim = 1, .shape = {rows[i].bias}}},
            .n_inputs = 2,
            .n_outputs = 1};
        memcpy(row.inputs[0].shape, rows[i].shape, sizeof(rows[i].shape));
        each_float(&bench, &row);
        each_integer(&bench, &row, 8);
    }
}

/* ---- matrices ---- */

static const struct {
    const char *attrs;
    int ndim[2];
    int64_t shape[2][4];
} products[] = {
    {"", {2, 2}, {{1, 1}, {1, 1}}},
    {"", {2, 2}, {{5, 3}, {3, 7}}},
    {"", {2, 2}, {{33, 14}, {14, 8}}},
    {"", {2, 2}, {{33, 70}, {70, 1}}},
    {"", {2, 2}, {{0, 3}, {3, 7}}},
    {"", {2, 2}, {{5, 0}, {0, 7}}},
    {"", {2, 2}, {{5, 3}, {3, 0}}},
    {"transpose_a: true", {2, 2}, {{3, 5}, {3, 7}}},
    {"transpose_b: true", {2, 2}, {{5, 3}, {7, 3}}},
    {"transpose_a: true, transpose_b: true", {2, 2}, {{3, 5}, {7, 3}}},
    {"", {3, 2}, {{6, 5, 3}, {3, 7}}},
    {"transpose_a: true", {3, 2}, {{6, 3, 5}, {3, 7}}},
    {"", {2, 3}, {{5, 3}, {6, 3, 7}}},
    {"transpose_b: true", {3, 3}, {{6, 4, 8}, {6, 4, 8}}},
    {"", {4, 4}, {{2, 1, 5, 3}, {1, 4, 3, 7}}},
    {"", {4, 3}, {{2, 3, 5, 3}, {3, 3, 2}}},
    {"", {4, 2}, {{2, 3, 5, 3}, {3, 2}}},
    {"", {3, 3}, {{0, 5, 3}, {0, 3, 7}}},
    {"", {3, 3}, {{1, 5, 3}, {100, 3, 2}}},
};

static void matrices(struct bench bench)
{
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        struct row row = {.op = "matmul",
                          .attrs = products[i].attrs,
                          .n_inputs = 2,
                          .n_outputs = 1,
                          .ulps = 140};
        for (int k = 0; k < 2; k++) {
            row.inputs[k] = (struct input){.ndim = products[i].ndim[k], .values = PLUS};
            memcpy(row.inputs[k].shape, products[i].shape[k],
                   sizeof(products[i].shape[k]));
        }
        check_row(&bench, &row, STAGER_FLOAT32);
        check_row(&bench, &row, STAGER_FLOAT64);
        row.ulps = 1.1; /* rounded once */
        check_row(&bench, &row, STAGER_FLOAT16);
        check_row(&bench, &row, STAGER_BFLOAT16);
        row.inputs[0].values = row.inputs[1].values = ANY;
        check_row(&bench, &row, STAGER_INT32);
        check_row(&bench, &row, STAGER_INT64);
    }
}

/* ---- over a dimension ---- */

static const struct {
    const char *attrs;
    int ndim;
    int64_t shape[4];
} reductions[] = {
    {"axis: 1", 2, {37, 3}},
    {"axis: 0", 2, {37, 3}},
    {"axis: [0, 1]", 2, {37, 30}},
    {"axis: 1, keepdims: true", 3, {5, 7, 3}},
    {"axis: [0, 2]", 3, {5, 7, 3}},
    {"axis: [-1, 1]", 4, {2, 3, 4, 5}},
    {"axis: [0, 2]", 4, {3, 2, 4, 5}},
    {"axis: 0", 1, {5003}},
    {"axis: 1", 2, {3, 1001}},
    {"axis: 0", 2, {1001, 3}},
    {"axis: 1", 2, {0, 3}},
    {"axis: 1", 2, {3, 0}},
    {"axis: 0", 3, {2, 0, 3}},
    {"axis: 0", 1, {1}},
    {"axis: [0, 2]", 3, {0, 4, 3}},
};

static void reductions_of(struct bench bench)
{
    static const char *const ops[] = {"reduce_sum", "reduce_mean", "reduce_max"};
    for (size_t i = 0; i < sizeof(reductions) / sizeof(reductions[0]); i++) {
        struct row row = {.attrs = reductions[i].attrs, .n_inputs = 1, .n_outputs = 1};
        row.inputs[0].ndim = reductions[i].ndim;
        memcpy(row.inputs[0].shape, reductions[i].shape, sizeof(reductions[i].shape));
        for (int k = 0; k < 3; k++) {
            row.op = ops[k];
            row.ulps = 0;
            row.inputs[0].values = ANY;
            each_integer(&bench, &row, 8);
            row.ulps = k < 2 ? 1.1 : 0;
            row.inputs[0].values = k < 2 ? PLUS : ANY;
            each_float(&bench, &row);
        }
        if (strstr(row.attrs, "keepdims") != NULL)
            continue;
        row.op = "l2_normalize";
        row.ulps = 2;
        row.inputs[0].values = SMALL;
        each_float(&bench, &row);
    }
    struct row scalar = {
        .op = "reduce_sum", .attrs = "", .n_inputs = 1, .n_outputs = 1, .ulps = 1};
    each_float(&bench, &scalar);
}

/* NaN and infinities come through sums, and a sum of squares of 0 is not divided by. */
static void odd_values(struct bench bench)
{
    struct row row = {.op = "reduce_sum",
                      .attrs = "axis: 1",
                      .inputs = {{.ndim = 2, .shape = {41, 2}}},
                      .n_inputs = 1,
                      .n_outputs = 1,
                      .ulps = 1,
                      .least = 1e-6};
    each_float(&bench, &row);
    row.op = "l2_normalize";
    row.ulps = 4;
    each_float(&bench, &row);
    row.op = "softmax";
    each_float(&bench, &row);
}

static void softmaxes(struct bench bench)
{
    static const struct {
        const char *attrs;
        int ndim;
        int64_t shape[4];
    } rows[] = {
        {"", 2, {37, 5}},
        {"axis: 0", 2, {5, 37}},
        {"axis: 1", 3, {5, 7, 3}},
        {"", 2, {0, 5}},
        {"", 2, {5, 0}},
        {"", 1, {1}},
        {"axis: -2", 3, {3, 50, 2}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t n = 1; n <= 2; n++) {
            struct row row = {.op = "softmax",
                              .attrs = rows[i].attrs,
                              .n_inputs = n,
                              .n_outputs = 1,
                              .ulps = 60,
                              .least = 6e-8};
            for (int k = 0; k < 2; k++) {
                row.inputs[k] = (struct input){.ndim = rows[i].ndim, .values = SMALL};
                memcpy(row.inputs[k].shape, rows[i].shape, sizeof(rows[i].shape));
            }
            row.inputs[1].dtype = STAGER_BOOL;
            row.inputs[1].values = BITS;
            each_float(&bench, &row);
        }
    }
}

static void slices(struct bench bench)
{
    static const struct {
        const char *attrs;
        int ndim[2];
        int64_t shape[2][4];
    } rows[] = {
        {"", {1, 1}, {{7}, {40}}},
        {"axis: 1", {2, 1}, {{37, 16}, {6}}},
        {"", {2, 2}, {{7, 3}, {5, 4}}},
        {"axis: 1, batch_dims: 1", {3, 2}, {{5, 9, 3}, {5, 6}}},
        {"axis: 2, batch_dims: 1", {4, 2}, {{5, 2, 8, 3}, {5, 6}}},
        {"", {2, 1}, {{7, 3}, {0}}},
        {"axis: 1", {2, 1}, {{0, 9}, {4}}},
    };
    static const int dtypes[] = {STAGER_FLOAT32, STAGER_FLOAT64, STAGER_FLOAT16,
                                 STAGER_INT8};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t t = 0; t < 8; t++) {
            struct row row = {
                .op = "gather", .attrs = rows[i].attrs, .n_inputs = 2, .n_outputs = 1};
            for (int k = 0; k < 2; k++) {
                row.inputs[k].ndim = rows[i].ndim[k];
                memcpy(row.inputs[k].shape, rows[i].shape[k], sizeof(rows[i].shape[k]));
            }
            row.inputs[1].dtype = t < 4 ? STAGER_INT32 : STAGER_INT64;
            row.inputs[1].values = INDEX;
            check_row(&bench, &row, dtypes[t % 4]);
        }
    }
}

/* The op refuses such an index; a kernel reports it, and takes zeros. */
static void bad_indices(struct bench bench)
{
    int64_t two[] = {2, 3}, four[] = {4};
    float x[] = {1, 2, 3, 4, 5, 6}, want[] = {3, 0, 0, 1, 6, 0, 0, 4};
    int32_t at[] = {2, 3, -1, 0};
    struct launched results;
    struct stg_tensor inputs[] = {host_tensor(STAGER_FLOAT32, 2, two, x),
                                  host_tensor(STAGER_INT32, 1, four, at)};
    launch_op(&bench, "gather", "axis: 1", inputs, 2, 1, false, &results);
    host_same("gather", STAGER_FLOAT32, results.there[0].data, want, 8);
    CHECK_INT(results.bad, 1);
    launched_finish(&results);
}

/* ---- sequences ---- */

struct sizes {
    int64_t rows, steps, in, n;
};

static void check_gru(const struct bench *bench, const struct sizes *s, bool has_scores,
                      bool reset_after, int lengths)
{
    struct row row = {.op = has_scores ? "augru" : "gru",
                      .attrs = reset_after ? "" : "reset_after: false",
                      .n_outputs = 2,
                      .ulps = 16};
    const struct input inputs[] = {
        {.ndim = 3, .shape = {s->rows, s->steps, s->in}, .values = SMALL},
        {.ndim = 2, .shape = {s->rows, s->steps}, .values = PLUS},
        {.ndim = 2, .shape = {s->in, 3 * s->n}, .values = SMALL},
        {.ndim = 2, .shape = {s->n, 3 * s->n}, .values = SMALL},
        {.ndim = reset_after ? 2 : 1,
         .shape = {reset_after ? 2 : 3 * s->n, 3 * s->n},
         .values = SMALL},
        {.dtype = lengths, .ndim = 1, .shape = {s->rows}, .values = INDEX}};
    for (size_t i = 0; i < 6; i++) {
        if ((i == 1 && !has_scores) || (i == 5 && lengths == 0))
            continue;
        row.inputs[row.n_inputs++] = inputs[i];
    }
    row.least = 4e-6;
    check_row(bench, &row, STAGER_FLOAT32);
    row.least = 1e-14;
    check_row(bench, &row, STAGER_FLOAT64);
}

static void sequences(struct bench bench)
{
    static const struct sizes sizes[] = {{12, 5, 4, 4}, {1, 1, 1, 1}, {40, 7, 3, 5},
                                         {0, 4, 3, 2},  {3, 0, 3, 2}, {3, 4, 0, 2},
                                         {3, 4, 2, 0}};
    static const int lengths[] = {0, STAGER_INT32, STAGER_INT64};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int k = 0; k < 12; k++)
            check_gru(&bench, &sizes[i], k % 2 != 0, k / 2 % 2 != 0, lengths[k / 4]);
    }
}

#define EACH(X)                                                                          \
    X(binaries)                                                                          \
    X(large)                                                                             \
    X(unaries)                                                                           \
    X(constants)                                                                         \
    X(biases)                                                                            \
    X(matrices)                                                                          \
    X(reductions_of)                                                                     \
    X(odd_values)                                                                        \
    X(softmaxes) X(slices) X(bad_indices) X(sequences)
#define DEFINE(name)                                                                     \
    static void name##_are_those_of_the_host_in_c(void)                                  \
    {                                                                                    \
        name(bench_emulated());                                                          \
    }                                                                                    \
    static void name##_are_those_of_the_host_on_the_gpu(void)                            \
    {                                                                                    \
        name(bench_gpu());                                                               \
    }
EACH(DEFINE)
#define LIST(name)                                                                       \
    TEST_SLOW(name##_are_those_of_the_host_in_c, 60),                                    \
        TEST_SLOW(name##_are_those_of_the_host_on_the_gpu, 60),

static const struct stg_test tests[] = {EACH(LIST)};

TEST_MAIN(tests)
