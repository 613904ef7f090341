/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a step, applied to each record of a block: many records at once where
 * every op on the way is elementwise over rows, else one by one. Ops and executor are
 * those of ops/. A record that an op refuses becomes an error in its place, with file and
 * line; the others are not touched by it.
 */
#ifndef STG_DAEMON_FUNC_H
#define STG_DAEMON_FUNC_H

#include "daemon/dataset/block.h"
#include "daemon/dataset/step.h"
#include "daemon/dataset/vocabulary.h"
#include "ops/exec/run.h"

/* Immutable once made and loaded; any thread. */
struct stg_func {
    const struct stg_step *step;
    struct stg_pipeline_spec spec;
    size_t n_inputs;        /* components of an element */
    struct stg_graph *each; /* of one element */
    struct stg_graph *many; /* of many, with one dimension more; NULL: one by one */
    struct stg_vocabularies vocabularies;
    struct stg_bump bump; /* owns outputs that stand for a ragged component */
    /* All outputs are numbers of known shapes, which are written where they are to stay.
     */
    bool is_placed;
    uint64_t record_bytes; /* of the outputs of one record, when is_placed */
};

/* outputs: what of the step's graph is to be computed, for elements of schema `in`, which
 * must live as long. INVALID_ARGUMENT says which node or output is wrong. */
int stg_func_create(const struct stg_step *step, const struct stg_feature *outputs,
                    size_t n_outputs, const struct stg_schema *in, struct stg_func **ret,
                    struct stg_err *err);
void stg_func_destroy(struct stg_func *func); /* NULL is allowed */

/* Reads the vocabularies of its graph, if there are any, for this pass: on behalf of the
 * dataset's user, counted on its memory; what is in them is part of its fingerprint.
 * Before any executor. Errors as stg_vocabularies_load. */
int stg_func_load(struct stg_func *func, struct stg_dataset *dataset,
                  struct stg_err *err);

/* What it yields for one element; lives as long as the func. */
const struct stg_schema *stg_func_schema(const struct stg_func *func);

/* Executors of a func: one thread at a time. */
struct stg_func_run;
int stg_func_run_create(const struct stg_func *func, struct stg_dataset *dataset,
                        struct stg_func_run **ret, struct stg_err *err);
void stg_func_run_destroy(struct stg_func_run *run); /* NULL is allowed */

/* A block to apply a func to; many executors may do parts of it at once. */
struct stg_func_call {
    struct stg_block *input;
    struct stg_block *output; /* as many records, all to be written; NULL: not placed */
    uint64_t epoch, index;    /* key the randomness of its first record */
};

/* Sets call->output where the func is placed; the caller unrefs it. RESOURCE_EXHAUSTED as
 * stg_quota_take. */
int stg_func_place(const struct stg_func *func, struct stg_dataset *dataset,
                   struct stg_func_call *call, struct stg_err *err);

/* What became of n records of the input, from `first` on: they lie in call->output at
 * that place (block NULL), or in a block of their own, or there is one error. */
struct stg_func_part {
    int64_t first, n;
    struct stg_block *block;
};

/* Parts in order, without gaps. A zeroed struct is empty. */
struct stg_func_parts {
    struct stg_func_part *parts;
    size_t n, size;
};
/* Appends; joins with the last where both lie in call->output. The block goes with it,
 * also on failure. */
int stg_func_parts_add(struct stg_func_parts *parts, struct stg_func_part part,
                       struct stg_err *err);
void stg_func_parts_clear(struct stg_func_parts *parts);
void stg_func_parts_finish(struct stg_func_parts *parts);

/* Records first to first + n of the call; what became of them is appended to ret.
 * RESOURCE_EXHAUSTED: there is no memory for it, which ends the pass. */
int stg_func_apply(struct stg_func_run *run, const struct stg_func_call *call,
                   int64_t first, int64_t n, struct stg_func_parts *ret,
                   struct stg_err *err);

#endif
