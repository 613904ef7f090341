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

/* The version of the text. A newer one is refused. */
#define STG_STATE_VERSION 1
/* The version of the order of elements: a release that changes the order for the same
 * pipeline and data raises it. */
#define STG_ORDER_VERSION 1

/* Enough for every text, with its NUL. */
#define STG_STATE_TEXT_BYTES 1024
#define STG_STATE_STEPS_BYTES 480

struct stg_state {
    char steps[STG_STATE_STEPS_BYTES]; /* signature of the pipeline; [a-z0-9_:,@;#.-] */
    uint64_t order;                    /* STG_ORDER_VERSION */
    uint64_t pass;
    struct stg_pass_place place; /* before `rows` and `n_delivered` */
    uint64_t rows;        /* of the item after the place: taken already, by slices */
    uint64_t n_delivered; /* error items after the place that the client has already */
    uint64_t ranks;       /* clients that share a round, where rows is not 0; else 0 */
    struct stg_data_identity data; /* of the pass; n_files 0: not known, or no files */
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

#endif
