/* SPDX-License-Identifier: Apache-2.0
 *
 * A real stagerd for one test, with folders below a temporary one; the test ends it by
 * its pid. And trainers: forked children that talk to the test through a pipe, so that
 * nothing has to sleep.
 */
#ifndef STG_TESTS_SYSTEM_FIXTURE_H
#define STG_TESTS_SYSTEM_FIXTURE_H

#include <stdbool.h>
#include <sys/types.h>

#include "client/stager.h"
#include "client/transport/admin.h"

struct fixture {
    char dir[64];      /* the root of all folders */
    char runtime[128]; /* its runtime_dir */
    char config[128];
    pid_t pid;           /* of stagerd; 0: not running */
    bool enclosed;       /* in separate user, pid and mount namespaces */
    const char *preload; /* a library to preload; NULL: none */
};

/* Makes the folders and starts stagerd with these additional lines of settings ("" for
 * none). Returns once it answers; otherwise fails the test. */
void fixture_start(struct fixture *fixture, const char *settings);

/* Like fixture_start, in separate namespaces, with a library to preload (NULL: none).
 * Skips the test if namespaces are forbidden. */
void fixture_start_enclosed(struct fixture *fixture, const char *settings, bool enclosed,
                            const char *preload);

/* Starts it again in the same folders, after fixture_kill or fixture_stop. */
void fixture_restart(struct fixture *fixture);

/* Sends SIGTERM, waits, and checks that it ended with status 0 within 5 s. */
void fixture_stop(struct fixture *fixture);

/* Sends SIGKILL and waits. */
void fixture_kill(struct fixture *fixture);

/* Stops every process and removes the folders. */
void fixture_finish(struct fixture *fixture);

/* Writes a file below the fixture's folder; fills in path. */
void fixture_file(struct fixture *fixture, const char *name, const void *bytes, size_t n,
                  char path[256]);

/* Writes a file with n lines "first", "first+1", …, each a decimal number. */
void fixture_numbers(struct fixture *fixture, const char *name, int first, int n,
                     char path[256]);

/* Applies a pipeline given as text, replacing one of that name; fails the test on
 * error. */
void fixture_apply(struct fixture *fixture, const char *yaml);

/* Like fixture_apply, but returns the code and its text. */
int fixture_try_apply(struct fixture *fixture, const char *yaml, bool replace,
                      struct stg_err *err);

/* The status of a pipeline; strings are copied. */
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
/* Sends a request `kind` about the pipeline to stagerd. The reply is valid until the
 * caller closes its connection. Fails the test without a reply. */
struct stager *fixture_ask(struct fixture *fixture, enum stg_request_kind kind,
                           const char *name, struct stg_reply *ret);
/* Lists the nodes that run ahead, each preceded by a blank. */
void fixture_moved(const struct stg_pipeline_status *status, char *ret, size_t bytes);

void fixture_status(struct fixture *fixture, const char *name,
                    struct fixture_status *ret);

/* Returns the status of pipeline p and checks its counters: each batch that was made, and
 * each that was published, is counted in one place. */
struct fixture_status fixture_balance(struct fixture *fixture);

/* Polls the status (1 ms apart) until `until` returns true; fails the test after millis.
 * Returns the time taken in milliseconds. */
int64_t fixture_wait(struct fixture *fixture, const char *name, int64_t millis,
                     bool (*until)(const struct fixture_status *status, void *arg),
                     void *arg);

/* Opens a stream on this fixture, which does not reconnect; fails the test on error. */
struct stager_stream *fixture_open(struct fixture *fixture, const char *name,
                                   const char *client_id, uint32_t max_in_flight);

/* Takes the next batch; fails the test if none arrives within 20 s. */
struct stager_batch *fixture_take(struct stager_stream *stream);

/* Takes the next item, checks its `value` and releases it. Returns whether it was
 * redelivered. */
bool fixture_expect_value(struct stager_stream *stream, int64_t value);

/* Fails the test unless `next` ends with that code (positive) and a text that contains
 * `text`. */
void fixture_expect_code(struct stager_stream *stream, int code, const char *text);

/* Applies pipeline "p": the numbers below stop, one in each batch; staged: its keys. */
void fixture_apply_range(struct fixture *fixture, int stop, const char *staged);

/* Applies pipeline "rows", which never ends: batches of two numbers below 64, and 100,000
 * floats `pad`; staged: additional lines of `staged`, "capacity: 2". */
void fixture_apply_endless(struct fixture *fixture, const char *staged);

/* Fails the test unless `pad` has its expected contents: the batch was not
 * overwritten. */
void fixture_check_pad(const struct stager_batch *batch);

/* Returns the number of lines in stagerd's log that contain `text`. A thread writes them
 * soon after the event; only fixture_wait_log waits for one. */
unsigned fixture_count_log(const struct fixture *fixture, const char *text);

/* Blocks until a line of the log contains `text`; fails the test after 20 s. */
void fixture_wait_log(const struct fixture *fixture, const char *text);

/* ---- trainers ---- */

/* Forks a child that runs `body` and talks over a socket pair. */
struct trainer {
    pid_t pid;
    int fd;
};

void trainer_start(struct trainer *trainer,
                   void (*body)(struct fixture *fixture, int fd, void *arg),
                   struct fixture *fixture, void *arg);

/* Sends or receives one 8-byte number; fails the test if none arrives within 20 s. */
void trainer_send(int fd, int64_t value);
int64_t trainer_recv(int fd);

/* Waits for its end; fails the test unless it exits with 0. */
void trainer_join(struct trainer *trainer);

/* Sends SIGKILL and waits. */
void trainer_kill(struct trainer *trainer);

/* ---- processes in separate namespaces, as in a container ---- */

/* Like fork. The child runs with pid 1 in new user, pid and mount namespaces, which map
 * only its own user and group. Skips the test if the system forbids that. */
pid_t enclosed_fork(void);

/* Called in such a child: afterwards its root contains only `below`, as /run. `dir` is a
 * folder for the new root. */
void enclosed_root(const char *dir, const char *below);

/* ---- time ---- */

int64_t now_millis(void);

/* Returns a deadline, longer under a sanitizer (STG_TEST_SLOW). */
int64_t fixture_millis(int64_t millis);

#endif
