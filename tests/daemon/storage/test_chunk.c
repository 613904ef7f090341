/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/chunk.h"

#include <string.h>

#include "daemon/dataset/block.h"
#include "tests/check.h"

#define MIB ((uint64_t)1 << 20)

static struct stg_quota *quota_of(uint64_t limit)
{
    struct stg_quota *quota;
    CHECK_INT(stg_quota_create(limit, &quota), 0);
    return quota;
}

static struct stg_chunk *chunk_of(struct stg_quota *quota, uint64_t bytes, bool is_near)
{
    struct stg_chunk *chunk;
    struct stg_err err = {0};
    CHECK_OK((is_near ? stg_chunk_create_near : stg_chunk_create)(quota, bytes, "a test",
                                                                  &chunk, &err),
             err);
    CHECK(chunk->capacity >= bytes);
    memset(chunk->data, 1, bytes);
    return chunk;
}

/* Reports the origin of memory of this size, after some of `before` was released. */
static bool is_used_again(uint64_t before, uint64_t bytes, bool is_near)
{
    struct stg_quota *quota = quota_of(100 * MIB);
    struct stg_chunk *first = chunk_of(quota, before, is_near);
    stg_chunk_unref(first);
    CHECK_INT(stg_quota_used(quota), before); /* it is kept, and stays counted */
    struct stg_chunk *second = chunk_of(quota, bytes, is_near);
    bool ret = second == first;
    CHECK_INT(stg_quota_used(quota), ret ? before : before + bytes);
    stg_chunk_unref(second);
    stg_quota_unref(quota);
    return ret;
}

static void what_files_are_read_into_is_used_again_for_as_many_bytes(void)
{
    CHECK(is_used_again(MIB, MIB, false));
    CHECK(!is_used_again(MIB, MIB - 64, false));
    CHECK(!is_used_again(MIB, MIB + 64, false));
}

static void what_batches_lie_in_is_used_again_for_up_to_an_eighth_less(void)
{
    CHECK(is_used_again(9 * MIB, 9 * MIB, true));
    CHECK(is_used_again(9 * MIB, 8 * MIB, true));
    CHECK(!is_used_again(9 * MIB, 8 * MIB - 64, true));
    CHECK(!is_used_again(9 * MIB, 9 * MIB + 64, true));
}

static void four_of_a_kind_are_kept_those_that_came_back_last(void)
{
    struct stg_quota *quota = quota_of(1000 * MIB);
    struct stg_chunk *chunks[6];
    for (uint64_t i = 0; i < 6; i++)
        chunks[i] = chunk_of(quota, (i + 1) * MIB, false);
    for (int i = 0; i < 6; i++)
        stg_chunk_unref(chunks[i]);
    CHECK_INT(stg_quota_used(quota), (3 + 4 + 5 + 6) * MIB);
    struct stg_chunk *again = chunk_of(quota, 3 * MIB, false);
    CHECK_INT(stg_quota_used(quota), (3 + 4 + 5 + 6) * MIB);
    stg_chunk_unref(again);
    stg_quota_unref(quota);
}

static void small_ones_are_kept_up_to_64_of_16_mib_together(void)
{
    struct stg_quota *quota = quota_of(1000 * MIB);
    struct stg_chunk *chunks[80];
    for (int i = 0; i < 80; i++)
        chunks[i] = chunk_of(quota, MIB / 8, true);
    for (int i = 0; i < 80; i++)
        stg_chunk_unref(chunks[i]);
    CHECK_INT(stg_quota_used(quota), 64 * MIB / 8);
    for (int i = 0; i < 6; i++)
        chunks[i] = chunk_of(quota, 3 * MIB, true);
    for (int i = 0; i < 6; i++)
        stg_chunk_unref(chunks[i]);
    CHECK_INT(stg_quota_used(quota), 5 * 3 * MIB);
    stg_quota_unref(quota);
}

static void what_is_kept_makes_room_for_what_is_wanted(void)
{
    struct stg_quota *quota = quota_of(10 * MIB);
    stg_chunk_unref(chunk_of(quota, 6 * MIB, true));
    stg_chunk_unref(chunk_of(quota, 3 * MIB, false));
    CHECK_INT(stg_quota_used(quota), 9 * MIB);
    stg_chunk_unref(chunk_of(quota, 8 * MIB, true));
    CHECK_INT(stg_quota_used(quota), 8 * MIB);
    stg_quota_unref(quota);
}

static void what_is_too_large_or_has_no_limit_is_not_kept(void)
{
    struct stg_quota *quota = quota_of(1000 * MIB);
    stg_chunk_unref(chunk_of(quota, 16 * MIB + 64, false));
    stg_chunk_unref(chunk_of(quota, 64 * MIB + 64, true));
    CHECK_INT(stg_quota_used(quota), 0);
    stg_quota_unref(quota);
    quota = quota_of(0);
    stg_chunk_unref(chunk_of(quota, 6 * MIB, true));
    CHECK_INT(stg_quota_used(quota), 0);
    stg_quota_unref(quota);
}

static struct stg_block *block_of(struct stg_quota *quota, uint64_t bytes)
{
    struct stg_block *block;
    struct stg_err err = {0};
    CHECK_OK(stg_block_create(quota, 1, bytes, NULL, "a test", &block, &err), err);
    memset(stg_block_carve(block, bytes), 1, bytes);
    CHECK_INT(block->tensors[0].ndim, 0);
    CHECK_INT(stg_quota_used(quota), block->bytes);
    return block;
}

static void a_large_block_lies_where_the_last_one_lay(void)
{
    struct stg_quota *quota = quota_of(100 * MIB);
    struct stg_block *first = block_of(quota, 8 * MIB);
    first->tensors[0].ndim = 3;
    uint64_t bytes = first->bytes;
    stg_block_unref(first);
    struct stg_block *second = block_of(quota, 8 * MIB - 4096);
    CHECK(second == first);
    CHECK_INT(second->bytes, bytes);
    stg_block_unref(second);
    stg_quota_unref(quota);
}

static void a_block_that_moves_counts_where_it_goes(void)
{
    struct stg_quota *from = quota_of(100 * MIB), *to = quota_of(0);
    for (uint64_t bytes = MIB; bytes <= 16 * MIB; bytes *= 4) {
        struct stg_block *block = block_of(from, bytes);
        uint64_t taken = block->bytes;
        stg_block_move(block, to);
        CHECK_INT(stg_quota_used(from), 0);
        CHECK_INT(stg_quota_used(to), taken);
        stg_block_unref(block);
        CHECK_INT(stg_quota_used(to), 0);
    }
    stg_quota_unref(from);
    stg_quota_unref(to);
}

static void what_does_not_fit_is_refused(void)
{
    static const uint64_t sizes[] = {2 * MIB, 8 * MIB, UINT64_MAX / 3, UINT64_MAX / 5};
    struct stg_quota *quota = quota_of(MIB);
    struct stg_block *block;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct stg_err err = {0};
        CHECK_INT(stg_block_create(quota, 1, sizes[i], NULL, "a test", &block, &err),
                  -STAGER_RESOURCE_EXHAUSTED);
        CHECK_CONTAINS(err.text, "a test needs ");
        CHECK_CONTAINS(err.text, "raise staged.memory_budget");
    }
    CHECK_INT(stg_quota_used(quota), 0);
    stg_quota_unref(quota);
}

static const struct stg_test tests[] = {
    TEST(what_files_are_read_into_is_used_again_for_as_many_bytes),
    TEST(what_batches_lie_in_is_used_again_for_up_to_an_eighth_less),
    TEST(four_of_a_kind_are_kept_those_that_came_back_last),
    TEST(small_ones_are_kept_up_to_64_of_16_mib_together),
    TEST(what_is_kept_makes_room_for_what_is_wanted),
    TEST(what_is_too_large_or_has_no_limit_is_not_kept),
    TEST(a_large_block_lies_where_the_last_one_lay),
    TEST(a_block_that_moves_counts_where_it_goes),
    TEST(what_does_not_fit_is_refused),
};
TEST_MAIN(tests)
