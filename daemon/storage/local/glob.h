/* SPDX-License-Identifier: Apache-2.0
 *
 * File names that match a pattern: *, ?, [a-z] within one name, \ takes away a special
 * meaning; a leading dot is matched only by a dot. Directories on the way are listed and
 * searched with the applier's rights: names in a directory that the applier may not
 * list are not found. Any thread.
 */
#ifndef STG_DAEMON_GLOB_H
#define STG_DAEMON_GLOB_H

#include "daemon/storage/storage.h"

/* As stg_storage.list. Directories do not match; a whole pattern without a wildcard that
 * names one stands for what is in it, as with a "*" behind it. A directory that the
 * pattern names without a wildcard must be there, and may be listed, or it is an error;
 * one that a wildcard found is passed over when the user may not enter it. */
int stg_glob(const char *pattern, const struct stg_file_user *identity,
             stg_storage_found *found, void *owner, struct stg_err *err);

/* As stg_storage.check: INVALID_ARGUMENT for a relative or too long pattern. */
int stg_glob_check(const char *pattern, struct stg_err *err);

#endif
