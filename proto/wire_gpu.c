/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory on a GPU that clients of a pipeline share, in replies.
 */
#include "core/status.h"
#include "proto/wire_parts.h"

void stg_wire_gpu_open_fill(const struct stg_reply *from, Stager__OpenReply *to)
{
    STG_PUT(to, device_bytes, from->device_bytes);
    STG_PUT(to, device_number, from->device_number);
    to->has_device_uuid = from->device_uuid != NULL;
    if (from->device_uuid != NULL)
        to->device_uuid = (ProtobufCBinaryData){
            .len = STG_WIRE_UUID_BYTES, .data = (uint8_t *)(uintptr_t)from->device_uuid};
}

int stg_wire_gpu_open_take(const Stager__OpenReply *from, struct stg_reply *ret,
                           struct stg_err *err)
{
    if (from->device_bytes == 0)
        return 0;
    if (from->device_uuid.len != STG_WIRE_UUID_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: the UUID of a device has %zu bytes, not %d",
                       from->device_uuid.len, STG_WIRE_UUID_BYTES);
    ret->device_bytes = from->device_bytes;
    ret->device_number = from->device_number;
    ret->device_uuid = from->device_uuid.data;
    return 0;
}

void stg_wire_gpu_status_fill(const struct stg_pipeline_status *from,
                              Stager__StatusReply *to)
{
    to->gpu = stg_wire_optional(from->gpu);
    to->gpu_why = stg_wire_optional(from->gpu_why);
    STG_PUT(to, gpu_copies, from->gpu_copies);
}

void stg_wire_gpu_status_take(const Stager__StatusReply *from,
                              struct stg_pipeline_status *ret)
{
    ret->gpu = stg_wire_taken(from->gpu);
    ret->gpu_why = stg_wire_taken(from->gpu_why);
    ret->gpu_copies = from->gpu_copies;
}
