/* SPDX-License-Identifier: Apache-2.0
 *
 * A keyed permutation of [0, n), of which each value is computed alone. Up to 1024 values
 * are a table, each of the n! orders as likely as another. More are a balanced Feistel
 * network of 10 rounds over the least even number of bits that holds them, applied again
 * as long as its result is n or more. Immutable once initialised; any thread.
 */
#ifndef STG_DAEMON_PERMUTATION_H
#define STG_DAEMON_PERMUTATION_H

#include "core/random.h"

#define STG_PERMUTATION_TABLE 1024u
#define STG_PERMUTATION_ROUNDS 10

struct stg_permutation {
    uint64_t n;
    unsigned half_bits; /* of a value's two halves; 0: a table */
    union {
        uint64_t keys[STG_PERMUTATION_ROUNDS];
        uint16_t table[STG_PERMUTATION_TABLE];
    };
};

/* n: up to 2^62. The key is that stream. */
void stg_permutation_init(struct stg_permutation *permutation, uint64_t n,
                          struct stg_random *random);

/* Returns the value at a place below n, and the place of a value. */
uint64_t stg_permutation_at(const struct stg_permutation *permutation, uint64_t place);
uint64_t stg_permutation_find(const struct stg_permutation *permutation, uint64_t value);

#endif
