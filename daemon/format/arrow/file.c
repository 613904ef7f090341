/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/arrow/file.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAGIC "ARROW1"
#define MAGIC_BYTES 6u
#define HEAD_BYTES 8u                  /* the magic, and two bytes of padding */
#define TAIL_BYTES 10u                 /* the length of the footer, and the magic */
#define MAX_PIECES (UINT32_C(1) << 26) /* of a file */
#define MAX_ROWS (UINT64_C(1) << 62)

/* A file while it is opened. */
struct opening {
    struct stg_arrow_file *file;
    struct stg_source *source;
    const struct stg_arrow_want *wants;
    uint64_t end; /* of its messages */
    bool has_schema;
    struct stg_chunk *chunk; /* the metadata in hand */
    bool *ret_storage;
};

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its metadata is damaged: %s", what);
}

static int out_of_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

/* ---- the index ---- */

static int count(struct stg_arrow_file *file, uint64_t bytes, struct stg_err *err)
{
    int rc = stg_quota_take(file->quota, bytes, "the index of a file", err);
    if (rc == 0) {
        file->taken += bytes;
        return 0;
    }
    if (!stg_quota_is_large(file->quota, bytes))
        return rc;
    rc = stg_err(err, -STAGER_DATA_LOSS,
                 "its record batches take %" PRIu64 " bytes of index, more than a "
                 "quarter of the dataset's buffers: ",
                 file->taken + bytes);
    stg_quota_advise(file->quota, 5 * (file->taken + bytes), 0, err);
    return rc;
}

/* Makes room for one more of n elements. */
static int grow(struct stg_arrow_file *file, void **array, uint32_t *size, uint32_t n,
                size_t bytes, struct stg_err *err)
{
    if (n < *size)
        return 0;
    if (n >= MAX_PIECES)
        return damaged(err, "it has too many messages");
    uint32_t more = n < 8 ? 8 : n;
    int rc = count(file, more * bytes, err);
    if (rc < 0)
        return rc;
    void *to = realloc(*array, (n + more) * bytes);
    if (to == NULL)
        return out_of_memory(err);
    *array = to;
    *size = n + more;
    return 0;
}

static int add_dictionary(struct opening *opening,
                          const struct stg_arrow_message *message,
                          const struct stg_arrow_piece *piece, struct stg_err *err)
{
    struct stg_arrow_file *file = opening->file;
    if (!message->has_batch)
        return damaged(err, "a dictionary has no values");
    int rc = grow(file, (void **)&file->dictionaries, &file->dictionaries_size,
                  file->n_dictionaries, sizeof(*file->dictionaries), err);
    if (rc == 0)
        file->dictionaries[file->n_dictionaries++] = (struct stg_arrow_dictionary){
            .piece = *piece, .id = message->dictionary, .is_delta = message->is_delta};
    return rc;
}

/* The buffers of each wanted column lie in the batch. */
static int check_columns(const struct opening *opening,
                         const struct stg_arrow_message *message,
                         const struct stg_arrow_piece *piece, struct stg_err *err)
{
    struct stg_arrow_file *file = opening->file;
    for (uint32_t c = 0; c < file->n_columns; c++) {
        struct stg_arrow_part part;
        if (!file->leaves[c].is_there)
            continue;
        int rc = stg_arrow_find_part(&file->leaves[c], message, piece, &part, err);
        if (rc < 0)
            return stg_err_prefix(
                err, rc, "column %.256s, record batch %" PRIu32 " at offset %" PRIu64,
                opening->wants[c].name, file->n_batches, piece->at);
    }
    return 0;
}

static int add_batch(struct opening *opening, const struct stg_arrow_message *message,
                     const struct stg_arrow_piece *piece, struct stg_err *err)
{
    struct stg_arrow_file *file = opening->file;
    uint64_t before = stg_arrow_n_rows(file);
    int rc = message->has_batch ? check_columns(opening, message, piece, err)
                                : damaged(err, "a record batch has no columns");
    if (rc == 0 && (uint64_t)message->batch.n_rows > MAX_ROWS - before)
        rc = damaged(err, "a number of rows is out of range");
    if (rc == 0)
        rc = grow(file, (void **)&file->batches, &file->batches_size, file->n_batches,
                  sizeof(*file->batches), err);
    if (rc < 0)
        return rc;
    file->bytes += piece->metadata_bytes + piece->body_bytes;
    file->batches[file->n_batches++] =
        (struct stg_arrow_batch){.piece = *piece,
                                 .end = before + (uint64_t)message->batch.n_rows,
                                 .n_dictionaries = file->n_dictionaries};
    return 0;
}

static int take_schema(struct opening *opening, const void *schema, int version,
                       struct stg_err *err)
{
    if (opening->has_schema || schema == NULL)
        return damaged(err, "it has two schemas, or none");
    opening->has_schema = true;
    opening->file->version = version;
    return stg_arrow_schema_find(schema, version, opening->wants,
                                 opening->file->n_columns, opening->file->leaves, err);
}

static int take_message(struct opening *opening, const struct stg_arrow_message *message,
                        const struct stg_arrow_piece *piece, struct stg_err *err)
{
    if (message->header == STG_ARROW_SCHEMA)
        return take_schema(opening, message->schema, message->version, err);
    if (!opening->has_schema)
        return damaged(err, "it does not begin with a schema");
    if (message->header == STG_ARROW_DICTIONARY_BATCH)
        return add_dictionary(opening, message, piece, err);
    if (message->header == STG_ARROW_RECORD_BATCH)
        return add_batch(opening, message, piece, err);
    return stg_err(err, -STAGER_UNIMPLEMENTED,
                   "it has a tensor in place of a record batch, which is not supported");
}

/* ---- the stream format ---- */

static int read_stream(struct opening *opening, struct stg_err *err)
{
    struct stg_arrow_file *file = opening->file;
    int rc = 0;
    for (uint64_t at = 0; rc == 0;) {
        struct stg_arrow_message message;
        struct stg_arrow_piece piece;
        rc = stg_arrow_message_at(opening->source, file->quota, at, opening->end,
                                  &opening->chunk, &piece, &message, opening->ret_storage,
                                  err);
        if (rc < 0 && !*opening->ret_storage)
            stg_err_prefix(err, rc, "message at offset %" PRIu64, at);
        if (rc == 0)
            rc = take_message(opening, &message, &piece, err);
        if (rc == 0)
            at = piece.body + piece.body_bytes;
    }
    bool is_other = rc == 1 || (rc == -STAGER_DATA_LOSS && !*opening->ret_storage);
    if (is_other && !opening->has_schema)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "it is not an Arrow file: it begins neither with ARROW1 nor with "
                       "a schema");
    return rc < 0 ? rc : 0;
}

/* ---- the file format ---- */

/* A message that the footer names. */
static int read_block(struct opening *opening, const struct stg_arrow_block *block,
                      int header, struct stg_err *err)
{
    struct stg_arrow_message message;
    struct stg_arrow_piece piece;
    if (block->offset < (int64_t)HEAD_BYTES || (uint64_t)block->offset >= opening->end)
        return damaged(err, "a record batch lies outside of the file");
    uint64_t at = (uint64_t)block->offset;
    int rc = stg_arrow_message_at(opening->source, opening->file->quota, at, opening->end,
                                  &opening->chunk, &piece, &message, opening->ret_storage,
                                  err);
    if (rc < 0 && !*opening->ret_storage)
        stg_err_prefix(err, rc, "message at offset %" PRIu64, at);
    if (rc == 0 && block->metadata_bytes != (int32_t)piece.metadata_bytes)
        rc = damaged(err, "the footer has another length of a message");
    if (rc == 0 && message.header != header)
        rc = damaged(err, "the footer has another kind of a message");
    if (rc != 0)
        return rc < 0 ? rc : damaged(err, "a message of the footer is empty");
    return take_message(opening, &message, &piece, err);
}

static int read_blocks(struct opening *opening, const struct stg_arrow_footer *footer,
                       struct stg_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < footer->n_dictionaries; i++) {
        struct stg_arrow_block block = stg_arrow_block_at(footer->dictionaries, i);
        rc = read_block(opening, &block, STG_ARROW_DICTIONARY_BATCH, err);
    }
    for (uint32_t i = 0; rc == 0 && i < footer->n_batches; i++) {
        struct stg_arrow_block block = stg_arrow_block_at(footer->batches, i);
        rc = read_block(opening, &block, STG_ARROW_RECORD_BATCH, err);
    }
    return rc;
}

static int not_arrow(struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS,
                   "it is not an Arrow file, or it is truncated: it does not end with "
                   "ARROW1");
}

/* Finds the footer behind the messages. */
static int find_footer(struct opening *opening, uint64_t size, uint64_t *ret,
                       struct stg_err *err)
{
    char tail[TAIL_BYTES];
    uint32_t bytes;
    if (size < HEAD_BYTES + TAIL_BYTES)
        return not_arrow(err);
    int rc = stg_source_read_all(opening->source, size - TAIL_BYTES, tail, TAIL_BYTES,
                                 opening->ret_storage, err);
    if (rc < 0)
        return rc;
    if (memcmp(tail + TAIL_BYTES - MAGIC_BYTES, MAGIC, MAGIC_BYTES) != 0)
        return not_arrow(err);
    memcpy(&bytes, tail, sizeof(bytes));
    if (bytes == 0 || bytes > size - TAIL_BYTES - HEAD_BYTES)
        return damaged(err, "its footer is longer than the file");
    opening->end = size - TAIL_BYTES - bytes;
    *ret = bytes;
    return 0;
}

static int read_footer(struct opening *opening, uint64_t size, struct stg_chunk **chunk,
                       struct stg_err *err)
{
    struct stg_arrow_footer footer;
    uint64_t bytes = 0;
    int rc = find_footer(opening, size, &bytes, err);
    if (rc == 0)
        rc = stg_arrow_room(opening->file->quota, bytes, chunk, err);
    if (rc == 0)
        rc = stg_source_read_all(opening->source, opening->end, (*chunk)->data, bytes,
                                 opening->ret_storage, err);
    if (rc < 0)
        return rc;
    if (!stg_arrow_footer_read((*chunk)->data, bytes, &footer))
        return damaged(err, "its footer is not valid");
    rc = take_schema(opening, footer.schema, footer.version, err);
    return rc == 0 ? read_blocks(opening, &footer, err) : rc;
}

/* ---- files ---- */

static int create_leaves(struct opening *opening, uint32_t n, struct stg_err *err)
{
    struct stg_arrow_file *file = opening->file;
    file->n_columns = n;
    int rc = count(file, sizeof(*file) + n * sizeof(*file->leaves), err);
    if (rc < 0)
        return rc;
    file->leaves = calloc((size_t)n + 1, sizeof(*file->leaves));
    return file->leaves != NULL ? 0 : out_of_memory(err);
}

static int read_file(struct opening *opening, struct stg_err *err)
{
    char head[MAGIC_BYTES] = "";
    uint64_t size = 0;
    int rc = opening->source->storage->size(opening->source, &size, err);
    *opening->ret_storage = rc < 0;
    if (rc == 0)
        rc = stg_source_read_all(opening->source, 0, head,
                                 size < MAGIC_BYTES ? size : MAGIC_BYTES,
                                 opening->ret_storage, err);
    if (rc < 0)
        return rc;
    if (memcmp(head, "FEA1", 4) == 0)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "it is a Feather file of version 1, which is not supported; "
                       "write version 2");
    opening->end = size;
    if (memcmp(head, MAGIC, MAGIC_BYTES) != 0)
        return read_stream(opening, err);
    struct stg_chunk *chunk = NULL;
    rc = read_footer(opening, size, &chunk, err);
    stg_chunk_unref(chunk);
    return rc;
}

int stg_arrow_open(struct stg_source *source, struct stg_quota *quota,
                   const struct stg_arrow_want *wants, uint32_t n,
                   struct stg_arrow_file **ret, bool *ret_storage, struct stg_err *err)
{
    struct opening opening = {
        .source = source, .wants = wants, .ret_storage = ret_storage};
    *ret_storage = false;
    opening.file = calloc(1, sizeof(*opening.file));
    if (opening.file == NULL)
        return out_of_memory(err);
    opening.file->quota = quota;
    int rc = create_leaves(&opening, n, err);
    if (rc == 0)
        rc = read_file(&opening, err);
    stg_chunk_unref(opening.chunk);
    if (rc < 0)
        stg_arrow_close(opening.file);
    else
        *ret = opening.file;
    return rc;
}

void stg_arrow_close(struct stg_arrow_file *file)
{
    if (file == NULL)
        return;
    free(file->leaves);
    free(file->batches);
    free(file->dictionaries);
    stg_quota_give(file->quota, file->taken);
    free(file);
}
