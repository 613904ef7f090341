/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are mapped while they are read: the bytes are those that pread has, also
 * where another process truncates the file, extends it or puts another one in its place.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/storage/local/guard.h"
#include "daemon/storage/storage.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

#define MIB ((uint64_t)1 << 20)
#define FILE_BYTES (4 * MIB + 1000)
#define READ (64u << 10)

static const struct stg_file_user in_places = {.uid = 0, .in_places = true};
static const struct stg_file_user in_order = {.uid = 0};
static char buffer[4 * READ];

/* ThreadSanitizer keeps signals back, and its memcpy cannot be left by a jump. */
static void skip_without_signals(void)
{
#if defined(__SANITIZE_THREAD__)
    SKIP("ThreadSanitizer handles signals");
#endif
}

static char *bytes_of(uint64_t seed)
{
    char *ret = malloc(FILE_BYTES);
    for (uint64_t i = 0; i < FILE_BYTES; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        ret[i] = (char)(seed >> 56 | 1); /* no zeros */
    }
    return ret;
}

static struct stg_source *open_source(const char *path, const struct stg_file_user *user)
{
    struct stg_source *source;
    struct stg_err err;
    CHECK_OK(stg_storage_file.open(path, user, &source, &err), err);
    return source;
}

static void close_source(struct stg_source *source)
{
    source->storage->close(source);
}

static int64_t read_at(struct stg_source *source, uint64_t offset, uint64_t bytes)
{
    struct stg_err err;
    memset(buffer, 0, sizeof(buffer));
    int64_t n = stg_source_read(source, offset, buffer, bytes, &err);
    CHECK_OK((int)(n < 0 ? n : 0), err);
    return n;
}

/* How many ranges of files of this name are mapped. */
static int count_mapped(const char *name)
{
    char line[1024];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL)
        n += strstr(line, name) != NULL;
    fclose(maps);
    return n;
}

/* Returns n where files of the tests are mapped: not if they lie in memory. */
static int if_mapped(int n)
{
    struct statfs fs;
    CHECK_INT(statfs(stg_test_dir(), &fs), 0);
    return fs.f_type == TMPFS_MAGIC ? 0 : n;
}

/* What another process does to the file. */
static void elsewhere(void (*change)(const char *path), const char *path)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        change(path);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static void truncate_or_die(const char *path, uint64_t bytes)
{
    if (truncate(path, (off_t)bytes) < 0)
        _exit(1);
}

/* ---- bytes ---- */

static void check_all_reads(const struct stg_file_user *user, int want_mapped)
{
    static const uint64_t sizes[] = {1, 4096, 16384, 16385, READ, 3 * READ + 17};
    char *want = bytes_of(1);
    struct stg_source *source = open_source(stg_test_file("a", want, FILE_BYTES), user);
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t offset = i * 7919 * 4093 % (FILE_BYTES + 8192), bytes = sizes[i % 6];
        if (i % 5 == 0)
            offset = FILE_BYTES - i * 64; /* up to the end, and behind it */
        uint64_t left = offset < FILE_BYTES ? FILE_BYTES - offset : 0;
        uint64_t n = bytes < left ? bytes : left;
        CHECK_INT(read_at(source, offset, bytes), n);
        CHECK(memcmp(buffer, want + offset, n) == 0);
    }
    CHECK_INT(count_mapped(stg_test_path("a")), if_mapped(want_mapped));
    close_source(source);
    CHECK_INT(count_mapped(stg_test_path("a")), 0);
    free(want);
}

static void a_mapped_file_has_the_bytes_that_it_has(void)
{
    check_all_reads(&in_places, 1);
}

static void a_file_that_is_read_in_order_is_not_mapped(void)
{
    check_all_reads(&in_order, 0);
}

static void a_file_in_memory_is_not_mapped(void)
{
    stg_test_dir_in_memory();
    check_all_reads(&in_places, 1);
}

static void a_small_file_is_not_mapped(void)
{
    char *want = bytes_of(1);
    struct stg_source *source =
        open_source(stg_test_file("small", want, MIB - 1), &in_places);
    CHECK_INT(read_at(source, 0, READ), READ);
    CHECK_INT(count_mapped(stg_test_path("small")), 0);
    close_source(source);
    free(want);
}

static void a_source_that_bypasses_the_page_cache_is_not_mapped(void)
{
    char *want = bytes_of(1);
    struct stg_source *source =
        open_source(stg_test_file("a", want, FILE_BYTES), &in_places);
    CHECK_INT(read_at(source, 0, READ), READ);
    CHECK_INT(count_mapped(stg_test_path("a")), if_mapped(1));
    stg_storage_file.direct(source, NULL);
    CHECK_INT(count_mapped(stg_test_path("a")), 0);
    close_source(source);
    free(want);
}

/* ---- files that change ---- */

static void shrink(const char *path)
{
    truncate_or_die(path, 2 * MIB + 100);
}

/* Truncated after it was mapped, before the copy. */
static void check_truncated(void)
{
    char *want = bytes_of(2);
    const char *path = stg_test_file("a", want, FILE_BYTES);
    struct stg_source *source = open_source(path, &in_places);
    CHECK_INT(read_at(source, 0, READ), READ);
    CHECK_INT(count_mapped(path), if_mapped(1));
    elsewhere(shrink, path);
    CHECK_INT(read_at(source, 2 * MIB - READ, READ), READ); /* all is there */
    CHECK(memcmp(buffer, want + 2 * MIB - READ, READ) == 0);
    CHECK_INT(count_mapped(path), if_mapped(1));
    /* Within the page that the file ends in, no signal is sent: its rest is zeros. */
    CHECK_INT(read_at(source, 2 * MIB + 200 - READ, READ), READ - 100);
    CHECK(memcmp(buffer, want + 2 * MIB + 200 - READ, READ - 100) == 0);
    CHECK_INT(count_mapped(path), 0);
    CHECK_INT(read_at(source, 3 * MIB, READ), 0);
    close_source(source);
    /* And behind it, one is. */
    path = stg_test_file("a", want, FILE_BYTES);
    source = open_source(path, &in_places);
    CHECK_INT(read_at(source, 0, READ), READ);
    elsewhere(shrink, path);
    CHECK_INT(read_at(source, 2 * MIB - 100, 2 * READ), 200);
    CHECK(memcmp(buffer, want + 2 * MIB - 100, 200) == 0);
    CHECK_INT(count_mapped(path), 0);
    close_source(source);
    free(want);
}

static void a_file_that_was_truncated_is_read_up_to_its_new_end(void)
{
    skip_without_signals();
    check_truncated();
}

static void a_file_in_memory_that_was_truncated_is_read_up_to_its_new_end(void)
{
    stg_test_dir_in_memory();
    check_truncated();
}

static void shrink_and_grow(const char *path)
{
    truncate_or_die(path, MIB + 100);
    truncate_or_die(path, 3 * MIB);
}

static void a_file_that_shrank_and_grew_has_the_zeros_that_it_has(void)
{
    char *want = bytes_of(3);
    const char *path = stg_test_file("a", want, FILE_BYTES);
    struct stg_source *source = open_source(path, &in_places);
    CHECK_INT(read_at(source, 0, READ), READ);
    elsewhere(shrink_and_grow, path);
    memset(want + MIB + 100, 0, FILE_BYTES - MIB - 100);
    CHECK_INT(read_at(source, MIB, READ), READ);
    CHECK(memcmp(buffer, want + MIB, READ) == 0);
    CHECK_INT(read_at(source, 3 * MIB - READ / 2, READ), READ / 2);
    close_source(source);
    free(want);
}

static void put_another(const char *path)
{
    char other[512];
    snprintf(other, sizeof(other), "%s.new", path);
    int fd = open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || rename(other, path) < 0)
        _exit(1);
}

static void a_file_that_is_replaced_stays_what_it_was(void)
{
    char *want = bytes_of(4);
    const char *path = stg_test_file("a", want, FILE_BYTES);
    struct stg_source *source = open_source(path, &in_places);
    CHECK_INT(read_at(source, 0, READ), READ);
    elsewhere(put_another, path);
    CHECK_INT(read_at(source, 3 * MIB, READ), READ);
    CHECK(memcmp(buffer, want + 3 * MIB, READ) == 0);
    close_source(source);
    free(want);
}

/* ---- windows ---- */

static void windows_follow_the_reads_and_are_given_up_where_they_do_not_pay(void)
{
    const char *path = stg_test_file("large", "", 0);
    CHECK_INT(truncate(path, (off_t)(5000 * MIB)), 0);
    struct stg_source *source = open_source(path, &in_places);
    for (uint64_t i = 0; i < 300; i++) /* two windows of 1 GiB, and some of a third */
        CHECK_INT(read_at(source, i * 8 * MIB, READ), READ);
    CHECK_INT(count_mapped(path), if_mapped(1));
    for (uint64_t i = 0; i < 12; i++) /* back and forth */
        CHECK_INT(read_at(source, i % 2 * 3000 * MIB, READ), READ);
    CHECK_INT(count_mapped(path), 0);
    close_source(source);
}

static void many_files_are_read_and_so_many_are_mapped(void)
{
    struct stg_source *sources[100];
    char *want = bytes_of(5);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "many-%d", i);
        sources[i] = open_source(stg_test_file(name, want, 2 * MIB), &in_places);
        CHECK_INT(read_at(sources[i], MIB, READ), READ);
        CHECK(memcmp(buffer, want + MIB, READ) == 0);
    }
    CHECK_INT(count_mapped("/many-"), if_mapped(64));
    for (int i = 0; i < 100; i++)
        close_source(sources[i]);
    CHECK_INT(count_mapped("/many-"), 0);
    sources[0] = open_source(stg_test_path("many-0"), &in_places);
    CHECK_INT(read_at(sources[0], MIB, READ), READ);
    CHECK_INT(count_mapped("/many-"), if_mapped(1));
    close_source(sources[0]);
    free(want);
}

/* ---- the guard ---- */

static void a_copy_that_meets_the_end_of_the_file_fails(void)
{
    skip_without_signals();
    char *want = bytes_of(6);
    const char *path = stg_test_file("a", want, 3 * READ);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char *base = mmap(NULL, 4 * READ, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(base != MAP_FAILED);
    CHECK(stg_guard_copy(buffer, base, READ, base + READ));
    CHECK(!stg_guard_copy(buffer, base + READ, 3 * READ, base)); /* in the middle */
    CHECK(!stg_guard_copy(buffer, base, READ, base + 3 * READ));
    CHECK(stg_guard_copy(buffer, base + 2 * READ, READ, base));
    CHECK(memcmp(buffer, want + 2 * READ, READ) == 0);
    munmap(base, 4 * READ);
    close(fd);
    free(want);
}

struct race {
    struct stg_source *source;
    _Atomic bool is_over;
    char *want;
};

static void *read_on(void *owner)
{
    struct race *race = owner;
    char *to = malloc(READ);
    struct stg_err err;
    for (uint64_t i = 0; !atomic_load(&race->is_over); i++) {
        uint64_t offset = i * 40961 % (FILE_BYTES - READ);
        int64_t n = race->source->storage->read(race->source, offset, to, READ, &err);
        CHECK(n >= 0);
        if (offset + READ < MIB) /* this part is always there */
            CHECK(n == READ && memcmp(to, race->want + offset, READ) == 0);
    }
    free(to);
    return NULL;
}

/* Threads read while the file loses its end again and again. */
static void threads_read_while_the_file_is_truncated(void)
{
    struct race race = {.want = bytes_of(7)};
    pthread_t threads[3];
    for (int round = 0; round < 20; round++) {
        const char *path = stg_test_file("a", race.want, FILE_BYTES);
        race.source = open_source(path, &in_places);
        atomic_store(&race.is_over, false);
        for (int i = 0; i < 3; i++)
            CHECK(pthread_create(&threads[i], NULL, read_on, &race) == 0);
        for (uint64_t bytes = FILE_BYTES; bytes > MIB; bytes -= MIB / 4)
            CHECK_INT(truncate(path, (off_t)bytes), 0);
        atomic_store(&race.is_over, true);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        close_source(race.source);
    }
    free(race.want);
}

/* Returns the signal that ends a process which does this after a guarded copy. */
static int signal_of(void (*act)(char *mapped))
{
    int status, fd = open(stg_test_file("a", "", 0), O_RDWR | O_CLOEXEC);
    CHECK_INT(ftruncate(fd, 2 * READ), 0);
    char *base = mmap(NULL, 4 * READ, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(base != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) {
        struct sigaction by_default = {.sa_handler = SIG_DFL}; /* not a sanitizer's */
        sigaction(SIGBUS, &by_default, NULL);
        CHECK(!stg_guard_copy(buffer, base, READ, base + 3 * READ));
        act(base);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    munmap(base, 4 * READ);
    close(fd);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void read_behind(char *mapped)
{
    (void)*(volatile char *)(mapped + 3 * READ);
}

static void be_sent_one(char *mapped)
{
    (void)mapped;
    kill(getpid(), SIGBUS);
}

static void any_other_sigbus_ends_the_process(void)
{
    skip_without_signals();
    CHECK_INT(signal_of(read_behind), SIGBUS);
    CHECK_INT(signal_of(be_sent_one), SIGBUS);
}

/* ---- a dataset ---- */

static char pipeline[512];

static const char *make_table(const char *path)
{
    char command[1024];
    snprintf(command, sizeof(command),
             "python3 '%s' '%s' --columns 2 --groups 4 --rows 60000 --page-rows 20000",
             getenv("STG_MAKE_PARQUET"), path);
    CHECK_INT(system(command), 0);
    snprintf(
        pipeline, sizeof(pipeline),
        "dataset:\n- files: {pattern: \"%s\"}\n"
        "- parquet: {columns: {c0: int64, c1: int64}}\n- batch: {batch_size: 1000}\n",
        path);
    return pipeline;
}

static void lose_a_part(const char *path)
{
    truncate_or_die(path, 2 * MIB);
}

/* Row r of column c is r * 1000 + c. */
static void check_rows(const struct stg_block *block)
{
    const int64_t *c0 = block->tensors[0].data, *c1 = block->tensors[1].data;
    for (int64_t i = 0; i < block->tensors[0].shape[0]; i++)
        CHECK(c0[i] % 1000 == 0 && c1[i] == c0[i] + 1);
}

static void rows_of_a_table_that_is_truncated_during_a_pass_are_errors(void)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_block *block;
    const char *path = stg_test_path("t.parquet");
    int64_t n = 0, n_good = 0;
    struct stg_dataset *dataset = stg_test_open_text(make_table(path), &env, &spec);
    for (int i = 0; i < 3; i++) {
        block = stg_test_next(dataset);
        CHECK_INT(block->error.code, 0);
        check_rows(block);
        stg_block_unref(block);
    }
    CHECK_INT(count_mapped(path), if_mapped(1));
    elsewhere(lose_a_part, path);
    for (n = n_good = 3000; (block = stg_test_next(dataset)) != NULL; n++) {
        if (block->error.code == 0) {
            check_rows(block);
            n += block->n_rows - 1;
            n_good += block->n_rows;
        } else {
            CHECK_INT(block->error.code, -STAGER_DATA_LOSS);
            CHECK_CONTAINS(block->error.text, path);
        }
        stg_block_unref(block);
    }
    CHECK_INT(n, 240000);
    CHECK_INT(n_good, 120000); /* two groups of 1.92 MB are there */
    CHECK_INT(count_mapped(path), 0);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static const struct stg_test tests[] = {
    TEST(a_mapped_file_has_the_bytes_that_it_has),
    TEST(a_file_that_is_read_in_order_is_not_mapped),
    TEST(a_file_in_memory_is_not_mapped),
    TEST(a_small_file_is_not_mapped),
    TEST(a_source_that_bypasses_the_page_cache_is_not_mapped),
    TEST(a_file_that_was_truncated_is_read_up_to_its_new_end),
    TEST(a_file_in_memory_that_was_truncated_is_read_up_to_its_new_end),
    TEST(a_file_that_shrank_and_grew_has_the_zeros_that_it_has),
    TEST(a_file_that_is_replaced_stays_what_it_was),
    TEST(windows_follow_the_reads_and_are_given_up_where_they_do_not_pay),
    TEST(many_files_are_read_and_so_many_are_mapped),
    TEST(a_copy_that_meets_the_end_of_the_file_fails),
    TEST_SLOW(threads_read_while_the_file_is_truncated, 60),
    TEST(any_other_sigbus_ends_the_process),
    TEST(rows_of_a_table_that_is_truncated_during_a_pass_are_errors),
};
TEST_MAIN(tests)
