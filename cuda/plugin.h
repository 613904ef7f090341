/* SPDX-License-Identifier: Apache-2.0
 *
 * The one symbol of libstager-cuda.so (STG_DEVICE_SYMBOL in core/device.h).
 */
#ifndef STG_CUDA_PLUGIN_H
#define STG_CUDA_PLUGIN_H

#include "core/device.h"

/* The table; it lives as long as the library is loaded. Any thread. */
__attribute__((visibility("default"))) const struct stg_device *stg_cuda_device(void);

#endif
