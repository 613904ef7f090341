/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/local/access.h"

#include <endian.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* linux/posix_acl_xattr.h, which is not for programs: a version, then entries. All
 * little-endian. */
#define ACL_VERSION 2u
enum acl_tag {
    ACL_TAG_USER_OBJ = 0x01,
    ACL_TAG_USER = 0x02,
    ACL_TAG_GROUP_OBJ = 0x04,
    ACL_TAG_GROUP = 0x08,
    ACL_TAG_MASK = 0x10,
    ACL_TAG_OTHER = 0x20
};
struct acl_entry {
    uint16_t tag;
    uint16_t perm;
    uint32_t id;
};

static bool in_group(const struct stg_file_user *identity, gid_t gid)
{
    if (identity->gid == gid)
        return true;
    for (size_t i = 0; i < identity->n_groups; i++) {
        if (identity->groups[i] == gid)
            return true;
    }
    return false;
}

static struct acl_entry entry_at(const void *acl, size_t i)
{
    struct acl_entry e;
    memcpy(&e, (const char *)acl + 4 + i * sizeof(e), sizeof(e));
    e.tag = le16toh(e.tag);
    e.perm = le16toh(e.perm);
    e.id = le32toh(e.id);
    return e;
}

/* The order is acl(5)'s: the owner's entry, the named user's, any group's, the others'.
 * The first that applies decides; among groups one that grants is enough. */
static bool granted_by_acl(const struct stat *st, const void *acl, size_t n,
                           const struct stg_file_user *identity, unsigned want)
{
    unsigned mask = 7, user = 0, other = 0;
    bool named = false, grouped = false, group_grants = false;
    for (size_t i = 0; i < n; i++) {
        struct acl_entry e = entry_at(acl, i);
        if (e.tag == ACL_TAG_MASK)
            mask = e.perm;
    }
    for (size_t i = 0; i < n; i++) {
        struct acl_entry e = entry_at(acl, i);
        if (e.tag == ACL_TAG_USER_OBJ && st->st_uid == identity->uid)
            return (e.perm & want) == want;
        if (e.tag == ACL_TAG_USER && e.id == identity->uid) {
            named = true;
            user = e.perm & mask;
        } else if ((e.tag == ACL_TAG_GROUP_OBJ && in_group(identity, st->st_gid)) ||
                   (e.tag == ACL_TAG_GROUP && in_group(identity, e.id))) {
            grouped = true;
            group_grants |= (e.perm & mask & want) == want;
        } else if (e.tag == ACL_TAG_OTHER) {
            other = e.perm;
        }
    }
    if (named)
        return (user & want) == want;
    if (grouped)
        return group_grants;
    return (other & want) == want;
}

bool stg_access_granted(const struct stat *st, const void *acl, size_t acl_bytes,
                        const struct stg_file_user *identity, unsigned want)
{
    if (identity->uid == 0)
        return true;
    if (acl != NULL) {
        uint32_t version = 0;
        if (acl_bytes < 4 || (acl_bytes - 4) % sizeof(struct acl_entry) != 0)
            return false;
        memcpy(&version, acl, 4);
        if (le32toh(version) != ACL_VERSION)
            return false;
        return granted_by_acl(st, acl, (acl_bytes - 4) / sizeof(struct acl_entry),
                              identity, want);
    }
    unsigned bits = st->st_mode & 7;
    if (st->st_uid == identity->uid)
        bits = (st->st_mode >> 6) & 7;
    else if (in_group(identity, st->st_gid))
        bits = (st->st_mode >> 3) & 7;
    return (bits & want) == want;
}

bool stg_access_fd(int fd, const struct stat *st, const struct stg_file_user *identity,
                   unsigned want)
{
    if (identity->uid == 0)
        return true;
    char link[64], acl[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = getxattr(link, "system.posix_acl_access", acl, sizeof(acl));
    if (n < 0 && errno != ENODATA && errno != EOPNOTSUPP)
        return false;
    return stg_access_granted(st, n >= 0 ? acl : NULL, n >= 0 ? (size_t)n : 0, identity,
                              want);
}

/* "alice", or "1000" where the number has no name. */
static const char *user_text(uid_t uid, char *buf, size_t bytes)
{
    struct passwd pw, *found = NULL;
    char text[4096];
    if (getpwuid_r(uid, &pw, text, sizeof(text), &found) == 0 && found != NULL)
        snprintf(buf, bytes, "%s", pw.pw_name);
    else
        snprintf(buf, bytes, "%u", (unsigned)uid);
    return buf;
}

int stg_access_refuse(const struct stg_file_user *identity, const char *what,
                      const char *path, const char *because, struct stg_err *err)
{
    char user[128];
    user_text(identity->uid, user, sizeof(user));
    const char *right = because != NULL             ? "x"
                        : strcmp(what, "read") == 0 ? "r"
                        : strcmp(what, "list") == 0 ? "rx"
                                                    : "rwx";
    return stg_err(err, -STAGER_PERMISSION_DENIED,
                   "user %s may not %s %s%s%s%s; its owner can grant that: `setfacl -m "
                   "u:%s:%s %s`",
                   user, what, path, because != NULL ? " (no search permission on " : "",
                   because != NULL ? because : "", because != NULL ? ")" : "", user,
                   right, because != NULL ? because : path);
}

int stg_access_daemon_cannot(const char *path, const char *fix, const char *right,
                             struct stg_err *err)
{
    char user[128];
    user_text(geteuid(), user, sizeof(user));
    return stg_err(err, -STAGER_PERMISSION_DENIED,
                   "stagerd (user %s) cannot read %s: run `setfacl -m u:%s:%s %s`, or "
                   "`systemctl --user start stagerd` for a private stagerd",
                   user, path, user, right, fix);
}

int stg_access_errno(int error)
{
    switch (error) {
    case ENOENT:
    case ENXIO:
    case ENODEV: return -STAGER_NOT_FOUND;
    case EACCES:
    case EPERM: return -STAGER_PERMISSION_DENIED;
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case EINVAL:
    case ENAMETOOLONG: return -STAGER_INVALID_ARGUMENT;
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EDQUOT:
    case ENOMEM: return -STAGER_RESOURCE_EXHAUSTED;
    case EIO:
    case EUCLEAN:
    case EBADMSG: return -STAGER_DATA_LOSS;
    case ESTALE: return -STAGER_ABORTED;
    case ETIMEDOUT: return -STAGER_UNAVAILABLE;
    default: return -STAGER_UNKNOWN;
    }
}
