/* SPDX-License-Identifier: Apache-2.0
 *
 * `staged` of a pipeline, out of its message.
 */
#include "proto/convert.h"

static int features_convert(const Stager__Features *from, struct stg_bump *bump,
                            struct stg_staged *ret)
{
    ret->features = stg_convert_leaves(from, bump);
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
                           "feed_dict \"%.64s\" (line %u): what a client sets has a "
                           "value, which holds until then",
                           feed->name, feed->line);
        int rc = feed->value != NULL
                     ? stg_convert_attribute(feed->value, bump, &values[i], err)
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
    if (from->transfer == NULL)
        return 0;
    const Stager__Values *values = from->transfer;
    struct stg_attr *attrs = stg_bump_alloc(bump, values->n_value * sizeof(*attrs));
    if (attrs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a pipeline");
    for (size_t i = 0; i < values->n_value; i++) {
        int rc = stg_convert_attribute(values->value[i], bump, &attrs[i], err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "transfer");
    }
    ret->transfers = attrs;
    ret->n_transfers = values->n_value;
    return 0;
}

int stg_convert_staged(const Stager__Pipeline *message, struct stg_pipeline_spec *spec,
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
    if (protobuf_c_enum_descriptor_get_value(&stager__smart_stage__descriptor,
                                             from->smart_stage_gpu) == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "smart_stage_gpu %d is not known to this release",
                       from->smart_stage_gpu);
    spec->staged = (struct stg_staged){
        .structure = "",
        .capacity = from->capacity,
        .num_threads = from->num_threads,
        .num_clients = from->num_clients,
        .timeout_millis = from->timeout_millis,
        .delivery = (enum stg_delivery)from->delivery,
        .max_batch_bytes = from->max_batch_bytes,
        .memory_budget = from->memory_budget,
        .hold_timeout_millis = from->hold_timeout_millis,
        .start_timeout_millis = from->start_timeout_millis,
        .redeliver = from->redeliver != 0,
        .on_timeout = (enum stg_on_timeout)from->on_timeout,
        .max_ignored = from->max_ignored,
        .deterministic = from->deterministic != 0,
        .use_thread_pool = from->use_stage_subgraph_thread_pool != 0,
        .thread_pool_id = from->stage_subgraph_thread_pool_id,
        .stream_id = from->stage_subgraph_stream_id,
        .smart_stage_gpu = (enum stg_smart_stage)from->smart_stage_gpu,
        .rejoin_millis = from->rejoin_millis,
        .keep_warm = from->keep_warm != 0,
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
    if (rc < 0)
        return rc;
    if (from->features != NULL &&
        features_convert(from->features, &spec->bump, &spec->staged) < 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for a pipeline");
    return 0;
}
