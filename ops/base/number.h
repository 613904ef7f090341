/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts text to numbers, with the rules and the exact results of TensorFlow 2.21's
 * string conversions (absl::SimpleAtoi, absl::SimpleAtof). ASCII white space around the
 * number is skipped, and one sign is allowed. The rest must be the number and nothing
 * else. Independent of the locale. Pure functions; any thread; no allocation.
 *
 * A float is decimal or hexadecimal (0x), or "inf", "infinity", "nan" or "nan(chars)" in
 * any case. The parser rounds once, directly to the requested width, to nearest, ties to
 * even. Overflow gives infinity, underflow zero or a subnormal. Each side of the point
 * has at most 49,999,999 decimal digits, or a quarter of that if they are hexadecimal.
 * Leading zeros do not count.
 */
#ifndef STG_OPS_BASE_NUMBER_H
#define STG_OPS_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parse the n bytes at s. Return false if they are not such a number or, for integers, if
 * the number is out of range. */
bool stg_parse_int32(const char *s, size_t n, int32_t *ret);
bool stg_parse_int64(const char *s, size_t n, int64_t *ret);
bool stg_parse_uint32(const char *s, size_t n, uint32_t *ret);
bool stg_parse_uint64(const char *s, size_t n, uint64_t *ret);
bool stg_parse_float32(const char *s, size_t n, float *ret);
bool stg_parse_float64(const char *s, size_t n, double *ret);

#endif
