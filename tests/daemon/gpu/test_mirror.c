/* SPDX-License-Identifier: Apache-2.0
 *
 * The device mirror of a pipeline's memory against a stager-gpu that sends wrong replies
 * (gpu/fake_gpu.c). The daemon checks every reply, none of them ends it, and the worst
 * effect is a batch that is not copied.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/gpu/mirror.h"
#include "daemon/host/helper.h"
#include "tests/check.h"

#define SEGMENT_BYTES ((uint64_t)1 << 20)

static struct stg_err err;

/* qemu-user runs this program, but without binfmt_misc the kernel cannot start others of
 * that architecture.
 */
static void skip_where_no_program_starts(void)
{
    char path[4096];
    int status;
    CHECK_OK(stg_helper_find("gpu", "stager-gpu", path, sizeof(path), &err), err);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(path, path, (char *)NULL);
        _exit(errno == ENOEXEC ? 77 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("%s is for another machine, and no binfmt_misc starts it", path);
}

static struct stg_mirror *make(const char *what, int *ret_segment)
{
    struct stg_mirror *mirror;
    skip_where_no_program_starts();
    *ret_segment = memfd_create("segment", MFD_CLOEXEC);
    CHECK(*ret_segment >= 0 && ftruncate(*ret_segment, SEGMENT_BYTES) == 0);
    struct stg_mirror_config config = {.name = "p",
                                       .device = what,
                                       .segment = *ret_segment,
                                       .segment_bytes = SEGMENT_BYTES,
                                       .memory_bytes = SEGMENT_BYTES};
    CHECK_OK(stg_mirror_create(&config, &mirror, &err), err);
    return mirror;
}

static void finish(struct stg_mirror *mirror, int segment)
{
    stg_mirror_destroy(mirror);
    close(segment);
}

/* No memory and no copy, with a reason. */
static void refused(const char *what, const char *because)
{
    char why[512];
    int segment;
    struct stg_mirror *mirror = make(what, &segment);
    struct stg_mirror_memory memory;
    stg_mirror_memory(mirror, &memory);
    CHECK_INT(memory.fd, -1);
    CHECK_INT(stg_mirror_copy(mirror, 0, 0, 64), 0);
    CHECK_INT(stg_mirror_status(mirror, why, sizeof(why)), 0);
    CHECK_CONTAINS(why, because);
    finish(mirror, segment);
}

static void a_beginning_that_makes_no_sense_is_refused(void)
{
    refused("another_magic", "malformed message");
    refused("a_code_that_is_none", "malformed message");
    refused("too_little", "malformed message");
    refused("too_much", "malformed message");
    refused("no_memory", "malformed message");
    refused("many", "before it was ready");
    refused("a_short_message", "before it was ready");
    refused("dies", "before it was ready");
}

static void its_reasons_are_printed_as_text(void)
{
    refused("refuses", "????");
}

/* The reply to one copy is refused. stager-gpu is started again, and its memory is the
 * same. */
static void distrusted(const char *what, unsigned n_good)
{
    int segment;
    struct stg_mirror *mirror = make(what, &segment);
    struct stg_mirror_memory memory, again;
    stg_mirror_memory(mirror, &memory);
    CHECK(memory.fd >= 0 && memory.number == 1 && memory.bytes >= SEGMENT_BYTES);
    for (unsigned i = 0; i < n_good; i++)
        CHECK_INT(stg_mirror_copy(mirror, 0, 0, 64), 1);
    CHECK_INT(stg_mirror_copy(mirror, 4, 0, 64), 0);
    stg_mirror_memory(mirror, &again);
    CHECK_INT(again.number, memory.number);
    CHECK_INT(again.bytes, memory.bytes);
    close(memory.fd);
    close(again.fd);
    finish(mirror, segment);
}

static void an_answer_that_makes_no_sense_is_no_copy(void)
{
    distrusted("answers_another", 0);
    distrusted("answers_little", 0);
    distrusted("answers_twice", 1);
    distrusted("fails", 0);
    distrusted("leaves", 0);
}

static void an_honest_one_copies_what_lies_in_its_memory(void)
{
    char why[512];
    int segment;
    struct stg_mirror *mirror = make("honest", &segment);
    CHECK_INT(stg_mirror_copy(mirror, 0, 0, SEGMENT_BYTES), 1);
    CHECK_INT(stg_mirror_copy(mirror, 0, 4096, 0), 1);
    CHECK_INT(stg_mirror_copy(mirror, 0, 1, SEGMENT_BYTES), 0); /* beyond its end */
    CHECK_INT(stg_mirror_copy(mirror, 0, SEGMENT_BYTES / 2, 64), 1);
    CHECK_INT(stg_mirror_status(mirror, why, sizeof(why)), 3);
    CHECK_STR(why, "");
    finish(mirror, segment);
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_beginning_that_makes_no_sense_is_refused, 60),
    TEST(its_reasons_are_printed_as_text),
    TEST_SLOW(an_answer_that_makes_no_sense_is_no_copy, 60),
    TEST(an_honest_one_copies_what_lies_in_its_memory),
};

TEST_MAIN(tests)
