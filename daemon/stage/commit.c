/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/effects.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/stage/priv.h"

/* Doorbells and disconnects between two looks at the clients. */
#define MAX_CALLS 16u

/* ---- endpoints ---- */

struct stg_endpoint *stg_endpoint_create(int socket)
{
    struct stg_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL)
        return NULL;
    endpoint->refs = 1;
    endpoint->socket = socket;
    pthread_mutex_init(&endpoint->lock, NULL);
    return endpoint;
}

struct stg_endpoint *stg_endpoint_ref(struct stg_endpoint *endpoint)
{
    atomic_fetch_add(&endpoint->refs, 1);
    return endpoint;
}

void stg_endpoint_unref(struct stg_endpoint *endpoint)
{
    if (endpoint == NULL || atomic_fetch_sub(&endpoint->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&endpoint->lock);
    free(endpoint);
}

void stg_endpoint_close(struct stg_endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->lock);
    endpoint->socket = -1;
    pthread_mutex_unlock(&endpoint->lock);
}

/* I4: the doorbell is non-blocking by call. Whether it is rung, or its client has gone: a
 * kernel out of memory is asked again. A full socket is too, although a doorbell is
 * there. */
static bool ring(int socket)
{
    return send(socket, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EPIPE ||
           errno == ECONNRESET || errno == ENOTCONN;
}

/* Returns whether the doorbell has to be rung again. */
static bool call(struct stg_endpoint *endpoint, bool disconnects)
{
    bool unrung = false;
    pthread_mutex_lock(&endpoint->lock);
    if (endpoint->socket >= 0)
        unrung = !ring(endpoint->socket);
    if (endpoint->socket >= 0 && disconnects)
        shutdown(endpoint->socket, SHUT_RD); /* the loop sees the end of it and closes */
    pthread_mutex_unlock(&endpoint->lock);
    return unrung && !disconnects;
}

/* ---- clients ---- */

void stg_client_free(struct stg_client *client)
{
    stg_segment_destroy(&client->ring_segment);
    stg_segment_destroy(&client->control_segment);
    stg_partition_needs_destroy(client->needs);
    stg_endpoint_unref(client->endpoint);
    stg_taken_finish(&client->acknowledged);
    free(client->assigned);
    free(client);
}

/* ---- rings ---- */

void stg_client_push(struct stg_client *client, const struct stg_descriptor *descriptor,
                     const struct stg_stream_place *place,
                     const struct stg_data_identity *data)
{
    if (!client->ring.finished) {
        stg_ring_place(&client->ring, place);
        if (data != NULL)
            stg_ring_begin(&client->ring, place->pass, data);
    }
    stg_ring_push(&client->ring, descriptor);
    client->pushed = true;
}

bool stg_client_finish(struct stg_client *client, const struct stg_err *words)
{
    if (client->ring.finished)
        return false;
    stg_ring_finish(&client->ring, -words->code, words->text);
    client->pushed = true;
    return true;
}

void stg_client_revoke(struct stg_client *client)
{
    stg_ring_revoke(&client->ring);
}

void stg_client_drop(struct stg_client *client, uint64_t n_rows)
{
    stg_ring_drop(&client->ring, n_rows);
}

void stg_client_ask_spans(struct stg_client *client, bool on)
{
    stg_ring_trace(&client->ring, on);
}

void stg_client_want_doorbell(struct stg_client *client)
{
    stg_ring_want_doorbell(&client->ring);
    client->doorbell_wanted = true;
}

/* ---- signals ---- */

/* Runners to signal. A runner that wakes takes the lock: a signal under the lock wakes
 * it to wait again. */
struct signals {
    unsigned what;        /* enum stg_wake, of those that wait; STG_WAKE_LOOK: all */
    pthread_cond_t *turn; /* NULL: none */
};

static void signal_all(struct stg_runners *runners)
{
    for (uint32_t i = 0; i < runners->n_turns; i++)
        pthread_cond_signal(&runners->turns[i].cond);
    pthread_cond_broadcast(&runners->memory);
    pthread_cond_broadcast(&runners->pass);
    pthread_cond_broadcast(&runners->pull);
}

/* With the lock or without: those that wait look again. */
static void signal_runners(struct stg_runners *runners, struct signals signals)
{
    if ((signals.what & STG_WAKE_LOOK) != 0) {
        signal_all(runners);
        return;
    }
    if (signals.turn != NULL)
        pthread_cond_signal(signals.turn);
    if ((signals.what & STG_WAKE_MEMORY) != 0)
        pthread_cond_signal(&runners->memory);
    if ((signals.what & STG_WAKE_PASS) != 0)
        pthread_cond_broadcast(&runners->pass);
    if ((signals.what & STG_WAKE_PULL_ALL) != 0) {
        pthread_cond_broadcast(&runners->pull);
    } else if ((signals.what & STG_WAKE_PULL) != 0) {
        pthread_cond_signal(&runners->pull);
    }
}

/* The runner whose turn it is, if it waits. */
static pthread_cond_t *take_turn(struct stg_stage *stage)
{
    struct stg_turn *turn = stg_turn_of(&stage->runners, stage->pass.publish_next);
    bool waits = turn->is_waiting;
    turn->is_waiting = false;
    return waits ? &turn->cond : NULL;
}

static struct signals choose_signals(struct stg_stage *stage, unsigned what)
{
    const struct stg_runners *runners = &stage->runners;
    struct signals signals = {.what = what};
    bool room = (what & STG_WAKE_ROOM) != 0 &&
                (stg_buffer_has_room(&stage->buffer) ||
                 runners->clock_runs != (stage->members.n_attached > 0));
    if (room || (what & STG_WAKE_TURN) != 0)
        signals.turn = take_turn(stage);
    if (runners->n_waiting_memory == 0)
        signals.what &= ~(unsigned)STG_WAKE_MEMORY;
    if (runners->n_waiting_pass == 0 || stage->pass.state != STG_PASS_RUNNING)
        signals.what &= ~(unsigned)STG_WAKE_PASS;
    if (runners->n_waiting_pull == 0)
        signals.what &= ~(unsigned)(STG_WAKE_PULL | STG_WAKE_PULL_ALL);
    return signals;
}

/* With the lock held. */
static struct signals collect_signals(struct stg_stage *stage)
{
    unsigned what = stage->effects.wake;
    stage->effects.wake = 0;
    if (what == 0)
        return (struct signals){0};
    if (stage->stop.is_on && stage->runners.pool.pool != NULL)
        stg_pool_cancel(&stage->runners.pool);
    if (stage->stop.is_on || (what & STG_WAKE_LOOK) != 0)
        return (struct signals){.what = STG_WAKE_LOOK};
    return choose_signals(stage, what);
}

/* ---- what the lock is released for ---- */

struct outgoing {
    struct stg_endpoint *endpoints[MAX_CALLS];
    bool disconnects[MAX_CALLS];
    unsigned n;
    struct signals signals;
    struct stg_effects recorded;
};

static bool is_observed(const struct stg_events *events)
{
    return events->published != NULL || events->has_changed || events->has_turned ||
           events->has_taken;
}

/* The runners to signal, with what observers propose. */
static struct signals perform_locked(struct stg_stage *stage)
{
    if (is_observed(&stage->effects.events))
        stg_observe(stage);
    return collect_signals(stage);
}

static bool is_outgoing(const struct stg_effects *effects)
{
    return effects->doorbells || effects->asks_loop || effects->line != NULL ||
           effects->n_no_line > 0 || effects->reply != NULL || effects->dead != NULL;
}

static void collect_calls(struct stg_stage *stage, struct outgoing *out)
{
    out->n = 0;
    if (!stage->effects.doorbells)
        return;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!c->rings && !c->disconnects)
            continue;
        if (out->n == MAX_CALLS)
            return; /* the rest comes next */
        out->disconnects[out->n] = c->disconnects;
        out->endpoints[out->n++] = stg_endpoint_ref(c->endpoint);
        c->rings = c->disconnects = false;
    }
    stage->effects.doorbells = false;
}

static void collect(struct stg_stage *stage, struct outgoing *out)
{
    struct stg_effects *effects = &stage->effects;
    collect_calls(stage, out);
    out->recorded = *effects;
    *effects = (struct stg_effects){.doorbells = effects->doorbells,
                                    .is_swept = effects->is_swept};
}

/* Returns whether a doorbell has to be rung again. */
static bool call_all(struct outgoing *out)
{
    bool again = false;
    for (unsigned i = 0; i < out->n; i++) {
        bool unrung = call(out->endpoints[i], out->disconnects[i]);
        if (unrung)
            atomic_store(&out->endpoints[i]->unrung, true);
        again |= unrung;
        stg_endpoint_unref(out->endpoints[i]);
    }
    return again;
}

static void log_all(const struct stg_stage *stage, struct outgoing *out)
{
    struct stg_line *first = NULL;
    while (out->recorded.line != NULL) {
        struct stg_line *before = out->recorded.line->before;
        out->recorded.line->before = first;
        first = out->recorded.line;
        out->recorded.line = before;
    }
    while (first != NULL) {
        struct stg_line *next = first->before;
        stg_log(first->level, "%s", first->text);
        free(first);
        first = next;
    }
    if (out->recorded.n_no_line > 0)
        stg_log(STG_LOG_WARNING, "pipeline %s: %u lines are missing: out of memory",
                stage->config.name, out->recorded.n_no_line);
}

static void free_all(struct outgoing *out)
{
    while (out->recorded.dead != NULL) {
        struct stg_client *next = out->recorded.dead->next;
        stg_client_free(out->recorded.dead);
        out->recorded.dead = next;
    }
}

/* The sweep rings them. */
static void note_unrung(struct stg_stage *stage)
{
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        c->pushed |= atomic_exchange(&c->endpoint->unrung, false);
    stg_stage_sweep_on(stage);
}

/* Without the lock. Returns whether it is to be taken again. */
static bool perform(struct stg_stage *stage, struct outgoing *out, bool *ret_sent)
{
    bool unrung = call_all(out);
    signal_runners(&stage->runners, out->signals);
    if (out->recorded.reply != NULL &&
        !out->recorded.reply->tell(out->recorded.reply->owner))
        *ret_sent = false;
    if (out->recorded.asks_loop)
        stage->config.wake(stage->config.owner);
    log_all(stage, out);
    free_all(out);
    return unrung;
}

bool stg_stage_commit(struct stg_stage *stage)
{
    struct outgoing out;
    bool is_sent = true, unrung = false, more;
    do {
        if (unrung)
            note_unrung(stage);
        out.signals = perform_locked(stage);
        if (!is_outgoing(&stage->effects)) {
            pthread_mutex_unlock(&stage->lock);
            signal_runners(&stage->runners, out.signals);
            return is_sent;
        }
        collect(stage, &out);
        more = stage->effects.doorbells;
        pthread_mutex_unlock(&stage->lock);
        unrung = perform(stage, &out, &is_sent);
        if (unrung || more)
            pthread_mutex_lock(&stage->lock);
    } while (unrung || more);
    return is_sent;
}

/* Of one that began before the trace, too: there may be no other. */
void stg_stage_wait(struct stg_stage *stage, pthread_cond_t *cond, uint64_t deadline_ns,
                    enum stg_span_kind kind)
{
    struct stg_trace *trace = stage->config.trace;
    struct stg_trace_span span = {.kind = (uint16_t)kind, .number = STG_NO_NUMBER};
    signal_runners(&stage->runners, perform_locked(stage));
    if (is_outgoing(&stage->effects)) {
        stg_stage_commit(stage);
        pthread_mutex_lock(&stage->lock);
        return;
    }
    if (trace != NULL)
        span.begin_ns = stg_now_ns();
    if (deadline_ns != 0) {
        stg_clock_cond_wait(cond, &stage->lock, deadline_ns);
    } else {
        pthread_cond_wait(cond, &stage->lock);
    }
    if (!stg_trace_is_on(trace))
        return;
    span.end_ns = stg_now_ns();
    stg_trace_add(trace, &span);
}
