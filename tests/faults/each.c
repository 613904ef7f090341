/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/status.h"
#include "tests/check.h"
#include "tests/core/random.h"
#include "tests/faults/inside.h"

#define ALL_BELOW 24u /* calls of one kind; if there are more, this many are sampled */
#define N_WARM 3
/* memory kept after every call is a leak; kept after one call only, it is a cache */
#define N_TRIES 4

struct each {
    struct inside *inside;
    const struct inside_scenario *scenario;
    struct inside_state before;
    unsigned n_done, n_errors;
};

static int64_t now_millis(void)
{
    return (int64_t)(uv_hrtime() / 1000000);
}

static void wait_idle(struct each *each, struct inside_state *ret)
{
    if (each->scenario->outside_loop)
        *ret = (struct inside_state){.n_blocks = inject_blocks(),
                                     .n_fds = inside_count_fds()};
    else
        inside_wait_idle(each->inside, ret);
}

static void restore(struct inside *inside, const struct inside_scenario *scenario)
{
    char text[512] = "";
    if (scenario->restore != NULL) {
        scenario->restore(inside);
        return;
    }
    int rc = scenario->attempt(inside, text);
    if (rc < 0)
        FAIL("after %s: %d: %s", inside->doing, rc, text);
}

/* Injects one fault; fails the test unless an answer arrives in time. Returns whether the
 * failing call was made at all. */
static bool attempt(struct each *each, enum inject_call call, uint64_t n, bool for_ever)
{
    char text[512] = "", *doing = each->inside->doing;
    snprintf(doing, sizeof(each->inside->doing), "%s, %s %llu failed%s",
             each->scenario->name, inject_name(call), (unsigned long long)n,
             for_ever ? " and all after it" : "");
    int64_t start = now_millis();
    inject_arm(call, n, for_ever);
    int rc = each->scenario->attempt(each->inside, text);
    bool failed = inject_off() > 0;
    int64_t took = now_millis() - start;
    if (rc == -STAGER_DEADLINE_EXCEEDED || took > inside_millis(9000))
        FAIL("%s: no answer in %lld ms: %d %s", doing, (long long)took, rc, text);
    if (rc < 0 && text[0] == '\0')
        FAIL("%s: an error without words: %d", doing, rc);
    if (rc < 0 && !failed)
        FAIL("%s: nothing failed, and it returned %d %s", each->scenario->name, rc, text);
    if (getenv("STG_FAULTS_SHOW") != NULL)
        fprintf(stderr, "%s: %d %s (%lld ms)\n", doing, rc, text, (long long)took);
    each->n_errors += rc < 0;
    each->n_done++;
    struct inside_state state; /* work begun under the fault ends because of it */
    if (each->scenario->makes_run)
        inside_wait_alone(each->inside, &state);
    else
        wait_idle(each, &state);
    restore(each->inside, each->scenario);
    return failed;
}

static bool is_same(const struct inside_state *a, const struct inside_state *b)
{
    return a->n_blocks <= b->n_blocks && a->n_fds <= b->n_fds &&
           a->budget_used == b->budget_used && a->n_pipelines == b->n_pipelines;
}

/* Threads and libraries cache memory; a second run then takes no more. */
static void check(struct each *each, enum inject_call call, uint64_t n, bool for_ever)
{
    struct inside_state after;
    attempt(each, call, n, for_ever);
    wait_idle(each, &after);
    for (int i = 0; i < N_TRIES && !is_same(&after, &each->before); i++) {
        each->before.n_blocks = after.n_blocks;
        attempt(each, call, n, for_ever);
        wait_idle(each, &after);
    }
    const struct inside_state *b = &each->before;
    if (!is_same(&after, b))
        FAIL("%s: kept %lld blocks (%lld before), %d descriptors (%d), "
             "%llu bytes of budget (%llu), %u pipelines (%u)",
             each->inside->doing, (long long)after.n_blocks, (long long)b->n_blocks,
             after.n_fds, b->n_fds, (unsigned long long)after.budget_used,
             (unsigned long long)b->budget_used, after.n_pipelines, b->n_pipelines);
}

static void each_of(struct each *each, enum inject_call call, uint64_t n_calls,
                    struct random *random)
{
    bool all = n_calls <= ALL_BELOW || getenv("STG_FAULTS_ALL") != NULL;
    uint64_t n_drawn = all ? n_calls : ALL_BELOW;
    for (uint64_t i = 1; i <= n_drawn; i++) {
        uint64_t n = all ? i : 1 + random_next(random) % n_calls;
        check(each, call, n, false);
        /* A spare descriptor lets the daemon accept. Without doorbells a client polls
         * once a second. */
        if (call != INJECT_ACCEPT4 && (call != INJECT_SEND || i == 1))
            check(each, call, n, true);
    }
}

void inside_each(struct inside *inside, const struct inside_scenario *scenario)
{
    struct each each = {.inside = inside, .scenario = scenario};
    const char *given = getenv("STG_FAULTS_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    struct random random = {seed};
    uint64_t n_calls[INJECT_N];
    const char *only = getenv("STG_FAULTS_ONLY");
    for (int i = 0; i < N_WARM; i++)
        attempt(&each, INJECT_MALLOC, 0, false);
    for (int i = 0; i < INJECT_N; i++)
        n_calls[i] = 0;
    for (int k = 0; k < N_WARM; k++) { /* the largest of a few runs: threads vary */
        char text[512];
        inject_arm(INJECT_MALLOC, 0, false);
        CHECK(scenario->attempt(inside, text) == 0);
        inject_off();
        for (int i = 0; i < INJECT_N; i++)
            n_calls[i] = inject_count((enum inject_call)i) > n_calls[i]
                             ? inject_count((enum inject_call)i)
                             : n_calls[i];
        restore(inside, scenario);
    }
    wait_idle(&each, &each.before);
    each.n_done = each.n_errors = 0;
    for (int i = 0; i < INJECT_N; i++) {
        enum inject_call call = (enum inject_call)i;
        if ((scenario->spared >> i & 1) == 0 &&
            (only == NULL || strcmp(only, inject_name(call)) == 0))
            each_of(&each, call, n_calls[i], &random);
    }
    printf("     %s: %u faults, %u of them reported as errors; STG_FAULTS_SEED=%llu\n",
           scenario->name, each.n_done, each.n_errors, (unsigned long long)seed);
}
