/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Thrift's compact protocol, in which Parquet writes its footer and the headers of
 * its pages. Reads nothing outside of its bytes, and allocates nothing. The first fault
 * ends the bytes: every later read then returns zeros, and a struct has no more fields.
 * One thread.
 */
#ifndef STG_DAEMON_THRIFT_H
#define STG_DAEMON_THRIFT_H

#include <stdbool.h>
#include <stdint.h>

enum stg_thrift_type {
    STG_THRIFT_STOP = 0,
    STG_THRIFT_TRUE = 1,
    STG_THRIFT_FALSE = 2,
    STG_THRIFT_BYTE = 3,
    STG_THRIFT_I16 = 4,
    STG_THRIFT_I32 = 5,
    STG_THRIFT_I64 = 6,
    STG_THRIFT_DOUBLE = 7,
    STG_THRIFT_BINARY = 8,
    STG_THRIFT_LIST = 9,
    STG_THRIFT_SET = 10,
    STG_THRIFT_MAP = 11,
    STG_THRIFT_STRUCT = 12
};

struct stg_thrift {
    const uint8_t *at, *end;
    bool is_bad;
};

/* A field of a struct. Zeroed before the first one. */
struct stg_thrift_field {
    int id;
    enum stg_thrift_type type;
};

/* Reads the head of the next field. Returns false behind the last one. */
bool stg_thrift_next(struct stg_thrift *thrift, struct stg_thrift_field *field);

/* Read the value of a field, which must have a type that fits. */
int64_t stg_thrift_int(struct stg_thrift *thrift, const struct stg_thrift_field *field);
bool stg_thrift_bool(struct stg_thrift *thrift, const struct stg_thrift_field *field);
/* *ret points into the bytes; it is not terminated. */
uint64_t stg_thrift_binary(struct stg_thrift *thrift,
                           const struct stg_thrift_field *field, const char **ret);
/* Returns the number of elements of a list of that type, each of which takes at least
 * one byte of those that are left. */
uint64_t stg_thrift_list(struct stg_thrift *thrift, const struct stg_thrift_field *field,
                         enum stg_thrift_type type);
/* Returns whether the field is a struct, whose fields follow. */
bool stg_thrift_struct(struct stg_thrift *thrift, const struct stg_thrift_field *field);

/* Passes over the value of a field. */
void stg_thrift_skip(struct stg_thrift *thrift, const struct stg_thrift_field *field);

#endif
