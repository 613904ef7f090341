/* SPDX-License-Identifier: Apache-2.0
 *
 * What fetch.c (waiters), answer.c (what servers send) and fetcher.c (the threads)
 * share.
 */
#ifndef STG_DAEMON_FETCH_PRIV_H
#define STG_DAEMON_FETCH_PRIV_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/clock.h"
#include "daemon/storage/http/fetch.h"

#define STG_SAID_BYTES 2048

struct stg_fetcher;

/* The answer to one attempt, so far. Only for the fetcher. */
struct stg_answer {
    struct stg_head head;
    bool judged; /* the head was checked: the body has bytes of the object */
    uint64_t retry_after_ms;
    char said[STG_SAID_BYTES]; /* the body of an error answer, truncated */
    size_t n_said;
};

struct stg_fetch {
    _Atomic uint32_t refs; /* its owner, waiters, its fetcher */
    struct stg_fetch_plan plan;
    struct stg_fetcher *fetcher;
    atomic_bool cancelled;

    pthread_mutex_t lock; /* guards these */
    pthread_cond_t moved;
    uint64_t n;     /* valid bytes: stg_progress_sure */
    bool answered;  /* version is final */
    bool is_cached; /* it is plan.cached */
    bool done;      /* the fetch has ended */
    int code;       /* negative: it failed */
    struct stg_err err;
    uint64_t elapsed_ns;
    struct stg_version version;

    /* Only for the fetcher. */
    struct stg_fetch *next, *prev;
    CURL *easy; /* NULL: it waits for its next attempt */
    struct curl_slist *headers;
    char refused[64]; /* the address that it may not go to */
    struct stg_answer answer;
    unsigned n_attempts; /* consecutive failed attempts */
    uint64_t n_before;   /* n when this attempt began */
    struct stg_progress progress;
    uint64_t began_ns, due_ns;
    int failed; /* code of a fault of the answer; the attempt must end */
    bool again; /* another attempt may succeed */
    struct stg_err failure;
};

/* answer.c. curl's callbacks; userdata is the fetch. */
size_t stg_answer_header(char *line, size_t size, size_t n, void *fetch);
size_t stg_answer_body(char *bytes, size_t size, size_t n, void *fetch);
/* Ends an attempt. clean: curl reports success. Returns true if all bytes have arrived.
 * False: see failed and again; both are 0 if only curl has the reason. */
bool stg_answer_end(struct stg_fetch *fetch, bool clean);

/* fetch.c. Creates a fetch without a thread: stg_fetch_start assigns it to one, and
 * stg_fetch_cancel wakes that thread. RESOURCE_EXHAUSTED. */
int stg_fetch_create(const struct stg_fetch_plan *plan, struct stg_fetch **ret,
                     struct stg_err *err);

/* fetch.c. For the fetcher: report that bytes have arrived, that the server has answered,
 * that the fetch has ended (code 0: successfully). */
void stg_fetch_came(struct stg_fetch *fetch);
void stg_fetch_answered(struct stg_fetch *fetch);
void stg_fetch_done(struct stg_fetch *fetch, int code, const struct stg_err *err);

#endif
