/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/csv_header.h"

#include <stdlib.h>
#include <string.h>

#include "ops/kernels/csv/csv.h"

/* What some programs write before the first name. */
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

static int out_of_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for the header");
}

static int compare(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order != 0 ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int by_name(const void *a, const void *b)
{
    const struct stg_csv_name *x = a, *y = b;
    return compare(x->name, x->bytes, y->name, y->bytes);
}

void stg_csv_names_sort(struct stg_csv_name *names, uint32_t n)
{
    qsort(names, n, sizeof(*names), by_name);
}

/* Returns the number of fields at most. */
static size_t count_fields(const char *text, size_t bytes, char delim)
{
    size_t n = 1;
    for (size_t i = 0; i < bytes; i++)
        n += text[i] == delim;
    return n;
}

static int make_room(struct stg_csv_header *header, uint32_t n_columns, size_t n_fields,
                     struct stg_err *err)
{
    if (n_fields > STG_CSV_MAX_FIELDS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the header has %zu fields, more than %u", n_fields,
                       STG_CSV_MAX_FIELDS);
    int32_t *columns = realloc(header->columns, n_fields * sizeof(*columns));
    if (columns != NULL)
        header->columns = columns;
    uint32_t *fields = realloc(header->fields, n_columns * sizeof(*fields));
    if (fields != NULL)
        header->fields = fields;
    if (columns == NULL || fields == NULL)
        return out_of_memory(err);
    header->n_columns = n_columns;
    for (uint32_t c = 0; c < n_columns; c++)
        fields[c] = STG_CSV_NO_FIELD;
    return 0;
}

/* Takes the header apart into fields. */
static int split(struct stg_csv_header *header, char delim, bool quotes, const char *s,
                 size_t bytes, char *text, struct stg_span *spans, struct stg_err *err)
{
    uint32_t n = (uint32_t)count_fields(s, bytes, delim), field = 0;
    struct stg_csv_dialect all = {.delim = delim,
                                  .quotes = quotes,
                                  .n_fields = n,
                                  .column = header->columns,
                                  .n_columns = n};
    for (uint32_t f = 0; f < n; f++)
        header->columns[f] = (int32_t)f;
    int64_t n_fields = stg_csv_row(&all, s, bytes, text, spans, &field);
    if (n_fields < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "the header: field %u: %s", field,
                       stg_csv_fault_text(n_fields));
    if (n_fields == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "the header is empty");
    header->n_fields = (uint32_t)n_fields;
    return 0;
}

/* Finds the columns among the fields. */
static int find_columns(struct stg_csv_header *header, const struct stg_csv_name *names,
                        uint32_t n, const char *text, const struct stg_span *spans,
                        struct stg_err *err)
{
    for (uint32_t f = 0; f < header->n_fields; f++) {
        struct stg_csv_name name = {.name = text + spans[f].start,
                                    .bytes = spans[f].bytes};
        const struct stg_csv_name *found =
            bsearch(&name, names, n, sizeof(*names), by_name);
        header->columns[f] = found != NULL ? (int32_t)found->column : -1;
        if (found == NULL)
            continue;
        if (header->fields[found->column] != STG_CSV_NO_FIELD)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "column %.256s: the header has it twice", found->name);
        header->fields[found->column] = f;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (header->fields[names[i].column] == STG_CSV_NO_FIELD && !names[i].may_lack)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "column %.256s: the header has no such column", names[i].name);
    }
    return 0;
}

int stg_csv_header_read(struct stg_csv_header *header, const struct stg_csv_name *names,
                        uint32_t n, char delim, bool quotes, const char *text,
                        size_t bytes, struct stg_err *err)
{
    size_t mark = strlen(BYTE_ORDER_MARK);
    if (bytes >= mark && memcmp(text, BYTE_ORDER_MARK, mark) == 0) {
        text += mark;
        bytes -= mark;
    }
    size_t n_fields = count_fields(text, bytes, delim);
    int rc = make_room(header, n, n_fields, err);
    if (rc < 0)
        return rc;
    char *plain = malloc(bytes + 1);
    struct stg_span *spans = calloc(n_fields, sizeof(*spans));
    if (plain == NULL || spans == NULL)
        rc = out_of_memory(err);
    if (rc == 0)
        rc = split(header, delim, quotes, text, bytes, plain, spans, err);
    if (rc == 0)
        rc = find_columns(header, names, n, plain, spans, err);
    header->serial++;
    free(plain);
    free(spans);
    return rc;
}

void stg_csv_header_finish(struct stg_csv_header *header)
{
    free(header->columns);
    free(header->fields);
    *header = (struct stg_csv_header){0};
}
