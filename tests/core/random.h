/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers for seeded tests: SplitMix64. The same seed always gives the same test.
 */
#ifndef STG_TESTS_CORE_RANDOM_H
#define STG_TESTS_CORE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Returns a number below n; n is above 0. */
static inline uint32_t random_below(struct random *random, uint32_t n)
{
    return (uint32_t)(random_next(random) % n);
}

#endif
