/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts messages of attach.sock to structs and back. Only proto/ sees generated code.
 * The decoder treats its input as hostile. It accepts at most STG_MESSAGE_MAX_BYTES,
 * counts what it allocates, and bounds unknown fields. It rejects NUL in strings, and
 * checks enums and counts. Any thread.
 */
#ifndef STG_PROTO_WIRE_H
#define STG_PROTO_WIRE_H

#include "core/batch.h"
#include "core/division/deal.h"
#include "core/file/schema.h"
#include "core/spec.h"

#define STG_MESSAGE_MAX_BYTES 65536u
/* The maximum length of a pipeline file, which must fit in one message. */
#define STG_TEXT_MAX_BYTES 61440u
/* Since version 2, an open takes effect only with the join after it. Since version 3, an
 * open may have a state. Since version 4, a stream may commit, and an open may name a
 * commit. Since version 5, an apply may be warm. Since version 6, a stream may
 * reconnect. */
#define STG_PROTOCOL_MIN 2u
#define STG_PROTOCOL_MAX 6u
#define STG_PROTOCOL_STATE 3u
#define STG_PROTOCOL_COMMIT 4u
#define STG_PROTOCOL_WARM 5u
#define STG_PROTOCOL_RECONNECT 6u
/* How long a warm apply may wait for the buffer, in the daemon. */
#define STG_WARM_SECONDS 3600u

/* What a stream proves itself with when it reconnects to a stagerd that was started
 * again: what the reply to its last open said. */
struct stg_rejoin {
    uint64_t run;    /* run_id */
    uint64_t member; /* 0: it does not reconnect */
    uint64_t attempt;
};

enum stg_request_kind {
    STG_REQUEST_NONE = 0,
    STG_REQUEST_HELLO,
    STG_REQUEST_CHECK,
    STG_REQUEST_APPLY,
    STG_REQUEST_LIST,
    STG_REQUEST_STATUS,
    STG_REQUEST_OPEN,
    STG_REQUEST_DELETE,
    STG_REQUEST_FEED,
    STG_REQUEST_NEW_TOKEN,
    STG_REQUEST_EXPLAIN,
    STG_REQUEST_TRACE, /* like every kind, the number of its field minus 1 */
    STG_REQUEST_WORK = 12,
    STG_REQUEST_REPORT = 13,
    STG_REQUEST_JOIN = 14,
    STG_REQUEST_WHY = 18,
    STG_REQUEST_INDEX = 23,
    STG_REQUEST_COMMIT = 24,
    STG_REQUEST_COMMITS = 25,
    STG_REQUEST_ROLLBACK = 26,
    STG_REQUEST_VERSIONS = 27,
    STG_REQUEST_AUDIT = 28,
    STG_REQUEST_METRICS = 29,
    STG_REQUEST_SCHEMA = 30,
    STG_REQUEST_TAP = 31,
    STG_REQUEST_DRAIN = 32,
};

/* What a stream with replay_batches measured. */
struct stg_replay_result {
    uint32_t n_held; /* staged batches that were replayed in turn; 0: nothing was */
    uint64_t n_run, run_ns, run_wait_ns; /* batches of the run that were measured */
    uint64_t n_replayed, replayed_ns;
    const char *client_id;
    uint32_t pid;    /* explain */
    uint64_t age_ns; /* explain */
};

/* What a trainer measured since its last report. The decoder checks only the form of a
 * report, not its numbers. */
struct stg_report_node {
    uint32_t node; /* index among the nodes of the pipeline */
    uint64_t n, ns;
    const uint64_t *bytes; /* of each output, on average */
    size_t n_bytes;
    bool on_device;
};

struct stg_report {
    uint64_t elapsed_ns, n_batches, wait_ns, n_runs, run_ns, cpu_ns;
    const struct stg_report_node *nodes;
    size_t n_nodes;
    struct stg_replay_result replay; /* alone; n_held 0: none */
};

/* One request. In a decoded request, strings point into the bump passed to the decoder.
 * The caller of the encoder owns the strings that it passes. */
struct stg_request {
    uint64_t id;
    enum stg_request_kind kind;
    uint32_t min_version, max_version; /* hello */
    const char *client;                /* hello: program name */
    const char
        *name;        /* status, explain, open, delete, trace, work, index, commits,
                         rollback, versions, audit; apply: overrides the name in the text */
    const char *text; /* check, apply, index */
    size_t text_bytes;
    const char *file;
    bool replace;
    bool warm;             /* apply, rollback: the new version fills its buffer first */
    uint64_t generation;   /* rollback: of a kept definition; 0: the last other one. open,
                              with follow: that the stream had; 0: none */
    const char *script;    /* apply: the script that applies it; NULL: none */
    uint64_t script_run;   /* which run of the script */
    const char *client_id; /* open */
    uint32_t max_in_flight;
    bool private_run;
    bool replays; /* open: a private run of stager_options.replay_batches */
    bool manual_ack;
    bool named;          /* open: client_id was chosen by the user */
    uint32_t batch_size; /* open: rows of a slice; 0: batches as they are staged */
    bool wants_device;   /* open: the memory of the pipeline on a GPU, if it has any */
    const char *state;   /* open: text of the state to begin at; NULL: none. commit */
    const char *resume;  /* open: "start", "current" or "tag:NAME"; NULL: none */
    const char *tag;     /* commit */
    struct stg_rejoin rejoin; /* open; commit of a stream whose stagerd ended: with name,
                                 client_id, named */
    bool never_reconnects;    /* open: its stream ends with stagerd */
    bool follow;              /* open: it goes on with later versions of the pipeline */
    bool approximate;         /* open: also where a state is not exact */
    const char *job;          /* open, commits; NULL: none */
    uint32_t rank;            /* open, round_robin: of world_size */
    uint32_t world_size;      /* open; 0: ranks are the order of joining */
    struct stg_deal_rank data_parallel; /* open; size 0: none */
    bool has_fields;                    /* open; false: all features */
    const char *const *fields;
    size_t n_fields;
    bool has_fetches; /* open; false: the pipeline's targets */
    const char *const *fetches;
    size_t n_fetches;
    bool has_unsupported; /* open: the daemon can ask this client which nodes its build
                             cannot compute */
    uint64_t unsupported_generation; /* of the pipeline that the client examined; 0: the
                                        daemon has not asked yet */
    const char *const *unsupported;  /* nodes that the client's build cannot compute */
    size_t n_unsupported;
    const char *url;   /* schema: of a file, or a pattern */
    uint32_t first;    /* schema: the number of the first column of the reply */
    bool open_metrics; /* metrics: as OpenMetrics; else as text for Prometheus */
    bool disable;      /* drain */
    uint32_t millis;   /* trace: duration. tap: limit */
    uint32_t most;   /* work: the daemon refuses if it has this many workers; 0: no limit
                        in the request */
    int dtype, ndim; /* feed: the tensor; data and offsets point into the message */
    int64_t shape[STG_LAYOUT_MAX_DIMS];
    const void *data;
    size_t data_bytes;
    const int64_t *offsets; /* feed, strings: n_offsets == elements + 1; else NULL */
    size_t n_offsets;
    struct stg_report report;
    const void *token; /* of a request through the gate; points into the message */
    size_t token_bytes;
    const void *request_id;
    size_t request_id_bytes;
    bool has_if_generation; /* apply, delete, rollback */
    uint64_t if_generation;
};

#define STG_WIRE_UUID_BYTES 16
#define STG_TOKEN_BYTES 32
#define STG_REQUEST_ID_MAX_BYTES 64

struct stg_list_entry {
    const char *name, *state, *file;
    uint64_t generation;
    uint64_t pipeline; /* its number in events */
    uint32_t n_clients, uid;
};

/* Memory that a process keeps because it holds batches of streams that it closed. */
struct stg_quarantined {
    const char *program, *pipeline;
    uint32_t pid, uid, n_batches;
    uint64_t bytes; /* of the memory budget */
};

struct stg_client_status {
    const char *client_id, *program, *state;
    uint32_t pid, uid, max_in_flight, held;
    uint64_t assigned, taken, released, redelivered, wait_ns, violations;
    uint64_t acknowledged, gaps, lost, daemon_wait_ns;
    const char *last_error;
    uint32_t batch_size, rank;
};

/* A number that `auto` changed. */
struct stg_tuned {
    const char *what, *why;
    uint32_t from, to;
};

/* Work of a pipeline that takes longer than two seconds. */
struct stg_status_progress {
    const char *what, *unit;
    uint64_t done, total, elapsed_ns; /* total 0: unknown */
};

struct stg_pipeline_status {
    const char *name, *state, *delivery, *last_error;
    uint64_t generation, pass, epoch;
    uint32_t capacity, num_threads, num_clients, buffered;
    uint64_t published, assigned, released, dropped, errors, redelivered, lost, rows,
        bytes;
    uint64_t memory_bytes, memory_used_bytes, quarantined_bytes, max_batch_bytes;
    uint64_t producer_wait_ns, producer_busy_ns, timeouts;
    /* made = published + dropped + ignored + in_hand + discarded; under split published =
     * acknowledged + lost + buffered + unacknowledged + discarded_published */
    uint64_t made, ignored, in_hand, discarded, acknowledged, unacknowledged;
    uint64_t discarded_published, evicted, feed_version, incomplete_rounds;
    uint64_t dropped_rows;       /* in the batches that `dropped` counts */
    uint64_t ignored_elements;   /* dropped by ignore_errors steps; never became items */
    uint64_t remainder_elements; /* left out by `shard: auto` */
    const char *on_timeout;
    const char *thread_pool; /* that it runs on; "": its own threads */
    const char *container;   /* the counts below are for all pipelines that name it */
    uint32_t container_tables, container_caches;
    uint64_t container_bytes;
    const char *remote;      /* what stage workers did; "": there are none */
    const char *py_function; /* "module:name"; "": none */
    uint32_t workers;
    uint64_t worker_calls, workers_lost;
    const char *gpu;     /* the device on which clients share a copy; "": none */
    const char *gpu_why; /* the reason that they cannot share it now; "": they do */
    uint64_t gpu_copies;
    uint64_t pipeline;           /* its number in events */
    uint64_t run_id;             /* of the current batches */
    uint64_t warming_generation; /* that fills its buffer; 0: none */
    uint64_t warming_buffered;   /* its items that are ready */
    const char *commit_problem;  /* why the last commit could not be written; "" */
    bool capacity_auto, num_threads_auto, num_clients_auto;
    uint32_t max_capacity, max_num_threads; /* upper limits for auto */
    const struct stg_tuned *tuned;          /* oldest first */
    size_t n_tuned;
    struct stg_client_status *clients;
    size_t n_clients;
    uint32_t n_clients_left_out;         /* clients that did not fit in the message */
    struct stg_quarantined *quarantined; /* of all generations of this pipeline */
    size_t n_quarantined;
    struct stg_schema boundary;
    uint64_t partition;       /* of the next batch; 0: the boundary as written */
    const char *const *moved; /* nodes behind the boundary that stagerd runs ahead */
    size_t n_moved;
    uint64_t own_partitions; /* batches made with the boundary as written, because
                          another partition failed */
    /* Over the last second or two; window_ns 0: no trainer reads. */
    uint64_t window_ns, window_batches, window_rows, window_clients_ns, window_wait_ns;
    struct stg_status_progress *progress;
    size_t n_progress;
};

/* The parts of a pipeline, and the cost of each: see control.proto. */
struct stg_explain_input {
    uint32_t from, output;
    uint64_t bytes;
    const char *staged;
    bool crosses, control;
};

struct stg_explain_node {
    const char *name, *op; /* op "": a component of the dataset's element */
    bool in_daemon, in_trainer;
    bool on_gpu; /* in_trainer, and there on a GPU */
    uint64_t n_daemon, daemon_ns, n_trainer, trainer_ns, bytes;
    struct stg_explain_input *inputs;
    size_t n_inputs;
};

struct stg_explain_tensor {
    const char *name;
    bool is_constant; /* true: `from` has no meaning */
    uint32_t from;
    uint64_t bytes;
};

struct stg_explain_decision {
    uint64_t age_ns;
    const char *what, *text;
};

struct stg_explain {
    const char *name, *state, *smart_stage, *bottleneck, *why;
    uint64_t generation;
    const char *const *steps;
    size_t n_steps;
    const char *const *reads; /* of each step that reads less than its columns: a text */
    size_t n_reads;
    struct stg_explain_node *nodes;
    size_t n_nodes;
    struct stg_explain_tensor *tensors;
    size_t n_tensors;
    struct stg_explain_decision *decisions;
    size_t n_decisions;
    struct stg_replay_result *replays; /* the last ones, oldest first */
    size_t n_replays;
    uint32_t n_left_out, n_runners;
    uint64_t elapsed_ns, n_items, pull_ns, compute_ns, room_ns, trainers_ns,
        trainers_wait_ns, cpu_ns;
    uint64_t n_daemon_runs, daemon_run_ns, n_trainer_runs, trainer_run_ns;
    const char *remote; /* conclusion about stage workers; "": there are none */
    uint64_t n_remote_items, n_local_items, remote_bytes, remote_stall_ns,
        remote_answer_ns, remote_cpu_ns, local_cpu_ns, alone_ns;
};

struct stg_commit_entry {
    const char *tag, *client, *lane;
    uint64_t attempt, pass, position, time_ns;
    uint64_t items; /* of a job whose hosts etcd has: of one host, in its division */
};

/* A generation whose definition the daemon keeps. */
struct stg_version_entry {
    uint64_t generation, time_ns, content;
    uint32_t uid;
    const char *file;
};

/* The first values of a tensor. */
struct stg_tap_tensor {
    const char *name;
    int dtype, ndim;
    int64_t shape[STG_MAX_DIMS]; /* of all of it */
    uint32_t part;
    bool shortened;   /* some strings are longer */
    const void *data; /* aligned to 8 */
    size_t data_bytes;
    const int64_t *offsets; /* strings: n_offsets is one more than there are; else NULL */
    size_t n_offsets;
};

/* A published batch. */
struct stg_tap_batch {
    uint64_t number, pass, epoch, index, rows, bytes;
    struct stg_tap_tensor *tensors;
    size_t n;
    uint32_t n_left_out; /* tensors that did not fit */
};

/* How far the record indexes of a pipeline's files are. */
struct stg_index_report {
    bool done;
    uint32_t n_files, n_done, n_built, n_existing, n_small, n_failed;
    uint64_t bytes, bytes_done, n_records, index_bytes, elapsed_ns;
    const char *file, *problem;
};

/* One reply: code and text, and the part for the kind of request. */
struct stg_reply {
    uint64_t id;
    int code; /* 0 or a negative status code; no part is sent with an error */
    const char *text;
    enum stg_request_kind kind; /* of the request; determines which part is set; NONE: an
                                   error */

    uint32_t version; /* hello */
    const char *daemon, *cuda;
    uint64_t instance;
    uint32_t pid;

    const char *name; /* check, apply, rollback, versions, open */
    uint64_t generation;
    struct stg_schema boundary;
    const char *const *advice;
    size_t n_advice;
    uint64_t max_batch_bytes, memory_bytes;
    bool unchanged;
    const char *reproducible; /* check, apply: "yes" or the reason; "": unknown */
    uint64_t restored;        /* rollback: the generation whose definition it is */

    struct stg_list_entry *entries; /* list */
    size_t n_entries;
    uint32_t n_left_out; /* entries that did not fit in the message; also of commits */
    struct stg_quarantined *quarantined; /* list: of all pipelines */
    size_t n_quarantined;

    struct stg_pipeline_status status;
    struct stg_explain explain;
    struct stg_index_report index;
    struct stg_commit_entry *commits; /* commits */
    size_t n_commits;
    struct stg_version_entry *versions; /* versions: from the oldest on */
    size_t n_versions;
    struct stg_file_schema schema;
    struct stg_tap_batch tap;
    uint32_t n_consumers; /* drain; name: the pipeline of one of them */

    uint64_t segment_bytes; /* open */
    uint32_t max_in_flight;
    const char *client_id, *structure;
    struct stg_schema slots; /* tensors that batches may carry besides the boundary */
    uint64_t batch_rows;     /* of a full staged batch; 0: not known */
    bool unwatched;          /* the daemon has no pidfd of this process */
    bool wants_reports;
    bool asks; /* the client must open again with its unsupported nodes; the reply has no
                  descriptors */
    uint64_t device_bytes; /* 0: the reply has no memory on a GPU */
    uint32_t device_number;
    const void *device_uuid;    /* STG_WIRE_UUID_BYTES; NULL: none */
    const char *signature;      /* open: of the pipeline, for states */
    const char *irreproducible; /* open: the reason that states are not exact; "": they
                                   are */
    uint64_t begins_pass; /* open: 1 plus the pass at whose start it begins; 0: the first
                             batch has the place */
    uint64_t skip_rows;   /* open, with a state: rows that were taken already */
    const char *state;    /* open: where a commit lets the client begin; "": no commit */
    bool anew;            /* open: a stream that follows begins the new version; its
                             state was not used */
    uint32_t hosts;       /* open: that divide the records; 0: they are not divided */
    uint32_t host;        /* open: this one */
    uint32_t weight;      /* open: of this host; 0: the pipeline has no weights */
    uint64_t hosts_generation;  /* open: where etcd has the hosts of the job; else 0 */
    uint64_t base, base_pass;   /* the record at which they began, in that pass */
    struct stg_rejoin rejoin;   /* open */
    uint64_t feed_version;      /* feed */
    const char *function;       /* work: "module:name"; boundary is its result's schema */
    uint64_t seed;              /* work */
    bool pure;                  /* work */
    uint64_t page_bytes;        /* trace */
    const unsigned char *token; /* new_token: STG_TOKEN_BYTES */
    uint32_t seconds;
    const char *admin_url, *events_url;
    const struct stg_pipeline_spec
        *pipeline; /* for stager_run; see stg_wire_decode_pipeline */
};

/* The kinds of event that the gate publishes, numbered as in control.proto. */
enum stg_event_kind {
    STG_EVENT_GATE = 1,
    STG_EVENT_APPLIED,
    STG_EVENT_DELETED,
    STG_EVENT_STARTED,
    STG_EVENT_ENDED,
    STG_EVENT_FAILED,
    STG_EVENT_STOPPED,
    STG_EVENT_ATTACHED,
    STG_EVENT_DETACHED,
};

struct stg_event {
    uint64_t instance, sequence, pipeline;
    enum stg_event_kind kind;
};

#define STG_EVENT_MAX_BYTES 64

/* Returns "applied", …, or "unknown" for a kind of a later release. */
const char *stg_event_name(enum stg_event_kind kind);

/* Encode a message into buf. Return the number of bytes, or a negative code. An open
 * reply leaves out the steps of its pipeline. Errors:
 *   RESOURCE_EXHAUSTED: out of memory, or a request does not fit.
 *   OUT_OF_RANGE: a reply does not fit.
 *   INVALID_ARGUMENT: a request has no kind. */
long stg_wire_encode_request(const struct stg_request *request, void *buf,
                             size_t capacity);
long stg_wire_encode_reply(const struct stg_reply *reply, void *buf, size_t capacity);
long stg_wire_encode_event(const struct stg_event *event, void *buf, size_t capacity);

/* Decode a message. Strings and arrays live in `bump`. An absent field is 0. An absent
 * string is NULL in a request and "" in a reply. A decoded reply has either a code and
 * kind NONE, or code 0 and the part of its kind. These functions do not decode
 * reply.pipeline: stg_wire_decode_pipeline does, from the same bytes. INVALID_ARGUMENT:
 * the message is malformed; the text names the fault. */
int stg_wire_decode_request(const void *buf, size_t bytes, struct stg_bump *bump,
                            struct stg_request *ret, struct stg_err *err);
int stg_wire_decode_reply(const void *buf, size_t bytes, struct stg_bump *bump,
                          struct stg_reply *ret, struct stg_err *err);
int stg_wire_decode_event(const void *buf, size_t bytes, struct stg_event *ret,
                          struct stg_err *err);

/* Decodes the pipeline of an open reply into a separate spec: nodes, targets and staged.
 * The steps and the fingerprint stay in the daemon: n_steps and fingerprint are 0. The
 * caller destroys *ret with stg_pipeline_spec_destroy. NOT_FOUND: the reply has no
 * pipeline. */
int stg_wire_decode_pipeline(const void *buf, size_t bytes,
                             struct stg_pipeline_spec **ret, struct stg_err *err);

#endif
