/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a source that a format currently reads, in a chunk. Bytes that the format
 * has taken are never moved or overwritten while another holder has the chunk. Bytes that
 * it has not taken yet move along to the next chunk. One thread at a time.
 *
 * An offset that is a multiple of 64 in the file is at such an address in memory, until
 * bytes are skipped or the format changes the alignment (stg_window_align).
 */
#ifndef STG_DAEMON_WINDOW_H
#define STG_DAEMON_WINDOW_H

#include "daemon/format/format.h"

/* The bytes [scan, fill) of the chunk are read and not taken. The format takes bytes by
 * moving scan. Only the window changes the other fields. */
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
    STG_WINDOW_SHORT = 1, /* the file ends before that; all its bytes are in the window */
    STG_WINDOW_FULL = 2   /* it does not fit into this chunk (same_chunk only) */
};

void stg_window_init(struct stg_window *window, const struct stg_format_config *config,
                     const char *what);
void stg_window_finish(struct stg_window *window);

/* destroy and stop of a struct stg_format whose reader begins with a window: one that
 * owns nothing else; one that touches the source only while it is asked for records. */
void stg_window_reader_destroy(void *reader);
void stg_window_reader_stop(void *reader);

/* Begins a file, after the data in the chunk: many small files share a chunk. */
void stg_window_start(struct stg_window *window, struct stg_source *source);

/* Call it when a new block begins, before stg_window_need. Later data can then use memory
 * that is still in the CPU cache, and the window leaves a chunk that was made for a long
 * record once the rest fits a usual chunk. */
int stg_window_compact(struct stg_window *window, struct stg_err *err);

/* Reads until at least `bytes` bytes from scan on are in the window. Returns an enum
 * stg_window_need, a negative code of the source or the quota, or CANCELLED. same_chunk:
 * does not change to another chunk. */
int stg_window_need(struct stg_window *window, uint64_t bytes, bool same_chunk,
                    struct stg_err *err);

/* Skips the next `bytes` bytes, without holding them. SHORT: the file ends before. */
int stg_window_skip(struct stg_window *window, uint64_t bytes, struct stg_err *err);

/* Moves forward to an offset in the file. Nothing is read: the file may end before. */
void stg_window_seek(struct stg_window *window, uint64_t offset);

/* Adds the next `bytes` bytes of the file, which are in `chunk` at `at` already. The
 * chunk is the window's own, with `at` at the end of its bytes, or another one: then the
 * rest of the window is copied to the bytes before `at`. Returns false if there is no
 * room; nothing has changed. */
bool stg_window_append(struct stg_window *window, struct stg_chunk *chunk, uint64_t at,
                       uint64_t bytes);

/* Returns CANCELLED once config.stopped is set; stg_window_need checks before each read.
 */
int stg_window_check_stopped(const struct stg_window *window, struct stg_err *err);

/* Moves the bytes from scan on to a multiple of 64; holds for the rest of this file. */
int stg_window_align(struct stg_window *window, struct stg_err *err);

static inline uint64_t stg_window_left(const struct stg_window *window)
{
    return window->fill - window->scan;
}

static inline const char *stg_window_at(const struct stg_window *window)
{
    return window->chunk != NULL ? window->chunk->data + window->scan : "";
}

/* Returns the offset in the file of the next byte. */
static inline uint64_t stg_window_offset(const struct stg_window *window)
{
    return window->base + window->scan;
}

#endif
