/* SPDX-License-Identifier: Apache-2.0 */
#include "core/random.h"

#define ROUNDS 10
#define MULTIPLIER_0 0xd2e7470ee14c6c93ull
#define MULTIPLIER_1 0xca5a826395121157ull
#define WEYL_0 0x9e3779b97f4a7c15ull
#define WEYL_1 0xbb67ae8584caa73bull

__extension__ typedef unsigned __int128 wide;

void stg_philox(const uint64_t key[2], const uint64_t counter[4], uint64_t ret[4])
{
    uint64_t k0 = key[0], k1 = key[1];
    uint64_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int i = 0; i < ROUNDS; i++) {
        wide p0 = (wide)MULTIPLIER_0 * c0;
        wide p1 = (wide)MULTIPLIER_1 * c2;
        c0 = (uint64_t)(p1 >> 64) ^ c1 ^ k0;
        c1 = (uint64_t)p1;
        c2 = (uint64_t)(p0 >> 64) ^ c3 ^ k1;
        c3 = (uint64_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    ret[0] = c0;
    ret[1] = c1;
    ret[2] = c2;
    ret[3] = c3;
}

void stg_random_init(struct stg_random *random, uint64_t seed,
                     enum stg_random_purpose purpose, uint64_t pass, uint64_t epoch)
{
    *random = (struct stg_random){.seed = seed,
                                  .purpose = (uint64_t)purpose,
                                  .pass = pass,
                                  .epoch = epoch,
                                  .block = UINT64_MAX};
}

uint64_t stg_random_at(struct stg_random *random, uint64_t index)
{
    if (random->block != index / 4) {
        const uint64_t key[2] = {random->seed, random->purpose};
        const uint64_t counter[4] = {index / 4, random->epoch, random->pass, 0};
        stg_philox(key, counter, random->words);
        random->block = index / 4;
    }
    return random->words[index % 4];
}

uint64_t stg_random_below(struct stg_random *random, uint64_t index, uint64_t n)
{
    return (uint64_t)(((wide)stg_random_at(random, index) * n) >> 64);
}
