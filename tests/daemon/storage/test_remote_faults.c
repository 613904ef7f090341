/* SPDX-License-Identifier: Apache-2.0
 *
 * Each of the daemon's calls of libcurl fails once, and then from that call on. A read
 * ends with all bytes or with an error, and the next one succeeds.
 */
#include <curl/curl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "daemon/storage/http/fetcher.h"
#include "tests/check.h"
#include "tests/daemon/storage/remote_server.h"

#define SIZE 100000

/* ---- faults ---- */

static const char *const names[] = {
    "global_init",  "easy_init",     "easy_setopt",  "easy_getinfo",
    "slist_append", "multi_init",    "multi_setopt", "multi_add_handle",
    "multi_remove", "multi_perform", "multi_poll",   "multi_wakeup",
};

enum call {
    GLOBAL_INIT,
    EASY_INIT,
    EASY_SETOPT,
    EASY_GETINFO,
    SLIST_APPEND,
    MULTI_INIT,
    MULTI_SETOPT,
    MULTI_ADD,
    MULTI_REMOVE,
    MULTI_PERFORM,
    MULTI_POLL,
    MULTI_WAKEUP,
    N_CALLS
};

static _Atomic int armed = N_CALLS;
static _Atomic unsigned count, first, last, n_failed;

static void arm(enum call call, unsigned from, unsigned to)
{
    atomic_store(&armed, N_CALLS);
    atomic_store(&count, 0);
    atomic_store(&n_failed, 0);
    atomic_store(&first, from);
    atomic_store(&last, to);
    atomic_store(&armed, call);
}

static bool fails(enum call call)
{
    if (atomic_load(&armed) != (int)call)
        return false;
    unsigned n = atomic_fetch_add(&count, 1) + 1;
    if (n < atomic_load(&first) || n > atomic_load(&last))
        return false;
    atomic_fetch_add(&n_failed, 1);
    return true;
}

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

CURLcode __real_curl_global_init(long flags);
CURL *__real_curl_easy_init(void);
CURLcode __real_curl_easy_setopt(CURL *easy, CURLoption option, ...);
CURLcode __real_curl_easy_getinfo(CURL *easy, CURLINFO info, ...);
struct curl_slist *__real_curl_slist_append(struct curl_slist *list, const char *text);
CURLM *__real_curl_multi_init(void);
CURLMcode __real_curl_multi_setopt(CURLM *multi, CURLMoption option, ...);
CURLMcode __real_curl_multi_add_handle(CURLM *multi, CURL *easy);
CURLMcode __real_curl_multi_remove_handle(CURLM *multi, CURL *easy);
CURLMcode __real_curl_multi_perform(CURLM *multi, int *running);
CURLMcode __real_curl_multi_poll(CURLM *multi, struct curl_waitfd *fds, unsigned n,
                                 int timeout_ms, int *ret);
CURLMcode __real_curl_multi_wakeup(CURLM *multi);
CURLcode __wrap_curl_global_init(long flags);
CURL *__wrap_curl_easy_init(void);
CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...);
CURLcode __wrap_curl_easy_getinfo(CURL *easy, CURLINFO info, ...);
struct curl_slist *__wrap_curl_slist_append(struct curl_slist *list, const char *text);
CURLM *__wrap_curl_multi_init(void);
CURLMcode __wrap_curl_multi_setopt(CURLM *multi, CURLMoption option, ...);
CURLMcode __wrap_curl_multi_add_handle(CURLM *multi, CURL *easy);
CURLMcode __wrap_curl_multi_remove_handle(CURLM *multi, CURL *easy);
CURLMcode __wrap_curl_multi_perform(CURLM *multi, int *running);
CURLMcode __wrap_curl_multi_poll(CURLM *multi, struct curl_waitfd *fds, unsigned n,
                                 int timeout_ms, int *ret);
CURLMcode __wrap_curl_multi_wakeup(CURLM *multi);

CURLcode __wrap_curl_global_init(long flags)
{
    return fails(GLOBAL_INIT) ? CURLE_FAILED_INIT : __real_curl_global_init(flags);
}

CURL *__wrap_curl_easy_init(void)
{
    return fails(EASY_INIT) ? NULL : __real_curl_easy_init();
}

/* Calls with a long or a pointer as last argument are passed the same way. */
#define WRAP_OPTION(code, option, function, call, failure)                               \
    code __wrap_##function(void *handle, option number, ...)                             \
    {                                                                                    \
        va_list args;                                                                    \
        va_start(args, number);                                                          \
        void *value = va_arg(args, void *);                                              \
        va_end(args);                                                                    \
        return fails(call) ? failure : __real_##function(handle, number, value);         \
    }

WRAP_OPTION(CURLcode, CURLoption, curl_easy_setopt, EASY_SETOPT, CURLE_OUT_OF_MEMORY)
WRAP_OPTION(CURLcode, CURLINFO, curl_easy_getinfo, EASY_GETINFO, CURLE_UNKNOWN_OPTION)
WRAP_OPTION(CURLMcode, CURLMoption, curl_multi_setopt, MULTI_SETOPT, CURLM_UNKNOWN_OPTION)

struct curl_slist *__wrap_curl_slist_append(struct curl_slist *list, const char *text)
{
    return fails(SLIST_APPEND) ? NULL : __real_curl_slist_append(list, text);
}

CURLM *__wrap_curl_multi_init(void)
{
    return fails(MULTI_INIT) ? NULL : __real_curl_multi_init();
}

CURLMcode __wrap_curl_multi_add_handle(CURLM *multi, CURL *easy)
{
    return fails(MULTI_ADD) ? CURLM_OUT_OF_MEMORY
                            : __real_curl_multi_add_handle(multi, easy);
}

CURLMcode __wrap_curl_multi_remove_handle(CURLM *multi, CURL *easy)
{
    return fails(MULTI_REMOVE) ? CURLM_INTERNAL_ERROR
                               : __real_curl_multi_remove_handle(multi, easy);
}

CURLMcode __wrap_curl_multi_perform(CURLM *multi, int *running)
{
    return fails(MULTI_PERFORM) ? CURLM_OUT_OF_MEMORY
                                : __real_curl_multi_perform(multi, running);
}

CURLMcode __wrap_curl_multi_poll(CURLM *multi, struct curl_waitfd *fds, unsigned n,
                                 int timeout_ms, int *ret)
{
    return fails(MULTI_POLL) ? CURLM_OUT_OF_MEMORY
                             : __real_curl_multi_poll(multi, fds, n, timeout_ms, ret);
}

CURLMcode __wrap_curl_multi_wakeup(CURLM *multi)
{
    return fails(MULTI_WAKEUP) ? CURLM_WAKEUP_FAILURE : __real_curl_multi_wakeup(multi);
}

/* ---- reads ---- */

/* Uses new threads, so that their initial calls are covered too. */
static int64_t read_object(struct stg_err *err)
{
    stg_test_fetch_with(1000, 1);
    return stg_test_read_url(stg_test_server_url("/object/a?size=%d", SIZE), 0, err);
}

/* Returns whether the call was reached. */
static bool try(enum call call, unsigned from, unsigned to)
{
    struct stg_err err = {0};
    arm(call, from, to);
    int64_t n = read_object(&err);
    unsigned failed = atomic_load(&n_failed);
    atomic_store(&armed, N_CALLS);
    stg_fetchers_finish();
    if (n != SIZE && n != -STAGER_RESOURCE_EXHAUSTED && n != -STAGER_UNAVAILABLE)
        FAIL("%s, call %u to %u: %lld: %s", names[call], from, to, (long long)n,
             err.text);
    if (n < 0)
        CHECK_CONTAINS(err.text, "http://127.0.0.1:");
    return failed > 0;
}

static void fail_each(enum call call)
{
    unsigned n = 1;
    stg_test_server_start();
    while (n <= 200 && try(call, n, n) && try(call, n, UINT32_MAX))
        n += n < 40 ? 1 : 7;
    struct stg_err err = {0};
    CHECK_INT(read_object(&err), SIZE);
    stg_test_server_stop();
    fprintf(stderr, "    curl_%s: the first %u calls failed\n", names[call], n - 1);
    CHECK(n > 1);
}

static void what_begins_a_fetch_fails(void)
{
    fail_each(GLOBAL_INIT);
    fail_each(EASY_INIT);
    fail_each(MULTI_INIT);
    fail_each(MULTI_SETOPT);
    fail_each(SLIST_APPEND);
}

static void each_option_of_a_request_fails(void)
{
    fail_each(EASY_SETOPT);
}

static void each_look_at_an_answer_fails(void)
{
    fail_each(EASY_GETINFO);
}

static void a_request_that_is_not_taken_is_an_error(void)
{
    struct stg_err err = {0};
    fail_each(MULTI_ADD);
    stg_test_server_start();
    arm(MULTI_ADD, 1, 1);
    CHECK_INT(read_object(&err), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "/object/a?…: Out of memory");
    stg_test_server_stop();
}

static void each_step_of_the_threads_fails(void)
{
    fail_each(MULTI_REMOVE);
    fail_each(MULTI_PERFORM);
}

static void each_wait_of_the_threads_fails(void)
{
    fail_each(MULTI_POLL);
    fail_each(MULTI_WAKEUP);
}

static const struct stg_test tests[] = {
    TEST_SLOW(what_begins_a_fetch_fails, 120),
    TEST_SLOW(each_option_of_a_request_fails, 120),
    TEST_SLOW(each_look_at_an_answer_fails, 120),
    TEST_SLOW(a_request_that_is_not_taken_is_an_error, 120),
    TEST_SLOW(each_step_of_the_threads_fails, 120),
    TEST_SLOW(each_wait_of_the_threads_fails, 120),
};
TEST_MAIN(tests)
