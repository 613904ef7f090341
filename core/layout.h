/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch at rest, and every other struct in shared memory. This header and proto/ are
 * the only interface between daemon and client. Fixed widths, little-endian, offsets and
 * no pointers; one writer per cache line; sizes and offsets are asserted below and in
 * tests/core. Within one major version fields are only added, in reserved space.
 *
 *   object              daemon   client   seals
 *   arena segment       RW       RO       FUTURE_WRITE SHRINK GROW SEAL
 *   ring page           RW       RO       FUTURE_WRITE SHRINK GROW SEAL
 *   control page        RW, hostile RW    SHRINK GROW SEAL
 *   input of a worker   RW       RO       FUTURE_WRITE SHRINK GROW SEAL
 *   scratch of a worker RW, hostile RW    SHRINK GROW SEAL
 *   trace page          RW       RO       FUTURE_WRITE SHRINK GROW SEAL
 *
 * (The client of a trace page is `stagerctl trace`.)
 *
 * Invariants (the project uses these numbers everywhere):
 * I1  A byte of an extent is written only while FILLING; READY and LEASED are immutable.
 * I3  Nothing in client-writable memory is used as pointer, index, length, count or lock
 *     before it was copied to private memory and checked.
 * I5  The daemon maps no memory and accepts no descriptor from a client.
 */
#ifndef STG_CORE_LAYOUT_H
#define STG_CORE_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STG_LAYOUT_MAJOR 1
#define STG_LAYOUT_MINOR 1 /* 1: places of a ring page, data of a batch header */

#define STG_MAGIC_RING 0x474e4952474754ull    /* "TGGRING" */
#define STG_MAGIC_CONTROL 0x4c525443474754ull /* "TGGCTRL" */
#define STG_MAGIC_BATCH 0x48435442u           /* "BTCH" */
#define STG_MAGIC_TRACE 0x435254474754ull     /* "TGGTRC" */

#define STG_GRANULE_BYTES 65536u
#define STG_TENSOR_ALIGN 64u
#define STG_LAYOUT_MAX_DIMS 8

/* First 64 bytes of ring and control page.
 * Written by the daemon before the object is sent; version last, with release. */
struct stg_object_header {
    uint64_t magic;
    uint64_t total_bytes;
    uint64_t instance; /* random id of this run of the daemon */
    uint64_t features; /* bits; unknown ones are ignored within a major */
    uint32_t header_bytes;
    uint32_t entry_bytes;
    uint32_t n_entries;
    uint32_t reserved0;
    uint64_t reserved1;
    uint32_t reserved2;
    _Atomic uint32_t version; /* major << 16 | minor */
};
static_assert(sizeof(struct stg_object_header) == 64, "ABI");
static_assert(offsetof(struct stg_object_header, version) == 60, "ABI");

/* ---- a span: something that took time; in trace pages and control pages ---- */

enum stg_span_kind {
    STG_SPAN_READ = 1,        /* of a file: its name; number: offset; value: bytes */
    STG_SPAN_STEP = 2,        /* of the dataset: its name; value: records */
    STG_SPAN_OP = 3,          /* of the graph: its name; number: that of its run */
    STG_SPAN_MAKE = 4,        /* a runner makes an item; value: rows */
    STG_SPAN_WAIT_MEMORY = 5, /* a runner waits for an extent */
    STG_SPAN_WAIT_ROOM = 6,   /* for room in the buffer */
    STG_SPAN_WAIT_TURN = 7,   /* for an item pulled before its own */
    STG_SPAN_WAIT_PULL = 8,   /* for the dataset, which another runner has */
    STG_SPAN_WAIT_PASS = 9,   /* for a pass to begin */
    STG_SPAN_PUBLISH = 10,    /* number: of the batch; value: its KiB, rounded up */
    STG_SPAN_ASSIGN = 11,  /* an instant. number: as PUBLISH; value: the client's track */
    STG_SPAN_RELEASE = 12, /* an instant; as ASSIGN */
    STG_SPAN_NEXT = 13,    /* a client in stager_next; number: of the batch, or none */
    STG_SPAN_RUN = 14,     /* a client in stager_run; as NEXT */
    STG_SPAN_WAIT_PARKED = 15, /* parked: `auto` uses fewer runners */
    STG_SPAN_LAST = STG_SPAN_WAIT_PARKED
};

#define STG_NO_NUMBER UINT64_MAX

struct stg_trace_span {
    uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
    uint64_t number;
    uint32_t value;
    uint16_t kind;
    uint16_t name; /* in the names of the trace page; 0: none. In a control page: node i
                      of the pipeline's graph is i + 1 */
};
static_assert(sizeof(struct stg_trace_span) == 32, "ABI");

/* ---- ring page: daemon -> client ---- */

enum stg_descriptor_kind {
    STG_DESCRIPTOR_BATCH = 1, /* leased; offset and length name a batch at rest */
    STG_DESCRIPTOR_ERROR = 2, /* leased; the batch at rest is an error item */
    STG_DESCRIPTOR_END = 3,   /* not leased; the pass `number` is over for this client */
    STG_DESCRIPTOR_FINAL = 4, /* not leased; read `final`, nothing follows */
};

#define STG_DESCRIPTOR_REDELIVERED 1u
/* An error item: items before it are not assigned yet. The stream stays at its place. */
#define STG_DESCRIPTOR_CARRIED 2u

/* One cache line. The daemon fills it before `head` passes it, and does not change it
 * while the lease lives. Writers of the ring page:
 *
 *   side    calls                    changes
 *   daemon  stg_ring_place           the place of the slot at head
 *   daemon  stg_ring_begin           passes, before the first item of a pass
 *   daemon  stg_ring_push            the slot at head, then head (release)
 *   daemon  stg_ring_finish          final, then as push; nothing afterwards
 *   daemon  stg_ring_revoke          revoked (release), after stg_ring_finish
 *   daemon  stg_ring_want_doorbell   doorbell_wanted, while it waits for clients
 *   daemon  stg_ring_trace           traced, when a trace begins and ends
 *   daemon  stg_ring_drop            dropped_batches, dropped_rows
 *   daemon  stg_ring_share           sharing, which is odd in `shared` meanwhile
 *   client  stg_ring_take            nothing: its cursor is private */
struct stg_descriptor {
    uint64_t number;
    uint32_t lease;
    uint32_t lease_generation;
    uint32_t segment;
    uint32_t kind;
    uint64_t offset;
    uint64_t length;
    uint64_t assigned_ns; /* CLOCK_MONOTONIC */
    uint32_t flags;
    uint32_t device;   /* number of the device memory that has the whole batch at the same
                          offset; 0: none */
    uint64_t elements; /* of the pass, up to the end of the item. Since layout 1.1 */
};
static_assert(sizeof(struct stg_descriptor) == 64, "ABI");
static_assert(offsetof(struct stg_descriptor, offset) == 24, "ABI");
static_assert(offsetof(struct stg_descriptor, device) == 52, "ABI");

/* A place in a pass: the position of the dataset (struct stg_position), the iteration of
 * the outermost repeat, and the number in it of the item that follows, unless that is the
 * first one of another iteration. All 0: the start of the pass. */
struct stg_pass_place {
    uint64_t items;
    uint64_t elements;
    uint64_t epoch;
    uint64_t index;
    uint32_t passed;
    uint32_t errors_from; /* struct stg_position, errors; 0: no step has met one so far */
};
static_assert(sizeof(struct stg_pass_place) == 40, "ABI");

/* Returns whether a is before b, in one pass. An error may pass elements that are in no
 * item yet: then it moves only `passed`. */
static inline bool stg_place_is_before(const struct stg_pass_place *a,
                                       const struct stg_pass_place *b)
{
    return a->elements != b->elements ? a->elements < b->elements : a->passed < b->passed;
}

/* Which files a pass reads: sums over them, so that one that was added, or that has
 * another size, can be found. All 0: not known. */
struct stg_data_identity {
    uint64_t n_files; /* and vocabularies of steps, each time that one is used */
    uint64_t bytes;   /* of local files; of vocabularies none, as for names */
    uint64_t names; /* sum of hashes of their paths, below the folder of their pattern */
    uint64_t sum;   /* likewise, of path and size; and of the content of vocabularies */
};

/* Where a stream is after an item, so that its state needs no look at the batch. */
struct stg_stream_place {
    uint64_t pass;
    struct stg_pass_place place;
};
static_assert(sizeof(struct stg_stream_place) == 48, "ABI");

/* The files of a pass. */
struct stg_pass_data {
    uint64_t pass; /* plus 1; 0: not set */
    struct stg_data_identity data;
};
static_assert(sizeof(struct stg_pass_data) == 40, "ABI");

/* What the states of a consumer of a split among several clients contain besides. */
struct stg_sharing {
    uint64_t run;                /* run_id */
    uint64_t pass;               /* that the rest is of */
    uint64_t consumer;           /* its number in the pass, from 1 */
    uint64_t consumers;          /* that the pass had so far */
    uint64_t batch;              /* batch size that items are counted with; 0: none */
    uint64_t before;             /* items of the pass before; 0: this run had none */
    struct stg_pass_place start; /* where the run began in the pass */
};
static_assert(sizeof(struct stg_sharing) == 88, "ABI");

#define STG_FINAL_TEXT_BYTES 1008

/* The reason for the end of the stream; written once, before the FINAL descriptor. */
/* How its text begins if stagerd ends, and if the pipeline has another generation. */
#define STG_FINAL_STOPPED "stagerd was stopped"
#define STG_FINAL_REPLACED "replaced by generation "

struct stg_final {
    uint32_t code; /* positive status code */
    uint32_t text_bytes;
    uint64_t reserved;
    char text[STG_FINAL_TEXT_BYTES];
};
static_assert(sizeof(struct stg_final) == 1024, "ABI");

#define STG_RING_BYTES 65536u
#define STG_RING_ENTRIES 512u
#define STG_MAX_IN_FLIGHT 256u /* leases of one client at once: fewer than ring slots */

struct stg_ring_page {
    struct stg_object_header header;
    _Alignas(64) _Atomic uint64_t head; /* descriptors ever published */
    _Atomic uint32_t
        revoked; /* not 0: descriptors not yet taken are void; read `final` */
    _Alignas(64) _Atomic uint32_t
        doorbell_wanted;     /* changed: send a doorbell when the ring runs empty */
    _Atomic uint32_t traced; /* not 0: write spans to the control page */
    _Atomic uint64_t dropped_batches; /* by on_timeout: drop, since this client opened */
    _Atomic uint64_t dropped_rows;    /* in those batches */
    _Alignas(64) struct stg_final final;
    _Alignas(64) struct stg_descriptor entries[STG_RING_ENTRIES];
    /* Where the stream is after the item of the entry of the same index; under
     * round_robin after its round. Since layout 1.1. */
    struct stg_stream_place places[STG_RING_ENTRIES];
    struct stg_pass_data passes[2]; /* pass p: passes[p % 2]. Since layout 1.1 */
    /* A struct stg_sharing. Since layout 1.1. */
    _Alignas(64) _Atomic uint64_t
        shared; /* changes so far; 0: it is not set; odd: under way */
    _Atomic uint64_t sharing[sizeof(struct stg_sharing) / sizeof(uint64_t)];
};
static_assert(offsetof(struct stg_ring_page, head) == 64, "ABI");
static_assert(offsetof(struct stg_ring_page, revoked) == 72, "ABI");
static_assert(offsetof(struct stg_ring_page, doorbell_wanted) == 128, "ABI");
static_assert(offsetof(struct stg_ring_page, traced) == 132, "ABI");
static_assert(offsetof(struct stg_ring_page, dropped_batches) == 136, "ABI");
static_assert(offsetof(struct stg_ring_page, dropped_rows) == 144, "ABI");
static_assert(offsetof(struct stg_ring_page, final) == 192, "ABI");
static_assert(offsetof(struct stg_ring_page, entries) == 1216, "ABI");
static_assert(offsetof(struct stg_ring_page, places) == 33984, "ABI");
static_assert(offsetof(struct stg_ring_page, shared) == 58688, "ABI");
static_assert(offsetof(struct stg_ring_page, sharing) == 58696, "ABI");
static_assert(sizeof(struct stg_ring_page) <= STG_RING_BYTES, "ABI");

/* ---- control page: client -> daemon. The daemon treats every byte as hostile. ---- */

struct stg_release_entry {
    uint32_t lease;
    uint32_t lease_generation;
};
static_assert(sizeof(struct stg_release_entry) == 8, "ABI");

#define STG_CONTROL_BYTES 16384u
#define STG_RELEASE_ENTRIES 1024u
#define STG_CONTROL_SPANS 240u

/*   side    calls                      changes
 *   client  stg_control_release        an entry, then released (release)
 *   client  next                       asked, taken; waiting_since_ns, then waiting
 *   client  rewind                     pass_wanted
 *   client  close                      parting
 *   client  stg_control_note           a span, then noted (release), while it is traced
 *   daemon  stg_control_poll           nothing: loads once, checks, then uses */
struct stg_control_page {
    struct stg_object_header header;
    _Alignas(64) _Atomic uint64_t released; /* release entries ever posted */
    _Alignas(64) _Atomic uint64_t asked;    /* the descriptor of `next`, from 1 */
    _Atomic uint64_t taken;                 /* descriptors taken: asked, or one less */
    _Alignas(
        64) _Atomic uint32_t waiting;  /* 1: asleep or about to sleep; needs a doorbell */
    _Atomic uint32_t parting;          /* 1: it closes the stream */
    _Atomic uint64_t waiting_since_ns; /* CLOCK_MONOTONIC */
    _Alignas(64) _Atomic uint64_t
        pass_wanted; /* passes requested: 1 at open, +1 per rewind */
    _Alignas(64) struct stg_release_entry releases[STG_RELEASE_ENTRIES];
    _Alignas(
        64) _Atomic uint64_t noted; /* spans ever posted; the oldest are overwritten */
    _Alignas(64) struct stg_trace_span spans[STG_CONTROL_SPANS];
};
static_assert(offsetof(struct stg_control_page, released) == 64, "ABI");
static_assert(offsetof(struct stg_control_page, asked) == 128, "ABI");
static_assert(offsetof(struct stg_control_page, taken) == 136, "ABI");
static_assert(offsetof(struct stg_control_page, waiting) == 192, "ABI");
static_assert(offsetof(struct stg_control_page, parting) == 196, "ABI");
static_assert(offsetof(struct stg_control_page, waiting_since_ns) == 200, "ABI");
static_assert(offsetof(struct stg_control_page, pass_wanted) == 256, "ABI");
static_assert(offsetof(struct stg_control_page, releases) == 320, "ABI");
static_assert(offsetof(struct stg_control_page, noted) == 8512, "ABI");
static_assert(offsetof(struct stg_control_page, spans) == 8576, "ABI");
static_assert(sizeof(struct stg_control_page) <= STG_CONTROL_BYTES, "ABI");

/* ---- trace page: daemon -> the process that traces a pipeline ---- */

#define STG_TRACE_TRACKS 64u
#define STG_TRACE_CHUNKS 512u /* of all tracks; each has one at least */
#define STG_TRACE_CHUNK_SPANS 1024u
#define STG_TRACE_NAMES 4096u
#define STG_TRACE_TEXT_BYTES 262144u

struct stg_trace_name {
    uint32_t offset, bytes; /* in text */
};

/* The spans of one thread of the daemon, or of one client. Everything except n is written
 * before n_tracks passes it. */
struct stg_trace_track {
    _Alignas(64) _Atomic uint64_t n; /* spans ever */
    uint32_t pid, tid;               /* for a client, tid is assigned by the daemon */
    char process[64];
    char name[128]; /* of the thread, or client_id */
    /* Span i is in chunk i / STG_TRACE_CHUNK_SPANS of these. Once there are no more free
     * chunks, span i overwrites the span that is n_chunks chunks older. */
    _Atomic uint32_t n_chunks;
    uint16_t chunks[STG_TRACE_CHUNKS];
};
static_assert(sizeof(struct stg_trace_track) == 1280, "ABI");

/*   side    calls             changes
 *   daemon  stg_trace_start   all but tracks and spans; the names of the graph's nodes
 *   daemon  stg_trace_add     a name, then n_names; a track, then n_tracks; a chunk of a
 *                             track, then its n_chunks; a span, then its n (release each)
 *   daemon  stg_trace_stop    ended_ns, once; nothing afterwards
 *   client  stg_trace_read    nothing: copies, then looks whether it was written over */
struct stg_trace_page {
    struct stg_object_header header;
    char pipeline[72];
    uint64_t generation;
    uint64_t begin_ns, until_ns;
    uint32_t pid;                           /* of the daemon */
    uint32_t n_nodes;                       /* names 1 to n_nodes are those */
    _Alignas(64) _Atomic uint64_t ended_ns; /* 0: it is running */
    _Atomic uint64_t n_lost;                /* spans without a track, and invalid ones */
    _Atomic uint32_t n_tracks, n_names;     /* n_names includes 0, which means none */
    uint32_t n_chunks;                      /* that are taken */
    uint32_t text_bytes;                    /* that are taken */
    struct stg_trace_name names[STG_TRACE_NAMES];
    char text[STG_TRACE_TEXT_BYTES];
    struct stg_trace_track tracks[STG_TRACE_TRACKS];
    struct stg_trace_span spans[STG_TRACE_CHUNKS * STG_TRACE_CHUNK_SPANS];
};
static_assert(offsetof(struct stg_trace_page, pipeline) == 64, "ABI");
static_assert(offsetof(struct stg_trace_page, generation) == 136, "ABI");
static_assert(offsetof(struct stg_trace_page, ended_ns) == 192, "ABI");
static_assert(offsetof(struct stg_trace_page, n_tracks) == 208, "ABI");
static_assert(offsetof(struct stg_trace_page, names) == 224, "ABI");
static_assert(offsetof(struct stg_trace_page, tracks) % 64 == 0, "ABI");

/* ---- batch at rest: the start of an extent ----
 *   side    calls                changes
 *   daemon  stg_batch_writer_*   all of it, while the extent is FILLING (I1)
 *   client  stg_batch_check      nothing, and copies what it checks (I3) */

enum stg_batch_kind { STG_BATCH_TENSORS = 1, STG_BATCH_ERROR = 2 };

struct stg_batch_header {
    uint32_t magic;
    uint16_t major;
    uint16_t minor;
    uint32_t kind;
    uint32_t n_tensors;
    uint32_t header_bytes; /* of this struct: where the entries start */
    uint32_t entry_bytes;
    uint64_t total_bytes;
    uint64_t generation; /* of the pipeline's content */
    uint64_t number;     /* position in the stage's output within a run */
    uint64_t pass;
    uint64_t epoch;
    uint64_t index;     /* position in the epoch */
    uint64_t n_dropped; /* items dropped before this one */
    uint64_t partition;
    uint64_t feed_version;
    uint64_t random_key[2];
    uint64_t n_rows;
    uint32_t error_code; /* positive; 0 for tensors */
    uint32_t error_offset;
    uint32_t error_bytes;
    uint32_t reserved0;
    uint64_t run_id;               /* with number, unique for each batch */
    struct stg_data_identity data; /* of its pass; since layout 1.1, as what follows */
    struct stg_pass_place before;  /* the item; under round_robin: its round */
    uint64_t reserved1[5];
};
static_assert(sizeof(struct stg_batch_header) == 256, "ABI");
static_assert(offsetof(struct stg_batch_header, data) == 144, "ABI");
static_assert(offsetof(struct stg_batch_header, before) == 176, "ABI");

/* A tensor by itself is VALUES. A ragged feature is VALUES, ROW_SPLITS in a row; a sparse
 * one VALUES, INDICES, DENSE_SHAPE. */
enum stg_part {
    STG_PART_VALUES = 0,      /* dense, or of a ragged or sparse feature */
    STG_PART_ROW_SPLITS = 1,  /* int64 [rows + 1]: row r is values[splits[r]] on */
    STG_PART_INDICES = 2,     /* int64 [values, rank] */
    STG_PART_DENSE_SHAPE = 3, /* int64 [rank] */
};

struct stg_tensor_entry {
    uint32_t name_offset;
    uint32_t name_bytes; /* without the NUL that follows */
    uint32_t dtype;
    uint32_t ndim;
    uint32_t part;
    uint32_t flags;
    int64_t shape[STG_LAYOUT_MAX_DIMS];
    uint64_t data_offset;
    uint64_t data_bytes;
    uint64_t offsets_offset; /* strings: n + 1 int64, the first 0 */
    uint64_t offsets_bytes;
    uint64_t reserved;
};
static_assert(sizeof(struct stg_tensor_entry) == 128, "ABI");
static_assert(offsetof(struct stg_tensor_entry, shape) == 24, "ABI");
static_assert(offsetof(struct stg_tensor_entry, data_offset) == 88, "ABI");

/* ---- a worker: a process that runs a function of the user on batches ----
 * The daemon writes a batch at rest into the input, which the worker may only read; the
 * worker answers with one in the scratch, which the daemon treats as hostile: it copies
 * what it checks, then uses the copy. Their channel is a SEQPACKET socket pair: one job
 * at a time, and one answer to each. A batch of kind ERROR is an answer too. The process
 * that started the worker may hold the worker's end too, and reports there how it ended.
 */
#define STG_MAGIC_WORK 0x4b524f57u /* "WORK" */

/* Which memory comes with a job, in this order; it holds until the next of its kind. */
#define STG_WORK_INPUT 1u
#define STG_WORK_SCRATCH 2u

struct stg_work_job {
    uint32_t magic;
    uint32_t memory; /* bits: descriptors of the message */
    uint64_t job;
    uint64_t input_bytes; /* of the batch */
    uint64_t input_segment_bytes;
    uint64_t scratch_segment_bytes;
    uint64_t reserved[3];
};
static_assert(sizeof(struct stg_work_job) == 64, "ABI");
static_assert(offsetof(struct stg_work_job, input_bytes) == 16, "ABI");

#define STG_WORK_GIVES 0u /* the batch in the scratch */
#define STG_WORK_ENDED 1u /* no answer: the worker is dead */

struct stg_work_answer {
    uint32_t magic;
    uint32_t kind;
    uint64_t job;
    uint64_t bytes; /* of the batch */
    int32_t status; /* ENDED: of its exit, or minus the signal that killed it */
    uint32_t reserved1;
};
static_assert(sizeof(struct stg_work_answer) == 32, "ABI");
static_assert(offsetof(struct stg_work_answer, status) == 24, "ABI");

#endif
