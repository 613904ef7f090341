/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/identity.h"

#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>

gid_t stg_group_id(const char *name)
{
    const struct group *group = getgrnam(name);
    return group != NULL ? group->gr_gid : (gid_t)-1;
}

static bool read_number(const char *name, uint32_t *ret)
{
    char *end;
    if (name[0] < '0' || name[0] > '9')
        return false;
    unsigned long id = strtoul(name, &end, 10);
    *ret = (uint32_t)id;
    return *end == '\0' && id < UINT32_MAX;
}

bool stg_user_find(const char *name, uid_t *ret)
{
    const struct passwd *user = getpwnam(name);
    if (user != NULL)
        *ret = user->pw_uid;
    return user != NULL || read_number(name, ret);
}

bool stg_group_find(const char *name, gid_t *ret)
{
    const struct group *group = getgrnam(name);
    if (group != NULL)
        *ret = group->gr_gid;
    return group != NULL || read_number(name, ret);
}
