/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/reply.h"

/* A key and a number. */
static void number(struct stg_json_writer *json, const char *key, uint64_t value)
{
    stg_json_key(json, key);
    stg_json_uint(json, value);
}

static void text(struct stg_json_writer *json, const char *key, const char *value)
{
    stg_json_key(json, key);
    stg_json_string(json, value);
}

static void flag(struct stg_json_writer *json, const char *key, bool value)
{
    stg_json_key(json, key);
    stg_json_bool(json, value);
}

static void inputs_json(struct stg_json_writer *json, const struct stg_explain *explain,
                        const struct stg_explain_node *node)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < node->n_inputs; i++) {
        const struct stg_explain_input *input = &node->inputs[i];
        stg_json_object_begin(json);
        text(json, "node", explain->nodes[input->from].name);
        number(json, "output", input->output);
        number(json, "bytes", input->bytes);
        flag(json, "crosses", input->crosses);
        flag(json, "control", input->control);
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
        text(json, "name", node->name);
        text(json, "op", node->op);
        flag(json, "in_daemon", node->in_daemon);
        flag(json, "in_trainer", node->in_trainer);
        flag(json, "on_gpu", node->on_gpu);
        number(json, "n_daemon", node->n_daemon);
        number(json, "daemon_ns", node->daemon_ns);
        number(json, "n_trainer", node->n_trainer);
        number(json, "trainer_ns", node->trainer_ns);
        number(json, "bytes", node->bytes);
        stg_json_key(json, "inputs");
        inputs_json(json, explain, node);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static void boundary_json(struct stg_json_writer *json, const struct stg_explain *explain)
{
    stg_json_array_begin(json);
    for (size_t i = 0; i < explain->n_tensors; i++) {
        const struct stg_explain_tensor *tensor = &explain->tensors[i];
        stg_json_object_begin(json);
        text(json, "name", tensor->name);
        stg_json_key(json, "node");
        if (tensor->is_constant)
            stg_json_null(json);
        else
            stg_json_string(json, explain->nodes[tensor->from].name);
        number(json, "bytes", tensor->bytes);
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
        number(json, "age_ns", explain->decisions[i].age_ns);
        text(json, "what", explain->decisions[i].what);
        text(json, "text", explain->decisions[i].text);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static void numbers_json(struct stg_json_writer *json, const struct stg_explain *explain)
{
    number(json, "n_runners", explain->n_runners);
    number(json, "elapsed_ns", explain->elapsed_ns);
    number(json, "n_items", explain->n_items);
    number(json, "draw_ns", explain->draw_ns);
    number(json, "compute_ns", explain->compute_ns);
    number(json, "room_ns", explain->room_ns);
    number(json, "trainers_ns", explain->trainers_ns);
    number(json, "trainers_wait_ns", explain->trainers_wait_ns);
    number(json, "cpu_ns", explain->cpu_ns);
    number(json, "n_daemon_runs", explain->n_daemon_runs);
    number(json, "daemon_run_ns", explain->daemon_run_ns);
    number(json, "n_trainer_runs", explain->n_trainer_runs);
    number(json, "trainer_run_ns", explain->trainer_run_ns);
    number(json, "n_left_out", explain->n_left_out);
}

void stg_reply_explain_json(struct stg_json_writer *json,
                            const struct stg_explain *explain)
{
    stg_json_object_begin(json);
    text(json, "name", explain->name);
    number(json, "generation", explain->generation);
    text(json, "state", explain->state);
    text(json, "smart_stage", explain->smart_stage);
    text(json, "bottleneck", explain->bottleneck);
    text(json, "why", explain->why);
    numbers_json(json, explain);
    stg_json_key(json, "steps");
    stg_json_array_begin(json);
    for (size_t i = 0; i < explain->n_steps; i++)
        stg_json_string(json, explain->steps[i]);
    stg_json_array_end(json);
    stg_json_key(json, "nodes");
    nodes_json(json, explain);
    stg_json_key(json, "boundary");
    boundary_json(json, explain);
    stg_json_key(json, "decisions");
    decisions_json(json, explain);
    stg_json_object_end(json);
}
