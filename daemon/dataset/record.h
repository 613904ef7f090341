/* SPDX-License-Identifier: Apache-2.0
 *
 * One record out of a block, copied, so that it may stay while the block goes: packed
 * into a slab when its components are scalars; else (after `batch`) a block of its own.
 * One thread.
 */
#ifndef STG_DAEMON_RECORD_H
#define STG_DAEMON_RECORD_H

#include "daemon/dataset/dataset.h"
#include "daemon/dataset/slab.h"

struct stg_record; /* packed, or a block: see stg_records_store.boxed */

struct stg_record_store {
    struct stg_slabs slabs;
    const struct stg_schema *schema;
    bool boxed;       /* a record is a struct stg_block with n_records 1 */
    uint64_t n;       /* records that are out */
    uint64_t n_bytes; /* of them, without what the slabs lose */
};

void stg_record_store_init(struct stg_record_store *store, struct stg_quota *quota,
                           const struct stg_schema *schema);
/* All records must have been freed. */
void stg_record_store_finish(struct stg_record_store *store);

/* Record i of a block. RESOURCE_EXHAUSTED without a text. */
int stg_record_take(struct stg_record_store *store, const struct stg_block *block,
                    int64_t i, struct stg_record **ret);
void stg_record_free(struct stg_record_store *store, struct stg_record *record);

uint64_t stg_record_epoch(const struct stg_record_store *store,
                          const struct stg_record *record);

/* n records (1 when boxed) as a block; the records are freed, also on failure. */
int stg_record_emit(struct stg_record_store *store, struct stg_record *const *records,
                    int64_t n, struct stg_block **ret, struct stg_err *err);

#endif
