/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gate/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/gate/frame.h"
#include "daemon/gate/token.h"
#include "daemon/host/helper.h"
#include "daemon/host/identity.h"

#define FRAMES_A_TURN 16
#define SOON_MILLIS 50
#define SOON_DEATHS 6 /* restarted at once; after more, later and later */
#define REST_MILLIS 200
#define REST_MAX_MILLIS 10000
#define LIVED_NS 10000000000u /* a life this long makes up for earlier deaths */
#define FULL_NS 5000000000u
#define STOP_MILLIS 1000
#define ADMIN_NAME "admin.sock"
#define EVENTS_NAME "events.sock"

/* One life of stager-gate. */
struct process {
    struct stg_gate *gate; /* NULL: given up, and goes when its handles are closed */
    uv_poll_t poll, pid_poll;
    int n_handles;
    int fd, pidfd;
    pid_t pid;
    bool ready; /* its sockets are bound */
    uint64_t began_ns;
    uint64_t full_since_ns; /* it has not read since then; 0: it reads */
};

struct stg_gate {
    struct stg_gate_config config;
    bool enabled;
    char why[STG_ERR_TEXT_BYTES]; /* why there can be none; "": there can */
    char dir[4096], program[4096];
    char admin_url[4096], events_url[4096];
    uid_t uid;        /* what it becomes when we are root */
    gid_t gid, group; /* group: whose sockets they are; (gid_t)-1: of no group */
    struct process *process;
    uv_timer_t restart;
    unsigned n_deaths; /* one soon after the other */

    struct stg_tokens tokens;
    uint64_t sequence;
    unsigned char token[STG_TOKEN_BYTES]; /* the last one that was given */
};

static void start(struct stg_gate *gate);

/* ---- the process's handles ---- */

static void on_closed(uv_handle_t *handle)
{
    struct process *process = handle->data;
    if (--process->n_handles == 0)
        free(process);
}

/* Drops it: its end is of no interest any more. */
static void drop(struct process *process)
{
    process->gate->process = NULL;
    process->gate = NULL;
    uv_poll_stop(&process->poll);
    uv_poll_stop(&process->pid_poll);
    close(process->fd);
    close(process->pidfd);
    uv_close((uv_handle_t *)&process->poll, on_closed);
    uv_close((uv_handle_t *)&process->pid_poll, on_closed);
}

/* ---- death ---- */

static void on_restart(uv_timer_t *timer)
{
    struct stg_gate *gate = timer->data;
    if (gate->enabled && gate->process == NULL)
        start(gate);
}

static void start_later(struct stg_gate *gate)
{
    unsigned rests = gate->n_deaths > SOON_DEATHS ? gate->n_deaths - SOON_DEATHS : 0;
    uint64_t millis = SOON_MILLIS;
    if (rests > 0)
        millis = rests < 7 ? (uint64_t)REST_MILLIS << (rests - 1) : REST_MAX_MILLIS;
    if (millis > REST_MAX_MILLIS)
        millis = REST_MAX_MILLIS;
    uv_timer_start(&gate->restart, on_restart, millis, 0);
}

static void log_death(const struct process *process, int status)
{
    if (WIFSIGNALED(status))
        stg_log(STG_LOG_WARNING,
                "stager-gate (pid %d) died by signal %d (%s): stagerd restarts it; "
                "trainers are not affected",
                (int)process->pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        stg_log(STG_LOG_WARNING,
                "stager-gate (pid %d) ended with status %d: stagerd restarts it; "
                "trainers are not affected",
                (int)process->pid, WEXITSTATUS(status));
}

static void on_death(uv_poll_t *poll, int uv_status, int events)
{
    struct process *process = poll->data;
    struct stg_gate *gate = process->gate;
    int status = 0;
    if (gate == NULL || waitpid(process->pid, &status, WNOHANG) != process->pid)
        return;
    log_death(process, status);
    gate->n_deaths = uv_hrtime() - process->began_ns >= LIVED_NS ? 1 : gate->n_deaths + 1;
    drop(process);
    start_later(gate);
}

/* ---- frames ---- */

static void end(struct process *process, const char *why)
{
    stg_log(STG_LOG_WARNING, "stager-gate (pid %d) %s: stagerd ends it",
            (int)process->pid, why);
    uv_poll_stop(&process->poll);
    kill(process->pid, SIGKILL); /* ours until on_death reaps it */
}

static void send_frame(struct stg_gate *gate, enum stg_gate_frame_kind kind, uint64_t tag,
                       const void *payload, size_t bytes)
{
    struct process *process = gate->process;
    if (process == NULL || !process->ready)
        return;
    struct stg_gate_frame frame = {.kind = kind, .tag = tag};
    struct iovec parts[] = {
        {.iov_base = &frame, .iov_len = sizeof(frame)},
        {.iov_base = (void *)(uintptr_t)payload, .iov_len = bytes},
    };
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (sendmsg(process->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        process->full_since_ns = 0;
        return;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return; /* on_death has the word */
    uint64_t now = uv_hrtime();
    if (process->full_since_ns == 0)
        process->full_since_ns = now;
    else if (now - process->full_since_ns > FULL_NS &&
             uv_is_active((uv_handle_t *)&process->poll))
        end(process, "has not read for 5 s");
}

void stg_gate_reply(struct stg_gate *gate, uint64_t tag, const void *payload,
                    size_t bytes)
{
    send_frame(gate, STG_GATE_REPLY, tag, payload, bytes);
}

void stg_gate_event(struct stg_gate *gate, enum stg_event_kind kind, uint64_t pipeline)
{
    if (gate == NULL)
        return;
    struct stg_event event = {.instance = gate->config.instance,
                              .sequence = ++gate->sequence,
                              .pipeline = pipeline,
                              .kind = kind};
    char buf[STG_EVENT_MAX_BYTES];
    long bytes = stg_wire_encode_event(&event, buf, sizeof(buf));
    if (bytes > 0)
        send_frame(gate, STG_GATE_EVENT, 0, buf, (size_t)bytes);
}

static void take_frame(struct process *process, const char *bytes, size_t n)
{
    struct stg_gate *gate = process->gate;
    struct stg_gate_frame frame;
    if (n < sizeof(frame) || n > sizeof(frame) + STG_GATE_PAYLOAD_MAX_BYTES) {
        end(process, "sent a frame of the wrong size");
        return;
    }
    memcpy(&frame, bytes, sizeof(frame));
    if (frame.kind == STG_GATE_READY && !process->ready && n == sizeof(frame)) {
        process->ready = true;
        stg_log(STG_LOG_INFO, "stager-gate (pid %d) ready on %s", (int)process->pid,
                gate->admin_url);
        stg_gate_event(gate, STG_EVENT_GATE, 0);
    } else if (frame.kind == STG_GATE_REQUEST && process->ready && frame.zero == 0) {
        gate->config.serve(gate->config.owner, frame.tag, bytes + sizeof(frame),
                           n - sizeof(frame));
    } else {
        end(process, "sent a malformed frame");
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    static char buf[sizeof(struct stg_gate_frame) + STG_GATE_PAYLOAD_MAX_BYTES + 1];
    struct process *process = poll->data;
    for (int i = 0; i < FRAMES_A_TURN && uv_is_active((uv_handle_t *)poll); i++) {
        ssize_t n = recv(process->fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (n <= 0) {
            uv_poll_stop(poll);
            kill(process->pid, SIGKILL); /* it ends, or has closed its endpoint to us */
            return;
        }
        take_frame(process, buf, (size_t)n);
    }
}

/* ---- birth ---- */

static void on_half_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Its two handles are on the loop, or none is and it is freed when the loop turns. */
static int init_handles(uv_loop_t *loop, struct process *process)
{
    process->poll.data = process;
    process->pid_poll.data = process;
    process->n_handles = 2;
    int rc = uv_poll_init(loop, &process->poll, process->fd);
    if (rc < 0) {
        free(process);
        return rc;
    }
    rc = uv_poll_init(loop, &process->pid_poll, process->pidfd);
    if (rc < 0)
        uv_close((uv_handle_t *)&process->poll, on_half_closed);
    return rc;
}

/* Looks after a process that was started; 0, or what is wrong as errno says it, and then
 * it is ended. fd becomes its own. */
static int watch(struct stg_gate *gate, pid_t pid, int fd)
{
    struct process *process = calloc(1, sizeof(*process));
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int number = process == NULL ? ENOMEM : pidfd < 0 ? errno : 0;
    if (number == 0) {
        process->gate = gate;
        process->fd = fd;
        process->pidfd = pidfd;
        process->pid = pid;
        process->began_ns = uv_hrtime();
        number = -init_handles(gate->config.loop, process);
    } else {
        free(process);
    }
    if (number != 0) {
        stg_helper_end(pid);
        if (pidfd >= 0)
            close(pidfd);
        close(fd);
        return number;
    }
    uv_poll_start(&process->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    uv_poll_start(&process->pid_poll, UV_READABLE, on_death);
    gate->process = process;
    return 0;
}

static int spawn(const struct stg_gate *gate, int end_fd, pid_t *ret)
{
    char uid[24], gid[24], group[24], parent[24], journal[128];
    snprintf(uid, sizeof(uid), "%u", (unsigned)gate->uid);
    snprintf(gid, sizeof(gid), "%u", (unsigned)gate->gid);
    snprintf(group, sizeof(group), "%u", (unsigned)gate->group);
    snprintf(parent, sizeof(parent), "%d", (int)getpid());
    const char *stream = getenv("JOURNAL_STREAM");
    snprintf(journal, sizeof(journal), "JOURNAL_STREAM=%.100s",
             stream != NULL ? stream : "");
    char *argv[] = {
        (char *)"stager-gate", (char *)gate->dir, uid, gid, group, parent, NULL};
    char *env[] = {journal, NULL};
    return stg_helper_spawn(gate->program, argv, env, end_fd, ret);
}

static void start(struct stg_gate *gate)
{
    int ends[2];
    pid_t pid = 0;
    int number =
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0 ? errno : 0;
    if (number == 0) {
        number = spawn(gate, ends[1], &pid);
        close(ends[1]);
        if (number == 0)
            number = watch(gate, pid, ends[0]);
        else
            close(ends[0]);
    }
    if (number == 0)
        return;
    stg_log(STG_LOG_WARNING, "cannot start %s: %s; stagerd tries again", gate->program,
            strerror(number));
    gate->n_deaths++;
    start_later(gate);
}

/* ---- folder and user ---- */

static int find_program(struct stg_gate *gate, struct stg_err *err)
{
    int rc =
        stg_helper_find("gate", "stager-gate", gate->program, sizeof(gate->program), err);
    return rc < 0 ? stg_err_append(err, rc,
                                   ", or write `gate: {enable: false}` into stagerd.yaml")
                  : 0;
}

static int choose_paths(struct stg_gate *gate, struct stg_err *err)
{
    const char *dir = gate->config.settings->runtime_dir;
    snprintf(gate->dir, sizeof(gate->dir), "%.3000s/gate", dir);
    int n = snprintf(gate->events_url, sizeof(gate->events_url), "ipc://%.3000s/gate/%s",
                     dir, EVENTS_NAME) -
            (int)strlen("ipc://");
    snprintf(gate->admin_url, sizeof(gate->admin_url), "ipc://%.3000s/gate/%s", dir,
             ADMIN_NAME);
    if (n > STG_GATE_PATH_MAX_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "runtime_dir %.256s is too long: with /gate/" EVENTS_NAME
                       " a socket's path has %d bytes, and the maximum is %d; use a "
                       "shorter one, or write `gate: {enable: false}` into stagerd.yaml",
                       dir, n, STG_GATE_PATH_MAX_BYTES);
    return 0;
}

static bool is_member(gid_t gid)
{
    gid_t groups[STG_MAX_GROUPS];
    int n = getgroups(STG_MAX_GROUPS, groups);
    for (int i = 0; i < n; i++) {
        if (groups[i] == gid)
            return true;
    }
    return gid == getegid() || geteuid() == 0;
}

/* Root's gate is the user stager's, or nobody's. Its sockets are the access_group's. */
static void choose_identity(struct stg_gate *gate)
{
    gid_t group = stg_group_id(gate->config.settings->access_group);
    gate->group = group != (gid_t)-1 && is_member(group) ? group : (gid_t)-1;
    gate->uid = geteuid();
    gate->gid = getegid();
    if (gate->uid != 0)
        return;
    const struct passwd *user = getpwnam("stager");
    if (user == NULL)
        user = getpwnam("nobody");
    gate->uid = user != NULL ? user->pw_uid : 65534;
    gate->gid = user != NULL ? user->pw_gid : 65534;
    if (gate->group != (gid_t)-1)
        gate->gid = gate->group;
}

/* A unit forbids chown: what is right already is left alone. */
static int give(const char *path, const struct stat *st, uid_t uid, gid_t gid)
{
    bool right = st->st_uid == uid && (gid == (gid_t)-1 || st->st_gid == gid);
    return right ? 0 : chown(path, uid, gid);
}

/* The folder is in runtime_dir, which is ours; in it is the gate's to write. */
static int make_folder(struct stg_gate *gate, struct stg_err *err)
{
    struct stat st;
    if (mkdir(gate->dir, 0700) < 0 && errno != EEXIST)
        return stg_err(err, -STAGER_PERMISSION_DENIED, "cannot create %s: %s", gate->dir,
                       strerror(errno));
    if (lstat(gate->dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s exists and is not a directory: remove it", gate->dir);
    if (gate->group != (gid_t)-1 && give(gate->dir, &st, gate->uid, gate->group) < 0) {
        stg_log(STG_LOG_INFO,
                "cannot give group %s access to %s (%s): only uid %u and root can use "
                "the gate",
                gate->config.settings->access_group, gate->dir, strerror(errno),
                (unsigned)gate->uid);
        gate->group = (gid_t)-1;
    }
    if (give(gate->dir, &st, gate->uid, gate->group) < 0 ||
        chmod(gate->dir, gate->group != (gid_t)-1 ? 0750 : 0700) < 0)
        return stg_err(err, -STAGER_PERMISSION_DENIED, "cannot give %s to uid %u: %s",
                       gate->dir, (unsigned)gate->uid, strerror(errno));
    return 0;
}

void stg_gate_enable(struct stg_gate *gate, bool enable)
{
    struct stg_err err = {0};
    if (enable == gate->enabled)
        return;
    if (!enable) {
        stg_gate_stop(gate);
        return;
    }
    gate->enabled = true;
    gate->why[0] = '\0';
    gate->n_deaths = 0;
    choose_identity(gate);
    int rc = choose_paths(gate, &err);
    if (rc == 0)
        rc = find_program(gate, &err);
    if (rc == 0)
        rc = make_folder(gate, &err);
    if (rc < 0) {
        snprintf(gate->why, sizeof(gate->why), "%s", err.text);
        stg_log(STG_LOG_ERROR, "the gate is not running: %s", err.text);
        return;
    }
    start(gate);
}

/* ---- tokens ---- */

int stg_gate_give_token(struct stg_gate *gate, const struct stg_identity *identity,
                        struct stg_reply *ret, struct stg_err *err)
{
    if (!gate->enabled)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the gate is turned off: write `gate: {enable: true}` into "
                       "stagerd.yaml, and reload stagerd");
    if (gate->why[0] != '\0')
        return stg_err(err, -STAGER_FAILED_PRECONDITION, "the gate is not running: %s",
                       gate->why);
    int rc = stg_tokens_give(&gate->tokens, identity, uv_hrtime(), gate->token, err);
    if (rc < 0)
        return rc;
    ret->token = gate->token;
    ret->seconds = STG_TOKEN_SECONDS;
    ret->admin_url = gate->admin_url;
    ret->events_url = gate->events_url;
    return 0;
}

const struct stg_identity *stg_gate_find_user(const struct stg_gate *gate,
                                              const void *token, size_t bytes)
{
    return stg_tokens_find(&gate->tokens, token, bytes, uv_hrtime());
}

/* ---- the end ---- */

static void reap(const struct process *process)
{
    struct pollfd dead = {.fd = process->pidfd, .events = POLLIN};
    kill(process->pid, SIGKILL);
    poll(&dead, 1, STOP_MILLIS);
    waitpid(process->pid, NULL, WNOHANG);
}

void stg_gate_stop(struct stg_gate *gate)
{
    static const char *const names[] = {ADMIN_NAME, EVENTS_NAME};
    if (gate == NULL || !gate->enabled)
        return;
    gate->enabled = false;
    uv_timer_stop(&gate->restart);
    if (gate->process != NULL) {
        reap(gate->process);
        drop(gate->process);
    }
    if (gate->why[0] != '\0')
        return;
    for (size_t i = 0; i < 2; i++) {
        char path[4200];
        snprintf(path, sizeof(path), "%s/%s", gate->dir, names[i]);
        unlink(path);
    }
    rmdir(gate->dir);
}

int stg_gate_create(const struct stg_gate_config *config, struct stg_gate **ret,
                    struct stg_err *err)
{
    struct stg_gate *gate = calloc(1, sizeof(*gate));
    if (gate == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    gate->config = *config;
    uv_timer_init(config->loop, &gate->restart);
    gate->restart.data = gate;
    *ret = gate;
    return 0;
}

void stg_gate_destroy(struct stg_gate *gate)
{
    if (gate == NULL)
        return;
    stg_tokens_finish(&gate->tokens);
    explicit_bzero(gate->token, sizeof(gate->token));
    free(gate);
}
