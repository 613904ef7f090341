/* SPDX-License-Identifier: Apache-2.0
 *
 * The status codes and dtypes that the daemon, the client and plugins share.
 * client/stager.h repeats both enums word for word, because it is the only installed
 * header. tests/style/check_public_header.py fails if the two texts differ.
 */
#ifndef STG_CORE_STATUS_H
#define STG_CORE_STATUS_H

#ifndef STAGER_STATUS_DEFINED
#define STAGER_STATUS_DEFINED
/* Canonical status codes, numbered as in gRPC. Functions return 0 or a negated code. */
enum stager_status {
    STAGER_OK = 0,
    STAGER_CANCELLED = 1,
    STAGER_UNKNOWN = 2,
    STAGER_INVALID_ARGUMENT = 3,
    STAGER_DEADLINE_EXCEEDED = 4,
    STAGER_NOT_FOUND = 5,
    STAGER_ALREADY_EXISTS = 6,
    STAGER_PERMISSION_DENIED = 7,
    STAGER_RESOURCE_EXHAUSTED = 8,
    STAGER_FAILED_PRECONDITION = 9,
    STAGER_ABORTED = 10,
    STAGER_OUT_OF_RANGE = 11,
    STAGER_UNIMPLEMENTED = 12,
    STAGER_INTERNAL = 13,
    STAGER_UNAVAILABLE = 14,
    STAGER_DATA_LOSS = 15,
    STAGER_UNAUTHENTICATED = 16,
};

/* Element types, numbered as TensorFlow's DataType
 * (tensorflow/core/framework/types.proto). */
enum stager_dtype {
    STAGER_DT_INVALID = 0,
    STAGER_FLOAT32 = 1,
    STAGER_FLOAT64 = 2,
    STAGER_INT32 = 3,
    STAGER_UINT8 = 4,
    STAGER_INT16 = 5,
    STAGER_INT8 = 6,
    STAGER_STRING = 7,
    STAGER_INT64 = 9,
    STAGER_BOOL = 10,
    STAGER_BFLOAT16 = 14,
    STAGER_UINT16 = 17,
    STAGER_FLOAT16 = 19,
    STAGER_UINT32 = 22,
    STAGER_UINT64 = 23,
};
#endif

/* Returns the name of a code: "OUT_OF_RANGE" for 11 or -11; "UNKNOWN" if it is not a
 * code. Any thread. */
const char *stg_status_name(int code);

/* Returns the code (positive) of that name, or -1. Any thread. */
int stg_status_from_name(const char *name);

/* Returns the name of a dtype ("float32", "string"), or "invalid". Any thread. */
const char *stg_dtype_name(int dtype);

/* Returns the dtype of that name, or STAGER_DT_INVALID. Accepts TensorFlow's "float" and
 * "double". */
int stg_dtype_from_name(const char *name);

/* Returns the bytes of one element; 0 for STAGER_STRING and for an invalid dtype. */
unsigned stg_dtype_bytes(int dtype);

#endif
