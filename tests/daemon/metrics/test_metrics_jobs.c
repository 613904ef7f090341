/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of jobs: numbers, names, its end.
 */
#include "daemon/metrics/jobs.h"

#include <stdio.h>
#include <string.h>

#include "tests/check.h"

static void a_name_has_one_number(void)
{
    static struct stg_jobs jobs;
    uint32_t first = stg_jobs_find(&jobs, "ablation-7");
    uint32_t second = stg_jobs_find(&jobs, "ablation");
    CHECK(first != second);
    CHECK_INT(stg_jobs_find(&jobs, "ablation-7"), first);
    CHECK_STR(stg_jobs_name(&jobs, first), "ablation-7");
    CHECK_STR(stg_jobs_name(&jobs, second), "ablation");
    CHECK_INT(stg_jobs_find(&jobs, NULL), 0);
    CHECK_INT(stg_jobs_find(&jobs, ""), 0);
    CHECK_STR(stg_jobs_name(&jobs, 0), "");
}

static void the_list_ends(void)
{
    static struct stg_jobs jobs;
    char name[4096];
    for (int i = 0; i < 10 * STG_JOBS; i++) {
        snprintf(name, sizeof(name), "job-%d", i);
        uint32_t number = stg_jobs_find(&jobs, name);
        CHECK_STR(stg_jobs_name(&jobs, number), i < STG_JOBS ? name : "other");
    }
    CHECK_INT(stg_jobs_find(&jobs, "job-3"), 4);
}

static void a_long_name_is_cut(void)
{
    static struct stg_jobs jobs;
    char name[4096];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    uint32_t number = stg_jobs_find(&jobs, name);
    CHECK_INT(strlen(stg_jobs_name(&jobs, number)), STG_JOB_BYTES - 1);
    name[100] = 'y';
    CHECK_INT(stg_jobs_find(&jobs, name), number);
}

static const struct stg_test tests[] = {
    TEST(a_name_has_one_number),
    TEST(the_list_ends),
    TEST(a_long_name_is_cut),
};

TEST_MAIN(tests)
