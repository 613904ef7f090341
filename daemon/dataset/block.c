/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/block.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/dictionary.h"

/* To take so much from malloc and give it back costs a page fault for every 4 KiB of it.
 */
#define LARGE_BYTES (4u << 20)

struct owned_block {
    struct stg_block block;
    struct stg_quota *quota;
    struct stg_chunk *chunk;  /* that it shows, or NULL */
    struct stg_chunk *memory; /* that it lies in, when it is large, or NULL */
    struct stg_block *parent; /* whose memory it shows, or NULL */
    struct stg_chunk **held;  /* that it shows too, n_held */
    uint32_t n_held;
    uint32_t
        n_coded;    /* tensors with a reference on their dictionary: all that have one */
    uint64_t taken; /* counted on quota; by memory, when there is one */
    char *at, *end; /* what is left to carve */
};

struct stg_block *stg_block_ref(struct stg_block *block)
{
    atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
    return block;
}

void stg_block_unref(struct stg_block *block)
{
    if (block == NULL ||
        atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) != 1)
        return;
    block->destroy(block);
}

static void owned_destroy(struct stg_block *block)
{
    struct owned_block *own = block->owner;
    struct stg_quota *quota = own->quota;
    stg_ahead_unref(block->ahead);
    stg_chunk_unref(own->chunk);
    stg_block_unref(own->parent);
    for (uint32_t i = 0; i < own->n_held; i++)
        stg_chunk_unref(own->held[i]);
    for (uint32_t c = 0; own->n_coded > 0 && c < block->n_components; c++)
        stg_dictionary_unref(stg_dictionary_of(&block->tensors[c]));
    if (own->memory != NULL) {
        stg_chunk_unref(own->memory);
    } else {
        stg_quota_give(quota, own->taken);
        free(own);
    }
    stg_quota_unref(quota);
}

static int take_small(struct stg_quota *quota, uint64_t bytes, const char *what,
                      struct owned_block **ret, struct stg_err *err)
{
    int rc = stg_quota_take(quota, bytes, what, err);
    if (rc < 0)
        return rc;
    *ret = aligned_alloc(64, bytes);
    if (*ret != NULL)
        return 0;
    stg_quota_give(quota, bytes);
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "%s needs %llu bytes: the machine is out of memory", what,
                   (unsigned long long)bytes);
}

/* Memory for a block, and the chunk that it lies in, if it does. */
static int take(struct stg_quota *quota, uint64_t bytes, const char *what,
                struct owned_block **ret, struct stg_chunk **ret_memory,
                struct stg_err *err)
{
    *ret_memory = NULL;
    if (bytes < LARGE_BYTES)
        return take_small(quota, bytes, what, ret, err);
    int rc = stg_chunk_create_near(quota, bytes, what, ret_memory, err);
    if (rc == 0)
        *ret = (struct owned_block *)(*ret_memory)->data;
    return rc;
}

int stg_block_create(struct stg_quota *quota, uint32_t n_components, uint64_t bytes,
                     struct stg_chunk *chunk, const char *what, struct stg_block **ret,
                     struct stg_err *err)
{
    uint64_t head = stg_block_room(sizeof(struct owned_block)) +
                    stg_block_room(n_components * sizeof(struct stg_tensor));
    if (bytes > UINT64_MAX / 4)
        return stg_quota_take(quota, bytes, what, err);
    struct owned_block *own;
    struct stg_chunk *memory;
    int rc = take(quota, head + bytes, what, &own, &memory, err);
    if (rc < 0)
        return rc;
    memset(own, 0, offsetof(struct owned_block, block.error.text));
    own->block.error.text[0] = '\0';
    own->quota = stg_quota_ref(quota);
    own->chunk = chunk != NULL ? stg_chunk_ref(chunk) : NULL;
    own->memory = memory;
    own->parent = NULL;
    own->n_held = 0;
    own->n_coded = 0;
    own->taken = memory != NULL ? memory->capacity : head + bytes;
    own->at = (char *)own + stg_block_room(sizeof(*own));
    own->end = (char *)own + head + bytes;
    struct stg_block *block = &own->block;
    atomic_store_explicit(&block->refs, 1, memory_order_relaxed);
    block->n_components = n_components;
    block->bytes = own->taken;
    block->destroy = owned_destroy;
    block->owner = own;
    block->tensors = stg_block_carve(block, n_components * sizeof(struct stg_tensor));
    memset(block->tensors, 0, n_components * sizeof(struct stg_tensor));
    *ret = block;
    return 0;
}

void *stg_block_carve(struct stg_block *block, uint64_t bytes)
{
    struct owned_block *own = block->owner;
    bytes = stg_block_room(bytes);
    assert(bytes <= (uint64_t)(own->end - own->at));
    void *ret = own->at;
    own->at += bytes;
    return ret;
}

void stg_block_hold(struct stg_block *block, struct stg_chunk *const *chunks, uint32_t n)
{
    struct owned_block *own = block->owner;
    assert(own->n_held == 0);
    own->held = stg_block_carve(block, n * sizeof(*own->held));
    for (uint32_t i = 0; i < n; i++)
        own->held[i] = stg_chunk_ref(chunks[i]);
    own->n_held = n;
}

void stg_block_hold_dictionary(struct stg_block *block, uint32_t c)
{
    struct owned_block *own = block->owner;
    assert(own->parent == NULL);
    if (block->tensors[c].dictionary == NULL)
        return;
    stg_dictionary_ref(stg_dictionary_of(&block->tensors[c]));
    own->n_coded++;
}

int stg_block_create_error(struct stg_quota *quota, const struct stg_err *error,
                           uint64_t epoch, struct stg_block **ret, struct stg_err *err)
{
    struct stg_block *block;
    int rc = stg_block_create(quota, 0, 0, NULL, "an error item", &block, err);
    if (rc < 0)
        return rc;
    block->error = *error;
    block->epoch = epoch;
    *ret = block;
    return 0;
}

void stg_block_move(struct stg_block *block, struct stg_quota *to)
{
    struct owned_block *own = block->owner;
    struct stg_quota *from = own->quota;
    assert(own->parent == NULL && own->chunk == NULL && own->n_held == 0 &&
           own->n_coded == 0);
    own->quota = stg_quota_ref(to);
    if (own->memory != NULL) {
        stg_chunk_move(own->memory, to);
    } else {
        int rc = stg_quota_take(to, own->taken, "", NULL);
        assert(rc == 0);
        (void)rc;
        stg_quota_give(from, own->taken);
    }
    stg_quota_unref(from);
}

/* ---- views ---- */

int stg_block_derive(struct stg_quota *quota, struct stg_block *parent,
                     uint32_t n_components, uint64_t bytes, const char *what,
                     struct stg_block **ret, struct stg_err *err)
{
    struct stg_block *block;
    int rc = stg_block_create(quota, n_components, bytes, NULL, what, &block, err);
    if (rc < 0)
        return rc;
    ((struct owned_block *)block->owner)->parent = stg_block_ref(parent);
    block->n_records = parent->n_records;
    block->n_rows = parent->n_rows;
    block->rows = parent->rows;
    block->epoch = parent->epoch;
    *ret = block;
    return 0;
}

/* Returns how many numbers or strings lie before a record. */
static int64_t values_before(const struct stg_tensor *tensor, int64_t record)
{
    const int64_t *splits = tensor->splits;
    int64_t n = splits != NULL ? splits[record] - splits[0] : record;
    for (int d = splits != NULL ? 2 : 1; d < tensor->ndim; d++)
        n *= tensor->shape[d];
    return n;
}

struct stg_tensor stg_tensor_records(const struct stg_tensor *tensor, int64_t first,
                                     int64_t n)
{
    int64_t before = values_before(tensor, first);
    int64_t n_values = values_before(tensor, first + n) - before;
    struct stg_tensor ret = *tensor;
    ret.shape[0] = n;
    if (ret.splits != NULL) {
        ret.shape[1] = n == 1 ? ret.splits[first + 1] - ret.splits[first] : -1;
        ret.splits = n == 1 ? NULL : ret.splits + first;
    }
    if (ret.dictionary != NULL) {
        ret.codes += before;
        return ret;
    }
    if (ret.dtype == STAGER_STRING) {
        ret.begin += before;
        ret.end += before;
        return ret;
    }
    uint64_t bytes = stg_dtype_bytes(ret.dtype);
    ret.data = (char *)ret.data + (uint64_t)before * bytes;
    ret.data_bytes = (uint64_t)n_values * bytes;
    return ret;
}

int stg_block_slice(struct stg_quota *quota, struct stg_block *parent, int64_t first,
                    int64_t n, struct stg_block **ret, struct stg_err *err)
{
    assert(first >= 0 && n >= 1 && n <= parent->n_records - first);
    struct stg_block *block;
    int rc = stg_block_derive(quota, parent, parent->n_components, 0, "a part of a block",
                              &block, err);
    if (rc < 0)
        return rc;
    for (uint32_t c = 0; c < block->n_components; c++)
        block->tensors[c] = stg_tensor_records(&parent->tensors[c], first, n);
    int64_t rows_each = parent->n_rows / parent->n_records;
    if (n < parent->n_records) {
        assert(parent->n_rows == rows_each * parent->n_records);
        block->n_records = n;
        block->n_rows = n * rows_each;
        block->rows = parent->rows != NULL ? parent->rows + first * rows_each : NULL;
    }
    *ret = block;
    return 0;
}

int stg_block_divide(struct stg_quota *quota, struct stg_block **from, int64_t *at,
                     int64_t want, struct stg_block **ret, struct stg_err *err)
{
    struct stg_block *block = *from;
    int64_t n = block->n_records - *at;
    if (*at == 0 && n <= want) {
        *from = NULL;
        *ret = block;
        return 0;
    }
    n = n > want ? want : n;
    int rc = stg_block_slice(quota, block, *at, n, ret, err);
    if (rc < 0)
        return rc;
    *at += n;
    if (*at == block->n_records) {
        stg_block_unref(block);
        *from = NULL;
        *at = 0;
    }
    return 0;
}

/* Records that are picked. */
struct picks {
    const int64_t *index;
    int64_t n;
};

/* Returns how many numbers or strings of a tensor they have. */
static int64_t count_picked(const struct stg_tensor *tensor, const struct picks *picks)
{
    int64_t n = 0;
    if (tensor->splits == NULL)
        return picks->n * values_before(tensor, 1);
    for (int64_t i = 0; i < picks->n; i++)
        n += values_before(tensor, picks->index[i] + 1) -
             values_before(tensor, picks->index[i]);
    return n;
}

/* Bytes to carve for the picks of one component. Strings stay where they are. */
static uint64_t pick_room(const struct stg_tensor *tensor, const struct picks *picks)
{
    uint64_t count = (uint64_t)count_picked(tensor, picks), splits = 0;
    if (tensor->splits != NULL)
        splits = stg_block_room((uint64_t)(picks->n + 1) * sizeof(int64_t));
    if (tensor->dictionary != NULL)
        return splits + stg_block_room(count * sizeof(int32_t));
    if (tensor->dtype == STAGER_STRING)
        return splits + 2 * stg_block_room(count * sizeof(int64_t));
    return splits + stg_block_room(count * stg_dtype_bytes(tensor->dtype));
}

/* A value takes `bytes`. */
static void *pick_values(struct stg_block *to, const struct stg_tensor *tensor,
                         const void *from, uint64_t bytes, const struct picks *picks)
{
    uint64_t each = (uint64_t)values_before(tensor, 1) * bytes;
    char *ret = stg_block_carve(to, (uint64_t)count_picked(tensor, picks) * bytes);
    char *at = ret;
    for (int64_t i = 0; i < picks->n; i++, at += each) {
        uint64_t first = (uint64_t)picks->index[i] * each;
        if (tensor->splits != NULL) {
            first = (uint64_t)values_before(tensor, picks->index[i]) * bytes;
            each = (uint64_t)values_before(tensor, picks->index[i] + 1) * bytes - first;
        }
        if (each > 0)
            memcpy(at, (const char *)from + first, each);
    }
    return ret;
}

static const int64_t *pick_splits(struct stg_block *to, const int64_t *from,
                                  const struct picks *picks)
{
    int64_t *ret = stg_block_carve(to, (uint64_t)(picks->n + 1) * sizeof(*ret));
    ret[0] = 0;
    for (int64_t i = 0; i < picks->n; i++)
        ret[i + 1] = ret[i] + from[picks->index[i] + 1] - from[picks->index[i]];
    return ret;
}

static void pick_tensor(struct stg_block *to, const struct stg_tensor *from,
                        const struct picks *picks, struct stg_tensor *tensor)
{
    *tensor = *from;
    tensor->shape[0] = picks->n;
    if (from->splits != NULL)
        tensor->splits = pick_splits(to, from->splits, picks);
    if (from->dictionary != NULL) {
        tensor->codes = pick_values(to, from, from->codes, sizeof(int32_t), picks);
        return;
    }
    if (from->dtype == STAGER_STRING) {
        tensor->begin = pick_values(to, from, from->begin, sizeof(int64_t), picks);
        tensor->end = pick_values(to, from, from->end, sizeof(int64_t), picks);
        return;
    }
    uint64_t bytes = stg_dtype_bytes(from->dtype);
    tensor->data = pick_values(to, from, from->data, bytes, picks);
    tensor->data_bytes = (uint64_t)stg_tensor_n(tensor) * bytes;
}

static const struct stg_provenance *pick_rows(struct stg_block *to,
                                              const struct stg_provenance *from,
                                              const struct picks *picks)
{
    struct stg_provenance *ret = stg_block_carve(to, (uint64_t)picks->n * sizeof(*ret));
    for (int64_t i = 0; i < picks->n; i++)
        ret[i] = from[picks->index[i]];
    return ret;
}

int stg_block_pick(struct stg_quota *quota, struct stg_block *parent,
                   const int64_t *index, int64_t n, struct stg_block **ret,
                   struct stg_err *err)
{
    const struct picks picks = {index, n};
    if (n == 1)
        return stg_block_slice(quota, parent, index[0], 1, ret, err);
    assert(n >= 1 && parent->n_rows == parent->n_records);
    uint64_t bytes = stg_block_room((uint64_t)n * sizeof(struct stg_provenance));
    for (uint32_t c = 0; c < parent->n_components; c++)
        bytes += pick_room(&parent->tensors[c], &picks);
    struct stg_block *block;
    int rc = stg_block_derive(quota, parent, parent->n_components, bytes,
                              "records of a block", &block, err);
    if (rc < 0)
        return rc;
    for (uint32_t c = 0; c < block->n_components; c++)
        pick_tensor(block, &parent->tensors[c], &picks, &block->tensors[c]);
    block->n_records = block->n_rows = n;
    if (parent->rows != NULL)
        block->rows = pick_rows(block, parent->rows, &picks);
    *ret = block;
    return 0;
}

/* ---- gather ---- */

/* What the strings of a tensor take: all their bytes together, or, where they lie so
 * close that one copy beats many, the span that they lie in. */
struct span {
    int64_t n;
    uint64_t bytes;
    int64_t first; /* -1: string by string */
};

static struct span span_of(const struct stg_tensor *tensor)
{
    struct span span = {.n = stg_tensor_n(tensor), .first = -1};
    bool rising = true;
    if (tensor->dictionary != NULL) {
        span.bytes = stg_tensor_text_bytes(tensor);
        return span;
    }
    for (int64_t i = 0; i < span.n; i++) {
        span.bytes += (uint64_t)(tensor->end[i] - tensor->begin[i]);
        rising &= i == 0 || tensor->begin[i] >= tensor->end[i - 1];
    }
    if (span.n == 0 || !rising)
        return span;
    uint64_t whole = (uint64_t)(tensor->end[span.n - 1] - tensor->begin[0]);
    if (whole - span.bytes <= 4 * (uint64_t)span.n) {
        span.first = tensor->begin[0];
        span.bytes = whole;
    }
    return span;
}

static uint64_t dense_bytes(const struct stg_tensor *tensor)
{
    return (uint64_t)stg_tensor_n(tensor) * stg_dtype_bytes(tensor->dtype);
}

uint64_t stg_block_tensor_room(const struct stg_tensor *tensor)
{
    if (tensor->dtype != STAGER_STRING)
        return stg_block_room(dense_bytes(tensor));
    if (tensor->dictionary != NULL)
        return stg_block_room((uint64_t)stg_tensor_n(tensor) * sizeof(int32_t));
    struct span span = span_of(tensor);
    return stg_block_room(span.bytes) +
           2 * stg_block_room((uint64_t)span.n * sizeof(int64_t));
}

/* Returns the dictionary of all tensors of a component, or NULL. */
static const struct stg_strings *common_dictionary(struct stg_block *const *blocks,
                                                   size_t n, uint32_t c)
{
    const struct stg_strings *ret = blocks[0]->tensors[c].dictionary;
    for (size_t i = 1; i < n && ret != NULL; i++)
        ret = blocks[i]->tensors[c].dictionary == ret ? ret : NULL;
    return ret;
}

/* Joins coded tensors with one dictionary. */
static void join_codes(struct stg_block *to, uint32_t to_c,
                       struct stg_block *const *blocks, size_t n, uint32_t c)
{
    struct stg_tensor *tensor = &to->tensors[to_c];
    uint64_t count = (uint64_t)stg_tensor_n(tensor), used = 0;
    int32_t *codes = stg_block_carve(to, count * sizeof(*codes));
    for (size_t i = 0; i < n; i++) {
        const struct stg_tensor *from = &blocks[i]->tensors[c];
        uint64_t more = (uint64_t)stg_tensor_n(from);
        memcpy(codes + used, from->codes, more * sizeof(*codes));
        used += more;
    }
    tensor->codes = codes;
    tensor->begin = tensor->end = NULL;
    stg_block_hold_dictionary(to, to_c);
}

uint64_t stg_block_join_room(struct stg_block *const *blocks, size_t n, uint32_t c)
{
    uint64_t data = 0, count = 0;
    if (common_dictionary(blocks, n, c) != NULL) {
        for (size_t i = 0; i < n; i++)
            count += (uint64_t)stg_tensor_n(&blocks[i]->tensors[c]);
        return stg_block_room(count * sizeof(int32_t));
    }
    for (size_t i = 0; i < n; i++) {
        const struct stg_tensor *tensor = &blocks[i]->tensors[c];
        if (tensor->dtype != STAGER_STRING) {
            data += dense_bytes(tensor);
            continue;
        }
        struct span span = span_of(tensor);
        data += span.bytes;
        count += (uint64_t)span.n;
    }
    return stg_block_room(data) + 2 * stg_block_room(count * sizeof(int64_t));
}

static void append_strings(const struct stg_tensor *from, char *data, uint64_t *used,
                           int64_t *begin, int64_t *end)
{
    struct span span = span_of(from);
    const char *source = from->data;
    if (span.first >= 0) {
        int64_t shift = (int64_t)*used - span.first;
        memcpy(data + *used, source + span.first, span.bytes);
        for (int64_t i = 0; i < span.n; i++) {
            begin[i] = from->begin[i] + shift;
            end[i] = from->end[i] + shift;
        }
        *used += span.bytes;
        return;
    }
    if (from->dictionary != NULL)
        stg_tensor_spread(from, 0, span.n, begin, end);
    for (int64_t i = 0; i < span.n; i++) {
        int64_t first = from->dictionary != NULL ? begin[i] : from->begin[i];
        int64_t behind = from->dictionary != NULL ? end[i] : from->end[i];
        uint64_t bytes = (uint64_t)(behind - first);
        begin[i] = (int64_t)*used;
        memcpy(data + *used, source + first, bytes);
        *used += bytes;
        end[i] = (int64_t)*used;
    }
}

/* Memory for as many tensors as are appended to it, at the end of what is carved. */
struct joint {
    char *data;
    uint64_t used, n;
    int64_t *begin, *end;
};

static struct joint begin_joint(struct stg_block *to, const struct stg_tensor *tensor)
{
    struct joint joint = {0};
    if (tensor->dtype == STAGER_STRING) {
        uint64_t bytes = (uint64_t)stg_tensor_n(tensor) * sizeof(int64_t);
        joint.begin = stg_block_carve(to, bytes);
        joint.end = stg_block_carve(to, bytes);
    }
    joint.data = ((struct owned_block *)to->owner)->at;
    return joint;
}

static void append(struct joint *joint, const struct stg_tensor *from)
{
    if (from->dtype == STAGER_STRING) {
        append_strings(from, joint->data, &joint->used, joint->begin + joint->n,
                       joint->end + joint->n);
        joint->n += (uint64_t)stg_tensor_n(from);
    } else if (dense_bytes(from) > 0) {
        memcpy(joint->data + joint->used, from->data, dense_bytes(from));
        joint->used += dense_bytes(from);
    }
}

static void end_joint(struct stg_block *to, const struct joint *joint,
                      struct stg_tensor *tensor)
{
    tensor->data = stg_block_carve(to, joint->used);
    tensor->data_bytes = joint->used;
    tensor->begin = joint->begin;
    tensor->end = joint->end;
    tensor->codes = NULL;
    tensor->dictionary = NULL;
}

void stg_block_copy_tensor(struct stg_block *block, uint32_t c,
                           const struct stg_tensor *from)
{
    block->tensors[c] = *from;
    if (from->dictionary != NULL) {
        uint64_t bytes = (uint64_t)stg_tensor_n(from) * sizeof(*from->codes);
        int32_t *codes = stg_block_carve(block, bytes);
        memcpy(codes, from->codes, bytes);
        block->tensors[c].codes = codes;
        block->tensors[c].begin = block->tensors[c].end = NULL;
        stg_block_hold_dictionary(block, c);
        return;
    }
    struct joint joint = begin_joint(block, from);
    append(&joint, from);
    end_joint(block, &joint, &block->tensors[c]);
}

void stg_block_join(struct stg_block *to, uint32_t to_c, struct stg_block *const *blocks,
                    size_t n, uint32_t c, bool flat)
{
    struct stg_tensor *tensor = &to->tensors[to_c];
    *tensor = blocks[0]->tensors[c];
    tensor->ndim -= flat;
    memmove(tensor->shape, tensor->shape + flat,
            (size_t)tensor->ndim * sizeof(tensor->shape[0]));
    tensor->shape[0] = 0;
    tensor->splits = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct stg_tensor *from = &blocks[i]->tensors[c];
        assert(flat || from->splits == NULL);
        tensor->shape[0] +=
            flat ? stg_tensor_lengths(from, from->shape[0]) : from->shape[0];
    }
    if (common_dictionary(blocks, n, c) != NULL) {
        join_codes(to, to_c, blocks, n, c);
        return;
    }
    struct joint joint = begin_joint(to, tensor);
    for (size_t i = 0; i < n; i++)
        append(&joint, &blocks[i]->tensors[c]);
    end_joint(to, &joint, tensor);
}

uint64_t stg_block_rows_room(struct stg_block *const *blocks, size_t n)
{
    uint64_t n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        n_rows += (uint64_t)blocks[i]->n_rows;
        if (blocks[i]->rows == NULL)
            return 0;
    }
    return stg_block_room(n_rows * sizeof(struct stg_provenance));
}

void stg_block_join_rows(struct stg_block *to, struct stg_block *const *blocks, size_t n)
{
    bool has_rows = true;
    to->n_records = to->n_rows = 0;
    to->epoch = blocks[0]->epoch;
    for (size_t i = 0; i < n; i++) {
        to->n_records += blocks[i]->n_records;
        to->n_rows += blocks[i]->n_rows;
        has_rows &= blocks[i]->rows != NULL;
    }
    if (!has_rows)
        return;
    struct stg_provenance *rows =
        stg_block_carve(to, (uint64_t)to->n_rows * sizeof(*rows));
    to->rows = rows;
    for (size_t i = 0; i < n; i++) {
        memcpy(rows, blocks[i]->rows, (size_t)blocks[i]->n_rows * sizeof(*rows));
        rows += blocks[i]->n_rows;
    }
}

int stg_block_gather(struct stg_quota *quota, struct stg_block *const *blocks, size_t n,
                     const char *what, struct stg_block **ret, struct stg_err *err)
{
    uint64_t bytes = stg_block_rows_room(blocks, n);
    for (uint32_t c = 0; c < blocks[0]->n_components; c++)
        bytes += stg_block_join_room(blocks, n, c);
    struct stg_block *to;
    int rc =
        stg_block_create(quota, blocks[0]->n_components, bytes, NULL, what, &to, err);
    if (rc < 0)
        return rc;
    for (uint32_t c = 0; c < to->n_components; c++)
        stg_block_join(to, c, blocks, n, c, false);
    stg_block_join_rows(to, blocks, n);
    *ret = to;
    return 0;
}

void stg_block_pack(struct stg_block *block)
{
    for (uint32_t c = 0; c < block->n_components; c++) {
        struct stg_tensor *tensor = &block->tensors[c];
        assert(tensor->ndim < STG_MAX_DIMS);
        memmove(tensor->shape + 1, tensor->shape,
                (size_t)tensor->ndim * sizeof(tensor->shape[0]));
        tensor->shape[0] = 1;
        tensor->ndim++;
    }
    block->n_records = 1;
}

void stg_block_unpack(struct stg_block *block)
{
    assert(block->n_records == 1);
    for (uint32_t c = 0; c < block->n_components; c++) {
        struct stg_tensor *tensor = &block->tensors[c];
        assert(tensor->ndim > 0 && tensor->shape[0] == 1);
        tensor->ndim--;
        memmove(tensor->shape, tensor->shape + 1,
                (size_t)tensor->ndim * sizeof(tensor->shape[0]));
    }
}
