/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/hash.h"

#include <string.h>

/* The constants of FarmHash. */
#define K0 0xc3a5c85c97cb3127ull
#define K1 0xb492b66fbe98f273ull
#define K2 0x9ae16a3b2f90404full

struct pair {
    uint64_t first, second;
};

static inline uint64_t fetch64(const char *s)
{
    uint64_t ret;
    memcpy(&ret, s, sizeof(ret));
    return ret;
}

static inline uint64_t fetch32(const char *s)
{
    uint32_t ret;
    memcpy(&ret, s, sizeof(ret));
    return ret;
}

static inline uint64_t rotate(uint64_t value, unsigned by)
{
    return value >> by | value << (64 - by);
}

static inline uint64_t shift_mix(uint64_t value)
{
    return value ^ value >> 47;
}

static inline uint64_t mix_two(uint64_t u, uint64_t v, uint64_t mul)
{
    uint64_t a = shift_mix((u ^ v) * mul);
    return shift_mix((v ^ a) * mul) * mul;
}

static inline uint64_t hash_0_to_16(const char *s, size_t n)
{
    if (n >= 8)
        return stg_fingerprint64_of(fetch64(s), fetch64(s + n - 8), n);
    if (n >= 4)
        return mix_two(n + (fetch32(s) << 3), fetch32(s + n - 4), K2 + n * 2);
    if (n == 0)
        return K2;
    uint32_t first = (uint8_t)s[0], middle = (uint8_t)s[n >> 1], last = (uint8_t)s[n - 1];
    uint32_t y = first + (middle << 8), z = (uint32_t)n + (last << 2);
    return shift_mix(y * K2 ^ z * K0) * K2;
}

static uint64_t hash_17_to_32(const char *s, size_t n)
{
    uint64_t mul = K2 + n * 2;
    uint64_t a = fetch64(s) * K1, b = fetch64(s + 8);
    uint64_t c = fetch64(s + n - 8) * mul, d = fetch64(s + n - 16) * K2;
    return mix_two(rotate(a + b, 43) + rotate(c, 30) + d, a + rotate(b + K2, 18) + c,
                   mul);
}

static uint64_t hash_33_to_64(const char *s, size_t n)
{
    uint64_t mul = K2 + n * 2;
    uint64_t a = fetch64(s) * K2, b = fetch64(s + 8);
    uint64_t c = fetch64(s + n - 8) * mul, d = fetch64(s + n - 16) * K2;
    uint64_t y = rotate(a + b, 43) + rotate(c, 30) + d;
    uint64_t z = mix_two(y, a + rotate(b + K2, 18) + c, mul);
    uint64_t e = fetch64(s + 16) * mul, f = fetch64(s + 24);
    uint64_t g = (y + fetch64(s + n - 32)) * mul, h = (z + fetch64(s + n - 24)) * mul;
    return mix_two(rotate(e + f, 43) + rotate(g, 30) + h, e + rotate(f + a, 18) + g, mul);
}

/* 32 bytes and two seeds into two words. */
static inline struct pair weak_32(const char *s, uint64_t a, uint64_t b)
{
    uint64_t z = fetch64(s + 24);
    a += fetch64(s);
    b = rotate(b + a + z, 21);
    uint64_t c = a;
    a += fetch64(s + 8);
    a += fetch64(s + 16);
    b += rotate(a, 44);
    return (struct pair){a + z, b + c};
}

/* The 64 bytes that end with the last one are taken once more, mixed differently. */
static uint64_t hash_long(const char *s, size_t n)
{
    uint64_t x = 81, y = x * K1 + 113, z = shift_mix(y * K2 + 113) * K2, swap;
    struct pair v = {0}, w = {0};
    x = x * K2 + fetch64(s);
    const char *end = s + (n - 1) / 64 * 64, *last = s + n - 64;
    do {
        x = rotate(x + y + v.first + fetch64(s + 8), 37) * K1;
        y = rotate(y + v.second + fetch64(s + 48), 42) * K1;
        x ^= w.second;
        y += v.first + fetch64(s + 40);
        z = rotate(z + w.first, 33) * K1;
        v = weak_32(s, v.second * K1, x + w.first);
        w = weak_32(s + 32, z + w.second, y + fetch64(s + 16));
        swap = z;
        z = x;
        x = swap;
        s += 64;
    } while (s != end);

    uint64_t mul = K1 + ((z & 0xff) << 1);
    s = last;
    w.first += (n - 1) & 63;
    v.first += w.first;
    w.first += v.first;
    x = rotate(x + y + v.first + fetch64(s + 8), 37) * mul;
    y = rotate(y + v.second + fetch64(s + 48), 42) * mul;
    x ^= w.second * 9;
    y += v.first * 9 + fetch64(s + 40);
    z = rotate(z + w.first, 33) * mul;
    v = weak_32(s, v.second * mul, x + w.first);
    w = weak_32(s + 32, z + w.second, y + fetch64(s + 16));
    return mix_two(mix_two(v.first, w.first, mul) + shift_mix(y) * K0 + x,
                   mix_two(v.second, w.second, mul) + z, mul);
}

uint64_t stg_fingerprint64(const char *s, size_t n)
{
    if (n <= 16)
        return hash_0_to_16(s, n);
    if (n <= 32)
        return hash_17_to_32(s, n);
    return n <= 64 ? hash_33_to_64(s, n) : hash_long(s, n);
}

uint64_t stg_hash64(const char *s, size_t n)
{
    const uint64_t m = 0xc6a4a7935bd1e995ull;
    uint64_t h = 0xdecafcaffeull ^ n * m;
    for (; n >= 8; s += 8, n -= 8) {
        uint64_t k = fetch64(s) * m;
        h = (h ^ (k ^ k >> 47) * m) * m;
    }
    if (n > 0) {
        for (size_t i = 0; i < n; i++)
            h ^= (uint64_t)(uint8_t)s[i] << 8 * i;
        h *= m;
    }
    h = shift_mix(h) * m;
    return shift_mix(h);
}
