/* SPDX-License-Identifier: Apache-2.0
 *
 * files: listings, files with names of files. Patterns and directories are in
 * test_dataset_lines.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/dataset/files/braces.h"
#include "daemon/dataset/files/digest.h"
#include "daemon/dataset/files/listing.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static void put(const char *name, const char *fmt)
{
    char text[4096];
    const char *dir = stg_test_dir();
    snprintf(text, sizeof(text), fmt, dir, dir, dir, dir);
    stg_test_file(name, text, strlen(text));
}

static void a_listing_names_files_in_the_order_of_its_lines(void)
{
    STG_TEST_FILE("a", "1\n");
    STG_TEST_FILE("b", "2\n");
    STG_TEST_FILE("c*", "3\n");
    put("names", "%s/b\r\n\n# %%s is not here\nfile://%s/c*\n%s/a\n%s/b");
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render_text(
        "dataset: [{files: {listing: $DIR/names, shuffle: false}}, text_line]", &env, 0);
    CHECK_STR(got, "2\n3\n1\n2\n");
    free(got);
    got = stg_test_render_text("dataset: [{files: {pattern: [$DIR/b, $DIR/a], listing: "
                               "[$DIR/names], shuffle: false}}, text_line]",
                               &env, 0);
    CHECK_STR(got, "1\n2\n2\n3\n1\n2\n");
    free(got);
}

static const char *digest(const char *text, uint64_t content)
{
    static char ret[4][STG_DIGEST_BYTES];
    static unsigned n;
    char *to = ret[n++ % 4];
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_err err = {0};
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    CHECK_OK(stg_digest_write(dataset, spec, content, to, &err), err);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    CHECK_INT(strspn(to, "0123456789abcdef"), STG_DIGEST_BYTES - 1);
    return to;
}

/* Names, sizes, order and pipeline; not the folder. */
static void a_digest_is_that_of_files_in_their_order(void)
{
    static const char both[] =
        "dataset: [{files: {pattern: [$DIR/x/a, $DIR/x/b], shuffle: false}}, text_line]";
    static const char listed[] =
        "dataset: [{files: {listing: $DIR/names, shuffle: false}}, text_line]";
    static const char elsewhere[] =
        "dataset: [{files: {pattern: [$DIR/y/a, $DIR/y/b], shuffle: false}}, text_line]";
    char path[512], first[STG_DIGEST_BYTES];
    for (const char *name = "xy"; *name != '\0'; name++) {
        snprintf(path, sizeof(path), "%s/%c", stg_test_dir(), *name);
        CHECK_INT(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%c/a", *name);
        stg_test_file(path, "1\n", 2);
        snprintf(path, sizeof(path), "%c/b", *name);
        stg_test_file(path, "2\n", 2);
    }
    snprintf(first, sizeof(first), "%s", digest(both, 1));
    CHECK_STR(digest(both, 1), first);
    CHECK_STR(digest(elsewhere, 1), first);
    CHECK(strcmp(digest(both, 2), first) != 0);
    stg_test_file("x/b", "22\n", 3);
    CHECK(strcmp(digest(both, 1), first) != 0);
    put("names", "%s/x/a\n%s/x/b\n");
    snprintf(first, sizeof(first), "%s", digest(listed, 1));
    put("names", "%s/x/b\n%s/x/a\n");
    CHECK(strcmp(digest(listed, 1), first) != 0);
}

static void a_listing_of_many_files_is_read_in_pieces(void)
{
    char *text = NULL, *want = NULL;
    size_t bytes, want_bytes;
    FILE *out = open_memstream(&text, &bytes), *all = open_memstream(&want, &want_bytes);
    for (int i = 0; i < 3000; i++) {
        int n = 1 + i * 37 % 200;
        fprintf(out, "/%0*d%s", n, i, i % 3 == 0 ? "\r\n" : "\n");
        fprintf(all, "/%0*d\n", n, i);
    }
    fclose(out);
    fclose(all);
    stg_test_file("many", text, bytes);
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render_text(
        "dataset: [{files: {listing: $DIR/many, shuffle: false}}]", &env, 0);
    CHECK_STR(got, want);
    free(got);
    free(text);
    free(want);
}

static void check_refused_as(const char *listing, uid_t uid, int code, const char *why)
{
    char text[256];
    snprintf(text, sizeof(text), "dataset: [{files: {listing: $DIR/%s}}]", listing);
    struct stg_pipeline_spec *spec = stg_test_load(text);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    env.uid = env.gid = uid;
    CHECK_INT(stg_dataset_create(spec, &env, &dataset, &err), -code);
    CHECK_CONTAINS(err.text, "step files (line 1): ");
    CHECK_CONTAINS(err.text, why);
    stg_pipeline_spec_destroy(spec);
}

static void check_refused(const char *listing, int code, const char *why)
{
    check_refused_as(listing, 0, code, why);
}

static void what_is_wrong_with_a_listing_is_said_with_its_line(void)
{
    put("relative", "%s/a\n# a\n\nb\n");
    check_refused("relative", STAGER_INVALID_ARGUMENT,
                  "relative: line 4: b is a relative path");
    put("scheme", "%s/a\nnone://b\n");
    check_refused("scheme", STAGER_UNIMPLEMENTED,
                  "scheme: line 2: none://b: unknown scheme");
    STG_TEST_FILE("binary", "/a\n/\0\n");
    check_refused("binary", STAGER_INVALID_ARGUMENT, "binary: line 2: a NUL byte");
    STG_TEST_FILE("empty", "\n\r\n# nothing\n");
    check_refused("empty", STAGER_INVALID_ARGUMENT, "empty: the file is empty");
    check_refused("gone", STAGER_NOT_FOUND, "/gone");
    check_refused("", STAGER_INVALID_ARGUMENT, "is a directory");
}

static void a_line_of_just_the_limit_is_read(void)
{
    static char text[STG_LISTING_LINE_BYTES + 8] = "/a\n";
    memset(text + 3, '#', STG_LISTING_LINE_BYTES - 1);
    text[3 + STG_LISTING_LINE_BYTES - 1] = '\n';
    stg_test_file("long", text, 3 + STG_LISTING_LINE_BYTES);
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render_text("dataset: [{files: {listing: $DIR/long}}]", &env, 0);
    CHECK_STR(got, "/a\n");
    free(got);
    text[3 + STG_LISTING_LINE_BYTES - 1] = '#';
    stg_test_file("longer", text, 3 + STG_LISTING_LINE_BYTES);
    check_refused("longer", STAGER_INVALID_ARGUMENT, "longer: line 2: longer than 8192");
}

static void a_listing_is_read_on_behalf_of_the_applier(void)
{
    put("secret", "%s/a\n");
    CHECK_INT(chmod(stg_test_dir(), 0755), 0);
    CHECK_INT(chmod(stg_test_path("secret"), 0600), 0);
    check_refused_as("secret", 12345, STAGER_PERMISSION_DENIED, "may not read");
}

/* ---- braces ---- */

static int add_name(void *owner, const char *name, struct stg_err *err)
{
    return fprintf(owner, "%s ", name) < 0 ? -1 : 0;
}

static char *expanded(const char *pattern, int want, struct stg_err *err)
{
    char *text;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    CHECK_INT(stg_braces_each(pattern, add_name, to, err), want);
    fclose(to);
    return text;
}

/* What bash prints for `echo PATTERN`, but for the last rows. */
static void braces_are_expanded_as_by_a_shell(void)
{
    static const char *const rows[][2] = {
        {"a", "a "},
        {"a{b,c}d", "abd acd "},
        {"{a,b}{1..2}", "a1 a2 b1 b2 "},
        {"{000..003}", "000 001 002 003 "},
        {"{8..11}", "8 9 10 11 "},
        {"{08..11}", "08 09 10 11 "},
        {"{3..1}", "3 2 1 "},
        {"x{a,b{1..2},c{d,e}}y", "xay xb1y xb2y xcdy xcey "},
        {"{,a}b", "b ab "},
        {"{a}{}{b", "{a}{}{b "},
        {"{a{b,c}}", "{ab} {ac} "},
        {"}{a,b}{", "}a{ }b{ "},
        {"{a..c}{1..}{..2}", "{a..c}{1..}{..2} "}, /* of numbers alone */
        {"\\{a,b}", "\\{a,b} "},                   /* a backslash stays: glob's, too */
        {"{a\\,b,c\\}}", "a\\,b c\\} "},           /* likewise */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stg_err err = {0};
        char *got = expanded(rows[i][0], 0, &err);
        CHECK_STR(got, rows[i][1]);
        free(got);
    }
}

static void braces_that_stand_for_too_much_are_refused(void)
{
    struct stg_err err = {0};
    free(expanded("{0..999999}{0..1}", -STAGER_INVALID_ARGUMENT, &err));
    CHECK_CONTAINS(err.text, "stand for more than 1000000 names");
    static char many[3 * 70 + 1];
    for (int i = 0; i < 70; i++)
        memcpy(many + 3 * i, "{,}", 3);
    free(expanded(many, -STAGER_INVALID_ARGUMENT, &err));
    CHECK_CONTAINS(err.text, "too long, or has more than 64 braces");
}

static void files_of_braces_are_read(void)
{
    STG_TEST_FILE("p-00.x", "1\n");
    STG_TEST_FILE("p-01.x", "2\n");
    STG_TEST_FILE("q-01.x", "3\n");
    STG_TEST_FILE("{a,b}", "4\n");
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render_text("dataset: [{files: {pattern: \"$DIR/p-{00..01}.x\", "
                                     "shuffle: false}}, text_line]",
                                     &env, 0);
    CHECK_STR(got, "1\n2\n");
    free(got);
    got = stg_test_render_text("dataset: [{files: {pattern: [\"$DIR/{p,q}-*1.x\", "
                               "'$DIR/\\{a,b}'], shuffle: false}}, text_line]",
                               &env, 0);
    CHECK_STR(got, "2\n3\n4\n");
    free(got);
    struct stg_pipeline_spec *spec =
        stg_test_load("dataset: [{files: {pattern: \"$DIR/p-{00..02}.x\"}}, text_line]");
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_create(spec, &env, &dataset, &err), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "/p-02.x");
    stg_pipeline_spec_destroy(spec);
}

static const struct stg_test tests[] = {
    TEST(braces_are_expanded_as_by_a_shell),
    TEST(braces_that_stand_for_too_much_are_refused),
    TEST(files_of_braces_are_read),
    TEST(a_listing_names_files_in_the_order_of_its_lines),
    TEST(a_listing_of_many_files_is_read_in_pieces),
    TEST(a_digest_is_that_of_files_in_their_order),
    TEST(what_is_wrong_with_a_listing_is_said_with_its_line),
    TEST(a_line_of_just_the_limit_is_read),
    TEST(a_listing_is_read_on_behalf_of_the_applier),
};

TEST_MAIN(tests)
