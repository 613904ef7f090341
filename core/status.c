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
    const char *name;
} dtypes[] = {
    {STAGER_FLOAT32, "float32"}, {STAGER_FLOAT64, "float64"},
    {STAGER_INT32, "int32"},     {STAGER_UINT8, "uint8"},
    {STAGER_INT16, "int16"},     {STAGER_INT8, "int8"},
    {STAGER_STRING, "string"},   {STAGER_INT64, "int64"},
    {STAGER_BOOL, "bool"},       {STAGER_BFLOAT16, "bfloat16"},
    {STAGER_UINT16, "uint16"},   {STAGER_FLOAT16, "float16"},
    {STAGER_UINT32, "uint32"},   {STAGER_UINT64, "uint64"},
    {STAGER_FLOAT32, "float"},   {STAGER_FLOAT64, "double"},
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

/* Not from the table: every tensor of every batch is checked with it. */
unsigned stg_dtype_bytes(int dtype)
{
    switch (dtype) {
    case STAGER_UINT8:
    case STAGER_INT8:
    case STAGER_BOOL: return 1;
    case STAGER_INT16:
    case STAGER_UINT16:
    case STAGER_FLOAT16:
    case STAGER_BFLOAT16: return 2;
    case STAGER_FLOAT32:
    case STAGER_INT32:
    case STAGER_UINT32: return 4;
    case STAGER_FLOAT64:
    case STAGER_INT64:
    case STAGER_UINT64: return 8;
    default: return 0;
    }
}
