/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a user may read or search what a descriptor names: POSIX mode bits and access
 * ACLs, decided as the kernel would for that user, and walks of a path that look at every
 * directory on the way. The daemon may have more rights than the applier, or fewer; both
 * cases have texts of their own. Any thread.
 */
#ifndef STG_DAEMON_ACCESS_H
#define STG_DAEMON_ACCESS_H

#include <sys/stat.h>

#include "daemon/storage/storage.h"

enum stg_access { STG_ACCESS_SEARCH = 1, STG_ACCESS_WRITE = 2, STG_ACCESS_READ = 4 };

/* Pure: st's owner, group and mode, and the bytes of the xattr system.posix_acl_access
 * (NULL: there is none). want: bits of enum stg_access. A malformed ACL grants nothing.
 */
bool stg_access_granted(const struct stat *st, const void *acl, size_t acl_bytes,
                        const struct stg_file_user *identity, unsigned want);

/* The same for what fd (O_PATH will do) is open on; fetches the ACL. What cannot be found
 * out is refused. */
bool stg_access_fd(int fd, const struct stat *st, const struct stg_file_user *identity,
                   unsigned want);

/* From the directory `base` (stays the caller's; -1: the root) along a path as a user:
 * every directory must be searchable for that user, links are followed (40 at most).
 * Returns an O_PATH descriptor of what is there, and its stat. `shown` is the path for
 * messages. NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a file in the middle, too
 * many links). */
int stg_access_walk(int base, const char *path, const char *shown,
                    const struct stg_file_user *identity, int *ret_fd,
                    struct stat *ret_st, struct stg_err *err);

/* PERMISSION_DENIED "user alice may not WHAT PATH"; because (may be NULL): a directory on
 * the way that may not be searched. */
int stg_access_refuse(const struct stg_file_user *identity, const char *what,
                      const char *path, const char *because, struct stg_err *err);

/* PERMISSION_DENIED: the user may read path, but the daemon may not. fix is what the user
 * has to grant right ("r", "x", "rx") on. */
int stg_access_daemon_cannot(const char *path, const char *fix, const char *right,
                             struct stg_err *err);

/* A status code for an errno of open, stat or read. */
int stg_access_errno(int error);

#endif
