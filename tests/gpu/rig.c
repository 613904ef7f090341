/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/rig.h"

#include <stdlib.h>

#include "core/status.h"

/* stager wraps the default stream as any other, and the default stream of a trainer is
 * what most of them work on. */
int rig_open(struct rig *rig, struct stg_err *err)
{
    const char *dir = getenv("STG_CUDA_DIR");
    int n = 0;
    *rig = (struct rig){0};
    if (dir == NULL || dir[0] == '\0')
        return stg_err(err, -STAGER_UNAVAILABLE, "built without CUDA");
    int rc = stg_device_cuda(dir, &rig->device, err);
    if (rc == 0)
        rc = rig->device->count(&n, err);
    if (rc == 0)
        rc = rig->device->stream_wrap(0, rig_native(rig), &rig->stream, err);
    if (rc == 0)
        rc = rig->device->event_create(0, &rig->event, err);
    return rc;
}

void rig_close(struct rig *rig)
{
    rig->device->event_destroy(rig->event);
    rig->device->stream_destroy(rig->stream);
}

void *rig_native(const struct rig *rig)
{
    return NULL;
}

int rig_wait(const struct rig *rig, struct stg_err *err)
{
    int rc = rig->device->event_record(rig->event, rig->stream, err);
    return rc == 0 ? rig->device->event_wait(rig->event, err) : rc;
}
