/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/describing.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/param.h"

#define TEXTS_BYTES (16u << 20)
#define MAX_NAME 1024 /* bytes that are shown */
#define MAX_TEXT 512

int stg_describing_init(struct stg_describing *to, uint32_t first, struct stg_err *err)
{
    *to = (struct stg_describing){.schema = {.first = first}};
    stg_bump_init(&to->bump, TEXTS_BYTES);
    to->schema.columns =
        stg_bump_alloc(&to->bump, STG_FILE_MAX_COLUMNS * sizeof(*to->schema.columns));
    return to->schema.columns != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

void stg_describing_finish(struct stg_describing *to)
{
    stg_bump_finish(&to->bump);
}

/* Returns the length of the character that begins there; 0: it is none of a text. */
static size_t character_bytes(const char *s, size_t n)
{
    bool is_control = (unsigned char)*s < ' ' || *s == 0x7f;
    return is_control ? 0 : stg_utf8_bytes(s, n);
}

bool stg_describing_is_text(const char *s, size_t bytes)
{
    size_t n = 1;
    for (size_t i = 0; i < bytes && n > 0; i += n)
        n = character_bytes(s + i, bytes - i);
    return n > 0;
}

/* Makes text of what is none. Returns whether it was text. */
static bool clean(char *s, size_t bytes)
{
    bool is_text = true;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = character_bytes(s + i, bytes - i);
        if (n > 0)
            continue;
        is_text = false;
        s[i] = '?';
        n = 1;
    }
    return is_text;
}

struct stg_file_column *stg_describing_add(struct stg_describing *to, const char *name,
                                           size_t bytes)
{
    struct stg_file_schema *schema = &to->schema;
    uint32_t number = schema->n_total;
    size_t shown = bytes < MAX_NAME ? bytes : MAX_NAME;
    schema->n_total += number < UINT32_MAX;
    if (number < schema->first || schema->n == STG_FILE_MAX_COLUMNS)
        return NULL;
    char *copy = stg_bump_strndup(&to->bump, name, shown);
    struct stg_file_column *column = &schema->columns[schema->n++];
    *column = (struct stg_file_column){.name = copy};
    if (copy != NULL && !clean(copy, shown))
        column->problem = "its name is not text";
    else if (shown < bytes)
        column->problem = "its name has more than 1024 bytes";
    return column;
}

struct stg_file_column *stg_describing_at(struct stg_describing *to, uint64_t i)
{
    const struct stg_file_schema *schema = &to->schema;
    return i >= schema->first && i - schema->first < schema->n
               ? &schema->columns[i - schema->first]
               : NULL;
}

void stg_describing_refuse(struct stg_describing *to, struct stg_file_column *column,
                           const struct stg_err *why)
{
    char text[STG_ERR_TEXT_BYTES], prefix[MAX_NAME + 16];
    snprintf(text, sizeof(text), "%s", why->text);
    snprintf(prefix, sizeof(prefix),
             "column %.256s: ", column->name != NULL ? column->name : "");
    size_t n = strlen(prefix);
    if (strncmp(text, prefix, n) != 0)
        n = 0;
    clean(text, strlen(text));
    column->dtype = STAGER_DT_INVALID;
    if (column->problem == NULL)
        column->problem = stg_bump_strdup(&to->bump, text + n);
}

const char *stg_describing_text(struct stg_describing *to, const char *fmt, ...)
{
    char text[MAX_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    clean(text, strlen(text));
    return stg_bump_strdup(&to->bump, text);
}

static int by_name(const void *a, const void *b)
{
    const struct stg_file_column *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

int stg_describing_check(struct stg_describing *to, struct stg_err *err)
{
    struct stg_file_schema *schema = &to->schema;
    struct stg_file_column *sorted[STG_FILE_MAX_COLUMNS];
    bool is_short = false;
    for (size_t i = 0; i < schema->n; i++) {
        sorted[i] = &schema->columns[i];
        is_short |= sorted[i]->name == NULL ||
                    (sorted[i]->dtype == STAGER_DT_INVALID && sorted[i]->problem == NULL);
    }
    if (is_short)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "out of memory for the description of the file");
    qsort(sorted, schema->n, sizeof(sorted[0]), by_name);
    for (size_t i = 1; i < schema->n; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) != 0)
            continue;
        struct stg_err why = {.text = "the file has two columns of that name"};
        stg_describing_refuse(to, sorted[i - 1], &why);
        stg_describing_refuse(to, sorted[i], &why);
    }
    for (size_t i = 0; i < schema->n; i++) {
        if (schema->columns[i].problem != NULL)
            schema->columns[i].dtype = STAGER_DT_INVALID;
    }
    return 0;
}
