/* SPDX-License-Identifier: Apache-2.0 */
#include "client/api/reconnect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/api/attach.h"
#include "client/api/close.h"
#include "client/api/poll.h"
#include "client/api/version.h"
#include "client/device/copier.h"
#include "client/run/run.h"
#include "client/stream/progress.h"

#define DEFAULT_MILLIS 300000u
#define FIRST_PAUSE_NS 10000000
#define LONGEST_PAUSE_NS 200000000
#define WAITS 1 /* of a step: neither done nor failed */

/* ---- at open ---- */

static const char *keep_text(struct stg_bump *bump, const char *text, bool *ok)
{
    const char *copy = text != NULL ? stg_bump_strdup(bump, text) : NULL;
    *ok = *ok && (text == NULL || copy != NULL);
    return copy;
}

static const char *const *keep_names(struct stg_bump *bump, const char *const *names,
                                     size_t n, bool *ok)
{
    if (names == NULL)
        return NULL;
    const char **copy = stg_bump_alloc(bump, (n + 1) * sizeof(*copy));
    *ok = *ok && copy != NULL;
    for (size_t i = 0; *ok && i < n; i++)
        copy[i] = keep_text(bump, names[i], ok);
    return copy;
}

static bool keep_options(struct stg_reconnect *reconnect, const char *name,
                         const char *client_id, const struct stager_options *options)
{
    struct stg_bump *bump = &reconnect->bump;
    struct stager_options *copy = &reconnect->options;
    bool ok = true;
    *copy = *options;
    reconnect->name = keep_text(bump, name, &ok);
    reconnect->client_id = keep_text(bump, client_id, &ok);
    copy->client_id = keep_text(bump, options->client_id, &ok);
    copy->runtime_dir = copy->state = NULL;
    copy->device = keep_text(bump, options->device, &ok);
    copy->job = keep_text(bump, options->job, &ok);
    copy->fields = keep_names(bump, options->fields, options->n_fields, &ok);
    copy->fetches = keep_names(bump, options->fetches, options->n_fetches, &ok);
    return ok;
}

int stg_reconnect_keep(struct stager_stream *stream, const char *name,
                       const struct stager_options *options,
                       const struct stg_rejoin *rejoin, struct stg_err *err)
{
    uint32_t millis = options->daemon_reconnect_millis;
    if ((rejoin->member == 0 || millis == STAGER_NEVER) && options->follow == 0)
        return 0;
    struct stg_reconnect *reconnect = calloc(1, sizeof(*reconnect));
    if (reconnect == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stream->reconnect = reconnect;
    reconnect->address = stream->client->address;
    reconnect->rejoin = *rejoin;
    reconnect->only_follows = rejoin->member == 0;
    reconnect->limit_ns = (millis != 0 ? millis : DEFAULT_MILLIS) * UINT64_C(1000000);
    if (!keep_options(reconnect, name, stream->client_id, options))
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    reconnect->options.resume = stream->is_approximate ? "approximate" : NULL;
    return 0;
}

/* ---- between two attempts ---- */

/* Returns the pause after one of pause_ns; 0: the first one. */
static int64_t pause_after(int64_t pause_ns)
{
    if (pause_ns == 0)
        return FIRST_PAUSE_NS;
    return 2 * pause_ns < LONGEST_PAUSE_NS ? 2 * pause_ns : LONGEST_PAUSE_NS;
}

static void pause_until_next(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    reconnect->pause_ns = pause_after(reconnect->pause_ns);
    reconnect->retry_ns = stg_clock_ns() + reconnect->pause_ns;
}

/* Gives up the stream that was on its way; stagerd drops it with its socket. */
static void drop_next(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    struct stager_stream *next = reconnect->next;
    reconnect->phase = STG_RECONNECT_CONNECT;
    reconnect->next = NULL;
    if (next == NULL)
        return;
    stg_poll_watch(stream->poll, -1, reconnect->retry_ns);
    stager_disconnect(next->client);
    next->client = NULL;
    stager_close(next);
}

/* Memory or descriptors are short on this side: returns the error; the trainer may try
 * again. */
static int fail_now(struct stager_stream *stream, const struct stg_err *why)
{
    pause_until_next(stream);
    drop_next(stream);
    stream->late = false;
    return stg_err(&stream->err, why->code, "%s; reconnecting failed: %s",
                   stream->is_replaced ? stream->final_text : "stagerd runs again",
                   why->text);
}

static int end(struct stager_stream *stream, int code, const char *text)
{
    struct stg_err copy;
    if (stream->is_replaced)
        stg_err(&copy, code, "%s, and the stream cannot follow: %s", stream->final_text,
                text);
    else
        stg_err(&copy, code, "%s", text);
    stream->late = false;
    drop_next(stream);
    stream->reconnect->since_ns = 0;
    stream->is_gone = stream->is_replaced = false;
    return stg_stream_finish(stream, code, copy.text);
}

static int give_up(struct stager_stream *stream)
{
    const struct stg_reconnect *reconnect = stream->reconnect;
    struct stg_err err;
    stg_err(&err, -STAGER_UNAVAILABLE,
            "stagerd closed the connection, and did not come back within %llu ms "
            "(daemon_reconnect_millis); batches in hand stay readable; start stagerd and "
            "open the stream again",
            (unsigned long long)(reconnect->limit_ns / 1000000));
    if (reconnect->why[0] != '\0')
        stg_err_append(&err, -STAGER_UNAVAILABLE, ": %s", reconnect->why);
    return end(stream, err.code, err.text);
}

/* The limit counts while no attempt succeeds: a trainer may have paused for longer. */
static int try_later(struct stager_stream *stream, const struct stg_err *why)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    pause_until_next(stream);
    drop_next(stream);
    snprintf(reconnect->why, STG_ERR_TEXT_BYTES, "%s", why->text);
    if ((uint64_t)(stg_clock_ns() - reconnect->since_ns) >= reconnect->limit_ns)
        return give_up(stream);
    return WAITS;
}

/* ---- steps: 0 is done, WAITS, or an error ---- */

static int begin(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    int64_t now_ns = stg_clock_ns();
    struct stg_err err = {0};
    struct stager *client = NULL;
    if (now_ns < reconnect->retry_ns)
        return WAITS;
    int rc = stg_client_begin(&reconnect->address, false, &client, &err);
    if (rc == -STAGER_RESOURCE_EXHAUSTED)
        return fail_now(stream, &err);
    if (rc < 0)
        return try_later(stream, &err);
    rc = stg_attach_create(&reconnect->options, &reconnect->next, &err);
    if (rc < 0) {
        stager_disconnect(client);
        return fail_now(stream, &err);
    }
    reconnect->next->client = client;
    reconnect->phase = STG_RECONNECT_HELLO;
    reconnect->retry_ns = now_ns + STG_REQUEST_NS;
    return 0;
}

/* The version that the stream was about to join has a successor already. */
static bool is_outrun(const struct stager_stream *stream, const struct stg_err *err)
{
    return stream->reconnect->options.follow != 0 && err->code == -STAGER_ABORTED &&
           strncmp(err->text, STG_FINAL_REPLACED, strlen(STG_FINAL_REPLACED)) == 0;
}

/* What a failed answer means. */
static int judge(struct stager_stream *stream, int rc, const struct stg_err *err)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    bool is_reply = reconnect->next->client->is_answered;
    if (rc == -STAGER_DEADLINE_EXCEEDED && !is_reply)
        return stg_clock_ns() < reconnect->retry_ns ? WAITS : try_later(stream, err);
    if (rc == -STAGER_UNAVAILABLE || is_outrun(stream, err))
        return try_later(stream, err);
    if (rc == -STAGER_RESOURCE_EXHAUSTED &&
        (!is_reply || reconnect->phase == STG_RECONNECT_HELLO))
        return fail_now(stream, err);
    return end(stream, rc, err->text);
}

static int send_open(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    struct stager *client = reconnect->next->client;
    struct stg_err err = {0};
    int rc = stg_client_ask(client, &reconnect->request, stg_clock_ns(), &err);
    /* What the request refers to may go. */
    reconnect->request =
        (struct stg_request){.kind = STG_REQUEST_OPEN, .id = reconnect->request.id};
    if (rc < 0)
        return judge(stream, rc, &err);
    reconnect->phase = STG_RECONNECT_OPEN;
    reconnect->retry_ns = STG_NEVER;
    return 0;
}

static void fill_open(struct stager_stream *stream, const struct stager_options *options)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    stg_attach_request(reconnect->next, reconnect->name, options, reconnect->client_id,
                       &reconnect->request);
    reconnect->request.rejoin = reconnect->rejoin;
    reconnect->request.generation = stream->generation;
}

/* The state is that of now: what the trainer has. */
static int ask_open(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    struct stg_state state;
    char text[STG_STATE_TEXT_BYTES];
    struct stg_err err = {0};
    bool has = false;
    int rc = stg_progress_lost(stream, &has, &state, &err);
    if (rc == -STAGER_RESOURCE_EXHAUSTED && stream->taken_err.code == 0)
        return fail_now(stream, &err);
    if (rc < 0)
        return end(stream, rc, err.text);
    reconnect->options.state = NULL;
    if (has && (stream->irreproducible[0] == '\0' || stream->is_approximate)) {
        stg_state_write(&state, text);
        struct stg_bump *bump = &reconnect->next->bump;
        reconnect->options.state = stg_bump_strdup(bump, text);
        if (reconnect->options.state == NULL) {
            stg_err(&err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
            return fail_now(stream, &err);
        }
    }
    fill_open(stream, &reconnect->options);
    return send_open(stream);
}

static int greet(struct stager_stream *stream)
{
    struct stager *client = stream->reconnect->next->client;
    struct stg_err err = {0};
    int rc = stg_client_greet(client, 0, &err);
    if (rc < 0)
        return judge(stream, rc, &err);
    if (client->version < STG_PROTOCOL_RECONNECT) {
        stg_client_outdated(client, "takes up no streams of the one before", &err);
        return end(stream, err.code, err.text);
    }
    stream->reconnect->n_asked = 0;
    return ask_open(stream);
}

/* stagerd asks what this build cannot compute. */
static int look(struct stager_stream *stream, const struct stg_reply *reply)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    struct stg_asked asked = {0};
    struct stg_err err = {0};
    if (reconnect->n_asked++ == STG_MAX_ASKED)
        return end(stream, -STAGER_ABORTED,
                   "the pipeline was replaced several times while the stream "
                   "reconnected: open it again");
    fill_open(stream, &reconnect->options);
    int rc = stg_attach_look(reconnect->next->client, reply, &asked, &reconnect->request,
                             &err);
    rc = rc < 0 ? fail_now(stream, &err) : send_open(stream);
    stg_asked_finish(&asked);
    return rc;
}

/* Takes the reply; a stream that begins anew has no state. */
static int take_reply(struct stager_stream *stream, const struct stg_reply *reply,
                      const int *fds, size_t n_fds, struct stg_err *err)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    struct stager_options options = reconnect->options;
    reconnect->begins_anew = reply->anew;
    if (reply->anew)
        options.state = NULL;
    int rc = stg_attach_take(reconnect->next, reply, fds, n_fds, &options,
                             reconnect->client_id, err);
    return rc == 0 && reconnect->next->generation != stream->generation
               ? stg_version_check(stream, reconnect->next, err)
               : rc;
}

static int take_open(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    struct stager_stream *next = reconnect->next;
    struct stg_reply reply;
    int fds[STG_OPEN_MAX];
    size_t n_fds = 0;
    struct stg_err err = {0};
    int rc = stg_client_answer(next->client, &reconnect->request, 0, &reply, fds,
                               STG_OPEN_MAX, &n_fds, &err);
    if (rc < 0)
        return judge(stream, rc, &err);
    if (reply.asks)
        return look(stream, &reply);
    struct stg_rejoin rejoin = reply.rejoin;
    rc = take_reply(stream, &reply, fds, n_fds, &err);
    if (rc == -STAGER_RESOURCE_EXHAUSTED)
        return fail_now(stream, &err);
    if (rc < 0)
        return end(stream, rc, err.text);
    reconnect->rejoin = rejoin;
    stg_attach_join(next, &reconnect->request);
    reconnect->phase = STG_RECONNECT_JOIN;
    reconnect->retry_ns = stg_clock_ns() + STG_REQUEST_NS;
    rc = stg_client_ask(next->client, &reconnect->request, stg_clock_ns(), &err);
    return rc < 0 ? judge(stream, rc, &err) : 0;
}

static void count_change(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    if (reconnect->next->generation != stream->generation) {
        reconnect->n_followed++;
        reconnect->only_follows = reconnect->rejoin.member == 0;
    }
    if (!stream->is_gone)
        return;
    reconnect->away_ns += (uint64_t)(stg_clock_ns() - reconnect->since_ns);
    reconnect->n++;
}

/* Returns device errors of the last runs now: the next run is on another stream. */
static int change(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    struct stager_stream *next = reconnect->next;
    count_change(stream);
    reconnect->next = NULL;
    reconnect->phase = STG_RECONNECT_CONNECT;
    reconnect->options.state = NULL;
    reconnect->since_ns = reconnect->pause_ns = 0;
    reconnect->why[0] = '\0';
    int late = stg_computer_synchronize(stream);
    stg_stream_exchange(stream, next);
    if (reconnect->begins_anew)
        stream->n_over = 0;
    stg_poll_watch(stream->poll, stream->client->fd, 0);
    stg_stream_retire(next, stream);
    return late;
}

static int take_join(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    struct stg_reply reply;
    struct stg_err err = {0};
    int rc = stg_client_answer(reconnect->next->client, &reconnect->request, 0, &reply,
                               NULL, 0, NULL, &err);
    return rc < 0 ? judge(stream, rc, &err) : change(stream);
}

/* Goes as far as it can without a wait. */
static int step(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    int rc = 0;
    while (rc == 0 && reconnect->since_ns != 0) {
        switch (reconnect->phase) {
        case STG_RECONNECT_CONNECT: rc = begin(stream); break;
        case STG_RECONNECT_HELLO: rc = greet(stream); break;
        case STG_RECONNECT_OPEN: rc = take_open(stream); break;
        case STG_RECONNECT_JOIN: rc = take_join(stream); break;
        }
    }
    return rc;
}

/* ---- waits ---- */

int stg_reconnect_watched(const struct stager_stream *stream, int64_t *ret_ns)
{
    const struct stg_reconnect *reconnect = stream->reconnect;
    *ret_ns = STG_NEVER;
    if (reconnect == NULL || reconnect->since_ns == 0)
        return stream->client->fd;
    *ret_ns = reconnect->retry_ns;
    return reconnect->next != NULL ? reconnect->next->client->fd : -1;
}

static void begin_wait(struct stager_stream *stream)
{
    struct stg_reconnect *reconnect = stream->reconnect;
    if (reconnect->since_ns != 0)
        return;
    reconnect->since_ns = stg_clock_ns();
    reconnect->retry_ns = reconnect->since_ns;
    reconnect->pause_ns = 0;
    reconnect->why[0] = '\0';
    if (stream->is_replaced) /* what it does not hold may be freed for the next version */
        stg_socket_leave(stream->client->fd);
}

/* The wait has ended before stagerd was there. */
static int end_late(struct stager_stream *stream)
{
    int64_t at_ns;
    int fd = stg_reconnect_watched(stream, &at_ns);
    stg_poll_watch(stream->poll, fd, at_ns);
    stream->late = true;
    return stg_stream_say_late(stream, 0);
}

int stg_reconnect_until(struct stager_stream *stream, int64_t deadline_ns)
{
    begin_wait(stream);
    for (;;) {
        int rc = step(stream);
        if (rc != WAITS)
            return rc;
        int64_t now_ns = stg_clock_ns(), at_ns;
        int fd = stg_reconnect_watched(stream, &at_ns);
        bool is_over = now_ns >= deadline_ns;
        if (!is_over) {
            is_over = !stg_socket_wait(fd, at_ns < deadline_ns ? at_ns : deadline_ns);
            stream->n_sleeps++;
            stream->wait_ns += (uint64_t)(stg_clock_ns() - now_ns);
        }
        if (is_over)
            return end_late(stream);
    }
}

/* ---- a commit ---- */

/* *ret_answered: the code is stagerd's. */
static int commit_once(struct stager_stream *stream, struct stg_request *request,
                       int64_t limit_ns, bool *ret_answered)
{
    struct stager *client;
    struct stg_reply reply;
    int rc = stg_client_connect(&stream->reconnect->address, &client, &stream->err);
    *ret_answered = false;
    if (rc < 0)
        return rc;
    if (client->version < STG_PROTOCOL_RECONNECT) {
        *ret_answered = true;
        rc = stg_client_outdated(client, "takes up no streams of the one before",
                                 &stream->err);
    } else {
        rc = stg_client_call(client, request, limit_ns, &reply, NULL, 0, NULL,
                             &stream->err);
        *ret_answered = client->is_answered;
    }
    stager_disconnect(client);
    return rc;
}

int stg_reconnect_commit(struct stager_stream *stream, const char *state, const char *tag,
                         int64_t limit_ns)
{
    const struct stg_reconnect *reconnect = stream->reconnect;
    struct stg_request request = {.kind = STG_REQUEST_COMMIT,
                                  .state = state,
                                  .tag = tag,
                                  .name = reconnect->name,
                                  .client_id = reconnect->client_id,
                                  .named = reconnect->options.client_id != NULL,
                                  .rejoin = reconnect->rejoin};
    int64_t begin_ns = stg_clock_ns(), pause_ns = 0;
    for (;;) {
        bool is_answered, is_over;
        int rc = commit_once(stream, &request, limit_ns, &is_answered);
        int64_t now_ns = stg_clock_ns();
        is_over = (uint64_t)(now_ns - begin_ns) >= reconnect->limit_ns;
        if (is_answered || is_over ||
            (rc != -STAGER_UNAVAILABLE && rc != -STAGER_PERMISSION_DENIED))
            return rc;
        pause_ns = pause_after(pause_ns);
        if (!stg_socket_wait(-1, now_ns + pause_ns))
            return stg_err(&stream->err, -STAGER_DEADLINE_EXCEEDED,
                           "the wait for stagerd was interrupted");
    }
}
