/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of a path that are values of columns, as Hive writes them: site=a/day=3. Pure
 * functions; any thread.
 */
#ifndef STG_DAEMON_DATASET_FILES_PATH_VALUE_H
#define STG_DAEMON_DATASET_FILES_PATH_VALUE_H

#include "core/bump.h"
#include "core/err.h"

/* What the folders of a file say of a column. */
struct stg_path_value {
    bool is_there;  /* one of them has its name */
    bool is_null;   /* __HIVE_DEFAULT_PARTITION__ */
    uint64_t value; /* that of a number, in its first bytes */
    char *text;     /* as the folder has it, decoded: malloc'ed, and terminated */
    size_t text_bytes;
};

/* Finds the folder NAME=VALUE, the last one of several, of a path or a url, and converts
 * its value to the dtype. Nothing is there: *ret is zeroed. INVALID_ARGUMENT: it does not
 * convert; RESOURCE_EXHAUSTED. */
int stg_path_value_find(const char *url, const char *name, int dtype,
                        struct stg_path_value *ret, struct stg_err *err);
void stg_path_value_finish(struct stg_path_value *value);

#endif
