/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines of users, which load but mean anything: graphs of ops, lists of steps, and
 * what stagerd has stored of an earlier pass.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/log.h"
#include "daemon/dataset/block.h"
#include "daemon/format/arrow/metadata.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/dataset/step_run.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/graphs.h"
#include "tests/fuzz/places.h"

#define MAX_ITEMS 40
#define BUFFER_BYTES ((uint64_t)8 << 20)

/* ---- steps ---- */

static void draw_errors(struct stg_fuzz_input *input)
{
    int64_t errors[STG_SOURCE_MAX_ERRORS], at = 0;
    int n = (int)(stg_fuzz_byte(input) % (STG_SOURCE_MAX_ERRORS + 1));
    for (int i = 0; i < n; i++)
        errors[i] = at += (int64_t)stg_fuzz_byte(input) % 16;
    stg_test_source_set_errors(errors, n);
}

/* The records, an error now and then, perhaps a failure. */
static void draw_source(struct stg_fuzz_input *input, unsigned flags)
{
    stg_test_source.n = 40;
    stg_test_source.cannot_skip = (flags & 16) != 0;
    stg_test_source.fail_at = -1;
    stg_test_source_set_errors(NULL, 0);
    if ((flags & 32) != 0)
        draw_errors(input);
    if ((flags & 64) != 0)
        stg_test_source.fail_at = stg_fuzz_byte(input) % 64;
}

struct items {
    uint64_t hashes[MAX_ITEMS];
    struct stg_position after[MAX_ITEMS];
    size_t n;
    int rc; /* 1: the end */
};

static void read_items(struct stg_step_run *run, size_t most, struct items *ret)
{
    struct stg_err err = {0};
    struct stg_block *block;
    ret->n = 0;
    ret->rc = 0;
    while (ret->n < most &&
           (ret->rc = stg_dataset_next(run->dataset, &block, &err)) == 0) {
        ret->hashes[ret->n] = stg_fuzz_hash_block(block);
        ret->after[ret->n++] = block->position;
        stg_block_unref(block);
    }
    FUZZ_CHECK(ret->rc >= 0 || err.text[0] != '\0');
}

/* From the position of an item the rest follows. A failure, or no memory, may come
 * earlier or later there. */
static void check_seek(struct stg_step_run *run, const struct items *all, size_t first)
{
    static struct items rest;
    struct stg_err err = {0};
    if (stg_step_run_try(run, &err) < 0)
        return;
    int rc = stg_dataset_seek(run->dataset, &all->after[first], &err);
    FUZZ_CHECK(rc == 0 || err.text[0] != '\0');
    if (rc == 0) {
        read_items(run, all->n - first - 1, &rest);
        for (size_t i = 0; i < rest.n; i++)
            FUZZ_CHECK_TEXT(rest.hashes[i] == all->hashes[first + 1 + i],
                            run->row->pipeline);
        FUZZ_CHECK(rest.rc < 0 || rest.n == all->n - first - 1);
    } else if (stg_test_source.fail_at < 0) {
        FUZZ_CHECK_TEXT(rc == -STAGER_RESOURCE_EXHAUSTED, err.text);
    }
    stg_step_run_close(run);
}

static void run_row(struct stg_fuzz_input *input, const struct stg_step_row *row,
                    unsigned flags)
{
    static struct items all;
    struct stg_step_run run;
    struct stg_err err = {0};
    unsigned elements = 1u << (flags & 3) % 3;
    if ((row->flags & STG_ROW_OWN_SOURCE) != 0)
        elements = STG_ELEMENTS_SCALAR;
    int rc = stg_step_run_load(&run, row, elements, 1 + (flags >> 2 & 3), &err);
    run.buffer_bytes = BUFFER_BYTES;
    draw_source(input, flags);
    if (rc == 0)
        rc = stg_step_run_try(&run, &err);
    FUZZ_CHECK(rc == 0 || err.text[0] != '\0');
    if (getenv("STG_FUZZ_SHOW") != NULL)
        fprintf(stderr, "%s    %s\n", row->pipeline, err.text);
    if (rc == 0) {
        for (int n = 0; rc == 0 && n < 8; n++)
            rc = stg_step_run_some(&run, 1 + stg_fuzz_byte(input) % 64, 1, NULL, &err);
        stg_step_run_close(&run);
    }
    if (rc >= 0 && stg_step_run_try(&run, &err) == 0) {
        read_items(&run, MAX_ITEMS, &all);
        stg_step_run_close(&run);
        if (all.n > 0)
            check_seek(&run, &all, stg_fuzz_byte(input) % all.n);
    }
    stg_step_run_finish(&run);
}

/* A row of the step harness, or a pipeline drawn at random, with changed numbers. */
static void run_steps(const uint8_t *data, size_t bytes)
{
    static char text[16384];
    struct stg_fuzz_input input = {data, data + bytes};
    unsigned flags = stg_fuzz_byte(&input), number = stg_fuzz_number(&input);
    struct stg_step_row row = {.step = "drawn"};
    char *drawn = NULL;
    if ((flags & 128) == 0) {
        row = stg_step_rows[number % stg_n_step_rows];
        if (!stg_arrow_is_built && strcmp(row.step, "arrow") == 0)
            return;
    } else {
        row.pipeline = drawn = stg_step_draw(number);
    }
    stg_fuzz_numbers(&input, row.pipeline, "stop: ", text, sizeof(text));
    row.pipeline = text;
    run_row(&input, &row, flags);
    free(drawn);
}

/* ---- the program ---- */

const struct stg_fuzz_mode stg_fuzz_modes[] = {
    {"graph", stg_fuzz_graph},
    {"steps", run_steps},
    {"places", stg_fuzz_places},
};
const size_t stg_fuzz_n_modes = sizeof(stg_fuzz_modes) / sizeof(stg_fuzz_modes[0]);

void stg_fuzz_seeds(void)
{
    static const uint8_t rest[] = {0, 0, 5, 2, 9, 0, 0, 3, 6};
    stg_fuzz_graph_seeds();
    for (size_t i = 0; i < stg_n_step_rows; i++) {
        const uint8_t seed[] = {(uint8_t)(i % 64), (uint8_t)(i >> 8), (uint8_t)i};
        stg_fuzz_seed("steps", seed, sizeof(seed), rest, sizeof(rest));
    }
    for (uint8_t i = 0; i < 32; i++) {
        const uint8_t seed[] = {128, 0, i};
        stg_fuzz_seed("steps", seed, sizeof(seed), rest, sizeof(rest));
    }
    stg_fuzz_places_seeds();
}
