/* SPDX-License-Identifier: Apache-2.0
 *
 * Floating-point numbers of the small dtypes, to and from text. Any thread.
 */
#ifndef STG_STAGERCTL_NUMBER_H
#define STG_STAGERCTL_NUMBER_H

#include <stdint.h>

#define STG_NUMBER_BYTES 40

/* Exact values of the bits. */
double stg_number_from_float16(uint16_t bits);
double stg_number_from_bfloat16(uint16_t bits);

/* Rounded to nearest, ties to even. */
uint16_t stg_number_to_float16(double value);
uint16_t stg_number_to_bfloat16(double value);

/* The fewest digits that read back to the same number of that dtype ("0.1", "260.0",
 * "1e-07"), and "nan", "inf", "-inf". Returns buf, which has STG_NUMBER_BYTES. */
char *stg_number_text(double value, int dtype, char *buf);

#endif
