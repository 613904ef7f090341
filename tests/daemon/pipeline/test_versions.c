/* SPDX-License-Identifier: Apache-2.0
 *
 * Earlier definitions on disk: how many are kept, damage, and what lies there from
 * interrupted writes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/host/text_file.h"
#include "daemon/pipeline/versions.h"
#include "tests/check.h"

static const struct stg_identity applier = {
    .uid = 1000, .gid = 100, .groups = {100, 44}, .n_groups = 2};

struct folder {
    char dir[64];
    struct stg_settings settings;
};

static void folder_make(struct folder *folder)
{
    snprintf(folder->dir, sizeof(folder->dir), "/tmp/stager-versions-XXXXXX");
    CHECK(mkdtemp(folder->dir) != NULL);
    folder->settings = (struct stg_settings){.state_dir = folder->dir};
}

static void folder_remove(const struct folder *folder)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder->dir);
    CHECK_INT(system(command), 0);
}

static struct stg_definition *define(int stop)
{
    char text[128];
    struct stg_definition *definition;
    struct stg_err err = {0};
    snprintf(text, sizeof(text), "dataset: [{range: {stop: %d}}]\n", stop);
    CHECK_OK(stg_definition_create(text, strlen(text), "p of x.yaml", &applier, NULL,
                                   &definition, &err),
             err);
    definition->applied_ns = 1000000007u * (uint64_t)stop;
    return definition;
}

static void keep(const struct folder *folder, int generation)
{
    struct stg_err err = {0};
    struct stg_definition *definition = define(generation);
    CHECK_OK(stg_versions_keep(&folder->settings, "shop", definition,
                               (uint64_t)generation, &err),
             err);
    stg_definition_unref(definition);
}

/* Fills in the kept generations below `current`, with a blank before each. */
static void list(const struct folder *folder, uint64_t current, char ret[256])
{
    struct stg_pipeline_version versions[STG_MAX_VERSIONS];
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    size_t n = stg_versions_list(&folder->settings, "shop", current, &bump, versions);
    ret[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        snprintf(ret + strlen(ret), 256 - strlen(ret), " %d",
                 (int)versions[i].generation);
        CHECK_INT(versions[i].uid, 1000);
        CHECK_INT(versions[i].time_ns, 1000000007u * versions[i].generation);
        CHECK_STR(versions[i].file, "p of x.yaml");
    }
    stg_bump_finish(&bump);
}

static int read_one(const struct folder *folder, uint64_t generation,
                    struct stg_definition **ret, struct stg_err *err)
{
    struct stg_store_source source = {.settings = &folder->settings, .path = ""};
    return stg_versions_read(&source, "shop", generation, ret, err);
}

static void the_last_nine_are_kept_and_come_back_as_they_were(void)
{
    struct folder folder;
    char got[256];
    struct stg_definition *definition;
    struct stg_err err = {0};
    folder_make(&folder);
    list(&folder, 5, got);
    CHECK_STR(got, "");
    for (int i = 1; i <= 12; i++)
        keep(&folder, i);
    list(&folder, 13, got);
    CHECK_STR(got, " 4 5 6 7 8 9 10 11 12");
    list(&folder, 12, got); /* 12 was kept, and 13 could not be saved */
    CHECK_STR(got, " 4 5 6 7 8 9 10 11");
    struct stg_definition *want = define(9);
    CHECK_OK(read_one(&folder, 9, &definition, &err), err);
    CHECK_INT(definition->spec->fingerprint, want->spec->fingerprint);
    CHECK_STR(definition->text, want->text);
    CHECK_STR(definition->file, "p of x.yaml");
    CHECK_INT(definition->applier.uid, 1000);
    CHECK_INT(definition->applier.gid, 100);
    CHECK_INT(definition->applier.n_groups, 2);
    CHECK_INT(definition->applier.groups[1], 44);
    CHECK(definition->script == NULL);
    stg_definition_unref(want);
    stg_definition_unref(definition);
    CHECK_INT(read_one(&folder, 3, &definition, &err), -STAGER_NOT_FOUND);
    folder_remove(&folder);
}

/* Changes each byte, and cuts the file at each. */
static void a_damaged_file_is_left_out(void)
{
    struct folder folder;
    char path[128], got[256], *bytes;
    size_t n;
    struct stg_definition *definition;
    folder_make(&folder);
    for (int i = 1; i <= 3; i++)
        keep(&folder, i);
    snprintf(path, sizeof(path), "%s/versions/shop/2.yaml", folder.dir);
    CHECK_INT(stg_text_file_read(path, 65536, NULL, &bytes, &n, NULL), 0);
    for (size_t i = 0; i < 2 * n; i++) {
        struct stg_err err = {0};
        FILE *out = fopen(path, "we");
        bytes[i / 2] ^= 1;
        CHECK(fwrite(bytes, 1, i % 2 == 0 ? n : i / 2, out) == (i % 2 == 0 ? n : i / 2));
        CHECK_INT(fclose(out), 0);
        bytes[i / 2] ^= 1;
        CHECK_INT(read_one(&folder, 2, &definition, &err), -STAGER_DATA_LOSS);
        CHECK_CONTAINS(err.text, "2.yaml is damaged");
    }
    list(&folder, 4, got);
    CHECK_STR(got, " 1 3");
    free(bytes);
    folder_remove(&folder);
}

static void a_file_under_the_name_of_another_generation_is_left_out(void)
{
    struct folder folder;
    char from[128], to[128], got[256];
    struct stg_definition *definition;
    struct stg_err err = {0};
    folder_make(&folder);
    keep(&folder, 1);
    snprintf(from, sizeof(from), "%s/versions/shop/1.yaml", folder.dir);
    snprintf(to, sizeof(to), "%s/versions/shop/2.yaml", folder.dir);
    CHECK_INT(link(from, to), 0);
    CHECK_INT(read_one(&folder, 2, &definition, &err), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text, "another generation");
    list(&folder, 9, got);
    CHECK_STR(got, " 1");
    folder_remove(&folder);
}

static void other_files_and_interrupted_writes_do_no_harm(void)
{
    static const char *const names[] = {"new", "0.yaml", "7.yml", "07.yaml", "x.yaml"};
    struct folder folder;
    char path[128], got[256];
    folder_make(&folder);
    keep(&folder, 1);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/versions/shop/%s", folder.dir, names[i]);
        fclose(fopen(path, "we"));
        if (i > 0)
            CHECK_INT(unlink(path), 0);
    }
    list(&folder, 9, got);
    CHECK_STR(got, " 1");
    keep(&folder, 2);
    list(&folder, 9, got);
    CHECK_STR(got, " 1 2");
    stg_versions_forget(&folder.settings, "shop");
    snprintf(path, sizeof(path), "%s/versions/shop", folder.dir);
    CHECK(access(path, F_OK) != 0);
    stg_versions_forget(&folder.settings, "shop");
    folder_remove(&folder);
}

static void a_folder_that_cannot_be_written_is_an_error(void)
{
    struct folder folder;
    struct stg_err err = {0};
    char path[128];
    folder_make(&folder);
    struct stg_definition *definition = define(1);
    snprintf(path, sizeof(path), "%s/versions", folder.dir);
    fclose(fopen(path, "we")); /* a file where the folder should be */
    CHECK_INT(stg_versions_keep(&folder.settings, "shop", definition, 1, &err),
              -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, "cannot write");
    CHECK_CONTAINS(err.text, "state_dir");
    stg_definition_unref(definition);
    folder_remove(&folder);
}

static const struct stg_test tests[] = {
    TEST(the_last_nine_are_kept_and_come_back_as_they_were),
    TEST(a_damaged_file_is_left_out),
    TEST(a_file_under_the_name_of_another_generation_is_left_out),
    TEST(other_files_and_interrupted_writes_do_no_harm),
    TEST(a_folder_that_cannot_be_written_is_an_error),
};

TEST_MAIN(tests)
