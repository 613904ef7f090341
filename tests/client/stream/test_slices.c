/* SPDX-License-Identifier: Apache-2.0
 *
 * A staged batch read in slices, against a daemon played by the test: the contents of a
 * slice, when the client releases the staged batch, and batches that cannot be sliced.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/client/rows.h"

static struct stager_stream *open_slices(struct fake *fake, uint32_t batch_size,
                                         int64_t rows)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .batch_size = batch_size};
    fake_start(fake);
    fake->boundary = rows_boundary(rows);
    fake->batch_rows = rows > 0 ? (uint64_t)rows : 0;
    return fake_open(fake, &options);
}

static void check_place(const struct stager_batch *batch, uint64_t number, uint32_t slice,
                        uint32_t n_slices)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    CHECK_INT(info.number, number);
    CHECK_INT(info.slice, slice);
    CHECK_INT(info.n_slices, n_slices);
}

/* ---- contents of a slice ---- */

static void slices_hold_their_rows_of_every_kind_of_tensor(void)
{
    static const uint32_t sizes[] = {1, 2, 5, 8, 20, 40};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct fake fake = {0};
        struct stager_stream *stream = open_slices(&fake, sizes[i], 40);
        CHECK_INT(fake.opened.batch_size, sizes[i]);
        rows_publish(&fake, 0, 9, 100, 40);
        rows_publish(&fake, 1, 10, 140, 40);
        uint32_t n = 40 / sizes[i];
        for (uint32_t k = 0; k < 2 * n; k++) {
            struct stager_batch *batch = fake_take(stream);
            rows_check(batch, 100 + k * sizes[i], sizes[i]);
            check_place(batch, 9 + k / n, k % n, n);
            stager_release(batch);
        }
        CHECK_INT(fake_releases(&fake), 2);
        fake_finish(&fake, stream);
    }
}

static void without_batch_size_a_batch_is_whole(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 0, 40);
    rows_publish(&fake, 0, 9, 100, 40);
    struct stager_batch *batch = fake_take(stream);
    rows_check(batch, 100, 40);
    check_place(batch, 9, 0, 1);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void a_partial_last_batch_ends_with_a_partial_slice(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 16, -1);
    rows_publish(&fake, 0, 0, 0, 32);
    rows_publish(&fake, 1, 1, 32, 21);
    static const int64_t n[] = {16, 16, 16, 5};
    for (int i = 0; i < 4; i++) {
        struct stager_batch *batch = fake_take(stream);
        rows_check(batch, 16 * i, n[i]);
        check_place(batch, i / 2, i % 2, 2);
        stager_release(batch);
    }
    fake_finish(&fake, stream);
}

static void a_batch_without_rows_is_one_slice_without_rows(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 16, -1);
    rows_publish(&fake, 0, 0, 0, 0);
    rows_publish(&fake, 1, 1, 0, 3);
    struct stager_batch *batch = fake_take(stream);
    rows_check(batch, 0, 0);
    check_place(batch, 0, 0, 1);
    stager_release(batch);
    batch = fake_take(stream);
    rows_check(batch, 0, 3);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void dense_tensors_and_strings_are_not_copied(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 8, 16);
    rows_publish(&fake, 0, 0, 0, 16);
    struct stager_batch *first = fake_take(stream), *second = fake_take(stream);
    static const char *const names[] = {"x", "pad", "words"};
    static const int64_t apart[] = {8 * 8, 8 * 12, 0};
    for (int i = 0; i < 3; i++) {
        struct stager_tensor a, b;
        CHECK_INT(stager_batch_tensor(first, names[i], &a), 0);
        CHECK_INT(stager_batch_tensor(second, names[i], &b), 0);
        CHECK_INT((const char *)b.data - (const char *)a.data, apart[i]);
        if (a.offsets != NULL)
            CHECK_INT(b.offsets - a.offsets, 2 * 8);
    }
    stager_release(first);
    stager_release(second);
    fake_finish(&fake, stream);
}

/* ---- release of the staged batch ---- */

static void a_staged_batch_goes_back_with_its_last_slice_in_any_order(void)
{
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}};
    for (size_t k = 0; k < 4; k++) {
        struct fake fake = {0};
        struct stager_stream *stream = open_slices(&fake, 8, 24);
        rows_publish(&fake, 3, 0, 0, 24);
        struct stager_batch *slices[3];
        for (int i = 0; i < 3; i++)
            slices[i] = fake_take(stream);
        for (int i = 0; i < 3; i++) {
            CHECK_INT(fake_releases(&fake), 0);
            rows_check(slices[orders[k][i]], 8 * orders[k][i], 8);
            stager_release(slices[orders[k][i]]);
        }
        struct stg_release_entry entry;
        CHECK_INT(stg_control_poll(&fake.control, &entry), 1);
        CHECK_INT(entry.lease, 3);
        fake_finish(&fake, stream);
    }
}

static void a_staged_batch_stays_while_slices_of_it_are_to_come(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 8, 16);
    rows_publish(&fake, 0, 0, 0, 16);
    stager_release(fake_take(stream));
    CHECK_INT(fake_releases(&fake), 0);
    struct stager_batch *last = fake_take(stream);
    rows_check(last, 8, 8);
    stager_release(last);
    CHECK_INT(fake_releases(&fake), 1);
    fake_finish(&fake, stream);
}

static void a_staged_batch_is_acknowledged_when_the_one_after_its_last_slice_is_asked_for(
    void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 8, 24);
    rows_publish(&fake, 0, 0, 0, 24);
    for (int i = 0; i < 3; i++) {
        stager_release(fake_take(stream));
        CHECK_INT(stg_control_asked(&fake.control), 1);
    }
    struct stager_batch *none = NULL;
    CHECK_INT(stager_next(stream, 0, &none), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(stg_control_asked(&fake.control), 2);
    fake_finish(&fake, stream);
}

static void max_in_flight_counts_staged_batches(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 8, 16);
    struct stager_batch *slices[4], *none = NULL;
    for (uint32_t i = 0; i < 2; i++)
        rows_publish(&fake, i, 70 + i, 16 * i, 16);
    for (int i = 0; i < 4; i++)
        slices[i] = fake_take(stream);
    stager_release(slices[0]);
    CHECK_INT(stager_next(stream, 0, &none), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream),
                   "2 of 2 staged batches are in hand (70: 1 of 2 slices, 71: 2 of 2 "
                   "slices): release all slices of one");
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.held, 2);
    CHECK_INT(info.batches, 4);
    stager_release(slices[1]);
    rows_publish(&fake, 0, 72, 32, 16);
    struct stager_batch *next = fake_take(stream);
    rows_check(next, 32, 8);
    stager_release(next);
    stager_release(fake_take(stream));
    stager_release(slices[2]);
    stager_release(slices[3]);
    CHECK_INT(fake_releases(&fake), 3);
    fake_finish(&fake, stream);
}

static void handles_do_not_run_out_and_slices_keep_apart(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 1, 64);
    static struct stager_batch *slices[128];
    for (int round = 0; round < 3; round++) {
        rows_publish(&fake, 0, 0, 0, 64);
        rows_publish(&fake, 1, 1, 64, 64);
        for (int i = 0; i < 128; i++)
            slices[i] = fake_take(stream);
        for (int i = 0; i < 128; i++)
            rows_check(slices[i], i, 1);
        for (int i = 0; i < 128; i++)
            stager_release(slices[(i * 37) % 128]);
        CHECK_INT(fake_releases(&fake), 2);
    }
    fake_finish(&fake, stream);
}

static void errors_and_ends_pass_through_once_and_a_rewind_follows(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 8, 16);
    struct stager_batch *none = NULL;
    rows_publish(&fake, 0, 0, 0, 16);
    fake_publish_error(&fake, 1, 1, STAGER_DATA_LOSS, "a.csv:7: no number");
    fake_publish_end(&fake, 0);
    stager_release(fake_take(stream));
    CHECK_INT(stager_rewind(stream), -STAGER_FAILED_PRECONDITION);
    struct stager_batch *kept = fake_take(stream);
    CHECK_INT(stager_next(stream, 0, &none), -STAGER_DATA_LOSS);
    CHECK_STR(stager_error_text(stream), "a.csv:7: no number");
    CHECK_INT(stager_next(stream, 0, &none), -STAGER_OUT_OF_RANGE);
    CHECK_INT(stager_next(stream, 0, &none), -STAGER_OUT_OF_RANGE);
    CHECK_INT(stager_rewind(stream), 0);
    rows_publish(&fake, 2, 2, 0, 16);
    struct stager_batch *next = fake_take(stream);
    rows_check(next, 0, 8);
    rows_check(kept, 8, 8);
    stager_release(kept);
    stager_release(next);
    stager_release(fake_take(stream));
    CHECK_INT(fake_releases(&fake), 3);
    fake_finish(&fake, stream);
}

/* ---- close ---- */

static void slices_stay_readable_after_close_until_each_is_released(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 8, 16);
    rows_publish(&fake, 0, 0, 0, 16);
    struct stager_batch *first = fake_take(stream), *second = fake_take(stream);
    fake_hang_up(&fake);
    stager_close(stream);
    rows_check(second, 8, 8);
    stager_release(second);
    CHECK_INT(fake_releases(&fake), 0);
    rows_check(first, 0, 8);
    stager_release(first);
    CHECK_INT(fake_releases(&fake), 1);
    fake_stop(&fake);
}

/* The staged batch goes to other clients as a whole, so it may not be acknowledged. */
static void a_half_taken_batch_goes_back_only_when_the_daemon_has_let_go(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 8, 24);
    rows_publish(&fake, 0, 0, 0, 24);
    stager_release(fake_take(stream));
    struct stager_batch *kept = fake_take(stream);
    CHECK_INT(fake_releases(&fake), 0);
    fake_hang_up(&fake);
    stager_close(stream);
    CHECK_INT(fake_releases(&fake), 0); /* the trainer holds one of its slices */
    stager_release(kept);
    CHECK_INT(fake_releases(&fake), 1);
    fake_stop(&fake);

    struct fake other = {0};
    stream = open_slices(&other, 8, 24);
    rows_publish(&other, 0, 0, 0, 24);
    stager_release(fake_take(stream));
    fake_hang_up(&other);
    stager_close(stream);
    CHECK_INT(fake_releases(&other), 1);
    fake_stop(&other);
}

/* ---- batches that cannot be sliced ---- */

static void check_refused(uint32_t batch_size, uint64_t batch_rows,
                          struct stg_schema boundary, const char *text)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.boundary = boundary;
    fake.batch_rows = batch_rows;
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fake.dir,
                                     .batch_size = batch_size};
    struct stager_stream *stream = NULL;
    fake_serve(&fake);
    CHECK_INT(stager_open(NULL, "fake", &options, &stream), -STAGER_INVALID_ARGUMENT);
    fake_join(&fake);
    CHECK_CONTAINS(stager_error_text(NULL), text);
    fake_stop(&fake);
}

static void sizes_that_do_not_divide_are_refused_at_open_with_both_numbers(void)
{
    check_refused(7, 40, rows_boundary(40),
                  "batch_size 7 does not divide the 40 rows of a staged batch");
    check_refused(41, 40, rows_boundary(40), "batch_size 41 does not divide the 40 rows");
    check_refused(UINT32_MAX, 40, rows_boundary(-1), "does not divide the 40 rows");
}

static void a_tensor_without_rows_is_named_at_open(void)
{
    struct stg_schema boundary = rows_boundary(40);
    boundary.components[2].shape[0] = 10; /* pad */
    check_refused(8, 40, boundary, "tensor pad has 10 rows, a staged batch has 40");
    boundary = rows_boundary(40);
    boundary.components[5].shape[0] = 40; /* ids/row_splits */
    check_refused(8, 40, boundary,
                  "tensor ids/row_splits splits 39 rows, a staged batch has 40");
}

/* Publishes a batch {x: [4], y: [n]} of int64. */
static void publish_pair(struct fake *fake, uint32_t slot, int64_t n)
{
    struct stg_err err = {0};
    struct stg_batch_writer w;
    char *base = fake->segment + (size_t)slot * STG_GRANULE_BYTES;
    CHECK_OK(stg_batch_writer_begin(&w, base, STG_GRANULE_BYTES, &fake->boundary, &err),
             err);
    struct stg_tensor t;
    int64_t shape[] = {4};
    CHECK_OK(stg_batch_writer_alloc(&w, 0, STAGER_INT64, 1, shape, 0, &t, &err), err);
    CHECK_OK(stg_batch_writer_alloc(&w, 1, STAGER_INT64, 1, &n, 0, &t, &err), err);
    uint64_t bytes = stg_batch_writer_seal(&w);
    struct stg_descriptor d = fake_descriptor(fake, slot, 5, bytes);
    stg_ring_push(&fake->ring, &d);
}

static void a_batch_with_tensors_of_different_rows_is_an_error_and_the_stream_continues(
    void)
{
    static struct stg_component pair[] = {
        {.name = "x", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
        {.name = "y", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
    };
    struct fake fake = {0};
    struct stager_options options = {.struct_size = sizeof(options), .batch_size = 2};
    fake_start(&fake);
    fake.boundary = (struct stg_schema){.components = pair, .n = 2};
    struct stager_stream *stream = fake_open(&fake, &options);
    struct stager_batch *batch = NULL;
    publish_pair(&fake, 0, 3);
    publish_pair(&fake, 1, 4);
    CHECK_INT(stager_next(stream, 0, &batch), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream), "batch 5: tensor y has 3 rows, tensor x 4");
    CHECK_INT(fake_releases(&fake), 1);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.errors, 1);
    CHECK_INT(info.held, 0);
    stager_release(fake_take(stream));
    stager_release(fake_take(stream));
    CHECK_INT(fake_releases(&fake), 1);
    fake_finish(&fake, stream);
}

/* ---- a hostile daemon ---- */

static int64_t *data_of(struct fake *fake, uint32_t slot, const char *name)
{
    const void *base = fake->segment + (size_t)slot * STG_GRANULE_BYTES;
    struct stg_tensor t;
    int i = stg_batch_find(base, name);
    CHECK(i >= 0);
    stg_batch_tensor_at(base, (uint32_t)i, &t, NULL);
    return t.data;
}

static void parts_that_lie_are_refused_and_the_tensor_is_named(void)
{
    static const struct {
        const char *name;
        int at;
        int64_t value;
        const char *text;
    } lies[] = {
        {"ids/row_splits", 0, 1,
         "tensor ids/row_splits: row_splits must begin with 0, not with 1"},
        {"ids/row_splits", 3, -5, "tensor ids/row_splits: row_splits decrease"},
        {"ids/row_splits", 3, INT64_MAX, "tensor ids/row_splits: row_splits decrease"},
        {"tags/row_splits", 16, 1000, "tensor tags/row_splits: row_splits end with 1000"},
        {"hot/indices", 2, -1, "tensor hot/indices: entry 1 has index -1"},
        {"hot/indices", 3, 5, "entry 1 has index 5 in dimension 1, which has 5"},
        {"hot/indices", 0, 15,
         "tensor hot/indices: entry 1 is of row 2, after one of row"},
        {"hot/dense_shape", 0, INT64_MIN, "tensor hot/dense_shape: dimension 0 is"},
        {"hot/dense_shape", 0, 17, "tensor hot/dense_shape has 17 rows, tensor x 16"},
        {"hot/dense_shape", 0, INT64_MAX, "rows, tensor x 16"},
    };
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 4, 16);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct stager_batch *batch = NULL;
        rows_publish(&fake, 0, 0, 0, 16);
        data_of(&fake, 0, lies[i].name)[lies[i].at] = lies[i].value;
        int rc = stager_next(stream, 0, &batch);
        CHECK(rc == -STAGER_DATA_LOSS || rc == -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(stager_error_text(stream), lies[i].text);
        CHECK_INT(fake_releases(&fake), 1);
    }
    rows_publish(&fake, 0, 0, 0, 16);
    for (int i = 0; i < 4; i++) {
        struct stager_batch *batch = fake_take(stream);
        rows_check(batch, 4 * i, 4);
        stager_release(batch);
    }
    fake_finish(&fake, stream);
}

static void unsliced_parts_that_lie_are_refused_where_they_are_asked_for_as_one(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 0, 16);
    rows_publish(&fake, 0, 4, 0, 16);
    data_of(&fake, 0, "ids/row_splits")[3] = 99;
    struct stager_batch *batch = fake_take(stream);
    struct stager_ragged ragged;
    struct stager_sparse sparse;
    CHECK_INT(stager_batch_ragged(batch, "ids", &ragged), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(stager_error_text(stream),
                   "tensor ids/row_splits: row_splits decrease");
    CHECK_INT(stager_batch_sparse(batch, "ids", &sparse), -STAGER_NOT_FOUND);
    CHECK_INT(stager_batch_ragged(batch, "x", &ragged), -STAGER_NOT_FOUND);
    CHECK_INT(stager_batch_ragged(batch, "", &ragged), -STAGER_NOT_FOUND);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void parts_without_their_feature_make_a_batch_damaged(void)
{
    /* values of x, of ids, of hot: each tensor plays each part in turn */
    struct fake fake = {0};
    struct stager_stream *stream = open_slices(&fake, 4, 16);
    for (uint32_t i = 0; i < 11; i++) {
        for (uint32_t part = 0; part < 4; part++) {
            rows_publish(&fake, 0, 0, 0, 16);
            struct stg_tensor_entry *entries =
                (void *)(fake.segment + sizeof(struct stg_batch_header));
            bool same = entries[i].part == part;
            entries[i].part = part;
            struct stager_batch *batch = NULL;
            int rc = stager_next(stream, 0, &batch);
            if (part == STG_PART_DENSE_SHAPE && !same)
                CHECK_CONTAINS(stager_error_text(stream), "without the other parts");
            CHECK(same ? rc == 0
                       : rc == -STAGER_DATA_LOSS || rc == 0 ||
                             rc == -STAGER_INVALID_ARGUMENT);
            for (; rc == 0; rc = stager_next(stream, 0, &batch)) {
                struct stager_batch_info info = {.struct_size = sizeof(info)};
                stager_batch_info(batch, &info);
                for (uint32_t k = 0; k < info.n_tensors; k++) {
                    struct stager_tensor t;
                    CHECK_INT(stager_batch_tensor_at(batch, k, &t), 0);
                }
                stager_release(batch);
            }
        }
    }
    fake_finish(&fake, stream);
}

static void rows_without_number_are_refused(void)
{
    static struct stg_component scalar = {.name = "x", .dtype = STAGER_INT64};
    struct fake fake = {0};
    struct stager_options options = {.struct_size = sizeof(options), .batch_size = 1};
    fake_start(&fake);
    fake.boundary = (struct stg_schema){.components = &scalar, .n = 1};
    struct stager_stream *stream = fake_open(&fake, &options);
    struct stg_err err = {0};
    struct stg_batch_writer w;
    struct stg_tensor t;
    CHECK_OK(
        stg_batch_writer_begin(&w, fake.segment, STG_GRANULE_BYTES, &fake.boundary, &err),
        err);
    CHECK_OK(stg_batch_writer_alloc(&w, 0, STAGER_INT64, 0, NULL, 0, &t, &err), err);
    uint64_t bytes = stg_batch_writer_seal(&w);
    struct stg_descriptor d = fake_descriptor(&fake, 0, 0, bytes);
    ((struct stg_batch_header *)(void *)fake.segment)->n_rows = 1ull << 40;
    stg_ring_push(&fake.ring, &d);
    struct stager_batch *batch = NULL;
    CHECK_INT(stager_next(stream, 0, &batch), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(stager_error_text(stream),
                   "1099511627776 is not a valid number of rows");
    /* Scalars only: each slice holds them. */
    ((struct stg_batch_header *)(void *)fake.segment)->n_rows = 3;
    stg_ring_push(&fake.ring, &d);
    for (uint32_t i = 0; i < 3; i++) {
        batch = fake_take(stream);
        check_place(batch, 0, i, 3);
        stager_release(batch);
    }
    fake_finish(&fake, stream);
}

static const struct stg_test tests[] = {
    TEST(slices_hold_their_rows_of_every_kind_of_tensor),
    TEST(without_batch_size_a_batch_is_whole),
    TEST(a_partial_last_batch_ends_with_a_partial_slice),
    TEST(a_batch_without_rows_is_one_slice_without_rows),
    TEST(dense_tensors_and_strings_are_not_copied),
    TEST(a_staged_batch_goes_back_with_its_last_slice_in_any_order),
    TEST(a_staged_batch_stays_while_slices_of_it_are_to_come),
    TEST(a_staged_batch_is_acknowledged_when_the_one_after_its_last_slice_is_asked_for),
    TEST(max_in_flight_counts_staged_batches),
    TEST(handles_do_not_run_out_and_slices_keep_apart),
    TEST(errors_and_ends_pass_through_once_and_a_rewind_follows),
    TEST(slices_stay_readable_after_close_until_each_is_released),
    TEST(a_half_taken_batch_goes_back_only_when_the_daemon_has_let_go),
    TEST(sizes_that_do_not_divide_are_refused_at_open_with_both_numbers),
    TEST(a_tensor_without_rows_is_named_at_open),
    TEST(a_batch_with_tensors_of_different_rows_is_an_error_and_the_stream_continues),
    TEST(parts_that_lie_are_refused_and_the_tensor_is_named),
    TEST(unsliced_parts_that_lie_are_refused_where_they_are_asked_for_as_one),
    TEST(parts_without_their_feature_make_a_batch_damaged),
    TEST(rows_without_number_are_refused),
};

TEST_MAIN(tests)
