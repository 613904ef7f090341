/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the driver that the runtime has not got. The driver is not linked: they are
 * found when they are wanted.
 */
#ifndef STG_CUDA_DRIVER_H
#define STG_CUDA_DRIVER_H

#include <stddef.h>

#include "core/err.h"

struct stg_cuda_call {
    const char *name; /* "cuMemCreate" */
    void *at;         /* of a pointer to such a function, which is set */
};

/* Finds them as drivers of CUDA 12.0 have them, the oldest that this runtime works with.
 * Makes no context. UNIMPLEMENTED names the one that is not there. */
int stg_cuda_find_calls(const struct stg_cuda_call *calls, size_t n, struct stg_err *err);

/* result: a CUresult, whose numbers are those of the runtime. As stg_cuda_error; 0 is 0.
 */
int stg_cuda_check(int result, const char *what, struct stg_err *err);

#endif
