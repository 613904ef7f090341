/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline as plain structs. proto/load.c makes them from a YAML text, proto/wire.c
 * from a message; daemon/ and ops/ read them. A spec is immutable once made. Its bump
 * allocator owns everything that it points to, until stg_pipeline_spec_destroy. Any
 * thread may read.
 *
 * Strings are NUL-terminated and contain no other NUL, except string values (s, s_bytes).
 */
#ifndef STG_CORE_SPEC_H
#define STG_CORE_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bump.h"
#include "core/err.h"

enum stg_value_kind {
    STG_VALUE_NULL = 0, /* YAML null: in record_defaults, "required" */
    STG_VALUE_INT,
    STG_VALUE_FLOAT,
    STG_VALUE_BOOL,
    STG_VALUE_STRING,
};

struct stg_value {
    enum stg_value_kind kind;
    int64_t i; /* INT and BOOL */
    double f;  /* FLOAT; for INT the same number */
    const char *s;
    size_t s_bytes;
};

#define STG_ATTR_MAX_DIMS 4

/* A named value, list or nested rectangular list. n_values is the product of shape. */
struct stg_attr {
    const char *name;
    int ndim; /* 0: a scalar */
    int64_t shape[STG_ATTR_MAX_DIMS];
    size_t n_values;
    const struct stg_value *values;
    bool is_default;  /* not in the text: the schema's default */
    int line, column; /* in the text, from 1; 0: unknown */
};

/* One op of a graph. Inputs are "node", "node:k", "staged:path", or a component of the
 * dataset's element ("record"). Ranges "node:a..b" are already expanded. "^node" is a
 * control input. */
struct stg_node {
    const char *name;
    const char *op;
    const char *const *inputs;
    size_t n_inputs;
    const struct stg_attr *attrs;
    size_t n_attrs;
    int line, column;
};

/* A leaf of `features`. path is "label", "0", "user/id": keys and list positions joined
 * by '/'; a single tensor has the name of that tensor. A sparse feature "ids" is three
 * consecutive leaves, "ids/values", "ids/indices", "ids/dense_shape"; a ragged one is
 * two, "ids/values", "ids/row_splits". */
struct stg_feature {
    const char *path;
    const char *tensor;
    int line, column;
    uint32_t part; /* enum stg_part of core/layout.h */
};

/* One transformation of a dataset. attrs hold the fields of its message in
 * proto/pipeline.proto, with the schema's defaults filled in (is_default marks those). A
 * field that the text does not set, and that has no default, is absent. A field of type
 * Values is one attribute FIELD, or one attribute "FIELD/NAME" per name in the text. */
struct stg_step {
    const char *name; /* "text_line", "shuffle" … */
    const struct stg_attr *attrs;
    size_t n_attrs;
    const struct stg_node *nodes; /* the graph that the step runs on each element */
    size_t n_nodes;
    const struct stg_feature *outputs; /* outputs of that graph */
    size_t n_outputs;
    const struct stg_step *reader; /* of interleave: the steps for each file */
    bool
        is_full; /* infer yields the size of its largest batch; a loaded spec has false */
    int line, column;
};

/* Named steps. The `from` of a step with several inputs refers to them. */
struct stg_branch {
    const char *name;
    const struct stg_step *steps;
    size_t n_steps;
    int line, column;
};

enum stg_delivery {
    STG_DELIVERY_SPLIT = 0,
    STG_DELIVERY_BROADCAST = 1,
    STG_DELIVERY_ROUND_ROBIN = 2
};

enum stg_on_timeout {
    STG_ON_TIMEOUT_DROP = 0,
    STG_ON_TIMEOUT_WAIT = 1,
    STG_ON_TIMEOUT_EVICT = 2
};

enum stg_audit_kind {
    STG_AUDIT_NONE = 0,
    STG_AUDIT_POSITIONS = 1,
    STG_AUDIT_CONTENTS = 2
};

enum stg_smart_stage {
    STG_SMART_STAGE_OFF = 0,
    STG_SMART_STAGE_ON = 1,
    STG_SMART_STAGE_AUTO = 2
};

/* The replacement of a tensor of the stage subgraph (feed_dict). */
struct stg_feed {
    const char *name;             /* "node", "node:1", a component of the element */
    const struct stg_attr *value; /* a constant, or the value until a client sets it */
    const char *tensor;           /* or: another tensor, evaluated for each item */
    bool client;                  /* a client may set it (stager_feed) */
    int line, column;
};

/* Stage workers on other machines (staged.remote). */
struct stg_remote_workers {
    const char *const *urls;
    size_t n_urls;
    const char *workers_file;                /* more URLs; NULL: not set */
    enum stg_smart_stage mode;               /* OFF where neither is set */
    uint32_t max_requests;                   /* at once */
    uint64_t max_bytes_per_s;                /* 0: no limit */
    const char *token_file, *ca_file, *zone; /* NULL: not set */
};

/* The bit of a status code in a set of codes. Code 0 is never in a set. */
#define STG_CODE_BIT(code) (UINT32_C(1) << (code))

/* Parameters and names of tf.staged (docs/pipeline.md). */
#define STG_MAX_NUM_CLIENTS 1024

struct stg_staged {
    const struct stg_feature *features;
    size_t n_features;
    const char *structure; /* JSON skeleton of `features` whose leaves are paths; if
                              absent, "" until stg_composite_staged sets it */
    uint32_t capacity;     /* 0: auto, found by measurement */
    uint32_t num_threads;  /* 0: auto */
    uint32_t num_clients;  /* auto: of the last run, at first 1 */
    bool num_clients_auto; /* world_size of the first client of a run */
    uint64_t timeout_millis;
    enum stg_delivery delivery;
    uint64_t max_batch_bytes; /* 0: inferred, or the share divided by the number of
                                 extents */
    uint64_t memory_budget;   /* this pipeline's share in bytes; 0: what it needs, or the
                                 daemon's default */
    uint64_t lease_timeout_millis;
    uint64_t start_timeout_millis;
    bool redeliver;
    enum stg_on_timeout on_timeout;
    uint32_t closed_codes, ignored_codes; /* exception types: STG_CODE_BIT */
    uint64_t max_ignored;                 /* in a pass; the one after that is an error */
    bool deterministic;                   /* publish in source order */
    const struct stg_feed *feeds;
    size_t n_feeds;
    bool use_thread_pool; /* use_stage_subgraph_thread_pool */
    uint32_t thread_pool_id;
    uint32_t stream_id;
    enum stg_smart_stage compute_device; /* whether stager_run uses the device */
    uint64_t reconnect_grace_millis;     /* 0: a client that left cannot return */
    bool keep_warm;
    enum stg_audit_kind audit;
    const struct stg_attr
        *transfers; /* per feature: the dtype for its transfer, half as wide */
    size_t n_transfers;
    struct stg_remote_workers remote;
};

struct stg_pipeline_spec {
    const char *name;
    const struct stg_step *steps;
    size_t n_steps;
    const struct stg_branch *branches;
    size_t n_branches;
    const struct stg_node *nodes;
    size_t n_nodes;
    struct stg_staged staged;
    const char *const *targets;
    size_t n_targets;
    enum stg_smart_stage smart_stage;
    bool smart_stage_is_default; /* the text does not set smart_stage */
    bool smart_stage_gpu;  /* boundary tensors are for a device; smart_stage is ON */
    const char *container; /* NULL: none */
    struct {
        const char *device;    /* its clients share a copy there; NULL: no copy */
        uint64_t memory_bytes; /* of the copy; 0: as much as the pipeline's batches */
    } gpu;
    bool is_step;         /* the graph of a step; staged.features are its outputs */
    uint64_t fingerprint; /* of everything but the name; does not depend on the order of
                             keys in the text */
    struct stg_bump bump; /* owns all of the above */
};

void stg_pipeline_spec_destroy(struct stg_pipeline_spec *spec);

/* Returns the attribute of that name, or NULL. */
const struct stg_attr *stg_attr_find(const struct stg_attr *attrs, size_t n,
                                     const char *name);

/* Return the scalar of that name, or `otherwise` if it is absent or of another kind.
 * stg_attr_float accepts an INT; for the others the kind must match. (Loading a text
 * checks the kinds.) */
int64_t stg_attr_int(const struct stg_attr *attrs, size_t n, const char *name,
                     int64_t otherwise);
double stg_attr_float(const struct stg_attr *attrs, size_t n, const char *name,
                      double otherwise);
/* Reads a switch: true, false, or the words on, off, true, false. Returns false if it is
 * not a switch. */
bool stg_value_switch(const struct stg_value *value, bool *ret);
/* Returns a switch, as stg_value_switch reads it. */
bool stg_attr_bool(const struct stg_attr *attrs, size_t n, const char *name,
                   bool otherwise);
const char *stg_attr_string(const struct stg_attr *attrs, size_t n, const char *name,
                            const char *otherwise);

struct stg_thread_pool_spec {
    const char *global_name;
    uint32_t inter_op_threads_num;
    uint32_t intra_op_threads_num;
    const char *cpus;  /* "0-3,8"; "": wherever the daemon may run */
    int32_t nice;      /* -20 to 19 */
    int32_t numa_node; /* -1: any */
};

/* The endpoint and credentials of the objects whose URLs have a prefix. "": not set. */
struct stg_remote_store_spec {
    const char *prefix;           /* "s3://bucket/", "https://host" */
    const char *endpoint;         /* "http://minio:9000" */
    const char *region;           /* of S3 */
    const char *credentials_file; /* in the format of AWS */
    const char *profile;          /* section of that file */
    const char *const *users;     /* users that may use the credentials, besides root */
    const char *const *groups;
    size_t n_users, n_groups;
};

/* How stagerd reads data on other machines. */
struct stg_remote_settings {
    uint64_t read_ahead_bytes; /* the most that all files may hold ahead of their readers
                                */
    uint64_t range_bytes;      /* size of one request */
    uint32_t ranges_per_file;  /* requests in progress at once */
    uint32_t connect_timeout_millis;
    uint32_t stall_timeout_millis; /* how long no byte may arrive */
    uint32_t retries;              /* consecutive failures */
    const char *cache_dir; /* directory of the cache of fetched ranges; "": no cache */
    uint64_t cache_bytes;  /* at most */
    const struct stg_remote_store_spec *stores;
    size_t n_stores;
};

/* Streams of a GPU, by DeepRec's names. */
struct stg_gpu_settings {
    bool use_multi_stream;     /* more streams than that of the trainer */
    uint32_t multi_stream_num; /* number of streams; the trainer's is number 0 */
    bool stage_multi_stream;   /* staged work may use them */
};

/* Where the hosts of jobs come and go. */
struct stg_etcd_spec {
    const char **endpoints;
    size_t n_endpoints; /* 0: there is no etcd */
    const char *prefix; /* of keys */
    uint32_t lease_seconds, steady_millis, rejoin_seconds;
    const char *user, *password_file, *ca_file, *cert_file, *key_file; /* "": none */
};

/* How hosts that divide a pipeline by `shard: auto` find and compare one another. */
struct stg_cluster_settings {
    const char *compare_dir; /* that all hosts mount; "": they are not compared */
    uint32_t compare_timeout_millis;
    struct stg_etcd_spec etcd;
};

/* /etc/stager/stagerd.yaml. */
/* What a quota limits. */
enum stg_quota_kind {
    STG_QUOTA_MEMORY,    /* bytes */
    STG_QUOTA_DISK,      /* bytes of state_dir */
    STG_QUOTA_PIPELINES, /* applied */
    STG_QUOTA_CLIENTS,   /* connections */
    STG_QUOTA_RUNNERS,   /* threads of stages */
    STG_QUOTA_REQUESTS,  /* a second */
    STG_QUOTA_REMOTE,    /* bytes a second */
    STG_N_QUOTA_KINDS
};

#define STG_NO_QUOTA UINT64_MAX
#define STG_MAX_WEIGHT 100

/* Of a user, or of the members of a group together. */
struct stg_quota_spec {
    const char *user; /* its name or number; "*": each user without a quota of its own;
                         NULL: of the group */
    const char *group;
    uint32_t weight; /* of its CPU time; 0: the default, 1 */
    uint64_t limit[STG_N_QUOTA_KINDS];
};

enum stg_rule { STG_RULE_APPLY, STG_RULE_ATTACH, STG_RULE_SEE, STG_N_RULES };

/* Users and groups that may, by name or number. */
struct stg_rule_spec {
    bool is_set; /* false: everybody may */
    const char *const *users;
    const char *const *groups;
    size_t n_users, n_groups;
};

struct stg_rules_spec {
    struct stg_rule_spec rules[STG_N_RULES];
};

/* Where pipelines may read. */
struct stg_read_rules {
    bool is_set; /* false: everywhere */
    const char *const *paths;
    const char *const *urls;
    size_t n_paths, n_urls;
};

struct stg_settings {
    const char *runtime_dir;
    const char *state_dir;
    const char *pipeline_dir;
    const char *log_level;
    const char *access_group; /* its members may open and administer every pipeline;
                                 default "stager" */
    uint64_t memory_budget;   /* bytes of batches over all pipelines; 0: a quarter of the
                                 available memory */
    uint64_t
        default_pipeline_memory; /* share of a pipeline whose batch size is not known */
    uint64_t max_quarantined_memory; /* bytes that the processes of one user may keep in
                                        batches of closed streams; 0: a quarter of
                                        memory_budget */
    uint64_t index_bytes;            /* of record indexes in state_dir; 0: none */
    const char *metrics_address;     /* where stager-metrics listens; "": not on TCP */
    const char *operations_log;      /* auto, journal, off, or a path */
    uint32_t max_clients;            /* connections at once */
    const struct stg_thread_pool_spec *thread_pools;
    size_t n_thread_pools;
    const struct stg_quota_spec *quotas;
    size_t n_quotas;
    struct stg_rules_spec rules;
    struct stg_read_rules read_rules;
    bool gate_enable; /* the nanomsg endpoint */
    struct stg_remote_settings remote;
    struct stg_gpu_settings gpu;
    struct stg_cluster_settings cluster;
    struct stg_bump bump;
};

void stg_settings_finish(struct stg_settings *settings);

#endif
