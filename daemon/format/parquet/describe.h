/* SPDX-License-Identifier: Apache-2.0
 *
 * What a Parquet file holds, by its footer. One thread.
 */
#ifndef STG_DAEMON_PARQUET_DESCRIBE_H
#define STG_DAEMON_PARQUET_DESCRIBE_H

#include "daemon/format/describing.h"
#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

/* Describes a file; a column that cannot be read has the reason. Errors as those of
 * stg_parquet_open. */
int stg_parquet_describe(struct stg_source *source, struct stg_quota *quota,
                         struct stg_describing *to, bool *ret_storage,
                         struct stg_err *err);

#endif
