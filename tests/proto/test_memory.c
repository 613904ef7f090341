/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation fails once, and every allocation from one on. The call returns
 * RESOURCE_EXHAUSTED or succeeds without it. Linked with --wrap for the project's
 * allocations; yaml_malloc and yaml_realloc are replaced by name.
 */
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "proto/load.h"
#include "proto/wire.h"
#include "tests/check.h"
#include "tests/proto/example.h"
#include "tests/proto/golden.h"

void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
YAML_DECLARE(void *) yaml_malloc(size_t bytes);
YAML_DECLARE(void *) yaml_realloc(void *pointer, size_t bytes);
YAML_DECLARE(yaml_char_t *) yaml_strdup(const yaml_char_t *s);

static long n_allocations, fail_from, fail_to;

static bool fails(void)
{
    n_allocations++;
    return n_allocations >= fail_from && n_allocations <= fail_to;
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return fails() ? NULL : __real_aligned_alloc(align, bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __real_calloc(n, bytes);
}

__attribute__((visibility("default"))) void *yaml_malloc(size_t bytes)
{
    return fails() ? NULL : malloc(bytes > 0 ? bytes : 1);
}

__attribute__((visibility("default"))) void *yaml_realloc(void *pointer, size_t bytes)
{
    return fails() ? NULL : realloc(pointer, bytes > 0 ? bytes : 1);
}

__attribute__((visibility("default"))) yaml_char_t *yaml_strdup(const yaml_char_t *s)
{
    return s == NULL || fails() ? NULL : (yaml_char_t *)strdup((const char *)s);
}

static unsigned char buf[STG_MESSAGE_MAX_BYTES];

static int load_pipeline(void)
{
    struct stg_pipeline_spec *spec = NULL;
    struct stg_err err = {0};
    int rc = stg_load_pipeline(example_yaml, strlen(example_yaml), "p", &spec, &err);
    if (rc < 0)
        CHECK(spec == NULL && err.text[0] != '\0');
    stg_pipeline_spec_destroy(spec);
    return rc;
}

static int load_settings(void)
{
    static const char text[] = "runtime_dir: /x\nthread_pools: [{global_name: a}]\n";
    struct stg_settings settings = {0};
    struct stg_err err = {0};
    int rc = stg_load_settings(text, strlen(text), "s", &settings, &err);
    stg_settings_finish(&settings);
    return rc;
}

static int decode_request(void)
{
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_request request;
    int rc = stg_wire_decode_request(golden_request_apply, sizeof(golden_request_apply),
                                     &bump, &request, &err);
    stg_bump_finish(&bump);
    return rc;
}

static int reply_there_and_back(void)
{
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_reply reply;
    struct stg_pipeline_spec *spec = NULL;
    int rc = stg_wire_decode_reply(golden_reply_open, sizeof(golden_reply_open), &bump,
                                   &reply, &err);
    if (rc == 0)
        rc = stg_wire_decode_pipeline(golden_reply_open, sizeof(golden_reply_open), &spec,
                                      &err);
    if (rc == 0) {
        reply.pipeline = spec;
        long n = stg_wire_encode_reply(&reply, buf, sizeof(buf));
        rc = n < 0 ? (int)n : 0;
    }
    stg_pipeline_spec_destroy(spec);
    stg_bump_finish(&bump);
    return rc;
}

static int status_there_and_back(void)
{
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_reply reply;
    int rc = stg_wire_decode_reply(golden_reply_status, sizeof(golden_reply_status),
                                   &bump, &reply, &err);
    if (rc == 0) {
        long n = stg_wire_encode_reply(&reply, buf, sizeof(buf));
        rc = n < 0 ? (int)n : 0;
    }
    stg_bump_finish(&bump);
    return rc;
}

/* `to` 0: only the n-th fails; LONG_MAX: all from the n-th on. */
static void check_failing(int (*call)(void), long at_least, bool for_ever)
{
    fail_from = fail_to = n_allocations = 0;
    CHECK_INT(call(), 0);
    long total = n_allocations;
    CHECK(total >= at_least);
    for (long i = 1; i <= total; i++) {
        fail_from = i;
        fail_to = for_ever ? total * 2 + 1000 : i;
        n_allocations = 0;
        int rc = call();
        if (rc != -STAGER_RESOURCE_EXHAUSTED && (rc != 0 || for_ever))
            FAIL("allocation %ld of %ld failed, and the call returned %d", i, total, rc);
    }
    fail_from = fail_to = 0;
    CHECK_INT(call(), 0);
}

static void a_failed_allocation_is_said_to_be_one(void)
{
    check_failing(load_pipeline, 20, false);
    check_failing(load_settings, 10, false);
    check_failing(decode_request, 1, false);
    check_failing(reply_there_and_back, 3, false);
    check_failing(status_there_and_back, 2, false);
}

static void without_any_memory_the_same(void)
{
    check_failing(load_pipeline, 20, true);
    check_failing(load_settings, 10, true);
    check_failing(decode_request, 1, true);
    check_failing(reply_there_and_back, 3, true);
    check_failing(status_there_and_back, 2, true);
}

static const struct stg_test tests[] = {
    TEST(a_failed_allocation_is_said_to_be_one),
    TEST(without_any_memory_the_same),
};

TEST_MAIN(tests)
