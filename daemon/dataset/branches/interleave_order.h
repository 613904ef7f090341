/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of interleave without its records: which slots hold which files, and how much
 * of each has come out after so many records. One thread.
 */
#ifndef STG_DAEMON_INTERLEAVE_ORDER_H
#define STG_DAEMON_INTERLEAVE_ORDER_H

#include <stdint.h>

#include "core/err.h"

struct stg_interleave_slot {
    uint64_t file; /* from 0, in the order of the input; UINT64_MAX: empty */
    uint64_t n_records, n_done;
};

struct stg_interleave_order {
    struct stg_interleave_slot *slots; /* n_slots, of the caller */
    uint32_t n_slots, n_open;
    uint32_t at;           /* the slot that is visited */
    uint64_t left;         /* records of this visit */
    uint64_t block_length; /* of each visit */
    uint64_t n_files;      /* that were begun */
    /* Sets *ret to the number of records of file number n_files. Returns 0; 1: the file
     * does not exist; or any other code, which ends the skip. */
    int (*count)(void *owner, uint64_t file, uint64_t *ret, struct stg_err *err);
    void *owner;
};

/* Begins before the first record; n_slots, slots, block_length, count and owner are set.
 */
void stg_interleave_order_begin(struct stg_interleave_order *order);

/* Moves forward by n records. *ret: by how many, less only at the end. Returns 0, or a
 * code of count. */
int stg_interleave_order_skip(struct stg_interleave_order *order, uint64_t n,
                              uint64_t *ret, struct stg_err *err);

#endif
