/* SPDX-License-Identifier: Apache-2.0
 *
 * The user of a peer, as the kernel reports it, and the group of a name. getgrnam is
 * not safe for threads: the loop alone asks for a name.
 */
#ifndef STG_DAEMON_HOST_IDENTITY_H
#define STG_DAEMON_HOST_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define STG_MAX_GROUPS 256

struct stg_identity {
    uid_t uid;
    gid_t gid;
    gid_t groups[STG_MAX_GROUPS];
    size_t n_groups;
};

/* Finds the user or the group of a name, or of a number that needs none. Returns false if
 * there is none. */
bool stg_user_find(const char *name, uid_t *ret);
bool stg_group_find(const char *name, gid_t *ret);

/* Returns (gid_t)-1 if no group has the name. */
gid_t stg_group_id(const char *name);

#endif
