/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline inside an open reply.
 */
#include <stdlib.h>

#include "proto/wire_parts.h"

/* ---- spec -> message ---- */

static void scalar_fill(const struct stg_value *from, Stager__Scalar *to)
{
    stager__scalar__init(to);
    to->has_i = from->kind == STG_VALUE_INT;
    to->has_f = from->kind == STG_VALUE_FLOAT;
    to->has_b = from->kind == STG_VALUE_BOOL;
    to->has_s = from->kind == STG_VALUE_STRING;
    to->i = to->has_i ? from->i : 0;
    to->f = to->has_f ? from->f : 0;
    to->b = to->has_b && from->i != 0;
    if (to->has_s)
        to->s = (ProtobufCBinaryData){.len = from->s_bytes, .data = (uint8_t *)from->s};
}

static int attribute_fill(const struct stg_attr *from, struct stg_bump *bump,
                          Stager__Attribute *to)
{
    stager__attribute__init(to);
    to->name = (char *)from->name;
    to->line = (uint32_t)from->line;
    to->has_line = from->line != 0;
    to->column = (uint32_t)from->column;
    to->has_column = from->column != 0;
    to->is_default = to->has_is_default = from->is_default;
    to->n_dim = (size_t)from->ndim;
    to->n_value = from->n_values;
    to->dim = stg_bump_alloc(bump, to->n_dim * sizeof(uint64_t));
    to->value = stg_bump_alloc(bump, to->n_value * sizeof(Stager__Scalar *));
    Stager__Scalar *scalars = stg_bump_alloc(bump, to->n_value * sizeof(*scalars));
    if (to->dim == NULL || to->value == NULL || scalars == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (int i = 0; i < from->ndim; i++)
        to->dim[i] = (uint64_t)from->shape[i];
    for (size_t i = 0; i < from->n_values; i++) {
        scalar_fill(&from->values[i], &scalars[i]);
        to->value[i] = &scalars[i];
    }
    return 0;
}

static int node_fill(const struct stg_node *from, struct stg_bump *bump, Stager__Node *to)
{
    stager__node__init(to);
    to->name = (char *)from->name;
    to->op = (char *)from->op;
    to->input = (char **)from->inputs;
    to->n_input = from->n_inputs;
    to->line = (uint32_t)from->line;
    to->has_line = from->line != 0;
    to->column = (uint32_t)from->column;
    to->has_column = from->column != 0;
    to->attr = stg_bump_alloc(bump, from->n_attrs * sizeof(Stager__Attribute *));
    Stager__Attribute *attrs = stg_bump_alloc(bump, from->n_attrs * sizeof(*attrs));
    if (to->attr == NULL || attrs == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (; to->n_attr < from->n_attrs; to->n_attr++) {
        to->attr[to->n_attr] = &attrs[to->n_attr];
        int rc = attribute_fill(&from->attrs[to->n_attr], bump, &attrs[to->n_attr]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static Stager__Values *values_fill(const struct stg_attr *from, size_t n,
                                   struct stg_bump *bump)
{
    Stager__Values *to = stg_bump_alloc(bump, sizeof(*to));
    Stager__Attribute **list = stg_bump_alloc(bump, n * sizeof(Stager__Attribute *));
    Stager__Attribute *each = stg_bump_alloc(bump, n * sizeof(*each));
    if (to == NULL || list == NULL || each == NULL)
        return NULL;
    stager__values__init(to);
    to->value = list;
    for (; to->n_value < n; to->n_value++) {
        list[to->n_value] = &each[to->n_value];
        if (attribute_fill(&from[to->n_value], bump, &each[to->n_value]) < 0)
            return NULL;
    }
    return to;
}

static Stager__Features *features_fill(const struct stg_staged *from,
                                       struct stg_bump *bump)
{
    Stager__Features *to = stg_bump_alloc(bump, sizeof(*to));
    Stager__Feature **leaves =
        stg_bump_alloc(bump, from->n_features * sizeof(Stager__Feature *));
    Stager__Feature *each = stg_bump_alloc(bump, from->n_features * sizeof(*each));
    if (to == NULL || leaves == NULL || each == NULL)
        return NULL;
    stager__features__init(to);
    to->structure = (char *)from->structure;
    to->leaf = leaves;
    to->n_leaf = from->n_features;
    for (size_t i = 0; i < from->n_features; i++) {
        const struct stg_feature *f = &from->features[i];
        stager__feature__init(&each[i]);
        each[i].path = (char *)f->path;
        each[i].tensor = (char *)f->tensor;
        each[i].line = (uint32_t)f->line;
        each[i].has_line = f->line != 0;
        each[i].column = (uint32_t)f->column;
        each[i].has_column = f->column != 0;
        each[i].part = f->part;
        each[i].has_part = f->part != STG_PART_VALUES;
        leaves[i] = &each[i];
    }
    return to;
}

static Stager__Staged *staged_fill(const struct stg_staged *from, struct stg_bump *bump)
{
    Stager__Staged *to = stg_bump_alloc(bump, sizeof(*to));
    if (to == NULL)
        return NULL;
    stager__staged__init(to);
    to->has_capacity = to->has_num_threads = to->has_num_clients = 1;
    to->capacity = from->capacity;
    to->num_threads = from->num_threads;
    to->num_clients = from->num_clients;
    to->has_timeout_millis = to->has_delivery = to->has_redeliver = 1;
    to->timeout_millis = from->timeout_millis;
    to->delivery = (Stager__Delivery)from->delivery;
    to->redeliver = from->redeliver;
    to->has_max_batch_bytes = to->has_memory_budget = 1;
    to->max_batch_bytes = from->max_batch_bytes;
    to->memory_budget = from->memory_budget;
    to->has_hold_timeout_millis = to->has_start_timeout_millis = 1;
    to->hold_timeout_millis = from->hold_timeout_millis;
    to->start_timeout_millis = from->start_timeout_millis;
    to->has_stage_subgraph_stream_id = from->stream_id != 0;
    to->stage_subgraph_stream_id = from->stream_id;
    to->has_smart_stage_gpu = from->smart_stage_gpu != STG_SMART_STAGE_OFF;
    to->smart_stage_gpu = (Stager__SmartStage)from->smart_stage_gpu;
    if (from->n_transfers > 0) {
        to->transfer = values_fill(from->transfers, from->n_transfers, bump);
        if (to->transfer == NULL)
            return NULL;
    }
    if (from->n_features > 0) {
        to->features = features_fill(from, bump);
        if (to->features == NULL)
            return NULL;
    }
    return to;
}

Stager__Pipeline *stg_convert_from_spec(const struct stg_pipeline_spec *spec,
                                        struct stg_bump *bump)
{
    Stager__Pipeline *to = stg_bump_alloc(bump, sizeof(*to));
    Stager__Node **graph = stg_bump_alloc(bump, spec->n_nodes * sizeof(Stager__Node *));
    Stager__Node *nodes = stg_bump_alloc(bump, spec->n_nodes * sizeof(*nodes));
    if (to == NULL || graph == NULL || nodes == NULL)
        return NULL;
    stager__pipeline__init(to);
    to->name = (char *)spec->name;
    to->targets = (char **)spec->targets;
    to->n_targets = spec->n_targets;
    to->graph = graph;
    for (; to->n_graph < spec->n_nodes; to->n_graph++) {
        graph[to->n_graph] = &nodes[to->n_graph];
        if (node_fill(&spec->nodes[to->n_graph], bump, &nodes[to->n_graph]) < 0)
            return NULL;
    }
    to->staged = staged_fill(&spec->staged, bump);
    return to->staged != NULL ? to : NULL;
}

/* ---- bytes -> spec ---- */

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
