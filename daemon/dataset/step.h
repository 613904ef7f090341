/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to daemon/dataset: the interface of a transformation, and of its running form,
 * an iterator. An iterator owns its input. Blocks move from input to output. The receiver
 * is the only owner of a block, and may change its shapes and epoch before it emits it.
 */
#ifndef STG_DAEMON_STEP_H
#define STG_DAEMON_STEP_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/trace.h"
#include "daemon/dataset/activity.h"
#include "daemon/dataset/dataset.h"
#include "daemon/dataset/position.h"
#include "daemon/storage/ahead.h"
#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

/* Blocks of scalars hold at most this many records. */
#define STG_BLOCK_MAX_RECORDS 65536

struct stg_iter;

/* What an iteration of an indexable iterator has in all. */
struct stg_extent {
    uint64_t n;     /* records, of which an error is one */
    uint64_t bytes; /* about so many bytes of files are read for them; 0: no files */
    /* The records that a file keeps together (a row group, a record batch) are best read
     * together: the number of records up to the end of each. NULL: there are none.
     * Borrowed of the iterator that was counted, until it is counted again. */
    const uint64_t *ends;
    uint64_t n_ends;
};

struct stg_iter_impl {
    /* Returns 0 and a block of 1 to `want` (at least 1) records, or an error block.
     * Returns 1 at the end, also when called again. After a negative code the caller may
     * only call destroy. The records, and the positions of errors among them, do not
     * depend on `want`. */
    int (*next)(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                struct stg_err *err);
    /* Goes back to the start, and rewinds the input: for another iteration; or afresh,
     * for the first one again, with the same random keys. */
    int (*rewind)(struct stg_iter *iter, bool afresh, struct stg_err *err);
    /* Frees the iterator and what it owns, except the inputs. */
    void (*destroy)(struct stg_iter *iter);
    /* Moves forward as if n records, of which an error is one, had been produced and
     * dropped. *ret: how many there were, less than n only at the end. The records that
     * follow are bit for bit those that follow after as many calls of next. Where it can,
     * it produces none of those n; it must not produce any while the dataset has a goal.
     * NULL: it produces them (stg_iter_replay). See stg_iter_is_clean. */
    int (*skip)(struct stg_iter *iter, uint64_t n, uint64_t *ret, struct stg_err *err);
    /* Returns whether the number of records that follow in this iteration is known
     * without producing any. Sets *ret to it if it is less than `most`, else to `most` or
     * more. Asked only where stg_iter_is_clean, unless left_has_errors. NULL: unknown. */
    bool (*left)(struct stg_iter *iter, uint64_t most, uint64_t *ret);
    bool left_has_errors; /* each error that follows is one of them */
    /* One record comes out for each that is taken, in order, also for an error. Needs
     * skip. */
    bool is_one_to_one;
    /* Of a batching step: reports the position after each record that it yields from now
     * on (stg_position_push), and follows the goal of the dataset in skip. Returns
     * whether it can. NULL: it cannot. */
    bool (*tell_positions)(struct stg_iter *iter);
    /* Of an indexable iterator: counts the records of this iteration, wherever it stands.
     * The result is a function of the data and the steps alone. From then on only count,
     * seek, next, rewind and destroy may be called, and seek before next. NULL: the
     * iterator is not indexable (struct stg_transformation, is_indexable). */
    int (*count)(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err);
    /* Moves to the record of that number of this iteration, from 0 to less than count
     * found, forwards or backwards: next yields the records from there on, in the order
     * of the input. Every error takes the number of a record. What it yields
     * behind the last record is of no use. NULL if count is. */
    int (*seek)(struct stg_iter *iter, uint64_t n, struct stg_err *err);
    /* From now on a block may have records of different lengths: uneven tensors
     * (core/batch.h). NULL: a block ends where the shape of the records changes. */
    void (*allow_uneven)(struct stg_iter *iter);
};

/* The first member of an implementation's struct, which is malloc'ed. */
struct stg_iter {
    const struct stg_iter_impl *impl;
    struct stg_iter *input;   /* NULL: a source; of several, the first */
    struct stg_iter *sibling; /* the next input of the same iterator, or NULL */
    struct stg_dataset *dataset;
    const struct stg_step *step;
    const struct stg_schema *schema; /* of what it yields */
    uint64_t pass;  /* keys what is random in it: that of the dataset, unless a cache
                       behind it outlives the pass: 0 */
    uint32_t depth; /* 1: a source; else one more than the deepest of its inputs */
    bool varies;    /* an iteration may have another number of records than the next */
    bool nests;     /* an iteration has several ones of an input, or of several inputs */
    struct stg_trace_label label;
};

/* One of the inputs of a step that has several. */
struct stg_input {
    const char *name; /* of the branch; NULL: the steps before this one */
    const struct stg_schema *schema;
    const struct stg_step *unindexed; /* why it is not indexable; NULL: it is */
    struct stg_iter *iter;            /* NULL if only schemas are needed */
};

struct stg_transformation {
    const char *name;
    /* Returns the schema that the step yields for `in` (NULL: it is the first step).
     * Checks everything that can be checked without I/O. */
    int (*infer)(const struct stg_step *step, const struct stg_schema *in,
                 struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err);
    /* Creates the iterator. `input` is NULL for a source; of several inputs it is the
     * first, and the others are its siblings. On success the iterator owns it; on
     * failure, the caller. *ret may be `input` itself if the two fuse. */
    int (*create)(struct stg_dataset *dataset, const struct stg_step *step,
                  const struct stg_schema *schema, struct stg_iter *input,
                  struct stg_iter **ret, struct stg_err *err);
    /* Replaces infer for a step with several inputs. The inputs are, in order: the steps
     * before it, if any; the branches of its attribute `from`, at least one; the branch
     * that the attribute called last_input names. */
    int (*infer_many)(const struct stg_step *step, const struct stg_input *in, size_t n,
                      struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err);
    const char *last_input; /* NULL: none */
    bool is_single;         /* a pipeline has one such step at most */
    bool passes_codes;      /* its iterator takes and yields coded tensors */
    bool takes_all; /* its result depends on components that no text names (projection) */
    /* Its iterator has count and seek, which need those of all its inputs. */
    bool is_indexable;
    /* Returns whether its options are such that it has not. NULL: never. */
    bool (*is_unindexed)(const struct stg_step *step);
    /* Returns whether the step calls count and seek of its input. NULL: no. */
    bool (*needs_index)(const struct stg_step *step);
};

extern const struct stg_transformation stg_files;
extern const struct stg_transformation stg_text_line;
extern const struct stg_transformation stg_tfrecord;
extern const struct stg_transformation stg_fixed_length_record;
extern const struct stg_transformation stg_csv;
extern const struct stg_transformation stg_jsonl;
extern const struct stg_transformation stg_read_file;
extern const struct stg_transformation stg_npy;
extern const struct stg_transformation stg_tar;
extern const struct stg_transformation stg_parquet;
extern const struct stg_transformation stg_arrow;
extern const struct stg_transformation stg_range;
extern const struct stg_transformation stg_shuffle;
extern const struct stg_transformation stg_repeat;
extern const struct stg_transformation stg_batch;
extern const struct stg_transformation stg_map;
extern const struct stg_transformation stg_filter;
extern const struct stg_transformation stg_map_and_batch;
extern const struct stg_transformation stg_padded_batch;
extern const struct stg_transformation stg_ragged_batch;
extern const struct stg_transformation stg_bucket_by_sequence_length;
extern const struct stg_transformation stg_take;
extern const struct stg_transformation stg_skip;
extern const struct stg_transformation stg_shard;
extern const struct stg_transformation stg_enumerate;
extern const struct stg_transformation stg_unbatch;
extern const struct stg_transformation stg_rebatch;
extern const struct stg_transformation stg_shuffle_and_repeat;
extern const struct stg_transformation stg_ignore_errors;
extern const struct stg_transformation stg_prefetch;
extern const struct stg_transformation stg_cache;
extern const struct stg_transformation stg_interleave;
extern const struct stg_transformation stg_parallel_interleave;
extern const struct stg_transformation stg_zip;
extern const struct stg_transformation stg_concatenate;
extern const struct stg_transformation stg_sample_from_datasets;
extern const struct stg_transformation stg_choose_from_datasets;
extern const struct stg_transformation stg_py_function;

/* All transformations (table.c). find returns the one of that name, or NULL. */
extern const struct stg_transformation *const stg_transformations[];
extern const size_t stg_n_transformations;
const struct stg_transformation *stg_transformation_find(const char *name);

struct stg_dataset {
    struct stg_dataset_env env;
    struct stg_file_user identity;
    struct stg_quota *quota;
    bool takes_codes; /* each step passes coded tensors on, and the owner takes them */
    struct stg_bump bump;  /* schemas, file names */
    uint64_t pass;         /* of the iterators that are being made */
    uint64_t vocabularies; /* hash of the content of its steps' vocabularies, in turn */
    uint32_t n_vocabularies;
    const char *vocabulary; /* the file of one of them */
    const char **files;     /* what the steps `files` found; immutable after create */
    uint32_t n_files;
    struct {
        pthread_mutex_t lock; /* guards these */
        bool are_known;
        int rc;
        uint64_t sum;
    } versions;              /* of the files, in this pass: stg_content_of_pass */
    uint64_t held_bytes;     /* of files and vocabularies, on quota until the end */
    struct stg_ahead *ahead; /* what its reader will need; NULL: unknown */
    bool has_lines;          /* a record is a line of a file */
    bool has_records;        /* a record has a number and an offset in a file */
    unsigned n_sharing;      /* readers that divide the quota's share for one reader */
    struct stg_iter *last;
    uint64_t n_items;      /* that were handed out */
    uint64_t jumped_epoch; /* of the first record that `repeat` skipped last */
    bool tells;            /* a batching step reports positions */
    struct stg_position_queue positions;
    const struct stg_position *goal; /* of a seek while it runs; NULL: none */
    uint64_t n_reached;              /* elements that the batching step found up to it */
    /* See stg_iter_is_clean: iterators whose depth is less than this. */
    _Atomic uint32_t clean_below;
    /* The least depth of an iterator that has yielded an error; 0: none has. */
    _Atomic uint32_t errors_from;
    _Atomic uint64_t n_ignored;   /* errors that ignore_errors dropped */
    struct stg_iter *divider;     /* the step `shard: auto`; NULL: there is none */
    _Atomic uint64_t n_remainder; /* records that it left out */
    int failed;                   /* negative: sticky */
    struct stg_err failure;
    struct {
        _Atomic uint64_t n_built, n_found, bytes;
        _Atomic uint64_t offset; /* in the file that is being read, or in one of them */
    } indexes;                   /* of the files that its readers read */
};

/* Sets an error whose text begins "step shuffle (line 7): …". */
int stg_step_err(const struct stg_step *step, int code, struct stg_err *err,
                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Puts the same prefix before the text that err already has. */
int stg_step_prefix(const struct stg_step *step, int code, struct stg_err *err);

int64_t stg_step_int(const struct stg_step *step, const char *name, int64_t otherwise);
bool stg_step_bool(const struct stg_step *step, const char *name, bool otherwise);

/* For infer: fail if a step without a source is first, or if a source is not first. */
int stg_step_needs_input(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_err *err);
int stg_step_is_source(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_err *err);
/* Implements infer for a step that yields its input and has a `count`. -1 means no limit;
 * the function rejects smaller values. */
int stg_step_infer_count(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_bump *bump, struct stg_schema *ret,
                         struct stg_err *err);
/* Allocates a schema of n components in bump; the caller fills them in. */
int stg_schema_create(struct stg_bump *bump, size_t n, struct stg_schema *ret,
                      struct stg_err *err);

/* Calls impl.allow_uneven, if there is one: for the create of a step that takes uneven
 * tensors of its input. pass_uneven implements it for a step that passes on the blocks of
 * its input, or parts of them. */
void stg_iter_allow_uneven(struct stg_iter *iter);
void stg_iter_pass_uneven(struct stg_iter *iter);

/* Sets *to to `from` with one more dimension, the first, of that size. */
void stg_component_prepend(struct stg_component *to, const struct stg_component *from,
                           int64_t size);

/* Traces a span of this iterator. block: what it yielded, or NULL. */
void stg_iter_trace(struct stg_iter *iter, uint64_t began_ns,
                    const struct stg_block *block);

/* Allocates a zeroed iterator of `bytes` and sets the fields of struct stg_iter. Returns
 * NULL and sets err if memory runs out. */
void *stg_iter_create(size_t bytes, const struct stg_iter_impl *impl,
                      struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      struct stg_err *err);
/* Destroys an iterator and all its inputs. NULL is allowed. */
void stg_iter_destroy(struct stg_iter *iter);
/* Implements destroy for an iterator that owns nothing else: frees it. */
void stg_iter_free(struct stg_iter *iter);

/* Notes that an iterator of that depth has yielded an error; depth 0: none has. */
void stg_dataset_met_error(struct stg_dataset *dataset, uint32_t depth);

/* Calls impl.next. Traces it as a span, and records the step as the current activity. */
static inline int stg_iter_next(struct stg_iter *iter, int64_t want,
                                struct stg_block **ret, struct stg_err *err)
{
    struct stg_activity *activity = iter->dataset->env.activity;
    uint64_t began = stg_trace_begin(iter->dataset->env.trace);
    const struct stg_step *before = NULL;
    if (activity != NULL) {
        before = atomic_load_explicit(&activity->step, memory_order_relaxed);
        atomic_store_explicit(&activity->step, iter->step, memory_order_relaxed);
    }
    int rc = iter->impl->next(iter, want, ret, err);
    if (activity != NULL)
        atomic_store_explicit(&activity->step, before, memory_order_relaxed);
    if (rc == 0 && (*ret)->error.code != 0)
        stg_dataset_met_error(iter->dataset, iter->depth);
    if (began != 0)
        stg_iter_trace(iter, began, rc == 0 ? *ret : NULL);
    return rc;
}

/* Notes how far an iterator is with work that may take seconds; total 0: unknown. */
static inline void stg_iter_progress(const struct stg_iter *iter, const char *unit,
                                     uint64_t done, uint64_t total)
{
    stg_activity_progress(iter->dataset->env.activity, iter, iter->step, unit, done,
                          total);
}

/* That work is done. stg_iter_destroy calls it, too. */
static inline void stg_iter_progressed(const struct stg_iter *iter)
{
    stg_activity_end(iter->dataset->env.activity, iter);
}

/* Moves forward by n records: calls impl.skip, or stg_iter_replay without one. */
int stg_iter_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret, struct stg_err *err);
/* The same by producing the records. For a skip that cannot do without them. */
int stg_iter_replay(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                    struct stg_err *err);
/* Returns the failure of a skip that has met an error where stg_iter_is_clean. */
int stg_iter_unexpected(const struct stg_block *error, struct stg_err *err);
/* Calls impl.left where it may be asked. */
bool stg_iter_left(struct stg_iter *iter, uint64_t most, uint64_t *ret);

/* Returns whether nothing that is skipped now is an error, nor made of one: in the run
 * that the position comes from, neither this iterator nor one that it pulls from has
 * yielded any. A step for which an error is not a record like any other (take does not
 * count it, batch lets it pass) skips its input only then. */
static inline bool stg_iter_is_clean(const struct stg_iter *iter)
{
    return iter->depth < iter->dataset->clean_below;
}

/* Returns whether neither this iterator nor one that it may pull from has yielded an
 * error in this pass, as far as it has come: stg_iter_is_clean from a position here. */
static inline bool stg_iter_was_clean(const struct stg_iter *iter)
{
    uint32_t from =
        atomic_load_explicit(&iter->dataset->errors_from, memory_order_relaxed);
    return from == 0 || iter->depth < from;
}

/* Returns whether any iterator of the dataset has yielded an error in this pass. */
static inline bool stg_iter_has_errors(const struct stg_iter *iter)
{
    return atomic_load_explicit(&iter->dataset->errors_from, memory_order_relaxed) != 0;
}

/* Call impl.count and impl.seek. */
int stg_iter_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err);
int stg_iter_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err);
/* Reduces an extent to n of its records, and the bytes likewise. */
void stg_extent_limit(struct stg_extent *extent, uint64_t n);

/* Returns a + b, and a * b, or UINT64_MAX if that is more. */
static inline uint64_t stg_count_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t stg_count_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Rewinds all inputs of an iterator. */
int stg_iter_rewind_inputs(const struct stg_iter *iter, bool afresh, struct stg_err *err);

/* Returns CANCELLED once the stage stops, else 0. */
int stg_iter_stopped(const struct stg_iter *iter, struct stg_err *err);

#endif
