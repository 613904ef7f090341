/* SPDX-License-Identifier: Apache-2.0
 *
 * Of XML as much as such a list has: elements without attributes, text, references.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/http/s3.h"

/* The text of the first element `name` from *at on, ended by a NUL that is written over
 * its end tag; *at goes on behind. NULL: there is none. */
static char *element(char **at, const char *name)
{
    char open[64], close[64];
    snprintf(open, sizeof(open), "<%s>", name);
    snprintf(close, sizeof(close), "</%s>", name);
    char *from = strstr(*at, open);
    char *to = from != NULL ? strstr(from, close) : NULL;
    if (to == NULL)
        return NULL;
    *to = '\0';
    *at = to + strlen(close);
    return from + strlen(open);
}

/* Characters beyond ASCII come percent-encoded. */
static size_t reference(const char *text, char *ret)
{
    static const struct {
        const char *text;
        char c;
    } named[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        size_t n = strlen(named[i].text);
        if (strncmp(text, named[i].text, n) == 0) {
            *ret = named[i].c;
            return n;
        }
    }
    if (text[1] != '#')
        return 0;
    bool hex = text[2] == 'x';
    char *end;
    unsigned long code = strtoul(text + (hex ? 3 : 2), &end, hex ? 16 : 10);
    if (*end != ';' || code == 0 || code > 127)
        return 0;
    *ret = (char)code;
    return (size_t)(end + 1 - text);
}

static void resolve(char *text)
{
    char *to = text;
    while (*text != '\0') {
        char c = *text;
        size_t n = c == '&' ? reference(text, &c) : 1;
        text += n > 0 ? n : 1;
        *to++ = c;
    }
    *to = '\0';
}

static int digit(char c)
{
    const char *digits = "0123456789abcdef",
               *at = c != '\0' ? strchr(digits, c | 0x20) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* False: a NUL is in it. */
static bool decode(char *text)
{
    char *to = text;
    for (; *text != '\0'; text++) {
        int high = *text == '%' ? digit(text[1]) : -1;
        int low = high >= 0 ? digit(text[2]) : -1;
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

static int take_contents(char *contents, bool encoded, stg_s3_key *found, void *owner,
                         struct stg_err *err)
{
    char *key = element(&contents, "Key");
    if (key == NULL)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "the list of the bucket has an object "
                       "without a key");
    resolve(key);
    if (encoded && !decode(key))
        return stg_err(err, -STAGER_DATA_LOSS,
                       "the list of the bucket has a key with a "
                       "NUL");
    return found(owner, key, err);
}

/* The token, if there is more. It stands before the objects, or behind them. */
static int take_token(const char *text, char token[STG_S3_TOKEN_BYTES],
                      struct stg_err *err)
{
    static const char open[] = "<NextContinuationToken>";
    token[0] = '\0';
    if (strstr(text, "<IsTruncated>true</IsTruncated>") == NULL)
        return 0;
    const char *from = strstr(text, open);
    size_t n = from != NULL ? strcspn(from + strlen(open), "<") : 0;
    if (n == 0 || n >= STG_S3_TOKEN_BYTES)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "the list of the bucket goes on, and does "
                       "not say where");
    memcpy(token, from + strlen(open), n);
    token[n] = '\0';
    resolve(token);
    return 0;
}

int stg_s3_page(char *text, stg_s3_key *found, void *owner,
                char token[STG_S3_TOKEN_BYTES], struct stg_err *err)
{
    if (strstr(text, "<ListBucketResult") == NULL ||
        strstr(text, "</ListBucketResult>") == NULL)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "the server's answer is no list of a bucket: is the endpoint one "
                       "of S3?");
    int rc = take_token(text, token, err);
    bool encoded = strstr(text, "<EncodingType>url</EncodingType>") != NULL;
    char *contents;
    while (rc == 0 && (contents = element(&text, "Contents")) != NULL)
        rc = take_contents(contents, encoded, found, owner, err);
    return rc;
}
