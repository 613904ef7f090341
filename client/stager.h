/* SPDX-License-Identifier: Apache-2.0
 *
 * libstager: batches from stagerd, in shared memory, without a copy.
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
 * One stream, one thread, one socket: a stream and its batches belong to one thread at a
 * time; different streams are independent. The library starts no thread (but those of
 * inter_op_threads_num and intra_op_threads_num), installs no
 * signal handler, keeps no global state but the last error text of the calling thread,
 * prints nothing. A child of fork() may not use its parent's streams: every call returns
 * FAILED_PRECONDITION there.
 *
 * Every function that can fail returns 0 or a negative status code; outputs come last and
 * are untouched on failure; stager_error_text says why in words.
 *
 * A struct that later releases may extend begins with struct_size. The caller sets it to
 * the size that its stager.h gives the struct, and all other fields to zero:
 *
 *     struct stager_options options = {.struct_size = sizeof(options)};
 *
 * The library reads and writes no byte behind struct_size. A field that an older caller
 * does not know has its default. See docs/compatibility.md.
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
/* Canonical status codes, with their usual numbers. Functions return 0 or the negative.
 */
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

/* The name of a code, "OUT_OF_RANGE" for 11 and for -11. Never NULL. Any thread. */
const char *stager_status_name(int code);

/* The name of a dtype, "float32". Never NULL. Any thread. */
const char *stager_dtype_name(int dtype);

/* The release of this library, such as "0.2.0". Any thread. */
const char *stager_version(void);

struct stager;        /* a connection for requests */
struct stager_stream; /* one consumer of one pipeline */
struct stager_batch;  /* a batch in hand: a lease on shared memory */

/* What a GPU is, and what of it stager can use. */
struct stager_gpu_info {
    size_t struct_size;    /* set by the caller */
    char name[64];         /* "NVIDIA H200" */
    int32_t major, minor;  /* compute capability */
    uint64_t memory_bytes; /* all of it */
    int32_t driver;        /* the newest CUDA that the driver knows: 13000 is 13.0 */
    int32_t runtime;       /* the CUDA that libstager-cuda.so was built with */
    uint32_t n_devices;
    uint32_t register_read_only; /* 1: batches are copied from where they lie; 0: by way
                                    of a page-locked buffer */
    uint32_t ipc;                /* 1: processes can share its memory */
    uint32_t memory_fds;         /* 1: memory can be passed on as a descriptor */
    uint32_t mps;                /* 1: this process shares it through MPS */
    uint32_t reserved0;
};

/* GPU `device` of this process, from 0. Loads libstager-cuda.so, which stays. Errors:
 * UNAVAILABLE says what is not there (the library, the driver, a device);
 * INVALID_ARGUMENT: no device of that number, or ret->struct_size is not set. Any thread.
 */
int stager_gpu(int device, struct stager_gpu_info *ret);

/* How to open a stream. Zero means the default, but for struct_size. */
struct stager_options {
    size_t struct_size;    /* sizeof(struct stager_options) */
    const char *client_id; /* name of this consumer in status; default "PROGRAM-PID". One
                              that is given (at most 127 bytes) is a place to come back
                              to: a client that left in the middle of a pass continues
                              there within reconnect_grace_millis */
    const char *runtime_dir; /* default: environment STAGER_RUNTIME_DIR, else /run/stager,
                                else $XDG_RUNTIME_DIR/stager */
    uint32_t
        max_in_flight;    /* batches at once, in hand or ready: default 2, at most 256 */
    uint32_t private_run; /* 1: a run of one's own from the start, as `stagerctl cat` */
    uint32_t
        manual_ack;   /* 1: only stager_release acknowledges a batch, not the next call */
    uint32_t spin_ns; /* look this long at an empty ring before sleeping; default 0 */
    uint32_t batch_size; /* rows of a batch: staged ones come in slices of so many; 0: as
                            they are staged */
    uint32_t copy_on_write; /* 1: the trainer may write to its batches. A page that is
                               written is then its own until the batch is released;
                               private to this client */
    const char *device;     /* "cuda" or "cuda:N": where tensors are wanted; NULL: in the
                               memory of the host. Goes neither with batch_size nor with
                               copy_on_write. On a pipeline whose `gpu` is the same device
                               nothing is copied: tensors are those that all trainers on
                               it read, and may not be written to */
    void *device_stream;    /* cudaStream_t on which the trainer works; NULL: the device's
                               default stream */
    uint32_t device_capacity; /* batches that are copied ahead, and held in addition to
                                 max_in_flight: default 2, at most 64 */
    /* Threads that stager_run uses, the caller's among them: so many nodes that do not
     * wait for one another run at once, and the rows of large tensors in so many parts.
     * 0 and 1: the caller's alone; at most 64. The bytes that come out are the same. The
     * others are started by the first stager_run, take no signals, and end with the
     * stream. */
    uint32_t inter_op_threads_num;
    /* What of the pipeline this consumer uses, so that stagerd makes and sends no more
     * than its clients use together. Not NULL: the features that it reads from batches
     * ("label"; "user" for all below it), n_fields of them; NULL: all. Others are then
     * not there. */
    const char *const *fields;
    /* Not NULL: what it fetches by stager_run, n_fetches of them, perhaps none; NULL: the
     * pipeline's targets. With smart_stage, stagerd computes ahead what they depend on.
     */
    const char *const *fetches;
    uint32_t n_fields, n_fetches;
    uint32_t intra_op_threads_num; /* as inter_op_threads_num */
    uint32_t reserved0;
};

/* What a tensor is to its feature. A sparse feature "ids" is three tensors in a row,
 * "ids/values", "ids/indices", "ids/dense_shape"; a ragged one is two, "ids/values",
 * "ids/row_splits"; every other tensor is VALUES. */
enum stager_part {
    STAGER_PART_VALUES = 0,
    STAGER_PART_ROW_SPLITS = 1,  /* int64 [rows + 1] */
    STAGER_PART_INDICES = 2,     /* int64 [values, rank] */
    STAGER_PART_DENSE_SHAPE = 3, /* int64 [rank] */
};

/* A view of one tensor, row-major. It stays as it is, since arrays of it are passed. All
 * pointers point into the batch (or, from
 * stager_run, into the stream) and are read-only, but for data with copy_on_write; valid
 * until stager_release (or the next stager_run). */
struct stager_tensor {
    const char *name;
    int32_t dtype; /* enum stager_dtype */
    int32_t ndim;
    int64_t shape[8];
    const void *data; /* elements, aligned to 64 (in a slice: to the element); for strings
                         all bytes one after another */
    uint64_t data_bytes;    /* of data; of a slice's strings, of all the staged batch's */
    const int64_t *offsets; /* strings only: string i is data[offsets[i]] ..
                               data[offsets[i + 1]]; in a slice the first is not 0 */
    uint32_t part;          /* enum stager_part */
    uint32_t device;        /* 0: data is the host's; else the memory of device number
                               device - 1. Strings are always the host's */
};

/* The parts of a sparse feature: values [n], indices [n, rank], dense_shape [rank]. */
struct stager_sparse {
    struct stager_tensor values, indices, dense_shape;
};

/* The parts of a ragged feature: row r is values[row_splits[r]] to before
 * values[row_splits[r + 1]], along the first dimension of values. */
struct stager_ragged {
    struct stager_tensor values, row_splits;
};

/* The coordinates of a batch (docs/delivery.md). n_rows is that of a slice; the other
 * fields up to redelivered are those of the staged batch. */
struct stager_batch_info {
    size_t struct_size;  /* set by the caller */
    uint64_t generation; /* of the pipeline: counts changes of its content */
    uint64_t number;     /* position in the stage's output within the run */
    uint64_t pass;       /* run of the dataset from its start */
    uint64_t epoch;      /* iteration of the outermost repeat, of the first row */
    uint64_t index;      /* position in the epoch */
    uint64_t n_dropped;  /* items dropped before this one */
    uint64_t n_rows;
    uint64_t bytes;       /* of shared memory */
    uint64_t assigned_ns; /* CLOCK_MONOTONIC, when the daemon gave it to this client */
    uint32_t n_tensors;
    uint32_t redelivered;  /* 1: another client had it before and went away */
    uint32_t slice;        /* which slice of the staged batch this is, from 0 */
    uint32_t n_slices;     /* 1: the staged batch as it is */
    uint64_t feed_version; /* of stager_feed: with which values it was made */
    uint64_t run_id; /* of a pipeline that was applied, replaced or loaded by a daemon's
                        start, and of each private run: another one */
};

/* Counters of a stream, since it was opened. */
struct stager_stream_info {
    size_t struct_size; /* set by the caller */
    uint64_t batches;   /* that stager_next gave, slices each */
    uint64_t
        errors; /* error items: stager_next said their code, and the stream goes on */
    uint64_t wait_ns; /* time asleep in stager_next */
    uint64_t sleeps;  /* how often it slept */
    uint32_t held;    /* staged batches in hand, whole or in slices, or on a device */
    uint32_t max_in_flight; /* as granted */
    uint32_t at_end;        /* 1: the pass is over, until stager_rewind */
    uint32_t finished;      /* 1: nothing follows any more; stager_next says why */
    uint32_t unwatched;     /* 1: stagerd cannot watch this process, only its socket */
    uint32_t reserved0;
    uint64_t end_pass;      /* at_end: the pass that is over, as in stager_batch_info */
    uint64_t device_bytes;  /* copied to the device by this stream itself */
    uint64_t device_shared; /* batches that were there already, for all trainers */
    /* What stagerd dropped of the pipeline (on_timeout: drop) since the stream was
     * opened, whichever client it was for. */
    uint64_t dropped_batches; /* staged batches that no client took in timeout_millis */
    uint64_t dropped_rows;    /* in those batches */
};

/* Connects to the daemon in runtime_dir (NULL: as stager_options.runtime_dir) for
 * requests. Errors: UNAVAILABLE "cannot reach stagerd at PATH: … start it with …";
 * FAILED_PRECONDITION when the protocol versions do not meet (both ranges named). The
 * caller calls stager_disconnect. */
int stager_connect(const char *runtime_dir, struct stager **ret);

/* Closes the connection. NULL is allowed. Streams opened by way of it live on. */
void stager_disconnect(struct stager *client);

/* Opens pipeline `name` as one more consumer, on a socket of its own. client: a
 * connection whose runtime_dir is used, or NULL. options: NULL for defaults. Maps the
 * pipeline's memory read-only. Errors: NOT_FOUND (no such pipeline, names near ones),
 * RESOURCE_EXHAUSTED (num_clients are attached, or a place is kept for one that may come
 * back; or memory, with the arithmetic), ALREADY_EXISTS (client_id is attached: its pid),
 * INVALID_ARGUMENT (options->struct_size is not set, or a field behind those that this
 * library knows is; batch_size does not divide the pipeline's, or a tensor has no rows to
 * cut; client_id is too long; device is no such name, or does not go with another
 * option), PERMISSION_DENIED, UNAVAILABLE (also: no such device here, says what is
 * missing; without `device` all goes on); NOT_FOUND also for a field or a fetch that the
 * pipeline has not (names the nearest), FAILED_PRECONDITION for a client_id that comes
 * back in the middle and wants more than it had, and for a fetch that needs a node which
 * this build lacks and stagerd may not compute instead (names it, and why). */
int stager_open(struct stager *client, const char *name,
                const struct stager_options *options, struct stager_stream **ret);

/* The next batch. timeout_millis: -1 for ever, 0 do not wait. The batch is the caller's
 * until stager_release. Unless manual_ack was asked for, the call says that what was
 * taken before is done with. Signals do not end a wait; a program that must end one
 * polls stager_pollfd. Errors: OUT_OF_RANGE at the end of the pass (and until
 * stager_rewind); DEADLINE_EXCEEDED, whose text says what the stream waits for (which
 * client, file, worker or process, since when), as far as stagerd tells within 25 ms;
 * FAILED_PRECONDITION at once when max_in_flight batches are in hand (says which);
 * UNAVAILABLE when the daemon is gone; ABORTED when the pipeline was replaced or deleted;
 * an error item's own code, or INVALID_ARGUMENT for a staged batch that cannot be sliced
 * into slices, after which the stream goes on (stager_stream_info says whether it does).
 * With batch_size the slices of a staged batch come in order; each is released by itself,
 * and the staged batch goes back with its last one. max_in_flight counts staged batches.
 */
int stager_next(struct stager_stream *stream, int64_t timeout_millis,
                struct stager_batch **ret);

/* The tensor of that feature. NOT_FOUND names what is there; FAILED_PRECONDITION: the
 * stream was opened with `fields` that leave it out; DATA_LOSS when the batch is damaged,
 * which the first look at it finds out. */
int stager_batch_tensor(const struct stager_batch *batch, const char *name,
                        struct stager_tensor *ret);

/* Tensor i, in the order of `features` (with `fields`, of those). OUT_OF_RANGE past the
 * last one, else as above. */
int stager_batch_tensor_at(const struct stager_batch *batch, uint32_t i,
                           struct stager_tensor *ret);

/* The parts of the sparse or ragged feature at that path ("" when it is all of
 * `features`), checked: row_splits begin with 0, never fall, and end with the rows of
 * values; indices lie inside of dense_shape. NOT_FOUND: no feature of that kind there.
 * DATA_LOSS: as stager_batch_tensor, or parts that do not fit. */
int stager_batch_sparse(const struct stager_batch *batch, const char *path,
                        struct stager_sparse *ret);
int stager_batch_ragged(const struct stager_batch *batch, const char *path,
                        struct stager_ragged *ret);

/* What the batch says of itself. Of a damaged batch only number, bytes, assigned_ns and
 * redelivered are known; the rest is 0. INVALID_ARGUMENT: ret->struct_size is not set. */
int stager_batch_info(const struct stager_batch *batch, struct stager_batch_info *ret);

/* Gives the batch back; its memory may be reused at once, all views of it are dead. In
 * any order. NULL is allowed. On a device: work that was enqueued on device_stream before
 * may still read the tensors, and write to them. */
void stager_release(struct stager_batch *batch);

/* As that, for work on another stream of the device (a cudaStream_t; NULL: the default
 * stream). Without a device it is stager_release. */
void stager_release_after(struct stager_batch *batch, void *device_stream);

/* With a device stager_next returns before the batch is there. What is enqueued on
 * device_stream from then on sees it. For work elsewhere: `wait` has another stream wait
 * (the host does not), `event` gives the cudaEvent_t that is reached when the batch is
 * there; it lives until the batch is released. FAILED_PRECONDITION: the stream has no
 * device, or the batch was released; else what the device says. */
int stager_batch_wait(const struct stager_batch *batch, void *device_stream);
int stager_batch_event(const struct stager_batch *batch, void **ret);

/* Asks for the next pass after the end. FAILED_PRECONDITION before the end. */
int stager_rewind(struct stager_stream *stream);

/* Runs the compute subgraph on a batch: fetches are node names ("rows", "rows:0",
 * "staged:ids"). ret: n_fetches views, owned by the stream, valid until its next
 * stager_run or stager_close (a fetch that is a boundary tensor: until stager_release).
 * What stagerd computed ahead is taken from the batch (smart_stage): results are the
 * same. Loads libstager-compute.so, unless the open did. Errors: NOT_FOUND (no such
 * node), FAILED_PRECONDITION (it needs a feature that neither `fields` nor `fetches`
 * asked for: names it), UNIMPLEMENTED (it needs an op that this build does not have, and
 * `fetches` did not ask for it), UNAVAILABLE (library not found, says where), the op's.
 */
int stager_run(struct stager_stream *stream, struct stager_batch *batch,
               const char *const *fetches, size_t n_fetches, struct stager_tensor *ret);

/* As stager_run, and tensors of the graph are what `feeds` says: each has the name of a
 * node ("rates", "columns:2", "staged:ids") or of a component of the dataset's element,
 * and dtype, shape, data, data_bytes and, of strings, offsets. What would have made it
 * does not run, and is not missed: a placeholder, a node before the boundary. They are
 * read until the call returns, and of a fetch that is a feed as long as that is looked
 * at. batch may be NULL where the fetches need no other tensor of the boundary. Errors
 * also: INVALID_ARGUMENT (not the dtype or shape that the tensor has in the graph; a
 * variable; fed twice), FAILED_PRECONDITION (something is needed that is neither fed nor
 * here: names it). */
int stager_run_fed(struct stager_stream *stream, struct stager_batch *batch,
                   const struct stager_tensor *feeds, size_t n_feeds,
                   const char *const *fetches, size_t n_fetches,
                   struct stager_tensor *ret);

/* With a device, and compute_device in the pipeline, fetches that need no more of the
 * graph than a GPU can do (docs/ops.md) come as tensors of the device, computed there;
 * where it cannot, or is slower (auto), computed here and copied. With smart_stage_gpu
 * alone those that only hand on a tensor of the boundary do. stager_run returns
 * before they are there, as stager_next does: what is enqueued on device_stream from then
 * on sees them, and what was enqueued there before the next stager_run may read them;
 * work elsewhere is ordered by `wait` and `event`, as stager_batch_wait and
 * stager_batch_event do for a batch, until the next stager_run. No more than two runs are
 * under way: the third waits for the first. An id that is no row of its table gives
 * zeros, and the error comes from one of the next two runs, at the end of a pass from
 * stager_next: INVALID_ARGUMENT names the batch. Fails with FAILED_PRECONDITION when the
 * last stager_run gave nothing on a device. */
int stager_run_wait(struct stager_stream *stream, void *device_stream);
int stager_run_event(struct stager_stream *stream, void **ret);

/* Where the last stager_run computed what a GPU can do, and why there, in words:
 * "cuda:0"; "host: compute_device is off"; "host: cuda:0 failed: …"; with auto
 * "measuring: turn 2 of 6, cuda:0", then "cuda:0: a step took 0.110 ms with cuda:0, 0.240
 * ms on the host" (of three turns each, its slowest and the host's fastest) or "host: …".
 * "" before the first run. Never NULL; valid until the next call. */
const char *stager_run_where(struct stager_stream *stream);

/* Sets a tensor of the pipeline's feed_dict that says `client: true`, for all its
 * clients: dtype, shape, data, data_bytes and, of strings, offsets of *value are read, at
 * most 60 KiB. Items that were not pulled when the daemon answers are made with it;
 * ret_feed_version (may be NULL): the first feed_version that says so. Waits at most 10
 * s. A program that polls stager_pollfd calls stager_next before it polls again.
 * Errors: INVALID_ARGUMENT (too large, or not what the pipeline has there), NOT_FOUND (no
 * such tensor in feed_dict), DEADLINE_EXCEEDED (may have been set all the same),
 * UNAVAILABLE; of a stream that is over, why it is. */
int stager_feed(struct stager_stream *stream, const char *name,
                const struct stager_tensor *value, uint64_t *ret_feed_version);

/* The pipeline's `targets`: how many, and name i (NULL past the end), for use as fetches.
 */
size_t stager_target_count(const struct stager_stream *stream);
const char *stager_target(const struct stager_stream *stream, size_t i);

/* The shape of `features` as given in the pipeline, as JSON whose leaves are tensor
 * names. Without `features` "", or, where the dataset yields ragged or sparse components,
 * a mapping of all components: {"ids":{"ragged":{"values":"ids/values", …}}}. */
const char *stager_structure(const struct stager_stream *stream);

/* Counters. INVALID_ARGUMENT: ret->struct_size is not set. */
int stager_stream_info(const struct stager_stream *stream,
                       struct stager_stream_info *ret);

/* A descriptor for poll(2): call stager_next with timeout 0 until DEADLINE_EXCEEDED,
 * which arms it, then poll it for POLLIN, then call stager_next again. A wake-up may turn
 * out to be for nothing. Owned by the stream: never read, written or closed. Negative
 * status code on failure. */
int stager_pollfd(struct stager_stream *stream);

/* Leaves the pipeline; what was assigned to this stream and not taken goes to others
 * (with `redeliver: false` it is counted as lost).
 * Batches in hand stay readable until each is released: the mapping goes with the last
 * one. NULL is allowed. In a child of fork it gives back the child's copies and leaves
 * the parent's stream alone. */
void stager_close(struct stager_stream *stream);

/* Why the last call on this stream failed; with NULL: why the last call of this thread
 * that made none (connect, open) failed. Never NULL; valid until the next call. */
const char *stager_error_text(const struct stager_stream *stream);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
