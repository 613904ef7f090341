/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/load.h"

#include <stdlib.h>
#include <string.h>

#include "proto/convert.h"
#include "proto/load_read.h"

/* What one text may take while it is read: a tree and two messages. */
#define LOAD_MAX_BYTES (64u << 20)

/* ---- checks over the whole pipeline ---- */

static int by_node_name(const void *a, const void *b)
{
    const Stager__Node *x = *(Stager__Node *const *)a, *y = *(Stager__Node *const *)b;
    int order = strcmp(x->name, y->name);
    if (order != 0)
        return order;
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

static int names_check(struct stg_reader *r, const Stager__Pipeline *p)
{
    Stager__Node **nodes = stg_bump_alloc(r->bump, p->n_graph * sizeof(Stager__Node *));
    if (nodes == NULL)
        return stg_read_fail_memory(r);
    for (size_t i = 0; i < p->n_graph; i++)
        nodes[i] = p->graph[i];
    qsort(nodes, p->n_graph, sizeof(Stager__Node *), by_node_name);
    for (size_t i = 1; i < p->n_graph; i++) {
        if (strcmp(nodes[i - 1]->name, nodes[i]->name) != 0)
            continue;
        stg_read_push(r, "graph");
        return stg_read_fail(
            r, (int)nodes[i]->line, (int)nodes[i]->column,
            "two nodes have the name \"%s\" (the other at line %u); rename one",
            nodes[i]->name, nodes[i - 1]->line);
    }
    return 0;
}

static int pipeline_check(struct stg_reader *r, const struct stg_text_node *root,
                          const Stager__Pipeline *p)
{
    if (p->n_dataset == 0) {
        stg_read_push(r, "dataset");
        return stg_read_fail(r, root->line, root->column,
                             "missing; add a list of steps that begins with "
                             "\"- files: {pattern: [...]}\"");
    }
    return names_check(r, p);
}

/* The name comes from the user that applies, and goes to logs. */
static const char *file_shown(const char *file, char *buf, size_t bytes)
{
    if (file == NULL || *file == '\0')
        return "text";
    return stg_text_printable(file, strlen(file), buf, bytes);
}

/* ---- text -> message -> bytes -> spec ---- */

static int pipeline_read(struct stg_reader *r, const struct stg_text_node *root,
                         Stager__Pipeline **ret)
{
    ProtobufCMessage *message;
    r->n_inputs = 0;
    int rc = stg_read_message(r, root, &stager__pipeline__descriptor, &message);
    if (rc < 0)
        return rc;
    *ret = (Stager__Pipeline *)message;
    return r->canonical ? 0 : pipeline_check(r, root, *ret);
}

static uint8_t *message_pack(struct stg_reader *r, const ProtobufCMessage *message,
                             size_t *ret_bytes)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *ret = stg_bump_alloc_raw(r->bump, n);
    if (ret != NULL)
        *ret_bytes = protobuf_c_message_pack(message, ret);
    return ret;
}

/* FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/), then a mix of the high bits. */
static uint64_t hash_bytes(const uint8_t *s, size_t n)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < n; i++)
        h = (h ^ s[i]) * 0x100000001b3ull;
    h ^= h >> 32;
    return h * 0x9e3779b97f4a7c15ull;
}

/* Of the message that the same text gives with its keys sorted, without places and name.
 */
static int fingerprint(struct stg_reader *r, struct stg_text_node *root, uint64_t *ret)
{
    Stager__Pipeline *message;
    if (stg_text_sort(root, r->bump) < 0)
        return stg_read_fail_memory(r);
    r->canonical = true;
    int rc = pipeline_read(r, root, &message);
    if (rc < 0)
        return rc;
    message->name = NULL;
    size_t n;
    const uint8_t *bytes = message_pack(r, &message->base, &n);
    if (bytes == NULL)
        return stg_read_fail_memory(r);
    *ret = hash_bytes(bytes, n);
    return 0;
}

/* Through the bytes that a client will see: what cannot be sent is refused here, and
 * daemon and client have the same spec. */
static int spec_fill(struct stg_reader *r, const Stager__Pipeline *message,
                     struct stg_pipeline_spec *spec)
{
    size_t n;
    const uint8_t *bytes = message_pack(r, &message->base, &n);
    if (bytes == NULL)
        return stg_read_fail_memory(r);
    struct stg_unpack unpack;
    stg_unpack_init(&unpack, &spec->bump, STG_PIPELINE_UNPACK_MAX_BYTES);
    Stager__Pipeline *copy = stager__pipeline__unpack(&unpack.allocator, n, bytes);
    if (copy == NULL && unpack.exhausted)
        return stg_read_fail_memory(r);
    if (copy == NULL || n > STG_PIPELINE_MAX_BYTES)
        return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                       "%s: the pipeline has too many values to fit a message (%zu bytes "
                       "packed); shorten its lists",
                       r->file, n);
    int rc = stg_convert_to_spec(copy, spec, r->err);
    return rc < 0 ? stg_err_prefix(r->err, rc, "%s", r->file) : 0;
}

static int spec_read(struct stg_reader *r, const char *text, size_t bytes,
                     struct stg_pipeline_spec *spec)
{
    struct stg_text_node *root = NULL;
    int rc = stg_text_parse(text, bytes, r->file, r->bump, &root, r->err);
    if (rc < 0)
        return rc;
    if (root == NULL || stg_text_is_null(root))
        return stg_read_fail(r, 1, 1,
                             "the text is empty; a pipeline has at least "
                             "\"dataset:\"");
    Stager__Pipeline *message;
    rc = pipeline_read(r, root, &message);
    if (rc == 0)
        rc = spec_fill(r, message, spec);
    if (rc == 0)
        rc = fingerprint(r, root, &spec->fingerprint);
    return rc;
}

int stg_load_pipeline(const char *text, size_t bytes, const char *file,
                      struct stg_pipeline_spec **ret, struct stg_err *err)
{
    struct stg_bump bump;
    stg_bump_init(&bump, LOAD_MAX_BYTES);
    char shown[256];
    struct stg_reader r = {
        .file = file_shown(file, shown, sizeof(shown)), .bump = &bump, .err = err};
    struct stg_pipeline_spec *spec = calloc(1, sizeof(*spec));
    if (spec == NULL)
        return stg_read_fail_memory(&r);
    stg_bump_init(&spec->bump, LOAD_MAX_BYTES);
    int rc = spec_read(&r, text, bytes, spec);
    stg_bump_finish(&bump);
    if (rc < 0) {
        stg_pipeline_spec_destroy(spec);
        return rc;
    }
    *ret = spec;
    return 0;
}

/* ---- settings ---- */

/* What is out of range is made to fit: it is a matter of speed alone. */
static uint64_t between(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static const char *or_nothing(const char *text)
{
    return text != NULL ? text : "";
}

static int stores_fill(struct stg_reader *r, const Stager__Remote *from,
                       struct stg_remote_settings *ret)
{
    struct stg_remote_store_spec *stores =
        stg_bump_alloc(r->bump, from->n_stores * sizeof(*stores));
    if (stores == NULL)
        return stg_read_fail_memory(r);
    for (size_t i = 0; i < from->n_stores; i++) {
        const Stager__RemoteStore *store = from->stores[i];
        stores[i] = (struct stg_remote_store_spec){
            .prefix = store->prefix,
            .endpoint = or_nothing(store->endpoint),
            .region = or_nothing(store->region),
            .credentials_file = or_nothing(store->credentials_file),
            .profile = or_nothing(store->profile),
            .users = (const char *const *)store->users,
            .groups = (const char *const *)store->groups,
            .n_users = store->n_users,
            .n_groups = store->n_groups};
    }
    ret->stores = stores;
    ret->n_stores = from->n_stores;
    return 0;
}

static int remote_fill(struct stg_reader *r, const Stager__Remote *from,
                       struct stg_remote_settings *ret)
{
    Stager__Remote defaults = STAGER__REMOTE__INIT;
    if (from == NULL)
        from = &defaults;
    *ret = (struct stg_remote_settings){
        .read_ahead_bytes = from->read_ahead,
        .range_bytes = between(from->range_size, 64 << 10, 1 << 30),
        .ranges_per_file = (uint32_t)between(from->ranges_per_file, 1, 16),
        .connect_timeout_millis =
            (uint32_t)between(from->connect_timeout_millis, 1, 3600000),
        .stall_timeout_millis =
            (uint32_t)between(from->stall_timeout_millis, 1000, 3600000),
        .retries = (uint32_t)between(from->retries, 0, 1000),
        .cache_dir = or_nothing(from->cache_dir),
        .cache_bytes = from->cache_size};
    return stores_fill(r, from, ret);
}

static struct stg_gpu_settings gpu_of(const Stager__Gpu *from)
{
    Stager__Gpu defaults = STAGER__GPU__INIT;
    if (from == NULL)
        from = &defaults;
    return (struct stg_gpu_settings){.use_multi_stream = from->use_multi_stream,
                                     .multi_stream_num = from->multi_stream_num,
                                     .stage_multi_stream = from->stage_multi_stream};
}

static struct stg_etcd_spec etcd_of(const Stager__Etcd *from)
{
    Stager__Etcd defaults = STAGER__ETCD__INIT;
    if (from == NULL)
        from = &defaults;
    return (struct stg_etcd_spec){.endpoints = (const char **)from->endpoints,
                                  .n_endpoints = from->n_endpoints,
                                  .prefix = from->prefix,
                                  .lease_seconds = from->lease_seconds,
                                  .steady_millis = from->steady_millis,
                                  .rejoin_seconds = from->rejoin_seconds,
                                  .user = or_nothing(from->user),
                                  .password_file = or_nothing(from->password_file),
                                  .ca_file = or_nothing(from->ca_file),
                                  .cert_file = or_nothing(from->cert_file),
                                  .key_file = or_nothing(from->key_file)};
}

static struct stg_cluster_settings cluster_of(const Stager__Cluster *from)
{
    Stager__Cluster defaults = STAGER__CLUSTER__INIT;
    if (from == NULL)
        from = &defaults;
    return (struct stg_cluster_settings){.compare_dir = or_nothing(from->compare_dir),
                                         .compare_timeout_millis =
                                             from->compare_timeout_millis,
                                         .etcd = etcd_of(from->etcd)};
}

static uint64_t limit_of(protobuf_c_boolean is_set, uint64_t limit)
{
    return is_set ? limit : STG_NO_QUOTA;
}

static int quota_fill(struct stg_reader *r, const Stager__Quota *from,
                      struct stg_quota_spec *ret)
{
    if ((from->user != NULL) == (from->group != NULL))
        return stg_read_fail(r, (int)from->line, (int)from->column,
                             "quotas: an entry needs user or group, and not both");
    if (from->has_weight && (from->weight < 1 || from->weight > STG_MAX_WEIGHT))
        return stg_read_fail(r, (int)from->line, (int)from->column,
                             "quotas: weight is %u: it must be from 1 to %d",
                             from->weight, STG_MAX_WEIGHT);
    *ret = (struct stg_quota_spec){
        .weight = from->weight,
        .user = from->user,
        .group = from->group,
        .limit = {[STG_QUOTA_MEMORY] = limit_of(from->has_memory, from->memory),
                  [STG_QUOTA_DISK] = limit_of(from->has_disk, from->disk),
                  [STG_QUOTA_PIPELINES] = limit_of(from->has_pipelines, from->pipelines),
                  [STG_QUOTA_CLIENTS] = limit_of(from->has_clients, from->clients),
                  [STG_QUOTA_RUNNERS] = limit_of(from->has_runners, from->runners),
                  [STG_QUOTA_REQUESTS] =
                      limit_of(from->has_requests_per_second, from->requests_per_second),
                  [STG_QUOTA_REMOTE] = limit_of(from->has_remote_bytes_per_second,
                                                from->remote_bytes_per_second)}};
    return 0;
}

static int quotas_fill(struct stg_reader *r, const Stager__Settings *from,
                       const struct stg_quota_spec **ret)
{
    struct stg_quota_spec *quotas =
        stg_bump_alloc(r->bump, from->n_quotas * sizeof(*quotas));
    if (quotas == NULL)
        return stg_read_fail_memory(r);
    for (size_t i = 0; i < from->n_quotas; i++) {
        int rc = quota_fill(r, from->quotas[i], &quotas[i]);
        if (rc < 0)
            return rc;
    }
    *ret = quotas;
    return 0;
}

static struct stg_rule_spec rule_of(const Stager__Rule *from)
{
    if (from == NULL)
        return (struct stg_rule_spec){0};
    return (struct stg_rule_spec){.is_set = true,
                                  .users = (const char *const *)from->users,
                                  .groups = (const char *const *)from->groups,
                                  .n_users = from->n_users,
                                  .n_groups = from->n_groups};
}

static void rules_fill(const Stager__Rules *from, struct stg_settings *ret)
{
    if (from == NULL)
        return;
    ret->rules.rules[STG_RULE_APPLY] = rule_of(from->apply);
    ret->rules.rules[STG_RULE_ATTACH] = rule_of(from->attach);
    ret->rules.rules[STG_RULE_SEE] = rule_of(from->see);
    if (from->read != NULL)
        ret->read_rules =
            (struct stg_read_rules){.is_set = true,
                                    .paths = (const char *const *)from->read->paths,
                                    .urls = (const char *const *)from->read->urls,
                                    .n_paths = from->read->n_paths,
                                    .n_urls = from->read->n_urls};
}

static int settings_fill(struct stg_reader *r, const Stager__Settings *from,
                         struct stg_settings *ret)
{
    struct stg_thread_pool_spec *pools =
        stg_bump_alloc(r->bump, from->n_thread_pools * sizeof(*pools));
    if (pools == NULL)
        return stg_read_fail_memory(r);
    for (size_t i = 0; i < from->n_thread_pools; i++) {
        const Stager__ThreadPool *pool = from->thread_pools[i];
        pools[i] = (struct stg_thread_pool_spec){
            .cpus = pool->cpus != NULL ? pool->cpus : "",
            .nice = pool->nice,
            .numa_node = pool->numa_node,
            .global_name = pool->global_name,
            .inter_op_threads_num = pool->inter_op_threads_num,
            .intra_op_threads_num = pool->intra_op_threads_num};
    }
    const struct stg_quota_spec *quotas = NULL;
    int rc = quotas_fill(r, from, &quotas);
    if (rc < 0)
        return rc;
    *ret = (struct stg_settings){
        .quotas = quotas,
        .n_quotas = from->n_quotas,
        .runtime_dir = from->runtime_dir,
        .state_dir = from->state_dir,
        .pipeline_dir = from->pipeline_dir,
        .log_level = from->log_level,
        .access_group = from->access_group,
        .memory_budget = from->memory_budget,
        .default_pipeline_memory = from->default_pipeline_memory,
        .max_quarantined_memory = from->max_quarantined_memory,
        .index_bytes = from->index_size,
        .metrics_address = from->metrics_address,
        .operations_log = from->operations_log,
        .max_clients = from->max_clients,
        .thread_pools = pools,
        .n_thread_pools = from->n_thread_pools,
        .gate_enable = from->gate == NULL || from->gate->enable,
        .gpu = gpu_of(from->gpu),
        .cluster = cluster_of(from->cluster),
    };
    rules_fill(from->rules, ret);
    return remote_fill(r, from->remote, &ret->remote);
}

static int settings_read(struct stg_reader *r, const char *text, size_t bytes,
                         struct stg_settings *ret)
{
    struct stg_text_node *root = NULL;
    int rc = stg_text_parse(text, bytes, r->file, r->bump, &root, r->err);
    if (rc < 0)
        return rc;
    struct stg_text_node nothing = {.kind = STG_TEXT_MAPPING, .line = 1, .column = 1};
    if (root == NULL || stg_text_is_null(root))
        root = &nothing;
    ProtobufCMessage *message;
    rc = stg_read_message(r, root, &stager__settings__descriptor, &message);
    return rc < 0 ? rc : settings_fill(r, (Stager__Settings *)message, ret);
}

int stg_load_settings(const char *text, size_t bytes, const char *file,
                      struct stg_settings *ret, struct stg_err *err)
{
    struct stg_bump bump;
    stg_bump_init(&bump, LOAD_MAX_BYTES);
    char shown[256];
    struct stg_reader r = {
        .file = file_shown(file, shown, sizeof(shown)), .bump = &bump, .err = err};
    int rc = settings_read(&r, text, bytes, ret);
    if (rc < 0)
        stg_bump_finish(&bump);
    else
        ret->bump = bump;
    return rc;
}
