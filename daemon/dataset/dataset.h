/* SPDX-License-Identifier: Apache-2.0
 *
 * The dataset engine: transformations that pull blocks from one another. Each
 * transformation has one file and one line in table.c. A dataset is one run of the
 * steps from their start (a pass); a new pass creates a new dataset. One thread at a time
 * pulls (under the stage's pull lock).
 *
 * Steps exchange blocks of records, never single records.
 */
#ifndef STG_DAEMON_DATASET_H
#define STG_DAEMON_DATASET_H

#include <sys/types.h>

#include "core/batch.h"
#include "core/division/deal.h"
#include "core/err.h"
#include "core/spec.h"

/* Where a row comes from. file indexes the pass's table of files (stg_dataset_file). */
struct stg_provenance {
    uint32_t file; /* UINT32_MAX: no file (range) */
    uint32_t reserved;
    uint64_t offset; /* bytes from the start of the (uncompressed) file */
    uint64_t record; /* number of the record in its file, from 0; for lines, line - 1 */
};

/* The place in a pass after an item: what stg_dataset_seek needs to continue there.
 * `elements` counts what the last batching step has taken from its input, so that another
 * batch size continues at the right row. It is the number of items if there is no
 * batching step, or if a step after it is not one item in, one item out (repeat, shuffle,
 * filter, cache …). Error items are counted, and are never replayed. */
struct stg_position {
    uint64_t items;    /* that the pass has yielded, errors included */
    uint64_t elements; /* up to the first that is in no item yet */
    uint64_t passed;   /* errors after that one which were items already */
    /* 0: no step has met an error so far. Else the least depth of a step (the source has
     * 1) that has yielded one, also if a step behind it has dropped it. A seek skips what
     * may fail in the steps before that: it has not. */
    uint32_t errors;
};

/* A block: n_records records of the step's schema. Before `batch` a record is one row;
 * after it a record is a whole batch. tensors[c].shape is [n_records, component shape…].
 * In a block of several records, each record is one row. A record that has (or may have)
 * several rows is a separate block.
 * A block never spans two epochs. An error block has error.code != 0 and n_records 0. It
 * occupies one position of the stream, and the dataset continues after it. Blocks are
 * reference counted, because a batch may be a view of a chunk, and immutable once
 * emitted. Tensors may be coded (core/batch.h) where dataset->takes_codes, and those of
 * several records uneven where stg_iter_allow_uneven was called. */
struct stg_block {
    _Atomic uint32_t refs;
    uint32_t n_components;
    struct stg_tensor *tensors;
    int64_t n_records;
    int64_t n_rows;                    /* also set without provenance */
    const struct stg_provenance *rows; /* one for each row; NULL: no provenance (range) */
    uint64_t epoch;
    struct stg_position position; /* after this item; stg_dataset_next sets it */
    struct stg_ahead *ahead;      /* see stg_block_read_ahead; may be NULL */
    unsigned n_reads;             /* reads that it took */
    struct stg_err error;
    uint64_t bytes; /* of memory, counted on the pipeline's budget */
    void (*destroy)(struct stg_block *block);
    void *owner;
};

struct stg_block *stg_block_ref(struct stg_block *block);
void stg_block_unref(struct stg_block *block); /* NULL is allowed */

struct stg_tuning;
struct stg_fund;
struct stg_adviser;

/* How the function of the step py_function is called for an item. Any thread. */
struct stg_function_call {
    const struct stg_block *block; /* the item */
    uint64_t pass, epoch, index;   /* of it; epoch and index as the step counts them */
};

struct stg_function_caller {
    void *owner;
    unsigned n_calls; /* at once, at most */
    /* Fills in one tensor for each component that the function gives. They hold until
     * release(*ret), which follows a failure too; *ret may be NULL. Blocks. Errors: those
     * of the function and of its worker; CANCELLED. */
    int (*call)(void *owner, const struct stg_function_call *call,
                struct stg_tensor *tensors, void **ret, struct stg_err *err);
    void (*release)(void *result);
};

/* What a dataset may do, and its user: given at creation, borrowed for its life. */
struct stg_dataset_env {
    uid_t uid; /* of the applier: files are opened, then checked against it */
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    struct stg_trace *trace; /* records spans while it is on; may be NULL */
    uint64_t pass;           /* from 0: reshuffles differ by it */
    struct stg_deal deal;    /* of `shard: auto`; n_hosts 0: all records */
    uint64_t deal_first;     /* the record at which hosts began to divide the pass */
    uint64_t max_epochs;     /* that one jump may pass over; 0: any number */
    uint64_t buffer_bytes; /* budget for chunks, shuffle slabs and blocks together; 0: no
                              limit */
    uint64_t tensor_bytes; /* limit of one tensor while a graph runs; 0: no limit */
    /* Of the state at which the pass goes on: `files` leaves out what was added since.
     * NULL: the pass begins at its start. */
    const struct stg_data_identity *state_data;
    bool notes_marks; /* stores where steps stand (marks/); for a reproducible run */
    const struct stg_fund *fund; /* source of those bytes, as needed; or NULL */
    const struct stg_adviser
        *adviser;               /* of what to raise where they do not do; or NULL */
    bool takes_codes;           /* strings of items may be coded */
    uint32_t ignored_codes;     /* STG_CODE_BIT: a file with such an error is skipped */
    const _Atomic int *stopped; /* not 0: next returns CANCELLED soon */
    struct stg_container *container; /* what is shared with others; NULL: nothing */
    struct stg_tuning *tuning;     /* what `auto` found in passes before; NULL: nothing */
    struct stg_activity *activity; /* gets step and file; or NULL */
    /* NULL: the dataset's owner calls the function for the items that it gets. */
    const struct stg_function_caller *caller;
};

struct stg_dataset;
struct stg_activity;
struct stg_container;

/* Creates a dataset. The only I/O is globbing and directory listing. Errors:
 * INVALID_ARGUMENT with step and line, NOT_FOUND ("no files matched PATTERN"),
 * PERMISSION_DENIED. */
int stg_dataset_create(const struct stg_pipeline_spec *spec,
                       const struct stg_dataset_env *env, struct stg_dataset **ret,
                       struct stg_err *err);
void stg_dataset_destroy(struct stg_dataset *dataset);

/* Checks the steps and infers what one *item* is (after `batch`: tensors with a leading
 * batch dimension, -1 unless drop_remainder). Opens no file. The schema lives in `bump`.
 */
int stg_dataset_infer(const struct stg_pipeline_spec *spec, struct stg_bump *bump,
                      struct stg_schema *ret, struct stg_err *err);

/* Infers the same for a full item: a dimension that varies with the size of the batch has
 * its maximum instead of -1. */
int stg_dataset_infer_full(const struct stg_pipeline_spec *spec, struct stg_bump *bump,
                           struct stg_schema *ret, struct stg_err *err);

/* What that step of the pipeline gets and gives, per element. */
int stg_dataset_infer_step(const struct stg_pipeline_spec *spec,
                           const struct stg_step *step, struct stg_bump *bump,
                           struct stg_schema *ret_input, struct stg_schema *ret_output,
                           struct stg_err *err);

/* The next item: a block with n_records 1 (or an error block), whose tensors have had the
 * leading record dimension removed: shape is the item's own. 0 and a block (caller
 * unrefs), 1 at the end, a negative code when the source itself failed: sticky, the pass
 * is over. */
int stg_dataset_next(struct stg_dataset *dataset, struct stg_block **ret,
                     struct stg_err *err);

/* Moves a new dataset, from which nothing was pulled, to a position: the items that
 * follow are bit for bit those of a run that was not interrupted. Produces what it cannot
 * skip (struct stg_iter_impl, skip), and drops it. The position may be the end of the
 * pass. With env.deal_first it is counted from there. OUT_OF_RANGE: the pass is shorter;
 * the text has both lengths. FAILED_PRECONDITION: something was pulled before; or the
 * data has an error where the position has none. Any other code is one of
 * stg_dataset_next. After a failure only destroy may follow. */
int stg_dataset_seek(struct stg_dataset *dataset, const struct stg_position *position,
                     struct stg_err *err);

/* Goes back to the start of the pass, as a new dataset of another host, or from another
 * record on at which the hosts began to divide it (env.deal, env.deal_first). Only where
 * stg_jump_check allows a jump. OUT_OF_RANGE: the pass has no such record. After a
 * failure only destroy may follow. */
int stg_dataset_restart(struct stg_dataset *dataset, const struct stg_deal *deal,
                        uint64_t first, struct stg_err *err);

/* Reads ahead, and splits into lines, data that the dataset of an item needs next. Call
 * it after an item was pulled, without the pull lock: then all pulling threads split one
 * large file. The order of items does not depend on it. Any thread, also after the
 * dataset is gone. Returns after at most 2 n + 4 reads, where n is the reads that the
 * item took. */
void stg_block_read_ahead(const struct stg_block *block);

/* Returns how many errors the `ignore_errors` steps dropped in this pass. Any thread. */
uint64_t stg_dataset_n_ignored(const struct stg_dataset *dataset);

/* Returns how many records `shard: auto` left out in this pass, on every host the same
 * ones: rounds that were not complete. Any thread. */
uint64_t stg_dataset_n_remainder(const struct stg_dataset *dataset);

/* Returns the path of a file of this pass, for messages; "?" if it is unknown. Any thread
 * while the dataset lives. */
const char *stg_dataset_file(const struct stg_dataset *dataset, uint32_t file);

/* An error of the whole item gets the file and line of its first row, and how many rows
 * follow. False: it has no rows, and the error stays as it is. */
bool stg_block_add_place(const struct stg_dataset *dataset, const struct stg_block *block,
                         struct stg_err *err);

/* "FILE: line 17 (offset 4711)" of a row, or "FILE: record 16 (offset 4711)". Returns
 * buf.
 */
const char *stg_provenance_text(const struct stg_dataset *dataset,
                                const struct stg_provenance *row, char *buf,
                                size_t bytes);

#endif
