/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a state: what is written is read, and nothing else is.
 */
#include "core/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/status.h"
#include "tests/check.h"

static struct stg_state example(void)
{
    return (struct stg_state){
        .steps = "files:0a1b2c3d@3,text_line:00000001,graph:00000002,features:00000003",
        .order = STG_ORDER_VERSION,
        .pass = 20,
        .place = {.items = 8, .elements = 128, .epoch = 1, .index = 2, .passed = 3},
        .rows = 4,
        .n_delivered = 1,
        .ranks = 2,
        .data = {.n_files = 3, .bytes = 4711, .names = 0xabcdef, .sum = UINT64_MAX},
    };
}

static void must_be_refused(const char *text, size_t bytes, const char *why)
{
    struct stg_state state;
    struct stg_err err = {0};
    CHECK_INT(stg_state_read(text, bytes, &state, &err), -STAGER_INVALID_ARGUMENT);
    if (strstr(err.text, why) == NULL) {
        fprintf(stderr, "%.*s: %s\n", (int)bytes, text, err.text);
        CHECK(false);
    }
}

static void what_is_written_is_read(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example(), again = {0};
    struct stg_err err = {0};
    size_t n = stg_state_write(&state, text);
    CHECK_INT(n, strlen(text));
    CHECK_OK(stg_state_read(text, n, &again, &err), err);
    CHECK(memcmp(&state, &again, sizeof(state)) == 0);
}

/* States of hosts without weights have the text that they had before there were any. */
static void a_state_of_a_host_has_its_weight_if_there_are_weights(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_err err = {0};
    for (uint64_t weight = 0; weight < 3; weight++) {
        struct stg_state state = example(), again = {0};
        state.hosts = 3;
        state.base = 77;
        state.weight = weight;
        size_t n = stg_state_write(&state, text);
        CHECK(strstr(text, ",\"hosts\":3,\"base\":77,") != NULL);
        CHECK_INT(strstr(text, ",\"weight\":") != NULL, weight > 0);
        CHECK_OK(stg_state_read(text, n, &again, &err), err);
        CHECK(memcmp(&state, &again, sizeof(state)) == 0);
    }
}

static void the_largest_state_fits(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state, again;
    struct stg_err err = {0};
    memset(&state, 0xff, sizeof(state));
    memset(state.steps, 'x', sizeof(state.steps) - 1);
    state.steps[sizeof(state.steps) - 1] = '\0';
    memset(state.client, 'y', sizeof(state.client) - 1);
    state.client[sizeof(state.client) - 1] = '\0';
    for (size_t i = 0; i < sizeof(state.taken); i++)
        state.taken[i] = (char)('a' + i % 2);
    state.taken[sizeof(state.taken) - 1] = '\0';
    memcpy(state.before, state.taken, sizeof(state.before));
    size_t n = stg_state_write(&state, text);
    CHECK(n < STG_STATE_TEXT_BYTES);
    CHECK_INT(text[n - 1], '}');
    CHECK_OK(stg_state_read(text, n, &again, &err), err);
    CHECK_INT(again.place.errors_from, UINT32_MAX);
}

static void another_form_of_the_same_object_is_read(void)
{
    struct stg_state state = example(), again = {0};
    struct stg_err err = {0};
    char text[STG_STATE_TEXT_BYTES], other[2 * STG_STATE_TEXT_BYTES];
    stg_state_write(&state, text);
    /* As a library may write it: the last key first, with white space. */
    char *last = strrchr(text, ',');
    *last = '\0';
    snprintf(other, sizeof(other), " { %.*s ,\n\t%s }\n", (int)strlen(last + 1) - 1,
             last + 1, text + 1);
    CHECK_OK(stg_state_read(other, strlen(other), &again, &err), err);
    CHECK(memcmp(&state, &again, sizeof(state)) == 0);
}

static void a_text_that_is_cut_anywhere_is_refused(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example();
    size_t n = stg_state_write(&state, text);
    for (size_t i = 0; i < n; i++) {
        char *cut = malloc(i + 1); /* a sanitizer sees a byte too far */
        CHECK(cut != NULL);
        memcpy(cut, text, i);
        must_be_refused(cut, i, "not a state of a stream");
        free(cut);
    }
}

/* But for a change that means the same: white space, a leading zero of a number. */
static void a_text_with_any_byte_changed_is_refused(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example(), again;
    size_t n = stg_state_write(&state, text);
    for (size_t i = 0; i < n; i++) {
        for (int byte = 0; byte < 256; byte++) {
            char before = text[i];
            struct stg_err err = {0};
            if ((unsigned char)before == byte)
                continue;
            text[i] = (char)byte;
            int rc = stg_state_read(text, n, &again, &err);
            CHECK(rc == -STAGER_INVALID_ARGUMENT ||
                  memcmp(&state, &again, sizeof(state)) == 0);
            text[i] = before;
        }
    }
}

static void what_is_wrong_is_named(void)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "does not begin with {"},
        {"[]", "does not begin with {"},
        {"{}", "a key or a string is missing"},
        {"{\"stager_state\":2,\"other\":1}",
         "version 2, and this release reads version 1"},
        {"{\"stager_state\":1}", "key \"order\" is missing"},
        {"{\"order\":1}", "key \"stager_state\" is missing"},
        {"{\"stager_state\":1,\"order\":1,\"order\":1}", "there twice"},
        {"{\"stager_state\":1,\"batches\":3}", "key \"batches\" is unknown"},
        {"{\"stager_state\":1,\"pass\":99999999999999999999}", "too large"},
        {"{\"stager_state\":1,\"passed\":4294967296}", "too large"},
        {"{\"stager_state\":1,\"pass\":-1}", "a number is missing"},
        {"{\"stager_state\":1,\"names\":\"00000000000000000\"}", "hexadecimal"},
        {"{\"stager_state\":1,\"names\":\"xyz\"}", "hexadecimal"},
        {"{\"stager_state\":1,\"steps\":\"a\\n\"}", "not one that stager writes"},
        {"{\"stager_state\":1,\"steps\":\"", "truncated inside a string"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        must_be_refused(bad[i].text, strlen(bad[i].text), bad[i].why);
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example();
    size_t n = stg_state_write(&state, text);
    char *at = strstr(text, "\"position\":128");
    CHECK(at != NULL);
    at[11] = '2';
    must_be_refused(text, n, "its sum does not match its values");
    at[11] = '1';
    text[n] = '}';
    must_be_refused(text, n + 1, "text follows the closing }");
}

static void a_state_is_written_in_less_than_fifty_microseconds(void)
{
    enum { N = 2000 };
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example();
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < 5; round++) {
        uint64_t began = stg_thread_cpu_ns();
        for (int i = 0; i < N; i++)
            stg_state_write(&state, text);
        uint64_t ns = (stg_thread_cpu_ns() - began) / N;
        best = ns < best ? ns : best;
    }
    fprintf(stderr, "    %llu ns\n", (unsigned long long)best);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(best < 50000);
#endif
}

/* ---- consumers of a split ---- */

/* Consumer k of n took every n-th item. */
static struct stg_state consumer_of(uint64_t n, uint64_t k, uint64_t n_items)
{
    struct stg_state state = example();
    struct stg_taken taken = {0};
    struct stg_err err = {0};
    uint64_t last = 0;
    for (uint64_t i = k - 1; i < n_items; i += n) {
        CHECK_OK(stg_taken_add(&taken, i, i + 1, &err), err);
        last = i + 1;
    }
    state.rows = state.n_delivered = state.ranks = 0;
    state.run = 0x1234;
    state.consumers = n;
    state.consumer = k;
    state.batch = 16;
    state.place = (struct stg_pass_place){.items = last, .elements = 16 * last};
    snprintf(state.client, sizeof(state.client), "trainer-%d", (int)k);
    CHECK_OK(stg_taken_write(&taken, state.taken, &err), err);
    stg_taken_finish(&taken);
    return state;
}

static struct stg_state consumer(uint64_t k, uint64_t n_items)
{
    return consumer_of(3, k, n_items);
}

static void the_state_of_a_consumer_that_takes_in_turn_is_small(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = consumer(2, 3000000), again = {0};
    struct stg_err err = {0};
    size_t n = stg_state_write(&state, text);
    CHECK(n < 1024);
    CHECK_OK(stg_state_read(text, n, &again, &err), err);
    CHECK(memcmp(&state, &again, sizeof(state)) == 0);
    CHECK(strcmp(state.taken, "ab999999") == 0);
}

static void states_of_all_consumers_merge_in_any_order(void)
{
    struct stg_state states[] = {consumer(1, 30), consumer(2, 12), consumer(3, 30)};
    struct stg_state swapped[] = {states[2], states[0], states[1], states[0]};
    struct stg_state merged, other;
    struct stg_err err = {0};
    CHECK_OK(stg_state_merge(states, 3, &merged, &err), err);
    CHECK_OK(stg_state_merge(swapped, 4, &other, &err), err);
    CHECK(memcmp(&merged, &other, sizeof(merged)) == 0);
    CHECK(strcmp(merged.taken, ".0+13.1+2*5a") == 0);
    CHECK_INT(merged.place.items, 11); /* consumer 2 stands there; 13 is left first */
    CHECK_INT(merged.consumer, 0);
    CHECK_INT(merged.consumers, 3);
}

/* Some of them in turn have more runs than a state has room for; all of them have one. */
static void states_of_many_consumers_merge_in_any_order(void)
{
    enum { N = 16, N_ALL = 320000 };
    struct stg_state *states = calloc(N, sizeof(*states));
    struct stg_state merged;
    struct stg_err err = {0};
    for (uint64_t i = 0; i < N; i++)
        states[i] = consumer_of(N, 1 + i * 7 % N, N_ALL);
    CHECK_OK(stg_state_merge(states, N, &merged, &err), err);
    CHECK(strcmp(merged.taken, ".0+320000") == 0);
    CHECK_INT(merged.place.items, N_ALL);
    free(states);
}

static void set_before(struct stg_state *state)
{
    memcpy(state->before, state->taken, sizeof(state->before));
    memset(state->taken, 0, sizeof(state->taken));
    state->place = state->start;
    state->n_before = 30;
    state->pass++;
}

/* Consumers 1 and 3 are in the next pass, 2 is at the end of this one, or not yet. */
static void a_consumer_may_stand_at_the_end_of_the_pass_before(void)
{
    struct stg_state states[] = {consumer(1, 30), consumer(2, 30), consumer(3, 30)};
    struct stg_state merged;
    struct stg_err err = {0};
    set_before(&states[0]);
    set_before(&states[2]);
    strcpy(states[2].taken, ".0+1");
    states[2].place.items = 1;
    CHECK_OK(stg_state_merge(states, 3, &merged, &err), err);
    CHECK_INT(merged.pass, 21);
    CHECK_INT(merged.place.items, 1);
    CHECK(strcmp(merged.taken, ".0+1") == 0 && merged.before[0] == '\0');
    states[1] = consumer(2, 29 - 1);
    CHECK_INT(stg_state_merge(states, 3, &merged, &err), -STAGER_FAILED_PRECONDITION);
    CHECK(strstr(err.text, "have different passes") != NULL);
}

static void must_not_merge(const struct stg_state *states, size_t n, const char *why)
{
    struct stg_state merged;
    struct stg_err err = {0};
    CHECK(stg_state_merge(states, n, &merged, &err) < 0);
    if (strstr(err.text, why) == NULL) {
        fprintf(stderr, "%s\n", err.text);
        CHECK(false);
    }
}

static void states_that_do_not_belong_together_are_refused_by_name(void)
{
    struct stg_state all[3];
    for (uint64_t k = 0; k < 3; k++)
        all[k] = consumer(k + 1, 30);
    struct stg_state some[] = {all[0], all[2]};
    must_not_merge(all, 0, "no state");
    must_not_merge(
        some, 2,
        "consumer 2 of 3 is missing: the items that it took would be delivered "
        "again; given are consumer 1 (client trainer-1), consumer 3");
    all[1].run++;
    must_not_merge(all, 3, "consumer 2 (client trainer-2) have different runs");
    all[1].run--;
    all[1].pass++;
    must_not_merge(all, 3, "different passes");
    all[1].pass--;
    all[1] = consumer(3, 12);
    must_not_merge(all, 3, "consumer 3 (client trainer-3) is there with two states");
    all[1] = example();
    must_not_merge(all, 3, "1 of the 3 states are not of one consumer");
    all[0] = example();
    all[1].pass++;
    must_not_merge(all, 2, "state 2 differs from the first one");
}

/* What anybody can write: the sum of a text proves nothing. */
static void draw_text(char *text, size_t most)
{
    static const char *const parts[] = {"a",
                                        "b3",
                                        ".0+1",
                                        ".7+2",
                                        "cab",
                                        "z99",
                                        ".3+5*2",
                                        ".9000000000000000000+9000000000000000000",
                                        ".9000000000000000000+9000000000000000000*3",
                                        "*",
                                        "+",
                                        ".",
                                        "18446744073709551615",
                                        "A"};
    size_t n_parts = sizeof(parts) / sizeof(parts[0]), n = 0;
    text[0] = '\0';
    for (int i = rand() % 6; i > 0; i--) {
        const char *part = parts[(size_t)rand() % (rand() % 4 == 0 ? n_parts : 8)];
        n += (size_t)snprintf(text + n, most - n, "%s", part);
    }
}

static uint64_t draw_number(void)
{
    static const uint64_t numbers[] = {
        0, 1, 2, 3, 4, 20, 21, 1u << 31, UINT64_MAX - 1, UINT64_MAX};
    return numbers[(size_t)rand() % (sizeof(numbers) / sizeof(numbers[0]))];
}

static void draw_state(struct stg_state *state)
{
    *state = consumer((uint64_t)(rand() % 3) + 1, 30);
    uint64_t *const numbers[] = {
        &state->pass,     &state->consumers,   &state->consumer,    &state->batch,
        &state->n_before, &state->place.items, &state->start.items, &state->run};
    for (int i = rand() % 3; i > 0; i--)
        *numbers[(size_t)rand() % (sizeof(numbers) / sizeof(numbers[0]))] = draw_number();
    if (rand() % 2 == 0)
        draw_text(state->taken, 200);
    if (rand() % 4 == 0)
        draw_text(state->before, 200);
}

static void hostile_states_are_merged_or_refused(void)
{
    enum { N = 4 };
    static struct stg_state states[N];
    static struct stg_state merged, again;
    char text[STG_STATE_TEXT_BYTES];
    int n_read = 0, n_merged = 0;
    for (unsigned seed = 0; seed < 10000; seed++) {
        struct stg_err err = {0};
        size_t n = 0;
        srand(seed);
        while (n < N && rand() % 8 != 0) {
            draw_state(&merged);
            if (rand() % 2 == 0)
                merged.consumer = n + 1;
            size_t bytes = stg_state_write(&merged, text);
            n_read += stg_state_read(text, bytes, &states[n], &err) == 0;
            n += err.code == 0;
            err.code = 0;
        }
        if (stg_state_merge(states, n, &merged, &err) < 0)
            continue;
        size_t bytes = stg_state_write(&merged, text);
        CHECK_OK(stg_state_read(text, bytes, &again, &err), err);
        n_merged++;
    }
    fprintf(stderr, "    %d read, %d merged\n", n_read, n_merged);
    CHECK(n_read > 3000 && n_merged > 100);
}

static void states_without_an_end_are_refused(void)
{
    struct stg_state state = consumer_of(1, 1, 1), merged;
    struct stg_err err = {0};
    strcpy(state.taken, "a9000000000000000000");
    CHECK_INT(stg_state_merge(&state, 1, &merged, &err), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "are more than 67108864 ranges");
}

/* ---- sets of items ---- */

enum { N_ITEMS = 400 };

static void check_set(const struct stg_taken *set, const bool *is_in)
{
    char text[STG_TAKEN_TEXT_BYTES], again[STG_TAKEN_TEXT_BYTES];
    struct stg_taken other = {0};
    struct stg_err err = {0};
    struct stg_taken_walk walk = {.set = set};
    uint64_t i = 0;
    while (stg_taken_next(&walk)) {
        for (; i < walk.begin; i++)
            CHECK(!is_in[i]);
        for (; i < walk.end; i++)
            CHECK(is_in[i]);
    }
    for (; i < N_ITEMS; i++)
        CHECK(!is_in[i]);
    CHECK_OK(stg_taken_write(set, text, &err), err);
    CHECK_OK(stg_taken_read(text, &other, &err), err);
    CHECK_INT(other.end, set->end);
    CHECK_OK(stg_taken_write(&other, again, &err), err);
    CHECK(strcmp(text, again) == 0);
    stg_taken_finish(&other);
    uint64_t first = stg_taken_first_left(set);
    CHECK(first == N_ITEMS || !is_in[first]);
    for (i = 0; i < first; i++)
        CHECK(is_in[i]);
}

static void a_set_has_what_was_added_in_any_order(void)
{
    for (unsigned seed = 0; seed < 200; seed++) {
        bool is_in[N_ITEMS] = {false};
        struct stg_taken set = {0};
        struct stg_err err = {0};
        srand(seed);
        for (int k = 0; k < 60; k++) {
            uint64_t begin = (uint64_t)(rand() % N_ITEMS), end = begin + 1;
            if (rand() % 3 == 0)
                end += (uint64_t)(rand() % 8);
            end = end < N_ITEMS ? end : N_ITEMS;
            for (uint64_t i = begin; i < end; i++)
                is_in[i] = true;
            CHECK_OK(stg_taken_add(&set, begin, end, &err), err);
        }
        check_set(&set, is_in);
        stg_taken_finish(&set);
    }
}

/* One set has one text: what is added in another order gives the same. */
static void a_set_has_one_text(void)
{
    char a[STG_TAKEN_TEXT_BYTES], b[STG_TAKEN_TEXT_BYTES];
    for (unsigned seed = 0; seed < 100; seed++) {
        struct stg_taken up = {0}, down = {0};
        struct stg_err err = {0};
        bool is_in[N_ITEMS];
        srand(seed);
        for (int i = 0; i < N_ITEMS; i++)
            is_in[i] = rand() % 3 == 0;
        for (uint64_t i = 0; i < N_ITEMS; i++) {
            if (is_in[i])
                CHECK_OK(stg_taken_add(&up, i, i + 1, &err), err);
            if (is_in[N_ITEMS - 1 - i])
                CHECK_OK(stg_taken_add(&down, N_ITEMS - 1 - i, N_ITEMS - i, &err), err);
        }
        CHECK_OK(stg_taken_write(&up, a, &err), err);
        CHECK_OK(stg_taken_write(&down, b, &err), err);
        CHECK(strcmp(a, b) == 0);
        stg_taken_finish(&up);
        stg_taken_finish(&down);
    }
}

static void sets_are_united_and_walked_as_a_model(void)
{
    for (unsigned seed = 0; seed < 200; seed++) {
        bool is_in[N_ITEMS] = {false};
        struct stg_taken sets[5] = {0}, all;
        struct stg_err err = {0};
        srand(seed);
        size_t n = (size_t)rand() % 6;
        for (uint64_t i = 0; n > 0 && i < N_ITEMS; i++) {
            uint64_t k = seed % 2 == 0 ? i % (n + 1) : (uint64_t)rand() % (n + 1);
            is_in[i] = k < n;
            if (k < n)
                CHECK_OK(stg_taken_add(&sets[k], i, i + 1, &err), err);
        }
        CHECK_OK(stg_taken_unite(sets, n, &all, &err), err);
        check_set(&all, is_in);
        struct stg_taken_walk walk = {.set = &all};
        for (uint64_t i = 0; i < N_ITEMS; i += 1 + (uint64_t)rand() % 40)
            CHECK((stg_taken_seek(&walk, i) && walk.begin <= i) == is_in[i]);
        CHECK(!stg_taken_seek(&walk, N_ITEMS));
        for (size_t k = 0; k < n; k++)
            stg_taken_finish(&sets[k]);
        stg_taken_finish(&all);
    }
}

static void a_set_without_an_end_costs_no_time(void)
{
    struct stg_taken set = {0};
    struct stg_err err = {0};
    struct stg_taken_walk walk = {.set = &set};
    CHECK_OK(stg_taken_read("a9000000000000000000", &set, &err), err);
    for (uint64_t item = 1; item < set.end; item = 3 * item) {
        CHECK(stg_taken_seek(&walk, item));
        CHECK_INT(walk.begin, item);
        if (item > set.end / 3)
            break;
    }
    CHECK(!stg_taken_seek(&walk, set.end));
    stg_taken_finish(&set);
}

static void a_set_of_too_many_ranges_is_refused_and_stays(void)
{
    static char text[STG_TAKEN_TEXT_BYTES];
    struct stg_taken set = {0};
    struct stg_err err = {0};
    uint64_t end = 0;
    int rc = 0;
    for (uint64_t i = 0; rc == 0; i++) {
        end = set.end;
        rc = stg_taken_add(&set, end + 1 + i % 2, end + 2 + i % 2, &err);
    }
    CHECK_INT(rc, -STAGER_RESOURCE_EXHAUSTED);
    CHECK_INT(set.end, end);
    CHECK(strstr(err.text, "more than 14336 ranges") != NULL);
    CHECK_OK(stg_taken_write(&set, text, &err), err);
    stg_taken_finish(&set);
}

static void texts_of_no_set_are_refused(void)
{
    static const char *const bad[] = {".",
                                      ".1+1",
                                      "a1",
                                      "a02",
                                      ".030+1",
                                      ".30+1*1",
                                      "a0",
                                      ".0+1.0+1",
                                      ".1+0",
                                      "aa",
                                      ".1+1*0",
                                      "A",
                                      ".1",
                                      ".1+",
                                      ".1+1*",
                                      "-",
                                      ".0+1*2",
                                      ".18446744073709551615+2",
                                      ".99999999999999999999+1",
                                      ".1+1*18446744073709551615"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct stg_taken set = {0};
        struct stg_err err = {0};
        if (stg_taken_read(bad[i], &set, &err) != -STAGER_INVALID_ARGUMENT)
            FAIL("\"%s\" is read", bad[i]);
        CHECK(set.runs == NULL);
    }
}

static const struct stg_test tests[] = {
    TEST(what_is_written_is_read),
    TEST(a_state_of_a_host_has_its_weight_if_there_are_weights),
    TEST(the_largest_state_fits),
    TEST(another_form_of_the_same_object_is_read),
    TEST(a_text_that_is_cut_anywhere_is_refused),
    TEST(a_text_with_any_byte_changed_is_refused),
    TEST(what_is_wrong_is_named),
    TEST(a_state_is_written_in_less_than_fifty_microseconds),
    TEST(the_state_of_a_consumer_that_takes_in_turn_is_small),
    TEST(states_of_all_consumers_merge_in_any_order),
    TEST(states_of_many_consumers_merge_in_any_order),
    TEST(a_consumer_may_stand_at_the_end_of_the_pass_before),
    TEST(states_that_do_not_belong_together_are_refused_by_name),
    TEST(hostile_states_are_merged_or_refused),
    TEST(states_without_an_end_are_refused),
    TEST(a_set_has_what_was_added_in_any_order),
    TEST(a_set_has_one_text),
    TEST(sets_are_united_and_walked_as_a_model),
    TEST(a_set_without_an_end_costs_no_time),
    TEST(a_set_of_too_many_ranges_is_refused_and_stays),
    TEST(texts_of_no_set_are_refused),
};

TEST_MAIN(tests)
