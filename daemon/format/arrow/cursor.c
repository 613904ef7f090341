/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/arrow/cursor.h"

#include <inttypes.h>

#define MIN_ROWS 64u /* that are decoded at once */
#define MAX_FILL 65536u

/* ---- what is lost ---- */

static int prefix(const struct stg_arrow_cursor *cursor, int rc, struct stg_err *err)
{
    return stg_err_prefix(err, rc,
                          "column %.256s, record batch %" PRIu32 " at offset %" PRIu64,
                          cursor->column->want.name, cursor->batch,
                          cursor->file->batches[cursor->batch].piece.at);
}

void stg_arrow_cursor_lose(struct stg_arrow_cursor *cursor, uint64_t row,
                           const struct stg_err *why)
{
    cursor->lost = *why;
    cursor->first = row;
    cursor->n = cursor->n_rows - row;
}

/* Gives the rows from `row` on up if the data is to blame. */
static int conclude(struct stg_arrow_cursor *cursor, uint64_t row, int rc,
                    struct stg_err *why, struct stg_err *err)
{
    bool is_of_data = !cursor->reading->is_storage &&
                      (rc == -STAGER_DATA_LOSS || rc == -STAGER_UNIMPLEMENTED);
    cursor->reading->is_storage = false;
    if (rc == 0)
        return 0;
    prefix(cursor, rc, why);
    if (is_of_data) {
        stg_arrow_cursor_lose(cursor, row, why);
        return 0;
    }
    if (err != NULL)
        *err = *why;
    return rc;
}

/* ---- dictionaries ---- */

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its dictionary is damaged: %s", what);
}

static int decode_dictionary(struct stg_arrow_cursor *cursor,
                             struct stg_arrow_inputs *inputs, uint64_t n,
                             struct stg_arrow_values *ret, struct stg_err *err)
{
    struct stg_arrow_leaf leaf = {.is_there = true, .field = cursor->leaf->field};
    struct stg_arrow_request request = {.reading = cursor->reading,
                                        .column = cursor->column,
                                        .leaf = &leaf,
                                        .inputs = inputs,
                                        .n = n,
                                        .is_whole = true};
    leaf.field.has_dictionary = false;
    if (n > 0) {
        int rc = stg_arrow_decode(&request, ret, err);
        return rc == 0 && ret->n < n ? damaged(err, "an offset is out of range") : rc;
    }
    int rc = stg_arrow_fill(cursor->reading, cursor->column, 1, ret, err);
    ret->n = 0;
    return rc;
}

static int read_dictionary(struct stg_arrow_cursor *cursor,
                           const struct stg_arrow_dictionary *from,
                           struct stg_arrow_values *ret, struct stg_err *err)
{
    struct stg_arrow_reading *reading = cursor->reading;
    struct stg_arrow_leaf leaf = {.is_there = true, .field = cursor->leaf->field};
    struct stg_arrow_inputs inputs = {0};
    struct stg_arrow_message message;
    struct stg_arrow_piece piece;
    struct stg_arrow_part part;
    leaf.field.has_dictionary = false;
    uint64_t end = from->piece.body + from->piece.body_bytes;
    int rc = stg_arrow_message_at(reading->source, reading->quota, from->piece.at, end,
                                  from->piece.metadata_bytes, &reading->metadata, &piece,
                                  &message, &reading->is_storage, err);
    if (rc == 1 || (rc == 0 && (!message.has_batch || message.dictionary != from->id)))
        rc = damaged(err, "the file has changed");
    if (rc == 0)
        rc = stg_arrow_find_part(&leaf, &message, &piece, &part, err);
    if (rc < 0)
        return rc;
    stg_arrow_inputs_init(&inputs, &part);
    rc = decode_dictionary(cursor, &inputs, part.n_rows, ret, err);
    stg_arrow_inputs_finish(&inputs);
    return rc;
}

static void drop_dictionary(struct stg_arrow_cursor *cursor)
{
    stg_arrow_values_finish(&cursor->dictionary);
    cursor->dictionary_at = 0;
}

/* Applies message i of the dictionaries of the file. */
static int apply(struct stg_arrow_cursor *cursor, uint32_t i, struct stg_err *err)
{
    const struct stg_arrow_dictionary *from = &cursor->file->dictionaries[i];
    struct stg_arrow_values values = {0};
    int rc = read_dictionary(cursor, from, &values, err);
    if (rc == 0 && from->is_delta) {
        rc = stg_arrow_values_append(cursor->reading, cursor->column, &cursor->dictionary,
                                     &values, err);
    } else if (rc == 0) {
        stg_arrow_values_finish(&cursor->dictionary);
        cursor->dictionary = values;
        values = (struct stg_arrow_values){0};
    }
    stg_arrow_values_finish(&values);
    return rc;
}

/* Finds the last message before number n that replaces the dictionary. Returns UINT32_MAX
 * if there is none. */
static uint32_t find_base(const struct stg_arrow_cursor *cursor, uint32_t n)
{
    const struct stg_arrow_dictionary *all = cursor->file->dictionaries;
    for (uint32_t i = n; i-- > 0;) {
        if (all[i].id == cursor->leaf->field.dictionary && !all[i].is_delta)
            return i;
    }
    return UINT32_MAX;
}

/* Makes the dictionary that of the batch. */
static int load_dictionary(struct stg_arrow_cursor *cursor, struct stg_err *err)
{
    const struct stg_arrow_dictionary *all = cursor->file->dictionaries;
    uint32_t n = cursor->file->batches[cursor->batch].n_dictionaries;
    uint32_t base = find_base(cursor, n);
    if (base == UINT32_MAX)
        return damaged(err, "the file has none");
    bool is_ahead = cursor->dictionary_at > 0 && cursor->dictionary_from == base &&
                    cursor->dictionary_at <= n;
    if (!is_ahead)
        drop_dictionary(cursor);
    cursor->dictionary_from = base;
    for (uint32_t i = is_ahead ? cursor->dictionary_at : base; i < n; i++) {
        int rc = all[i].id == cursor->leaf->field.dictionary ? apply(cursor, i, err) : 0;
        if (rc < 0) {
            drop_dictionary(cursor);
            return rc;
        }
    }
    cursor->dictionary_at = n;
    return 0;
}

/* ---- batches ---- */

static void begin(struct stg_arrow_cursor *cursor, uint32_t batch)
{
    const struct stg_arrow_batch *batches = cursor->file->batches;
    cursor->batch = batch;
    cursor->n_rows = batches[batch].end - (batch > 0 ? batches[batch - 1].end : 0);
    cursor->first = cursor->n = 0;
    cursor->lost.code = 0;
}

/* Reads the metadata of a batch once more: the file was checked when it was opened. */
static int read_batch(struct stg_arrow_cursor *cursor, struct stg_arrow_message *ret,
                      struct stg_arrow_piece *ret_piece, struct stg_err *err)
{
    struct stg_arrow_reading *reading = cursor->reading;
    const struct stg_arrow_piece *piece = &cursor->file->batches[cursor->batch].piece;
    int rc = stg_arrow_message_at(reading->source, reading->quota, piece->at,
                                  piece->body + piece->body_bytes, piece->metadata_bytes,
                                  &reading->metadata, ret_piece, ret,
                                  &reading->is_storage, err);
    bool is_same = rc == 0 && ret->has_batch && ret_piece->body == piece->body &&
                   (uint64_t)ret->batch.n_rows == cursor->n_rows;
    if (rc < 0 || is_same)
        return rc;
    return stg_err(err, -STAGER_DATA_LOSS, "the file has changed since it was opened");
}

/* Finds the buffers of a column. */
static int find_inputs(struct stg_arrow_cursor *cursor,
                       const struct stg_arrow_message *message,
                       const struct stg_arrow_piece *piece, struct stg_err *err)
{
    struct stg_arrow_part part;
    struct stg_err why = {0};
    int rc = stg_arrow_find_part(cursor->leaf, message, piece, &part, &why);
    if (rc == 0)
        stg_arrow_inputs_init(&cursor->inputs, &part);
    return conclude(cursor, 0, rc, &why, err);
}

int stg_arrow_cursors_begin(struct stg_arrow_cursor *cursors, uint32_t n, uint32_t batch,
                            struct stg_err *err)
{
    struct stg_arrow_message message;
    struct stg_arrow_piece piece;
    struct stg_err why = {0};
    for (uint32_t c = 0; c < n; c++)
        begin(&cursors[c], batch);
    int rc = read_batch(&cursors[0], &message, &piece, &why);
    int is_lost = rc;
    bool is_storage = cursors[0].reading->is_storage;
    for (uint32_t c = 0; c < n; c++) {
        struct stg_err one = why;
        if (!cursors[c].leaf->is_there)
            continue;
        cursors[c].reading->is_storage = is_storage;
        rc = is_lost < 0 ? conclude(&cursors[c], 0, is_lost, &one, err)
                         : find_inputs(&cursors[c], &message, &piece, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- the cursor ---- */

void stg_arrow_cursor_open(struct stg_arrow_cursor *cursor,
                           const struct stg_arrow_file *file, uint32_t column)
{
    cursor->file = file;
    cursor->leaf = &file->leaves[column];
    cursor->first = cursor->n = 0;
    drop_dictionary(cursor);
}

static bool is_list(const struct stg_arrow_cursor *cursor)
{
    return cursor->column->want.n_lists > 0;
}

/* Returns how many rows to decode: more, if they follow those before. Of lists, whose
 * lengths are not known, twice as many as were had before. */
static uint64_t rows_of(const struct stg_arrow_cursor *cursor, uint64_t row,
                        uint64_t want)
{
    uint64_t most = is_list(cursor)
                        ? stg_arrow_lists_at_once(cursor->column, cursor->leaf)
                        : stg_arrow_values_at_once(cursor->column, cursor->leaf);
    uint64_t n = want > MIN_ROWS ? want : MIN_ROWS, left = cursor->n_rows - row;
    bool follows = cursor->n > 0 && row == cursor->first + cursor->n;
    if (follows && (is_list(cursor) || n < 2 * cursor->n))
        n = 2 * cursor->n;
    n = n < most ? n : most;
    return n < left ? n : left;
}

static int decode(struct stg_arrow_cursor *cursor, uint64_t row, uint64_t n,
                  struct stg_err *err)
{
    bool has_dictionary = cursor->leaf->field.has_dictionary;
    struct stg_arrow_request request = {.reading = cursor->reading,
                                        .column = cursor->column,
                                        .leaf = cursor->leaf,
                                        .inputs = &cursor->inputs,
                                        .dictionary =
                                            has_dictionary ? &cursor->dictionary : NULL,
                                        .first = row,
                                        .n = n};
    int rc = has_dictionary ? load_dictionary(cursor, err) : 0;
    if (rc < 0)
        return rc;
    return is_list(cursor)
               ? stg_arrow_lists_decode(&request, &cursor->lists, &cursor->values, err)
               : stg_arrow_decode(&request, &cursor->values, err);
}

static int fill(struct stg_arrow_cursor *cursor, uint64_t n, struct stg_err *err)
{
    n = n < MAX_FILL ? n : MAX_FILL;
    return is_list(cursor)
               ? stg_arrow_lists_fill(cursor->reading, cursor->column, n, &cursor->lists,
                                      &cursor->values, err)
               : stg_arrow_fill(cursor->reading, cursor->column, n, &cursor->values, err);
}

int stg_arrow_cursor_go(struct stg_arrow_cursor *cursor, uint64_t row, uint64_t want,
                        struct stg_err *err)
{
    struct stg_err why = {0};
    if (row >= cursor->first && row < cursor->first + cursor->n)
        return 0;
    uint64_t n = rows_of(cursor, row, want);
    cursor->first = row;
    cursor->n = 0;
    cursor->lost.code = 0;
    int rc =
        cursor->leaf->is_there ? decode(cursor, row, n, &why) : fill(cursor, n, &why);
    if (rc == 0)
        cursor->n = is_list(cursor) ? cursor->lists.rows.n : cursor->values.n;
    return conclude(cursor, row, rc, &why, err);
}

void stg_arrow_cursor_finish(struct stg_arrow_cursor *cursor)
{
    stg_arrow_values_finish(&cursor->values);
    stg_arrow_lists_finish(&cursor->lists);
    stg_arrow_values_finish(&cursor->dictionary);
    stg_arrow_inputs_finish(&cursor->inputs);
}
