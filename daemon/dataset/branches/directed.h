/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of several inputs, one after another, from whichever input is chosen for each:
 * what sample_from_datasets and choose_from_datasets share (tf.data's directed
 * interleave). One thread.
 */
#ifndef STG_DAEMON_DIRECTED_H
#define STG_DAEMON_DIRECTED_H

#include "daemon/dataset/branches/mix.h"

/* Asked of an input at once. */
#define STG_DIRECTED_PULL 256

struct stg_directed_input {
    struct stg_iter *iter;
    struct stg_cursor cursor;
    bool ended;
};

/* An implementation's struct begins with it; zeroed but for what stg_directed_create
 * sets. */
struct stg_directed {
    struct stg_iter iter;
    struct stg_directed_input *inputs;
    size_t n, n_active; /* inputs; of them, those that have not ended */
    bool stop_on_empty;
    bool over;
    size_t chosen; /* for the next element; SIZE_MAX: none is yet */
    struct stg_mix mix;
    struct stg_block *error; /* to be emitted after the mix */
    int failed;              /* to be returned after that */
    struct stg_err failure;

    /* The input of the next element: 0; 1: there are no more; 2: an error instead, which
     * is in `error` now; or a negative code. */
    int (*choose)(struct stg_directed *directed, size_t *ret, struct stg_err *err);
};

/* An iterator of `bytes` whose inputs are the first n of `input` and its siblings. NULL:
 * out of memory; the inputs stay the caller's. */
void *stg_directed_create(size_t bytes, const struct stg_iter_impl *impl,
                          struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          size_t n, struct stg_err *err);

/* As stg_iter_impl.next. */
int stg_directed_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err);

/* Forgets where the inputs stand; they are not rewound. */
void stg_directed_forget(struct stg_directed *directed);

/* As stg_iter_impl.destroy, for what has nothing of its own. */
void stg_directed_destroy(struct stg_iter *iter);

#endif
