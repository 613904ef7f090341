/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads past the page cache: any range of a file, of any size. Skipped if the file system
 * does not support such reads.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/local/direct.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

#define BYTES 1500001

struct scene {
    struct stg_quota *quota;
    struct stg_source *source;
    char *data;
};

static void scene_init(struct scene *scene)
{
    static const struct stg_file_user root = {.uid = 0};
    const struct stg_storage *storage;
    const char *path;
    struct stg_err err = {0};
    scene->data = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        scene->data[i] = (char)((unsigned)i * 2654435761u >> 13);
    const char *url = stg_test_file("large", scene->data, BYTES);
    CHECK_INT(stg_quota_create(0, &scene->quota), 0);
    CHECK_OK(stg_storage_find(url, &storage, &path, &err), err);
    CHECK_OK(storage->open(path, &root, &scene->source, &err), err);
    if (stg_direct_open(scene->quota, url, &scene->source, &err) < 0) {
        CHECK_CONTAINS(err.text, "does not support direct_io");
        SKIP("%s", err.text);
    }
}

static void scene_finish(struct scene *scene)
{
    scene->source->storage->close(scene->source);
    stg_quota_unref(scene->quota);
    free(scene->data);
}

static void any_bytes_may_be_read(void)
{
    static const uint64_t places[] = {
        0,       1,         4095,         4096,  524287,    524288,
        1044481, BYTES - 1, BYTES - 5000, BYTES, BYTES + 1, BYTES + 9000};
    static const size_t sizes[] = {1, 511, 4096, 8191, 524288, 524289, BYTES, BYTES + 9};
    struct scene scene;
    scene_init(&scene);
    char *buf = malloc(BYTES + 9);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            struct stg_err err = {0};
            uint64_t left = places[i] < BYTES ? BYTES - places[i] : 0;
            int64_t n =
                scene.source->storage->read(scene.source, places[i], buf, sizes[k], &err);
            CHECK_INT(n, left < sizes[k] ? left : sizes[k]);
            CHECK(n == 0 || memcmp(buf, scene.data + places[i], (size_t)n) == 0);
        }
    }
    uint64_t size;
    CHECK_INT(scene.source->storage->size(scene.source, &size, NULL), 0);
    CHECK_INT(size, BYTES);
    free(buf);
    scene_finish(&scene);
}

static void readers_give_the_same_records(void)
{
    struct scene scene;
    scene_init(&scene);
    scene_finish(&scene);
    struct stg_dataset_env env = stg_test_env();
    char *texts[2];
    for (int direct = 0; direct < 2; direct++) {
        struct stg_test_spec spec = {0};
        stg_test_lines(&spec, stg_test_path("large"));
        stg_test_bool(&spec, "direct_io", direct == 1);
        texts[direct] = stg_test_render(&spec, &env, 0);
    }
    CHECK_STR(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
}

static void a_source_that_cannot_stays_as_it_was(void)
{
    static const struct stg_storage storage = {.scheme = "far"};
    struct stg_source far = {.storage = &storage}, *source = &far;
    struct stg_err err = {0};
    CHECK_INT(stg_direct_open(NULL, "far://x", &source, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "far://x: direct_io applies to local files");
    CHECK(source == &far);
}

static const struct stg_test tests[] = {
    TEST(a_source_that_cannot_stays_as_it_was),
    TEST(any_bytes_may_be_read),
    TEST(readers_give_the_same_records),
};

TEST_MAIN(tests)
