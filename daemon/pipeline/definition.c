/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/definition.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/dataset.h"
#include "daemon/dataset/step_lint.h"
#include "daemon/dataset/steps/division.h"
#include "daemon/dataset/steps/jump.h"
#include "daemon/dataset/steps/py_function.h"
#include "daemon/dataset/tuning.h"
#include "daemon/dataset/vocabulary.h"
#include "daemon/host/pool.h"
#include "daemon/host/share.h"
#include "daemon/pipeline/signature.h"
#include "ops/graph/composite.h"
#include "proto/load.h"
#include "proto/wire.h"

/* An open sends the client all of it in one message: a pipeline that could be applied
 * and never opened would be a trap. */
static int check_open_fits(const struct stg_definition *definition, struct stg_err *err)
{
    char longest[128];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    struct stg_reply reply = {
        .id = UINT64_MAX,
        .kind = STG_REQUEST_OPEN,
        .text = "",
        .name = longest,
        .client_id = longest,
        .generation = UINT64_MAX,
        .segment_bytes = UINT64_MAX,
        .batch_rows = UINT64_MAX,
        .unwatched = true,
        .max_in_flight = UINT32_MAX,
        .structure = definition->spec->staged.structure,
        .boundary = *stg_graph_boundary(definition->graph),
        .pipeline = definition->spec,
        .signature = definition->signature,
        .irreproducible = definition->irreproducible,
        .begins_pass = UINT64_MAX,
        .skip_rows = UINT64_MAX,
        .hosts = UINT32_MAX,
        .base = UINT64_MAX,
        .base_pass = UINT64_MAX,
    };
    char *buf = malloc(STG_MESSAGE_MAX_BYTES);
    if (buf == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    long bytes = stg_wire_encode_reply(&reply, buf, STG_MESSAGE_MAX_BYTES);
    free(buf);
    if (bytes >= 0)
        return 0;
    if (bytes != -STAGER_OUT_OF_RANGE)
        return stg_err(err, (int)bytes, "out of memory");
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "the pipeline and its %zu features exceed the %u KiB of the message "
                   "that a client receives on open: use fewer features, or shorter names",
                   reply.boundary.n, STG_MESSAGE_MAX_BYTES / 1024);
}

/* What no single field can be wrong about. */
static int check_staged(const struct stg_staged *staged, struct stg_err *err)
{
    if (staged->on_timeout == STG_ON_TIMEOUT_EVICT &&
        staged->delivery == STG_DELIVERY_SPLIT)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "staged.on_timeout: evict cannot be combined with delivery: "
                       "split, where no client delays another; use drop or wait, or "
                       "delivery: broadcast or round_robin");
    return 0;
}

/* What is in the files is part of what the pipeline is. */
static int load_vocabularies(struct stg_definition *definition, struct stg_err *err)
{
    const struct stg_identity *identity = &definition->applier;
    struct stg_vocabulary_reader reader = {.uid = identity->uid,
                                           .gid = identity->gid,
                                           .groups = identity->groups,
                                           .n_groups = identity->n_groups,
                                           .container = definition->container};
    int rc =
        stg_vocabularies_load(definition->graph, &reader, &definition->vocabularies, err);
    if (rc == 0)
        definition->spec->fingerprint ^= definition->vocabularies.fingerprint;
    return rc;
}

static int join_container(struct stg_definition *definition,
                          struct stg_containers *containers, struct stg_err *err)
{
    const char *name = definition->spec->container;
    if (containers == NULL || name == NULL)
        return 0;
    return stg_container_join(containers, name, &definition->container, err);
}

static int expand_composites(struct stg_pipeline_spec *spec,
                             const struct stg_schema *element, struct stg_err *err)
{
    int rc = stg_composite_staged(element, spec->nodes, spec->n_nodes, &spec->bump,
                                  &spec->staged);
    return rc < 0 ? stg_err(err, rc, "out of memory") : 0;
}

/* Can a trainer of this build have them? */
static int check_targets(const struct stg_definition *definition, struct stg_err *err)
{
    struct stg_partition_needs *needs = NULL;
    int rc = stg_partition_needs_create(definition->partitions,
                                        &(struct stg_partition_wanted){0}, &needs, err);
    stg_partition_needs_destroy(needs);
    if (rc != -STAGER_FAILED_PRECONDITION)
        return rc;
    err->code = -STAGER_INVALID_ARGUMENT;
    return stg_err_prefix(err, err->code, "targets");
}

/* What a state of a stream says of the pipeline. The columns that are read count: rows
 * whose nulls are errors, and the order of a global shuffle, depend on them. */
static int sign(struct stg_definition *definition, struct stg_err *err)
{
    char buf[256];
    const struct stg_pipeline_spec *spec = definition->spec;
    stg_signature_write(&definition->projection.spec,
                        definition->vocabularies.fingerprint, definition->signature);
    definition->content = stg_signature_content(&definition->projection.spec,
                                                definition->vocabularies.fingerprint);
    const char *reason = stg_signature_irreproducible(spec, buf, sizeof(buf));
    if (reason == NULL)
        return 0;
    definition->irreproducible = stg_bump_strdup(&definition->bump, reason);
    return definition->irreproducible != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

/* The hosts are known when the first client opens. */
static int check_division(const struct stg_pipeline_spec *spec, struct stg_err *err)
{
    int rc = stg_division_check(spec, err);
    if (rc == 0 && spec->staged.keep_warm && stg_division_find(spec) != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "staged: keep_warm: true needs the hosts of `shard: auto` before "
                       "the first client names them: leave keep_warm out");
    return rc;
}

/* A worker finds any batch by its number alone. */
static int check_remote(const struct stg_definition *definition, struct stg_err *err)
{
    const struct stg_remote_workers *remote = &definition->spec->staged.remote;
    if (remote->mode == STG_SMART_STAGE_OFF)
        return 0;
    int rc = stg_remote_check(remote, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "staged");
    if (definition->irreproducible != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "staged.remote needs a pipeline whose batches depend on their "
                       "place alone: %s",
                       definition->irreproducible);
    rc = stg_jump_check(definition->spec, err);
    return rc < 0 ? stg_err_prefix(err, rc,
                                   "staged.remote needs steps that find any batch by its "
                                   "number")
                  : 0;
}

static int build(struct stg_definition *definition, const char *text, size_t text_bytes,
                 const char *file, struct stg_containers *containers, struct stg_err *err)
{
    definition->text = stg_bump_strndup(&definition->bump, text, text_bytes);
    definition->text_bytes = text_bytes;
    definition->file = stg_bump_strdup(&definition->bump, file);
    if (definition->text == NULL || definition->file == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", file);
    int rc = stg_load_pipeline(text, text_bytes, file, &definition->spec, err);
    if (rc < 0)
        return rc;
    rc = check_staged(&definition->spec->staged, err);
    if (rc == 0)
        rc = join_container(definition, containers, err);
    if (rc == 0)
        rc = stg_dataset_infer(definition->spec, &definition->bump, &definition->element,
                               err);
    if (rc == 0)
        rc = check_division(definition->spec, err);
    if (rc == 0)
        rc = expand_composites(definition->spec, &definition->element, err);
    if (rc == 0)
        rc = stg_projection_init(definition->spec, &definition->element,
                                 &definition->bump, &definition->projection, err);
    if (rc == 0)
        rc = stg_graph_create(definition->spec, &definition->element, NULL,
                              &definition->graph, err);
    if (rc == 0)
        rc = stg_partitions_create(definition->graph, &definition->partitions, err);
    if (rc == 0)
        rc = check_targets(definition, err);
    if (rc == 0)
        rc = load_vocabularies(definition, err);
    if (rc == 0)
        rc = sign(definition, err);
    if (rc == 0)
        rc = check_remote(definition, err);
    if (rc == 0)
        rc = check_open_fits(definition, err);
    if (rc == 0)
        stg_sizes_find(definition->spec, definition->graph, definition->partitions,
                       &definition->sizes);
    return rc < 0 ? stg_err_prefix(err, rc, "%s", file) : 0;
}

int stg_definition_create(const char *text, size_t text_bytes, const char *file,
                          const struct stg_identity *applier,
                          struct stg_containers *containers, struct stg_definition **ret,
                          struct stg_err *err)
{
    struct stg_definition *definition = calloc(1, sizeof(*definition));
    if (definition == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", file);
    definition->refs = 1;
    definition->applier = *applier;
    stg_bump_init(&definition->bump, 0);
    stg_trace_init(&definition->trace);
    stg_tap_init(&definition->tap);
    definition->tuning = stg_tuning_create();
    definition->share =
        stg_share_get(applier->uid, applier->gid, applier->groups, applier->n_groups);
    int rc = definition->tuning != NULL && definition->share != NULL
                 ? build(definition, text, text_bytes, file, containers, err)
                 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", file);
    if (rc < 0) {
        stg_definition_unref(definition);
        return rc;
    }
    *ret = definition;
    return 0;
}

struct stg_definition *stg_definition_ref(struct stg_definition *definition)
{
    definition->refs++;
    return definition;
}

void stg_definition_unref(struct stg_definition *definition)
{
    if (definition == NULL || --definition->refs > 0)
        return;
    stg_partitions_destroy(definition->partitions);
    stg_trace_finish(&definition->trace);
    stg_tap_finish(&definition->tap);
    stg_tuning_destroy(definition->tuning);
    stg_graph_destroy(definition->graph);
    stg_vocabularies_finish(&definition->vocabularies);
    stg_container_leave(definition->container);
    stg_pipeline_spec_destroy(definition->spec);
    stg_bump_finish(&definition->bump);
    stg_share_put(definition->share);
    free(definition);
}

static int check_gpu(const struct stg_pipeline_spec *spec, struct stg_err *err)
{
    int number;
    int rc =
        spec->gpu.device != NULL ? stg_device_number(spec->gpu.device, &number, err) : 0;
    return rc < 0 ? stg_err_prefix(err, rc, "gpu") : 0;
}

/* Stream 0 is the trainer's own; the others are there when the settings say so. */
static int check_stream(uint32_t id, const struct stg_gpu_settings *gpu,
                        struct stg_err *err)
{
    bool many = gpu->use_multi_stream && gpu->stage_multi_stream;
    uint32_t n = many ? gpu->multi_stream_num : 1;
    if (id == 0 || id < n)
        return 0;
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT,
        "stage_subgraph_stream_id %u is out of range [0, %u): %s", id, n,
        many ? "gpu.multi_stream_num in stagerd.yaml sets the number of streams"
             : "only the trainer's stream exists without gpu: {use_multi_stream: true, "
               "stage_multi_stream: true, multi_stream_num: N} in stagerd.yaml");
}

int stg_definition_check_settings(const struct stg_definition *definition,
                                  const struct stg_settings *settings,
                                  struct stg_err *err)
{
    const struct stg_staged *staged = &definition->spec->staged;
    int rc = check_gpu(definition->spec, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", definition->file);
    if (staged->use_thread_pool)
        rc = stg_pool_check_id(staged->thread_pool_id, settings->thread_pools,
                               settings->n_thread_pools, err);
    if (rc == 0)
        rc = check_stream(staged->stream_id, &settings->gpu, err);
    return rc < 0 ? stg_err_prefix(err, rc, "%s: staged", definition->file) : 0;
}

static bool makes_batches(const struct stg_step *step)
{
    return stg_attr_find(step->attrs, step->n_attrs, "batch_size") != NULL ||
           stg_attr_find(step->attrs, step->n_attrs, "bucket_batch_sizes") != NULL;
}

/* Its order depends on timing. */
static bool is_timed(const struct stg_step *step)
{
    return !stg_attr_bool(step->attrs, step->n_attrs, "deterministic", true) ||
           stg_attr_bool(step->attrs, step->n_attrs, "sloppy", false);
}

/* Is any step of the pipeline so, in a branch or not? */
static bool any_step(const struct stg_pipeline_spec *spec,
                     bool (*is)(const struct stg_step *step))
{
    bool found = false;
    for (size_t i = 0; i < spec->n_steps; i++)
        found |= is(&spec->steps[i]);
    for (size_t i = 0; i < spec->n_branches; i++) {
        for (size_t k = 0; k < spec->branches[i].n_steps; k++)
            found |= is(&spec->branches[i].steps[k]);
    }
    return found;
}

/* 0, 0.0 or "" in record_defaults stands for a dtype. */
static const char *word_for_dtype(const struct stg_node *nodes, size_t n)
{
    static const char *const words[] = {"int",     "int32",  "int64", "float", "float32",
                                        "float64", "string", "str",   "none",  "None"};
    for (size_t i = 0; i < n; i++) {
        const struct stg_attr *defaults =
            strcmp(nodes[i].op, "decode_csv") == 0
                ? stg_attr_find(nodes[i].attrs, nodes[i].n_attrs, "record_defaults")
                : NULL;
        for (size_t k = 0; defaults != NULL && k < defaults->n_values; k++) {
            const struct stg_value *value = &defaults->values[k];
            for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
                if (value->kind == STG_VALUE_STRING && strcmp(value->s, words[w]) == 0)
                    return words[w];
            }
        }
    }
    return NULL;
}

static const char *any_word_for_dtype(const struct stg_pipeline_spec *spec)
{
    const char *word = word_for_dtype(spec->nodes, spec->n_nodes);
    for (size_t i = 0; i < spec->n_steps && word == NULL; i++)
        word = word_for_dtype(spec->steps[i].nodes, spec->steps[i].n_nodes);
    return word;
}

/* ---- advice ---- */

struct advice {
    const struct stg_definition *definition;
    struct stg_bump *bump;
    const char **lines;
    size_t n, most;
};

static void advise(struct advice *advice, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void advise(struct advice *advice, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (advice->n < advice->most)
        advice->lines[advice->n] = stg_bump_strdup(advice->bump, text);
    advice->n += advice->n < advice->most && advice->lines[advice->n] != NULL;
}

static void advise_on_order(struct advice *advice)
{
    const struct stg_pipeline_spec *spec = advice->definition->spec;
    const struct stg_staged *staged = &spec->staged;
    if (!any_step(spec, makes_batches))
        advise(advice,
               "no `batch` step: every record is an item, which costs a hand-off each; "
               "add `- batch: {batch_size: …}`");
    if (staged->on_timeout == STG_ON_TIMEOUT_DROP)
        advise(advice,
               "on_timeout: drop: a batch that finds no room for timeout_millis %" PRIu64
               " is dropped (and counted), so that what trainers get may depend on "
               "timing; on_timeout: wait drops none",
               staged->timeout_millis);
    if (!staged->deterministic)
        advise(advice, "deterministic: false: items come in the order in which they are "
                       "finished, which differs from run to run");
    if (any_step(spec, is_timed))
        advise(advice,
               "a dataset step with deterministic: false or sloppy: true: elements come "
               "in the order in which they are ready, which differs from run to run");
}

static void advise_on_stream(struct advice *advice, const struct stg_pipeline_spec *spec)
{
    const struct stg_staged *staged = &spec->staged;
    if (staged->stream_id != 0 && spec->gpu.device != NULL &&
        staged->compute_device == STG_SMART_STAGE_OFF)
        advise(advice,
               "stage_subgraph_stream_id %u has no effect: with gpu, trainers on %s copy "
               "no batches, and compute_device is off",
               staged->stream_id, spec->gpu.device);
    else if (staged->stream_id != 0)
        advise(advice,
               "stage_subgraph_stream_id %u is the stream of a GPU on which a trainer "
               "copies its batches: it has no effect for trainers that open the pipeline "
               "without a device, nor on stagerd, which computes on the CPU",
               staged->stream_id);
}

/* Keys that have no effect. */
static void advise_on_keys(struct advice *advice)
{
    const struct stg_definition *definition = advice->definition;
    const struct stg_staged *staged = &definition->spec->staged;
    uint32_t never = STG_CODE_BIT(STAGER_CANCELLED);
    if (((staged->closed_codes | staged->ignored_codes) & never) != 0)
        advise(advice, "CANCELLED in closed_exception_types or ignored_exception_types "
                       "has no effect: it always ends the pipeline with CANCELLED");
    if (!staged->use_thread_pool && staged->thread_pool_id != 0)
        advise(advice, "stage_subgraph_thread_pool_id has no effect without "
                       "use_stage_subgraph_thread_pool: true");
    advise_on_stream(advice, definition->spec);
    if ((staged->closed_codes & staged->ignored_codes) != 0)
        advise(advice, "a code in closed_exception_types and in ignored_exception_types "
                       "is a closed one");
    for (size_t i = 0; i < stg_graph_n_feeds(definition->graph) && advice->n < 10; i++) {
        if (!stg_graph_feed_needed(definition->graph, i))
            advise(advice, "feed_dict \"%s\": no feature depends on it; it has no effect",
                   staged->feeds[i].name);
    }
}

static void advise_on_steps(struct advice *advice)
{
    const struct stg_pipeline_spec *spec = advice->definition->spec;
    const char *word = any_word_for_dtype(spec);
    const struct stg_step *function = stg_py_function_find(spec);
    if (word != NULL)
        advise(advice,
               "record_defaults has the string \"%s\", and so a column of strings whose "
               "missing values are \"%s\": write 0 for int32, 0.0 for float32, \"\" for "
               "string, null for a field that must be there",
               word, word);
    if (function != NULL)
        advise(advice,
               "py_function: %s runs in worker processes: `stager.open` in Python starts "
               "them; for other trainers run `stager worker` with the pipeline's name",
               stg_attr_string(function->attrs, function->n_attrs, "function", ""));
}

static void advise_on_size(struct advice *advice)
{
    const struct stg_definition *definition = advice->definition;
    const struct stg_pipeline_spec *spec = definition->spec;
    if (spec->staged.max_batch_bytes == 0 && definition->sizes.batch_bytes == 0)
        advise(advice,
               "the size of a batch is not known beforehand (strings, or shapes that "
               "vary): max_batch_bytes is the batches' part of the pipeline's memory "
               "over the number of extents; set staged.max_batch_bytes to choose");
    if ((spec->smart_stage_gpu ||
         (spec->smart_stage != STG_SMART_STAGE_OFF && !spec->smart_stage_is_default)) &&
        !stg_partitions_may_move(definition->partitions))
        advise(advice,
               "%s has no effect: the targets depend on no node that may run "
               "before the boundary",
               spec->smart_stage_gpu ? "smart_stage_gpu" : "smart_stage");
}

/* Lists up to twelve names, and the number of the others. */
static void list_moved(const struct stg_partitions *partitions, const bool *moved,
                       char *buf, size_t bytes, size_t *ret_n)
{
    size_t n_nodes = stg_partitions_n_nodes(partitions), at = 0, n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < n_nodes; i++) {
        if (!moved[i] || n++ >= 12)
            continue;
        int wrote = snprintf(buf + at, bytes - at, "%s%.40s", n > 1 ? ", " : "",
                             stg_partitions_node(partitions, i));
        at = wrote > 0 && at + (size_t)wrote < bytes ? at + (size_t)wrote : bytes - 1;
    }
    if (n > 12)
        snprintf(buf + at, bytes - at, " and %zu more", n - 12);
    *ret_n = n;
}

/* What may move for a trainer that fetches the targets. */
static void advise_on_partition(struct advice *advice)
{
    const struct stg_definition *definition = advice->definition;
    const struct stg_partitions *partitions = definition->partitions;
    enum stg_smart_stage mode = definition->spec->smart_stage;
    struct stg_partition_needs *needs = NULL;
    char names[640];
    size_t n = 0;
    bool *moved = calloc(stg_partitions_n_nodes(partitions) + 1, sizeof(*moved));
    if (moved != NULL && mode != STG_SMART_STAGE_OFF &&
        stg_partition_needs_create(partitions, &(struct stg_partition_wanted){0}, &needs,
                                   NULL) == 0) {
        const struct stg_partition_needs *all = needs;
        stg_partitions_largest(partitions, &all, 1, moved);
        list_moved(partitions, moved, names, sizeof(names), &n);
    }
    if (n > 0)
        advise(advice, "smart_stage: %s %zu node%s of the trainers' graph%s: %s",
               mode == STG_SMART_STAGE_ON ? "stagerd runs" : "stagerd may take over", n,
               n == 1 ? "" : "s",
               mode == STG_SMART_STAGE_ON ? "" : ", where measurements show a gain",
               names);
    stg_partition_needs_destroy(needs);
    free(moved);
}

size_t stg_definition_advice(const struct stg_definition *definition,
                             struct stg_bump *bump, const char **ret, size_t n)
{
    struct advice advice = {
        .definition = definition, .bump = bump, .lines = ret, .most = n};
    advise_on_order(&advice);
    advise_on_keys(&advice);
    advise_on_steps(&advice);
    advise_on_size(&advice);
    advise_on_partition(&advice);
    return advice.n + stg_step_lint(definition->spec, bump, ret + advice.n, n - advice.n);
}

/* ---- what follows from it ---- */

/* The size that all batches of the step have, or 0. */
static uint64_t batch_size(const struct stg_step *step)
{
    const struct stg_attr *sizes =
        stg_attr_find(step->attrs, step->n_attrs, "batch_size");
    for (size_t i = 1; sizes != NULL && i < sizes->n_values; i++) {
        if (sizes->values[i].i != sizes->values[0].i)
            return 0;
    }
    return sizes != NULL && sizes->n_values > 0 ? (uint64_t)sizes->values[0].i : 0;
}

/* The branch that stands for all inputs of a list's first step, or NULL. */
static const struct stg_branch *first_branch(const struct stg_pipeline_spec *spec,
                                             const struct stg_step *step)
{
    const struct stg_attr *from = stg_attr_find(step->attrs, step->n_attrs, "from");
    for (size_t i = 0; from != NULL && i < spec->n_branches; i++) {
        if (strcmp(spec->branches[i].name, from->values[0].s) == 0)
            return &spec->branches[i];
    }
    return NULL;
}

uint64_t stg_definition_batch_rows(const struct stg_definition *definition)
{
    const struct stg_pipeline_spec *spec = definition->spec;
    const struct stg_step *steps = spec->steps;
    size_t n = spec->n_steps;
    unsigned undone = 0; /* batches that an unbatch after them takes apart */
    while (n > 0) {
        const struct stg_step *step = &steps[--n];
        bool is_batch = makes_batches(step) && strcmp(step->name, "rebatch") != 0;
        if (undone == 0 && (is_batch || strcmp(step->name, "rebatch") == 0))
            return batch_size(step);
        undone += strcmp(step->name, "unbatch") == 0;
        undone -= is_batch;
        const struct stg_branch *branch = n == 0 ? first_branch(spec, step) : NULL;
        if (branch != NULL) {
            steps = branch->steps;
            n = branch->n_steps;
        }
    }
    return 1;
}

uint32_t stg_definition_num_clients(const struct stg_definition *definition,
                                    uint32_t world_size)
{
    const struct stg_staged *staged = &definition->spec->staged;
    if (!staged->num_clients_auto)
        return staged->num_clients;
    return world_size != 0 ? world_size : 1;
}

int stg_definition_begin_run(struct stg_definition *definition, uint32_t world_size,
                             struct stg_err *err)
{
    uint32_t n = stg_definition_num_clients(definition, world_size);
    if (n > STG_MAX_NUM_CLIENTS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "world_size %u: a pipeline has at most %d clients", n,
                       STG_MAX_NUM_CLIENTS);
    definition->spec->staged.num_clients = n;
    return 0;
}

struct stg_plan_asked stg_definition_asked(const struct stg_definition *definition,
                                           uint32_t num_clients, uint32_t max_in_flight,
                                           uint64_t default_bytes)
{
    return (struct stg_plan_asked){.staged = &definition->spec->staged,
                                   .for_device = definition->spec->gpu.device != NULL,
                                   .sizes = definition->sizes,
                                   .num_clients = num_clients,
                                   .max_in_flight = max_in_flight,
                                   .default_bytes = default_bytes};
}

struct stg_schema stg_definition_slots(const struct stg_definition *definition)
{
    const struct stg_schema *all = stg_partitions_slots(definition->partitions);
    size_t n = stg_graph_boundary(definition->graph)->n;
    if (definition->spec->smart_stage == STG_SMART_STAGE_OFF)
        return (struct stg_schema){0};
    return (struct stg_schema){.components = all->components + n, .n = all->n - n};
}
