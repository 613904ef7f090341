/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of daemon/dataset: what a transformation is, and what its running form, an
 * iterator, must do. An iterator owns its input. Blocks go from input to output; the
 * receiver owns a block alone, and may change its shapes and epoch before passing it on.
 */
#ifndef STG_DAEMON_STEP_H
#define STG_DAEMON_STEP_H

#include <stdatomic.h>

#include "core/trace.h"
#include "daemon/dataset/activity.h"
#include "daemon/dataset/dataset.h"
#include "daemon/storage/ahead.h"
#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

/* Blocks of scalars hold at most this many records. */
#define STG_BLOCK_MAX_RECORDS 65536

struct stg_iter;

struct stg_iter_impl {
    /* A block of 1 to want (at least 1) records, or an error block: 0; the end: 1, also
     * when called again; or a negative code, after which only destroy follows. Which
     * records come, and where errors stand among them, does not depend on want. */
    int (*next)(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                struct stg_err *err);
    /* Back to the start, for one more iteration; the input first. */
    int (*rewind)(struct stg_iter *iter, struct stg_err *err);
    /* Frees what is its own, and itself; not the inputs. */
    void (*destroy)(struct stg_iter *iter);
};

/* An implementation's struct begins with it; malloc'ed. */
struct stg_iter {
    const struct stg_iter_impl *impl;
    struct stg_iter *input;   /* NULL: a source; of several, the first */
    struct stg_iter *sibling; /* the next input of the same iterator, or NULL */
    struct stg_dataset *dataset;
    const struct stg_step *step;
    const struct stg_schema *schema; /* of what it yields */
    struct stg_trace_label label;
};

/* One of the inputs of a step that has several. */
struct stg_input {
    const char *name; /* of the branch; NULL: what stands before the step */
    const struct stg_schema *schema;
    struct stg_iter *iter; /* NULL while nothing but schemas is asked for */
};

struct stg_transformation {
    const char *name;
    /* What the step yields for `in` (NULL: it is the first step). Checks everything that
     * can be checked without IO. */
    int (*infer)(const struct stg_step *step, const struct stg_schema *in,
                 struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err);
    /* The running form. `input` (NULL for a source; of several the first, the others are
     * its siblings) belongs to it on success and to the caller on failure; *ret may be
     * input itself when the two fuse. */
    int (*create)(struct stg_dataset *dataset, const struct stg_step *step,
                  const struct stg_schema *schema, struct stg_iter *input,
                  struct stg_iter **ret, struct stg_err *err);
    /* A step with several inputs has this instead of infer. They are what stands before
     * it, if anything does, then the branches of its attribute `from`: at least one; then
     * the one that its attribute last_input names. */
    int (*infer_many)(const struct stg_step *step, const struct stg_input *in, size_t n,
                      struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err);
    const char *last_input; /* NULL: none */
    bool is_single;         /* a pipeline has one such step at most */
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

/* All of them (table.c), and the one of that name or NULL. */
extern const struct stg_transformation *const stg_transformations[];
extern const size_t stg_n_transformations;
const struct stg_transformation *stg_transformation_find(const char *name);

struct stg_dataset {
    struct stg_dataset_env env;
    struct stg_file_user identity;
    struct stg_quota *quota;
    struct stg_bump bump;  /* schemas, file names */
    uint64_t fingerprint;  /* of the pipeline */
    uint64_t vocabularies; /* of what is in those of its steps */
    const char **files;    /* what the steps `files` found; immutable after create */
    uint32_t n_files;
    uint64_t held_bytes;     /* counted on quota to the end: files, vocabularies */
    struct stg_ahead *ahead; /* what its reader will need; NULL: nothing is known */
    bool has_lines;          /* a record is a line of a file */
    bool has_records;        /* or has a number and an offset in one */
    unsigned n_sharing;      /* that of the quota which one reader alone would take */
    struct stg_iter *last;
    _Atomic uint64_t n_ignored; /* errors that ignore_errors left out */
    int failed;                 /* negative: sticky */
    struct stg_err failure;
};

/* "step shuffle (line 7): …". */
int stg_step_err(const struct stg_step *step, int code, struct stg_err *err,
                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same before a text that is there. */
int stg_step_prefix(const struct stg_step *step, int code, struct stg_err *err);

int64_t stg_step_int(const struct stg_step *step, const char *name, int64_t otherwise);
bool stg_step_bool(const struct stg_step *step, const char *name, bool otherwise);

/* For infer: refuses a first step that is none, and a source that is not the first. */
int stg_step_needs_input(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_err *err);
int stg_step_is_source(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_err *err);
/* The infer of a step that yields what comes in, with a `count`: -1 is no limit, less is
 * refused. */
int stg_step_infer_count(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_bump *bump, struct stg_schema *ret,
                         struct stg_err *err);
/* A schema of n components in bump; the caller fills them in. */
int stg_schema_create(struct stg_bump *bump, size_t n, struct stg_schema *ret,
                      struct stg_err *err);

/* *to is what `from` is behind one more dimension, in front. */
void stg_component_prepend(struct stg_component *to, const struct stg_component *from,
                           int64_t size);

/* A span of this iterator's; block: what it yielded, or NULL. */
void stg_iter_trace(struct stg_iter *iter, uint64_t began_ns,
                    const struct stg_block *block);

/* A zeroed iterator of `bytes` with its fields set, or NULL when out of memory (err says
 * so). */
void *stg_iter_create(size_t bytes, const struct stg_iter_impl *impl,
                      struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      struct stg_err *err);
/* With all its inputs. NULL is allowed. */
void stg_iter_destroy(struct stg_iter *iter);
/* impl.destroy of an iterator that owns nothing: frees itself. */
void stg_iter_free(struct stg_iter *iter);

/* impl.next, which is a span of the dataset's trace, and what it does meanwhile. */
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
    if (began != 0)
        stg_iter_trace(iter, began, rc == 0 ? *ret : NULL);
    return rc;
}

/* All inputs of an iterator, back to their starts. */
int stg_iter_rewind_inputs(const struct stg_iter *iter, struct stg_err *err);

/* CANCELLED once the stage stops, else 0. */
int stg_iter_stopped(const struct stg_iter *iter, struct stg_err *err);

#endif
