/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a source that a format is looking at, in a chunk. What a format takes is
 * never moved or overwritten while another holder has the chunk; what it did not take
 * yet goes along into another one. One thread at a time.
 *
 * A byte lies in memory at a multiple of 64 where its offset in the file is one, until
 * bytes were skipped or the format says otherwise (stg_window_align).
 */
#ifndef STG_DAEMON_WINDOW_H
#define STG_DAEMON_WINDOW_H

#include "daemon/format/format.h"

/* The bytes [scan, fill) of the chunk are read and not taken. The format takes some by
 * moving scan. All other fields are the window's. */
struct stg_window {
    struct stg_format_config config;
    const char *what; /* "a chunk of tfrecord", for errors */
    struct stg_source *source;
    struct stg_chunk *chunk; /* NULL: nothing was read yet */
    uint64_t scan, fill;
    uint64_t base; /* offset in the file of data[0], modulo 2^64 */
    bool at_end;   /* the source has no more than fill */
};

enum stg_window_need {
    STG_WINDOW_THERE = 0,
    STG_WINDOW_SHORT = 1, /* the file ends before that; all that there is, is there */
    STG_WINDOW_FULL = 2   /* it does not fit into this chunk (same_chunk only) */
};

void stg_window_init(struct stg_window *window, const struct stg_format_config *config,
                     const char *what);
void stg_window_finish(struct stg_window *window);

/* destroy and stop of a struct stg_format whose reader begins with a window: one that
 * owns nothing else; one that touches the source only while it is asked for records. */
void stg_window_reader_destroy(void *reader);
void stg_window_reader_stop(void *reader);

/* Begins a file, behind what there is in the chunk: many small files share one. */
void stg_window_start(struct stg_window *window, struct stg_source *source);

/* To be called when a new block begins, before anything is needed: what comes next may
 * then lie in memory that is still in the cache, and a chunk that was made for a long
 * record is left as soon as what remains fits a usual one. */
int stg_window_compact(struct stg_window *window, struct stg_err *err);

/* At least `bytes` from scan on, or an enum stg_window_need, or a negative code of the
 * source or the quota, or CANCELLED. same_chunk: not in another chunk. */
int stg_window_need(struct stg_window *window, uint64_t bytes, bool same_chunk,
                    struct stg_err *err);

/* Goes on behind the next `bytes` without holding them. SHORT: the file ends before. */
int stg_window_skip(struct stg_window *window, uint64_t bytes, struct stg_err *err);

/* The next `bytes` of the file lie from `at` on in that chunk already, which is the
 * window's, where its bytes end, or another: then what is left is copied before them.
 * False: there is no room for it; nothing changed. */
bool stg_window_append(struct stg_window *window, struct stg_chunk *chunk, uint64_t at,
                       uint64_t bytes);

/* CANCELLED once config.stopped is set; stg_window_need asks before each read. */
int stg_window_check_stopped(const struct stg_window *window, struct stg_err *err);

/* What comes from scan on lies at a multiple of 64 from now on, in this file. */
int stg_window_align(struct stg_window *window, struct stg_err *err);

static inline uint64_t stg_window_left(const struct stg_window *window)
{
    return window->fill - window->scan;
}

static inline const char *stg_window_at(const struct stg_window *window)
{
    return window->chunk != NULL ? window->chunk->data + window->scan : "";
}

/* Offset in the file of the next byte. */
static inline uint64_t stg_window_offset(const struct stg_window *window)
{
    return window->base + window->scan;
}

#endif
