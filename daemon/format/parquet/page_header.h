/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of a page. One thread.
 */
#ifndef STG_DAEMON_PARQUET_PAGE_HEADER_H
#define STG_DAEMON_PARQUET_PAGE_HEADER_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers of the format's PageType. */
enum stg_parquet_page_kind {
    STG_PARQUET_DATA_PAGE = 0,
    STG_PARQUET_INDEX_PAGE = 1,
    STG_PARQUET_DICTIONARY_PAGE = 2,
    STG_PARQUET_DATA_PAGE_V2 = 3
};

/* Numbers of the format's Encoding. */
enum stg_parquet_encoding {
    STG_PARQUET_PLAIN = 0,
    STG_PARQUET_PLAIN_DICTIONARY = 2,
    STG_PARQUET_RLE = 3,
    STG_PARQUET_BIT_PACKED = 4,
    STG_PARQUET_DELTA_BINARY_PACKED = 5,
    STG_PARQUET_DELTA_LENGTH_BYTE_ARRAY = 6,
    STG_PARQUET_DELTA_BYTE_ARRAY = 7,
    STG_PARQUET_RLE_DICTIONARY = 8,
    STG_PARQUET_BYTE_STREAM_SPLIT = 9
};

struct stg_parquet_page_header {
    int kind, encoding, level_encoding, repetition_encoding;
    uint32_t bytes, plain_bytes; /* of the page in the file, and decompressed */
    uint32_t n; /* values, nulls among them: rows of a flat column; of a list, levels */
    uint32_t level_bytes;      /* of all levels, of a page of version 2 */
    uint32_t repetition_bytes; /* of them */
    uint32_t crc;
    bool has_crc;
    bool is_plain; /* the page is not compressed, whatever the codec of the column */
};

/* Parses the header that data begins with. Returns its bytes, or 0: it is not valid, or
 * it has more than n bytes. */
uint64_t stg_parquet_page_header_parse(const void *data, uint64_t n,
                                       struct stg_parquet_page_header *ret);

#endif
