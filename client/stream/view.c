/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream/view.h"

#include <stdlib.h>
#include <string.h>

#include "core/batch.h"

/* ---- at open ---- */

static int pick(struct stager_stream *stream, const struct stager_options *options,
                bool *picked, struct stg_err *err)
{
    for (size_t i = 0; i < options->n_fields; i++) {
        if (options->fields[i] == NULL ||
            !stg_schema_pick(&stream->boundary, options->fields[i], picked))
            return stg_err(
                err, -STAGER_INTERNAL,
                "stagerd accepted field %zu, but pipeline %s has no feature of that name",
                i, stream->name);
    }
    return 0;
}

int stg_fields_init(struct stager_stream *stream, const struct stager_options *options,
                    struct stg_err *err)
{
    size_t n = stream->boundary.n;
    stream->has_fields = options->fields != NULL;
    stream->n_all = (uint32_t)(n + stream->slots.n);
    bool *picked = calloc(n + 1, sizeof(*picked));
    stream->shown = stg_bump_alloc(&stream->bump, (n + 1) * sizeof(*stream->shown));
    stream->places = calloc((size_t)stream->max_in_flight * stream->n_all + 1,
                            sizeof(*stream->places));
    int rc = 0;
    if (picked == NULL || stream->shown == NULL || stream->places == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    else if (stream->has_fields)
        rc = pick(stream, options, picked, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        if (picked[i] || !stream->has_fields)
            stream->shown[stream->n_shown++] = i;
    }
    free(picked);
    return rc;
}

/* ---- of a batch ---- */

static const char *name_of(const struct stager_stream *stream, uint32_t i)
{
    size_t n = stream->boundary.n;
    return i < n ? stream->boundary.components[i].name
                 : stream->slots.components[i - n].name;
}

const uint32_t *stg_leased_places(const struct stager_stream *stream,
                                  const struct stg_leased *leased)
{
    return leased->is_placed
               ? stream->places + (size_t)(leased - stream->leases) * stream->n_all
               : NULL;
}

/* Finds out where its tensors lie: both lists are in one order. DATA_LOSS. */
static int place(struct stager_stream *stream, struct stg_leased *leased,
                 struct stg_err *err)
{
    const struct stg_batch_header *header = leased->base;
    uint32_t *places = stream->places + (size_t)(leased - stream->leases) * stream->n_all;
    uint32_t n = header->n_tensors, at = 0;
    if (!stream->has_fields && header->partition == 0)
        return 0;
    for (uint32_t i = 0; i < stream->n_all; i++) {
        struct stg_tensor tensor;
        const char *name = "";
        if (at < n)
            stg_batch_tensor_at(leased->base, at, &tensor, &name);
        bool is_here = at < n && strcmp(name, name_of(stream, i)) == 0;
        places[i] = is_here ? at++ : STG_NO_PLACE;
    }
    for (uint32_t k = 0; k < stream->n_shown; k++) {
        if (places[stream->shown[k]] == STG_NO_PLACE)
            return stg_err(err, -STAGER_DATA_LOSS, "batch %llu lacks the feature %s",
                           (unsigned long long)leased->number,
                           name_of(stream, stream->shown[k]));
    }
    leased->is_placed = true;
    return 0;
}

/* ---- what the trainer sees of it ---- */

uint32_t stg_batch_n_shown(const struct stager_batch *batch)
{
    const struct stg_batch_header *header = batch->leased->base;
    return batch->leased->is_placed ? batch->stream->n_shown : header->n_tensors;
}

uint32_t stg_batch_shown(const struct stager_batch *batch, uint32_t i)
{
    const uint32_t *places = stg_leased_places(batch->stream, batch->leased);
    return places != NULL ? places[batch->stream->shown[i]] : i;
}

int stg_batch_find_shown(const struct stager_batch *batch, const char *name)
{
    const struct stager_stream *stream = batch->stream;
    if (!batch->leased->is_placed)
        return stg_batch_find(batch->leased->base, name);
    for (uint32_t i = 0; i < stream->n_shown; i++) {
        if (strcmp(name_of(stream, stream->shown[i]), name) == 0)
            return (int)i;
    }
    return -1;
}

bool stg_stream_is_left_out(const struct stager_stream *stream, const char *name)
{
    for (uint32_t i = 0; stream->has_fields && i < stream->boundary.n; i++) {
        if (strcmp(name_of(stream, i), name) == 0)
            return true;
    }
    return false;
}

int stg_leased_open(struct stager_stream *stream, struct stg_leased *leased,
                    struct stg_err *err)
{
    if (leased->open)
        return 0;
    int rc = stg_batch_check(leased->base, leased->bytes, false, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "batch %llu", (unsigned long long)leased->number);
    if (((const struct stg_batch_header *)leased->base)->kind != STG_BATCH_TENSORS)
        return stg_err(err, -STAGER_DATA_LOSS, "batch %llu holds no tensors",
                       (unsigned long long)leased->number);
    rc = place(stream, leased, err);
    leased->open = rc == 0;
    return rc;
}

/* The slice's part of a tensor of the staged batch. */
static void slice_tensor(const struct stg_slice_window *window, struct stg_tensor *tensor)
{
    if (window->n < 0)
        return;
    tensor->shape[0] = window->n;
    if (window->own != NULL) {
        tensor->data = (void *)(uintptr_t)window->own;
        tensor->data_bytes =
            (uint64_t)(window->n * window->width) * sizeof(window->own[0]);
        return;
    }
    int64_t width = 1;
    for (int i = 1; i < tensor->ndim; i++)
        width *= tensor->shape[i];
    if (tensor->dtype == STAGER_STRING) {
        tensor->begin += window->first * width;
        tensor->end += window->first * width;
        return;
    }
    uint64_t bytes = (uint64_t)width * stg_dtype_bytes(tensor->dtype);
    tensor->data = (char *)tensor->data + (uint64_t)window->first * bytes;
    tensor->data_bytes = (uint64_t)window->n * bytes;
}

void stg_batch_view(const struct stager_batch *batch, uint32_t i, struct stg_tensor *ret,
                    const char **ret_name)
{
    stg_batch_tensor_at(batch->leased->base, i, ret, ret_name);
    if (i < batch->n_windows)
        slice_tensor(&batch->windows[i], ret);
}

void stg_tensor_show(const char *name, const struct stg_tensor *tensor,
                     struct stager_tensor *ret)
{
    *ret = (struct stager_tensor){
        .name = name,
        .dtype = tensor->dtype,
        .ndim = tensor->ndim,
        .data = tensor->data,
        .data_bytes = tensor->data_bytes,
        .offsets = tensor->begin,
    };
    memcpy(ret->shape, tensor->shape, (size_t)tensor->ndim * sizeof(ret->shape[0]));
}
