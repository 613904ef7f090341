/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON (RFC 8259) to a stream, one value after another; commas are its business,
 * well-formedness the caller's. Floats are the shortest that read back to the same bits
 * of their own dtype; what JSON has no number for is a string: "nan", "inf", "-inf".
 * Bytes that are not UTF-8 become {"base64": "…"}. One thread at a time.
 */
#ifndef STG_CORE_TEXT_JSON_H
#define STG_CORE_TEXT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Memory is the caller's: {.out = stream}. The outermost object begins with the key
 * "schema_version" if schema_version is not 0. */
struct stg_json_writer {
    FILE *out;
    bool comma; /* a value stands before this place */
    unsigned schema_version;
};

void stg_json_object_begin(struct stg_json_writer *json);
void stg_json_object_end(struct stg_json_writer *json);
void stg_json_array_begin(struct stg_json_writer *json);
void stg_json_array_end(struct stg_json_writer *json);

/* Inside an object, before each value. */
void stg_json_key(struct stg_json_writer *json, const char *key);

void stg_json_string(struct stg_json_writer *json, const char *text);
void stg_json_bytes(struct stg_json_writer *json, const char *data, size_t n);
/* Writes a string: the bytes in base64. */
void stg_json_base64(struct stg_json_writer *json, const char *data, size_t n);
/* Is it UTF-8? Then stg_json_bytes makes a string of it. */
bool stg_json_is_text(const char *data, size_t n);
/* Nanoseconds, as microseconds with three decimals. */
void stg_json_micros(struct stg_json_writer *json, uint64_t ns);
void stg_json_int(struct stg_json_writer *json, int64_t value);
void stg_json_uint(struct stg_json_writer *json, uint64_t value);
void stg_json_bool(struct stg_json_writer *json, bool value);
void stg_json_null(struct stg_json_writer *json);
/* Writes a key and its value; a text that is NULL is "". */
void stg_json_put_string(struct stg_json_writer *json, const char *key, const char *text);
void stg_json_put_uint(struct stg_json_writer *json, const char *key, uint64_t value);
void stg_json_put_float(struct stg_json_writer *json, const char *key, double value);
void stg_json_put_bool(struct stg_json_writer *json, const char *key, bool value);
/* dtype: STAGER_FLOAT16, BFLOAT16, FLOAT32 or FLOAT64, of which value is one. */
void stg_json_float(struct stg_json_writer *json, double value, int dtype);

/* ---- floating-point numbers of the small dtypes, to and from text; any thread ---- */

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
