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
