/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies in a cache file: a head, blocks, a tail. Little-endian, as memory is; every
 * part begins at a multiple of 64, so that a block is used where it was read to. Shared
 * by writer and reader alone.
 */
#ifndef STG_DAEMON_CACHE_LAYOUT_H
#define STG_DAEMON_CACHE_LAYOUT_H

#include <assert.h>

#include "daemon/dataset/cache/cache_file.h"
#include "ops/base/hash.h"

#define STG_CACHE_MAGIC "stgcache"
#define STG_CACHE_TAIL_MAGIC "stgc-end"

struct stg_cache_head {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    struct stg_cache_key key;
    uint64_t zero[2];
    uint64_t sum; /* of all before it */
};

/* Then n_components struct stg_cache_tensor, then for each what it has: begin and end of
 * its strings, its data; then the rows. */
struct stg_cache_block {
    uint64_t bytes; /* that follow this struct */
    uint64_t sum;   /* of those */
    int64_t n_records;
    int64_t n_rows;
    uint64_t epoch;
    uint32_t n_components;
    uint32_t has_rows;
    uint64_t zero;
    uint64_t head_sum; /* of all before it */
};

struct stg_cache_tensor {
    int32_t dtype;
    int32_t ndim;
    int64_t shape[STG_MAX_DIMS];
    uint64_t data_bytes;
    uint64_t zero[6];
};

struct stg_cache_tail {
    char magic[8];
    uint64_t n_blocks;
    uint64_t bytes; /* of the file before this struct */
    uint64_t zero[4];
    uint64_t sum; /* of all before it */
};

static_assert(sizeof(struct stg_cache_head) == 64, "layout");
static_assert(sizeof(struct stg_cache_block) == 64, "layout");
static_assert(sizeof(struct stg_cache_tensor) == 128, "layout");
static_assert(sizeof(struct stg_cache_tail) == 64, "layout");
static_assert(sizeof(struct stg_provenance) == 24, "layout");

#endif
