/* SPDX-License-Identifier: Apache-2.0
 *
 * What a data file holds, as stagerd describes it and stagerctl shows it: its format, and
 * the columns of a record. Strings and arrays belong to the owner of the struct. Any
 * thread.
 */
#ifndef STG_CORE_FILE_SCHEMA_H
#define STG_CORE_FILE_SCHEMA_H

#include "core/batch.h"

/* Columns that one description holds at most; others are counted. */
#define STG_FILE_MAX_COLUMNS 1024

/* A column, a feature, a key, or a part of a sample. A text may be NULL or "": unknown,
 * or without meaning in the format. */
struct stg_file_column {
    const char *name; /* as a step names it: a path for a field of a struct */
    const char *type; /* in the file */
    const char *logical;
    const char *encodings, *codec;
    const char *problem; /* why stager cannot read it; dtype is then 0 */
    int dtype;           /* that a step declares for it */
    int ndim;            /* of shape: of lists, or of a row of npy; -1: any length */
    int64_t shape[STG_MAX_DIMS];
    bool nullable;               /* it may lack a value */
    bool has_dictionary;         /* Arrow: its values are indices */
    uint64_t bytes, plain_bytes; /* in the file, and decompressed; 0: not known */
};

struct stg_file_schema {
    const char *url;    /* of the file: the first one of a pattern */
    bool has_more;      /* the pattern matches others */
    const char *format; /* the name of the step that reads it */
    const char *compression;
    const char *delim; /* csv */
    bool has_header;   /* csv: the first record has the names */
    const char *note;  /* from what the columns were guessed */
    uint64_t bytes;    /* of the file; 0: not known */
    bool has_rows;
    uint64_t n_rows;
    uint32_t n_parts; /* row groups, or record batches */
    struct stg_file_column *columns;
    size_t n;         /* of columns */
    uint32_t first;   /* the number of columns[0] among all of the file */
    uint32_t n_total; /* columns of the file */
};

#endif
