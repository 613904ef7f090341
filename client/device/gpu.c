/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "client/stager.h"
#include "client/transport/connect.h"
#include "client/transport/sized.h"
#include "core/device.h"

static int look(int device, struct stager_gpu_info *ret, struct stg_err *err)
{
    const struct stg_device *cuda;
    struct stg_device_facts facts;
    int n = 0;
    int rc = stg_device_cuda(NULL, &cuda, err);
    if (rc == 0)
        rc = cuda->count(&n, err);
    if (rc == 0 && (device < 0 || device >= n))
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT,
                     "GPU %d does not exist: this process sees %d, numbered from 0",
                     device, n);
    if (rc == 0)
        rc = cuda->facts(device, &facts, err);
    if (rc < 0)
        return rc;
    struct stager_gpu_info info = {
        .major = facts.major,
        .minor = facts.minor,
        .memory_bytes = facts.memory_bytes,
        .driver = facts.driver,
        .runtime = facts.runtime,
        .n_devices = (uint32_t)n,
        .register_read_only = facts.register_read_only,
        .ipc = facts.ipc,
        .memory_fds = facts.memory_fds,
        .mps = facts.mps,
    };
    snprintf(info.name, sizeof(info.name), "%s", facts.name);
    return stg_sized_write(&info, STG_SIZE_TO(stager_gpu_info, reserved0), sizeof(info),
                           "stager_gpu_info", ret, err);
}

int stager_gpu(int device, struct stager_gpu_info *ret)
{
    struct stg_err *err = stg_client_err();
    *err = (struct stg_err){0};
    return look(device, ret, err);
}
