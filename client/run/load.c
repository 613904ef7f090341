/* SPDX-License-Identifier: Apache-2.0
 *
 * libstager-compute.so, for clients that compute.
 */
#include "client/run/load.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client/stager.h"

/* The folder that libstager lies in, or the program that it is linked into; "": unknown.
 */
static void find_folder(char *buf, size_t bytes)
{
    Dl_info info;
    const char *slash = NULL;
    if (dladdr((void *)(uintptr_t)stager_version, &info) != 0 && info.dli_fname != NULL)
        slash = strrchr(info.dli_fname, '/');
    snprintf(buf, bytes, "%.*s", slash != NULL ? (int)(slash - info.dli_fname) : 0,
             slash != NULL ? info.dli_fname : "");
}

/* The private folder of an installation first, then a build or a Python package, which
 * have both libraries in one folder. A program that libstager is linked into may lie
 * anywhere: hence the linker's path, and the folder of the configuration. */
static void *load_library(struct stg_err *err)
{
    static const char *const places[] = {"/stager/" STG_COMPUTE_LIBRARY,
                                         "/" STG_COMPUTE_LIBRARY, STG_COMPUTE_LIBRARY,
                                         STAGER_COMPUTE_DIR "/" STG_COMPUTE_LIBRARY};
    char folder[4096], path[4096 + 64];
    find_folder(folder, sizeof(folder));
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        bool is_beside = i < 2;
        if (is_beside && folder[0] == '\0')
            continue;
        snprintf(path, sizeof(path), "%s%s", is_beside ? folder : "", places[i]);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library != NULL)
            return library;
    }
    const char *why = dlerror();
    stg_err(err, -STAGER_UNAVAILABLE,
            "stager_run needs " STG_COMPUTE_LIBRARY
            ", which was not found in %s/stager, in %s, on the linker's path or "
            "in " STAGER_COMPUTE_DIR ": %s",
            folder, folder, why != NULL ? why : "");
    return NULL;
}

static int check_table(const struct stg_compute *table, struct stg_err *err)
{
    if (table == NULL)
        return stg_err(err, -STAGER_UNAVAILABLE,
                       STG_COMPUTE_LIBRARY " has no " STG_COMPUTE_SYMBOL);
    if (table->abi != STG_COMPUTE_ABI || table->struct_bytes != sizeof(*table) ||
        strcmp(table->release, STAGER_RELEASE) != 0)
        return stg_err(
            err, -STAGER_FAILED_PRECONDITION,
            STG_COMPUTE_LIBRARY
            " has abi %u, but libstager %s has abi %u: install both from one build",
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
