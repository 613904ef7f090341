/* SPDX-License-Identifier: Apache-2.0
 *
 * The footer of a Parquet file: of some of its columns, what they are and where their
 * bytes lie. What a file says is checked before it is used: ranges lie in the file, and
 * numbers of rows agree. One thread.
 */
#ifndef STG_DAEMON_PARQUET_FOOTER_H
#define STG_DAEMON_PARQUET_FOOTER_H

#include "daemon/format/parquet/schema.h"
#include "daemon/format/row_filter.h"
#include "daemon/storage/chunk.h"
#include "daemon/storage/codec/page_codec.h"
#include "daemon/storage/storage.h"

/* Its pages in one row group. */
struct stg_parquet_range {
    uint64_t begin, end; /* in the file */
    uint64_t n_values;   /* rows; of a list one for each element, and each list without */
    enum stg_page_codec codec;
};

/* A part of the file; bytes 0: there is none. */
struct stg_parquet_part {
    uint64_t at;
    uint32_t bytes;
};

/* The page index of a column in one row group: page_index.h. */
struct stg_parquet_index {
    struct stg_parquet_part bounds, offsets; /* ColumnIndex, OffsetIndex */
};

struct stg_parquet_file {
    uint32_t n_columns, n_groups;
    struct stg_parquet_leaf *leaves; /* one for each column */
    /* The number of rows up to the end of each group. */
    uint64_t *ends;
    struct stg_parquet_range *ranges; /* of each group, n_columns */
    /* With a filter; else NULL. */
    uint8_t *excluded;                 /* 1: no row of the group is kept */
    bool *is_ordered;                  /* of each column: see stg_parquet_bounds */
    struct stg_parquet_index *indexes; /* as ranges are */
    struct stg_quota *quota;           /* borrowed */
    uint64_t taken;                    /* of the quota */
};

/* Reads the footer of a file, and finds the row groups of which `filter` keeps no row;
 * NULL: it keeps all. A text names the column that cannot be read, not the file.
 * DATA_LOSS: it is damaged, or no Parquet file; INVALID_ARGUMENT: it has no such column,
 * one of another type, or one that the filter cannot compare; UNIMPLEMENTED: it is
 * encrypted, nested, or has another codec; RESOURCE_EXHAUSTED; any error of the storage,
 * which sets *ret_storage. */
int stg_parquet_open(struct stg_source *source, struct stg_quota *quota,
                     const struct stg_parquet_want *wants, uint32_t n,
                     const struct stg_row_filter *filter, struct stg_parquet_file **ret,
                     bool *ret_storage, struct stg_err *err);
void stg_parquet_close(struct stg_parquet_file *file); /* NULL is allowed */

/* The parts of FileMetaData, wherever they stand. */
struct stg_parquet_metadata {
    struct stg_thrift schema, groups, orders; /* lists of elements and of row groups; of
                                                 the orders of columns */
    uint64_t n_elements, n_groups, n_orders;
    int64_t n_rows;
};

/* Reads the footer of a file of that size: *ret points into *chunk, which the caller
 * unrefs, also on failure. Errors as those of stg_parquet_open. */
int stg_parquet_metadata_read(struct stg_source *source, uint64_t size,
                              struct stg_quota *quota, struct stg_chunk **chunk,
                              uint64_t *ret_bytes, struct stg_parquet_metadata *ret,
                              bool *ret_storage, struct stg_err *err);

/* Returns the name of a codec by its number in the format, "?" if there is none. */
const char *stg_parquet_codec_name(int64_t number, bool *ret_known);

static inline uint64_t stg_parquet_n_rows(const struct stg_parquet_file *file)
{
    return file->n_groups > 0 ? file->ends[file->n_groups - 1] : 0;
}

#endif
