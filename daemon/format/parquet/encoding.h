/* SPDX-License-Identifier: Apache-2.0
 *
 * The encodings of Parquet's pages: pure functions from bytes to arrays, which check all
 * that they read. Each returns false where its bytes end early or contradict one another.
 * Bits and numbers are little-endian, as the machine is. Any thread.
 */
#ifndef STG_DAEMON_PARQUET_ENCODING_H
#define STG_DAEMON_PARQUET_ENCODING_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that are left; the functions below move `at` behind what they have read. */
struct stg_parquet_bytes {
    const uint8_t *at, *end;
};

static inline uint64_t stg_parquet_left(const struct stg_parquet_bytes *bytes)
{
    return (uint64_t)(bytes->end - bytes->at);
}

/* Runs of equal values and of bit-packed ones (RLE), of up to 32 bits a value. */
struct stg_parquet_runs {
    struct stg_parquet_bytes bytes; /* behind the run */
    unsigned width;                 /* bits of a value */
    uint64_t n;                     /* values that are left of the run */
    bool is_packed;
    uint32_t value;                  /* of a run of equal ones */
    struct stg_parquet_bytes packed; /* of one that is packed, and how many */
    uint64_t bit;                    /* bits of it were read */
};

#define STG_PARQUET_PLANES 4u

/* Returns false if width is more than 32. */
bool stg_parquet_runs_init(struct stg_parquet_runs *runs, struct stg_parquet_bytes bytes,
                           unsigned width);
bool stg_parquet_runs_read(struct stg_parquet_runs *runs, uint32_t *to, uint64_t n);
/* Likewise of runs of one bit, to a byte each. Returns how many are 1 in
 * *ret_n_ones. */
bool stg_parquet_runs_read_bits(struct stg_parquet_runs *runs, uint8_t *to, uint64_t n,
                                uint64_t *ret_n_ones);
/* Likewise of at most STG_PARQUET_PLANES bits, n at most 64, as planes: bit i of
 * planes[k] is bit k of value i. All other bits are 0. */
bool stg_parquet_runs_read_planes(struct stg_parquet_runs *runs,
                                  uint64_t planes[STG_PARQUET_PLANES], uint64_t n);
/* Returns how many of the next n values are equal, at once known to be so, and takes
 * them: 0 if the next value is packed or cannot be had. */
uint64_t stg_parquet_runs_take(struct stg_parquet_runs *runs, uint64_t n, uint32_t *ret);

/* PLAIN booleans, a bit each, to a byte each. */
bool stg_parquet_bits(struct stg_parquet_bytes *bytes, uint8_t *to, uint64_t n);

/* DELTA_BINARY_PACKED, of exactly n values. */
bool stg_parquet_delta(struct stg_parquet_bytes *bytes, int64_t *to, uint64_t n);

/* BYTE_STREAM_SPLIT of n values of `width` bytes. */
bool stg_parquet_split(struct stg_parquet_bytes *bytes, uint8_t *to, uint64_t n,
                       uint64_t width);

/* PLAIN strings, each behind its length: string i is the bytes [begin[i], end[i]) behind
 * base, which lies before the bytes, or at them. */
bool stg_parquet_strings(struct stg_parquet_bytes *bytes, const void *base,
                         int64_t *begin, int64_t *end, uint64_t n);
/* DELTA_LENGTH_BYTE_ARRAY, likewise. */
bool stg_parquet_delta_strings(struct stg_parquet_bytes *bytes, const void *base,
                               int64_t *begin, int64_t *end, uint64_t n);
/* DELTA_BYTE_ARRAY, in two steps. Sets end[i] to the bytes that string i has in common
 * with the one before, begin[i] to where its other bytes begin, behind base, and returns
 * how many bytes all strings take in *ret. */
bool stg_parquet_prefixed(struct stg_parquet_bytes *bytes, const void *base,
                          int64_t *begin, int64_t *end, int64_t *suffix, uint64_t n,
                          uint64_t *ret);
/* Puts the strings together at `to`, which begin and end refer to then. */
void stg_parquet_join(const void *base, int64_t *begin, int64_t *end,
                      const int64_t *suffix, uint64_t n, char *to);

#endif
