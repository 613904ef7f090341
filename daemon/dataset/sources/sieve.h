/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of a table that its filter keeps. Where a pass continues is known by marks, as
 * of the step `filter`. One thread at a time.
 */
#ifndef STG_DAEMON_DATASET_SOURCES_SIEVE_H
#define STG_DAEMON_DATASET_SOURCES_SIEVE_H

#include "daemon/dataset/sources/columnar.h"

/* Creates the iterator over a table: the table itself without a filter. On success it
 * owns the table; on failure, the caller. */
int stg_sieve_create(struct stg_columnar *table, struct stg_iter **ret,
                     struct stg_err *err);

#endif
