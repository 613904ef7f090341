/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin that stg_device_cuda must refuse or accept: FAKE_ABI, FAKE_BYTES, FAKE_NULL,
 * or an empty library (FAKE_EMPTY).
 */
#include "core/device.h"

#ifdef FAKE_EMPTY
__attribute__((visibility("default"))) const int stg_something_else = 1;
#else
__attribute__((visibility("default"))) const struct stg_device *stg_cuda_device(void);

static const struct stg_device table = {
    .abi = FAKE_ABI, .struct_bytes = FAKE_BYTES, .name = "fake"};

const struct stg_device *stg_cuda_device(void)
{
    return FAKE_NULL ? NULL : &table;
}
#endif
