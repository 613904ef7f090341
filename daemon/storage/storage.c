/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/storage.h"

#include <ctype.h>
#include <string.h>

#include "daemon/storage/object.h"

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
    return stg_err(err, -STAGER_UNIMPLEMENTED,
                   "%s: no storage for the scheme \"%.*s\"; known: file (or a path), "
                   "http, https, s3, hdfs",
                   url, (int)n, url);
}

void stg_source_trace(struct stg_source *source, struct stg_trace *trace, const char *url)
{
    source->url = url;
    source->trace = trace;
}

void stg_source_add_span(struct stg_source *source, uint64_t began_ns, uint64_t offset,
                         int64_t n)
{
    uint64_t now = stg_now_ns();
    uint16_t name = stg_trace_known(source->trace, &source->label);
    if (name == 0) {
        char hidden[512];
        name = stg_trace_name(source->trace, &source->label,
                              stg_storage_shown(source->url, hidden, sizeof(hidden)));
    }
    uint32_t bytes = n < 0 ? 0 : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    stg_trace_add(source->trace, &(struct stg_trace_span){.begin_ns = began_ns,
                                                          .end_ns = now,
                                                          .number = offset,
                                                          .value = bytes,
                                                          .kind = STG_SPAN_READ,
                                                          .name = name});
}

const char *stg_storage_shown(const char *url, char *buf, size_t bytes)
{
    bool web = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
    return web ? stg_object_shown(url, buf, bytes) : url;
}
