/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/files/path_value.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/batch.h"
#include "core/spec.h"
#include "ops/base/element.h"
#include "ops/base/number.h"

#define NULL_FOLDER "__HIVE_DEFAULT_PARTITION__"

static int digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c | (c >= 'A' ? 0x20 : 0)) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* Decodes %XX in n bytes of text, in place of `to`. Returns the bytes. */
static size_t decode(const char *text, size_t n, char *to)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_code = text[i] == '%' && n - i > 2 && digit(text[i + 1]) >= 0 &&
                       digit(text[i + 2]) >= 0;
        to[bytes++] =
            is_code ? (char)(digit(text[i + 1]) << 4 | digit(text[i + 2])) : text[i];
        i += is_code ? 2 : 0;
    }
    to[bytes] = '\0';
    return bytes;
}

/* Where the path of a url ends: behind it are a query and a fragment. */
static const char *end_of(const char *url)
{
    bool is_http = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
    return url + (is_http ? strcspn(url, "?#") : strlen(url));
}

/* Returns the value of the folder [at, end) if it has that name, else NULL. */
static const char *value_of(const char *at, const char *end, const char *name, char *room)
{
    const char *equals = memchr(at, '=', (size_t)(end - at));
    if (equals == NULL)
        return NULL;
    size_t bytes = decode(at, (size_t)(equals - at), room);
    bool is_named = bytes == strlen(name) && memcmp(room, name, bytes) == 0;
    return is_named ? equals + 1 : NULL;
}

static bool convert(const char *text, size_t n, int dtype, uint64_t *ret)
{
    struct stg_value value = {.kind = STG_VALUE_INT};
    switch (dtype) {
    case STAGER_BOOL:
        value.kind = STG_VALUE_BOOL;
        value.i = strcasecmp(text, "true") == 0;
        if (value.i == 0 && strcasecmp(text, "false") != 0)
            return false;
        break;
    case STAGER_UINT64: return stg_parse_uint64(text, n, ret);
    case STAGER_FLOAT16:
    case STAGER_FLOAT32:
    case STAGER_FLOAT64:
        value.kind = STG_VALUE_FLOAT;
        if (!stg_parse_float64(text, n, &value.f))
            return false;
        break;
    default:
        if (!stg_parse_int64(text, n, &value.i))
            return false;
    }
    return stg_literal_store(&value, dtype, ret, 0, NULL) == 0;
}

/* Finds the value in the url, and where it ends. NULL: there is none. */
static const char *find(const char *url, const char *name, char *room,
                        const char **ret_end)
{
    const char *ret = NULL, *slash;
    const char *end = end_of(url);
    for (const char *at = url; (slash = memchr(at, '/', (size_t)(end - at))) != NULL;
         at = slash + 1) {
        const char *value = value_of(at, slash, name, room);
        ret = value != NULL ? value : ret;
        *ret_end = value != NULL ? slash : *ret_end;
    }
    return ret;
}

static int take(struct stg_path_value *to, const char *name, int dtype,
                struct stg_err *err)
{
    char quoted[STG_QUOTE_BYTES];
    to->is_there = true;
    to->is_null = strcmp(to->text, NULL_FOLDER) == 0;
    if (to->is_null || dtype == STAGER_STRING ||
        convert(to->text, to->text_bytes, dtype, &to->value))
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "column %.256s: its folder has the value %s, which is not %s", name,
                   stg_quote(to->text, to->text_bytes, quoted), stg_dtype_name(dtype));
}

int stg_path_value_find(const char *url, const char *name, int dtype,
                        struct stg_path_value *ret, struct stg_err *err)
{
    const char *end = NULL;
    *ret = (struct stg_path_value){0};
    if (strchr(url, '=') == NULL)
        return 0;
    char *text = malloc(strlen(url) + 1);
    if (text == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    const char *at = find(url, name, text, &end);
    if (at == NULL) {
        free(text);
        return 0;
    }
    ret->text = text;
    ret->text_bytes = decode(at, (size_t)(end - at), text);
    int rc = take(ret, name, dtype, err);
    if (rc < 0)
        stg_path_value_finish(ret);
    return rc;
}

void stg_path_value_finish(struct stg_path_value *value)
{
    free(value->text);
    *value = (struct stg_path_value){0};
}
