/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/http/hdfs.h"
#include "ops/base/json.h"

static bool is_text(const struct stg_json_token *token, const char *text)
{
    return token->bytes == strlen(text) && memcmp(token->s, text, token->bytes) == 0;
}

static uint64_t number(const struct stg_json_token *token)
{
    char digits[32];
    if (token->kind != '0' || token->bytes >= sizeof(digits))
        return 0;
    memcpy(digits, token->s, token->bytes);
    digits[token->bytes] = '\0';
    return digits[0] == '-' ? 0 : strtoull(digits, NULL, 10);
}

/* A name that is too long, or leads elsewhere, is none. */
static bool take_name(const struct stg_json_token *token, struct stg_hdfs_status *ret)
{
    char text[6 * NAME_MAX];
    if (token->kind != '"' || token->bytes > sizeof(text))
        return false;
    size_t n = stg_json_unescape(token, text);
    if (n > NAME_MAX || memchr(text, '\0', n) != NULL || memchr(text, '/', n) != NULL)
        return false;
    memcpy(ret->name, text, n);
    ret->name[n] = '\0';
    return strcmp(ret->name, ".") != 0 && strcmp(ret->name, "..") != 0;
}

static bool take_member(const struct stg_json_token *key, struct stg_json *at,
                        struct stg_hdfs_status *ret)
{
    struct stg_json before = *at;
    struct stg_json_token value;
    if (!stg_json_skip(at))
        return false;
    if (!stg_json_next(&before, &value))
        return false;
    if (is_text(key, "pathSuffix"))
        return take_name(&value, ret);
    if (is_text(key, "type"))
        ret->is_directory = is_text(&value, "DIRECTORY");
    else if (is_text(key, "length"))
        ret->length = number(&value);
    else if (is_text(key, "modificationTime"))
        ret->modified = number(&value);
    else if (is_text(key, "fileId"))
        ret->id = number(&value);
    return true;
}

/* One object, behind its brace. */
static bool take_status(struct stg_json *at, struct stg_hdfs_status *ret)
{
    *ret = (struct stg_hdfs_status){0};
    if (stg_json_take(at, '}'))
        return true;
    do {
        struct stg_json_token key;
        if (!stg_json_next(at, &key) || key.kind != '"' || !stg_json_take(at, ':') ||
            !take_member(&key, at, ret))
            return false;
    } while (stg_json_take(at, ','));
    return stg_json_take(at, '}');
}

/* Behind {"name":, and then the kind. */
static bool enter(struct stg_json *at, const char *name, char kind)
{
    struct stg_json_token key;
    return stg_json_take(at, '{') && stg_json_next(at, &key) && key.kind == '"' &&
           is_text(&key, name) && stg_json_take(at, ':') &&
           (kind == '\0' || stg_json_take(at, kind));
}

static int no_answer(struct stg_err *err)
{
    return stg_err(
        err, -STAGER_DATA_LOSS,
        "the answer is not WebHDFS: is the port that of the namenode's web interface?");
}

int stg_hdfs_status(const char *text, size_t bytes, struct stg_hdfs_status *ret,
                    struct stg_err *err)
{
    struct stg_json at = {.p = text, .end = text + bytes};
    struct stg_hdfs_status status;
    if (!enter(&at, "FileStatus", '{') || !take_status(&at, &status))
        return no_answer(err);
    *ret = status;
    return 0;
}

int stg_hdfs_list(const char *text, size_t bytes, stg_hdfs_entry *found, void *owner,
                  struct stg_err *err)
{
    struct stg_json at = {.p = text, .end = text + bytes};
    if (!enter(&at, "FileStatuses", '\0') || !enter(&at, "FileStatus", '['))
        return no_answer(err);
    if (stg_json_take(&at, ']'))
        return 0;
    do {
        struct stg_hdfs_status status;
        if (!stg_json_take(&at, '{') || !take_status(&at, &status))
            return no_answer(err);
        int rc = found(owner, &status, err);
        if (rc < 0)
            return rc;
    } while (stg_json_take(&at, ','));
    return stg_json_take(&at, ']') ? 0 : no_answer(err);
}

/* A string, truncated to the room for it. */
static void take_text(const struct stg_json_token *value, char *ret, size_t ret_bytes)
{
    char text[2048];
    if (value->kind != '"' || value->bytes >= sizeof(text))
        return;
    text[stg_json_unescape(value, text)] = '\0';
    snprintf(ret, ret_bytes, "%s", text);
}

void stg_hdfs_refusal(const char *text, size_t bytes, char *exception,
                      size_t exception_bytes, char *message, size_t message_bytes)
{
    struct stg_json at = {.p = text, .end = text + bytes};
    exception[0] = message[0] = '\0';
    if (!enter(&at, "RemoteException", '{'))
        return;
    do {
        struct stg_json_token key, value;
        if (!stg_json_next(&at, &key) || key.kind != '"' || !stg_json_take(&at, ':'))
            return;
        struct stg_json before = at;
        if (!stg_json_skip(&at) || !stg_json_next(&before, &value))
            return;
        if (is_text(&key, "exception"))
            take_text(&value, exception, exception_bytes);
        else if (is_text(&key, "message"))
            take_text(&value, message, message_bytes);
    } while (stg_json_take(&at, ','));
}
