/* SPDX-License-Identifier: Apache-2.0
 *
 * Commits on disk: what was answered is found again, a file that is cut or flipped gives
 * no wrong state, the file stays bounded, and a full disk is an error of the commit
 * alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/host/share.h"
#include "daemon/journal/file.h"
#include "daemon/journal/journal.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/failalloc.h"

/* ---- fsync ---- */

static struct {
    _Atomic int n_folders;          /* synced, by all workers */
    int fails_files, fails_folders; /* with this errno */
    bool skips;                     /* the disk */
} syncs;

/* In place of libc's. */
int fsync(int fd)
{
    struct stat st;
    CHECK(fstat(fd, &st) == 0);
    bool is_folder = S_ISDIR(st.st_mode);
    syncs.n_folders += is_folder;
    errno = is_folder ? syncs.fails_folders : syncs.fails_files;
    if (errno != 0)
        return -1;
    return syncs.skips ? 0 : (int)syscall(SYS_fsync, fd);
}

static struct stg_state state_of(uint64_t k)
{
    return (struct stg_state){.steps = "range:00000001,graph:00000002,features:00000003",
                              .order = STG_ORDER_VERSION,
                              .pass = k / 100,
                              .place = {.items = k, .elements = 16 * k, .epoch = k},
                              .data = {.n_files = 1, .bytes = 4711, .sum = k * k}};
}

static struct stg_commit *commit_of(uint64_t k, uint64_t attempt)
{
    struct stg_commit head = {.attempt = attempt, .time_ns = 1000 + k};
    struct stg_state state = state_of(k);
    snprintf(head.tag, sizeof(head.tag), "step-%u", (unsigned)k);
    snprintf(head.client, sizeof(head.client), "train er%%\n-%u", (unsigned)k);
    struct stg_commit *commit = stg_commit_create(&head, &state);
    CHECK(commit != NULL);
    return commit;
}

static void put(struct stg_commits *commits, const char *lane, uint64_t k,
                uint64_t attempt)
{
    stg_lane_put(commits, stg_commits_lane(commits, lane), commit_of(k, attempt));
}

/* ---- the table ---- */

static void only_the_last_sixteen_tags_are_kept(void)
{
    struct stg_commits commits = {0};
    for (uint64_t k = 0; k < 17; k++)
        put(&commits, "", k, 1);
    const struct stg_lane *lane = stg_commits_find(&commits, "");
    CHECK_INT(lane->n, 16);
    CHECK(stg_lane_find(lane, "step-0") == NULL);
    CHECK_STR(lane->first->tag, "step-1");
    CHECK_STR(lane->last->tag, "step-16");
    put(&commits, "", 5, 2); /* again: it is the last one now */
    CHECK_INT(lane->n, 16);
    CHECK_STR(lane->last->tag, "step-5");
    CHECK_INT(lane->attempt, 2);
    stg_commits_finish(&commits);
}

static void begin_lanes(struct stg_commits *commits, int n)
{
    char name[32];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "lane-%d", i);
        stg_lane_begin(commits, stg_commits_lane(commits, name));
    }
}

static void commit_lanes(struct stg_commits *commits, int n)
{
    char name[32];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "lane-%d", i);
        put(commits, name, 1, 1);
    }
}

static void commits_of_too_many_clients_go_and_their_attempts_stay(void)
{
    struct stg_commits commits = {0};
    put(&commits, "", 1, 1);
    put(&commits, "first", 1, 1);
    uint64_t attempt = stg_lane_begin(&commits, stg_commits_find(&commits, "first"));
    put(&commits, "second", 1, 1);
    commit_lanes(&commits, STG_COMMITS_LANES - 2);
    CHECK_INT(stg_commits_find(&commits, "first")->n, 0);
    CHECK_INT(stg_commits_find(&commits, "first")->attempt, attempt);
    CHECK_INT(stg_commits_find(&commits, "second")->n, 1);
    CHECK_INT(stg_commits_find(&commits, "")->n, 1);
    CHECK_INT(commits.n_used, STG_COMMITS_LANES);
    put(&commits, "second", 1, 1); /* the same tag */
    CHECK_INT(commits.n_used, STG_COMMITS_LANES);
    stg_commits_finish(&commits);
}

static void an_attempt_has_no_number_of_a_lane_that_was_forgotten(void)
{
    struct stg_commits commits = {0};
    stg_lane_begin(&commits, stg_commits_lane(&commits, ""));
    put(&commits, "kept", 1, 1);
    uint64_t old = stg_lane_begin(&commits, stg_commits_lane(&commits, "a"));
    begin_lanes(&commits, STG_COMMITS_NAMES - 3);
    CHECK(stg_commits_find(&commits, "a") != NULL);
    stg_lane_begin(&commits, stg_commits_lane(&commits, "one more"));
    CHECK(stg_commits_find(&commits, "a") == NULL);
    CHECK(stg_commits_find(&commits, "kept") != NULL);
    CHECK(stg_commits_find(&commits, "") != NULL);
    CHECK_INT(commits.n_lanes, STG_COMMITS_NAMES);
    CHECK(stg_lane_begin(&commits, stg_commits_lane(&commits, "a")) > old);
    stg_commits_finish(&commits);
}

static void a_tag_is_printable_ascii_without_a_space(void)
{
    struct stg_err err = {0};
    char tag[STG_TAG_MAX_BYTES + 2];
    memset(tag, 'x', sizeof(tag));
    tag[STG_TAG_MAX_BYTES] = '\0';
    CHECK_OK(stg_commits_check_tag(tag, &err), err);
    CHECK_OK(stg_commits_check_tag("/ckpt/epoch=3.pt", &err), err);
    tag[STG_TAG_MAX_BYTES] = 'x';
    tag[STG_TAG_MAX_BYTES + 1] = '\0';
    const char *const bad[] = {"", " ", "a b", "a\n", "\xc3\xa4", tag};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_INT(stg_commits_check_tag(bad[i], &err), -STAGER_INVALID_ARGUMENT);
}

/* ---- the text ---- */

#define N_RECORDS 5

/* Records of two lanes, and where each ends. */
static size_t write_text(char *text, size_t ends[N_RECORDS])
{
    size_t n = 0;
    for (uint64_t k = 0; k < N_RECORDS; k++) {
        struct stg_commit *commit = commit_of(k, k / 2);
        if (k == 3)
            n += stg_commits_write_attempt("a b", 7, text + n);
        else
            n += stg_commits_write_commit(k == 2 ? "a b" : "", commit, text + n);
        ends[k] = n;
        free(commit);
    }
    return n;
}

static char *after(const struct stg_commits *commits)
{
    size_t n;
    char *text = stg_commits_write(commits, &n);
    CHECK(text != NULL);
    text[n] = '\0';
    return text;
}

static char *read_as(const char *text, size_t n, struct stg_commits_damage *damage)
{
    struct stg_commits commits = {0};
    struct stg_err err = {0};
    CHECK_OK(stg_commits_read(&commits, text, n, damage, &err), err);
    char *ret = after(&commits);
    stg_commits_finish(&commits);
    return ret;
}

static void what_is_written_is_read(void)
{
    char text[N_RECORDS * STG_COMMITS_LINE_BYTES];
    size_t ends[N_RECORDS], n = write_text(text, ends);
    struct stg_commits commits = {0};
    struct stg_commits_damage damage;
    struct stg_err err = {0};
    CHECK_OK(stg_commits_read(&commits, text, n, &damage, &err), err);
    CHECK_INT(damage.n_good, N_RECORDS);
    CHECK_INT(damage.n_bad, 0);
    CHECK_INT(damage.good_bytes, n);
    const struct stg_lane *lane = stg_commits_find(&commits, "a b");
    CHECK_INT(lane->attempt, 7);
    CHECK_INT(lane->n, 1);
    CHECK_STR(lane->first->client, "train er%\n-2");
    const struct stg_commit *commit =
        stg_lane_find(stg_commits_find(&commits, ""), "step-4");
    struct stg_commit *same = commit_of(4, 1);
    CHECK_STR(commit->state, same->state);
    free(same);
    CHECK_INT(commit->time_ns, 1004);
    char *again = after(&commits);
    struct stg_commits_damage none;
    char *third = read_as(again, strlen(again), &none);
    CHECK_STR(third, again);
    CHECK_INT(none.n_bad, 0);
    free(again);
    free(third);
    stg_commits_finish(&commits);
}

static void a_text_that_is_cut_at_any_byte_is_its_whole_records(void)
{
    char text[N_RECORDS * STG_COMMITS_LINE_BYTES];
    size_t ends[N_RECORDS], n = write_text(text, ends);
    for (size_t cut = 0; cut <= n; cut++) {
        struct stg_commits_damage damage, whole;
        size_t k = 0;
        while (k < N_RECORDS &&
               ends[k] <= cut + 1) /* the last line feed may be missing */
            k++;
        char *got = read_as(text, cut, &damage);
        char *want = read_as(text, k > 0 ? ends[k - 1] : 0, &whole);
        CHECK_STR(got, want);
        CHECK_INT(damage.n_bad, 0);
        CHECK(damage.good_bytes <= cut);
        free(got);
        free(want);
    }
}

/* Returns a text of all records but one. */
static char *read_without(const char *text, const size_t *ends, size_t k)
{
    char rest[N_RECORDS * STG_COMMITS_LINE_BYTES];
    struct stg_commits_damage ignored;
    size_t begin = k > 0 ? ends[k - 1] : 0, n = ends[N_RECORDS - 1] - ends[k];
    memcpy(rest, text, begin);
    memcpy(rest + begin, text + ends[k], n);
    return read_as(rest, begin + n, &ignored);
}

static void a_flipped_bit_costs_at_most_its_record(void)
{
    char text[N_RECORDS * STG_COMMITS_LINE_BYTES];
    size_t ends[N_RECORDS], n = write_text(text, ends);
    struct stg_commits_damage damage;
    char *all = read_as(text, n, &damage);
    for (size_t k = 0; k < N_RECORDS; k++) {
        char *without = read_without(text, ends, k);
        for (size_t bit = 8 * (k > 0 ? ends[k - 1] : 0); bit < 8 * ends[k]; bit++) {
            text[bit / 8] ^= (char)(1 << bit % 8);
            char *got = read_as(text, n, &damage);
            bool is_all = strcmp(got, all) == 0;
            CHECK(is_all || strcmp(got, without) == 0);
            CHECK(is_all || damage.n_bad > 0 || damage.good_bytes < n);
            free(got);
            text[bit / 8] ^= (char)(1 << bit % 8);
        }
        free(without);
    }
    free(all);
}

/* ---- the file ---- */

static int write_one(struct stg_journal_file *file, struct stg_commits *commits,
                     uint64_t k, struct stg_err *err)
{
    char line[STG_COMMITS_LINE_BYTES];
    size_t n_all;
    struct stg_commit *commit = commit_of(k, 1);
    size_t n = stg_commits_write_commit("", commit, line);
    int rc = stg_journal_file_write(file, line, n, NULL, 0, err);
    if (rc == 1) {
        char *all = stg_commits_write(commits, &n_all);
        rc = stg_journal_file_write(file, line, n, all, n_all, err);
        free(all);
    }
    if (rc == 0)
        stg_lane_put(commits, stg_commits_lane(commits, ""), commit);
    else
        free(commit);
    return rc;
}

static void open_file(struct stg_journal_file *file, struct stg_commits *commits)
{
    struct stg_err err = {0};
    *commits = (struct stg_commits){0};
    CHECK_OK(stg_journal_file_init(file, stg_test_path(""), "p", &err), err);
    CHECK_OK(stg_journal_file_load(file, commits, &err), err);
}

static void close_file(struct stg_journal_file *file, struct stg_commits *commits)
{
    stg_journal_file_finish(file);
    stg_commits_finish(commits);
}

/* What a restart finds is what the table has. */
static void check_restart(const struct stg_commits *commits)
{
    struct stg_journal_file file;
    struct stg_commits again;
    open_file(&file, &again);
    char *want = after(commits), *got = after(&again);
    CHECK_STR(got, want);
    free(want);
    free(got);
    close_file(&file, &again);
}

static void a_file_stays_short_however_many_commits(void)
{
    struct stg_journal_file file;
    struct stg_commits commits;
    struct stg_err err = {0};
    open_file(&file, &commits);
    for (uint64_t k = 0; k < 1000; k++) {
        struct stat st;
        CHECK_OK(write_one(&file, &commits, k, &err), err);
        CHECK(stat(file.path, &st) == 0 && st.st_size < 128 << 10);
        CHECK_INT(st.st_size, file.bytes);
        if (k % 100 == 99)
            check_restart(&commits);
        if (k % 250 == 249) { /* restarts do not make it grow */
            close_file(&file, &commits);
            open_file(&file, &commits);
        }
    }
    close_file(&file, &commits);
}

static void damage(const char *path, off_t at, const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pwrite(fd, bytes, n, at) == (ssize_t)n);
    close(fd);
}

static void a_commit_after_damage_is_found(void)
{
    struct stg_journal_file file;
    struct stg_commits commits;
    struct stg_err err = {0};
    stg_log_set_level(STG_LOG_ERROR);
    open_file(&file, &commits);
    for (uint64_t k = 0; k < 3; k++)
        CHECK_OK(write_one(&file, &commits, k, &err), err);
    damage(file.path, (off_t)file.bytes, "\nc1 torn", 8); /* an interrupted append */
    close_file(&file, &commits);
    open_file(&file, &commits);
    CHECK_INT(stg_commits_find(&commits, "")->n, 3);
    CHECK_OK(write_one(&file, &commits, 3, &err), err);
    check_restart(&commits);
    damage(file.path, (off_t)file.bytes / 2 + 50, "XXXX", 4); /* in the middle */
    close_file(&file, &commits);
    open_file(&file, &commits);
    CHECK(file.must_rewrite);
    CHECK_INT(stg_commits_find(&commits, "")->n, 3);
    CHECK_STR(stg_commits_find(&commits, "")->last->tag, "step-3");
    CHECK_OK(write_one(&file, &commits, 4, &err), err);
    CHECK(!file.must_rewrite);
    check_restart(&commits);
    CHECK(truncate(file.path, 5) ==
          0); /* by an administrator, behind the daemon's back */
    CHECK_OK(write_one(&file, &commits, 5, &err), err);
    check_restart(&commits);
    CHECK(unlink(file.path) == 0);
    CHECK_OK(write_one(&file, &commits, 6, &err), err);
    check_restart(&commits);
    close_file(&file, &commits);
}

static void a_file_that_is_cut_at_any_byte_takes_the_next_commit(void)
{
    char text[N_RECORDS * STG_COMMITS_LINE_BYTES];
    size_t ends[N_RECORDS], n = write_text(text, ends);
    char path[256];
    stg_log_set_level(STG_LOG_ERROR);
    syncs.skips = true;
    CHECK(mkdir(stg_test_path("commits"), 0700) == 0);
    snprintf(path, sizeof(path), "%s", stg_test_path("commits/p.journal"));
    for (size_t cut = 0; cut <= n; cut++) {
        struct stg_journal_file file;
        struct stg_commits commits;
        struct stg_err err = {0};
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        CHECK(fd >= 0 && write(fd, text, cut) == (ssize_t)cut);
        close(fd);
        open_file(&file, &commits);
        CHECK(!file.must_rewrite); /* a cut is no damage */
        CHECK_OK(write_one(&file, &commits, 9, &err), err);
        check_restart(&commits);
        close_file(&file, &commits);
    }
}

/* A process may have died between a rename and the sync of the folder. */
static void the_first_append_syncs_the_folders_again(void)
{
    struct stg_journal_file file;
    struct stg_commits commits;
    struct stg_err err = {0};
    open_file(&file, &commits);
    CHECK_OK(write_one(&file, &commits, 0, &err), err);
    CHECK_INT(syncs.n_folders, 2); /* commits, and state_dir that has it */
    close_file(&file, &commits);
    open_file(&file, &commits);
    syncs.fails_folders = EIO;
    CHECK_INT(write_one(&file, &commits, 1, &err), -STAGER_UNAVAILABLE);
    check_restart(&commits);
    syncs.fails_folders = 0;
    syncs.n_folders = 0;
    CHECK_OK(write_one(&file, &commits, 1, &err), err);
    CHECK_INT(syncs.n_folders, 2);
    CHECK_OK(write_one(&file, &commits, 2, &err), err);
    CHECK_INT(syncs.n_folders, 2);
    check_restart(&commits);
    close_file(&file, &commits);
}

static void an_fsync_that_fails_leaves_no_commit(void)
{
    struct stg_journal_file file;
    struct stg_commits commits;
    struct stg_err err = {0};
    open_file(&file, &commits);
    CHECK_OK(write_one(&file, &commits, 0, &err), err);
    for (int i = 0; i < 2; i++) { /* of an append, then of a rewrite */
        syncs.fails_files = EIO;
        CHECK_INT(write_one(&file, &commits, 1, &err), -STAGER_UNAVAILABLE);
        CHECK_CONTAINS(err.text, "commits/p.journal: Input/output error");
        CHECK(file.must_rewrite);
        check_restart(&commits);
    }
    syncs.fails_files = 0;
    CHECK_OK(write_one(&file, &commits, 1, &err), err);
    CHECK(!file.must_rewrite);
    check_restart(&commits);
    close_file(&file, &commits);
}

static void a_full_disk_is_an_error_of_the_commit_alone(void)
{
    struct stg_journal_file file;
    struct stg_commits commits;
    struct stg_err err = {0};
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    open_file(&file, &commits);
    CHECK_OK(write_one(&file, &commits, 0, &err), err);
    for (uint64_t left = 0; left < 300; left += 7) { /* a part of the record fits */
        limit = (struct rlimit){file.bytes + left, before.rlim_max};
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        CHECK_INT(write_one(&file, &commits, 1, &err), -STAGER_RESOURCE_EXHAUSTED);
        CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
        CHECK_CONTAINS(err.text, "commits/p.journal: File too large");
        check_restart(&commits);
    }
    CHECK_OK(write_one(&file, &commits, 1, &err), err);
    check_restart(&commits);
    close_file(&file, &commits);
}

static void a_folder_that_may_not_be_written_is_named(void)
{
    struct stg_journal_file file;
    struct stg_commits commits;
    struct stg_err err = {0};
    open_file(&file, &commits);
    CHECK_OK(write_one(&file, &commits, 0, &err), err);
    CHECK(chmod(file.path, 0400) == 0);
    if (geteuid() == 0) {
        CHECK(chmod(stg_test_path(""), 0755) == 0 &&
              chmod(stg_test_path("commits"), 0755) == 0);
        CHECK(seteuid(65534) == 0);
    }
    int rc = write_one(&file, &commits, 1, &err);
    if (getuid() == 0)
        CHECK(seteuid(0) == 0);
    CHECK_INT(rc, -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(err.text, "commits/p.journal: Permission denied");
    CHECK(chmod(file.path, 0600) == 0);
    CHECK_OK(write_one(&file, &commits, 1, &err), err);
    check_restart(&commits);
    close_file(&file, &commits);
}

/* ---- the queue ---- */

struct answers {
    int codes[8];
    char text[STG_ERR_TEXT_BYTES];
    int n, n_changed;
    bool dies; /* between the append and the answer */
};

static void note(void *arg, const struct stg_err *err)
{
    struct answers *answers = arg;
    if (answers->dies)
        kill(getpid(), SIGKILL);
    snprintf(answers->text, sizeof(answers->text), "%s", err->text);
    answers->codes[answers->n++] = err->code;
}

static void note_change(void *arg)
{
    struct answers *answers = arg;
    answers->n_changed++;
}

struct daemon {
    uv_loop_t loop;
    struct stg_journal_writers writers;
    struct stg_journal *journal;
    struct answers answers;
};

static void start(struct daemon *daemon)
{
    struct stg_err err = {0};
    *daemon = (struct daemon){0};
    stg_test_keeps_descriptors(); /* libuv keeps two */
    uv_loop_init(&daemon->loop);
    struct stg_journal_config config = {.loop = &daemon->loop,
                                        .state_dir = stg_test_path(""),
                                        .name = "p",
                                        .writers = &daemon->writers,
                                        .changed = note_change,
                                        .owner = &daemon->answers};
    CHECK_OK(stg_journal_create(&config, &daemon->journal, &err), err);
}

static void stop(struct daemon *daemon)
{
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon->writers.n, 0);
    stg_journal_unref(daemon->journal);
    uv_loop_close(&daemon->loop);
}

static void ask_of(struct daemon *daemon, const char *lane, const char *tag, uint64_t k,
                   uint64_t attempt)
{
    struct stg_state state = state_of(k);
    struct stg_err err = {0};
    struct stg_journal_request request = {.lane = lane,
                                          .tag = tag,
                                          .client = "trainer",
                                          .attempt = attempt,
                                          .state = &state,
                                          .done = note,
                                          .arg = &daemon->answers};
    CHECK_OK(stg_journal_commit(daemon->journal, &request, &err), err);
}

static void ask(struct daemon *daemon, const char *tag, uint64_t k, uint64_t attempt)
{
    ask_of(daemon, "", tag, k, attempt);
}

static const struct stg_lane *lane_of(const struct daemon *daemon)
{
    return stg_commits_find(stg_journal_commits(daemon->journal), "");
}

static void commits_of_one_tag_at_once_have_some_order(void)
{
    struct daemon daemon;
    start(&daemon);
    CHECK_INT(stg_journal_begin(daemon.journal, ""), 1);
    CHECK(!stg_journal_is_busy(daemon.journal)); /* without commits nothing is written */
    for (int i = 0; i < 4; i++)
        ask(&daemon, "a", 1, 1);
    ask(&daemon, "a", 2, 1);
    CHECK(stg_journal_is_busy(daemon.journal));
    CHECK_INT(daemon.answers.n, 0); /* none before it is on disk */
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.n, 5);
    for (int i = 0; i < 4; i++)
        CHECK_INT(daemon.answers.codes[i], 0);
    CHECK_INT(daemon.answers.codes[4], -STAGER_ALREADY_EXISTS);
    CHECK_CONTAINS(daemon.answers.text,
                   "tag a was committed in this attempt by trainer at "
                   "pass 0, position 16, and this state is of pass 0, "
                   "position 32");
    CHECK_INT(lane_of(&daemon)->n, 1);
    CHECK_INT(daemon.answers.n_changed, 1); /* one write for all */
    stop(&daemon);
}

static void a_disk_that_hangs_takes_two_workers(void)
{
    struct daemon daemon;
    struct stg_journal *own, *journals[5];
    struct stg_err err = {0};
    start(&daemon);
    own = daemon.journal;
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof(name), "p%d", i);
        struct stg_journal_config config = {.loop = &daemon.loop,
                                            .state_dir = stg_test_path(""),
                                            .name = name,
                                            .writers = &daemon.writers,
                                            .changed = note_change,
                                            .owner = &daemon.answers};
        CHECK_OK(stg_journal_create(&config, &journals[i], &err), err);
        daemon.journal = journals[i];
        ask(&daemon, "a", 1, 1);
    }
    CHECK_INT(daemon.writers.n, 2);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.n, 5);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(daemon.answers.codes[i], 0);
        stg_journal_unref(journals[i]);
    }
    CHECK(daemon.writers.first == NULL && daemon.writers.last == NULL);
    daemon.journal = own;
    stop(&daemon);
}

/* Else the clients of a broadcast would open one fsync after the other. */
static void an_attempt_that_waits_for_the_disk_delays_no_open(void)
{
    struct daemon daemon;
    start(&daemon);
    ask(&daemon, "a", 1, stg_journal_begin(daemon.journal, ""));
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    uint64_t attempt = stg_journal_begin(daemon.journal, "");
    CHECK_INT(daemon.writers.n, 1);
    CHECK(!stg_journal_is_busy(daemon.journal));
    ask(&daemon, "b", 2, attempt);
    CHECK(stg_journal_is_busy(daemon.journal));
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK(!stg_journal_is_busy(daemon.journal));
    CHECK_INT(daemon.answers.codes[1], 0);
    stop(&daemon);
}

/* A client that opens again and again must not fill the memory if the disk hangs. */
static void attempts_that_wait_for_the_disk_are_one_record(void)
{
    struct daemon daemon;
    uint64_t attempt = 0;
    start(&daemon);
    ask(&daemon, "a", 1, stg_journal_begin(daemon.journal, ""));
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.n_changed, 1);
    for (int i = 0; i < 100; i++)
        attempt = stg_journal_begin(daemon.journal, "");
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.n_changed, 3); /* the first one, and the last one */
    stop(&daemon);
    start(&daemon);
    CHECK_INT(lane_of(&daemon)->attempt, attempt);
    stop(&daemon);
}

/* Its client may have been opened again since, under an attempt that is forgotten too. */
static void a_client_whose_attempt_was_forgotten_commits_nothing_more(void)
{
    struct daemon daemon;
    char name[32];
    start(&daemon);
    uint64_t attempt = stg_journal_begin(daemon.journal, "a");
    ask_of(&daemon, "a", "one", 1, attempt - 1);
    for (int i = 0; i < STG_COMMITS_NAMES; i++) {
        snprintf(name, sizeof(name), "lane-%d", i);
        stg_journal_begin(daemon.journal, name);
    }
    ask_of(&daemon, "a", "two", 1, attempt - 1);
    ask_of(&daemon, "a", "three", 1, attempt);
    CHECK_INT(daemon.answers.codes[0], -STAGER_FAILED_PRECONDITION);
    CHECK_INT(daemon.answers.codes[1], -STAGER_FAILED_PRECONDITION);
    CHECK_INT(daemon.answers.codes[2], -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(daemon.answers.text, "the attempt of client a is forgotten");
    ask_of(&daemon, "a", "three", 1, stg_journal_begin(daemon.journal, "a"));
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.codes[3], 0);
    stop(&daemon);
}

static void a_new_attempt_fences_the_older_ones_over_a_restart(void)
{
    struct daemon daemon;
    start(&daemon);
    uint64_t old = stg_journal_begin(daemon.journal, "");
    ask(&daemon, "a", 1, old);
    ask(&daemon, "b", 2, old);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    uint64_t new = stg_journal_begin(daemon.journal, "");
    CHECK_INT(new, old + 1);
    ask(&daemon, "c", 3, old);
    ask(&daemon, "b", 7, new); /* a tag of the old attempt may be used anew */
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.codes[2], -STAGER_FAILED_PRECONDITION);
    CHECK_INT(daemon.answers.codes[3], 0);
    stop(&daemon);
    start(&daemon);
    CHECK_INT(lane_of(&daemon)->n, 2);
    CHECK_INT(lane_of(&daemon)->attempt, new);
    CHECK_INT(lane_of(&daemon)->last->position, 16 * 7);
    ask(&daemon, "c", 3, old);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.codes[0], -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(daemon.answers.text, "attempt 2 has begun");
    stop(&daemon);
}

static void a_commit_whose_answer_was_lost_is_committed_again(void)
{
    struct daemon daemon;
    stg_test_path(""); /* of both processes */
    pid_t pid = fork();
    if (pid == 0) {
        start(&daemon);
        daemon.answers.dies = true;
        ask(&daemon, "a", 1, stg_journal_begin(daemon.journal, ""));
        stop(&daemon);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    start(&daemon);
    CHECK_INT(lane_of(&daemon)->n, 1);
    ask(&daemon, "a", 1, 1);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.codes[0], 0);
    CHECK_INT(daemon.answers.n_changed, 0);
    CHECK_INT(lane_of(&daemon)->n, 1);
    stop(&daemon);
}

/* The bytes that count on the quota of disk. */
static void see_disk(void *owner, const struct stg_share_use *use)
{
    *(uint64_t *)owner = use->used[STG_QUOTA_DISK];
}

static uint64_t disk_used(void)
{
    uint64_t used = UINT64_MAX;
    stg_share_each(see_disk, &used);
    return used;
}

static uint64_t file_bytes(const char *name)
{
    struct stat st;
    return stat(stg_test_path(name), &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void set_disk_quota(uint64_t limit)
{
    struct stg_quota_spec quota = {.user = "4242"};
    struct stg_err err = {0};
    for (int k = 0; k < STG_N_QUOTA_KINDS; k++)
        quota.limit[k] = k == STG_QUOTA_DISK ? limit : STG_NO_QUOTA;
    CHECK_OK(stg_share_configure(&quota, 1, &err), err);
}

static void a_commit_above_the_quota_of_disk_fails_and_later_ones_do_not(void)
{
    struct daemon daemon;
    struct stg_share *share = stg_share_get(4242, 4242, NULL, 0);
    set_disk_quota(100000);
    start(&daemon);
    stg_journal_count_on(daemon.journal, share);
    ask(&daemon, "a", 1, 1);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    uint64_t bytes = file_bytes("commits/p.journal");
    CHECK(bytes > 0);
    CHECK_INT(disk_used(), bytes);
    set_disk_quota(bytes + 10);
    ask(&daemon, "b", 2, 1);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.codes[1], -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(daemon.answers.text, "pipeline p: the quota of user 4242 is ");
    CHECK_CONTAINS(daemon.answers.text, " bytes of state_dir");
    CHECK(stg_lane_find(lane_of(&daemon), "b") == NULL);
    CHECK_INT(file_bytes("commits/p.journal"), bytes);
    CHECK_INT(disk_used(), bytes);
    set_disk_quota(100000);
    ask(&daemon, "b", 2, 1);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.codes[2], 0);
    bytes = file_bytes("commits/p.journal");
    CHECK_INT(disk_used(), bytes);
    stg_journal_count_on(daemon.journal, NULL);
    CHECK_INT(disk_used(), 0);
    stop(&daemon);
    start(&daemon); /* the files are measured */
    stg_journal_count_on(daemon.journal, share);
    CHECK_INT(disk_used(), bytes);
    stg_journal_count_on(daemon.journal, NULL);
    stop(&daemon);
    stg_share_put(share);
    stg_share_finish();
}

static void a_journal_that_was_removed_stays_so(void)
{
    struct daemon daemon;
    start(&daemon);
    ask(&daemon, "a", 1, 1);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    syncs.n_folders = 0;
    ask(&daemon, "b", 2, 1); /* a worker may write it meanwhile */
    ask(&daemon, "c", 3, 1);
    stg_journal_remove(daemon.journal);
    CHECK_INT(syncs.n_folders, 1); /* a crash of the machine does not bring it back */
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    CHECK_INT(daemon.answers.codes[2], -STAGER_NOT_FOUND);
    stop(&daemon);
    start(&daemon);
    CHECK(lane_of(&daemon) == NULL);
    stop(&daemon);
}

static void a_journal_that_cannot_be_read_is_never_taken_for_none(void)
{
    struct daemon daemon;
    struct stg_err err = {0};
    struct stg_state state = state_of(1);
    stg_log_set_level(STG_LOG_ERROR);
    CHECK(mkdir(stg_test_path("commits"), 0700) == 0);
    CHECK(mkdir(stg_test_path("commits/p.journal"), 0700) == 0);
    start(&daemon);
    CHECK(stg_journal_check(daemon.journal, &err) < 0);
    CHECK_CONTAINS(stg_journal_problem(daemon.journal), "p.journal");
    struct stg_journal_request request = {
        .lane = "", .tag = "a", .client = "t", .attempt = 1, .state = &state};
    CHECK(stg_journal_commit(daemon.journal, &request, &err) < 0);
    stop(&daemon);
}

/* ---- memory ---- */

static int commit_and_read(void *owner)
{
    struct daemon daemon = {0};
    struct stg_err err = {0};
    struct stg_state state = state_of(1);
    struct stg_journal_config config = {.loop = &daemon.loop,
                                        .state_dir = owner,
                                        .name = "p",
                                        .writers = &daemon.writers,
                                        .changed = note_change,
                                        .owner = &daemon.answers};
    struct stg_journal_request request = {.lane = "",
                                          .tag = "a",
                                          .client = "t",
                                          .state = &state,
                                          .done = note,
                                          .arg = &daemon.answers};
    uv_loop_init(&daemon.loop);
    int rc = stg_journal_create(&config, &daemon.journal, &err);
    if (rc == 0) {
        request.attempt = stg_journal_begin(daemon.journal, "");
        rc = request.attempt > 0 ? stg_journal_commit(daemon.journal, &request, &err)
                                 : -STAGER_RESOURCE_EXHAUSTED;
        uv_run(&daemon.loop, UV_RUN_DEFAULT);
        if (rc == 0)
            rc = daemon.answers.codes[0];
        if (rc == 0)
            stg_journal_remove(daemon.journal);
        stg_journal_unref(daemon.journal);
    }
    uv_loop_close(&daemon.loop);
    return rc;
}

static int create(void *owner)
{
    struct daemon daemon = {0};
    struct stg_err err = {0};
    struct stg_journal_config config = {.loop = &daemon.loop,
                                        .state_dir = owner,
                                        .name = "p",
                                        .writers = &daemon.writers,
                                        .changed = note_change,
                                        .owner = &daemon.answers};
    uv_loop_init(&daemon.loop);
    int rc = stg_journal_create(&config, &daemon.journal, &err);
    uint64_t n_failed = stg_failalloc_off();
    if (rc == 0)
        rc = stg_journal_check(daemon.journal, &err);
    if (daemon.journal != NULL) {
        stg_journal_begin(daemon.journal, "");
        uv_run(&daemon.loop, UV_RUN_DEFAULT);
        stg_journal_unref(daemon.journal);
    }
    uv_loop_close(&daemon.loop);
    CHECK(n_failed == 0 || rc == -STAGER_RESOURCE_EXHAUSTED);
    return rc;
}

/* An attempt that begins meanwhile does not replace the file by half of it. */
static void a_journal_that_memory_did_not_suffice_to_read_stays_as_it_is(void)
{
    char state_dir[256];
    struct daemon daemon;
    snprintf(state_dir, sizeof(state_dir), "%s", stg_test_path(""));
    stg_log_set_level(STG_LOG_ERROR);
    start(&daemon);
    for (uint64_t k = 0; k < 3; k++)
        ask(&daemon, k == 0 ? "a" : k == 1 ? "b" : "c", k, 1);
    stop(&daemon);
    int rc = -1;
    for (uint64_t n = 1; rc < 0; n++) {
        stg_failalloc_once(n);
        rc = create(state_dir);
        start(&daemon);
        CHECK_INT(lane_of(&daemon)->n, 3);
        stop(&daemon);
    }
}

static void memory_that_runs_out_is_an_error_of_the_commit(void)
{
    char state_dir[256];
    snprintf(state_dir, sizeof(state_dir), "%s", stg_test_path("state"));
    CHECK(mkdir(state_dir, 0700) == 0);
    stg_test_keeps_descriptors();
    stg_log_set_level(STG_LOG_ERROR);
    CHECK(stg_failalloc_each(commit_and_read, state_dir) >= 4);
}

static const struct stg_test tests[] = {
    TEST(only_the_last_sixteen_tags_are_kept),
    TEST(commits_of_too_many_clients_go_and_their_attempts_stay),
    TEST(an_attempt_has_no_number_of_a_lane_that_was_forgotten),
    TEST(a_tag_is_printable_ascii_without_a_space),
    TEST(what_is_written_is_read),
    TEST(a_text_that_is_cut_at_any_byte_is_its_whole_records),
    TEST_SLOW(a_flipped_bit_costs_at_most_its_record, 60),
    TEST_SLOW(a_file_stays_short_however_many_commits, 120),
    TEST(a_commit_after_damage_is_found),
    TEST_SLOW(a_file_that_is_cut_at_any_byte_takes_the_next_commit, 60),
    TEST(the_first_append_syncs_the_folders_again),
    TEST(an_fsync_that_fails_leaves_no_commit),
    TEST(a_full_disk_is_an_error_of_the_commit_alone),
    TEST(a_folder_that_may_not_be_written_is_named),
    TEST(commits_of_one_tag_at_once_have_some_order),
    TEST(a_disk_that_hangs_takes_two_workers),
    TEST(an_attempt_that_waits_for_the_disk_delays_no_open),
    TEST(attempts_that_wait_for_the_disk_are_one_record),
    TEST(a_client_whose_attempt_was_forgotten_commits_nothing_more),
    TEST(a_new_attempt_fences_the_older_ones_over_a_restart),
    TEST(a_commit_whose_answer_was_lost_is_committed_again),
    TEST(a_commit_above_the_quota_of_disk_fails_and_later_ones_do_not),
    TEST(a_journal_that_was_removed_stays_so),
    TEST(a_journal_that_cannot_be_read_is_never_taken_for_none),
    TEST(a_journal_that_memory_did_not_suffice_to_read_stays_as_it_is),
    TEST(memory_that_runs_out_is_an_error_of_the_commit),
};

TEST_MAIN(tests)
