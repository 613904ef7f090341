/* SPDX-License-Identifier: Apache-2.0
 *
 * The columns that a step declares, by name and dtype, with the shapes of lists and the
 * defaults of some: the options `columns`, `shapes` and `defaults`; and rows of lists as
 * components. Pure functions; any thread.
 */
#ifndef STG_DAEMON_DATASET_SOURCES_COLUMNS_H
#define STG_DAEMON_DATASET_SOURCES_COLUMNS_H

#include "daemon/dataset/block.h"
#include "daemon/dataset/step.h"
#include "daemon/format/list_rows.h"

/* Strings are those of the step. */
struct stg_declared_column {
    const char *name;
    int dtype;
    unsigned n_lists;             /* a value lies in so many lists, one in another */
    int64_t shape[STG_MAX_LISTS]; /* of the lists; -1: any length */
    bool has_default;             /* for nulls, and for files without the column */
    uint64_t value;               /* that of a number, in its first bytes */
    const char *text;             /* and that of a string */
    uint64_t text_bytes;
};

/* Sets *ret to the number of columns, 1 to 4096, and checks that each default and each
 * shape is that of a column. INVALID_ARGUMENT. */
int stg_columns_count(const struct stg_step *step, size_t *ret, struct stg_err *err);

/* Reads the columns that were counted, in the order of the text. INVALID_ARGUMENT. */
int stg_columns_read(const struct stg_step *step, struct stg_declared_column *ret,
                     struct stg_err *err);

/* Creates the schema of the step: a component for each column, or two of lists of lists
 * that vary in length, values and row_splits. INVALID_ARGUMENT; RESOURCE_EXHAUSTED. */
int stg_columns_infer(const struct stg_step *step, struct stg_bump *bump,
                      struct stg_schema *ret, struct stg_err *err);

/* What a column shows of n rows, from row `at` on; of lists, which are alike unless
 * is_uneven. */
struct stg_column_view {
    const struct stg_declared_column *column;
    const struct stg_list_rows *rows; /* of lists */
    uint64_t at, n;
    bool is_uneven;
};

/* Returns the bytes that a block needs for row_splits, and for splits of uneven tensors.
 */
uint64_t stg_column_splits_room(const struct stg_column_view *view);

/* Sets dtype and shape of *tensor, and the row_splits behind it, if it has some. Sets
 * *ret_first and *ret_n: the values that the caller shows. Returns behind the components.
 */
struct stg_tensor *stg_column_show(const struct stg_column_view *view,
                                   struct stg_block *block, struct stg_tensor *tensor,
                                   uint64_t *ret_first, uint64_t *ret_n);

/* Sets the reason for which row `at` cannot be had: a null, or a list of another length.
 */
void stg_column_explain(const struct stg_column_view *view, struct stg_err *ret);

#endif
