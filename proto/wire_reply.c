/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes and decodes replies. The encoder does not send 0 and "", because an absent
 * field decodes to them.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/wire_parts.h"

/* The wire carries a kind as the number of the request's field: the kind plus 1. */
#define KIND_FIELD 1

/* ---- encoding ---- */

static int boundary_fill(const struct stg_schema *schema, struct stg_bump *bump,
                         size_t *ret_n, Stager__Boundary ***ret)
{
    Stager__Boundary **all = stg_wire_messages(bump, schema->n, sizeof(Stager__Boundary));
    if (all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < schema->n; i++) {
        struct stg_component *from = &schema->components[i];
        if (from->ndim < 0 || from->ndim > STG_MAX_DIMS)
            return -STAGER_INVALID_ARGUMENT;
        stager__boundary__init(all[i]);
        all[i]->name = stg_wire_required(from->name);
        all[i]->dtype = (uint32_t)from->dtype;
        all[i]->n_shape = (size_t)from->ndim;
        all[i]->shape = from->shape;
        all[i]->part = from->part;
        all[i]->has_part = from->part != STG_PART_VALUES;
    }
    *ret_n = schema->n;
    *ret = all;
    return 0;
}

static int hello_fill(const struct stg_reply *from, struct stg_bump *bump,
                      Stager__Reply *to)
{
    Stager__HelloReply *hello = stg_bump_alloc(bump, sizeof(*hello));
    if (hello == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__hello_reply__init(hello);
    hello->version = from->version;
    hello->daemon = stg_wire_required(from->daemon);
    hello->instance = from->instance;
    hello->pid = from->pid;
    hello->cuda = stg_wire_optional(from->cuda);
    to->hello = hello;
    return 0;
}

static int pipeline_fill(const struct stg_reply *from, struct stg_bump *bump,
                         Stager__Reply *to)
{
    Stager__PipelineReply *p = stg_bump_alloc(bump, sizeof(*p));
    if (p == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__pipeline_reply__init(p);
    p->name = stg_wire_required(from->name);
    STG_PUT(p, generation, from->generation);
    STG_PUT(p, max_batch_bytes, from->max_batch_bytes);
    STG_PUT(p, memory_bytes, from->memory_bytes);
    STG_PUT(p, unchanged, from->unchanged);
    p->reproducible = stg_wire_optional(from->reproducible);
    STG_PUT(p, restored, from->restored);
    p->advice = (char **)from->advice;
    p->n_advice = from->n_advice;
    to->pipeline = p;
    return boundary_fill(&from->boundary, bump, &p->n_boundary, &p->boundary);
}

static int list_fill(const struct stg_reply *from, struct stg_bump *bump,
                     Stager__Reply *to)
{
    Stager__ListReply *list = stg_bump_alloc(bump, sizeof(*list));
    Stager__ListEntry **all =
        stg_wire_messages(bump, from->n_entries, sizeof(Stager__ListEntry));
    if (list == NULL || all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__list_reply__init(list);
    for (size_t i = 0; i < from->n_entries; i++) {
        const struct stg_list_entry *e = &from->entries[i];
        stager__list_entry__init(all[i]);
        all[i]->name = stg_wire_required(e->name);
        all[i]->state = stg_wire_optional(e->state);
        all[i]->file = stg_wire_optional(e->file);
        STG_PUT(all[i], generation, e->generation);
        STG_PUT(all[i], n_clients, e->n_clients);
        STG_PUT(all[i], uid, e->uid);
        STG_PUT(all[i], pipeline, e->pipeline);
    }
    list->entry = all;
    list->n_entry = from->n_entries;
    STG_PUT(list, n_left_out, from->n_left_out);
    to->list = list;
    return stg_wire_quarantined_fill(from->quarantined, from->n_quarantined, bump,
                                     &list->n_quarantined, &list->quarantined);
}

static int status_fill(const struct stg_reply *from, struct stg_bump *bump,
                       Stager__Reply *to)
{
    const struct stg_schema *boundary = &from->status.boundary;
    Stager__StatusReply *status = stg_bump_alloc(bump, sizeof(*status));
    if (status == NULL || stg_wire_status_fill(&from->status, bump, status) < 0)
        return -STAGER_RESOURCE_EXHAUSTED;
    to->status = status;
    return boundary_fill(boundary, bump, &status->n_boundary, &status->boundary);
}

/* Fills in the memory on a GPU that the clients of a pipeline share. */
static void device_fill(const struct stg_reply *from, Stager__OpenReply *to)
{
    STG_PUT(to, device_bytes, from->device_bytes);
    STG_PUT(to, device_number, from->device_number);
    to->has_device_uuid = from->device_uuid != NULL;
    if (from->device_uuid != NULL)
        to->device_uuid = (ProtobufCBinaryData){
            .len = STG_WIRE_UUID_BYTES, .data = (uint8_t *)(uintptr_t)from->device_uuid};
}

static int open_fill(const struct stg_reply *from, struct stg_bump *bump,
                     Stager__Reply *to)
{
    Stager__OpenReply *open = stg_bump_alloc(bump, sizeof(*open));
    if (open == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__open_reply__init(open);
    open->name = stg_wire_required(from->name);
    open->generation = from->generation;
    open->segment_bytes = from->segment_bytes;
    open->max_in_flight = from->max_in_flight;
    open->client_id = stg_wire_optional(from->client_id);
    open->structure = stg_wire_optional(from->structure);
    STG_PUT(open, batch_rows, from->batch_rows);
    open->unwatched = open->has_unwatched = from->unwatched;
    STG_PUT(open, wants_reports, from->wants_reports);
    STG_PUT(open, asks, from->asks);
    device_fill(from, open);
    open->signature = stg_wire_optional(from->signature);
    open->irreproducible = stg_wire_optional(from->irreproducible);
    STG_PUT(open, begins_pass, from->begins_pass);
    STG_PUT(open, skip_rows, from->skip_rows);
    STG_PUT(open, hosts, from->hosts);
    STG_PUT(open, host, from->host);
    STG_PUT(open, hosts_generation, from->hosts_generation);
    STG_PUT(open, weight, from->weight);
    STG_PUT(open, divided_from, from->base);
    STG_PUT(open, divided_pass, from->base_pass);
    open->state = stg_wire_optional(from->state);
    STG_PUT(open, run, from->rejoin.run);
    STG_PUT(open, member, from->rejoin.member);
    STG_PUT(open, attempt, from->rejoin.attempt);
    STG_PUT(open, anew, from->anew);
    if (from->pipeline != NULL) {
        open->pipeline = stg_convert_from_spec(from->pipeline, bump);
        if (open->pipeline == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
    }
    to->open = open;
    int rc = boundary_fill(&from->slots, bump, &open->n_slot, &open->slot);
    if (rc < 0)
        return rc;
    return boundary_fill(&from->boundary, bump, &open->n_boundary, &open->boundary);
}

static int feed_fill(const struct stg_reply *from, struct stg_bump *bump,
                     Stager__Reply *to)
{
    to->feed = stg_bump_alloc(bump, sizeof(*to->feed));
    if (to->feed == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__feed_reply__init(to->feed);
    to->feed->feed_version = from->feed_version;
    return 0;
}

static int new_token_fill(const struct stg_reply *from, struct stg_bump *bump,
                          Stager__Reply *to)
{
    Stager__TokenReply *token = stg_bump_alloc(bump, sizeof(*token));
    if (token == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__token_reply__init(token);
    token->token.data = (uint8_t *)(uintptr_t)from->token;
    token->token.len = STG_TOKEN_BYTES;
    token->seconds = from->seconds;
    token->admin_url = stg_wire_required(from->admin_url);
    token->events_url = stg_wire_required(from->events_url);
    to->new_token = token;
    return 0;
}

static int work_fill(const struct stg_reply *from, struct stg_bump *bump,
                     Stager__Reply *to)
{
    Stager__WorkReply *work = stg_bump_alloc(bump, sizeof(*work));
    if (work == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__work_reply__init(work);
    work->name = stg_wire_required(from->name);
    work->function = stg_wire_required(from->function);
    work->has_seed = from->seed != 0;
    work->seed = from->seed;
    work->has_pure = work->pure = from->pure;
    to->work = work;
    return boundary_fill(&from->boundary, bump, &work->n_output, &work->output);
}

static int trace_fill(const struct stg_reply *from, struct stg_bump *bump,
                      Stager__Reply *to)
{
    to->trace = stg_bump_alloc(bump, sizeof(*to->trace));
    if (to->trace == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__trace_reply__init(to->trace);
    to->trace->page_bytes = from->page_bytes;
    return 0;
}

static int index_fill(const struct stg_index_report *from, struct stg_bump *bump,
                      Stager__Reply *to)
{
    Stager__IndexReply *index = stg_bump_alloc(bump, sizeof(*index));
    if (index == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__index_reply__init(index);
    STG_PUT(index, done, from->done);
    STG_PUT(index, n_files, from->n_files);
    STG_PUT(index, n_done, from->n_done);
    STG_PUT(index, n_built, from->n_built);
    STG_PUT(index, n_existing, from->n_existing);
    STG_PUT(index, n_small, from->n_small);
    STG_PUT(index, n_failed, from->n_failed);
    STG_PUT(index, bytes, from->bytes);
    STG_PUT(index, bytes_done, from->bytes_done);
    STG_PUT(index, n_records, from->n_records);
    STG_PUT(index, index_bytes, from->index_bytes);
    STG_PUT(index, elapsed_ns, from->elapsed_ns);
    index->file = stg_wire_optional(from->file);
    index->problem = stg_wire_optional(from->problem);
    to->index = index;
    return 0;
}

static int commits_fill(const struct stg_reply *from, struct stg_bump *bump,
                        Stager__Reply *to)
{
    Stager__CommitsReply *commits = stg_bump_alloc(bump, sizeof(*commits));
    Stager__CommitEntry **all =
        stg_wire_messages(bump, from->n_commits, sizeof(Stager__CommitEntry));
    if (commits == NULL || all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__commits_reply__init(commits);
    for (size_t i = 0; i < from->n_commits; i++) {
        const struct stg_commit_entry *e = &from->commits[i];
        stager__commit_entry__init(all[i]);
        all[i]->tag = stg_wire_required(e->tag);
        all[i]->client = stg_wire_optional(e->client);
        all[i]->lane = stg_wire_optional(e->lane);
        STG_PUT(all[i], attempt, e->attempt);
        STG_PUT(all[i], pass, e->pass);
        STG_PUT(all[i], position, e->position);
        STG_PUT(all[i], time_ns, e->time_ns);
        STG_PUT(all[i], items, e->items);
    }
    commits->name = stg_wire_required(from->name);
    commits->commit = all;
    commits->n_commit = from->n_commits;
    STG_PUT(commits, n_left_out, from->n_left_out);
    to->commits = commits;
    return 0;
}

static int versions_fill(const struct stg_reply *from, struct stg_bump *bump,
                         Stager__Reply *to)
{
    Stager__VersionsReply *versions = stg_bump_alloc(bump, sizeof(*versions));
    Stager__Version **all =
        stg_wire_messages(bump, from->n_versions, sizeof(Stager__Version));
    if (versions == NULL || all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__versions_reply__init(versions);
    for (size_t i = 0; i < from->n_versions; i++) {
        const struct stg_version_entry *e = &from->versions[i];
        stager__version__init(all[i]);
        all[i]->generation = e->generation;
        STG_PUT(all[i], time_ns, e->time_ns);
        STG_PUT(all[i], uid, e->uid);
        STG_PUT(all[i], content, e->content);
        all[i]->file = stg_wire_optional(e->file);
    }
    versions->name = stg_wire_required(from->name);
    versions->version = all;
    versions->n_version = from->n_versions;
    to->versions = versions;
    return 0;
}

static int drain_fill(const struct stg_reply *from, struct stg_bump *bump,
                      Stager__Reply *to)
{
    Stager__DrainReply *drain = stg_bump_alloc(bump, sizeof(*drain));
    if (drain == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__drain_reply__init(drain);
    STG_PUT(drain, n_consumers, from->n_consumers);
    drain->pipeline = stg_wire_optional(from->name);
    to->drain = drain;
    return 0;
}

static int part_fill(const struct stg_reply *from, struct stg_bump *bump,
                     Stager__Reply *to)
{
    switch (from->kind) {
    case STG_REQUEST_HELLO: return hello_fill(from, bump, to);
    case STG_REQUEST_CHECK:
    case STG_REQUEST_APPLY:
    case STG_REQUEST_ROLLBACK: return pipeline_fill(from, bump, to);
    case STG_REQUEST_LIST: return list_fill(from, bump, to);
    case STG_REQUEST_STATUS: return status_fill(from, bump, to);
    case STG_REQUEST_OPEN: return open_fill(from, bump, to);
    case STG_REQUEST_FEED: return feed_fill(from, bump, to);
    case STG_REQUEST_NEW_TOKEN: return new_token_fill(from, bump, to);
    case STG_REQUEST_WORK: return work_fill(from, bump, to);
    case STG_REQUEST_EXPLAIN:
        return stg_wire_explain_fill(&from->explain, bump, &to->explain);
    case STG_REQUEST_TRACE: return trace_fill(from, bump, to);
    case STG_REQUEST_INDEX: return index_fill(&from->index, bump, to);
    case STG_REQUEST_COMMITS: return commits_fill(from, bump, to);
    case STG_REQUEST_VERSIONS: return versions_fill(from, bump, to);
    case STG_REQUEST_SCHEMA:
        return stg_wire_schema_fill(&from->schema, bump, &to->schema);
    case STG_REQUEST_TAP: return stg_wire_tap_fill(&from->tap, bump, &to->tap);
    case STG_REQUEST_DRAIN: return drain_fill(from, bump, to);
    default: return 0;
    }
}

long stg_wire_encode_reply(const struct stg_reply *reply, void *buf, size_t capacity)
{
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    Stager__Reply message = STAGER__REPLY__INIT;
    message.id = reply->id;
    message.has_id = 1;
    STG_PUT(&message, code, -reply->code);
    if (stg_wire_optional(reply->text) != NULL) {
        message.has_text = 1;
        message.text.len = strlen(reply->text);
        message.text.data = (uint8_t *)reply->text;
    }
    long ret = 0;
    if (reply->code == 0) {
        STG_PUT(&message, kind,
                reply->kind != STG_REQUEST_NONE ? reply->kind + KIND_FIELD : 0);
        ret = part_fill(reply, &bump, &message);
    }
    if (ret == 0) {
        ret = stg_wire_pack(&message.base, buf, capacity);
        ret = ret < 0 ? -STAGER_OUT_OF_RANGE : ret;
    }
    stg_bump_finish(&bump);
    return ret;
}

/* ---- decoding ---- */

static int component_take(const Stager__Boundary *from, struct stg_component *ret,
                          struct stg_err *err)
{
    if (from->n_shape > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: boundary \"%.64s\" has %zu dimensions; at "
                       "most %d",
                       from->name, from->n_shape, STG_MAX_DIMS);
    if (from->dtype > INT32_MAX ||
        strcmp(stg_dtype_name((int)from->dtype), "invalid") == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: boundary \"%.64s\" has dtype %u, which this "
                       "release does not know",
                       from->name, from->dtype);
    ret->name = from->name;
    ret->dtype = (int)from->dtype;
    ret->ndim = (int)from->n_shape;
    for (size_t i = 0; i < from->n_shape; i++) {
        if (from->shape[i] < -1)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "malformed message: boundary \"%.64s\" has a negative "
                           "dimension",
                           from->name);
        ret->shape[i] = from->shape[i];
    }
    if (from->part > STG_PART_DENSE_SHAPE)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: boundary \"%.64s\" has part %u, which this "
                       "release does not know",
                       from->name, from->part);
    ret->part = from->part;
    return 0;
}

static int boundary_take(size_t n, Stager__Boundary *const *from, struct stg_bump *bump,
                         struct stg_schema *ret, struct stg_err *err)
{
    struct stg_component *components = stg_bump_alloc(bump, n * sizeof(*components));
    if (components == NULL)
        return stg_wire_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        int rc = component_take(from[i], &components[i], err);
        if (rc < 0)
            return rc;
    }
    *ret = (struct stg_schema){.components = components, .n = n};
    return 0;
}

static void hello_take(const Stager__HelloReply *from, struct stg_reply *ret)
{
    ret->version = from->version;
    ret->daemon = from->daemon;
    ret->instance = from->instance;
    ret->pid = from->pid;
    ret->cuda = stg_wire_taken(from->cuda);
}

static int pipeline_take(const Stager__PipelineReply *from, struct stg_bump *bump,
                         struct stg_reply *ret, struct stg_err *err)
{
    ret->name = from->name;
    ret->generation = from->generation;
    ret->advice = (const char *const *)from->advice;
    ret->n_advice = from->n_advice;
    ret->max_batch_bytes = from->max_batch_bytes;
    ret->memory_bytes = from->memory_bytes;
    ret->unchanged = from->unchanged != 0;
    ret->reproducible = stg_wire_taken(from->reproducible);
    ret->restored = from->restored;
    return boundary_take(from->n_boundary, from->boundary, bump, &ret->boundary, err);
}

static int list_take(const Stager__ListReply *from, struct stg_bump *bump,
                     struct stg_reply *ret, struct stg_err *err)
{
    ret->entries = stg_bump_alloc(bump, from->n_entry * sizeof(*ret->entries));
    if (ret->entries == NULL)
        return stg_wire_fail_memory(err);
    ret->n_entries = from->n_entry;
    ret->n_left_out = from->n_left_out;
    for (size_t i = 0; i < from->n_entry; i++) {
        const Stager__ListEntry *e = from->entry[i];
        ret->entries[i] = (struct stg_list_entry){.name = e->name,
                                                  .state = stg_wire_taken(e->state),
                                                  .file = stg_wire_taken(e->file),
                                                  .generation = e->generation,
                                                  .pipeline = e->pipeline,
                                                  .n_clients = e->n_clients,
                                                  .uid = e->uid};
    }
    if (stg_wire_quarantined_take(from->quarantined, from->n_quarantined, bump,
                                  &ret->n_quarantined, &ret->quarantined) < 0)
        return stg_wire_fail_memory(err);
    return 0;
}

static int status_take(const Stager__StatusReply *from, struct stg_bump *bump,
                       struct stg_reply *ret, struct stg_err *err)
{
    if (stg_wire_status_take(from, bump, &ret->status) < 0)
        return stg_wire_fail_memory(err);
    return boundary_take(from->n_boundary, from->boundary, bump, &ret->status.boundary,
                         err);
}

static int device_take(const Stager__OpenReply *from, struct stg_reply *ret,
                       struct stg_err *err)
{
    if (from->device_bytes == 0)
        return 0;
    if (from->device_uuid.len != STG_WIRE_UUID_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: the UUID of a device has %zu bytes, not %d",
                       from->device_uuid.len, STG_WIRE_UUID_BYTES);
    ret->device_bytes = from->device_bytes;
    ret->device_number = from->device_number;
    ret->device_uuid = from->device_uuid.data;
    return 0;
}

static int open_take(const Stager__OpenReply *from, struct stg_bump *bump,
                     struct stg_reply *ret, struct stg_err *err)
{
    ret->name = from->name;
    ret->generation = from->generation;
    ret->segment_bytes = from->segment_bytes;
    ret->max_in_flight = from->max_in_flight;
    ret->client_id = stg_wire_taken(from->client_id);
    ret->structure = stg_wire_taken(from->structure);
    ret->batch_rows = from->batch_rows;
    ret->unwatched = from->unwatched != 0;
    ret->wants_reports = from->wants_reports != 0;
    ret->asks = from->asks != 0;
    ret->signature = stg_wire_taken(from->signature);
    ret->irreproducible = stg_wire_taken(from->irreproducible);
    ret->begins_pass = from->begins_pass;
    ret->skip_rows = from->skip_rows;
    ret->hosts = from->hosts;
    ret->host = from->host;
    ret->hosts_generation = from->hosts_generation;
    ret->weight = from->weight;
    ret->base = from->divided_from;
    ret->base_pass = from->divided_pass;
    ret->state = stg_wire_taken(from->state);
    ret->anew = from->anew != 0;
    ret->rejoin = (struct stg_rejoin){
        .run = from->run, .member = from->member, .attempt = from->attempt};
    int rc = device_take(from, ret, err);
    if (rc == 0)
        rc = boundary_take(from->n_slot, from->slot, bump, &ret->slots, err);
    if (rc < 0)
        return rc;
    return boundary_take(from->n_boundary, from->boundary, bump, &ret->boundary, err);
}

static int new_token_take(const Stager__TokenReply *from, struct stg_reply *ret,
                          struct stg_err *err)
{
    if (from->token.len != STG_TOKEN_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: a token of %zu bytes, not %d", from->token.len,
                       STG_TOKEN_BYTES);
    ret->token = from->token.data;
    ret->seconds = from->seconds;
    ret->admin_url = from->admin_url;
    ret->events_url = from->events_url;
    return 0;
}

static int work_take(const Stager__WorkReply *from, struct stg_bump *bump,
                     struct stg_reply *ret, struct stg_err *err)
{
    ret->name = from->name;
    ret->function = from->function;
    ret->seed = from->seed;
    ret->pure = from->pure;
    return boundary_take(from->n_output, from->output, bump, &ret->boundary, err);
}

static void index_take(const Stager__IndexReply *from, struct stg_index_report *ret)
{
    *ret = (struct stg_index_report){.done = from->done != 0,
                                     .n_files = from->n_files,
                                     .n_done = from->n_done,
                                     .n_built = from->n_built,
                                     .n_existing = from->n_existing,
                                     .n_small = from->n_small,
                                     .n_failed = from->n_failed,
                                     .bytes = from->bytes,
                                     .bytes_done = from->bytes_done,
                                     .n_records = from->n_records,
                                     .index_bytes = from->index_bytes,
                                     .elapsed_ns = from->elapsed_ns,
                                     .file = stg_wire_taken(from->file),
                                     .problem = stg_wire_taken(from->problem)};
}

static int commits_take(const Stager__CommitsReply *from, struct stg_bump *bump,
                        struct stg_reply *ret, struct stg_err *err)
{
    ret->commits = stg_bump_alloc(bump, from->n_commit * sizeof(*ret->commits));
    if (ret->commits == NULL)
        return stg_wire_fail_memory(err);
    ret->name = from->name;
    ret->n_commits = from->n_commit;
    ret->n_left_out = from->n_left_out;
    for (size_t i = 0; i < from->n_commit; i++) {
        const Stager__CommitEntry *e = from->commit[i];
        ret->commits[i] = (struct stg_commit_entry){.tag = e->tag,
                                                    .client = stg_wire_taken(e->client),
                                                    .lane = stg_wire_taken(e->lane),
                                                    .attempt = e->attempt,
                                                    .pass = e->pass,
                                                    .position = e->position,
                                                    .time_ns = e->time_ns,
                                                    .items = e->items};
    }
    return 0;
}

static int versions_take(const Stager__VersionsReply *from, struct stg_bump *bump,
                         struct stg_reply *ret, struct stg_err *err)
{
    ret->versions = stg_bump_alloc(bump, from->n_version * sizeof(*ret->versions));
    if (ret->versions == NULL)
        return stg_wire_fail_memory(err);
    ret->name = from->name;
    ret->n_versions = from->n_version;
    for (size_t i = 0; i < from->n_version; i++) {
        const Stager__Version *e = from->version[i];
        ret->versions[i] = (struct stg_version_entry){.generation = e->generation,
                                                      .time_ns = e->time_ns,
                                                      .content = e->content,
                                                      .uid = e->uid,
                                                      .file = stg_wire_taken(e->file)};
    }
    return 0;
}

/* Returns whether the reply has the part that belongs to `kind`, and no other. */
static bool parts_are_right(const Stager__Reply *m, enum stg_request_kind kind)
{
    const struct {
        bool is_there, is_right;
    } parts[] = {
        {m->hello != NULL, kind == STG_REQUEST_HELLO},
        {m->pipeline != NULL, kind == STG_REQUEST_CHECK || kind == STG_REQUEST_APPLY ||
                                  kind == STG_REQUEST_ROLLBACK},
        {m->list != NULL, kind == STG_REQUEST_LIST},
        {m->status != NULL, kind == STG_REQUEST_STATUS},
        {m->open != NULL, kind == STG_REQUEST_OPEN},
        {m->feed != NULL, kind == STG_REQUEST_FEED},
        {m->new_token != NULL, kind == STG_REQUEST_NEW_TOKEN},
        {m->explain != NULL, kind == STG_REQUEST_EXPLAIN},
        {m->work != NULL, kind == STG_REQUEST_WORK},
        {m->trace != NULL, kind == STG_REQUEST_TRACE},
        {m->index != NULL, kind == STG_REQUEST_INDEX},
        {m->commits != NULL, kind == STG_REQUEST_COMMITS},
        {m->versions != NULL, kind == STG_REQUEST_VERSIONS},
        {m->schema != NULL, kind == STG_REQUEST_SCHEMA},
        {m->tap != NULL, kind == STG_REQUEST_TAP},
        {m->drain != NULL, kind == STG_REQUEST_DRAIN},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i].is_there != parts[i].is_right)
            return false;
    }
    return true;
}

static int kind_take(const Stager__Reply *m, struct stg_reply *ret, struct stg_err *err)
{
    uint32_t last = STG_REQUEST_DRAIN + KIND_FIELD;
    if (m->has_kind && (m->kind <= KIND_FIELD || m->kind > last ||
                        m->kind == STG_REQUEST_REPORT + KIND_FIELD))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: kind: %u is not a request", m->kind);
    if (m->code != 0 && m->has_kind)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: an error that answers as if it were none");
    ret->kind =
        m->has_kind ? (enum stg_request_kind)(m->kind - KIND_FIELD) : STG_REQUEST_NONE;
    if (!parts_are_right(m, ret->kind))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: a reply without its part, or with another's");
    return 0;
}

static int part_take(const Stager__Reply *m, struct stg_bump *bump, struct stg_reply *ret,
                     struct stg_err *err)
{
    switch (ret->kind) {
    case STG_REQUEST_HELLO: hello_take(m->hello, ret); return 0;
    case STG_REQUEST_CHECK:
    case STG_REQUEST_APPLY:
    case STG_REQUEST_ROLLBACK: return pipeline_take(m->pipeline, bump, ret, err);
    case STG_REQUEST_LIST: return list_take(m->list, bump, ret, err);
    case STG_REQUEST_STATUS: return status_take(m->status, bump, ret, err);
    case STG_REQUEST_OPEN: return open_take(m->open, bump, ret, err);
    case STG_REQUEST_FEED: ret->feed_version = m->feed->feed_version; return 0;
    case STG_REQUEST_NEW_TOKEN: return new_token_take(m->new_token, ret, err);
    case STG_REQUEST_WORK: return work_take(m->work, bump, ret, err);
    case STG_REQUEST_EXPLAIN:
        return stg_wire_explain_take(m->explain, bump, &ret->explain, err);
    case STG_REQUEST_TRACE: ret->page_bytes = m->trace->page_bytes; return 0;
    case STG_REQUEST_INDEX: index_take(m->index, &ret->index); return 0;
    case STG_REQUEST_COMMITS: return commits_take(m->commits, bump, ret, err);
    case STG_REQUEST_VERSIONS: return versions_take(m->versions, bump, ret, err);
    case STG_REQUEST_SCHEMA:
        return stg_wire_schema_take(m->schema, bump, &ret->schema, err);
    case STG_REQUEST_TAP: return stg_wire_tap_take(m->tap, bump, &ret->tap, err);
    case STG_REQUEST_DRAIN:
        ret->n_consumers = m->drain->n_consumers;
        ret->name = stg_wire_taken(m->drain->pipeline);
        return 0;
    default: return 0;
    }
}

int stg_wire_decode_reply(const void *buf, size_t bytes, struct stg_bump *bump,
                          struct stg_reply *ret, struct stg_err *err)
{
    ProtobufCMessage *message;
    int rc = stg_wire_unpack(&stager__reply__descriptor, buf, bytes, bump, &message, err);
    if (rc < 0)
        return rc;
    const Stager__Reply *m = (Stager__Reply *)message;
    struct stg_reply reply = {.id = m->id, .code = -m->code};
    if (m->code < 0 || m->code > STAGER_UNAUTHENTICATED)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "malformed message: code: %d is not a status code", m->code);
    rc = stg_wire_text(&m->text, "text", bump, &reply.text, err);
    if (rc == 0)
        rc = kind_take(m, &reply, err);
    if (rc == 0)
        rc = part_take(m, bump, &reply, err);
    if (rc < 0)
        return rc;
    *ret = reply;
    return 0;
}

/* ---- the pipeline inside an open reply ---- */

static int spec_take(const void *buf, size_t bytes, struct stg_pipeline_spec *spec,
                     struct stg_err *err)
{
    ProtobufCMessage *message;
    int rc = stg_wire_unpack(&stager__reply__descriptor, buf, bytes, &spec->bump,
                             &message, err);
    if (rc < 0)
        return rc;
    const Stager__Reply *reply = (Stager__Reply *)message;
    if (reply->open == NULL || reply->open->pipeline == NULL)
        return stg_err(err, -STAGER_NOT_FOUND, "the reply carries no pipeline");
    return stg_convert_to_spec(reply->open->pipeline, spec, err);
}

int stg_wire_decode_pipeline(const void *buf, size_t bytes,
                             struct stg_pipeline_spec **ret, struct stg_err *err)
{
    struct stg_pipeline_spec *spec = calloc(1, sizeof(*spec));
    if (spec == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a pipeline");
    stg_bump_init(&spec->bump, 0);
    int rc = spec_take(buf, bytes, spec, err);
    if (rc < 0) {
        stg_pipeline_spec_destroy(spec);
        return rc;
    }
    *ret = spec;
    return 0;
}
