/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotas: what the processes and pipelines of a user, or of the members of a group
 * together, may use. A share is the sum of what one user uses; it counts on the account
 * of the user and on those of its groups. Any thread, but where a function says
 * otherwise.
 */
#ifndef STG_DAEMON_HOST_SHARE_H
#define STG_DAEMON_HOST_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/spec.h"
#include "daemon/host/identity.h"

struct stg_share;

/* Uses these quotas from now on, also for shares that exist. Uses the database of users:
 * for the loop. A user or group that does not exist, or two quotas for one:
 * INVALID_ARGUMENT with its number; the others are used. */
int stg_share_configure(const struct stg_quota_spec *quotas, size_t n,
                        struct stg_err *err);
void stg_share_finish(void);

/* Returns the share of a user. The caller puts it. NULL: out of memory. */
struct stg_share *stg_share_get(uid_t uid, gid_t gid, const gid_t *groups,
                                size_t n_groups);
struct stg_share *stg_share_ref(struct stg_share *share);
void stg_share_put(struct stg_share *share); /* NULL is allowed */

/* What CPU time is divided among: a user, or the members of a group together. */
struct stg_party {
    bool is_group;
    uint32_t id;
    uint32_t weight;
};

/* Returns the user if its quota has a weight, otherwise a group of the user whose quota
 * has one, otherwise the user with weight 1. */
struct stg_party stg_share_party(const struct stg_share *share);

/* Returns whether a quota has a weight. For the loop. */
bool stg_share_has_weights(const struct stg_quota_spec *quotas, size_t n);

/* Takes n. RESOURCE_EXHAUSTED names the quota, the use, the limit and the remedy. share
 * NULL: nothing is counted. */
int stg_share_take(struct stg_share *share, enum stg_quota_kind kind, uint64_t n,
                   struct stg_err *err);
/* Takes n, also above the limit. */
void stg_share_add(struct stg_share *share, enum stg_quota_kind kind, uint64_t n);
void stg_share_give(struct stg_share *share, enum stg_quota_kind kind, uint64_t n);

/* Uses n of a rate. Returns the nanoseconds to wait, 0 for none. A rate lets through at
 * once what it allows in a second. */
uint64_t stg_share_spend(struct stg_share *share, enum stg_quota_kind kind, uint64_t n);

/* Spends n and waits, until *stopped is not 0 (NULL: never). Not for the loop. */
void stg_share_pace(struct stg_share *share, enum stg_quota_kind kind, uint64_t n,
                    const _Atomic int *stopped);

/* What is in use of a quota. */
struct stg_share_use {
    bool is_group;
    uint32_t id; /* uid or gid */
    const char
        *name; /* of the user or the group; "*" for a user without a quota by name */
    uint64_t limit[STG_N_QUOTA_KINDS]; /* STG_NO_QUOTA: none */
    uint64_t used[STG_N_QUOTA_KINDS];  /* 0 for rates */
};

/* Calls `see` for each quota that is in force, with the lock of this module. */
void stg_share_each(void (*see)(void *owner, const struct stg_share_use *use),
                    void *owner);

/* Returns whether the quota is of a use in a second. */
bool stg_quota_is_rate(enum stg_quota_kind kind);

/* Returns the key of stagerd.yaml. */
const char *stg_quota_key(enum stg_quota_kind kind);

#endif
