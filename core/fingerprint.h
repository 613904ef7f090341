/* SPDX-License-Identifier: Apache-2.0
 *
 * FarmHash Fingerprint64 (farmhashna::Hash64 of google/farmhash), the hash that
 * TensorFlow defines buckets by: never changes, on any platform. Pure, for the CPU and
 * for a GPU; reads [s, s + n), aligned or not, and nothing else.
 */
#ifndef STG_CORE_FINGERPRINT_H
#define STG_CORE_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define STG_ANYWHERE __host__ __device__
#else
#define STG_ANYWHERE
#endif

/* The constants of FarmHash. */
#define STG_FARM_K0 0xc3a5c85c97cb3127ull
#define STG_FARM_K1 0xb492b66fbe98f273ull
#define STG_FARM_K2 0x9ae16a3b2f90404full

struct stg_farm_pair {
    uint64_t first, second;
};

STG_ANYWHERE static inline uint64_t stg_farm_fetch64(const char *s)
{
    uint64_t ret;
    memcpy(&ret, s, sizeof(ret));
    return ret;
}

STG_ANYWHERE static inline uint64_t stg_farm_fetch32(const char *s)
{
    uint32_t ret;
    memcpy(&ret, s, sizeof(ret));
    return ret;
}

STG_ANYWHERE static inline uint64_t stg_farm_rotate(uint64_t value, unsigned by)
{
    return value >> by | value << (64 - by);
}

STG_ANYWHERE static inline uint64_t stg_farm_shift_mix(uint64_t value)
{
    return value ^ value >> 47;
}

STG_ANYWHERE static inline uint64_t stg_farm_mix_two(uint64_t u, uint64_t v, uint64_t mul)
{
    uint64_t a = stg_farm_shift_mix((u ^ v) * mul);
    return stg_farm_shift_mix((v ^ a) * mul) * mul;
}

/* The same of 8 to 16 bytes, whose first and last eight are these. */
STG_ANYWHERE static inline uint64_t stg_fingerprint64_of(uint64_t first, uint64_t last,
                                                         uint64_t n)
{
    uint64_t mul = STG_FARM_K2 + n * 2, a = first + STG_FARM_K2;
    uint64_t c = (last >> 37 | last << 27) * mul + a;
    uint64_t d = ((a >> 25 | a << 39) + last) * mul;
    uint64_t e = (c ^ d) * mul;
    e ^= e >> 47;
    uint64_t f = (d ^ e) * mul;
    return (f ^ f >> 47) * mul;
}

STG_ANYWHERE static inline uint64_t stg_farm_0_to_16(const char *s, size_t n)
{
    if (n >= 8)
        return stg_fingerprint64_of(stg_farm_fetch64(s), stg_farm_fetch64(s + n - 8), n);
    if (n >= 4)
        return stg_farm_mix_two(n + (stg_farm_fetch32(s) << 3),
                                stg_farm_fetch32(s + n - 4), STG_FARM_K2 + n * 2);
    if (n == 0)
        return STG_FARM_K2;
    uint32_t first = (uint8_t)s[0], middle = (uint8_t)s[n >> 1], last = (uint8_t)s[n - 1];
    uint32_t y = first + (middle << 8), z = (uint32_t)n + (last << 2);
    return stg_farm_shift_mix(y * STG_FARM_K2 ^ z * STG_FARM_K0) * STG_FARM_K2;
}

STG_ANYWHERE static inline uint64_t stg_farm_17_to_32(const char *s, size_t n)
{
    uint64_t mul = STG_FARM_K2 + n * 2;
    uint64_t a = stg_farm_fetch64(s) * STG_FARM_K1, b = stg_farm_fetch64(s + 8);
    uint64_t c = stg_farm_fetch64(s + n - 8) * mul,
             d = stg_farm_fetch64(s + n - 16) * STG_FARM_K2;
    return stg_farm_mix_two(stg_farm_rotate(a + b, 43) + stg_farm_rotate(c, 30) + d,
                            a + stg_farm_rotate(b + STG_FARM_K2, 18) + c, mul);
}

STG_ANYWHERE static inline uint64_t stg_farm_33_to_64(const char *s, size_t n)
{
    uint64_t mul = STG_FARM_K2 + n * 2;
    uint64_t a = stg_farm_fetch64(s) * STG_FARM_K2, b = stg_farm_fetch64(s + 8);
    uint64_t c = stg_farm_fetch64(s + n - 8) * mul,
             d = stg_farm_fetch64(s + n - 16) * STG_FARM_K2;
    uint64_t y = stg_farm_rotate(a + b, 43) + stg_farm_rotate(c, 30) + d;
    uint64_t z = stg_farm_mix_two(y, a + stg_farm_rotate(b + STG_FARM_K2, 18) + c, mul);
    uint64_t e = stg_farm_fetch64(s + 16) * mul, f = stg_farm_fetch64(s + 24);
    uint64_t g = (y + stg_farm_fetch64(s + n - 32)) * mul,
             h = (z + stg_farm_fetch64(s + n - 24)) * mul;
    return stg_farm_mix_two(stg_farm_rotate(e + f, 43) + stg_farm_rotate(g, 30) + h,
                            e + stg_farm_rotate(f + a, 18) + g, mul);
}

/* 32 bytes and two seeds into two words. */
STG_ANYWHERE static inline struct stg_farm_pair stg_farm_weak_32(const char *s,
                                                                 uint64_t a, uint64_t b)
{
    uint64_t z = stg_farm_fetch64(s + 24);
    a += stg_farm_fetch64(s);
    b = stg_farm_rotate(b + a + z, 21);
    uint64_t c = a;
    a += stg_farm_fetch64(s + 8);
    a += stg_farm_fetch64(s + 16);
    b += stg_farm_rotate(a, 44);
    struct stg_farm_pair ret = {a + z, b + c};
    return ret;
}

/* The 64 bytes that end with the last one are taken once more, mixed differently. */
STG_ANYWHERE static inline uint64_t stg_farm_long(const char *s, size_t n)
{
    uint64_t x = 81, y = x * STG_FARM_K1 + 113,
             z = stg_farm_shift_mix(y * STG_FARM_K2 + 113) * STG_FARM_K2, swap;
    struct stg_farm_pair v = {0, 0}, w = {0, 0};
    x = x * STG_FARM_K2 + stg_farm_fetch64(s);
    const char *end = s + (n - 1) / 64 * 64, *last = s + n - 64;
    do {
        x = stg_farm_rotate(x + y + v.first + stg_farm_fetch64(s + 8), 37) * STG_FARM_K1;
        y = stg_farm_rotate(y + v.second + stg_farm_fetch64(s + 48), 42) * STG_FARM_K1;
        x ^= w.second;
        y += v.first + stg_farm_fetch64(s + 40);
        z = stg_farm_rotate(z + w.first, 33) * STG_FARM_K1;
        v = stg_farm_weak_32(s, v.second * STG_FARM_K1, x + w.first);
        w = stg_farm_weak_32(s + 32, z + w.second, y + stg_farm_fetch64(s + 16));
        swap = z;
        z = x;
        x = swap;
        s += 64;
    } while (s != end);

    uint64_t mul = STG_FARM_K1 + ((z & 0xff) << 1);
    s = last;
    w.first += (n - 1) & 63;
    v.first += w.first;
    w.first += v.first;
    x = stg_farm_rotate(x + y + v.first + stg_farm_fetch64(s + 8), 37) * mul;
    y = stg_farm_rotate(y + v.second + stg_farm_fetch64(s + 48), 42) * mul;
    x ^= w.second * 9;
    y += v.first * 9 + stg_farm_fetch64(s + 40);
    z = stg_farm_rotate(z + w.first, 33) * mul;
    v = stg_farm_weak_32(s, v.second * mul, x + w.first);
    w = stg_farm_weak_32(s + 32, z + w.second, y + stg_farm_fetch64(s + 16));
    return stg_farm_mix_two(stg_farm_mix_two(v.first, w.first, mul) +
                                stg_farm_shift_mix(y) * STG_FARM_K0 + x,
                            stg_farm_mix_two(v.second, w.second, mul) + z, mul);
}

STG_ANYWHERE static inline uint64_t stg_farm_hash(const char *s, size_t n)
{
    if (n <= 16)
        return stg_farm_0_to_16(s, n);
    if (n <= 32)
        return stg_farm_17_to_32(s, n);
    return n <= 64 ? stg_farm_33_to_64(s, n) : stg_farm_long(s, n);
}

#endif
