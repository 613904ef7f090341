/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks whether a user may read or search a file, by POSIX mode bits and access ACLs, as
 * the kernel does for that user. Path walks check every directory on the path. The daemon
 * may have more rights than the applier, or fewer; each case has a separate error text.
 * Any thread.
 */
#ifndef STG_DAEMON_ACCESS_H
#define STG_DAEMON_ACCESS_H

#include <sys/stat.h>

#include "daemon/storage/storage.h"

enum stg_access { STG_ACCESS_SEARCH = 1, STG_ACCESS_WRITE = 2, STG_ACCESS_READ = 4 };

/* Returns whether `want` (bits of enum stg_access) is granted by the owner, group and
 * mode of st and by the xattr system.posix_acl_access (NULL: no ACL). A malformed ACL
 * grants nothing. Pure. */
bool stg_access_granted(const struct stat *st, const void *acl, size_t acl_bytes,
                        const struct stg_file_user *identity, unsigned want);

/* Returns the same for an open file (O_PATH is enough); fetches the ACL. Returns false if
 * the rights cannot be determined. */
bool stg_access_fd(int fd, const struct stat *st, const struct stg_file_user *identity,
                   unsigned want);

/* Walks a path as a user, from the directory `base` (the caller keeps it; -1: the root).
 * That user must have search permission on every directory. Follows at most 40 links.
 * Returns an O_PATH descriptor of the target, and its stat. `shown` is the path for
 * messages. NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a file inside the path, too
 * many links). */
int stg_access_walk(int base, const char *path, const char *shown,
                    const struct stg_file_user *identity, int *ret_fd,
                    struct stat *ret_st, struct stg_err *err);

/* Returns PERMISSION_DENIED "user alice may not WHAT PATH". because (may be NULL): the
 * directory on the path without search permission. */
int stg_access_refuse(const struct stg_file_user *identity, const char *what,
                      const char *path, const char *because, struct stg_err *err);

/* Returns PERMISSION_DENIED: the user may read path, but the daemon may not. fix: the
 * path on which the user must grant `right` ("r", "x", "rx"). */
int stg_access_daemon_cannot(const char *path, const char *fix, const char *right,
                             struct stg_err *err);

/* Returns the status code for an errno of open, stat or read. */
int stg_access_errno(int error);

#endif
