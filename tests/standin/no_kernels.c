/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/standin/standin.h"

const struct stg_device_kernels *const standin_kernels;
