/* SPDX-License-Identifier: Apache-2.0
 *
 * One pipeline, trainers with batches of different sizes: slices of a real daemon's
 * batches. Line i of the data is "i,w<i>_0 w<i>_1 …" with i % 4 words.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define ROWS 20000
#define STAGED 4096

static void apply(struct fixture *fixture, const char *staged, const char *batch)
{
    static char lines[ROWS * 64], yaml[2048];
    char path[256];
    size_t n = 0;
    for (int i = 0; i < ROWS; i++) {
        n += (size_t)sprintf(lines + n, "%d,", i);
        for (int k = 0; k < i % 4; k++)
            n += (size_t)sprintf(lines + n, "%sw%d_%d", k > 0 ? " " : "", i, k);
        n += (size_t)sprintf(lines + n, "\n");
    }
    fixture_file(fixture, "lines.csv", lines, n, path);
    snprintf(
        yaml, sizeof(yaml),
        "name: lines\n"
        "dataset:\n"
        "  - files: {pattern: [\"%s\"]}\n"
        "  - text_line: {}\n"
        "  - batch: {%s}\n"
        "graph:\n"
        "  - {name: c, op: decode_csv, input: [record], record_defaults: [0, \"\"]}\n"
        "  - {name: w, op: string_split, input: [\"c:1\"]}\n"
        "  - {name: s, op: string_split, input: [\"c:1\"], result_type: sparse}\n"
        "  - {name: one, op: constant, value: 7}\n"
        "  - {name: twice, op: add, input: [\"staged:id\", \"staged:id\"]}\n"
        "  - {name: hash, op: string_to_hash_bucket_fast, num_buckets: 1000003,\n"
        "     input: [\"staged:text\"]}\n"
        "staged:\n"
        "  features:\n"
        "    id: \"c:0\"\n"
        "    text: \"c:1\"\n"
        "    one: one\n"
        "    words: {ragged: {values: w, row_splits: \"w:1\"}}\n"
        "    cells: {sparse: {values: s, indices: \"s:1\", dense_shape: \"s:2\"}}\n"
        "%s"
        "targets: [twice, hash]\n",
        path, batch, staged);
    fixture_apply(fixture, yaml);
}

static struct stager_stream *open_sliced(struct fixture *fixture, uint32_t batch_size,
                                         const char *client_id)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = client_id,
                                     .runtime_dir = fixture->runtime,
                                     .batch_size = batch_size};
    struct stager_stream *stream;
    if (stager_open(NULL, "lines", &options, &stream) < 0)
        FAIL("%s", stager_error_text(NULL));
    return stream;
}

static struct stager_tensor get(const struct stager_batch *batch, const char *name)
{
    struct stager_tensor t;
    CHECK_INT(stager_batch_tensor(batch, name, &t), 0);
    return t;
}

static void check_text(const struct stager_tensor *t, int64_t i, const char *want)
{
    CHECK_INT(t->offsets[i + 1] - t->offsets[i], strlen(want));
    CHECK(memcmp((const char *)t->data + t->offsets[i], want, strlen(want)) == 0);
}

/* Checks for rows [first, first + n) and nothing else. */
static void check_rows(const struct stager_batch *batch, int first, int n)
{
    struct stager_tensor id = get(batch, "id"), text = get(batch, "text"),
                         one = get(batch, "one");
    struct stager_ragged words;
    struct stager_sparse cells;
    CHECK_INT(stager_batch_ragged(batch, "words", &words), 0);
    CHECK_INT(stager_batch_sparse(batch, "cells", &cells), 0);
    const int64_t *splits = words.row_splits.data, *at = cells.indices.data;
    int64_t used = 0;
    CHECK_INT(id.shape[0], n);
    CHECK_INT(text.shape[0], n);
    CHECK_INT(words.row_splits.shape[0], n + 1);
    CHECK_INT(((const int64_t *)cells.dense_shape.data)[0], n);
    CHECK_INT(((const int32_t *)one.data)[0], 7);
    for (int i = 0; i < n; i++) {
        char line[256] = "", word[32];
        CHECK_INT(((const int32_t *)id.data)[i], first + i);
        CHECK_INT(splits[i], used);
        for (int k = 0; k < (first + i) % 4; k++, used++) {
            sprintf(word, "w%d_%d", first + i, k);
            check_text(&words.values, used, word);
            check_text(&cells.values, used, word);
            CHECK_INT(at[2 * used], i);
            CHECK_INT(at[2 * used + 1], k);
            sprintf(line + strlen(line), "%s%s", k > 0 ? " " : "", word);
        }
        check_text(&text, i, line);
    }
    CHECK_INT(words.values.shape[0], used);
    CHECK_INT(cells.values.shape[0], used);
}

/* Takes the pass in slices: all rows come in order. Returns the number of slices. */
static int take_pass(struct stager_stream *stream, int n_rows)
{
    struct stager_batch *batch;
    int rc, row = 0, n = 0;
    while ((rc = stager_next(stream, fixture_millis(20000), &batch)) == 0) {
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        stager_batch_info(batch, &info);
        check_rows(batch, row, (int)info.n_rows);
        row += (int)info.n_rows;
        n++;
        stager_release(batch);
    }
    CHECK_INT(rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(row, n_rows);
    return n;
}

static void sixteen(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = open_sliced(fixture, *(uint32_t *)arg, "sliced");
    for (int pass = 0; pass < 2; pass++) {
        trainer_send(fd, take_pass(stream, ROWS / STAGED * STAGED));
        CHECK_INT(stager_rewind(stream), 0);
    }
    stager_close(stream);
}

static void a_broadcast_of_4096_is_read_as_4_times_1024_and_whole(void)
{
    struct fixture fixture;
    struct trainer slicer;
    uint32_t size = 1024;
    fixture_start(&fixture, "");
    apply(&fixture, "  num_clients: 2\n  delivery: broadcast\n  capacity: 2\n",
          "batch_size: 4096, drop_remainder: true");
    trainer_start(&slicer, sixteen, &fixture, &size);
    struct stager_stream *whole = open_sliced(&fixture, 0, "whole");
    for (int pass = 0; pass < 2; pass++) {
        CHECK_INT(take_pass(whole, ROWS / STAGED * STAGED), 4);
        CHECK_INT(trainer_recv(slicer.fd), 16);
        CHECK_INT(stager_rewind(whole), 0);
    }
    trainer_join(&slicer);
    stager_close(whole);
    fixture_finish(&fixture);
}

static void a_last_batch_that_is_shorter_ends_with_a_shorter_slice(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, "", "batch_size: 4096");
    struct stager_stream *stream = open_sliced(&fixture, 512, NULL);
    CHECK_INT(take_pass(stream, ROWS), (ROWS + 511) / 512);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_size_that_does_not_divide_is_refused_with_both_numbers(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, "", "batch_size: 4096"); /* the shape itself is not static */
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime,
                                     .batch_size = 1000};
    struct stager_stream *stream = NULL;
    CHECK_INT(stager_open(NULL, "lines", &options, &stream), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(NULL), "1000 does not divide the 4096 rows");
    fixture_finish(&fixture);
}

static void stager_run_computes_on_the_slice(void)
{
    static const char *const fetches[] = {"twice", "hash", "staged:text"};
    struct fixture fixture;
    static int64_t hashes[STAGED];
    fixture_start(&fixture, "");
    apply(&fixture, "  num_clients: 2\n  delivery: broadcast\n",
          "batch_size: 4096, drop_remainder: true");
    struct stager_stream *whole = open_sliced(&fixture, 0, "whole");
    struct stager_stream *sliced = open_sliced(&fixture, 1024, "sliced");
    struct stager_batch *batch = fixture_take(whole);
    struct stager_tensor ret[3];
    if (stager_run(whole, batch, fetches, 2, ret) < 0)
        FAIL("%s", stager_error_text(whole));
    CHECK_INT(ret[1].shape[0], STAGED);
    memcpy(hashes, ret[1].data, sizeof(hashes));
    for (int k = 0; k < 4; k++) {
        struct stager_batch *slice = fixture_take(sliced);
        if (stager_run(sliced, slice, fetches, 3, ret) < 0)
            FAIL("%s", stager_error_text(sliced));
        CHECK_INT(ret[0].shape[0], 1024);
        for (int i = 0; i < 1024; i++) {
            CHECK_INT(((const int32_t *)ret[0].data)[i], 2 * (1024 * k + i));
            CHECK_INT(((const int64_t *)ret[1].data)[i], hashes[1024 * k + i]);
        }
        check_text(&ret[2], 1,
                   k == 0   ? "w1_0"
                   : k == 1 ? "w1025_0"
                   : k == 2 ? "w2049_0"
                            : "w3073_0");
        stager_release(slice);
    }
    stager_release(batch);
    stager_close(whole);
    stager_close(sliced);
    fixture_finish(&fixture);
}

/* Takes one slice of the first staged batch, reports it, and waits to be killed. */
static void take_one_slice(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = open_sliced(fixture, 1024, "dies");
    struct stager_batch *batch = fixture_take(stream);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    stager_release(batch);
    trainer_send(fd, (int64_t)info.number);
    trainer_recv(fd);
}

static void a_staged_batch_is_left_whole_to_the_others_if_its_client_dies_or_leaves(void)
{
    for (int kill = 0; kill < 2; kill++) {
        struct fixture fixture;
        struct trainer other;
        fixture_start(&fixture, "");
        apply(&fixture, "  num_clients: 2\n  capacity: 1\n", "batch_size: 4096");
        struct stager_stream *leaver = NULL;
        if (kill) {
            trainer_start(&other, take_one_slice, &fixture, NULL);
            CHECK_INT(trainer_recv(other.fd), 0);
        } else {
            leaver = open_sliced(&fixture, 1024, "leaves");
            stager_release(fixture_take(leaver));
        }
        struct stager_stream *heir = open_sliced(&fixture, 2048, "heir");
        if (kill)
            trainer_kill(&other);
        else
            stager_close(leaver);
        bool seen = false;
        struct stager_batch *batch;
        int rc, n = 0;
        while ((rc = stager_next(heir, fixture_millis(20000), &batch)) == 0) {
            struct stager_batch_info info = {.struct_size = sizeof(info)};
            stager_batch_info(batch, &info);
            check_rows(batch, (int)info.number * STAGED + (int)info.slice * 2048,
                       (int)info.n_rows);
            seen = seen || (info.number == 0 && info.redelivered == 1);
            n += (int)info.n_rows;
            stager_release(batch);
        }
        CHECK_INT(rc, -STAGER_OUT_OF_RANGE);
        CHECK(seen);
        CHECK_INT(n, ROWS);
        stager_close(heir);
        fixture_finish(&fixture);
    }
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_broadcast_of_4096_is_read_as_4_times_1024_and_whole, 60),
    TEST_SLOW(a_last_batch_that_is_shorter_ends_with_a_shorter_slice, 60),
    TEST(a_size_that_does_not_divide_is_refused_with_both_numbers),
    TEST(stager_run_computes_on_the_slice),
    TEST_SLOW(a_staged_batch_is_left_whole_to_the_others_if_its_client_dies_or_leaves,
              60),
};

TEST_MAIN(tests)
