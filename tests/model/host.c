/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "daemon/host/fair.h"
#include "daemon/host/process.h"
#include "daemon/host/text_file.h"
#include "daemon/journal/file.h"
#include "daemon/pipeline/recovery.h"
#include "daemon/server/quarantine.h"
#include "tests/check.h"
#include "tests/model/explore.h"
#include "tests/model/wrap.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif

#define MAX_DONE 8

/* One stagerd. */
struct life {
    struct stg_server server;
    struct stg_catalog catalog;
    struct {
        uv_work_t *work;
        uv_after_work_cb after;
    } done[MAX_DONE];
    int n_done;
    int seat; /* that it serves */
    bool sweep_wanted, armed;
};

static struct host *host;
static const struct stg_settings *settings;
static struct stg_definition *definition;

struct host *host_create(const struct stg_settings *the_settings,
                         struct stg_definition *the_definition)
{
    host = calloc(1, sizeof(*host));
    CHECK(host != NULL);
    settings = the_settings;
    definition = calloc(1, sizeof(*definition)); /* its budget is a part of the path */
    CHECK(definition != NULL);
    *definition = *the_definition;
    host->in_use = true;
    return host;
}

struct stg_catalog *host_catalog(void)
{
    return &host->life->catalog;
}

/* ---- sessions ---- */

static struct line *line_of(const struct stg_session *session)
{
    return &host->lines[session->fd - SOCKET_OF(0)];
}

static struct stg_session *make_session(int seat)
{
    struct stg_session *session = calloc(1, sizeof(*session));
    session->server = &host->life->server;
    session->fd = SOCKET_OF(seat);
    session->pidfd = seat;
    session->pid = PID_OF(seat);
    session->version = STG_PROTOCOL_MAX;
    session->identity = definition->applier;
    snprintf(session->program, sizeof(session->program), "model");
    stg_bump_init(&session->open_bump, 0);
    session->next = host->life->server.sessions;
    host->life->server.sessions = session;
    return session;
}

static void free_session(struct stg_session *session)
{
    struct stg_session **at = &session->server->sessions;
    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    stg_bump_finish(&session->open_bump);
    stg_journal_unref(session->journal);
    free(session);
}

static void fail(struct stg_session *session, int code, const char *text)
{
    struct line *line = line_of(session);
    line->phase = PHASE_FAILED;
    line->code = code;
    snprintf(line->text, sizeof(line->text), "%.250s", text);
}

void __wrap_stg_session_fail(struct stg_session *session, uint64_t id, int code,
                             const char *text)
{
    fail(session, code, text);
}

void __wrap_stg_session_fail_with(struct stg_session *session,
                                  const struct stg_request *request,
                                  const struct stg_err *err)
{
    fail(session, err->code, err->text);
}

static void take_opened(struct line *line, const struct stg_reply *reply)
{
    line->phase = PHASE_OPENED;
    line->begins_pass = reply->begins_pass;
    line->skip_rows = reply->skip_rows;
    line->next_rejoin = reply->rejoin;
    line->signature = reply->signature;
    const char *text = reply->state != NULL ? reply->state : "";
    CHECK(strlen(text) < sizeof(line->begin));
    memset(line->begin, 0, sizeof(line->begin));
    memcpy(line->begin, text, strlen(text));
}

int __wrap_stg_session_reply(struct stg_session *session, const struct stg_reply *reply,
                             const int *fds, size_t n)
{
    struct line *line = line_of(session);
    CHECK(reply->kind == STG_REQUEST_OPEN);
    take_opened(line, reply);
    return 0;
}

bool __wrap_stg_session_post(struct stg_session *session, const struct stg_reply *reply)
{
    line_of(session)->phase = PHASE_JOINED;
    return true;
}

struct stg_pipeline *__wrap_stg_session_find_pipeline(struct stg_session *session,
                                                      const struct stg_request *request)
{
    return host->life->catalog.pipelines;
}

void __wrap_stg_session_set_deadline(struct stg_session *session, uint64_t millis)
{
}

void __wrap_stg_session_stop_waiting(struct stg_session *session)
{
    if (session->open_private != NULL)
        stg_catalog_abandon(session->open_private);
    stg_session_claim(session, NULL);
    session->open_waits = false;
}

void __wrap_stg_session_sweep_all(struct stg_server *server)
{
}

void __wrap_stg_session_hold(struct stg_session *session)
{
}

void __wrap_stg_session_release(struct stg_session *session)
{
}

void __wrap_stg_session_close(struct stg_session *session)
{
    explore_fail("the daemon closes a connection");
}

int __wrap_stg_quarantine_check(struct stg_server *server, uid_t uid, struct stg_err *err)
{
    return 0;
}

/* ---- workers: their work is done at once, and what follows waits for the loop ---- */

int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb call,
                         uv_after_work_cb after)
{
    struct life *life = host->life;
    call(work);
    CHECK(life->n_done < MAX_DONE);
    life->done[life->n_done].work = work;
    life->done[life->n_done++].after = after;
    return 0;
}

bool host_has_done(void)
{
    return host->life != NULL && host->life->n_done > 0;
}

void host_done(void)
{
    struct life *life = host->life;
    uv_work_t *work = life->done[0].work;
    uv_after_work_cb after = life->done[0].after;
    life->n_done--;
    memmove(&life->done[0], &life->done[1], sizeof(life->done[0]) * (MAX_DONE - 1));
    memset(&life->done[MAX_DONE - 1], 0, sizeof(life->done[0]));
    after(work, 0);
}

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return 1;
}

int __wrap_stg_fair_start(pthread_t *ret, struct stg_share *share,
                          void *(*run)(void *arg), void *arg)
{
    return pthread_create(ret, NULL, run, arg);
}

void __wrap_stg_heap_trim(struct stg_heap_trim *trim, uv_loop_t *loop)
{
}

void __wrap_stg_heap_shed_begin(void)
{
}

void __wrap_stg_heap_shed_end(void)
{
}

/* ---- the machine ---- */

/* Numbers that do not depend on the order in which clients come. */
ssize_t __real_getrandom(void *bytes, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t n, unsigned flags)
{
    if (!explore_inside() || !host->in_use)
        return __real_getrandom(bytes, n, flags);
    uint64_t number = host->n_lives * 100 + (uint64_t)host->life->seat + 2;
    CHECK(n == sizeof(number));
    memcpy(bytes, &number, n);
    return (ssize_t)n;
}

uint64_t __wrap_stg_process_id(int pidfd)
{
    return (uint64_t)pidfd + 1;
}

bool __wrap_stg_process_lives(pid_t pid, uint64_t id)
{
    return !host->lines[pid - PID_OF(0)].is_dead;
}

void __wrap_stg_process_boot(char *ret)
{
    snprintf(ret, 40, "boot");
}

static bool inside(void)
{
    return explore_inside() && host != NULL;
}

int __wrap_stg_text_file_replace_soon(const char *path, const char *temporary,
                                      const struct stg_text_part *parts, size_t n_parts,
                                      const char **ret_failed)
{
    CHECK(n_parts == 1 && parts[0].n < sizeof(host->record));
    memset(host->record, 0, sizeof(host->record));
    memcpy(host->record, parts[0].bytes, parts[0].n);
    host->record_bytes = parts[0].n;
    host->recorded();
    return 0;
}

int __wrap_stg_text_file_read(const char *path, size_t limit, struct stat *ret_stat,
                              char **ret, size_t *ret_bytes, struct stg_err *err)
{
    *ret = malloc(host->record_bytes + 1);
    memcpy(*ret, host->record, host->record_bytes + 1);
    *ret_bytes = host->record_bytes;
    return 0;
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    return inside() ? 0 : __real_mkdir(path, mode);
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
    if (!inside())
        return __real_access(path, mode);
    return host->record_bytes > 0 ? 0 : -1;
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    if (!inside())
        return __real_unlink(path);
    memset(host->record, 0, sizeof(host->record));
    host->record_bytes = 0;
    return 0;
}

void *__real_opendir(const char *path);
void *__wrap_opendir(const char *path)
{
    return inside() ? NULL : __real_opendir(path);
}

/* ---- the journal ---- */

int __wrap_stg_journal_file_init(struct stg_journal_file *file, const char *state_dir,
                                 const char *name, struct stg_err *err)
{
    return 0;
}

void __wrap_stg_journal_file_finish(struct stg_journal_file *file)
{
}

int __wrap_stg_journal_file_load(struct stg_journal_file *file,
                                 struct stg_commits *commits, struct stg_err *err)
{
    struct stg_commits_damage damage;
    int rc = stg_commits_read(commits, host->journal, host->journal_bytes, &damage, err);
    CHECK(rc < 0 || damage.n_bad == 0);
    return rc;
}

uint64_t __wrap_stg_journal_file_newest(struct stg_journal_file *file)
{
    return 0;
}

int __wrap_stg_journal_file_write(struct stg_journal_file *file, const char *line,
                                  size_t n, const char *all, size_t n_all,
                                  struct stg_err *err)
{
    CHECK(host->journal_bytes + n <= sizeof(host->journal));
    memcpy(host->journal + host->journal_bytes, line, n);
    host->journal_bytes += n;
    return 0;
}

/* ---- a life ---- */

static void on_changed(void *owner)
{
    stg_request_retry_opens(&host->life->server, false);
    host->life->sweep_wanted = true;
}

static void on_wake(void *owner)
{
    host->life->sweep_wanted = true;
}

static void on_event(void *owner, enum stg_event_kind kind, uint64_t pipeline)
{
}

static void on_written(void *owner)
{
    on_changed(owner);
}

static struct stg_pipeline *make_pipeline(struct stg_catalog *catalog)
{
    struct stg_pipeline *pipeline = calloc(1, sizeof(*pipeline));
    struct stg_err err = {0};
    snprintf(pipeline->name, sizeof(pipeline->name), "model");
    pipeline->id = 1;
    pipeline->definition = definition;
    pipeline->generation = 1;
    pipeline->run_id = 7000 + host->n_lives;
    struct stg_journal_config config = {.loop = catalog->loop,
                                        .state_dir = "/state",
                                        .name = pipeline->name,
                                        .writers = &catalog->journals,
                                        .changed = on_written};
    CHECK_OK(stg_journal_create(&config, &pipeline->journal, &err), err);
    return pipeline;
}

void host_boot(void)
{
    struct life *life = calloc(1, sizeof(*life));
    struct stg_catalog *catalog = &life->catalog;
    host->life = life;
    host->n_lives++;
    stg_budget_init(&life->server.budget, 1u << 30);
    definition->budget = (struct stg_budget){0}; /* the part of an earlier life */
    life->server.catalog = catalog;
    catalog->loop = &life->server.loop;
    catalog->settings = settings;
    catalog->budget = &life->server.budget;
    catalog->instance_id = 1;
    catalog->access_gid = (gid_t)-1;
    catalog->hooks.changed = on_changed;
    catalog->hooks.wake = on_wake;
    catalog->hooks.event = on_event;
    catalog->pipelines = make_pipeline(catalog);
    stg_recovery_load(catalog);
    life->sweep_wanted = true;
}

/* A client whose request was not answered tries again. */
static void lose(struct line *line, struct wire *wire)
{
    line->session = NULL;
    wire->shut = true;
    wire->doorbell_to_daemon = false;
    if (line->phase == PHASE_OPENS || line->phase == PHASE_OPENED)
        line->phase = PHASE_ASKS_OPEN;
    if (line->phase == PHASE_ASKS_JOIN)
        line->phase = PHASE_LOST;
}

void host_crash(void)
{
    process_kill(DAEMON);
    outside_lose_daemon();
    host->life = NULL;
    for (int i = 0; i < MAX_SEATS; i++)
        lose(&host->lines[i], &outside()->wires[i]);
}

/* ---- requests ---- */

static void open_again(struct line *line, struct stg_request *request)
{
    static char bytes[STG_MESSAGE_MAX_BYTES];
    long n = stg_wire_encode_request(request, bytes, sizeof(bytes));
    CHECK(n > 0);
    line->phase = PHASE_OPENS;
    stg_request_open(line->session, request, bytes, (size_t)n);
}

void host_open(int seat)
{
    struct line *line = &host->lines[seat];
    CHECK(line->session == NULL);
    host->life->seat = seat;
    outside()->wires[seat] = (struct wire){0};
    line->session = make_session(seat);
    struct stg_request request = {.id = 1,
                                  .kind = STG_REQUEST_OPEN,
                                  .name = "model",
                                  .client_id = line->client_id,
                                  .max_in_flight = line->max_in_flight,
                                  .state = line->has_state ? line->state : NULL,
                                  .rejoin = line->rejoin};
    open_again(line, &request);
}

void host_join(int seat)
{
    struct stg_request request = {.id = 2, .kind = STG_REQUEST_JOIN};
    host->life->seat = seat;
    stg_serve_join(host->lines[seat].session, &request);
}

void host_doorbell(int seat)
{
    struct stg_session *session = host->lines[seat].session;
    outside()->wires[seat].doorbell_to_daemon = false;
    stg_stage_doorbell(session->instance->stage, session->client);
    host->life->sweep_wanted = true;
}

/* As session.c: a client that closes its stream while it reconnects is not awaited. */
static void stop_returning(struct stg_session *session)
{
    uint64_t member = session->open_waits ? session->open.rejoin.member : session->member;
    if ((session->open_waits || session->client != NULL) && member != 0)
        stg_recovery_gone(host->life->catalog.pipelines, member);
}

void host_end(int seat)
{
    struct line *line = &host->lines[seat];
    struct stg_session *session = line->session;
    line->session = NULL;
    stop_returning(session);
    session->joining = false;
    stg_session_stop_waiting(session);
    if (session->client != NULL)
        stg_stage_dead(session->instance->stage, session->client);
    free_session(session);
    host->life->sweep_wanted = true;
}

/* ---- sweeps ---- */

void host_sweep_soon(void)
{
    if (host->life != NULL)
        host->life->sweep_wanted = true;
}

bool host_sweeps(void)
{
    const struct life *life = host->life;
    return life != NULL && (life->sweep_wanted || life->server.sweeps_soon ||
                            (life->armed && outside()->touched));
}

void host_sweep(void)
{
    struct life *life = host->life;
    life->sweep_wanted = life->server.sweeps_soon = outside()->touched = false;
    int millis = stg_catalog_sweep(&life->catalog);
    stg_request_retry_opens(&life->server, true);
    life->sweep_wanted |= millis >= 0 && millis < 5;
    life->armed = millis >= 0 && millis < 1000;
}
