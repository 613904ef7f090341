/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/convert.h"

#include <stdio.h>
#include <string.h>

#include "core/layout.h"

/* ---- unpacking ---- */

#define SLAB_BYTES 4096u

static void *unpack_alloc(void *data, size_t bytes)
{
    struct stg_unpack *u = data;
    size_t rounded = (bytes + 15) & ~(size_t)15;
    if (bytes > u->limit || u->used + rounded > u->limit) {
        u->refused = true;
        return NULL;
    }
    u->used += rounded;
    if (rounded > SLAB_BYTES / 8) {
        void *large = stg_bump_alloc_raw(u->bump, rounded);
        u->exhausted |= large == NULL;
        return large;
    }
    if (u->slab_left < rounded) {
        u->slab = stg_bump_alloc_raw(u->bump, SLAB_BYTES);
        u->slab_left = u->slab != NULL ? SLAB_BYTES : 0;
        u->exhausted |= u->slab == NULL;
        if (u->slab == NULL)
            return NULL;
    }
    void *ret = u->slab;
    u->slab += rounded;
    u->slab_left -= rounded;
    return ret;
}

static void unpack_free(void *data, void *pointer)
{
}

void stg_unpack_init(struct stg_unpack *unpack, struct stg_bump *bump, size_t limit)
{
    *unpack = (struct stg_unpack){.bump = bump, .limit = limit};
    unpack->allocator = (ProtobufCAllocator){
        .alloc = unpack_alloc, .free = unpack_free, .allocator_data = unpack};
}

/* ---- message -> spec ---- */

static int out_of_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a pipeline");
}

static struct stg_value value_of_scalar(const Stager__Scalar *s)
{
    if (s->has_i)
        return (struct stg_value){.kind = STG_VALUE_INT, .i = s->i, .f = (double)s->i};
    if (s->has_f)
        return (struct stg_value){.kind = STG_VALUE_FLOAT, .f = s->f};
    if (s->has_b)
        return (struct stg_value){.kind = STG_VALUE_BOOL, .i = s->b != 0};
    return (struct stg_value){.kind = STG_VALUE_NULL};
}

/* Bytes of the wire have no NUL after them. */
static int scalar_convert(const Stager__Scalar *s, struct stg_bump *bump,
                          struct stg_value *ret)
{
    *ret = value_of_scalar(s);
    if (ret->kind != STG_VALUE_NULL || !s->has_s)
        return 0;
    ret->kind = STG_VALUE_STRING;
    ret->s_bytes = s->s.len;
    ret->s =
        stg_bump_strndup(bump, s->s.len > 0 ? (const char *)s->s.data : "", s->s.len);
    return ret->s != NULL ? 0 : -STAGER_RESOURCE_EXHAUSTED;
}

static int convert_attribute(const Stager__Attribute *a, struct stg_bump *bump,
                             struct stg_attr *ret, struct stg_err *err)
{
    if (a->n_dim > STG_ATTR_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "attribute \"%s\" has %zu dimensions; at most %d", a->name,
                       a->n_dim, STG_ATTR_MAX_DIMS);
    uint64_t n = 1;
    bool too_large = false;
    ret->name = a->name;
    ret->ndim = (int)a->n_dim;
    for (size_t i = 0; i < a->n_dim; i++) {
        ret->shape[i] = (int64_t)a->dim[i];
        too_large |= a->dim[i] > INT32_MAX || __builtin_mul_overflow(n, a->dim[i], &n);
    }
    if (too_large)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "attribute \"%s\" has a shape that is too large", a->name);
    if (n != a->n_value)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "attribute \"%s\" has %zu values, but its shape needs %llu",
                       a->name, a->n_value, (unsigned long long)n);
    struct stg_value *values = stg_bump_alloc(bump, n * sizeof(*values));
    if (values == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (scalar_convert(a->value[i], bump, &values[i]) < 0)
            return out_of_memory(err);
    }
    ret->values = values;
    ret->n_values = n;
    ret->is_default = a->is_default != 0;
    ret->line = (int)a->line;
    ret->column = (int)a->column;
    return 0;
}

int stg_convert_values(const Stager__Values *from, struct stg_bump *bump,
                       const struct stg_attr **ret, size_t *ret_n, struct stg_err *err)
{
    size_t n = from != NULL ? from->n_value : 0;
    struct stg_attr *attrs = stg_bump_alloc(bump, (n + 1) * sizeof(*attrs));
    if (attrs == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        int rc = convert_attribute(from->value[i], bump, &attrs[i], err);
        if (rc < 0)
            return rc;
    }
    *ret = attrs;
    *ret_n = n;
    return 0;
}

static int node_convert(const Stager__Node *from, struct stg_bump *bump,
                        struct stg_node *ret, struct stg_err *err)
{
    struct stg_attr *attrs = stg_bump_alloc(bump, from->n_attr * sizeof(*attrs));
    if (attrs == NULL)
        return out_of_memory(err);
    for (size_t k = 0; k < from->n_attr; k++) {
        int rc = convert_attribute(from->attr[k], bump, &attrs[k], err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "node \"%.64s\"", from->name);
    }
    *ret = (struct stg_node){.name = from->name,
                             .op = from->op,
                             .inputs = (const char *const *)from->input,
                             .n_inputs = from->n_input,
                             .attrs = attrs,
                             .n_attrs = from->n_attr,
                             .line = (int)from->line,
                             .column = (int)from->column};
    return 0;
}

static int nodes_convert(Stager__Node *const *from, size_t n, struct stg_bump *bump,
                         const struct stg_node **ret, struct stg_err *err)
{
    struct stg_node *nodes = stg_bump_alloc(bump, n * sizeof(*nodes));
    if (nodes == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        int rc = node_convert(from[i], bump, &nodes[i], err);
        if (rc < 0)
            return rc;
    }
    *ret = nodes;
    return 0;
}

static const struct stg_feature *convert_leaves(const Stager__Features *from,
                                                struct stg_bump *bump)
{
    struct stg_feature *features = stg_bump_alloc(bump, from->n_leaf * sizeof(*features));
    for (size_t i = 0; features != NULL && i < from->n_leaf; i++)
        features[i] = (struct stg_feature){.path = from->leaf[i]->path,
                                           .tensor = from->leaf[i]->tensor,
                                           .line = (int)from->leaf[i]->line,
                                           .column = (int)from->leaf[i]->column,
                                           .part = from->leaf[i]->part};
    return features;
}

/* ---- steps: every field of the message is an attribute ---- */

static const void *member(const ProtobufCMessage *message, unsigned offset)
{
    return (const char *)message + offset;
}

/* A value of the field's type at `at`; at is also where a default lies. */
static struct stg_value value_of_field(const ProtobufCFieldDescriptor *field,
                                       const void *at)
{
    struct stg_value ret = {.kind = STG_VALUE_INT};
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: ret.i = *(const uint32_t *)at; break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32: ret.i = *(const int32_t *)at; break;
    case PROTOBUF_C_TYPE_BOOL:
        return (struct stg_value){.kind = STG_VALUE_BOOL,
                                  .i = *(const protobuf_c_boolean *)at != 0};
    case PROTOBUF_C_TYPE_FLOAT:
        return (struct stg_value){.kind = STG_VALUE_FLOAT, .f = *(const float *)at};
    case PROTOBUF_C_TYPE_DOUBLE:
        return (struct stg_value){.kind = STG_VALUE_FLOAT, .f = *(const double *)at};
    case PROTOBUF_C_TYPE_ENUM: {
        const ProtobufCEnumValue *v =
            protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)at);
        const char *name = v != NULL ? v->name : "";
        return (struct stg_value){
            .kind = STG_VALUE_STRING, .s = name, .s_bytes = strlen(name)};
    }
    default: ret.i = *(const int64_t *)at; break;
    }
    ret.f = (double)ret.i;
    return ret;
}

static struct stg_value value_of_string(const char *s)
{
    return (struct stg_value){.kind = STG_VALUE_STRING, .s = s, .s_bytes = strlen(s)};
}

static int list_attr(const ProtobufCFieldDescriptor *field,
                     const ProtobufCMessage *message, struct stg_bump *bump,
                     struct stg_attr *ret)
{
    size_t n = *(const size_t *)member(message, field->quantifier_offset);
    const char *array = *(char *const *)member(message, field->offset);
    size_t size = field->type == PROTOBUF_C_TYPE_STRING ? sizeof(char *)
                  : field->type == PROTOBUF_C_TYPE_UINT64 ||
                          field->type == PROTOBUF_C_TYPE_SINT64 ||
                          field->type == PROTOBUF_C_TYPE_INT64 ||
                          field->type == PROTOBUF_C_TYPE_DOUBLE
                      ? 8
                      : 4;
    struct stg_value *values = stg_bump_alloc(bump, n * sizeof(*values));
    if (values == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        const void *at = array + i * size;
        values[i] = field->type == PROTOBUF_C_TYPE_STRING
                        ? value_of_string(*(char *const *)at)
                        : value_of_field(field, at);
    }
    ret->ndim = 1;
    ret->shape[0] = (int64_t)n;
    ret->n_values = n;
    ret->values = values;
    return n > 0;
}

static int string_attr(const ProtobufCFieldDescriptor *field, const void *at,
                       struct stg_value *value, struct stg_attr *ret)
{
    const char *s = *(char *const *)at;
    if (s == NULL)
        return 0;
    *value = value_of_string(s);
    ret->is_default = s == field->default_value;
    return 1;
}

static int scalar_attr(const ProtobufCFieldDescriptor *field,
                       const ProtobufCMessage *message, struct stg_bump *bump,
                       struct stg_attr *ret)
{
    struct stg_value *value = stg_bump_alloc(bump, sizeof(*value));
    if (value == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    ret->values = value;
    ret->n_values = 1;
    const void *at = member(message, field->offset);
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return string_attr(field, at, value, ret);
    bool written =
        field->label == PROTOBUF_C_LABEL_REQUIRED ||
        *(const protobuf_c_boolean *)member(message, field->quantifier_offset) != 0;
    if (!written && field->default_value == NULL)
        return 0;
    *value = value_of_field(field, written ? at : field->default_value);
    ret->is_default = !written;
    return 1;
}

/* 1: the attribute is there; 0: absent. */
static int attr_of_field(const ProtobufCFieldDescriptor *field,
                         const ProtobufCMessage *message, struct stg_bump *bump,
                         struct stg_attr *ret)
{
    ret->name = field->name;
    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return 0;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return list_attr(field, message, bump, ret);
    return scalar_attr(field, message, bump, ret);
}

/* One value of a field: an attribute "FIELD", or "FIELD/NAME" when it has a name. */
static int value_convert(const ProtobufCFieldDescriptor *field,
                         const Stager__Attribute *from, struct stg_bump *bump,
                         struct stg_attr *ret, struct stg_err *err)
{
    int rc = convert_attribute(from, bump, ret, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", field->name);
    ret->name = field->name;
    if (field->descriptor == &stager__attribute__descriptor || from->name[0] == '\0')
        return 0;
    size_t bytes = strlen(field->name) + 1 + strlen(from->name) + 1;
    char *name = stg_bump_alloc(bump, bytes);
    if (name == NULL)
        return out_of_memory(err);
    snprintf(name, bytes, "%s/%s", field->name, from->name);
    ret->name = name;
    return 0;
}

/* Conditions have the members of values. */
static bool is_values(const ProtobufCFieldDescriptor *field)
{
    return field->descriptor == &stager__values__descriptor ||
           field->descriptor == &stager__conditions__descriptor;
}

/* A field that is a message: values, a graph, what that yields. */
static int part_convert(const ProtobufCFieldDescriptor *field,
                        const ProtobufCMessage *message, struct stg_bump *bump,
                        struct stg_attr *attrs, struct stg_step *ret, struct stg_err *err)
{
    const void *at = member(message, field->offset);
    if (field->descriptor == &stager__node__descriptor) {
        ret->n_nodes = *(const size_t *)member(message, field->quantifier_offset);
        return nodes_convert(*(Stager__Node *const *const *)at, ret->n_nodes, bump,
                             &ret->nodes, err);
    }
    const void *part = *(const void *const *)at;
    if (part == NULL)
        return 0;
    if (field->descriptor == &stager__features__descriptor) {
        ret->n_outputs = ((const Stager__Features *)part)->n_leaf;
        ret->outputs = convert_leaves(part, bump);
        return ret->outputs != NULL ? 0 : out_of_memory(err);
    }
    if (field->descriptor == &stager__attribute__descriptor)
        return value_convert(field, part, bump, &attrs[ret->n_attrs++], err);
    if (!is_values(field))
        return 0;
    const Stager__Values *values = part;
    for (size_t i = 0; i < values->n_value; i++) {
        int rc =
            value_convert(field, values->value[i], bump, &attrs[ret->n_attrs++], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* How many attributes a step may have. */
static size_t count_attrs(const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    size_t n = type->n_fields;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (!is_values(field))
            continue;
        const Stager__Values *values =
            *(Stager__Values *const *)member(message, field->offset);
        n += values != NULL ? values->n_value : 0;
    }
    return n;
}

static int step_convert(const ProtobufCMessage *step, struct stg_bump *bump,
                        struct stg_step *ret, struct stg_err *err);

/* A field that is a step itself. */
static int reader_convert(const ProtobufCFieldDescriptor *field,
                          const ProtobufCMessage *message, struct stg_bump *bump,
                          struct stg_step *ret, struct stg_err *err)
{
    if (field->descriptor != &stager__reader__descriptor)
        return 0;
    const Stager__Reader *from = *(Stager__Reader *const *)member(message, field->offset);
    struct stg_step *reader = stg_bump_alloc(bump, sizeof(*reader));
    if (reader == NULL)
        return out_of_memory(err);
    reader->line = (int)from->line;
    reader->column = (int)from->column;
    ret->reader = reader;
    return step_convert(&from->base, bump, reader, err);
}

static int arguments_convert(const ProtobufCMessage *message, struct stg_bump *bump,
                             struct stg_step *ret, struct stg_err *err)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    struct stg_attr *attrs = stg_bump_alloc(bump, count_attrs(message) * sizeof(*attrs));
    if (attrs == NULL)
        return out_of_memory(err);
    ret->attrs = attrs;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        struct stg_attr attr = {.line = ret->line, .column = ret->column};
        int rc = field->type == PROTOBUF_C_TYPE_MESSAGE
                     ? part_convert(field, message, bump, attrs, ret, err)
                     : attr_of_field(field, message, bump, &attr);
        if (rc < 0)
            return field->type == PROTOBUF_C_TYPE_MESSAGE ? rc : out_of_memory(err);
        if (rc > 0)
            attrs[ret->n_attrs++] = attr;
        rc = reader_convert(&type->fields[i], message, bump, ret, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Of a message of which one field is set: Step, Reader. */
static int step_convert(const ProtobufCMessage *step, struct stg_bump *bump,
                        struct stg_step *ret, struct stg_err *err)
{
    const ProtobufCMessageDescriptor *type = step->descriptor;
    unsigned n = 0;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        const ProtobufCMessage *arguments =
            *(ProtobufCMessage *const *)member(step, field->offset);
        if (arguments == NULL)
            continue;
        n++;
        ret->name = field->name;
        ret->n_attrs = 0;
        int rc = arguments_convert(arguments, bump, ret, err);
        if (rc < 0)
            return rc;
    }
    if (n != 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a step has %u transformations; it must have exactly one", n);
    return 0;
}

static int steps_convert(Stager__Step *const *from, size_t n, struct stg_bump *bump,
                         const struct stg_step **ret, struct stg_err *err)
{
    struct stg_step *steps = stg_bump_alloc(bump, n * sizeof(*steps));
    if (steps == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        steps[i].line = (int)from[i]->line;
        steps[i].column = (int)from[i]->column;
        int rc = step_convert(&from[i]->base, bump, &steps[i], err);
        if (rc < 0)
            return rc;
    }
    *ret = steps;
    return 0;
}

static int branches_convert(const Stager__Pipeline *message,
                            struct stg_pipeline_spec *spec, struct stg_err *err)
{
    struct stg_branch *branches =
        stg_bump_alloc(&spec->bump, message->n_datasets * sizeof(*branches));
    if (branches == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < message->n_datasets; i++) {
        const Stager__Branch *from = message->datasets[i];
        branches[i] = (struct stg_branch){.name = from->name,
                                          .n_steps = from->n_dataset,
                                          .line = (int)from->line,
                                          .column = (int)from->column};
        int rc = steps_convert(from->dataset, from->n_dataset, &spec->bump,
                               &branches[i].steps, err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "branch \"%.64s\"", from->name);
    }
    spec->branches = branches;
    spec->n_branches = message->n_datasets;
    return 0;
}

/* ---- staged ---- */

static int features_convert(const Stager__Features *from, struct stg_bump *bump,
                            struct stg_staged *ret)
{
    ret->features = convert_leaves(from, bump);
    if (ret->features == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    ret->n_features = from->n_leaf;
    if (from->structure != NULL)
        ret->structure = from->structure;
    return 0;
}

static int codes_convert(const Stager__Codes *from, uint32_t otherwise, uint32_t *ret,
                         struct stg_err *err)
{
    *ret = otherwise;
    if (from == NULL)
        return 0;
    *ret = 0;
    for (size_t i = 0; i < from->n_code; i++) {
        if (from->code[i] < 1 || from->code[i] > STAGER_UNAUTHENTICATED)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "status code %u is not known to this release", from->code[i]);
        *ret |= STG_CODE_BIT(from->code[i]);
    }
    return 0;
}

static int feeds_convert(const Stager__Staged *from, struct stg_bump *bump,
                         struct stg_staged *ret, struct stg_err *err)
{
    struct stg_feed *feeds = stg_bump_alloc(bump, from->n_feed_dict * sizeof(*feeds));
    struct stg_attr *values = stg_bump_alloc(bump, from->n_feed_dict * sizeof(*values));
    if (feeds == NULL || values == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a pipeline");
    for (size_t i = 0; i < from->n_feed_dict; i++) {
        const Stager__Feed *feed = from->feed_dict[i];
        if ((feed->value != NULL) == (feed->tensor != NULL))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "feed_dict \"%.64s\" (line %u) needs one of value and tensor",
                           feed->name, feed->line);
        if (feed->client && feed->value == NULL)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "feed_dict \"%.64s\" (line %u): an entry with client: true "
                           "needs a value, which holds until a client sets another",
                           feed->name, feed->line);
        int rc = feed->value != NULL
                     ? convert_attribute(feed->value, bump, &values[i], err)
                     : 0;
        if (rc < 0)
            return stg_err_prefix(err, rc, "feed_dict \"%.64s\"", feed->name);
        feeds[i] = (struct stg_feed){.name = feed->name,
                                     .value = feed->value != NULL ? &values[i] : NULL,
                                     .tensor = feed->tensor,
                                     .client = feed->client != 0,
                                     .line = (int)feed->line,
                                     .column = (int)feed->column};
    }
    ret->feeds = feeds;
    ret->n_feeds = from->n_feed_dict;
    return 0;
}

static int transfers_convert(const Stager__Staged *from, struct stg_bump *bump,
                             struct stg_staged *ret, struct stg_err *err)
{
    if (from->transfer_dtypes == NULL)
        return 0;
    const Stager__Values *values = from->transfer_dtypes;
    struct stg_attr *attrs = stg_bump_alloc(bump, values->n_value * sizeof(*attrs));
    if (attrs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a pipeline");
    for (size_t i = 0; i < values->n_value; i++) {
        int rc = convert_attribute(values->value[i], bump, &attrs[i], err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "transfer_dtypes");
    }
    ret->transfers = attrs;
    ret->n_transfers = values->n_value;
    return 0;
}

static int remote_convert(const Stager__StageRemote *from, struct stg_remote_workers *ret,
                          struct stg_err *err)
{
    if (from == NULL)
        return 0;
    bool has_workers = from->n_workers > 0 || from->workers_file != NULL;
    if (protobuf_c_enum_descriptor_get_value(&stager__smart_stage__descriptor,
                                             from->mode) == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "remote.mode %d is not known to this release", from->mode);
    *ret = (struct stg_remote_workers){
        .urls = (const char *const *)from->workers,
        .n_urls = from->n_workers,
        .workers_file = from->workers_file,
        .mode = has_workers ? (enum stg_smart_stage)from->mode : STG_SMART_STAGE_OFF,
        .max_requests = from->max_requests,
        .max_bytes_per_s = from->max_bytes_per_s,
        .token_file = from->token_file,
        .ca_file = from->ca_file,
        .zone = from->zone};
    return 0;
}

static int convert_staged(const Stager__Pipeline *message, struct stg_pipeline_spec *spec,
                          struct stg_err *err)
{
    const Stager__Staged defaults = STAGER__STAGED__INIT;
    const Stager__Staged *from = message->staged != NULL ? message->staged : &defaults;
    if (protobuf_c_enum_descriptor_get_value(&stager__delivery__descriptor,
                                             from->delivery) == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "delivery %d is not known to this release", from->delivery);
    if (protobuf_c_enum_descriptor_get_value(&stager__on_timeout__descriptor,
                                             from->on_timeout) == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "on_timeout %d is not known to this release", from->on_timeout);
    if (protobuf_c_enum_descriptor_get_value(&stager__audit__descriptor, from->audit) ==
        NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "audit %d is not known to this release", from->audit);
    if (protobuf_c_enum_descriptor_get_value(&stager__smart_stage__descriptor,
                                             from->compute_device) == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "compute_device %d is not known to this release",
                       from->compute_device);
    if (from->num_clients == 0 && from->keep_warm)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "staged: num_clients: auto is known when the first client opens, "
                       "and keep_warm: true needs it before: write the number");
    spec->staged = (struct stg_staged){
        .structure = "",
        .capacity = from->capacity,
        .num_threads = from->num_threads,
        .num_clients = from->num_clients != 0 ? from->num_clients : 1,
        .num_clients_auto = from->num_clients == 0,
        .timeout_millis = from->timeout_millis,
        .delivery = (enum stg_delivery)from->delivery,
        .max_batch_bytes = from->max_batch_bytes,
        .memory_budget = from->memory_budget,
        .lease_timeout_millis = from->lease_timeout_millis,
        .start_timeout_millis = from->start_timeout_millis,
        .redeliver = from->redeliver != 0,
        .on_timeout = (enum stg_on_timeout)from->on_timeout,
        .max_ignored = from->max_ignored,
        .deterministic = from->deterministic != 0,
        .use_thread_pool = from->use_stage_subgraph_thread_pool != 0,
        .thread_pool_id = from->stage_subgraph_thread_pool_id,
        .stream_id = from->stage_subgraph_stream_id,
        .compute_device = (enum stg_smart_stage)from->compute_device,
        .reconnect_grace_millis = from->reconnect_grace_millis,
        .keep_warm = from->keep_warm != 0,
        .audit = (enum stg_audit_kind)from->audit,
    };
    int rc =
        codes_convert(from->closed_exception_types, STG_CODE_BIT(STAGER_OUT_OF_RANGE),
                      &spec->staged.closed_codes, err);
    if (rc == 0)
        rc = codes_convert(from->ignored_exception_types, 0, &spec->staged.ignored_codes,
                           err);
    if (rc == 0)
        rc = feeds_convert(from, &spec->bump, &spec->staged, err);
    if (rc == 0)
        rc = transfers_convert(from, &spec->bump, &spec->staged, err);
    if (rc == 0)
        rc = remote_convert(from->remote, &spec->staged.remote, err);
    if (rc < 0)
        return rc;
    if (from->features != NULL &&
        features_convert(from->features, &spec->bump, &spec->staged) < 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a pipeline");
    return 0;
}

/* ---- all of it ---- */

/* smart_stage_gpu stages the largest set: a partition that is written must not differ. */
static int smart_stage_convert(const Stager__Pipeline *message,
                               struct stg_pipeline_spec *spec, struct stg_err *err)
{
    static const char *const modes[] = {"off", "on", "auto"};
    if (protobuf_c_enum_descriptor_get_value(&stager__smart_stage__descriptor,
                                             message->smart_stage) == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "smart_stage %d is not known to this release",
                       message->smart_stage);
    spec->smart_stage = (enum stg_smart_stage)message->smart_stage;
    spec->smart_stage_is_default = !message->has_smart_stage;
    spec->smart_stage_gpu = message->smart_stage_gpu != 0;
    if (spec->smart_stage_is_default)
        spec->smart_stage = spec->smart_stage_gpu    ? STG_SMART_STAGE_ON
                            : message->n_targets > 0 ? STG_SMART_STAGE_AUTO
                                                     : STG_SMART_STAGE_OFF;
    if (!spec->smart_stage_gpu || spec->smart_stage == STG_SMART_STAGE_ON)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "smart_stage_gpu: on stages the largest set of nodes, and "
                   "smart_stage: %s another: leave smart_stage out",
                   modes[spec->smart_stage]);
}

int stg_convert_to_spec(const Stager__Pipeline *message, struct stg_pipeline_spec *spec,
                        struct stg_err *err)
{
    spec->name = message->name;
    spec->container = message->container;
    if (message->gpu != NULL) {
        spec->gpu.device = message->gpu->device;
        spec->gpu.memory_bytes = message->gpu->memory;
    }
    spec->targets = (const char *const *)message->targets;
    spec->n_targets = message->n_targets;
    spec->n_steps = message->n_dataset;
    int rc = smart_stage_convert(message, spec, err);
    if (rc == 0)
        rc = steps_convert(message->dataset, message->n_dataset, &spec->bump,
                           &spec->steps, err);
    if (rc == 0)
        rc = branches_convert(message, spec, err);
    if (rc == 0)
        rc = nodes_convert(message->graph, message->n_graph, &spec->bump, &spec->nodes,
                           err);
    spec->n_nodes = message->n_graph;
    if (rc == 0)
        rc = convert_staged(message, spec, err);
    return rc;
}

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
    to->has_lease_timeout_millis = to->has_start_timeout_millis = 1;
    to->lease_timeout_millis = from->lease_timeout_millis;
    to->start_timeout_millis = from->start_timeout_millis;
    to->has_stage_subgraph_stream_id = from->stream_id != 0;
    to->stage_subgraph_stream_id = from->stream_id;
    to->has_compute_device = from->compute_device != STG_SMART_STAGE_OFF;
    to->compute_device = (Stager__SmartStage)from->compute_device;
    if (from->n_transfers > 0) {
        to->transfer_dtypes = values_fill(from->transfers, from->n_transfers, bump);
        if (to->transfer_dtypes == NULL)
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
    to->has_smart_stage_gpu = to->smart_stage_gpu = spec->smart_stage_gpu;
    to->staged = staged_fill(&spec->staged, bump);
    return to->staged != NULL ? to : NULL;
}
