/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines drawn at random for test_step_position.c. Each one is valid, and ends.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/random.h"
#include "tests/daemon/dataset/step_harness.h"

struct draw {
    struct stg_random random;
    uint64_t n;
    FILE *out;
    int n_branches; /* that are written */
    int n_repeats;  /* they multiply */
    int rank;       /* dimensions that batches have put before a record's own */
    bool is_named;  /* it has value, text and weight */
    bool is_branch;
};

static int below(struct draw *draw, int n)
{
    return (int)stg_random_below(&draw->random, draw->n++, (uint64_t)n);
}

static void draw_name(struct draw *draw, char *name)
{
    sprintf(name, "n%d", (int)draw->n);
}

/* Steps after which the elements are as before. */
static void draw_plain(struct draw *draw)
{
    FILE *out = draw->out;
    switch (below(draw, 9)) {
    case 0: fprintf(out, ", take: {count: %d}", below(draw, 30)); break;
    case 1: fprintf(out, ", skip: {count: %d}", below(draw, 9)); break;
    case 2: fprintf(out, ", shard: {num_shards: 3, index: %d}", below(draw, 3)); break;
    case 3:
        fprintf(out, ", shuffle: {buffer_size: %d, seed: %d}", 1 + below(draw, 12),
                below(draw, 5));
        break;
    case 4: fprintf(out, ", prefetch: {buffer_size: %d}", 1 + below(draw, 5)); break;
    case 5: fprintf(out, ", cache"); break;
    case 6: fprintf(out, ", ignore_errors"); break;
    default:
        if (draw->n_repeats++ < 2)
            fprintf(out,
                    below(draw, 3) > 0 ? ", repeat: {count: %d}"
                                       : ", shuffle_and_repeat: {buffer_size: 4, "
                                         "count: %d}",
                    1 + below(draw, 3));
    }
}

/* With functions of value, text and weight. */
static void draw_function(struct draw *draw)
{
    FILE *out = draw->out;
    if (below(draw, 2) == 0)
        fprintf(out,
                ", map: {graph: {three: {op: constant, value: %d, dtype: int64}, twelve: "
                "{op: constant, value: 12, dtype: int64}, rest: {op: subtract, input: "
                "[value, three]}, part: {op: floordiv, input: [twelve, rest]}}, output: "
                "{value: part, text: text, weight: weight}, num_parallel_calls: %d}",
                below(draw, 3) > 0 ? 100 : 3, 1 + below(draw, 3));
    else
        fprintf(out, ", filter: {graph: {three: {op: constant, value: 3, dtype: int64}, "
                     "two: {op: constant, value: 2, dtype: int64}, rest: {op: floormod, "
                     "input: [value, three]}, is: {op: less, input: [rest, two]}}, "
                     "predicate: is}");
}

/* Padding has no rows, and a block of several branches has rows only if all its records
 * do. */
static void draw_batch(struct draw *draw)
{
    static const char *const kinds[] = {"batch", "batch", "padded_batch"};
    bool drops = below(draw, 3) == 0;
    fprintf(draw->out, ", %s: {batch_size: %d%s}",
            kinds[draw->is_branch ? 0 : below(draw, 3)], 1 + below(draw, 5),
            drops ? ", drop_remainder: true" : "");
    draw->rank++;
}

static void draw_step(struct draw *draw)
{
    char name[32];
    switch (below(draw, 6)) {
    case 0:
        if (draw->rank == 0 && draw->is_named) {
            draw_function(draw);
            break;
        }
        draw_plain(draw);
        break;
    case 1:
        if (draw->rank < 2)
            draw_batch(draw);
        break;
    case 2:
        if (draw->rank == 0)
            break;
        if (below(draw, 2) == 0) {
            fprintf(draw->out, ", unbatch");
            draw->rank--;
        } else {
            fprintf(draw->out, ", rebatch: {batch_size: [%d, %d]}", 1 + below(draw, 4),
                    1 + below(draw, 4));
        }
        break;
    case 3:
        if (draw->is_branch || draw->rank > 0)
            break;
        draw_name(draw, name);
        fprintf(draw->out, ", enumerate: {start: 2, name: %s}", name);
        break;
    default: draw_plain(draw);
    }
}

static void draw_branch(struct draw *draw)
{
    fprintf(draw->out, "%sb%d: [range: {stop: %d}", draw->n_branches > 0 ? ", " : "",
            draw->n_branches, below(draw, 25));
    draw->n_branches++;
    for (int i = below(draw, 4); i > 0; i--)
        draw_step(draw);
    for (; draw->rank > 0; draw->rank--)
        fprintf(draw->out, ", unbatch");
    fprintf(draw->out, "]");
}

/* Numbers of branches; some of them are of none. */
static void draw_choices(struct draw *draw)
{
    fprintf(draw->out,
            ", choices: [range: {stop: 40}, map: {graph: {n: {op: constant, value: %d, "
            "dtype: int64}, rest: {op: floormod, input: [value, n]}}, output: rest}%s]",
            draw->n_branches + (below(draw, 3) == 0),
            below(draw, 2) > 0 ? ", shuffle: {buffer_size: 9}" : "");
}

/* One step over all branches. */
static void draw_merge(struct draw *draw)
{
    static const char *const kinds[] = {"concatenate", "sample_from_datasets", "zip",
                                        "choose_from_datasets"};
    int kind = below(draw, 4);
    if (kind == 3)
        draw_choices(draw);
    fprintf(draw->out, "}\ndataset: [%s: {from: [", kinds[kind]);
    for (int i = 0; i < draw->n_branches; i++)
        fprintf(draw->out, "%sb%d", i > 0 ? ", " : "", i);
    fprintf(draw->out, "]");
    if (kind == 1)
        fprintf(draw->out, ", seed: %d, stop_on_empty_dataset: %s", below(draw, 9),
                below(draw, 2) > 0 ? "true" : "false");
    if (kind == 3)
        fprintf(draw->out, ", choice_dataset: choices, stop_on_empty_dataset: %s",
                below(draw, 2) > 0 ? "true" : "false");
    fprintf(draw->out, "}");
    draw->is_named = kind != 2;
}

/* A global shuffle behind steps that it can be behind. */
static void draw_global(struct draw *draw)
{
    FILE *out = draw->out;
    if (below(draw, 3) == 0)
        fprintf(out, ", skip: {count: %d}", below(draw, 9));
    if (below(draw, 3) == 0)
        fprintf(out, ", take: {count: %d}", below(draw, 30));
    if (below(draw, 3) == 0)
        fprintf(out, ", shard: {num_shards: 2, index: %d}", below(draw, 2));
    fprintf(out, ", shuffle: {global: true, buffer_size: %d, seed: %d",
            1 + below(draw, 12), below(draw, 5));
    if (below(draw, 3) == 0)
        fprintf(out, ", exact: true}");
    else
        fprintf(out, ", block_size: %d}", 1 + below(draw, 6));
}

char *stg_step_draw(uint64_t seed)
{
    struct draw draw = {.is_named = true};
    char *ret = NULL;
    size_t bytes;
    stg_random_init(&draw.random, seed, 77, 0, 0);
    draw.out = open_memstream(&ret, &bytes);
    int n_branches = below(&draw, 4);
    if (n_branches > 1) {
        draw.is_branch = true;
        fprintf(draw.out, "datasets: {");
        while (draw.n_branches < n_branches)
            draw_branch(&draw);
        draw_merge(&draw);
        draw.is_branch = false;
    } else {
        fprintf(draw.out, "dataset: [range: {stop: %d}", 10 + below(&draw, 40));
        if (seed % 3 == 0)
            draw_global(&draw);
    }
    for (int i = 1 + below(&draw, 6); i > 0; i--)
        draw_step(&draw);
    fprintf(draw.out, "]\n");
    fclose(draw.out);
    return ret;
}
