/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of decode_csv: one record taken apart by all the rules (csv_row.c), and the
 * kernels that do the ordinary records and fields fast, behind a table chosen by CPU:
 * csv_scalar.c, the reference, and csv_vector.c, compiled for each instruction set. Pure
 * functions; any thread.
 */
#ifndef STG_OPS_CSV_H
#define STG_OPS_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/hash.h"

/* A field: bytes [start, start + bytes) from the base of its row. */
struct stg_span {
    uint32_t start;
    uint32_t bytes;
};

/* How records are written. */
struct stg_csv_dialect {
    char delim;
    bool quotes;           /* use_quote_delim */
    uint32_t n_fields;     /* fields of interest are below this number */
    const int32_t *column; /* field -> column, or -1; n_fields entries */
    uint32_t n_columns;
    bool select; /* select_cols was given: fields after the last one are not looked at */
};

/* What stands for a column where a field is empty or equal to na. */
struct stg_csv_rule {
    bool required;
    const char *na;
    size_t na_bytes; /* 0: only empty fields */
    double f64;      /* the default, in the column's own type */
    float f32;
    int32_t i32;
    int64_t i64;
    const char *s;
    size_t s_bytes;
};

enum stg_csv_fault {
    STG_CSV_QUOTE_IN_UNQUOTED = -1,
    STG_CSV_QUOTE_NOT_DOUBLED = -2,
    STG_CSV_QUOTE_NOT_ENDED = -3,
};

/* Takes record [s, s + n) apart by the rules of TensorFlow's DecodeCSV. The bytes of the
 * fields of interest are written to `text` (room for n), columns[c] says where. Returns
 * how many columns there are in the record (more than n_columns are counted, not
 * written), or an enum stg_csv_fault, with the number of the field in *ret_field. */
int64_t stg_csv_row(const struct stg_csv_dialect *dialect, const char *s, size_t n,
                    char *text, struct stg_span *columns, uint32_t *ret_field);

/* What a column of hashed strings needs beside its rule. */
struct stg_csv_hash {
    struct stg_modulus buckets;
    int64_t missing; /* the bucket of rule->s */
};

/* ---- kernels ---- */

/* Rows of a block at most: its fields stay in the first-level cache between index and
 * conversion. */
#define STG_CSV_ROWS 32
/* Fields of a matrix of spans behind the last one, and bytes behind the end of a row,
 * that vectors may touch. */
#define STG_CSV_SLACK_FIELDS 8
#define STG_CSV_SLACK 64

/* A block of rows. Field bytes are base[i] + span.start. */
struct stg_csv_block {
    const char *const *base;
    const char *limit; /* scalar kernels: no byte at or after it is read */
    size_t n;          /* at most STG_CSV_ROWS */
};

#define STG_CSV_ODD UINT32_MAX

struct stg_csv_kernels {
    const char *name;

    /* STG_CSV_SLACK bytes behind each row must be readable. False: none is touched. */
    bool needs_slack;

    /* Where the fields of the records [base[i], base[i] + bytes[i]) lie: for each field f
     * below dialect->n_fields spans[f * STG_CSV_ROWS + i]; there is room for
     * STG_CSV_SLACK_FIELDS fields more. counts[i] is how many fields the record has
     * (dialect->select: it may stop counting at n_fields; else at n_fields + 1), or
     * STG_CSV_ODD when it needs stg_csv_row: quotes, line breaks, nothing at all. */
    void (*index)(const struct stg_csv_dialect *dialect,
                  const struct stg_csv_block *block, const uint32_t *bytes,
                  struct stg_span *spans, uint32_t *counts);

    /* A column of a block into out[0 .. n). False when a field is bad or missing. */
    bool (*int32)(const struct stg_csv_block *block, const struct stg_span *spans,
                  const struct stg_csv_rule *rule, int32_t *out);
    bool (*int64)(const struct stg_csv_block *block, const struct stg_span *spans,
                  const struct stg_csv_rule *rule, int64_t *out);
    bool (*float32)(const struct stg_csv_block *block, const struct stg_span *spans,
                    const struct stg_csv_rule *rule, float *out);
    bool (*float64)(const struct stg_csv_block *block, const struct stg_span *spans,
                    const struct stg_csv_rule *rule, double *out);

    /* Fingerprint64 of the column's strings, modulo hash->buckets. */
    bool (*hash)(const struct stg_csv_block *block, const struct stg_span *spans,
                 const struct stg_csv_rule *rule, const struct stg_csv_hash *hash,
                 int64_t *out);

    /* Bytes that the column's strings take together; defaults filled in. False as above.
     */
    bool (*string_bytes)(const struct stg_csv_block *block, const struct stg_span *spans,
                         const struct stg_csv_rule *rule, uint64_t *ret);
    /* Appends the strings to data; offsets[0] is where, offsets[1 .. n] are set. */
    void (*string)(const struct stg_csv_block *block, const struct stg_span *spans,
                   const struct stg_csv_rule *rule, char *data, int64_t *offsets);

    /* Positions of the newlines in data[0, n), at most n_max, into ret; how many there
     * are. *ret_seen: bytes looked through, n or behind the last position. No byte
     * outside is read. n is below 4 GiB. */
    size_t (*newlines)(const char *data, size_t n, uint32_t *ret, size_t n_max,
                       size_t *ret_seen);
};

/* The best table for this CPU, or what stg_csv_kernels_use said. */
const struct stg_csv_kernels *stg_csv_kernels(void);

/* The tables that this CPU can run, the reference first, the best last. */
const struct stg_csv_kernels *const *stg_csv_kernels_all(size_t *ret_n);

/* For tests and benchmarks: everybody uses this table from now on. NULL: the best one. */
void stg_csv_kernels_use(const struct stg_csv_kernels *kernels);

extern const struct stg_csv_kernels stg_csv_kernels_scalar;

#endif
