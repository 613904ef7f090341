/* SPDX-License-Identifier: Apache-2.0
 *
 * An error for a person to read: what, where, what to do. Filled where it is found,
 * carried by value, never allocated. Functions that may fail for a reason worth
 * reading take a `struct stg_err *` last; NULL is allowed and drops the text.
 */
#ifndef STG_CORE_ERR_H
#define STG_CORE_ERR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#define STG_ERR_TEXT_BYTES 1024

/* One error. Memory is the caller's; zero-initialised means "no error". One thread. */
struct stg_err {
    int code;    /* negative status code, or 0 */
    int64_t row; /* row of the batch that is to blame, or -1: the executor adds file and
                    offset */
    char text[STG_ERR_TEXT_BYTES];
};

/* Formats the error, sets code, sets row to -1, returns code (negative). err may be NULL.
 */
int stg_err(struct stg_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As stg_err, and says which row of the batch is to blame. */
int stg_err_row(struct stg_err *err, int code, int64_t row, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "prefix: " before the text that is there. Returns err->code (or `code` when err is
 * NULL). */
int stg_err_prefix(struct stg_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends to the text that is there. Returns err->code (or `code` when err is NULL). */
int stg_err_append(struct stg_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
