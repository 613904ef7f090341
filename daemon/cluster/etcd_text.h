/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of etcd's JSON gateway: bodies of requests, and what its answers say. An
 * answer may come from anything. Pure functions; any thread.
 */
#ifndef STG_DAEMON_CLUSTER_ETCD_TEXT_H
#define STG_DAEMON_CLUSTER_ETCD_TEXT_H

#include "daemon/cluster/etcd.h"

/* ---- requests: a text that the caller frees, or NULL: out of memory ---- */

char *stg_etcd_text_range(const char *key, bool prefix, size_t *ret_bytes);
char *stg_etcd_text_txn(const struct stg_etcd_compare *compares, size_t n_compares,
                        const struct stg_etcd_put *puts, size_t n_puts,
                        size_t *ret_bytes);
char *stg_etcd_text_grant(uint32_t ttl_seconds, size_t *ret_bytes);
/* Of a renewal, and of a revocation. */
char *stg_etcd_text_lease(int64_t lease, size_t *ret_bytes);
char *stg_etcd_text_login(const char *user, const char *password, size_t *ret_bytes);

/* ---- answers ---- */

/* What each answer has. */
struct stg_etcd_head {
    uint64_t cluster; /* its number, not 0 */
    int64_t revision;
};

/* Each fills ret and head, or neither, and allocates only for entries and tokens.
 * DATA_LOSS: the answer is not one to the request, with what is wrong about it.
 * RESOURCE_EXHAUSTED: out of memory. */
int stg_etcd_read_range(const char *text, size_t bytes, const char *key, bool prefix,
                        struct stg_etcd_range *ret, struct stg_etcd_head *head,
                        struct stg_err *err);
int stg_etcd_read_txn(const char *text, size_t bytes, bool *ret_done,
                      struct stg_etcd_head *head, struct stg_err *err);
int stg_etcd_read_grant(const char *text, size_t bytes, int64_t *ret_lease,
                        struct stg_etcd_head *head, struct stg_err *err);
/* A lease that has expired has 0 seconds left. */
int stg_etcd_read_renew(const char *text, size_t bytes, int64_t lease,
                        uint32_t *ret_ttl_seconds, struct stg_etcd_head *head,
                        struct stg_err *err);
int stg_etcd_read_revoke(const char *text, size_t bytes, struct stg_etcd_head *head,
                         struct stg_err *err);
/* The caller frees the token, which is fit for a header. */
int stg_etcd_read_login(const char *text, size_t bytes, char **ret_token,
                        struct stg_etcd_head *head, struct stg_err *err);

#define STG_ETCD_REASON_BYTES 256

/* Reads a refusal: returns gRPC's code, which is positive, and etcd's reason in printable
 * ASCII. 0: the text is no refusal of etcd. */
int stg_etcd_read_refusal(const char *text, size_t bytes,
                          char ret_reason[STG_ETCD_REASON_BYTES]);

#endif
