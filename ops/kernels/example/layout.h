/* SPDX-License-Identifier: Apache-2.0
 *
 * How the records of a batch are laid out, learned from a few of them: which keys stand
 * behind which. A writer puts the keys of each record in one order, and leaves out those
 * that a record has not. Where that holds the entries are taken key by key, all records
 * of a block at once: whether one has the key is a compare of its bytes, and no branch.
 * Where it does not hold, stg_example_index takes the record, by the rules: a layout is a
 * guess, and what it finds is what stg_example_index would. For parse_example.c alone; in
 * the scratch of one run, one thread.
 */
#ifndef STG_OPS_KERNELS_EXAMPLE_LAYOUT_H
#define STG_OPS_KERNELS_EXAMPLE_LAYOUT_H

#include "ops/kernels/example/example.h"

/* Records that are taken together: so many that they stay in the nearest cache. */
#define STG_EXAMPLE_BLOCK 48

/* An entry with lengths of one byte: which bytes it begins with, and how its length
 * follows from that of what is in it: the list of a key that is asked for, the value of
 * another. */
struct stg_example_step {
    uint64_t head[2], mask[2]; /* the first 16 bytes, of which the masked ones count */
    const uint8_t *name;       /* in a record of the batch */
    uint32_t name_bytes;
    uint32_t key;      /* of the plan; n_keys: not requested */
    uint32_t kind;     /* of the list */
    uint32_t overhead; /* the entry's length without what is in it */
    /* The four bytes behind the name are `value` + `times` for each byte of what is in
     * it, of which the masked ones count. */
    uint32_t value, times, value_mask;
};

struct stg_example_layout {
    const struct stg_example_plan *plan;
    struct stg_example_step *steps;
    uint32_t n_steps, max_steps;
    uint32_t patience;                /* how much more may be learned; 0: nothing */
    bool *known;                      /* key -> it has a step */
    struct stg_example_span *ignored; /* STG_EXAMPLE_BLOCK, of what is not requested */
};

/* A layout without steps, in bump. False: out of memory. */
bool stg_example_layout_init(struct stg_example_layout *layout,
                             const struct stg_example_plan *plan, struct stg_bump *bump);

/* Adds what the record shows of the order of keys. It is kept until the layout is used
 * for the last time. Records that are too different from each other end the layout: it
 * has no steps any more. */
void stg_example_layout_learn(struct stg_example_layout *layout, const uint8_t *s,
                              size_t bytes);

/* Of a layout that has steps. The records [first, first + n) of `records`, at most
 * STG_EXAMPLE_BLOCK: spans[k][i] = where the list of key k of record first + i lies, NONE
 * where it has none; good[i] = false: it is laid out in another way, and what its spans
 * are is not known. */
void stg_example_layout_take(struct stg_example_layout *layout,
                             const struct stg_example_input *input,
                             const struct stg_tensor *records, size_t first, size_t n,
                             struct stg_example_span *const *spans, bool *good);

#endif
