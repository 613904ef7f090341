/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of check and apply about files on which the first batch would fail.
 */
#include "daemon/pipeline/probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

#define SECOND 1000000000u

static char folder[64];

static void put(const char *name, const void *bytes, size_t n, mode_t mode)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, bytes, n), (ssize_t)n);
    CHECK_INT(fchmod(fd, mode), 0);
    close(fd);
}

static void begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/stg-probe-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    CHECK_INT(chmod(folder, 0755), 0);
}

static void end(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    CHECK_INT(system(command), 0);
}

/* Returns the problems of a pipeline of `pattern` in the folder and those steps, one for
 * each line. */
static const char *problems(uid_t uid, const char *pattern, const char *steps)
{
    static char all[4096];
    char text[512];
    struct stg_bump bump;
    const char *lines[8];
    stg_bump_init(&bump, 0);
    int bytes =
        snprintf(text, sizeof(text), "dataset:\n  - files: {pattern: \"%s/%s\"}\n%s",
                 folder, pattern, steps);
    size_t n = stg_probe(&(struct stg_probe_config){.text = text,
                                                    .text_bytes = (size_t)bytes,
                                                    .uid = uid,
                                                    .gid = uid,
                                                    .wait_ns = 60ull * SECOND},
                         &bump, lines, 8);
    all[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        strcat(all, lines[i]);
        strcat(all, "\n");
    }
    stg_bump_finish(&bump);
    return all;
}

#define LINES "  - text_line\n  - batch: {batch_size: 2}\n"

static void good_files_are_no_problem(void)
{
    begin();
    put("a [1].txt", "1\n2\n", 4, 0644);
    put("b.txt", "", 0, 0644);
    CHECK_STR(problems(getuid(), "*.txt", LINES), "");
    CHECK_STR(problems(getuid(), "*", "  - shuffle: {buffer_size: 9}\n" LINES), "");
    CHECK_STR(problems(getuid(), "*",
                       "  - interleave: {cycle_length: 2, reader: {text_line: {}}}\n"),
              "");
    end();
}

static void a_pattern_that_matches_nothing_is_a_problem(void)
{
    begin();
    CHECK_CONTAINS(problems(getuid(), "*.csv", LINES),
                   "problem: step files (line 2): no files matched ");
    end();
}

static void a_file_that_the_applier_may_not_read_names_the_user_and_the_command(void)
{
    char part[256];
    begin();
    put("secret.txt", "1\n", 2, 0600);
    if (getuid() != 0)
        SKIP("only root can apply as another user");
    snprintf(part, sizeof(part),
             "user 54321 may not read %s/secret.txt; its owner can grant that: `setfacl "
             "-m u:54321:r %s/secret.txt`",
             folder, folder);
    CHECK_CONTAINS(problems(54321, "*.txt", LINES), part);
    CHECK_INT(chmod(folder, 0700), 0);
    snprintf(part, sizeof(part), "`setfacl -m u:54321:x %s`", folder);
    CHECK_CONTAINS(problems(54321, "secret.txt", LINES), part);
    end();
}

static void contents_that_the_reader_refuses_are_a_problem(void)
{
    begin();
    put("empty", "", 0, 0644);
    CHECK_CONTAINS(problems(getuid(), "empty", LINES), "has no records");
    CHECK_CONTAINS(problems(getuid(), "empty", "  - csv: {header: true}\n"),
                   "the header is missing: the file is empty");
    put("plain", "1\n2\n", 4, 0644);
    CHECK_CONTAINS(
        problems(getuid(), "plain", "  - text_line: {compression_type: gzip}\n"),
        "plain: ");
    CHECK_CONTAINS(problems(getuid(), "plain", "  - tfrecord\n"), "plain: ");
    end();
}

static void *nothing(void *arg)
{
    return arg;
}

/* Returns for how many threads of this process is_counted returns true. */
static unsigned count_threads(bool (*is_counted)(long id))
{
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    unsigned n = 0;
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        n += entry->d_name[0] != '.' && is_counted(strtol(entry->d_name, NULL, 10));
    closedir(tasks);
    return n;
}

static long known[64];
static unsigned n_known;

static bool note(long id)
{
    CHECK(n_known < sizeof(known) / sizeof(known[0]));
    known[n_known++] = id;
    return true;
}

static bool is_new(long id)
{
    for (unsigned i = 0; i < n_known; i++) {
        if (known[i] == id)
            return false;
    }
    return true;
}

/* Notes the threads of a sanitizer or an emulator. The first pthread_create starts that
 * of the sanitizer. */
static void note_threads(void)
{
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, nothing, NULL), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    count_threads(note);
}

static void a_file_system_that_does_not_answer_costs_a_moment(void)
{
    struct stg_bump bump;
    const char *lines[8] = {""};
    static const char text[] = "dataset:\n  - files: {pattern: /}\n";
    note_threads();
    stg_bump_init(&bump, 0);
    size_t n = stg_probe(
        &(struct stg_probe_config){.text = text, .text_bytes = sizeof(text) - 1}, &bump,
        lines, 8);
    CHECK(n <= 1);
    if (n == 1)
        CHECK_CONTAINS(lines[0], "problem: ");
    stg_bump_finish(&bump);
    while (count_threads(is_new) > 0) /* the thread of the probe ends by itself */
        sched_yield();
}

static void a_window_that_is_small_beside_a_file_is_to_be_global(void)
{
    begin();
    put("a", "abcd\nabcd\nabcd\nabcd\nabcd\nabcd\nabcd\nabcd\nabcd\nabcd\n", 50, 0644);
    char text[200];
    static const char *const silent[] = {
        "shuffle: {buffer_size: 3}", "shuffle: {global: true}",
        "batch: {batch_size: 2}\n  - shuffle: {buffer_size: 1}"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(text, sizeof(text), "  - text_line\n  - %s\n", silent[i]);
        CHECK_STR(problems(getuid(), "a", text), "");
    }
    char many[50000];
    memset(many, 'x', sizeof(many));
    for (size_t i = 4; i < sizeof(many); i += 5)
        many[i] = '\n';
    put("a", many, sizeof(many), 0644);
    const char *got =
        problems(getuid(), "a", "  - text_line\n  - shuffle: {buffer_size: 500}\n");
    CHECK_CONTAINS(got, "step shuffle (line 4): the buffer holds 500 records");
    CHECK_CONTAINS(got, "/a alone has about 10000: ");
    CHECK(strstr(got, "problem") == NULL);
    end();
}

static const struct stg_test tests[] = {
    TEST(good_files_are_no_problem),
    TEST(a_pattern_that_matches_nothing_is_a_problem),
    TEST(a_file_that_the_applier_may_not_read_names_the_user_and_the_command),
    TEST(contents_that_the_reader_refuses_are_a_problem),
    TEST(a_window_that_is_small_beside_a_file_is_to_be_global),
    TEST(a_file_system_that_does_not_answer_costs_a_moment),
};

TEST_MAIN(tests)
