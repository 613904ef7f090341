/* SPDX-License-Identifier: Apache-2.0
 *
 * The page index of a Parquet file: of the pages of a column in a row group, which rows
 * they have and bounds of their values. Rows of which the filter keeps none by these are
 * excluded. An index that is absent, damaged, or of more than a quarter of the quota
 * excludes nothing, and is no error. One thread.
 */
#ifndef STG_DAEMON_PARQUET_PAGE_INDEX_H
#define STG_DAEMON_PARQUET_PAGE_INDEX_H

#include "daemon/format/parquet/footer.h"
#include "daemon/format/parquet/values.h"

/* Of a condition of the filter: the rows of the group up to the end of each page, and
 * whether one of the page may fulfil the condition. n 0: nothing is known. */
struct stg_parquet_paged {
    uint64_t n;
    const uint64_t *ends;
    const uint8_t *may;
    struct stg_chunk *memory; /* of both */
};

/* Of the row group that was read last. Zeroed before the first one. */
struct stg_parquet_pages {
    uint32_t group, n; /* n: conditions; 0: no group was read */
    struct stg_parquet_paged *conditions;
    uint8_t *may; /* scratch memory, of each condition */
};

/* Reads the index of the columns of the filter in a row group, unless it did before. The
 * file was opened with the filter; columns are those that it was opened for.
 * RESOURCE_EXHAUSTED: the dataset has no memory left. */
int stg_parquet_pages_read(struct stg_parquet_pages *pages, struct stg_source *source,
                           const struct stg_parquet_file *file,
                           const struct stg_parquet_column *columns,
                           const struct stg_row_filter *filter, uint32_t group,
                           struct stg_err *err);

/* Returns how many rows of the group, from that one on, are excluded. */
uint64_t stg_parquet_pages_excluded(struct stg_parquet_pages *pages,
                                    const struct stg_row_filter *filter, uint64_t row);

/* Forgets the row group: another file, or the end. */
void stg_parquet_pages_finish(struct stg_parquet_pages *pages);

#endif
