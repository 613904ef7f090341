/* SPDX-License-Identifier: Apache-2.0
 *
 * What is kept of earlier runs: in memory, as a file, and as a damaged file.
 */
#include "daemon/placement/priors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "tests/check.h"

static char folder[64], path[96];

static void begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/stg-priors-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/smart_stage", folder);
}

static void end(void)
{
    unlink(path);
    CHECK_INT(rmdir(folder), 0); /* nothing else is left there */
}

/* The nodes of bits, the first one lowest. */
static bool keep(struct stg_priors *priors, uint64_t fingerprint, unsigned bits,
                 size_t n_nodes)
{
    bool moved[32];
    for (size_t i = 0; i < n_nodes; i++)
        moved[i] = (bits >> i & 1) != 0;
    struct stg_prior prior = {.fingerprint = fingerprint,
                              .cpus = 2,
                              .gain = 0.25,
                              .n_nodes = n_nodes,
                              .moved = moved};
    return stg_priors_keep(priors, &prior);
}

static unsigned bits_of(const struct stg_priors *priors, uint64_t fingerprint)
{
    const struct stg_prior *prior = stg_priors_find(priors, fingerprint, 2);
    unsigned bits = 0;
    CHECK(prior != NULL);
    for (size_t i = 0; i < prior->n_nodes; i++)
        bits |= (unsigned)prior->moved[i] << i;
    return bits;
}

static void save(const struct stg_priors *priors)
{
    struct stg_err err = {0};
    CHECK_OK(stg_priors_save(priors, path, &err), err);
}

static size_t read_file(char *buf, size_t bytes)
{
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    size_t n = fread(buf, 1, bytes, file);
    fclose(file);
    return n;
}

static void write_file(const char *buf, size_t n)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fwrite(buf, 1, n, file) == n);
    CHECK_INT(fclose(file), 0);
}

static void a_prior_is_of_its_pipeline_and_cpus(void)
{
    struct stg_priors priors = {0};
    CHECK(keep(&priors, 7, 5, 3));
    CHECK_INT(bits_of(&priors, 7), 5);
    CHECK(stg_priors_find(&priors, 8, 2) == NULL);
    CHECK(stg_priors_find(&priors, 7, 4) == NULL);
    CHECK(!keep(&priors, 7, 5, 3)); /* the same */
    CHECK(keep(&priors, 7, 6, 3));
    CHECK_INT(bits_of(&priors, 7), 6);
    CHECK_INT(priors.n, 1);
    struct stg_prior none = {.fingerprint = 7, .cpus = 2};
    CHECK(stg_priors_keep(&priors, &none));
    CHECK(!stg_priors_keep(&priors, &none));
    CHECK_INT(priors.n, 0);
}

static void a_copy_lives_by_itself(void)
{
    struct stg_priors priors = {0};
    keep(&priors, 7, 5, 3);
    struct stg_prior *copy = stg_prior_copy(stg_priors_find(&priors, 7, 2));
    stg_priors_finish(&priors);
    CHECK(copy->moved[0] && !copy->moved[1] && copy->moved[2]);
    stg_prior_destroy(copy);
    stg_prior_destroy(NULL);
}

static void the_least_recent_one_makes_room(void)
{
    struct stg_priors priors = {0};
    for (uint64_t i = 0; i < STG_MAX_PRIORS; i++)
        keep(&priors, i, 1, 4);
    keep(&priors, 0, 1, 4); /* used again */
    keep(&priors, 1000, 1, 4);
    CHECK_INT(priors.n, STG_MAX_PRIORS);
    CHECK(stg_priors_find(&priors, 0, 2) != NULL);
    CHECK(stg_priors_find(&priors, 1, 2) == NULL);
    CHECK(stg_priors_find(&priors, 1000, 2) != NULL);
    stg_priors_finish(&priors);
}

static void what_is_written_is_read(void)
{
    struct stg_priors priors = {0}, again = {0};
    struct stg_err err = {0};
    begin();
    for (unsigned i = 1; i <= 20; i++)
        keep(&priors, UINT64_MAX - i, i * 0x9e3779b9u, i);
    save(&priors);
    CHECK_OK(stg_priors_load(&again, path, &err), err);
    CHECK_INT(again.n, 20);
    for (unsigned i = 1; i <= 20; i++) {
        const struct stg_prior *prior = stg_priors_find(&again, UINT64_MAX - i, 2);
        CHECK(prior != NULL && prior->n_nodes == i && prior->gain == 0.25);
        CHECK_INT(bits_of(&again, UINT64_MAX - i), bits_of(&priors, UINT64_MAX - i));
    }
    CHECK_INT(again.all[0].fingerprint, UINT64_MAX - 20); /* the most recent one */
    stg_priors_finish(&priors);
    stg_priors_finish(&again);
    end();
}

static void no_file_is_not_a_damaged_one(void)
{
    struct stg_priors priors = {0};
    struct stg_err err = {0};
    begin();
    CHECK_INT(stg_priors_load(&priors, path, &err), -STAGER_NOT_FOUND);
    save(&priors);
    CHECK_OK(stg_priors_load(&priors, path, &err), err);
    CHECK_INT(priors.n, 0);
    end();
}

static void check_damaged(const char *text, size_t n)
{
    struct stg_priors priors = {0};
    struct stg_err err = {0};
    write_file(text, n);
    CHECK_INT(stg_priors_load(&priors, path, &err), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text, path);
    CHECK_INT(priors.n, 0);
}

static void each_damage_is_seen(void)
{
    struct stg_priors priors = {0};
    char text[4096], bad[4096];
    begin();
    keep(&priors, 7, 5, 3);
    keep(&priors, 8, 2, 9);
    save(&priors);
    size_t n = read_file(text, sizeof(text));
    for (size_t i = 0; i < n; i++) {
        memcpy(bad, text, n);
        bad[i] ^= 1;
        check_damaged(bad, n);
        check_damaged(text, i); /* cut off */
    }
    memcpy(bad, text, n);
    memcpy(bad + n, "end 0\n", 6);
    check_damaged(bad, n + 6);
    stg_priors_finish(&priors);
    end();
}

static void a_file_that_cannot_be_written_is_an_error(void)
{
    struct stg_priors priors = {0};
    struct stg_err err = {0};
    begin();
    CHECK_INT(stg_priors_save(&priors, "/nonexistent/folder/x", &err),
              -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, "cannot write /nonexistent/folder/x.new");
    end();
}

static const struct stg_test tests[] = {
    TEST(a_prior_is_of_its_pipeline_and_cpus),
    TEST(a_copy_lives_by_itself),
    TEST(the_least_recent_one_makes_room),
    TEST(what_is_written_is_read),
    TEST(no_file_is_not_a_damaged_one),
    TEST(each_damage_is_seen),
    TEST(a_file_that_cannot_be_written_is_an_error),
};
TEST_MAIN(tests)
