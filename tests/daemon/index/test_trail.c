/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of a trail: the mark before a place is found, also after a crash; a file that
 * is cut, flipped or of another key is never believed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/index/layout.h"
#include "daemon/index/trail.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static const struct stg_trail_key key = {
    .steps = 1, .files = 2, .pass = 3, .rest = 4, .user = 5};

static void configure(uint64_t most_bytes)
{
    struct stg_err err = {0};
    stg_log_set_level(STG_LOG_ERROR);
    CHECK_OK(stg_index_configure(stg_test_path("index"), most_bytes, &err), err);
}

static const char *path_of_file(void)
{
    static char path[5000];
    char name[STG_FOLDER_NAME], text[sizeof(key)];
    memcpy(text, &key, sizeof(text));
    stg_folder_name(text, sizeof(text), name);
    snprintf(path, sizeof(path), "%s/%s", stg_test_path("index"), name);
    return path;
}

/* Mark k of an iteration: after 10 k records out of 30 k + 1. It has k % 4 numbers. */
static void add(struct stg_trail *trail, uint64_t iteration, uint64_t k)
{
    struct stg_mark parts[4];
    for (uint32_t i = 0; i <= k % 4; i++)
        parts[i] = (struct stg_mark){.iteration = iteration,
                                     .n_out = 10 * k,
                                     .n_in = 30 * k + 1,
                                     .value = i == 0 ? k * k : 30 * k - 4 + i,
                                     .part = i,
                                     .n_held = k % 4};
    stg_trail_add(trail, parts, k % 4 + 1);
}

static void check_mark(struct stg_trail *trail, const struct stg_mark *mark, uint64_t at)
{
    uint64_t held[4], k = mark->n_out / 10;
    CHECK_INT(mark->n_in, 30 * k + 1);
    CHECK_INT(mark->value, k * k);
    CHECK_INT(mark->n_held, k % 4);
    if (!stg_trail_held(trail, mark, at, held))
        return;
    for (uint32_t i = 1; i <= k % 4; i++)
        CHECK_INT(held[i - 1], 30 * k - 4 + i);
}

/* Marks 1 to n of iterations 0 and 2, if they are all there. */
static void check_all(struct stg_trail *trail, uint64_t n)
{
    struct stg_mark mark;
    uint64_t at;
    for (uint64_t n_out = 0; n_out <= 10 * n + 25; n_out++) {
        uint64_t want = n_out / 10 < n ? n_out / 10 : n;
        for (uint64_t iteration = 0; iteration < 4; iteration++) {
            bool found = stg_trail_find(trail, iteration, n_out, &mark, &at);
            CHECK(found == (want > 0 && iteration % 2 == 0));
            if (!found)
                continue;
            CHECK_INT(mark.n_out, 10 * want);
            CHECK_INT(mark.iteration, iteration);
            check_mark(trail, &mark, at);
        }
    }
}

static struct stg_trail *make(uint64_t n)
{
    struct stg_trail *trail = stg_trail_open(&key);
    CHECK(trail != NULL);
    for (uint64_t iteration = 0; iteration < 3; iteration += 2) {
        for (uint64_t k = 1; k <= n; k++)
            add(trail, iteration, k);
    }
    return trail;
}

static void the_last_mark_before_a_place_is_found(void)
{
    struct stat st;
    configure(1 << 20);
    struct stg_trail *trail = make(50);
    check_all(trail, 50);
    stg_trail_close(trail);
    trail = stg_trail_open(&key);
    check_all(trail, 50);
    stg_trail_close(trail);
    CHECK(stat(path_of_file(), &st) == 0);
    CHECK_INT(st.st_mode & 07777, 0600);
    stg_index_finish();
}

static void those_that_have_it_open_share_it(void)
{
    configure(1 << 20);
    struct stg_trail *trail = make(20), *other = stg_trail_open(&key);
    CHECK(trail == other);
    add(other, 2, 7); /* it has come as far already */
    add(other, 0, 21);
    check_all(trail, 20);
    stg_trail_close(trail);
    struct stg_trail_key key2 = key;
    key2.pass++;
    trail = stg_trail_open(&key2);
    struct stg_mark mark;
    uint64_t at;
    CHECK(trail != other && !stg_trail_find(trail, 0, 100, &mark, &at));
    stg_trail_close(trail);
    check_all(other, 20);
    stg_trail_close(other);
    stg_index_finish();
}

static void *add_many(void *trail)
{
    struct stg_mark mark;
    uint64_t at;
    for (uint64_t k = 1; k <= 2000; k++) {
        add(trail, 0, k);
        if (stg_trail_find(trail, 0, 10 * k, &mark, &at))
            check_mark(trail, &mark, at);
    }
    return NULL;
}

/* A private run and the run of the pipeline are in different threads. */
static void threads_share_it(void)
{
    pthread_t threads[3];
    configure(64 << 20);
    struct stg_trail *trail = stg_trail_open(&key);
    for (int i = 0; i < 3; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, add_many, trail), 0);
    for (int i = 0; i < 3; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    struct stg_mark mark;
    uint64_t at;
    CHECK(stg_trail_find(trail, 0, UINT64_MAX, &mark, &at));
    CHECK_INT(mark.n_out, 20000);
    stg_trail_close(trail);
    stg_index_finish();
}

static void the_end_of_an_iteration_is_a_mark(void)
{
    struct stg_mark mark = {.n_out = 505, .n_in = 1600, .n_held = STG_TRAIL_END};
    uint64_t at;
    configure(1 << 20);
    struct stg_trail *trail = stg_trail_open(&key);
    for (uint64_t k = 1; k <= 50; k++)
        add(trail, 0, k);
    stg_trail_add(trail, &mark, 1);
    add(trail, 1, 1);
    CHECK(stg_trail_find(trail, 0, UINT64_MAX, &mark, &at));
    CHECK(mark.n_held == STG_TRAIL_END && mark.n_out == 505);
    CHECK(stg_trail_find(trail, 0, 504, &mark, &at));
    CHECK_INT(mark.n_out, 500);
    stg_trail_close(trail);
    stg_index_finish();
}

/* A daemon that dies while it writes a mark leaves a part of it. */
static void a_half_written_mark_is_cut_off(void)
{
    struct stat st;
    configure(1 << 20);
    stg_trail_close(make(7)); /* the last mark has four parts */
    CHECK(stat(path_of_file(), &st) == 0);
    for (int cut = 1; cut < 4 * (int)sizeof(struct stg_mark); cut += 13) {
        CHECK(truncate(path_of_file(), st.st_size - cut) == 0);
        struct stg_trail *trail = stg_trail_open(&key);
        struct stg_mark mark;
        uint64_t at;
        CHECK(stg_trail_find(trail, 2, 1000, &mark, &at));
        CHECK_INT(mark.n_out, 60);
        add(trail, 2, 7);
        check_all(trail, 7);
        stg_trail_close(trail);
    }
    stg_index_finish();
}

/* What is found is right, or nothing is. */
static void a_flipped_byte_is_never_believed(void)
{
    configure(1 << 20);
    for (off_t at = 0; at < 64 + 20 * 48; at++) {
        unlink(path_of_file());
        stg_trail_close(make(8));
        int fd = open(path_of_file(), O_RDWR | O_CLOEXEC);
        char byte;
        CHECK_INT(pread(fd, &byte, 1, at), 1);
        byte = (char)(byte ^ 4);
        CHECK_INT(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        struct stg_trail *trail = stg_trail_open(&key);
        for (uint64_t n_out = 0; n_out < 90; n_out += 5) {
            struct stg_mark mark;
            uint64_t held;
            if (stg_trail_find(trail, 0, n_out, &mark, &held))
                check_mark(trail, &mark, held);
        }
        stg_trail_close(trail);
    }
    stg_index_finish();
}

static void a_trail_that_is_refuted_is_gone(void)
{
    struct stg_mark mark;
    uint64_t at;
    configure(1 << 20);
    struct stg_trail *trail = make(9);
    stg_trail_refute(trail);
    CHECK(!stg_trail_find(trail, 0, 50, &mark, &at));
    add(trail, 3, 1);
    CHECK(!stg_trail_find(trail, 3, 50, &mark, &at));
    stg_trail_close(trail);
    CHECK(access(path_of_file(), F_OK) < 0);
    stg_index_finish();
}

/* ---- limits ---- */

static int count_files(void)
{
    int n = 0;
    DIR *dir = opendir(stg_test_path("index"));
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void of_many_passes_only_the_last_have_a_trail(void)
{
    struct stg_mark mark;
    uint64_t at;
    configure(1 << 20);
    for (struct stg_trail_key one = key; one.pass < 100; one.pass++) {
        struct stg_trail *trail = stg_trail_open(&one);
        add(trail, 0, 4);
        stg_trail_close(trail);
        CHECK(count_files() <= 16);
    }
    CHECK_INT(count_files(), 16);
    struct stg_trail_key last = key;
    last.pass = 99;
    struct stg_trail *trail = stg_trail_open(&last);
    CHECK(stg_trail_find(trail, 0, 50, &mark, &at));
    stg_trail_close(trail);
    stg_index_finish();
}

static void one_trail_takes_an_eighth_of_the_folder(void)
{
    struct stat st;
    struct stg_mark mark;
    uint64_t at;
    configure(4 << 20);
    struct stg_trail *trail = stg_trail_open(&key);
    for (uint64_t k = 1; k < 20000; k++)
        add(trail, 0, k);
    CHECK(stat(path_of_file(), &st) == 0);
    CHECK(st.st_size <= 512 << 10 && st.st_size > 400 << 10);
    CHECK(stg_trail_find(trail, 0, UINT64_MAX, &mark, &at)); /* what is there is used */
    check_mark(trail, &mark, at);
    CHECK(mark.n_out > 30000 && mark.n_out < 200000);
    stg_trail_close(trail);
    stg_index_finish();
}

/* The folder removes a file to make room for another while it is open. */
static void the_marks_go_on_in_another_file_when_theirs_is_removed(void)
{
    struct stg_mark mark;
    uint64_t at;
    configure(64 << 20);
    struct stg_trail *trail = make(50);
    CHECK(unlink(path_of_file()) == 0);
    for (uint64_t k = 51; k < 3000; k++)
        add(trail, 2, k);
    stg_trail_close(trail);
    CHECK(access(path_of_file(), F_OK) == 0);
    trail = stg_trail_open(&key);
    CHECK(stg_trail_find(trail, 2, 29995, &mark, &at));
    CHECK_INT(mark.n_out, 29990);
    check_mark(trail, &mark, at);
    CHECK(!stg_trail_find(trail, 2, 700, &mark, &at));
    stg_trail_close(trail);
    stg_index_finish();
}

/* ---- a disk that takes nothing ---- */

static void a_full_disk_costs_what_comes_after(void)
{
    struct rlimit limit;
    configure(1 << 20);
    struct stg_trail *trail = make(50); /* about 12 KiB */
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && getrlimit(RLIMIT_FSIZE, &limit) == 0);
    const struct rlimit full = {16384 + 7, limit.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &full) == 0);
    for (uint64_t k = 51; k < 500; k++)
        add(trail, 2, k);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    struct stg_mark mark;
    uint64_t at, n;
    for (int i = 0; i < 2; i++) { /* in this process, and after its end */
        CHECK(stg_trail_find(trail, 2, UINT64_MAX, &mark, &at));
        n = mark.n_out / 10;
        CHECK(n > 50 && n < 200);
        check_mark(trail, &mark, at);
        stg_trail_close(trail);
        trail = stg_trail_open(&key);
    }
    add(trail, 2, n + 1);
    CHECK(stg_trail_find(trail, 2, UINT64_MAX, &mark, &at));
    CHECK_INT(mark.n_out, 10 * n + 10);
    stg_trail_close(trail);
    stg_index_finish();
}

static void marks_that_cannot_be_written_are_read(void)
{
    bool was_root = geteuid() == 0;
    configure(1 << 20);
    stg_trail_close(make(50));
    CHECK(chmod(path_of_file(), 0444) == 0 && chmod(stg_test_path("index"), 0555) == 0);
    if (was_root)
        CHECK(chmod(stg_test_dir(), 0755) == 0 && seteuid(65534) == 0);
    struct stg_trail *trail = stg_trail_open(&key);
    check_all(trail, 50);
    add(trail, 2, 51);
    check_all(trail, 50);
    stg_trail_close(trail);
    struct stg_trail_key another = key;
    another.steps++;
    trail = stg_trail_open(&another); /* no file can be made */
    add(trail, 0, 1);
    add(trail, 0, 2);
    struct stg_mark mark;
    uint64_t at;
    CHECK(!stg_trail_find(trail, 0, 50, &mark, &at));
    stg_trail_close(trail);
    if (was_root)
        CHECK_INT(seteuid(0), 0);
    CHECK(chmod(stg_test_path("index"), 0755) == 0);
    stg_index_finish();
}

static void a_folder_that_is_gone_costs_nothing(void)
{
    struct stg_mark mark;
    uint64_t at;
    configure(1 << 20);
    CHECK(rmdir(stg_test_path("index")) == 0);
    struct stg_trail *trail = make(5);
    CHECK(!stg_trail_find(trail, 0, 50, &mark, &at));
    stg_trail_close(trail);
    stg_index_finish();
}

/* A crash of the machine: the size is on disk, and the data is not. */
static void zeros_at_the_end_are_cut_off_and_too_many_delete_the_file(void)
{
    struct stat st;
    for (int i = 0; i < 2; i++) {
        configure(1 << 20);
        stg_trail_close(make(50));
        CHECK(stat(path_of_file(), &st) == 0);
        off_t more = i == 0 ? 100 * 48 + 17 : (off_t)1 << 40;
        CHECK(truncate(path_of_file(), st.st_size + more) == 0);
        struct stg_trail *trail = stg_trail_open(&key);
        if (i == 0)
            check_all(trail, 50);
        stg_trail_close(trail);
        CHECK((access(path_of_file(), F_OK) == 0) == (i == 0));
        stg_index_finish();
    }
}

static void without_a_folder_or_room_there_are_no_marks(void)
{
    struct stg_mark mark;
    uint64_t at;
    CHECK(stg_trail_open(&key) == NULL);
    configure(100000); /* the room that a trail asks for is more than half of it */
    struct stg_trail *trail = make(5);
    CHECK(!stg_trail_find(trail, 0, 50, &mark, &at));
    stg_trail_close(trail);
    stg_index_finish();
}

static const struct stg_test tests[] = {
    TEST(the_last_mark_before_a_place_is_found),
    TEST(those_that_have_it_open_share_it),
    TEST(threads_share_it),
    TEST(the_end_of_an_iteration_is_a_mark),
    TEST(a_half_written_mark_is_cut_off),
    TEST(a_flipped_byte_is_never_believed),
    TEST(a_trail_that_is_refuted_is_gone),
    TEST(of_many_passes_only_the_last_have_a_trail),
    TEST(one_trail_takes_an_eighth_of_the_folder),
    TEST(the_marks_go_on_in_another_file_when_theirs_is_removed),
    TEST(a_full_disk_costs_what_comes_after),
    TEST(marks_that_cannot_be_written_are_read),
    TEST(a_folder_that_is_gone_costs_nothing),
    TEST(zeros_at_the_end_are_cut_off_and_too_many_delete_the_file),
    TEST(without_a_folder_or_room_there_are_no_marks),
};

TEST_MAIN(tests)
