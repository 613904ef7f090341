/* SPDX-License-Identifier: Apache-2.0
 *
 * The readers, from real files to batches: what comes out, where it says it comes from,
 * and what a bad file costs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/dataset_spec.h"
#include "tests/daemon/golden_tfrecord.h"

#define N_GOLDEN (sizeof(golden_bytes) / sizeof(golden_bytes[0]))

static void reader(struct stg_test_spec *spec, const char *pattern, const char *name)
{
    stg_test_step(spec, "files");
    stg_test_pattern(spec, pattern);
    stg_test_bool(spec, "shuffle", false);
    stg_test_step(spec, name);
}

static void batch(struct stg_test_spec *spec, int64_t size)
{
    stg_test_step(spec, "batch");
    stg_test_int(spec, "batch_size", size);
}

/* ---- tfrecord ---- */

static void check_golden(const struct stg_tensor *tensor, int64_t from, size_t n)
{
    const unsigned char *want = golden_payloads;
    for (size_t i = 0; i < n; i++) {
        int64_t k = from + (int64_t)i;
        CHECK_INT(tensor->end[k] - tensor->begin[k], golden_bytes[i]);
        CHECK(memcmp((const char *)tensor->data + tensor->begin[k], want,
                     golden_bytes[i]) == 0);
        want += golden_bytes[i];
    }
}

static void records_of_several_files_make_one_batch(void)
{
    stg_test_file("a", golden_plain, sizeof(golden_plain));
    stg_test_file("b", "", 0);
    stg_test_file("c", golden_plain, sizeof(golden_plain));
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("?"), "tfrecord");
    batch(&spec, 100);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->tensors[0].shape[0], 2 * N_GOLDEN);
    check_golden(&block->tensors[0], 0, N_GOLDEN);
    check_golden(&block->tensors[0], N_GOLDEN, N_GOLDEN);
    char where[300], want[300];
    const struct stg_provenance *row = &block->rows[N_GOLDEN + 2];
    snprintf(want, sizeof(want), "%s: record 2 (offset 33)", stg_test_path("c"));
    CHECK_STR(stg_provenance_text(dataset, row, where, sizeof(where)), want);
    stg_block_unref(block);
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

/* TFD-E4: then the next file is read. */
static void a_damaged_file_is_an_error_item_and_the_next_file_is_read(void)
{
    unsigned char damaged[sizeof(golden_plain)];
    memcpy(damaged, golden_plain, sizeof(damaged));
    damaged[33] ^= 4; /* the length of record 2 */
    const char *path = stg_test_file("a", damaged, sizeof(damaged));
    stg_test_file("b", golden_plain, sizeof(golden_plain));
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("?"), "tfrecord");
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    for (size_t i = 0; i < 2 + 1 + N_GOLDEN; i++) {
        struct stg_block *block = stg_test_next(dataset);
        CHECK(block != NULL);
        CHECK_INT(block->error.code, i == 2 ? -STAGER_DATA_LOSS : 0);
        if (i == 2) {
            CHECK_CONTAINS(block->error.text, path);
            CHECK_CONTAINS(block->error.text, "record 2 (offset 33)");
        }
        stg_block_unref(block);
    }
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

/* ---- compression ---- */

static void what_tensorflow_compressed_is_read_by_name_and_by_magic(void)
{
    stg_test_file("gzip", golden_gzip, sizeof(golden_gzip));
    stg_test_file("zlib", golden_zlib, sizeof(golden_zlib));
    stg_test_file("plain", golden_plain, sizeof(golden_plain));
    static const char *const files[][2] = {
        {"gzip", "GZIP"},  {"zlib", "ZLIB"},  {"plain", ""},  {"gzip", "auto"},
        {"plain", "auto"}, {"plain", "none"}, {"gzip", NULL}, {"plain", NULL}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct stg_test_spec spec = {0};
        reader(&spec, stg_test_path(files[i][0]), "tfrecord");
        if (files[i][1] != NULL)
            stg_test_string(&spec, "compression_type", files[i][1]);
        batch(&spec, 100);
        struct stg_dataset_env env = stg_test_env();
        struct stg_dataset *dataset = stg_test_open(&spec, &env);
        struct stg_block *block = stg_test_next(dataset);
        CHECK_INT(block->error.code, 0);
        CHECK_INT(block->tensors[0].shape[0], N_GOLDEN);
        check_golden(&block->tensors[0], 0, N_GOLDEN);
        CHECK_INT(block->rows[2].offset, 33);
        stg_block_unref(block);
        stg_dataset_destroy(dataset);
    }
}

/* TFD-E4: wrong compression. TensorFlow takes an unknown one for none. */
static void the_wrong_compression_is_an_error_item_and_an_unknown_one_is_refused(void)
{
    const char *path = stg_test_file("a", golden_plain, sizeof(golden_plain));
    struct stg_test_spec spec = {0};
    reader(&spec, path, "tfrecord");
    stg_test_string(&spec, "compression_type", "GZIP");
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->error.code, -STAGER_DATA_LOSS);
    CHECK_CONTAINS(block->error.text, path);
    CHECK_CONTAINS(block->error.text, "the gzip stream at offset 0");
    stg_block_unref(block);
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);

    struct stg_test_spec unknown = {0};
    struct stg_err err = {0};
    reader(&unknown, path, "tfrecord");
    stg_test_string(&unknown, "compression_type", "SNAPPI");
    CHECK_INT(stg_dataset_create(&unknown.spec, &env, &dataset, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "step tfrecord (line 2): compression_type is \"SNAPPI\"");
}

static void a_compressed_file_that_is_cut_costs_its_rest_and_the_next_one_is_read(void)
{
    const char *path = stg_test_file("a", golden_gzip, sizeof(golden_gzip) - 5);
    stg_test_file("b", golden_gzip, sizeof(golden_gzip));
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("?"), "tfrecord");
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    size_t n = 0, n_errors = 0;
    struct stg_block *block;
    while ((block = stg_test_next(dataset)) != NULL) {
        if (block->error.code != 0) {
            CHECK_INT(n, N_GOLDEN);
            CHECK_INT(block->error.code, -STAGER_DATA_LOSS);
            CHECK_CONTAINS(block->error.text, path);
            CHECK_CONTAINS(block->error.text, "the file ends inside of it");
            n_errors++;
        } else {
            n++;
        }
        stg_block_unref(block);
    }
    CHECK_INT(n, 2 * N_GOLDEN);
    CHECK_INT(n_errors, 1);
    stg_dataset_destroy(dataset);
}

static void memory_of_decompressing_is_given_back(void)
{
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%03d", i);
        stg_test_file(name, golden_gzip, sizeof(golden_gzip));
    }
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("f*"), "tfrecord");
    batch(&spec, 200 * (int64_t)N_GOLDEN);
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 2 << 20;
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->tensors[0].shape[0], 200 * N_GOLDEN);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
}

static void a_step_that_reads_files_needs_them_and_sane_sizes(void)
{
    static const char *const names[] = {"tfrecord"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct stg_dataset_env env = stg_test_env();
        struct stg_dataset *dataset;
        struct stg_err err = {0};
        struct stg_test_spec alone = {0};
        stg_test_range(&alone, 3);
        stg_test_step(&alone, names[i]);
        CHECK_INT(stg_dataset_create(&alone.spec, &env, &dataset, &err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, "put `files` before it");
        static const char *const fields[] = {"buffer_size", "max_record_bytes"};
        for (size_t k = 0; k < 2; k++) {
            struct stg_test_spec spec = {0};
            reader(&spec, "/x", names[i]);
            stg_test_int(&spec, fields[k], 0);
            CHECK_INT(stg_dataset_create(&spec.spec, &env, &dataset, &err),
                      -STAGER_INVALID_ARGUMENT);
            CHECK_CONTAINS(err.text, names[i]);
            CHECK_CONTAINS(err.text, fields[k]);
        }
    }
}

static const struct stg_test tests[] = {
    TEST(records_of_several_files_make_one_batch),
    TEST(a_damaged_file_is_an_error_item_and_the_next_file_is_read),
    TEST(what_tensorflow_compressed_is_read_by_name_and_by_magic),
    TEST(the_wrong_compression_is_an_error_item_and_an_unknown_one_is_refused),
    TEST(a_compressed_file_that_is_cut_costs_its_rest_and_the_next_one_is_read),
    TEST(memory_of_decompressing_is_given_back),
    TEST(a_step_that_reads_files_needs_them_and_sane_sizes),
};

TEST_MAIN(tests)
