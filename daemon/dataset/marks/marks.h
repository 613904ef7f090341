/* SPDX-License-Identifier: Apache-2.0
 *
 * The marks of a step whose number of records depends on data (filter, unbatch,
 * bucket_by_sequence_length): how many it has yielded, how many it has taken, and where
 * both were known before (daemon/index/trail.h). Such a step pulls its input by
 * stg_marks_pull, and its skip goes to the last mark before the goal. Of a step for which
 * an error is not a record like any other (take, skip, shard, ignore_errors, batch): how
 * many were records, from the first error on. Of a shuffle: where the errors of its input
 * are. One thread.
 */
#ifndef STG_DAEMON_MARKS_H
#define STG_DAEMON_MARKS_H

#include "daemon/dataset/step.h"
#include "daemon/index/trail.h"

/* The zeroed struct is at the start of the first iteration. */
struct stg_marks {
    uint64_t iteration;   /* of the step in the pass, from 0 */
    uint64_t n_out, n_in; /* of this iteration: yielded and taken, errors included */
    uint64_t n_records;   /* of n_in, if the step pulls by stg_marks_pass */
    bool counts_records;  /* it does */
    struct stg_trail *trail;
    bool was_opened;
    uint64_t noted; /* n_in at the last mark */
    uint64_t check; /* value of the mark at n_in after a jump; 0: there was none */
};

void stg_marks_finish(struct stg_marks *marks);
/* Begins another iteration; or afresh, the first one. */
void stg_marks_rewind(struct stg_marks *marks, bool afresh);

/* Returns whether it is time for a mark of a step that holds n records. */
bool stg_marks_are_due(const struct stg_marks *marks, uint64_t n_held);

/* Pulls a block of the input of iter, and counts it. Before that notes a mark, if it is
 * time for one: with the numbers of the n_held records that the step holds, in rising
 * order. n_held UINT32_MAX: no mark now. FAILED_PRECONDITION: after a jump the data is
 * not what the mark was noted of. */
int stg_marks_pull(struct stg_iter *iter, struct stg_marks *marks, int64_t want,
                   const uint64_t *held, uint32_t n_held, struct stg_block **ret,
                   struct stg_err *err);
/* Counts a block that the step yields. */
void stg_marks_yield(struct stg_marks *marks, const struct stg_block *block);
/* Notes that the iteration has ended. */
void stg_marks_end(struct stg_iter *iter, struct stg_marks *marks);

/* ---- for a step that treats an error unlike a record, and holds none at a mark ---- */

/* Pulls and counts likewise. From the first error of the pass on it notes a mark before
 * each error, up to STG_MARKS_MOST_ERRORS of an iteration, and from time to time. */
int stg_marks_pass(struct stg_iter *iter, struct stg_marks *marks, int64_t want,
                   struct stg_block **ret, struct stg_err *err);
/* Notes the place of other marks, where `next` was the next block of the input, if there
 * are few marks of errors yet. */
void stg_marks_note_place(struct stg_iter *iter, const struct stg_marks *place,
                          const struct stg_block *next, struct stg_marks *marks);
/* Pulls and counts likewise, and notes no mark. */
int stg_marks_take(struct stg_iter *iter, struct stg_marks *marks, int64_t want,
                   struct stg_block **ret, struct stg_err *err);
/* Counts records that were skipped, none of which is an error. */
void stg_marks_count(struct stg_marks *marks, uint64_t n_in, uint64_t n_out);
/* The step is sought from now on: it notes no marks. */
void stg_marks_stop(struct stg_marks *marks);

/* Deletes the marks, and returns FAILED_PRECONDITION: the data is not what they were
 * noted of. */
int stg_marks_refute(struct stg_iter *iter, struct stg_marks *marks, const char *what,
                     struct stg_err *err);
/* Skips the input up to record `number`, which is at or behind n_in. */
int stg_marks_skip_input(struct stg_iter *iter, struct stg_marks *marks, uint64_t number,
                         struct stg_err *err);

/* Drops what the step holds, and takes the records with these numbers again. */
typedef int stg_marks_restore(struct stg_iter *iter, const uint64_t *held,
                              uint32_t n_held, struct stg_err *err);

/* Implements skip: goes to the last mark before the goal, and produces the rest. */
int stg_marks_skip(struct stg_iter *iter, struct stg_marks *marks, uint64_t n,
                   stg_marks_restore *restore, uint64_t *ret, struct stg_err *err);
/* The same for a step that pulls by stg_marks_pass. `restore` has nothing to take again,
 * and finds n_records at the mark; NULL: it has nothing to do. */
int stg_marks_skip_passed(struct stg_iter *iter, struct stg_marks *marks, uint64_t n,
                          stg_marks_restore *restore, uint64_t *ret, struct stg_err *err);
/* The same without the rest, which the caller skips. */
int stg_marks_jump_passed(struct stg_iter *iter, struct stg_marks *marks, uint64_t n,
                          stg_marks_restore *restore, uint64_t *ret, struct stg_err *err);

/* ---- for a step that yields a record for each that it takes: marks of errors ---- */

/* The value of the mark behind an error, which is the n_out-th of the iteration. */
#define STG_MARKS_ERROR 2
/* Of an iteration, so many errors have marks. */
#define STG_MARKS_MOST_ERRORS 65536

/* Notes that the last block that was pulled is an error, unless there were too many.
 * n_out counts them. */
void stg_marks_note_error(struct stg_iter *iter, struct stg_marks *marks);
/* Reads the marks of the iteration in turn, from the first on; *at is 0 before. */
bool stg_marks_walk(struct stg_iter *iter, struct stg_marks *marks, uint64_t *at,
                    struct stg_mark *ret);
/* Finds the last mark of the iteration. */
bool stg_marks_last(struct stg_iter *iter, struct stg_marks *marks, struct stg_mark *ret);

/* ---- */

/* Implements left, if a run has reached the end of the iteration before. */
bool stg_marks_left(struct stg_iter *iter, struct stg_marks *marks, uint64_t most,
                    uint64_t *ret);

#endif
