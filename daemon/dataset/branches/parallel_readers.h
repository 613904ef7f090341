/* SPDX-License-Identifier: Apache-2.0
 *
 * Parallel readers of interleave: each runs a reader step on one file after the other.
 * Their threads open the files, read them and make blocks, a few ahead of the taker. The
 * taker decides the order of readers; the output of a reader never depends on timing.
 *
 * All calls come from one thread at a time (the dataset's). That thread runs a reader
 * itself if no other thread does; where reads are short, it runs another reader instead
 * of waiting for a busy one.
 */
#ifndef STG_DAEMON_PARALLEL_READERS_H
#define STG_DAEMON_PARALLEL_READERS_H

#include "daemon/dataset/step.h"

struct stg_parallel_readers;

struct stg_parallel_readers_config {
    struct stg_dataset *dataset;     /* borrowed */
    const struct stg_step *step;     /* what a reader runs, and what it yields */
    const struct stg_schema *schema; /* both borrowed */
    const struct stg_schema *path;   /* of the input; borrowed */
    unsigned n_readers;
    unsigned n_threads;           /* 0: the taker does everything */
    const struct stg_step *tuned; /* whose num_parallel_calls is auto: n_threads is the
                                     most; NULL: all work */
    unsigned least_threads;       /* of these, where they are tuned */
    int64_t buffer_records; /* a reader has no more ready, nor more than two blocks */
};

enum stg_reader_answer {
    STG_READER_BLOCK = 0, /* records, or an error in their place */
    STG_READER_END = 1,   /* the file has no more: the reader may start again */
    STG_READER_BUSY = 2   /* nothing yet */
};

int stg_parallel_readers_create(const struct stg_parallel_readers_config *config,
                                struct stg_parallel_readers **ret, struct stg_err *err);
void stg_parallel_readers_destroy(
    struct stg_parallel_readers *readers); /* NULL is allowed */

/* Begins with a file, behind its first n_skipped records: `path` is a block of one
 * record, or an error block, which then is all there is. Takes the block, also on
 * failure. The reader must be new or at its end.
 */
int stg_parallel_readers_start(struct stg_parallel_readers *readers, unsigned reader,
                               struct stg_block *path, uint64_t n_skipped,
                               struct stg_err *err);

/* Sets *ret to the number of records of a file, if it is known without reading it; 1: it
 * is not. The caller keeps `path`, a block of one record. */
int stg_parallel_readers_count(struct stg_parallel_readers *readers,
                               struct stg_block *path, uint64_t *ret,
                               struct stg_err *err);

/* What the reader has next: an enum stg_reader_answer. A file that cannot be opened or
 * read is an error block, and then the end. Without `wait` the answer may be
 * STG_READER_BUSY. Negative: out of memory, or stopped. */
int stg_parallel_readers_take(struct stg_parallel_readers *readers, unsigned reader,
                              bool wait, struct stg_block **ret, struct stg_err *err);

/* Counts what readers have got ready. Wait returns once it is no longer `seen`; makes
 * something ready itself when no thread does. */
uint64_t stg_parallel_readers_ready(struct stg_parallel_readers *readers);
void stg_parallel_readers_wait(struct stg_parallel_readers *readers, uint64_t seen);

/* Drops all files; every reader may start again. Waits for the threads that are at one.
 */
void stg_parallel_readers_clear(struct stg_parallel_readers *readers);

#endif
