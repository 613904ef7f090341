/* SPDX-License-Identifier: Apache-2.0
 *
 * The small modules: err, log, bump, spec, status.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bump.h"
#include "core/err.h"
#include "core/log.h"
#include "core/spec.h"
#include "core/status.h"
#include "tests/check.h"

/* ---- err ---- */

static void an_error_keeps_code_row_and_text(void)
{
    struct stg_err err = {0};
    CHECK_INT(stg_err(&err, -STAGER_DATA_LOSS, "%s:%d", "a.csv", 7), -STAGER_DATA_LOSS);
    CHECK_INT(err.code, -STAGER_DATA_LOSS);
    CHECK_INT(err.row, -1);
    CHECK_STR(err.text, "a.csv:7");
    CHECK_INT(stg_err_row(&err, -STAGER_INVALID_ARGUMENT, 12, "no number"),
              -STAGER_INVALID_ARGUMENT);
    CHECK_INT(err.row, 12);
    CHECK_INT(stg_err_prefix(&err, -STAGER_UNKNOWN, "node %s", "x"),
              -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "node x: no number");
    CHECK_INT(err.row, 12);
    CHECK_INT(stg_err_append(&err, -STAGER_UNKNOWN, " (%d)", 3),
              -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "node x: no number (3)");
}

static void an_unread_error_keeps_its_code(void)
{
    CHECK_INT(stg_err(NULL, -STAGER_ABORTED, "x"), -STAGER_ABORTED);
    CHECK_INT(stg_err_row(NULL, -STAGER_ABORTED, 1, "x"), -STAGER_ABORTED);
    CHECK_INT(stg_err_prefix(NULL, -STAGER_ABORTED, "x"), -STAGER_ABORTED);
    CHECK_INT(stg_err_append(NULL, -STAGER_ABORTED, "x"), -STAGER_ABORTED);
}

static void long_texts_are_truncated_and_end(void)
{
    char longest[3 * STG_ERR_TEXT_BYTES];
    memset(longest, 'y', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    struct stg_err err = {0};
    stg_err(&err, -STAGER_INTERNAL, "%s", longest);
    CHECK_INT(strlen(err.text), STG_ERR_TEXT_BYTES - 1);
    stg_err_append(&err, -STAGER_INTERNAL, "more");
    CHECK_INT(strlen(err.text), STG_ERR_TEXT_BYTES - 1);
    stg_err_prefix(&err, -STAGER_INTERNAL, "node");
    CHECK_INT(strlen(err.text), STG_ERR_TEXT_BYTES - 1);
    CHECK_INT(strncmp(err.text, "node: yyy", 9), 0);
    stg_err(&err, -STAGER_INTERNAL, "end");
    stg_err_prefix(&err, -STAGER_INTERNAL, "%s", longest);
    CHECK(strlen(err.text) < STG_ERR_TEXT_BYTES);
    CHECK_INT(err.text[0], 'y');
}

/* ---- status ---- */

static void codes_have_their_usual_numbers(void)
{
    static const char *const names[] = {"OK",
                                        "CANCELLED",
                                        "UNKNOWN",
                                        "INVALID_ARGUMENT",
                                        "DEADLINE_EXCEEDED",
                                        "NOT_FOUND",
                                        "ALREADY_EXISTS",
                                        "PERMISSION_DENIED",
                                        "RESOURCE_EXHAUSTED",
                                        "FAILED_PRECONDITION",
                                        "ABORTED",
                                        "OUT_OF_RANGE",
                                        "UNIMPLEMENTED",
                                        "INTERNAL",
                                        "UNAVAILABLE",
                                        "DATA_LOSS",
                                        "UNAUTHENTICATED"};
    for (int i = 0; i < 17; i++) {
        CHECK_STR(stg_status_name(i), names[i]);
        CHECK_STR(stg_status_name(-i), names[i]);
        CHECK_INT(stg_status_from_name(names[i]), i);
    }
    CHECK_STR(stg_status_name(17), "UNKNOWN");
    CHECK_STR(stg_status_name(-17), "UNKNOWN");
    CHECK_STR(stg_status_name(INT32_MIN), "UNKNOWN");
    CHECK_INT(stg_status_from_name("out_of_range"), -1);
}

/* Numbers and sizes of TensorFlow 2.21's tf.DType (as_datatype_enum, size, name). */
static void dtypes_are_numbered_as_in_tensorflow(void)
{
    static const struct {
        const char *name;
        int number;
        unsigned bytes;
    } dtypes[] = {{"float32", 1, 4}, {"float64", 2, 8},  {"int32", 3, 4},
                  {"uint8", 4, 1},   {"int16", 5, 2},    {"int8", 6, 1},
                  {"int64", 9, 8},   {"bool", 10, 1},    {"bfloat16", 14, 2},
                  {"uint16", 17, 2}, {"float16", 19, 2}, {"uint32", 22, 4},
                  {"uint64", 23, 8}, {"string", 7, 0}};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        CHECK_INT(stg_dtype_from_name(dtypes[i].name), dtypes[i].number);
        CHECK_STR(stg_dtype_name(dtypes[i].number), dtypes[i].name);
        CHECK_INT(stg_dtype_bytes(dtypes[i].number), dtypes[i].bytes);
    }
    CHECK_INT(stg_dtype_from_name("float"), STAGER_FLOAT32);
    CHECK_INT(stg_dtype_from_name("double"), STAGER_FLOAT64);
    CHECK_INT(stg_dtype_from_name("Float32"), STAGER_DT_INVALID);
    for (int i = -3; i < 40; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof(dtypes) / sizeof(dtypes[0]); k++)
            known = known || dtypes[k].number == i;
        if (!known) {
            CHECK_STR(stg_dtype_name(i), "invalid");
            CHECK_INT(stg_dtype_bytes(i), 0);
        }
    }
    CHECK_INT(stg_dtype_bytes(INT32_MAX), 0);
    CHECK_INT(stg_dtype_bytes(INT32_MIN), 0);
}

/* ---- bump ---- */

static void bumps_are_zeroed_aligned_and_apart(void)
{
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    unsigned char *all[400];
    for (size_t i = 0; i < 400; i++) {
        all[i] = stg_bump_alloc(&bump, i);
        CHECK(all[i] != NULL && (uintptr_t)all[i] % 64 == 0);
        for (size_t k = 0; k < i; k++)
            CHECK(all[i][k] == 0);
        memset(all[i], (int)i, i);
    }
    for (size_t i = 0; i < 400; i++) {
        for (size_t k = 0; k < i; k++)
            CHECK(all[i][k] == (unsigned char)i);
    }
    CHECK(stg_bump_alloc(&bump, SIZE_MAX - 10) == NULL);
    CHECK(stg_bump_alloc(&bump, 1) != NULL);
    CHECK_STR(stg_bump_strndup(&bump, "abcdef", 3), "abc");
    stg_bump_finish(&bump);
    stg_bump_finish(&bump);
    stg_bump_finish(NULL);
}

static void a_limit_holds(void)
{
    struct stg_bump bump;
    stg_bump_init(&bump, 100000);
    size_t n = 0;
    while (stg_bump_alloc_raw(&bump, 1000) != NULL)
        n++;
    CHECK(n >= 90 && n <= 100);
    CHECK(bump.total <= 100000);
    CHECK(stg_bump_alloc_raw(&bump, 200000) == NULL);
    stg_bump_finish(&bump);
}

static void a_reset_keeps_memory_for_the_next_round(void)
{
    struct stg_bump bump = {0};
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 50; i++)
            CHECK(stg_bump_alloc(&bump, 5000) != NULL);
        stg_bump_reset(&bump);
    }
    size_t total = bump.total;
    for (int i = 0; i < 50; i++)
        CHECK(stg_bump_alloc(&bump, 5000) != NULL);
    CHECK_INT(bump.total, total); /* no malloc in the steady state */
    stg_bump_finish(&bump);
    stg_bump_reset(&bump);
}

/* ---- spec ---- */

static const struct stg_value values[] = {
    {.kind = STG_VALUE_INT, .i = -5, .f = -5.0},
    {.kind = STG_VALUE_FLOAT, .f = 2.5},
    {.kind = STG_VALUE_BOOL, .i = 1},
    {.kind = STG_VALUE_STRING, .s = "text", .s_bytes = 4},
};
static const struct stg_attr attrs[] = {
    {.name = "i", .n_values = 1, .values = &values[0]},
    {.name = "f", .n_values = 1, .values = &values[1]},
    {.name = "b", .n_values = 1, .values = &values[2]},
    {.name = "s", .n_values = 1, .values = &values[3]},
    {.name = "l", .ndim = 1, .shape = {1}, .n_values = 1, .values = &values[0]},
};

static void attributes_are_found_by_name_and_kind(void)
{
    CHECK(stg_attr_find(attrs, 5, "s") == &attrs[3]);
    CHECK(stg_attr_find(attrs, 3, "s") == NULL);
    CHECK_INT(stg_attr_int(attrs, 5, "i", 9), -5);
    CHECK_INT(stg_attr_int(attrs, 5, "f", 9), 9);
    CHECK_INT(stg_attr_int(attrs, 5, "l", 9), 9);
    CHECK_INT(stg_attr_int(attrs, 5, "none", 9), 9);
    CHECK(stg_attr_float(attrs, 5, "f", 9) == 2.5);
    CHECK(stg_attr_float(attrs, 5, "i", 9) == -5.0);
    CHECK(stg_attr_bool(attrs, 5, "b", false));
    CHECK(!stg_attr_bool(attrs, 5, "i", false));
    CHECK_STR(stg_attr_string(attrs, 5, "s", "other"), "text");
    CHECK_STR(stg_attr_string(attrs, 5, "b", "other"), "other");
}

static void specs_and_settings_are_freed_half_made(void)
{
    stg_pipeline_spec_destroy(NULL);
    struct stg_pipeline_spec *spec = calloc(1, sizeof(*spec));
    CHECK(spec != NULL);
    spec->name = stg_bump_strndup(&spec->bump, "x", 1);
    stg_pipeline_spec_destroy(spec);
    struct stg_settings settings = {0};
    settings.log_level = stg_bump_strndup(&settings.bump, "debug", 5);
    stg_settings_finish(&settings);
    CHECK(settings.log_level == NULL);
    stg_settings_finish(&settings);
    stg_settings_finish(NULL);
}

/* ---- log ---- */

/* Redirects the output of stg_log from standard error to a file. */
static size_t captured(char *buf, size_t bytes, void (*speak)(void))
{
    int saved = dup(2);
    FILE *file = tmpfile();
    CHECK(saved >= 0 && file != NULL);
    CHECK(dup2(fileno(file), 2) == 2);
    speak();
    dup2(saved, 2);
    close(saved);
    rewind(file);
    size_t n = fread(buf, 1, bytes - 1, file);
    buf[n] = '\0';
    fclose(file);
    return n;
}

static void speak_once(void)
{
    stg_log(STG_LOG_WARNING, "%s\nand %d\x1b[2J", "two lines", 7);
    stg_log(STG_LOG_DEBUG, "not heard");
}

static void speak_long(void)
{
    char longest[5000];
    memset(longest, 'z', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    stg_log(STG_LOG_ERROR, "%s", longest);
}

static void a_log_line_is_one_line(void)
{
    char buf[8192];
    unsetenv("JOURNAL_STREAM");
    captured(buf, sizeof(buf), speak_once);
    CHECK_CONTAINS(buf, " warning: two lines and 7?[2J\n");
    CHECK(strchr(buf, '\n') == strrchr(buf, '\n'));
    CHECK(strstr(buf, "heard") == NULL);
    size_t n = captured(buf, sizeof(buf), speak_long);
    CHECK(n < 2100 && buf[n - 1] == '\n');
}

static void levels_have_names_and_hold(void)
{
    char buf[256];
    CHECK_INT(stg_log_level_from_name("error"), STG_LOG_ERROR);
    CHECK_INT(stg_log_level_from_name("debug"), STG_LOG_DEBUG);
    CHECK_INT(stg_log_level_from_name("loud"), -1);
    stg_log_set_level(STG_LOG_ERROR);
    CHECK_INT(captured(buf, sizeof(buf), speak_once), 0);
    stg_log_set_level(STG_LOG_DEBUG);
    captured(buf, sizeof(buf), speak_once);
    CHECK_CONTAINS(buf, " debug: not heard\n");
}

static const struct stg_test tests[] = {
    TEST(an_error_keeps_code_row_and_text),
    TEST(an_unread_error_keeps_its_code),
    TEST(long_texts_are_truncated_and_end),
    TEST(codes_have_their_usual_numbers),
    TEST(dtypes_are_numbered_as_in_tensorflow),
    TEST(bumps_are_zeroed_aligned_and_apart),
    TEST(a_limit_holds),
    TEST(a_reset_keeps_memory_for_the_next_round),
    TEST(attributes_are_found_by_name_and_kind),
    TEST(specs_and_settings_are_freed_half_made),
    TEST(a_log_line_is_one_line),
    TEST(levels_have_names_and_hold),
};
TEST_MAIN(tests)
