/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a stream, shared by stream.c (life), next.c (the way of a batch), batch.c
 * (views), run.c (compute). One thread at a time.
 *
 * A closed stream lives on as long as one of its batches is in hand: the mappings go with
 * the last one.
 */
#ifndef STG_CLIENT_STREAM_H
#define STG_CLIENT_STREAM_H

#include "client/connect.h"
#include "client/map.h"
#include "client/stager.h"
#include "core/batch.h"
#include "core/ring.h"

struct stg_computer;

struct stager_batch {
    struct stager_stream *stream;
    const void *base; /* the batch at rest: read nothing before stg_batch_open */
    bool open;        /* it was checked */
    uint64_t number;
    uint64_t bytes;
    uint64_t assigned_ns;
    uint32_t lease, lease_generation;
    bool redelivered;
    bool in_hand;
    struct stager_batch *next_free;
};

struct stager_stream {
    struct stager *client; /* its socket; NULL once closed */
    struct stg_guard *guard;
    struct stg_map segment, ring_page, control_page;
    struct stg_ring_reader ring;
    struct stg_control_writer control;

    struct stager_batch *pool; /* max_held of them: no malloc for a batch */
    struct stager_batch *free_batches;
    uint32_t max_held;
    uint32_t held;
    uint32_t spin_ns;

    uint64_t passes;  /* asked for */
    bool at_end;      /* until rewind */
    bool armed;       /* `waiting` is set in the control page */
    int finished;     /* not 0: nothing follows; the code, and final_text says why */
    const char *name; /* of the pipeline; in bump */
    char *final_text; /* STG_ERR_TEXT_BYTES, in bump */

    uint64_t n_batches, n_errors, wait_ns, n_sleeps;

    struct stg_pipeline_spec *spec; /* NULL: the daemon sent none */
    struct stg_schema boundary;     /* in bump */
    const char *structure;          /* in bump */
    struct stg_bump bump;
    struct stg_computer *computer; /* run.c; NULL before the first stager_run */

    struct stg_err err; /* of the last call */
};

/* Forgets the last error and refuses in a forked child. Every public call begins with it.
 */
int stg_stream_enter(struct stager_stream *stream);

/* Frees a stream that is closed and has no batch in hand; else nothing. */
void stg_stream_reap(struct stager_stream *stream);

/* batch.c: checks a batch at rest before the first look at it. Not when it is taken: its
 * head is cold then, and the hand-off need not wait for memory. DATA_LOSS in the stream's
 * err. */
int stg_batch_open(const struct stager_batch *batch);

/* batch.c: a tensor in hand as the trainer sees it. */
void stg_tensor_show(const char *name, const struct stg_tensor *tensor,
                     struct stager_tensor *ret);

/* run.c: gives back the executors and the library. NULL is allowed. */
void stg_computer_destroy(struct stg_computer *computer);

#endif
