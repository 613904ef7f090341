/* SPDX-License-Identifier: Apache-2.0
 *
 * assert(3) of the programs that link this file writes its line through the log: if
 * standard error is full, the assert of the C library would block instead of abort.
 */
#include <assert.h>
#include <stdlib.h>

#include "core/log.h"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif

void __assert_fail(const char *assertion, const char *file, unsigned line,
                   const char *function)
{
    stg_log(STG_LOG_ERROR, "%s:%u: %s: assertion \"%s\" failed", file, line, function,
            assertion);
    abort();
}
