/* SPDX-License-Identifier: Apache-2.0
 *
 * The option `filters` of a step: conditions on columns, also on those that the step does
 * not yield, and on folders of the path. Pure functions; any thread.
 */
#ifndef STG_DAEMON_DATASET_SOURCES_FILTERS_H
#define STG_DAEMON_DATASET_SOURCES_FILTERS_H

#include "daemon/dataset/sources/columns.h"
#include "daemon/format/row_filter.h"

bool stg_filters_any(const struct stg_step *step);

/* Reads the conditions over the n columns of the step. One that cannot be of such a
 * column, because that is not declared or has a default, is of one more: *ret_columns are
 * all, in bump, *ret_n of them, the declared ones first. The dtype of an undeclared one
 * is STAGER_DT_INVALID. INVALID_ARGUMENT; RESOURCE_EXHAUSTED. */
int stg_filters_read(const struct stg_step *step,
                     const struct stg_declared_column *columns, size_t n,
                     struct stg_bump *bump, struct stg_row_filter *ret,
                     struct stg_declared_column **ret_columns, size_t *ret_n,
                     struct stg_err *err);

/* Sets what the folders of a file say of each condition. Returns 1 if no row of the file
 * is kept. INVALID_ARGUMENT; RESOURCE_EXHAUSTED. */
int stg_filters_look(struct stg_row_filter *filter,
                     const struct stg_declared_column *columns, const char *url,
                     struct stg_err *err);

#endif
