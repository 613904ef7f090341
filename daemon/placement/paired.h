/* SPDX-License-Identifier: Apache-2.0
 *
 * A sequential test of paired costs: is the challenger cheaper than the incumbent by more
 * than a given part? Each pair compares two neighbouring runs of batches, in an order
 * drawn at random, so that load, batch sizes and contents that drift cancel out.
 *
 * The test may be evaluated after every pair. For gains g that are symmetric about some
 * value at most `least`, exp(l * S - l^2 * V / 2), with S the sum and V the sum of
 * squares of g - least, is a supermartingale for every l (de la Pena 1999). Mixed over l,
 * it exceeds 1 / e at any time with a probability of at most e. No assumption is made of
 * the size or the tails of the noise.
 */
#ifndef STG_DAEMON_PLACEMENT_PAIRED_H
#define STG_DAEMON_PLACEMENT_PAIRED_H

#include <stdbool.h>
#include <stdint.h>

struct stg_paired {
    uint32_t n;
    double sum, squares; /* of the gains */
};

/* Returns the gain of a pair: the part by which the challenger's cost of a batch is
 * lower, about log(incumbent / challenger), and within -1 and 1. */
double stg_paired_gain(double incumbent, double challenger);

void stg_paired_add(struct stg_paired *paired, double gain);

/* Returns the mean gain, and the standard error of that mean; 0 without pairs. */
double stg_paired_mean(const struct stg_paired *paired);
double stg_paired_error(const struct stg_paired *paired);

/* Returns the standard deviation of one pair. */
double stg_paired_spread(const struct stg_paired *paired);

/* Returns whether the pairs refute, with that probability of an error, that the gain is
 * `least` or less; stg_paired_is_below: `most` or more. */
bool stg_paired_is_above(const struct stg_paired *paired, double least, double error);
bool stg_paired_is_below(const struct stg_paired *paired, double most, double error);

#endif
