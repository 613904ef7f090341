/* SPDX-License-Identifier: Apache-2.0
 *
 * A column of a file, page by page. Goes forward in a row group: pages before the row
 * that is wanted are passed by their headers. A page that cannot be read is lost with all
 * of its rows, and the rest of the row group with it if its header is damaged: which rows
 * are lost does not depend on where a cursor began. Of a list, whose pages need not end
 * with a row, no page is passed, and one that cannot be read costs the rest of the row
 * group. One thread at a time.
 */
#ifndef STG_DAEMON_PARQUET_CURSOR_H
#define STG_DAEMON_PARQUET_CURSOR_H

#include "daemon/format/parquet/lists.h"
#include "daemon/format/parquet/page_header.h"
#include "daemon/format/parquet/values.h"
#include "daemon/storage/codec/page_codec.h"
#include "daemon/storage/dictionary.h"

/* Read at once; a longer header is read again. */
#define STG_PARQUET_HEADER_BYTES 512u

/* What the columns of a reader share. The fields are borrowed, but for the codecs and the
 * scratch memory. */
struct stg_parquet_reading {
    struct stg_quota *quota;
    struct stg_source *source;
    struct stg_page_codecs codecs;
    uint64_t want;             /* rows that are asked for next; 0: unknown */
    struct stg_chunk *scratch; /* compressed pages and long headers; NULL: none */
};

void stg_parquet_reading_finish(struct stg_parquet_reading *reading);

struct stg_parquet_cursor {
    struct stg_parquet_reading *reading;
    const struct stg_parquet_column *column;
    const struct stg_parquet_leaf *leaf; /* of the file */
    uint32_t group;
    uint64_t n_rows;                /* of the row group */
    struct stg_parquet_range range; /* of its pages: begin is the next one */
    uint64_t ahead_at; /* bytes behind the page that was read last, which came with it */
    uint32_t n_ahead;
    char ahead[STG_PARQUET_HEADER_BYTES];

    /* The page, or a part of one: rows first to first + n - 1 of the group. */
    uint64_t first, n;
    uint64_t at, page_at; /* its header, and behind that */
    struct stg_parquet_page_header header;
    bool is_decoded;
    struct stg_parquet_values values;
    struct stg_err lost; /* code != 0: none of its values can be had */

    /* A page of indices that has more rows than one part. */
    uint64_t n_behind; /* rows of the page behind this part; of a list, levels */
    bool is_begun;     /* what follows is set */
    bool has_levels;
    struct stg_parquet_runs repeats, levels, indices;
    struct stg_chunk *page; /* that they lie in, decompressed; of any page, or NULL */

    /* Of a list: its rows, and the levels of the group that no part has taken. */
    struct stg_parquet_lists lists;
    uint64_t n_levels;

    /* The dictionary of the group; page_at 0: none so far. */
    struct stg_parquet_page_header dictionary_header;
    uint64_t dictionary_at, dictionary_page_at;
    bool has_dictionary; /* it was decoded */
    struct stg_parquet_values dictionary;
    struct stg_dictionary *coded; /* the same, and the default; NULL: values that are
                                     indices are not coded */
};

/* Begins a row group of a file. The cursor was zeroed but for reading and column, or used
 * before. The file must stay open. */
void stg_parquet_cursor_begin(struct stg_parquet_cursor *cursor,
                              const struct stg_parquet_file *file, uint32_t column,
                              uint32_t group);
/* Decodes the page of a row of the group, not before those of the page that it is at.
 * Errors: RESOURCE_EXHAUSTED, CANCELLED, those of the storage; values that cannot be had
 * are no error, but set cursor->lost. */
int stg_parquet_cursor_go(struct stg_parquet_cursor *cursor, uint64_t row,
                          struct stg_err *err);
/* Gives the page up with the error that stg_parquet_cursor_go returned. */
void stg_parquet_cursor_lose(struct stg_parquet_cursor *cursor,
                             const struct stg_err *why);
/* Returns the values of the rows that the cursor is at; of a list, cursor->lists. */
static inline const struct stg_parquet_values *stg_parquet_cursor_values(
    const struct stg_parquet_cursor *cursor)
{
    return cursor->column->want.n_lists > 0 ? cursor->lists.values : &cursor->values;
}
void stg_parquet_cursor_finish(struct stg_parquet_cursor *cursor);

#endif
