/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a stream: how far a training loop has come in a pipeline, and of which
 * pipeline and data that holds. A value; the client makes it from what came with the
 * batches, and the daemon begins a run at it. Its text is one JSON object. Pure
 * functions; any thread.
 */
#ifndef STG_CORE_STATE_H
#define STG_CORE_STATE_H

#include "core/err.h"
#include "core/layout.h"
#include "core/taken.h"

/* The version of the text. A newer one is refused. */
#define STG_STATE_VERSION 1
/* The version of the order of elements: a release that changes the order for the same
 * pipeline and data raises it. */
#define STG_ORDER_VERSION 1

/* Enough for every text, with its NUL. A text without `taken` has less than 1 KiB. */
#define STG_STATE_TEXT_BYTES 32768
#define STG_STATE_STEPS_BYTES 480
#define STG_STATE_CLIENT_BYTES 128

struct stg_state {
    char steps[STG_STATE_STEPS_BYTES]; /* signature of the pipeline; [a-z0-9_:,@;#.-] */
    uint64_t order;                    /* STG_ORDER_VERSION */
    uint64_t pass;
    struct stg_pass_place place; /* before `rows` and `n_delivered` */
    uint64_t rows;        /* of the item after the place: taken already, by slices */
    uint64_t n_delivered; /* error items after the place that the client has already */
    uint64_t ranks;       /* clients that share a round, where rows is not 0; else 0 */
    struct stg_data_identity data; /* of the pass; n_files 0: not known, or no files */
    uint64_t hosts;  /* that divide the pass by `shard: auto`; 0: it is not divided */
    uint64_t base;   /* with hosts: the record at which the division began; the place is
                        counted from there */
    uint64_t weight; /* with hosts: of the one whose state it is; 0: hosts have none */

    /* Of a split among several clients; consumers 0: the place is enough. Then the place
     * is one near the first item that is left, and items have the numbers of
     * stg_pass_place. */
    uint64_t run;       /* run_id */
    uint64_t consumers; /* that the pass had so far */
    uint64_t consumer;  /* which of them, from 1; 0: the state of all of them */
    uint64_t batch;     /* batch size that the numbers of items are of; 0: none */
    struct stg_pass_place start;         /* where the run began in the pass */
    char client[STG_STATE_CLIENT_BYTES]; /* its client_id, for messages */
    char taken[STG_TAKEN_TEXT_BYTES];    /* items: stg_taken_read */
    /* Of the pass before: how many items it had, and those that the consumer took. Others
     * may stand at its end still. */
    uint64_t n_before;
    char before[STG_TAKEN_TEXT_BYTES];
};

/* Writes the text. buf has STG_STATE_TEXT_BYTES. Returns its length without the NUL. */
size_t stg_state_write(const struct stg_state *state, char *buf);

/* Reads a text, which may come from anywhere: keys in any order, white space anywhere.
 * INVALID_ARGUMENT: no JSON object, or truncated, edited, or of a newer release; the
 * error names the difference. */
int stg_state_read(const char *text, size_t bytes, struct stg_state *ret,
                   struct stg_err *err);

/* Returns the key of the first value in which two states differ; NULL: they are the same.
 */
const char *stg_state_differs(const struct stg_state *a, const struct stg_state *b);

/* Makes one state of those of all consumers of a step, in any order. Equal states without
 * consumers are that state. FAILED_PRECONDITION: a state is missing or there twice, or
 * they are of different pipelines, passes or runs; the error names consumer and client.
 * INVALID_ARGUMENT: there are none. RESOURCE_EXHAUSTED: the items that were taken do not
 * fit. */
int stg_state_merge(const struct stg_state *states, size_t n, struct stg_state *ret,
                    struct stg_err *err);

#endif
