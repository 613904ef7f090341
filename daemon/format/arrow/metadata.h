/* SPDX-License-Identifier: Apache-2.0
 *
 * The metadata of Arrow IPC, which are flatbuffers: verified by libflatbuffers before any
 * of it is read. That library is one of C++, and metadata.cc alone includes it. Sizes and
 * numbers are as the file has them. Results point into the data. Any thread.
 */
#ifndef STG_DAEMON_ARROW_METADATA_H
#define STG_DAEMON_ARROW_METADATA_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of the format's Type. */
enum stg_arrow_type {
    STG_ARROW_NULL = 1,
    STG_ARROW_INT = 2,
    STG_ARROW_FLOAT = 3,
    STG_ARROW_BINARY = 4,
    STG_ARROW_UTF8 = 5,
    STG_ARROW_BOOL = 6,
    STG_ARROW_DECIMAL = 7,
    STG_ARROW_DATE = 8,
    STG_ARROW_TIME = 9,
    STG_ARROW_TIMESTAMP = 10,
    STG_ARROW_INTERVAL = 11,
    STG_ARROW_LIST = 12,
    STG_ARROW_STRUCT = 13,
    STG_ARROW_UNION = 14,
    STG_ARROW_FIXED_BINARY = 15,
    STG_ARROW_FIXED_LIST = 16,
    STG_ARROW_MAP = 17,
    STG_ARROW_DURATION = 18,
    STG_ARROW_LARGE_BINARY = 19,
    STG_ARROW_LARGE_UTF8 = 20,
    STG_ARROW_LARGE_LIST = 21,
    STG_ARROW_RUN_END = 22,
    STG_ARROW_BINARY_VIEW = 23,
    STG_ARROW_UTF8_VIEW = 24,
    STG_ARROW_LIST_VIEW = 25,
    STG_ARROW_LARGE_LIST_VIEW = 26
};

/* Numbers of the format's MessageHeader. */
enum stg_arrow_header {
    STG_ARROW_SCHEMA = 1,
    STG_ARROW_DICTIONARY_BATCH = 2,
    STG_ARROW_RECORD_BATCH = 3
};

/* The format's MetadataVersion. */
enum { STG_ARROW_V4 = 3, STG_ARROW_V5 = 4 };

/* A field of a schema. */
struct stg_arrow_field {
    const char *name; /* "" if it has none */
    int type;         /* a number of enum stg_arrow_type, or another one */
    int32_t bits;     /* of a number, a time, a decimal */
    int32_t size;     /* of FIXED_BINARY, FIXED_LIST */
    int32_t scale;    /* of a decimal */
    int32_t unit;     /* of a time: the number of the format's TimeUnit */
    bool is_signed;
    bool is_nullable;
    bool is_sparse; /* a union */
    uint32_t n_children;
    uint32_t n_below; /* fields in its tree, without itself */
    bool has_dictionary;
    int64_t dictionary; /* its id */
    int32_t index_bits;
    bool index_is_signed;
};

/* Elements of vectors need not be aligned: see stg_arrow_node_at. */
struct stg_arrow_node {
    int64_t n, n_nulls;
};
struct stg_arrow_extent {
    int64_t offset, bytes; /* in the body */
};
struct stg_arrow_block {
    int64_t offset;
    int32_t metadata_bytes, unused;
    int64_t body_bytes;
};

/* A RecordBatch. */
struct stg_arrow_batch_header {
    int64_t n_rows;
    const void *nodes, *extents, *variadic;
    uint32_t n_nodes, n_extents, n_variadic;
    int codec, method; /* codec -1: not compressed */
};

struct stg_arrow_message {
    int version, header; /* a number of enum stg_arrow_header, or another one */
    int64_t body_bytes;
    const void *schema; /* NULL: of another header, or missing */
    struct stg_arrow_batch_header batch;
    bool has_batch;
    int64_t dictionary; /* its id */
    bool is_delta;
};

struct stg_arrow_footer {
    int version;
    const void *schema; /* not NULL */
    const void *dictionaries, *batches;
    uint32_t n_dictionaries, n_batches;
};

/* False: this build of stagerd was made without libflatbuffers; what follows fails. */
extern const bool stg_arrow_is_built;

/* Verify and read what is at data, which is aligned to 8. Return whether it is valid. */
bool stg_arrow_message_read(const void *data, uint64_t bytes,
                            struct stg_arrow_message *ret);
bool stg_arrow_footer_read(const void *data, uint64_t bytes,
                           struct stg_arrow_footer *ret);

/* Writes the fields of a schema, each before its children, up to `most` of them. Returns
 * how many there are. */
uint32_t stg_arrow_schema_fields(const void *schema, struct stg_arrow_field *ret,
                                 uint32_t most);
bool stg_arrow_schema_is_big_endian(const void *schema);

static inline struct stg_arrow_node stg_arrow_node_at(
    const struct stg_arrow_batch_header *batch, uint32_t i)
{
    struct stg_arrow_node ret;
    memcpy(&ret, (const char *)batch->nodes + (uint64_t)i * sizeof(ret), sizeof(ret));
    return ret;
}

static inline struct stg_arrow_extent stg_arrow_extent_at(
    const struct stg_arrow_batch_header *batch, uint32_t i)
{
    struct stg_arrow_extent ret;
    memcpy(&ret, (const char *)batch->extents + (uint64_t)i * sizeof(ret), sizeof(ret));
    return ret;
}

static inline struct stg_arrow_block stg_arrow_block_at(const void *blocks, uint32_t i)
{
    struct stg_arrow_block ret;
    memcpy(&ret, (const char *)blocks + (uint64_t)i * sizeof(ret), sizeof(ret));
    return ret;
}

#ifdef __cplusplus
}
#endif

#endif
