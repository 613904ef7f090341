/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes blocks from runs of records of several other blocks, in any order. A long run
 * becomes a view; short runs are gathered in one copy. Shared by the steps that mix their
 * inputs. One thread.
 */
#ifndef STG_DAEMON_MIX_H
#define STG_DAEMON_MIX_H

#include "daemon/dataset/slice.h"
#include "daemon/dataset/step.h"

/* Implements stg_transformation.infer_many for a step that yields elements of all its
 * inputs. The inputs must have the same components. A dimension in which they differ is
 * unknown in the result. */
int stg_mix_infer(const struct stg_step *step, const struct stg_input *in, size_t n,
                  struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err);

/* The position of a step in its current block of one input. */
struct stg_cursor {
    struct stg_block *block; /* owned; NULL: none */
    int64_t at;              /* index of the next record */
};

/* A zeroed struct is an empty mix. */
struct stg_mix {
    struct stg_slice *slices; /* of the blocks of cursors or in `held` */
    size_t n_slices, slices_size;
    struct stg_block **held; /* owned: blocks that their cursors have used up */
    size_t n_held, held_size;
    int64_t n_records;
    uint64_t n_bytes; /* approximate */
    uint64_t epoch;
};

/* Returns whether the next n records of the cursor can join the mix. If not, the caller
 * emits the mix first. */
bool stg_mix_takes(const struct stg_mix *mix, const struct stg_cursor *cursor, int64_t n);

/* Adds n (at least 1) records and advances the cursor past them. If that uses up the
 * block, the mix takes it over and the cursor becomes empty. *ret_full: nothing more can
 * join the mix. RESOURCE_EXHAUSTED (without a text): the cursor is unchanged. */
int stg_mix_add(struct stg_mix *mix, struct stg_cursor *cursor, int64_t n,
                bool *ret_full);

/* Returns the records of the mix, which must not be empty, as one block. Empties the mix,
 * also on failure. */
int stg_mix_emit(struct stg_mix *mix, struct stg_quota *quota, const char *what,
                 struct stg_block **ret, struct stg_err *err);

/* Empties the mix. */
void stg_mix_clear(struct stg_mix *mix);
/* Empties the mix and frees its memory. */
void stg_mix_finish(struct stg_mix *mix);

/* Releases the block of the cursor. */
void stg_cursor_clear(struct stg_cursor *cursor);

#endif
