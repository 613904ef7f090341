/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of cuda/ as plain C (tests/kernels/emulate.hpp) on the streams of the
 * stand-in: a kernel reads its arguments when the stream reaches it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/standin.h"

extern const struct stg_device_kernels stg_cuda_kernels;
__attribute__((visibility("default"))) struct standin *stg_standin(void);

/* They keep the position of a thread in the grid in global variables. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

enum { MAX_INPUTS = 64 };

struct call {
    void (*run)(const struct call *call);
    int x_dtype, y_dtype;
    void *y;
    const void *x[MAX_INPUTS], *more;
    size_t bytes[MAX_INPUTS], n_x, n, n_more;
    struct stg_kernel_normalize normalize;
    struct stg_kernel_lookup lookup;
    struct stg_kernel_pair pair;
    struct stg_kernel_matmul matmul;
    struct stg_kernel_reduce reduce;
    struct stg_kernel_softmax softmax;
    struct stg_kernel_gather gather;
    struct stg_kernel_gru gru;
    unsigned which;
    uint64_t value;
};

static void *seen(const void *at, size_t n)
{
    return at != NULL && n > 0 ? stg_standin()->see(at) : NULL;
}

static void must(int rc)
{
    if (rc < 0)
        abort();
}

static void run(void *arg)
{
    const struct call *call = arg;
    pthread_mutex_lock(&one_at_a_time);
    call->run(call);
    pthread_mutex_unlock(&one_at_a_time);
}

static int launch(struct stg_stream *stream, void (*kernel)(const struct call *call),
                  const struct call *call, struct stg_err *err)
{
    struct call *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        abort();
    *copy = *call;
    copy->run = kernel;
    return standin_launch(stream, run, copy, err);
}

static void run_normalize(const struct call *c)
{
    size_t n =
        c->normalize.n * c->normalize.height * c->normalize.width * c->normalize.channels;
    must(stg_cuda_kernels.normalize_image(NULL, &c->normalize, seen(c->y, n),
                                          seen(c->x[0], n), NULL));
}

static int normalize_image(struct stg_stream *stream,
                           const struct stg_kernel_normalize *how, void *y, const void *x,
                           struct stg_err *err)
{
    struct call call = {.normalize = *how, .y = y, .x = {x}};
    return launch(stream, run_normalize, &call, err);
}

static void run_cast(const struct call *c)
{
    must(stg_cuda_kernels.cast(NULL, c->y_dtype, seen(c->y, c->n), c->x_dtype,
                               seen(c->x[0], c->n), c->n, NULL));
}

static int cast(struct stg_stream *stream, int y_dtype, void *y, int x_dtype,
                const void *x, size_t n, struct stg_err *err)
{
    struct call call = {.y_dtype = y_dtype, .x_dtype = x_dtype, .y = y, .x = {x}, .n = n};
    return launch(stream, run_cast, &call, err);
}

static void run_bucketize(const struct call *c)
{
    must(stg_cuda_kernels.bucketize(NULL, seen(c->y, c->n), c->x_dtype,
                                    seen(c->x[0], c->n), c->n, seen(c->more, c->n_more),
                                    c->n_more, NULL));
}

static int bucketize(struct stg_stream *stream, int32_t *y, int x_dtype, const void *x,
                     size_t n, const float *boundaries, size_t n_boundaries,
                     struct stg_err *err)
{
    struct call call = {.x_dtype = x_dtype,
                        .y = y,
                        .x = {x},
                        .n = n,
                        .more = boundaries,
                        .n_more = n_boundaries};
    return launch(stream, run_bucketize, &call, err);
}

static void run_lookup(const struct call *c)
{
    struct stg_kernel_lookup how = c->lookup;
    size_t n = (size_t)(how.n * how.width);
    how.y = seen(how.y, n);
    how.table = seen(how.table, (size_t)(how.n_table * how.width));
    how.ids = seen(how.ids, n);
    how.splits = seen(how.splits, n);
    how.weights = seen(how.weights, n);
    how.bad = seen(how.bad, 1);
    must(stg_cuda_kernels.embedding_lookup(NULL, &how, NULL));
}

static int embedding_lookup(struct stg_stream *stream,
                            const struct stg_kernel_lookup *how, struct stg_err *err)
{
    struct call call = {.lookup = *how};
    return launch(stream, run_lookup, &call, err);
}

static void run_log1p(const struct call *c)
{
    must(stg_cuda_kernels.log1p(NULL, c->x_dtype, seen(c->y, c->n), seen(c->x[0], c->n),
                                c->n, NULL));
}

static int log1p_each(struct stg_stream *stream, int dtype, void *y, const void *x,
                      size_t n, struct stg_err *err)
{
    struct call call = {.x_dtype = dtype, .y = y, .x = {x}, .n = n};
    return launch(stream, run_log1p, &call, err);
}

static void run_concat(const struct call *c)
{
    const void *x[MAX_INPUTS];
    size_t all = 0;
    for (size_t i = 0; i < c->n_x; i++) {
        x[i] = seen(c->x[i], c->bytes[i] * c->n);
        all += c->bytes[i];
    }
    must(stg_cuda_kernels.concat(NULL, seen(c->y, all * c->n), x, c->bytes, c->n_x, c->n,
                                 NULL));
}

static int concat(struct stg_stream *stream, void *y, const void *const *x,
                  const size_t *row_bytes, size_t n_x, size_t n_rows, struct stg_err *err)
{
    struct call call = {.y = y, .n_x = n_x, .n = n_rows};
    if (n_x > MAX_INPUTS)
        abort();
    memcpy(call.x, x, n_x * sizeof(*x));
    memcpy(call.bytes, row_bytes, n_x * sizeof(*row_bytes));
    return launch(stream, run_concat, &call, err);
}

static int64_t n_of(const struct stg_kernel_loops *loops)
{
    int64_t n = 1;
    for (int d = 0; d < loops->n; d++)
        n *= loops->size[d];
    return n;
}

static void run_binary(const struct call *c)
{
    struct stg_kernel_pair how = c->pair;
    size_t n = (size_t)n_of(&how.loops);
    how.y = seen(how.y, n);
    how.x[0] = seen(how.x[0], n);
    how.x[1] = seen(how.x[1], n);
    must(stg_cuda_kernels.binary(NULL, &how, NULL));
}

static int binary(struct stg_stream *stream, const struct stg_kernel_pair *how,
                  struct stg_err *err)
{
    struct call call = {.pair = *how};
    return launch(stream, run_binary, &call, err);
}

static void run_unary(const struct call *c)
{
    must(stg_cuda_kernels.unary(NULL, (enum stg_kernel_unary)c->which, c->x_dtype,
                                seen(c->y, c->n), seen(c->x[0], c->n), c->n, NULL));
}

static int unary(struct stg_stream *stream, enum stg_kernel_unary op, int dtype, void *y,
                 const void *x, size_t n, struct stg_err *err)
{
    struct call call = {.which = op, .x_dtype = dtype, .y = y, .x = {x}, .n = n};
    return launch(stream, run_unary, &call, err);
}

static void run_fill(const struct call *c)
{
    must(stg_cuda_kernels.fill(NULL, seen(c->y, c->n), c->which, &c->value, c->n, NULL));
}

static int fill(struct stg_stream *stream, void *y, unsigned unit, const void *value,
                size_t n, struct stg_err *err)
{
    struct call call = {.which = unit, .y = y, .n = n};
    memcpy(&call.value, value, unit);
    return launch(stream, run_fill, &call, err);
}

static void run_matmul(const struct call *c)
{
    struct stg_kernel_matmul how = c->matmul;
    size_t n = (size_t)n_of(&how.loops);
    how.y = seen(how.y, n * (size_t)(how.m * how.n));
    how.x[0] = seen(how.x[0], n * (size_t)(how.m * how.k));
    how.x[1] = seen(how.x[1], n * (size_t)(how.k * how.n));
    must(stg_cuda_kernels.matmul(NULL, &how, NULL));
}

static int matmul(struct stg_stream *stream, const struct stg_kernel_matmul *how,
                  struct stg_err *err)
{
    struct call call = {.matmul = *how};
    return launch(stream, run_matmul, &call, err);
}

static void run_reduce(const struct call *c)
{
    struct stg_kernel_reduce how = c->reduce;
    size_t n = 1, n_sums = 1;
    for (int d = 0; d < how.n_dims; d++) {
        n *= (size_t)how.size[d];
        n_sums *= how.is_reduced[d] ? 1 : (size_t)how.size[d];
    }
    how.y = seen(how.y, how.op == STG_KERNEL_L2_NORMALIZE ? n : n_sums);
    how.x = seen(how.x, n);
    how.scratch = seen(how.scratch, n_sums);
    must(stg_cuda_kernels.reduce(NULL, &how, NULL));
}

static int reduce(struct stg_stream *stream, const struct stg_kernel_reduce *how,
                  struct stg_err *err)
{
    struct call call = {.reduce = *how};
    return launch(stream, run_reduce, &call, err);
}

static void run_softmax(const struct call *c)
{
    struct stg_kernel_softmax how = c->softmax;
    size_t n = (size_t)(how.n_outer * how.n * how.n_inner);
    how.y = seen(how.y, n);
    how.x = seen(how.x, n);
    how.mask = seen(how.mask, n);
    must(stg_cuda_kernels.softmax(NULL, &how, NULL));
}

static int softmax(struct stg_stream *stream, const struct stg_kernel_softmax *how,
                   struct stg_err *err)
{
    struct call call = {.softmax = *how};
    return launch(stream, run_softmax, &call, err);
}

static void run_gather(const struct call *c)
{
    struct stg_kernel_gather how = c->gather;
    size_t n_blocks = (size_t)(how.batch * how.outer);
    how.y = seen(how.y, n_blocks * (size_t)(how.n * how.inner));
    how.x = seen(how.x, n_blocks * (size_t)(how.dim * how.inner));
    how.indices = seen(how.indices, (size_t)(how.batch * how.n));
    how.bad = seen(how.bad, 1);
    must(stg_cuda_kernels.gather(NULL, &how, NULL));
}

static int gather(struct stg_stream *stream, const struct stg_kernel_gather *how,
                  struct stg_err *err)
{
    struct call call = {.gather = *how};
    return launch(stream, run_gather, &call, err);
}

static void run_gru(const struct call *c)
{
    struct stg_kernel_gru how = c->gru;
    size_t n_steps = (size_t)(how.n_rows * how.n_steps);
    size_t n_states = (size_t)(how.n_rows * how.n);
    how.x = seen(how.x, n_steps * (size_t)how.n_in);
    how.scores = seen(how.scores, n_steps);
    how.kernel = seen(how.kernel, (size_t)(how.n_in * how.n));
    how.back = seen(how.back, (size_t)how.n);
    how.bias = seen(how.bias, (size_t)how.n);
    how.lengths = seen(how.lengths, (size_t)how.n_rows);
    how.out = seen(how.out, n_steps * (size_t)how.n);
    how.state = seen(how.state, n_states);
    how.scratch = seen(how.scratch, n_states);
    must(stg_cuda_kernels.gru(NULL, &how, NULL));
}

static int gru(struct stg_stream *stream, const struct stg_kernel_gru *how,
               struct stg_err *err)
{
    struct call call = {.gru = *how};
    return launch(stream, run_gru, &call, err);
}

/* Without hash_bucket: there are never strings. */
static const struct stg_device_kernels kernels = {
    .normalize_image = normalize_image,
    .cast = cast,
    .bucketize = bucketize,
    .embedding_lookup = embedding_lookup,
    .log1p = log1p_each,
    .concat = concat,
    .binary = binary,
    .unary = unary,
    .fill = fill,
    .matmul = matmul,
    .reduce = reduce,
    .softmax = softmax,
    .gather = gather,
    .gru = gru,
};

const struct stg_device_kernels *const standin_kernels = &kernels;
