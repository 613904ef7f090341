/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to number with the rules and the exact results of TensorFlow 2.21's string
 * conversions (absl::SimpleAtoi, absl::SimpleAtof): ASCII white space around the number
 * is skipped, one sign is allowed, the rest must be the number and nothing else.
 * Independent of the locale. Pure functions; any thread; no allocation.
 *
 * Floats: decimal and 0x-hexadecimal, "inf", "infinity", "nan", "nan(chars)" in any case;
 * rounded once, to nearest, ties to even, straight to the width asked for; overflow is
 * infinity, underflow zero or a subnormal. At most 49,999,999 digits on each side of the
 * point, of hexadecimal ones a quarter; zeros in front are not counted.
 */
#ifndef STG_OPS_BASE_NUMBER_H
#define STG_OPS_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: not such a number, or (integers) out of range. */
bool stg_parse_int32(const char *s, size_t n, int32_t *ret);
bool stg_parse_int64(const char *s, size_t n, int64_t *ret);
bool stg_parse_uint32(const char *s, size_t n, uint32_t *ret);
bool stg_parse_uint64(const char *s, size_t n, uint64_t *ret);
bool stg_parse_float32(const char *s, size_t n, float *ret);
bool stg_parse_float64(const char *s, size_t n, double *ret);

#endif
