/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/arrow_indices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/format/arrow/cursor.h"

#define COLUMN "indices"

struct indices {
    struct stg_iter iter;
    struct stg_iter *rows;
    const char *url;
    struct stg_file_user identity;
    struct stg_source *source;   /* NULL: it is not open */
    struct stg_arrow_file *file; /* NULL, too, then */
    struct stg_arrow_column column;
    struct stg_arrow_reading reading;
    struct stg_arrow_cursor cursor;
    uint32_t batch;     /* that the cursor is in; UINT32_MAX: none */
    bool is_counted;    /* n_rows is that of this iteration */
    uint64_t n_rows;    /* of all files */
    uint64_t row_bytes; /* and their bytes */
    uint64_t at;        /* the index that comes next */
    uint64_t epoch;     /* of the last row */
};

/* ---- options ---- */

const char *stg_arrow_indices_of(const struct stg_step *step)
{
    return stg_attr_string(step->attrs, step->n_attrs, "indices", NULL);
}

int stg_arrow_indices_check(const struct stg_step *step, const struct stg_iter *input,
                            struct stg_err *err)
{
    const struct stg_step *files = input->step;
    if (files == NULL || strcmp(files->name, "files") != 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "indices number the rows of all files: put the step behind "
                            "`files`, not into interleave");
    if (stg_step_bool(files, "shuffle", true))
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "indices number the rows of the files in their order: set "
                            "shuffle: false in `files`");
    return 0;
}

/* ---- the file ---- */

static int fail(const struct indices *in, int rc, struct stg_err *err)
{
    char buf[512];
    stg_err_prefix(err, rc, "%s", stg_storage_shown(in->url, buf, sizeof(buf)));
    return stg_step_prefix(in->iter.step, rc, err);
}

static int open_file(struct indices *in, struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    bool is_storage = false;
    int rc = stg_storage_find(in->url, &storage, &path, err);
    if (rc == 0)
        rc = storage->open(path, &in->identity, &in->source, err);
    if (rc < 0)
        return stg_step_prefix(in->iter.step, rc, err);
    rc = stg_arrow_open(in->source, in->reading.quota, &in->column.want, 1, &in->file,
                        &is_storage, err);
    if (rc < 0) {
        in->source->storage->close(in->source);
        in->source = NULL;
        return is_storage ? stg_step_prefix(in->iter.step, rc, err) : fail(in, rc, err);
    }
    in->reading.source = in->source;
    in->batch = UINT32_MAX;
    stg_arrow_cursor_open(&in->cursor, in->file, 0);
    return 0;
}

/* Opens the file, and counts the rows of this iteration. */
static int begin(struct indices *in, struct stg_err *err)
{
    struct stg_extent extent;
    int rc = in->file == NULL ? open_file(in, err) : 0;
    if (rc < 0 || in->is_counted)
        return rc;
    rc = in->rows->impl->count(in->rows, &extent, err);
    if (rc < 0)
        return rc;
    in->n_rows = extent.n;
    in->row_bytes = extent.bytes;
    in->is_counted = true;
    return 0;
}

/* Makes the cursor have the next index. */
static int go(struct indices *in, uint64_t want, struct stg_err *err)
{
    uint32_t batch = stg_arrow_find_batch(in->file, in->at);
    uint64_t first = stg_arrow_batch_begin(in->file, batch);
    int rc = 0;
    if (batch != in->batch) {
        stg_arrow_announce(in->file, in->source, batch);
        rc = stg_arrow_cursors_begin(&in->cursor, 1, batch, err);
        in->batch = rc == 0 ? batch : UINT32_MAX;
    }
    if (rc == 0)
        rc = stg_arrow_cursor_go(&in->cursor, in->at - first, want, err);
    if (rc == 0 && in->cursor.lost.code != 0) {
        rc = in->cursor.lost.code;
        if (err != NULL)
            *err = in->cursor.lost;
    }
    return rc < 0 ? fail(in, rc, err) : 0;
}

/* ---- rows ---- */

/* Returns value i; UINT64_MAX: a null. */
static uint64_t value_at(const struct stg_arrow_values *values, uint64_t i)
{
    uint64_t ret;
    if (values->state != NULL && values->state[i] != STG_ARROW_GOOD)
        return UINT64_MAX;
    memcpy(&ret, values->fixed + i * sizeof(ret), sizeof(ret));
    return ret;
}

/* Returns how many of the next `want` indices follow one another. Sets *ret to the first;
 * to UINT64_MAX for a null. */
static uint64_t find_run(const struct indices *in, uint64_t want, uint64_t *ret)
{
    const struct stg_arrow_cursor *cursor = &in->cursor;
    const struct stg_arrow_values *values = &cursor->values;
    uint64_t i = in->at - stg_arrow_batch_begin(in->file, in->batch) - cursor->first;
    uint64_t n = 1, left = cursor->n - i;
    *ret = value_at(values, i);
    want = want < left ? want : left;
    while (n < want && *ret < in->n_rows && value_at(values, i + n) == *ret + n)
        n++;
    return n;
}

/* The next index is an error item. */
static int make_bad(struct indices *in, uint64_t index, struct stg_block **ret,
                    struct stg_err *err)
{
    struct stg_err why = {0};
    char buf[512];
    if (index == UINT64_MAX)
        stg_err(&why, -STAGER_INVALID_ARGUMENT, "the index is null");
    else
        stg_err(&why, -STAGER_INVALID_ARGUMENT,
                "the index %" PRIu64 " is out of range: the files have %" PRIu64 " rows",
                index, in->n_rows);
    stg_err_prefix(&why, why.code, "%s: row %" PRIu64,
                   stg_storage_shown(in->url, buf, sizeof(buf)), in->at);
    int rc = stg_block_create_error(in->iter.dataset->quota, &why, in->epoch, ret, err);
    in->at += rc == 0;
    return rc;
}

static int indices_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                        struct stg_err *err)
{
    struct indices *in = (struct indices *)iter;
    uint64_t index;
    int rc = stg_iter_stopped(iter, err);
    if (rc == 0)
        rc = begin(in, err);
    if (rc < 0)
        return rc;
    if (in->at >= stg_arrow_n_rows(in->file))
        return 1;
    rc = go(in, (uint64_t)want, err);
    if (rc < 0)
        return rc;
    uint64_t n = find_run(in, (uint64_t)want, &index);
    if (index >= in->n_rows)
        return make_bad(in, index, ret, err);
    n = n < in->n_rows - index ? n : in->n_rows - index;
    rc = in->rows->impl->seek(in->rows, index, err);
    if (rc == 0)
        rc = in->rows->impl->next(in->rows, (int64_t)n, ret, err);
    if (rc != 0)
        return rc;
    in->at += (*ret)->error.code != 0 ? 1 : (uint64_t)(*ret)->n_records;
    in->epoch = (*ret)->epoch;
    return 0;
}

/* ---- positions ---- */

static uint64_t left_of(const struct indices *in)
{
    uint64_t n = stg_arrow_n_rows(in->file);
    return n > in->at ? n - in->at : 0;
}

static int indices_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                        struct stg_err *err)
{
    struct indices *in = (struct indices *)iter;
    int rc = begin(in, err);
    if (rc < 0)
        return rc;
    uint64_t left = left_of(in);
    *ret = n < left ? n : left;
    in->at += *ret;
    return 0;
}

static bool indices_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct indices *in = (struct indices *)iter;
    if (begin(in, NULL) < 0)
        return false;
    *ret = left_of(in);
    return true;
}

static int indices_count(struct stg_iter *iter, struct stg_extent *ret,
                         struct stg_err *err)
{
    struct indices *in = (struct indices *)iter;
    in->is_counted = false;
    in->at = 0;
    int rc = begin(in, err);
    if (rc == 0)
        *ret =
            (struct stg_extent){.n = stg_arrow_n_rows(in->file), .bytes = in->row_bytes};
    return rc;
}

static int indices_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    ((struct indices *)iter)->at = n;
    return 0;
}

/* ---- life ---- */

static int indices_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct indices *in = (struct indices *)iter;
    in->at = 0;
    in->is_counted = false;
    return in->rows->impl->rewind(in->rows, afresh, err);
}

static void indices_destroy(struct stg_iter *iter)
{
    struct indices *in = (struct indices *)iter;
    in->rows->impl->destroy(in->rows);
    stg_arrow_cursor_finish(&in->cursor);
    stg_arrow_reading_finish(&in->reading);
    stg_arrow_close(in->file);
    if (in->source != NULL)
        in->source->storage->close(in->source);
    free(in);
}

static void indices_allow_uneven(struct stg_iter *iter)
{
    stg_iter_allow_uneven(((struct indices *)iter)->rows);
}

static const struct stg_iter_impl indices_impl = {.next = indices_next,
                                                  .rewind = indices_rewind,
                                                  .destroy = indices_destroy,
                                                  .skip = indices_skip,
                                                  .left = indices_left,
                                                  .left_has_errors = true,
                                                  .count = indices_count,
                                                  .seek = indices_seek,
                                                  .allow_uneven = indices_allow_uneven};

int stg_arrow_indices_create(struct stg_iter *rows, struct stg_iter **ret,
                             struct stg_err *err)
{
    struct stg_dataset *dataset = rows->dataset;
    struct indices *in = stg_iter_create(sizeof(*in), &indices_impl, dataset, rows->step,
                                         rows->schema, rows->input, err);
    if (in == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    in->rows = rows;
    in->url = stg_arrow_indices_of(rows->step);
    in->identity = dataset->identity;
    in->identity.in_places = true;
    in->column.want = (struct stg_arrow_want){.name = COLUMN, .dtype = STAGER_UINT64};
    in->reading.quota = in->reading.codecs.quota = dataset->quota;
    in->cursor.reading = &in->reading;
    in->cursor.column = &in->column;
    *ret = &in->iter;
    return 0;
}
