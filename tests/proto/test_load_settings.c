/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings that do not load, with their errors: the whole text, with line and column. And
 * streams of a GPU.
 */
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"

struct error_case {
    const char *text, *want;
};

static void settings_have_errors_with_places(void)
{
    static const struct error_case cases[] = {
        {"runtimedir: /x\n",
         "s:1:1: unknown key \"runtimedir\"; did you mean \"runtime_dir\"?"},
        {"max_clients: 0\n",
         "s:1:14: max_clients: found 0; expected an integer from 1 to 65536"},
        {"thread_pools:\n- {global_name: a}\n- {}\n",
         "s:3:3: thread_pools[1].global_name: missing; add \"global_name: ...\" here"},
        {"thread_pools: [{global_name: a, inter_op_threads_num: 0}]\n",
         "s:1:55: thread_pools[0].inter_op_threads_num: found 0; expected an integer "
         "from "
         "1 to 1024"},
        {"thread_pools: [{global_name: a, intra_op_threads_num: 1025}]\n",
         "s:1:55: thread_pools[0].intra_op_threads_num: found 1025; expected an integer "
         "from 1 to 1024"},
        {"thread_pools: [{global_name: a b}]\n",
         "s:1:30: thread_pools[0].global_name: \"a b\": not a valid name; use 1 to 64 "
         "letters, "
         "digits, '_', '.' or '-'"},
        {"thread_pools: {global_name: a}\n",
         "s:1:15: thread_pools: found a mapping; expected a list; begin each entry with "
         "\"- \""},
        {"- a\n", "s:1:1: found a list; expected a mapping (\"key: value\")"},
        {"quotas:\n- {memory: 1GiB}\n",
         "s:2:3: quotas: an entry needs user or group, and not both"},
        {"quotas: [{user: ann, weight: 0}]\n",
         "s:1:10: quotas: weight is 0: it must be from 1 to 100"},
        {"quotas: [{user: ann, weight: 101}]\n",
         "s:1:10: quotas: weight is 101: it must be from 1 to 100"},
        {"quotas: [{user: ann, group: x}]\n",
         "s:1:10: quotas: an entry needs user or group, and not both"},
        {"quotas: [{user: ann, requests_per_second: 0}]\n",
         "s:1:43: quotas[0].requests_per_second: found 0; expected an integer from 1 to "
         "4294967295"},
        {"memory_budget: 1GIB\n", "s:1:16: memory_budget: found 1GIB; expected an "
                                  "integer of at least 0; units are "
                                  "KiB MiB GiB TiB KB MB GB TB"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stg_settings settings = {0};
        struct stg_err err = {0};
        CHECK_INT(
            stg_load_settings(cases[i].text, strlen(cases[i].text), "s", &settings, &err),
            -STAGER_INVALID_ARGUMENT);
        CHECK_STR(err.text, cases[i].want);
        CHECK(settings.runtime_dir == NULL);
    }
}

static void streams_of_a_gpu_are_read(void)
{
    static const char text[] =
        "gpu: {use_multi_stream: true, multi_stream_num: 3, stage_multi_stream: true}\n";
    struct stg_settings s;
    struct stg_err err = {0};
    CHECK_OK(stg_load_settings("", 0, "s", &s, &err), err);
    CHECK(!s.gpu.use_multi_stream && !s.gpu.stage_multi_stream);
    CHECK_INT(s.gpu.multi_stream_num, 1);
    stg_settings_finish(&s);
    CHECK_OK(stg_load_settings(text, strlen(text), "s", &s, &err), err);
    CHECK(s.gpu.use_multi_stream && s.gpu.stage_multi_stream);
    CHECK_INT(s.gpu.multi_stream_num, 3);
    stg_settings_finish(&s);
}

static const struct stg_test tests[] = {
    TEST(settings_have_errors_with_places),
    TEST(streams_of_a_gpu_are_read),
};

TEST_MAIN(tests)
