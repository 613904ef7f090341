/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire.h"

#include <string.h>

#include "proto/wire_parts.h"

/* ---- bytes ---- */

long stg_wire_pack(const ProtobufCMessage *message, void *buf, size_t capacity)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    if (n > capacity || n > STG_MESSAGE_MAX_BYTES)
        return -STAGER_RESOURCE_EXHAUSTED;
    return (long)protobuf_c_message_pack(message, buf);
}

int stg_wire_unpack(const ProtobufCMessageDescriptor *type, const void *buf, size_t bytes,
                    struct stg_bump *bump, ProtobufCMessage **ret, struct stg_err *err)
{
    if (bytes > STG_MESSAGE_MAX_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: %zu bytes; at most %u", bytes,
                       STG_MESSAGE_MAX_BYTES);
    int rc = stg_wire_scan(type, buf, bytes, err);
    if (rc < 0)
        return rc;
    struct stg_unpack unpack;
    stg_unpack_init(&unpack, bump, STG_UNPACK_MAX_BYTES);
    ProtobufCMessage *message =
        protobuf_c_message_unpack(type, &unpack.allocator, bytes, buf);
    if (message == NULL && unpack.refused)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: unpacked it has more than %u bytes",
                       STG_UNPACK_MAX_BYTES);
    if (message == NULL && unpack.exhausted)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a message");
    if (message == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "malformed message");
    *ret = message;
    return 0;
}

int stg_wire_text(const ProtobufCBinaryData *bytes, const char *what,
                  struct stg_bump *bump, const char **ret, struct stg_err *err)
{
    if (bytes->len > 0 && memchr(bytes->data, '\0', bytes->len) != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: %s: a NUL inside a text", what);
    const char *s = bytes->len > 0 ? (const char *)bytes->data : "";
    const char *copy = stg_bump_strndup(bump, s, bytes->len);
    if (copy == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a message");
    *ret = copy;
    return 0;
}

/* ---- parts ---- */

char *stg_wire_optional(const char *s)
{
    return s != NULL && *s != '\0' ? (char *)s : NULL;
}

char *stg_wire_required(const char *s)
{
    return (char *)(s != NULL ? s : "");
}

const char *stg_wire_taken(const char *s)
{
    return s != NULL ? s : "";
}

void *stg_wire_messages(struct stg_bump *bump, size_t n, size_t size)
{
    void **ret = stg_bump_alloc(bump, n * sizeof(void *));
    char *messages = stg_bump_alloc(bump, n * size);
    if (ret == NULL || messages == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        ret[i] = messages + i * size;
    return ret;
}

int stg_wire_fail_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a message");
}

/* ---- encoding a request ---- */

/* The parts of a request: one of them is used. */
struct parts {
    Stager__Hello hello;
    Stager__Check check;
    Stager__Apply apply;
    Stager__Empty list;
    Stager__Name name;
    Stager__Open open;
    Stager__Names fields, fetches; /* of that */
    Stager__Unsupported unsupported;
    Stager__Reconnect reconnect;
    Stager__DataParallel data_parallel;
    Stager__FeedRequest feed;
    Stager__Empty new_token;
    Stager__WorkRequest work;
    Stager__Report report;
    Stager__TraceRequest trace;
    Stager__IndexRequest index;
    Stager__CommitRequest commit;
    Stager__Rollback rollback;
    Stager__MetricsRequest metrics;
    Stager__SchemaRequest schema;
    Stager__TapRequest tap;
    Stager__DrainRequest drain;
};

static ProtobufCBinaryData bytes_of(const char *s, size_t n)
{
    return (ProtobufCBinaryData){.len = s != NULL ? n : 0,
                                 .data = (uint8_t *)stg_wire_required(s)};
}

static Stager__Name *name_fill(Stager__Name *name, const struct stg_request *from)
{
    stager__name__init(name);
    name->name = stg_wire_required(from->name);
    name->job = (char *)from->job;
    return name;
}

static Stager__Hello *hello_fill(Stager__Hello *hello, const struct stg_request *from)
{
    stager__hello__init(hello);
    hello->min_version = from->min_version;
    hello->max_version = from->max_version;
    hello->client = (char *)from->client;
    return hello;
}

static Stager__Check *check_fill(Stager__Check *check, const struct stg_request *from)
{
    stager__check__init(check);
    check->text = bytes_of(from->text, from->text_bytes);
    check->file = (char *)from->file;
    return check;
}

static Stager__Apply *apply_fill(Stager__Apply *apply, const struct stg_request *from)
{
    stager__apply__init(apply);
    apply->text = bytes_of(from->text, from->text_bytes);
    apply->file = (char *)from->file;
    apply->name = (char *)from->name;
    apply->replace = apply->has_replace = from->replace;
    apply->script = (char *)from->script;
    apply->script_run = from->script_run;
    apply->has_script_run = from->script_run != 0;
    STG_PUT(apply, warm, from->warm);
    return apply;
}

static Stager__Names *names_fill(Stager__Names *names, const char *const *from, size_t n)
{
    stager__names__init(names);
    names->name = (char **)(uintptr_t)from;
    names->n_name = n;
    return names;
}

static Stager__Unsupported *unsupported_fill(Stager__Unsupported *unsupported,
                                             const struct stg_request *from)
{
    stager__unsupported__init(unsupported);
    unsupported->generation = from->unsupported_generation;
    unsupported->has_generation = from->unsupported_generation != 0;
    unsupported->node = (char **)(uintptr_t)from->unsupported;
    unsupported->n_node = from->n_unsupported;
    return unsupported;
}

static Stager__Reconnect *reconnect_fill(Stager__Reconnect *reconnect,
                                         const struct stg_rejoin *from)
{
    stager__reconnect__init(reconnect);
    reconnect->run = from->run;
    reconnect->member = from->member;
    STG_PUT(reconnect, attempt, from->attempt);
    return reconnect;
}

static Stager__DataParallel *data_parallel_fill(Stager__DataParallel *message,
                                                const struct stg_deal_rank *from)
{
    stager__data_parallel__init(message);
    message->rank = from->rank;
    message->size = from->size;
    message->local_rank = from->local_rank;
    message->local_size = from->local_size;
    return message;
}

static Stager__Open *open_fill(struct parts *parts, const struct stg_request *from)
{
    Stager__Open *open = &parts->open;
    stager__open__init(open);
    open->name = stg_wire_required(from->name);
    open->client_id = (char *)from->client_id;
    open->max_in_flight = from->max_in_flight;
    open->has_max_in_flight = 1;
    open->private_run = open->has_private_run = from->private_run;
    open->manual_ack = open->has_manual_ack = from->manual_ack;
    open->named = open->has_named = from->named;
    open->batch_size = from->batch_size;
    open->has_batch_size = from->batch_size != 0;
    open->wants_device = open->has_wants_device = from->wants_device;
    open->state = (char *)from->state;
    open->approximate = open->has_approximate = from->approximate;
    open->resume = (char *)from->resume;
    open->never_reconnects = open->has_never_reconnects = from->never_reconnects;
    open->follow = open->has_follow = from->follow;
    open->job = (char *)from->job;
    open->replays = open->has_replays = from->replays;
    if (from->follow)
        STG_PUT(open, generation, from->generation);
    if (from->rejoin.member != 0)
        open->reconnect = reconnect_fill(&parts->reconnect, &from->rejoin);
    STG_PUT(open, rank, from->rank);
    STG_PUT(open, world_size, from->world_size);
    if (from->data_parallel.size != 0 || from->data_parallel.local_size != 0)
        open->data_parallel =
            data_parallel_fill(&parts->data_parallel, &from->data_parallel);
    if (from->has_fields)
        open->fields = names_fill(&parts->fields, from->fields, from->n_fields);
    if (from->has_fetches)
        open->fetches = names_fill(&parts->fetches, from->fetches, from->n_fetches);
    if (from->has_unsupported)
        open->unsupported = unsupported_fill(&parts->unsupported, from);
    return open;
}

static Stager__FeedRequest *feed_fill(Stager__FeedRequest *feed,
                                      const struct stg_request *from)
{
    stager__feed_request__init(feed);
    feed->name = stg_wire_required(from->name);
    feed->dtype = (uint32_t)from->dtype;
    feed->n_shape = (size_t)from->ndim;
    feed->shape = (int64_t *)(uintptr_t)from->shape;
    feed->data = bytes_of(from->data, from->data_bytes);
    feed->n_offset = from->n_offsets;
    feed->offset = (int64_t *)(uintptr_t)from->offsets;
    return feed;
}

static Stager__WorkRequest *work_fill(Stager__WorkRequest *work,
                                      const struct stg_request *from)
{
    stager__work_request__init(work);
    work->name = stg_wire_required(from->name);
    work->most = from->most;
    work->has_most = from->most != 0;
    return work;
}

static Stager__TraceRequest *trace_fill(Stager__TraceRequest *trace,
                                        const struct stg_request *from)
{
    stager__trace_request__init(trace);
    trace->name = stg_wire_required(from->name);
    trace->millis = from->millis;
    trace->has_millis = 1;
    return trace;
}

static Stager__IndexRequest *index_fill(Stager__IndexRequest *index,
                                        const struct stg_request *from)
{
    stager__index_request__init(index);
    index->name = (char *)from->name;
    index->has_text = from->text != NULL;
    index->text = bytes_of(from->text, from->text_bytes);
    index->file = (char *)from->file;
    return index;
}

static Stager__CommitRequest *commit_fill(struct parts *parts,
                                          const struct stg_request *from)
{
    Stager__CommitRequest *commit = &parts->commit;
    stager__commit_request__init(commit);
    commit->tag = stg_wire_required(from->tag);
    commit->state = stg_wire_required(from->state);
    if (from->rejoin.member == 0)
        return commit;
    commit->reconnect = reconnect_fill(&parts->reconnect, &from->rejoin);
    commit->pipeline = (char *)from->name;
    commit->client_id = (char *)from->client_id;
    commit->named = commit->has_named = from->named;
    return commit;
}

static void reconnect_take(const Stager__Reconnect *from, struct stg_rejoin *ret)
{
    if (from != NULL)
        *ret = (struct stg_rejoin){
            .run = from->run, .member = from->member, .attempt = from->attempt};
}

static void commit_take(const Stager__CommitRequest *from, struct stg_request *ret)
{
    ret->tag = from->tag;
    ret->state = from->state;
    ret->name = from->pipeline;
    ret->client_id = from->client_id;
    ret->named = from->named != 0;
    reconnect_take(from->reconnect, &ret->rejoin);
}

static Stager__Rollback *rollback_fill(Stager__Rollback *rollback,
                                       const struct stg_request *from)
{
    stager__rollback__init(rollback);
    rollback->name = stg_wire_required(from->name);
    STG_PUT(rollback, generation, from->generation);
    STG_PUT(rollback, warm, from->warm);
    return rollback;
}

/* What a request through the gate has beside its part. */
static void gate_fill(Stager__Request *message, const struct stg_request *from)
{
    message->token = bytes_of(from->token, from->token_bytes);
    message->has_token = from->token != NULL;
    message->request_id = bytes_of(from->request_id, from->request_id_bytes);
    message->has_request_id = from->request_id != NULL;
    message->if_generation = from->if_generation;
    message->has_if_generation = from->has_if_generation;
}

/* ---- report ---- */

#define REPLAY_NUMBERS(F)                                                                \
    F(n_held), F(n_run), F(run_ns), F(run_wait_ns), F(n_replayed), F(replayed_ns),       \
        F(pid), F(age_ns)

void stg_wire_replay_fill(const struct stg_replay_result *from, Stager__Replay *to)
{
    stager__replay__init(to);
    REPLAY_NUMBERS(STG_PUT_NUMBER);
    to->client_id = stg_wire_optional(from->client_id);
}

struct stg_replay_result stg_wire_replay_take(const Stager__Replay *from)
{
    struct stg_replay_result got = {.client_id = stg_wire_taken(from->client_id)};
    struct stg_replay_result *ret = &got;
    REPLAY_NUMBERS(STG_TAKE_NUMBER);
    return got;
}

static int report_fill(const struct stg_report *from, struct stg_bump *bump,
                       Stager__Report *to)
{
    stager__report__init(to);
    STG_PUT(to, elapsed_ns, from->elapsed_ns);
    STG_PUT(to, n_batches, from->n_batches);
    STG_PUT(to, wait_ns, from->wait_ns);
    STG_PUT(to, n_runs, from->n_runs);
    STG_PUT(to, run_ns, from->run_ns);
    STG_PUT(to, cpu_ns, from->cpu_ns);
    to->node = stg_wire_messages(bump, from->n_nodes, sizeof(Stager__ReportNode));
    if (to->node == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    if (from->replay.n_held != 0) {
        to->replay = stg_bump_alloc(bump, sizeof(*to->replay));
        if (to->replay == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
        stg_wire_replay_fill(&from->replay, to->replay);
    }
    to->n_node = from->n_nodes;
    for (size_t i = 0; i < from->n_nodes; i++) {
        const struct stg_report_node *node = &from->nodes[i];
        stager__report_node__init(to->node[i]);
        to->node[i]->node = node->node;
        to->node[i]->n = node->n;
        to->node[i]->ns = node->ns;
        to->node[i]->n_bytes = node->n_bytes;
        STG_PUT(to->node[i], on_device, node->on_device);
        to->node[i]->bytes = (uint64_t *)(uintptr_t)node->bytes;
    }
    return 0;
}

static int report_take(const Stager__Report *from, struct stg_bump *bump,
                       struct stg_report *ret, struct stg_err *err)
{
    struct stg_report_node *nodes = stg_bump_alloc(bump, from->n_node * sizeof(*nodes));
    if (nodes == NULL)
        return stg_wire_fail_memory(err);
    for (size_t i = 0; i < from->n_node; i++)
        nodes[i] = (struct stg_report_node){.node = from->node[i]->node,
                                            .n = from->node[i]->n,
                                            .ns = from->node[i]->ns,
                                            .bytes = from->node[i]->bytes,
                                            .n_bytes = from->node[i]->n_bytes,
                                            .on_device = from->node[i]->on_device != 0};
    *ret = (struct stg_report){.elapsed_ns = from->elapsed_ns,
                               .n_batches = from->n_batches,
                               .wait_ns = from->wait_ns,
                               .n_runs = from->n_runs,
                               .run_ns = from->run_ns,
                               .cpu_ns = from->cpu_ns,
                               .nodes = nodes,
                               .n_nodes = from->n_node};
    if (from->replay != NULL)
        ret->replay = stg_wire_replay_take(from->replay);
    return 0;
}

/* ---- requests ---- */

long stg_wire_encode_request(const struct stg_request *request, void *buf,
                             size_t capacity)
{
    struct parts parts;
    Stager__Request message = STAGER__REQUEST__INIT;
    message.id = request->id;
    message.has_id = 1;
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    long ret = 0;
    switch (request->kind) {
    case STG_REQUEST_HELLO: message.hello = hello_fill(&parts.hello, request); break;
    case STG_REQUEST_CHECK: message.check = check_fill(&parts.check, request); break;
    case STG_REQUEST_APPLY: message.apply = apply_fill(&parts.apply, request); break;
    case STG_REQUEST_STATUS: message.status = name_fill(&parts.name, request); break;
    case STG_REQUEST_OPEN: message.open = open_fill(&parts, request); break;
    case STG_REQUEST_DELETE: message.delete_ = name_fill(&parts.name, request); break;
    case STG_REQUEST_FEED: message.feed = feed_fill(&parts.feed, request); break;
    case STG_REQUEST_WORK: message.work = work_fill(&parts.work, request); break;
    case STG_REQUEST_EXPLAIN: message.explain = name_fill(&parts.name, request); break;
    case STG_REQUEST_REPORT:
        ret = report_fill(&request->report, &bump, &parts.report);
        message.report = &parts.report;
        break;
    case STG_REQUEST_TRACE: message.trace = trace_fill(&parts.trace, request); break;
    case STG_REQUEST_INDEX: message.index = index_fill(&parts.index, request); break;
    case STG_REQUEST_COMMIT: message.commit = commit_fill(&parts, request); break;
    case STG_REQUEST_COMMITS: message.commits = name_fill(&parts.name, request); break;
    case STG_REQUEST_ROLLBACK:
        message.rollback = rollback_fill(&parts.rollback, request);
        break;
    case STG_REQUEST_VERSIONS: message.versions = name_fill(&parts.name, request); break;
    case STG_REQUEST_AUDIT: message.audit = name_fill(&parts.name, request); break;
    case STG_REQUEST_METRICS:
        stager__metrics_request__init(&parts.metrics);
        STG_PUT(&parts.metrics, open_metrics, request->open_metrics);
        message.metrics = &parts.metrics;
        break;
    case STG_REQUEST_SCHEMA:
        stager__schema_request__init(&parts.schema);
        parts.schema.url = stg_wire_required(request->url);
        STG_PUT(&parts.schema, first, request->first);
        message.schema = &parts.schema;
        break;
    case STG_REQUEST_TAP:
        stager__tap_request__init(&parts.tap);
        parts.tap.name = stg_wire_required(request->name);
        parts.tap.has_millis = 1;
        parts.tap.millis = request->millis;
        message.tap = &parts.tap;
        break;
    case STG_REQUEST_DRAIN:
        stager__drain_request__init(&parts.drain);
        STG_PUT(&parts.drain, disable, request->disable);
        message.drain = &parts.drain;
        break;
    case STG_REQUEST_LIST:
        stager__empty__init(&parts.list);
        message.list = &parts.list;
        break;
    case STG_REQUEST_JOIN:
        stager__empty__init(&parts.list);
        message.join = &parts.list;
        break;
    case STG_REQUEST_WHY:
        stager__empty__init(&parts.list);
        message.why = &parts.list;
        break;
    case STG_REQUEST_NEW_TOKEN:
        stager__empty__init(&parts.new_token);
        message.new_token = &parts.new_token;
        break;
    default: ret = -STAGER_INVALID_ARGUMENT;
    }
    gate_fill(&message, request);
    if (ret == 0)
        ret = stg_wire_pack(&message.base, buf, capacity);
    stg_bump_finish(&bump);
    return ret;
}

/* ---- decoding a request ---- */

static int check_take(const Stager__Check *from, struct stg_bump *bump,
                      struct stg_request *ret, struct stg_err *err)
{
    ret->file = from->file;
    ret->text_bytes = from->text.len;
    ret->text = stg_bump_strndup(
        bump, from->text.len > 0 ? (const char *)from->text.data : "", from->text.len);
    return ret->text != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a message");
}

static int apply_take(const Stager__Apply *from, struct stg_bump *bump,
                      struct stg_request *ret, struct stg_err *err)
{
    Stager__Check same = STAGER__CHECK__INIT;
    same.text = from->text;
    same.file = from->file;
    ret->replace = from->replace != 0;
    ret->warm = from->warm != 0;
    ret->script = from->script;
    ret->script_run = from->script_run;
    ret->name = from->name;
    return check_take(&same, bump, ret, err);
}

static void open_take(const Stager__Open *from, struct stg_request *ret)
{
    ret->name = from->name;
    ret->client_id = from->client_id;
    ret->max_in_flight = from->max_in_flight;
    ret->private_run = from->private_run != 0;
    ret->manual_ack = from->manual_ack != 0;
    ret->named = from->named != 0;
    ret->batch_size = from->batch_size;
    ret->wants_device = from->wants_device != 0;
    ret->state = from->state;
    ret->approximate = from->approximate != 0;
    ret->resume = from->resume;
    ret->never_reconnects = from->never_reconnects != 0;
    ret->follow = from->follow != 0;
    ret->job = from->job;
    ret->replays = from->replays != 0;
    ret->generation = from->generation;
    reconnect_take(from->reconnect, &ret->rejoin);
    ret->rank = from->rank;
    ret->world_size = from->world_size;
    if (from->data_parallel != NULL)
        ret->data_parallel =
            (struct stg_deal_rank){.rank = from->data_parallel->rank,
                                   .size = from->data_parallel->size,
                                   .local_rank = from->data_parallel->local_rank,
                                   .local_size = from->data_parallel->local_size};
    ret->has_fields = from->fields != NULL;
    ret->has_fetches = from->fetches != NULL;
    if (ret->has_fields) {
        ret->fields = (const char *const *)from->fields->name;
        ret->n_fields = from->fields->n_name;
    }
    if (ret->has_fetches) {
        ret->fetches = (const char *const *)from->fetches->name;
        ret->n_fetches = from->fetches->n_name;
    }
    ret->has_unsupported = from->unsupported != NULL;
    if (ret->has_unsupported) {
        ret->unsupported_generation = from->unsupported->generation;
        ret->unsupported = (const char *const *)from->unsupported->node;
        ret->n_unsupported = from->unsupported->n_node;
    }
}

static int feed_take(const Stager__FeedRequest *from, struct stg_request *ret,
                     struct stg_err *err)
{
    if (from->n_shape > STG_LAYOUT_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a feed of %zu dimensions; at most %d", from->n_shape,
                       STG_LAYOUT_MAX_DIMS);
    ret->name = from->name;
    ret->dtype = (int)from->dtype;
    ret->ndim = (int)from->n_shape;
    if (from->n_shape > 0)
        memcpy(ret->shape, from->shape, from->n_shape * sizeof(ret->shape[0]));
    ret->data = from->data.data;
    ret->data_bytes = from->data.len;
    ret->offsets = from->n_offset > 0 ? from->offset : NULL;
    ret->n_offsets = from->n_offset;
    return 0;
}

static void hello_take(const Stager__Hello *from, struct stg_request *ret)
{
    ret->min_version = from->min_version;
    ret->max_version = from->max_version;
    ret->client = from->client;
}

static int index_take(const Stager__IndexRequest *from, struct stg_bump *bump,
                      struct stg_request *ret, struct stg_err *err)
{
    Stager__Check same = STAGER__CHECK__INIT;
    same.text = from->text;
    same.file = from->file;
    ret->name = from->name;
    return from->has_text ? check_take(&same, bump, ret, err) : 0;
}

static void gate_take(const Stager__Request *from, struct stg_request *ret)
{
    ret->token = from->has_token ? from->token.data : NULL;
    ret->token_bytes = from->has_token ? from->token.len : 0;
    ret->request_id = from->has_request_id ? from->request_id.data : NULL;
    ret->request_id_bytes = from->has_request_id ? from->request_id.len : 0;
    ret->has_if_generation = from->has_if_generation != 0;
    ret->if_generation = from->if_generation;
}

static enum stg_request_kind kind_of(const Stager__Request *m, unsigned *ret_n)
{
    const struct {
        const void *part;
        enum stg_request_kind kind;
    } parts[] = {
        {m->hello, STG_REQUEST_HELLO},
        {m->check, STG_REQUEST_CHECK},
        {m->apply, STG_REQUEST_APPLY},
        {m->list, STG_REQUEST_LIST},
        {m->status, STG_REQUEST_STATUS},
        {m->open, STG_REQUEST_OPEN},
        {m->delete_, STG_REQUEST_DELETE},
        {m->feed, STG_REQUEST_FEED},
        {m->new_token, STG_REQUEST_NEW_TOKEN},
        {m->explain, STG_REQUEST_EXPLAIN},
        {m->report, STG_REQUEST_REPORT},
        {m->work, STG_REQUEST_WORK},
        {m->trace, STG_REQUEST_TRACE},
        {m->join, STG_REQUEST_JOIN},
        {m->why, STG_REQUEST_WHY},
        {m->index, STG_REQUEST_INDEX},
        {m->commit, STG_REQUEST_COMMIT},
        {m->commits, STG_REQUEST_COMMITS},
        {m->rollback, STG_REQUEST_ROLLBACK},
        {m->versions, STG_REQUEST_VERSIONS},
        {m->audit, STG_REQUEST_AUDIT},
        {m->metrics, STG_REQUEST_METRICS},
        {m->schema, STG_REQUEST_SCHEMA},
        {m->tap, STG_REQUEST_TAP},
        {m->drain, STG_REQUEST_DRAIN},
    };
    enum stg_request_kind ret = STG_REQUEST_NONE;
    *ret_n = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i].part == NULL)
            continue;
        ret = parts[i].kind;
        ++*ret_n;
    }
    return ret;
}

static int part_take(const Stager__Request *m, struct stg_bump *bump,
                     struct stg_request *ret, struct stg_err *err)
{
    switch (ret->kind) {
    case STG_REQUEST_HELLO: hello_take(m->hello, ret); return 0;
    case STG_REQUEST_CHECK: return check_take(m->check, bump, ret, err);
    case STG_REQUEST_APPLY: return apply_take(m->apply, bump, ret, err);
    case STG_REQUEST_STATUS: ret->name = m->status->name; return 0;
    case STG_REQUEST_OPEN: open_take(m->open, ret); return 0;
    case STG_REQUEST_DELETE: ret->name = m->delete_->name; return 0;
    case STG_REQUEST_WORK:
        ret->name = m->work->name;
        ret->most = m->work->most;
        return 0;
    case STG_REQUEST_FEED: return feed_take(m->feed, ret, err);
    case STG_REQUEST_EXPLAIN: ret->name = m->explain->name; return 0;
    case STG_REQUEST_INDEX: return index_take(m->index, bump, ret, err);
    case STG_REQUEST_COMMIT: commit_take(m->commit, ret); return 0;
    case STG_REQUEST_COMMITS:
        ret->name = m->commits->name;
        ret->job = m->commits->job;
        return 0;
    case STG_REQUEST_ROLLBACK:
        ret->name = m->rollback->name;
        ret->generation = m->rollback->generation;
        ret->warm = m->rollback->warm != 0;
        return 0;
    case STG_REQUEST_VERSIONS: ret->name = m->versions->name; return 0;
    case STG_REQUEST_AUDIT: ret->name = m->audit->name; return 0;
    case STG_REQUEST_METRICS: ret->open_metrics = m->metrics->open_metrics != 0; return 0;
    case STG_REQUEST_SCHEMA:
        ret->url = m->schema->url;
        ret->first = m->schema->first;
        return 0;
    case STG_REQUEST_TAP:
        ret->name = m->tap->name;
        ret->millis = m->tap->millis;
        return 0;
    case STG_REQUEST_DRAIN: ret->disable = m->drain->disable != 0; return 0;
    case STG_REQUEST_REPORT: return report_take(m->report, bump, &ret->report, err);
    case STG_REQUEST_TRACE:
        ret->name = m->trace->name;
        ret->millis = m->trace->millis;
        return 0;
    default: return 0;
    }
}

int stg_wire_decode_request(const void *buf, size_t bytes, struct stg_bump *bump,
                            struct stg_request *ret, struct stg_err *err)
{
    ProtobufCMessage *message;
    int rc =
        stg_wire_unpack(&stager__request__descriptor, buf, bytes, bump, &message, err);
    if (rc < 0)
        return rc;
    const Stager__Request *m = (Stager__Request *)message;
    unsigned n;
    struct stg_request request = {.id = m->id, .kind = kind_of(m, &n)};
    if (n != 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       n == 0 ? "a request of a kind that this release does not know"
                              : "malformed message: several requests in one");
    rc = part_take(m, bump, &request, err);
    if (rc < 0)
        return rc;
    gate_take(m, &request);
    *ret = request;
    return 0;
}

/* ---- events of the gate ---- */

const char *stg_event_name(enum stg_event_kind kind)
{
    static const char *const names[] = {
        [STG_EVENT_GATE] = "gate",         [STG_EVENT_APPLIED] = "applied",
        [STG_EVENT_DELETED] = "deleted",   [STG_EVENT_STARTED] = "started",
        [STG_EVENT_ENDED] = "ended",       [STG_EVENT_FAILED] = "failed",
        [STG_EVENT_STOPPED] = "stopped",   [STG_EVENT_ATTACHED] = "attached",
        [STG_EVENT_DETACHED] = "detached",
    };
    size_t i = (size_t)kind;
    return i < sizeof(names) / sizeof(names[0]) && names[i] != NULL ? names[i]
                                                                    : "unknown";
}

long stg_wire_encode_event(const struct stg_event *event, void *buf, size_t capacity)
{
    Stager__Event message = STAGER__EVENT__INIT;
    message.instance = event->instance;
    message.sequence = event->sequence;
    message.pipeline = event->pipeline;
    message.kind = (Stager__EventKind)event->kind;
    return stg_wire_pack(&message.base, buf, capacity);
}

int stg_wire_decode_event(const void *buf, size_t bytes, struct stg_event *ret,
                          struct stg_err *err)
{
    struct stg_bump bump;
    stg_bump_init(&bump, 1u << 20);
    ProtobufCMessage *message;
    int rc =
        stg_wire_unpack(&stager__event__descriptor, buf, bytes, &bump, &message, err);
    if (rc == 0) {
        const Stager__Event *m = (Stager__Event *)message;
        *ret = (struct stg_event){.instance = m->instance,
                                  .sequence = m->sequence,
                                  .pipeline = m->pipeline,
                                  .kind = (enum stg_event_kind)m->kind};
    }
    stg_bump_finish(&bump);
    return rc;
}
