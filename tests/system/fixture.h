/* SPDX-License-Identifier: Apache-2.0
 *
 * A real stagerd of a test's own: folders under a temporary one, ended by its pid. And
 * trainers: forked children that talk to the test through a pipe, so that nothing has to
 * sleep.
 */
#ifndef STG_TESTS_SYSTEM_FIXTURE_H
#define STG_TESTS_SYSTEM_FIXTURE_H

#include <stdbool.h>
#include <sys/types.h>

#include "client/stager.h"
#include "client/transport/admin.h"

struct fixture {
    char dir[64];      /* everything is below it */
    char runtime[128]; /* its runtime_dir */
    char config[128];
    pid_t pid;           /* of stagerd; 0: not running */
    bool enclosed;       /* in user, pid and mount namespaces of its own */
    const char *preload; /* a library that comes before libc; NULL: none */
};

/* Makes the folders and starts stagerd with these extra lines of settings ("" for none);
 * returns when it answers. Fails the test otherwise. */
void fixture_start(struct fixture *fixture, const char *settings);

/* As fixture_start, in namespaces of its own, with a library that comes before libc
 * (NULL: none). Skips the test where namespaces are forbidden. */
void fixture_start_enclosed(struct fixture *fixture, const char *settings, bool enclosed,
                            const char *preload);

/* Starts it again in the same folders, after fixture_kill or fixture_stop. */
void fixture_restart(struct fixture *fixture);

/* SIGTERM, waits, checks that it ended with status 0 within 5 s. */
void fixture_stop(struct fixture *fixture);

/* SIGKILL, waits. */
void fixture_kill(struct fixture *fixture);

/* Stops what runs and removes the folders. */
void fixture_finish(struct fixture *fixture);

/* Writes a file below the fixture's folder; path is filled in. */
void fixture_file(struct fixture *fixture, const char *name, const void *bytes, size_t n,
                  char path[256]);

/* A file with n lines "first", "first+1", …, each a decimal number. */
void fixture_numbers(struct fixture *fixture, const char *name, int first, int n,
                     char path[256]);

/* Applies a pipeline given as text, in place of one of that name; fails the test on
 * error. */
void fixture_apply(struct fixture *fixture, const char *yaml);

/* As fixture_apply, and returns the code and its text instead of failing. */
int fixture_try_apply(struct fixture *fixture, const char *yaml, bool replace,
                      struct stg_err *err);

/* A pipeline's status; strings are copied away. */
struct fixture_status {
    char state[32], last_error[512];
    uint64_t published, assigned, released, dropped, errors, redelivered, lost, rows,
        pass;
    uint64_t dropped_rows;
    uint64_t made, ignored, ignored_elements, in_hand, discarded, acknowledged,
        unacknowledged;
    uint64_t discarded_published, evicted, incomplete_rounds, timeouts, feed_version;
    uint64_t memory_bytes, memory_used_bytes, quarantined_bytes;
    uint32_t capacity, num_threads, max_capacity, max_num_threads;
    bool capacity_auto, num_threads_auto;
    uint32_t n_tuned;
    struct {
        char what[80], why[256];
        uint32_t from, to;
    } tuned[16];
    uint32_t buffered, n_clients, n_attached, n_away, n_detached, n_gone;
    struct {
        char client_id[128], state[16], last_error[256];
        uint32_t pid, held, rank;
        uint64_t violations, assigned, taken, released, acknowledged, redelivered, gaps,
            lost, wait_ns, daemon_wait_ns;
    } clients[16];
};
/* Asks stagerd for `kind` of the pipeline; the reply lives until the caller disconnects
 * the connection that it came by. Fails the test where there is no reply. */
struct stager *fixture_ask(struct fixture *fixture, enum stg_request_kind kind,
                           const char *name, struct stg_reply *ret);
/* The nodes that run ahead, a blank before each. */
void fixture_moved(const struct stg_pipeline_status *status, char *ret, size_t bytes);

void fixture_status(struct fixture *fixture, const char *name,
                    struct fixture_status *ret);

/* The status of pipeline p, whose counters are checked: each batch that was made, and
 * each that was published, is in one place. */
struct fixture_status fixture_balance(struct fixture *fixture);

/* Polls the status (1 ms apart) until `until` says true; fails the test after millis.
 * Returns how many milliseconds it took. */
int64_t fixture_wait(struct fixture *fixture, const char *name, int64_t millis,
                     bool (*until)(const struct fixture_status *status, void *arg),
                     void *arg);

/* Opens a stream on this fixture; fails the test on error. */
struct stager_stream *fixture_open(struct fixture *fixture, const char *name,
                                   const char *client_id, uint32_t max_held);

/* The next batch; fails the test when there is none within 20 s. */
struct stager_batch *fixture_take(struct stager_stream *stream);

/* Takes the next item, checks its `value` and releases it. Returns whether it was
 * redelivered. */
bool fixture_expect_value(struct stager_stream *stream, int64_t value);

/* Fails the test unless `next` ends with that code (positive) and a text that holds
 * `text`. */
void fixture_expect_code(struct stager_stream *stream, int code, const char *text);

/* Applies pipeline "p": the numbers below stop, one in each batch; staged: its keys. */
void fixture_apply_range(struct fixture *fixture, int stop, const char *staged);

/* Applies pipeline "rows", which never ends: batches of two numbers below 64, and 100,000
 * floats `pad`; staged: more lines of `staged`, "capacity: 2". */
void fixture_apply_endless(struct fixture *fixture, const char *staged);

/* Fails the test unless `pad` is what it must be: nobody wrote over the batch. */
void fixture_check_pad(const struct stager_batch *batch);

/* Returns how many lines of stagerd's log hold `text`. A thread writes them soon after
 * the event: only fixture_wait_log makes sure of one. */
unsigned fixture_count_log(const struct fixture *fixture, const char *text);

/* Blocks until a line of the log holds `text`; fails the test after 20 s. */
void fixture_wait_log(const struct fixture *fixture, const char *text);

/* ---- trainers ---- */

/* A forked child that runs `body` and talks over a socket pair. */
struct trainer {
    pid_t pid;
    int fd;
};

void trainer_start(struct trainer *trainer,
                   void (*body)(struct fixture *fixture, int fd, void *arg),
                   struct fixture *fixture, void *arg);

/* One 8-byte number, either way; fails the test when it does not come within 20 s. */
void trainer_send(int fd, int64_t value);
int64_t trainer_recv(int fd);

/* Waits for its end; fails the test unless it exits with 0. */
void trainer_join(struct trainer *trainer);

/* SIGKILL and wait. */
void trainer_kill(struct trainer *trainer);

int64_t now_millis(void);

/* A deadline, longer under a sanitizer (STG_TEST_SLOW). */
int64_t fixture_millis(int64_t millis);

#endif
