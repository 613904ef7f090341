/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/global_shuffle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "daemon/dataset/record.h"
#include "daemon/dataset/steps/global/parts.h"
#include "daemon/dataset/steps/global/permutation.h"

#define PULL_RECORDS 1024 /* asked of the input at once */

/* Bytes of files of a block and of a window, and what a record takes beside its bytes. */
#define BLOCK_BYTES ((uint64_t)1 << 20)
#define WINDOW_BYTES ((uint64_t)32 << 20)
#define RECORD_COST 128
/* The same in records, where the input reads no files. */
#define BLOCK_RECORDS 1024
#define WINDOW_RECORDS 32768
/* A window has at least so many blocks, unless a step says otherwise. */
#define MIN_BLOCKS 8

#define MAX_RECORDS ((uint64_t)1 << 62)
#define NOWHERE UINT64_MAX

struct global {
    struct stg_iter iter;
    uint64_t seed;
    bool reshuffle;
    uint64_t iteration; /* runs of the input before, in this pass */
    bool is_begun;      /* what follows is set */
    struct stg_global_layout layout;
    struct stg_global_parts parts; /* in place of most of the layout, if it has ends */
    struct stg_permutation order;  /* of the blocks */
    uint64_t input_at;             /* the record that the input yields next, or NOWHERE */
    uint64_t at;                   /* the place that is emitted next */

    /* The window of that place, from it on. An error has place 0, and its index. */
    struct stg_record_store store;
    struct stg_record *slots;
    uint64_t first_slot, n_slots, slots_size;
    uint64_t *blocks; /* of a window, by number */
    uint64_t blocks_size;
    struct stg_block **errors; /* NULL: it is emitted */
    uint32_t n_errors, errors_size;
};

/* ---- options ---- */

bool stg_global_shuffle_is(const struct stg_step *step)
{
    return stg_step_bool(step, "global", false);
}

int stg_global_shuffle_check(const struct stg_step *step, struct stg_err *err)
{
    if (stg_step_bool(step, "exact", false) && stg_step_int(step, "block_size", 0) > 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "exact: true permutes single records: leave block_size out");
    return 0;
}

int stg_global_shuffle_refuse(const struct stg_step *step, struct stg_err *err)
{
    const char *name = stg_step_bool(step, "exact", false) ? "exact" : "block_size";
    if (strcmp(name, "block_size") == 0 && stg_step_int(step, name, 0) == 0)
        return 0;
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "%s is an option of global: true: add that, or leave %s out",
                        name, name);
}

/* ---- the layout ---- */

static uint64_t at_least_1(uint64_t n)
{
    return n > 0 ? n : 1;
}

void stg_global_layout_init(struct stg_global_layout *layout, const struct stg_step *step,
                            const struct stg_extent *extent)
{
    uint64_t n = extent->n, block = BLOCK_RECORDS, window = WINDOW_RECORDS;
    uint64_t mean = n > 0 ? extent->bytes / n : 0;
    uint64_t own_block = (uint64_t)stg_step_int(step, "block_size", 0);
    uint64_t own_window = (uint64_t)stg_step_int(step, "buffer_size", 0);
    if (extent->bytes > 0) {
        block = BLOCK_BYTES / at_least_1(mean);
        window = WINDOW_BYTES / (mean + RECORD_COST);
    }
    window = own_window > 0 ? own_window : window;
    block = at_least_1(block < window / MIN_BLOCKS ? block : window / MIN_BLOCKS);
    bool is_own = own_block > 0 || stg_step_bool(step, "exact", false);
    if (is_own)
        block = at_least_1(own_block);
    block = block < n ? block : at_least_1(n);
    uint64_t n_blocks = n / block + (n % block > 0),
             n_window = at_least_1(window / block);
    *layout = (struct stg_global_layout){
        .n = n,
        .block = block,
        .n_blocks = n_blocks,
        .window = n_window < n_blocks ? n_window : at_least_1(n_blocks)};
    if (!is_own && extent->ends != NULL && n > 0) {
        layout->most = window;
        layout->piece = at_least_1(window / MIN_BLOCKS);
    }
}

static uint64_t records_of(const struct stg_global_layout *layout, uint64_t block)
{
    uint64_t left = layout->n - block * layout->block;
    return left < layout->block ? left : layout->block;
}

/* By how much the last block is shorter than others. */
static uint64_t missing(const struct stg_global_layout *layout)
{
    return layout->n_blocks * layout->block - layout->n;
}

uint64_t stg_global_layout_begin(const struct stg_global_layout *layout, uint64_t window)
{
    uint64_t begin = window * layout->window * layout->block;
    return window > layout->short_window ? begin - missing(layout) : begin;
}

uint64_t stg_global_layout_find(const struct stg_global_layout *layout, uint64_t place)
{
    uint64_t window = place / (layout->window * layout->block);
    if (place < stg_global_layout_begin(layout, layout->short_window + 1))
        return window < layout->short_window ? window : layout->short_window;
    return (place + missing(layout)) / (layout->window * layout->block);
}

/* ---- an iteration ---- */

/* Keys of another order for each pass and iteration, unless that is not wanted. */
static void init_random(const struct global *global, enum stg_random_purpose purpose,
                        struct stg_random *ret)
{
    stg_random_init(ret, global->seed, purpose, global->reshuffle ? global->iter.pass : 0,
                    global->reshuffle ? global->iteration : 0);
}

/* Orders the blocks, and divides them into windows. */
static int order_blocks(struct global *global, const struct stg_extent *extent,
                        struct stg_err *err)
{
    struct stg_global_layout *layout = &global->layout;
    struct stg_global_parts *parts = &global->parts;
    struct stg_random random;
    stg_global_parts_finish(parts);
    init_random(global, STG_RANDOM_BLOCKS, &random);
    if (layout->piece > 0) {
        int rc = stg_global_parts_init(parts, global->iter.dataset->quota, extent,
                                       layout->block, layout->piece, layout->most, err);
        if (rc < 0)
            return stg_step_prefix(global->iter.step, rc, err);
        stg_permutation_init(&global->order, parts->n_blocks, &random);
        stg_global_parts_order(parts, &global->order, layout->most);
        return 0;
    }
    stg_permutation_init(&global->order, layout->n_blocks, &random);
    if (layout->n > 0)
        layout->short_window =
            stg_permutation_find(&global->order, layout->n_blocks - 1) / layout->window;
    return 0;
}

static int begin(struct global *global, struct stg_err *err)
{
    struct stg_global_layout *layout = &global->layout;
    const struct stg_step *step = global->iter.step;
    struct stg_extent extent;
    if (global->is_begun)
        return 0;
    int rc = stg_iter_count(global->iter.input, &extent, err);
    if (rc < 0)
        return rc;
    if (extent.n > MAX_RECORDS)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "the input has %" PRIu64 " records; global: true permutes up "
                            "to %" PRIu64,
                            extent.n, MAX_RECORDS);
    stg_global_layout_init(layout, step, &extent);
    rc = order_blocks(global, &extent, err);
    if (rc < 0)
        return rc;
    global->input_at = NOWHERE;
    global->at = 0;
    global->is_begun = true;
    return 0;
}

/* ---- the window ---- */

/* Drops the first n records of the window. */
static void drop(struct global *global, uint64_t n)
{
    for (; n > 0; n--) {
        struct stg_record *slot = &global->slots[global->first_slot++];
        if (slot->place != 0) {
            stg_record_free(&global->store, slot, 1);
            continue;
        }
        stg_block_unref(global->errors[slot->words]);
        global->errors[slot->words] = NULL;
    }
    if (global->first_slot == global->n_slots)
        global->first_slot = global->n_slots = global->n_errors = 0;
}

static void clear(struct global *global)
{
    drop(global, global->n_slots - global->first_slot);
}

/* more: bytes that are missing. What the window takes is what it takes so far, by
 * records. */
static int too_large(const struct global *global, uint64_t more, struct stg_err *err)
{
    const struct stg_global_layout *layout = &global->layout;
    const struct stg_quota *quota = global->iter.dataset->quota;
    uint64_t n = layout->piece > 0 ? global->parts.most : layout->window * layout->block;
    uint64_t used = stg_quota_used(quota) + more, full;
    if (__builtin_mul_overflow(used / at_least_1(global->n_slots) + 1, n, &full))
        full = UINT64_MAX / 2;
    full = full > used ? full : used;
    stg_step_err(global->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                 "the window of %" PRIu64 " records does not fit the %" PRIu64
                 " bytes that the dataset's buffers may take: give a lower buffer_size "
                 "than %" PRIu64 ", or ",
                 n, stg_quota_limit(quota), n);
    stg_quota_advise(quota, full + full / 4, 0, err);
    return -STAGER_RESOURCE_EXHAUSTED;
}

/* Makes room for n elements of `bytes` in the array of *size to which *array points. */
static int grow(struct global *global, void *array, uint64_t *size, uint64_t n,
                size_t bytes, struct stg_err *err)
{
    struct stg_quota *quota = global->iter.dataset->quota;
    void *grown;
    uint64_t more;
    if (n <= *size)
        return 0;
    if (__builtin_mul_overflow(n - *size, bytes, &more))
        more = UINT64_MAX / 4;
    if (stg_quota_take(quota, more, "", NULL) < 0)
        return too_large(global, more, err);
    memcpy(&grown, array, sizeof(grown));
    grown = realloc(grown, n * bytes);
    if (grown == NULL) {
        stg_quota_give(quota, more);
        return stg_step_err(global->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    }
    memcpy(array, &grown, sizeof(grown));
    *size = n;
    return 0;
}

/* Takes an error block, which is gone on failure. */
static int add_error(struct global *global, struct stg_block *error, struct stg_err *err)
{
    uint64_t size = global->errors_size;
    uint64_t n = global->n_errors == size ? 2 * size + 8 : size;
    int rc = grow(global, &global->errors, &size, n, sizeof(struct stg_block *), err);
    global->errors_size = (uint32_t)size;
    if (rc < 0) {
        stg_block_unref(error);
        return rc;
    }
    global->slots[global->n_slots++] = (struct stg_record){.words = global->n_errors};
    global->errors[global->n_errors++] = error;
    return 0;
}

static int pull(struct global *global, uint64_t want, uint64_t *ret_n,
                struct stg_err *err)
{
    struct stg_block *block;
    int rc = stg_iter_stopped(&global->iter, err);
    if (rc == 0)
        rc = stg_iter_next(global->iter.input,
                           want < PULL_RECORDS ? (int64_t)want : PULL_RECORDS, &block,
                           err);
    if (rc == -STAGER_RESOURCE_EXHAUSTED &&
        global->store.n_bytes >= stg_quota_limit(global->iter.dataset->quota) / 4)
        return too_large(global, 0, err);
    if (rc == 1)
        return stg_step_err(global->iter.step, -STAGER_FAILED_PRECONDITION, err,
                            "the data has changed since its records were counted: the "
                            "input has ended early");
    if (rc < 0)
        return rc;
    *ret_n = 1;
    if (block->error.code != 0)
        return add_error(global, block, err);
    *ret_n = (uint64_t)block->n_records;
    if (stg_record_take(&global->store, block, 0, block->n_records,
                        global->slots + global->n_slots) < 0)
        rc = too_large(global, block->bytes, err);
    else
        global->n_slots += *ret_n;
    stg_block_unref(block);
    return rc;
}

static int pull_block(struct global *global, uint64_t number, struct stg_err *err)
{
    const struct stg_global_layout *layout = &global->layout;
    uint64_t first = number * layout->block, n = 0, left;
    int rc = 0;
    if (layout->piece > 0) {
        first = stg_global_parts_first(&global->parts, number);
        left = global->parts.ends[number] - first;
    } else {
        left = records_of(layout, number);
    }
    uint64_t behind = first + left;
    if (global->input_at != first)
        rc = stg_iter_seek(global->iter.input, first, err);
    global->input_at = NOWHERE;
    for (; rc == 0 && left > 0; left -= rc == 0 ? n : 0)
        rc = pull(global, left, &n, err);
    if (rc == 0)
        global->input_at = behind;
    return rc;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* A window: its first block in their order, how many it has, and its places. */
struct window {
    uint64_t first, n_blocks, begin, n;
};

/* Returns the window of the place that is emitted next. */
static struct window find_window(const struct global *global)
{
    const struct stg_global_layout *layout = &global->layout;
    const struct stg_global_parts *parts = &global->parts;
    if (layout->piece > 0) {
        uint64_t i = stg_global_parts_find(parts, global->at);
        return (struct window){.first = parts->firsts[i],
                               .n_blocks = parts->firsts[i + 1] - parts->firsts[i],
                               .begin = parts->begins[i],
                               .n = parts->begins[i + 1] - parts->begins[i]};
    }
    uint64_t i = stg_global_layout_find(layout, global->at);
    uint64_t first = i * layout->window, left = layout->n_blocks - first;
    return (struct window){.first = first,
                           .n_blocks = left < layout->window ? left : layout->window,
                           .begin = stg_global_layout_begin(layout, i),
                           .n = layout->window * layout->block};
}

/* Sets blocks to those of a window, as they lie in the input. */
static void choose_blocks(struct global *global, const struct window *window)
{
    for (uint64_t i = 0; i < window->n_blocks; i++)
        global->blocks[i] = stg_permutation_at(&global->order, window->first + i);
    qsort(global->blocks, window->n_blocks, sizeof(uint64_t), by_number);
}

/* begin: the place of the first record. */
static void permute(struct global *global, uint64_t begin)
{
    struct stg_random random;
    init_random(global, STG_RANDOM_WINDOW, &random);
    for (uint64_t i = global->n_slots; i > 1; i--) {
        uint64_t k = stg_random_below(&random, begin + i - 1, i);
        struct stg_record swap = global->slots[i - 1];
        global->slots[i - 1] = global->slots[k];
        global->slots[k] = swap;
    }
}

/* Reads the window of the place that is emitted next. */
static int fill(struct global *global, struct stg_err *err)
{
    struct window window = find_window(global);
    int rc = grow(global, &global->blocks, &global->blocks_size, window.n_blocks,
                  sizeof(uint64_t), err);
    if (rc == 0)
        rc = grow(global, &global->slots, &global->slots_size, window.n,
                  sizeof(struct stg_record), err);
    if (rc < 0)
        return rc;
    choose_blocks(global, &window);
    for (uint64_t i = 0; rc == 0 && i < window.n_blocks; i++)
        rc = pull_block(global, global->blocks[i], err);
    if (rc < 0)
        return rc;
    permute(global, window.begin);
    drop(global, global->at - window.begin);
    return 0;
}

/* ---- the iterator ---- */

static int emit(struct global *global, int64_t want, struct stg_block **ret,
                struct stg_err *err)
{
    const struct stg_record *slots = global->slots + global->first_slot;
    uint64_t left = global->n_slots - global->first_slot;
    int64_t n = 0;
    if (slots[0].place == 0) {
        *ret = stg_block_ref(global->errors[slots[0].words]);
        drop(global, 1);
        global->at++;
        return 0;
    }
    while (n < want && (uint64_t)n < left && slots[n].place != 0)
        n++;
    int rc = stg_record_emit(&global->store, slots, n, ret, err);
    global->first_slot += (uint64_t)n;
    global->at += (uint64_t)n;
    drop(global, 0);
    return rc < 0 ? stg_step_prefix(global->iter.step, rc, err) : 0;
}

static int global_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                       struct stg_err *err)
{
    struct global *global = (struct global *)iter;
    int rc = begin(global, err);
    if (rc < 0)
        return rc;
    if (global->at == global->layout.n) {
        stg_record_store_finish(&global->store);
        return 1;
    }
    if (global->n_slots == 0)
        rc = fill(global, err);
    if (rc < 0)
        return rc;
    if (want > STG_BLOCK_MAX_RECORDS)
        want = STG_BLOCK_MAX_RECORDS;
    return emit(global, global->store.boxed ? 1 : want, ret, err);
}

static int global_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct global *global = (struct global *)iter;
    clear(global);
    global->is_begun = false;
    global->iteration = afresh ? 0 : global->iteration + 1;
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void global_destroy(struct stg_iter *iter)
{
    struct global *global = (struct global *)iter;
    struct stg_quota *quota = iter->dataset->quota;
    clear(global);
    stg_global_parts_finish(&global->parts);
    stg_record_store_finish(&global->store);
    stg_quota_give(quota, global->slots_size * sizeof(struct stg_record));
    stg_quota_give(quota, global->blocks_size * sizeof(uint64_t));
    stg_quota_give(quota, global->errors_size * sizeof(struct stg_block *));
    free(global->slots);
    free(global->blocks);
    free(global->errors);
    free(global);
}

static int global_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                       struct stg_err *err)
{
    struct global *global = (struct global *)iter;
    int rc = begin(global, err);
    if (rc < 0)
        return rc;
    uint64_t left = global->layout.n - global->at;
    uint64_t held = global->n_slots - global->first_slot;
    *ret = n < left ? n : left;
    drop(global, *ret < held ? *ret : held);
    global->at += *ret;
    return 0;
}

static bool global_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct global *global = (struct global *)iter;
    if (begin(global, NULL) < 0)
        return false;
    *ret = global->layout.n - global->at;
    return true;
}

static const struct stg_iter_impl global_impl = {
    .next = global_next,
    .rewind = global_rewind,
    .destroy = global_destroy,
    .skip = global_skip,
    .left = global_left,
    .left_has_errors = true,
};

int stg_global_shuffle_create(struct stg_dataset *dataset, const struct stg_step *step,
                              const struct stg_schema *schema, struct stg_iter *input,
                              struct stg_iter **ret, struct stg_err *err)
{
    struct global *global =
        stg_iter_create(sizeof(*global), &global_impl, dataset, step, schema, input, err);
    if (global == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    global->seed = (uint64_t)stg_step_int(step, "seed", 0);
    global->reshuffle = stg_step_bool(step, "reshuffle_each_iteration", true);
    stg_record_store_init(&global->store, dataset->quota, schema);
    stg_iter_allow_uneven(input);
    *ret = &global->iter;
    return 0;
}
