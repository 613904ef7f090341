/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/identity.h"

#include <grp.h>

gid_t stg_group_id(const char *name)
{
    const struct group *group = getgrnam(name);
    return group != NULL ? group->gr_gid : (gid_t)-1;
}
