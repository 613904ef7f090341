/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers without a state: number i of a stream is a function of (seed, purpose,
 * pass, epoch, i) alone. Philox4x64-10 (Salmon, Moraes, Dror, Shaw: Parallel random
 * numbers, as easy as 1, 2, 3; SC 2011), key (seed, purpose), counter (i / 4, epoch,
 * pass, 0). Any thread.
 */
#ifndef STG_CORE_RANDOM_H
#define STG_CORE_RANDOM_H

#include <stdint.h>

/* The purpose of a number: with equal seeds, each purpose has another stream. */
enum stg_random_purpose {
    STG_RANDOM_SHUFFLE = 1,
    STG_RANDOM_FILES = 2,
    STG_RANDOM_SAMPLE = 3,
    STG_RANDOM_OP = 4,       /* ops/base/random.h: its counters are others */
    STG_RANDOM_VARIABLE = 5, /* with a pass and an epoch of 0 */
    STG_RANDOM_BLOCKS = 6,   /* of a global shuffle */
    STG_RANDOM_WINDOW = 7    /* likewise: the records of a window */
};

struct stg_random {
    uint64_t seed, purpose, pass, epoch;
    uint64_t block; /* the four numbers that words hold; UINT64_MAX: none */
    uint64_t words[4];
};

void stg_random_init(struct stg_random *random, uint64_t seed,
                     enum stg_random_purpose purpose, uint64_t pass, uint64_t epoch);

/* Number `index` of the stream, uniform over 64 bits. */
uint64_t stg_random_at(struct stg_random *random, uint64_t index);

/* The same, uniform over [0, n), n at least 1 (to within n / 2^64). */
uint64_t stg_random_below(struct stg_random *random, uint64_t index, uint64_t n);

/* The generator's function itself. */
void stg_philox(const uint64_t key[2], const uint64_t counter[4], uint64_t ret[4]);

#endif
