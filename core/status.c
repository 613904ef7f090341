/* SPDX-License-Identifier: Apache-2.0 */
#include "core/status.h"

#include <stddef.h>
#include <string.h>

static const char *const status_names[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

#define N_STATUS ((int)(sizeof(status_names) / sizeof(status_names[0])))

static const struct {
    int dtype;
    unsigned bytes;
    const char *name;
} dtypes[] = {
    {STAGER_FLOAT32, 4, "float32"}, {STAGER_FLOAT64, 8, "float64"},
    {STAGER_INT32, 4, "int32"},     {STAGER_UINT8, 1, "uint8"},
    {STAGER_INT16, 2, "int16"},     {STAGER_INT8, 1, "int8"},
    {STAGER_STRING, 0, "string"},   {STAGER_INT64, 8, "int64"},
    {STAGER_BOOL, 1, "bool"},       {STAGER_BFLOAT16, 2, "bfloat16"},
    {STAGER_UINT16, 2, "uint16"},   {STAGER_FLOAT16, 2, "float16"},
    {STAGER_UINT32, 4, "uint32"},   {STAGER_UINT64, 8, "uint64"},
    {STAGER_FLOAT32, 4, "float"},   {STAGER_FLOAT64, 8, "double"},
};

#define N_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

const char *stg_status_name(int code)
{
    if (code < 0 && code > -N_STATUS)
        code = -code;
    return code >= 0 && code < N_STATUS ? status_names[code] : "UNKNOWN";
}

int stg_status_from_name(const char *name)
{
    for (int i = 0; i < N_STATUS; i++) {
        if (strcmp(status_names[i], name) == 0)
            return i;
    }
    return -1;
}

const char *stg_dtype_name(int dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    }
    return "invalid";
}

int stg_dtype_from_name(const char *name)
{
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].dtype;
    }
    return STAGER_DT_INVALID;
}

unsigned stg_dtype_bytes(int dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (dtypes[i].dtype == dtype)
            return dtypes[i].bytes;
    }
    return 0;
}
