/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled once for each set of instructions; meson.build says which. STG_CRC32C_TABLE is
 * the name of the table.
 *
 * Long pieces are isa-l's. Below 2 KiB its call costs more than it saves (AMD EPYC, isa-l
 * 2.30, one run; a frame is a record with both of its checksums):
 *   bytes          8    100   300   500   1,000  2,000  4,096  65,536
 *   ns a frame   3.0    7.5  16.2  23.4    44.7   83.3    169   2,666
 *   all isa-l   34.2   22.6  23.8  36.7    56.2   80.7    103   1,188
 */
#include <string.h>

#include "daemon/storage/codec/crc32c.h"

static inline uint64_t load64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline uint32_t load32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

/* Without the ones before and behind: `step8` and `step1` take 8 bytes and 1, `lanes`
 * takes what it can of a longer piece and says how much. */
#if defined(STG_CRC32C_SSE42)

#include <nmmintrin.h>
#include <wmmintrin.h>

static inline uint32_t step8(uint32_t crc, uint64_t v)
{
    return (uint32_t)_mm_crc32_u64(crc, v);
}

static inline uint32_t step1(uint32_t crc, uint8_t v)
{
    return _mm_crc32_u8(crc, v);
}

static inline __m128i times_power(uint32_t crc, size_t bytes)
{
    return _mm_clmulepi64_si128(
        _mm_cvtsi32_si128((int)crc),
        _mm_cvtsi32_si128((int)stg_crc32c_tables.power[bytes / 8]), 0);
}

/* The instruction takes three cycles, and one can begin in each. */
static inline size_t lanes(uint32_t *crc, const uint8_t *p, size_t n)
{
    enum { MIN_LANE = 64 };
    const uint8_t *begin = p;
    while (n >= (size_t)3 * MIN_LANE) {
        size_t lane = n / 24 * 8;
        if (lane > STG_CRC32C_LANE)
            lane = STG_CRC32C_LANE;
        uint64_t a = *crc, b = 0, c = 0;
        for (const uint8_t *end = p + lane; p < end; p += 8) {
            a = _mm_crc32_u64(a, load64(p));
            b = _mm_crc32_u64(b, load64(p + lane));
            c = _mm_crc32_u64(c, load64(p + 2 * lane));
        }
        __m128i sum = _mm_xor_si128(times_power((uint32_t)a, 2 * lane),
                                    times_power((uint32_t)b, lane));
        *crc = (uint32_t)(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum)) ^ c);
        p += 2 * lane;
        n -= 3 * lane;
    }
    return (size_t)(p - begin);
}

#else

static inline size_t lanes(uint32_t *crc, const uint8_t *p, size_t n)
{
    return 0;
}

#if defined(STG_CRC32C_ARMV8)

#include <arm_acle.h>

static inline uint32_t step8(uint32_t crc, uint64_t v)
{
    return __crc32cd(crc, v);
}

static inline uint32_t step1(uint32_t crc, uint8_t v)
{
    return __crc32cb(crc, v);
}

#else

static inline uint32_t step8(uint32_t crc, uint64_t v)
{
    v ^= crc;
    uint32_t ret = 0;
    for (int k = 0; k < 8; k++)
        ret ^= stg_crc32c_tables.bytes[7 - k][(v >> (8 * k)) & 255];
    return ret;
}

static inline uint32_t step1(uint32_t crc, uint8_t v)
{
    return (crc >> 8) ^ stg_crc32c_tables.bytes[0][(crc ^ v) & 255];
}

#endif
#endif

#if defined(STG_CRC32C_SSE42) || defined(STG_CRC32C_ARMV8)

#include <isa-l/crc.h>

/* Takes a long piece, and says how much of it. */
static inline size_t library(uint32_t *crc, const uint8_t *p, size_t n)
{
    enum { MIN_BYTES = 2048, MAX_BYTES = 1 << 30 };
    const uint8_t *begin = p;
    while (n >= MIN_BYTES) {
        size_t bytes = n < MAX_BYTES ? n : MAX_BYTES;
        *crc = crc32_iscsi((unsigned char *)(uintptr_t)p, (int)bytes, *crc);
        p += bytes;
        n -= bytes;
    }
    return (size_t)(p - begin);
}

#else

static inline size_t library(uint32_t *crc, const uint8_t *p, size_t n)
{
    return 0;
}

#endif

static inline uint32_t crc_of(uint32_t before, const void *data, size_t n)
{
    uint32_t crc = ~before;
    const uint8_t *p = data;
    const uint8_t *end = p + n;
    p += library(&crc, p, n);
    n = (size_t)(end - p);
    p += lanes(&crc, p, n);
    for (; end - p >= 8; p += 8)
        crc = step8(crc, load64(p));
    for (; p < end; p++)
        crc = step1(crc, *p);
    return ~crc;
}

static uint32_t extend(uint32_t crc, const void *data, size_t n)
{
    return crc_of(crc, data, n);
}

static int64_t walk(const struct stg_frames *frames, int64_t *begin, int64_t *end,
                    uint64_t *ret_at, enum stg_frame_fault *ret_fault)
{
    const char *data = frames->data;
    uint64_t at = frames->at;
    int64_t n = 0;
    enum stg_frame_fault fault = STG_FRAME_NONE;
    while (n < frames->n_max && frames->fill - at >= STG_FRAME_HEAD) {
        uint64_t bytes = load64(data + at), first = at + STG_FRAME_HEAD;
        if (stg_crc32c_mask(~step8(UINT32_MAX, bytes)) != load32(data + at + 8)) {
            fault = STG_FRAME_BAD_LENGTH;
            break;
        }
        if (bytes > frames->max_record_bytes) {
            fault = STG_FRAME_TOO_LONG;
            break;
        }
        if (frames->fill - first < bytes + STG_FRAME_TAIL)
            break;
        if (stg_crc32c_mask(crc_of(0, data + first, bytes)) !=
            load32(data + first + bytes)) {
            fault = STG_FRAME_BAD_DATA;
            break;
        }
        begin[n] = (int64_t)first;
        end[n++] = (int64_t)(first + bytes);
        at = first + bytes + STG_FRAME_TAIL;
    }
    *ret_at = at;
    *ret_fault = fault;
    return n;
}

extern const struct stg_crc32c_kernels STG_CRC32C_TABLE;
const struct stg_crc32c_kernels STG_CRC32C_TABLE = {STG_CRC32C_NAME, extend, walk};
