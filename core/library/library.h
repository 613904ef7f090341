/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries of the machine that a program loads when it needs them, instead of being
 * linked with them. Any thread.
 */
#ifndef STG_CORE_LIBRARY_LIBRARY_H
#define STG_CORE_LIBRARY_LIBRARY_H

#include "core/err.h"

struct stg_library {
    const char *soname;
    const char *package; /* of Debian */
    const char *purpose; /* for the error: "needs it for …" */
};

/* Opens it until the process ends. FAILED_PRECONDITION: the machine does not have it. */
int stg_library_open(const struct stg_library *library, void **ret, struct stg_err *err);

/* Stores the address of a function at ret, a pointer to a function.
 * FAILED_PRECONDITION: the library is too old. */
int stg_library_find(const struct stg_library *library, void *handle, const char *name,
                     void *ret, struct stg_err *err);

#endif
