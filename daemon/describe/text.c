/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV, and other text: dtypes are guessed from the records in the head of the file. The
 * last record of a head that is not the whole file may be cut, and is left out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/param.h"
#include "daemon/describe/records.h"

#define MAX_RECORDS 1000
#define NUMBER_BYTES 64 /* a longer field is no number */

/* What all values of a column can be read as. */
enum kind { NOTHING, INTEGER, NUMBER, TEXT };

struct text {
    const char *at, *end;
};

/* ---- values ---- */

static enum kind kind_of(const char *s, size_t n)
{
    char text[NUMBER_BYTES + 1], *end;
    while (n > 0 && (*s == ' ' || *s == '\t'))
        s++, n--;
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    if (n == 0)
        return NOTHING;
    if (n > NUMBER_BYTES || memchr(s, '\0', n) != NULL)
        return TEXT;
    memcpy(text, s, n);
    text[n] = '\0';
    errno = 0;
    strtoll(text, &end, 10);
    if (*end == '\0' && errno == 0)
        return INTEGER;
    strtod(text, &end);
    return *end == '\0' ? NUMBER : TEXT;
}

/* The kind that holds the values of both. */
static enum kind join(enum kind a, enum kind b)
{
    if (a == NOTHING || a == b)
        return b;
    if (b == NOTHING)
        return a;
    bool are_numbers = (a == INTEGER || a == NUMBER) && (b == INTEGER || b == NUMBER);
    return are_numbers ? NUMBER : TEXT;
}

static int dtype_of(enum kind kind)
{
    static const int dtypes[] = {[NOTHING] = STAGER_STRING,
                                 [INTEGER] = STAGER_INT64,
                                 [NUMBER] = STAGER_FLOAT32,
                                 [TEXT] = STAGER_STRING};
    return dtypes[kind];
}

static const char *type_of(enum kind kind)
{
    static const char *const names[] = {
        [NOTHING] = "empty", [INTEGER] = "integer", [NUMBER] = "number", [TEXT] = "text"};
    return names[kind];
}

static struct text head_of(const struct stg_described_file *file)
{
    return (struct text){file->head->data, file->head->data + file->head_bytes};
}

static void note_records(struct stg_described_file *file, size_t n)
{
    file->to->schema.note =
        stg_describing_text(file->to, "guessed from the first %zu records", n);
}

/* ---- CSV ---- */

struct field {
    const char *s; /* without the quotes around it */
    size_t n;
    bool is_quoted;
};

/* Reads a field. Returns what follows it: the delimiter, '\n', or -1 at the end of the
 * text, where a quoted field may be open. */
static int next_field(struct text *text, char delim, struct field *ret)
{
    const char *at = text->at, *end = text->end;
    *ret = (struct field){.s = at, .is_quoted = at < end && *at == '"'};
    if (ret->is_quoted) {
        ret->s = ++at;
        while (at < end && (*at != '"' || (at + 1 < end && at[1] == '"')))
            at += *at == '"' ? 2 : 1;
        ret->n = (size_t)((at < end ? at : end) - ret->s);
        at += at < end;
    }
    const char *rest = at;
    while (at < end && *at != delim && *at != '\n' && *at != '\r')
        at++;
    if (!ret->is_quoted)
        ret->n = (size_t)(at - rest);
    if (at >= end) {
        text->at = end;
        return -1;
    }
    bool is_pair = *at == '\r' && at + 1 < end && at[1] == '\n';
    text->at = at + 1 + is_pair;
    return *at == delim ? delim : '\n';
}

/* Returns the number of fields of the next record; 0: there is none, or it is cut. */
static size_t next_record(struct text *text, char delim, bool is_whole,
                          struct field *fields, size_t most)
{
    size_t n = 0;
    int after = text->at < text->end ? delim : -1;
    if (after < 0)
        return 0;
    while (after == delim) {
        struct field field;
        after = next_field(text, delim, &field);
        if (n < most)
            fields[n] = field;
        n++;
    }
    return after < 0 && !is_whole ? 0 : n;
}

/* The character that separates most fields in the first records. */
static char delim_of(const struct stg_described_file *file)
{
    static const char delims[] = ",\t;|";
    char best = ',';
    size_t best_n = 1;
    for (const char *delim = delims; *delim != '\0'; delim++) {
        struct text text = head_of(file);
        size_t n = next_record(&text, *delim, true, NULL, 0);
        size_t second = next_record(&text, *delim, file->is_whole, NULL, 0);
        if (n > best_n && (second == 0 || second == n)) {
            best = *delim;
            best_n = n;
        }
    }
    return best;
}

/* Names, none of which is a number: a header, if what follows differs. */
static bool may_be_header(const struct field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        enum kind kind = kind_of(fields[i].s, fields[i].n);
        bool is_long = fields[i].n > NUMBER_BYTES;
        if (kind != TEXT || is_long || !stg_describing_is_text(fields[i].s, fields[i].n))
            return false;
        for (size_t k = 0; k < i && k < 64; k++) {
            if (fields[k].n == fields[i].n &&
                memcmp(fields[k].s, fields[i].s, fields[i].n) == 0)
                return false;
        }
    }
    return true;
}

static bool is_identifier(const struct field *field)
{
    for (size_t i = 0; i < field->n; i++) {
        char c = field->s[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!is_letter && (i == 0 || ((c < '0' || c > '9') && c != ' ' && c != '.')))
            return false;
    }
    return true;
}

struct csv {
    size_t n; /* fields of a record */
    char delim;
    struct field *first;
    enum kind *kinds; /* of the records behind the first one */
    bool *empty;      /* a field is empty */
    size_t n_records; /* behind the first one */
};

static void scan_csv(const struct stg_described_file *file, struct text text,
                     struct csv *csv, struct field *fields)
{
    while (csv->n_records < MAX_RECORDS) {
        size_t n = next_record(&text, csv->delim, file->is_whole, fields, csv->n);
        if (n == 0)
            return;
        csv->n_records++;
        for (size_t i = 0; n == csv->n && i < n; i++) {
            enum kind kind = kind_of(fields[i].s, fields[i].n);
            csv->kinds[i] = join(csv->kinds[i], kind);
            csv->empty[i] |= fields[i].n == 0;
        }
    }
}

static bool has_header(const struct csv *csv)
{
    bool has_number = false, are_identifiers = true;
    if (!may_be_header(csv->first, csv->n))
        return false;
    for (size_t i = 0; i < csv->n; i++) {
        has_number |= csv->kinds[i] == INTEGER || csv->kinds[i] == NUMBER;
        are_identifiers &= is_identifier(&csv->first[i]);
    }
    return has_number || (are_identifiers && csv->n_records > 0 && csv->n > 1);
}

static void add_csv(struct stg_described_file *file, struct csv *csv)
{
    struct stg_file_schema *schema = &file->to->schema;
    schema->has_header = has_header(csv);
    for (size_t i = 0; i < csv->n; i++) {
        char number[32];
        const struct field *first = &csv->first[i];
        snprintf(number, sizeof(number), "column_%zu", i);
        if (!schema->has_header) {
            csv->kinds[i] = join(csv->kinds[i], kind_of(first->s, first->n));
            csv->empty[i] |= first->n == 0;
        }
        struct stg_file_column *column =
            schema->has_header ? stg_describing_add(file->to, first->s, first->n)
                               : stg_describing_add(file->to, number, strlen(number));
        if (column == NULL)
            continue;
        column->type = type_of(csv->kinds[i]);
        column->dtype = dtype_of(csv->kinds[i]);
        column->nullable = csv->empty[i];
    }
    note_records(file, csv->n_records + !schema->has_header);
}

static int describe_csv(struct stg_described_file *file, struct stg_err *err)
{
    struct csv csv = {.delim = delim_of(file)};
    struct text text = head_of(file), behind = text;
    csv.n = next_record(&text, csv.delim, file->is_whole, NULL, 0);
    if (csv.n == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "its first record has more than %u bytes",
                       STG_DESCRIBE_HEAD_BYTES);
    csv.first = calloc(csv.n, sizeof(*csv.first));
    csv.kinds = calloc(csv.n, sizeof(*csv.kinds));
    csv.empty = calloc(csv.n, sizeof(*csv.empty));
    struct field *fields = calloc(csv.n, sizeof(*fields));
    int rc = 0;
    if (csv.first != NULL && csv.kinds != NULL && csv.empty != NULL && fields != NULL) {
        next_record(&behind, csv.delim, true, csv.first, csv.n);
        scan_csv(file, behind, &csv, fields);
        file->to->schema.format = "csv";
        file->to->schema.delim = csv.delim == '\t'  ? "\t"
                                 : csv.delim == ';' ? ";"
                                 : csv.delim == '|' ? "|"
                                                    : ",";
        add_csv(file, &csv);
    } else {
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    free(csv.first);
    free(csv.kinds);
    free(csv.empty);
    free(fields);
    return rc;
}

/* ---- text ---- */

/* Bytes of UTF-8 with no control characters but those of lines; the last one may be cut.
 */
bool stg_described_is_text(const struct stg_described_file *file)
{
    const char *s = file->head->data;
    uint64_t n = file->head_bytes;
    for (uint64_t i = 0; i < n;) {
        bool is_space = s[i] == '\n' || s[i] == '\r' || s[i] == '\t' || s[i] == '\f';
        size_t bytes = is_space                    ? 1
                       : (unsigned char)s[i] < ' ' ? 0
                                                   : stg_utf8_bytes(s + i, n - i);
        if (bytes == 0)
            return i + 4 > n && !file->is_whole;
        i += bytes;
    }
    return n > 0;
}

static bool is_csv(const struct stg_described_file *file)
{
    struct text text = head_of(file);
    const char *name = strrchr(file->shown, '/');
    char delim = delim_of(file);
    bool is_named =
        name != NULL && (strstr(name, ".csv") != NULL || strstr(name, ".tsv") != NULL);
    return is_named || next_record(&text, delim, true, NULL, 0) > 1;
}

int stg_describe_text(struct stg_described_file *file, struct stg_err *err)
{
    if (is_csv(file))
        return describe_csv(file, err);
    struct stg_file_column *column = stg_describing_add(file->to, "record", 6);
    if (column != NULL) {
        column->type = "a line";
        column->dtype = STAGER_STRING;
    }
    file->to->schema.format = "text_line";
    return 0;
}
