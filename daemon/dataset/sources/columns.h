/* SPDX-License-Identifier: Apache-2.0
 *
 * The columns that a step declares, by name and dtype, and the defaults of some: the
 * options `columns`, `shapes`
 * and `defaults`. Pure functions; any thread.
 */
#ifndef STG_DAEMON_DATASET_SOURCES_COLUMNS_H
#define STG_DAEMON_DATASET_SOURCES_COLUMNS_H

#include "daemon/dataset/step.h"

/* Strings are those of the step. */
struct stg_declared_column {
    const char *name;
    int dtype;
    uint32_t size;    /* of its shape: so many numbers in each row; 0: one value */
    bool has_default; /* for nulls, and for files without the column */
    uint64_t value;   /* that of a number, in its first bytes */
    const char *text; /* and that of a string */
    uint64_t text_bytes;
};

/* Sets *ret to the number of columns, 1 to 4096, and checks that each default and each
 * shape is that of a column. INVALID_ARGUMENT. */
int stg_columns_count(const struct stg_step *step, size_t *ret, struct stg_err *err);

/* Reads the columns that were counted, in the order of the text. INVALID_ARGUMENT. */
int stg_columns_read(const struct stg_step *step, struct stg_declared_column *ret,
                     struct stg_err *err);

/* Sets the components of a schema. */
void stg_columns_infer(const struct stg_declared_column *columns, size_t n,
                       struct stg_component *ret);

#endif
