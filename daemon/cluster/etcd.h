/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of etcd (3.4 or newer): keys, leases and transactions through its JSON
 * gateway, by libcurl. It knows nothing of what the keys mean.
 *
 * One deadline bounds each call. A call goes to the endpoint that answered last; if that
 * one does not answer, or answers nonsense, to the next one within the same deadline.
 *
 * Errors name the endpoint. No text has a password or a token.
 *   UNAVAILABLE          no endpoint answers, or the cluster has no leader: call again
 *   DATA_LOSS            the answer is not etcd's, or contradicts an earlier one
 *   RESOURCE_EXHAUSTED   etcd's database is full, the answer is too long, or memory
 *   UNAUTHENTICATED      the user, the password, or none where etcd requires one
 *   PERMISSION_DENIED    the user has no role for the key
 *   FAILED_PRECONDITION  certificates, the password file, endpoints of two clusters
 *   INVALID_ARGUMENT     etcd refuses the request: more than 128 changes, 1.5 MiB
 *   UNIMPLEMENTED        the server has no JSON gateway
 */
#ifndef STG_DAEMON_CLUSTER_ETCD_H
#define STG_DAEMON_CLUSTER_ETCD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define STG_ETCD_MAX_ENDPOINTS 16u

/* Texts are the caller's and outlive the client. */
struct stg_etcd_settings {
    const char *const *endpoints;     /* "http://host:2379", "https://…" */
    size_t n_endpoints;               /* 1 to STG_ETCD_MAX_ENDPOINTS */
    const char *user;                 /* NULL: none */
    const char *password_file;        /* its first line; read for each login */
    const char *ca_file;              /* NULL: the authorities of this machine */
    const char *cert_file, *key_file; /* of the client; NULL: none */
    uint32_t timeout_millis;          /* of each call; not 0 */
};

/* One thread at a time uses it. */
struct stg_etcd;

/* Checks the settings, and connects to nothing. INVALID_ARGUMENT, FAILED_PRECONDITION (a
 * library is missing), RESOURCE_EXHAUSTED. */
int stg_etcd_create(const struct stg_etcd_settings *settings, struct stg_etcd **ret,
                    struct stg_err *err);
void stg_etcd_destroy(struct stg_etcd *etcd); /* NULL is allowed */

struct stg_etcd_entry {
    char *key;   /* without a NUL inside */
    char *value; /* any bytes; a NUL follows */
    size_t value_bytes;
    int64_t create_revision, mod_revision, lease; /* lease 0: none */
};

struct stg_etcd_range {
    int64_t revision; /* of the cluster: the state that the entries are of */
    size_t n;
    struct stg_etcd_entry *entries; /* sorted by key */
};

/* Reads the key, or all keys that begin with it. A missing key is no error: n is 0. The
 * state is at least as new as each change that was complete before the call. The caller
 * calls finish after 0. */
int stg_etcd_get(struct stg_etcd *etcd, const char *key, bool prefix,
                 struct stg_etcd_range *ret, struct stg_err *err);
void stg_etcd_range_finish(struct stg_etcd_range *range); /* zeroed is allowed */

/* Begins a lease. etcd may make its time longer: stg_etcd_renew says how long it is. */
int stg_etcd_grant(struct stg_etcd *etcd, uint32_t ttl_seconds, int64_t *ret_lease,
                   struct stg_err *err);

/* Restarts the time of the lease. NOT_FOUND: the lease has expired. */
int stg_etcd_renew(struct stg_etcd *etcd, int64_t lease, uint32_t *ret_ttl_seconds,
                   struct stg_err *err);

/* Ends the lease and deletes its keys. A lease that has expired is no error. */
int stg_etcd_revoke(struct stg_etcd *etcd, int64_t lease, struct stg_err *err);

/* mod_revision 0: the key does not exist. */
struct stg_etcd_compare {
    const char *key;
    int64_t mod_revision;
};

/* value NULL: deletes the key. */
struct stg_etcd_put {
    const char *key, *value;
    size_t value_bytes;
    int64_t lease; /* 0: none */
};

/* Makes all changes if each compared key has that mod_revision, and none otherwise; then
 * *ret_done is false. *ret_revision is the revision of the cluster: after a change, the
 * mod_revision of each key that was put. No key may be changed twice.
 *
 * NOT_FOUND: the lease of a put has expired. UNAVAILABLE: the changes may have been made
 * or may still be made, because the request was sent and its answer did not come; read
 * the keys to find out. After any other error nothing was changed. */
int stg_etcd_txn(struct stg_etcd *etcd, const struct stg_etcd_compare *compares,
                 size_t n_compares, const struct stg_etcd_put *puts, size_t n_puts,
                 bool *ret_done, int64_t *ret_revision, struct stg_err *err);

#endif
