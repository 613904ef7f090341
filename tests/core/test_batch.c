/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "tests/check.h"

#define CAPACITY (4u * STG_GRANULE_BYTES)

static struct stg_component components[] = {
    {.name = "label", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}},
    {.name = "ids", .dtype = STAGER_INT64, .ndim = 2, .shape = {-1, 26}},
    {.name = "text", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
    {.name = "step", .dtype = STAGER_INT32, .ndim = 0},
};
static const struct stg_schema schema = {.components = components, .n = 4};

static void *extent(void)
{
    void *base = aligned_alloc(STG_TENSOR_ALIGN, CAPACITY);
    CHECK(base != NULL);
    memset(base, 0xa5, CAPACITY);
    return base;
}

static const float labels[3] = {0.0f, 1.0f, -2.5f};
static const char words[] = "..ab...cde";

/* Three rows; the strings are "ab", "" and "cde", with gaps between them. */
static uint64_t write_all(void *base)
{
    struct stg_err err = {0};
    struct stg_batch_writer w;
    CHECK_OK(stg_batch_writer_begin(&w, base, CAPACITY, &schema, &err), err);

    struct stg_tensor ids;
    CHECK_OK(stg_batch_writer_alloc(&w, 1, STAGER_INT64, 2, (const int64_t[]){3, 26}, 0,
                                    &ids, &err),
             err);
    for (int i = 0; i < 78; i++)
        ((int64_t *)ids.data)[i] = i * 1000000007ll;

    struct stg_tensor label = {.dtype = STAGER_FLOAT32,
                               .ndim = 1,
                               .shape = {3},
                               .data = (void *)labels,
                               .data_bytes = sizeof(labels)};
    CHECK_OK(stg_batch_writer_copy(&w, 0, &label, &err), err);

    int32_t step = 42;
    struct stg_tensor scalar = {
        .dtype = STAGER_INT32, .data = &step, .data_bytes = sizeof(step)};
    CHECK_OK(stg_batch_writer_copy(&w, 3, &scalar, &err), err);

    const int64_t begin[3] = {2, 5, 7}, end[3] = {4, 5, 10};
    struct stg_tensor text = {.dtype = STAGER_STRING,
                              .ndim = 1,
                              .shape = {3},
                              .data = (void *)words,
                              .data_bytes = sizeof(words) - 1,
                              .begin = begin,
                              .end = end};
    CHECK_OK(stg_batch_writer_copy(&w, 2, &text, &err), err);
    return stg_batch_writer_seal(&w);
}

static void what_was_written_is_read_back(void)
{
    void *base = extent();
    struct stg_err err = {0};
    uint64_t bytes = write_all(base);
    CHECK(bytes <= CAPACITY);
    CHECK_OK(stg_batch_check(base, bytes, true, &err), err);

    struct stg_tensor t;
    const char *name;
    CHECK_INT(stg_batch_find(base, "label"), 0);
    stg_batch_tensor_at(base, 0, &t, &name);
    CHECK_STR(name, "label");
    CHECK_INT(t.dtype, STAGER_FLOAT32);
    CHECK_INT(t.data_bytes, 12);
    CHECK(memcmp(t.data, labels, 12) == 0);
    CHECK((uintptr_t)t.data % 64 == 0);

    stg_batch_tensor_at(base, (uint32_t)stg_batch_find(base, "ids"), &t, &name);
    CHECK_INT(t.ndim, 2);
    CHECK_INT(t.shape[1], 26);
    CHECK_INT(((int64_t *)t.data)[77], 77000000539ll);

    stg_batch_tensor_at(base, 2, &t, &name);
    CHECK_INT(t.shape[0], 3);
    CHECK_INT(t.data_bytes, 5);
    CHECK(memcmp(t.data, "abcde", 5) == 0);
    CHECK_INT(t.begin[0], 0);
    CHECK_INT(t.end[0], 2);
    CHECK_INT(t.begin[2], 2);
    CHECK_INT(t.end[2], 5);

    stg_batch_tensor_at(base, 3, &t, &name);
    CHECK_INT(t.ndim, 0);
    CHECK_INT(*(int32_t *)t.data, 42);
    CHECK_INT(stg_batch_find(base, "labels"), -1);
    free(base);
}

static const struct stg_test tests[] = {
    TEST(what_was_written_is_read_back),
};
TEST_MAIN(tests)
