/* SPDX-License-Identifier: Apache-2.0
 *
 * libstager-compute.so, for who computes.
 */
#include "client/run/load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "client/stager.h"

static void *load_library(struct stg_err *err)
{
    Dl_info info;
    char path[4096];
    path[0] = '\0';
    if (dladdr((void *)(uintptr_t)stager_version, &info) != 0 && info.dli_fname != NULL) {
        const char *slash = strrchr(info.dli_fname, '/');
        if (slash != NULL)
            snprintf(path, sizeof(path), "%.*s/" STG_COMPUTE_LIBRARY,
                     (int)(slash - info.dli_fname), info.dli_fname);
    }
    void *library = path[0] != '\0' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        library = dlopen(STG_COMPUTE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        stg_err(err, -STAGER_UNAVAILABLE,
                "stager_run needs " STG_COMPUTE_LIBRARY
                ", which is neither %s nor where the linker looks: %s",
                path[0] != '\0' ? path : "beside libstager", why != NULL ? why : "");
    }
    return library;
}

static int check_table(const struct stg_compute *table, struct stg_err *err)
{
    if (table == NULL)
        return stg_err(err, -STAGER_UNAVAILABLE,
                       STG_COMPUTE_LIBRARY " has no " STG_COMPUTE_SYMBOL);
    if (table->abi != STG_COMPUTE_ABI || table->struct_bytes != sizeof(*table) ||
        strcmp(table->release, STAGER_RELEASE) != 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       STG_COMPUTE_LIBRARY
                       " is of another build (abi %u) than libstager %s "
                       "(abi %u): install both from one",
                       table->abi, STAGER_RELEASE, STG_COMPUTE_ABI);
    return 0;
}

int stg_compute_load(const struct stg_compute **ret, struct stg_err *err)
{
    void *library = load_library(err);
    if (library == NULL)
        return -STAGER_UNAVAILABLE;
    const struct stg_compute *table = dlsym(library, STG_COMPUTE_SYMBOL);
    int rc = check_table(table, err);
    if (rc == 0)
        *ret = table;
    return rc;
}
