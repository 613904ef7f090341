/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/url.h"

#include <string.h>
#include <strings.h>

void stg_url_encode(FILE *to, const char *text, bool keep_slashes)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-._~";
    for (; *text != '\0'; text++) {
        if (strchr(plain, *text) != NULL || (keep_slashes && *text == '/'))
            fputc(*text, to);
        else
            fprintf(to, "%%%02X", (unsigned)(unsigned char)*text);
    }
}

bool stg_url_place(const char *url, struct stg_url_place *ret)
{
    bool is_secure = strncmp(url, "https://", 8) == 0;
    if (!is_secure && strncmp(url, "http://", 7) != 0)
        return false;
    const char *at = url + (is_secure ? 8 : 7), *end = at + strcspn(at, "/");
    size_t n = *at == '[' ? strcspn(at, "]") + 1 : strcspn(at, ":/");
    if (n < 1 || n >= sizeof(ret->host) || at + n > end || strlen(url) > 512 ||
        url[strcspn(url, "?#@ \t\r\n")] != '\0')
        return false;
    memcpy(ret->host, at, n);
    ret->host[n] = '\0';
    ret->path = end;
    at += n;
    snprintf(ret->port, sizeof(ret->port), "%s", is_secure ? "443" : "80");
    if (*at != ':')
        return at == end;
    n = (size_t)(end - ++at);
    if (n < 1 || n > 5 || strspn(at, "0123456789") != n)
        return false;
    memcpy(ret->port, at, n);
    ret->port[n] = '\0';
    return true;
}

/* How many bytes of the name are dots, and how many dots that is. */
static size_t dots(const char *name, size_t bytes, unsigned *ret_n)
{
    size_t at = 0;
    unsigned n = 0;
    for (; at < bytes; n++) {
        if (name[at] == '.')
            at++;
        else if (bytes - at >= 3 && strncasecmp(name + at, "%2e", 3) == 0)
            at += 3;
        else
            break;
    }
    *ret_n = n;
    return at;
}

int stg_url_check_dots(const char *scheme, const char *path, struct stg_err *err)
{
    const char *end = path + strcspn(path, "?#");
    for (const char *at = path; at < end;) {
        size_t bytes = strcspn(at, "/?#");
        unsigned n;
        if (dots(at, bytes, &n) == bytes && (n == 1 || n == 2))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "%s://%.*s: a URL must not contain \".\" or \"..\": write the "
                           "resolved path",
                           scheme, (int)(end - path), path);
        at += bytes + 1;
    }
    return 0;
}
