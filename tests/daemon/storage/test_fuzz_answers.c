/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs like those of libFuzzer, generated from a seed: STG_FUZZ_SEED (1) and
 * STG_FUZZ_RUNS (200000) of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/storage/fuzz_answers.h"

static uint64_t state;

/* xorshift64* */
static unsigned draw(unsigned below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (unsigned)((state * 0x2545f4914f6cdd1dull >> 33) % below);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

struct bytes {
    uint8_t at[512];
    size_t n;
};

static void put(struct bytes *bytes, unsigned byte)
{
    if (bytes->n < sizeof(bytes->at))
        bytes->at[bytes->n++] = (uint8_t)byte;
}

/* A plausible answer: a status, a few headers, a body, an end. */
static void put_answer(struct bytes *bytes)
{
    put(bytes, 1);
    put(bytes, draw(8) > 0 ? draw(4) : draw(12));
    for (unsigned i = draw(4); i > 0; i--) {
        put(bytes, 2 + draw(4));
        for (unsigned k = 1 + draw(5); k > 0; k--)
            put(bytes, draw(4) > 0 ? draw(6) : draw(256));
    }
    for (unsigned i = draw(3); i > 0; i--) {
        put(bytes, 6);
        put(bytes, draw(12));
        put(bytes, draw(256));
        put(bytes, draw(256));
    }
    put(bytes, draw(2) * 128);
}

static void no_sequence_of_answers_writes_past_a_range(void)
{
    uint64_t seed = setting("STG_FUZZ_SEED", 1), runs = setting("STG_FUZZ_RUNS", 200000);
    uint64_t n_complete = 0;
    fprintf(stderr, "    STG_FUZZ_SEED=%llu\n", (unsigned long long)seed);
    state = 2 * seed + 1;
    for (uint64_t i = 0; i < runs; i++) {
        struct bytes bytes = {.n = 0};
        put(&bytes, draw(256));
        put(&bytes, draw(256));
        put(&bytes, draw(256));
        for (unsigned k = 1 + draw(6); k > 0; k--)
            put_answer(&bytes);
        for (unsigned k = draw(8); k > 0; k--)
            bytes.at[draw((unsigned)bytes.n)] = (uint8_t)draw(256);
        uint8_t *exact = malloc(bytes.n);
        CHECK(exact != NULL);
        memcpy(exact, bytes.at, bytes.n);
        n_complete += (unsigned)LLVMFuzzerTestOneInput(exact, bytes.n);
        free(exact);
    }
    fprintf(stderr, "    %llu sequences, %llu complete\n", (unsigned long long)runs,
            (unsigned long long)n_complete);
    CHECK(n_complete > runs / 200);
}

static const struct stg_test tests[] = {
    TEST_SLOW(no_sequence_of_answers_writes_past_a_range, 120),
};
TEST_MAIN(tests)
