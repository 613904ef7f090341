/* SPDX-License-Identifier: Apache-2.0
 *
 * A child of fork: every call is refused and has no effect. The child may close inherited
 * objects.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/transport/admin.h"
#include "tests/check.h"
#include "tests/client/fake.h"

static void check_child(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

/* TFD-M5 */
static void a_child_is_refused_and_may_close(void)
{
    fake_skip_where_forks_are_hidden();
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 0, 0, 11, 1);
    fake_publish(&fake, 1, 1, 12, 1);
    struct stager_batch *batch, *other;
    CHECK_INT(stager_next(stream, 0, &batch), 0);

    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct stager_tensor x;
        CHECK_INT(stager_next(stream, -1, &other), -STAGER_FAILED_PRECONDITION);
        CHECK_CONTAINS(stager_error_text(stream), "belongs to the parent process");
        CHECK_INT(stager_batch_tensor(batch, "x", &x), -STAGER_FAILED_PRECONDITION);
        CHECK_INT(stager_batch_tensor_at(batch, 0, &x), -STAGER_FAILED_PRECONDITION);
        CHECK_INT(stager_rewind(stream), -STAGER_FAILED_PRECONDITION);
        CHECK_INT(stager_pollfd(stream), -STAGER_FAILED_PRECONDITION);
        const char *fetch = "staged:x";
        CHECK_INT(stager_run(stream, batch, &fetch, 1, &x), -STAGER_FAILED_PRECONDITION);
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        stager_batch_info(batch, &info);
        CHECK_INT(info.n_rows, 0);
        stager_release(batch);
        stager_close(stream);
        stager_release(batch); /* still without effect */
        _exit(0);
    }
    check_child(pid);
    CHECK_INT(fake_releases(&fake), 0);
    CHECK_INT(fake_doorbells(&fake), 0);

    /* The parent's stream continues: the child neither disconnected nor released. */
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    CHECK_INT(((const int64_t *)x.data)[0], 11);
    stager_release(batch);
    CHECK_INT(stager_next(stream, 0, &other), 0);
    stager_release(other);
    CHECK_INT(stager_next(stream, 0, &other), -STAGER_DEADLINE_EXCEEDED);
    fake_finish(&fake, stream);
}

static void a_child_may_open_a_stream_of_its_own(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct fake mine = {0};
        fake_start(&mine);
        struct stager_stream *own = fake_open(&mine, NULL);
        fake_publish(&mine, 0, 0, 5, 1);
        struct stager_batch *batch;
        CHECK_INT(stager_next(own, 0, &batch), 0);
        stager_release(batch);
        stager_close(own);
        fake_finish(&mine, stream);
        _exit(0);
    }
    check_child(pid);
    fake_finish(&fake, stream);
}

static void a_child_may_not_use_a_connection(void)
{
    fake_skip_where_forks_are_hidden();
    struct fake fake = {0};
    fake_start(&fake);
    fake_serve(&fake);
    struct stager *client;
    CHECK_INT(stager_connect(fake.dir, &client), 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct stg_request request = {.kind = STG_REQUEST_LIST};
        struct stg_reply reply;
        struct stg_err err = {0};
        CHECK_INT(stg_admin_call(client, &request, &reply, &err),
                  -STAGER_FAILED_PRECONDITION);
        stager_disconnect(client);
        _exit(0);
    }
    check_child(pid);
    stager_disconnect(client);
    fake_join(&fake);
    fake_stop(&fake);
}

static const struct stg_test tests[] = {
    TEST(a_child_is_refused_and_may_close),
    TEST(a_child_may_open_a_stream_of_its_own),
    TEST(a_child_may_not_use_a_connection),
};

TEST_MAIN(tests)
