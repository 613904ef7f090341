/* SPDX-License-Identifier: Apache-2.0
 *
 * From the runtime's errors to ours.
 */
#ifndef STG_CUDA_ERROR_H
#define STG_CUDA_ERROR_H

#include "core/err.h"

/* error: a cudaError_t. Fills err with "cuda: WHAT: reason", clears the runtime's last
 * error, and returns the negative status code: UNAVAILABLE for everything that means "no
 * GPU here". */
int stg_cuda_error(int error, const char *what, struct stg_err *err);

#endif
