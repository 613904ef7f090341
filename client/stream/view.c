/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream/view.h"

#include <string.h>

#include "client/stream/field.h"

int stg_lent_open(struct stager_stream *stream, struct stg_lent *lent,
                  struct stg_err *err)
{
    if (lent->open)
        return 0;
    int rc = stg_batch_check(lent->base, lent->bytes, false, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "batch %llu", (unsigned long long)lent->number);
    if (((const struct stg_batch_header *)lent->base)->kind != STG_BATCH_TENSORS)
        return stg_err(err, -STAGER_DATA_LOSS, "batch %llu: holds no tensors",
                       (unsigned long long)lent->number);
    rc = stg_lent_place(stream, lent, err);
    lent->open = rc == 0;
    return rc;
}

/* The slice's part of a tensor of the staged batch. */
static void cut(const struct stg_slice_window *window, struct stg_tensor *tensor)
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
    stg_batch_tensor_at(batch->lent->base, i, ret, ret_name);
    if (i < batch->n_windows)
        cut(&batch->windows[i], ret);
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
