/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of decode_csv: one record taken apart by all the rules (row.c), and the
 * kernels that do the ordinary records and fields fast, behind a table chosen by CPU:
 * scalar.c, the reference, and vector.c, compiled for each instruction set. Pure
 * functions; any thread.
 */
#ifndef STG_OPS_KERNELS_CSV_CSV_H
#define STG_OPS_KERNELS_CSV_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/spec.h"
#include "ops/base/hash.h"

/* Bytes [start, start + bytes) from the base of a row. */
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

/* What stands for a column where a field is empty or equal to one of na, which are not
 * empty themselves. */
struct stg_csv_rule {
    bool required;
    const struct stg_value *na;
    size_t n_na; /* 0: only empty fields */
    double f64;  /* the default, in the column's own type */
    float f32;
    int32_t i32;
    int64_t i64;
    const char *s;
    size_t s_bytes;
};

static inline bool stg_csv_is_missing(const struct stg_csv_rule *rule, const char *s,
                                      size_t n)
{
    bool missing = n == 0;
    for (size_t i = 0; i < rule->n_na && !missing; i++)
        missing = n == rule->na[i].s_bytes && memcmp(s, rule->na[i].s, n) == 0;
    return missing;
}

enum stg_csv_fault {
    STG_CSV_QUOTE_IN_UNQUOTED = -1,
    STG_CSV_QUOTE_NOT_DOUBLED = -2,
    STG_CSV_QUOTE_NOT_ENDED = -3,
};

/* Takes record [s, s + n) apart by the rules of TensorFlow's DecodeCSV. The bytes of the
 * fields of interest are written to `text` (room for n + 1), with one byte of any value
 * behind each; columns[c] says where. Returns how many columns there are in the record
 * (more than n_columns are counted, not written), or an enum stg_csv_fault, with the
 * number of the field in *ret_field. */
int64_t stg_csv_row(const struct stg_csv_dialect *dialect, const char *s, size_t n,
                    char *text, struct stg_span *columns, uint32_t *ret_field);

/* What is wrong with a record, for texts. fault: an enum stg_csv_fault. */
const char *stg_csv_fault_text(int64_t fault);

/* What a column of hashed strings needs beside its rule. */
struct stg_csv_hash {
    struct stg_modulus buckets;
    int64_t missing; /* the bucket of rule->s */
};

/* ---- kernels ---- */

/* Rows of a block at most: its fields stay in the first-level cache between index and
 * conversion. */
#define STG_CSV_ROWS 32
/* Fields of a block's ends behind the last one, and bytes behind the end of a row, that
 * vectors may touch. */
#define STG_CSV_SLACK_FIELDS 16
#define STG_CSV_SLACK 64

/* A block of rows. */
struct stg_csv_block {
    const char *const *base;
    const char *limit; /* scalar kernels: no byte at or after it is read */
    size_t n;          /* at most STG_CSV_ROWS */
};

/* Where the fields of a block end, field by field: field f of row i ends before byte
 * ends[(f + 1) * STG_CSV_ROWS + i] of its row, and begins behind the delimiter, one byte
 * after the end of the field before; ends[i], "before" the first field, is -1. What a
 * kernel of columns is given begins at the field before its own. */
static inline struct stg_span stg_csv_field(const uint32_t *ends, size_t i)
{
    uint32_t start = ends[i] + 1;
    return (struct stg_span){.start = start, .bytes = ends[STG_CSV_ROWS + i] - start};
}

/* How many ends a block has with its slack. */
static inline size_t stg_csv_n_ends(uint32_t n_fields)
{
    return ((size_t)n_fields + 1 + STG_CSV_SLACK_FIELDS) * STG_CSV_ROWS;
}

/* What an index may use for itself: the ends of sixteen rows, row by row, each with room
 * for what 64 more characters may have, and a vector behind that. */
static inline size_t stg_csv_stride(uint32_t n_fields)
{
    return (((size_t)n_fields + 16) & ~(size_t)15) + 64 + 16;
}

static inline size_t stg_csv_n_room(uint32_t n_fields)
{
    return 16 * stg_csv_stride(n_fields);
}

#define STG_CSV_ODD UINT32_MAX

struct stg_csv_kernels {
    const char *name;

    /* STG_CSV_SLACK bytes behind each row must be readable. False: none is touched. */
    bool needs_slack;

    /* Where the fields of the records [base[i], base[i] + bytes[i]) end, into ends of
     * which the first STG_CSV_ROWS are -1 and stay so. counts[i] is how many fields the
     * record has (dialect->select: it may stop counting at n_fields; else at n_fields +
     * 1), or STG_CSV_ODD when it needs stg_csv_row: quotes, line breaks, nothing at all.
     */
    void (*index)(const struct stg_csv_dialect *dialect,
                  const struct stg_csv_block *block, const uint32_t *bytes,
                  uint32_t *room, uint32_t *ends, uint32_t *counts);

    /* A column of a block into out[0 .. n). False when a field is bad or missing. */
    bool (*int32)(const struct stg_csv_block *block, const uint32_t *ends,
                  const struct stg_csv_rule *rule, int32_t *out);
    bool (*int64)(const struct stg_csv_block *block, const uint32_t *ends,
                  const struct stg_csv_rule *rule, int64_t *out);
    bool (*float32)(const struct stg_csv_block *block, const uint32_t *ends,
                    const struct stg_csv_rule *rule, float *out);
    bool (*float64)(const struct stg_csv_block *block, const uint32_t *ends,
                    const struct stg_csv_rule *rule, double *out);

    /* Fingerprint64 of the column's strings, modulo hash->buckets. */
    bool (*hash)(const struct stg_csv_block *block, const uint32_t *ends,
                 const struct stg_csv_rule *rule, const struct stg_csv_hash *hash,
                 int64_t *out);

    /* The column's fields, and the bytes that its strings take together; defaults filled
     * in. False as above. */
    bool (*spans)(const struct stg_csv_block *block, const uint32_t *ends,
                  const struct stg_csv_rule *rule, struct stg_span *ret,
                  uint64_t *ret_bytes);
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

/* For tests and benchmarks: all callers use this table from now on. NULL: the best one.
 */
void stg_csv_kernels_use(const struct stg_csv_kernels *kernels);

/* The reference, and the tables that vector.c is compiled into, once for each instruction
 * set. Only kernels.c and tests name those: the CPU may not have what they need. */
extern const struct stg_csv_kernels stg_csv_kernels_scalar, stg_csv_kernels_avx2,
    stg_csv_kernels_avx512, stg_csv_kernels_neon;

#endif
