/* SPDX-License-Identifier: Apache-2.0
 *
 * A source that a thread reads ahead: the same bytes, errors and end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/pump.h"
#include "tests/check.h"
#include "tests/daemon/format/format_source.h"

#define BYTES (5 * STG_PUMP_START_BYTES + 12345)

struct scene {
    struct stg_test_memory memory;
    struct stg_quota *quota;
    struct stg_source *source;
    char *data;
};

static void scene_init(struct scene *scene, uint64_t limit)
{
    struct stg_err err = {0};
    scene->data = malloc(BYTES);
    for (uint64_t i = 0; i < BYTES; i++)
        scene->data[i] = (char)(i * 2654435761u >> 13);
    scene->memory = stg_test_memory(scene->data, BYTES);
    scene->source = &scene->memory.source;
    CHECK_INT(stg_quota_create(limit, &scene->quota), 0);
    CHECK_OK(stg_pump_open(scene->quota, "/the/file", &scene->source, &err), err);
}

static void scene_finish(struct scene *scene)
{
    scene->source->storage->close(scene->source);
    stg_quota_unref(scene->quota);
    free(scene->data);
}

/* Reads pieces of `piece` bytes from `at` on, to the end or an error. */
static int read_rest(struct scene *scene, uint64_t at, size_t piece, uint64_t *ret,
                     struct stg_err *err)
{
    char *buf = malloc(piece);
    int64_t n;
    while ((n = scene->source->storage->read(scene->source, at, buf, piece, err)) > 0) {
        CHECK(memcmp(buf, scene->data + at, (size_t)n) == 0);
        at += (uint64_t)n;
    }
    free(buf);
    *ret = at;
    return (int)n;
}

static void all_bytes_come_in_pieces_of_any_size(void)
{
    static const size_t pieces[] = {777, 65536, 300000, BYTES, 2 * BYTES};
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct scene scene;
        struct stg_err err = {0};
        uint64_t end;
        scene_init(&scene, 0);
        CHECK_INT(read_rest(&scene, 0, pieces[i], &end, &err), 0);
        CHECK_INT(end, BYTES);
        CHECK_INT(read_rest(&scene, end + 99, 5, &end, &err), 0);
        scene_finish(&scene);
    }
}

static void what_lies_between_two_reads_is_passed_over(void)
{
    struct scene scene;
    struct stg_err err = {0};
    char buf[100];
    scene_init(&scene, 0);
    for (uint64_t at = 0; at + 100 < BYTES; at += 100 + at / 3) {
        CHECK_INT(scene.source->storage->read(scene.source, at, buf, 100, &err), 100);
        CHECK(memcmp(buf, scene.data + at, 100) == 0);
    }
    scene_finish(&scene);
}

static void a_failure_comes_behind_the_bytes_before_it_and_stays(void)
{
    static const uint64_t places[] = {1, STG_PUMP_START_BYTES / 2,
                                      2 * STG_PUMP_START_BYTES + 7, BYTES};
    for (size_t i = 0; i < 4; i++) {
        struct scene scene;
        struct stg_err err = {0};
        uint64_t end;
        scene_init(&scene, 0);
        scene.memory.fail_at = places[i];
        scene.memory.source.spoiled = true;
        CHECK_INT(read_rest(&scene, 0, 1000, &end, &err), -STAGER_DATA_LOSS);
        CHECK(end <= places[i]);
        CHECK_CONTAINS(err.text, "broken");
        CHECK(scene.source->spoiled);
        CHECK_INT(read_rest(&scene, end, 1000, &end, &err), -STAGER_DATA_LOSS);
        scene_finish(&scene);
    }
}

static void it_may_be_closed_at_any_time(void)
{
    for (uint64_t at = 0; at < BYTES; at += BYTES / 40) {
        struct scene scene;
        struct stg_err err = {0};
        char byte;
        scene_init(&scene, 0);
        CHECK_INT(scene.source->storage->read(scene.source, at, &byte, 1, &err), 1);
        CHECK_INT(scene.source->storage->read(scene.source, at + 1, &byte, 1, &err), 1);
        scene_finish(&scene);
    }
}

static void a_dataset_of_little_memory_does_without(void)
{
    struct scene scene;
    struct stg_err err = {0};
    uint64_t end;
    scene_init(&scene, 64 * STG_PUMP_START_BYTES - 1);
    CHECK_INT(read_rest(&scene, 0, 4096, &end, &err), 0);
    CHECK_INT(end, BYTES);
    CHECK_INT(stg_quota_used(scene.quota), 0);
    CHECK_INT(scene.memory.longest_read, 4096);
    scene_finish(&scene);
    scene_init(&scene, 64 * STG_PUMP_START_BYTES);
    CHECK_INT(read_rest(&scene, 0, 4096, &end, &err), 0);
    CHECK_INT(end, BYTES);
    CHECK_INT(stg_quota_used(scene.quota), 1 << 20);
    CHECK(scene.memory.longest_read > 4096);
    scene_finish(&scene);
}

static const struct stg_test tests[] = {
    TEST(all_bytes_come_in_pieces_of_any_size),
    TEST(what_lies_between_two_reads_is_passed_over),
    TEST(a_failure_comes_behind_the_bytes_before_it_and_stays),
    TEST(it_may_be_closed_at_any_time),
    TEST(a_dataset_of_little_memory_does_without),
};

TEST_MAIN(tests)
