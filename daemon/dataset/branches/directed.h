/* SPDX-License-Identifier: Apache-2.0
 *
 * Yields elements of several inputs, and chooses the input for each element: the common
 * part of sample_from_datasets and choose_from_datasets (tf.data's directed interleave).
 * One thread.
 */
#ifndef STG_DAEMON_DIRECTED_H
#define STG_DAEMON_DIRECTED_H

#include "daemon/dataset/branches/mix.h"

/* Records requested from an input at a time. */
#define STG_DIRECTED_PULL 256

struct stg_directed_input {
    struct stg_iter *iter;
    struct stg_cursor cursor;
    bool ended;
    uint64_t n_left, n_skipped; /* while it is skipped */
};

/* The first member of an implementation's struct; zeroed except for what
 * stg_directed_create sets. */
struct stg_directed {
    struct stg_iter iter;
    struct stg_directed_input *inputs;
    size_t n, n_active; /* inputs; inputs that have not ended */
    bool stop_on_empty;
    bool over;
    size_t chosen; /* for the next element; SIZE_MAX: none yet */
    struct stg_mix mix;
    struct stg_block *error; /* to be emitted after the mix */
    int failed;              /* to be returned after that */
    struct stg_err failure;

    /* Chooses the input of the next element. Returns 0; 1 at the end; 2 if an error block
     * comes next, which is then in `error`; or a negative code. */
    int (*choose)(struct stg_directed *directed, size_t *ret, struct stg_err *err);
};

/* Allocates an iterator of `bytes` with the first n of `input` and its siblings as
 * inputs. Returns NULL if memory runs out; the caller then keeps the inputs. */
void *stg_directed_create(size_t bytes, const struct stg_iter_impl *impl,
                          struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          size_t n, struct stg_err *err);

/* Implements stg_iter_impl.next. */
int stg_directed_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err);

/* Implements stg_iter_impl.skip: draws, without the elements. */
int stg_directed_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                      struct stg_err *err);

/* Resets the positions in the inputs, without rewinding them. */
void stg_directed_forget(struct stg_directed *directed);

/* Implements stg_iter_impl.destroy for an iterator that owns nothing else. */
void stg_directed_destroy(struct stg_iter *iter);

#endif
