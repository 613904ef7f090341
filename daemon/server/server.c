/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "core/device.h"
#include "core/log.h"
#include "daemon/describe/describe.h"
#include "daemon/gate/gate.h"
#include "daemon/host/fair.h"
#include "daemon/host/limit.h"
#include "daemon/host/pool.h"
#include "daemon/host/share.h"
#include "daemon/index/index.h"
#include "daemon/operations/operations.h"
#include "daemon/pipeline/elastic.h"
#include "daemon/server/config.h"
#include "daemon/server/connection.h"
#include "daemon/server/loop.h"
#include "daemon/server/probing.h"
#include "daemon/server/request.h"
#include "daemon/server/rules.h"
#include "daemon/server/stop.h"
#include "daemon/server/warming.h"
#include "daemon/storage/confine.h"
#include "daemon/storage/http/disk.h"
#include "daemon/storage/http/fetcher.h"
#include "daemon/storage/http/recent.h"
#include "daemon/storage/http/store.h"

#define ACCEPT_PAUSE_MILLIS 100
#define ACCEPTS_A_TURN 64
#define STOP_MILLIS 2000
#define SOON_MILLIS 20

/* ---- runtime directory ---- */

/* Members of access_group may connect; without such a group, the user of the daemon may.
 */
static int open_to_group(struct stg_server *server, struct stg_err *err)
{
    gid_t gid = stg_group_id(server->settings->access_group);
    if (gid != (gid_t)-1 && gid != getegid() &&
        chown(server->socket_path, (uid_t)-1, gid) < 0)
        stg_log(
            STG_LOG_INFO,
            "cannot give group %s access to %s (%s): only uid %u and root may connect",
            server->settings->access_group, server->socket_path, strerror(errno),
            (unsigned)geteuid());
    if (chmod(server->socket_path, 0660) < 0)
        return stg_runtime_dir_error("chmod", server->socket_path, errno, err);
    return 0;
}

/* A socket that a dead daemon left may go (we hold the lock); anything else may not. */
static int remove_stale(const char *path, struct stg_err *err)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s exists and is not a socket: remove it", path);
    if (unlink(path) < 0)
        return stg_runtime_dir_error("remove", path, errno, err);
    return 0;
}

static int bind_socket(struct stg_server *server, struct stg_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(server->socket_path, sizeof(server->socket_path), "%s/attach.sock",
                     server->settings->runtime_dir);
    if (n < 0 || (size_t)n >= sizeof(address.sun_path))
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "runtime_dir %s is too long: with /attach.sock a socket's path has at most "
            "107 bytes",
            server->settings->runtime_dir);
    int rc = remove_stale(server->socket_path, err);
    if (rc < 0)
        return rc;
    memcpy(address.sun_path, server->socket_path, (size_t)n + 1);
    server->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->listen_fd < 0)
        return stg_runtime_dir_error("make a socket for", server->socket_path, errno,
                                     err);
    mode_t mask = umask(0177);
    rc = bind(server->listen_fd, (struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (rc < 0)
        return stg_runtime_dir_error("bind", server->socket_path, errno, err);
    atomic_store(&server->owns_socket, true);
    rc = open_to_group(server, err);
    if (rc < 0)
        return rc;
    if (listen(server->listen_fd, 512) < 0)
        return stg_runtime_dir_error("listen on", server->socket_path, errno, err);
    return 0;
}

/* What systemd bound for us. The unit of the socket sets its access. */
static int inherit_socket(struct stg_server *server, int n, struct stg_err *err)
{
    int fd = SD_LISTEN_FDS_START;
    struct sockaddr_un address = {0};
    socklen_t bytes = sizeof(address);
    if (n != 1 || sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) <= 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "stagerd was started with %d open sockets, but needs one "
                       "listening socket: stagerd.socket must have one Listen line, "
                       "ListenSequentialPacket=%s/attach.sock",
                       n, server->settings->runtime_dir);
    server->listen_fd = fd;
    server->inherited_socket = true;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return stg_err(err, -STAGER_INTERNAL, "cannot make the socket non-blocking: %s",
                       strerror(errno));
    snprintf(server->socket_path, sizeof(server->socket_path), "%.*s",
             (int)sizeof(address.sun_path) - 1, address.sun_path);
    char wanted[4096];
    snprintf(wanted, sizeof(wanted), "%s/attach.sock", server->settings->runtime_dir);
    if (strcmp(wanted, server->socket_path) != 0)
        stg_log(STG_LOG_WARNING,
                "stagerd.socket listens on %s, but clients look at %s, the runtime_dir "
                "of stagerd.yaml: make both the same",
                server->socket_path, wanted);
    return 0;
}

static int open_socket(struct stg_server *server, struct stg_err *err)
{
    int n = sd_listen_fds(1);
    return n > 0 ? inherit_socket(server, n, err) : bind_socket(server, err);
}

/* ---- accepting ---- */

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_accept_pause(uv_timer_t *timer)
{
    struct stg_server *server = timer->data;
    if (!server->stopping)
        uv_poll_start(&server->listen_poll, UV_READABLE, on_connection);
}

/* Out of descriptors: uses the spare one to refuse one caller, and pauses, so that the
 * loop does not spin. */
static void refuse_one(struct stg_server *server, int number)
{
    if (server->spare_fd >= 0)
        close(server->spare_fd);
    int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    stg_session_refuse(fd, number);
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uv_poll_stop(&server->listen_poll);
    uv_timer_start(&server->accept_timer, on_accept_pause, ACCEPT_PAUSE_MILLIS, 0);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct stg_server *server = poll->data;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            stg_connection_create(server, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            refuse_one(server, errno);
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* ---- sweeping ---- */

static void on_sweep(uv_timer_t *timer)
{
    struct stg_server *server = timer->data;
    stg_session_sweep_all(server);
    int millis = stg_catalog_sweep(server->catalog);
    if (stg_warming_sweep(server) && (millis < 0 || millis > SOON_MILLIS))
        millis = SOON_MILLIS;
    stg_request_retry_opens(server, true);
    if (millis >= 0)
        uv_timer_start(&server->sweep_timer, on_sweep, (uint64_t)millis, 0);
    if (server->stopping && stg_catalog_quiet(server->catalog) && server->n_probing == 0)
        uv_stop(&server->loop);
}

/* Before the loop waits: performs what stg_server_sweep_soon recorded. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct stg_server *server = prepare->data;
    uv_timer_t *timer = &server->sweep_timer;
    bool soon =
        uv_is_active((uv_handle_t *)timer) && uv_timer_get_due_in(timer) <= SOON_MILLIS;
    if (server->sweeps_soon && !soon && !uv_is_closing((uv_handle_t *)timer))
        uv_timer_start(timer, on_sweep, 1, 0);
    server->sweeps_soon = false;
}

static void stop(struct stg_server *server, const char *why);

static void on_async(uv_async_t *async)
{
    int number = stg_stop_signal();
    if (number != 0)
        stop(async->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
    stg_server_sweep_soon(async->data);
}

static void wake(void *owner)
{
    struct stg_server *server = owner;
    uv_async_send(&server->async);
}

static void catalog_changed(void *owner)
{
    struct stg_server *server = owner;
    stg_warming_sweep(server);
    stg_probing_serve_turns(server);
    stg_request_retry_opens(server, false);
    stg_server_sweep_soon(server);
}

static void catalog_event(void *owner, enum stg_event_kind kind, uint64_t pipeline)
{
    struct stg_server *server = owner;
    stg_gate_event(server->gate, kind, pipeline);
}

/* ---- signals ---- */

/* Any thread. */
static void remove_socket(void *owner)
{
    struct stg_server *server = owner;
    if (atomic_exchange(&server->owns_socket, false))
        unlink(server->socket_path);
}

/* A runner that hangs in a read cannot be joined. The end of the process frees all that
 * it holds, and nothing of it is on disk. */
static void on_stop_timeout(uv_timer_t *timer)
{
    struct stg_server *server = timer->data;
    stg_log(STG_LOG_WARNING, "a runner still reads or computes after %d ms: stopped",
            STOP_MILLIS);
    remove_socket(server);
    stg_locks_release(server->settings, &server->locks);
    stg_operations_finish();
    stg_log_flush();
    _exit(EXIT_SUCCESS);
}

static void stop(struct stg_server *server, const char *why)
{
    if (server->stopping)
        return;
    server->stopping = true;
    atomic_store(&server->stopped, 1);
    stg_log(STG_LOG_INFO, "stopping on %s", why);
    sd_notify(0, "STOPPING=1");
    uv_poll_stop(&server->listen_poll);
    stg_gate_stop(server->gate);
    stg_elastic_leave(server->elastic);
    stg_catalog_stop(server->catalog, STAGER_UNAVAILABLE,
                     "stagerd was stopped: open the stream again when it runs");
    for (struct stg_session *s = server->sessions; s != NULL; s = s->next)
        stg_session_close(s);
    uv_timer_start(&server->stop_timer, on_stop_timeout, STOP_MILLIS, 0);
    stg_server_sweep_soon(server);
}

/* What is written to it is of no interest. */
static void on_input(uv_poll_t *poll, int status, int events)
{
    char bytes[256];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)))
        return;
    uv_poll_stop(poll);
    stg_stop_begin();
    stop(poll->data, "the end of its input");
}

int stg_server_stop_with_input(struct stg_server *server, struct stg_err *err)
{
    int rc = uv_poll_init(&server->loop, &server->input_poll, STDIN_FILENO);
    if (rc < 0)
        return stg_loop_error("--until-eof: watch standard input, a pipe or a socket,",
                              rc, err);
    server->input_poll.data = server;
    uv_poll_start(&server->input_poll, UV_READABLE, on_input);
    return 0;
}

static bool same_pools(const struct stg_settings *a, const struct stg_settings *b)
{
    bool same = a->n_thread_pools == b->n_thread_pools;
    for (size_t i = 0; same && i < a->n_thread_pools; i++) {
        const struct stg_thread_pool_spec *x = &a->thread_pools[i];
        const struct stg_thread_pool_spec *y = &b->thread_pools[i];
        same = strcmp(x->global_name, y->global_name) == 0 &&
               x->inter_op_threads_num == y->inter_op_threads_num &&
               x->intra_op_threads_num == y->intra_op_threads_num &&
               strcmp(x->cpus, y->cpus) == 0 && x->nice == y->nice &&
               x->numa_node == y->numa_node;
    }
    return same;
}

static void use_remote(const struct stg_remote_settings *remote)
{
    struct stg_err err = {0};
    stg_fetchers_configure(remote);
    if (stg_stores_configure(remote->stores, remote->n_stores, &err) < 0)
        stg_log(STG_LOG_ERROR, "%s", err.text);
    if (stg_disk_configure(remote->cache_dir, remote->cache_bytes, &err) < 0)
        stg_log(STG_LOG_ERROR, "%s", err.text);
}

static void use_quotas(const struct stg_settings *settings)
{
    struct stg_err err = {0};
    if (stg_share_configure(settings->quotas, settings->n_quotas, &err) < 0)
        stg_log(STG_LOG_ERROR, "%s", err.text);
    int number =
        stg_fair_configure(stg_share_has_weights(settings->quotas, settings->n_quotas));
    if (number != 0)
        stg_log(STG_LOG_ERROR, "quotas: weight: cannot start a thread: %s",
                strerror(number));
}

/* An unknown name is left out, and reported: the rule then permits fewer users. */
static int use_rules(struct stg_server *server, const struct stg_settings *settings,
                     struct stg_err *err)
{
    struct stg_rules *rules = NULL;
    struct stg_err unknown = {0};
    int rc = stg_rules_create(&settings->rules, &rules, &unknown);
    if (unknown.code != 0)
        stg_log(STG_LOG_ERROR, "%s", unknown.text);
    if (rc == 0)
        rc = stg_confine_configure(&settings->read_rules, err);
    else
        *err = unknown;
    if (rc < 0) {
        stg_rules_destroy(rules);
        return rc;
    }
    stg_rules_destroy(server->rules);
    server->rules = rules;
    return 0;
}

/* state_dir exists, or nothing can be stored there. */
static void use_indexes(const struct stg_settings *settings)
{
    char folder[4096];
    struct stg_err err = {0};
    snprintf(folder, sizeof(folder), "%s/index", settings->state_dir);
    if (stg_index_configure(folder, settings->index_bytes, &err) < 0)
        stg_log(STG_LOG_WARNING, "%s", err.text);
}

static void warn_of_restart(const struct stg_settings *old,
                            const struct stg_settings *fresh)
{
    if (strcmp(fresh->runtime_dir, old->runtime_dir) != 0 ||
        strcmp(fresh->state_dir, old->state_dir) != 0 ||
        strcmp(fresh->pipeline_dir, old->pipeline_dir) != 0 ||
        strcmp(fresh->access_group, old->access_group) != 0)
        stg_log(STG_LOG_WARNING,
                "reload: runtime_dir, state_dir, pipeline_dir and access_group "
                "change only with a restart");
    if (!same_pools(fresh, old))
        stg_log(STG_LOG_WARNING, "reload: thread_pools change only with a restart");
}

static void use_operations_log(const struct stg_settings *settings)
{
    struct stg_err err = {0};
    if (stg_operations_configure(settings->operations_log, &err) < 0)
        stg_log(STG_LOG_ERROR, "%s", err.text);
}

/* Notes a reload, with the keys that changed, or why it failed. */
static void note_reload(struct stg_server *server, const struct stg_err *err)
{
    char changes[512] = "";
    char *text = err->code == 0 ? stg_config_text(server->config_path) : NULL;
    if (text != NULL && server->config_text != NULL)
        stg_config_changes(server->config_text, text, changes, sizeof(changes));
    if (text != NULL) {
        free(server->config_text);
        server->config_text = text;
    }
    stg_operations_note(&(struct stg_operation){.kind = STG_OPERATION_RELOADED,
                                                .settings = changes,
                                                .status = stg_status_name(err->code),
                                                .reason = err->text});
}

/* What can change live does; for the rest, the log says that it takes a restart. */
static void use_settings(struct stg_server *server, const struct stg_settings *fresh)
{
    struct stg_settings *settings = server->settings;
    warn_of_restart(settings, fresh);
    stg_log_set_level((enum stg_log_level)stg_log_level_from_name(fresh->log_level));
    if (fresh->memory_budget != settings->memory_budget)
        stg_budget_resize(&server->budget, fresh->memory_budget);
    settings->memory_budget = fresh->memory_budget;
    settings->max_clients = fresh->max_clients;
    settings->max_quarantined_memory = fresh->max_quarantined_memory;
    settings->default_pipeline_memory = fresh->default_pipeline_memory;
    settings->gpu = fresh->gpu;
    if (fresh->index_bytes != settings->index_bytes) {
        settings->index_bytes = fresh->index_bytes;
        use_indexes(settings);
    }
    stg_gate_enable(server->gate, fresh->gate_enable);
    use_remote(&fresh->remote);
    use_quotas(fresh);
    use_operations_log(fresh);
    stg_log(STG_LOG_INFO,
            "reload: log_level %s, memory_budget %" PRIu64
            ", default_pipeline_memory %" PRIu64 ", max_clients %u",
            fresh->log_level, server->budget.total, fresh->default_pipeline_memory,
            fresh->max_clients);
}

static void on_reload(uv_signal_t *signal, int number)
{
    struct stg_server *server = signal->data;
    struct stg_settings fresh;
    struct stg_err err = {0};
    sd_notifyf(0, "RELOADING=1");
    int rc = stg_config_load(server->config_path, &fresh, &err);
    if (rc == 0) {
        rc = stg_limit_check_memory("", fresh.memory_budget, &err);
        if (rc == 0)
            rc = use_rules(server, &fresh, &err);
        if (rc == 0)
            use_settings(server, &fresh);
        stg_settings_finish(&fresh);
    }
    if (rc < 0)
        stg_log(STG_LOG_ERROR, "reload: %s; the old settings remain", err.text);
    note_reload(server, &err);
    sd_notify(0, "READY=1");
}

/* ---- life ---- */

static int listen_to_signals(struct stg_server *server)
{
    int rc = uv_signal_init(&server->loop, &server->sighup);
    server->sighup.data = server;
    return rc == 0 ? uv_signal_start(&server->sighup, on_reload, SIGHUP) : rc;
}

static int start_loop(struct stg_server *server, struct stg_err *err)
{
    uv_loop_t *loop = &server->loop;
    int rc = stg_loop_init(loop, err);
    if (rc < 0)
        return rc;
    server->has_loop = true;
    uv_timer_init(loop, &server->sweep_timer);
    uv_timer_init(loop, &server->accept_timer);
    uv_timer_init(loop, &server->stop_timer);
    uv_timer_init(loop, &server->watchdog_timer);
    uv_prepare_init(loop, &server->prepare);
    server->prepare.data = server;
    uv_prepare_start(&server->prepare, on_prepare);
    server->sweep_timer.data = server;
    server->accept_timer.data = server;
    server->stop_timer.data = server;
    rc = uv_async_init(loop, &server->async, on_async);
    server->async.data = server;
    if (rc == 0)
        rc = listen_to_signals(server);
    return rc < 0 ? stg_loop_error("listen to signals", rc, err) : 0;
}

static int start_catalog(struct stg_server *server, struct stg_err *err)
{
    struct stg_catalog_hooks hooks = {
        .pools = server->pools,
        .changed = catalog_changed,
        .wake = wake,
        .event = catalog_event,
        .owner = server,
    };
    server->counts.started_ns = stg_journal_now_ns();
    if (getrandom(&server->instance, sizeof(server->instance), 0) < 0)
        server->instance = (uint64_t)getpid() << 32 ^ uv_hrtime();
    stg_budget_init(&server->budget, server->settings->memory_budget);
    return stg_catalog_create(&server->loop, server->settings, &server->budget,
                              server->instance, &hooks, &server->catalog, err);
}

static void elastic_changed(void *owner)
{
    struct stg_server *server = owner;
    stg_request_retry_opens(server, false);
    stg_server_sweep_soon(server);
}

static int start_elastic(struct stg_server *server, struct stg_err *err)
{
    const struct stg_elastic_config config = {.loop = &server->loop,
                                              .etcd = &server->settings->cluster.etcd,
                                              .catalog = server->catalog,
                                              .instance = server->instance,
                                              .changed = elastic_changed,
                                              .owner = server};
    return stg_elastic_create(&config, &server->elastic, err);
}

static void serve_gate(void *owner, uint64_t tag, const void *payload, size_t bytes)
{
    stg_request_serve_gate(owner, tag, payload, bytes);
}

static int create_gate(struct stg_server *server, struct stg_err *err)
{
    struct stg_gate_config config = {.loop = &server->loop,
                                     .settings = server->settings,
                                     .instance = server->instance,
                                     .serve = serve_gate,
                                     .owner = server};
    return stg_gate_create(&config, &server->gate, err);
}

/* At the start: loading the driver takes milliseconds, and the loop has none to give. */
static void look_for_cuda(struct stg_server *server)
{
    const struct stg_device *device;
    struct stg_err err = {0};
    int n = 0;
    if (stg_device_cuda(NULL, &device, &err) < 0 || device->count(&n, &err) < 0)
        snprintf(server->cuda, sizeof(server->cuda), "unavailable: %s", err.text);
    else
        snprintf(server->cuda, sizeof(server->cuda), "%d device%s", n, n == 1 ? "" : "s");
}

int stg_server_start(struct stg_server *server, struct stg_settings *settings,
                     const char *config_path, struct stg_err *err)
{
    *server = (struct stg_server){.settings = settings,
                                  .config_path = config_path,
                                  .locks = STG_LOCKS_NONE,
                                  .listen_fd = -1,
                                  .spare_fd = -1};
    server->config_text = stg_config_text(config_path);
    use_operations_log(settings);
    use_remote(&settings->remote);
    use_quotas(settings);
    int rc = stg_limit_check_memory("", settings->memory_budget, err);
    if (rc == 0)
        rc = use_rules(server, settings, err);
    if (rc == 0)
        rc = start_loop(server, err);
    if (rc == 0)
        rc = stg_locks_take(settings, &server->locks, err);
    if (rc == 0)
        rc = stg_pools_create(settings->thread_pools, settings->n_thread_pools,
                              &server->pools, err);
    if (rc == 0)
        rc = start_catalog(server, err);
    if (rc == 0)
        rc = open_socket(server, err);
    if (rc == 0)
        rc = create_gate(server, err);
    if (rc == 0)
        rc = start_elastic(server, err);
    if (rc < 0)
        return rc;
    look_for_cuda(server);
    stg_catalog_load(server->catalog);
    stg_server_sweep_soon(server);
    use_indexes(settings);
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rc = uv_poll_init(&server->loop, &server->listen_poll, server->listen_fd);
    if (rc < 0)
        return stg_loop_error("watch the socket", rc, err);
    server->listen_poll.data = server;
    uv_poll_start(&server->listen_poll, UV_READABLE, on_connection);
    stg_gate_enable(server->gate, settings->gate_enable);
    stg_stop_serve(&server->async, remove_socket, server);
    return 0;
}

static void on_watchdog(uv_timer_t *timer)
{
    sd_notify(0, "WATCHDOG=1");
}

/* A loop that does not turn for WatchdogSec is ended by systemd, and started again. */
static void start_watchdog(struct stg_server *server)
{
    uint64_t micros;
    if (sd_watchdog_enabled(0, &micros) <= 0)
        return;
    uint64_t half_millis = micros / 2000 > 0 ? micros / 2000 : 1;
    uv_timer_start(&server->watchdog_timer, on_watchdog, half_millis, half_millis);
}

/* Warns if fewer than max_clients can connect; a refused client reads the same text. */
static void warn_of_files(const struct stg_settings *settings)
{
    uint64_t limit = stg_limit_files();
    uint64_t wanted = stg_limit_files_wanted(settings->max_clients);
    if (limit < wanted)
        stg_log(STG_LOG_WARNING,
                "%" PRIu64
                " file descriptors (the hard limit) are fewer than the %" PRIu64
                " of max_clients %u: set LimitNOFILE=%" PRIu64
                " in the unit (ulimit -Hn), or lower max_clients",
                limit, wanted, settings->max_clients, wanted);
}

void stg_server_run(struct stg_server *server)
{
    stg_log(STG_LOG_INFO, "stagerd %s ready on %s%s, memory_budget %.0f MiB", STG_VERSION,
            server->socket_path, server->inherited_socket ? " (of systemd)" : "",
            (double)server->budget.total / 1048576.0);
    warn_of_files(server->settings);
    start_watchdog(server);
    sd_notify(0, "READY=1\nSTATUS=ready");
    uv_run(&server->loop, UV_RUN_DEFAULT);
    stg_log(STG_LOG_INFO, "stopped");
}

void stg_server_finish(struct stg_server *server)
{
    stg_stop_serve(NULL, remove_socket, server);
    stg_gate_stop(server->gate);
    stg_elastic_finish(server->elastic);
    for (struct stg_session *s = server->sessions; s != NULL; s = s->next)
        stg_session_abort(s);
    if (server->has_loop)
        uv_run(&server->loop, UV_RUN_NOWAIT);
    remove_socket(server);
    while (server->catalog != NULL &&
           (stg_catalog_working(server->catalog) || server->n_probing > 0))
        uv_run(&server->loop, UV_RUN_ONCE);
    stg_catalog_destroy(server->catalog);
    stg_describe_finish();
    stg_fetchers_finish();
    stg_fair_configure(false);
    stg_share_finish();
    stg_confine_finish();
    stg_rules_destroy(server->rules);
    stg_stores_finish();
    stg_disk_finish();
    stg_recent_finish();
    stg_index_finish();
    stg_pools_destroy(server->pools);
    if (server->has_loop)
        stg_loop_finish(&server->loop);
    stg_gate_destroy(server->gate);
    stg_elastic_destroy(server->elastic);
    stg_reply_cache_finish(&server->replies);
    stg_operations_finish();
    free(server->config_text);
    if (server->listen_fd >= 0)
        close(server->listen_fd);
    if (server->spare_fd >= 0)
        close(server->spare_fd);
    stg_stop_serve(NULL, NULL, NULL);
    stg_locks_release(server->settings, &server->locks);
    if (server->catalog != NULL)
        stg_budget_finish(&server->budget);
}
