/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/storage/counts.h"
#include "daemon/storage/storage.h"

void stg_source_trace(struct stg_source *source, struct stg_trace *trace, const char *url)
{
    source->url = url;
    source->trace = trace;
}

void stg_source_count(const struct stg_source *source, int64_t n)
{
    bool remote = source->storage->remote;
    if (n < 0 || source->storage->open == NULL)
        return;
    stg_storage_count(remote ? STG_COUNT_REMOTE_READS : STG_COUNT_LOCAL_READS, 1);
    stg_storage_count(remote ? STG_COUNT_REMOTE_BYTES : STG_COUNT_LOCAL_BYTES,
                      (uint64_t)n);
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
    return web ? stg_storage_shown_query(url, buf, bytes) : url;
}

const char *stg_storage_shown_query(const char *url, char *buf, size_t bytes)
{
    size_t n = strcspn(url, "?#");
    snprintf(buf, bytes, "%.*s%s", (int)n, url, url[n] == '?' ? "?…" : "");
    return buf;
}

void stg_storage_make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        if (!isprint((unsigned char)*text))
            *text = ' ';
    }
}

int stg_source_read_all(struct stg_source *source, uint64_t offset, void *buf,
                        uint64_t bytes, bool *ret_storage, struct stg_err *err)
{
    for (uint64_t done = 0; done < bytes;) {
        int64_t n =
            stg_source_read(source, offset + done, (char *)buf + done, bytes - done, err);
        if (n < 0) {
            *ret_storage = true;
            return (int)n;
        }
        if (n == 0)
            return stg_err(err, -STAGER_DATA_LOSS,
                           "the file ends at offset %" PRIu64 ", inside its data",
                           offset + done);
        done += (uint64_t)n;
    }
    return 0;
}
