/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/csv/csv.h"

#include <string.h>

/* Reads one field from *at on, and moves *at behind its delimiter. Its bytes go to text.
 * Every condition is TensorFlow's own, its oddities too: a quoted field ends at a quote
 * before a delimiter even where that quote is the second of a pair. */
static int unquoted_field(const struct stg_csv_dialect *dialect, const char *s, size_t n,
                          size_t *at, char *text, size_t *ret_bytes)
{
    size_t i = *at, bytes = 0;
    while (i < n && s[i] != dialect->delim) {
        if ((dialect->quotes && s[i] == '"') || s[i] == '\n' || s[i] == '\r')
            return STG_CSV_QUOTE_IN_UNQUOTED;
        text[bytes++] = s[i++];
    }
    *at = i + 1;
    *ret_bytes = bytes;
    return 0;
}

static int quoted_field(const struct stg_csv_dialect *dialect, const char *s, size_t n,
                        size_t *at, char *text, size_t *ret_bytes)
{
    size_t i = *at + 1, bytes = 0;
    while (i < n - 1 && (s[i] != '"' || s[i + 1] != dialect->delim)) {
        if (s[i] != '"') {
            text[bytes++] = s[i++];
            continue;
        }
        if (s[i + 1] != '"')
            return STG_CSV_QUOTE_NOT_DOUBLED;
        text[bytes++] = '"';
        i += 2;
    }
    if (i >= n || s[i] != '"' || (i != n - 1 && s[i + 1] != dialect->delim))
        return STG_CSV_QUOTE_NOT_ENDED;
    *at = i + 2;
    *ret_bytes = bytes;
    return 0;
}

int64_t stg_csv_row(const struct stg_csv_dialect *dialect, const char *s, size_t n,
                    char *text, struct stg_span *columns, uint32_t *ret_field)
{
    size_t at = 0, used = 0;
    uint32_t field = 0;
    int64_t n_columns = 0;
    while (at < n) {
        if (s[at] == '\n' || s[at] == '\r') {
            at++;
            continue;
        }
        size_t bytes = 0;
        bool quoted = dialect->quotes && s[at] == '"';
        int rc = quoted ? quoted_field(dialect, s, n, &at, text + used, &bytes)
                        : unquoted_field(dialect, s, n, &at, text + used, &bytes);
        *ret_field = field;
        if (rc < 0)
            return rc;
        int32_t column = field < dialect->n_fields ? dialect->column[field] : -1;
        if (column >= 0) {
            columns[column] =
                (struct stg_span){.start = (uint32_t)used, .bytes = (uint32_t)bytes};
            used += bytes + 1;
        }
        n_columns += column >= 0 || !dialect->select;
        field++;
        if (dialect->select && n_columns == dialect->n_columns)
            return n_columns;
    }
    if (n > 0 && s[n - 1] == dialect->delim) {
        int32_t column = field < dialect->n_fields ? dialect->column[field] : -1;
        if (column >= 0)
            columns[column] = (struct stg_span){.start = (uint32_t)used};
        n_columns += column >= 0 || !dialect->select;
    }
    return n_columns;
}

const char *stg_csv_fault_text(int64_t fault)
{
    switch (fault) {
    case STG_CSV_QUOTE_IN_UNQUOTED:
        return "a field that does not start with a quote has a quote or line break "
               "inside";
    case STG_CSV_QUOTE_NOT_DOUBLED: return "a quote inside a quoted field is not doubled";
    default:
        return "a quoted field does not end with a quote before a delimiter or the end";
    }
}
