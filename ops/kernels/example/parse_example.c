/* SPDX-License-Identifier: Apache-2.0
 *
 * A block of records at a time: first where the list of every key lies (the spans), then
 * feature by feature the values. What has a known size is written at once, the rest is
 * counted, and written when the whole batch is. */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/text_column.h"
#include "ops/kernels/example/example.h"
#include "ops/kernels/example/layout.h"
#include "ops/kernels/example/wire.h"

#define BLOCK STG_EXAMPLE_BLOCK
/* Records that the layout is learned from before it is used, and how many there have to
 * be for that to be worth it. */
#define LESSONS 16
#define LESSONS_PAY 128

struct work {
    struct stg_op_run *ctx;
    const struct stg_example_plan *plan;
    struct stg_example_input in;
    struct stg_example_layout layout;
    const uint8_t *data;
    size_t n_rows;
    struct stg_example_span *block;  /* key by key, BLOCK of each */
    struct stg_example_span **late;  /* key -> spans of all rows, or NULL */
    struct stg_example_span **spans; /* key -> those of the block at hand */
    void **outputs;                  /* feature -> where numbers go, or NULL */
    struct stg_text_column *texts;   /* a feature: strings of a known number, copied while
                                        their records are at hand */
    struct stg_example_tally *tallies;
};

/* Numbers, or hashes, of a known shape. */
static bool is_early(const struct stg_example_feature *f)
{
    return f->type == STG_EXAMPLE_FIXED_LEN &&
           (f->dtype != STAGER_STRING || f->hash != NULL);
}

static bool is_late(const struct stg_example_feature *f)
{
    return f->type != STG_EXAMPLE_FIXED_LEN;
}

static void *room(struct work *work, size_t n, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(n, bytes, &total))
        return NULL;
    return stg_bump_alloc_raw(work->ctx->scratch, total);
}

/* Spans of all rows for each key that a late feature reads. */
static bool make_late(struct work *work)
{
    const struct stg_example_plan *plan = work->plan;
    for (uint32_t k = 0; k < plan->n_features; k++) {
        const struct stg_example_feature *f = &plan->features[k];
        for (uint32_t d = 0; is_late(f) && d <= f->n_index_keys; d++) {
            uint32_t key = d < f->n_index_keys ? f->index_keys[d] : f->key;
            if (work->late[key] != NULL)
                continue;
            work->late[key] = room(work, work->n_rows + 1, sizeof(**work->late));
            if (work->late[key] == NULL)
                return false;
        }
    }
    return true;
}

static bool make_texts(struct work *work)
{
    for (uint32_t k = 0; k < work->plan->n_features; k++) {
        const struct stg_example_feature *f = &work->plan->features[k];
        uint64_t n;
        if (is_early(f) || is_late(f))
            continue;
        if (__builtin_mul_overflow((uint64_t)work->n_rows, (uint64_t)f->n, &n) ||
            !stg_text_column_init(&work->texts[k], work->ctx->scratch, n))
            return false;
    }
    return true;
}

static void learn(struct work *work, size_t i)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    stg_example_layout_learn(&work->layout, work->data + input->begin[i],
                             (size_t)(input->end[i] - input->begin[i]));
}

static bool make_layout(struct work *work)
{
    if (work->n_rows < LESSONS_PAY)
        return true;
    if (!stg_example_layout_init(&work->layout, work->plan, work->ctx->scratch))
        return false;
    for (size_t i = 0; i < LESSONS; i++)
        learn(work, i);
    return true;
}

static int prepare(struct work *work, struct stg_err *err)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    const struct stg_example_plan *plan = work->plan;
    work->block = room(work, (size_t)plan->n_keys * BLOCK, sizeof(*work->block));
    work->late = stg_bump_alloc(work->ctx->scratch, plan->n_keys * sizeof(*work->late));
    work->spans = room(work, plan->n_keys, sizeof(*work->spans));
    work->outputs = room(work, plan->n_features, sizeof(*work->outputs));
    work->texts =
        stg_bump_alloc(work->ctx->scratch, plan->n_features * sizeof(*work->texts));
    work->tallies =
        stg_bump_alloc(work->ctx->scratch, plan->n_features * sizeof(*work->tallies));
    if (work->block == NULL || work->late == NULL || work->spans == NULL ||
        work->outputs == NULL || work->texts == NULL || work->tallies == NULL ||
        !make_late(work) || !make_texts(work) || !make_layout(work))
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for %zu records",
                       work->n_rows);
    int64_t last = 0;
    for (size_t i = 0; i < work->n_rows; i++)
        last = input->end[i] > last ? input->end[i] : last;
    work->in = (struct stg_example_input){.plan = plan, .limit = work->data + last};
    return 0;
}

static int alloc_early(struct work *work, struct stg_err *err)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    for (uint32_t k = 0; k < work->plan->n_features; k++) {
        const struct stg_example_feature *f = &work->plan->features[k];
        int64_t shape[STG_MAX_DIMS + 1] = {(int64_t)work->n_rows};
        struct stg_tensor output;
        work->outputs[k] = NULL;
        if (!is_early(f))
            continue;
        memcpy(shape + input->ndim, f->shape, (size_t)f->ndim * sizeof(*shape));
        int rc = work->ctx->alloc(work->ctx, f->output,
                                  f->hash != NULL ? STAGER_INT64 : f->dtype,
                                  input->ndim + f->ndim, shape, 0, &output, err);
        if (rc < 0)
            return rc;
        work->outputs[k] = output.data;
    }
    return 0;
}

/* By the rules. */
static bool index_record(struct work *work, size_t row, size_t i)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    int64_t begin = input->begin[row], end = input->end[row];
    struct stg_example_fault fault;
    return stg_example_index(&work->in, work->data + begin, (size_t)(end - begin),
                             work->spans, i, &fault);
}

/* Spans of the block at hand, none of which is known. */
static void open_spans(struct work *work, size_t first, size_t n)
{
    uint32_t n_keys = work->plan->n_keys;
    bool clear = work->layout.n_steps == 0;
    if (clear)
        memset(work->block, 0, (size_t)n_keys * BLOCK * sizeof(*work->block));
    for (uint32_t k = 0; k < n_keys; k++) {
        work->spans[k] = work->block + k * BLOCK;
        if (work->late[k] == NULL)
            continue;
        work->spans[k] = work->late[k] + first;
        if (clear)
            memset(work->spans[k], 0, n * sizeof(**work->spans));
    }
}

/* The layout is tried first, then the rules. */
static bool index_guessed(struct work *work, size_t first, size_t n)
{
    bool good[BLOCK];
    stg_example_layout_take(&work->layout, &work->in, &work->ctx->inputs[0], first, n,
                            work->spans, good);
    for (size_t i = 0; i < n; i++) {
        if (good[i])
            continue;
        for (uint32_t k = 0; k < work->plan->n_keys; k++)
            work->spans[k][i] = (struct stg_example_span){0};
        if (!index_record(work, first + i, i))
            return false;
        learn(work, first + i);
    }
    return true;
}

static bool index_block(struct work *work, size_t first, size_t n)
{
    open_spans(work, first, n);
    if (work->layout.n_steps > 0)
        return index_guessed(work, first, n);
    for (size_t i = 0; i < n; i++) {
        if (!index_record(work, first + i, i))
            return false;
    }
    return true;
}

/* ---- values ---- */

/* The n values of a record of any form. */
static bool take_any(const struct stg_example_feature *f,
                     const struct stg_example_span *span, void *out)
{
    struct stg_example_fault fault;
    uint64_t bytes = 0;
    if (span->kind == STG_EXAMPLE_NONE) {
        if (f->has_default && f->fill.data_bytes > 0)
            memcpy(out, f->fill.data, f->fill.data_bytes);
        return f->has_default;
    }
    if (span->kind != f->kind || stg_example_count(span, &bytes, &fault) != f->n)
        return false;
    stg_example_read(span, out);
    return true;
}

static bool take_numbers(const struct stg_example_feature *f,
                         const struct stg_example_span *spans, size_t n, char *out)
{
    size_t bytes = (size_t)f->n * stg_dtype_bytes(f->dtype);
    for (size_t i = 0; i < n; i++, out += bytes) {
        if (!take_any(f, &spans[i], out))
            return false;
    }
    return true;
}

static bool take_floats(const struct stg_example_feature *f,
                        const struct stg_example_span *spans, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        const struct stg_example_span *span = &spans[i];
        if (span->kind == STG_EXAMPLE_FLOATS && span->bytes == 2 + sizeof(*out) &&
            span->s[0] == 0x0a && span->s[1] == sizeof(*out))
            memcpy(out + i, span->s + 2, sizeof(*out));
        else if (!take_any(f, span, out + i))
            return false;
    }
    return true;
}

/* A varint of n bytes, at most eight, seven bits of each; -1: it has another length. */
static inline int64_t short_varint(const uint8_t *s, uint32_t n)
{
    uint64_t word;
    memcpy(&word, s, sizeof(word));
    uint64_t last = ~word & 0x8080808080808080u;
    if (last == 0 || (uint32_t)__builtin_ctzll(last) != n * 8 - 1)
        return -1;
    word &= (last ^ (last - 1)) & 0x7f7f7f7f7f7f7f7fu;
    word = (word & 0x007f007f007f007fu) | (word & 0x7f007f007f007f00u) >> 1;
    word = (word & 0x00003fff00003fffu) | (word & 0x3fff00003fff0000u) >> 2;
    return (int64_t)((word & 0x000000000fffffffu) | (word & 0x0fffffff00000000u) >> 4);
}

/* What is read instead of a list that a record has not, so that whether it has one is no
 * branch: which of them come is hard to guess. */
struct blank {
    uint8_t s[32];
    uint32_t bytes;
};

static const struct blank no_int = {.s = {0x0a, 1}, .bytes = 3};
static const struct blank no_text = {.s = {0x0a, 8}, .bytes = 10};

/* Bytes behind s that may be read; more than there are behind a blank. */
static inline uintptr_t slack(const struct work *work, const uint8_t *s)
{
    return (uintptr_t)work->in.limit - (uintptr_t)s;
}

static bool take_ints(const struct work *work, const struct stg_example_feature *f,
                      const struct stg_example_span *spans, size_t n, int64_t *out)
{
    int64_t otherwise = f->has_default ? *(const int64_t *)f->fill.data : 0;
    for (size_t i = 0; i < n; i++) {
        const struct stg_example_span *span = &spans[i];
        bool none = span->kind == STG_EXAMPLE_NONE;
        const uint8_t *s = none ? no_int.s : span->s;
        uint32_t bytes = (none ? no_int.bytes : span->bytes) - 2;
        int64_t value = -1;
        if (span->kind % STG_EXAMPLE_INTS == 0 && bytes - 1 < 8 && slack(work, s) >= 10 &&
            s[0] == 0x0a && s[1] == bytes && (!none || f->has_default))
            value = short_varint(s + 2, bytes);
        if (value >= 0)
            out[i] = none ? otherwise : value;
        else if (!take_any(f, span, out + i))
            return false;
    }
    return true;
}

/* A hash of any form. */
static bool take_hash(const struct stg_example_feature *f,
                      const struct stg_example_span *span, int64_t *out)
{
    struct stg_example_text text;
    if (span->kind == STG_EXAMPLE_NONE && f->has_default) {
        *out = f->hash_default;
        return true;
    }
    if ((span->kind != STG_EXAMPLE_BYTES || stg_example_text_of(span, &text) < 0) &&
        (span->kind == STG_EXAMPLE_NONE || !take_any(f, span, &text)))
        return false;
    *out = (int64_t)stg_modulus(stg_fingerprint64(text.s, text.bytes), &f->hash->buckets);
    return true;
}

static bool take_hashes(const struct work *work, const struct stg_example_feature *f,
                        const struct stg_example_span *spans, size_t n, int64_t *out)
{
    for (size_t i = 0; i < n; i++) {
        const struct stg_example_span *span = &spans[i];
        bool none = span->kind == STG_EXAMPLE_NONE;
        const uint8_t *s = none ? no_text.s : span->s;
        uint32_t bytes = (none ? no_text.bytes : span->bytes) - 2;
        if (span->kind > STG_EXAMPLE_BYTES || bytes - 8 > 8 || slack(work, s) < 18 ||
            s[0] != 0x0a || s[1] != bytes || (none && !f->has_default)) {
            if (!take_hash(f, span, out + i))
                return false;
            continue;
        }
        uint64_t hash = stg_fingerprint64_of(stg_wire_load64(s + 2),
                                             stg_wire_load64(s + bytes - 6), bytes);
        int64_t bucket = (int64_t)stg_modulus(hash, &f->hash->buckets);
        out[i] = none ? f->hash_default : bucket;
    }
    return true;
}

/* ---- strings ---- */

/* slack: as many bytes more than the string has may be read. */
static bool put_text(struct stg_text_column *to, const struct stg_example_text *text,
                     bool slack)
{
    if (!slack || text->bytes > STG_TEXT_SLACK)
        return stg_text_column_put(to, text->s, text->bytes);
    if (!stg_text_column_reserve(to, text->bytes))
        return false;
    memcpy(to->data + to->used, text->s, STG_TEXT_SLACK);
    stg_text_column_end(to, text->bytes);
    return true;
}

/* The strings of a record of any form. */
static bool take_list(struct work *work, const struct stg_example_feature *f,
                      const struct stg_example_span *span, struct stg_text_column *to)
{
    struct stg_example_text one, *list = &one;
    if (f->n != 1)
        list = room(work, (size_t)f->n, sizeof(*list));
    if (list == NULL || !take_any(f, span, list))
        return false;
    for (int64_t i = 0; i < f->n; i++) {
        if (!put_text(to, &list[i], false))
            return false;
    }
    return true;
}

static bool take_texts(struct work *work, const struct stg_example_feature *f,
                       const struct stg_example_span *spans, size_t n,
                       struct stg_text_column *to)
{
    for (size_t i = 0; i < n; i++) {
        const struct stg_example_span *span = &spans[i];
        struct stg_example_text text;
        bool good;
        if (span->kind == STG_EXAMPLE_NONE)
            good = f->has_default && stg_text_column_put_all(to, &f->fill);
        else if (f->n == 1 && span->kind == STG_EXAMPLE_BYTES &&
                 stg_example_text_of(span, &text) == 1)
            good = put_text(to, &text, work->in.limit - span->s >= STG_TEXT_SLACK + 2);
        else
            good = take_list(work, f, span, to);
        if (!good)
            return false;
    }
    return true;
}

static int write_texts(struct work *work, const struct stg_example_feature *f,
                       const struct stg_text_column *from, struct stg_err *err)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    int64_t shape[STG_MAX_DIMS + 1] = {(int64_t)work->n_rows};
    memcpy(shape + input->ndim, f->shape, (size_t)f->ndim * sizeof(*shape));
    return stg_text_column_write(from, work->ctx, f->output, input->ndim + f->ndim, shape,
                                 err);
}

/* ---- counting ---- */

/* Indices are as many as values. */
static bool count_indices(const struct work *work, const struct stg_example_feature *f,
                          size_t i, int64_t n)
{
    struct stg_example_fault fault;
    uint64_t bytes = 0;
    for (uint32_t d = 0; d < f->n_index_keys; d++) {
        const struct stg_example_span *span = &work->spans[f->index_keys[d]][i];
        if ((span->kind != STG_EXAMPLE_NONE && span->kind != STG_EXAMPLE_INTS) ||
            stg_example_count(span, &bytes, &fault) != n)
            return false;
    }
    return true;
}

/* How many values there are, counted to `bytes` too; -1: it is not right. */
static int64_t count_values(const struct stg_example_feature *f,
                            const struct stg_example_span *span, uint64_t *bytes)
{
    struct stg_example_fault fault;
    struct stg_example_text text;
    if (span->kind == STG_EXAMPLE_NONE)
        return 0;
    if (span->kind != f->kind)
        return -1;
    if (f->kind == STG_EXAMPLE_BYTES && stg_example_text_of(span, &text) == 1) {
        *bytes += text.bytes;
        return 1;
    }
    return stg_example_count(span, bytes, &fault);
}

static bool tally(const struct work *work, const struct stg_example_feature *f, size_t n,
                  struct stg_example_tally *to)
{
    for (size_t i = 0; i < n; i++) {
        int64_t n_values = count_values(f, &work->spans[f->key][i], &to->bytes);
        bool good = n_values >= 0 &&
                    (f->type != STG_EXAMPLE_FIXED_LEN_SEQUENCE || n_values % f->n == 0);
        if (!good || !count_indices(work, f, i, n_values))
            return false;
        to->n += n_values;
        to->most = n_values > to->most ? n_values : to->most;
    }
    return true;
}

static bool convert_block(struct work *work, size_t first, size_t n)
{
    for (uint32_t k = 0; k < work->plan->n_features; k++) {
        const struct stg_example_feature *f = &work->plan->features[k];
        const struct stg_example_span *spans = work->spans[f->key];
        bool good;
        if (is_late(f))
            good = tally(work, f, n, &work->tallies[k]);
        else if (!is_early(f))
            good = take_texts(work, f, spans, n, &work->texts[k]);
        else if (f->hash != NULL)
            good = take_hashes(work, f, spans, n, (int64_t *)work->outputs[k] + first);
        else if (f->n != 1)
            good = take_numbers(f, spans, n,
                                (char *)work->outputs[k] +
                                    first * (size_t)f->n * stg_dtype_bytes(f->dtype));
        else if (f->kind == STG_EXAMPLE_FLOATS)
            good = take_floats(f, spans, n, (float *)work->outputs[k] + first);
        else
            good = take_ints(work, f, spans, n, (int64_t *)work->outputs[k] + first);
        if (!good)
            return false;
    }
    return true;
}

/* ---- the rest ---- */

static int write_rest(struct work *work, struct stg_err *err)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < work->plan->n_features; k++)
        most = work->tallies[k].most > most ? work->tallies[k].most : most;
    struct stg_example_batch batch = {
        .ctx = work->ctx,
        .n_rows = work->n_rows,
        .spans = work->late,
        .texts = room(work, (size_t)most, sizeof(*batch.texts)),
    };
    if (batch.texts == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "no memory for a record of %" PRId64 " values", most);
    for (uint32_t k = 0; k < work->plan->n_features; k++) {
        const struct stg_example_feature *f = &work->plan->features[k];
        int rc = 0;
        if (is_late(f))
            rc = stg_example_write(&batch, f, &work->tallies[k], err);
        else if (!is_early(f))
            rc = write_texts(work, f, &work->texts[k], err);
        if (rc == -STAGER_OUT_OF_RANGE)
            return stg_example_explain(work->ctx, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    struct work work = {
        .ctx = ctx,
        .plan = ctx->plan,
        .data = ctx->inputs[0].data,
        .n_rows = (size_t)stg_tensor_n(&ctx->inputs[0]),
    };
    int rc = prepare(&work, err);
    if (rc == 0)
        rc = alloc_early(&work, err);
    if (rc < 0)
        return rc;
    for (size_t first = 0; first < work.n_rows; first += BLOCK) {
        size_t left = work.n_rows - first, n = left < BLOCK ? left : BLOCK;
        if (!index_block(&work, first, n) || !convert_block(&work, first, n))
            return stg_example_explain(ctx, err);
    }
    return write_rest(&work, err);
}

/* Of what has no known size the shapes depend on all rows. */
static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct stg_example_plan *plan = ctx->plan;
    for (uint32_t k = 0; k < plan->n_features; k++) {
        if (is_late(&plan->features[k]))
            return 0;
    }
    return ctx->inputs[0].ndim == 1 ? 1 : 0;
}

const struct stg_op stg_op_parse_example = {
    .name = "parse_example",
    .summary = "Records of tf.train.Example to tensors, one or more a feature; as "
               "tf.io.parse_example.",
    .params = stg_example_params,
    .n_params = 1,
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = stg_example_infer,
    .run = run,
    .rows = rows,
    .absorb = stg_example_absorb,
    .next_output = stg_example_next_output,
};
