/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a column in a record batch: read where they lie, or decompressed, each
 * buffer once. One thread.
 */
#ifndef STG_DAEMON_ARROW_INPUT_H
#define STG_DAEMON_ARROW_INPUT_H

#include "daemon/format/arrow/message.h"
#include "daemon/storage/codec/page_codec.h"

/* A column as a step declares it. Strings are borrowed. */
struct stg_arrow_column {
    struct stg_arrow_want want;
    int64_t shape[STG_MAX_LISTS]; /* of the lists; -1: any length */
    uint64_t value;               /* the default of a number, in its first bytes */
    const char *text;             /* and that of a string */
    uint64_t text_bytes;
};

/* What the columns of a reader share. The fields are borrowed, but for the codecs and the
 * chunks. */
struct stg_arrow_reading {
    struct stg_quota *quota;
    struct stg_source *source;
    struct stg_page_codecs codecs;
    struct stg_chunk *scratch;  /* compressed buffers; NULL: none */
    struct stg_chunk *bits;     /* validity; NULL: none */
    struct stg_chunk *raw;      /* what is converted; NULL: none */
    struct stg_chunk *metadata; /* of the batch in hand; NULL: none */
    bool is_storage;            /* the last error is one of the storage */
};

void stg_arrow_reading_finish(struct stg_arrow_reading *reading);

/* A buffer of a column. */
struct stg_arrow_input {
    struct stg_arrow_buffer buffer;
    int codec;               /* -1: its bytes lie in the file */
    bool is_begun;           /* bytes is set */
    bool is_decompressed;    /* plain is that of this buffer */
    uint64_t bytes;          /* of its data */
    struct stg_chunk *plain; /* decompressed; NULL: not so far, or not compressed */
};

void stg_arrow_input_init(struct stg_arrow_input *input,
                          const struct stg_arrow_buffer *buffer, int codec);
void stg_arrow_input_finish(struct stg_arrow_input *input);

/* Sets input->bytes. */
int stg_arrow_input_begin(struct stg_arrow_reading *reading,
                          struct stg_arrow_input *input, struct stg_err *err);

/* Sets *ret to `bytes` of the data, from `from` on, in *chunk, which is made for them
 * with `spare` more behind them; or, if the buffer is compressed, in input->plain, which
 * has `spare` more behind all of its data. *chunk is then unchanged. Aligned to 64 if
 * `from` is 0 or lies in the file. */
int stg_arrow_input_read(struct stg_arrow_reading *reading, struct stg_arrow_input *input,
                         uint64_t from, uint64_t bytes, uint64_t spare,
                         struct stg_chunk **chunk, char **ret, struct stg_err *err);

#endif
