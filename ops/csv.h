/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of decode_csv: one record taken apart by all the rules (csv_row.c), and the
 * kernels that do the ordinary records and fields fast, behind a table chosen by CPU
 * (kernel_scalar.c). Pure functions; any thread.
 */
#ifndef STG_OPS_CSV_H
#define STG_OPS_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* ---- kernels ---- */

/* A block of rows. Field bytes are base[i] + span.start; 8 bytes from any of them may be
 * read where they end at or before `limit`. */
struct stg_csv_block {
    const char *const *base;
    const char *limit;
    size_t n;
};

#define STG_CSV_ODD UINT32_MAX

struct stg_csv_kernels {
    const char *name;

    /* Where the fields of n records [begin[i], end[i]) of `data` lie: for each field f
     * below dialect->n_fields fields[f][i]. counts[i] is how many fields the record has
     * (dialect->select: it may stop counting at n_fields; else at n_fields + 1), or
     * STG_CSV_ODD when it needs stg_csv_row: quotes, line breaks, nothing at all. No
     * byte at or after `limit` is read. Records are shorter than 4 GiB. */
    void (*index)(const struct stg_csv_dialect *dialect, const char *data,
                  const char *limit, const int64_t *begin, const int64_t *end, size_t n,
                  struct stg_span *const *fields, uint32_t *counts);

    /* A column of a block into out[0 .. n). False when a field is bad or missing. */
    bool (*int32)(const struct stg_csv_block *block, const struct stg_span *spans,
                  const struct stg_csv_rule *rule, int32_t *out);
    bool (*int64)(const struct stg_csv_block *block, const struct stg_span *spans,
                  const struct stg_csv_rule *rule, int64_t *out);
    bool (*float32)(const struct stg_csv_block *block, const struct stg_span *spans,
                    const struct stg_csv_rule *rule, float *out);
    bool (*float64)(const struct stg_csv_block *block, const struct stg_span *spans,
                    const struct stg_csv_rule *rule, double *out);

    /* Bytes that the column's strings take together; defaults filled in. False as above.
     */
    bool (*string_bytes)(const struct stg_csv_block *block, const struct stg_span *spans,
                         const struct stg_csv_rule *rule, uint64_t *ret);
    /* Appends the strings to data; offsets[0] is where, offsets[1 .. n] are set. */
    void (*string)(const struct stg_csv_block *block, const struct stg_span *spans,
                   const struct stg_csv_rule *rule, char *data, int64_t *offsets);
};

/* The best table for this CPU. */
const struct stg_csv_kernels *stg_csv_kernels(void);

extern const struct stg_csv_kernels stg_csv_kernels_scalar;

#endif
