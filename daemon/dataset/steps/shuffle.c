/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/shuffle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "daemon/dataset/marks/marks.h"
#include "daemon/dataset/record.h"
#include "daemon/dataset/steps/global_shuffle.h"
#include "daemon/dataset/steps/shuffle_order.h"

#define PULL_RECORDS 1024 /* asked of the input at once */
#define GROUP 64          /* slots that are chosen before the first is read */
#define MAX_EARLY_ERRORS 16

/* What is in the buffer of one epoch. Pick k of an epoch takes slot random(k) below n;
 * the last slot fills the hole, and what comes in goes to the end. */
struct epoch {
    struct stg_record *slots;
    uint64_t n, size;
    uint64_t number;    /* of this epoch, from 0 */
    uint64_t iteration; /* runs of the input before, in this pass: keys the order */
    uint64_t n_picked;
    bool any;   /* it had a record or an error */
    bool ended; /* the input has no more of it */
    /* Met while the epoch before was still being handed out. */
    struct stg_block *errors[MAX_EARLY_ERRORS];
    unsigned n_errors, first_error;
    int failed;
};

struct shuffle {
    struct stg_iter iter;
    uint64_t buffer_size, seed;
    bool reshuffle;
    bool fused;
    uint64_t count; /* epochs: 1 unless a repeat was taken in */
    struct stg_record_store store;
    struct epoch epochs[2]; /* the one being picked from, and the next */
    unsigned now;           /* index of the former */
    uint64_t n_iterations;  /* of the input, begun in this pass */
    uint64_t last_epoch;    /* of the record that came in last */
    bool mixed;             /* records of several epochs of the input are in the buffer */
    struct stg_random random;
    struct stg_block
        *block; /* of the input, records from block_at on are not taken yet */
    int64_t block_at;
    /* Of that block, taken, but not in the buffer yet: those from first_fresh on. */
    struct stg_record fresh[PULL_RECORDS];
    int64_t first_fresh, n_fresh;
    /* Not in the buffer any more, in their order: those from first_picked on. */
    struct stg_record *picked;
    int64_t first_picked, n_picked, picked_size;
    bool was_full; /* once, or the input had no more */
    int failed;    /* to be returned after those */
    struct stg_err failure;
    struct stg_marks marks; /* of the input's iteration; n_out: errors in it */
};

static int shuffle_infer(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_bump *bump, struct stg_schema *ret,
                         struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    if (stg_global_shuffle_is(step))
        rc = stg_global_shuffle_check(step, err);
    else
        rc = stg_global_shuffle_refuse(step, err);
    if (rc < 0)
        return rc;
    int64_t size = stg_step_int(step, "buffer_size", 0);
    if (stg_global_shuffle_is(step) || size >= 1) {
        *ret = *in;
        return 0;
    }
    if (stg_attr_find(step->attrs, step->n_attrs, "buffer_size") == NULL)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "buffer_size is missing: add it, or global: true");
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "buffer_size is %lld; it must be 1 or more", (long long)size);
}

static struct epoch *current(struct shuffle *shuffle)
{
    return &shuffle->epochs[shuffle->now];
}

static struct epoch *following(struct shuffle *shuffle)
{
    return &shuffle->epochs[1 - shuffle->now];
}

/* Empties an epoch; keeps the memory of its slots. */
static void epoch_clear(struct shuffle *shuffle, struct epoch *epoch)
{
    stg_record_free(&shuffle->store, epoch->slots, (int64_t)epoch->n);
    for (unsigned i = epoch->first_error; i < epoch->n_errors; i++)
        stg_block_unref(epoch->errors[i]);
    *epoch = (struct epoch){.slots = epoch->slots, .size = epoch->size};
}

static void epoch_begin(struct shuffle *shuffle, struct epoch *epoch, uint64_t number)
{
    epoch->number = number;
    epoch->iteration = shuffle->n_iterations++;
}

/* Records are picked from this epoch from now on. */
static void epoch_open(struct shuffle *shuffle)
{
    struct epoch *epoch = current(shuffle);
    stg_random_init(&shuffle->random, shuffle->seed, STG_RANDOM_SHUFFLE,
                    shuffle->reshuffle ? shuffle->iter.pass : 0,
                    shuffle->reshuffle ? epoch->iteration : 0);
}

/* ---- memory ---- */

static int out_of_memory(const struct shuffle *shuffle, struct stg_err *err)
{
    return stg_step_err(shuffle->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                        "out of memory");
}

/* more: bytes that are missing. What a full buffer takes is what it takes so far, by
 * records. */
static int too_large(struct shuffle *shuffle, uint64_t more, struct stg_err *err)
{
    const struct stg_record_store *store = &shuffle->store;
    const struct stg_quota *quota = shuffle->iter.dataset->quota;
    uint64_t used = stg_quota_used(quota), n = store->n > 0 ? store->n : 1;
    uint64_t mean = store->n > 0 ? store->n_bytes / store->n : 0, product, full;
    if (__builtin_mul_overflow(shuffle->buffer_size, mean, &product))
        product = UINT64_MAX;
    stg_step_err(
        shuffle->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
        "buffer_size %" PRIu64 " x %" PRIu64 " bytes a record (the mean of %" PRIu64
        " so far) = %" PRIu64 " bytes; the dataset's buffers may take %" PRIu64
        " bytes, of which %" PRIu64 " are taken: lower buffer_size, or ",
        shuffle->buffer_size, mean, store->n, product, stg_quota_limit(quota), used);
    if (__builtin_mul_overflow((used + more) / n + 1, shuffle->buffer_size, &full))
        full = UINT64_MAX / 2;
    full = full > used + more ? full : used + more;
    stg_quota_advise(quota, full + full / 4, 0, err);
    return -STAGER_RESOURCE_EXHAUSTED;
}

/* Room for n slots. */
static int grow_slots(struct shuffle *shuffle, struct epoch *epoch, uint64_t n,
                      struct stg_err *err)
{
    if (n <= epoch->size)
        return 0;
    uint64_t size = 2 * epoch->size > n ? 2 * epoch->size : n;
    if (size > shuffle->buffer_size)
        size = shuffle->buffer_size;
    uint64_t more = (size - epoch->size) * sizeof(struct stg_record);
    if (stg_quota_take(shuffle->iter.dataset->quota, more, "", NULL) < 0)
        return too_large(shuffle, more, err);
    struct stg_record *slots = realloc(epoch->slots, size * sizeof(*slots));
    if (slots == NULL) {
        stg_quota_give(shuffle->iter.dataset->quota, more);
        return out_of_memory(shuffle, err);
    }
    epoch->slots = slots;
    epoch->size = size;
    return 0;
}

/* ---- filling ---- */

static uint64_t room(struct shuffle *shuffle)
{
    return shuffle->buffer_size - current(shuffle)->n - following(shuffle)->n;
}

/* The epoch that what comes in belongs to, or NULL: nothing comes in any more. */
static struct epoch *entering(struct shuffle *shuffle)
{
    struct epoch *now = current(shuffle), *next = following(shuffle);
    if (!now->ended)
        return now;
    if (now->number + 1 >= shuffle->count || !now->any)
        return NULL;
    if (next->ended || next->failed < 0 || next->n_errors == MAX_EARLY_ERRORS)
        return NULL;
    return next;
}

/* Fills the room with what was taken. */
static int enter(struct shuffle *shuffle, struct epoch *epoch, struct stg_err *err)
{
    uint64_t n = (uint64_t)(shuffle->n_fresh - shuffle->first_fresh);
    if (n > room(shuffle))
        n = room(shuffle);
    int rc = grow_slots(shuffle, epoch, epoch->n + n, err);
    if (rc < 0)
        return rc;
    memcpy(epoch->slots + epoch->n, shuffle->fresh + shuffle->first_fresh,
           n * sizeof(*epoch->slots));
    epoch->n += n;
    shuffle->first_fresh += (int64_t)n;
    return 0;
}

/* Takes from the block what will find room while `left` more are picked. */
static int take(struct shuffle *shuffle, int64_t left, struct stg_err *err)
{
    struct stg_block *block = shuffle->block;
    uint64_t want = room(shuffle) + (uint64_t)left;
    int64_t n = block->n_records - shuffle->block_at;
    if (n > PULL_RECORDS)
        n = PULL_RECORDS;
    if ((uint64_t)n > want)
        n = (int64_t)want;
    if (shuffle->store.n > 0 && block->epoch != shuffle->last_epoch)
        shuffle->mixed = true;
    shuffle->last_epoch = block->epoch;
    if (stg_record_take(&shuffle->store, block, shuffle->block_at, n, shuffle->fresh) < 0)
        return too_large(shuffle, block->bytes, err);
    shuffle->first_fresh = 0;
    shuffle->n_fresh = n;
    shuffle->block_at += n;
    if (shuffle->block_at == block->n_records) {
        stg_block_unref(block);
        shuffle->block = NULL;
    }
    return 0;
}

static int rewind_input(struct shuffle *shuffle, bool afresh, struct stg_err *err)
{
    stg_marks_rewind(&shuffle->marks, afresh);
    return shuffle->iter.input->impl->rewind(shuffle->iter.input, afresh, err);
}

/* The input has no more of this epoch. It is rewound only if another one follows. */
static int epoch_end(struct shuffle *shuffle, struct epoch *epoch, struct stg_err *err)
{
    epoch->ended = true;
    if (shuffle->marks.n_out > 0)
        stg_marks_end(&shuffle->iter, &shuffle->marks);
    if (epoch != current(shuffle) || epoch->number + 1 >= shuffle->count || !epoch->any)
        return 0;
    int rc = rewind_input(shuffle, false, err);
    if (rc < 0)
        return rc;
    epoch_begin(shuffle, following(shuffle), epoch->number + 1);
    return 0;
}

/* Takes one more block from the input: into `block`, or as an error of the epoch. */
static int pull(struct shuffle *shuffle, struct epoch *epoch, struct stg_err *err)
{
    struct stg_block *block;
    uint64_t limit = stg_quota_limit(shuffle->iter.dataset->quota);
    uint64_t n_errors = shuffle->marks.n_out;
    bool notes = n_errors > 0 && n_errors <= STG_MARKS_MOST_ERRORS;
    int rc = stg_iter_stopped(&shuffle->iter, err);
    if (rc == 0)
        rc = stg_marks_pull(&shuffle->iter, &shuffle->marks, PULL_RECORDS, NULL,
                            notes ? 0 : UINT32_MAX, &block, err);
    /* What is in the buffer has much of the memory: it is the reason, whichever step
     * asked. */
    if (rc == -STAGER_RESOURCE_EXHAUSTED && shuffle->store.n_bytes >= limit / 4)
        return too_large(shuffle, 0, err);
    if (rc < 0)
        return rc;
    if (rc == 1)
        return epoch_end(shuffle, epoch, err);
    epoch->any = true;
    if (block->error.code != 0) {
        epoch->errors[epoch->n_errors++] = block;
        stg_marks_note_error(&shuffle->iter, &shuffle->marks);
        return 0;
    }
    shuffle->block = block;
    shuffle->block_at = 0;
    return 0;
}

/* A failure that belongs to the next epoch waits until this one is handed out. */
static int fill_failed(struct shuffle *shuffle, struct epoch *epoch, int rc,
                       struct stg_err *err)
{
    if (epoch == current(shuffle) || rc == -STAGER_CANCELLED)
        return rc;
    epoch->failed = rc;
    if (err != NULL)
        shuffle->failure = *err;
    return 0;
}

static bool has_error(const struct epoch *epoch)
{
    return epoch->first_error < epoch->n_errors;
}

/* The first time takes as long as the input does; then each pick makes room for one. */
static void show_progress(struct shuffle *shuffle, bool is_full)
{
    if (shuffle->was_full)
        return;
    shuffle->was_full = is_full;
    if (is_full)
        stg_iter_progressed(&shuffle->iter);
    else
        stg_iter_progress(&shuffle->iter, "elements", current(shuffle)->n,
                          shuffle->buffer_size);
}

/* Fills up, unless an error has to be emitted first. `left` will be picked then. */
static int fill(struct shuffle *shuffle, int64_t left, struct stg_err *err)
{
    struct epoch *epoch;
    while (room(shuffle) > 0 && (epoch = entering(shuffle)) != NULL) {
        int rc;
        if (epoch == current(shuffle) && has_error(epoch))
            return 0;
        if (shuffle->first_fresh < shuffle->n_fresh)
            rc = enter(shuffle, epoch, err);
        else if (shuffle->block != NULL)
            rc = take(shuffle, left, err);
        else
            rc = pull(shuffle, epoch, err);
        if (rc < 0)
            rc = fill_failed(shuffle, epoch, rc, err);
        if (rc < 0)
            return rc;
        show_progress(shuffle, false);
    }
    show_progress(shuffle, true);
    return 0;
}

/* The current epoch is handed out. 1: there is no other. */
static int advance(struct shuffle *shuffle, struct stg_err *err)
{
    struct epoch *now = current(shuffle);
    if (!now->any || now->number + 1 >= shuffle->count)
        return 1;
    epoch_clear(shuffle, now);
    shuffle->now = 1 - shuffle->now;
    epoch_open(shuffle);
    now = current(shuffle);
    if (now->ended && now->any && now->number + 1 < shuffle->count) {
        int rc = rewind_input(shuffle, false, err);
        if (rc < 0)
            return rc;
        epoch_begin(shuffle, following(shuffle), now->number + 1);
    }
    return 0;
}

/* ---- picking ---- */

static int grow_picked(struct shuffle *shuffle, int64_t n, struct stg_err *err)
{
    if (n <= shuffle->picked_size)
        return 0;
    int64_t size = 2 * shuffle->picked_size > n ? 2 * shuffle->picked_size : n;
    struct stg_record *picked =
        realloc(shuffle->picked, (size_t)size * sizeof(*shuffle->picked));
    if (picked == NULL)
        return out_of_memory(shuffle, err);
    shuffle->picked = picked;
    shuffle->picked_size = size;
    return 0;
}

/* Which slots come next, n of them: in a buffer that stays as full as it is, or in one
 * that loses a slot each time. */
static void choose(struct shuffle *shuffle, int64_t n, bool shrinks, uint64_t *ret)
{
    struct epoch *now = current(shuffle);
    for (int64_t i = 0; i < n; i++) {
        uint64_t left = now->n - (shrinks ? (uint64_t)i : 0);
        ret[i] = stg_random_below(&shuffle->random, now->n_picked++, left);
        __builtin_prefetch(&now->slots[ret[i]], 1);
    }
}

/* Each slot that becomes free is filled at once. */
static void pick_and_enter(struct shuffle *shuffle, int64_t n, struct stg_record *picked)
{
    struct epoch *now = current(shuffle);
    struct stg_record *last = &now->slots[now->n - 1];
    const struct stg_record *fresh = shuffle->fresh + shuffle->first_fresh;
    uint64_t at[GROUP];
    choose(shuffle, n, false, at);
    for (int64_t i = 0; i < n; i++) {
        picked[i] = now->slots[at[i]];
        now->slots[at[i]] = *last;
        *last = fresh[i];
    }
    shuffle->first_fresh += n;
}

static void pick(struct shuffle *shuffle, int64_t n, struct stg_record *picked)
{
    struct epoch *now = current(shuffle);
    uint64_t at[GROUP];
    choose(shuffle, n, true, at);
    for (int64_t i = 0; i < n; i++) {
        picked[i] = now->slots[at[i]];
        now->slots[at[i]] = now->slots[--now->n];
    }
}

/* Picks up to n more. What comes in for this epoch can be picked at once; for the next
 * one, it has time. */
static int pick_some(struct shuffle *shuffle, int64_t n, struct stg_err *err)
{
    struct epoch *now = current(shuffle);
    int64_t n_fresh = shuffle->n_fresh - shuffle->first_fresh;
    bool enters = entering(shuffle) == now;
    if (n > GROUP)
        n = GROUP;
    if ((uint64_t)n > now->n)
        n = (int64_t)now->n;
    if (enters && n > n_fresh)
        n = n_fresh > 0 ? n_fresh : 1;
    int rc = grow_picked(shuffle, shuffle->n_picked + n, err);
    if (rc < 0)
        return rc;
    struct stg_record *picked = shuffle->picked + shuffle->n_picked;
    if (enters && n_fresh > 0)
        pick_and_enter(shuffle, n, picked);
    else
        pick(shuffle, n, picked);
    shuffle->n_picked += n;
    return 0;
}

/* Picks until there are `want`, or an error or the end has to come first. A failure waits
 * behind what is picked. */
static int gather(struct shuffle *shuffle, int64_t want, struct stg_err *err)
{
    int rc = 0;
    while (rc == 0 && shuffle->n_picked < want) {
        int64_t left = want - shuffle->n_picked;
        rc = fill(shuffle, left, err);
        if (rc == 0 && (has_error(current(shuffle)) || current(shuffle)->n == 0))
            break;
        if (rc == 0)
            rc = pick_some(shuffle, left, err);
    }
    if (rc < 0 && shuffle->n_picked > 0) {
        shuffle->failed = rc;
        if (err != NULL)
            shuffle->failure = *err;
        return 0;
    }
    return rc;
}

/* How many of what is picked make a block: up to n, of one epoch. */
static int64_t count_block(const struct shuffle *shuffle, int64_t n)
{
    const struct stg_record *picked = shuffle->picked + shuffle->first_picked;
    if (n > shuffle->n_picked - shuffle->first_picked)
        n = shuffle->n_picked - shuffle->first_picked;
    if (!shuffle->mixed || shuffle->fused)
        return n;
    uint64_t epoch = stg_record_epoch(&shuffle->store, picked[0]);
    int64_t same = 1;
    while (same < n && stg_record_epoch(&shuffle->store, picked[same]) == epoch)
        same++;
    return same;
}

static int emit(struct shuffle *shuffle, int64_t want, struct stg_block **ret,
                struct stg_err *err)
{
    int64_t n = count_block(shuffle, want);
    int rc = stg_record_emit(&shuffle->store, shuffle->picked + shuffle->first_picked, n,
                             ret, err);
    shuffle->first_picked += n;
    if (shuffle->first_picked == shuffle->n_picked)
        shuffle->first_picked = shuffle->n_picked = 0;
    if (rc < 0)
        return stg_step_prefix(shuffle->iter.step, rc, err);
    if (shuffle->fused)
        (*ret)->epoch = current(shuffle)->number;
    return 0;
}

static void emit_error(struct shuffle *shuffle, struct stg_block **ret)
{
    struct epoch *now = current(shuffle);
    struct stg_block *error = now->errors[now->first_error++];
    if (now->first_error == now->n_errors)
        now->first_error = now->n_errors = 0;
    if (shuffle->fused)
        error->epoch = now->number;
    *ret = error;
}

static int failed(struct shuffle *shuffle, int rc, struct stg_err *err)
{
    if (err != NULL)
        *err = shuffle->failure;
    return rc;
}

static int shuffle_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                        struct stg_err *err)
{
    struct shuffle *shuffle = (struct shuffle *)iter;
    if (shuffle->count == 0)
        return 1;
    if (want > STG_BLOCK_MAX_RECORDS)
        want = STG_BLOCK_MAX_RECORDS;
    if (shuffle->store.boxed)
        want = 1;
    for (;;) {
        if (shuffle->n_picked > 0)
            return emit(shuffle, want, ret, err);
        if (shuffle->failed < 0)
            return failed(shuffle, shuffle->failed, err);
        int rc = gather(shuffle, want, err);
        if (rc < 0)
            return rc;
        if (shuffle->n_picked > 0)
            continue;
        if (has_error(current(shuffle))) {
            emit_error(shuffle, ret);
            return 0;
        }
        rc = advance(shuffle, err);
        if (rc == 1)
            stg_record_store_finish(&shuffle->store);
        if (rc != 0)
            return rc;
        if (current(shuffle)->failed < 0)
            return failed(shuffle, current(shuffle)->failed, err);
    }
}

/* ---- life ---- */

static void start(struct shuffle *shuffle)
{
    epoch_clear(shuffle, &shuffle->epochs[0]);
    epoch_clear(shuffle, &shuffle->epochs[1]);
    stg_record_free(&shuffle->store, shuffle->fresh + shuffle->first_fresh,
                    shuffle->n_fresh - shuffle->first_fresh);
    shuffle->first_fresh = shuffle->n_fresh = 0;
    stg_record_free(&shuffle->store, shuffle->picked + shuffle->first_picked,
                    shuffle->n_picked - shuffle->first_picked);
    shuffle->first_picked = shuffle->n_picked = 0;
    stg_block_unref(shuffle->block);
    shuffle->block = NULL;
    shuffle->now = 0;
}

static int shuffle_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct shuffle *shuffle = (struct shuffle *)iter;
    start(shuffle);
    int rc = rewind_input(shuffle, afresh, err);
    if (rc < 0)
        return rc;
    if (afresh)
        shuffle->n_iterations = 0;
    epoch_begin(shuffle, current(shuffle), 0);
    epoch_open(shuffle);
    return 0;
}

static void shuffle_destroy(struct stg_iter *iter)
{
    struct shuffle *shuffle = (struct shuffle *)iter;
    start(shuffle);
    for (int i = 0; i < 2; i++) {
        stg_quota_give(iter->dataset->quota,
                       shuffle->epochs[i].size * sizeof(struct stg_record));
        free(shuffle->epochs[i].slots);
    }
    free(shuffle->picked);
    stg_record_store_finish(&shuffle->store);
    stg_marks_finish(&shuffle->marks);
    free(shuffle);
}

/* ---- moving forward ---- */

/* Records that are so near one another are pulled together with those between them. */
#define NEAR 32

/* A record that is in the buffer at a position. */
struct place {
    uint64_t number, slot; /* in the input, in the buffer */
};

/* Of an epoch, while its buffer is made anew. */
struct places {
    struct place *places;
    uint64_t n, n_done, bytes;
};

/* The errors of the input in the current epoch, as far as they are known. */
struct errors {
    uint64_t *before; /* for each, how many records lie before it */
    uint64_t n, size;
    uint64_t n_records; /* before the place up to which all are known */
};

/* Returns how many errors lie before the first `n` records end. */
static uint64_t count_errors(const struct errors *errors, uint64_t n)
{
    uint64_t low = 0, high = errors->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (errors->before[middle] < n)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int by_number(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Finds what the buffer holds after the picks, by number. 1: the dataset's memory does
 * not suffice. */
static int find_places(struct shuffle *shuffle, const struct stg_shuffle_order *order,
                       struct places *ret, struct stg_err *err)
{
    struct stg_quota *quota = shuffle->iter.dataset->quota;
    uint64_t n = stg_shuffle_order_held(order);
    uint64_t size = order->n_records;
    size = size < order->buffer_size ? size : order->buffer_size;
    *ret = (struct places){.n = n, .bytes = 4 * size * sizeof(uint64_t)};
    if (stg_quota_take(quota, ret->bytes, "", NULL) < 0)
        return 1;
    uint64_t *numbers = malloc(2 * size * sizeof(uint64_t));
    ret->places = malloc(size * sizeof(*ret->places));
    if (numbers == NULL || ret->places == NULL) {
        free(numbers);
        free(ret->places);
        stg_quota_give(quota, ret->bytes);
        return out_of_memory(shuffle, err);
    }
    stg_shuffle_order_find(order, &shuffle->random, numbers + size, numbers);
    for (uint64_t i = 0; i < n; i++)
        ret->places[i] = (struct place){numbers[i], i};
    free(numbers);
    qsort(ret->places, n, sizeof(*ret->places), by_number);
    return 0;
}

/* Returns how many records are pulled at once, from the next that is in the buffer on. */
static int64_t count_near(const struct places *places)
{
    uint64_t first = places->places[places->n_done].number, last = first;
    for (uint64_t i = places->n_done + 1; i < places->n; i++) {
        uint64_t number = places->places[i].number;
        if (number - last > NEAR || number - first >= PULL_RECORDS)
            break;
        last = number;
    }
    return (int64_t)(last - first) + 1;
}

/* Takes those of a block that are in the buffer; its first record has number `first`. */
static int take_places(struct shuffle *shuffle, struct places *places,
                       const struct stg_block *block, uint64_t first, struct stg_err *err)
{
    struct epoch *epoch = current(shuffle);
    uint64_t behind = first + (uint64_t)block->n_records;
    shuffle->mixed |= shuffle->store.n > 0 && block->epoch != shuffle->last_epoch;
    shuffle->last_epoch = block->epoch;
    while (places->n_done < places->n && places->places[places->n_done].number < behind) {
        const struct place *place = &places->places[places->n_done];
        uint64_t n = 1;
        while (places->n_done + n < places->n && place[n].number == place->number + n &&
               place[n].number < behind)
            n++;
        if (stg_record_take(&shuffle->store, block, (int64_t)(place->number - first),
                            (int64_t)n, epoch->slots + epoch->n) < 0)
            return too_large(shuffle, block->bytes, err);
        epoch->n += n;
        places->n_done += n;
    }
    return 0;
}

static int ended_early(const struct shuffle *shuffle, struct stg_err *err)
{
    return stg_step_err(shuffle->iter.step, -STAGER_FAILED_PRECONDITION, err,
                        "the data is not what the position was taken of: the input has "
                        "ended early");
}

/* Pulls n records and errors; the first record has number `at`. is_clean: no errors. */
static int pull_places(struct shuffle *shuffle, struct places *places, uint64_t at,
                       int64_t n, bool is_clean, struct stg_err *err)
{
    while (n > 0) {
        struct stg_block *block;
        int rc = stg_iter_next(shuffle->iter.input, n, &block, err);
        if (rc != 0)
            return rc < 0 ? rc : ended_early(shuffle, err);
        bool is_error = block->error.code != 0;
        int64_t got = block->n_records;
        if (is_error && is_clean)
            rc = stg_iter_unexpected(block, err);
        else if (!is_error)
            rc = take_places(shuffle, places, block, at, err);
        stg_block_unref(block);
        if (rc < 0)
            return rc;
        at += (uint64_t)got;
        n -= is_error ? 1 : got;
    }
    return 0;
}

static int skip_input(struct shuffle *shuffle, uint64_t n, struct stg_err *err)
{
    uint64_t got = 0;
    int rc = n > 0 ? stg_iter_skip(shuffle->iter.input, n, &got, err) : 0;
    return rc == 0 && got < n ? ended_early(shuffle, err) : rc;
}

/* They were taken in the order of the input. */
static int put_in_slots(struct shuffle *shuffle, const struct places *places,
                        struct stg_err *err)
{
    struct epoch *epoch = current(shuffle);
    if (epoch->n == 0)
        return 0;
    struct stg_record *records = malloc(epoch->n * sizeof(*records));
    if (records == NULL)
        return out_of_memory(shuffle, err);
    for (uint64_t i = 0; i < epoch->n; i++)
        records[places->places[i].slot] = epoch->slots[i];
    memcpy(epoch->slots, records, epoch->n * sizeof(*records));
    free(records);
    return 0;
}

/* Takes into the buffer what it holds at those places; then the input stands behind the
 * last record that has entered. `at` counts errors too. */
static int take_all_places(struct shuffle *shuffle, struct places *places,
                           const struct errors *errors, uint64_t n_entered,
                           struct stg_err *err)
{
    uint64_t at = 0, n_inputs = n_entered + count_errors(errors, n_entered);
    int rc = grow_slots(shuffle, current(shuffle), places->n, err);
    while (rc == 0 && places->n_done < places->n) {
        uint64_t number = places->places[places->n_done].number;
        uint64_t last = number + (uint64_t)count_near(places) - 1;
        uint64_t first = number + count_errors(errors, number + 1);
        uint64_t behind = last + count_errors(errors, last + 1) + 1;
        if (first < at)
            return ended_early(shuffle, err);
        rc = skip_input(shuffle, first - at, err);
        if (rc == 0)
            rc = pull_places(shuffle, places, number, (int64_t)(behind - first),
                             errors->n == 0, err);
        at = behind;
    }
    if (rc == 0)
        rc = skip_input(shuffle, n_inputs - at, err);
    shuffle->marks.n_in = shuffle->marks.noted = n_inputs;
    shuffle->marks.n_out = n_inputs - n_entered;
    return rc < 0 ? rc : put_in_slots(shuffle, places, err);
}

/* Fills the buffer with what it holds after n picks of this epoch, before the next record
 * enters. The input stands at the first record of the epoch. 1: the memory for that is
 * not there; nothing has changed. */
static int restore(struct shuffle *shuffle, const struct errors *errors, uint64_t n,
                   struct stg_err *err)
{
    const struct stg_shuffle_order order = {shuffle->buffer_size, errors->n_records, n};
    struct epoch *epoch = current(shuffle);
    struct places places;
    int rc = find_places(shuffle, &order, &places, err);
    if (rc != 0)
        return rc;
    epoch->any = true;
    epoch->n_picked = n;
    rc =
        take_all_places(shuffle, &places, errors, stg_shuffle_order_entered(&order), err);
    free(places.places);
    stg_quota_give(shuffle->iter.dataset->quota, places.bytes);
    return rc;
}

/* Has nothing of the current epoch been pulled? */
static bool is_fresh(struct shuffle *shuffle)
{
    const struct epoch *now = current(shuffle);
    return !now->any && !now->ended && shuffle->block == NULL && shuffle->n_fresh == 0 &&
           shuffle->n_picked == 0 && shuffle->failed == 0;
}

/* Past a whole epoch. 1: it was the last one. */
static int skip_epoch(struct shuffle *shuffle, uint64_t n_records, struct stg_err *err)
{
    struct epoch *now = current(shuffle);
    int rc = skip_input(shuffle, n_records, err);
    now->any = n_records > 0;
    if (rc < 0 || !now->any || now->number + 1 >= shuffle->count)
        return rc < 0 ? rc : 1;
    rc = rewind_input(shuffle, false, err);
    if (rc < 0)
        return rc;
    now->any = false;
    epoch_begin(shuffle, now, now->number + 1);
    epoch_open(shuffle);
    return 0;
}

/* Returns how many of the next n picks can be left out, where the end of the input is not
 * known: the records are that enter before them, and *ret_records at least. */
static uint64_t count_known(struct shuffle *shuffle, uint64_t n, uint64_t *ret_records)
{
    struct stg_iter *input = shuffle->iter.input;
    for (uint64_t back = PULL_RECORDS; back < n; back *= 2) {
        uint64_t most = stg_count_add(n - back, shuffle->buffer_size);
        if (stg_iter_left(input, most, ret_records) && *ret_records >= most)
            return n - back;
    }
    return 0;
}

static bool add_error(struct errors *errors, uint64_t before)
{
    if (errors->n == errors->size) {
        uint64_t size = errors->size > 0 ? 2 * errors->size : 64;
        uint64_t *all = size <= STG_MARKS_MOST_ERRORS
                            ? realloc(errors->before, size * sizeof(*errors->before))
                            : NULL;
        if (all == NULL)
            return false;
        errors->before = all;
        errors->size = size;
    }
    errors->before[errors->n++] = before;
    return true;
}

/* Finds the errors of this iteration of the input, until `most` records have come. Each
 * has a mark; a mark that counts more of them than are listed is the end of what is known
 * here. */
static void list_errors(struct shuffle *shuffle, uint64_t most, struct errors *ret)
{
    struct stg_mark mark;
    uint64_t at = 0;
    while (ret->n_records < most &&
           stg_marks_walk(&shuffle->iter, &shuffle->marks, &at, &mark)) {
        bool is_error = mark.value == STG_MARKS_ERROR;
        if (mark.n_out != ret->n + is_error || mark.n_in < mark.n_out)
            return;
        if (is_error && !add_error(ret, mark.n_in - mark.n_out))
            return;
        ret->n_records = mark.n_in - mark.n_out;
    }
}

/* Returns how many of the errors come before the next record enters, after n picks. */
static uint64_t count_emitted(const struct shuffle *shuffle, const struct errors *errors,
                              uint64_t n)
{
    return count_errors(errors, shuffle->buffer_size + n - 1);
}

/* Returns the most picks before which, with the errors between them, less than n come. */
static uint64_t count_picks(const struct shuffle *shuffle, const struct errors *errors,
                            uint64_t n)
{
    uint64_t low = 0, high = n - 1;
    if (errors->n_records <= shuffle->buffer_size)
        return 0;
    if (high > errors->n_records - shuffle->buffer_size)
        high = errors->n_records - shuffle->buffer_size;
    while (low < high) {
        uint64_t middle = high - (high - low) / 2;
        if (middle + count_emitted(shuffle, errors, middle) < n)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Leaves out as many of the next n records and errors of this epoch as it can, but not
 * the last. n_records: of the epoch; 0: not known. *ret: how many. */
static int leave_out(struct shuffle *shuffle, uint64_t n, bool is_clean,
                     uint64_t n_records, uint64_t *ret, struct stg_err *err)
{
    struct errors errors = {.n_records = n_records};
    uint64_t n_picks = n - 1;
    if (!is_clean) {
        errors.n_records = 0;
        list_errors(shuffle, stg_count_add(n, shuffle->buffer_size), &errors);
        n_picks = count_picks(shuffle, &errors, n);
    } else if (n_records == 0) {
        n_picks = count_known(shuffle, n, &errors.n_records);
    }
    int rc = n_picks > 0 ? restore(shuffle, &errors, n_picks, err) : 1;
    *ret = rc == 0 ? n_picks + count_emitted(shuffle, &errors, n_picks) : 0;
    free(errors.before);
    return rc;
}

/* Returns whether it is known how many records and errors the fresh epoch has. is_clean:
 * no errors are among those that are skipped; then *ret may be any number from `most` on.
 */
static bool find_length(struct shuffle *shuffle, bool is_clean, uint64_t most,
                        uint64_t *ret)
{
    struct stg_mark last;
    if (is_clean)
        return stg_iter_left(shuffle->iter.input, most, ret);
    if (!stg_marks_last(&shuffle->iter, &shuffle->marks, &last) ||
        last.n_held != STG_TRAIL_END)
        return false;
    *ret = last.n_in;
    return true;
}

/* The last record is picked as ever, so that as much comes in before it as without a
 * skip. */
static int shuffle_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                        struct stg_err *err)
{
    struct shuffle *shuffle = (struct shuffle *)iter;
    uint64_t n_records = 0, rest = 0;
    int rc = 0;
    bool is_clean = stg_iter_is_clean(iter), is_known = false, fresh = shuffle->count > 0;
    for (*ret = 0; rc == 0 && *ret < n; *ret += n_records) {
        uint64_t most = stg_count_add(n - *ret, shuffle->buffer_size);
        fresh = fresh && is_fresh(shuffle);
        is_known = fresh && find_length(shuffle, is_clean, most, &n_records);
        if (!is_known || n - *ret <= n_records)
            break;
        rc = stg_iter_stopped(iter, err);
        if (rc == 0)
            rc = skip_epoch(shuffle, n_records, err);
    }
    if (rc != 0 || *ret == n)
        return rc < 0 ? rc : 0;
    if (fresh)
        rc = leave_out(shuffle, n - *ret, is_clean, is_known ? n_records : 0, &rest, err);
    *ret += rest;
    rest = 0;
    if (rc >= 0)
        rc = stg_iter_replay(iter, n - *ret, &rest, err);
    *ret += rest;
    return rc;
}

static bool shuffle_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct shuffle *shuffle = (struct shuffle *)iter;
    const struct epoch *now = current(shuffle);
    *ret = 0;
    if (shuffle->failed < 0 || (!now->ended && !stg_iter_left(iter->input, most, ret)))
        return false;
    if (shuffle->fused) {
        bool is_endless = shuffle->count == UINT64_MAX && (now->any || *ret > 0);
        *ret = is_endless || *ret >= most ? UINT64_MAX : 0;
        return *ret > 0;
    }
    int64_t held = shuffle->n_fresh - shuffle->first_fresh + shuffle->n_picked -
                   shuffle->first_picked;
    if (shuffle->block != NULL)
        held += shuffle->block->n_records - shuffle->block_at;
    *ret = stg_count_add(*ret, now->n + (uint64_t)held);
    return true;
}

static const struct stg_iter_impl shuffle_impl = {
    .next = shuffle_next,
    .rewind = shuffle_rewind,
    .destroy = shuffle_destroy,
    .skip = shuffle_skip,
    .left = shuffle_left,
};

bool stg_shuffle_fuse(struct stg_iter *iter, uint64_t count)
{
    struct shuffle *shuffle = (struct shuffle *)iter;
    if (iter->impl != &shuffle_impl || shuffle->fused)
        return false;
    shuffle->fused = true;
    iter->nests = true;
    shuffle->count = count;
    return true;
}

static int shuffle_create(struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          struct stg_iter **ret, struct stg_err *err)
{
    if (stg_global_shuffle_is(step))
        return stg_global_shuffle_create(dataset, step, schema, input, ret, err);
    struct shuffle *shuffle = stg_iter_create(sizeof(*shuffle), &shuffle_impl, dataset,
                                              step, schema, input, err);
    if (shuffle == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    shuffle->buffer_size = (uint64_t)stg_step_int(step, "buffer_size", 1);
    shuffle->seed = (uint64_t)stg_step_int(step, "seed", 0);
    shuffle->reshuffle = stg_step_bool(step, "reshuffle_each_iteration", true);
    shuffle->count = 1;
    stg_record_store_init(&shuffle->store, dataset->quota, schema);
    epoch_begin(shuffle, current(shuffle), 0);
    epoch_open(shuffle);
    stg_iter_allow_uneven(input);
    *ret = &shuffle->iter;
    return 0;
}

const struct stg_transformation stg_shuffle = {.name = "shuffle",
                                               .infer = shuffle_infer,
                                               .create = shuffle_create,
                                               .passes_codes = true,
                                               .needs_index = stg_global_shuffle_is};
