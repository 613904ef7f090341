/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <isa-l/igzip_lib.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/kernels/text/text.h"

#define MAX_BYTES "67108864"
#define LEAST_ROOM 4096

static const struct stg_param params[] = {
    {.name = "compression_type",
     .type = STG_PARAM_STRING,
     .preset = "",
     .help = "GZIP, ZLIB, or \"\": the strings as they are"},
    {.name = "max_bytes",
     .type = STG_PARAM_INT,
     .min = 1,
     .max = INT64_C(1) << 31,
     .preset = MAX_BYTES,
     .help = "a longer result is an error"},
};

struct plan {
    uint32_t flag; /* of isa-l */
    bool is_compressed;
    uint64_t max_bytes;
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    const char *type =
        stg_attr_string(node->attrs, node->n_attrs, "compression_type", "");
    int rc = stg_text_check(ctx, err);
    if (rc < 0)
        return rc;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->is_compressed = type[0] != '\0';
    plan->flag = strcmp(type, "ZLIB") == 0 ? ISAL_ZLIB : ISAL_GZIP;
    plan->max_bytes =
        (uint64_t)stg_attr_int(node->attrs, node->n_attrs, "max_bytes", INT64_C(1) << 26);
    if (plan->is_compressed && strcmp(type, "GZIP") != 0 && strcmp(type, "ZLIB") != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "compression_type is \"%s\", not GZIP, ZLIB or \"\"", type);
    *output = ctx->inputs[0];
    ctx->plan = plan;
    return 0;
}

/* ---- one string ---- */

struct result {
    uint8_t *data;
    uint64_t bytes, room;
};

struct work {
    const struct plan *plan;
    struct stg_bump *scratch;
    struct inflate_state *state;
};

/* More room for a result, at least one byte. */
static int grow(const struct work *work, struct result *result, struct stg_err *err)
{
    uint64_t most = work->plan->max_bytes, room = 2 * result->room;
    if (result->room >= most)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the result has more than max_bytes, %" PRIu64, most);
    room = room < most ? room : most;
    uint8_t *data = stg_bump_alloc_raw(work->scratch, room);
    if (data == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    memcpy(data, result->data, result->bytes);
    result->data = data;
    result->room = room;
    return 0;
}

static int fail(const struct work *work, struct stg_err *err, const char *text)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "the string is not valid %s: %s",
                   work->plan->flag == ISAL_ZLIB ? "ZLIB" : "GZIP", text);
}

/* One stream of it, which begins at state->next_in. */
static int inflate_stream(const struct work *work, struct result *result,
                          struct stg_err *err)
{
    struct inflate_state *state = work->state;
    uint8_t *next = state->next_in;
    uint32_t left = state->avail_in;
    int rc = 0;
    isal_inflate_init(state);
    state->crc_flag = work->plan->flag;
    state->next_in = next;
    state->avail_in = left;
    while (rc == 0 && state->block_state != ISAL_BLOCK_FINISH) {
        uint64_t room = result->room - result->bytes;
        state->next_out = result->data + result->bytes;
        state->avail_out = (uint32_t)room;
        int found = isal_inflate(state);
        result->bytes += room - state->avail_out;
        if (found < 0 || found == ISAL_NEED_DICT)
            rc = fail(work, err, "it is damaged");
        else if (state->block_state == ISAL_BLOCK_FINISH)
            break;
        else if (state->avail_out == 0)
            rc = grow(work, result, err);
        else if (state->avail_in == 0)
            rc = fail(work, err, "it is truncated");
    }
    return rc;
}

/* isa-l waits for a whole header before it looks at one. */
static bool begins_right(const struct plan *plan, const uint8_t *bytes, uint64_t n)
{
    if (n < 2)
        return false;
    if (plan->flag == ISAL_GZIP)
        return bytes[0] == 0x1f && bytes[1] == 0x8b;
    return (bytes[0] & 15) == 8 && (bytes[0] * 256 + bytes[1]) % 31 == 0;
}

/* Streams of gzip may follow one another. */
static int inflate_string(const struct work *work, const uint8_t *bytes, uint64_t n,
                          struct result *ret, struct stg_err *err)
{
    struct inflate_state *state = work->state;
    ret->bytes = 0;
    if (n == 0)
        return 0;
    if (n > UINT32_MAX)
        return fail(work, err, "it has 4 GiB or more");
    if (!begins_right(work->plan, bytes, n))
        return fail(work, err, "it does not begin as one");
    ret->room = 4 * n > LEAST_ROOM ? 4 * n : LEAST_ROOM;
    ret->room = ret->room < work->plan->max_bytes ? ret->room : work->plan->max_bytes;
    ret->data = stg_bump_alloc_raw(work->scratch, ret->room);
    if (ret->data == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    state->next_in = (uint8_t *)(uintptr_t)bytes;
    state->avail_in = (uint32_t)n;
    int rc = inflate_stream(work, ret, err);
    while (rc == 0 && work->plan->flag == ISAL_GZIP && state->avail_in > 0)
        rc = inflate_stream(work, ret, err);
    return rc;
}

/* ---- all of them ---- */

static int put(struct stg_op_run *ctx, const struct result *results, int64_t n,
               struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    uint64_t bytes = 0;
    for (int64_t i = 0; i < n; i++)
        bytes += results[i].bytes;
    int rc =
        ctx->alloc(ctx, 0, STAGER_STRING, input->ndim, input->shape, bytes, &output, err);
    char *to = rc == 0 ? output.data : NULL;
    int64_t *offsets = rc == 0 ? (int64_t *)(uintptr_t)output.begin : NULL;
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        memcpy(to + offsets[i], results[i].data, results[i].bytes);
        offsets[i + 1] = offsets[i] + (int64_t)results[i].bytes;
    }
    return rc;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t n = stg_tensor_n(input);
    struct work work = {.plan = plan, .scratch = ctx->scratch};
    struct result *results =
        stg_bump_alloc_raw(ctx->scratch, ((size_t)n + 1) * sizeof(*results));
    work.state = stg_bump_alloc_raw(ctx->scratch, sizeof(*work.state));
    if (results == NULL || work.state == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (int64_t i = 0; i < n; i++) {
        uint8_t *bytes = (uint8_t *)input->data + input->begin[i];
        uint64_t n_bytes = (uint64_t)(input->end[i] - input->begin[i]);
        results[i] = (struct result){.data = bytes, .bytes = n_bytes};
        int rc = plan->is_compressed
                     ? inflate_string(&work, bytes, n_bytes, &results[i], err)
                     : 0;
        if (rc < 0 && err != NULL)
            err->row = stg_tensor_row(input, i);
        if (rc < 0)
            return rc;
    }
    return put(ctx, results, n, err);
}

const struct stg_op stg_op_decode_compressed = {
    .name = "decode_compressed",
    .summary = "What compressed strings hold; as tf.io.decode_compressed.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
};
