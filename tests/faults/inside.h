/* SPDX-License-Identifier: Apache-2.0
 *
 * A stagerd inside the test process, its loop on a thread of its own, so that what it
 * keeps can be counted to the block; and the loop over all faults. The test's thread is
 * the client, by libstager and the real socket.
 */
#ifndef STG_TESTS_FAULTS_INSIDE_H
#define STG_TESTS_FAULTS_INSIDE_H

#include <pthread.h>

#include "daemon/server/server.h"
#include "tests/faults/inject.h"

/* What the daemon keeps when nobody is there. */
struct inside_state {
    uint32_t n_sessions, n_instances, n_pipelines, max_clients;
    uint64_t budget_used;
    int64_t n_blocks;
    int n_fds;
};

struct inside {
    char dir[64]; /* everything is below it */
    char runtime[128], config[128], pipelines[128];
    struct stg_settings settings;
    struct stg_server server;
    pthread_t thread;
    uv_async_t probe;
    pthread_mutex_t lock; /* guards seen and n_seen */
    pthread_cond_t changed;
    struct inside_state seen;
    uint64_t n_seen;
    char doing[160]; /* the fault of this moment, for messages */
};

/* Makes the folders and the file of settings; starts nothing. */
void inside_init(struct inside *inside);
void inside_finish(struct inside *inside); /* removes the folders */

/* Starts the daemon and its thread; fails the test if that fails. SIGTERM ends it. */
void inside_start(struct inside *inside);
void inside_stop(struct inside *inside);

/* Waits until the daemon has neither sessions nor instances; fails the test when it still
 * has after 5 s. */
void inside_settle(struct inside *inside, struct inside_state *ret);

/* A deadline, longer under a sanitizer (STG_TEST_SLOW). */
int64_t inside_millis(int64_t millis);

/* Descriptors of this process now. */
int inside_count_fds(void);

/* A request over a connection of its own. Its code; text gets the error's words. */
struct stg_request;
int inside_call(struct inside *inside, struct stg_request *request, char text[512]);
int inside_apply(struct inside *inside, const char *name, const char *yaml, bool replace,
                 char text[512]);
int inside_delete(struct inside *inside, const char *name, char text[512]);

/* Writes a file below dir; its path lives until the next call. */
const char *inside_file(struct inside *inside, const char *name, const char *text);

/* One thing to do under faults. */
struct inside_scenario {
    const char *name;
    /* Under a fault: returns a code and, when that is negative, words. No code but
     * DEADLINE_EXCEEDED is wrong: no wait may be in vain. */
    int (*attempt)(struct inside *inside, char text[512]);
    /* Without one: everything works, and what attempt may have made is gone. NULL:
     * attempt makes nothing, and now returns 0. */
    void (*restore)(struct inside *inside);
    bool outside_loop; /* attempt runs the daemon itself: no thread is there to settle */
    uint64_t spared;   /* bit i: call i does not fail */
};

/* Runs it with the first malloc failing, then the second, and so on for each call of
 * inject.h; each alone, and with all that follow. After each: an answer in time; the
 * daemon keeps no block, no descriptor and no budget; restore works. More than a bound of
 * calls of a kind are sampled by a seed, which is printed: STG_FAULTS_SEED=n repeats it,
 * STG_FAULTS_ALL=1 takes all. */
void inside_each(struct inside *inside, const struct inside_scenario *scenario);

#endif
