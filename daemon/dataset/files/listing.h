/* SPDX-License-Identifier: Apache-2.0
 *
 * A listing: a file of names of files, one a line, each a whole path or a url. Names are
 * not patterns, and are not looked up: a missing file is an error when it is opened.
 */
#ifndef STG_DAEMON_LISTING_H
#define STG_DAEMON_LISTING_H

#include "daemon/storage/storage.h"

#define STG_LISTING_LINE_BYTES 8192 /* a longer line is refused */

/* Calls found for each line, in order; a negative code of its ends the reading and is
 * returned. A line ends at a line feed and loses one CR before it; lines that are empty
 * or begin with # are passed over. Errors are those of the storage, and INVALID_ARGUMENT
 * with listing and line: a relative path, a NUL byte, too long; no line at all. */
int stg_listing_read(const char *url, const struct stg_file_user *identity,
                     stg_storage_found *found, void *owner, struct stg_err *err);

#endif
