/* SPDX-License-Identifier: Apache-2.0
 *
 * Hosts that compare what they divide: each is a thread, and the folder is a real one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cluster/compare.h"
#include "tests/check.h"

#define MAX_HOSTS 8

struct host {
    struct stg_comparing comparing;
    struct stg_compared compared;
    struct stg_file_mark marks[4];
    _Atomic int stopped;
    int rc;
    struct stg_err err;
    pthread_t thread;
};

static char folder[64];
static struct host hosts[MAX_HOSTS];

static const char *file_of(const void *owner, uint64_t i)
{
    static const char *const names[] = {"/data/a", "/data/b", "/data/c", "/data/d"};
    CHECK(owner == NULL && i < 4);
    return names[i];
}

static void begin(unsigned n)
{
    snprintf(folder, sizeof(folder), "/tmp/stg-compare-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    for (unsigned i = 0; i < n; i++) {
        struct host *host = &hosts[i];
        *host = (struct host){.comparing = {.dir = folder,
                                            .timeout_millis = 60000,
                                            .signature = "files:01,shuffle:02@1,shard:03",
                                            .instance = 100 + i},
                              .compared = {.pipeline = "train",
                                           .number = i,
                                           .n_hosts = n,
                                           .batch_size = 32,
                                           .n_files = 3,
                                           .span = 1,
                                           .file = file_of}};
        for (unsigned k = 0; k < 4; k++)
            host->marks[k] = (struct stg_file_mark){.name = 11 + k, .bytes = 100 * k};
        host->compared.marks = host->marks;
    }
}

static void remove_folder(void)
{
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.')
            CHECK(unlinkat(dirfd(dir), entry->d_name, 0) == 0);
    }
    closedir(dir);
    CHECK(rmdir(folder) == 0);
}

static void *run(void *arg)
{
    struct host *host = arg;
    host->err = (struct stg_err){0};
    host->rc =
        stg_hosts_compare(&host->comparing, &host->compared, &host->stopped, &host->err);
    return NULL;
}

static void compare(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(pthread_create(&hosts[i].thread, NULL, run, &hosts[i]) == 0);
    for (unsigned i = 0; i < n; i++)
        CHECK(pthread_join(hosts[i].thread, NULL) == 0);
}

static void check_all(unsigned n, int rc, const char *text)
{
    for (unsigned i = 0; i < n; i++) {
        if (hosts[i].rc != rc || strstr(hosts[i].err.text, text) == NULL)
            fprintf(stderr, "host %u: %d: %s\n", i, hosts[i].rc, hosts[i].err.text);
        CHECK(hosts[i].rc == rc);
        CHECK(strstr(hosts[i].err.text, text) != NULL);
    }
}

/* Of the text of host 0, which all of them have. */
static void check_same(unsigned n)
{
    for (unsigned i = 1; i < n; i++)
        CHECK(strcmp(hosts[i].err.text, hosts[0].err.text) == 0);
}

static void hosts_that_have_the_same_go_on(void)
{
    begin(MAX_HOSTS);
    compare(MAX_HOSTS);
    check_all(MAX_HOSTS, 0, "");
    compare(MAX_HOSTS); /* over their own notes of before */
    check_all(MAX_HOSTS, 0, "");
    remove_folder();
}

static void a_difference_is_named_by_all_hosts_alike(void)
{
    begin(4);
    hosts[2].marks[1].bytes = 101;
    compare(4);
    check_all(4, -STAGER_FAILED_PRECONDITION,
              "/data/b (file 2) has 100 and 101 bytes: host 0 (");
    check_same(4);
    hosts[2].marks[1].bytes = 100;
    hosts[3].comparing.signature = "files:01,shuffle:02@2,shard:03";
    compare(4);
    check_all(4, -STAGER_FAILED_PRECONDITION, "step shuffle (number 2): host 0 (");
    check_same(4);
    hosts[3].comparing.signature = hosts[0].comparing.signature;
    hosts[1].compared.batch_size = 16;
    compare(4);
    check_all(4, -STAGER_FAILED_PRECONDITION, "batch_size (32 and 16): host 0 (");
    hosts[1].compared.batch_size = 32;
    hosts[1].compared.vocabularies = 1;
    compare(4);
    check_all(4, -STAGER_FAILED_PRECONDITION, "the content of a vocabulary: host 0 (");
    hosts[1].compared.vocabularies = 0;
    compare(4); /* what failed before leaves no trace */
    check_all(4, 0, "");
    remove_folder();
}

static void a_file_that_a_host_has_more_is_named(void)
{
    begin(2);
    hosts[1].compared.n_files = 4;
    compare(2);
    check_all(2, -STAGER_FAILED_PRECONDITION,
              "is missing on one of them (3 and 4 files): host 0 (");
    CHECK(strstr(hosts[1].err.text, "/data/d (file 4)") != NULL);
    remove_folder();
}

static void another_file_in_its_place_is_named(void)
{
    begin(2);
    hosts[1].marks[0].name = 99;
    compare(2);
    check_all(2, -STAGER_FAILED_PRECONDITION,
              "/data/a (file 1) is another one: host 0 (");
    remove_folder();
}

static void several_files_of_a_mark_are_counted(void)
{
    begin(2);
    for (unsigned i = 0; i < 2; i++) {
        hosts[i].compared.n_files = 4;
        hosts[i].compared.span = 2;
    }
    hosts[1].marks[1].name = 99;
    compare(2);
    check_all(2, -STAGER_FAILED_PRECONDITION,
              "/data/c (file 3), or one of the 1 behind it: host 0 (");
    remove_folder();
}

static void two_hosts_of_one_number_name_each_other(void)
{
    begin(3);
    hosts[2].compared.number = 1;
    hosts[0].comparing.timeout_millis = 300;
    compare(3);
    check_all(1, hosts[0].rc, "");
    CHECK(hosts[0].rc == -STAGER_FAILED_PRECONDITION ||
          hosts[0].rc == -STAGER_DEADLINE_EXCEEDED);
    CHECK(hosts[1].rc == -STAGER_FAILED_PRECONDITION &&
          hosts[2].rc == -STAGER_FAILED_PRECONDITION);
    CHECK(strstr(hosts[1].err.text, "are both number 1 of 3") != NULL);
    remove_folder();
}

static void a_host_of_another_number_of_hosts_is_named(void)
{
    begin(2);
    hosts[1].compared.n_hosts = 4;
    compare(2);
    check_all(2, -STAGER_FAILED_PRECONDITION, "is number ");
    remove_folder();
}

static void a_host_that_is_absent_is_named(void)
{
    begin(2);
    hosts[0].comparing.timeout_millis = 100;
    compare(1);
    check_all(1, -STAGER_DEADLINE_EXCEEDED, "host 1 of 2 has not begun its run");
    remove_folder();
}

static void jobs_of_other_names_do_not_meet(void)
{
    begin(2);
    for (unsigned i = 0; i < 2; i++)
        hosts[i].comparing.timeout_millis = 100;
    snprintf(hosts[1].comparing.job, sizeof(hosts[1].comparing.job), "another");
    compare(2);
    check_all(2, -STAGER_DEADLINE_EXCEEDED, "has not begun its run");
    remove_folder();
}

static void a_stop_ends_the_wait(void)
{
    begin(2);
    hosts[0].stopped = 1;
    compare(1);
    check_all(1, -STAGER_CANCELLED, "stopped");
    remove_folder();
}

static void write_text(const char *name, const char *text, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes);
    close(fd);
}

static size_t read_entry(const char *part, char *name, char *text, size_t room)
{
    char path[400];
    size_t n = 0;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    for (const struct dirent *entry; n == 0 && (entry = readdir(dir)) != NULL;) {
        if (strstr(entry->d_name, part) == NULL)
            continue;
        snprintf(name, 256, "%s", entry->d_name);
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "rb");
        CHECK(file != NULL);
        n = fread(text, 1, room, file);
        fclose(file);
    }
    closedir(dir);
    CHECK(n > 0);
    return n;
}

/* Of hosts that ended: each text that is cut or changed is no note, or an old one. */
static void notes_of_others_do_no_harm(void)
{
    static char text[STG_NOTE_BYTES];
    char name[256], other[300];
    begin(2);
    compare(2);
    check_all(2, 0, "");
    size_t n = read_entry(".note", name, text, sizeof(text));
    char *end = strrchr(name, '.');
    CHECK(end != NULL);
    *end = '\0';
    for (unsigned i = 0; i < 100; i++) {
        snprintf(other, sizeof(other), "%s%u.note", name, i);
        text[i * 7 % n] ^= (char)(1 + i % 32);
        write_text(other, text, i % 2 == 0 ? n : n * i / 100);
        text[i * 7 % n] ^= (char)(1 + i % 32);
    }
    compare(2);
    check_all(2, 0, "");
    remove_folder();
}

static void a_folder_that_may_not_be_used_is_named(void)
{
    begin(2);
    hosts[0].comparing.dir = "/proc/nothing";
    compare(1);
    CHECK(hosts[0].rc == -STAGER_UNAVAILABLE);
    CHECK(strstr(hosts[0].err.text, "cluster.compare_dir") != NULL);
    hosts[0].comparing.dir = folder;
    hosts[0].compared.n_hosts = STG_NOTE_MAX_HOSTS + 1;
    compare(1);
    check_all(1, -STAGER_INVALID_ARGUMENT, "serves at most 4096");
    remove_folder();
}

static void notes_that_are_a_day_old_are_removed(void)
{
    char path[256];
    const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    begin(2);
    write_text("train.0123.note", "old", 3);
    write_text("another.0123.note", "old", 3);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s.0123.note", folder, i ? "another" : "train");
        CHECK(utimensat(AT_FDCWD, path, old, 0) == 0);
    }
    compare(2);
    check_all(2, 0, "");
    CHECK(access(path, F_OK) == 0);
    snprintf(path, sizeof(path), "%s/train.0123.note", folder);
    CHECK(access(path, F_OK) < 0);
    remove_folder();
}

static const struct stg_test tests[] = {
    TEST(hosts_that_have_the_same_go_on),
    TEST(a_difference_is_named_by_all_hosts_alike),
    TEST(a_file_that_a_host_has_more_is_named),
    TEST(another_file_in_its_place_is_named),
    TEST(several_files_of_a_mark_are_counted),
    TEST(two_hosts_of_one_number_name_each_other),
    TEST(a_host_of_another_number_of_hosts_is_named),
    TEST(a_host_that_is_absent_is_named),
    TEST(jobs_of_other_names_do_not_meet),
    TEST(a_stop_ends_the_wait),
    TEST(notes_of_others_do_no_harm),
    TEST(a_folder_that_may_not_be_used_is_named),
    TEST(notes_that_are_a_day_old_are_removed),
};

TEST_MAIN(tests)
