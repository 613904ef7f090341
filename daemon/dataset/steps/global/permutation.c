/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/global/permutation.h"

static void init_table(struct stg_permutation *permutation, struct stg_random *random)
{
    uint16_t *table = permutation->table;
    for (uint64_t i = 0; i < permutation->n; i++)
        table[i] = (uint16_t)i;
    for (uint64_t i = permutation->n; i > 1; i--) {
        uint64_t k = stg_random_below(random, i, i);
        uint16_t swap = table[i - 1];
        table[i - 1] = table[k];
        table[k] = swap;
    }
}

void stg_permutation_init(struct stg_permutation *permutation, uint64_t n,
                          struct stg_random *random)
{
    *permutation = (struct stg_permutation){.n = n};
    if (n <= STG_PERMUTATION_TABLE) {
        init_table(permutation, random);
        return;
    }
    while (permutation->half_bits < 31 && (uint64_t)1 << 2 * permutation->half_bits < n)
        permutation->half_bits++;
    for (int i = 0; i < STG_PERMUTATION_ROUNDS; i++)
        permutation->keys[i] = stg_random_at(random, (uint64_t)i);
}

/* The finalizer of MurmurHash3 (Appleby), of which the upper bits are taken. */
static uint64_t mix(uint64_t key, uint64_t half, unsigned bits)
{
    uint64_t x = key + half;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
    return (x ^ x >> 33) >> (64 - bits);
}

static uint64_t encrypt(const struct stg_permutation *permutation, uint64_t value)
{
    unsigned bits = permutation->half_bits;
    uint64_t left = value >> bits, right = value & (((uint64_t)1 << bits) - 1);
    for (int i = 0; i < STG_PERMUTATION_ROUNDS; i++) {
        uint64_t next = left ^ mix(permutation->keys[i], right, bits);
        left = right;
        right = next;
    }
    return left << bits | right;
}

static uint64_t decrypt(const struct stg_permutation *permutation, uint64_t value)
{
    unsigned bits = permutation->half_bits;
    uint64_t left = value >> bits, right = value & (((uint64_t)1 << bits) - 1);
    for (int i = STG_PERMUTATION_ROUNDS; i-- > 0;) {
        uint64_t before = right ^ mix(permutation->keys[i], left, bits);
        right = left;
        left = before;
    }
    return left << bits | right;
}

uint64_t stg_permutation_at(const struct stg_permutation *permutation, uint64_t place)
{
    if (permutation->half_bits == 0)
        return permutation->table[place];
    do
        place = encrypt(permutation, place);
    while (place >= permutation->n);
    return place;
}

uint64_t stg_permutation_find(const struct stg_permutation *permutation, uint64_t value)
{
    uint64_t place = 0;
    if (permutation->half_bits == 0) {
        while (permutation->table[place] != value)
            place++;
        return place;
    }
    do
        value = decrypt(permutation, value);
    while (value >= permutation->n);
    return value;
}
