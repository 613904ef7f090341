/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/slice.h"

#include <stdlib.h>
#include <string.h>

/* Returns the number of elements in one record. */
static int64_t record_n(const struct stg_tensor *tensor)
{
    int64_t n = 1;
    for (int d = 1; d < tensor->ndim; d++)
        n *= tensor->shape[d];
    return n;
}

/* Returns the rows of a slice. In a slice that is a whole block, a record may have
 * several rows; in any other slice, it has one. */
static int64_t slice_rows(const struct stg_slice *slice)
{
    return slice->n == slice->block->n_records ? slice->block->n_rows : slice->n;
}

/* ---- gather: concatenation by record ---- */

/* The strings of one component of a slice. */
struct strings {
    const char *data;
    const int64_t *begin, *end;
    int64_t n;
};

static struct strings strings_of(const struct stg_slice *slice, uint32_t c)
{
    const struct stg_tensor *tensor = &slice->block->tensors[c];
    int64_t each = record_n(tensor);
    return (struct strings){.data = tensor->data,
                            .begin = tensor->begin + slice->first * each,
                            .end = tensor->end + slice->first * each,
                            .n = slice->n * each};
}

/* The bytes to reserve for strings: the sum of their lengths. If they lie so close
 * together that one copy is faster than many: the whole span between the first and the
 * last. */
struct span {
    uint64_t bytes;
    int64_t first; /* offset of the span; -1: copy string by string */
};

static struct span span_of(const struct strings *from)
{
    struct span span = {.first = -1};
    bool rising = true;
    for (int64_t i = 0; i < from->n; i++) {
        span.bytes += (uint64_t)(from->end[i] - from->begin[i]);
        rising &= i == 0 || from->begin[i] >= from->end[i - 1];
    }
    if (from->n == 0 || !rising)
        return span;
    uint64_t whole = (uint64_t)(from->end[from->n - 1] - from->begin[0]);
    if (whole - span.bytes <= 4 * (uint64_t)from->n) {
        span.first = from->begin[0];
        span.bytes = whole;
    }
    return span;
}

static uint64_t record_bytes(const struct stg_tensor *tensor)
{
    return (uint64_t)record_n(tensor) * stg_dtype_bytes(tensor->dtype);
}

/* Returns the bytes to carve for component c of all slices. */
static uint64_t component_room(const struct stg_slice *slices, size_t n, uint32_t c)
{
    uint64_t data = 0, count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct stg_tensor *tensor = &slices[i].block->tensors[c];
        if (tensor->dtype != STAGER_STRING) {
            data += (uint64_t)slices[i].n * record_bytes(tensor);
            continue;
        }
        struct strings strings = strings_of(&slices[i], c);
        data += span_of(&strings).bytes;
        count += (uint64_t)strings.n;
    }
    return stg_block_room(data) + 2 * stg_block_room(count * sizeof(int64_t));
}

static void append_strings(const struct strings *from, char *data, uint64_t *used,
                           int64_t *begin, int64_t *end)
{
    struct span span = span_of(from);
    if (span.first >= 0) {
        int64_t shift = (int64_t)*used - span.first;
        memcpy(data + *used, from->data + span.first, span.bytes);
        for (int64_t i = 0; i < from->n; i++) {
            begin[i] = from->begin[i] + shift;
            end[i] = from->end[i] + shift;
        }
        *used += span.bytes;
        return;
    }
    for (int64_t i = 0; i < from->n; i++) {
        uint64_t bytes = (uint64_t)(from->end[i] - from->begin[i]);
        begin[i] = (int64_t)*used;
        memcpy(data + *used, from->data + from->begin[i], bytes);
        *used += bytes;
        end[i] = (int64_t)*used;
    }
}

static void gather_strings(const struct stg_slice *slices, size_t n, uint32_t c,
                           char *data, int64_t *begin, int64_t *end)
{
    uint64_t used = 0;
    for (size_t i = 0; i < n; i++) {
        struct strings strings = strings_of(&slices[i], c);
        append_strings(&strings, data, &used, begin, end);
        begin += strings.n;
        end += strings.n;
    }
}

static void gather_dense(const struct stg_slice *slices, size_t n, uint32_t c, char *data)
{
    uint64_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const struct stg_tensor *from = &slices[i].block->tensors[c];
        uint64_t each = record_bytes(from), bytes = (uint64_t)slices[i].n * each;
        memcpy(data + used, (const char *)from->data + (uint64_t)slices[i].first * each,
               bytes);
        used += bytes;
    }
}

/* Returns the bytes of component c in all slices together. */
static uint64_t data_bytes(const struct stg_slice *slices, size_t n, uint32_t c)
{
    uint64_t data = 0;
    for (size_t i = 0; i < n; i++) {
        const struct stg_tensor *tensor = &slices[i].block->tensors[c];
        struct strings strings;
        if (tensor->dtype != STAGER_STRING) {
            data += (uint64_t)slices[i].n * record_bytes(tensor);
            continue;
        }
        strings = strings_of(&slices[i], c);
        data += span_of(&strings).bytes;
    }
    return data;
}

static void gather_component(const struct stg_slice *slices, size_t n, uint32_t c,
                             struct stg_block *to)
{
    struct stg_tensor *tensor = &to->tensors[c];
    *tensor = slices[0].block->tensors[c];
    tensor->shape[0] = to->n_records;
    tensor->data_bytes = data_bytes(slices, n, c);
    tensor->data = stg_block_carve(to, tensor->data_bytes);
    if (tensor->dtype != STAGER_STRING) {
        gather_dense(slices, n, c, tensor->data);
        return;
    }
    uint64_t bytes = (uint64_t)stg_tensor_n(tensor) * sizeof(int64_t);
    int64_t *begin = stg_block_carve(to, bytes), *end = stg_block_carve(to, bytes);
    gather_strings(slices, n, c, tensor->data, begin, end);
    tensor->begin = begin;
    tensor->end = end;
}

static void gather_rows(const struct stg_slice *slices, size_t n, struct stg_block *to)
{
    struct stg_provenance *rows =
        stg_block_carve(to, (uint64_t)to->n_rows * sizeof(*rows));
    to->rows = rows;
    for (size_t i = 0; i < n; i++) {
        int64_t count = slice_rows(&slices[i]);
        memcpy(rows, slices[i].block->rows + slices[i].first,
               (size_t)count * sizeof(*rows));
        rows += count;
    }
}

int stg_slices_gather(struct stg_quota *quota, const struct stg_slice *slices, size_t n,
                      const char *what, struct stg_block **ret, struct stg_err *err)
{
    const struct stg_block *first = slices[0].block;
    uint64_t bytes = 0;
    int64_t n_records = 0, n_rows = 0;
    bool has_rows = true;
    for (uint32_t c = 0; c < first->n_components; c++)
        bytes += component_room(slices, n, c);
    for (size_t i = 0; i < n; i++) {
        n_records += slices[i].n;
        n_rows += slice_rows(&slices[i]);
        has_rows &= slices[i].block->rows != NULL;
    }
    if (has_rows)
        bytes += stg_block_room((uint64_t)n_rows * sizeof(struct stg_provenance));
    struct stg_block *to;
    int rc = stg_block_create(quota, first->n_components, bytes, NULL, what, &to, err);
    if (rc < 0)
        return rc;
    to->n_records = n_records;
    to->n_rows = n_rows;
    to->epoch = first->epoch;
    for (uint32_t c = 0; c < to->n_components; c++)
        gather_component(slices, n, c, to);
    if (has_rows)
        gather_rows(slices, n, to);
    *ret = to;
    return 0;
}

/* ---- join: components side by side ---- */

struct joined {
    struct stg_block block;
    struct stg_quota *quota;
    struct stg_block **parents; /* allocated after the tensors */
    size_t n_parents;
    struct stg_tensor tensors[];
};

static void joined_destroy(struct stg_block *block)
{
    struct joined *joined = block->owner;
    struct stg_quota *quota = joined->quota;
    stg_ahead_unref(block->ahead);
    for (size_t i = 0; i < joined->n_parents; i++)
        stg_block_unref(joined->parents[i]);
    stg_quota_give(quota, block->bytes);
    free(joined);
    stg_quota_unref(quota);
}

static int joined_create(struct stg_quota *quota, const struct stg_slice *slices,
                         size_t n, const char *what, struct joined **ret,
                         struct stg_err *err)
{
    uint32_t n_components = 0;
    for (size_t i = 0; i < n; i++)
        n_components += slices[i].block->n_components;
    uint64_t bytes = sizeof(struct joined) + n_components * sizeof(struct stg_tensor) +
                     n * sizeof(struct stg_block *);
    int rc = stg_quota_take(quota, bytes, what, err);
    if (rc < 0)
        return rc;
    struct joined *joined = calloc(1, bytes);
    if (joined == NULL) {
        stg_quota_give(quota, bytes);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", what);
    }
    joined->quota = stg_quota_ref(quota);
    joined->parents = (struct stg_block **)(joined->tensors + n_components);
    joined->n_parents = n;
    for (size_t i = 0; i < n; i++)
        joined->parents[i] = stg_block_ref(slices[i].block);
    joined->block = (struct stg_block){.refs = 1,
                                       .n_components = n_components,
                                       .tensors = joined->tensors,
                                       .bytes = bytes,
                                       .destroy = joined_destroy,
                                       .owner = joined};
    *ret = joined;
    return 0;
}

/* Returns the slice whose rows describe the joined block: the first one that has row
 * provenance, else the first one. */
static const struct stg_slice *slice_with_rows(const struct stg_slice *slices, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (slices[i].block->rows != NULL)
            return &slices[i];
    }
    return slices;
}

int stg_slices_join(struct stg_quota *quota, const struct stg_slice *slices, size_t n,
                    const char *what, struct stg_block **ret, struct stg_err *err)
{
    struct joined *joined = NULL;
    int rc = joined_create(quota, slices, n, what, &joined, err);
    if (rc < 0)
        return rc;
    struct stg_block *block = &joined->block;
    struct stg_tensor *to = block->tensors;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < slices[i].block->n_components; c++, to++)
            *to = stg_tensor_records(&slices[i].block->tensors[c], slices[i].first,
                                     slices[i].n);
    }
    const struct stg_slice *rows = slice_with_rows(slices, n);
    block->n_records = slices[0].n;
    block->n_rows = slice_rows(rows);
    block->rows = rows->block->rows != NULL ? rows->block->rows + rows->first : NULL;
    block->epoch = slices[0].block->epoch;
    *ret = block;
    return 0;
}
