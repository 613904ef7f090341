/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/param.h"
#include "daemon/storage/http/s3.h"
#include "daemon/storage/http/xml.h"

/* ---- a page of a list ---- */

struct page {
    bool is_list, is_encoded, is_truncated;
    bool has_key; /* the object that is read has one */
    char *token;  /* STG_S3_TOKEN_BYTES */
    FILE *keys;   /* one after the other, each with its NUL */
};

/* False: a NUL is in it. */
static bool decode(char *text)
{
    char *to = text;
    for (; *text != '\0'; text++) {
        int high = *text == '%' ? stg_hex_digit(text[1]) : -1;
        int low = high >= 0 ? stg_hex_digit(text[2]) : -1;
        char c = *text == '+' ? ' ' : *text;
        if (low >= 0) {
            c = (char)(high << 4 | low);
            text += 2;
        }
        if (c == '\0')
            return false;
        *to++ = c;
    }
    *to = '\0';
    return true;
}

static int take_key(struct page *page, const char *text, struct stg_err *err)
{
    if (text == NULL)
        return stg_err(err, -STAGER_DATA_LOSS, "a key of more than %d bytes",
                       STG_XML_TEXT_BYTES - 1);
    if (!page->has_key && fwrite(text, strlen(text) + 1, 1, page->keys) != 1)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    page->has_key = true;
    return 0;
}

static int take_element(void *owner, const char *path, const char *text,
                        struct stg_err *err)
{
    static const char root[] = "ListBucketResult";
    struct page *page = owner;
    if (strncmp(path, root, strlen(root)) != 0)
        return 0;
    const char *name = path + strlen(root);
    if (strcmp(name, "/Contents/Key") == 0)
        return take_key(page, text, err);
    if (strcmp(name, "/Contents") == 0) {
        if (!page->has_key)
            return stg_err(err, -STAGER_DATA_LOSS, "an object without a key");
        page->has_key = false;
    } else if (strcmp(name, "/EncodingType") == 0) {
        page->is_encoded = text != NULL && strcmp(text, "url") == 0;
    } else if (strcmp(name, "/IsTruncated") == 0) {
        page->is_truncated = text != NULL && strcmp(text, "true") == 0;
    } else if (strcmp(name, "/NextContinuationToken") == 0) {
        bool fits = text != NULL && strlen(text) < STG_S3_TOKEN_BYTES;
        strcpy(page->token, fits ? text : "");
    } else if (name[0] == '\0') {
        page->is_list = true;
    }
    return 0;
}

static int read_page(struct page *page, const char *text, size_t bytes,
                     struct stg_err *err)
{
    int rc = stg_xml_read(text, bytes, take_element, page, err);
    if (rc == 0 && !page->is_list)
        rc = stg_err(err, -STAGER_DATA_LOSS, "its root is not ListBucketResult");
    if (rc == 0 && page->is_truncated && page->token[0] == '\0')
        rc = stg_err(err, -STAGER_DATA_LOSS,
                     "it is incomplete and has no continuation token");
    if (!page->is_truncated)
        page->token[0] = '\0';
    if (rc != -STAGER_DATA_LOSS)
        return rc;
    stg_err_prefix(err, rc, "the server's answer is not a list of a bucket");
    return stg_err_append(err, rc, ": is the endpoint an S3 endpoint?");
}

static int give_keys(const struct page *page, char *keys, size_t bytes, stg_s3_key *found,
                     void *owner, struct stg_err *err)
{
    int rc = 0;
    char *key = keys, *next;
    for (; rc == 0 && key < keys + bytes; key = next) {
        next = key + strlen(key) + 1;
        rc = page->is_encoded && !decode(key)
                 ? stg_err(err, -STAGER_DATA_LOSS,
                           "the list of the bucket has a key with a NUL")
                 : found(owner, key, err);
    }
    return rc;
}

int stg_s3_page(const char *text, size_t bytes, stg_s3_key *found, void *owner,
                char token[STG_S3_TOKEN_BYTES], struct stg_err *err)
{
    char *keys = NULL;
    size_t n = 0;
    struct page page = {.token = token, .keys = open_memstream(&keys, &n)};
    if (page.keys == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    token[0] = '\0';
    int rc = read_page(&page, text, bytes, err);
    if (fclose(page.keys) != 0 && rc == 0)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == 0)
        rc = give_keys(&page, keys, n, found, owner, err);
    free(keys);
    return rc;
}

/* ---- a refusal ---- */

struct refusal {
    char *code, *message;
    size_t code_bytes, message_bytes;
};

static int take_refusal(void *owner, const char *path, const char *text,
                        struct stg_err *err)
{
    struct refusal *ret = owner;
    const char *slash = strrchr(path, '/');
    if (slash == NULL || text == NULL)
        return 0;
    if (strcmp(slash, "/Code") == 0 && ret->code[0] == '\0')
        snprintf(ret->code, ret->code_bytes, "%s", text);
    else if (strcmp(slash, "/Message") == 0 && ret->message[0] == '\0')
        snprintf(ret->message, ret->message_bytes, "%s", text);
    return 0;
}

void stg_s3_refusal(const char *text, size_t bytes, char *code, size_t code_bytes,
                    char *message, size_t message_bytes)
{
    struct refusal ret = {code, message, code_bytes, message_bytes};
    code[0] = message[0] = '\0';
    stg_xml_read(text, bytes, take_refusal, &ret, NULL);
}
