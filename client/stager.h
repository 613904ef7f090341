/* SPDX-License-Identifier: Apache-2.0
 *
 * libstager: reads batches from stagerd in shared memory, without a copy.
 *
 *     struct stager_stream *s;
 *     if (stager_open(NULL, "criteo", NULL, &s) < 0)
 *         die(stager_error_text(NULL));
 *     struct stager_batch *b;
 *     int rc;
 *     while ((rc = stager_next(s, -1, &b)) == 0) {
 *         struct stager_tensor ids;
 *         stager_batch_tensor(b, "ids", &ids);
 *         train(ids.data, ids.shape);
 *         stager_release(b);
 *     }
 *     if (rc != -STAGER_OUT_OF_RANGE)
 *         die(stager_error_text(s));
 *     stager_close(s);
 *
 * A stream has one socket. One thread at a time may use a stream and its batches;
 * different streams are independent. The library starts no threads except those of
 * inter_op_threads_num and intra_op_threads_num. It installs no signal handlers and
 * prints nothing. Its only global state is the last error text of each thread. A child of
 * fork() must not use its parent's streams: there, every call returns
 * FAILED_PRECONDITION.
 *
 * Every function that can fail returns 0 or a negative status code, and
 * stager_error_text returns the reason. Output parameters come last; a failed call leaves
 * them unchanged.
 *
 * A struct that later releases may extend begins with struct_size. The caller sets it to
 * the sizeof of the struct and sets unused fields to zero:
 *
 *     struct stager_options options = {.struct_size = sizeof(options)};
 *
 * The library reads and writes no byte beyond struct_size. A field beyond struct_size has
 * its default value. See docs/compatibility.md.
 */
#ifndef STAGER_H
#define STAGER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#ifndef STAGER_STATUS_DEFINED
#define STAGER_STATUS_DEFINED
/* Canonical status codes, numbered as in gRPC. Functions return 0 or a negated code. */
enum stager_status {
    STAGER_OK = 0,
    STAGER_CANCELLED = 1,
    STAGER_UNKNOWN = 2,
    STAGER_INVALID_ARGUMENT = 3,
    STAGER_DEADLINE_EXCEEDED = 4,
    STAGER_NOT_FOUND = 5,
    STAGER_ALREADY_EXISTS = 6,
    STAGER_PERMISSION_DENIED = 7,
    STAGER_RESOURCE_EXHAUSTED = 8,
    STAGER_FAILED_PRECONDITION = 9,
    STAGER_ABORTED = 10,
    STAGER_OUT_OF_RANGE = 11,
    STAGER_UNIMPLEMENTED = 12,
    STAGER_INTERNAL = 13,
    STAGER_UNAVAILABLE = 14,
    STAGER_DATA_LOSS = 15,
    STAGER_UNAUTHENTICATED = 16,
};

/* Element types, numbered as TensorFlow's DataType
 * (tensorflow/core/framework/types.proto). */
enum stager_dtype {
    STAGER_DT_INVALID = 0,
    STAGER_FLOAT32 = 1,
    STAGER_FLOAT64 = 2,
    STAGER_INT32 = 3,
    STAGER_UINT8 = 4,
    STAGER_INT16 = 5,
    STAGER_INT8 = 6,
    STAGER_STRING = 7,
    STAGER_INT64 = 9,
    STAGER_BOOL = 10,
    STAGER_BFLOAT16 = 14,
    STAGER_UINT16 = 17,
    STAGER_FLOAT16 = 19,
    STAGER_UINT32 = 22,
    STAGER_UINT64 = 23,
};
#endif

/* Returns the name of a code: "OUT_OF_RANGE" for 11 and for -11. Never NULL. Any
 * thread. */
const char *stager_status_name(int code);

/* Returns the name of a dtype, such as "float32". Never NULL. Any thread. */
const char *stager_dtype_name(int dtype);

/* Returns the release of this library, such as "0.2.0". Any thread. */
const char *stager_version(void);

/* A time without end. */
#define STAGER_NEVER UINT32_MAX

struct stager;        /* a connection for requests */
struct stager_stream; /* one consumer of one pipeline */
struct stager_batch;  /* a batch in hand: a lease on shared memory */

/* A GPU, and the features of it that stager can use. */
struct stager_gpu_info {
    size_t struct_size;    /* set by the caller */
    char name[64];         /* "NVIDIA H200" */
    int32_t major, minor;  /* compute capability */
    uint64_t memory_bytes; /* total */
    int32_t driver;  /* newest CUDA version that the driver supports; 13000 means 13.0 */
    int32_t runtime; /* CUDA version that libstager-cuda.so was built with */
    uint32_t n_devices;
    uint32_t register_read_only; /* 1: copies read the shared memory directly; 0: they go
                                    through a page-locked buffer */
    uint32_t ipc;                /* 1: processes can share the GPU's memory */
    uint32_t memory_fds;         /* 1: GPU memory can be exported as a file descriptor */
    uint32_t mps;                /* 1: this process uses the GPU through MPS */
    uint32_t reserved0;
};

/* Describes GPU number `device` of this process, from 0. Loads libstager-cuda.so, which
 * stays loaded. Errors: UNAVAILABLE: the library, the driver or every device is
 * missing; the text names what is missing. INVALID_ARGUMENT: there is no device of that
 * number, or ret->struct_size is not set. Any thread. */
int stager_gpu(int device, struct stager_gpu_info *ret);

/* How to open a stream. In every field except struct_size, zero means the default. */
struct stager_options {
    size_t struct_size;    /* sizeof(struct stager_options) */
    const char *client_id; /* name of this consumer in status, at most 127 bytes; default
                              "PROGRAM-PID". If the program sets it, a client that left in
                              the middle of a pass can continue there: it opens again with
                              the same name within reconnect_grace_millis */
    const char *runtime_dir; /* default: environment STAGER_RUNTIME_DIR, else /run/stager,
                                else $XDG_RUNTIME_DIR/stager */
    uint32_t max_in_flight;  /* batches in hand or ready; default 2, at most 256 */
    uint32_t private_run;    /* 1: a separate run from the start, like `stagerctl cat` */
    uint32_t manual_ack;     /* 1: only stager_release acknowledges, not stager_next */
    uint32_t spin_ns;        /* time to poll an empty ring before sleeping; default 0 */
    uint32_t batch_size;     /* rows of a batch: each staged batch is split into slices of
                                this size; 0: batches as staged */
    uint32_t copy_on_write;  /* 1: the trainer may write to its batches. A written page is
                                private to this client until the batch is released */
    const char *device; /* "cuda" or "cuda:N": the device that receives the tensors; NULL:
                           host memory. Excludes batch_size and copy_on_write. If the
                           pipeline's `gpu` is the same device, nothing is copied: all
                           trainers on it read the same tensors, and none may write to
                           them */
    void *device_stream; /* cudaStream_t on which the trainer works; NULL: the device's
                            default stream */
    uint32_t device_capacity; /* batches to copy ahead, held in addition to max_in_flight;
                                 default 2, at most 64 */
    /* Threads of stager_run, including the caller's. inter_op_threads_num independent
     * nodes run at once, and intra_op_threads_num threads share the rows of a large
     * tensor. 0 and 1: only the caller's thread; at most 64. The results are the same,
     * byte for byte. The first stager_run starts the other threads. They block all
     * signals and end with the stream. */
    uint32_t inter_op_threads_num;
    /* fields and fetches declare what this consumer uses of the pipeline. stagerd makes
     * and sends only what at least one of its clients needs. fields: n_fields features to
     * read from batches ("label"; "user" includes "user/id" and all others below it);
     * NULL: all. Batches of this stream have no other features. */
    const char *const *fields;
    /* n_fetches nodes to fetch with stager_run, possibly none; NULL: the pipeline's
     * targets. With smart_stage, stagerd computes ahead what they depend on. */
    const char *const *fetches;
    uint32_t n_fields, n_fetches;
    uint32_t intra_op_threads_num; /* see inter_op_threads_num */
    uint32_t reserved0;
    /* The text of stager_state: the stream begins after what that stream had returned.
     * stager_open waits until the dataset is there, and fails if it cannot be. */
    const char *state;
    uint32_t rank;       /* under round_robin: which batch of each round this client gets,
                            from 0; only with world_size */
    uint32_t world_size; /* num_clients of the pipeline, if each client names its rank, or
                            if num_clients is auto; 0: ranks are the order of joining */
    /* "approximate": states are allowed where they are not exact, because batches depend
     * on timing. "tag:NAME": begins at the commit with that tag; "current": at the last
     * commit, or at the start if there is none; "start": at the start of the first pass,
     * whatever was committed. `state` wins over all three. NULL: "exact" */
    const char *resume;
    /* How long the stream waits for stagerd to start again when it has ended (a crash, an
     * upgrade, `systemctl restart`): stager_next then goes on with the next batch, as if
     * nothing had happened. 0: 300000. STAGER_NEVER: it does not; stager_next returns
     * UNAVAILABLE at once. See "When stagerd ends and starts again" in docs/delivery.md
     */
    uint32_t daemon_reconnect_millis;
    /* 1: when the pipeline is replaced, the stream goes on with the new version at a
     * batch boundary, in place of ABORTED. Excludes STAGER_NEVER. See "When a pipeline is
     * replaced" in docs/delivery.md */
    uint32_t follow;
    /* The job that this consumer is a part of, at most 63 bytes: a label in metrics, such
     * as the name of an experiment. NULL: none */
    const char *job;
    /* With `shard: auto`, which divides the records of a pipeline among the hosts of a
     * job: dp_rank of this client among all dp_size data-parallel ranks, and local_rank
     * among the local_size ranks of its host. Ranks that share batches (tensor or
     * pipeline parallelism) have one dp_rank. The ranks of a host follow one another, and
     * each host has as many. dp_size 0: the client names none; local_rank and local_size
     * alone where stagerd has the hosts (docs/cluster.md). */
    uint32_t dp_rank, dp_size;
    uint32_t local_rank, local_size;
    /* Measures what a perfect loader would give this trainer: the stream returns
     * replay_batches batches of a private run, then as many replayed ones, which are the
     * first replay_held (0: 4) staged batches of the run, in turn, from memory. Then
     * stager_next returns OUT_OF_RANGE. They are no training data: the stream has no
     * state, commit, feed, next pass or stager_pollfd (FAILED_PRECONDITION), and does not
     * reconnect; manual_ack has no effect. replay_batches is at least 8. Excludes state,
     * resume and follow. stager_stream_info has the result, and `stagerctl explain
     * --ideal` shows it. 0: replays nothing */
    uint32_t replay_batches;
    uint32_t replay_held; /* held in addition to max_in_flight */
};

/* The part of a feature that a tensor holds. A sparse feature "ids" is three
 * consecutive tensors: "ids/values", "ids/indices", "ids/dense_shape". A ragged feature
 * is two: "ids/values", "ids/row_splits". Every other tensor is VALUES. */
enum stager_part {
    STAGER_PART_VALUES = 0,
    STAGER_PART_ROW_SPLITS = 1,  /* int64 [rows + 1] */
    STAGER_PART_INDICES = 2,     /* int64 [values, rank] */
    STAGER_PART_DENSE_SHAPE = 3, /* int64 [rank] */
};

/* A view of one tensor, row-major. The pointers point into the batch, and are valid
 * until stager_release. Those of a result of stager_run point into the stream, and are
 * valid until the next stager_run. The memory is read-only, except data with
 * copy_on_write. The layout of this struct never changes, because callers pass arrays
 * of it. */
struct stager_tensor {
    const char *name;
    int32_t dtype; /* enum stager_dtype */
    int32_t ndim;
    int64_t shape[8];
    const void *data; /* elements, aligned to 64 bytes (in a slice: to the element); for
                         strings, the concatenated bytes */
    uint64_t data_bytes;    /* size of data; for strings in a slice, of all strings of the
                               staged batch */
    const int64_t *offsets; /* strings only: string i begins at data[offsets[i]] and
                               ends before data[offsets[i + 1]]; offsets[0] need not be
                               0 in a slice */
    uint32_t part;          /* enum stager_part */
    uint32_t device; /* 0: data is in host memory; else in the memory of device number
                        device - 1. Strings are always in host memory */
};

/* The parts of a sparse feature: values [n], indices [n, rank], dense_shape [rank]. */
struct stager_sparse {
    struct stager_tensor values, indices, dense_shape;
};

/* The parts of a ragged feature. Row r begins at values[row_splits[r]] and ends before
 * values[row_splits[r + 1]], along the first dimension of values. */
struct stager_ragged {
    struct stager_tensor values, row_splits;
};

/* The coordinates of a batch (docs/delivery.md). In a slice, n_rows counts its rows;
 * the other fields up to redelivered describe the staged batch. */
struct stager_batch_info {
    size_t struct_size;  /* set by the caller */
    uint64_t generation; /* of the pipeline; grows when its content changes */
    uint64_t number;     /* position in the stage's output within the run */
    uint64_t pass;       /* which run of the dataset from its start, from 0 */
    uint64_t epoch; /* iteration of the outermost repeat that the first row belongs to */
    uint64_t index; /* position in the epoch */
    uint64_t n_dropped; /* items dropped before this one */
    uint64_t n_rows;
    uint64_t bytes;       /* of shared memory */
    uint64_t assigned_ns; /* CLOCK_MONOTONIC when the daemon assigned it to this client */
    uint32_t n_tensors;
    uint32_t redelivered;  /* 1: it was assigned to another client, which left */
    uint32_t slice;        /* number of this slice in the staged batch, from 0 */
    uint32_t n_slices;     /* slices of the staged batch; 1: it is not split */
    uint64_t feed_version; /* which values of stager_feed the batch was made with */
    uint64_t run_id;   /* identifies the run: new when a pipeline is applied, replaced or
                          loaded at a daemon's start, and for each private run; also
                          in a stream that goes on after that start */
    uint64_t position; /* of the dataset in its pass, after the batch (under round_robin:
                          after its round): the elements that the last batching step has
                          taken, or the items if there is none */
};

/* Counters of a stream since it was opened. */
struct stager_stream_info {
    size_t struct_size; /* set by the caller */
    uint64_t batches;   /* batches that stager_next returned; each slice counts */
    uint64_t errors;    /* error items: stager_next returned their code, and the stream
                           continued */
    uint64_t wait_ns;   /* time asleep in stager_next */
    uint64_t sleeps;    /* number of those sleeps */
    uint32_t held;      /* staged batches in hand (whole or in slices) or on a device */
    uint32_t max_in_flight; /* as granted */
    uint32_t at_end;        /* 1: the pass is over; cleared by stager_rewind */
    uint32_t finished;      /* 1: the stream is over; stager_next returns the reason */
    uint32_t unwatched;     /* 1: stagerd cannot watch this process, only its socket */
    uint32_t reserved0;
    uint64_t end_pass;      /* at_end: the pass that is over, as in stager_batch_info */
    uint64_t device_bytes;  /* bytes that this stream copied to the device */
    uint64_t device_shared; /* batches not copied: already on the device, shared by all
                               trainers */
    /* What stagerd dropped (on_timeout: drop) since the stream was opened. Counts the
     * whole pipeline, whichever client the batches were for. */
    uint64_t dropped_batches; /* staged batches not taken within timeout_millis */
    uint64_t dropped_rows;    /* rows of those batches */
    uint64_t reconnects;      /* times that the stream went on with a stagerd that was
                                 started again */
    uint64_t reconnect_ns;    /* time for which it had none, as stager_next saw it */
    uint64_t generation;      /* of the pipeline that the next batches are of */
    uint64_t followed;        /* versions of the pipeline that the stream moved to */
    /* With replay_batches. The time from one stager_next to the next, as a mean of a half
     * without its first quarter; 0: the half is not over. */
    uint64_t replayed;       /* batches that were replayed */
    uint64_t run_step_ns;    /* with batches of the run */
    uint64_t replay_step_ns; /* with replayed ones */
    /* With `shard: auto`: the place of this host among those that divide the records. */
    uint32_t hosts;            /* 0: the records are not divided */
    uint32_t host;             /* less than hosts */
    uint64_t hosts_generation; /* of the hosts, where etcd has them (docs/cluster.md); 0:
                                  the client named its ranks */
};

/* Room for the text of every state. One of several clients of a split may need it all;
 * any other has less than 1024 bytes. */
#define STAGER_STATE_BYTES 32768

/* Writes the state of the stream: where it is after the batches that stager_next has
 * returned. The text is JSON with a NUL. Sends no request. A state loads into any
 * number of clients, with other batch sizes, threads and capacities; the pipeline and
 * the files of the pass must be the same. Under round_robin all clients have the same
 * state at the same step. Under split each of several clients has a state of what it
 * took, and stager_merge_states makes one of them. Errors:
 *   FAILED_PRECONDITION: batches depend on timing (the text has the reason), and the
 *     stream was not opened with resume "approximate"; or the stream began in the middle
 *     of a pass and has returned nothing; or slices of a staged batch are left, and
 *     several clients share a split.
 *   RESOURCE_EXHAUSTED: one of several clients of a split took its items in more ranges
 *     than a state has room for.
 *   UNAVAILABLE: stagerd ended, or was stopped, while it wrote what the state of one of
 *     several clients of a split needs.
 *   INVALID_ARGUMENT: the text needs more than `bytes`. */
int stager_state(struct stager_stream *stream, char *buf, size_t bytes);

/* Makes one state of the states of all clients of a split, of one step, in any order; it
 * loads into any number of clients. Equal states of other streams are that state. Needs
 * no daemon. Errors:
 *   FAILED_PRECONDITION: a state is missing, or they are of different steps, runs or
 *     pipelines; the text names the clients.
 *   INVALID_ARGUMENT: there are none, one is malformed, or the text needs more than
 *     `bytes`.
 *   RESOURCE_EXHAUSTED: the items that were taken do not fit. */
int stager_merge_states(const char *const *states, size_t n, char *buf, size_t bytes);

/* Commits a state of this stream under a tag, as the position that belongs to the
 * checkpoint of that name: 1 to 128 printable ASCII characters without a space. When it
 * returns 0, the commit is on disk and survives stagerd and the machine; the last 16 tags
 * are kept. Call it when the checkpoint is complete. The same tag and state again: 0.
 * After an error the same call may be repeated. Errors:
 *   ALREADY_EXISTS: the tag has another state in this attempt; the text names the
 *     difference.
 *   FAILED_PRECONDITION: a newer attempt has begun, so that this stream commits nothing
 *     more; or the pipeline has no commits (the text has the reason); or the state is of
 *     another pipeline, or of one of several clients of a split: commit the merged one.
 *   INVALID_ARGUMENT: not a state, or not a tag.
 *   RESOURCE_EXHAUSTED, PERMISSION_DENIED: state_dir is full or read-only; the text has
 *     the path and the reason. The stream goes on.
 *   NOT_FOUND: the pipeline was deleted.
 *   DEADLINE_EXCEEDED: no answer in 60 s; the commit may reach the disk later.
 *   UNAVAILABLE: the disk failed; or an earlier commit of this stream still waits for
 *     it; or stagerd is gone, and the commit may be on disk: a stream that reconnects
 *     waits for stagerd first, up to daemon_reconnect_millis. */
int stager_commit(struct stager_stream *stream, const char *state, const char *tag);

/* Connects to the daemon for requests. runtime_dir: as in stager_options. The caller
 * calls stager_disconnect. Errors: UNAVAILABLE "cannot reach stagerd at PATH: … start
 * it with …". FAILED_PRECONDITION: client and daemon have no protocol version in
 * common; the text has both ranges. */
int stager_connect(const char *runtime_dir, struct stager **ret);

/* Closes the connection. NULL is allowed. Streams that were opened with it stay open. */
void stager_disconnect(struct stager *client);

/* Opens pipeline `name` as one more consumer, on a separate socket. client: a
 * connection whose runtime_dir is used, or NULL. options: NULL means the defaults. Maps
 * the pipeline's memory read-only. Errors:
 *   NOT_FOUND: the pipeline, a field or a fetch does not exist; the text has the
 *     nearest name.
 *   RESOURCE_EXHAUSTED: num_clients clients are attached, or a place is reserved for a
 *     client that may return; or memory is short, and the text has the sum.
 *   ALREADY_EXISTS: client_id is attached; the text has its pid.
 *   INVALID_ARGUMENT: options->struct_size is not set, or a field is set that this
 *     library does not know; batch_size does not divide the pipeline's, or a tensor has
 *     no rows to slice; client_id is too long; device is not a valid name, or excludes
 *     another option.
 *   FAILED_PRECONDITION: the state is of another pipeline, or of other files, and the
 * text names the difference; or clients of the same round loaded another state; or the
 * pipeline has commits, and neither state nor resume names where to begin.
 *   NOT_FOUND: no commit has the tag of resume.
 *   INVALID_ARGUMENT: the state is truncated, edited, or of a newer release.
 *   OUT_OF_RANGE: the pass has fewer elements than the state.
 *   RESOURCE_EXHAUSTED: other clients are in the run, and would be rewound.
 *   FAILED_PRECONDITION: a client_id returns in the middle of a pass and asks for more
 *     than it had before; or a fetch needs a node that this build does not have and
 *     that stagerd may not compute instead (the text has the node and the reason).
 *   PERMISSION_DENIED.
 *   UNAVAILABLE: the daemon cannot be reached; or the device is not available (the text
 *     has what is missing; an open without `device` does not need it). */
int stager_open(struct stager *client, const char *name,
                const struct stager_options *options, struct stager_stream **ret);

/* Returns the next batch, which belongs to the caller until stager_release.
 * timeout_millis: -1 waits without limit, 0 does not wait. Without manual_ack, the call
 * acknowledges the batches taken before it. Signals do not end a wait; a program that
 * must be able to end one polls stager_pollfd. Errors:
 *   OUT_OF_RANGE: the pass is over (until stager_rewind).
 *   DEADLINE_EXCEEDED: the text says what the stream waits for (which client, file,
 *     worker or process, since when), if stagerd answers within 25 ms.
 *   FAILED_PRECONDITION, at once: max_in_flight batches are in hand; the text lists
 *     them.
 *   UNAVAILABLE: stagerd has ended, and did not start again within
 *     daemon_reconnect_millis; or the stream does not reconnect (the text has the
 *     reason). Until then the call waits, and DEADLINE_EXCEEDED says so.
 *   ABORTED: the pipeline was replaced (without `follow`) or deleted; or it was replaced,
 *     or stagerd was started again, and the run cannot go on (the text names the client
 *     that is missing).
 *   FAILED_PRECONDITION, NOT_FOUND, with `finished` set: stagerd was started again, and
 *     a newer attempt has begun, or the pipeline was deleted.
 *   With `follow`, any code of stager_open, with `finished` set: the stream cannot go on
 *     with the version that replaced its pipeline; the text has the difference.
 *   Any other code: an error item. INVALID_ARGUMENT can also mean a staged batch that
 *     cannot be split into slices. The stream continues after either, unless
 *     stager_stream_info has `finished` set.
 * With batch_size, the slices of a staged batch come in order. Each slice is released
 * separately; the staged batch returns to the daemon with its last slice. max_in_flight
 * counts staged batches. */
int stager_next(struct stager_stream *stream, int64_t timeout_millis,
                struct stager_batch **ret);

/* Returns the tensor of the feature `name`. Errors: NOT_FOUND: no such tensor; the text
 * lists those of the batch. FAILED_PRECONDITION: the `fields` of the stream leave it
 * out. DATA_LOSS: the batch is damaged; the first access to a batch checks it. */
int stager_batch_tensor(const struct stager_batch *batch, const char *name,
                        struct stager_tensor *ret);

/* Returns tensor i, in the order of `features`; with `fields`, i counts only these.
 * Errors: OUT_OF_RANGE: i is past the last tensor; otherwise as stager_batch_tensor. */
int stager_batch_tensor_at(const struct stager_batch *batch, uint32_t i,
                           struct stager_tensor *ret);

/* Return the parts of the sparse or ragged feature at `path`, and check them:
 * row_splits begin with 0, never decrease, and end with the number of rows of values;
 * indices lie inside dense_shape. "" is the path of a feature that is all of
 * `features`. Errors:
 *   NOT_FOUND: no feature of that kind at the path.
 *   DATA_LOSS: as for stager_batch_tensor, or the check failed. */
int stager_batch_sparse(const struct stager_batch *batch, const char *path,
                        struct stager_sparse *ret);
int stager_batch_ragged(const struct stager_batch *batch, const char *path,
                        struct stager_ragged *ret);

/* Returns the coordinates of the batch. For a damaged batch, only number, bytes,
 * assigned_ns, redelivered, slice and n_slices are known; the other fields are 0.
 * Errors: INVALID_ARGUMENT: ret->struct_size is not set. */
int stager_batch_info(const struct stager_batch *batch, struct stager_batch_info *ret);

/* Releases the batch. The daemon may reuse its memory at once: all views of the batch
 * are invalid. Batches may be released in any order. NULL is allowed. On a device, work
 * that was enqueued on device_stream before the call may still read the tensors, and
 * write to them. */
void stager_release(struct stager_batch *batch);

/* Releases the batch like stager_release, but after the work that was enqueued on another
 * stream of the device (a cudaStream_t; NULL: the default stream). Without a device, the
 * same as stager_release. */
void stager_release_after(struct stager_batch *batch, void *device_stream);

/* Order work after the arrival of a batch on the device. With a device, stager_next
 * returns before the copy is complete. Work enqueued on device_stream after stager_next
 * sees the batch. For other work, stager_batch_wait makes `device_stream` wait (the
 * host does not), and stager_batch_event returns the cudaEvent_t that completes with
 * the copy. The event is valid until the batch is released. Errors:
 * FAILED_PRECONDITION: the stream has no device, or the batch was released. Otherwise
 * an error of the device. */
int stager_batch_wait(const struct stager_batch *batch, void *device_stream);
int stager_batch_event(const struct stager_batch *batch, void **ret);

/* Requests the next pass. FAILED_PRECONDITION: the current pass is not over. */
int stager_rewind(struct stager_stream *stream);

/* Runs the compute subgraph on a batch. fetches: node names ("rows", "rows:0",
 * "staged:ids"). ret: n_fetches views, owned by the stream and valid until its next
 * stager_run or stager_close; a fetch that is a boundary tensor is valid until
 * stager_release. With smart_stage, the call takes what stagerd computed ahead from the
 * batch; the results are the same. Loads libstager-compute.so, unless stager_open
 * loaded it. Errors:
 *   NOT_FOUND: no such node.
 *   FAILED_PRECONDITION: a fetch needs a feature that is neither in `fields` nor needed
 *     by `fetches`; the text has its name.
 *   UNIMPLEMENTED: a fetch needs an op that this build does not have, and is not in
 *     `fetches`.
 *   UNAVAILABLE: the library is missing; the text has the path.
 *   Otherwise the error of an op. */
int stager_run(struct stager_stream *stream, struct stager_batch *batch,
               const char *const *fetches, size_t n_fetches, struct stager_tensor *ret);

/* Runs the compute subgraph like stager_run, with `feeds` in place of tensors of the
 * graph. A feed has the name of a node ("rates", "columns:2", "staged:ids") or of a
 * component of the dataset's element, and dtype, shape, data, data_bytes and, for
 * strings, offsets. Nodes that only a fed tensor needs do not run, and need no inputs:
 * a feed can replace a placeholder or a node before the boundary. The memory of a feed
 * must stay valid until the call returns; if a fetch is a feed, as long as its view is in
 * use. batch may be NULL if the fetches need no other boundary tensor. Errors, in
 * addition to those of stager_run:
 *   INVALID_ARGUMENT: the dtype or shape of a feed differs from the graph, a feed names
 *     a variable, or a tensor is fed twice.
 *   FAILED_PRECONDITION: a fetch needs a tensor that is neither fed nor available; the
 *     text has its name. */
int stager_run_fed(struct stager_stream *stream, struct stager_batch *batch,
                   const struct stager_tensor *feeds, size_t n_feeds,
                   const char *const *fetches, size_t n_fetches,
                   struct stager_tensor *ret);

/* Order work after the last stager_run on the device. With a device and compute_device,
 * the fetches that a GPU can compute (docs/ops.md) are tensors on the device. The GPU
 * computes them; if it cannot, or is slower (auto), the host computes and copies them.
 * With smart_stage_gpu and without compute_device, only fetches that forward a boundary
 * tensor are on the device. Like stager_next, stager_run returns before the results are
 * complete. Work enqueued on device_stream after stager_run sees them. Work enqueued
 * there before the next stager_run may read them. stager_run_wait and stager_run_event
 * order other work, like stager_batch_wait and stager_batch_event. The event is valid
 * until the next stager_run. At most two runs are in progress: a third waits for the
 * first. An id that is not a row of its table, or an index that is out of range, gives
 * zeros. One of the next two runs, or stager_next at the end of the pass, then returns
 * INVALID_ARGUMENT, and the text names the batch. Errors: FAILED_PRECONDITION: the last
 * stager_run left no result on a device. */
int stager_run_wait(struct stager_stream *stream, void *device_stream);
int stager_run_event(struct stager_stream *stream, void **ret);

/* Returns where the last stager_run computed the fetches that a GPU can compute, and
 * the reason: "cuda:0"; "host: compute_device is off"; "host: cuda:0 failed: …"; "host:
 * none of the fetches runs on a GPU: node columns (decode_csv) does not". With
 * auto: "measuring: turn 2 of 6, cuda:0", then "cuda:0: a step took 0.110 ms with
 * cuda:0, 0.240 ms on the host" or "host: …". These are the slowest of three turns on
 * the GPU and the fastest of three on the host. "" before the first run. Never NULL;
 * valid until the next call. */
const char *stager_run_where(struct stager_stream *stream);

/* Sets a tensor of the pipeline's feed_dict that has `client: true`, for all clients of
 * the pipeline. Reads dtype, shape, data, data_bytes and, for strings, offsets of
 * *value; at most 60 KiB. Items that stagerd pulls after its answer are made with the
 * new value. ret_feed_version (may be NULL): the first feed_version with it. Waits at
 * most 10 s. A program that polls stager_pollfd calls stager_next before it polls
 * again. Errors:
 *   INVALID_ARGUMENT: the value is too large, or its dtype or shape does not fit.
 *   NOT_FOUND: no such tensor in feed_dict.
 *   DEADLINE_EXCEEDED: no answer; the value may have been set.
 *   UNAVAILABLE: the daemon is gone.
 *   After the end of the stream: the code that ended it. */
int stager_feed(struct stager_stream *stream, const char *name,
                const struct stager_tensor *value, uint64_t *ret_feed_version);

/* Return the number of the pipeline's `targets`, and the name of target i (NULL past
 * the end). The names are fetches of stager_run. */
size_t stager_target_count(const struct stager_stream *stream);
const char *stager_target(const struct stager_stream *stream, size_t i);

/* Returns the structure of the pipeline's `features` as JSON; the leaves are tensor
 * names. Without `features`, returns "", or a mapping of all components if the dataset
 * yields ragged or sparse ones: {"ids":{"ragged":{"values":"ids/values", …}}}. */
const char *stager_structure(const struct stager_stream *stream);

/* Returns the counters of the stream. INVALID_ARGUMENT: ret->struct_size is not set. */
int stager_stream_info(const struct stager_stream *stream,
                       struct stager_stream_info *ret);

/* Returns a descriptor for poll(2), or a negative status code. Call stager_next with
 * timeout 0 until it returns DEADLINE_EXCEEDED, which arms the descriptor. Then poll it
 * for POLLIN and call stager_next again. Wake-ups may be spurious. The descriptor is one
 * of epoll(7), and stays the same when the stream reconnects; while stagerd is away it
 * wakes for each attempt. The stream owns it: do not read, write or close it. */
int stager_pollfd(struct stager_stream *stream);

/* Closes the stream and leaves the pipeline. Batches that were assigned to this stream
 * and not taken go to other clients; with `redeliver: false` they count as lost.
 * Batches in hand stay readable until they are released; the last release unmaps the
 * memory. NULL is allowed. In a child of fork(), frees the child's copies and does not
 * affect the parent's stream. */
void stager_close(struct stager_stream *stream);

/* Returns the reason for the failure of the last call on this stream. NULL: of the last
 * call of this thread that had no stream (stager_connect, stager_open). Never NULL;
 * valid until the next call. */
const char *stager_error_text(const struct stager_stream *stream);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
