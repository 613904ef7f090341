/* SPDX-License-Identifier: Apache-2.0
 *
 * Record i of all inputs side by side, as long as every input has one. An error takes
 * the place of record i of all.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/branches/mix.h"
#include "daemon/dataset/step.h"

struct zip {
    struct stg_iter iter;
    size_t n;
    struct stg_cursor *cursors; /* one an input, in their order */
    struct stg_slice *slices;
    bool ended;
};

/* ---- infer ---- */

static bool is_taken(const struct stg_input *in, size_t n, size_t but, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; i != but && c < in[i].schema->n; c++) {
            if (strcmp(in[i].schema->components[c].name, name) == 0)
                return true;
        }
    }
    return false;
}

/* Its own, or "BRANCH/name" where another input has one of that name. NULL: no memory. */
static const char *name_of(const struct stg_input *in, size_t n, size_t i, size_t c,
                           struct stg_bump *bump)
{
    const char *name = in[i].schema->components[c].name;
    if (in[i].name == NULL || !is_taken(in, n, i, name))
        return name;
    size_t branch = strlen(in[i].name), bytes = branch + strlen(name) + 2;
    char *ret = stg_bump_alloc(bump, bytes);
    if (ret != NULL) {
        memcpy(ret, in[i].name, branch);
        ret[branch] = '/';
        strcpy(ret + branch + 1, name);
    }
    return ret;
}

static int check_names(const struct stg_step *step, const struct stg_schema *schema,
                       struct stg_err *err)
{
    for (size_t c = 1; c < schema->n; c++) {
        for (size_t k = 0; k < c; k++) {
            if (strcmp(schema->components[c].name, schema->components[k].name) == 0)
                return stg_step_err(
                    step, -STAGER_INVALID_ARGUMENT, err,
                    "two components would have the name %s: rename one in a map step",
                    schema->components[c].name);
        }
    }
    return 0;
}

static int zip_infer(const struct stg_step *step, const struct stg_input *in, size_t n,
                     struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    size_t n_components = 0;
    for (size_t i = 0; i < n; i++)
        n_components += in[i].schema->n;
    int rc = stg_schema_create(bump, n_components, ret, err);
    if (rc < 0)
        return rc;
    struct stg_component *to = ret->components;
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < in[i].schema->n; c++, to++) {
            *to = in[i].schema->components[c];
            to->name = name_of(in, n, i, c, bump);
            if (to->name == NULL)
                return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err,
                                    "out of memory");
        }
    }
    return check_names(step, ret, err);
}

/* ---- the iterator ---- */

/* Something from every input, unless one ends: 1. What stays in the cursors then is of no
 * more use. */
static int fill(struct zip *zip, int64_t want, struct stg_err *err)
{
    struct stg_iter *input = zip->iter.input;
    for (size_t i = 0; i < zip->n; i++, input = input->sibling) {
        if (zip->cursors[i].block != NULL)
            continue;
        int rc = stg_iter_next(input, want, &zip->cursors[i].block, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static void move_on(struct stg_cursor *cursor, int64_t n)
{
    cursor->at += n;
    if (cursor->at >= cursor->block->n_records)
        stg_cursor_clear(cursor);
}

/* The first error that is next in an input, also when an input after it has ended; the
 * same record of all others goes with it. */
static struct stg_block *take_error(struct zip *zip)
{
    struct stg_block *error = NULL;
    for (size_t i = 0; i < zip->n && error == NULL; i++) {
        struct stg_block *block = zip->cursors[i].block;
        if (block != NULL && block->error.code != 0)
            error = stg_block_ref(block);
    }
    for (size_t i = 0; i < zip->n && error != NULL; i++) {
        if (zip->cursors[i].block != NULL)
            move_on(&zip->cursors[i], 1);
    }
    return error;
}

static int take_records(struct zip *zip, int64_t want, struct stg_block **ret,
                        struct stg_err *err)
{
    int64_t n = want;
    for (size_t i = 0; i < zip->n; i++) {
        int64_t left = zip->cursors[i].block->n_records - zip->cursors[i].at;
        n = left < n ? left : n;
    }
    for (size_t i = 0; i < zip->n; i++)
        zip->slices[i] = (struct stg_slice){
            .block = zip->cursors[i].block, .first = zip->cursors[i].at, .n = n};
    int rc = stg_slices_join(zip->iter.dataset->quota, zip->slices, zip->n,
                             "a block of zip", ret, err);
    if (rc < 0)
        return stg_step_prefix(zip->iter.step, rc, err);
    for (size_t i = 0; i < zip->n; i++)
        move_on(&zip->cursors[i], n);
    return 0;
}

static void forget(struct zip *zip)
{
    for (size_t i = 0; i < zip->n; i++)
        stg_cursor_clear(&zip->cursors[i]);
}

static int zip_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                    struct stg_err *err)
{
    struct zip *zip = (struct zip *)iter;
    int rc = zip->ended ? 1 : fill(zip, want, err);
    if (rc < 0)
        return rc;
    struct stg_block *error = take_error(zip);
    if (rc == 1) {
        zip->ended = true;
        forget(zip);
    }
    if (error == NULL)
        return rc == 1 ? 1 : take_records(zip, want, ret, err);
    *ret = error;
    return 0;
}

static int zip_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct zip *zip = (struct zip *)iter;
    forget(zip);
    zip->ended = false;
    return stg_iter_rewind_inputs(iter, afresh, err);
}

static void zip_destroy(struct stg_iter *iter)
{
    struct zip *zip = (struct zip *)iter;
    if (zip->cursors != NULL)
        forget(zip);
    free(zip->cursors);
    free(zip->slices);
    free(zip);
}

/* ---- moving forward ---- */

static uint64_t left_in(const struct stg_cursor *cursor)
{
    return cursor->block != NULL ? (uint64_t)(cursor->block->n_records - cursor->at) : 0;
}

/* One input, by up to n records. */
static int skip_input(struct stg_cursor *cursor, struct stg_iter *input, uint64_t n,
                      uint64_t *ret, struct stg_err *err)
{
    uint64_t n_held = left_in(cursor), n_more;
    if (n_held > n) {
        move_on(cursor, (int64_t)n);
        *ret = n;
        return 0;
    }
    stg_cursor_clear(cursor);
    int rc = stg_iter_skip(input, n - n_held, &n_more, err);
    *ret = n_held + n_more;
    return rc;
}

/* All inputs, by up to *ret records; *ret: by how many all of them. */
static int skip_inputs(struct zip *zip, uint64_t *ret, struct stg_err *err)
{
    struct stg_iter *input = zip->iter.input;
    for (size_t i = 0; i < zip->n; i++, input = input->sibling) {
        uint64_t got;
        int rc = skip_input(&zip->cursors[i], input, *ret, &got, err);
        if (rc < 0)
            return rc;
        *ret = got < *ret ? got : *ret;
    }
    return 0;
}

/* The same for input i and those behind it, from the last one on: an error of an input
 * before the one that ends is emitted behind the last record, so those must stand there.
 */
static int skip_backwards(struct zip *zip, struct stg_iter *input, size_t i,
                          uint64_t *ret, struct stg_err *err)
{
    uint64_t got;
    if (i == zip->n)
        return 0;
    int rc = skip_backwards(zip, input->sibling, i + 1, ret, err);
    if (rc == 0)
        rc = skip_input(&zip->cursors[i], input, *ret, &got, err);
    if (rc == 0)
        *ret = got < *ret ? got : *ret;
    return rc;
}

/* Returns at most n: how many records and errors come before an input ends, as far as
 * that is known. */
static uint64_t count_common(const struct zip *zip, uint64_t n)
{
    struct stg_iter *input = zip->iter.input;
    for (size_t i = 0; i < zip->n; i++, input = input->sibling) {
        uint64_t left;
        if (!stg_iter_left(input, n, &left))
            continue;
        left = stg_count_add(left, left_in(&zip->cursors[i]));
        n = left < n ? left : n;
    }
    return n;
}

static int zip_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    struct zip *zip = (struct zip *)iter;
    uint64_t rest = 0;
    *ret = 0;
    if (zip->ended)
        return 0;
    bool is_clean = stg_iter_is_clean(iter);
    *ret = is_clean ? n : count_common(zip, n);
    int rc = is_clean ? skip_inputs(zip, ret, err)
                      : skip_backwards(zip, iter->input, 0, ret, err);
    if (rc == 0 && *ret < n && !is_clean)
        rc = stg_iter_replay(iter, 1, &rest, err);
    *ret += rest;
    if (rc == 0 && *ret < n) {
        zip->ended = true;
        forget(zip);
    }
    return rc;
}

static bool zip_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct zip *zip = (struct zip *)iter;
    struct stg_iter *input = iter->input;
    *ret = zip->ended ? 0 : UINT64_MAX;
    for (size_t i = 0; i < zip->n; i++, input = input->sibling) {
        uint64_t n;
        if (!stg_iter_left(input, most, &n))
            return false;
        n = stg_count_add(n, left_in(&zip->cursors[i]));
        *ret = n < *ret ? n : *ret;
    }
    return true;
}

static int zip_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    struct stg_iter *input = iter->input;
    int rc = stg_iter_count(input, ret, err);
    for (input = input->sibling; rc == 0 && input != NULL; input = input->sibling) {
        struct stg_extent extent;
        rc = stg_iter_count(input, &extent, err);
        if (rc < 0)
            break;
        uint64_t n = extent.n < ret->n ? extent.n : ret->n;
        stg_extent_limit(&extent, n);
        stg_extent_limit(ret, n);
        ret->bytes = stg_count_add(ret->bytes, extent.bytes);
    }
    return rc;
}

static int zip_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct zip *zip = (struct zip *)iter;
    int rc = 0;
    forget(zip);
    zip->ended = false;
    for (struct stg_iter *input = iter->input; rc == 0 && input != NULL;
         input = input->sibling)
        rc = stg_iter_seek(input, n, err);
    return rc;
}

static const struct stg_iter_impl zip_impl = {
    .next = zip_next,
    .rewind = zip_rewind,
    .destroy = zip_destroy,
    .skip = zip_skip,
    .left = zip_left,
    .count = zip_count,
    .seek = zip_seek,
};

static int zip_create(struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      struct stg_iter **ret, struct stg_err *err)
{
    struct zip *zip =
        stg_iter_create(sizeof(*zip), &zip_impl, dataset, step, schema, input, err);
    if (zip == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (; input != NULL; input = input->sibling)
        zip->n++;
    zip->cursors = calloc(zip->n, sizeof(*zip->cursors));
    zip->slices = calloc(zip->n, sizeof(*zip->slices));
    if (zip->cursors == NULL || zip->slices == NULL) {
        zip_destroy(&zip->iter);
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    }
    *ret = &zip->iter;
    return 0;
}

const struct stg_transformation stg_zip = {.name = "zip",
                                           .create = zip_create,
                                           .infer_many = zip_infer,
                                           .passes_codes = true,
                                           .is_indexable = true};
