/* SPDX-License-Identifier: Apache-2.0
 *
 * From files to batches of images.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_yaml.h"

/* Made with Python's zlib: one pixel 10 20 30, one 40 50 60, and 8 x 8 gray ones, 0 to
 * 63. */
static const unsigned char dark[] = {
    137, 80,  78,  71, 13, 10,  26,  10, 0,   0,  0,   13,  73,  72, 68,  82, 0,  0,
    0,   1,   0,   0,  0,  1,   8,   2,  0,   0,  0,   144, 119, 83, 222, 0,  0,  0,
    12,  73,  68,  65, 84, 120, 156, 99, 224, 18, 145, 3,   0,   0,  104, 0,  61, 84,
    8,   163, 247, 0,  0,  0,   0,   73, 69,  78, 68,  174, 66,  96, 130};
static const unsigned char light[] = {
    137, 80,  78, 71, 13, 10,  26,  10, 0,   0,  0,   13,  73,  72, 68,  82, 0,   0,
    0,   1,   0,  0,  0,  1,   8,   2,  0,   0,  0,   144, 119, 83, 222, 0,  0,   0,
    12,  73,  68, 65, 84, 120, 156, 99, 208, 48, 178, 1,   0,   1,  28,  0,  151, 175,
    176, 105, 27, 0,  0,  0,   0,   73, 69,  78, 68,  174, 66,  96, 130};
static const unsigned char ramp[] = {
    137, 80,  78,  71, 13,  10,  26,  10,  0,   0,   0,   13,  73,  72,  68,  82,
    0,   0,   0,   8,  0,   0,   0,   8,   8,   0,   0,   0,   0,   225, 100, 225,
    87,  0,   0,   0,  80,  73,  68,  65,  84,  120, 156, 99,  96,  96,  100, 98,
    102, 97,  101, 99, 103, 224, 224, 228, 226, 230, 225, 229, 227, 103, 16,  16,
    20,  18,  22,  17, 21,  19,  103, 144, 144, 148, 146, 150, 145, 149, 147, 103,
    80,  80,  84,  82, 86,  81,  85,  83,  103, 208, 208, 212, 210, 214, 209, 213,
    211, 103, 48,  48, 52,  50,  54,  49,  53,  51,  103, 176, 176, 180, 178, 182,
    177, 181, 179, 7,  0,   187, 248, 7,   225, 100, 114, 163, 246, 0,   0,   0,
    0,   73,  69,  78, 68,  174, 66,  96,  130};

static void images_of_files_become_batches(void)
{
    static const char *const hows[] = {"", ", num_parallel_calls: 2"};
    stg_test_file("1.png", dark, sizeof(dark));
    STG_TEST_FILE("2.png", "GIF89a");
    stg_test_file("3.png", light, sizeof(light));
    for (size_t i = 0; i < 2; i++) {
        char text[1024];
        snprintf(text, sizeof(text),
                 "dataset:\n- files: {pattern: %s, shuffle: false}\n- read_file\n"
                 "- map: {graph: {"
                 "crop: {op: random_resized_crop, input: bytes, size: [2, 1]}, "
                 "flip: {op: random_flip, input: crop}, "
                 "image: {op: normalize_image, input: flip, mean: [10, 10, 10], "
                 "std: 2}}, output: image%s}\n- batch: {batch_size: 2}\n",
                 stg_test_path("*.png"), hows[i]);
        stg_test_yaml_items(text, "!INVALID_ARGUMENT\n"
                                  "[[[[0] [0]] [[5] [5]] [[10] [10]]] "
                                  "[[[15] [15]] [[20] [20]] [[25] [25]]]]\n");
        char *error = stg_test_yaml_error(text);
        CHECK_CONTAINS(error, "2.png");
        CHECK_CONTAINS(error, "node crop (random_resized_crop): the 6 bytes are not a "
                              "JPEG or PNG image, but GIF");
        free(error);
    }
}

/* Returns one line for each item: the result does not depend on threads or blocks. */
static char *crops(const char *map, int batch_size)
{
    char text[1024];
    struct stg_dataset_env env = stg_test_env();
    stg_test_file("ramp.gray", ramp, sizeof(ramp));
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: %s}\n- read_file\n- repeat: {count: 200}\n"
             "- map: {graph: {a: {op: decode_png, input: bytes}, "
             "b: {op: random_crop, input: a, size: [1, 1]}, "
             "c: {op: cast, input: b, dtype: int32}, "
             "d: {op: random_resized_crop, input: bytes, size: [1, 2], channels: 1}}, "
             "output: {c: c, d: d}%s}\n"
             "- batch: {batch_size: %d}\n- unbatch\n",
             stg_test_path("*.gray"), map, batch_size);
    return stg_test_render(stg_test_yaml("%s", text), &env, 0);
}

static void what_is_drawn_does_not_depend_on_threads(void)
{
    static const char *const maps[] = {"", ", num_parallel_calls: 1",
                                       ", num_parallel_calls: 3",
                                       ", num_parallel_calls: 7"};
    for (int batch_size = 1; batch_size < 100; batch_size += 33) {
        char *want = crops(maps[0], batch_size);
        for (size_t i = 1; i < 4; i++) {
            char *got = crops(maps[i], batch_size);
            CHECK(strcmp(got, want) == 0);
            free(got);
        }
        free(want);
    }
}

static void every_element_is_drawn_for_anew(void)
{
    bool seen[64] = {false};
    int n = 0, lines = 0;
    char *text = crops("", 10), *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
        const char *number = strstr(line, "[[[");
        int value = number != NULL ? atoi(number + 3) : -1;
        CHECK(value >= 0 && value < 64);
        n += !seen[value];
        seen[value] = true;
        lines++;
    }
    /* On average 200 draws hit 61 of 64 places. */
    CHECK_INT(lines, 200);
    CHECK(n > 52);
    free(text);
}

static const struct stg_test tests[] = {
    TEST(images_of_files_become_batches),
    TEST(what_is_drawn_does_not_depend_on_threads),
    TEST(every_element_is_drawn_for_anew),
};
TEST_MAIN(tests)
