/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditions on columns, of which rows are kept: a disjunction of conjunctions. A
 * condition is judged by values, or by bounds of values of which only these are known.
 * Nulls and NaN are as in pyarrow's filters: a null fulfils `is null`, `not in` without
 * null, and `in` with null; NaN fulfils `!=`, `not in`, and `in` with NaN. Numbers are
 * compared as they are, without rounding one to the type of the other. Pure functions;
 * any thread.
 */
#ifndef STG_DAEMON_FORMAT_ROW_FILTER_H
#define STG_DAEMON_FORMAT_ROW_FILTER_H

#include "core/spec.h"

enum stg_row_op {
    STG_ROW_EQUAL,
    STG_ROW_NOT_EQUAL,
    STG_ROW_LESS,
    STG_ROW_LESS_EQUAL,
    STG_ROW_GREATER,
    STG_ROW_GREATER_EQUAL,
    STG_ROW_IN,
    STG_ROW_NOT_IN,
    STG_ROW_IS_NULL,
    STG_ROW_IS_NOT_NULL
};

/* How columns are compared: by dtype. */
enum stg_row_domain { STG_ROW_INT, STG_ROW_UINT, STG_ROW_FLOAT, STG_ROW_STRING };

union stg_row_number {
    int64_t i;
    uint64_t u;
    double f;
};

/* What a condition asks of numbers of a domain: first to last, or one of n points, which
 * rise; or the contrary. */
struct stg_row_wanted {
    bool is_none; /* no number */
    union stg_row_number first, last, *points;
    size_t n;
};

struct stg_row_text {
    const char *data;
    size_t bytes;
};

/* Is of a column, by its number, and of a conjunction. */
struct stg_row_condition {
    uint32_t column, conjunction;
    enum stg_row_op op;
    bool is_inverted, keeps_null, keeps_nan;
    bool is_text, is_bool;            /* its literals are */
    struct stg_row_wanted numbers[3]; /* by domain */
    struct stg_row_text *texts;       /* they rise */
    size_t n_texts;
};

/* What a condition is for all rows of a file. */
enum { STG_ROW_VARIES = 0, STG_ROW_NEVER, STG_ROW_ALWAYS };

/* Conditions of one conjunction follow one another. */
struct stg_row_filter {
    struct stg_row_condition *conditions;
    uint8_t *fixed; /* of each: STG_ROW_VARIES, or what is known of the file */
    uint32_t n;
};

/* Makes a condition of its text: values[0 .. n) are the literals. The strings are
 * borrowed. INVALID_ARGUMENT: they do not go with the op; RESOURCE_EXHAUSTED. */
int stg_row_condition_init(struct stg_row_condition *condition, const char *op,
                           const struct stg_value *values, size_t n,
                           struct stg_bump *bump, struct stg_err *err);

/* Fails if values of the dtype cannot be compared with the literals. INVALID_ARGUMENT. */
int stg_row_condition_check(const struct stg_row_condition *condition, int dtype,
                            struct stg_err *err);

/* Values of a column: numbers at `fixed`, or strings [begin[i], end[i]) of base. */
struct stg_row_values {
    int dtype;
    const void *fixed;
    const char *base;
    const int64_t *begin, *end;
    const uint8_t *valid; /* 0: null; NULL: none is */
    const uint8_t *null;  /* not 0: null, likewise */
    bool is_lost;         /* nothing is known of them */
};

/* Returns whether a value fulfils the condition. */
bool stg_row_condition_is(const struct stg_row_condition *condition,
                          const struct stg_row_values *value);

/* What is known of values that are not read. */
struct stg_row_bounds {
    bool may_be_null, may_be_there;
    enum stg_row_domain domain;
    bool has_numbers; /* each that is there lies between least and most, or is NaN */
    union stg_row_number least, most;
    struct stg_row_text least_text, most_text; /* likewise; data NULL: not known */
};

/* Returns false if none of the values fulfils the condition. */
bool stg_row_condition_may(const struct stg_row_condition *condition,
                           const struct stg_row_bounds *bounds);

/* Returns false if no row is kept: may[i] is 0 if no row fulfils condition i. */
bool stg_row_filter_may(const struct stg_row_filter *filter, const uint8_t *may);

/* Sets keep[i] of n rows to 1 or 0. The values of condition k begin at first[k]. */
void stg_row_filter_judge(const struct stg_row_filter *filter,
                          const struct stg_row_values *values, const uint64_t *first,
                          uint64_t n, uint8_t *keep);

enum stg_row_domain stg_row_domain_of(int dtype);

#endif
