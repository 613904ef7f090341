/* SPDX-License-Identifier: Apache-2.0
 *
 * What a reader of files will need soon: files opened, and, of a reader of lines, reads.
 * It plans them in the order in which it takes them. An idle thread does one: it reads
 * the bytes to where they will stay, and looks for the newlines in them. The reader does
 * what no thread did by then. So one large file is read and split on several threads
 * while its lines come out in order.
 */
#ifndef STG_DAEMON_AHEAD_H
#define STG_DAEMON_AHEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

/* Newlines that a read remembers; those behind them are looked for again. */
#define STG_AHEAD_LINES 16384

struct stg_ahead;

/* Positions of newlines, counted from `origin` in a chunk. */
struct stg_lines {
    uint32_t *at; /* room for STG_AHEAD_LINES */
    size_t n;
    size_t seen; /* bytes from origin on that were looked through */
    uint64_t origin;
};

struct stg_read {
    struct stg_source *source;
    uint64_t offset; /* in the source */
    struct stg_chunk *chunk;
    uint64_t at; /* in the chunk */
    uint64_t bytes;
    /* once done */
    int64_t n; /* bytes read, or a negative code with err */
    struct stg_err err;
    struct stg_lines lines;
};

/* RESOURCE_EXHAUSTED when out of memory. */
int stg_ahead_create(struct stg_ahead **ret);
struct stg_ahead *stg_ahead_ref(struct stg_ahead *ahead);
void stg_ahead_unref(struct stg_ahead *ahead); /* NULL is allowed */

/* Files that are planned to be opened at most. */
#define STG_AHEAD_OPENS 8

/* Any thread. Opens the next file, or does the next read that no thread does; false:
 * there is none. */
bool stg_ahead_work(struct stg_ahead *ahead);

/* ---- the reader's, one thread at a time ---- */

bool stg_ahead_is_full(const struct stg_ahead *ahead);
bool stg_ahead_is_empty(const struct stg_ahead *ahead);

/* Plans a read behind those that are planned; it must not be full. Takes a reference on
 * the chunk; the source must live until the read is taken or cancelled. */
void stg_ahead_plan(struct stg_ahead *ahead, struct stg_source *source, uint64_t offset,
                    struct stg_chunk *chunk, uint64_t at, uint64_t bytes);

/* The first read that was planned, done; it must not be empty. Valid, with its chunk,
 * until it is dropped. Its lines may be exchanged for others with room for as many. */
struct stg_read *stg_ahead_first(struct stg_ahead *ahead);
void stg_ahead_drop(struct stg_ahead *ahead);

/* The reads that were dropped since the last turn, of which the next ones are thought to
 * need as many: more are planned where that is more than it was. */
unsigned stg_ahead_turn(struct stg_ahead *ahead);

/* Drops all that is planned; waits for threads that do some of it. */
void stg_ahead_cancel(struct stg_ahead *ahead);

/* Plans to open a file, and to ask for its first bytes, behind those that are planned, of
 * which there must be fewer than STG_AHEAD_OPENS. url and identity are borrowed until it
 * is taken or cancelled. */
void stg_ahead_plan_open(struct stg_ahead *ahead, const char *url,
                         const struct stg_file_user *identity);

/* The first file that was planned, open and the caller's; or NULL: it was not opened,
 * or cannot be. There must be one; it is dropped. */
struct stg_source *stg_ahead_take_open(struct stg_ahead *ahead);

/* Drops and closes all of them; waits for threads that open one. */
void stg_ahead_cancel_opens(struct stg_ahead *ahead);

#endif
