/* SPDX-License-Identifier: Apache-2.0
 *
 * tf.data's order: `cycle_length` slots are visited in turn. At a visit an empty slot
 * takes the next file, then up to `block_length` records of it come out; a file that ends
 * leaves its slot empty until the next visit. The files of the slots, and a few that come
 * after them, are open and read at once (readers.h).
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/branches/interleave_order.h"
#include "daemon/dataset/branches/mix.h"
#include "daemon/dataset/branches/parallel_readers.h"

#define CYCLE_LENGTH 8
#define MAX_CYCLE_LENGTH 256
#define MAX_PREFETCH 1024
#define MAX_THREADS 256
/* Threads to begin with, and at most, when nothing is said: files are waited for more
 * than computed on. */
#define AUTO_THREADS 16

#define NO_READER UINT32_MAX

struct slot {
    uint32_t reader; /* NO_READER: empty */
    struct stg_cursor cursor;
};

/* A file that was pulled before a slot needs it. */
struct path {
    struct stg_block *block; /* NULL: used */
    uint64_t n_records;
};

struct interleave {
    struct stg_iter iter;
    struct stg_parallel_readers *readers;
    bool sloppy;
    int64_t block_length;
    uint32_t n_slots, n_readers;
    struct slot *slots;
    uint32_t n_open; /* slots that are not empty */
    uint32_t at;     /* the slot that is visited */
    int64_t left;    /* records or errors of this visit */
    /* Readers that are open ahead, in the order of their files; then those that are free.
     * A ring of n_readers. */
    uint32_t *ring;
    uint32_t first_ahead, n_ahead, n_free;
    struct path *paths; /* those from first_path on come before the input's next */
    size_t first_path, n_paths, paths_size;
    bool input_ended;
    int input_failed; /* once a slot needs the next file */
    struct stg_err failure;
    struct stg_mix mix;
    struct stg_block *error; /* to be emitted after the mix */
};

/* ---- infer ---- */

struct arguments {
    int64_t cycle_length, block_length, n_threads, buffer, prefetch;
    bool sloppy;
};

static bool is_contrib(const struct stg_step *step)
{
    return strcmp(step->name, "parallel_interleave") == 0;
}

static struct arguments arguments_of(const struct stg_step *step)
{
    struct arguments ret = {
        .cycle_length = stg_step_int(step, "cycle_length", CYCLE_LENGTH),
        .block_length = stg_step_int(step, "block_length", 1),
        .n_threads = stg_step_int(step, "num_parallel_calls", -1),
        .buffer = stg_step_int(step, "buffer_output_elements", INT64_MAX),
    };
    ret.prefetch = stg_step_int(step, "prefetch_input_elements", 2 * ret.cycle_length);
    ret.sloppy = is_contrib(step) ? stg_step_bool(step, "sloppy", false)
                                  : !stg_step_bool(step, "deterministic", true);
    return ret;
}

static int check_range(const struct stg_step *step, const char *name, int64_t value,
                       int64_t min, int64_t max, struct stg_err *err)
{
    if (value >= min && value <= max)
        return 0;
    if (max == INT64_MAX)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "%s is %lld; it must be %lld or more", name, (long long)value,
                            (long long)min);
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "%s is %lld; it must be %lld to %lld", name, (long long)value,
                        (long long)min, (long long)max);
}

static int check_arguments(const struct stg_step *step, struct stg_err *err)
{
    struct arguments args = arguments_of(step);
    const struct {
        const char *name;
        int64_t value, min, max;
    } ranges[] = {
        {"cycle_length", args.cycle_length, 1, MAX_CYCLE_LENGTH},
        {"block_length", args.block_length, 1, INT64_MAX},
        {"num_parallel_calls", args.n_threads, -1, MAX_THREADS},
        {"buffer_output_elements", args.buffer, 1, INT64_MAX},
        {"prefetch_input_elements", args.prefetch, 0, MAX_PREFETCH},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(ranges) / sizeof(ranges[0]); i++)
        rc = check_range(step, ranges[i].name, ranges[i].value, ranges[i].min,
                         ranges[i].max, err);
    if (rc == 0 && args.n_threads > args.cycle_length)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "num_parallel_calls is %lld, more than cycle_length %lld: "
                            "lower it, or write -1",
                            (long long)args.n_threads, (long long)args.cycle_length);
    return rc;
}

static int interleave_infer(const struct stg_step *step, const struct stg_schema *in,
                            struct stg_bump *bump, struct stg_schema *ret,
                            struct stg_err *err)
{
    int rc = check_arguments(step, err);
    if (rc < 0)
        return rc;
    if (step->reader == NULL)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "reader is missing: add the step that reads a file, such as "
                            "reader: {text_line: {}}");
    const struct stg_transformation *reader = stg_transformation_find(step->reader->name);
    if (reader == NULL)
        return stg_step_err(step, -STAGER_UNIMPLEMENTED, err, "reader: unknown step %s",
                            step->reader->name);
    rc = reader->infer(step->reader, in, bump, ret, err);
    return rc < 0 ? stg_step_prefix(step, rc, err) : 0;
}

/* ---- files ---- */

static uint32_t *ring_at(struct interleave *il, uint32_t i)
{
    return &il->ring[(il->first_ahead + i) % il->n_readers];
}

/* The next file. 1: there is none. */
static int next_path(struct interleave *il, struct stg_block **ret, struct stg_err *err)
{
    if (il->first_path == il->n_paths)
        return stg_iter_next(il->iter.input, 1, ret, err);
    struct path *path = &il->paths[il->first_path++];
    *ret = path->block;
    path->block = NULL;
    return 0;
}

/* The next file to a free reader. 1: there is none. */
static int open_next(struct interleave *il, struct stg_err *err)
{
    struct stg_block *path;
    int rc = next_path(il, &path, err);
    if (rc != 0)
        return rc;
    rc = stg_parallel_readers_start(il->readers, *ring_at(il, il->n_ahead), path, 0, err);
    if (rc < 0)
        return rc;
    il->n_ahead++;
    il->n_free--;
    return 0;
}

/* Opens files while readers are free. A failure waits until its file is wanted. */
static int open_ahead(struct interleave *il, struct stg_err *err)
{
    while (il->n_free > 0 && !il->input_ended && il->input_failed == 0) {
        int rc = open_next(il, &il->failure);
        il->input_ended = rc == 1;
        if (rc == -STAGER_CANCELLED && err != NULL)
            *err = il->failure;
        if (rc == -STAGER_CANCELLED)
            return rc;
        if (rc < 0)
            il->input_failed = rc;
    }
    return 0;
}

/* ---- slots ---- */

static void go_on(struct interleave *il)
{
    il->at = (il->at + 1) % il->n_slots;
    il->left = il->block_length;
}

static void count_out(struct interleave *il, int64_t n)
{
    il->left -= n;
    if (il->left == 0)
        go_on(il);
}

static void close_slot(struct interleave *il, struct slot *slot)
{
    *ring_at(il, il->n_ahead + il->n_free) = slot->reader;
    il->n_free++;
    il->n_open--;
    slot->reader = NO_READER;
}

/* The next file to the slot. 1: none is left for it; 2: none for any. */
static int fill_slot(struct interleave *il, struct slot *slot, struct stg_err *err)
{
    int rc = open_ahead(il, err);
    if (rc < 0)
        return rc;
    if (il->n_ahead > 0) {
        slot->reader = *ring_at(il, 0);
        il->first_ahead = (il->first_ahead + 1) % il->n_readers;
        il->n_ahead--;
        il->n_open++;
        return open_ahead(il, err);
    }
    if (il->input_failed < 0 && err != NULL)
        *err = il->failure;
    if (il->input_failed < 0)
        return il->input_failed;
    return il->n_open > 0 ? 1 : 2;
}

/* ---- collecting ---- */

enum progress {
    GOT = 0,     /* the visited slot's cursor has a block */
    CLOSED = 1,  /* its file has ended; the next one is visited */
    EMPTY = 2,   /* there is no file for it; the next one is visited */
    NOT_YET = 3, /* sloppy: it has nothing ready */
    ENDED = 4
};

static int visit(struct interleave *il, struct stg_err *err)
{
    struct slot *slot = &il->slots[il->at];
    if (slot->cursor.block != NULL)
        return GOT;
    if (slot->reader == NO_READER) {
        int rc = fill_slot(il, slot, err);
        if (rc == 1)
            go_on(il);
        if (rc != 0)
            return rc < 0 ? rc : rc == 1 ? EMPTY : ENDED;
    }
    int rc = stg_parallel_readers_take(il->readers, slot->reader, !il->sloppy,
                                       &slot->cursor.block, err);
    if (rc == STG_READER_BUSY)
        return NOT_YET;
    if (rc != STG_READER_END)
        return rc;
    close_slot(il, slot);
    go_on(il);
    return CLOSED;
}

/* Goes on to a slot that has a block: GOT, or ENDED. Where no slot has anything ready
 * (sloppy alone), it waits, unless there is something in the mix: NOT_YET. */
static int visit_until_got(struct interleave *il, struct stg_err *err)
{
    for (;;) {
        uint64_t ready = il->sloppy ? stg_parallel_readers_ready(il->readers) : 0;
        uint32_t in_vain = 0;
        while (in_vain < il->n_slots) {
            int rc = visit(il, err);
            if (rc < 0 || rc == GOT || rc == ENDED)
                return rc;
            in_vain = rc == CLOSED ? 0 : in_vain + 1;
            if (rc == NOT_YET)
                go_on(il);
        }
        if (il->mix.n_records > 0)
            return NOT_YET;
        stg_parallel_readers_wait(il->readers, ready);
    }
}

/* What the visited slot has, as far as it goes with the mix. 1: the block ends here. */
static int take_run(struct interleave *il, int64_t want, struct stg_err *err)
{
    struct stg_cursor *cursor = &il->slots[il->at].cursor;
    if (cursor->block->error.code != 0) {
        il->error = cursor->block;
        *cursor = (struct stg_cursor){0};
        count_out(il, 1);
        return 1;
    }
    int64_t n = cursor->block->n_records - cursor->at;
    if (n > want - il->mix.n_records)
        n = want - il->mix.n_records;
    if (n > il->left)
        n = il->left;
    if (!stg_mix_takes(&il->mix, cursor, n))
        return 1;
    bool full;
    int rc = stg_mix_add(&il->mix, cursor, n, &full);
    if (rc < 0)
        return stg_step_err(il->iter.step, rc, err, "out of memory");
    count_out(il, n);
    return full;
}

/* Until the block has what is wanted, or has to end. */
static int collect(struct interleave *il, int64_t want, struct stg_err *err)
{
    int rc = 0;
    while (rc == 0 && il->mix.n_records < want) {
        rc = visit_until_got(il, err);
        if (rc == GOT)
            rc = take_run(il, want, err);
    }
    return rc;
}

static int interleave_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                           struct stg_err *err)
{
    struct interleave *il = (struct interleave *)iter;
    if (want > STG_BLOCK_MAX_RECORDS)
        want = STG_BLOCK_MAX_RECORDS;
    int rc = stg_iter_stopped(iter, err);
    if (rc == 0 && il->error == NULL)
        rc = collect(il, want, err);
    if (rc < 0 && (rc == -STAGER_CANCELLED || il->mix.n_records == 0))
        return rc;
    if (il->mix.n_records > 0) {
        rc = stg_mix_emit(&il->mix, iter->dataset->quota, "a block of interleave", ret,
                          err);
        return rc < 0 ? stg_step_prefix(iter->step, rc, err) : 0;
    }
    if (il->error == NULL)
        return 1;
    *ret = il->error;
    il->error = NULL;
    return 0;
}

/* ---- life ---- */

static void forget(struct interleave *il)
{
    if (il->readers != NULL)
        stg_parallel_readers_clear(il->readers);
    for (uint32_t i = 0; i < il->n_slots; i++) {
        stg_cursor_clear(&il->slots[i].cursor);
        il->slots[i].reader = NO_READER;
    }
    for (uint32_t i = 0; i < il->n_readers; i++)
        il->ring[i] = i;
    stg_mix_clear(&il->mix);
    stg_block_unref(il->error);
    il->error = NULL;
    for (size_t i = 0; i < il->n_paths; i++)
        stg_block_unref(il->paths[i].block);
    il->first_path = il->n_paths = 0;
    il->first_ahead = il->n_ahead = il->n_open = il->at = 0;
    il->n_free = il->n_readers;
    il->left = il->block_length;
    il->input_ended = false;
    il->input_failed = 0;
}

static int interleave_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    forget((struct interleave *)iter);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void interleave_destroy(struct stg_iter *iter)
{
    struct interleave *il = (struct interleave *)iter;
    if (il->slots != NULL && il->ring != NULL)
        forget(il);
    stg_parallel_readers_destroy(il->readers);
    stg_mix_finish(&il->mix);
    free(il->slots);
    free(il->ring);
    free(il->paths);
    free(il);
}

/* ---- moving forward ---- */

/* So many files are looked at, at most: their names take memory. */
#define MAX_COUNTED 65536

enum { UNKNOWN = 2 }; /* a file has a number of records that is not known */

static bool is_fresh(const struct interleave *il)
{
    return il->n_open == 0 && il->n_ahead == 0 && il->first_path == 0 &&
           !il->input_ended && il->input_failed == 0 && il->mix.n_records == 0 &&
           il->error == NULL;
}

static int grow_paths(struct interleave *il, struct stg_err *err)
{
    size_t size = il->paths_size > 0 ? 2 * il->paths_size : 64;
    struct path *paths = realloc(il->paths, size * sizeof(*paths));
    if (paths == NULL)
        return stg_step_err(il->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    il->paths = paths;
    il->paths_size = size;
    return 0;
}

/* Pulls one more file, and counts it. */
static int pull_path(struct interleave *il, struct stg_err *err)
{
    struct stg_block *block;
    if (il->n_paths == MAX_COUNTED)
        return UNKNOWN;
    int rc = il->n_paths == il->paths_size ? grow_paths(il, err) : 0;
    if (rc == 0)
        rc = stg_iter_next(il->iter.input, 1, &block, err);
    if (rc != 0)
        return rc;
    struct path *path = &il->paths[il->n_paths++];
    *path = (struct path){.block = block, .n_records = UINT64_MAX};
    rc = block->error.code != 0
             ? 1
             : stg_parallel_readers_count(il->readers, block, &path->n_records, err);
    return rc == 1 ? UNKNOWN : rc;
}

static int count_file(void *owner, uint64_t file, uint64_t *ret, struct stg_err *err)
{
    struct interleave *il = owner;
    int rc = 0;
    while (rc == 0 && file >= il->n_paths)
        rc = pull_path(il, err);
    if (rc != 0)
        return rc;
    *ret = il->paths[file].n_records;
    return *ret == UINT64_MAX ? UNKNOWN : 0;
}

/* Opens the files that are in the slots now, where they have come to. */
static int open_slots(struct interleave *il, const struct stg_interleave_order *order,
                      struct stg_err *err)
{
    for (uint32_t i = 0; i < il->n_slots; i++) {
        const struct stg_interleave_slot *slot = &order->slots[i];
        if (slot->file == UINT64_MAX)
            continue;
        uint32_t reader = *ring_at(il, 0);
        struct stg_block *block = il->paths[slot->file].block;
        il->paths[slot->file].block = NULL;
        int rc =
            stg_parallel_readers_start(il->readers, reader, block, slot->n_done, err);
        if (rc < 0)
            return rc;
        il->slots[i].reader = reader;
        il->first_ahead = (il->first_ahead + 1) % il->n_readers;
        il->n_free--;
        il->n_open++;
    }
    for (; il->first_path < order->n_files; il->first_path++) {
        stg_block_unref(il->paths[il->first_path].block);
        il->paths[il->first_path].block = NULL;
    }
    il->at = order->at;
    il->left = (int64_t)order->left;
    return 0;
}

/* UNKNOWN: nothing has changed. */
static int skip_files(struct interleave *il, uint64_t n, uint64_t *ret,
                      struct stg_err *err)
{
    struct stg_interleave_order order = {
        .slots = calloc(il->n_slots, sizeof(order.slots[0])),
        .n_slots = il->n_slots,
        .block_length = (uint64_t)il->block_length,
        .count = count_file,
        .owner = il,
    };
    if (order.slots == NULL)
        return stg_step_err(il->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    stg_interleave_order_begin(&order);
    int rc = stg_interleave_order_skip(&order, n, ret, err);
    if (rc == 0)
        rc = open_slots(il, &order, err);
    free(order.slots);
    return rc;
}

/* Errors count as records do, in the order and in the numbers of the files. */
static int interleave_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                           struct stg_err *err)
{
    struct interleave *il = (struct interleave *)iter;
    int rc = UNKNOWN;
    if (n > 0 && !il->sloppy && is_fresh(il))
        rc = skip_files(il, n, ret, err);
    return rc == UNKNOWN ? stg_iter_replay(iter, n, ret, err) : rc;
}

static bool interleave_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct interleave *il = (struct interleave *)iter;
    uint64_t n;
    int rc = 0;
    *ret = 0;
    if (!is_fresh(il))
        return false;
    for (uint64_t file = 0; rc == 0 && *ret < most; file++) {
        rc = count_file(il, file, &n, &il->failure);
        *ret += rc == 0 ? n : 0;
    }
    il->input_failed = rc < 0 ? rc : 0;
    return rc == 0 || rc == 1;
}

static const struct stg_iter_impl interleave_impl = {
    .next = interleave_next,
    .rewind = interleave_rewind,
    .destroy = interleave_destroy,
    .skip = interleave_skip,
    .left = interleave_left,
};

static int make_readers(struct interleave *il, const struct arguments *args,
                        struct stg_err *err)
{
    int64_t automatic =
        args->cycle_length < AUTO_THREADS ? args->cycle_length : AUTO_THREADS;
    struct stg_parallel_readers_config config = {
        .dataset = il->iter.dataset,
        .step = il->iter.step->reader,
        .schema = il->iter.schema,
        .path = il->iter.input->schema,
        .n_readers = il->n_readers,
        .n_threads = (unsigned)(args->n_threads < 0 ? automatic : args->n_threads),
        .tuned = args->n_threads < 0 && !is_contrib(il->iter.step) ? il->iter.step : NULL,
        /* Without a thread a file that stalls would stop the others. */
        .least_threads = il->sloppy ? 1 : 0,
        .buffer_records = args->buffer,
    };
    return stg_parallel_readers_create(&config, &il->readers, err);
}

static int interleave_create(struct stg_dataset *dataset, const struct stg_step *step,
                             const struct stg_schema *schema, struct stg_iter *input,
                             struct stg_iter **ret, struct stg_err *err)
{
    struct interleave *il =
        stg_iter_create(sizeof(*il), &interleave_impl, dataset, step, schema, input, err);
    if (il == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    struct arguments args = arguments_of(step);
    il->sloppy = args.sloppy;
    /* One slot is one file after the other. */
    il->block_length = args.cycle_length > 1 ? args.block_length : INT64_MAX;
    il->n_slots = (uint32_t)args.cycle_length;
    il->n_readers = (uint32_t)(args.cycle_length + args.prefetch);
    il->slots = calloc(il->n_slots, sizeof(*il->slots));
    il->ring = calloc(il->n_readers, sizeof(*il->ring));
    int rc = -STAGER_RESOURCE_EXHAUSTED;
    if (il->slots == NULL || il->ring == NULL)
        stg_step_err(step, rc, err, "out of memory");
    else
        rc = make_readers(il, &args, err);
    if (rc < 0) {
        interleave_destroy(&il->iter);
        return rc;
    }
    forget(il);
    *ret = &il->iter;
    return 0;
}

const struct stg_transformation stg_interleave = {.name = "interleave",
                                                  .infer = interleave_infer,
                                                  .create = interleave_create,
                                                  .passes_codes = true};
const struct stg_transformation stg_parallel_interleave = {.name = "parallel_interleave",
                                                           .infer = interleave_infer,
                                                           .create = interleave_create,
                                                           .passes_codes = true};
