/* SPDX-License-Identifier: Apache-2.0
 *
 * The schemes there are: one line each.
 */
#include <ctype.h>
#include <string.h>

#include "daemon/storage/storage.h"

static const struct stg_storage *const storages[] = {
    &stg_storage_file, &stg_storage_http, &stg_storage_https,
    &stg_storage_s3,   &stg_storage_hdfs,
};

/* Length of "scheme" in "scheme://…", or 0. */
static size_t scheme_bytes(const char *url)
{
    size_t n = 0;
    while (isalnum((unsigned char)url[n]) || url[n] == '+' || url[n] == '-' ||
           url[n] == '.')
        n++;
    return n > 0 && strncmp(url + n, "://", 3) == 0 ? n : 0;
}

int stg_storage_find(const char *url, const struct stg_storage **ret,
                     const char **ret_path, struct stg_err *err)
{
    size_t n = scheme_bytes(url);
    if (n == 0) {
        *ret = &stg_storage_file;
        *ret_path = url;
        return 0;
    }
    for (size_t i = 0; i < sizeof(storages) / sizeof(storages[0]); i++) {
        if (strlen(storages[i]->scheme) == n &&
            strncmp(storages[i]->scheme, url, n) == 0) {
            *ret = storages[i];
            *ret_path = url + n + 3;
            return 0;
        }
    }
    if (n == 2 && strncmp(url, "gs", n) == 0)
        return stg_err(
            err, -STAGER_UNIMPLEMENTED,
            "%s: unknown scheme \"gs\": write s3://%s, with a store in stagerd.yaml, "
            "below remote, stores: prefix s3://BUCKET/, endpoint: its S3-compatible "
            "endpoint, credentials_file: a file with its HMAC key",
            url, url + n + 3);
    return stg_err(
        err, -STAGER_UNIMPLEMENTED,
        "%s: unknown scheme \"%.*s\"; known: file (or a path), http, https, s3, hdfs",
        url, (int)n, url);
}
