/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of an executor: shared buffers and overwritten ones, without a visible
 * effect.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/exec/priv.h"
#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

#define N_NODES 24

static struct stg_tensor numbers(struct fixture_stage *stage, int64_t n)
{
    float *data = calloc((size_t)n + 1, sizeof(*data));
    CHECK(data != NULL);
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)(i * 7 % 23) - 11;
    struct stg_tensor ret = fixture_dense(&stage->bump, STAGER_FLOAT32, 1, &n, data);
    free(data);
    return ret;
}

/* ---- shared buffers ---- */

static void a_chain_takes_turns_in_two_buffers(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, "element x float32 [-1]\n"
                               "two = constant() value=2.0\n"
                               "a = divide(x, two)\n"
                               "b = divide(a, two)\n"
                               "c = divide(b, two)\n"
                               "d = divide(c, two)\n"
                               "e = divide(d, two)\n"
                               "feature e = e\n");
    CHECK_INT(stage.run->n_buffers, 2);
    struct stg_err err = {0};
    struct stg_tensor feed = numbers(&stage, 100), out;
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, &out, &err), err);
    CHECK(((const float *)out.data)[5] == ((const float *)feed.data)[5] / 32);
    fixture_stage_finish(&stage);
}

static void what_is_viewed_is_not_given_away(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, "element x float32 [-1]\n"
                               "two = constant() value=2.0\n"
                               "a = divide(x, two)\n"
                               "view = reshape(a) shape=[-1]\n"
                               "b = divide(a, two)\n"
                               "c = divide(b, two)\n"
                               "sum = add(view, c)\n"
                               "feature sum = sum\n");
    struct stg_err err = {0};
    struct stg_tensor feed = numbers(&stage, 100), out;
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, &out, &err), err);
    for (int i = 0; i < 100; i++)
        CHECK(((const float *)out.data)[i] ==
              ((const float *)feed.data)[i] / 2 + ((const float *)feed.data)[i] / 8);
    fixture_stage_finish(&stage);
}

/* The memory of its input, and no more. */
static void an_element_by_element_op_writes_where_it_reads(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, "element x float32 [-1]\n"
                               "two = constant() value=2.0\n"
                               "a = divide(x, two)\n"
                               "b = relu(a)\n"
                               "c = add(b, two)\n"
                               "d = negative(c)\n"
                               "feature d = d\n");
    struct stg_err err = {0};
    struct stg_tensor feed = numbers(&stage, 1000), out;
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, &out, &err), err);
    uint64_t bytes = 0;
    for (size_t i = 0; i < stage.run->n_buffers; i++)
        bytes += stage.run->buffers[i].bytes;
    CHECK(bytes >= 4000 && bytes < 5000);
    for (int i = 0; i < 1000; i++) {
        float x = ((const float *)feed.data)[i] / 2;
        CHECK(((const float *)out.data)[i] == -((x < 0 ? 0 : x) + 2));
    }
    fixture_stage_finish(&stage);
}

static void a_feed_is_never_written_to(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, "element x float32 [-1]\n"
                               "c = constant() value=[1.0, -2.0, 3.0]\n"
                               "a = negative(x)\n"
                               "view = identity(x)\n"
                               "b = relu(view)\n"
                               "d = add(c, a)\n"
                               "feature b = b\n"
                               "feature d = d\n");
    struct stg_err err = {0};
    struct stg_tensor feed = numbers(&stage, 3), out[2];
    float before[3];
    memcpy(before, feed.data, sizeof(before));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
        CHECK(memcmp(before, feed.data, sizeof(before)) == 0);
        CHECK(((const float *)out[1].data)[1] == -2 - before[1]);
    }
    fixture_stage_finish(&stage);
}

/* ---- any graph ---- */

static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

/* Nodes n0 … of one shape, each computed from earlier ones; all are features, or some. */
static void random_graph(uint64_t seed, bool all, char *text, size_t bytes)
{
    static const char *const ones[] = {
        "identity(%s)",
        "negative(%s)",
        "relu(%s)",
        "reshape(%s) shape=[-1]",
        "cast(%s) dtype=\"float32\"",
        "concat(%s)",
        "clip_by_value(%s) clip_value_min=-9 clip_value_max=9"};
    static const char *const twos[] = {"add(%s, %s)", "subtract(%s, %s)",
                                       "maximum(%s, %s)", "divide(%s, %s)"};
    uint64_t state = seed;
    size_t used = (size_t)snprintf(text, bytes,
                                   "element x float32 [-1]\n"
                                   "s = constant() value=2.0\n");
    for (uint32_t i = 0; i < N_NODES; i++) {
        char a[8] = "x", b[8] = "s";
        if (i > 0)
            snprintf(a, sizeof(a), "n%u", draw(&state, i));
        if (i > 0 && draw(&state, 3) > 0)
            snprintf(b, sizeof(b), "n%u", draw(&state, i));
        bool is_one = draw(&state, 2) == 0;
        char call[128];
        snprintf(call, sizeof(call),
                 is_one ? ones[draw(&state, 7)] : twos[draw(&state, 4)], a, b);
        used += (size_t)snprintf(text + used, bytes - used, "n%u = %s\n", i, call);
    }
    for (uint32_t i = 0; i < N_NODES; i++) {
        if (all || i == N_NODES - 1 || i == seed % N_NODES)
            used +=
                (size_t)snprintf(text + used, bytes - used, "feature n%u = n%u\n", i, i);
    }
}

static void check_feature(const struct fixture_stage *all, const struct stg_tensor *want,
                          const struct fixture_stage *some, const struct stg_tensor *got,
                          uint64_t seed)
{
    for (size_t i = 0; i < stg_graph_boundary(some->graph)->n; i++) {
        const char *name = stg_graph_boundary(some->graph)->components[i].name;
        size_t k = 0;
        while (strcmp(stg_graph_boundary(all->graph)->components[k].name, name) != 0)
            k++;
        if (got[i].data_bytes != want[k].data_bytes ||
            memcmp(got[i].data, want[k].data, want[k].data_bytes) != 0)
            FAIL("seed %llu: %s is another when it is not kept", (unsigned long long)seed,
                 name);
    }
}

static void sharing_changes_no_value(void)
{
    static char text[8192];
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct fixture_stage all, some;
        struct stg_err err = {0};
        random_graph(seed, true, text, sizeof(text));
        fixture_stage_init(&all, text);
        random_graph(seed, false, text, sizeof(text));
        fixture_stage_init(&some, text);
        struct stg_tensor want[N_NODES], got[N_NODES];
        for (int64_t n = 1; n < 400; n = n * 3 + 1) {
            struct stg_tensor feed = numbers(&all, n);
            CHECK_OK(stg_run_exec(all.run, &feed, NULL, NULL, want, &err), err);
            CHECK_OK(stg_run_exec(some.run, &feed, NULL, NULL, got, &err), err);
            check_feature(&all, want, &some, got, seed);
        }
        fixture_stage_finish(&all);
        fixture_stage_finish(&some);
    }
}

static void batches_of_one_shape_allocate_only_once(void)
{
    static char text[8192];
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct fixture_stage stage;
        struct stg_err err = {0};
        struct stg_tensor out[N_NODES];
        random_graph(seed, false, text, sizeof(text));
        fixture_stage_init(&stage, text);
        struct stg_tensor feed = numbers(&stage, 500);
        for (int i = 0; i < 8; i++)
            CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
        stg_failalloc_from(1);
        for (int i = 0; i < 8; i++)
            CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
        CHECK_INT(stg_failalloc_off(), 0);
        fixture_stage_finish(&stage);
    }
}

static const struct stg_test tests[] = {
    TEST(a_chain_takes_turns_in_two_buffers),
    TEST(what_is_viewed_is_not_given_away),
    TEST(an_element_by_element_op_writes_where_it_reads),
    TEST(a_feed_is_never_written_to),
    TEST(sharing_changes_no_value),
    TEST(batches_of_one_shape_allocate_only_once),
};
TEST_MAIN(tests)
