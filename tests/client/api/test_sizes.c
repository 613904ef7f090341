/* SPDX-License-Identifier: Apache-2.0
 *
 * Callers built with an older or a newer stager.h.
 */
#include <stddef.h>
#include <string.h>

#include "client/transport/sized.h"
#include "tests/check.h"
#include "tests/client/fake.h"

/* The options of a later stager.h. */
struct newer_options {
    struct stager_options known;
    uint64_t later[2];
};

static void check_refused(const struct stager_options *options, const char *why)
{
    struct stager_stream *stream = NULL;
    CHECK_INT(stager_open(NULL, "fake", options, &stream), -STAGER_INVALID_ARGUMENT);
    CHECK(stream == NULL);
    if (strstr(stager_error_text(NULL), why) == NULL)
        FAIL("\"%s\" says nothing of \"%s\"", stager_error_text(NULL), why);
}

static void options_without_a_size_are_refused(void)
{
    struct stager_options options = {0};
    check_refused(&options, "set it to sizeof(struct stager_options)");
    options.struct_size = STG_SIZE_TO(stager_options, reserved0) - 1; /* the first */
    check_refused(&options, "struct_size of stager_options is");
}

static void options_of_a_newer_caller_are_taken_while_what_is_new_is_zero(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct newer_options newer = {.known = {.struct_size = sizeof(newer),
                                            .runtime_dir = fake.dir,
                                            .batch_size = 2}};
    struct stager_stream *stream;
    fake_serve(&fake);
    int rc = stager_open(NULL, "fake", &newer.known, &stream);
    fake_join(&fake);
    if (rc < 0)
        FAIL("stager_open: %s", stager_error_text(NULL));
    fake_finish(&fake, stream);
    newer.later[1] = 1;
    check_refused(&newer.known, "install a newer libstager");
}

static void options_of_an_older_caller_are_taken(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_options older;
    memset(&older, 0xff, sizeof(older)); /* what it does not have is not read */
    memset(&older, 0, STG_SIZE_TO(stager_options, reserved0));
    older.struct_size = STG_SIZE_TO(stager_options, reserved0);
    older.runtime_dir = fake.dir;
    struct stager_stream *stream;
    fake_serve(&fake);
    int rc = stager_open(NULL, "fake", &older, &stream);
    fake_join(&fake);
    if (rc < 0)
        FAIL("stager_open: %s", stager_error_text(NULL));
    fake_finish(&fake, stream);
}

static void counters_are_written_as_far_as_the_caller_knows_them(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct {
        struct stager_stream_info info;
        uint64_t later;
    } newer = {.info = {.struct_size = sizeof(newer)}, .later = 77};
    CHECK_INT(stager_stream_info(stream, &newer.info), 0);
    CHECK_INT(newer.info.max_in_flight, 2);
    CHECK_INT(newer.info.struct_size, sizeof(newer));
    CHECK_INT(newer.later, 77);

    struct stager_stream_info none = {.max_in_flight = 99};
    CHECK_INT(stager_stream_info(stream, &none), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(none.max_in_flight, 99);
    fake_finish(&fake, stream);
}

static void the_info_of_a_batch_describes_it(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 0, 41, 1000, 5);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 0, &batch), 0);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    CHECK_INT(stager_batch_info(batch, &info), 0);
    CHECK_INT(info.number, 41);
    CHECK_INT(info.n_rows, 5);

    info = (struct stager_batch_info){.struct_size = 8};
    CHECK_INT(stager_batch_info(batch, &info), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(info.number, 0);
    CHECK(strstr(stager_error_text(stream), "stager_batch_info") != NULL);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void a_gpu_without_a_size_is_refused(void)
{
    struct stager_gpu_info gpu = {0};
    CHECK(stager_gpu(0, &gpu) < 0);
    CHECK_INT(gpu.n_devices, 0);
}

/* ---- a library newer than its caller ---- */

struct grown {
    size_t struct_size;
    uint64_t first, second;
};

static void what_an_older_caller_does_not_know_has_its_default(void)
{
    struct stg_err err = {0};
    struct grown given = {.struct_size = offsetof(struct grown, second), 5, 6};
    struct grown known = {1, 1, 1};
    size_t first = STG_SIZE_TO(grown, first);
    CHECK_OK(stg_sized_read(&given, first, sizeof(known), "grown", &known, &err), err);
    CHECK_INT(known.first, 5);
    CHECK_INT(known.second, 0);
}

static void nothing_is_written_behind_what_an_older_caller_has(void)
{
    struct stg_err err = {0};
    struct grown from = {.first = 5, .second = 6};
    struct grown to = {.struct_size = offsetof(struct grown, second), .second = 77};
    size_t first = STG_SIZE_TO(grown, first);
    CHECK_OK(stg_sized_write(&from, first, sizeof(from), "grown", &to, &err), err);
    CHECK_INT(to.first, 5);
    CHECK_INT(to.second, 77);
    CHECK_INT(to.struct_size, offsetof(struct grown, second));
}

static const struct stg_test tests[] = {
    TEST(options_without_a_size_are_refused),
    TEST(options_of_an_older_caller_are_taken),
    TEST(options_of_a_newer_caller_are_taken_while_what_is_new_is_zero),
    TEST(counters_are_written_as_far_as_the_caller_knows_them),
    TEST(the_info_of_a_batch_describes_it),
    TEST(a_gpu_without_a_size_is_refused),
    TEST(what_an_older_caller_does_not_know_has_its_default),
    TEST(nothing_is_written_behind_what_an_older_caller_has),
};

TEST_MAIN(tests)
