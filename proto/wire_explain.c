/* SPDX-License-Identifier: Apache-2.0
 *
 * What is measured of a pipeline: the reply `explain`.
 */
#include "proto/wire_parts.h"

#define EXPLAIN_TEXTS(F) F(state), F(smart_stage), F(bottleneck), F(why), F(remote)
#define EXPLAIN_NUMBERS(F)                                                               \
    F(generation), F(n_left_out), F(n_runners), F(elapsed_ns), F(n_items), F(pull_ns),   \
        F(compute_ns), F(room_ns), F(trainers_ns), F(trainers_wait_ns), F(cpu_ns),       \
        F(n_daemon_runs), F(daemon_run_ns), F(n_trainer_runs), F(trainer_run_ns),        \
        F(n_remote_items), F(n_local_items), F(remote_bytes), F(remote_stall_ns),        \
        F(remote_answer_ns), F(remote_cpu_ns), F(local_cpu_ns), F(alone_ns)

/* ---- explain: encoding ---- */

static int inputs_fill(const struct stg_explain_node *from, struct stg_bump *bump,
                       Stager__ExplainNode *to)
{
    to->input = stg_wire_messages(bump, from->n_inputs, sizeof(Stager__ExplainInput));
    if (to->input == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    to->n_input = from->n_inputs;
    for (size_t i = 0; i < from->n_inputs; i++) {
        const struct stg_explain_input *input = &from->inputs[i];
        Stager__ExplainInput *message = to->input[i];
        stager__explain_input__init(message);
        message->from = input->from;
        STG_PUT(message, output, input->output);
        STG_PUT(message, bytes, input->bytes);
        message->staged = stg_wire_optional(input->staged);
        STG_PUT(message, crosses, input->crosses);
        STG_PUT(message, control, input->control);
    }
    return 0;
}

static int nodes_fill(const struct stg_explain *from, struct stg_bump *bump,
                      Stager__ExplainReply *to)
{
    to->node = stg_wire_messages(bump, from->n_nodes, sizeof(Stager__ExplainNode));
    if (to->node == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    to->n_node = from->n_nodes;
    for (size_t i = 0; i < from->n_nodes; i++) {
        const struct stg_explain_node *node = &from->nodes[i];
        Stager__ExplainNode *message = to->node[i];
        stager__explain_node__init(message);
        message->name = stg_wire_required(node->name);
        message->op = stg_wire_optional(node->op);
        STG_PUT(message, in_daemon, node->in_daemon);
        STG_PUT(message, in_trainer, node->in_trainer);
        STG_PUT(message, on_gpu, node->on_gpu);
        STG_PUT(message, n_daemon, node->n_daemon);
        STG_PUT(message, daemon_ns, node->daemon_ns);
        STG_PUT(message, n_trainer, node->n_trainer);
        STG_PUT(message, trainer_ns, node->trainer_ns);
        STG_PUT(message, bytes, node->bytes);
        int rc = inputs_fill(node, bump, message);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int tensors_fill(const struct stg_explain *from, struct stg_bump *bump,
                        Stager__ExplainReply *to)
{
    to->boundary =
        stg_wire_messages(bump, from->n_tensors, sizeof(Stager__ExplainTensor));
    if (to->boundary == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    to->n_boundary = from->n_tensors;
    for (size_t i = 0; i < from->n_tensors; i++) {
        const struct stg_explain_tensor *tensor = &from->tensors[i];
        stager__explain_tensor__init(to->boundary[i]);
        to->boundary[i]->name = stg_wire_required(tensor->name);
        to->boundary[i]->from = tensor->from;
        to->boundary[i]->has_from = !tensor->is_constant;
        STG_PUT(to->boundary[i], bytes, tensor->bytes);
    }
    return 0;
}

static int decisions_fill(const struct stg_explain *from, struct stg_bump *bump,
                          Stager__ExplainReply *to)
{
    to->decision =
        stg_wire_messages(bump, from->n_decisions, sizeof(Stager__ExplainDecision));
    if (to->decision == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    to->n_decision = from->n_decisions;
    for (size_t i = 0; i < from->n_decisions; i++) {
        stager__explain_decision__init(to->decision[i]);
        STG_PUT(to->decision[i], age_ns, from->decisions[i].age_ns);
        to->decision[i]->what = stg_wire_optional(from->decisions[i].what);
        to->decision[i]->text = stg_wire_optional(from->decisions[i].text);
    }
    return 0;
}

static int replays_fill(const struct stg_explain *from, struct stg_bump *bump,
                        Stager__ExplainReply *to)
{
    to->replay = stg_wire_messages(bump, from->n_replays, sizeof(Stager__Replay));
    if (to->replay == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    to->n_replay = from->n_replays;
    for (size_t i = 0; i < from->n_replays; i++)
        stg_wire_replay_fill(&from->replays[i], to->replay[i]);
    return 0;
}

int stg_wire_explain_fill(const struct stg_explain *from, struct stg_bump *bump,
                          Stager__ExplainReply **ret)
{
    Stager__ExplainReply *to = stg_bump_alloc(bump, sizeof(*to));
    if (to == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stager__explain_reply__init(to);
    to->name = stg_wire_required(from->name);
    to->step = (char **)(uintptr_t)from->steps;
    to->n_step = from->n_steps;
    to->reads = (char **)(uintptr_t)from->reads;
    to->n_reads = from->n_reads;
    EXPLAIN_TEXTS(STG_PUT_TEXT);
    EXPLAIN_NUMBERS(STG_PUT_NUMBER);
    int rc = nodes_fill(from, bump, to);
    if (rc == 0)
        rc = tensors_fill(from, bump, to);
    if (rc == 0)
        rc = decisions_fill(from, bump, to);
    if (rc == 0)
        rc = replays_fill(from, bump, to);
    if (rc == 0)
        *ret = to;
    return rc;
}

/* ---- explain: decoding ---- */

static int from_wrong(const char *name, uint32_t from, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "malformed message: \"%.64s\" is of node %u, which is not before it",
                   name, from);
}

static int inputs_take(const Stager__ExplainNode *from, size_t place,
                       struct stg_bump *bump, struct stg_explain_node *ret,
                       struct stg_err *err)
{
    ret->inputs = stg_bump_alloc(bump, from->n_input * sizeof(*ret->inputs));
    if (ret->inputs == NULL)
        return stg_wire_fail_memory(err);
    ret->n_inputs = from->n_input;
    for (size_t i = 0; i < from->n_input; i++) {
        const Stager__ExplainInput *input = from->input[i];
        if (input->from >= place)
            return from_wrong(from->name, input->from, err);
        ret->inputs[i] =
            (struct stg_explain_input){.from = input->from,
                                       .output = input->output,
                                       .bytes = input->bytes,
                                       .staged = stg_wire_taken(input->staged),
                                       .crosses = input->crosses != 0,
                                       .control = input->control != 0};
    }
    return 0;
}

static int nodes_take(const Stager__ExplainReply *from, struct stg_bump *bump,
                      struct stg_explain *ret, struct stg_err *err)
{
    ret->nodes = stg_bump_alloc(bump, from->n_node * sizeof(*ret->nodes));
    if (ret->nodes == NULL)
        return stg_wire_fail_memory(err);
    ret->n_nodes = from->n_node;
    for (size_t i = 0; i < from->n_node; i++) {
        const Stager__ExplainNode *node = from->node[i];
        ret->nodes[i] = (struct stg_explain_node){.name = node->name,
                                                  .op = stg_wire_taken(node->op),
                                                  .in_daemon = node->in_daemon != 0,
                                                  .in_trainer = node->in_trainer != 0,
                                                  .on_gpu = node->on_gpu != 0,
                                                  .n_daemon = node->n_daemon,
                                                  .daemon_ns = node->daemon_ns,
                                                  .n_trainer = node->n_trainer,
                                                  .trainer_ns = node->trainer_ns,
                                                  .bytes = node->bytes};
        int rc = inputs_take(node, i, bump, &ret->nodes[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int tensors_take(const Stager__ExplainReply *from, struct stg_bump *bump,
                        struct stg_explain *ret, struct stg_err *err)
{
    ret->tensors = stg_bump_alloc(bump, from->n_boundary * sizeof(*ret->tensors));
    if (ret->tensors == NULL)
        return stg_wire_fail_memory(err);
    ret->n_tensors = from->n_boundary;
    for (size_t i = 0; i < from->n_boundary; i++) {
        const Stager__ExplainTensor *tensor = from->boundary[i];
        if (tensor->has_from && tensor->from >= from->n_node)
            return from_wrong(tensor->name, tensor->from, err);
        ret->tensors[i] = (struct stg_explain_tensor){.name = tensor->name,
                                                      .is_constant = !tensor->has_from,
                                                      .from = tensor->from,
                                                      .bytes = tensor->bytes};
    }
    return 0;
}

static int decisions_take(const Stager__ExplainReply *from, struct stg_bump *bump,
                          struct stg_explain *ret, struct stg_err *err)
{
    ret->decisions = stg_bump_alloc(bump, from->n_decision * sizeof(*ret->decisions));
    if (ret->decisions == NULL)
        return stg_wire_fail_memory(err);
    ret->n_decisions = from->n_decision;
    for (size_t i = 0; i < from->n_decision; i++)
        ret->decisions[i] = (struct stg_explain_decision){
            .age_ns = from->decision[i]->age_ns,
            .what = stg_wire_taken(from->decision[i]->what),
            .text = stg_wire_taken(from->decision[i]->text)};
    return 0;
}

static int replays_take(const Stager__ExplainReply *from, struct stg_bump *bump,
                        struct stg_explain *ret, struct stg_err *err)
{
    ret->replays = stg_bump_alloc(bump, from->n_replay * sizeof(*ret->replays));
    if (ret->replays == NULL)
        return stg_wire_fail_memory(err);
    ret->n_replays = from->n_replay;
    for (size_t i = 0; i < from->n_replay; i++)
        ret->replays[i] = stg_wire_replay_take(from->replay[i]);
    return 0;
}

int stg_wire_explain_take(const Stager__ExplainReply *from, struct stg_bump *bump,
                          struct stg_explain *ret, struct stg_err *err)
{
    *ret = (struct stg_explain){.name = from->name,
                                .steps = (const char *const *)from->step,
                                .n_steps = from->n_step,
                                .reads = (const char *const *)from->reads,
                                .n_reads = from->n_reads};
    EXPLAIN_TEXTS(STG_TAKE_TEXT);
    EXPLAIN_NUMBERS(STG_TAKE_NUMBER);
    int rc = nodes_take(from, bump, ret, err);
    if (rc == 0)
        rc = tensors_take(from, bump, ret, err);
    if (rc == 0)
        rc = replays_take(from, bump, ret, err);
    return rc == 0 ? decisions_take(from, bump, ret, err) : rc;
}
