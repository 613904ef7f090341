/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/placement/paired.h"

#include <math.h>

/* The mixture is best where the sum of squares is about this: 20 pairs of 3 %. */
#define MIXED_AT 0.02
#define MAX_GAIN 1.0

double stg_paired_gain(double incumbent, double challenger)
{
    double both = incumbent + challenger;
    double gain = both > 0 ? 2 * (incumbent - challenger) / both : 0;
    return gain > MAX_GAIN ? MAX_GAIN : gain < -MAX_GAIN ? -MAX_GAIN : gain;
}

void stg_paired_add(struct stg_paired *paired, double gain)
{
    paired->n++;
    paired->sum += gain;
    paired->squares += gain * gain;
}

double stg_paired_mean(const struct stg_paired *paired)
{
    return paired->n > 0 ? paired->sum / paired->n : 0;
}

double stg_paired_spread(const struct stg_paired *paired)
{
    double mean = stg_paired_mean(paired);
    double square = paired->n > 1 ? paired->squares - paired->n * mean * mean : 0;
    return square > 0 ? sqrt(square / (paired->n - 1)) : 0;
}

double stg_paired_error(const struct stg_paired *paired)
{
    return paired->n > 0 ? stg_paired_spread(paired) / sqrt(paired->n) : 0;
}

/* Returns the logarithm of the mixture. sum: of the differences from the hypothesis, in
 * the direction that refutes it. */
static double evidence(double sum, double squares)
{
    double v = squares + MIXED_AT;
    return sum > 0 ? sum * sum / (2 * v) - log(v / MIXED_AT) / 2 : 0;
}

static double squares_from(const struct stg_paired *paired, double value)
{
    double squares =
        paired->squares - 2 * value * paired->sum + paired->n * value * value;
    return squares > 0 ? squares : 0;
}

bool stg_paired_is_above(const struct stg_paired *paired, double least, double error)
{
    double sum = paired->sum - paired->n * least;
    return evidence(sum, squares_from(paired, least)) > -log(error);
}

bool stg_paired_is_below(const struct stg_paired *paired, double most, double error)
{
    double sum = paired->n * most - paired->sum;
    return evidence(sum, squares_from(paired, most)) > -log(error);
}
