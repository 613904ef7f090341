/* SPDX-License-Identifier: Apache-2.0
 *
 * The right to read files: modes and ACLs as pure decisions, then real files on behalf of
 * another user (as root only), compared with the kernel's decision for a process of that
 * user.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/storage/local/access.h"
#include "daemon/storage/storage.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

#define ALICE 54321
#define BOB 54322
#define STAFF 54400
#define TEAM 54401

static const gid_t groups_of_alice[] = {TEAM};
static const struct stg_file_user alice = {
    .uid = ALICE, .gid = STAFF, .groups = groups_of_alice, .n_groups = 1};
static const struct stg_file_user root = {.uid = 0};

/* ---- pure decisions ---- */

static bool granted(uid_t uid, gid_t gid, mode_t mode, unsigned want)
{
    struct stat st = {.st_uid = uid, .st_gid = gid, .st_mode = S_IFREG | mode};
    return stg_access_granted(&st, NULL, 0, &alice, want);
}

static void a_full_disk_is_a_resource_that_is_exhausted(void)
{
    CHECK_INT(stg_access_errno(ENOSPC), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_INT(stg_access_errno(EDQUOT), -STAGER_RESOURCE_EXHAUSTED);
}

static void the_first_class_that_applies_decides(void)
{
    CHECK(granted(ALICE, 1, 0400, STG_ACCESS_READ));
    CHECK(!granted(ALICE, STAFF, 0044, STG_ACCESS_READ));
    CHECK(granted(BOB, STAFF, 0040, STG_ACCESS_READ));
    CHECK(granted(BOB, TEAM, 0040, STG_ACCESS_READ));
    CHECK(!granted(BOB, TEAM, 0404, STG_ACCESS_READ));
    CHECK(granted(BOB, 1, 0004, STG_ACCESS_READ));
    CHECK(!granted(BOB, 1, 0770, STG_ACCESS_READ));
    CHECK(!granted(BOB, 1, 0774, STG_ACCESS_READ | STG_ACCESS_SEARCH));
    CHECK(granted(BOB, 1, 0775, STG_ACCESS_READ | STG_ACCESS_SEARCH));
}

static void root_may_read_everything(void)
{
    struct stat st = {.st_uid = BOB, .st_gid = 1, .st_mode = S_IFREG};
    CHECK(stg_access_granted(&st, NULL, 0, &root, STG_ACCESS_READ));
}

/* An ACL in the kernel's format: version 2, then (tag, permissions, id). */
struct acl {
    uint32_t version;
    struct {
        uint16_t tag, perm;
        uint32_t id;
    } entries[8];
};
enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };

static bool acl_grants(const struct acl *acl, size_t n, uid_t uid, gid_t gid)
{
    struct stat st = {.st_uid = uid, .st_gid = gid, .st_mode = S_IFREG};
    return stg_access_granted(&st, acl, 4 + 8 * n, &alice, STG_ACCESS_READ);
}

static void an_acl_decides_like_acl_5(void)
{
    struct acl named = {2,
                        {{USER_OBJ, 6, 0},
                         {USER, 4, ALICE},
                         {GROUP_OBJ, 0, 0},
                         {MASK, 4, 0},
                         {OTHER, 0, 0}}};
    CHECK(acl_grants(&named, 5, BOB, 1));
    named.entries[3].perm = 0;
    CHECK(!acl_grants(&named, 5, BOB, 1));
    CHECK(acl_grants(&named, 5, ALICE, 1));

    struct acl denied = {2,
                         {{USER_OBJ, 6, 0},
                          {USER, 0, ALICE},
                          {GROUP_OBJ, 4, 0},
                          {MASK, 7, 0},
                          {OTHER, 4, 0}}};
    CHECK(!acl_grants(&denied, 5, BOB, STAFF));

    struct acl group = {2,
                        {{USER_OBJ, 6, 0},
                         {GROUP_OBJ, 0, 0},
                         {GROUP, 4, TEAM},
                         {MASK, 7, 0},
                         {OTHER, 0, 0}}};
    CHECK(acl_grants(&group, 5, BOB, 1));
    CHECK(acl_grants(&group, 5, BOB, STAFF));
    group.entries[2].perm = 0;
    group.entries[4].perm = 4;
    CHECK(!acl_grants(&group, 5, BOB, 1));

    struct acl other = {
        2, {{USER_OBJ, 0, 0}, {GROUP_OBJ, 0, 0}, {MASK, 0, 0}, {OTHER, 4, 0}}};
    CHECK(acl_grants(&other, 4, BOB, 1));
    CHECK(!acl_grants(&other, 4, ALICE, 1));
}

static void a_malformed_acl_grants_nothing(void)
{
    struct acl acl = {2, {{USER_OBJ, 7, 0}, {GROUP_OBJ, 7, 0}, {OTHER, 7, 0}}};
    struct stat st = {.st_uid = BOB, .st_gid = 1, .st_mode = S_IFREG | 0777};
    for (size_t bytes = 0; bytes < 28; bytes++) {
        bool ok = bytes >= 28 || (bytes >= 4 && (bytes - 4) % 8 == 0);
        if (!ok)
            CHECK(!stg_access_granted(&st, &acl, bytes, &alice, STG_ACCESS_READ));
    }
    CHECK(stg_access_granted(&st, &acl, 28, &alice, STG_ACCESS_READ));
    acl.version = 3;
    CHECK(!stg_access_granted(&st, &acl, 28, &alice, STG_ACCESS_READ));
}

/* ---- real files ---- */

static void make_dir(const char *name, uid_t uid, mode_t mode)
{
    const char *path = stg_test_path(name);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(chown(path, uid, (gid_t)-1), 0);
    CHECK_INT(chmod(path, mode), 0);
}

static void make_file(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
    const char *path = STG_TEST_FILE(name, "text\n");
    CHECK_INT(chown(path, uid, gid), 0);
    CHECK_INT(chmod(path, mode), 0);
}

static void set_acl(const char *name, const struct acl *acl, size_t n)
{
    const char *path = stg_test_path(name);
    if (setxattr(path, "system.posix_acl_access", acl, 4 + 8 * n, 0) < 0)
        SKIP("this file system has no ACLs");
}

/* Returns the kernel's result for a process of that user that opens the file itself. */
static bool kernel_lets_alice_open(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (setgroups(1, groups_of_alice) < 0 || setgid(STAFF) < 0 || setuid(ALICE) < 0)
            _exit(2);
        _exit(open(path, O_RDONLY) >= 0 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}

static int try_open(const char *path, const struct stg_file_user *identity,
                    struct stg_err *err)
{
    struct stg_source *source;
    int rc = stg_storage_file.open(path, identity, &source, err);
    if (rc < 0)
        return rc;
    char buf[16];
    CHECK_INT(stg_storage_file.read(source, 0, buf, sizeof(buf), err), 5);
    CHECK(memcmp(buf, "text\n", 5) == 0);
    CHECK_INT(stg_storage_file.read(source, 5, buf, sizeof(buf), err), 0);
    uint64_t size;
    CHECK_INT(stg_storage_file.size(source, &size, err), 0);
    CHECK_INT(size, 5);
    stg_storage_file.close(source);
    return 0;
}

/* The result for alice equals the kernel's; root may always read. */
static void check_alice(const char *name, bool may)
{
    const char *path = stg_test_path(name);
    struct stg_err err = {0};
    CHECK_INT(kernel_lets_alice_open(path), may);
    CHECK_INT(try_open(path, &root, &err), 0);
    int rc = try_open(path, &alice, &err);
    CHECK_INT(rc, may ? 0 : -STAGER_PERMISSION_DENIED);
    if (!may) {
        char want[256];
        snprintf(want, sizeof(want), "user %d may not read %s", ALICE, path);
        CHECK_CONTAINS(err.text, want);
    }
}

static void need_root(void)
{
    if (geteuid() != 0)
        SKIP("needs root, to make files of other users");
}

static void modes_of_a_file_hold_for_the_applier(void)
{
    need_root();
    make_file("hers", ALICE, 1, 0400);
    make_file("not-even-hers", ALICE, STAFF, 0044);
    make_file("group", BOB, TEAM, 0640);
    make_file("public", BOB, 1, 0644);
    make_file("private", BOB, 1, 0600);
    make_file("not-for-the-team", BOB, TEAM, 0604);
    check_alice("hers", true);
    check_alice("not-even-hers", false);
    check_alice("group", true);
    check_alice("public", true);
    check_alice("private", false);
    check_alice("not-for-the-team", false);
}

static void acls_of_a_file_hold_for_the_applier(void)
{
    need_root();
    make_file("granted", BOB, 1, 0600);
    make_file("denied", BOB, 1, 0644);
    struct acl grant = {2,
                        {{USER_OBJ, 6, -1},
                         {USER, 4, ALICE},
                         {GROUP_OBJ, 0, -1},
                         {MASK, 4, -1},
                         {OTHER, 0, -1}}};
    struct acl deny = {2,
                       {{USER_OBJ, 6, -1},
                        {USER, 0, ALICE},
                        {GROUP_OBJ, 4, -1},
                        {MASK, 4, -1},
                        {OTHER, 4, -1}}};
    set_acl("granted", &grant, 5);
    set_acl("denied", &deny, 5);
    check_alice("granted", true);
    check_alice("denied", false);
}

static void every_directory_on_the_way_counts(void)
{
    need_root();
    make_dir("open", BOB, 0755);
    make_dir("open/closed", BOB, 0700);
    make_dir("open/closed/inner", BOB, 0777);
    make_dir("open/blind", BOB, 0711);
    make_dir("open/granted", BOB, 0700);
    make_file("open/x", BOB, 1, 0644);
    make_file("open/closed/x", BOB, 1, 0644);
    make_file("open/closed/inner/x", BOB, 1, 0644);
    make_file("open/blind/x", BOB, 1, 0644);
    make_file("open/granted/x", BOB, 1, 0644);
    check_alice("open/x", true);
    check_alice("open/closed/x", false);
    check_alice("open/closed/inner/x", false);
    check_alice("open/blind/x", true);
    check_alice("open/granted/x", false);
    struct acl grant = {2,
                        {{USER_OBJ, 7, -1},
                         {USER, 1, ALICE},
                         {GROUP_OBJ, 0, -1},
                         {MASK, 1, -1},
                         {OTHER, 0, -1}}};
    set_acl("open/granted", &grant, 5);
    check_alice("open/granted/x", true);
    check_alice("open/../open/./x", true);
    check_alice("open/closed/../x", false);
}

static void make_link(const char *target, const char *name)
{
    const char *path = stg_test_path(name);
    CHECK_INT(symlink(target, path), 0);
}

static void links_are_followed_with_the_applier_s_rights(void)
{
    need_root();
    make_dir("closed", BOB, 0700);
    make_dir("open", BOB, 0755);
    make_file("closed/x", BOB, 1, 0644);
    make_file("open/x", BOB, 1, 0644);
    make_link("open/x", "relative");
    make_link(stg_test_path("open/x"), "absolute");
    make_link("../open/x", "open/up");
    make_link("relative", "twice");
    make_link(stg_test_path("open"), "dir");
    make_link("closed/x", "into-closed");
    make_link(stg_test_path("open/x"), "closed/out");
    check_alice("relative", true);
    check_alice("absolute", true);
    check_alice("open/up", true);
    check_alice("twice", true);
    check_alice("dir/x", true);
    check_alice("into-closed", false);
    check_alice("closed/out", false);

    make_link("loop-b", "loop-a");
    make_link("loop-a", "loop-b");
    make_link("gone", "dangling");
    struct stg_err err = {0};
    CHECK_INT(try_open(stg_test_path("loop-a"), &root, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "too many symbolic links");
    CHECK_INT(try_open(stg_test_path("dangling"), &alice, &err), -STAGER_NOT_FOUND);
}

/* The same text whether or not the file exists. */
static void a_closed_directory_does_not_say_what_is_in_it(void)
{
    need_root();
    make_dir("closed", BOB, 0700);
    make_file("closed/x", BOB, 1, 0644);
    struct stg_err there = {0}, not_there = {0};
    CHECK_INT(try_open(stg_test_path("closed/x"), &alice, &there),
              -STAGER_PERMISSION_DENIED);
    CHECK_INT(try_open(stg_test_path("closed/y"), &alice, &not_there),
              -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(there.text, "(no search permission on ");
    *strstr(there.text, "/x") = '\0';
    *strstr(not_there.text, "/y") = '\0';
    CHECK_STR(there.text, not_there.text);
}

static void files_whose_modes_mean_nothing_are_refused(void)
{
    need_root();
    struct stg_err err = {0};
    struct stg_source *source;
    CHECK_INT(stg_storage_file.open("/proc/self/maps", &alice, &source, &err),
              -STAGER_PERMISSION_DENIED);
    CHECK_INT(stg_storage_file.open("/dev/null", &alice, &source, &err),
              -STAGER_INVALID_ARGUMENT);
}

/* The daemon runs as a separate user, bob, with fewer rights than the user that
 * applies. */
static void as_bob_s_daemon(void)
{
    if (setgid(BOB) < 0 || setuid(BOB) < 0)
        FAIL("setuid");
    struct stg_err err = {0};
    char want[512];
    const char *path = stg_test_path("hers/x");
    CHECK_INT(try_open(path, &alice, &err), -STAGER_PERMISSION_DENIED);
    snprintf(
        want, sizeof(want),
        "stagerd (user %d) cannot read %s: run `setfacl -m u:%d:r %s`, or `systemctl "
        "--user start stagerd`",
        BOB, path, BOB, path);
    CHECK_CONTAINS(err.text, want);
    CHECK_INT(try_open(stg_test_path("hers/home/x"), &alice, &err),
              -STAGER_PERMISSION_DENIED);
    snprintf(want, sizeof(want), "run `setfacl -m u:%d:x %s/hers/home`", BOB,
             stg_test_dir());
    CHECK_CONTAINS(err.text, want);
    /* The hint about the daemon's rights is only for users that may read the file
     * themselves. */
    struct stg_file_user carol = {.uid = 54323, .gid = 1};
    CHECK_INT(try_open(path, &carol, &err), -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(err.text, "user 54323 may not read ");
}

static void what_only_the_daemon_may_not_read_comes_with_the_cure(void)
{
    need_root();
    make_dir("hers", ALICE, 0755);
    make_file("hers/x", ALICE, STAFF, 0600);
    make_dir("hers/home", ALICE, 0700);
    make_file("hers/home/x", ALICE, STAFF, 0644);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        as_bob_s_daemon();
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* ---- patterns ---- */

struct names {
    char text[1024];
    size_t prefix;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(void *owner, const char *path, struct stg_err *err)
{
    struct names *names = owner;
    size_t n = strlen(names->text);
    snprintf(names->text + n, sizeof(names->text) - n, "%s ", path + names->prefix);
    return 0;
}

/* Sorts the words of a text. */
static void sort_words(char *text)
{
    char copy[1024], *words[64];
    int n = 0;
    strcpy(copy, text);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        words[n++] = word;
    qsort(words, (size_t)n, sizeof(char *), by_text);
    text[0] = '\0';
    for (int i = 0; i < n; i++)
        sprintf(text + strlen(text), "%s%s", i > 0 ? " " : "", words[i]);
}

static void check_list(const char *pattern, const struct stg_file_user *identity,
                       const char *want)
{
    struct names names = {.prefix = strlen(stg_test_dir()) + 1};
    struct stg_err err = {0};
    const char *path = stg_test_path(pattern);
    int rc = stg_storage_file.list(path, identity, add_name, &names, &err);
    if (want == NULL) {
        CHECK_INT(rc, -STAGER_NOT_FOUND);
        CHECK_CONTAINS(err.text, "no files matched ");
    } else {
        CHECK_OK(rc, err);
        sort_words(names.text);
        CHECK_STR(names.text, want);
    }
}

static void make_tree(void)
{
    make_dir("d1", (uid_t)-1, 0755);
    make_dir("d2", (uid_t)-1, 0755);
    make_dir("d1/sub", (uid_t)-1, 0755);
    STG_TEST_FILE("d1/a.csv", "");
    STG_TEST_FILE("d1/b.csv", "");
    STG_TEST_FILE("d1/b.txt", "");
    STG_TEST_FILE("d1/.hidden.csv", "");
    STG_TEST_FILE("d1/sub/c.csv", "");
    STG_TEST_FILE("d2/a.csv", "");
    STG_TEST_FILE("d2/x[1].csv", "");
    make_link("d1/a.csv", "link.csv");
    make_link("d1", "linked");
    make_link("gone", "dangling.csv");
}

static void patterns_match_names_one_directory_at_a_time(void)
{
    make_tree();
    check_list("d1/*.csv", &root, "d1/a.csv d1/b.csv");
    check_list("d1/?.*", &root, "d1/a.csv d1/b.csv d1/b.txt");
    check_list("d1/[b-z]*", &root, "d1/b.csv d1/b.txt");
    check_list("d1/[!a]*.csv", &root, "d1/b.csv");
    check_list("d1/.*.csv", &root, "d1/.hidden.csv");
    check_list("d1/*", &root, "d1/a.csv d1/b.csv d1/b.txt");
    check_list("d?/a.csv", &root, "d1/a.csv d2/a.csv");
    check_list("*/*/c.csv", &root, "d1/sub/c.csv linked/sub/c.csv");
    check_list("d*/*.csv", &root, "d1/a.csv d1/b.csv d2/a.csv d2/x[1].csv");
    check_list("*.csv", &root, "link.csv");
    check_list("linked/a.csv", &root, "linked/a.csv");
    check_list("d2/x\\[1\\].csv", &root, "d2/x[1].csv");
    check_list("d2/x[1].csv", &root, NULL);
    check_list("d1//*.txt", &root, "d1//b.txt");
    check_list("d1/../d2/a*", &root, "d1/../d2/a.csv");
    check_list("d1/sub/*.txt", &root, NULL);
    check_list("nope*/x", &root, NULL);
}

static void check_why_nothing(const char *pattern, const char *why)
{
    struct names names = {.prefix = 0};
    struct stg_err err = {0};
    CHECK_INT(
        stg_storage_file.list(stg_test_path(pattern), &root, add_name, &names, &err),
        -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, why);
}

static void the_error_for_a_pattern_without_matches_names_likely_causes(void)
{
    make_dir("classes", (uid_t)-1, 0755);
    make_dir("classes/cat", (uid_t)-1, 0755);
    make_dir("classes/dog", (uid_t)-1, 0755);
    STG_TEST_FILE("classes/cat/1.jpg", "");
    check_why_nothing("classes", "but 2 directories are in it: for the files in them ");
    check_why_nothing("classes", "classes/*/*");
    check_why_nothing("classes/*", "but 2 directories: for the files in them ");
    check_why_nothing("classes/*/{1..9}.jpg", "no files matched ");
    check_why_nothing("classes/cat/{1..9}.jpg", "does not expand braces");
    check_list("classes/*/*", &root, "classes/cat/1.jpg");
}

static void names_in_a_directory_that_may_not_be_listed_stay_hidden(void)
{
    need_root();
    make_dir("open", BOB, 0755);
    make_dir("blind", BOB, 0711);
    make_dir("listed", BOB, 0744);
    make_dir("closed", BOB, 0700);
    make_file("open/x", BOB, 1, 0644);
    make_file("blind/x", BOB, 1, 0644);
    make_file("listed/x", BOB, 1, 0644);
    make_file("closed/x", BOB, 1, 0644);
    check_list("*/x", &alice, "blind/x open/x");
    check_list("*/*", &alice, "listed/x open/x");
    check_list("blind/x", &alice, "blind/x");
    struct stg_err err = {0};
    struct names names = {.prefix = 0};
    CHECK_INT(
        stg_storage_file.list(stg_test_path("blind/*"), &alice, add_name, &names, &err),
        -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(err.text, "user 54321 may not list ");
    CHECK_INT(
        stg_storage_file.list(stg_test_path("closed/*"), &alice, add_name, &names, &err),
        -STAGER_PERMISSION_DENIED);
    CHECK_INT(
        stg_storage_file.list(stg_test_path("closed/x"), &alice, add_name, &names, &err),
        -STAGER_PERMISSION_DENIED);
    CHECK_INT(
        stg_storage_file.list(stg_test_path("closed/y"), &alice, add_name, &names, &err),
        -STAGER_PERMISSION_DENIED);
    CHECK_STR(names.text, "");
    make_dir("more", BOB, 0755);
    make_dir("more/closed", BOB, 0700);
    make_file("more/closed/x", BOB, 1, 0644);
    CHECK_INT(
        stg_storage_file.list(stg_test_path("more/*/x"), &alice, add_name, &names, &err),
        -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "(1 directories on the way may not be read by user 54321)");
}

static void a_pattern_is_checked_without_touching_files(void)
{
    struct stg_err err = {0};
    char long_path[5000];
    memset(long_path, 'x', sizeof(long_path));
    long_path[0] = '/';
    long_path[4999] = '\0';
    CHECK_INT(stg_storage_file.check(long_path, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stg_storage_file.check("x", &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "x is a relative path");
    CHECK_INT(stg_storage_file.check("~/x", &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "does not expand ~");
    CHECK_INT(stg_storage_file.check("/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*", &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stg_storage_file.check("/data/**/x", &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "** does not match nested directories");
    CHECK_INT(stg_storage_file.check("/data/**.csv", &err), 0);
    CHECK_INT(stg_storage_file.check("/data/*.csv", &err), 0);

    struct stg_source *source;
    long_path[300] = '\0';
    CHECK_INT(stg_storage_file.open(long_path, &root, &source, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "File name too long");
    CHECK_INT(stg_storage_file.open("relative", &root, &source, &err),
              -STAGER_INVALID_ARGUMENT);
}

static const struct stg_test tests[] = {
    TEST(the_first_class_that_applies_decides),
    TEST(a_full_disk_is_a_resource_that_is_exhausted),
    TEST(root_may_read_everything),
    TEST(an_acl_decides_like_acl_5),
    TEST(a_malformed_acl_grants_nothing),
    TEST(modes_of_a_file_hold_for_the_applier),
    TEST(acls_of_a_file_hold_for_the_applier),
    TEST(every_directory_on_the_way_counts),
    TEST(links_are_followed_with_the_applier_s_rights),
    TEST(a_closed_directory_does_not_say_what_is_in_it),
    TEST(files_whose_modes_mean_nothing_are_refused),
    TEST(what_only_the_daemon_may_not_read_comes_with_the_cure),
    TEST(patterns_match_names_one_directory_at_a_time),
    TEST(the_error_for_a_pattern_without_matches_names_likely_causes),
    TEST(names_in_a_directory_that_may_not_be_listed_stay_hidden),
    TEST(a_pattern_is_checked_without_touching_files),
};

TEST_MAIN(tests)
