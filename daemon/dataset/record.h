/* SPDX-License-Identifier: Apache-2.0
 *
 * Records out of blocks, copied, so that they may stay while the block goes: packed into
 * a slab when their components are scalars; else (after `batch`) each a block of its own.
 * Many at once: they lie anywhere in memory that is larger than the caches, and only a
 * caller that has the next ones can prefetch them. One thread.
 */
#ifndef STG_DAEMON_RECORD_H
#define STG_DAEMON_RECORD_H

#include "daemon/dataset/dataset.h"
#include "daemon/dataset/slab.h"

/* A record of a store; moved as its holder likes. */
struct stg_record {
    uint32_t place; /* in the slabs */
    uint32_t words; /* of 8 bytes */
};

/* The dictionaries of the components of a block; NULL: not coded. */
struct stg_record_set {
    uint64_t n; /* records that are out */
    const struct stg_strings *dictionaries[];
};

struct stg_record_store {
    struct stg_slabs slabs;
    const struct stg_schema *schema;
    bool boxed;                   /* a record is a struct stg_block with n_records 1 */
    bool has_strings;             /* else all are numbers */
    struct stg_record_set **sets; /* of coded records; some are NULL */
    uint32_t n_sets;
    const struct stg_strings **common; /* of the records that are emitted; one a
                                          component, NULL without sets */
    uint64_t n;                        /* records that are out */
    uint64_t n_bytes;                  /* of them, without what the slabs lose */
};

void stg_record_store_init(struct stg_record_store *store, struct stg_quota *quota,
                           const struct stg_schema *schema);
/* All records must have been freed. The store may be used on: it has given back its
 * memory. */
void stg_record_store_finish(struct stg_record_store *store);

/* Records first … first + n - 1 of a block. RESOURCE_EXHAUSTED without a text: none was
 * taken. */
int stg_record_take(struct stg_record_store *store, const struct stg_block *block,
                    int64_t first, int64_t n, struct stg_record *ret);
void stg_record_free(struct stg_record_store *store, const struct stg_record *records,
                     int64_t n);

uint64_t stg_record_epoch(const struct stg_record_store *store, struct stg_record record);

/* n records (1 when boxed) as a block; the records are freed, also on failure. */
int stg_record_emit(struct stg_record_store *store, const struct stg_record *records,
                    int64_t n, struct stg_block **ret, struct stg_err *err);

#endif
