/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a stream, shared by stream.c (life), next.c (the way of a batch), slice.c (a
 * staged batch in pieces), field.c (what of it is seen), batch.c (views), run.c
 * (compute), report.c (what that took). One thread at a time.
 *
 * A closed stream lives on as long as one of its batches is in hand: the mappings go with
 * the last one.
 */
#ifndef STG_CLIENT_STREAM_H
#define STG_CLIENT_STREAM_H

#include "client/connect.h"
#include "client/map.h"
#include "client/report.h"
#include "client/stager.h"
#include "core/batch.h"
#include "core/ring.h"
#include "core/trace.h"

struct stg_computer;
struct stg_copier;
struct stg_result;

/* A staged batch that was taken from the ring: one lease. */
struct stg_lent {
    const void *base; /* the batch at rest: read nothing before stg_batch_open */
    bool open;        /* it was checked */
    bool is_placed;   /* stg_lent_places says where what lies; else all is as at open */
    bool redelivered;
    uint64_t number;
    uint64_t bytes;
    uint64_t assigned_ns;
    uint32_t lease, lease_generation;
    uint32_t device;               /* as in its descriptor */
    uint32_t n_in_hand;            /* batches of the trainer that look into it */
    uint32_t next_slice, n_slices; /* of a stream with batch_size */
    int64_t n_rows;                /* of that */
    struct stg_lent *next_free;
};

/* Where a slice lies in one tensor. */
struct stg_window {
    int64_t first, n;   /* along the first dimension; n < 0: all of it, in every slice */
    int64_t width;      /* of `own`: elements of one along the first dimension */
    const int64_t *own; /* not NULL: rebased elements, in the slice's scratch */
    uint32_t part;      /* enum stg_part */
};

/* What the trainer holds: a staged batch, or a slice of one. */
struct stager_batch {
    struct stager_stream *stream;
    struct stg_lent *lent;
    bool in_hand;
    uint32_t slice;
    int64_t n_rows;             /* of the slice */
    struct stg_window *windows; /* of a slice: one a tensor; kept for the next one */
    uint32_t n_windows, max_windows;
    int64_t *scratch; /* rebased row_splits, indices, dense_shapes; kept too */
    size_t max_scratch;
    struct stager_batch *next_free;
};

/* Handles, never moved. */
struct stg_batch_chunk {
    struct stg_batch_chunk *next;
    uint32_t n;
    struct stager_batch batches[];
};

struct stager_stream {
    struct stager *client; /* its socket; NULL once closed */
    struct stg_guard *guard;
    struct stg_map segment, ring_page, control_page;
    struct stg_ring_reader ring;
    struct stg_control_writer control;

    struct stg_lent *lents; /* max_held of them */
    struct stg_lent *free_lents;
    struct stg_batch_chunk *chunks; /* of handles; none is made while some are free */
    struct stager_batch *free_batches;
    uint32_t max_held;
    uint32_t held;            /* lents out */
    uint32_t batch_size;      /* 0: no slices */
    uint32_t n_slices;        /* of the staged batch that was looked at last; 0: none */
    struct stg_lent *current; /* slices of it are left to take */
    uint32_t inter_op_threads_num, intra_op_threads_num; /* of stager_run */
    bool copy_on_write; /* the segment is, and a trainer may have written to it */
    bool unseen;
    bool wants_reports; /* stagerd does */
    uint32_t spin_ns;

    uint64_t passes;   /* asked for */
    bool at_end;       /* until rewind */
    uint64_t end_pass; /* the pass that ended last, as stagerd counts */
    bool armed;        /* `waiting` is set in the control page */
    bool bell_owed;    /* the last one was not taken: ring at the next look */
    bool late; /* the last stager_next ended by its own timeout, by nothing else */
    int64_t dry_since_ns; /* since when the ring was found empty; 0: it was not */
    int64_t ask_why_ns;   /* when stagerd may be asked again why */
    char *why;    /* what it said since then; "": nothing. STG_ERR_TEXT_BYTES, in bump */
    int finished; /* not 0: nothing follows; the code, and final_text says why */
    const char *name; /* of the pipeline; in bump */
    char *final_text; /* STG_ERR_TEXT_BYTES, in bump */

    uint64_t n_batches, n_errors, wait_ns, n_sleeps, device_bytes, n_shared;

    struct stg_pipeline_spec *spec; /* NULL: the daemon sent none */
    struct stg_schema boundary;     /* in bump */
    struct stg_schema slots;        /* what batches may carry besides; in bump */
    bool has_fields;                /* not all of the boundary is asked for */
    uint32_t *shown;                /* what is: n_shown of the boundary; in bump */
    uint32_t n_shown;
    uint32_t n_all;        /* of boundary and slots */
    uint32_t *places;      /* of each of them, for each lent */
    const char *structure; /* in bump */
    struct stg_bump bump;
    struct stg_computer *computer; /* run.c; NULL before the first stager_run */
    struct stg_reporter reporter;
    struct stg_copier *copier; /* NULL: batches stay in the memory of the host */

    uint32_t pins; /* who still looks at memory after it was given back */

    struct stg_err err; /* of the last call */
};

/* Forgets the last error and refuses in a forked child. Every public call begins with it.
 */
int stg_stream_enter(struct stager_stream *stream);

/* open.c: the request that opens a stream, with what stagerd asks before it grants that.
 * As stg_client_call. */
int stg_stream_call_open(struct stager *client, struct stg_request *request,
                         struct stg_reply *ret, int *fds, size_t max_fds,
                         size_t *ret_n_fds, struct stg_err *err);

/* Gives back what lies in the ring and was not taken: nobody here will read it. Only when
 * the daemon has let go of this client; before, it would acknowledge, and the batches
 * would be lost to the others. */
void stg_stream_return_untaken(struct stager_stream *stream);

/* When a span of this stream begins: 0 when nobody traces its pipeline. One load. */
static inline uint64_t stg_stream_span_begin(const struct stager_stream *stream)
{
    return stg_ring_is_traced(&stream->ring) ? stg_now_ns() : 0;
}

/* Leaves a span that ends now for who traces. batch: which it is about, or NULL. */
void stg_stream_span_end(struct stager_stream *stream, enum stg_span_kind kind,
                         uint64_t began_ns, const struct stager_batch *batch);

/* Frees a stream that is closed, has no batch in hand and no pin; else nothing. */
void stg_stream_reap(struct stager_stream *stream);

/* For bindings whose views may outlive a release: as long as there is a pin, a closed
 * stream keeps its struct and its mappings, so that a look at a batch that was given back
 * sees other bytes and no hole. Each pin is taken back once, and the last one may free
 * the stream. */
void stg_stream_pin(struct stager_stream *stream);
void stg_stream_unpin(struct stager_stream *stream);

/* stream.c: n more handles. RESOURCE_EXHAUSTED. */
int stg_stream_add_batches(struct stager_stream *stream, uint32_t n, struct stg_err *err);

/* batch.c: checks a batch at rest before the first look at it. Not when it is taken: its
 * head is cold then, and the hand-off need not wait for memory. DATA_LOSS in err. */
int stg_lent_open(struct stager_stream *stream, struct stg_lent *lent,
                  struct stg_err *err);

/* field.c: what options say is seen of batches, once boundary, slots and max_held are
 * known. RESOURCE_EXHAUSTED. */
int stg_fields_init(struct stager_stream *stream, const struct stager_options *options,
                    struct stg_err *err);

#define STG_NO_PLACE UINT32_MAX

/* field.c: finds out where its tensors lie, as stg_lent_open goes. DATA_LOSS. */
int stg_lent_place(struct stager_stream *stream, struct stg_lent *lent,
                   struct stg_err *err);

/* field.c: which tensor of the staged batch each of boundary and slots is, or
 * STG_NO_PLACE. NULL: those of the boundary lie there under their names, nothing else. */
const uint32_t *stg_lent_places(const struct stager_stream *stream,
                                const struct stg_lent *lent);

/* field.c: how many tensors of an open batch are seen; which of the staged batch number i
 * of them is; the number of that name, or -1. */
uint32_t stg_batch_n_shown(const struct stager_batch *batch);
uint32_t stg_batch_shown(const struct stager_batch *batch, uint32_t i);
int stg_batch_find_shown(const struct stager_batch *batch, const char *name);

/* field.c: is it a feature that was not asked for? */
bool stg_stream_is_left_out(const struct stager_stream *stream, const char *name);

/* batch.c: tensor i of the staged batch (open), a slice's part of it. */
void stg_batch_view(const struct stager_batch *batch, uint32_t i, struct stg_tensor *ret,
                    const char **ret_name);

/* batch.c: a tensor in hand as the trainer sees it. */
void stg_tensor_show(const char *name, const struct stg_tensor *tensor,
                     struct stager_tensor *ret);

/* slice.c: may this boundary be cut into batch_size rows? INVALID_ARGUMENT says why not;
 * else the boundary becomes that of a slice. batch_rows: of a whole staged batch, 0: not
 * known. */
int stg_slice_boundary(struct stg_schema *boundary, uint32_t batch_size,
                       uint64_t batch_rows, const char *pipeline, struct stg_err *err);

/* slice.c: of what a slice carries besides the graph knows how many rows it has. */
void stg_slice_slots(struct stg_schema *slots);

/* slice.c: opens a staged batch, checks that it can be cut and says into how many. */
int stg_slice_prepare(struct stager_stream *stream, struct stg_lent *lent,
                      struct stg_err *err);

/* slice.c: makes `batch` the next slice of its lent. After an error it is nothing yet. */
int stg_slice_make(struct stager_batch *batch, uint32_t batch_size, struct stg_err *err);

/* next.c: stager_next as it is without a device, and uncounted. */
int stg_stream_take(struct stager_stream *stream, int64_t timeout_millis,
                    struct stager_batch **ret);

/* why.c: the deadline of `next` has passed. DEADLINE_EXCEEDED in stream->err, with what
 * stagerd says, in 25 ms at most, that the stream waits for. 0: a descriptor came
 * meanwhile. */
int stg_stream_say_late(struct stager_stream *stream, int64_t timeout_millis);

/* next.c: the handle is free; its staged batch is as it was. */
void stg_batch_hand_in(struct stager_batch *batch);

/* next.c: the staged batch is in hand no more; its lease stays with the daemon. */
void stg_lent_forget(struct stager_stream *stream, struct stg_lent *lent);

/* next.c: as that, and the lease goes back. */
void stg_lent_return(struct stager_stream *stream, struct stg_lent *lent);

/* next.c: rc of a request, and when the daemon closed the socket after last words, these
 * instead, with their code. Batches that came before them stay in the ring. */
int stg_stream_why(struct stager_stream *stream, int rc);

/* feed.c: is a tensor of the trainer's what it says of itself, and no larger than
 * max_bytes? Says how many elements it has. INVALID_ARGUMENT. */
int stg_value_check(const struct stager_tensor *value, uint64_t max_bytes, int64_t *ret_n,
                    struct stg_err *err);

/* run.c: gives back the executors and the library, and while its device is there what it
 * has of it; in a forked child (ours false) leaves that alone. NULL is allowed. */
void stg_computer_destroy(struct stg_computer *computer, bool ours);

/* What went wrong in runs on a device and was not told yet; waits for them. */
int stg_computer_settle(struct stager_stream *stream);

/* run.c: what the last stager_run gave on the device stays, and pins the stream, until it
 * is dropped; work on `native` that was enqueued before (has_native false: on the
 * stream's own) may read it even then. NULL: nothing is there. */
struct stg_result *stg_run_keep(struct stager_stream *stream);
void stg_run_drop(struct stager_stream *stream, struct stg_result *result,
                  bool has_native, void *native);

/* run.c: as stager_run_wait, of one that is kept. */
int stg_result_wait(struct stager_stream *stream, const struct stg_result *result,
                    void *native);

#endif
