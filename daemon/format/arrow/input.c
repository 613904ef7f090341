/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/arrow/input.h"

#define ALIGN 64u
#define PAGE_BYTES 4096u /* of the machine */
#define SIZE_BYTES 8u    /* of a compressed buffer, before its data */
#define MAX_RATIO 65536  /* of its data to its compressed bytes */
#define LZ4_FRAME 0      /* numbers of the format's CompressionType */

void stg_arrow_reading_finish(struct stg_arrow_reading *reading)
{
    stg_page_codecs_finish(&reading->codecs);
    stg_chunk_unref(reading->scratch);
    stg_chunk_unref(reading->bits);
    stg_chunk_unref(reading->raw);
    stg_chunk_unref(reading->metadata);
    reading->scratch = reading->bits = reading->raw = reading->metadata = NULL;
}

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its data is damaged: %s", what);
}

void stg_arrow_input_init(struct stg_arrow_input *input,
                          const struct stg_arrow_buffer *buffer, int codec)
{
    struct stg_chunk *plain = input->plain;
    *input = (struct stg_arrow_input){.buffer = *buffer, .codec = codec, .plain = plain};
    if (codec < 0 || buffer->bytes == 0) {
        stg_arrow_input_finish(input);
        input->codec = -1;
        input->bytes = buffer->bytes;
        input->is_begun = true;
    }
}

void stg_arrow_input_finish(struct stg_arrow_input *input)
{
    stg_chunk_unref(input->plain);
    input->plain = NULL;
}

int stg_arrow_input_begin(struct stg_arrow_reading *reading,
                          struct stg_arrow_input *input, struct stg_err *err)
{
    int64_t bytes = 0;
    if (input->is_begun)
        return 0;
    if (input->buffer.bytes < SIZE_BYTES)
        return damaged(err, "a compressed buffer has no size");
    int rc = stg_source_read_all(reading->source, input->buffer.at, &bytes, SIZE_BYTES,
                                 &reading->is_storage, err);
    if (rc < 0)
        return rc;
    if (bytes < -1 || bytes / MAX_RATIO > (int64_t)input->buffer.bytes)
        return damaged(err, "the size of a buffer is out of range");
    input->buffer.at += SIZE_BYTES;
    input->buffer.bytes -= SIZE_BYTES;
    input->bytes = (uint64_t)bytes;
    if (bytes == -1) { /* it is stored as it is */
        input->codec = -1;
        input->bytes = input->buffer.bytes;
        stg_arrow_input_finish(input);
    }
    input->is_begun = true;
    return 0;
}

/* Returns by how much to move the memory that the bytes at that offset are read to. The
 * kernel copies from pages of memory, and a copy to an address that is 1 to 62 bytes
 * above the source, modulo 4096, takes two to five times as long (4K aliasing). */
static uint64_t shift_of(const char *to, uint64_t offset)
{
    uint64_t above = ((uintptr_t)to - offset) % PAGE_BYTES;
    return above > 0 && above < ALIGN ? ALIGN : 0;
}

static int decompress(struct stg_arrow_reading *reading, struct stg_arrow_input *input,
                      uint64_t spare, struct stg_err *err)
{
    const struct stg_arrow_buffer *buffer = &input->buffer;
    struct stg_chunk *plain = input->plain;
    input->plain = NULL;
    int rc = stg_arrow_room(reading->quota, input->bytes + spare, &plain, err);
    if (rc == 0)
        rc = stg_arrow_room(reading->quota, buffer->bytes, &reading->scratch, err);
    if (rc == 0)
        rc = stg_source_read_all(reading->source, buffer->at, reading->scratch->data,
                                 buffer->bytes, &reading->is_storage, err);
    if (rc == 0)
        rc = stg_page_decompress(
            &reading->codecs,
            input->codec == LZ4_FRAME ? STG_PAGE_LZ4_FRAME : STG_PAGE_ZSTD,
            reading->scratch->data, buffer->bytes, plain->data, input->bytes, err);
    if (rc < 0) {
        stg_chunk_unref(plain);
        return rc;
    }
    input->plain = plain;
    input->is_decompressed = true;
    return 0;
}

int stg_arrow_input_read(struct stg_arrow_reading *reading, struct stg_arrow_input *input,
                         uint64_t from, uint64_t bytes, uint64_t spare,
                         struct stg_chunk **chunk, char **ret, struct stg_err *err)
{
    int rc = stg_arrow_input_begin(reading, input, err);
    if (rc == 0 && (from > input->bytes || bytes > input->bytes - from))
        rc = damaged(err, "a buffer is too short for the rows");
    if (rc == 0 && input->codec >= 0) {
        rc = input->is_decompressed ? 0 : decompress(reading, input, spare, err);
        if (rc == 0)
            *ret = input->plain->data + from;
        return rc;
    }
    if (rc == 0)
        rc = stg_arrow_room(reading->quota, ALIGN + bytes + spare, chunk, err);
    if (rc < 0)
        return rc;
    *ret = (*chunk)->data;
    *ret += shift_of(*ret, input->buffer.at + from);
    return stg_source_read_all(reading->source, input->buffer.at + from, *ret, bytes,
                               &reading->is_storage, err);
}
