/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a CSV file: which of its fields are the columns that are wanted. One
 * thread.
 */
#ifndef STG_DAEMON_CSV_HEADER_H
#define STG_DAEMON_CSV_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define STG_CSV_MAX_FIELDS 65536u
#define STG_CSV_NO_FIELD UINT32_MAX

/* A column that is wanted. The name is borrowed. */
struct stg_csv_name {
    const char *name;
    size_t bytes;
    uint32_t column;
    bool may_lack; /* a file without it is none the worse */
};

struct stg_csv_header {
    uint64_t serial;    /* another one for each header that was read; 0: none so far */
    uint32_t n_fields;  /* at least 1 */
    int32_t *columns;   /* of each field: its column, or -1 */
    uint32_t *fields;   /* of each column: its field, or STG_CSV_NO_FIELD */
    uint32_t n_columns; /* at least 1 */
};

/* Sorts names for stg_csv_header_read. */
void stg_csv_names_sort(struct stg_csv_name *names, uint32_t n);

/* Reads the record that is a header. Zero bytes are an empty one. INVALID_ARGUMENT: it
 * lacks a column, has one twice, or more than STG_CSV_MAX_FIELDS fields, or cannot be
 * taken apart; RESOURCE_EXHAUSTED. */
int stg_csv_header_read(struct stg_csv_header *header, const struct stg_csv_name *names,
                        uint32_t n, char delim, bool quotes, const char *text,
                        size_t bytes, struct stg_err *err);
void stg_csv_header_finish(struct stg_csv_header *header);

#endif
