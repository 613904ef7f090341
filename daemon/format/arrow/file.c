/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/arrow/file.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAGIC "ARROW1"
#define MAGIC_BYTES 6u
#define HEAD_BYTES 8u                  /* the magic, and two bytes of padding */
#define TAIL_BYTES 10u                 /* the length of the footer, and the magic */
#define AT_ONCE 65536u                 /* read at the end of a file */
#define BLOCKS_AT_ONCE 128u            /* whose metadata are announced together */
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
    struct stg_describing *describing; /* gets the schema; NULL: none does */
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

static int add_stretch(struct opening *opening, uint64_t at, uint64_t bytes,
                       struct stg_err *err)
{
    struct stg_arrow_file *file = opening->file;
    if (bytes == 0)
        return 0;
    int rc = grow(file, (void **)&file->stretches, &file->stretches_size,
                  file->n_stretches, sizeof(*file->stretches), err);
    if (rc == 0)
        file->stretches[file->n_stretches++] = (struct stg_arrow_buffer){at, bytes};
    return rc;
}

/* Notes where the buffers of a column lie in a batch of a file on another machine. */
static int add_stretches(struct opening *opening, const struct stg_arrow_part *part,
                         struct stg_err *err)
{
    if (!opening->source->storage->remote)
        return 0;
    int rc = add_stretch(opening, part->offsets.at, part->offsets.bytes, err);
    if (rc == 0)
        rc = add_stretch(opening, part->data.at, part->data.bytes, err);
    for (uint32_t i = 0; rc == 0 && i < part->n_validities; i++)
        rc = add_stretch(opening, part->validities[i].at, part->validities[i].bytes, err);
    for (uint32_t i = 0; rc == 0 && i < STG_MAX_LISTS; i++)
        rc = add_stretch(opening, part->lists[i].offsets.at, part->lists[i].offsets.bytes,
                         err);
    return rc;
}

/* The buffers of each wanted column lie in the batch. */
static int check_columns(struct opening *opening, const struct stg_arrow_message *message,
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
        rc = add_stretches(opening, &part, err);
        if (rc < 0)
            return rc;
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
    file->codec = message->batch.codec;
    file->bytes += piece->metadata_bytes + piece->body_bytes;
    file->batches[file->n_batches++] =
        (struct stg_arrow_batch){.piece = *piece,
                                 .end = before + (uint64_t)message->batch.n_rows,
                                 .n_dictionaries = file->n_dictionaries,
                                 .n_stretches = file->n_stretches};
    return 0;
}

static int take_schema(struct opening *opening, const void *schema, int version,
                       struct stg_err *err)
{
    if (opening->has_schema || schema == NULL)
        return damaged(err, "it has two schemas, or none");
    opening->has_schema = true;
    opening->file->version = version;
    if (opening->describing != NULL)
        return stg_arrow_schema_describe(schema, version, opening->describing, err);
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
        rc = stg_arrow_message_at(opening->source, file->quota, at, opening->end, 0,
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
    uint32_t bytes = block->metadata_bytes > 0 ? (uint32_t)block->metadata_bytes : 0;
    int rc = stg_arrow_message_at(opening->source, opening->file->quota, at, opening->end,
                                  bytes, &opening->chunk, &piece, &message,
                                  opening->ret_storage, err);
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

/* Announces the metadata of some blocks of n, from block i on. */
static void announce_blocks(const struct opening *opening, const void *blocks, uint32_t n,
                            uint32_t i)
{
    const struct stg_storage *storage = opening->source->storage;
    if (!storage->remote || storage->will_need == NULL)
        return;
    for (uint32_t end = i + BLOCKS_AT_ONCE; i < n && i < end; i++) {
        struct stg_arrow_block block = stg_arrow_block_at(blocks, i);
        if (block.offset > 0 && block.metadata_bytes > 0 &&
            (uint64_t)block.offset < opening->end)
            storage->will_need(opening->source, (uint64_t)block.offset,
                               (uint64_t)block.metadata_bytes);
    }
}

static int read_blocks(struct opening *opening, const void *blocks, uint32_t n,
                       int header, struct stg_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        struct stg_arrow_block block = stg_arrow_block_at(blocks, i);
        if (i % BLOCKS_AT_ONCE == 0)
            announce_blocks(opening, blocks, n, i);
        rc = read_block(opening, &block, header, err);
    }
    return rc;
}

static int not_arrow(struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS,
                   "it is not an Arrow file, or it is truncated: it does not end with "
                   "ARROW1");
}

/* Parses a footer that is aligned to 8. */
static int take_footer(struct opening *opening, const void *data, uint64_t bytes,
                       struct stg_err *err)
{
    struct stg_arrow_footer footer;
    if (!stg_arrow_footer_read(data, bytes, &footer))
        return damaged(err, "its footer is not valid");
    int rc = take_schema(opening, footer.schema, footer.version, err);
    if (rc == 0)
        rc = read_blocks(opening, footer.dictionaries, footer.n_dictionaries,
                         STG_ARROW_DICTIONARY_BATCH, err);
    if (rc == 0)
        rc = read_blocks(opening, footer.batches, footer.n_batches,
                         STG_ARROW_RECORD_BATCH, err);
    return rc;
}

/* tail: the last n bytes of the file, the end of them all that is between messages and
 * ARROW1. */
static int read_footer(struct opening *opening, uint64_t size, struct stg_chunk **tail,
                       uint64_t n, struct stg_err *err)
{
    uint32_t bytes;
    int rc = 0;
    memcpy(&bytes, (*tail)->data + n - TAIL_BYTES, sizeof(bytes));
    if (bytes == 0 || bytes > size - TAIL_BYTES - HEAD_BYTES)
        return damaged(err, "its footer is longer than the file");
    opening->end = size - TAIL_BYTES - bytes;
    if (bytes + TAIL_BYTES <= n) {
        memmove((*tail)->data, (*tail)->data + n - TAIL_BYTES - bytes, bytes);
    } else {
        rc = stg_arrow_room(opening->file->quota, bytes, tail, err);
        if (rc == 0)
            rc = stg_source_read_all(opening->source, opening->end, (*tail)->data, bytes,
                                     opening->ret_storage, err);
    }
    return rc == 0 ? take_footer(opening, (*tail)->data, bytes, err) : rc;
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

/* Reads a file that does not end with ARROW1. */
static int read_other(struct opening *opening, uint64_t size, struct stg_err *err)
{
    char head[MAGIC_BYTES] = "";
    int rc = stg_source_read_all(opening->source, 0, head,
                                 size < MAGIC_BYTES ? size : MAGIC_BYTES,
                                 opening->ret_storage, err);
    if (rc < 0)
        return rc;
    if (memcmp(head, MAGIC, MAGIC_BYTES) == 0)
        return not_arrow(err);
    if (memcmp(head, "FEA1", 4) == 0)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "it is a Feather file of version 1, which is not supported; "
                       "write version 2");
    opening->end = size;
    return read_stream(opening, err);
}

/* The end of a file says which format it has: of an object on another machine no more is
 * fetched than that. */
static int read_file(struct opening *opening, struct stg_chunk **tail,
                     struct stg_err *err)
{
    uint64_t size = 0;
    int rc = opening->source->storage->size(opening->source, &size, err);
    *opening->ret_storage = rc < 0;
    uint64_t n = size < AT_ONCE ? size : AT_ONCE;
    if (rc == 0)
        rc = stg_arrow_room(opening->file->quota, AT_ONCE, tail, err);
    if (rc == 0)
        rc = stg_source_read_all(opening->source, size - n, (*tail)->data, n,
                                 opening->ret_storage, err);
    if (rc < 0)
        return rc;
    bool is_file = n >= HEAD_BYTES + TAIL_BYTES &&
                   memcmp((*tail)->data + n - MAGIC_BYTES, MAGIC, MAGIC_BYTES) == 0;
    return is_file ? read_footer(opening, size, tail, n, err)
                   : read_other(opening, size, err);
}

/* Opens a file with its n columns. */
static int open_file(struct opening *opening, struct stg_quota *quota, uint32_t n,
                     struct stg_err *err)
{
    *opening->ret_storage = false;
    opening->file = calloc(1, sizeof(*opening->file));
    if (opening->file == NULL)
        return out_of_memory(err);
    opening->file->quota = quota;
    opening->file->codec = -1;
    struct stg_chunk *tail = NULL;
    int rc = create_leaves(opening, n, err);
    if (rc == 0)
        rc = read_file(opening, &tail, err);
    stg_chunk_unref(tail);
    stg_chunk_unref(opening->chunk);
    if (rc < 0)
        stg_arrow_close(opening->file);
    return rc;
}

int stg_arrow_open(struct stg_source *source, struct stg_quota *quota,
                   const struct stg_arrow_want *wants, uint32_t n,
                   struct stg_arrow_file **ret, bool *ret_storage, struct stg_err *err)
{
    struct opening opening = {
        .source = source, .wants = wants, .ret_storage = ret_storage};
    int rc = open_file(&opening, quota, n, err);
    if (rc == 0)
        *ret = opening.file;
    return rc;
}

/* Returns whether a column that is wanted has that dictionary. */
static bool is_wanted(const struct stg_arrow_file *file, int64_t dictionary)
{
    for (uint32_t c = 0; c < file->n_columns; c++) {
        const struct stg_arrow_leaf *leaf = &file->leaves[c];
        if (leaf->is_there && leaf->field.has_dictionary &&
            leaf->field.dictionary == dictionary)
            return true;
    }
    return false;
}

void stg_arrow_announce(const struct stg_arrow_file *file, struct stg_source *source,
                        uint32_t batch)
{
    const struct stg_storage *storage = source->storage;
    if (!storage->remote || storage->will_need == NULL || batch >= file->n_batches)
        return;
    const struct stg_arrow_batch *at = &file->batches[batch];
    const struct stg_arrow_batch *before = batch > 0 ? at - 1 : NULL;
    for (uint32_t i = before != NULL ? before->n_dictionaries : 0; i < at->n_dictionaries;
         i++) {
        const struct stg_arrow_piece *piece = &file->dictionaries[i].piece;
        if (is_wanted(file, file->dictionaries[i].id))
            storage->will_need(source, piece->at,
                               piece->metadata_bytes + piece->body_bytes);
    }
    storage->will_need(source, at->piece.at, at->piece.metadata_bytes);
    for (uint32_t i = before != NULL ? before->n_stretches : 0; i < at->n_stretches; i++)
        storage->will_need(source, file->stretches[i].at, file->stretches[i].bytes);
}

int stg_arrow_describe(struct stg_source *source, struct stg_quota *quota,
                       struct stg_describing *to, bool *ret_storage, struct stg_err *err)
{
    static const char *const codecs[] = {"LZ4_FRAME", "ZSTD"};
    struct opening opening = {
        .source = source, .ret_storage = ret_storage, .describing = to};
    struct stg_file_schema *schema = &to->schema;
    int rc = open_file(&opening, quota, 0, err);
    if (rc < 0)
        return rc;
    const struct stg_arrow_file *file = opening.file;
    struct stg_err why = {.text = "its codec is not supported; LZ4_FRAME and ZSTD are"};
    const char *codec = file->codec < 0    ? "UNCOMPRESSED"
                        : file->codec <= 1 ? codecs[file->codec]
                                           : "?";
    for (size_t i = 0; i < schema->n; i++) {
        schema->columns[i].codec = codec;
        if (file->codec > 1)
            stg_describing_refuse(to, &schema->columns[i], &why);
    }
    schema->format = "arrow";
    schema->has_rows = true;
    schema->n_rows = stg_arrow_n_rows(file);
    schema->n_parts = file->n_batches;
    rc = source->storage->size(source, &schema->bytes, err);
    *ret_storage = rc < 0;
    stg_arrow_close(opening.file);
    return rc;
}

void stg_arrow_close(struct stg_arrow_file *file)
{
    if (file == NULL)
        return;
    free(file->leaves);
    free(file->batches);
    free(file->dictionaries);
    free(file->stretches);
    stg_quota_give(file->quota, file->taken);
    free(file);
}

uint32_t stg_arrow_find_batch(const struct stg_arrow_file *file, uint64_t row)
{
    uint32_t low = 0, high = file->n_batches;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (file->batches[middle].end <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
