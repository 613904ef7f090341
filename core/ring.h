/* SPDX-License-Identifier: Apache-2.0
 *
 * The two one-way queues between daemon and one client: descriptors go out through the
 * ring page (read-only to the client), releases come back through the control page
 * (hostile to the daemon). Pure memory operations: no system call, no lock, no
 * allocation. Each side's cursor is private. Rings never overflow: leases are fewer than
 * slots (STG_MAX_IN_FLIGHT).
 */
#ifndef STG_CORE_RING_H
#define STG_CORE_RING_H

#include <stdbool.h>

#include "core/err.h"
#include "core/layout.h"

/* ---- daemon ---- */

/* Initialise the headers of new pages (zeroed by the kernel), the version last. */
void stg_ring_format(struct stg_ring_page *page, uint64_t instance);
void stg_control_format(struct stg_control_page *page, uint64_t instance);

/* One thread at a time (the stage's lock). */
struct stg_ring_writer {
    struct stg_ring_page *page;
    uint64_t head;
    bool finished;
};

/* Sets the place after the next descriptor. */
void stg_ring_place(struct stg_ring_writer *writer, const struct stg_stream_place *place);

/* Sets the files of a pass: the first call of it counts. The client is done with the pass
 * before the last one. */
void stg_ring_begin(struct stg_ring_writer *writer, uint64_t pass,
                    const struct stg_data_identity *data);

/* Publishes one descriptor. Ignored after stg_ring_finish. */
void stg_ring_push(struct stg_ring_writer *writer,
                   const struct stg_descriptor *descriptor);

/* Writes the terminal status (code positive) and publishes FINAL. Once; later calls are
 * ignored. */
void stg_ring_finish(struct stg_ring_writer *writer, int code, const char *text);

/* Revokes, after stg_ring_finish, the descriptors that the client did not take. It may
 * still release their leases. */
void stg_ring_revoke(struct stg_ring_writer *writer);

/* Asks the client to send a doorbell when its ring runs empty: increments
 * doorbell_wanted, then a full fence. The caller must then check the control page once
 * more. */
void stg_ring_want_doorbell(struct stg_ring_writer *writer);

/* Sets whether the client writes its spans to the control page. */
void stg_ring_trace(struct stg_ring_writer *writer, bool traced);

/* Counts a dropped batch of n_rows rows. */
void stg_ring_drop(struct stg_ring_writer *writer, uint64_t n_rows);

/* Sets what the states of the client contain. */
void stg_ring_share(struct stg_ring_writer *writer, const struct stg_sharing *sharing);

struct stg_control_reader {
    struct stg_control_page *page;
    uint64_t cursor;      /* releases consumed */
    uint64_t span_cursor; /* spans consumed */
};

/* Returns 1 and a private copy of the next posted release; 0 if there is none.
 * INVALID_ARGUMENT: the client's counter is invalid (more than the queue holds), which is
 * a violation. I3. */
int stg_control_poll(struct stg_control_reader *reader, struct stg_release_entry *ret);

/* Load hints of the client. A wrong hint harms only that client. */
uint64_t stg_control_asked(const struct stg_control_reader *reader);
/* Call after stg_control_asked: for a correct client, at least that value minus one. */
uint64_t stg_control_taken(const struct stg_control_reader *reader);
uint64_t stg_control_pass_wanted(const struct stg_control_reader *reader);
bool stg_control_parting(const struct stg_control_reader *reader);
/* Executes a full fence, then loads the client's flag: call it after stg_ring_push to
 * learn whether the client needs a doorbell. */
bool stg_control_waiting(const struct stg_control_reader *reader);
/* The next span that it left, a private copy of what it wrote: 1, or 0: there is none.
 * *ret_n_missed: those before it that were written over. Not more than a page full lies
 * between two calls and the end of them. I3: kind, name, times and number are unchecked.
 */
int stg_control_poll_span(struct stg_control_reader *reader, struct stg_trace_span *ret,
                          uint64_t *ret_n_missed);
/* Skips the spans in the page: they belong to an earlier trace. */
void stg_control_skip_spans(struct stg_control_reader *reader);
/* Returns the time since which the client claims to sleep (CLOCK_MONOTONIC); 0: it is
 * awake. No fence: only for counters. */
uint64_t stg_control_waiting_since(const struct stg_control_reader *reader);

/* ---- client ---- */

/* Checks magic, version range and sizes of mapped pages. FAILED_PRECONDITION names both
 * versions; DATA_LOSS: any other difference from this layout. */
int stg_ring_check(const struct stg_ring_page *page, uint64_t bytes, struct stg_err *err);
int stg_control_check(const struct stg_control_page *page, uint64_t bytes,
                      struct stg_err *err);

struct stg_ring_reader {
    const struct stg_ring_page *page;
    uint64_t cursor; /* descriptors taken */
    uint32_t doorbell_rung;
};

/* Returns whether the daemon collects the client's spans. One load. */
bool stg_ring_is_traced(const struct stg_ring_reader *reader);

/* Reads the counters of stg_ring_drop. */
uint64_t stg_ring_dropped_batches(const struct stg_ring_reader *reader);
uint64_t stg_ring_dropped_rows(const struct stg_ring_reader *reader);

/* Returns whether the descriptors not yet taken are revoked. `final` then has the reason.
 */
bool stg_ring_is_revoked(const struct stg_ring_reader *reader);

/* Returns whether a descriptor is ready. One acquire load. */
bool stg_ring_ready(const struct stg_ring_reader *reader);

/* Copies the next descriptor to ret. Returns false if there is none. */
bool stg_ring_take(struct stg_ring_reader *reader, struct stg_descriptor *ret);

/* Copies the place after the descriptor that moved the cursor to `position`, one of the
 * last STG_RING_ENTRIES - STG_MAX_IN_FLIGHT that were taken. Returns false if the
 * daemon's layout has none. */
bool stg_ring_place_at(const struct stg_ring_reader *reader, uint64_t position,
                       struct stg_stream_place *ret);

/* Copies the files of one of the last two passes of which an item was taken; zeros: the
 * daemon did not set them. */
void stg_ring_data(const struct stg_ring_reader *reader, uint64_t pass,
                   struct stg_data_identity *ret);

/* Copies what the daemon set last. NOT_FOUND: it set nothing. UNAVAILABLE: it did not
 * end a write within a second, since it died, or is stopped; each value is the old or the
 * new one. */
int stg_ring_sharing(const struct stg_ring_reader *reader, struct stg_sharing *ret);

/* Returns true once for each stg_ring_want_doorbell, if at most `few` descriptors are
 * ready: the caller then sends the doorbell. Executes a full fence before it looks at
 * the daemon's flag. */
bool stg_ring_needs_doorbell(struct stg_ring_reader *reader, uint64_t few);

struct stg_control_writer {
    struct stg_control_page *page;
    uint64_t released;
    uint64_t noted;
};

/* Writes a span; overwrites the oldest one if the page is full. */
void stg_control_note(struct stg_control_writer *writer,
                      const struct stg_trace_span *span);

/* Posts a release. */
void stg_control_release(struct stg_control_writer *writer, uint32_t lease,
                         uint32_t generation);
void stg_control_set_asked(struct stg_control_writer *writer, uint64_t asked);
void stg_control_set_taken(struct stg_control_writer *writer, uint64_t taken);
/* Sets the time since which the client waits. It is valid while the flag is set. */
void stg_control_set_waiting_since(struct stg_control_writer *writer, uint64_t since_ns);
/* Sets or clears the flag, then executes a full fence: check the ring once more before
 * sleeping. */
void stg_control_set_waiting(struct stg_control_writer *writer, bool waiting);
/* Announces that the client closes. Without it, the daemon treats the end of the
 * connection as the death of the client. */
void stg_control_part(struct stg_control_writer *writer);
void stg_control_want_pass(struct stg_control_writer *writer, uint64_t pass_wanted);

#endif
