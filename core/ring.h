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

/* Fill in the headers of fresh pages (zeroed by the kernel), version last. */
void stg_ring_format(struct stg_ring_page *page, uint64_t instance);
void stg_control_format(struct stg_control_page *page, uint64_t instance);

/* One thread at a time (the stage's lock). */
struct stg_ring_writer {
    struct stg_ring_page *page;
    uint64_t head;
    bool finished;
};

/* Publishes one descriptor. Ignored after stg_ring_finish. */
void stg_ring_push(struct stg_ring_writer *writer,
                   const struct stg_descriptor *descriptor);

/* Writes the terminal status (code positive) and publishes FINAL. Once; later calls are
 * ignored. */
void stg_ring_finish(struct stg_ring_writer *writer, int code, const char *text);

/* After stg_ring_finish: what the client did not take is not for it any more. It may give
 * the leases back. */
void stg_ring_revoke(struct stg_ring_writer *writer);

/* Asks the client to ring when it runs dry: bumps doorbell_wanted, with a full fence
 * after it. The caller looks at the control page once more afterwards. */
void stg_ring_want_doorbell(struct stg_ring_writer *writer);

/* May the client leave its spans in the control page? */
void stg_ring_trace(struct stg_ring_writer *writer, bool traced);

/* Counts a batch of that many rows that is dropped. */
void stg_ring_drop(struct stg_ring_writer *writer, uint64_t n_rows);

struct stg_control_reader {
    struct stg_control_page *page;
    uint64_t cursor;      /* releases consumed */
    uint64_t span_cursor; /* and spans */
};

/* The next posted release: 1 and a private copy, 0 when there is none, INVALID_ARGUMENT
 * when the client's counter makes no sense (more than the queue holds): a violation. I3.
 */
int stg_control_poll(struct stg_control_reader *reader, struct stg_release_entry *ret);

/* Single loads of hints; they can only harm the client that wrote them. */
uint64_t stg_control_asked(const struct stg_control_reader *reader);
/* After stg_control_asked: at least one less than that, of a client that counts right. */
uint64_t stg_control_taken(const struct stg_control_reader *reader);
uint64_t stg_control_pass_wanted(const struct stg_control_reader *reader);
bool stg_control_parting(const struct stg_control_reader *reader);
/* Full fence, then the client's flag: call after stg_ring_push to know whether to ring.
 */
bool stg_control_waiting(const struct stg_control_reader *reader);
/* The next span that it left, a private copy of what it wrote: 1, or 0: there is none.
 * *ret_n_missed: those before it that were written over. Not more than a page full lies
 * between two calls and the end of them. I3: kind, name, times and number are unchecked.
 */
int stg_control_poll_span(struct stg_control_reader *reader, struct stg_trace_span *ret,
                          uint64_t *ret_n_missed);
/* Forgets the spans that lie there: they are of an earlier trace. */
void stg_control_skip_spans(struct stg_control_reader *reader);
/* Since when it sleeps, as it says (CLOCK_MONOTONIC); 0: it is awake. No fence: for
 * counters. */
uint64_t stg_control_waiting_since(const struct stg_control_reader *reader);

/* ---- client ---- */

/* Checks magic, version range and sizes of mapped pages. FAILED_PRECONDITION names both
 * versions; DATA_LOSS for everything else that is not as this layout has it. */
int stg_ring_check(const struct stg_ring_page *page, uint64_t bytes, struct stg_err *err);
int stg_control_check(const struct stg_control_page *page, uint64_t bytes,
                      struct stg_err *err);

struct stg_ring_reader {
    const struct stg_ring_page *page;
    uint64_t cursor; /* descriptors taken */
    uint32_t doorbell_rung;
};

/* Is it asked for its spans? One load. */
bool stg_ring_is_traced(const struct stg_ring_reader *reader);

/* Reads the counters of stg_ring_drop. */
uint64_t stg_ring_dropped_batches(const struct stg_ring_reader *reader);
uint64_t stg_ring_dropped_rows(const struct stg_ring_reader *reader);

/* Is what was not taken yet void? Then `final` says why. */
bool stg_ring_is_revoked(const struct stg_ring_reader *reader);

/* Is there a descriptor? One acquire load. */
bool stg_ring_ready(const struct stg_ring_reader *reader);

/* Copies the next descriptor out. False when there is none. */
bool stg_ring_take(struct stg_ring_reader *reader, struct stg_descriptor *ret);

/* True once for each stg_ring_want_doorbell, when nothing is ready: the caller sends the
 * doorbell. Full fence before the look. */
bool stg_ring_needs_doorbell(struct stg_ring_reader *reader);

struct stg_control_writer {
    struct stg_control_page *page;
    uint64_t released;
    uint64_t noted;
};

/* Leaves a span, over the oldest one when the page is full. */
void stg_control_note(struct stg_control_writer *writer,
                      const struct stg_trace_span *span);

/* Posts a release. */
void stg_control_release(struct stg_control_writer *writer, uint32_t lease,
                         uint32_t generation);
void stg_control_set_asked(struct stg_control_writer *writer, uint64_t asked);
void stg_control_set_taken(struct stg_control_writer *writer, uint64_t taken);
/* What the flag, once it is set, says of the time. */
void stg_control_set_waiting_since(struct stg_control_writer *writer, uint64_t since_ns);
/* Sets or clears the flag, then a full fence: look at the ring once more before sleeping.
 */
void stg_control_set_waiting(struct stg_control_writer *writer, bool waiting);
/* Before it closes: else its end is taken for its death. */
void stg_control_part(struct stg_control_writer *writer);
void stg_control_want_pass(struct stg_control_writer *writer, uint64_t pass_wanted);

#endif
