/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/cursor.h"

#include <inttypes.h>
#include <string.h>

#define ALIGN 64u
#define PAGE_BYTES 4096u /* of the machine */
#define LEVEL_LENGTH_BYTES 4
#define MAX_HEADER_BYTES ((uint64_t)1 << 20)
#define MAX_FILL 65536 /* rows of a column that the file lacks, at once */
#define MAX_PART 32768 /* rows of a page of indices, at once: they take more than it */
#define MIN_PART 2048

void stg_parquet_reading_finish(struct stg_parquet_reading *reading)
{
    stg_page_codecs_finish(&reading->codecs);
    stg_chunk_unref(reading->scratch);
    reading->scratch = NULL;
}

/* ---- what is lost ---- */

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its header is damaged: %s", what);
}

/* Puts the place before the text of an error. */
static int prefix(const struct stg_parquet_cursor *cursor, uint64_t offset, int rc,
                  struct stg_err *err)
{
    return stg_err_prefix(err, rc,
                          "column %.256s, row group %" PRIu32 ", page at offset %" PRIu64,
                          cursor->column->want.name, cursor->group, offset);
}

/* Returns whether the data is to blame: another page may be read. */
static bool is_of_data(int rc, bool is_storage)
{
    return !is_storage && (rc == -STAGER_DATA_LOSS || rc == -STAGER_UNIMPLEMENTED);
}

static bool is_list(const struct stg_parquet_cursor *cursor)
{
    return cursor->column->want.n_lists > 0;
}

void stg_parquet_cursor_lose(struct stg_parquet_cursor *cursor, const struct stg_err *why)
{
    cursor->lost = *why;
    if (is_list(cursor))
        cursor->n = cursor->n_behind = 0;
    if (cursor->n == 0)
        cursor->n = cursor->n_rows - cursor->first;
    cursor->n += cursor->n_behind;
    cursor->n_behind = 0;
    cursor->is_decoded = true;
}

static bool has_indices(const struct stg_parquet_cursor *cursor)
{
    return cursor->header.encoding == STG_PARQUET_PLAIN_DICTIONARY ||
           cursor->header.encoding == STG_PARQUET_RLE_DICTIONARY;
}

/* Gives the page up if the data is to blame. */
static int conclude(struct stg_parquet_cursor *cursor, int rc, bool is_storage,
                    uint64_t at, struct stg_err *why, struct stg_err *err)
{
    if (rc == 0)
        return 0;
    prefix(cursor, at, rc, why);
    if (is_of_data(rc, is_storage)) {
        stg_parquet_cursor_lose(cursor, why);
        return 0;
    }
    if (err != NULL)
        *err = *why;
    return rc;
}

/* ---- headers ---- */

static int parse_long(struct stg_parquet_cursor *cursor, uint64_t left, uint64_t *ret,
                      bool *ret_storage, struct stg_err *err)
{
    struct stg_parquet_reading *reading = cursor->reading;
    uint64_t bytes = left < MAX_HEADER_BYTES ? left : MAX_HEADER_BYTES;
    int rc = stg_parquet_room(reading->quota, bytes, &reading->scratch, err);
    if (rc == 0)
        rc = stg_source_read_all(reading->source, cursor->at, reading->scratch->data,
                                 bytes, ret_storage, err);
    if (rc == 0)
        *ret =
            stg_parquet_page_header_parse(reading->scratch->data, bytes, &cursor->header);
    return rc;
}

/* Returns how many bytes are read of the header of a page, and of what follows it. */
static uint32_t n_at_once(uint64_t left)
{
    return (uint32_t)(left < STG_PARQUET_HEADER_BYTES ? left : STG_PARQUET_HEADER_BYTES);
}

static int read_header(struct stg_parquet_cursor *cursor, bool *ret_storage,
                       struct stg_err *err)
{
    uint64_t left = cursor->range.end - cursor->at;
    uint32_t n = n_at_once(left);
    int rc = 0;
    if (left == 0)
        return damaged(err, "the column ends before its last row");
    if (cursor->ahead_at != cursor->at || cursor->n_ahead != n)
        rc = stg_source_read_all(cursor->reading->source, cursor->at, cursor->ahead, n,
                                 ret_storage, err);
    cursor->n_ahead = 0;
    if (rc < 0)
        return rc;
    uint64_t bytes = stg_parquet_page_header_parse(cursor->ahead, n, &cursor->header);
    if (bytes == 0 && n < left)
        rc = parse_long(cursor, left, &bytes, ret_storage, err);
    if (rc < 0)
        return rc;
    if (bytes == 0)
        return damaged(err, "it is not that of a page");
    if (cursor->header.bytes > left - bytes)
        return damaged(err, "the page ends behind its column");
    cursor->page_at = cursor->at + bytes;
    cursor->range.begin = cursor->page_at + cursor->header.bytes;
    return 0;
}

static int take_dictionary(struct stg_parquet_cursor *cursor, struct stg_err *err)
{
    if (cursor->dictionary_page_at != 0)
        return damaged(err, "the column has two dictionaries");
    cursor->dictionary_header = cursor->header;
    cursor->dictionary_at = cursor->at;
    cursor->dictionary_page_at = cursor->page_at;
    return 0;
}

/* To the next page of values. */
static int find_page(struct stg_parquet_cursor *cursor, bool *ret_storage,
                     struct stg_err *err)
{
    int rc = 0;
    do {
        cursor->at = cursor->range.begin;
        rc = read_header(cursor, ret_storage, err);
        if (rc == 0 && cursor->header.kind == STG_PARQUET_DICTIONARY_PAGE)
            rc = take_dictionary(cursor, err);
    } while (rc == 0 && cursor->header.kind != STG_PARQUET_DATA_PAGE &&
             cursor->header.kind != STG_PARQUET_DATA_PAGE_V2);
    if (rc == 0 && is_list(cursor) && cursor->header.n > cursor->n_levels)
        rc = damaged(err, "it has more values than the row group");
    if (rc == 0 && !is_list(cursor) && cursor->header.n > cursor->n_rows - cursor->first)
        rc = damaged(err, "it has more values than the row group has rows");
    return rc;
}

/* As many rows as are wanted next: they are in the cache when they are used. */
static uint64_t part_rows(const struct stg_parquet_cursor *cursor)
{
    uint64_t want = cursor->reading->want;
    if (want == 0 || want > MAX_PART)
        return MAX_PART;
    return want < MIN_PART ? MIN_PART : want;
}

static int next_page(struct stg_parquet_cursor *cursor, struct stg_err *err)
{
    struct stg_err why = {0};
    bool is_storage = false;
    cursor->first += cursor->n;
    cursor->n = 0;
    cursor->is_decoded = cursor->is_begun = false;
    cursor->lost.code = 0;
    int rc = find_page(cursor, &is_storage, &why);
    if (rc < 0)
        return conclude(cursor, rc, is_storage, cursor->at, &why, err);
    cursor->n = cursor->header.n;
    if (has_indices(cursor) && cursor->n > part_rows(cursor))
        cursor->n = part_rows(cursor);
    cursor->n_behind = cursor->header.n - cursor->n;
    return 0;
}

/* ---- pages ---- */

static int check_crc(const struct stg_parquet_page_header *header, const char *data,
                     struct stg_err *err)
{
    if (!header->has_crc || stg_page_crc32(data, header->bytes) == header->crc)
        return 0;
    return stg_err(err, -STAGER_DATA_LOSS, "its data does not match its checksum");
}

static bool is_compressed(const struct stg_parquet_cursor *cursor,
                          const struct stg_parquet_page_header *header)
{
    return cursor->range.codec != STG_PAGE_PLAIN && !header->is_plain;
}

/* Levels of a page of version 2 are not compressed. */
static int decompress(struct stg_parquet_cursor *cursor,
                      const struct stg_parquet_page_header *header, const char *from,
                      char *to, struct stg_err *err)
{
    uint64_t level_bytes = header->level_bytes;
    memcpy(to, from, level_bytes);
    return stg_page_decompress(&cursor->reading->codecs, cursor->range.codec,
                               from + level_bytes, header->bytes - level_bytes,
                               to + level_bytes, header->plain_bytes - level_bytes, err);
}

/* Returns by how much to move the memory that the bytes at that offset are read to. The
 * kernel copies from pages of memory, and a copy to an address that is 1 to 62 bytes
 * above the source, modulo 4096, takes two to five times as long (4K aliasing). */
static uint64_t shift_of(const char *to, uint64_t offset)
{
    uint64_t above = ((uintptr_t)to - offset) % PAGE_BYTES;
    return above > 0 && above < ALIGN ? ALIGN : 0;
}

/* Reads a page to *data, decompressed, *pad bytes behind its beginning or a little more.
 * With it comes the header of the next one. */
static int read_page(struct stg_parquet_cursor *cursor,
                     const struct stg_parquet_page_header *header, uint64_t page_at,
                     uint64_t *pad, struct stg_chunk **data, bool *ret_storage,
                     struct stg_err *err)
{
    struct stg_parquet_reading *reading = cursor->reading;
    bool compressed = is_compressed(cursor, header);
    if (!compressed && header->bytes != header->plain_bytes)
        return damaged(err, "the sizes of the page differ");
    if (header->level_bytes > header->bytes || header->level_bytes > header->plain_bytes)
        return damaged(err, "its levels are longer than the page");
    uint32_t n_ahead = n_at_once(cursor->range.end - (page_at + header->bytes));
    uint64_t room = *pad + ALIGN + header->plain_bytes + cursor->column->text_bytes;
    int rc = stg_parquet_room(reading->quota, room + n_ahead, data, err);
    if (rc == 0 && compressed)
        rc = stg_parquet_room(reading->quota, ALIGN + header->bytes + n_ahead,
                              &reading->scratch, err);
    if (rc < 0)
        return rc;
    if (!compressed)
        *pad += shift_of((*data)->data + *pad, page_at);
    char *to = compressed ? reading->scratch->data : (*data)->data + *pad;
    to += compressed ? shift_of(to, page_at) : 0;
    rc = stg_source_read_all(reading->source, page_at, to, header->bytes + n_ahead,
                             ret_storage, err);
    if (rc < 0)
        return rc;
    memcpy(cursor->ahead, to + header->bytes, n_ahead);
    cursor->n_ahead = n_ahead;
    cursor->ahead_at = page_at + header->bytes;
    rc = check_crc(header, to, err);
    if (rc == 0 && compressed)
        rc = decompress(cursor, header, to, (*data)->data + *pad, err);
    return rc;
}

/* Makes the dictionary one that codes refer to. The default is behind its entries. */
static int make_coded(struct stg_parquet_cursor *cursor, struct stg_err *err)
{
    struct stg_parquet_values *values = &cursor->dictionary;
    uint64_t n = values->n, bytes = values->base_bytes;
    if (!cursor->column->takes_codes || n >= INT32_MAX)
        return 0;
    int rc = stg_dictionary_create(cursor->reading->quota, values->data, values->values,
                                   &cursor->coded, err);
    if (rc < 0)
        return rc;
    values->begin[n] = (int64_t)bytes;
    values->end[n] = (int64_t)(bytes + cursor->column->text_bytes);
    cursor->coded->strings.n = (int64_t)n + 1;
    cursor->coded->strings.data = values->base;
    cursor->coded->strings.data_bytes = bytes + cursor->column->text_bytes;
    cursor->coded->strings.begin = values->begin;
    cursor->coded->strings.end = values->end;
    return 0;
}

static void drop_coded(struct stg_parquet_cursor *cursor)
{
    stg_dictionary_unref(cursor->coded);
    cursor->coded = NULL;
}

static int decode_dictionary(struct stg_parquet_cursor *cursor, bool *ret_storage,
                             struct stg_err *err)
{
    const struct stg_parquet_page_header *header = &cursor->dictionary_header;
    struct stg_parquet_page page = {.column = cursor->column,
                                    .leaf = cursor->leaf,
                                    .encoding = STG_PARQUET_PLAIN,
                                    .n = header->n,
                                    .quota = cursor->reading->quota};
    if (cursor->has_dictionary || cursor->dictionary_page_at == 0)
        return 0;
    uint64_t pad = 0;
    int rc = read_page(cursor, header, cursor->dictionary_page_at, &pad,
                       &cursor->dictionary.data, ret_storage, err);
    if (rc < 0)
        return rc;
    if (header->encoding != STG_PARQUET_PLAIN &&
        header->encoding != STG_PARQUET_PLAIN_DICTIONARY)
        return damaged(err, "the encoding of its dictionary is not valid");
    if (header->n > header->plain_bytes)
        return damaged(err, "its dictionary has more entries than bytes");
    page.bytes.at = (const uint8_t *)cursor->dictionary.data->data + pad;
    page.bytes.end = page.bytes.at + header->plain_bytes;
    rc = stg_parquet_decode(&page, &cursor->dictionary, err);
    if (rc == 0)
        rc = make_coded(cursor, err);
    cursor->has_dictionary = rc == 0;
    return rc;
}

static int bad_encoding(int encoding, struct stg_err *err)
{
    return stg_err(err, -STAGER_UNIMPLEMENTED,
                   "the encoding of its levels is %d, which is not supported", encoding);
}

/* Takes levels that follow their length, of a page of version 1. */
static int take_levels(struct stg_parquet_bytes *bytes, int encoding,
                       struct stg_parquet_bytes *ret, struct stg_err *err)
{
    uint32_t n = 0;
    if (encoding != STG_PARQUET_RLE)
        return bad_encoding(encoding, err);
    if (stg_parquet_left(bytes) < LEVEL_LENGTH_BYTES)
        return damaged(err, "the page has no room for its levels");
    memcpy(&n, bytes->at, LEVEL_LENGTH_BYTES);
    bytes->at += LEVEL_LENGTH_BYTES;
    if (n > stg_parquet_left(bytes))
        return damaged(err, "its levels are longer than the page");
    ret->at = bytes->at;
    ret->end = bytes->at += n;
    return 0;
}

/* Finds the levels of repetition and of definition in a page, which lie before its
 * values. */
static int find_levels(const struct stg_parquet_cursor *cursor,
                       struct stg_parquet_bytes *bytes, struct stg_parquet_bytes *repeats,
                       struct stg_parquet_bytes *levels, struct stg_err *err)
{
    const struct stg_parquet_page_header *header = &cursor->header;
    int rc = 0;
    repeats->at = repeats->end = levels->at = levels->end = bytes->at;
    if (header->kind == STG_PARQUET_DATA_PAGE_V2) {
        repeats->end += header->repetition_bytes;
        levels->at = repeats->end;
        levels->end = bytes->at += header->level_bytes;
    } else {
        if (is_list(cursor))
            rc = take_levels(bytes, header->repetition_encoding, repeats, err);
        if (rc == 0 && cursor->leaf->max_level > 0)
            rc = take_levels(bytes, header->level_encoding, levels, err);
    }
    if (cursor->leaf->max_level == 0)
        levels->at = levels->end;
    return rc;
}

/* Values lie at a multiple of 64 in memory, if the levels before them are as usual. */
static uint64_t pad_of(const struct stg_parquet_cursor *cursor)
{
    const struct stg_parquet_page_header *header = &cursor->header;
    uint64_t before = header->kind == STG_PARQUET_DATA_PAGE_V2
                          ? header->level_bytes
                          : stg_parquet_level_bytes(header->n, cursor->leaf->max_level);
    return (ALIGN - before % ALIGN) % ALIGN;
}

/* Drops the memory of the page before from the values, so that it is used again. */
static void drop_page(struct stg_parquet_cursor *cursor)
{
    stg_chunk_unref(cursor->values.data);
    cursor->values.data = NULL;
}

/* Reads the page. *ret: its values. */
static int begin_page(struct stg_parquet_cursor *cursor, struct stg_parquet_bytes *ret,
                      bool *ret_storage, struct stg_err *err)
{
    struct stg_parquet_bytes repeats, levels;
    uint64_t pad = pad_of(cursor);
    drop_page(cursor);
    int rc = read_page(cursor, &cursor->header, cursor->page_at, &pad, &cursor->page,
                       ret_storage, err);
    if (rc < 0)
        return rc;
    ret->at = (const uint8_t *)cursor->page->data + pad;
    ret->end = ret->at + cursor->header.plain_bytes;
    rc = find_levels(cursor, ret, &repeats, &levels, err);
    if (rc < 0)
        return rc;
    cursor->has_levels = levels.at < levels.end;
    rc = stg_parquet_begin_levels(&cursor->levels, levels, cursor->leaf->max_level, err);
    if (rc == 0)
        rc = stg_parquet_begin_levels(&cursor->repeats, repeats, cursor->leaf->n_lists,
                                      err);
    if (rc == 0 && has_indices(cursor))
        rc = stg_parquet_begin_indices(&cursor->indices, *ret, err);
    cursor->is_begun = rc == 0;
    return rc;
}

static struct stg_parquet_page page_of(struct stg_parquet_cursor *cursor)
{
    return (struct stg_parquet_page){
        .column = cursor->column,
        .leaf = cursor->leaf,
        .encoding = cursor->header.encoding,
        .n = cursor->n,
        .levels = cursor->has_levels ? &cursor->levels : NULL,
        .indices = has_indices(cursor) ? &cursor->indices : NULL,
        .dictionary = cursor->has_dictionary ? &cursor->dictionary : NULL,
        .coded =
            has_indices(cursor) && cursor->coded != NULL ? &cursor->coded->strings : NULL,
        .quota = cursor->reading->quota};
}

/* Reads what the part needs: the dictionary, and the page, whose values are *ret.
 * *ret_at: the offset of the page that an error is of. */
static int prepare(struct stg_parquet_cursor *cursor, struct stg_parquet_bytes *ret,
                   uint64_t *ret_at, bool *ret_storage, struct stg_err *err)
{
    *ret_at = cursor->dictionary_at;
    int rc = has_indices(cursor) ? decode_dictionary(cursor, ret_storage, err) : 0;
    if (rc < 0)
        return rc;
    *ret_at = cursor->at;
    if (has_indices(cursor) && !cursor->has_dictionary)
        return damaged(err, "the column has no dictionary");
    return cursor->is_begun ? 0 : begin_page(cursor, ret, ret_storage, err);
}

static int decode_page(struct stg_parquet_cursor *cursor, struct stg_parquet_page *page,
                       struct stg_parquet_bytes bytes, struct stg_err *err)
{
    page->bytes = bytes;
    drop_page(cursor);
    cursor->values.data =
        stg_chunk_ref(page->indices != NULL ? cursor->dictionary.data : cursor->page);
    return stg_parquet_decode(page, &cursor->values, err);
}

static int decode(struct stg_parquet_cursor *cursor, struct stg_err *err)
{
    struct stg_parquet_bytes bytes = {0};
    struct stg_err why = {0};
    bool is_storage = false;
    uint64_t at;
    int rc = prepare(cursor, &bytes, &at, &is_storage, &why);
    if (rc == 0) {
        struct stg_parquet_page page = page_of(cursor);
        rc = decode_page(cursor, &page, bytes, &why);
    }
    cursor->is_decoded = rc == 0;
    return conclude(cursor, rc, is_storage, at, &why, err);
}

/* ---- parts of pages ---- */

/* Passes over the part that the cursor is at, which was not decoded. */
static int pass_part(struct stg_parquet_cursor *cursor, struct stg_err *err)
{
    struct stg_parquet_bytes bytes;
    struct stg_err why = {0};
    bool is_storage = false;
    uint64_t at;
    int rc = prepare(cursor, &bytes, &at, &is_storage, &why);
    if (rc == 0) {
        struct stg_parquet_page page = page_of(cursor);
        rc = stg_parquet_pass(&page, &why);
    }
    return conclude(cursor, rc, is_storage, at, &why, err);
}

/* To the next part of the page, or the first one of the next page. Parts that lie before
 * the row, in the page of the row, are passed. */
static int next_part(struct stg_parquet_cursor *cursor, uint64_t row, struct stg_err *err)
{
    bool is_last = cursor->n_behind == 0;
    if (is_last || row >= cursor->first + cursor->n + cursor->n_behind) {
        cursor->n += cursor->n_behind;
        cursor->n_behind = 0;
        return next_page(cursor, err);
    }
    int rc = cursor->is_decoded ? 0 : pass_part(cursor, err);
    if (rc < 0 || cursor->lost.code != 0)
        return rc;
    cursor->first += cursor->n;
    uint64_t most = part_rows(cursor);
    cursor->n = cursor->n_behind < most ? cursor->n_behind : most;
    cursor->n_behind -= cursor->n;
    cursor->is_decoded = false;
    return 0;
}

/* ---- lists ---- */

/* Goes to the next page, unless some of this one is left. Returns in *ret the levels of
 * the next part. */
static int begin_part(struct stg_parquet_cursor *cursor, uint64_t *ret, bool *ret_storage,
                      struct stg_err *err)
{
    if (cursor->n_behind == 0) {
        cursor->is_begun = false;
        int rc = find_page(cursor, ret_storage, err);
        if (rc < 0)
            return rc;
        cursor->n_behind = cursor->header.n;
    }
    bool is_large = has_indices(cursor) && cursor->n_behind > MAX_PART;
    *ret = is_large ? MAX_PART : cursor->n_behind;
    return 0;
}

/* Decodes the next part. *ret_at: the offset of the page that an error is of. */
static int take_part(struct stg_parquet_cursor *cursor, uint64_t *ret_at,
                     bool *ret_storage, struct stg_err *err)
{
    struct stg_parquet_lists *lists = &cursor->lists;
    struct stg_parquet_bytes bytes = {0};
    uint64_t n = 0;
    int rc = begin_part(cursor, &n, ret_storage, err);
    *ret_at = cursor->at;
    if (rc == 0 && n > 0)
        rc = prepare(cursor, &bytes, ret_at, ret_storage, err);
    if (rc < 0 || n == 0)
        return rc;
    cursor->n_behind -= n;
    cursor->n_levels -= n;
    rc = stg_parquet_lists_read(lists, n, &cursor->repeats, &cursor->levels,
                                &cursor->values, err);
    if (rc < 0)
        return rc;
    struct stg_parquet_page page = page_of(cursor);
    page.n = lists->n_slots;
    page.levels = NULL;
    page.valid = lists->valid;
    page.n_valid = lists->n_valid;
    return decode_page(cursor, &page, bytes, err);
}

static int find_rows(struct stg_parquet_cursor *cursor, uint64_t *ret_at,
                     bool *ret_storage, struct stg_err *err)
{
    struct stg_parquet_lists *lists = &cursor->lists;
    int rc = 0;
    *ret_at = cursor->at;
    while (rc == 0 && cursor->n == 0) {
        rc = stg_parquet_lists_next(lists, cursor->n_levels == 0, &cursor->n, err);
        if (rc < 0 || cursor->n > 0)
            break;
        rc = cursor->n_levels > 0
                 ? take_part(cursor, ret_at, ret_storage, err)
                 : damaged(err, "the column has fewer rows than its row group");
    }
    if (rc == 0 && cursor->n > cursor->n_rows - cursor->first)
        rc = damaged(err, "the column has more rows than its row group");
    return rc;
}

static int next_rows(struct stg_parquet_cursor *cursor, struct stg_err *err)
{
    struct stg_err why = {0};
    bool is_storage = false;
    uint64_t at;
    cursor->first += cursor->n;
    cursor->n = 0;
    int rc = find_rows(cursor, &at, &is_storage, &why);
    cursor->is_decoded = rc == 0;
    return conclude(cursor, rc, is_storage, at, &why, err);
}

static void begin_lists(struct stg_parquet_cursor *cursor)
{
    cursor->lists.column = cursor->column;
    cursor->lists.leaf = cursor->leaf;
    cursor->lists.quota = cursor->reading->quota;
    cursor->n_levels = cursor->range.n_values;
    stg_parquet_lists_begin(&cursor->lists);
}

/* ---- a column that the file lacks ---- */

static uint64_t n_fill(const struct stg_parquet_cursor *cursor, uint64_t left)
{
    uint64_t most = MAX_FILL;
    for (unsigned d = 0; d < cursor->column->want.n_lists; d++)
        most /= cursor->column->shape[d] > 0 ? (uint64_t)cursor->column->shape[d] : 1;
    most = most > 0 ? most : 1;
    return left < most ? left : most;
}

static int fill(struct stg_parquet_cursor *cursor, uint64_t row, struct stg_err *err)
{
    uint64_t n_values;
    int rc = 0;
    cursor->first = row;
    cursor->n = n_values = n_fill(cursor, cursor->n_rows - row);
    if (is_list(cursor))
        rc = stg_parquet_lists_fill(&cursor->lists, cursor->n, &cursor->values, &n_values,
                                    err);
    if (rc == 0)
        rc = stg_parquet_fill(cursor->column, n_values, cursor->reading->quota,
                              &cursor->values, err);
    cursor->is_decoded = rc == 0;
    return rc;
}

/* ---- the cursor ---- */

void stg_parquet_cursor_begin(struct stg_parquet_cursor *cursor,
                              const struct stg_parquet_file *file, uint32_t column,
                              uint32_t group)
{
    cursor->leaf = &file->leaves[column];
    cursor->group = group;
    cursor->n_rows = file->ends[group] - (group > 0 ? file->ends[group - 1] : 0);
    cursor->range = file->ranges[(uint64_t)group * file->n_columns + column];
    cursor->first = cursor->n = cursor->n_behind = 0;
    cursor->n_ahead = 0;
    cursor->is_decoded = cursor->is_begun = false;
    cursor->lost.code = 0;
    cursor->dictionary_page_at = 0;
    cursor->has_dictionary = false;
    drop_coded(cursor);
    if (is_list(cursor))
        begin_lists(cursor);
    const struct stg_storage *storage = cursor->reading->source->storage;
    if (storage->will_need != NULL && cursor->range.end > cursor->range.begin)
        storage->will_need(cursor->reading->source, cursor->range.begin,
                           cursor->range.end - cursor->range.begin);
}

int stg_parquet_cursor_go(struct stg_parquet_cursor *cursor, uint64_t row,
                          struct stg_err *err)
{
    int rc = 0;
    bool is_there = row < cursor->first + cursor->n;
    if (!cursor->leaf->is_there && (!is_there || !cursor->is_decoded))
        return fill(cursor, row, err);
    while (rc == 0 && row >= cursor->first + cursor->n)
        rc = is_list(cursor) ? next_rows(cursor, err) : next_part(cursor, row, err);
    return rc == 0 && !cursor->is_decoded ? decode(cursor, err) : rc;
}

void stg_parquet_cursor_finish(struct stg_parquet_cursor *cursor)
{
    stg_parquet_values_finish(&cursor->values);
    stg_parquet_values_finish(&cursor->dictionary);
    stg_parquet_lists_finish(&cursor->lists);
    drop_coded(cursor);
    stg_chunk_unref(cursor->page);
    cursor->page = NULL;
}
