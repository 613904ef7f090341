/* SPDX-License-Identifier: Apache-2.0
 *
 * The first values of a published batch: the reply `tap`.
 */
#include <string.h>

#include "proto/wire_parts.h"

#define NUMBERS(F)                                                                       \
    F(number), F(pass), F(epoch), F(index), F(rows), F(bytes), F(n_left_out)
#define TENSOR_NUMBERS(F) F(part), F(shortened)

static void tensor_fill(const struct stg_tap_tensor *from, Stager__TapTensor *to)
{
    stager__tap_tensor__init(to);
    to->name = stg_wire_required(from->name);
    to->dtype = (uint32_t)from->dtype;
    TENSOR_NUMBERS(STG_PUT_NUMBER);
    to->n_shape = (size_t)from->ndim;
    to->shape = (int64_t *)(uintptr_t)from->shape;
    to->has_data = from->data_bytes > 0;
    to->data.len = from->data_bytes;
    to->data.data = (uint8_t *)(uintptr_t)from->data;
    to->n_offset = from->n_offsets;
    to->offset = (int64_t *)(uintptr_t)from->offsets;
}

int stg_wire_tap_fill(const struct stg_tap_batch *from, struct stg_bump *bump,
                      Stager__TapReply **ret)
{
    Stager__TapReply *to = stg_bump_alloc(bump, sizeof(*to));
    Stager__TapTensor **tensors =
        stg_wire_messages(bump, from->n, sizeof(Stager__TapTensor));
    if (to == NULL || tensors == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__tap_reply__init(to);
    NUMBERS(STG_PUT_NUMBER);
    for (size_t i = 0; i < from->n; i++)
        tensor_fill(&from->tensors[i], tensors[i]);
    to->tensor = tensors;
    to->n_tensor = from->n;
    *ret = to;
    return 0;
}

/* Returns whether the offsets divide the data into strings, or the data are whole
 * elements.
 */
static bool data_are_right(const Stager__TapTensor *from)
{
    size_t bytes = stg_dtype_bytes((int)from->dtype);
    if (from->dtype != STAGER_STRING)
        return from->n_offset == 0 && bytes > 0 && from->data.len % bytes == 0;
    if (from->n_offset == 0 || from->offset[0] != 0)
        return false;
    for (size_t i = 1; i < from->n_offset; i++) {
        if (from->offset[i] < from->offset[i - 1])
            return false;
    }
    return (uint64_t)from->offset[from->n_offset - 1] == from->data.len;
}

static int tensor_take(const Stager__TapTensor *from, struct stg_bump *bump,
                       struct stg_tap_tensor *ret, struct stg_err *err)
{
    bool is_right = from->n_shape <= STG_MAX_DIMS && from->dtype <= INT32_MAX &&
                    strcmp(stg_dtype_name((int)from->dtype), "invalid") != 0 &&
                    from->part <= STG_PART_DENSE_SHAPE && data_are_right(from);
    if (!is_right)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: tap.tensor: dtype, shape and data contradict "
                       "each other");
    *ret = (struct stg_tap_tensor){.name = from->name,
                                   .dtype = (int)from->dtype,
                                   .ndim = (int)from->n_shape,
                                   .data_bytes = from->data.len,
                                   .offsets = from->offset,
                                   .n_offsets = from->n_offset};
    TENSOR_NUMBERS(STG_TAKE_NUMBER);
    for (size_t i = 0; i < from->n_shape; i++)
        ret->shape[i] = from->shape[i];
    void *data = stg_bump_alloc(bump, from->data.len + 1); /* aligned */
    if (data == NULL)
        return stg_wire_fail_memory(err);
    if (from->data.len > 0)
        memcpy(data, from->data.data, from->data.len);
    ret->data = data;
    return 0;
}

int stg_wire_tap_take(const Stager__TapReply *from, struct stg_bump *bump,
                      struct stg_tap_batch *ret, struct stg_err *err)
{
    *ret = (struct stg_tap_batch){.n = from->n_tensor};
    NUMBERS(STG_TAKE_NUMBER);
    ret->tensors = stg_bump_alloc(bump, from->n_tensor * sizeof(*ret->tensors));
    if (ret->tensors == NULL)
        return stg_wire_fail_memory(err);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->n_tensor; i++)
        rc = tensor_take(from->tensor[i], bump, &ret->tensors[i], err);
    return rc;
}
