/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/encoding.h"

#include <string.h>

#define MAX_RUN_WIDTH 32u
#define MAX_DELTA_WIDTH 64u
#define WORD_BYTES 8u
#define SHORT_WIDTH 56u /* of which a value lies in a word, wherever its first bit is */
#define LENGTH_BYTES 4u
#define PACKED_GROUP 8u /* values of a bit-packed run come in groups */
#define MINIBLOCK 32u   /* the number of values of one is a multiple of this */
#define MAX_MINIBLOCK (1u << 20)
#define MAX_BLOCK (1u << 24)

static bool varint(struct stg_parquet_bytes *bytes, uint64_t *ret)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && bytes->at < bytes->end; shift += 7) {
        uint8_t next = *bytes->at++;
        value |= (uint64_t)(next & 0x7f) << shift;
        if ((next & 0x80) == 0) {
            *ret = value;
            return true;
        }
    }
    return false;
}

/* ---- packed bits ---- */

static uint64_t mask_of(unsigned width)
{
    return width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
}

/* The value that begins at that bit of n bytes; what lies behind them is 0. */
static uint64_t value_at(const uint8_t *data, uint64_t n, uint64_t bit, unsigned width)
{
    uint64_t first = bit / 8, value = 0;
    unsigned shift = bit % 8;
    for (unsigned i = 0; i < WORD_BYTES && first + i < n; i++)
        value |= (uint64_t)data[first + i] << (8 * i);
    value >>= shift;
    if (shift + width > 64 && first + WORD_BYTES < n)
        value |= (uint64_t)data[first + WORD_BYTES] << (64 - shift);
    return value & mask_of(width);
}

/* Returns how many of n values lie so far before the end that a word can be read at each
 * of them. */
static uint64_t n_inside(uint64_t n_bytes, uint64_t bit, unsigned width, uint64_t n)
{
    if (width > SHORT_WIDTH || width == 0 || n_bytes < WORD_BYTES)
        return 0;
    uint64_t last = (n_bytes - WORD_BYTES) * 8; /* a value may begin here */
    uint64_t inside = bit <= last ? (last - bit) / width + 1 : 0;
    return inside < n ? inside : n;
}

/* Values of a constant width, in groups of 8, the first of which begins with a
 * byte. */
static inline __attribute__((always_inline)) void unpack_groups(const uint8_t *data,
                                                                unsigned width,
                                                                uint32_t *to, uint64_t n)
{
    uint64_t mask = mask_of(width);
    for (uint64_t g = 0; g < n; g++, data += width, to += PACKED_GROUP) {
#pragma GCC unroll 8
        for (unsigned i = 0; i < PACKED_GROUP; i++) {
            uint64_t word;
            memcpy(&word, data + i * width / 8, sizeof(word));
            to[i] = (uint32_t)(word >> i * width % 8 & mask);
        }
    }
}

#define UNPACK(width)                                                                    \
    case width: unpack_groups(data, width, to, n); return true

/* Returns false if there is no such function. */
static bool unpack_fast(const uint8_t *data, unsigned width, uint32_t *to, uint64_t n)
{
    switch (width) {
        UNPACK(1);
        UNPACK(2);
        UNPACK(3);
        UNPACK(4);
        UNPACK(5);
        UNPACK(6);
        UNPACK(7);
        UNPACK(8);
        UNPACK(9);
        UNPACK(10);
        UNPACK(11);
        UNPACK(12);
        UNPACK(13);
        UNPACK(14);
        UNPACK(15);
        UNPACK(16);
        UNPACK(17);
        UNPACK(18);
        UNPACK(19);
        UNPACK(20);
    default: return false;
    }
}

/* The values begin at that bit of n bytes, of which those behind them may be
 * read. */
static void unpack32(const uint8_t *data, uint64_t n_bytes, uint64_t bit, unsigned width,
                     uint32_t *to, uint64_t n)
{
    uint64_t inside = n_inside(n_bytes, bit, width, n), mask = mask_of(width), i = 0;
    uint64_t groups = inside / PACKED_GROUP;
    if (bit % 8 == 0 && unpack_fast(data + bit / 8, width, to, groups))
        i = groups * PACKED_GROUP;
    for (; i < inside; i++) {
        uint64_t at = bit + i * width, word;
        memcpy(&word, data + at / 8, sizeof(word));
        to[i] = (uint32_t)(word >> at % 8 & mask);
    }
    for (i = inside; i < n; i++)
        to[i] = (uint32_t)value_at(data, n_bytes, bit + i * width, width);
}

static void unpack64(const uint8_t *data, uint64_t n_bytes, unsigned width, int64_t *to,
                     uint64_t n)
{
    uint64_t inside = n_inside(n_bytes, 0, width, n), mask = mask_of(width);
    for (uint64_t i = 0; i < inside; i++) {
        uint64_t at = i * width, word;
        memcpy(&word, data + at / 8, sizeof(word));
        to[i] = (int64_t)(word >> at % 8 & mask);
    }
    for (uint64_t i = inside; i < n; i++)
        to[i] = (int64_t)value_at(data, n_bytes, i * width, width);
}

bool stg_parquet_bits(struct stg_parquet_bytes *bytes, uint8_t *to, uint64_t n)
{
    uint64_t n_bytes = n / 8 + (n % 8 > 0);
    if (n_bytes > stg_parquet_left(bytes))
        return false;
    for (uint64_t i = 0; i < n; i++)
        to[i] = bytes->at[i / 8] >> i % 8 & 1;
    bytes->at += n_bytes;
    return true;
}

/* ---- runs ---- */

bool stg_parquet_runs_init(struct stg_parquet_runs *runs, struct stg_parquet_bytes bytes,
                           unsigned width)
{
    *runs = (struct stg_parquet_runs){.bytes = bytes, .width = width};
    return width <= MAX_RUN_WIDTH;
}

/* A packed run has a multiple of 8 values; the last one may be cut behind those that
 * count. */
static bool begin_packed(struct stg_parquet_runs *runs, uint64_t n_groups)
{
    uint64_t left = stg_parquet_left(&runs->bytes), n_bytes = left;
    if (n_groups > UINT64_MAX / (PACKED_GROUP * MAX_RUN_WIDTH))
        return false;
    if (n_groups * runs->width < left)
        n_bytes = n_groups * runs->width;
    runs->is_packed = true;
    runs->packed.at = runs->bytes.at;
    runs->packed.end = runs->bytes.at += n_bytes;
    runs->bit = 0;
    runs->n = n_groups * PACKED_GROUP;
    if (runs->width > 0 && n_bytes * 8 / runs->width < runs->n)
        runs->n = n_bytes * 8 / runs->width;
    return runs->n > 0;
}

static bool begin_equal(struct stg_parquet_runs *runs, uint64_t n)
{
    unsigned n_bytes = (runs->width + 7) / 8;
    if (n == 0 || n_bytes > stg_parquet_left(&runs->bytes))
        return false;
    runs->is_packed = false;
    runs->n = n;
    runs->value = (uint32_t)value_at(runs->bytes.at, n_bytes, 0, 8 * n_bytes);
    runs->bytes.at += n_bytes;
    return runs->value <= mask_of(runs->width);
}

static bool begin_run(struct stg_parquet_runs *runs)
{
    uint64_t head;
    if (!varint(&runs->bytes, &head))
        return false;
    bool ok =
        (head & 1) != 0 ? begin_packed(runs, head >> 1) : begin_equal(runs, head >> 1);
    if (!ok)
        runs->n = 0;
    return ok;
}

uint64_t stg_parquet_runs_take(struct stg_parquet_runs *runs, uint64_t n, uint32_t *ret)
{
    if ((runs->n == 0 && !begin_run(runs)) || runs->is_packed)
        return 0;
    n = n < runs->n ? n : runs->n;
    runs->n -= n;
    *ret = runs->value;
    return n;
}

bool stg_parquet_runs_read(struct stg_parquet_runs *runs, uint32_t *to, uint64_t n)
{
    while (n > 0) {
        if (runs->n == 0 && !begin_run(runs))
            return false;
        uint64_t now = n < runs->n ? n : runs->n;
        if (runs->is_packed) {
            unpack32(runs->packed.at, (uint64_t)(runs->bytes.end - runs->packed.at),
                     runs->bit, runs->width, to, now);
            runs->bit += now * runs->width;
        } else {
            for (uint64_t i = 0; i < now; i++)
                to[i] = runs->value;
        }
        runs->n -= now;
        to += now;
        n -= now;
    }
    return true;
}

/* Bits of a byte, one a byte. */
static uint64_t spread_bits(uint8_t bits)
{
    uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t each = bits * ones & UINT64_C(0x8040201008040201);
    return (each + 127 * ones) >> 7 & ones;
}

/* n bits from runs->bit on. */
static uint64_t read_packed_bits(const struct stg_parquet_runs *runs, uint8_t *to,
                                 uint64_t n)
{
    const uint8_t *data = runs->packed.at;
    uint64_t bit = runs->bit, i = 0, n_ones = 0;
    for (; i < n && (bit + i) % 8 != 0; i++)
        n_ones += to[i] = data[(bit + i) / 8] >> (bit + i) % 8 & 1;
    for (; i + 8 <= n; i += 8) {
        uint64_t bytes = spread_bits(data[(bit + i) / 8]);
        memcpy(to + i, &bytes, sizeof(bytes));
        n_ones += bytes * UINT64_C(0x0101010101010101) >> 56;
    }
    for (; i < n; i++)
        n_ones += to[i] = data[(bit + i) / 8] >> (bit + i) % 8 & 1;
    return n_ones;
}

bool stg_parquet_runs_read_bits(struct stg_parquet_runs *runs, uint8_t *to, uint64_t n,
                                uint64_t *ret_n_ones)
{
    uint64_t n_ones = 0;
    while (n > 0) {
        if (runs->n == 0 && !begin_run(runs))
            return false;
        uint64_t now = n < runs->n ? n : runs->n;
        if (runs->is_packed) {
            n_ones += read_packed_bits(runs, to, now);
            runs->bit += now;
        } else {
            memset(to, (int)runs->value, now);
            n_ones += runs->value * now;
        }
        runs->n -= now;
        to += now;
        n -= now;
    }
    *ret_n_ones = n_ones;
    return true;
}

/* 64 bits from that bit of n bytes on; what lies behind them is 0. */
static uint64_t word_at(const uint8_t *data, uint64_t n_bytes, uint64_t bit)
{
    uint64_t first = bit / 8, low, high;
    unsigned shift = bit % 8;
    if (first + WORD_BYTES >= n_bytes)
        return value_at(data, n_bytes, bit, 64);
    memcpy(&low, data + first, sizeof(low));
    high = data[first + WORD_BYTES];
    return low >> shift | high << 1 << (63 - shift);
}

/* Every second bit, from the lowest on, in the lower half. */
static uint64_t even_bits(uint64_t word)
{
    word &= UINT64_C(0x5555555555555555);
    word = (word | word >> 1) & UINT64_C(0x3333333333333333);
    word = (word | word >> 2) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    word = (word | word >> 4) & UINT64_C(0x00ff00ff00ff00ff);
    word = (word | word >> 8) & UINT64_C(0x0000ffff0000ffff);
    return (word | word >> 16) & UINT64_C(0x00000000ffffffff);
}

/* The lowest bit of each byte. */
static uint64_t first_bits(uint64_t bytes)
{
    return (bytes & UINT64_C(0x0101010101010101)) * UINT64_C(0x0102040810204080) >> 56;
}

static void plane_groups(const struct stg_parquet_runs *runs, uint64_t n_bytes,
                         uint64_t planes[STG_PARQUET_PLANES], uint64_t n)
{
    for (uint64_t g = 0; g * PACKED_GROUP < n; g++) {
        uint64_t bit = runs->bit + g * PACKED_GROUP * runs->width;
        uint64_t word = word_at(runs->packed.at, n_bytes, bit), bytes = 0;
        for (unsigned i = 0; i < PACKED_GROUP; i++)
            bytes |= (word >> i * runs->width & mask_of(runs->width)) << 8 * i;
        for (unsigned k = 0; k < runs->width; k++)
            planes[k] |= first_bits(bytes >> k) << g * PACKED_GROUP;
    }
}

/* n, at most 64, values of a packed run; behind them are others. */
static void read_packed_planes(const struct stg_parquet_runs *runs,
                               uint64_t planes[STG_PARQUET_PLANES], uint64_t n)
{
    const uint8_t *data = runs->packed.at;
    uint64_t n_bytes = (uint64_t)(runs->bytes.end - data);
    if (runs->width == 1) {
        planes[0] = word_at(data, n_bytes, runs->bit);
    } else if (runs->width == 2) {
        uint64_t low = word_at(data, n_bytes, runs->bit);
        uint64_t high = n > 32 ? word_at(data, n_bytes, runs->bit + 64) : 0;
        planes[0] = even_bits(low) | even_bits(high) << 32;
        planes[1] = even_bits(low >> 1) | even_bits(high >> 1) << 32;
    } else {
        plane_groups(runs, n_bytes, planes, n);
    }
}

bool stg_parquet_runs_read_planes(struct stg_parquet_runs *runs,
                                  uint64_t planes[STG_PARQUET_PLANES], uint64_t n)
{
    memset(planes, 0, STG_PARQUET_PLANES * sizeof(*planes));
    for (uint64_t done = 0; done < n;) {
        uint64_t run[STG_PARQUET_PLANES] = {0};
        if (runs->n == 0 && !begin_run(runs))
            return false;
        uint64_t now = n - done < runs->n ? n - done : runs->n;
        if (runs->is_packed) {
            read_packed_planes(runs, run, now);
            runs->bit += now * runs->width;
        } else {
            for (unsigned k = 0; k < runs->width; k++)
                run[k] = 0 - (uint64_t)(runs->value >> k & 1);
        }
        for (unsigned k = 0; k < runs->width; k++)
            planes[k] |= (run[k] & mask_of((unsigned)now)) << done;
        runs->n -= now;
        done += now;
    }
    return true;
}

/* ---- delta ---- */

/* The head of DELTA_BINARY_PACKED. */
struct delta {
    uint64_t n_miniblocks; /* of a block */
    uint64_t n_values;     /* of a miniblock */
    uint64_t n;
    uint64_t first;
};

static bool read_head(struct stg_parquet_bytes *bytes, struct delta *ret)
{
    uint64_t block, first;
    if (!varint(bytes, &block) || !varint(bytes, &ret->n_miniblocks) ||
        !varint(bytes, &ret->n) || !varint(bytes, &first))
        return false;
    if (block == 0 || block > MAX_BLOCK || ret->n_miniblocks == 0 ||
        block % ret->n_miniblocks != 0)
        return false;
    ret->n_values = block / ret->n_miniblocks;
    ret->first = first >> 1 ^ (0 - (first & 1));
    return ret->n_values % MINIBLOCK == 0 && ret->n_values <= MAX_MINIBLOCK;
}

/* Up to n values of a miniblock, each a difference to the one before, less the least of
 * the block. */
static bool read_miniblock(struct stg_parquet_bytes *bytes, const struct delta *delta,
                           unsigned width, uint64_t least, uint64_t *last, int64_t *to,
                           uint64_t n)
{
    uint64_t left = stg_parquet_left(bytes), n_bytes = delta->n_values / 8 * width;
    if (width > MAX_DELTA_WIDTH || (n * width + 7) / 8 > left)
        return false;
    n_bytes = n_bytes < left ? n_bytes : left;
    unpack64(bytes->at, n_bytes, width, to, n);
    bytes->at += n_bytes;
    uint64_t value = *last;
    for (uint64_t i = 0; i < n; i++) {
        value += (uint64_t)to[i] + least;
        to[i] = (int64_t)value;
    }
    *last = value;
    return true;
}

bool stg_parquet_delta(struct stg_parquet_bytes *bytes, int64_t *to, uint64_t n)
{
    struct delta delta;
    if (!read_head(bytes, &delta) || delta.n != n)
        return false;
    if (n == 0)
        return true;
    uint64_t last = delta.first, done = 1;
    to[0] = (int64_t)last;
    while (done < n) {
        uint64_t least;
        if (!varint(bytes, &least) || delta.n_miniblocks > stg_parquet_left(bytes))
            return false;
        least = least >> 1 ^ (0 - (least & 1));
        const uint8_t *widths = bytes->at;
        bytes->at += delta.n_miniblocks;
        for (uint64_t i = 0; i < delta.n_miniblocks && done < n; i++) {
            uint64_t now = n - done < delta.n_values ? n - done : delta.n_values;
            if (!read_miniblock(bytes, &delta, widths[i], least, &last, to + done, now))
                return false;
            done += now;
        }
    }
    return true;
}

/* ---- split ---- */

static inline void split(const uint8_t *from, uint8_t *to, uint64_t n, uint64_t width)
{
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t k = 0; k < width; k++)
            to[i * width + k] = from[k * n + i];
    }
}

bool stg_parquet_split(struct stg_parquet_bytes *bytes, uint8_t *to, uint64_t n,
                       uint64_t width)
{
    uint64_t n_bytes;
    if (__builtin_mul_overflow(n, width, &n_bytes) || n_bytes > stg_parquet_left(bytes))
        return false;
    switch (width) {
    case 4: split(bytes->at, to, n, 4); break;
    case 8: split(bytes->at, to, n, 8); break;
    default: split(bytes->at, to, n, width);
    }
    bytes->at += n_bytes;
    return true;
}

/* ---- strings ---- */

bool stg_parquet_strings(struct stg_parquet_bytes *bytes, const void *base,
                         int64_t *begin, int64_t *end, uint64_t n)
{
    const uint8_t *at = bytes->at;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t length;
        if ((uint64_t)(bytes->end - at) < LENGTH_BYTES)
            return false;
        memcpy(&length, at, LENGTH_BYTES);
        at += LENGTH_BYTES;
        if (length > (uint64_t)(bytes->end - at))
            return false;
        begin[i] = at - (const uint8_t *)base;
        at += length;
        end[i] = at - (const uint8_t *)base;
    }
    bytes->at = at;
    return true;
}

/* Lengths are in end. */
static bool place_strings(struct stg_parquet_bytes *bytes, const void *base,
                          int64_t *begin, int64_t *end, uint64_t n)
{
    const uint8_t *at = bytes->at;
    for (uint64_t i = 0; i < n; i++) {
        if (end[i] < 0 || end[i] > bytes->end - at)
            return false;
        begin[i] = at - (const uint8_t *)base;
        at += end[i];
        end[i] = at - (const uint8_t *)base;
    }
    bytes->at = at;
    return true;
}

bool stg_parquet_delta_strings(struct stg_parquet_bytes *bytes, const void *base,
                               int64_t *begin, int64_t *end, uint64_t n)
{
    return stg_parquet_delta(bytes, end, n) && place_strings(bytes, base, begin, end, n);
}

bool stg_parquet_prefixed(struct stg_parquet_bytes *bytes, const void *base,
                          int64_t *begin, int64_t *end, int64_t *suffix, uint64_t n,
                          uint64_t *ret)
{
    uint64_t total = 0;
    int64_t before = 0;
    if (!stg_parquet_delta(bytes, end, n) ||
        !stg_parquet_delta_strings(bytes, base, begin, suffix, n))
        return false;
    for (uint64_t i = 0; i < n; i++) {
        suffix[i] -= begin[i];
        if (end[i] < 0 || end[i] > before)
            return false;
        before = end[i] + suffix[i];
        if (__builtin_add_overflow(total, (uint64_t)before, &total))
            return false;
    }
    *ret = total;
    return true;
}

void stg_parquet_join(const void *base, int64_t *begin, int64_t *end,
                      const int64_t *suffix, uint64_t n, char *to)
{
    int64_t used = 0, before = 0;
    for (uint64_t i = 0; i < n; i++) {
        const char *from = (const char *)base + begin[i];
        int64_t prefix = end[i];
        memcpy(to + used, to + before, (size_t)prefix);
        memcpy(to + used + prefix, from, (size_t)suffix[i]);
        before = begin[i] = used;
        used += prefix + suffix[i];
        end[i] = used;
    }
}
