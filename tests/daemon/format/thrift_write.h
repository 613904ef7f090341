/* SPDX-License-Identifier: Apache-2.0
 *
 * Thrift's compact protocol, as far as the metadata of Parquet files needs it. A field is
 * `step` behind the one before.
 */
#ifndef STG_TESTS_THRIFT_WRITE_H
#define STG_TESTS_THRIFT_WRITE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { I32 = 5, I64 = 6, LIST = 9, STRUCT = 12 };

static inline void put_varint(FILE *to, uint64_t value)
{
    for (; value > 127; value >>= 7)
        fputc((int)(value & 127) | 128, to);
    fputc((int)value, to);
}

static inline void put_int(FILE *to, int step, int type, int64_t value)
{
    fputc(step << 4 | type, to);
    put_varint(to, (uint64_t)value << 1);
}

static inline void put_head(FILE *to, int step, int type)
{
    fputc(step << 4 | type, to);
}

static inline void put_text(FILE *to, int step, const char *text)
{
    put_head(to, step, 8);
    put_varint(to, strlen(text));
    fputs(text, to);
}

/* A list of fewer than 15 elements. */
static inline void put_list(FILE *to, int step, int type, int n)
{
    put_head(to, step, LIST);
    fputc(n << 4 | type, to);
}

static inline void put_end(FILE *to)
{
    fputc(0, to);
}

#endif
