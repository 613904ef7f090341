/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/row_filter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "ops/base/element.h"

#define TWO_63 9223372036854775808.0
#define TWO_64 18446744073709551616.0

static const struct {
    const char *name;
    enum stg_row_op op;
} ops[] = {{"=", STG_ROW_EQUAL},
           {"==", STG_ROW_EQUAL},
           {"!=", STG_ROW_NOT_EQUAL},
           {"<", STG_ROW_LESS},
           {"<=", STG_ROW_LESS_EQUAL},
           {">", STG_ROW_GREATER},
           {">=", STG_ROW_GREATER_EQUAL},
           {"in", STG_ROW_IN},
           {"not in", STG_ROW_NOT_IN},
           {"is null", STG_ROW_IS_NULL},
           {"is not null", STG_ROW_IS_NOT_NULL}};

enum stg_row_domain stg_row_domain_of(int dtype)
{
    switch (dtype) {
    case STAGER_STRING: return STG_ROW_STRING;
    case STAGER_FLOAT16:
    case STAGER_FLOAT32:
    case STAGER_FLOAT64: return STG_ROW_FLOAT;
    case STAGER_UINT64: return STG_ROW_UINT;
    default: return STG_ROW_INT;
    }
}

/* ---- literals as numbers of a domain ---- */

/* Returns the largest integer that is not above f, and whether it is f. f is in range. */
static bool floor_of(double f, double *ret)
{
    *ret = floor(f);
    return *ret == f;
}

static double as_double(const struct stg_value *value)
{
    return value->kind == STG_VALUE_FLOAT ? value->f : (double)value->i;
}

/* Numbers up to a literal: the largest that is below it, and not above it. Returns false
 * if there is none. */
static bool find_int(const struct stg_value *value, bool is_below, int64_t *ret)
{
    double f = 0;
    if (value->kind != STG_VALUE_FLOAT) {
        *ret = value->i - (is_below && value->i > INT64_MIN);
        return !is_below || value->i > INT64_MIN;
    }
    if (isnan(value->f) || value->f < -TWO_63)
        return false;
    if (value->f >= TWO_63) {
        *ret = INT64_MAX;
        return true;
    }
    bool is_whole = floor_of(value->f, &f);
    if (is_below && is_whole && f == -TWO_63)
        return false;
    *ret = (int64_t)f - (is_below && is_whole);
    return true;
}

static bool find_uint(const struct stg_value *value, bool is_below, uint64_t *ret)
{
    double f = 0;
    if (value->kind != STG_VALUE_FLOAT) {
        *ret = (uint64_t)value->i - (is_below && value->i > 0);
        return value->i > 0 || (value->i == 0 && !is_below);
    }
    if (isnan(value->f) || value->f < 0 || (is_below && value->f == 0))
        return false;
    if (value->f >= TWO_64) {
        *ret = UINT64_MAX;
        return true;
    }
    bool is_whole = floor_of(value->f, &f);
    *ret = (uint64_t)f - (is_below && is_whole);
    return true;
}

/* Compares a double with an integer, of which a double may not have all bits. */
static int compare_with_int(double f, int64_t i)
{
    if (f >= TWO_63 || f < -TWO_63)
        return f < 0 ? -1 : 1;
    int64_t whole = (int64_t)f;
    if (whole != i)
        return whole < i ? -1 : 1;
    double rest = f - (double)whole;
    return rest < 0 ? -1 : rest > 0;
}

static bool find_float(const struct stg_value *value, bool is_below, double *ret)
{
    double f = as_double(value);
    if (isnan(f) || (is_below && f == -INFINITY))
        return false;
    int at = value->kind == STG_VALUE_FLOAT ? 0 : compare_with_int(f, value->i);
    *ret = at > 0 || (at == 0 && is_below) ? nextafter(f, -INFINITY) : f;
    return true;
}

/* Sets *ret to the largest number that is below the literal, or not above it. */
static bool find(enum stg_row_domain domain, const struct stg_value *value, bool is_below,
                 union stg_row_number *ret)
{
    switch (domain) {
    case STG_ROW_INT: return find_int(value, is_below, &ret->i);
    case STG_ROW_UINT: return find_uint(value, is_below, &ret->u);
    default: return find_float(value, is_below, &ret->f);
    }
}

static union stg_row_number least_of(enum stg_row_domain domain)
{
    return domain == STG_ROW_INT    ? (union stg_row_number){.i = INT64_MIN}
           : domain == STG_ROW_UINT ? (union stg_row_number){.u = 0}
                                    : (union stg_row_number){.f = -INFINITY};
}

static union stg_row_number most_of(enum stg_row_domain domain)
{
    return domain == STG_ROW_INT    ? (union stg_row_number){.i = INT64_MAX}
           : domain == STG_ROW_UINT ? (union stg_row_number){.u = UINT64_MAX}
                                    : (union stg_row_number){.f = INFINITY};
}

static bool is_less(enum stg_row_domain domain, union stg_row_number a,
                    union stg_row_number b)
{
    return domain == STG_ROW_INT    ? a.i < b.i
           : domain == STG_ROW_UINT ? a.u < b.u
                                    : a.f < b.f;
}

/* The next number; false: there is none. */
static bool next(enum stg_row_domain domain, union stg_row_number *number)
{
    if (!is_less(domain, *number, most_of(domain)))
        return false;
    if (domain == STG_ROW_INT)
        number->i++;
    else if (domain == STG_ROW_UINT)
        number->u++;
    else
        number->f = nextafter(number->f, INFINITY);
    return true;
}

/* Returns whether a literal is a number of the domain. */
static bool find_point(enum stg_row_domain domain, const struct stg_value *value,
                       union stg_row_number *ret)
{
    union stg_row_number below;
    return find(domain, value, false, ret) &&
           (!find(domain, value, true, &below) || is_less(domain, below, *ret));
}

static bool is_nan(const struct stg_value *value)
{
    return value->kind == STG_VALUE_FLOAT && isnan(value->f);
}

static void set_range(struct stg_row_wanted *wanted, enum stg_row_domain domain,
                      enum stg_row_op op, const struct stg_value *value)
{
    bool is_to = op == STG_ROW_LESS || op == STG_ROW_LESS_EQUAL;
    bool is_below = op == STG_ROW_LESS || op == STG_ROW_GREATER_EQUAL;
    union stg_row_number at;
    wanted->first = least_of(domain);
    wanted->last = most_of(domain);
    wanted->is_none = is_nan(value);
    if (wanted->is_none)
        return;
    bool is_there = find(domain, value, is_below, &at);
    if (is_to) {
        wanted->is_none = !is_there;
        wanted->last = at;
    } else if (is_there) {
        wanted->is_none = !next(domain, &at);
        wanted->first = at;
    }
}

static int compare_ints(const void *a, const void *b)
{
    int64_t x = ((const union stg_row_number *)a)->i,
            y = ((const union stg_row_number *)b)->i;
    return (x > y) - (x < y);
}

static int compare_uints(const void *a, const void *b)
{
    uint64_t x = ((const union stg_row_number *)a)->u,
             y = ((const union stg_row_number *)b)->u;
    return (x > y) - (x < y);
}

static int compare_floats(const void *a, const void *b)
{
    double x = ((const union stg_row_number *)a)->f,
           y = ((const union stg_row_number *)b)->f;
    return (x > y) - (x < y);
}

static int (*const comparisons[])(const void *, const void *) = {
    compare_ints, compare_uints, compare_floats};

static void set_points(struct stg_row_wanted *wanted, enum stg_row_domain domain,
                       const struct stg_value *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (values[i].kind != STG_VALUE_NULL && !is_nan(&values[i]))
            wanted->n += find_point(domain, &values[i], &wanted->points[wanted->n]);
    }
    wanted->is_none = wanted->n == 0;
    if (wanted->n == 0)
        return;
    qsort(wanted->points, wanted->n, sizeof(*wanted->points), comparisons[domain]);
    wanted->first = wanted->points[0];
    wanted->last = wanted->points[wanted->n - 1];
}

/* ---- a condition ---- */

static int bad(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s", what);
}

static bool is_of_list(enum stg_row_op op)
{
    return op == STG_ROW_IN || op == STG_ROW_NOT_IN;
}

static bool is_of_null(enum stg_row_op op)
{
    return op == STG_ROW_IS_NULL || op == STG_ROW_IS_NOT_NULL;
}

static int compare_texts(const void *a, const void *b)
{
    const struct stg_row_text *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int ret = n > 0 ? memcmp(x->data, y->data, n) : 0;
    return ret != 0 ? ret : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int set_texts(struct stg_row_condition *condition, const struct stg_value *values,
                     size_t n, struct stg_bump *bump, struct stg_err *err)
{
    condition->texts = stg_bump_alloc(bump, (n + 1) * sizeof(*condition->texts));
    if (condition->texts == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < n; i++) {
        if (values[i].kind == STG_VALUE_STRING)
            condition->texts[condition->n_texts++] =
                (struct stg_row_text){.data = values[i].s, .bytes = values[i].s_bytes};
    }
    qsort(condition->texts, condition->n_texts, sizeof(*condition->texts), compare_texts);
    return 0;
}

static int set_numbers(struct stg_row_condition *condition,
                       const struct stg_value *values, size_t n, struct stg_bump *bump,
                       struct stg_err *err)
{
    bool has_points = condition->op == STG_ROW_EQUAL ||
                      condition->op == STG_ROW_NOT_EQUAL || is_of_list(condition->op);
    for (int domain = 0; domain < STG_ROW_STRING; domain++) {
        struct stg_row_wanted *wanted = &condition->numbers[domain];
        if (!has_points) {
            set_range(wanted, (enum stg_row_domain)domain, condition->op, &values[0]);
            continue;
        }
        wanted->points = stg_bump_alloc(bump, (n + 1) * sizeof(*wanted->points));
        if (wanted->points == NULL)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        set_points(wanted, (enum stg_row_domain)domain, values, n);
    }
    return 0;
}

static int check_literals(struct stg_row_condition *condition,
                          const struct stg_value *values, size_t n, struct stg_err *err)
{
    size_t n_texts = 0, n_bools = 0, n_nulls = 0, n_nan = 0;
    for (size_t i = 0; i < n; i++) {
        n_texts += values[i].kind == STG_VALUE_STRING;
        n_bools += values[i].kind == STG_VALUE_BOOL;
        n_nulls += values[i].kind == STG_VALUE_NULL;
        n_nan += is_nan(&values[i]);
    }
    bool is_list = is_of_list(condition->op);
    if (is_of_null(condition->op))
        return n == 0 ? 0 : bad(err, "its op takes no value");
    if (!is_list && n != 1)
        return bad(err, "its op takes one value");
    if (!is_list && n_nulls > 0)
        return bad(err, "nothing is equal to null; use the op is null, or is not null");
    if ((n_texts > 0 && n_texts + n_nulls < n) || (n_bools > 0 && n_bools + n_nulls < n))
        return bad(err, "its values must all be numbers, or strings, or booleans");
    condition->is_text = n_texts > 0;
    condition->is_bool = n_bools > 0;
    condition->is_inverted =
        condition->op == STG_ROW_NOT_EQUAL || condition->op == STG_ROW_NOT_IN;
    condition->keeps_null = is_list && (n_nulls > 0) != condition->is_inverted;
    condition->keeps_nan = condition->is_inverted;
    if (is_list && n_nan > 0)
        condition->keeps_nan = !condition->keeps_nan;
    return 0;
}

int stg_row_condition_init(struct stg_row_condition *condition, const char *op,
                           const struct stg_value *values, size_t n,
                           struct stg_bump *bump, struct stg_err *err)
{
    size_t i = 0, n_ops = sizeof(ops) / sizeof(ops[0]);
    while (i < n_ops && strcmp(ops[i].name, op) != 0)
        i++;
    if (i == n_ops)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "unknown op \"%.32s\"; known: =, ==, !=, <, <=, >, >=, in, not "
                       "in, is null, is not null",
                       op);
    condition->op = ops[i].op;
    int rc = check_literals(condition, values, n, err);
    condition->keeps_null |= condition->op == STG_ROW_IS_NULL;
    if (rc < 0 || is_of_null(condition->op))
        return rc;
    return condition->is_text ? set_texts(condition, values, n, bump, err)
                              : set_numbers(condition, values, n, bump, err);
}

/* `is null` goes with each dtype, and so does a list without values, or of nulls alone.
 */
static bool has_literals(const struct stg_row_condition *condition)
{
    if (is_of_null(condition->op))
        return false;
    return condition->is_text || condition->is_bool || !is_of_list(condition->op) ||
           !condition->numbers[STG_ROW_FLOAT].is_none ||
           condition->keeps_nan != condition->is_inverted;
}

int stg_row_condition_check(const struct stg_row_condition *condition, int dtype,
                            struct stg_err *err)
{
    const char *found = condition->is_text   ? "strings"
                        : condition->is_bool ? "booleans"
                                             : "numbers";
    bool is_text = dtype == STAGER_STRING, is_bool = dtype == STAGER_BOOL;
    if (!has_literals(condition) ||
        (is_text == condition->is_text && is_bool == condition->is_bool))
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "filters compares it with %s, and it is %s", found,
                   stg_dtype_name(dtype));
}

/* ---- by values ---- */

/* Clears keep[i] where the number i, `x` of type T, is not as wanted. */
#define JUDGE_AS(T, field, load)                                                         \
    for (uint64_t i = 0; i < n; i++) {                                                   \
        T x = (T)(load);                                                                 \
        bool is_in = x >= first.field && x <= last.field;                                \
        keep[i] &= (uint8_t)(is_in != inverted);                                         \
    }

#define JUDGE(dtype, type, T, field)                                                     \
    case dtype: {                                                                        \
        const type *at = (const type *)values->fixed + from;                             \
        JUDGE_AS(T, field, at[i])                                                        \
        break;                                                                           \
    }

/* Of a range, or of one point. */
static void judge_range(const struct stg_row_wanted *wanted, bool inverted,
                        const struct stg_row_values *values, uint64_t from, uint64_t n,
                        uint8_t *keep)
{
    union stg_row_number first = wanted->first, last = wanted->last;
    switch (values->dtype) {
        JUDGE(STAGER_BOOL, uint8_t, int64_t, i)
        JUDGE(STAGER_UINT8, uint8_t, int64_t, i)
        JUDGE(STAGER_INT8, int8_t, int64_t, i)
        JUDGE(STAGER_UINT16, uint16_t, int64_t, i)
        JUDGE(STAGER_INT16, int16_t, int64_t, i)
        JUDGE(STAGER_UINT32, uint32_t, int64_t, i)
        JUDGE(STAGER_INT32, int32_t, int64_t, i)
        JUDGE(STAGER_INT64, int64_t, int64_t, i)
        JUDGE(STAGER_UINT64, uint64_t, uint64_t, u)
        JUDGE(STAGER_FLOAT32, float, double, f)
        JUDGE(STAGER_FLOAT64, double, double, f)
    default: {
        const uint16_t *at = (const uint16_t *)values->fixed + from;
        JUDGE_AS(double, f, stg_f32_from_f16(at[i]))
    }
    }
}

static union stg_row_number number_at(const struct stg_row_values *values, uint64_t i)
{
    union stg_row_number ret = {0};
    switch (values->dtype) {
    case STAGER_BOOL:
    case STAGER_UINT8: ret.i = ((const uint8_t *)values->fixed)[i]; break;
    case STAGER_INT8: ret.i = ((const int8_t *)values->fixed)[i]; break;
    case STAGER_UINT16: ret.i = ((const uint16_t *)values->fixed)[i]; break;
    case STAGER_INT16: ret.i = ((const int16_t *)values->fixed)[i]; break;
    case STAGER_UINT32: ret.i = ((const uint32_t *)values->fixed)[i]; break;
    case STAGER_INT32: ret.i = ((const int32_t *)values->fixed)[i]; break;
    case STAGER_INT64: ret.i = ((const int64_t *)values->fixed)[i]; break;
    case STAGER_UINT64: ret.u = ((const uint64_t *)values->fixed)[i]; break;
    case STAGER_FLOAT32: ret.f = ((const float *)values->fixed)[i]; break;
    case STAGER_FLOAT64: ret.f = ((const double *)values->fixed)[i]; break;
    default: ret.f = stg_f32_from_f16(((const uint16_t *)values->fixed)[i]);
    }
    return ret;
}

static void judge_points(const struct stg_row_wanted *wanted, bool inverted,
                         const struct stg_row_values *values, uint64_t from, uint64_t n,
                         uint8_t *keep)
{
    enum stg_row_domain domain = stg_row_domain_of(values->dtype);
    for (uint64_t i = 0; i < n; i++) {
        union stg_row_number x = number_at(values, from + i);
        bool is_in = keep[i] != 0 && bsearch(&x, wanted->points, wanted->n, sizeof(x),
                                             comparisons[domain]) != NULL;
        keep[i] &= (uint8_t)(is_in != inverted);
    }
}

/* bsearch finds NaN equal to whatever it meets first. */
static void judge_nan(const struct stg_row_condition *condition,
                      const struct stg_row_values *values, uint64_t from, uint64_t n,
                      uint8_t *to, const uint8_t *before)
{
    for (uint64_t i = 0; i < n; i++) {
        if (isnan(number_at(values, from + i).f))
            to[i] = before[i] & condition->keeps_nan;
    }
}

static bool is_text_wanted(const struct stg_row_condition *condition,
                           const struct stg_row_text *text)
{
    const struct stg_row_text *texts = condition->texts;
    int at = condition->n_texts > 0 ? compare_texts(text, &texts[0]) : 0;
    switch (condition->op) {
    case STG_ROW_LESS: return at < 0;
    case STG_ROW_LESS_EQUAL: return at <= 0;
    case STG_ROW_GREATER: return at > 0;
    case STG_ROW_GREATER_EQUAL: return at >= 0;
    default:
        return (condition->n_texts > 0 &&
                bsearch(text, texts, condition->n_texts, sizeof(*texts), compare_texts) !=
                    NULL) != condition->is_inverted;
    }
}

static bool is_null(const struct stg_row_values *values, uint64_t i)
{
    return (values->valid != NULL && values->valid[i] == 0) ||
           (values->null != NULL && values->null[i] != 0);
}

static void judge_texts(const struct stg_row_condition *condition,
                        const struct stg_row_values *values, uint64_t from, uint64_t n,
                        uint8_t *keep)
{
    for (uint64_t i = 0; i < n; i++) {
        if (keep[i] == 0 || is_null(values, from + i))
            continue;
        int64_t begin = values->begin[from + i], end = values->end[from + i];
        struct stg_row_text text = {values->base + begin, (size_t)(end - begin)};
        keep[i] = is_text_wanted(condition, &text);
    }
}

static void judge_numbers(const struct stg_row_condition *condition,
                          const struct stg_row_values *values, uint64_t from, uint64_t n,
                          uint8_t *keep)
{
    enum stg_row_domain domain = stg_row_domain_of(values->dtype);
    const struct stg_row_wanted *wanted = &condition->numbers[domain];
    if (wanted->is_none)
        memset(keep, 0, condition->is_inverted ? 0 : n);
    else if (wanted->n > 1)
        judge_points(wanted, condition->is_inverted, values, from, n, keep);
    else
        judge_range(wanted, condition->is_inverted, values, from, n, keep);
}

#define AT_ONCE 1024

/* Of values of which some may be null; n is at most AT_ONCE. */
static void judge(const struct stg_row_condition *condition,
                  const struct stg_row_values *values, uint64_t from, uint64_t n,
                  uint8_t *keep)
{
    uint8_t before[AT_ONCE];
    enum stg_row_domain domain = stg_row_domain_of(values->dtype);
    bool has_nan = domain == STG_ROW_FLOAT && !is_of_null(condition->op) &&
                   (is_of_list(condition->op) || condition->is_inverted);
    memcpy(before, keep, n);
    if (is_of_null(condition->op))
        memset(keep, 0, condition->op == STG_ROW_IS_NULL ? n : 0);
    else if (domain == STG_ROW_STRING)
        judge_texts(condition, values, from, n, keep);
    else
        judge_numbers(condition, values, from, n, keep);
    if (has_nan)
        judge_nan(condition, values, from, n, keep, before);
    bool has_nulls = values->valid != NULL || values->null != NULL;
    for (uint64_t i = 0; has_nulls && i < n; i++) {
        if (is_null(values, from + i))
            keep[i] = before[i] & condition->keeps_null;
    }
}

bool stg_row_condition_is(const struct stg_row_condition *condition,
                          const struct stg_row_values *value)
{
    uint8_t keep = 1;
    judge(condition, value, 0, 1, &keep);
    return keep != 0;
}

/* Of n rows, at most AT_ONCE, from row `at` on. */
static void judge_all(const struct stg_row_filter *filter,
                      const struct stg_row_values *values, const uint64_t *first,
                      uint64_t at, uint64_t n, uint8_t *keep)
{
    uint8_t all[AT_ONCE];
    memset(keep, 0, n);
    for (uint32_t k = 0; k < filter->n;) {
        uint32_t conjunction = filter->conditions[k].conjunction;
        memset(all, 1, n);
        for (; k < filter->n && filter->conditions[k].conjunction == conjunction; k++) {
            if (filter->fixed[k] == STG_ROW_NEVER)
                memset(all, 0, n);
            else if (filter->fixed[k] == STG_ROW_VARIES && !values[k].is_lost)
                judge(&filter->conditions[k], &values[k], first[k] + at, n, all);
        }
        for (uint64_t i = 0; i < n; i++)
            keep[i] |= all[i];
    }
}

void stg_row_filter_judge(const struct stg_row_filter *filter,
                          const struct stg_row_values *values, const uint64_t *first,
                          uint64_t n, uint8_t *keep)
{
    for (uint64_t at = 0; at < n; at += AT_ONCE)
        judge_all(filter, values, first, at, n - at < AT_ONCE ? n - at : AT_ONCE,
                  keep + at);
}

/* ---- by bounds ---- */

/* Returns whether a point lies between the bounds. */
static bool has_point(const struct stg_row_wanted *wanted, enum stg_row_domain domain,
                      const struct stg_row_bounds *bounds)
{
    for (size_t i = 0; i < wanted->n; i++) {
        if (!is_less(domain, wanted->points[i], bounds->least) &&
            !is_less(domain, bounds->most, wanted->points[i]))
            return true;
    }
    return wanted->n == 0;
}

static bool may_be_number(const struct stg_row_condition *condition,
                          const struct stg_row_bounds *bounds)
{
    const struct stg_row_wanted *wanted = &condition->numbers[bounds->domain];
    bool is_float = bounds->domain == STG_ROW_FLOAT;
    /* Bounds say nothing of NaN. */
    if (is_float && condition->keeps_nan)
        return true;
    if (wanted->is_none)
        return condition->is_inverted;
    if (!bounds->has_numbers)
        return true;
    if (condition->is_inverted)
        return is_less(bounds->domain, bounds->least, bounds->most) ||
               !has_point(wanted, bounds->domain, bounds);
    return !is_less(bounds->domain, bounds->most, wanted->first) &&
           !is_less(bounds->domain, wanted->last, bounds->least) &&
           has_point(wanted, bounds->domain, bounds);
}

static bool may_be_one_of(const struct stg_row_condition *condition,
                          const struct stg_row_bounds *bounds)
{
    const struct stg_row_text *least = &bounds->least_text, *most = &bounds->most_text;
    bool is_one =
        least->data != NULL && most->data != NULL && compare_texts(least, most) == 0;
    if (condition->is_inverted)
        return !is_one || is_text_wanted(condition, least);
    for (size_t i = 0; i < condition->n_texts; i++) {
        const struct stg_row_text *text = &condition->texts[i];
        if ((least->data == NULL || compare_texts(text, least) >= 0) &&
            (most->data == NULL || compare_texts(text, most) <= 0))
            return true;
    }
    return false;
}

static bool may_be_text(const struct stg_row_condition *condition,
                        const struct stg_row_bounds *bounds)
{
    bool has_both = bounds->least_text.data != NULL && bounds->most_text.data != NULL;
    if (has_both && compare_texts(&bounds->least_text, &bounds->most_text) > 0)
        return true;
    switch (condition->op) {
    case STG_ROW_LESS:
    case STG_ROW_LESS_EQUAL:
        return bounds->least_text.data == NULL ||
               is_text_wanted(condition, &bounds->least_text);
    case STG_ROW_GREATER:
    case STG_ROW_GREATER_EQUAL:
        return bounds->most_text.data == NULL ||
               is_text_wanted(condition, &bounds->most_text);
    default: return may_be_one_of(condition, bounds);
    }
}

bool stg_row_condition_may(const struct stg_row_condition *condition,
                           const struct stg_row_bounds *bounds)
{
    if (bounds->may_be_null && condition->keeps_null)
        return true;
    if (!bounds->may_be_there || condition->op == STG_ROW_IS_NULL)
        return false;
    if (condition->op == STG_ROW_IS_NOT_NULL)
        return true;
    return bounds->domain == STG_ROW_STRING ? may_be_text(condition, bounds)
                                            : may_be_number(condition, bounds);
}

bool stg_row_filter_may(const struct stg_row_filter *filter, const uint8_t *may)
{
    for (uint32_t i = 0; i < filter->n;) {
        uint32_t conjunction = filter->conditions[i].conjunction;
        bool all = true;
        for (; i < filter->n && filter->conditions[i].conjunction == conjunction; i++)
            all &= may[i] != 0 && filter->fixed[i] != STG_ROW_NEVER;
        if (all)
            return true;
    }
    return false;
}
