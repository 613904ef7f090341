/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon on its loop: the lock file, attach.sock, the sessions behind it, the sweep
 * timer, signals. One thread: everything here belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_SERVER_H
#define STG_DAEMON_SERVER_SERVER_H

#include <uv.h>

#include "daemon/gate/reply_cache.h"
#include "daemon/host/memory.h"
#include "daemon/metrics/metrics.h"
#include "daemon/pipeline/catalog.h"
#include "daemon/server/lock.h"

#ifndef STG_RELEASE /* of meson.build */
#define STG_RELEASE "0.0.0"
#endif
#define STG_VERSION STG_RELEASE

struct stg_elastic;
struct stg_gate;
struct stg_probing;
struct stg_rules;
struct stg_session;

struct stg_server {
    uv_loop_t loop;
    bool has_loop;
    struct stg_settings *settings;
    const char *config_path; /* as given, or NULL: for SIGHUP */
    char *config_text;       /* as it was read last */
    struct stg_budget budget;
    struct stg_pools *pools;
    struct stg_rules *rules; /* of users; NULL: none */
    struct stg_catalog *catalog;
    struct stg_elastic *elastic; /* NULL: clients name the hosts */
    struct stg_gate *gate;
    struct stg_reply_cache replies; /* replies to changes through the gate */
    uint64_t instance;
    char cuda[STG_ERR_TEXT_BYTES + 16]; /* what there is, or why there is none */

    struct stg_locks locks; /* of runtime_dir and state_dir */
    int listen_fd;
    int spare_fd;          /* given up for a moment when descriptors run out */
    bool inherited_socket; /* systemd's: not ours to remove */
    char socket_path[108];
    _Atomic bool owns_socket; /* it was bound here and is not removed yet; any thread */
    uv_poll_t listen_poll, input_poll;
    uv_async_t async; /* any thread: sweep, or stop */
    uv_timer_t sweep_timer;
    uv_prepare_t prepare; /* starts sweep_timer */
    bool sweeps_soon;
    uv_timer_t accept_timer; /* a pause after EMFILE */
    uv_timer_t stop_timer;
    uv_timer_t watchdog_timer; /* reports to systemd that the loop turns */
    uv_signal_t sighup;

    struct stg_session *sessions;
    uint32_t n_sessions;
    struct stg_server_counts counts;
    struct stg_jobs jobs; /* of clients, for metrics */
    uint32_t n_probing;   /* requests that a worker, or a change, is at */
    struct stg_probing *first_turn, *last_turn; /* changes that wait for their turn */
    bool draining;                              /* no new clients, no applies */
    bool stopping;
    _Atomic int stopped; /* not 0: work for replies ends; read by workers */
};

/* Makes runtime_dir, takes its lock and that of state_dir, binds the socket and reads the
 * pipelines. FAILED_PRECONDITION names the folder that another daemon has. */
int stg_server_start(struct stg_server *server, struct stg_settings *settings,
                     const char *config_path, struct stg_err *err);

/* Once started: stops also when standard input ends. */
int stg_server_stop_with_input(struct stg_server *server, struct stg_err *err);

/* Runs until SIGTERM or SIGINT. */
void stg_server_run(struct stg_server *server);

/* Closes and frees everything. Half-started ones are fine. */
void stg_server_finish(struct stg_server *server);

/* Records that something may have changed in a stage: the loop sweeps before it waits. */
static inline void stg_server_sweep_soon(struct stg_server *server)
{
    server->sweeps_soon = true;
}

#endif
