/* SPDX-License-Identifier: Apache-2.0
 *
 * What an op draws: a function of (seed, pass, epoch, index, row) alone. Inside of a
 * `map` the index is the element's, and there is one row; in the pipeline's graph it is
 * the batch's. Philox4x64-10 (core/random.h), key (seed, STG_RANDOM_OP), counter (index,
 * epoch, pass, row * 256 + block). Any thread.
 */
#ifndef STG_OPS_BASE_RANDOM_H
#define STG_OPS_BASE_RANDOM_H

#include "ops/base/op.h"

/* The numbers of one row, in the order in which they are asked for; at most 1024. */
struct stg_op_random {
    uint64_t key[2], counter[4];
    uint64_t words[4];
    unsigned n_used;
};

/* The attribute `seed`; where it is not given, a number made of the node's name, so that
 * two nodes draw differently. */
uint64_t stg_op_random_seed(const struct stg_node *node);

void stg_op_random_init(struct stg_op_random *random, const struct stg_key *key,
                        uint64_t seed, uint64_t row);

/* Uniform over 64 bits. */
uint64_t stg_op_random_next(struct stg_op_random *random);

/* Uniform over [0, n), n at least 1. */
int64_t stg_op_random_below(struct stg_op_random *random, int64_t n);

/* Uniform over [low, high), or low where they are equal. */
double stg_op_random_between(struct stg_op_random *random, double low, double high);

#endif
