/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/marks/marks.h"

#include <stdlib.h>

#include "core/state.h"
#include "daemon/dataset/block.h"
#include "daemon/dataset/content.h"
#include "ops/base/hash.h"

/* Of each component of a record. */
#define CHECKED_BYTES 64
/* Of the distance of marks: a shorter iteration has no mark at its end, and as much is
 * added for each record that the step holds. */
#define PART 64
/* A mark with more would take too long to restore. */
#define MOST_HELD 65536

void stg_marks_finish(struct stg_marks *marks)
{
    stg_trail_close(marks->trail);
    marks->trail = NULL;
}

void stg_marks_rewind(struct stg_marks *marks, bool afresh)
{
    marks->iteration = afresh ? 0 : marks->iteration + 1;
    marks->n_out = marks->n_in = marks->n_records = marks->noted = marks->check = 0;
}

/* ---- the trail ---- */

/* A file of unknown version may change without a trace: then there is none. */
static struct stg_trail *open_trail(struct stg_iter *iter, struct stg_marks *marks)
{
    const struct stg_dataset_env *env = &iter->dataset->env;
    struct stg_content content;
    struct stg_err ignored;
    if (marks->was_opened || !env->notes_marks)
        return marks->trail;
    marks->was_opened = true;
    if (stg_content_of_pass(iter, &content, &ignored) != 0)
        return NULL;
    /* rebatch has two iterators, one of each kind. */
    const struct stg_trail_key key = {.steps = content.steps,
                                      .files = content.files,
                                      .pass = iter->pass,
                                      .rest = (uint64_t)STG_ORDER_VERSION << 32 |
                                              (uint64_t)marks->counts_records << 63 |
                                              env->ignored_codes,
                                      .user = iter->dataset->identity.uid};
    marks->trail = stg_trail_open(&key);
    return marks->trail;
}

/* The value of the mark behind the last record of an iteration. */
#define AT_END 4

/* Odd: neither 0 nor the value of a mark without a record. */
static uint64_t check_of(const struct stg_block *block)
{
    uint64_t sum = (uint64_t)(unsigned)block->error.code;
    for (uint32_t c = 0; block->error.code == 0 && c < block->n_components; c++) {
        const struct stg_tensor first = stg_tensor_records(&block->tensors[c], 0, 1);
        uint64_t n = (uint64_t)stg_tensor_n(&first);
        uint64_t bytes = n * stg_dtype_bytes(first.dtype);
        const char *data = first.data;
        if (first.dtype == STAGER_STRING && n > 0)
            data = stg_tensor_string(&first, 0, &bytes);
        if (bytes > 0)
            sum = stg_fingerprint64_join(sum, data,
                                         bytes < CHECKED_BYTES ? bytes : CHECKED_BYTES);
    }
    return sum | 1;
}

/* ---- noting ---- */

bool stg_marks_are_due(const struct stg_marks *marks, uint64_t n_held)
{
    uint64_t spacing = stg_trail_spacing();
    return n_held <= MOST_HELD &&
           marks->n_in - marks->noted >= spacing + spacing / PART * n_held;
}

/* Without memory: none. */
static void note(struct stg_iter *iter, struct stg_marks *marks, uint64_t check,
                 const uint64_t *held, uint32_t n_held)
{
    struct stg_trail *trail = open_trail(iter, marks);
    struct stg_mark one, *parts = &one;
    marks->noted = marks->n_in;
    if (trail == NULL)
        return;
    uint32_t n = n_held == STG_TRAIL_END ? 0 : n_held;
    if (n > 0)
        parts = malloc((n + (size_t)1) * sizeof(*parts));
    if (parts == NULL)
        return;
    for (uint32_t i = 0; i <= n; i++)
        parts[i] = (struct stg_mark){.iteration = marks->iteration,
                                     .n_out = marks->n_out,
                                     .n_in = marks->n_in,
                                     .value = i == 0 ? check : held[i - 1],
                                     .part = i,
                                     .n_held = n_held};
    stg_trail_add(trail, parts, n + (size_t)1);
    if (parts != &one)
        free(parts);
}

void stg_marks_end(struct stg_iter *iter, struct stg_marks *marks)
{
    if (marks->n_in > 0 && marks->n_in >= stg_trail_spacing() / PART)
        note(iter, marks, AT_END, NULL, STG_TRAIL_END);
}

/* ---- counting ---- */

static uint64_t count(const struct stg_block *block)
{
    return block->error.code != 0 ? 1 : (uint64_t)block->n_records;
}

void stg_marks_yield(struct stg_marks *marks, const struct stg_block *block)
{
    marks->n_out += count(block);
}

void stg_marks_note_error(struct stg_iter *iter, struct stg_marks *marks)
{
    if (++marks->n_out <= STG_MARKS_MOST_ERRORS)
        note(iter, marks, STG_MARKS_ERROR, NULL, 0);
}

int stg_marks_refute(struct stg_iter *iter, struct stg_marks *marks, const char *what,
                     struct stg_err *err)
{
    stg_trail_refute(marks->trail);
    return stg_step_err(iter->step, -STAGER_FAILED_PRECONDITION, err,
                        "the data is not what the position was taken of: %s (the marks "
                        "of the step are deleted: the next open does without them)",
                        what);
}

/* The next block, which the caller counts. */
static int pull(struct stg_iter *iter, struct stg_marks *marks, int64_t want,
                struct stg_block **ret, struct stg_err *err)
{
    struct stg_block *block;
    int rc = stg_iter_next(iter->input, want, &block, err);
    if (rc != 0)
        return rc;
    uint64_t known = marks->check;
    marks->check = 0;
    if (known != 0 && known != check_of(block)) {
        stg_block_unref(block);
        return stg_marks_refute(iter, marks, "another record follows", err);
    }
    *ret = block;
    return 0;
}

int stg_marks_pull(struct stg_iter *iter, struct stg_marks *marks, int64_t want,
                   const uint64_t *held, uint32_t n_held, struct stg_block **ret,
                   struct stg_err *err)
{
    int rc = pull(iter, marks, want, ret, err);
    if (rc != 0)
        return rc;
    if (stg_marks_are_due(marks, n_held))
        note(iter, marks, check_of(*ret), held, n_held);
    marks->n_in += count(*ret);
    return 0;
}

/* ---- errors that are not like records ---- */

/* A mark has the number of records, unless all were. */
static void note_records(struct stg_iter *iter, struct stg_marks *marks, uint64_t check)
{
    note(iter, marks, check, &marks->n_records, marks->n_records < marks->n_in);
}

static bool has_few_errors(const struct stg_marks *marks)
{
    return marks->n_in - marks->n_records < STG_MARKS_MOST_ERRORS;
}

static void count_block(struct stg_marks *marks, const struct stg_block *block)
{
    marks->n_in += count(block);
    if (block->error.code == 0)
        marks->n_records += (uint64_t)block->n_records;
}

int stg_marks_take(struct stg_iter *iter, struct stg_marks *marks, int64_t want,
                   struct stg_block **ret, struct stg_err *err)
{
    int rc = pull(iter, marks, want, ret, err);
    if (rc == 0)
        count_block(marks, *ret);
    return rc;
}

int stg_marks_pass(struct stg_iter *iter, struct stg_marks *marks, int64_t want,
                   struct stg_block **ret, struct stg_err *err)
{
    int rc = pull(iter, marks, want, ret, err);
    marks->counts_records = true;
    if (rc != 0)
        return rc;
    bool is_error = (*ret)->error.code != 0;
    bool is_due = (is_error && has_few_errors(marks)) || stg_marks_are_due(marks, 0);
    if (is_due && marks->n_in > 0 && !stg_iter_was_clean(iter))
        note_records(iter, marks, check_of(*ret));
    count_block(marks, *ret);
    return 0;
}

void stg_marks_note_place(struct stg_iter *iter, const struct stg_marks *place,
                          const struct stg_block *next, struct stg_marks *marks)
{
    struct stg_marks now = *marks;
    if (place->n_in == 0 || !has_few_errors(marks))
        return;
    marks->n_out = place->n_out;
    marks->n_in = place->n_in;
    marks->n_records = place->n_records;
    note_records(iter, marks, check_of(next));
    marks->n_out = now.n_out;
    marks->n_in = now.n_in;
    marks->n_records = now.n_records;
}

void stg_marks_count(struct stg_marks *marks, uint64_t n_in, uint64_t n_out)
{
    marks->n_in += n_in;
    marks->n_records += n_in;
    marks->n_out += n_out;
}

void stg_marks_stop(struct stg_marks *marks)
{
    stg_marks_finish(marks);
    marks->was_opened = true;
}

/* ---- moving forward ---- */

int stg_marks_skip_input(struct stg_iter *iter, struct stg_marks *marks, uint64_t number,
                         struct stg_err *err)
{
    uint64_t got, n = number - marks->n_in;
    if (n == 0)
        return 0;
    int rc = stg_iter_skip(iter->input, n, &got, err);
    if (rc == 0 && got < n)
        rc = stg_marks_refute(iter, marks, "the input has ended early", err);
    marks->n_in = number;
    marks->check = 0;
    return rc;
}

/* Finds the last mark that is behind the place of the step, and not behind n_out. The
 * caller frees the numbers of what the step held, or the number of records. */
static bool find(struct stg_iter *iter, struct stg_marks *marks, uint64_t n_out,
                 struct stg_mark *ret, uint64_t **ret_held)
{
    struct stg_trail *trail = open_trail(iter, marks);
    uint64_t at;
    *ret_held = NULL;
    if (trail == NULL || !stg_trail_find(trail, marks->iteration, n_out, ret, &at) ||
        ret->n_in <= marks->n_in || ret->n_out < marks->n_out || ret->value == 0)
        return false;
    if (ret->n_held == STG_TRAIL_END)
        ret->n_held = 0;
    if (ret->n_held == 0)
        return true;
    if (ret->n_held <= MOST_HELD)
        *ret_held = malloc(ret->n_held * sizeof(**ret_held));
    return *ret_held != NULL && stg_trail_held(trail, ret, at, *ret_held) &&
           (marks->counts_records || (*ret_held)[0] >= marks->n_in);
}

static int jump(struct stg_iter *iter, struct stg_marks *marks,
                const struct stg_mark *mark, const uint64_t *held,
                stg_marks_restore *restore, struct stg_err *err)
{
    int rc = restore(iter, held, mark->n_held, err);
    if (rc == 0)
        rc = stg_marks_skip_input(iter, marks, mark->n_in, err);
    marks->n_out = mark->n_out;
    marks->noted = mark->n_in;
    marks->check = mark->value;
    return rc;
}

/* A mark before the last of the n records: the run that the position comes from had gone
 * past it. Of what lies behind, stg_iter_is_clean says nothing. */
static uint64_t last_mark(const struct stg_marks *marks, uint64_t n)
{
    return stg_count_add(marks->n_out, n) - 1;
}

/* Produces what is left of n records, after those that were skipped since `from`. */
static int replay_rest(struct stg_iter *iter, const struct stg_marks *marks,
                       uint64_t from, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    uint64_t rest;
    *ret = marks->n_out - from;
    int rc = stg_iter_replay(iter, n - *ret, &rest, err);
    *ret += rest;
    return rc;
}

int stg_marks_skip(struct stg_iter *iter, struct stg_marks *marks, uint64_t n,
                   stg_marks_restore *restore, uint64_t *ret, struct stg_err *err)
{
    struct stg_mark mark;
    uint64_t *held = NULL, from = marks->n_out;
    int rc = 0;
    *ret = 0;
    if (n > 0 && find(iter, marks, last_mark(marks, n), &mark, &held))
        rc = jump(iter, marks, &mark, held, restore, err);
    free(held);
    return rc < 0 ? rc : replay_rest(iter, marks, from, n, ret, err);
}

static int jump_passed(struct stg_iter *iter, struct stg_marks *marks,
                       const struct stg_mark *mark, const uint64_t *held,
                       stg_marks_restore *restore, struct stg_err *err)
{
    marks->n_records = mark->n_held > 0 ? held[0] : mark->n_in;
    int rc = restore != NULL ? restore(iter, NULL, 0, err) : 0;
    if (rc == 0)
        rc = stg_marks_skip_input(iter, marks, mark->n_in, err);
    marks->n_out = mark->n_out;
    marks->noted = mark->n_in;
    marks->check = mark->value;
    return rc;
}

int stg_marks_jump_passed(struct stg_iter *iter, struct stg_marks *marks, uint64_t n,
                          stg_marks_restore *restore, uint64_t *ret, struct stg_err *err)
{
    struct stg_mark mark;
    uint64_t *held = NULL, from = marks->n_out;
    int rc = 0;
    marks->counts_records = true;
    if (n > 0 && find(iter, marks, last_mark(marks, n), &mark, &held))
        rc = jump_passed(iter, marks, &mark, held, restore, err);
    free(held);
    *ret = marks->n_out - from;
    return rc;
}

int stg_marks_skip_passed(struct stg_iter *iter, struct stg_marks *marks, uint64_t n,
                          stg_marks_restore *restore, uint64_t *ret, struct stg_err *err)
{
    uint64_t from = marks->n_out;
    int rc = stg_marks_jump_passed(iter, marks, n, restore, ret, err);
    return rc < 0 ? rc : replay_rest(iter, marks, from, n, ret, err);
}

bool stg_marks_walk(struct stg_iter *iter, struct stg_marks *marks, uint64_t *at,
                    struct stg_mark *ret)
{
    struct stg_trail *trail = open_trail(iter, marks);
    return trail != NULL && stg_trail_walk(trail, marks->iteration, at, ret);
}

bool stg_marks_last(struct stg_iter *iter, struct stg_marks *marks, struct stg_mark *ret)
{
    struct stg_trail *trail = open_trail(iter, marks);
    uint64_t at;
    return trail != NULL && stg_trail_find(trail, marks->iteration, UINT64_MAX, ret, &at);
}

bool stg_marks_left(struct stg_iter *iter, struct stg_marks *marks, uint64_t most,
                    uint64_t *ret)
{
    struct stg_mark last;
    if (!stg_marks_last(iter, marks, &last) || last.n_out < marks->n_out)
        return false;
    *ret = last.n_out - marks->n_out;
    return *ret >= most || last.n_held == STG_TRAIL_END;
}
