/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal state of a stream, shared by its parts. One thread at a time.
 *
 * A closed stream stays alive while one of its batches is in hand; the last release
 * unmaps the memory.
 */
#ifndef STG_CLIENT_STREAM_STREAM_H
#define STG_CLIENT_STREAM_STREAM_H

#include "client/stager.h"
#include "client/transport/connect.h"
#include "client/transport/map.h"
#include "core/batch.h"
#include "core/ring.h"
#include "core/state.h"
#include "core/trace.h"

struct stg_computer;
struct stg_copier;

/* A staged batch taken from the ring: one lease. */
struct stg_leased {
    const void *base; /* the batch at rest: read nothing before stg_batch_open */
    bool open;        /* it was checked */
    bool is_placed;   /* stg_leased_places says where what lies; else all is as at open */
    bool redelivered;
    uint64_t number;
    uint64_t bytes;
    uint64_t assigned_ns;
    uint32_t lease, lease_generation;
    uint32_t device;               /* as in its descriptor */
    uint32_t n_in_hand;            /* batches of the trainer that refer to it */
    bool is_retained;              /* of a replay: a release does not give it back */
    uint64_t elements;             /* of the pass, up to its end; 0: stagerd sends none */
    uint64_t position;             /* of the ring, after its descriptor */
    uint32_t next_slice, n_slices; /* of a stream with batch_size */
    int64_t n_rows;                /* of that */
    int64_t first_row;             /* of slice 0; more than 0 after a state */
    struct stg_leased *next_free;
};

/* The position of a slice in one tensor. */
struct stg_slice_window {
    int64_t first, n;   /* along the first dimension; n < 0: all of it, in every slice */
    int64_t width;      /* of `own`: elements of one along the first dimension */
    const int64_t *own; /* not NULL: rebased elements, in the slice's scratch */
    uint32_t part;      /* enum stg_part */
};

/* A batch that the trainer holds: a staged batch, or a slice of one. */
struct stager_batch {
    struct stager_stream *stream;
    struct stg_leased *leased;
    bool in_hand;
    uint32_t slice;
    int64_t n_rows; /* of the slice */
    struct stg_slice_window
        *windows; /* of a slice: one a tensor; kept for the next one */
    uint32_t n_windows, max_windows;
    int64_t *scratch; /* rebased row_splits, indices, dense_shapes; kept too */
    size_t max_scratch;
    struct stager_batch *next_free;
};

/* The batch that stager_next returned last, until it is in the state. The header of a
 * batch is in no cache when it comes: it is not read then. */
struct stg_noted {
    const struct stg_batch_header *header; /* NULL: there is none */
    uint64_t position;                     /* as in struct stg_leased */
    uint64_t rows;                         /* taken of a staged batch; 0: all */
};

/* Handles, never moved. They follow their stream when it retires. */
struct stg_batch_chunk {
    struct stg_batch_chunk *next;
    uint32_t n;
    struct stager_batch batches[];
};

/* How far a stream is that reconnects to a stagerd that was started again, or follows its
 * pipeline. */
enum stg_reconnect_phase {
    STG_RECONNECT_CONNECT = 0,
    STG_RECONNECT_HELLO, /* sent; likewise: */
    STG_RECONNECT_OPEN,
    STG_RECONNECT_JOIN,
};

/* Of a stream that reconnects or follows (api/reconnect.h), whichever stagerd it has. */
struct stg_reconnect {
    struct stg_bump bump; /* of the texts below */
    const char *name, *client_id;
    struct stager_options options; /* without what begins it: state, resume */
    struct sockaddr_un address;
    struct stg_rejoin rejoin;           /* of the last open */
    bool only_follows;                  /* the stream ends with its stagerd */
    uint64_t limit_ns;                  /* to wait for a stagerd */
    uint64_t n;                         /* times that it reconnected */
    uint64_t n_followed;                /* versions of the pipeline */
    uint64_t away_ns;                   /* and for how long stagerd was away */
    uint64_t n_dropped, n_dropped_rows; /* that earlier ring pages have counted */

    /* While stagerd is away, or the pipeline was replaced. */
    int64_t since_ns; /* 0: neither is */
    int64_t retry_ns; /* when to connect again; while a reply is awaited, to give it up */
    int64_t pause_ns;
    enum stg_reconnect_phase phase;
    struct stager_stream *next; /* on its way to be open; NULL: not connected */
    struct stg_request request; /* sent last */
    uint32_t n_asked;
    bool begins_anew;             /* `next` does: it has no state */
    char why[STG_ERR_TEXT_BYTES]; /* the last failure; "": none */
};

/* The run, or the replay of some of its batches. */
struct stg_replay_half {
    uint64_t n; /* that stager_next returned */
    int64_t from_ns;
    uint64_t from_wait_ns; /* the stream's, then */
    uint64_t n_measured, ns, wait_ns;
};

/* Of a stream with replay_batches (api/replay.h). */
struct stg_replay {
    uint64_t n_batches; /* of each half */
    struct stg_replay_half run, again;
    bool is_on;  /* the run is over */
    uint32_t at; /* place in retained of the next one */
    uint32_t n_retained, max_retained;
    struct stg_leased *retained[];
};

/* What stager_pollfd gave: an epoll of what the stream waits for now. */
struct stg_poll {
    int fd, timer;
    int watched; /* -1: nothing */
};

/* Fields that each batch reads or changes come first, up to the head of err: few cache
 * lines. */
struct stager_stream {
    struct stager *client; /* its socket; NULL once closed */
    struct stg_guard *guard;
    struct stg_copier *copier; /* NULL: batches stay in the memory of the host */
    struct stg_ring_reader ring;
    struct stg_control_writer control;
    struct stg_map segment;

    struct stg_leased *free_leases;
    struct stager_batch *free_batches;
    struct stg_leased *current; /* staged batch with slices left to take; or NULL */
    uint32_t max_in_flight;
    uint32_t held;       /* current leases */
    uint32_t batch_size; /* 0: no slices */
    uint32_t pins;       /* of bindings, on the struct */
    int finished;        /* not 0: nothing follows; the code, and final_text says why */
    struct stager_stream *owner;   /* of a retired stream: the one that the trainer has;
                                      else NULL, as once that is closed */
    struct stager_stream *retired; /* the last one that is left */
    bool copy_on_write;    /* the segment is, and a trainer may have written to it */
    bool at_end;           /* until rewind */
    bool armed;            /* `waiting` is set in the control page */
    bool doorbell_pending; /* the last one was not taken: ring at the next look */
    bool has_news;         /* releases that no doorbell followed */
    bool late;      /* the last stager_next ended by its own timeout, by nothing else */
    bool is_shared; /* several clients take from it, in no order: split */
    bool has_error; /* the error item that was taken last, until it is returned */
    bool error_is_carried;
    int64_t dry_since_ns; /* time since which the ring is empty; 0: it is not */
    uint64_t n_batches;
    struct stg_noted noted; /* progress.h */
    struct stg_err err;     /* of the last call */

    /* After a reconnect, a retired stream has what came from the stagerd before: batches
     * in hand and their memory. It ends with the last of them. */
    struct stager_stream *next_retired;
    struct stager_stream *results; /* retired, and the last stager_run was on it */
    uint32_t views;                /* readers of memory that was already returned */
    bool is_gone;        /* `finished`, since stagerd has ended; it may come back */
    bool is_replaced;    /* likewise, since the pipeline has another generation */
    uint64_t generation; /* of the pipeline */
    struct stg_reconnect *reconnect; /* NULL: it does not */
    struct stg_poll *poll;           /* NULL before the first stager_pollfd */
    struct stg_replay *replay;       /* NULL: it replays nothing */

    struct stg_map ring_page, control_page;
    struct stg_leased *leases;      /* max_in_flight of them */
    struct stg_batch_chunk *chunks; /* of handles; none is made while some are free */
    uint32_t n_slices; /* of the staged batch that was looked at last; 0: none */
    uint32_t inter_op_threads_num, intra_op_threads_num; /* of stager_run */
    bool unwatched;
    bool wants_reports; /* stagerd does */
    uint32_t spin_ns;

    uint64_t passes;    /* asked for */
    uint64_t end_pass;  /* the pass that ended last, as stagerd counts */
    uint64_t n_over;    /* passes up to the one that stager_rewind left last */
    int64_t ask_why_ns; /* when stagerd may be asked again why */
    char *why; /* what it said since then; "": nothing. STG_ERR_TEXT_BYTES, in bump */
    const char *name; /* of the pipeline; in bump */
    char *final_text; /* STG_ERR_TEXT_BYTES, in bump */

    uint64_t n_errors, wait_ns, n_sleeps, device_bytes, n_shared;

    struct stg_pipeline_spec *spec; /* NULL: the daemon sent none */
    struct stg_schema boundary;     /* in bump */
    struct stg_schema slots;        /* what batches may carry besides; in bump */
    bool has_fields;                /* not all of the boundary is asked for */
    uint32_t *shown;                /* what is: n_shown of the boundary; in bump */
    uint32_t n_shown;
    uint32_t n_all;        /* of boundary and slots */
    uint32_t *places;      /* of each of them, for each lease */
    const char *structure; /* in bump */
    struct stg_bump bump;
    struct stg_computer *computer; /* NULL before the first stager_run */

    /* How far the trainer is: progress.h. */
    struct stg_state state;
    bool has_state;            /* false: nothing was taken, or stagerd sends no places */
    uint64_t skip_rows;        /* after a state: rows to drop */
    uint64_t hosts;            /* that divide the records (`shard: auto`); 0: none do */
    uint32_t host;             /* this one */
    uint32_t weight;           /* of this host; 0: hosts have none */
    uint64_t hosts_generation; /* where etcd has the hosts of the job; else 0 */
    uint64_t base, base_pass;  /* the record at which they began, in that pass */
    struct stg_stream_place error_at; /* of the error item */
    uint64_t error_begin;             /* items before it */
    uint64_t n_ranks;                 /* clients of a round */
    bool is_partial;                  /* of a split: slices of a staged batch are left */
    struct stg_taken taken;     /* items of the pass: of that, what it took; else what
                                   the state that it loaded has behind its place */
    struct stg_taken before;    /* items of the pass before that it took */
    struct stg_err taken_err;   /* code != 0: `taken` lacks items, and this is why */
    const char *client_id;      /* in bump */
    const char *irreproducible; /* "": states are exact; in bump */
    bool is_approximate;
};

/* Clears the last error, and fails in a forked child. Every public call begins with it.
 */
int stg_stream_enter(struct stager_stream *stream);

/* Returns false in a forked child. A partly opened stream has no guard, and is ours. */
bool stg_stream_is_ours(const struct stager_stream *stream);

/* Returns whether a finished stream goes on: with the stagerd that comes back, or with
 * the next version of its pipeline. */
static inline bool stg_stream_goes_on(const struct stager_stream *stream)
{
    const struct stg_reconnect *reconnect = stream->reconnect;
    return reconnect != NULL && ((stream->is_gone && !reconnect->only_follows) ||
                                 (stream->is_replaced && reconnect->options.follow != 0));
}

/* Returns whether nothing follows, now or later. */
static inline bool stg_stream_is_over(const struct stager_stream *stream)
{
    return stream->finished != 0 && !stg_stream_goes_on(stream);
}

/* Returns the error that the stream and its batches set. */
static inline struct stg_err *stg_stream_err(struct stager_stream *stream)
{
    return stream->owner != NULL ? &stream->owner->err : &stream->err;
}

/* Returns the start time of a span; 0 if the pipeline is not traced. One load. */
static inline uint64_t stg_stream_span_begin(const struct stager_stream *stream)
{
    return stg_ring_is_traced(&stream->ring) ? stg_now_ns() : 0;
}

/* Traces a span that ends now. batch: the batch of the span, or NULL. */
void stg_stream_span_end(struct stager_stream *stream, enum stg_span_kind kind,
                         uint64_t began_ns, const struct stager_batch *batch);

/* Ends the stream: every later call returns this code and text. */
int stg_stream_finish(struct stager_stream *stream, int code, const char *text);

/* Ends it because the socket has ended. */
int stg_stream_lose(struct stager_stream *stream);

/* Finishes with the terminal status that the daemon left in the ring page. */
int stg_stream_take_final(struct stager_stream *stream);

/* Returns whether a request failed because stagerd has ended, whatever else it left. */
bool stg_stream_is_lost(const struct stager_stream *stream);

/* Returns rc, the result of a request. If the daemon closed the socket after a terminal
 * status, sets that status instead and returns its code. Earlier batches stay in the
 * ring. */
int stg_stream_why(struct stager_stream *stream, int rc);

/* Handles a missed deadline of `next`: returns DEADLINE_EXCEEDED, with the reason that
 * stagerd gives within 25 ms. Returns 0 if a descriptor arrived meanwhile. */
int stg_stream_say_late(struct stager_stream *stream, int64_t timeout_millis);

#endif
