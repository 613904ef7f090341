/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a file while it is made: columns are counted, and those from a
 * number on are kept, up to STG_FILE_MAX_COLUMNS, so that a file cannot make it large.
 * One thread.
 */
#ifndef STG_DAEMON_FORMAT_DESCRIBING_H
#define STG_DAEMON_FORMAT_DESCRIBING_H

#include "core/file/schema.h"

struct stg_describing {
    struct stg_bump bump; /* of all texts */
    struct stg_file_schema schema;
};

/* Begins with the column of that number. RESOURCE_EXHAUSTED. */
int stg_describing_init(struct stg_describing *to, uint32_t first, struct stg_err *err);
void stg_describing_finish(struct stg_describing *to);

/* Adds a column of that name, which need not be text. NULL: it is counted, not kept. */
struct stg_file_column *stg_describing_add(struct stg_describing *to, const char *name,
                                           size_t bytes);

/* Returns column i of the file; NULL: it was not kept. */
struct stg_file_column *stg_describing_at(struct stg_describing *to, uint64_t i);

/* Sets the problem of a column, which then has no dtype, to an error's text without
 * "column NAME: ". */
void stg_describing_refuse(struct stg_describing *to, struct stg_file_column *column,
                           const struct stg_err *why);

/* Returns a text of the description; NULL: out of memory. */
const char *stg_describing_text(struct stg_describing *to, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns whether the bytes are UTF-8 without control characters. */
bool stg_describing_is_text(const char *s, size_t bytes);

/* Refuses columns whose names are not unique. RESOURCE_EXHAUSTED: a text had no memory.
 */
int stg_describing_check(struct stg_describing *to, struct stg_err *err);

#endif
