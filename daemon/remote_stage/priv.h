/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to daemon/remote_stage.
 */
#ifndef STG_DAEMON_REMOTE_STAGE_PRIV_H
#define STG_DAEMON_REMOTE_STAGE_PRIV_H

#include <curl/curl.h>
#include <pthread.h>

#include "daemon/remote_stage/remote.h"

#define STG_MAX_WORKERS 64u
#define STG_WORKER_URL_BYTES 513u
#define STG_FRAME_BYTES 64u /* in front of a batch, which begins at a multiple of it */

/* What a lookup found. */
struct stg_worker_address {
    char url[STG_WORKER_URL_BYTES];
    char address[64];  /* numeric */
    char connect[640]; /* CURLOPT_CONNECT_TO */
    char shown[384];
};

struct stg_worker_list {
    struct stg_worker_address each[STG_MAX_WORKERS];
    int n;
    bool has_more;
};

/* Adds the addresses that the URL's host has now. Blocks, for as long as the resolver of
 * the C library does. UNAVAILABLE: the name cannot be looked up now. Writes into *err
 * what it leaves out, with success too. */
int stg_worker_list_add(struct stg_worker_list *list, const char *url, bool may_loop,
                        struct stg_err *err);

struct stg_worker_end {
    struct stg_worker_address at; /* while a request is in progress, it stays */
    uint64_t logged_ns;
    char why[192];
};

/* Returns a worker to ask, that is not in `tried` (a bit each), or -1. Counts it as
 * asked: stg_remote_note ends that. */
int stg_remote_choose(struct stg_remote *remote, uint64_t tried);

/* Returns whether a worker that is not in `tried` can be asked once it has answered
 * others.
 */
bool stg_remote_is_full(struct stg_remote *remote, uint64_t tried);
const struct stg_worker_end *stg_remote_worker(const struct stg_remote *remote, int i);

/* Ends a request that stg_remote_choose began. why: for a failure. */
void stg_remote_note(struct stg_remote *remote, int i, enum stg_outcome outcome,
                     uint64_t retry_after_ns, const char *why);
/* Ends a request whose answer is not needed any more. */
void stg_remote_forget(struct stg_remote *remote, int i);
void stg_remote_note_zone(struct stg_remote *remote, int i, const char *zone);
void stg_remote_note_cpus(struct stg_remote *remote, int i, unsigned long cpus);
/* cpu_ns: of the worker; 0: its answer does not say. */
void stg_remote_note_good(struct stg_remote *remote, int i, uint64_t bytes, uint64_t ns,
                          uint64_t cpu_ns);
void stg_remote_note_hedge(struct stg_remote *remote);

/* When to ask a second worker, and when to give up an attempt. */
void stg_remote_patience(struct stg_remote *remote, uint64_t *ret_hedge_ns,
                         uint64_t *ret_limit_ns);

const struct stg_remote_config *stg_remote_config(const struct stg_remote *remote);

/* Returns the content of token_file and ca_file, read on behalf of the applier, at most
 * every few seconds; NULL: there is none, or *ret_why says why not. The caller frees. */
char *stg_remote_token(struct stg_remote *remote, char *why, size_t why_bytes);
char *stg_remote_authority(struct stg_remote *remote, char *why, size_t why_bytes);

/* Checks the bytes behind the frame's head; crc: the CRC-32C of these. On success the
 * header has what stg_remote_ask says. DATA_LOSS. */
int stg_answer_check(const struct stg_remote_wanted *wanted,
                     const struct stg_schema *schema, const unsigned char *head,
                     uint64_t bytes, uint32_t crc, struct stg_err *err);

#endif
