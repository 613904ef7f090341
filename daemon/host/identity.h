/* SPDX-License-Identifier: Apache-2.0
 *
 * The user of a peer, as the kernel reports it.
 */
#ifndef STG_DAEMON_HOST_IDENTITY_H
#define STG_DAEMON_HOST_IDENTITY_H

#include <stddef.h>
#include <sys/types.h>

#define STG_MAX_GROUPS 256

struct stg_identity {
    uid_t uid;
    gid_t gid;
    gid_t groups[STG_MAX_GROUPS];
    size_t n_groups;
};

#endif
