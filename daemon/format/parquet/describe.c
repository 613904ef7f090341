/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/format/parquet/footer.h"

#define MAX_NUMBER 31 /* of an encoding or a codec, in a mask */

/* What all row groups say of a kept column. */
struct seen {
    uint32_t encodings, codecs; /* bits, by the numbers of the format */
};

/* A ColumnChunk with its ColumnMetaData. */
struct chunk {
    uint32_t encodings;
    int64_t codec, bytes, plain_bytes;
    bool is_encrypted, is_elsewhere;
};

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its footer is damaged: %s", what);
}

/* ---- texts ---- */

static const char *encoding_name(unsigned number)
{
    static const char *const names[] = {"PLAIN",
                                        "GROUP_VAR_INT",
                                        "PLAIN_DICTIONARY",
                                        "RLE",
                                        "BIT_PACKED",
                                        "DELTA_BINARY_PACKED",
                                        "DELTA_LENGTH_BYTE_ARRAY",
                                        "DELTA_BYTE_ARRAY",
                                        "RLE_DICTIONARY",
                                        "BYTE_STREAM_SPLIT"};
    return number < sizeof(names) / sizeof(names[0]) ? names[number] : "?";
}

static const char *codec_name(unsigned number)
{
    bool is_known;
    return stg_parquet_codec_name(number, &is_known);
}

/* The names of the bits, with commas between them. */
static const char *names_of(struct stg_describing *to, uint32_t mask,
                            const char *(*name)(unsigned number))
{
    char text[256] = "";
    for (unsigned i = 0; i <= MAX_NUMBER; i++) {
        if ((mask >> i & 1) == 0)
            continue;
        size_t at = strlen(text);
        snprintf(text + at, sizeof(text) - at, "%s%s", at > 0 ? ", " : "", name(i));
    }
    return stg_describing_text(to, "%s", text);
}

/* ---- row groups ---- */

/* Returns the bit of an encoding. */
static uint32_t bit_of(int64_t number)
{
    return number >= 0 && number <= MAX_NUMBER ? UINT32_C(1) << number : 0;
}

static uint32_t read_encodings(struct stg_thrift *thrift,
                               const struct stg_thrift_field *field)
{
    uint64_t n = stg_thrift_list(thrift, field, STG_THRIFT_I32);
    const struct stg_thrift_field element = {.type = STG_THRIFT_I32};
    uint32_t ret = 0;
    for (uint64_t i = 0; i < n && !thrift->is_bad; i++)
        ret |= bit_of(stg_thrift_int(thrift, &element));
    return ret;
}

static void read_metadata(struct stg_thrift *thrift, struct chunk *chunk)
{
    struct stg_thrift_field field = {0};
    while (stg_thrift_next(thrift, &field)) {
        switch (field.id) {
        case 2: chunk->encodings = read_encodings(thrift, &field); break;
        case 4: chunk->codec = stg_thrift_int(thrift, &field); break;
        case 6: chunk->plain_bytes = stg_thrift_int(thrift, &field); break;
        case 7: chunk->bytes = stg_thrift_int(thrift, &field); break;
        default: stg_thrift_skip(thrift, &field);
        }
    }
}

static void read_chunk(struct stg_thrift *thrift, struct chunk *chunk)
{
    struct stg_thrift_field field = {0};
    *chunk = (struct chunk){.codec = -1};
    while (stg_thrift_next(thrift, &field)) {
        chunk->is_elsewhere |= field.id == 1;
        chunk->is_encrypted |= field.id == 8 || field.id == 9;
        if (field.id == 3 && stg_thrift_struct(thrift, &field))
            read_metadata(thrift, chunk);
        else
            stg_thrift_skip(thrift, &field);
    }
}

static void refuse(struct stg_describing *to, struct stg_file_column *column,
                   const char *what)
{
    struct stg_err why;
    stg_err(&why, -STAGER_UNIMPLEMENTED, "%s, which is not supported", what);
    stg_describing_refuse(to, column, &why);
}

static uint64_t plus(uint64_t sum, int64_t bytes)
{
    return bytes > 0 && (uint64_t)bytes < UINT64_MAX - sum ? sum + (uint64_t)bytes : sum;
}

static void take_chunk(struct stg_describing *to, struct stg_file_column *column,
                       struct seen *seen, const struct chunk *chunk)
{
    char what[64];
    bool is_known;
    const char *codec = stg_parquet_codec_name(chunk->codec, &is_known);
    seen->encodings |= chunk->encodings;
    seen->codecs |= bit_of(chunk->codec);
    column->bytes = plus(column->bytes, chunk->bytes);
    column->plain_bytes = plus(column->plain_bytes, chunk->plain_bytes);
    snprintf(what, sizeof(what), "its codec is %s", codec);
    if (chunk->is_encrypted)
        refuse(to, column, "it is encrypted");
    else if (chunk->is_elsewhere)
        refuse(to, column, "its data is in another file");
    else if (!is_known)
        refuse(to, column, what);
}

static int read_chunks(struct stg_thrift *thrift, const struct stg_thrift_field *field,
                       struct stg_describing *to, struct seen *seen, struct stg_err *err)
{
    uint64_t n = stg_thrift_list(thrift, field, STG_THRIFT_STRUCT);
    if (!thrift->is_bad && n > 0 && n != to->schema.n_total)
        return damaged(err, "a row group has another number of columns");
    for (uint64_t i = 0; i < n && !thrift->is_bad; i++) {
        struct chunk chunk;
        struct stg_file_column *column = stg_describing_at(to, i);
        read_chunk(thrift, &chunk);
        if (column != NULL && !thrift->is_bad)
            take_chunk(to, column, &seen[column - to->schema.columns], &chunk);
    }
    return 0;
}

static int read_group(struct stg_thrift *thrift, struct stg_describing *to,
                      struct seen *seen, struct stg_err *err)
{
    struct stg_thrift_field field = {0};
    int rc = 0;
    while (rc == 0 && stg_thrift_next(thrift, &field)) {
        if (field.id == 1)
            rc = read_chunks(thrift, &field, to, seen, err);
        else
            stg_thrift_skip(thrift, &field);
    }
    return rc == 0 && thrift->is_bad ? damaged(err, "a row group is not valid") : rc;
}

static int read_groups(struct stg_parquet_metadata *metadata, struct stg_describing *to,
                       struct stg_err *err)
{
    struct stg_file_schema *schema = &to->schema;
    struct seen *seen = calloc(schema->n + 1, sizeof(*seen));
    int rc = seen != NULL ? 0 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint64_t i = 0; rc == 0 && i < metadata->n_groups; i++)
        rc = read_group(&metadata->groups, to, seen, err);
    for (size_t i = 0; rc == 0 && i < schema->n; i++) {
        schema->columns[i].encodings = names_of(to, seen[i].encodings, encoding_name);
        schema->columns[i].codec = names_of(to, seen[i].codecs, codec_name);
    }
    free(seen);
    return rc;
}

int stg_parquet_describe(struct stg_source *source, struct stg_quota *quota,
                         struct stg_describing *to, bool *ret_storage,
                         struct stg_err *err)
{
    struct stg_parquet_metadata metadata;
    struct stg_chunk *chunk = NULL;
    uint64_t size = 0, bytes = 0;
    int rc = source->storage->size(source, &size, err);
    *ret_storage = rc < 0;
    if (rc == 0)
        rc = stg_parquet_metadata_read(source, size, quota, &chunk, &bytes, &metadata,
                                       ret_storage, err);
    if (rc == 0)
        rc = stg_parquet_schema_describe(&metadata.schema, metadata.n_elements, to, err);
    if (rc == 0)
        rc = read_groups(&metadata, to, err);
    if (rc == 0) {
        to->schema.format = "parquet";
        to->schema.bytes = size;
        to->schema.has_rows = true;
        to->schema.n_rows = (uint64_t)metadata.n_rows;
        to->schema.n_parts = (uint32_t)metadata.n_groups;
    }
    stg_chunk_unref(chunk);
    return rc;
}
