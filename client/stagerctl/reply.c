/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/reply.h"

#include <stddef.h>
#include <string.h>

static const char *text_or(const char *text, const char *otherwise)
{
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

static void boundary_json(struct stg_json_writer *json, const struct stg_schema *boundary)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < boundary->n; i++) {
        const struct stg_component *c = &boundary->components[i];
        stg_json_object_begin(json);
        stg_json_key(json, "name");
        stg_json_string(json, c->name);
        stg_json_key(json, "dtype");
        stg_json_string(json, stager_dtype_name(c->dtype));
        stg_json_key(json, "shape");
        stg_json_array_begin(json);
        for (int d = 0; d < c->ndim; d++) {
            if (c->shape[d] < 0)
                stg_json_null(json);
            else
                stg_json_int(json, c->shape[d]);
        }
        stg_json_array_end(json);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

/* ---- check, apply, list ---- */

void stg_reply_definition_json(struct stg_json_writer *json,
                               const struct stg_reply *reply, bool is_applied)
{
    stg_json_object_begin(json);
    stg_json_key(json, "name");
    stg_json_string(json, reply->name);
    if (is_applied) {
        stg_json_key(json, "generation");
        stg_json_uint(json, reply->generation);
        stg_json_key(json, "unchanged");
        stg_json_bool(json, reply->unchanged);
    }
    stg_json_key(json, "boundary");
    boundary_json(json, &reply->boundary);
    stg_json_key(json, "max_batch_bytes");
    stg_json_uint(json, reply->max_batch_bytes);
    stg_json_key(json, "memory_bytes");
    stg_json_uint(json, reply->memory_bytes);
    stg_json_key(json, "advice");
    stg_json_array_begin(json);
    for (size_t i = 0; i < reply->n_advice; i++)
        stg_json_string(json, reply->advice[i]);
    stg_json_array_end(json);
    stg_json_object_end(json);
}

/* Those of that pipeline; NULL: all. */
static void quarantined_json(struct stg_json_writer *json,
                             const struct stg_quarantined *all, size_t n,
                             const char *pipeline)
{
    stg_json_key(json, "quarantined");
    stg_json_array_begin(json);
    for (size_t i = 0; i < n; i++) {
        if (pipeline != NULL && strcmp(all[i].pipeline, pipeline) != 0)
            continue;
        stg_json_object_begin(json);
        stg_json_key(json, "pid");
        stg_json_uint(json, all[i].pid);
        stg_json_key(json, "uid");
        stg_json_uint(json, all[i].uid);
        stg_json_key(json, "program");
        stg_json_string(json, text_or(all[i].program, ""));
        stg_json_key(json, "pipeline");
        stg_json_string(json, all[i].pipeline);
        stg_json_key(json, "n_batches");
        stg_json_uint(json, all[i].n_batches);
        stg_json_key(json, "bytes");
        stg_json_uint(json, all[i].bytes);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

/* Is there an entry of that pipeline, or one of its quarantined batches before i? */
static bool is_known(const struct stg_reply *reply, size_t i)
{
    const char *name = reply->quarantined[i].pipeline;
    bool found = false;
    for (size_t k = 0; k < reply->n_entries; k++)
        found = found || strcmp(reply->entries[k].name, name) == 0;
    for (size_t k = 0; k < i; k++)
        found = found || strcmp(reply->quarantined[k].pipeline, name) == 0;
    return found;
}

void stg_reply_quarantined_json(struct stg_json_writer *json,
                                const struct stg_reply *reply)
{
    quarantined_json(json, reply->quarantined, reply->n_quarantined, NULL);
}

static void list_entry_json(struct stg_json_writer *json, const struct stg_reply *reply,
                            const struct stg_list_entry *e)
{
    stg_json_object_begin(json);
    stg_json_key(json, "name");
    stg_json_string(json, e->name);
    stg_json_key(json, "generation");
    stg_json_uint(json, e->generation);
    stg_json_key(json, "state");
    stg_json_string(json, text_or(e->state, ""));
    stg_json_key(json, "n_clients");
    stg_json_uint(json, e->n_clients);
    stg_json_key(json, "uid");
    stg_json_uint(json, e->uid);
    stg_json_key(json, "file");
    stg_json_string(json, text_or(e->file, ""));
    quarantined_json(json, reply->quarantined, reply->n_quarantined, e->name);
    stg_json_object_end(json);
}

void stg_reply_list_json(struct stg_json_writer *json, const struct stg_reply *reply)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < reply->n_entries; i++) {
        list_entry_json(json, reply, &reply->entries[i]);
    }
    for (size_t i = 0; i < reply->n_quarantined; i++) {
        struct stg_list_entry deleted = {.name = reply->quarantined[i].pipeline,
                                         .state = "deleted",
                                         .uid = reply->quarantined[i].uid};
        if (!is_known(reply, i))
            list_entry_json(json, reply, &deleted);
    }
    stg_json_array_end(json);
}

/* ---- status ---- */

/* Counters of a pipeline: one row each. */
struct counter {
    const char *name;
    size_t offset; /* in struct stg_pipeline_status */
    bool is_wide;  /* uint64_t, else uint32_t */
};

#define COUNTER(field, wide)                                                             \
    {                                                                                    \
#field, offsetof(struct stg_pipeline_status, field), wide                        \
    }

static const struct counter counters[] = {
    COUNTER(generation, true),
    COUNTER(run_id, true),
    COUNTER(pass, true),
    COUNTER(epoch, true),
    COUNTER(capacity, false),
    COUNTER(num_threads, false),
    COUNTER(max_capacity, false),
    COUNTER(max_num_threads, false),
    COUNTER(num_clients, false),
    COUNTER(buffered, false),
    COUNTER(made, true),
    COUNTER(published, true),
    COUNTER(dropped, true),
    COUNTER(dropped_rows, true),
    COUNTER(ignored, true),
    COUNTER(ignored_elements, true),
    COUNTER(in_hand, true),
    COUNTER(discarded, true),
    COUNTER(acknowledged, true),
    COUNTER(unacknowledged, true),
    COUNTER(lost, true),
    COUNTER(discarded_published, true),
    COUNTER(incomplete_rounds, true),
    COUNTER(assigned, true),
    COUNTER(released, true),
    COUNTER(redelivered, true),
    COUNTER(evicted, true),
    COUNTER(cut, true),
    COUNTER(own_cuts, true),
    COUNTER(timeouts, true),
    COUNTER(errors, true),
    COUNTER(feed_version, true),
    COUNTER(rows, true),
    COUNTER(bytes, true),
    COUNTER(memory_bytes, true),
    COUNTER(memory_used_bytes, true),
    COUNTER(quarantined_bytes, true),
    COUNTER(max_batch_bytes, true),
    COUNTER(container_tables, false),
    COUNTER(container_caches, false),
    COUNTER(gpu_copies, true),
    COUNTER(container_bytes, true),
    COUNTER(producer_wait_ns, true),
    COUNTER(producer_busy_ns, true),
    COUNTER(n_clients_left_out, false),
    COUNTER(workers, false),
    COUNTER(worker_calls, true),
    COUNTER(workers_lost, true),
};

static uint64_t counter_of(const struct stg_pipeline_status *status,
                           const struct counter *c)
{
    const char *at = (const char *)status + c->offset;
    return c->is_wide ? *(const uint64_t *)(const void *)at
                      : *(const uint32_t *)(const void *)at;
}

static void client_json(struct stg_json_writer *json, const struct stg_client_status *c)
{
    const struct {
        const char *name;
        const char *text;
    } texts[] = {
        {"client_id", c->client_id},
        {"program", c->program},
        {"state", c->state},
        {"last_error", c->last_error},
    };
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"pid", c->pid},
        {"uid", c->uid},
        {"rank", c->rank},
        {"batch_size", c->batch_size},
        {"max_held", c->max_held},
        {"held", c->held},
        {"assigned", c->assigned},
        {"taken", c->taken},
        {"acknowledged", c->acknowledged},
        {"released", c->released},
        {"redelivered", c->redelivered},
        {"lost", c->lost},
        {"gaps", c->gaps},
        {"wait_ns", c->wait_ns},
        {"daemon_wait_ns", c->daemon_wait_ns},
        {"violations", c->violations},
    };
    stg_json_object_begin(json);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        stg_json_key(json, texts[i].name);
        stg_json_string(json, text_or(texts[i].text, ""));
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        stg_json_key(json, numbers[i].name);
        stg_json_uint(json, numbers[i].value);
    }
    stg_json_object_end(json);
}

static void tuned_json(struct stg_json_writer *json,
                       const struct stg_pipeline_status *status)
{
    stg_json_key(json, "auto");
    stg_json_array_begin(json);
    if (status->capacity_auto)
        stg_json_string(json, "capacity");
    if (status->num_threads_auto)
        stg_json_string(json, "num_threads");
    stg_json_array_end(json);
    stg_json_key(json, "tuned");
    stg_json_array_begin(json);
    for (size_t i = 0; i < status->n_tuned; i++) {
        const struct stg_tuned *tuned = &status->tuned[i];
        stg_json_object_begin(json);
        stg_json_key(json, "what");
        stg_json_string(json, text_or(tuned->what, ""));
        stg_json_key(json, "from");
        stg_json_uint(json, tuned->from);
        stg_json_key(json, "to");
        stg_json_uint(json, tuned->to);
        stg_json_key(json, "why");
        stg_json_string(json, text_or(tuned->why, ""));
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

void stg_reply_status_json(struct stg_json_writer *json,
                           const struct stg_pipeline_status *status)
{
    stg_json_object_begin(json);
    stg_json_key(json, "name");
    stg_json_string(json, text_or(status->name, ""));
    stg_json_key(json, "state");
    stg_json_string(json, text_or(status->state, ""));
    stg_json_key(json, "delivery");
    stg_json_string(json, text_or(status->delivery, ""));
    stg_json_key(json, "on_timeout");
    stg_json_string(json, text_or(status->on_timeout, ""));
    stg_json_key(json, "container");
    stg_json_string(json, text_or(status->container, ""));
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        stg_json_key(json, counters[i].name);
        stg_json_uint(json, counter_of(status, &counters[i]));
    }
    stg_json_key(json, "py_function");
    stg_json_string(json, text_or(status->py_function, ""));
    stg_json_key(json, "gpu");
    stg_json_string(json, text_or(status->gpu, ""));
    stg_json_key(json, "gpu_why");
    stg_json_string(json, text_or(status->gpu_why, ""));
    stg_json_key(json, "last_error");
    stg_json_string(json, text_or(status->last_error, ""));
    stg_json_key(json, "moved");
    stg_json_array_begin(json);
    for (size_t i = 0; i < status->n_moved; i++)
        stg_json_string(json, status->moved[i]);
    stg_json_array_end(json);
    tuned_json(json, status);
    stg_json_key(json, "clients");
    stg_json_array_begin(json);
    for (size_t i = 0; i < status->n_clients; i++)
        client_json(json, &status->clients[i]);
    stg_json_array_end(json);
    quarantined_json(json, status->quarantined, status->n_quarantined,
                     text_or(status->name, ""));
    stg_json_key(json, "boundary");
    boundary_json(json, &status->boundary);
    stg_json_object_end(json);
}

void stg_reply_daemon_json(struct stg_json_writer *json,
                           const struct stg_admin_daemon *daemon)
{
    stg_json_object_begin(json);
    stg_json_key(json, "release");
    stg_json_string(json, daemon->release);
    stg_json_key(json, "pid");
    stg_json_uint(json, daemon->pid);
    stg_json_key(json, "socket");
    stg_json_string(json, daemon->path);
    stg_json_object_end(json);
}
