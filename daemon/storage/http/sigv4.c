/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHA256_BYTES 32
#define HEX_BYTES (2 * SHA256_BYTES + 1)
#define DAY_BYTES 8

/* ---- the URL ---- */

static const char *after_scheme(const char *url)
{
    const char *colon = strstr(url, "://");
    return colon != NULL ? colon + 3 : url;
}

char *stg_sigv4_host(const char *url)
{
    const char *host = after_scheme(url);
    const char *port = strncmp(url, "https:", 6) == 0 ? ":443" : ":80";
    size_t n = strcspn(host, "/?"), n_port = strlen(port);
    if (n > n_port && memcmp(host + n - n_port, port, n_port) == 0)
        n -= n_port;
    return strndup(host, n);
}

/* "name=value" or "name" of a query. */
struct part {
    const char *text;
    size_t n_name, n;
};

static int compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order != 0 ? order : (n_a > n_b) - (n_a < n_b);
}

/* Compares names, then values. "=" is in no name, but sorts after "-" and "%". */
static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order = compare_bytes(x->text, x->n_name, y->text, y->n_name);
    return order != 0 ? order : compare_bytes(x->text, x->n, y->text, y->n);
}

static size_t split(const char *query, struct part *ret)
{
    size_t n = 0;
    while (*query != '\0') {
        size_t bytes = strcspn(query, "&"), name = strcspn(query, "=&");
        if (bytes > 0)
            ret[n++] = (struct part){query, name, bytes};
        query += bytes + (query[bytes] == '&');
    }
    return n;
}

/* ---- the request ---- */

static bool add(EVP_MD_CTX *to, const char *text, size_t n)
{
    return EVP_DigestUpdate(to, text, n) == 1;
}

static bool add_text(EVP_MD_CTX *to, const char *text)
{
    return add(to, text, strlen(text));
}

static bool add_path(EVP_MD_CTX *to, const char *url)
{
    const char *path = after_scheme(url);
    path += strcspn(path, "/?");
    size_t n = strcspn(path, "?");
    return n > 0 ? add(to, path, n) : add_text(to, "/");
}

static bool add_query(EVP_MD_CTX *to, const char *url)
{
    const char *query = url + strcspn(url, "?");
    struct part *parts = calloc(strlen(query) + 1, sizeof(*parts));
    if (parts == NULL)
        return false;
    size_t n = split(query + (*query == '?'), parts);
    bool ok = true;
    qsort(parts, n, sizeof(*parts), compare_parts);
    for (size_t i = 0; i < n && ok; i++)
        ok = add_text(to, i > 0 ? "&" : "") && add(to, parts[i].text, parts[i].n) &&
             add_text(to, parts[i].n_name == parts[i].n ? "=" : "");
    free(parts);
    return ok;
}

static bool add_headers(EVP_MD_CTX *to, const struct stg_sigv4 *request)
{
    bool ok = true;
    for (size_t i = 0; i < request->n_headers && ok; i++)
        ok = add_text(to, request->headers[i].name) && add_text(to, ":") &&
             add_text(to, request->headers[i].value) && add_text(to, "\n");
    return ok;
}

/* Returns the names of the headers, as "a;b", malloc'ed. NULL: out of memory. */
static char *names_of(const struct stg_sigv4 *request)
{
    size_t bytes = 1;
    for (size_t i = 0; i < request->n_headers; i++)
        bytes += strlen(request->headers[i].name) + 1;
    char *ret = calloc(1, bytes), *to = ret;
    for (size_t i = 0; i < request->n_headers && ret != NULL; i++)
        to = stpcpy(stpcpy(to, i > 0 ? ";" : ""), request->headers[i].name);
    return ret;
}

static void put_hex(const uint8_t *bytes, char ret[HEX_BYTES])
{
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

/* Writes the digest of the canonical request. False: out of memory. */
static bool put_digest(const struct stg_sigv4 *request, const char *names,
                       char ret[HEX_BYTES])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *to = EVP_MD_CTX_new();
    bool ok = to != NULL && EVP_DigestInit_ex(to, EVP_sha256(), NULL) == 1 &&
              add_text(to, "GET\n") && add_path(to, request->url) && add_text(to, "\n") &&
              add_query(to, request->url) && add_text(to, "\n") &&
              add_headers(to, request) && add_text(to, "\n") && add_text(to, names) &&
              add_text(to, "\n" STG_SIGV4_NO_BODY) &&
              EVP_DigestFinal_ex(to, digest, NULL) == 1;
    if (ok)
        put_hex(digest, ret);
    EVP_MD_CTX_free(to);
    return ok;
}

/* Replaces the key by the code of `text` under it. */
static bool chain(uint8_t key[SHA256_BYTES], const char *text, size_t n)
{
    uint8_t code[EVP_MAX_MD_SIZE];
    if (HMAC(EVP_sha256(), key, SHA256_BYTES, (const uint8_t *)text, n, code, NULL) ==
        NULL)
        return false;
    memcpy(key, code, SHA256_BYTES);
    return true;
}

/* Writes the key of one day, region and service. False: out of memory. */
static bool derive_key(const struct stg_sigv4 *request, uint8_t ret[SHA256_BYTES])
{
    uint8_t code[EVP_MAX_MD_SIZE];
    char *secret;
    int n = asprintf(&secret, "AWS4%s", request->secret);
    if (n < 0)
        return false;
    bool ok = HMAC(EVP_sha256(), secret, n, (const uint8_t *)request->date, DAY_BYTES,
                   code, NULL) != NULL;
    memcpy(ret, code, SHA256_BYTES);
    explicit_bzero(secret, (size_t)n);
    free(secret);
    return ok && chain(ret, request->region, strlen(request->region)) &&
           chain(ret, request->service, strlen(request->service)) &&
           chain(ret, "aws4_request", strlen("aws4_request"));
}

/* Writes the signature of a canonical request's digest. False: out of memory. */
static bool put_signature(const struct stg_sigv4 *request, const char *digest,
                          char ret[HEX_BYTES])
{
    uint8_t key[SHA256_BYTES] = {0};
    char *text;
    int n = asprintf(&text, "AWS4-HMAC-SHA256\n%s\n%.*s/%s/%s/aws4_request\n%s",
                     request->date, DAY_BYTES, request->date, request->region,
                     request->service, digest);
    if (n < 0)
        return false;
    bool ok = derive_key(request, key) && chain(key, text, (size_t)n);
    if (ok)
        put_hex(key, ret);
    explicit_bzero(key, sizeof(key));
    free(text);
    return ok;
}

char *stg_sigv4(const struct stg_sigv4 *request)
{
    char digest[HEX_BYTES], signature[HEX_BYTES], *ret = NULL, *names = names_of(request);
    if (names == NULL || !put_digest(request, names, digest) ||
        !put_signature(request, digest, signature) ||
        asprintf(&ret,
                 "AWS4-HMAC-SHA256 Credential=%s/%.*s/%s/%s/aws4_request, "
                 "SignedHeaders=%s, Signature=%s",
                 request->key, DAY_BYTES, request->date, request->region,
                 request->service, names, signature) < 0)
        ret = NULL;
    free(names);
    return ret;
}
