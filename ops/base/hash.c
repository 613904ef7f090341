/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/hash.h"

uint64_t stg_fingerprint64(const char *s, size_t n)
{
    return stg_farm_hash(s, n);
}

uint64_t stg_hash64(const char *s, size_t n)
{
    const uint64_t m = 0xc6a4a7935bd1e995ull;
    uint64_t h = 0xdecafcaffeull ^ n * m;
    for (; n >= 8; s += 8, n -= 8) {
        uint64_t k = stg_farm_fetch64(s) * m;
        h = (h ^ (k ^ k >> 47) * m) * m;
    }
    if (n > 0) {
        for (size_t i = 0; i < n; i++)
            h ^= (uint64_t)(uint8_t)s[i] << 8 * i;
        h *= m;
    }
    h = stg_farm_shift_mix(h) * m;
    return stg_farm_shift_mix(h);
}
