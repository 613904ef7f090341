/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/arrow/message.h"

#define AT_ONCE 4096u /* read at the beginning of a message */
#define CONTINUATION 0xffffffffu
#define PREFIX_BYTES 8u     /* the mark, and the length of the metadata */
#define OLD_PREFIX_BYTES 4u /* the length alone, before 0.15 */
#define MAX_RATIO 65536     /* of compressed bytes to rows */
#define MAX_ROWS (INT64_C(1) << 62)
#define SIZE_BYTES 8u /* of a compressed buffer, before its data */

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its metadata is damaged: %s", what);
}

int stg_arrow_room(struct stg_quota *quota, uint64_t bytes, struct stg_chunk **chunk,
                   struct stg_err *err)
{
    return stg_chunk_renew(quota, bytes > 0 ? bytes : 1, "a record batch", chunk, err);
}

/* ---- messages ---- */

static uint32_t word_at(const char *data)
{
    uint32_t word;
    memcpy(&word, data, sizeof(word));
    return word;
}

/* Reads the length before the metadata. *ret: 0 at the end of a stream. */
static int read_prefix(const char *data, uint64_t left, uint32_t *ret_prefix,
                       uint32_t *ret, struct stg_err *err)
{
    bool is_old = left < PREFIX_BYTES || word_at(data) != CONTINUATION;
    *ret_prefix = is_old ? OLD_PREFIX_BYTES : PREFIX_BYTES;
    if (left < *ret_prefix)
        return damaged(err, "the file ends inside the length of a message");
    *ret = word_at(data + *ret_prefix - OLD_PREFIX_BYTES);
    if (*ret > left - *ret_prefix || *ret > INT32_MAX)
        return damaged(err, "a message ends behind the file");
    return 0;
}

/* Reads the whole metadata to a place in the chunk where they are aligned: *ret. */
static int read_metadata(struct stg_source *source, struct stg_quota *quota, uint64_t at,
                         uint32_t prefix, uint32_t bytes, uint64_t n_there,
                         struct stg_chunk **chunk, const char **ret, bool *ret_storage,
                         struct stg_err *err)
{
    uint64_t whole = (uint64_t)prefix + bytes;
    *ret = (*chunk)->data + PREFIX_BYTES;
    if (whole <= n_there) {
        memmove((*chunk)->data + PREFIX_BYTES, (*chunk)->data + prefix, bytes);
        return 0;
    }
    int rc = stg_arrow_room(quota, PREFIX_BYTES + (uint64_t)bytes, chunk, err);
    if (rc < 0)
        return rc;
    *ret = (*chunk)->data + PREFIX_BYTES;
    return stg_source_read_all(source, at + prefix, (*chunk)->data + PREFIX_BYTES, bytes,
                               ret_storage, err);
}

static int check_message(const struct stg_arrow_message *message, uint64_t left,
                         struct stg_err *err)
{
    if (message->version != STG_ARROW_V4 && message->version != STG_ARROW_V5)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "the version of its metadata is V%d, which is not supported; V4 "
                       "and V5 are",
                       message->version + 1);
    if (message->body_bytes < 0 || (uint64_t)message->body_bytes > left)
        return damaged(err, "the body of a message lies outside of the file");
    if (message->has_batch &&
        (message->batch.n_rows < 0 || message->batch.n_rows > MAX_ROWS))
        return damaged(err, "a number of rows is out of range");
    return 0;
}

int stg_arrow_message_at(struct stg_source *source, struct stg_quota *quota, uint64_t at,
                         uint64_t end, uint32_t known, struct stg_chunk **chunk,
                         struct stg_arrow_piece *ret_piece, struct stg_arrow_message *ret,
                         bool *ret_storage, struct stg_err *err)
{
    uint64_t left = end - at, n_there = left < AT_ONCE ? left : AT_ONCE;
    uint32_t prefix = 0, bytes = 0;
    if (known >= PREFIX_BYTES && known < n_there)
        n_there = known;
    const char *metadata = NULL;
    if (left == 0)
        return 1;
    int rc = stg_arrow_room(quota, AT_ONCE + PREFIX_BYTES, chunk, err);
    if (rc == 0)
        rc = stg_source_read_all(source, at, (*chunk)->data, n_there, ret_storage, err);
    if (rc == 0)
        rc = read_prefix((*chunk)->data, left, &prefix, &bytes, err);
    if (rc < 0 || bytes == 0)
        return rc < 0 ? rc : 1;
    rc = read_metadata(source, quota, at, prefix, bytes, n_there, chunk, &metadata,
                       ret_storage, err);
    if (rc < 0)
        return rc;
    if (!stg_arrow_message_read(metadata, bytes, ret))
        return damaged(err, "a message is not valid");
    *ret_piece = (struct stg_arrow_piece){.at = at,
                                          .metadata_bytes = prefix + bytes,
                                          .body = at + prefix + bytes,
                                          .body_bytes = (uint64_t)ret->body_bytes};
    return check_message(ret, left - prefix - bytes, err);
}

/* ---- buffers ---- */

uint64_t stg_arrow_value_bits(const struct stg_arrow_field *field)
{
    switch (field->type) {
    case STG_ARROW_INT:
    case STG_ARROW_FLOAT:
    case STG_ARROW_DECIMAL:
    case STG_ARROW_DATE:
    case STG_ARROW_TIME: return (uint64_t)field->bits;
    case STG_ARROW_TIMESTAMP:
    case STG_ARROW_DURATION: return 64;
    case STG_ARROW_BOOL: return 1;
    case STG_ARROW_FIXED_BINARY: return 8 * (uint64_t)field->size;
    default: return 0;
    }
}

unsigned stg_arrow_offset_bytes(const struct stg_arrow_field *field)
{
    switch (field->type) {
    case STG_ARROW_BINARY:
    case STG_ARROW_UTF8: return 4;
    case STG_ARROW_LARGE_BINARY:
    case STG_ARROW_LARGE_UTF8: return 8;
    default: return 0;
    }
}

/* A batch, and the part of a column in it that is being found. */
struct finding {
    const struct stg_arrow_batch_header *batch;
    const struct stg_arrow_piece *piece;
    struct stg_arrow_part *part;
};

/* Views have buffers whose number each batch has. */
static bool shift_of(const struct stg_arrow_batch_header *batch, uint32_t n_views,
                     uint64_t *ret)
{
    *ret = 0;
    if (n_views > batch->n_variadic)
        return false;
    for (uint32_t i = 0; i < n_views; i++) {
        int64_t n;
        memcpy(&n, (const char *)batch->variadic + (uint64_t)i * sizeof(n), sizeof(n));
        if (n < 0 || n > batch->n_extents)
            return false;
        *ret += (uint64_t)n;
    }
    return true;
}

/* Takes buffer i of a place. is_bits_of n values: it must have so many bytes, if it is
 * not compressed. */
static int take_buffer(const struct finding *finding, const struct stg_arrow_place *place,
                       uint32_t i, uint64_t least, struct stg_arrow_buffer *ret,
                       struct stg_err *err)
{
    const struct stg_arrow_batch_header *batch = finding->batch;
    uint64_t at, body = finding->piece->body_bytes;
    if (!shift_of(batch, place->n_views, &at))
        return damaged(err, "the numbers of its buffers are out of range");
    at += (uint64_t)place->extent + i;
    if (at >= batch->n_extents)
        return damaged(err, "it has too few buffers");
    struct stg_arrow_extent extent = stg_arrow_extent_at(batch, (uint32_t)at);
    if (extent.offset < 0 || extent.bytes < 0 || (uint64_t)extent.offset > body ||
        (uint64_t)extent.bytes > body - (uint64_t)extent.offset)
        return damaged(err, "a buffer lies outside of its batch");
    if (batch->codec < 0 && (uint64_t)extent.bytes < least)
        return damaged(err, "a buffer is too short for the rows");
    if (batch->codec >= 0 && least > 0 && (uint64_t)extent.bytes < SIZE_BYTES)
        return damaged(err, "a compressed buffer has no size");
    *ret = (struct stg_arrow_buffer){.at = finding->piece->body + (uint64_t)extent.offset,
                                     .bytes = (uint64_t)extent.bytes};
    return 0;
}

/* Adds the validity of a place, if it has nulls. n: values there; depth: lists around
 * it. */
static int take_validity(const struct finding *finding,
                         const struct stg_arrow_place *place, uint64_t n, unsigned depth,
                         struct stg_err *err)
{
    struct stg_arrow_part *part = finding->part;
    if (place->node >= finding->batch->n_nodes)
        return damaged(err, "it has too few columns");
    struct stg_arrow_node node = stg_arrow_node_at(finding->batch, place->node);
    if (node.n < 0 || (uint64_t)node.n != n)
        return damaged(err, "a column has another number of rows than its batch");
    if (node.n_nulls == 0 || n == 0)
        return 0;
    part->depths[part->n_validities] = (uint8_t)depth;
    return take_buffer(finding, place, 0, (n + 7) / 8,
                       &part->validities[part->n_validities++], err);
}

static bool is_null_type(const struct stg_arrow_leaf *leaf)
{
    return leaf->field.type == STG_ARROW_NULL && !leaf->field.has_dictionary;
}

static int take_values(const struct finding *finding, const struct stg_arrow_leaf *leaf,
                       uint64_t n, struct stg_err *err)
{
    const struct stg_arrow_field *field = &leaf->field;
    unsigned offset_bytes = stg_arrow_offset_bytes(field);
    uint64_t bits = stg_arrow_value_bits(field);
    if (field->has_dictionary) {
        offset_bytes = 0;
        bits = (uint64_t)field->index_bits;
    }
    if (n == 0 || is_null_type(leaf))
        return 0;
    if (bits > 0 && n > (UINT64_MAX - 7) / bits)
        return damaged(err, "a number of rows is out of range");
    if (offset_bytes == 0)
        return take_buffer(finding, &leaf->place, 1, (n * bits + 7) / 8,
                           &finding->part->data, err);
    int rc = take_buffer(finding, &leaf->place, 1, (n + 1) * offset_bytes,
                         &finding->part->offsets, err);
    return rc == 0 ? take_buffer(finding, &leaf->place, 2, 0, &finding->part->data, err)
                   : rc;
}

/* Takes the n lists of a place. */
static int take_lists(const struct finding *finding, const struct stg_arrow_list *list,
                      uint64_t n, struct stg_arrow_lists_part *ret, struct stg_err *err)
{
    struct stg_arrow_node items;
    ret->n = n;
    if (list->offset_bytes == 0) {
        if (list->size > 0 && n > (uint64_t)MAX_ROWS / list->size)
            return damaged(err, "a number of rows is out of range");
        ret->n_items = n * list->size;
        return 0;
    }
    if (list->place.node + 1 >= finding->batch->n_nodes)
        return damaged(err, "it has too few columns");
    items = stg_arrow_node_at(finding->batch, list->place.node + 1);
    if (items.n < 0 || items.n > MAX_ROWS)
        return damaged(err, "a number of rows is out of range");
    ret->n_items = (uint64_t)items.n;
    return n == 0 ? 0
                  : take_buffer(finding, &list->place, 1, (n + 1) * list->offset_bytes,
                                &ret->offsets, err);
}

/* Takes the structs, and the lists, that lie in so many lists. *n: how many there are of
 * each; it becomes that of their elements. */
static int take_depth(const struct finding *finding, const struct stg_arrow_leaf *leaf,
                      unsigned depth, uint64_t *n, struct stg_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < leaf->n_parents; i++) {
        if (leaf->depths[i] == depth)
            rc = take_validity(finding, &leaf->parents[i], *n, depth, err);
    }
    if (rc < 0 || depth == leaf->n_lists)
        return rc;
    struct stg_arrow_lists_part *lists = &finding->part->lists[depth];
    rc = take_validity(finding, &leaf->lists[depth].place, *n, depth, err);
    if (rc == 0)
        rc = take_lists(finding, &leaf->lists[depth], *n, lists, err);
    *n = lists->n_items;
    return rc;
}

static int check_codec(const struct stg_arrow_batch_header *batch, uint64_t body_bytes,
                       struct stg_err *err)
{
    if (batch->codec > 1 || (batch->codec >= 0 && batch->method != 0))
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "its codec is number %d, which is not supported; LZ4_FRAME and "
                       "ZSTD are",
                       batch->codec);
    if (batch->codec >= 0 && (uint64_t)batch->n_rows / MAX_RATIO > body_bytes)
        return damaged(err, "it has more rows than its bytes can hold");
    return 0;
}

int stg_arrow_find_part(const struct stg_arrow_leaf *leaf,
                        const struct stg_arrow_message *message,
                        const struct stg_arrow_piece *piece, struct stg_arrow_part *ret,
                        struct stg_err *err)
{
    const struct stg_arrow_batch_header *batch = &message->batch;
    struct finding finding = {.batch = batch, .piece = piece, .part = ret};
    uint64_t n = (uint64_t)batch->n_rows;
    *ret = (struct stg_arrow_part){.n_rows = n, .codec = batch->codec};
    int rc = check_codec(batch, piece->body_bytes, err);
    for (unsigned depth = 0; rc == 0 && depth <= leaf->n_lists; depth++)
        rc = take_depth(&finding, leaf, depth, &n, err);
    if (rc == 0 && !is_null_type(leaf))
        rc = take_validity(&finding, &leaf->place, n, leaf->n_lists, err);
    return rc == 0 ? take_values(&finding, leaf, n, err) : rc;
}
