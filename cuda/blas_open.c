/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stddef.h>

#include "cuda/blas.h"

/* A framework's own, which is not in the linker's path, has that name once it is loaded.
 */
void *stg_cuda_blas_open(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    static const int modes[] = {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW};
    void *library = NULL;
    for (size_t i = 0; i < 4 && library == NULL; i++)
        library = dlopen(names[i % 2], modes[i / 2] | RTLD_LOCAL);
    return library;
}
