/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage and its clients do, as spans of a trace. What a client left in its control
 * page is its own word: it is checked, and may be wrong about itself alone.
 */
#include "daemon/stage/priv.h"

/* ---- clients ---- */

static void begin(struct stg_stage *stage, struct stg_client *client, uint64_t session)
{
    client->trace_session = session;
    client->trace_track = stg_trace_track(stage->config.trace, (uint32_t)client->pid,
                                          client->program, client->client_id);
    stg_control_skip_spans(&client->control);
    stg_client_ask_spans(client, true);
}

static void end(struct stg_client *client)
{
    client->trace_session = 0;
    stg_client_ask_spans(client, false);
}

/* I3: of what a client says only what can be: of itself, in order, not in the future, and
 * of nodes that there are. */
static bool makes_sense(const struct stg_stage *stage, const struct stg_trace_span *span,
                        uint64_t now)
{
    bool is_its_own = span->kind == STG_SPAN_NEXT || span->kind == STG_SPAN_RUN ||
                      span->kind == STG_SPAN_OP;
    return is_its_own && span->begin_ns <= span->end_ns && span->end_ns <= now &&
           span->name <= stage->config.spec->n_nodes;
}

static void drain(struct stg_stage *stage, struct stg_client *client)
{
    struct stg_trace *trace = stage->config.trace;
    struct stg_trace_span span;
    uint64_t n_missed, n_lost = 0, now = 0;
    for (unsigned i = 0; i < STG_CONTROL_SPANS &&
                         stg_control_poll_span(&client->control, &span, &n_missed) == 1;
         i++) {
        if (now < span.end_ns)
            now = stg_now_ns();
        n_lost += n_missed < UINT32_MAX ? n_missed : UINT32_MAX;
        if (makes_sense(stage, &span, now))
            stg_trace_add_to(trace, client->trace_track, &span);
        else
            n_lost++;
    }
    if (n_lost > 0)
        stg_trace_lose(trace, n_lost);
}

void stg_client_trace(struct stg_stage *stage, struct stg_client *client)
{
    const struct stg_trace *trace = stage->config.trace;
    bool on = stg_trace_is_on(trace);
    uint64_t session =
        on ? atomic_load_explicit(&trace->session, memory_order_relaxed) : 0;
    if (client->trace_session != 0 && client->trace_session != session)
        end(client);
    if (session == 0)
        return;
    if (client->trace_session == 0)
        begin(stage, client, session);
    else
        drain(stage, client);
}

/* It sleeps since before the end, and will not say so in time. */
static void add_sleep(struct stg_stage *stage, const struct stg_client *client)
{
    struct stg_trace_span span = {.kind = STG_SPAN_NEXT, .number = STG_NO_NUMBER};
    span.begin_ns = stg_control_waiting_since(&client->control);
    span.end_ns = stg_now_ns();
    if (span.begin_ns != 0 && makes_sense(stage, &span, span.end_ns))
        stg_trace_add_to(stage->config.trace, client->trace_track, &span);
}

void stg_trace_client_item(const struct stg_stage *stage, const struct stg_client *client,
                           enum stg_span_kind kind, uint64_t number)
{
    uint64_t now = stg_trace_begin(stage->config.trace);
    if (now == 0)
        return;
    stg_trace_add(stage->config.trace,
                  &(struct stg_trace_span){.begin_ns = now,
                                           .end_ns = now,
                                           .number = number,
                                           .value = client->trace_track,
                                           .kind = (uint16_t)kind});
}

/* ---- runners ---- */

void stg_trace_make(const struct stg_stage *stage, uint64_t began_ns, int64_t n_rows)
{
    stg_trace_add(stage->config.trace, &(struct stg_trace_span){.begin_ns = began_ns,
                                                                .end_ns = stg_now_ns(),
                                                                .number = STG_NO_NUMBER,
                                                                .value = (uint32_t)n_rows,
                                                                .kind = STG_SPAN_MAKE});
}

static bool begin_watch(void *owner, const struct stg_key *key)
{
    const struct stg_stage_config *config = owner;
    return stg_trace_is_on(config->trace);
}

/* Nodes that the graph made by itself come behind those of the file, and have no name. */
static void watch_node(void *owner, uint32_t node, uint64_t begin_ns, uint64_t end_ns)
{
    const struct stg_stage_config *config = owner;
    uint16_t name = node < config->spec->n_nodes ? (uint16_t)(node + 1) : 0;
    stg_trace_add(config->trace, &(struct stg_trace_span){.begin_ns = begin_ns,
                                                          .end_ns = end_ns,
                                                          .number = STG_NO_NUMBER,
                                                          .kind = STG_SPAN_OP,
                                                          .name = name});
}

static void end_watch(void *owner, const struct stg_run *run, int rc)
{
}

void stg_trace_run(struct stg_stage *stage, struct stg_run *run,
                   struct stg_run_watcher *watcher)
{
    *watcher = (struct stg_run_watcher){.owner = &stage->config,
                                        .begin = begin_watch,
                                        .node = watch_node,
                                        .end = end_watch};
    if (stage->config.trace != NULL)
        stg_run_watch(run, watcher);
}

void stg_stage_trace(struct stg_stage *stage, bool last)
{
    pthread_mutex_lock(&stage->lock);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!c->has_lease)
            continue;
        stg_client_trace(stage, c);
        if (last && c->state == STG_CLIENT_ATTACHED)
            add_sleep(stage, c);
    }
    if (last)
        stage->effects.wake |= STG_WAKE_LOOK;
    stg_stage_commit(stage);
}
