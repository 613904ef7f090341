/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/index/layout.h"
#include "daemon/storage/storage.h"

#define CHECKED_BYTES 64

struct stg_folder stg_index_folder = STG_FOLDER_INIT;

int stg_index_configure(const char *folder, uint64_t most_bytes, struct stg_err *err)
{
    int rc = stg_folder_open(&stg_index_folder, most_bytes > 0 ? folder : "", most_bytes);
    if (rc < 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s: %s: stagerd stores no record indexes, so that a pass that "
                       "continues in the middle reads its files from the start",
                       folder, strerror(-rc));
    return 0;
}

void stg_index_finish(void)
{
    stg_folder_close(&stg_index_folder);
}

static _Atomic uint64_t min_bytes = STG_INDEX_MIN_BYTES;

uint64_t stg_index_min_bytes(void)
{
    return atomic_load_explicit(&min_bytes, memory_order_relaxed);
}

void stg_index_set_min_bytes(uint64_t bytes)
{
    atomic_store(&min_bytes, bytes);
}

uint64_t stg_index_check(const char *record, uint64_t bytes)
{
    uint64_t n = bytes < CHECKED_BYTES ? bytes : CHECKED_BYTES;
    return stg_fingerprint64_join(bytes, record, n);
}

char *stg_index_key_text(const struct stg_index_key *key, size_t *ret_bytes)
{
    size_t reader_bytes = strlen(key->reader) + 1, url_bytes = strlen(key->url) + 1;
    char *text = calloc(1, reader_bytes + url_bytes + 31);
    if (text == NULL)
        return NULL;
    memcpy(text, key->reader, reader_bytes);
    memcpy(text + reader_bytes, key->url, url_bytes);
    *ret_bytes = reader_bytes + url_bytes;
    return text;
}

const char *stg_index_shown(const char *text, char *buf, size_t bytes)
{
    return stg_storage_shown(text + strlen(text) + 1, buf, bytes);
}
