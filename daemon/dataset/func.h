/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies the graph of a step to each record of a block: to many records at once if every
 * op on the path is elementwise over rows, else to one at a time. Ops and executor are
 * those of ops/. A record that an op refuses becomes an error in its place, with file and
 * line; other records are not affected.
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
    struct stg_graph *many; /* of many, with one more dimension; NULL: one at a time */
    struct stg_vocabularies vocabularies;
    uint64_t pass;        /* as in struct stg_iter */
    struct stg_bump bump; /* owns outputs that replace a ragged component */
    /* All outputs are numbers of known shapes, and are written to their final place. */
    bool is_placed;
    uint64_t record_bytes; /* of the outputs of one record, when is_placed */
};

/* Creates the func that computes `outputs` of the step's graph for elements of schema
 * `in`. All arguments must outlive it. INVALID_ARGUMENT: the text names the node or
 * output. */
int stg_func_create(const struct stg_step *step, const struct stg_feature *outputs,
                    size_t n_outputs, const struct stg_schema *in, struct stg_func **ret,
                    struct stg_err *err);
void stg_func_destroy(struct stg_func *func); /* NULL is allowed */

/* Begins a pass: call it when the iterator is made, before an executor is created. Reads
 * the vocabularies of its graph, if any, on behalf of the dataset's user, and counts the
 * memory on the dataset. Their content is part of what the dataset reads. Errors as
 * stg_vocabularies_load. */
int stg_func_load(struct stg_func *func, struct stg_dataset *dataset,
                  struct stg_err *err);

/* Returns the schema of the result for one element; lives as long as the func. */
const struct stg_schema *stg_func_schema(const struct stg_func *func);

/* Executors of a func: one thread at a time. */
struct stg_func_run;
int stg_func_run_create(const struct stg_func *func, struct stg_dataset *dataset,
                        struct stg_func_run **ret, struct stg_err *err);
void stg_func_run_destroy(struct stg_func_run *run); /* NULL is allowed */

/* A block to apply a func to. Several executors may process parts of it at once. */
struct stg_func_call {
    struct stg_block *input;
    struct stg_block
        *output; /* same number of records, all to be written; NULL: not placed */
    uint64_t epoch, index; /* key the randomness of its first record */
};

/* Sets call->output if the func is_placed; the caller unrefs it. RESOURCE_EXHAUSTED as
 * stg_quota_take. */
int stg_func_place(const struct stg_func *func, struct stg_dataset *dataset,
                   struct stg_func_call *call, struct stg_err *err);

/* The results of n records of the input, from `first` on. block NULL: they are in
 * call->output at the same index. Otherwise: a separate block, or one error block. */
struct stg_func_part {
    int64_t first, n;
    struct stg_block *block;
};

/* Parts in order, without gaps. A zeroed struct is empty. */
struct stg_func_parts {
    struct stg_func_part *parts;
    size_t n, size;
};
/* Appends a part, and merges it with the last one if both are in call->output. Takes over
 * the block, also on failure. */
int stg_func_parts_add(struct stg_func_parts *parts, struct stg_func_part part,
                       struct stg_err *err);
void stg_func_parts_clear(struct stg_func_parts *parts);
void stg_func_parts_finish(struct stg_func_parts *parts);

/* Applies the func to n records of the call, from `first` on, and appends the results to
 * ret. RESOURCE_EXHAUSTED: out of memory, which ends the pass. */
int stg_func_apply(struct stg_func_run *run, const struct stg_func_call *call,
                   int64_t first, int64_t n, struct stg_func_parts *ret,
                   struct stg_err *err);

#endif
