/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/sieve.h"

#include <stdlib.h>

#include "daemon/dataset/marks/marks.h"
#include "daemon/dataset/pieces.h"

#define ASK_RECORDS 4096

struct sieve {
    struct stg_iter iter;
    struct stg_columnar *table; /* its input */
    struct stg_pieces passed;
    int64_t want; /* the largest `want` of a call so far */
    struct stg_marks marks;
};

/* Adds the rows of a block that the filter keeps to the output. */
static int keep(struct sieve *sieve, struct stg_block *block, struct stg_err *err)
{
    const int64_t *index;
    int64_t n = stg_columnar_passing(sieve->table, block, &index);
    int rc = stg_pieces_add_picked(&sieve->passed, sieve->iter.dataset->quota, block,
                                   index, n, err);
    return rc < 0 ? stg_step_prefix(sieve->iter.step, rc, err) : 0;
}

/* Returns 1 at the end of the input. */
static int pull(struct sieve *sieve, struct stg_err *err)
{
    struct stg_block *block;
    uint64_t n_passed = 0;
    int64_t want = sieve->want < ASK_RECORDS ? sieve->want : ASK_RECORDS;
    int rc = stg_columnar_sift(sieve->table, &n_passed, err);
    stg_marks_count(&sieve->marks, n_passed, 0);
    if (rc == 0)
        rc = stg_marks_pull(&sieve->iter, &sieve->marks, want, NULL, 0, &block, err);
    if (rc == 1)
        stg_marks_end(&sieve->iter, &sieve->marks);
    if (rc != 0)
        return rc;
    if (block->error.code != 0)
        return stg_pieces_add(&sieve->passed, block, err);
    rc = keep(sieve, block, err);
    stg_block_unref(block);
    return rc;
}

static int sieve_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct sieve *sieve = (struct sieve *)iter;
    sieve->want = want > sieve->want ? want : sieve->want;
    while (!stg_pieces_any(&sieve->passed)) {
        int rc = pull(sieve, err);
        if (rc != 0)
            return rc;
    }
    int rc = stg_pieces_take(&sieve->passed, iter->dataset->quota, want, ret, err);
    if (rc == 0)
        stg_marks_yield(&sieve->marks, *ret);
    return rc;
}

/* It holds nothing at a mark. */
static int restore(struct stg_iter *iter, const uint64_t *held, uint32_t n_held,
                   struct stg_err *err)
{
    (void)held;
    (void)n_held;
    (void)err;
    stg_pieces_clear(&((struct sieve *)iter)->passed);
    return 0;
}

static int sieve_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                      struct stg_err *err)
{
    return stg_marks_skip(iter, &((struct sieve *)iter)->marks, n, restore, ret, err);
}

static bool sieve_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    return stg_marks_left(iter, &((struct sieve *)iter)->marks, most, ret);
}

static int sieve_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct sieve *sieve = (struct sieve *)iter;
    stg_pieces_clear(&sieve->passed);
    stg_marks_rewind(&sieve->marks, afresh);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void sieve_destroy(struct stg_iter *iter)
{
    struct sieve *sieve = (struct sieve *)iter;
    stg_pieces_finish(&sieve->passed);
    stg_marks_finish(&sieve->marks);
    free(sieve);
}

static const struct stg_iter_impl sieve_impl = {.next = sieve_next,
                                                .rewind = sieve_rewind,
                                                .destroy = sieve_destroy,
                                                .skip = sieve_skip,
                                                .left = sieve_left,
                                                .left_has_errors = true,
                                                .allow_uneven = stg_iter_pass_uneven};

/* A reader of `interleave` has the step of its input, and reads one file of many: marks
 * of one would be taken for those of another. */
int stg_sieve_create(struct stg_columnar *table, struct stg_iter **ret,
                     struct stg_err *err)
{
    struct stg_iter *input = &table->iter;
    if (table->judged == NULL) {
        *ret = input;
        return 0;
    }
    struct sieve *sieve = stg_iter_create(sizeof(*sieve), &sieve_impl, input->dataset,
                                          input->step, input->schema, input, err);
    if (sieve == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    sieve->iter.varies = true;
    sieve->table = table;
    if (input->input->step == input->step)
        stg_marks_stop(&sieve->marks);
    *ret = &sieve->iter;
    return 0;
}
