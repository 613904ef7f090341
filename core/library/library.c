/* SPDX-License-Identifier: Apache-2.0 */
#include "core/library/library.h"

#include <dlfcn.h>
#include <stddef.h>

#include "core/status.h"

int stg_library_open(const struct stg_library *library, void **ret, struct stg_err *err)
{
    void *handle = dlopen(library->soname, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "this program needs %s for %s (Debian's package %s): %s",
                       library->soname, library->purpose, library->package, dlerror());
    *ret = handle;
    return 0;
}

int stg_library_find(const struct stg_library *library, void *handle, const char *name,
                     void *ret, struct stg_err *err)
{
    void *function = dlsym(handle, name);
    if (function == NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s of this machine has no %s: this program needs a newer one for "
                       "%s",
                       library->soname, name, library->purpose);
    *(void **)ret = function;
    return 0;
}
