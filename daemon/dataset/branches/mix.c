/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/branches/mix.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run of so many records or bytes is worth a block of its own: no copy. */
#define LONG_RECORDS 64
#define LONG_BYTES 65536u
/* A mix is not gathered into more than that. */
#define MAX_BYTES (1u << 20)

/* ---- infer ---- */

static const char *shown(const struct stg_input *input)
{
    return input->name != NULL ? input->name : "the step before";
}

static int differ(const struct stg_step *step, const struct stg_input *a,
                  const struct stg_input *b, struct stg_err *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static int differ(const struct stg_step *step, const struct stg_input *a,
                  const struct stg_input *b, struct stg_err *err, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "%s and %s yield different elements: %s", shown(a), shown(b),
                        text);
}

/* What component c of both is; in `to` it is the first one's so far. */
static int merge_component(const struct stg_step *step, const struct stg_input *a,
                           const struct stg_input *b, size_t c, struct stg_component *to,
                           struct stg_err *err)
{
    const struct stg_component *from = &b->schema->components[c];
    if (strcmp(to->name, from->name) != 0)
        return differ(step, a, b, err, "component %zu is called %s and %s", c, to->name,
                      from->name);
    if (to->dtype != from->dtype)
        return differ(step, a, b, err, "component %s is %s and %s", to->name,
                      stg_dtype_name(to->dtype), stg_dtype_name(from->dtype));
    if (to->ndim != from->ndim)
        return differ(step, a, b, err, "component %s has %d and %d dimensions", to->name,
                      to->ndim, from->ndim);
    for (int d = 0; d < to->ndim; d++) {
        bool is_largest = step->is_full && to->shape[d] >= 0 && from->shape[d] >= 0;
        if (to->shape[d] != from->shape[d] && !is_largest)
            to->shape[d] = -1;
        else if (to->shape[d] < from->shape[d])
            to->shape[d] = from->shape[d];
    }
    return 0;
}

int stg_mix_infer(const struct stg_step *step, const struct stg_input *in, size_t n,
                  struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    const struct stg_schema *first = in[0].schema;
    int rc = stg_schema_create(bump, first->n, ret, err);
    if (rc < 0)
        return rc;
    memcpy(ret->components, first->components, first->n * sizeof(*ret->components));
    for (size_t i = 1; i < n; i++) {
        if (in[i].schema->n != first->n)
            return differ(step, &in[0], &in[i], err, "%zu and %zu components", first->n,
                          in[i].schema->n);
        for (size_t c = 0; rc == 0 && c < first->n; c++)
            rc = merge_component(step, &in[0], &in[i], c, &ret->components[c], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- runs ---- */

static uint64_t tensor_bytes(const struct stg_tensor *tensor, int64_t at, int64_t n)
{
    int64_t each = stg_tensor_n(tensor) / tensor->shape[0];
    if (tensor->dtype != STAGER_STRING)
        return (uint64_t)(n * each) * stg_dtype_bytes(tensor->dtype);
    if (each == 0)
        return 0;
    int64_t bytes = tensor->end[(at + n) * each - 1] - tensor->begin[at * each];
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static uint64_t run_bytes(const struct stg_cursor *cursor, int64_t n)
{
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < cursor->block->n_components; c++)
        bytes += tensor_bytes(&cursor->block->tensors[c], cursor->at, n);
    return bytes;
}

static bool is_long(int64_t n, uint64_t bytes)
{
    return n >= LONG_RECORDS || bytes >= LONG_BYTES;
}

static bool same_shapes(const struct stg_block *a, const struct stg_block *b)
{
    for (uint32_t c = 0; c < a->n_components; c++) {
        const struct stg_tensor *x = &a->tensors[c], *y = &b->tensors[c];
        if (x->ndim != y->ndim || memcmp(x->shape + 1, y->shape + 1,
                                         (size_t)(x->ndim - 1) * sizeof(int64_t)) != 0)
            return false;
    }
    return true;
}

/* Whether the run begins where the mix ends. */
static bool goes_on(const struct stg_mix *mix, const struct stg_cursor *cursor)
{
    const struct stg_slice *last = &mix->slices[mix->n_slices - 1];
    return last->block == cursor->block && last->first + last->n == cursor->at;
}

/* Records that are one row each, and may lie in one block: see struct stg_block. */
static bool are_rows(const struct stg_block *block)
{
    bool scalar = true;
    for (uint32_t c = 0; c < block->n_components; c++)
        scalar &= block->tensors[c].ndim == 1;
    return scalar || block->n_records > 1;
}

bool stg_mix_takes(const struct stg_mix *mix, const struct stg_cursor *cursor, int64_t n)
{
    if (mix->n_records == 0 || (mix->n_slices == 1 && goes_on(mix, cursor)))
        return true;
    const struct stg_block *block = cursor->block, *first = mix->slices[0].block;
    return block->epoch == mix->epoch && mix->n_bytes < MAX_BYTES && are_rows(block) &&
           are_rows(first) && same_shapes(block, first) &&
           !is_long(n, run_bytes(cursor, n));
}

static int grow_slices(struct stg_mix *mix)
{
    if (mix->n_slices < mix->slices_size)
        return 0;
    size_t size = mix->slices_size > 0 ? 2 * mix->slices_size : 64;
    struct stg_slice *slices = realloc(mix->slices, size * sizeof(*slices));
    if (slices == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    mix->slices = slices;
    mix->slices_size = size;
    return 0;
}

static int grow_held(struct stg_mix *mix)
{
    if (mix->n_held < mix->held_size)
        return 0;
    size_t size = mix->held_size > 0 ? 2 * mix->held_size : 16;
    struct stg_block **held = realloc(mix->held, size * sizeof(struct stg_block *));
    if (held == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    mix->held = held;
    mix->held_size = size;
    return 0;
}

int stg_mix_add(struct stg_mix *mix, struct stg_cursor *cursor, int64_t n, bool *ret_full)
{
    if (grow_slices(mix) < 0 || grow_held(mix) < 0)
        return -STAGER_RESOURCE_EXHAUSTED;
    uint64_t bytes = run_bytes(cursor, n);
    if (mix->n_slices > 0 && goes_on(mix, cursor))
        mix->slices[mix->n_slices - 1].n += n;
    else
        mix->slices[mix->n_slices++] =
            (struct stg_slice){.block = cursor->block, .first = cursor->at, .n = n};
    mix->n_records += n;
    mix->n_bytes += bytes;
    mix->epoch = cursor->block->epoch;
    cursor->at += n;
    bool used_up = cursor->at == cursor->block->n_records;
    *ret_full = mix->n_slices == 1 && used_up && is_long(mix->slices[0].n, mix->n_bytes);
    if (used_up) {
        mix->held[mix->n_held++] = cursor->block;
        *cursor = (struct stg_cursor){0};
    }
    return 0;
}

/* One run: a view, or the block itself when it is whole and has one owner. */
static int emit_run(struct stg_mix *mix, struct stg_quota *quota, struct stg_block **ret,
                    struct stg_err *err)
{
    const struct stg_slice *run = &mix->slices[0];
    if (mix->n_held == 1 && run->first == 0 && run->n == run->block->n_records) {
        *ret = mix->held[0];
        mix->n_held = 0;
        return 0;
    }
    return stg_block_slice(quota, run->block, run->first, run->n, ret, err);
}

int stg_mix_emit(struct stg_mix *mix, struct stg_quota *quota, const char *what,
                 struct stg_block **ret, struct stg_err *err)
{
    int rc = mix->n_slices == 1
                 ? emit_run(mix, quota, ret, err)
                 : stg_slices_gather(quota, mix->slices, mix->n_slices, what, ret, err);
    stg_mix_clear(mix);
    return rc;
}

void stg_mix_clear(struct stg_mix *mix)
{
    for (size_t i = 0; i < mix->n_held; i++)
        stg_block_unref(mix->held[i]);
    mix->n_held = 0;
    mix->n_slices = 0;
    mix->n_records = 0;
    mix->n_bytes = 0;
}

void stg_mix_finish(struct stg_mix *mix)
{
    stg_mix_clear(mix);
    free(mix->slices);
    free(mix->held);
}

void stg_cursor_clear(struct stg_cursor *cursor)
{
    stg_block_unref(cursor->block);
    *cursor = (struct stg_cursor){0};
}
