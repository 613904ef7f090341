/* SPDX-License-Identifier: Apache-2.0
 *
 * What the schema cannot say of a field: one row each.
 */
#include <stdio.h>
#include <string.h>

#include "core/spec.h"
#include "proto/load_read.h"

/* Ten years: more is a slip of the pen, and fits nanoseconds. */
#define MAX_MILLIS 315360000000ll

static const struct {
    const ProtobufCMessageDescriptor *type;
    const char *field;
    struct stg_read_range range;
} ranges[] = {
    {&stager__text_line__descriptor, "buffer_size", {1, 1ll << 30}},
    {&stager__text_line__descriptor, "max_record_bytes", {1, 1ll << 40}},
    {&stager__tf_record__descriptor, "buffer_size", {1, 1ll << 30}},
    {&stager__tf_record__descriptor, "max_record_bytes", {1, 1ll << 40}},
    {&stager__fixed_length_record__descriptor, "buffer_size", {1, 1ll << 30}},
    {&stager__fixed_length_record__descriptor, "max_record_bytes", {1, 1ll << 40}},
    {&stager__csv__descriptor, "buffer_size", {1, 1ll << 30}},
    {&stager__csv__descriptor, "max_record_bytes", {1, 1ll << 40}},
    {&stager__jsonl__descriptor, "buffer_size", {1, 1ll << 30}},
    {&stager__jsonl__descriptor, "max_record_bytes", {1, 1ll << 40}},
    {&stager__read_file__descriptor, "buffer_size", {1, 1ll << 30}},
    {&stager__read_file__descriptor, "max_record_bytes", {1, 1ll << 40}},
    {&stager__npy__descriptor, "buffer_size", {1, 1ll << 30}},
    {&stager__npy__descriptor, "max_record_bytes", {1, 1ll << 40}},
    {&stager__tar__descriptor, "buffer_size", {1, 1ll << 30}},
    {&stager__tar__descriptor, "max_record_bytes", {1, 1ll << 40}},
    {&stager__fixed_length_record__descriptor, "record_bytes", {1, 1ll << 40}},
    {&stager__fixed_length_record__descriptor, "header_bytes", {0, 1ll << 40}},
    {&stager__fixed_length_record__descriptor, "footer_bytes", {0, 1ll << 40}},
    {&stager__shuffle__descriptor, "buffer_size", {1, INT64_MAX}},
    {&stager__shuffle__descriptor, "block_size", {1, INT64_MAX}},
    {&stager__repeat__descriptor, "count", {-1, INT64_MAX}},
    {&stager__batch__descriptor, "batch_size", {1, INT32_MAX}},
    {&stager__map_and_batch__descriptor, "batch_size", {1, INT32_MAX}},
    {&stager__padded_batch__descriptor, "batch_size", {1, INT32_MAX}},
    {&stager__ragged_batch__descriptor, "batch_size", {1, INT32_MAX}},
    {&stager__bucket_by_sequence_length__descriptor,
     "bucket_batch_sizes",
     {1, INT32_MAX}},
    {&stager__map_and_batch__descriptor, "num_parallel_batches", {1, 256}},
    {&stager__take__descriptor, "count", {-1, INT64_MAX}},
    {&stager__skip__descriptor, "count", {-1, INT64_MAX}},
    {&stager__shard__descriptor, "num_shards", {1, INT32_MAX}},
    {&stager__shard__descriptor, "weights", {1, 1024}},
    {&stager__rebatch__descriptor, "batch_size", {1, INT32_MAX}},
    {&stager__prefetch__descriptor, "buffer_size", {1, INT32_MAX}},
    {&stager__shuffle_and_repeat__descriptor, "buffer_size", {1, INT64_MAX}},
    {&stager__shuffle_and_repeat__descriptor, "block_size", {1, INT64_MAX}},
    {&stager__shuffle_and_repeat__descriptor, "count", {-1, INT64_MAX}},
    {&stager__interleave__descriptor, "cycle_length", {1, 256}},
    {&stager__interleave__descriptor, "block_length", {1, INT64_MAX}},
    {&stager__interleave__descriptor, "num_parallel_calls", {-1, 256}},
    {&stager__interleave__descriptor, "buffer_output_elements", {1, INT32_MAX}},
    {&stager__interleave__descriptor, "prefetch_input_elements", {0, 1024}},
    {&stager__parallel_interleave__descriptor, "cycle_length", {1, 256}},
    {&stager__parallel_interleave__descriptor, "block_length", {1, INT64_MAX}},
    {&stager__parallel_interleave__descriptor, "buffer_output_elements", {1, INT32_MAX}},
    {&stager__parallel_interleave__descriptor, "prefetch_input_elements", {0, 1024}},
    {&stager__py_function__descriptor, "timeout_millis", {1, MAX_MILLIS}},
    {&stager__py_function__descriptor, "retries", {0, 100}},
    {&stager__py_function__descriptor, "max_output_bytes", {1, 1ll << 40}},
    {&stager__staged__descriptor, "capacity", {1, 65536}},
    {&stager__staged__descriptor, "num_threads", {1, 256}},
    {&stager__staged__descriptor, "num_clients", {1, STG_MAX_NUM_CLIENTS}},
    {&stager__staged__descriptor, "timeout_millis", {1, MAX_MILLIS}},
    {&stager__staged__descriptor, "lease_timeout_millis", {0, MAX_MILLIS}},
    {&stager__staged__descriptor, "start_timeout_millis", {1, MAX_MILLIS}},
    {&stager__staged__descriptor, "max_ignored", {0, 1ll << 60}},
    {&stager__staged__descriptor, "stage_subgraph_thread_pool_id", {0, 65535}},
    {&stager__staged__descriptor, "stage_subgraph_stream_id", {0, 65535}},
    {&stager__staged__descriptor, "reconnect_grace_millis", {0, MAX_MILLIS}},
    {&stager__stage_remote__descriptor, "max_requests", {1, 64}},
    {&stager__settings__descriptor, "max_clients", {1, 65536}},
    {&stager__cluster__descriptor, "compare_timeout_millis", {1, MAX_MILLIS}},
    {&stager__etcd__descriptor, "lease_seconds", {2, 3600}},
    {&stager__etcd__descriptor, "steady_millis", {100, 600000}},
    {&stager__etcd__descriptor, "rejoin_seconds", {1, 86400}},
    {&stager__quota__descriptor, "requests_per_second", {1, UINT32_MAX}},
    {&stager__quota__descriptor, "remote_bytes_per_second", {1, INT64_MAX}},
    {&stager__gpu__descriptor, "multi_stream_num", {1, 64}},
    {&stager__thread_pool__descriptor, "inter_op_threads_num", {1, 1024}},
    {&stager__thread_pool__descriptor, "intra_op_threads_num", {1, 1024}},
    {&stager__thread_pool__descriptor, "nice", {-20, 19}},
    {&stager__thread_pool__descriptor, "numa_node", {-1, 1023}},
};

struct stg_read_range stg_read_range_of(const ProtobufCFieldDescriptor *field,
                                        const ProtobufCMessageDescriptor *type)
{
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (ranges[i].type == type && strcmp(ranges[i].field, field->name) == 0)
            return ranges[i].range;
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: return (struct stg_read_range){0, UINT32_MAX};
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: return (struct stg_read_range){0, INT64_MAX};
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32: return (struct stg_read_range){INT32_MIN, INT32_MAX};
    default: return (struct stg_read_range){INT64_MIN, INT64_MAX};
    }
}

/* Numbers that may be found by measurement, or from the first client. */
static const struct {
    const ProtobufCMessageDescriptor *type;
    const char *field;
    int64_t stands_for;
} automatic[] = {
    {&stager__prefetch__descriptor, "buffer_size", 0},
    {&stager__interleave__descriptor, "num_parallel_calls", -1},
    {&stager__shard__descriptor, "num_shards", 0},
    {&stager__staged__descriptor, "capacity", 0},
    {&stager__staged__descriptor, "num_threads", 0},
    {&stager__staged__descriptor, "num_clients", 0},
};

bool stg_read_auto_of(const ProtobufCFieldDescriptor *field,
                      const ProtobufCMessageDescriptor *type, int64_t *ret)
{
    for (size_t i = 0; i < sizeof(automatic) / sizeof(automatic[0]); i++) {
        if (automatic[i].type != type || strcmp(automatic[i].field, field->name) != 0)
            continue;
        *ret = automatic[i].stands_for;
        return true;
    }
    return false;
}

#define WORD "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

static const struct {
    const ProtobufCMessageDescriptor *type;
    const char *field;
    const char *characters;
    size_t max_bytes;
    const char *why;
} strings[] = {
    {&stager__pipeline__descriptor, "name", WORD, 64,
     "not a valid name; use 1 to 64 letters, digits, '_', '.' or '-', the first not a "
     "'.'"},
    {&stager__pipeline__descriptor, "container", WORD, 64,
     "not a valid name; use 1 to 64 letters, digits, '_', '.' or '-'"},
    {&stager__branch__descriptor, "name", WORD, 64,
     "not a valid name; use 1 to 64 letters, digits, '_', '.' or '-'"},
    {&stager__node__descriptor, "name", WORD "/", 255,
     "not a valid name; use 1 to 255 letters, digits, '_', '.', '-' or '/'"},
    {&stager__enumerate__descriptor, "name", WORD, 64,
     "not a valid name; use 1 to 64 letters, digits, '_', '.' or '-'"},
    {&stager__thread_pool__descriptor, "global_name", WORD, 64,
     "not a valid name; use 1 to 64 letters, digits, '_', '.' or '-'"},
};

const char *stg_read_string_rule(const ProtobufCFieldDescriptor *field,
                                 const ProtobufCMessageDescriptor *type, const char *s)
{
    /* tf.data writes "" for no compression. */
    if (s[0] == '\0' && strcmp(field->name, "compression_type") != 0)
        return "an empty string; write one or leave it out";
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        if (strings[i].type != type || strcmp(strings[i].field, field->name) != 0)
            continue;
        size_t n = strlen(s);
        bool ok = n <= strings[i].max_bytes && strspn(s, strings[i].characters) == n &&
                  !(type == &stager__pipeline__descriptor && s[0] == '.');
        return ok ? NULL : strings[i].why;
    }
    return NULL;
}

/* What tf.data calls our steps. */
static const struct {
    const char *theirs, *ours;
} steps[] = {
    {"list_files", "files"},
    {"TextLineDataset", "text_line"},
    {"TFRecordDataset", "tfrecord"},
    {"FixedLengthRecordDataset", "fixed_length_record"},
    {"CsvDataset", "csv"},
    {"make_csv_dataset", "csv"},
    {"dense_to_ragged_batch", "ragged_batch"},
};

static const char *our_step(const char *theirs)
{
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (strcmp(steps[i].theirs, theirs) == 0)
            return steps[i].ours;
    }
    return NULL;
}

/* What DeepRec calls our keys, without "tf." and "tf.train." before them. */
static const struct {
    const char *theirs, *hint;
} deeprec[] = {
    {"staged", "is the mapping \"staged\" of a pipeline"},
    {"make_prefetch_hook",
     "is not needed: stagerd runs the stage, and trainers open it by its name"},
    {"mark_target_node",
     "is the key \"targets\" of a pipeline: a list of names of nodes"},
    {"target_nodes_or_tensors",
     "is the key \"targets\" of a pipeline: a list of names of nodes"},
    {"do_smart_stage",
     "is the key \"smart_stage\" of a pipeline: on, or auto, which measures"},
    {"do_smart_stage_gpu", "is the key \"smart_stage_gpu\" of a pipeline: on"},
    {"stage_subgraph_on_cpu",
     "is the key \"smart_stage_gpu\" of a pipeline: stagerd always computes on the CPU"},
    {"SmartStageOptions",
     "is the key \"smart_stage\" of a pipeline, and the options are keys of \"staged\""},
    {"session_stage_subgraph_thread_pool", "is \"thread_pools\" in stagerd.yaml"},
    {"use_multi_stream", "stands below \"gpu\" in stagerd.yaml"},
    {"multi_stream_num", "stands below \"gpu\" in stagerd.yaml"},
    {"stage_multi_stream", "stands below \"gpu\" in stagerd.yaml"},
    {"prefetch_join", "is \"interleave\" of the dataset here, or several branches"},
};

static const char *after(const char *s, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(s, prefix, n) == 0 ? s + n : s;
}

static const char *deeprec_hint(const char *key)
{
    const char *name = after(after(key, "tf."), "train.");
    for (size_t i = 0; i < sizeof(deeprec) / sizeof(deeprec[0]); i++) {
        if (strcmp(deeprec[i].theirs, name) == 0)
            return deeprec[i].hint;
    }
    return NULL;
}

static const char *place_of(const ProtobufCMessageDescriptor *type, const char *key)
{
    if (type == &stager__pipeline__descriptor) {
        if (stg_read_field(&stager__staged__descriptor, key) != NULL)
            return "belongs below \"staged:\"";
        if (stg_read_field(&stager__step__descriptor, key) != NULL)
            return "is a step: an entry \"- \" of the list below \"dataset:\"";
    }
    if (type == &stager__staged__descriptor &&
        stg_read_field(&stager__pipeline__descriptor, key) != NULL)
        return "belongs at the top of the file, beside \"staged:\"";
    return NULL;
}

bool stg_read_elsewhere(const ProtobufCMessageDescriptor *type, const char *key,
                        char *ret, size_t bytes)
{
    const char *place = place_of(type, key);
    const char *step = type == &stager__step__descriptor ? our_step(key) : NULL;
    const char *hint = place != NULL ? place : deeprec_hint(key);
    if (step == NULL && hint != NULL)
        snprintf(ret, bytes, "\"%s\" %s", key, hint);
    else if (step != NULL)
        snprintf(ret, bytes, "\"%s\" has the name \"%s\" here", key, step);
    return step != NULL || hint != NULL;
}
