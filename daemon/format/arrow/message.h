/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of an Arrow file, each metadata and a body, and the buffers in the body that a
 * column has: all bounds are checked. One thread.
 */
#ifndef STG_DAEMON_ARROW_MESSAGE_H
#define STG_DAEMON_ARROW_MESSAGE_H

#include "daemon/format/arrow/schema.h"
#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

/* Of structs, of lists and of the values. */
#define STG_ARROW_MAX_VALIDITIES (STG_ARROW_MAX_PARENTS + STG_MAX_LISTS + 1)

/* Where a message lies in its file. */
struct stg_arrow_piece {
    uint64_t at;             /* of its metadata, with the length before them */
    uint32_t metadata_bytes; /* with that */
    uint64_t body, body_bytes;
};

/* A buffer of a column in the file. */
struct stg_arrow_buffer {
    uint64_t at, bytes; /* compressed: with the size before the data */
};

/* Lists of a column in a batch. */
struct stg_arrow_lists_part {
    struct stg_arrow_buffer offsets; /* no bytes: all lists have one size */
    uint64_t n, n_items;
};

/* What a column has in a record batch. */
struct stg_arrow_part {
    uint64_t n_rows;
    int codec; /* -1: not compressed */
    uint32_t n_validities;
    struct stg_arrow_buffer validities[STG_ARROW_MAX_VALIDITIES];
    uint8_t depths[STG_ARROW_MAX_VALIDITIES]; /* lists around what it is of */
    struct stg_arrow_lists_part lists[STG_MAX_LISTS];
    struct stg_arrow_buffer offsets; /* of strings */
    struct stg_arrow_buffer data;    /* numbers, bits, bytes or indices */
};

/* Makes *chunk have that capacity: keeps it if no other has a reference. DATA_LOSS if a
 * file asks for more than the dataset has room for. */
int stg_arrow_room(struct stg_quota *quota, uint64_t bytes, struct stg_chunk **chunk,
                   struct stg_err *err);

/* Reads the metadata of the message at `at` of a file whose messages end before `end`,
 * and verifies them: *ret points into *chunk. known: how many bytes these have, or 0: no
 * more are read if that is so. Sets *ret_piece. Returns 1 at the end of
 * a stream. */
int stg_arrow_message_at(struct stg_source *source, struct stg_quota *quota, uint64_t at,
                         uint64_t end, uint32_t known, struct stg_chunk **chunk,
                         struct stg_arrow_piece *ret_piece, struct stg_arrow_message *ret,
                         bool *ret_storage, struct stg_err *err);

/* Finds the buffers of a leaf in a batch. DATA_LOSS: they have no room for its rows;
 * UNIMPLEMENTED: another codec. */
int stg_arrow_find_part(const struct stg_arrow_leaf *leaf,
                        const struct stg_arrow_message *message,
                        const struct stg_arrow_piece *piece, struct stg_arrow_part *ret,
                        struct stg_err *err);

/* Returns the width of a value of a field in a file, in bits; 0: it varies, or it has no
 * data. */
uint64_t stg_arrow_value_bits(const struct stg_arrow_field *field);
/* Returns the bytes of an offset; 0: the field has none. */
unsigned stg_arrow_offset_bytes(const struct stg_arrow_field *field);

#endif
