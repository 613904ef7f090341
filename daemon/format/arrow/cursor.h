/* SPDX-License-Identifier: Apache-2.0
 *
 * A column of an Arrow file, some rows of a record batch at a time. Begins at any row: of
 * a column that is not compressed no byte before it is read. One thread at a time.
 */
#ifndef STG_DAEMON_ARROW_CURSOR_H
#define STG_DAEMON_ARROW_CURSOR_H

#include "daemon/format/arrow/file.h"
#include "daemon/format/arrow/lists.h"

struct stg_arrow_cursor {
    struct stg_arrow_reading *reading;
    const struct stg_arrow_column *column;
    const struct stg_arrow_file *file;
    const struct stg_arrow_leaf *leaf; /* of the file */
    uint32_t batch;
    uint64_t n_rows; /* of the batch */
    struct stg_arrow_inputs inputs;

    uint64_t first, n; /* rows of the batch that were decoded; n 0: none */
    struct stg_arrow_values values;
    struct stg_arrow_lists lists; /* of a column of lists: the rows */
    struct stg_err lost;          /* code != 0: none of those rows can be had */

    /* The dictionary, as it is after message dictionary_at - 1 of those of the file. */
    struct stg_arrow_values dictionary;
    uint32_t dictionary_at; /* 0: none was read */
    uint32_t dictionary_from;
};

/* Begins a file. The cursor was zeroed but for reading and column, or used before. The
 * file must stay open. */
void stg_arrow_cursor_open(struct stg_arrow_cursor *cursor,
                           const struct stg_arrow_file *file, uint32_t column);

/* Begins a record batch of the file for n cursors. Errors are those of
 * stg_arrow_cursor_go; *ret is the cursor. */
int stg_arrow_cursors_begin(struct stg_arrow_cursor *cursors, uint32_t n, uint32_t batch,
                            struct stg_err *err);

/* Decodes rows of the batch, from `row` on: about `want`, and more if they follow the
 * ones before. Errors: RESOURCE_EXHAUSTED, CANCELLED, those of the storage; values that
 * cannot be had are no error, but set cursor->lost. */
int stg_arrow_cursor_go(struct stg_arrow_cursor *cursor, uint64_t row, uint64_t want,
                        struct stg_err *err);
/* Gives the rest of the batch up with the error that begin or go returned. */
void stg_arrow_cursor_lose(struct stg_arrow_cursor *cursor, uint64_t row,
                           const struct stg_err *why);
void stg_arrow_cursor_finish(struct stg_arrow_cursor *cursor);

#endif
