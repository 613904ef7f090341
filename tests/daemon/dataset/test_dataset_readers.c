/* SPDX-License-Identifier: Apache-2.0
 *
 * The readers, from real files to batches: the output, its provenance, and the cost of a
 * bad file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/format/golden_npy.h"
#include "tests/daemon/format/golden_tar.h"
#include "tests/daemon/format/golden_tfrecord.h"

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
    stg_test_file("snappy", golden_snappy, sizeof(golden_snappy));
    stg_test_file("plain", golden_plain, sizeof(golden_plain));
    static const char *const files[][2] = {
        {"snappy", "SNAPPY"}, {"gzip", "GZIP"}, {"zlib", "ZLIB"},
        {"plain", ""},        {"gzip", "auto"}, {"plain", "auto"},
        {"plain", "none"},    {"gzip", NULL},   {"plain", NULL}};
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

/* TFD-E4: wrong compression. TensorFlow treats an unknown one as none. */
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

static void a_compressed_file_that_is_truncated_costs_its_rest_and_the_next_one_is_read(
    void)
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
            CHECK_CONTAINS(block->error.text, "the file ends inside it");
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

/* ---- the other readers ---- */

#define STRING(text)                                                                     \
    {                                                                                    \
        .kind = STG_VALUE_STRING, .s = text, .s_bytes = sizeof(text) - 1                 \
    }

static void check_items(const struct stg_test_spec *spec, const char *want)
{
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render(spec, &env, 0);
    CHECK_STR(got, want);
    free(got);
}

static void a_batch_of_csv_keeps_records_of_several_lines_whole(void)
{
    STG_TEST_FILE("a", "h,i\n1,\"two\nlines\"\n3,4\n");
    STG_TEST_FILE("b", "");
    STG_TEST_FILE("c", "h,i\n5,6");
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("?"), "csv");
    stg_test_bool(&spec, "header", true);
    check_items(&spec, "1,\"two\nlines\"\n3,4\n!INVALID_ARGUMENT\n5,6\n");
    batch(&spec, 10);
    check_items(&spec, "!INVALID_ARGUMENT\n[1,\"two\nlines\" 3,4 5,6]\n");
}

static void lines_of_json_come_without_blank_ones(void)
{
    STG_TEST_FILE("a", "{}\n\n[1]\n");
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("a"), "jsonl");
    batch(&spec, 10);
    check_items(&spec, "[{} [1]]\n");
}

static void records_of_fixed_length_leave_out_header_and_footer(void)
{
    STG_TEST_FILE("a", "headaabbccfoot");
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("a"), "fixed_length_record");
    stg_test_int(&spec, "record_bytes", 2);
    stg_test_int(&spec, "header_bytes", 4);
    stg_test_int(&spec, "footer_bytes", 4);
    batch(&spec, 2);
    check_items(&spec, "[aa bb]\n[cc]\n");
}

static void whole_files_come_with_their_paths(void)
{
    const char *a = STG_TEST_FILE("a", "one");
    const char *b = STG_TEST_FILE("b", "");
    const char *c = stg_test_file("c", golden_gzip, sizeof(golden_gzip));
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("[ab]"), "read_file");
    batch(&spec, 10);
    char want[300];
    snprintf(want, sizeof(want), "[one ] [%s %s]\n", a, b);
    check_items(&spec, want);

    struct stg_test_spec raw = {0};
    reader(&raw, c, "read_file");
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&raw, &env);
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->tensors[0].end[0] - block->tensors[0].begin[0],
              sizeof(golden_gzip)); /* not decompressed unless configured */
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
}

static void rows_of_arrays_are_dense_batches(void)
{
    stg_test_file("a", npy_grid, sizeof(npy_grid));
    stg_test_file("b", npy_line, sizeof(npy_line));
    stg_test_file("c", npy_grid_swapped, sizeof(npy_grid_swapped));
    static const struct stg_value shape[] = {{.kind = STG_VALUE_INT, .i = -1},
                                             {.kind = STG_VALUE_INT, .i = 3}};
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("?"), "npy");
    stg_test_string(&spec, "dtype", "float32");
    stg_test_list(&spec, "shape", shape, 2);
    stg_test_int(&spec, "buffer_size", 50);
    batch(&spec, 10);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->error.code, -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(block->error.text, stg_test_path("b"));
    stg_block_unref(block);
    block = stg_test_next(dataset);
    const struct stg_tensor *tensor = &block->tensors[0];
    CHECK_INT(tensor->dtype, STAGER_FLOAT32);
    CHECK_INT(tensor->ndim, 3);
    CHECK_INT(tensor->shape[0], 10);
    CHECK_INT(tensor->shape[1], 2);
    CHECK_INT(tensor->shape[2], 3);
    for (int i = 0; i < 60; i++)
        CHECK(((const float *)tensor->data)[i] == (float)(i % 30) / 4);
    CHECK_INT(block->rows[6].offset, 128 + 24);
    stg_block_unref(block);
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

static void parts_of_samples_are_components(void)
{
    stg_test_file("a.tar.gz", tar_small, sizeof(tar_small));
    static const struct stg_value parts[] = {STRING("y"), STRING("x")};
    struct stg_test_spec spec = {0};
    reader(&spec, stg_test_path("a.tar.gz"), "tar");
    stg_test_list(&spec, "parts", parts, 2);
    check_items(&spec, "a 2 1\nb 4 3\n");
    batch(&spec, 5);
    check_items(&spec, "[a b] [2 4] [1 3]\n");
    struct stg_bump bump;
    struct stg_schema schema;
    struct stg_err err = {0};
    stg_bump_init(&bump, 0);
    CHECK_OK(stg_dataset_infer(&spec.spec, &bump, &schema, &err), err);
    CHECK_STR(schema.components[0].name, "__key__");
    CHECK_STR(schema.components[1].name, "y");
    stg_bump_finish(&bump);
}

/* "a" has x and y, "b" too; z is in neither. */
static void parts_may_be_optional(void)
{
    stg_test_file("a.tar.gz", tar_small, sizeof(tar_small));
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render_text("dataset: [{files: {pattern: $DIR/a.tar.gz}}, "
                                     "{tar: {parts: {z: optional, y: required}}}]",
                                     &env, 0);
    CHECK_STR(got, "a  2\nb  4\n");
    free(got);
    struct stg_pipeline_spec *spec = stg_test_load(
        "dataset: [{files: {pattern: /x}}, {tar: {parts: {z: sometimes}}}]");
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_create(spec, &env, &dataset, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "parts: z is neither required nor optional");
    stg_pipeline_spec_destroy(spec);
}

static void check_refused(const struct stg_test_spec *spec, const char *part)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_create(&spec->spec, &env, &dataset, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, part);
}

/* TFD-E1 */
static void an_option_that_makes_no_sense_is_refused(void)
{
    static const struct stg_value many[] = {STRING("a"), STRING("A")};
    static const struct stg_value odd[] = {STRING("a b")};
    struct stg_test_spec fixed = {0}, delim = {0}, dtype = {0}, none = {0}, twice = {0},
                         name = {0};
    reader(&fixed, "/x", "fixed_length_record");
    check_refused(&fixed, "record_bytes is 0");
    reader(&delim, "/x", "csv");
    stg_test_string(&delim, "field_delim", "::");
    check_refused(&delim, "field_delim is \"::\"");
    reader(&dtype, "/x", "npy");
    stg_test_string(&dtype, "dtype", "string");
    check_refused(&dtype, "dtype is \"string\"");
    reader(&none, "/x", "tar");
    check_refused(&none, "parts has 0 entries");
    reader(&twice, "/x", "tar");
    stg_test_list(&twice, "parts", many, 2);
    check_refused(&twice, "parts names \"A\" twice");
    reader(&name, "/x", "tar");
    stg_test_list(&name, "parts", odd, 1);
    check_refused(&name, "parts[0] is not valid");
}

static void a_step_that_reads_files_needs_them_and_sane_sizes(void)
{
    static const char *const names[] = {
        "tfrecord", "fixed_length_record", "csv", "jsonl", "read_file", "npy", "tar"};
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
    TEST(a_compressed_file_that_is_truncated_costs_its_rest_and_the_next_one_is_read),
    TEST(memory_of_decompressing_is_given_back),
    TEST(a_batch_of_csv_keeps_records_of_several_lines_whole),
    TEST(lines_of_json_come_without_blank_ones),
    TEST(records_of_fixed_length_leave_out_header_and_footer),
    TEST(whole_files_come_with_their_paths),
    TEST(rows_of_arrays_are_dense_batches),
    TEST(parts_of_samples_are_components),
    TEST(parts_may_be_optional),
    TEST(an_option_that_makes_no_sense_is_refused),
    TEST(a_step_that_reads_files_needs_them_and_sane_sizes),
};

TEST_MAIN(tests)
