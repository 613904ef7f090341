/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static int fill(struct stg_err *err, int code, int64_t row, const char *fmt, va_list args)
{
    assert(code < 0);
    if (err == NULL)
        return code;
    err->code = code;
    err->row = row;
    vsnprintf(err->text, sizeof(err->text), fmt, args);
    return code;
}

int stg_err(struct stg_err *err, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, code, -1, fmt, args);
    va_end(args);
    return code;
}

int stg_err_row(struct stg_err *err, int code, int64_t row, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, code, row, fmt, args);
    va_end(args);
    return code;
}

int stg_err_prefix(struct stg_err *err, int code, const char *fmt, ...)
{
    if (err == NULL)
        return code;
    char prefix[STG_ERR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof(prefix) - 2, fmt, args);
    va_end(args);
    size_t n = strlen(prefix);
    memcpy(prefix + n, ": ", 2);
    n += 2;
    memmove(err->text + n, err->text, sizeof(err->text) - n);
    memcpy(err->text, prefix, n);
    err->text[sizeof(err->text) - 1] = '\0';
    return err->code;
}

int stg_err_append(struct stg_err *err, int code, const char *fmt, ...)
{
    if (err == NULL)
        return code;
    size_t n = strlen(err->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text + n, sizeof(err->text) - n, fmt, args);
    va_end(args);
    return err->code;
}
