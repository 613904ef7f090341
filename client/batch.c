/* SPDX-License-Identifier: Apache-2.0 */
#include "core/batch.h"

#include <stdio.h>
#include <string.h>

#include "client/stream.h"

int stg_batch_open(const struct stager_batch *batch)
{
    struct stager_batch *own = (struct stager_batch *)(uintptr_t)batch; /* of our pool */
    struct stg_err *err = &batch->stream->err;
    if (batch->open)
        return 0;
    int rc = stg_batch_check(batch->base, batch->bytes, false, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "batch %llu", (unsigned long long)batch->number);
    if (((const struct stg_batch_header *)batch->base)->kind != STG_BATCH_TENSORS)
        return stg_err(err, -STAGER_DATA_LOSS, "batch %llu: holds no tensors",
                       (unsigned long long)batch->number);
    own->open = true;
    return 0;
}

static int enter(const struct stager_batch *batch)
{
    int rc = stg_stream_enter(batch->stream);
    if (rc < 0)
        return rc;
    if (!batch->in_hand)
        return stg_err(&batch->stream->err, -STAGER_FAILED_PRECONDITION,
                       "this batch was released");
    return stg_batch_open(batch);
}

static uint32_t n_tensors(const struct stager_batch *batch)
{
    return ((const struct stg_batch_header *)batch->base)->n_tensors;
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

int stager_batch_tensor_at(const struct stager_batch *batch, uint32_t i,
                           struct stager_tensor *ret)
{
    int rc = enter(batch);
    if (rc < 0)
        return rc;
    if (i >= n_tensors(batch))
        return stg_err(&batch->stream->err, -STAGER_OUT_OF_RANGE,
                       "batch %llu has %u tensors, there is no tensor %u",
                       (unsigned long long)batch->number, n_tensors(batch), i);
    struct stg_tensor tensor;
    const char *name;
    stg_batch_tensor_at(batch->base, i, &tensor, &name);
    stg_tensor_show(name, &tensor, ret);
    return 0;
}

static int say_not_found(const struct stager_batch *batch, const char *name)
{
    struct stg_err *err = &batch->stream->err;
    int rc = stg_err(err, -STAGER_NOT_FOUND, "no tensor \"%s\" in batch %llu; there is",
                     name, (unsigned long long)batch->number);
    uint32_t n = n_tensors(batch);
    for (uint32_t i = 0; i < n && i < 16; i++) {
        struct stg_tensor tensor;
        const char *there;
        stg_batch_tensor_at(batch->base, i, &tensor, &there);
        stg_err_append(err, rc, "%s %s", i > 0 ? "," : "", there);
    }
    return n > 16 ? stg_err_append(err, rc, " and %u more", n - 16) : rc;
}

int stager_batch_tensor(const struct stager_batch *batch, const char *name,
                        struct stager_tensor *ret)
{
    int rc = enter(batch);
    if (rc < 0)
        return rc;
    int i = stg_batch_find(batch->base, name);
    if (i < 0)
        return say_not_found(batch, name);
    return stager_batch_tensor_at(batch, (uint32_t)i, ret);
}

void stager_batch_info(const struct stager_batch *batch, struct stager_batch_info *ret)
{
    *ret = (struct stager_batch_info){
        .number = batch->number,
        .bytes = batch->bytes,
        .assigned_ns = batch->assigned_ns,
        .redelivered = batch->redelivered,
    };
    if (enter(batch) < 0)
        return;
    const struct stg_batch_header *header = batch->base;
    ret->generation = header->generation;
    ret->pass = header->pass;
    ret->epoch = header->epoch;
    ret->index = header->index;
    ret->n_dropped = header->n_dropped;
    ret->n_rows = header->n_rows;
    ret->n_tensors = header->n_tensors;
}
