/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client/rows.h"

#include <stdio.h>
#include <string.h>

#include "tests/check.h"

#define MAX_ROWS 64
#define COLUMNS 5

enum {
    X,
    WORDS,
    PAD,
    ONE,
    IDS,
    IDS_SPLITS,
    TAGS,
    TAGS_SPLITS,
    HOT,
    HOT_AT,
    HOT_SHAPE,
    N
};

struct stg_schema rows_boundary(int64_t rows)
{
    static struct stg_component all[2][N];
    struct stg_component *c = all[rows < 0];
    int64_t splits = rows < 0 ? -1 : rows + 1;
    struct stg_component made[N] = {
        [X] = {.name = "x", .dtype = STAGER_INT64, .ndim = 1, .shape = {rows}},
        [WORDS] = {"words", STAGER_STRING, 2, {rows, 2}, STG_PART_VALUES},
        [PAD] = {"pad", STAGER_FLOAT32, 2, {rows, 3}, STG_PART_VALUES},
        [ONE] = {.name = "one", .dtype = STAGER_INT32},
        [IDS] = {"ids/values", STAGER_INT32, 1, {-1}, STG_PART_VALUES},
        [IDS_SPLITS] = {"ids/row_splits", STAGER_INT64, 1, {splits}, STG_PART_ROW_SPLITS},
        [TAGS] = {"tags/values", STAGER_STRING, 1, {-1}, STG_PART_VALUES},
        [TAGS_SPLITS] =
            {"tags/row_splits", STAGER_INT64, 1, {splits}, STG_PART_ROW_SPLITS},
        [HOT] = {"hot/values", STAGER_FLOAT64, 1, {-1}, STG_PART_VALUES},
        [HOT_AT] = {"hot/indices", STAGER_INT64, 2, {-1, 2}, STG_PART_INDICES},
        [HOT_SHAPE] = {"hot/dense_shape", STAGER_INT64, 1, {2}, STG_PART_DENSE_SHAPE},
    };
    memcpy(c, made, sizeof(made));
    return (struct stg_schema){.components = c, .n = N};
}

/* Writes strings one after another. */
struct strings {
    char data[8192];
    int64_t offsets[2 * MAX_ROWS + 1];
    int64_t n;
};

static void add(struct strings *s, const char *text)
{
    size_t bytes = strlen(text);
    memcpy(s->data + s->offsets[s->n], text, bytes);
    s->offsets[s->n + 1] = s->offsets[s->n] + (int64_t)bytes;
    s->n++;
}

static struct stg_tensor of_strings(const struct strings *s)
{
    return (struct stg_tensor){.dtype = STAGER_STRING,
                               .ndim = 1,
                               .shape = {s->n},
                               .data = (void *)(uintptr_t)s->data,
                               .data_bytes = (uint64_t)s->offsets[s->n],
                               .begin = s->offsets,
                               .end = s->offsets + 1};
}

static const char *word(int64_t r, int column)
{
    static char text[32];
    if (column == 0)
        snprintf(text, sizeof(text), "a%lld", (long long)r);
    else
        snprintf(text, sizeof(text), "%.*s", (int)(r % 3), "bb");
    return text;
}

static const char *tag(int64_t r)
{
    static char text[32];
    snprintf(text, sizeof(text), "t%lld", (long long)r);
    return text;
}

static void put(struct stg_batch_writer *w, uint32_t i, int dtype, int ndim, int64_t n,
                int64_t width, const void *data, uint64_t bytes)
{
    struct stg_err err = {0};
    struct stg_tensor tensor = {.dtype = dtype,
                                .ndim = ndim,
                                .shape = {n, width},
                                .data = (void *)(uintptr_t)data,
                                .data_bytes = bytes};
    CHECK_OK(stg_batch_writer_copy(w, i, &tensor, &err), err);
}

static void write_dense(struct stg_batch_writer *w, int64_t first, int64_t n)
{
    static struct strings words;
    int64_t x[MAX_ROWS];
    float pad[MAX_ROWS][3];
    int32_t one = 42;
    struct stg_err err = {0};
    words = (struct strings){.n = 0};
    for (int64_t i = 0; i < n; i++) {
        float r = (float)(first + i);
        x[i] = first + i;
        pad[i][0] = r;
        pad[i][1] = r / 2;
        pad[i][2] = -r;
        add(&words, word(first + i, 0));
        add(&words, word(first + i, 1));
    }
    put(w, X, STAGER_INT64, 1, n, 0, x, (uint64_t)n * 8);
    struct stg_tensor tensor = of_strings(&words);
    tensor.ndim = 2;
    tensor.shape[0] = n;
    tensor.shape[1] = 2;
    CHECK_OK(stg_batch_writer_copy(w, WORDS, &tensor, &err), err);
    put(w, PAD, STAGER_FLOAT32, 2, n, 3, pad, (uint64_t)n * 12);
    put(w, ONE, STAGER_INT32, 0, 0, 0, &one, 4);
}

static void write_ragged(struct stg_batch_writer *w, int64_t first, int64_t n)
{
    static struct strings tags;
    int32_t ids[2 * MAX_ROWS];
    int64_t n_ids = 0, splits[MAX_ROWS + 1] = {0}, tag_splits[MAX_ROWS + 1] = {0};
    struct stg_err err = {0};
    tags = (struct strings){.n = 0};
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < (first + i) % 3; k++)
            ids[n_ids++] = (int32_t)(10 * (first + i) + k);
        if ((first + i) % 2 == 1)
            add(&tags, tag(first + i));
        splits[i + 1] = n_ids;
        tag_splits[i + 1] = tags.n;
    }
    put(w, IDS, STAGER_INT32, 1, n_ids, 0, ids, (uint64_t)n_ids * 4);
    put(w, IDS_SPLITS, STAGER_INT64, 1, n + 1, 0, splits, (uint64_t)(n + 1) * 8);
    struct stg_tensor tensor = of_strings(&tags);
    CHECK_OK(stg_batch_writer_copy(w, TAGS, &tensor, &err), err);
    put(w, TAGS_SPLITS, STAGER_INT64, 1, n + 1, 0, tag_splits, (uint64_t)(n + 1) * 8);
}

static void write_sparse(struct stg_batch_writer *w, int64_t first, int64_t n)
{
    double values[MAX_ROWS];
    int64_t at[MAX_ROWS][2], shape[2] = {n, COLUMNS}, used = 0;
    for (int64_t i = 0; i < n; i++) {
        if ((first + i) % 4 == 0)
            continue;
        values[used] = (double)(first + i) + 0.5;
        at[used][0] = i;
        at[used++][1] = (first + i) % COLUMNS;
    }
    put(w, HOT, STAGER_FLOAT64, 1, used, 0, values, (uint64_t)used * 8);
    put(w, HOT_AT, STAGER_INT64, 2, used, 2, at, (uint64_t)used * 16);
    put(w, HOT_SHAPE, STAGER_INT64, 1, 2, 0, shape, 16);
}

void rows_publish(struct fake *fake, uint32_t slot, uint64_t number, int64_t first,
                  int64_t n)
{
    struct stg_err err = {0};
    struct stg_batch_writer w;
    char *base = fake->segment + (size_t)slot * STG_GRANULE_BYTES;
    CHECK(n <= MAX_ROWS);
    CHECK_OK(stg_batch_writer_begin(&w, base, STG_GRANULE_BYTES, &fake->boundary, &err),
             err);
    write_dense(&w, first, n);
    write_ragged(&w, first, n);
    write_sparse(&w, first, n);
    uint64_t bytes = stg_batch_writer_seal(&w);
    struct stg_batch_header *header = (struct stg_batch_header *)base;
    header->number = number;
    header->n_rows = (uint64_t)n;
    header->feed_version = 6;
    struct stg_descriptor d = fake_descriptor(fake, slot, number, bytes);
    stg_ring_push(&fake->ring, &d);
}

/* ---- expected values ---- */

static struct stager_tensor get(const struct stager_batch *batch, const char *name,
                                int ndim, int64_t rows)
{
    struct stager_tensor t;
    CHECK_INT(stager_batch_tensor(batch, name, &t), 0);
    CHECK_STR(t.name, name);
    CHECK_INT(t.ndim, ndim);
    if (ndim > 0)
        CHECK_INT(t.shape[0], rows);
    return t;
}

static void check_string(const struct stager_tensor *t, int64_t i, const char *want)
{
    CHECK(t->offsets[i] >= 0 && (uint64_t)t->offsets[i + 1] <= t->data_bytes);
    CHECK_INT(t->offsets[i + 1] - t->offsets[i], strlen(want));
    CHECK(memcmp((const char *)t->data + t->offsets[i], want, strlen(want)) == 0);
}

static void check_dense(const struct stager_batch *batch, int64_t first, int64_t n)
{
    struct stager_tensor x = get(batch, "x", 1, n), words = get(batch, "words", 2, n),
                         pad = get(batch, "pad", 2, n), one = get(batch, "one", 0, 0);
    CHECK_INT(x.data_bytes, n * 8);
    CHECK_INT(pad.data_bytes, n * 12);
    CHECK_INT(((const int32_t *)one.data)[0], 42);
    for (int64_t i = 0; i < n; i++) {
        const float *row = (const float *)pad.data + 3 * i;
        float r = (float)(first + i);
        CHECK_INT(((const int64_t *)x.data)[i], first + i);
        CHECK(row[0] == r && row[1] == r / 2 && row[2] == -r);
        check_string(&words, 2 * i, word(first + i, 0));
        check_string(&words, 2 * i + 1, word(first + i, 1));
    }
}

static void check_ragged(const struct stager_batch *batch, int64_t first, int64_t n)
{
    struct stager_ragged ids, tags;
    int64_t n_ids = 0, n_tags = 0;
    CHECK_INT(stager_batch_ragged(batch, "ids", &ids), 0);
    CHECK_INT(stager_batch_ragged(batch, "tags", &tags), 0);
    const int64_t *splits = ids.row_splits.data, *tag_splits = tags.row_splits.data;
    CHECK_INT(ids.row_splits.shape[0], n + 1);
    CHECK_INT(ids.row_splits.data_bytes, (n + 1) * 8);
    CHECK_INT(ids.row_splits.part, STAGER_PART_ROW_SPLITS);
    CHECK_INT(splits[0], 0);
    CHECK_INT(tag_splits[0], 0);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < (first + i) % 3; k++, n_ids++)
            CHECK_INT(((const int32_t *)ids.values.data)[n_ids], 10 * (first + i) + k);
        if ((first + i) % 2 == 1)
            check_string(&tags.values, n_tags++, tag(first + i));
        CHECK_INT(splits[i + 1], n_ids);
        CHECK_INT(tag_splits[i + 1], n_tags);
    }
    CHECK_INT(ids.values.shape[0], n_ids);
    CHECK_INT(ids.values.data_bytes, n_ids * 4);
    CHECK_INT(tags.values.shape[0], n_tags);
}

static void check_sparse(const struct stager_batch *batch, int64_t first, int64_t n)
{
    struct stager_sparse hot;
    int64_t used = 0;
    CHECK_INT(stager_batch_sparse(batch, "hot", &hot), 0);
    const int64_t *shape = hot.dense_shape.data;
    CHECK_INT(hot.dense_shape.shape[0], 2);
    CHECK_INT(shape[0], n);
    CHECK_INT(shape[1], COLUMNS);
    for (int64_t i = 0; i < n; i++) {
        if ((first + i) % 4 == 0)
            continue;
        const int64_t *at = (const int64_t *)hot.indices.data + 2 * used;
        CHECK_INT(at[0], i);
        CHECK_INT(at[1], (first + i) % COLUMNS);
        CHECK(((const double *)hot.values.data)[used++] == (double)(first + i) + 0.5);
    }
    CHECK_INT(hot.values.shape[0], used);
    CHECK_INT(hot.indices.shape[0], used);
    CHECK_INT(hot.indices.shape[1], 2);
    CHECK_INT(hot.indices.data_bytes, used * 16);
    CHECK_INT(hot.indices.part, STAGER_PART_INDICES);
    CHECK_INT(hot.dense_shape.part, STAGER_PART_DENSE_SHAPE);
}

void rows_check(const struct stager_batch *batch, int64_t first, int64_t n)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    CHECK_INT(info.n_rows, n);
    CHECK_INT(info.n_tensors, N);
    CHECK_INT(info.feed_version, 6);
    check_dense(batch, first, n);
    check_ragged(batch, first, n);
    check_sparse(batch, first, n);
}
