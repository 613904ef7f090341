/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/footer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/format/parquet/schema.h"
#include "daemon/format/parquet/statistics.h"
#include "daemon/format/parquet/thrift.h"

#define MAGIC_BYTES 4
#define TAIL_BYTES 8                   /* the length of the footer, and the magic */
#define AT_ONCE ((uint64_t)64 << 10)   /* read at the end of a file */
#define MAX_GROUPS (UINT64_C(1) << 24) /* of a file */
#define MAX_ROWS (UINT64_C(1) << 62)

/* A footer while it is read. */
struct footer {
    struct stg_parquet_file *file;
    const struct stg_parquet_want *wants;
    uint32_t n_wants;
    uint32_t *columns; /* the leaf of each; STG_PARQUET_NO_COLUMN */
    uint32_t n_leaves;
    uint64_t data_end;                   /* where the footer begins */
    const struct stg_row_filter *filter; /* NULL: none */
    uint8_t *may; /* of each condition: a row of the group that is read may fulfil it */
};

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its footer is damaged: %s", what);
}

static int out_of_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

/* ---- row groups ---- */

/* By the numbers of the format's CompressionCodec. */
static const struct codec {
    const char *name;
    bool is_known;
    enum stg_page_codec codec;
} codecs[] = {{"UNCOMPRESSED", true, STG_PAGE_PLAIN}, {"SNAPPY", true, STG_PAGE_SNAPPY},
              {"GZIP", true, STG_PAGE_GZIP},          {"LZO", false, STG_PAGE_PLAIN},
              {"BROTLI", false, STG_PAGE_PLAIN},      {"LZ4", false, STG_PAGE_PLAIN},
              {"ZSTD", true, STG_PAGE_ZSTD},          {"LZ4_RAW", true, STG_PAGE_LZ4}};

static const struct codec *codec_of(int64_t number)
{
    static const struct codec unknown = {.name = "?"};
    bool is_there = number >= 0 && number < (int64_t)(sizeof(codecs) / sizeof(codecs[0]));
    return is_there ? &codecs[number] : &unknown;
}

const char *stg_parquet_codec_name(int64_t number, bool *ret_known)
{
    *ret_known = codec_of(number)->is_known;
    return codec_of(number)->name;
}

/* A ColumnChunk with its ColumnMetaData. */
struct chunk {
    int64_t type, codec, n_values, data, dictionary, bytes;
    bool has_metadata, is_encrypted, is_elsewhere;
    int64_t offsets, offsets_bytes, bounds, bounds_bytes; /* the page index; 0: none */
    struct stg_parquet_statistics statistics;
};

static void read_metadata(struct stg_thrift *thrift, struct chunk *chunk)
{
    struct stg_thrift_field field = {0};
    chunk->has_metadata = true;
    while (stg_thrift_next(thrift, &field)) {
        switch (field.id) {
        case 1: chunk->type = stg_thrift_int(thrift, &field); break;
        case 4: chunk->codec = stg_thrift_int(thrift, &field); break;
        case 5: chunk->n_values = stg_thrift_int(thrift, &field); break;
        case 7: chunk->bytes = stg_thrift_int(thrift, &field); break;
        case 9: chunk->data = stg_thrift_int(thrift, &field); break;
        case 11: chunk->dictionary = stg_thrift_int(thrift, &field); break;
        case 12:
            if (stg_thrift_struct(thrift, &field))
                stg_parquet_statistics_read(thrift, &chunk->statistics);
            break;
        default: stg_thrift_skip(thrift, &field);
        }
    }
}

static void read_chunk(struct stg_thrift *thrift, struct chunk *chunk)
{
    struct stg_thrift_field field = {0};
    *chunk = (struct chunk){
        .type = -1, .codec = -1, .dictionary = -1, .statistics.n_nulls = -1};
    while (stg_thrift_next(thrift, &field)) {
        chunk->is_elsewhere |= field.id == 1;
        chunk->is_encrypted |= field.id == 8 || field.id == 9;
        switch (field.id) {
        case 3:
            if (stg_thrift_struct(thrift, &field))
                read_metadata(thrift, chunk);
            break;
        case 4: chunk->offsets = stg_thrift_int(thrift, &field); break;
        case 5: chunk->offsets_bytes = stg_thrift_int(thrift, &field); break;
        case 6: chunk->bounds = stg_thrift_int(thrift, &field); break;
        case 7: chunk->bounds_bytes = stg_thrift_int(thrift, &field); break;
        default: stg_thrift_skip(thrift, &field);
        }
    }
}

static int bad_chunk(const char *name, uint32_t group, const char *what,
                     struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS,
                   "column %.256s, row group %" PRIu32 ": its footer is damaged: %s",
                   name, group, what);
}

static int check_support(const struct chunk *chunk, const char *name, uint32_t group,
                         struct stg_err *err)
{
    const char *what = chunk->is_encrypted   ? "it is encrypted"
                       : chunk->is_elsewhere ? "its data is in another file"
                                             : NULL;
    if (what != NULL)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "column %.256s, row group %" PRIu32 ": %s, which is not supported",
                       name, group, what);
    if (!chunk->has_metadata)
        return bad_chunk(name, group, "it does not describe the column", err);
    if (codec_of(chunk->codec)->is_known)
        return 0;
    return stg_err(err, -STAGER_UNIMPLEMENTED,
                   "column %.256s, row group %" PRIu32 ", page at offset %" PRId64
                   ": its codec is %s, which is not supported; SNAPPY, GZIP, ZSTD and "
                   "LZ4_RAW are",
                   name, group, chunk->data, codec_of(chunk->codec)->name);
}

/* Writers have set the offset of the dictionary to 0 where there is none. */
static int take_chunk(struct footer *footer, const struct chunk *chunk, uint32_t c,
                      uint32_t group, uint64_t n_rows, struct stg_err *err)
{
    const struct stg_parquet_file *file = footer->file;
    const char *name = footer->wants[c].name;
    int rc = check_support(chunk, name, group, err);
    if (rc < 0)
        return rc;
    bool has_dictionary = chunk->dictionary > 0 && chunk->dictionary < chunk->data;
    int64_t begin = has_dictionary ? chunk->dictionary : chunk->data;
    if (begin < MAGIC_BYTES || chunk->bytes < 0 || (uint64_t)begin > footer->data_end ||
        (uint64_t)chunk->bytes > footer->data_end - (uint64_t)begin)
        return bad_chunk(name, group, "its data lies outside of the file", err);
    if (chunk->type != file->leaves[c].type)
        return bad_chunk(name, group, "its type is not that of the schema", err);
    bool is_list = file->leaves[c].n_lists > 0;
    if (chunk->n_values < 0 || (is_list ? (uint64_t)chunk->n_values < n_rows
                                        : (uint64_t)chunk->n_values != n_rows))
        return bad_chunk(name, group, "it has another number of values than of rows",
                         err);
    file->ranges[(uint64_t)group * file->n_columns + c] =
        (struct stg_parquet_range){.begin = (uint64_t)begin,
                                   .end = (uint64_t)begin + (uint64_t)chunk->bytes,
                                   .n_values = (uint64_t)chunk->n_values,
                                   .codec = codec_of(chunk->codec)->codec};
    return 0;
}

/* None if it does not lie in the file. */
static struct stg_parquet_part part_of(const struct footer *footer, int64_t at,
                                       int64_t bytes)
{
    bool is_there = at >= MAGIC_BYTES && bytes > 0 && bytes <= INT32_MAX &&
                    (uint64_t)at <= footer->data_end &&
                    (uint64_t)bytes <= footer->data_end - (uint64_t)at;
    return is_there
               ? (struct stg_parquet_part){.at = (uint64_t)at, .bytes = (uint32_t)bytes}
               : (struct stg_parquet_part){0};
}

static int dtype_of(const struct footer *footer, uint32_t c)
{
    int dtype = footer->wants[c].dtype;
    return dtype != STAGER_DT_INVALID ? dtype
                                      : stg_parquet_leaf_dtype(&footer->file->leaves[c]);
}

/* Notes which conditions a row of the column may fulfil. */
static void look_at(struct footer *footer,
                    const struct stg_parquet_statistics *statistics, uint32_t c,
                    uint64_t n_rows)
{
    const struct stg_row_filter *filter = footer->filter;
    struct stg_row_bounds bounds =
        stg_parquet_bounds(&footer->file->leaves[c], dtype_of(footer, c), statistics,
                           footer->file->is_ordered[c], n_rows);
    for (uint32_t k = 0; k < filter->n; k++) {
        if (filter->conditions[k].column == c)
            footer->may[k] = stg_row_condition_may(&filter->conditions[k], &bounds);
    }
}

/* Columns come in the order of the leaves of the schema. */
static int read_chunks(struct footer *footer, struct stg_thrift thrift, uint64_t n,
                       uint32_t group, uint64_t n_rows, struct stg_err *err)
{
    int rc = n == footer->n_leaves
                 ? 0
                 : damaged(err, "a row group has another number of columns");
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        struct chunk chunk;
        read_chunk(&thrift, &chunk);
        if (thrift.is_bad)
            return damaged(err, "it ends inside a column");
        for (uint32_t c = 0; rc == 0 && c < footer->n_wants; c++) {
            if (footer->columns[c] != i)
                continue;
            rc = take_chunk(footer, &chunk, c, group, n_rows, err);
            if (rc < 0 || footer->filter == NULL)
                continue;
            look_at(footer, &chunk.statistics, c, n_rows);
            footer->file->indexes[(uint64_t)group * footer->n_wants + c] =
                (struct stg_parquet_index){
                    .bounds = part_of(footer, chunk.bounds, chunk.bounds_bytes),
                    .offsets = part_of(footer, chunk.offsets, chunk.offsets_bytes)};
        }
    }
    return rc;
}

static int read_group(struct footer *footer, struct stg_thrift *thrift, uint32_t group,
                      uint64_t *n_rows, struct stg_err *err)
{
    struct stg_thrift_field field = {0};
    struct stg_thrift chunks = {0};
    uint64_t n_chunks = 0;
    int64_t n = -1;
    while (stg_thrift_next(thrift, &field)) {
        if (field.id == 1) {
            struct stg_thrift list = *thrift;
            n_chunks = stg_thrift_list(&list, &field, STG_THRIFT_STRUCT);
            chunks = list;
        }
        if (field.id == 3)
            n = stg_thrift_int(thrift, &field);
        else
            stg_thrift_skip(thrift, &field);
    }
    if (thrift->is_bad || chunks.is_bad || n < 0 || (uint64_t)n > MAX_ROWS - *n_rows)
        return damaged(err, "a row group is not valid");
    *n_rows += (uint64_t)n;
    footer->file->ends[group] = *n_rows;
    if (footer->filter != NULL)
        memset(footer->may, 1, footer->filter->n);
    int rc = n > 0 ? read_chunks(footer, chunks, n_chunks, group, (uint64_t)n, err) : 0;
    if (rc == 0 && footer->filter != NULL)
        footer->file->excluded[group] = !stg_row_filter_may(footer->filter, footer->may);
    return rc;
}

/* ---- the file ---- */

static void read_list(struct stg_thrift *thrift, const struct stg_thrift_field *field,
                      struct stg_thrift *ret, uint64_t *ret_n)
{
    *ret = *thrift;
    *ret_n = stg_thrift_list(ret, field, STG_THRIFT_STRUCT);
    stg_thrift_skip(thrift, field);
}

static int find_parts(struct stg_thrift thrift, struct stg_parquet_metadata *ret,
                      struct stg_err *err)
{
    struct stg_thrift_field field = {0};
    *ret = (struct stg_parquet_metadata){.n_rows = -1};
    while (stg_thrift_next(&thrift, &field)) {
        switch (field.id) {
        case 2: read_list(&thrift, &field, &ret->schema, &ret->n_elements); break;
        case 3: ret->n_rows = stg_thrift_int(&thrift, &field); break;
        case 4: read_list(&thrift, &field, &ret->groups, &ret->n_groups); break;
        case 7: read_list(&thrift, &field, &ret->orders, &ret->n_orders); break;
        default: stg_thrift_skip(&thrift, &field);
        }
    }
    if (thrift.is_bad || ret->schema.is_bad || ret->groups.is_bad || ret->n_rows < 0 ||
        ret->n_groups > MAX_GROUPS)
        return damaged(err, "it does not describe a table");
    return 0;
}

static int refuse_size(struct stg_quota *quota, uint64_t bytes, int rc,
                       struct stg_err *err)
{
    if (!stg_quota_is_large(quota, bytes))
        return rc;
    rc = stg_err(err, -STAGER_DATA_LOSS,
                 "its footer takes %" PRIu64 " bytes, more than a quarter of the "
                 "dataset's buffers: ",
                 bytes);
    stg_quota_advise(quota, 5 * bytes, 0, err);
    return rc;
}

static int take_arrays(struct footer *footer, uint32_t n_groups, struct stg_err *err)
{
    struct stg_parquet_file *file = footer->file;
    uint64_t n = footer->n_wants, bytes = sizeof(*file) + n * sizeof(*file->leaves);
    bytes += n_groups * (sizeof(*file->ends) + n * sizeof(*file->ranges));
    if (footer->filter != NULL)
        bytes += n + n_groups * (n * sizeof(*file->indexes) + 1);
    int rc = stg_quota_take(file->quota, bytes, "the footer of a file", err);
    if (rc < 0)
        return refuse_size(file->quota, bytes, rc, err);
    file->taken = bytes;
    file->n_columns = footer->n_wants;
    file->n_groups = n_groups;
    file->leaves = calloc(n + 1, sizeof(*file->leaves));
    file->ends = calloc((uint64_t)n_groups + 1, sizeof(*file->ends));
    file->ranges = calloc(n_groups * n + 1, sizeof(*file->ranges));
    footer->columns = calloc(n + 1, sizeof(*footer->columns));
    if (file->leaves == NULL || file->ends == NULL || file->ranges == NULL ||
        footer->columns == NULL)
        return out_of_memory(err);
    if (footer->filter == NULL)
        return 0;
    file->excluded = calloc((uint64_t)n_groups + 1, 1);
    file->is_ordered = calloc(n + 1, sizeof(*file->is_ordered));
    file->indexes = calloc(n_groups * n + 1, sizeof(*file->indexes));
    footer->may = calloc((uint64_t)footer->filter->n + 1, 1);
    return file->excluded != NULL && file->is_ordered != NULL && file->indexes != NULL &&
                   footer->may != NULL
               ? 0
               : out_of_memory(err);
}

/* ---- the filter ---- */

/* An order by the type is field 1 of a union. Orders that cannot be read are none. */
static void read_orders(struct footer *footer, struct stg_thrift thrift, uint64_t n)
{
    for (uint64_t i = 0; i < n && !thrift.is_bad; i++) {
        struct stg_thrift_field field = {0};
        bool is_typed = false;
        while (stg_thrift_next(&thrift, &field)) {
            is_typed |= field.id == 1;
            stg_thrift_skip(&thrift, &field);
        }
        for (uint32_t c = 0; c < footer->n_wants; c++)
            footer->file->is_ordered[c] |= footer->columns[c] == i && is_typed;
    }
}

/* The filter can compare what the columns are in this file. */
static int check_filter(const struct footer *footer, struct stg_err *err)
{
    const struct stg_row_filter *filter = footer->filter;
    for (uint32_t k = 0; k < filter->n; k++) {
        uint32_t c = filter->conditions[k].column;
        if (!footer->file->leaves[c].is_there)
            continue;
        int rc =
            stg_row_condition_check(&filter->conditions[k], dtype_of(footer, c), err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "column %.256s", footer->wants[c].name);
    }
    return 0;
}

static int parse(struct footer *footer, struct stg_parquet_metadata *metadata,
                 struct stg_err *err)
{
    uint64_t n_rows = 0;
    int rc = take_arrays(footer, (uint32_t)metadata->n_groups, err);
    if (rc == 0)
        rc = stg_parquet_schema_read(&metadata->schema, metadata->n_elements,
                                     footer->wants, footer->n_wants, footer->file->leaves,
                                     footer->columns, &footer->n_leaves, err);
    if (rc == 0 && footer->filter != NULL) {
        read_orders(footer, metadata->orders, metadata->n_orders);
        rc = check_filter(footer, err);
    }
    for (uint32_t i = 0; rc == 0 && i < metadata->n_groups; i++)
        rc = read_group(footer, &metadata->groups, i, &n_rows, err);
    if (rc == 0 && n_rows != (uint64_t)metadata->n_rows)
        rc = damaged(err, "its row groups have another number of rows than the file");
    return rc;
}

static int not_parquet(struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS,
                   "it is not a Parquet file, or it is truncated: it does not end with "
                   "PAR1");
}

static uint32_t footer_bytes(const char *tail)
{
    const uint8_t *at = (const uint8_t *)tail;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}

/* Checks the last bytes of a file of that size. */
static int check_tail(const char *tail, uint64_t size, struct stg_err *err)
{
    if (memcmp(tail + 4, "PARE", MAGIC_BYTES) == 0)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "its footer is encrypted, which is not supported");
    if (memcmp(tail + 4, "PAR1", MAGIC_BYTES) != 0)
        return not_parquet(err);
    if (footer_bytes(tail) > size - TAIL_BYTES - MAGIC_BYTES)
        return damaged(err, "it is longer than the file");
    return 0;
}

/* Reads the last bytes of the file, then those before them if the footer has more. */
static int read_footer(struct stg_source *source, uint64_t size, struct stg_quota *quota,
                       struct stg_chunk **ret, uint64_t *ret_bytes, bool *ret_storage,
                       struct stg_err *err)
{
    uint64_t first = size < AT_ONCE ? size : AT_ONCE;
    if (size < TAIL_BYTES + MAGIC_BYTES)
        return not_parquet(err);
    int rc = stg_chunk_create(quota, AT_ONCE, "the footer of a file", ret, err);
    if (rc == 0)
        rc = stg_source_read_all(source, size - first, (*ret)->data, first, ret_storage,
                                 err);
    if (rc == 0)
        rc = check_tail((*ret)->data + first - TAIL_BYTES, size, err);
    if (rc < 0)
        return rc;
    uint64_t bytes = footer_bytes((*ret)->data + first - TAIL_BYTES);
    *ret_bytes = bytes;
    if (bytes + TAIL_BYTES <= first) {
        memmove((*ret)->data, (*ret)->data + first - TAIL_BYTES - bytes, bytes);
        return 0;
    }
    stg_chunk_unref(*ret);
    *ret = NULL;
    rc = stg_chunk_create(quota, bytes, "the footer of a file", ret, err);
    if (rc < 0)
        return refuse_size(quota, bytes, rc, err);
    return stg_source_read_all(source, size - TAIL_BYTES - bytes, (*ret)->data, bytes,
                               ret_storage, err);
}

int stg_parquet_metadata_read(struct stg_source *source, uint64_t size,
                              struct stg_quota *quota, struct stg_chunk **chunk,
                              uint64_t *ret_bytes, struct stg_parquet_metadata *ret,
                              bool *ret_storage, struct stg_err *err)
{
    int rc = read_footer(source, size, quota, chunk, ret_bytes, ret_storage, err);
    if (rc < 0)
        return rc;
    const uint8_t *data = (const uint8_t *)(*chunk)->data;
    struct stg_thrift thrift = {.at = data, .end = data + *ret_bytes};
    return find_parts(thrift, ret, err);
}

int stg_parquet_open(struct stg_source *source, struct stg_quota *quota,
                     const struct stg_parquet_want *wants, uint32_t n,
                     const struct stg_row_filter *filter, struct stg_parquet_file **ret,
                     bool *ret_storage, struct stg_err *err)
{
    struct footer footer = {.wants = wants, .n_wants = n, .filter = filter};
    struct stg_parquet_metadata metadata;
    struct stg_chunk *chunk = NULL;
    uint64_t size = 0, bytes = 0;
    *ret_storage = false;
    int rc = source->storage->size(source, &size, err);
    *ret_storage = rc < 0;
    if (rc == 0)
        rc = stg_parquet_metadata_read(source, size, quota, &chunk, &bytes, &metadata,
                                       ret_storage, err);
    if (rc < 0)
        goto end;
    footer.data_end = size - TAIL_BYTES - bytes;
    footer.file = calloc(1, sizeof(*footer.file));
    if (footer.file == NULL) {
        rc = out_of_memory(err);
        goto end;
    }
    footer.file->quota = quota;
    rc = parse(&footer, &metadata, err);
    if (rc < 0)
        stg_parquet_close(footer.file);
    else
        *ret = footer.file;

end:
    stg_chunk_unref(chunk);
    free(footer.columns);
    free(footer.may);
    return rc;
}

void stg_parquet_close(struct stg_parquet_file *file)
{
    if (file == NULL)
        return;
    free(file->leaves);
    free(file->ends);
    free(file->excluded);
    free(file->is_ordered);
    free(file->indexes);
    free(file->ranges);
    stg_quota_give(file->quota, file->taken);
    free(file);
}
