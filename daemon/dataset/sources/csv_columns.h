/* SPDX-License-Identifier: Apache-2.0
 *
 * The columns of CSV files with a header, by name: takes the records of the reader `csv`
 * apart by the kernels of decode_csv. Strings stay in the reader's chunk; what is quoted
 * is unescaped there. A record that cannot be had is an error item. One thread at a time.
 */
#ifndef STG_DAEMON_CSV_COLUMNS_H
#define STG_DAEMON_CSV_COLUMNS_H

#include "daemon/dataset/sources/reader.h"

/* Returns whether the step declares columns. */
bool stg_csv_has_columns(const struct stg_step *step);

/* Checks the columns and creates the schema of the step. */
int stg_csv_columns_infer(const struct stg_step *step, const struct stg_schema *in,
                          struct stg_bump *bump, struct stg_schema *ret,
                          struct stg_err *err);

/* As stg_transformation.create. config and options: of a reader of records; the options
 * get the names of the columns. */
int stg_csv_columns_create(struct stg_dataset *dataset, const struct stg_step *step,
                           const struct stg_schema *schema, struct stg_iter *input,
                           struct stg_reader_config *config,
                           struct stg_csv_reader_options *options, struct stg_iter **ret,
                           struct stg_err *err);

#endif
