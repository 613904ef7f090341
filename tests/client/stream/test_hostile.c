/* SPDX-License-Identifier: Apache-2.0
 *
 * A bug in the daemon must not crash a trainer: invalid pages, descriptors and batches
 * are errors with a reason.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/client/fake.h"

/* ---- pages ---- */

static void an_unsealed_segment_is_not_read(void)
{
    struct fake fake = {.unsealed = true};
    fake_start(&fake);
    CHECK_INT(fake_open_fails(&fake), -STAGER_INTERNAL);
    CHECK_CONTAINS(stager_error_text(NULL), "arena segment");
    CHECK_CONTAINS(stager_error_text(NULL), "shrinking");
    fake_stop(&fake);
}

static void a_segment_that_is_shorter_than_promised_is_not_read(void)
{
    uint64_t lies[] = {FAKE_SEGMENT_BYTES + 1, UINT64_MAX, 0};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct fake fake = {0};
        fake_start(&fake);
        fake.segment_bytes = lies[i];
        CHECK_INT(fake_open_fails(&fake), -STAGER_INTERNAL);
        CHECK_CONTAINS(stager_error_text(NULL), "arena segment");
        fake_stop(&fake);
    }
}

static void descriptors_that_are_not_three_are_refused(void)
{
    for (size_t n = 0; n <= 4; n++) {
        if (n == 3)
            continue;
        struct fake fake = {0};
        fake_start(&fake);
        fake.n_fds = n;
        CHECK_INT(fake_open_fails(&fake), -STAGER_INTERNAL);
        CHECK_CONTAINS(stager_error_text(NULL), "descriptors");
        fake_stop(&fake);
    }
}

static void a_credit_that_makes_no_sense_is_refused(void)
{
    uint32_t lies[] = {0, STG_MAX_IN_FLIGHT + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct fake fake = {0};
        fake_start(&fake);
        fake.max_in_flight = lies[i];
        CHECK_INT(fake_open_fails(&fake), -STAGER_INTERNAL);
        fake_stop(&fake);
    }
}

static void pages_of_another_layout_are_refused_with_both_versions(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    atomic_store(&fake.ring.page->header.version, 7u << 16 | 3);
    CHECK_INT(fake_open_fails(&fake), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(NULL), "7.3");
    CHECK_CONTAINS(stager_error_text(NULL), "1.0 to 1.");
    fake_stop(&fake);

    struct fake other = {0};
    fake_start(&other);
    atomic_store(&other.control.page->header.version, 0);
    CHECK_INT(fake_open_fails(&other), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(NULL), "control page");
    fake_stop(&other);
}

static void pages_with_another_magic_or_size_are_refused(void)
{
    for (int i = 0; i < 4; i++) {
        struct fake fake = {0};
        fake_start(&fake);
        struct stg_object_header *header =
            i % 2 == 0 ? &fake.ring.page->header : &fake.control.page->header;
        if (i < 2)
            header->magic ^= 1;
        else
            header->n_entries /= 2;
        CHECK_INT(fake_open_fails(&fake), -STAGER_DATA_LOSS);
        CHECK_CONTAINS(stager_error_text(NULL), "page");
        fake_stop(&fake);
    }
}

/* ---- descriptors ---- */

static void check_refused(struct fake *fake, struct stager_stream *stream,
                          const char *text)
{
    struct stager_batch *batch = NULL;
    CHECK_INT(stager_next(stream, 0, &batch), -STAGER_DATA_LOSS);
    CHECK(batch == NULL);
    CHECK_CONTAINS(stager_error_text(stream), text);
    CHECK_INT(fake_releases(fake), 1); /* the memory is released all the same */
}

static void descriptors_that_point_outside_are_refused_and_the_stream_continues(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct {
        uint64_t offset, length;
        uint32_t segment;
    } lies[] = {
        {FAKE_SEGMENT_BYTES, 4096, 0},
        {UINT64_MAX - 63, 4096, 0},
        {0, FAKE_SEGMENT_BYTES + 1ull, 0},
        {64, UINT64_MAX, 0},
        {FAKE_SEGMENT_BYTES - 64, 128, 0},
        {8, 4096, 0},
        {0, 4096, 1},
        {1ull << 63, 1ull << 63, 0},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct stg_descriptor d = fake_descriptor(&fake, 0, 100 + i, 0);
        d.offset = lies[i].offset;
        d.length = lies[i].length;
        d.segment = lies[i].segment;
        stg_ring_push(&fake.ring, &d);
        check_refused(&fake, stream, "outside");
    }
    fake_publish(&fake, 0, 1, 77, 1);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 0, &batch), 0);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void a_batch_whose_header_lies_is_refused_at_the_first_look(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    for (int i = 0; i < 6; i++) {
        fake_publish(&fake, 0, 5, 1, 4);
        struct stg_batch_header *header = (struct stg_batch_header *)fake.segment;
        struct stg_tensor_entry *entry =
            (struct stg_tensor_entry *)(fake.segment + sizeof(*header));
        switch (i) {
        case 0: header->magic = 0; break;
        case 1: header->n_tensors = UINT32_MAX; break;
        case 2: header->total_bytes = UINT64_MAX; break;
        case 3: entry->data_offset = UINT64_MAX - 8; break;
        case 4: entry->shape[0] = INT64_MAX; break;
        case 5: header->kind = STG_BATCH_ERROR; break;
        }
        struct stager_batch *batch;
        struct stager_tensor x;
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        const char *fetch = "staged:x";
        CHECK_INT(stager_next(stream, 0, &batch), 0);
        CHECK_INT(stager_batch_tensor(batch, "x", &x), -STAGER_DATA_LOSS);
        CHECK_CONTAINS(stager_error_text(stream), "batch 5");
        CHECK_INT(stager_batch_tensor_at(batch, 0, &x), -STAGER_DATA_LOSS);
        CHECK_INT(stager_run(stream, batch, &fetch, 1, &x), -STAGER_DATA_LOSS);
        stager_batch_info(batch, &info);
        CHECK_INT(info.number, 5);
        CHECK_INT(info.n_tensors, 0);
        stager_release(batch);
        CHECK_INT(fake_releases(&fake), 1);
    }
    fake_finish(&fake, stream);
}

static void an_error_item_whose_text_lies_outside_is_refused(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    for (int i = 0; i < 3; i++) {
        fake_publish_error(&fake, 0, 5, STAGER_UNKNOWN, "text");
        struct stg_batch_header *header = (struct stg_batch_header *)fake.segment;
        if (i == 0)
            header->error_offset = UINT32_MAX;
        else if (i == 1)
            header->error_bytes = UINT32_MAX;
        else
            header->kind = STG_BATCH_TENSORS;
        check_refused(&fake, stream, "error item 5");
    }
    fake_publish_error(&fake, 0, 6, 4711, "a code that is none");
    check_refused(&fake, stream, "error_code");
    fake_finish(&fake, stream);
}

static void a_descriptor_of_an_unknown_kind_ends_the_stream(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    stg_ring_push(&fake.ring, &(struct stg_descriptor){.kind = 99});
    struct stager_batch *batch;
    for (int i = 0; i < 2; i++) {
        CHECK_INT(stager_next(stream, 0, &batch), -STAGER_INTERNAL);
        CHECK_CONTAINS(stager_error_text(stream), "kind 99");
    }
    fake_finish(&fake, stream);
}

static void a_terminal_status_of_a_wrong_length_is_truncated(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    stg_ring_finish(&fake.ring, STAGER_ABORTED, "bye");
    fake.ring.page->final.text_bytes = UINT32_MAX;
    fake.ring.page->final.code = 4711;
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 0, &batch), -STAGER_UNKNOWN);
    CHECK_STR(stager_error_text(stream), "bye");
    fake_finish(&fake, stream);
}

/* Arbitrary bytes in ring and segment give an error or a batch, never a crash. The
 * sanitizers watch. */
static void noise_in_shared_memory_never_crashes(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    unsigned seed = 1;
    for (int round = 0; round < 20000; round++) {
        fake_publish(&fake, 0, 1, 0, 3);
        char *target = round % 3 == 0
                           ? (char *)&fake.ring.page
                                 ->entries[(fake.ring.head - 1) % STG_RING_ENTRIES]
                           : fake.segment;
        size_t bytes = round % 3 == 0 ? sizeof(struct stg_descriptor)
                                      : sizeof(struct stg_batch_header) +
                                            sizeof(struct stg_tensor_entry) + 8;
        for (int i = 0; i < 1 + round % 4; i++)
            target[(size_t)rand_r(&seed) % bytes] = (char)rand_r(&seed);
        struct stager_batch *batch;
        int rc = stager_next(stream, 0, &batch);
        struct stager_stream_info info = {.struct_size = sizeof(info)};
        stager_stream_info(stream, &info);
        if (info.finished) { /* FINAL or an unknown kind: use a new stream */
            fake_finish(&fake, stream);
            fake = (struct fake){0};
            fake_start(&fake);
            stream = fake_open(&fake, NULL);
            continue;
        }
        if (rc == -STAGER_OUT_OF_RANGE && info.at_end)
            CHECK_INT(stager_rewind(stream), 0);
        fake_releases(&fake);
        if (rc < 0)
            continue;
        struct stager_tensor tensor;
        struct stager_batch_info batch_info = {.struct_size = sizeof(batch_info)};
        stager_batch_info(batch, &batch_info);
        uint64_t sum = 0;
        for (uint32_t i = 0; i < batch_info.n_tensors; i++) {
            if (stager_batch_tensor_at(batch, i, &tensor) < 0)
                continue;
            for (uint64_t k = 0; k < tensor.data_bytes; k++)
                sum += ((const unsigned char *)tensor.data)[k];
        }
        CHECK(sum < UINT64_MAX);
        stager_release(batch);
    }
    fake_finish(&fake, stream);
}

static const struct stg_test tests[] = {
    TEST(an_unsealed_segment_is_not_read),
    TEST(a_segment_that_is_shorter_than_promised_is_not_read),
    TEST(descriptors_that_are_not_three_are_refused),
    TEST(a_credit_that_makes_no_sense_is_refused),
    TEST(pages_of_another_layout_are_refused_with_both_versions),
    TEST(pages_with_another_magic_or_size_are_refused),
    TEST(descriptors_that_point_outside_are_refused_and_the_stream_continues),
    TEST(a_batch_whose_header_lies_is_refused_at_the_first_look),
    TEST(an_error_item_whose_text_lies_outside_is_refused),
    TEST(a_descriptor_of_an_unknown_kind_ends_the_stream),
    TEST(a_terminal_status_of_a_wrong_length_is_truncated),
    TEST_SLOW(noise_in_shared_memory_never_crashes, 60),
};

TEST_MAIN(tests)
