/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of a batch that share memory.
 */
#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "tests/check.h"

#define CAPACITY (4u * STG_GRANULE_BYTES)

static void *extent(void)
{
    void *base = aligned_alloc(STG_TENSOR_ALIGN, CAPACITY);
    CHECK(base != NULL);
    memset(base, 0xa5, CAPACITY);
    return base;
}

static void what_lies_in_the_batch_is_not_copied_again(void)
{
    static struct stg_component twice[] = {
        {.name = "x", .dtype = STAGER_FLOAT32, .ndim = 1},
        {.name = "again", .dtype = STAGER_FLOAT32, .ndim = 1},
        {.name = "grid", .dtype = STAGER_FLOAT32, .ndim = 2},
        {.name = "s", .dtype = STAGER_STRING, .ndim = 1},
        {.name = "t", .dtype = STAGER_STRING, .ndim = 1},
        {.name = "other", .dtype = STAGER_FLOAT32, .ndim = 1}};
    const struct stg_schema many = {twice, 6};
    void *base = extent();
    struct stg_err err = {0};
    struct stg_batch_writer w;
    struct stg_tensor x, s, t, part;
    CHECK_OK(stg_batch_writer_begin(&w, base, CAPACITY, &many, &err), err);
    CHECK_OK(stg_batch_writer_alloc(&w, 0, STAGER_FLOAT32, 1, (const int64_t[]){1000}, 0,
                                    &x, &err),
             err);
    ((float *)x.data)[999] = 7;
    CHECK_OK(stg_batch_writer_alloc(&w, 3, STAGER_STRING, 1, (const int64_t[]){2}, 5000,
                                    &s, &err),
             err);
    memcpy(s.data, "abc", 3);
    ((int64_t *)s.begin)[1] = 1;
    ((int64_t *)s.begin)[2] = 3;
    uint64_t used = w.used_bytes;
    CHECK_OK(stg_batch_writer_copy(&w, 1, &x, &err), err);
    struct stg_tensor grid = x;
    grid.ndim = 2;
    grid.shape[0] = 40;
    grid.shape[1] = 25;
    CHECK_OK(stg_batch_writer_copy(&w, 2, &grid, &err), err);
    CHECK_OK(stg_batch_writer_copy(&w, 4, &s, &err), err);
    CHECK_INT(w.used_bytes, used);
    /* Another tensor begins there, not this one. */
    part = x;
    part.shape[0] = 10;
    part.data_bytes = 40;
    CHECK_OK(stg_batch_writer_copy(&w, 5, &part, &err), err);
    CHECK(w.used_bytes > used);

    CHECK_OK(stg_batch_check(base, stg_batch_writer_seal(&w), true, &err), err);
    stg_batch_tensor_at(base, 2, &t, NULL);
    CHECK(t.data == x.data && t.shape[0] == 40 && t.shape[1] == 25);
    stg_batch_tensor_at(base, 4, &t, NULL);
    CHECK(t.data == s.data && t.begin == s.begin);
    CHECK_INT(t.data_bytes, 3);
    stg_batch_tensor_at(base, 5, &t, NULL);
    CHECK(t.data != x.data);
    free(base);
}

static const struct stg_test tests[] = {
    TEST(what_lies_in_the_batch_is_not_copied_again),
};
TEST_MAIN(tests)
