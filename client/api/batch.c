/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch in hand, as the trainer sees it.
 */
#include <stdio.h>

#include "client/device/copier.h"
#include "client/stager.h"
#include "client/stream/stream.h"
#include "client/stream/view.h"
#include "client/transport/sized.h"
#include "core/batch.h"

static int check_in_hand(const struct stager_batch *batch)
{
    int rc = stg_stream_enter(batch->stream);
    return rc < 0 || batch->in_hand
               ? rc
               : stg_err(stg_stream_err(batch->stream), -STAGER_FAILED_PRECONDITION,
                         "this batch was released");
}

static int enter(const struct stager_batch *batch)
{
    int rc = check_in_hand(batch);
    return rc < 0 ? rc
                  : stg_leased_open(batch->stream, batch->leased,
                                    stg_stream_err(batch->stream));
}

int stager_batch_tensor_at(const struct stager_batch *batch, uint32_t i,
                           struct stager_tensor *ret)
{
    int rc = enter(batch);
    if (rc < 0)
        return rc;
    uint32_t n = stg_batch_n_shown(batch);
    if (i >= n)
        return stg_err(stg_stream_err(batch->stream), -STAGER_OUT_OF_RANGE,
                       "batch %llu has %u tensors: index %u is out of range",
                       (unsigned long long)batch->leased->number, n, i);
    struct stg_tensor tensor;
    const char *name;
    uint32_t at = stg_batch_shown(batch, i);
    stg_batch_view(batch, at, &tensor, &name);
    stg_tensor_show(name, &tensor, ret);
    ret->part = stg_batch_part(batch->leased->base, at);
    if (batch->stream->copier != NULL)
        stg_copier_show(batch, ret);
    return 0;
}

static int say_not_found(const struct stager_batch *batch, const char *name)
{
    struct stg_err *err = stg_stream_err(batch->stream);
    if (stg_stream_is_left_out(batch->stream, name))
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "tensor \"%s\" is not in the batches of this stream: add it to "
                       "the `fields` with which the stream is opened",
                       name);
    int rc =
        stg_err(err, -STAGER_NOT_FOUND, "no tensor \"%s\" in batch %llu; the batch has",
                name, (unsigned long long)batch->leased->number);
    uint32_t n = stg_batch_n_shown(batch);
    for (uint32_t i = 0; i < n && i < 16; i++) {
        struct stg_tensor tensor;
        const char *there;
        stg_batch_view(batch, stg_batch_shown(batch, i), &tensor, &there);
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
    int i = stg_batch_find_shown(batch, name);
    if (i < 0)
        return say_not_found(batch, name);
    return stager_batch_tensor_at(batch, (uint32_t)i, ret);
}

/* ---- features of several tensors ---- */

/* Tensor `name` below `path` whose part is `part`. */
static int find_part(const struct stager_batch *batch, const char *path, const char *name,
                     uint32_t part, uint32_t *ret)
{
    struct stg_err *err = stg_stream_err(batch->stream);
    char full[512];
    snprintf(full, sizeof(full), "%s%s%s", path, path[0] != '\0' ? "/" : "", name);
    int i = stg_batch_find_shown(batch, full);
    if (i < 0)
        return say_not_found(batch, full);
    if (stg_batch_part(batch->leased->base, stg_batch_shown(batch, (uint32_t)i)) != part)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "tensor \"%s\" of batch %llu is a whole feature, not part of one",
                       full, (unsigned long long)batch->leased->number);
    *ret = (uint32_t)i;
    return 0;
}

/* What stg_batch_open does not look at, because it takes time: their content. */
static int check_content(const struct stager_batch *batch)
{
    struct stg_err why = {0};
    if (stg_batch_check_parts(batch->leased->base, true, &why) == 0)
        return 0;
    return stg_err(stg_stream_err(batch->stream), -STAGER_DATA_LOSS,
                   "batch %llu is damaged: %s", (unsigned long long)batch->leased->number,
                   why.text);
}

int stager_batch_sparse(const struct stager_batch *batch, const char *path,
                        struct stager_sparse *ret)
{
    uint32_t i;
    int rc = enter(batch);
    if (rc == 0)
        rc = find_part(batch, path, "indices", STG_PART_INDICES, &i);
    if (rc == 0)
        rc = check_content(batch);
    if (rc < 0)
        return rc;
    stager_batch_tensor_at(batch, i - 1, &ret->values);
    stager_batch_tensor_at(batch, i, &ret->indices);
    stager_batch_tensor_at(batch, i + 1, &ret->dense_shape);
    return 0;
}

int stager_batch_ragged(const struct stager_batch *batch, const char *path,
                        struct stager_ragged *ret)
{
    uint32_t i;
    int rc = enter(batch);
    if (rc == 0)
        rc = find_part(batch, path, "row_splits", STG_PART_ROW_SPLITS, &i);
    if (rc == 0)
        rc = check_content(batch);
    if (rc < 0)
        return rc;
    stager_batch_tensor_at(batch, i - 1, &ret->values);
    stager_batch_tensor_at(batch, i, &ret->row_splits);
    return 0;
}

/* ---- what a batch says of itself ---- */

static void look_inside(const struct stager_batch *batch, struct stager_batch_info *ret)
{
    const struct stg_batch_header *header = batch->leased->base;
    bool is_slice = batch->stream->batch_size != 0;
    ret->generation = header->generation;
    ret->run_id = header->run_id;
    ret->pass = header->pass;
    ret->epoch = header->epoch;
    ret->index = header->index;
    ret->n_dropped = header->n_dropped;
    ret->n_rows = is_slice ? (uint64_t)batch->n_rows : header->n_rows;
    ret->feed_version = header->feed_version;
    ret->n_tensors = stg_batch_n_shown(batch);
}

int stager_batch_info(const struct stager_batch *batch, struct stager_batch_info *ret)
{
    const struct stg_leased *leased = batch->leased;
    bool is_slice = batch->stream->batch_size != 0;
    struct stager_batch_info info = {
        .number = leased->number,
        .bytes = leased->bytes,
        .assigned_ns = leased->assigned_ns,
        .redelivered = leased->redelivered,
        .slice = batch->slice,
        .n_slices = is_slice ? leased->n_slices : 1,
        .position = leased->elements,
    };
    if (enter(batch) == 0)
        look_inside(batch, &info);
    return stg_sized_write(&info, STG_SIZE_TO(stager_batch_info, run_id), sizeof(info),
                           "stager_batch_info", ret, stg_stream_err(batch->stream));
}

/* ---- when it is on the device ---- */

static int enter_device(const struct stager_batch *batch)
{
    struct stager_stream *stream = batch->stream;
    int rc = check_in_hand(batch);
    if (rc == 0 && stream->copier == NULL)
        rc = stg_err(stg_stream_err(stream), -STAGER_FAILED_PRECONDITION,
                     "this batch is in host memory: open the stream with a device");
    return rc;
}

int stager_batch_event(const struct stager_batch *batch, void **ret)
{
    int rc = enter_device(batch);
    if (rc < 0)
        return rc;
    *ret = stg_copier_event(batch);
    return 0;
}

int stager_batch_wait(const struct stager_batch *batch, void *device_stream)
{
    int rc = enter_device(batch);
    return rc < 0 ? rc : stg_copier_wait(batch, device_stream);
}
