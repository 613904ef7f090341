/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/reply.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/stagerctl/report/advice.h"

static void boundary_json(struct stg_json_writer *json, const struct stg_schema *boundary)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < boundary->n; i++) {
        const struct stg_component *c = &boundary->components[i];
        stg_json_object_begin(json);
        stg_json_put_string(json, "name", c->name);
        stg_json_put_string(json, "dtype", stager_dtype_name(c->dtype));
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
    stg_json_put_string(json, "name", reply->name);
    if (is_applied) {
        stg_json_put_uint(json, "generation", reply->generation);
        stg_json_put_bool(json, "unchanged", reply->unchanged);
        if (reply->restored > 0)
            stg_json_put_uint(json, "restored", reply->restored);
    }
    stg_json_key(json, "boundary");
    boundary_json(json, &reply->boundary);
    stg_json_put_uint(json, "max_batch_bytes", reply->max_batch_bytes);
    stg_json_put_uint(json, "memory_bytes", reply->memory_bytes);
    if (reply->reproducible[0] != '\0')
        stg_json_put_string(json, "reproducible", reply->reproducible);
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
        stg_json_put_uint(json, "pid", all[i].pid);
        stg_json_put_uint(json, "uid", all[i].uid);
        stg_json_put_string(json, "program", all[i].program);
        stg_json_put_string(json, "pipeline", all[i].pipeline);
        stg_json_put_uint(json, "n_batches", all[i].n_batches);
        stg_json_put_uint(json, "bytes", all[i].bytes);
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
    stg_json_put_string(json, "name", e->name);
    stg_json_put_uint(json, "generation", e->generation);
    stg_json_put_string(json, "state", e->state);
    stg_json_put_uint(json, "n_clients", e->n_clients);
    stg_json_put_uint(json, "uid", e->uid);
    stg_json_put_string(json, "file", e->file);
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

/* ---- schema ---- */

static void file_column_json(struct stg_json_writer *json,
                             const struct stg_file_column *column)
{
    bool is_read = column->dtype != STAGER_DT_INVALID;
    stg_json_object_begin(json);
    stg_json_put_string(json, "name", column->name);
    stg_json_put_string(json, "type", column->type);
    stg_json_put_string(json, "logical_type", column->logical);
    stg_json_put_string(json, "dtype", is_read ? stager_dtype_name(column->dtype) : "");
    stg_json_key(json, "shape");
    stg_json_array_begin(json);
    for (int d = 0; d < column->ndim; d++) {
        if (column->shape[d] < 0)
            stg_json_null(json);
        else
            stg_json_int(json, column->shape[d]);
    }
    stg_json_array_end(json);
    stg_json_put_bool(json, "nullable", column->nullable);
    stg_json_put_bool(json, "dictionary", column->has_dictionary);
    stg_json_put_string(json, "encodings", column->encodings);
    stg_json_put_string(json, "codec", column->codec);
    stg_json_put_uint(json, "bytes", column->bytes);
    stg_json_put_uint(json, "plain_bytes", column->plain_bytes);
    stg_json_put_string(json, "problem", column->problem);
    stg_json_object_end(json);
}

void stg_reply_schema_json(struct stg_json_writer *json,
                           const struct stg_file_schema *schema)
{
    stg_json_object_begin(json);
    stg_json_put_string(json, "url", schema->url);
    stg_json_put_bool(json, "has_more", schema->has_more);
    stg_json_put_string(json, "format", schema->format);
    stg_json_put_string(json, "compression", schema->compression);
    stg_json_put_string(json, "delim", schema->delim);
    stg_json_put_bool(json, "has_header", schema->has_header);
    stg_json_put_string(json, "note", schema->note);
    stg_json_put_uint(json, "bytes", schema->bytes);
    stg_json_key(json, "n_rows");
    if (schema->has_rows)
        stg_json_uint(json, schema->n_rows);
    else
        stg_json_null(json);
    stg_json_put_uint(json, "n_parts", schema->n_parts);
    stg_json_key(json, "columns");
    stg_json_array_begin(json);
    for (size_t i = 0; i < schema->n; i++)
        file_column_json(json, &schema->columns[i]);
    stg_json_array_end(json);
    stg_json_object_end(json);
}

/* ---- commits, versions ---- */

void stg_reply_time_json(struct stg_json_writer *json, uint64_t time_ns)
{
    time_t seconds = (time_t)(time_ns / 1000000000);
    struct tm utc;
    char text[32] = "";
    if (gmtime_r(&seconds, &utc) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
    stg_json_put_string(json, "time", text);
}

void stg_reply_commits_json(struct stg_json_writer *json, const struct stg_reply *reply)
{
    stg_json_object_begin(json);
    stg_json_put_string(json, "pipeline", reply->name);
    stg_json_key(json, "commits");
    stg_json_array_begin(json);
    for (size_t i = 0; i < reply->n_commits; i++) {
        const struct stg_commit_entry *e = &reply->commits[i];
        stg_json_object_begin(json);
        stg_json_put_string(json, "tag", e->tag);
        stg_json_put_uint(json, "attempt", e->attempt);
        stg_json_put_uint(json, "pass", e->pass);
        stg_json_put_uint(json, "position", e->position);
        stg_reply_time_json(json, e->time_ns);
        stg_json_put_string(json, "client", e->client);
        stg_json_put_string(json, "of", e->lane);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
    stg_json_put_uint(json, "n_left_out", reply->n_left_out);
    stg_json_object_end(json);
}

void stg_reply_versions_json(struct stg_json_writer *json, const struct stg_reply *reply)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < reply->n_versions; i++) {
        const struct stg_version_entry *e = &reply->versions[i];
        char digest[17];
        snprintf(digest, sizeof(digest), "%016" PRIx64, e->content);
        stg_json_object_begin(json);
        stg_json_put_uint(json, "generation", e->generation);
        stg_reply_time_json(json, e->time_ns);
        stg_json_put_uint(json, "uid", e->uid);
        stg_json_put_string(json, "digest", digest);
        stg_json_put_string(json, "file", e->file);
        stg_json_put_bool(json, "current", i + 1 == reply->n_versions);
        stg_json_object_end(json);
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
    COUNTER(remainder_elements, true),
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
    COUNTER(partition, true),
    COUNTER(own_partitions, true),
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
        {"max_in_flight", c->max_in_flight},
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
        stg_json_put_string(json, texts[i].name, texts[i].text);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        stg_json_put_uint(json, numbers[i].name, numbers[i].value);
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
    if (status->num_clients_auto)
        stg_json_string(json, "num_clients");
    stg_json_array_end(json);
    stg_json_key(json, "tuned");
    stg_json_array_begin(json);
    for (size_t i = 0; i < status->n_tuned; i++) {
        const struct stg_tuned *tuned = &status->tuned[i];
        stg_json_object_begin(json);
        stg_json_put_string(json, "what", tuned->what);
        stg_json_put_uint(json, "from", tuned->from);
        stg_json_put_uint(json, "to", tuned->to);
        stg_json_put_string(json, "why", tuned->why);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

/* null: no trainer reads. */
static void rates_json(struct stg_json_writer *json,
                       const struct stg_pipeline_status *status)
{
    const struct {
        const char *key;
        uint64_t n, of;
        double unit;
    } rates[] = {
        {"batches_per_second", status->window_batches, status->window_ns, 1e9},
        {"rows_per_second", status->window_rows, status->window_ns, 1e9},
        {"wait_share", status->window_wait_ns, status->window_clients_ns, 1},
    };
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        if (status->window_ns > 0 && rates[i].of > 0) {
            stg_json_put_float(json, rates[i].key,
                               (double)rates[i].n * rates[i].unit / (double)rates[i].of);
        } else {
            stg_json_key(json, rates[i].key);
            stg_json_null(json);
        }
    }
}

static void progress_json(struct stg_json_writer *json,
                          const struct stg_pipeline_status *status)
{
    stg_json_key(json, "progress");
    stg_json_array_begin(json);
    for (size_t i = 0; i < status->n_progress; i++) {
        const struct stg_status_progress *p = &status->progress[i];
        double seconds = (double)p->elapsed_ns / 1e9;
        stg_json_object_begin(json);
        stg_json_put_string(json, "what", p->what);
        stg_json_put_string(json, "unit", p->unit);
        stg_json_put_uint(json, "done", p->done);
        stg_json_key(json, "total");
        if (p->total > 0)
            stg_json_uint(json, p->total);
        else
            stg_json_null(json);
        stg_json_put_float(json, "elapsed_seconds", seconds);
        stg_json_key(json, "remaining_seconds");
        if (p->total > 0 && p->done > 0 && p->done <= p->total)
            stg_json_float(json, seconds * (double)(p->total - p->done) / (double)p->done,
                           STAGER_FLOAT64);
        else
            stg_json_null(json);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

void stg_reply_status_json(struct stg_json_writer *json,
                           const struct stg_pipeline_status *status)
{
    stg_json_object_begin(json);
    stg_json_put_string(json, "name", status->name);
    stg_json_put_string(json, "state", status->state);
    stg_json_put_string(json, "delivery", status->delivery);
    stg_json_put_string(json, "on_timeout", status->on_timeout);
    stg_json_put_string(json, "thread_pool", status->thread_pool);
    stg_json_put_string(json, "container", status->container);
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        stg_json_put_uint(json, counters[i].name, counter_of(status, &counters[i]));
    }
    rates_json(json, status);
    progress_json(json, status);
    stg_json_put_string(json, "remote", status->remote);
    stg_json_put_string(json, "py_function", status->py_function);
    stg_json_put_string(json, "gpu", status->gpu);
    stg_json_put_string(json, "gpu_why", status->gpu_why);
    stg_json_put_uint(json, "warming_generation", status->warming_generation);
    stg_json_put_uint(json, "warming_buffered", status->warming_buffered);
    stg_json_put_string(json, "commit_problem", status->commit_problem);
    stg_json_put_string(json, "last_error", status->last_error);
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
                     stg_text_or(status->name, ""));
    stg_json_key(json, "boundary");
    boundary_json(json, &status->boundary);
    stg_json_object_end(json);
}

void stg_reply_daemon_json(struct stg_json_writer *json,
                           const struct stg_admin_daemon *daemon)
{
    stg_json_object_begin(json);
    stg_json_put_string(json, "release", daemon->release);
    stg_json_put_uint(json, "pid", daemon->pid);
    stg_json_put_string(json, "socket", daemon->path);
    stg_json_object_end(json);
}

/* ---- explain ---- */

static void inputs_json(struct stg_json_writer *json, const struct stg_explain *explain,
                        const struct stg_explain_node *node)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < node->n_inputs; i++) {
        const struct stg_explain_input *input = &node->inputs[i];
        stg_json_object_begin(json);
        stg_json_put_string(json, "node", explain->nodes[input->from].name);
        stg_json_put_uint(json, "output", input->output);
        stg_json_put_uint(json, "bytes", input->bytes);
        stg_json_put_bool(json, "crosses", input->crosses);
        stg_json_put_bool(json, "control", input->control);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static void nodes_json(struct stg_json_writer *json, const struct stg_explain *explain)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < explain->n_nodes; i++) {
        const struct stg_explain_node *node = &explain->nodes[i];
        stg_json_object_begin(json);
        stg_json_put_string(json, "name", node->name);
        stg_json_put_string(json, "op", node->op);
        stg_json_put_bool(json, "in_daemon", node->in_daemon);
        stg_json_put_bool(json, "in_trainer", node->in_trainer);
        stg_json_put_bool(json, "on_gpu", node->on_gpu);
        stg_json_put_uint(json, "n_daemon", node->n_daemon);
        stg_json_put_uint(json, "daemon_ns", node->daemon_ns);
        stg_json_put_uint(json, "n_trainer", node->n_trainer);
        stg_json_put_uint(json, "trainer_ns", node->trainer_ns);
        stg_json_put_uint(json, "bytes", node->bytes);
        stg_json_key(json, "inputs");
        inputs_json(json, explain, node);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static void crossing_json(struct stg_json_writer *json, const struct stg_explain *explain)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < explain->n_tensors; i++) {
        const struct stg_explain_tensor *tensor = &explain->tensors[i];
        stg_json_object_begin(json);
        stg_json_put_string(json, "name", tensor->name);
        stg_json_key(json, "node");
        if (tensor->is_constant)
            stg_json_null(json);
        else
            stg_json_string(json, explain->nodes[tensor->from].name);
        stg_json_put_uint(json, "bytes", tensor->bytes);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static void decisions_json(struct stg_json_writer *json,
                           const struct stg_explain *explain)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < explain->n_decisions; i++) {
        stg_json_object_begin(json);
        stg_json_put_uint(json, "age_ns", explain->decisions[i].age_ns);
        stg_json_put_string(json, "what", explain->decisions[i].what);
        stg_json_put_string(json, "text", explain->decisions[i].text);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static void numbers_json(struct stg_json_writer *json, const struct stg_explain *explain)
{
    stg_json_put_uint(json, "n_runners", explain->n_runners);
    stg_json_put_uint(json, "elapsed_ns", explain->elapsed_ns);
    stg_json_put_uint(json, "n_items", explain->n_items);
    stg_json_put_uint(json, "pull_ns", explain->pull_ns);
    stg_json_put_uint(json, "compute_ns", explain->compute_ns);
    stg_json_put_uint(json, "room_ns", explain->room_ns);
    stg_json_put_uint(json, "trainers_ns", explain->trainers_ns);
    stg_json_put_uint(json, "trainers_wait_ns", explain->trainers_wait_ns);
    stg_json_put_uint(json, "cpu_ns", explain->cpu_ns);
    stg_json_put_uint(json, "n_daemon_runs", explain->n_daemon_runs);
    stg_json_put_uint(json, "daemon_run_ns", explain->daemon_run_ns);
    stg_json_put_uint(json, "n_trainer_runs", explain->n_trainer_runs);
    stg_json_put_uint(json, "trainer_run_ns", explain->trainer_run_ns);
    stg_json_put_uint(json, "n_left_out", explain->n_left_out);
}

static void remote_json(struct stg_json_writer *json, const struct stg_explain *explain)
{
    stg_json_key(json, "remote");
    if (explain->remote[0] == '\0') {
        stg_json_null(json);
        return;
    }
    stg_json_object_begin(json);
    stg_json_put_string(json, "text", explain->remote);
    stg_json_put_uint(json, "n_remote_items", explain->n_remote_items);
    stg_json_put_uint(json, "n_local_items", explain->n_local_items);
    stg_json_put_uint(json, "bytes", explain->remote_bytes);
    stg_json_put_uint(json, "answer_ns", explain->remote_answer_ns);
    stg_json_put_uint(json, "stall_ns", explain->remote_stall_ns);
    stg_json_put_uint(json, "remote_cpu_ns", explain->remote_cpu_ns);
    stg_json_put_uint(json, "local_cpu_ns", explain->local_cpu_ns);
    stg_json_put_uint(json, "alone_ns", explain->alone_ns);
    stg_json_object_end(json);
}

void stg_reply_advice_json(struct stg_json_writer *json,
                           const struct stg_explain *explain)
{
    struct stg_advice advice;
    stg_advice_find(explain, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), &advice);
    stg_json_key(json, "advice");
    stg_json_object_begin(json);
    stg_json_put_string(json, "limit", advice.limit);
    stg_json_put_string(json, "text", advice.text);
    stg_json_key(json, "setting");
    if (advice.setting != NULL)
        stg_json_string(json, advice.setting);
    else
        stg_json_null(json);
    stg_json_put_uint(json, "value", advice.value);
    stg_json_put_float(json, "gain", advice.gain);
    stg_json_object_end(json);
}

void stg_reply_explain_json(struct stg_json_writer *json,
                            const struct stg_explain *explain)
{
    stg_json_object_begin(json);
    stg_json_put_string(json, "name", explain->name);
    stg_json_put_uint(json, "generation", explain->generation);
    stg_json_put_string(json, "state", explain->state);
    stg_json_put_string(json, "smart_stage", explain->smart_stage);
    stg_json_put_string(json, "bottleneck", explain->bottleneck);
    stg_json_put_string(json, "why", explain->why);
    stg_reply_advice_json(json, explain);
    numbers_json(json, explain);
    remote_json(json, explain);
    stg_json_key(json, "steps");
    stg_json_array_begin(json);
    for (size_t i = 0; i < explain->n_steps; i++)
        stg_json_string(json, explain->steps[i]);
    stg_json_array_end(json);
    stg_json_key(json, "reads");
    stg_json_array_begin(json);
    for (size_t i = 0; i < explain->n_reads; i++)
        stg_json_string(json, explain->reads[i]);
    stg_json_array_end(json);
    stg_json_key(json, "nodes");
    nodes_json(json, explain);
    stg_json_key(json, "boundary");
    crossing_json(json, explain);
    stg_json_key(json, "decisions");
    decisions_json(json, explain);
    stg_json_object_end(json);
}
