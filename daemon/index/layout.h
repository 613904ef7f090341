/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to daemon/index: what lies in the file of an index. A head, the key as text
 * (reader, a zero, url, filled up with zeros to a multiple of 32), then the places.
 * Little-endian, as memory is.
 */
#ifndef STG_DAEMON_INDEX_LAYOUT_H
#define STG_DAEMON_INDEX_LAYOUT_H

#include <assert.h>

#include "daemon/index/index.h"
#include "daemon/storage/local/folder.h"
#include "ops/base/hash.h"

#define STG_INDEX_MAGIC "stgindex"
/* Incremented when the format, or what a format counts as a record, changes. */
#define STG_INDEX_VERSION 1
/* Places that are summed, written and read at once: 4 KiB. */
#define STG_INDEX_PIECE 128

struct stg_index_head {
    char magic[8];
    uint32_t version;
    uint32_t key_bytes; /* of the text, without what fills it up */
    uint64_t file_version, file_bytes;
    struct stg_index_totals totals;
    uint64_t n_places;
    uint64_t places_sum; /* over pieces of STG_INDEX_PIECE places */
    uint64_t zero[6];
    uint64_t sum; /* of all before it */
};

static_assert(sizeof(struct stg_index_head) == 128, "layout");
static_assert(sizeof(struct stg_index_place) == 32, "layout");

extern struct stg_folder stg_index_folder;

/* Returns the text of a key, or NULL if memory runs out; the caller frees it. */
char *stg_index_key_text(const struct stg_index_key *key, size_t *ret_bytes);

/* Returns the url of a key's text as logs may show it: it, or buf. */
const char *stg_index_shown(const char *text, char *buf, size_t bytes);

static inline uint64_t stg_index_places_at(uint64_t key_bytes)
{
    return sizeof(struct stg_index_head) + ((key_bytes + 31) & ~(uint64_t)31);
}

static inline uint64_t stg_index_head_sum(const struct stg_index_head *head)
{
    return stg_fingerprint64_join(0, head, offsetof(struct stg_index_head, sum));
}

#endif
