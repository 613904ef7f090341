/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks made of runs of records from several other blocks, in any order: long runs are
 * views, short ones are gathered in one copy. What a step that mixes its inputs shares.
 * One thread.
 */
#ifndef STG_DAEMON_MIX_H
#define STG_DAEMON_MIX_H

#include "daemon/dataset/slice.h"
#include "daemon/dataset/step.h"

/* As stg_transformation.infer_many, of a step that yields elements of all its inputs:
 * they must have the same components, and dimensions in which they differ are unknown. */
int stg_mix_infer(const struct stg_step *step, const struct stg_input *in, size_t n,
                  struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err);

/* Where a step stands in the block that it took last from one of its inputs. */
struct stg_cursor {
    struct stg_block *block; /* NULL: none; the cursor owns it */
    int64_t at;              /* its next record */
};

/* A zeroed struct is an empty mix. */
struct stg_mix {
    struct stg_slice *slices; /* of blocks of cursors, or of `held` */
    size_t n_slices, slices_size;
    struct stg_block **held; /* used up by their cursors */
    size_t n_held, held_size;
    int64_t n_records;
    uint64_t n_bytes; /* about */
    uint64_t epoch;
};

/* False: n records at the cursor do not go with what is in the mix; emit that first. */
bool stg_mix_takes(const struct stg_mix *mix, const struct stg_cursor *cursor, int64_t n);

/* Adds n (at least 1) records and moves the cursor behind them; a block that is used up
 * is taken from it. True in *ret_full: nothing more goes with it. RESOURCE_EXHAUSTED
 * without a text; the cursor is then where it was. */
int stg_mix_add(struct stg_mix *mix, struct stg_cursor *cursor, int64_t n,
                bool *ret_full);

/* The records of a mix that is not empty, as one block; the mix is empty after it, also
 * on failure. */
int stg_mix_emit(struct stg_mix *mix, struct stg_quota *quota, const char *what,
                 struct stg_block **ret, struct stg_err *err);

/* Forgets what is in it. */
void stg_mix_clear(struct stg_mix *mix);
void stg_mix_finish(struct stg_mix *mix);

void stg_cursor_clear(struct stg_cursor *cursor);

#endif
