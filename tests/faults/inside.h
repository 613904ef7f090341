/* SPDX-License-Identifier: Apache-2.0
 *
 * A stagerd inside the test process, with its loop on a separate thread, so that every
 * block it keeps can be counted; and the loop over all faults. The test's thread is the
 * client, through libstager and the real socket.
 */
#ifndef STG_TESTS_FAULTS_INSIDE_H
#define STG_TESTS_FAULTS_INSIDE_H

#include <pthread.h>

#include "daemon/server/server.h"
#include "tests/faults/inject.h"

/* The daemon's state without clients. */
struct inside_state {
    uint32_t n_sessions, n_instances, n_pipelines, max_clients;
    uint64_t budget_used;
    int64_t n_blocks;
    int n_fds;
};

struct inside {
    char dir[64]; /* the root of all folders */
    char runtime[128], config[128], pipelines[128];
    struct stg_settings settings;
    struct stg_server server;
    pthread_t thread;
    uv_async_t probe;
    pthread_mutex_t lock; /* guards seen and n_seen */
    pthread_cond_t changed;
    struct inside_state seen;
    uint64_t n_seen;
    char doing[160]; /* the current fault, for messages */
};

/* Makes the folders and the settings file; starts nothing. */
void inside_init(struct inside *inside);
void inside_finish(struct inside *inside); /* Removes the folders. */

/* Starts the daemon and its thread; fails the test on failure. SIGTERM ends it. */
void inside_start(struct inside *inside);
void inside_stop(struct inside *inside);

/* Waits until the daemon has neither sessions nor instances; fails the test after 5 s. */
void inside_wait_idle(struct inside *inside, struct inside_state *ret);

/* Waits until it has no sessions; instances may be left. */
void inside_wait_alone(struct inside *inside, struct inside_state *ret);

/* Returns a deadline, longer under a sanitizer (STG_TEST_SLOW). */
int64_t inside_millis(int64_t millis);

/* Returns the number of open descriptors of this process. */
int inside_count_fds(void);

/* Sends a request over a new connection. Returns its code; text gets the error's text. */
struct stg_request;
int inside_call(struct inside *inside, struct stg_request *request, char text[512]);
int inside_apply(struct inside *inside, const char *name, const char *yaml, bool replace,
                 char text[512]);
int inside_delete(struct inside *inside, const char *name, char text[512]);

/* Writes a file below dir; its path is valid until the next call. */
const char *inside_file(struct inside *inside, const char *name, const char *text);

/* An operation to run under faults. */
struct inside_scenario {
    const char *name;
    /* Runs under a fault: returns a code and, if it is negative, a text. Every code
     * except DEADLINE_EXCEEDED is right: no wait may run into its timeout. */
    int (*attempt)(struct inside *inside, char text[512]);
    /* Runs without a fault: everything works, and whatever attempt made is removed. NULL:
     * attempt makes nothing, and now returns 0. */
    void (*restore)(struct inside *inside);
    /* attempt runs the daemon itself: no thread needs to come to rest */
    bool outside_loop;
    uint64_t spared; /* bit i: call i does not fail */
    bool makes_run;  /* attempt makes an instance, which restore ends */
};

/* Runs it with the first malloc failing, then the second, and so on for each call of
 * inject.h; each call alone, and with all that follow. After each run: an answer came in
 * time; the daemon keeps no block, no descriptor and no budget; restore works. Above a
 * limit, calls of a kind are sampled by a seed, which is printed: STG_FAULTS_SEED=n
 * repeats it, STG_FAULTS_ALL=1 takes all. */
void inside_each(struct inside *inside, const struct inside_scenario *scenario);

#endif
