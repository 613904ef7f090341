/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a column of lists in a record batch: where the elements of each lie among the
 * values that are decoded with them. One thread.
 */
#ifndef STG_DAEMON_ARROW_LISTS_H
#define STG_DAEMON_ARROW_LISTS_H

#include "daemon/format/arrow/values.h"

struct stg_arrow_lists {
    struct stg_list_rows rows; /* bad: numbers of enum stg_arrow_state */
    struct stg_chunk *memory[STG_MAX_LISTS + 1]; /* of that; NULL: none */
};

void stg_arrow_lists_finish(struct stg_arrow_lists *lists);

/* Decodes rows of the request, at least 1, and fewer than n where their lists are long,
 * and their values. Errors as those of stg_arrow_decode. */
int stg_arrow_lists_decode(const struct stg_arrow_request *request,
                           struct stg_arrow_lists *lists, struct stg_arrow_values *values,
                           struct stg_err *err);

/* Makes rows of a column that the file lacks, n or fewer. */
int stg_arrow_lists_fill(struct stg_arrow_reading *reading,
                         const struct stg_arrow_column *column, uint64_t n,
                         struct stg_arrow_lists *lists, struct stg_arrow_values *values,
                         struct stg_err *err);

/* Returns the most rows to decode at once: about 64 KiB of the declared shape. */
uint64_t stg_arrow_lists_at_once(const struct stg_arrow_column *column,
                                 const struct stg_arrow_leaf *leaf);

#endif
