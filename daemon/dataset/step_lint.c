/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/step_lint.h"

#include <string.h>

#include "daemon/dataset/func.h"
#include "daemon/dataset/step.h"
#include "daemon/host/cpus.h"

/* The size from which the output of a map counts as large if the size of its input is not
 * fully known. */
#define LARGE_BYTES 65536

/* Parallel calls of a map per CPU, above which more calls only take memory. */
#define MANY_CALLS 4

/* A shuffle whose buffer holds one in so many elements, or less, holds a small part; of
 * less data than that it does not matter. */
#define SMALL_PART 20
#define SMALL_DATA 10000

struct look {
    const struct stg_step *steps;
    struct stg_schema *schemas; /* [i]: what step i yields; its n is 0: not known */
    size_t n;
};

/* ---- what a step is ---- */

static bool is(const struct look *look, size_t i, const char *name)
{
    return strcmp(look->steps[i].name, name) == 0;
}

static bool is_shuffle(const struct look *look, size_t i)
{
    return is(look, i, "shuffle") || is(look, i, "shuffle_and_repeat");
}

static bool is_repeat(const struct look *look, size_t i)
{
    return is(look, i, "repeat") || is(look, i, "shuffle_and_repeat");
}

static bool is_cache(const struct look *look, size_t i)
{
    return is(look, i, "cache");
}

static bool is_prefetch(const struct look *look, size_t i)
{
    return is(look, i, "prefetch");
}

static bool is_take(const struct look *look, size_t i)
{
    return is(look, i, "take");
}

static bool is_shard(const struct look *look, size_t i)
{
    return is(look, i, "shard");
}

/* Of as many shards as the pipeline says; `auto` divides an order of all elements. */
static bool is_fixed_shard(const struct look *look, size_t i)
{
    return is_shard(look, i) && stg_step_int(&look->steps[i], "num_shards", 1) != 0;
}

static bool is_ignore_errors(const struct look *look, size_t i)
{
    return is(look, i, "ignore_errors");
}

static bool is_map(const struct look *look, size_t i)
{
    return is(look, i, "map") || is(look, i, "map_and_batch");
}

static bool is_batch(const struct look *look, size_t i)
{
    const struct stg_step *step = &look->steps[i];
    return stg_attr_find(step->attrs, step->n_attrs, "batch_size") != NULL ||
           stg_attr_find(step->attrs, step->n_attrs, "bucket_batch_sizes") != NULL;
}

/* Returns whether step i is a map with a graph that works on many elements at once
 * (row_wise) or on one at a time (not row_wise). */
static bool is_map_of(const struct look *look, size_t i, bool row_wise)
{
    const struct stg_step *step = &look->steps[i];
    struct stg_func *func;
    if (!is_map(look, i) || step->n_nodes == 0 || look->schemas[i].n == 0 ||
        stg_func_create(step, step->outputs, step->n_outputs, &look->schemas[i - 1],
                        &func, NULL) < 0)
        return false;
    bool ret = (func->many != NULL) == row_wise;
    stg_func_destroy(func);
    return ret;
}

static bool is_cheap_map(const struct look *look, size_t i)
{
    return is(look, i, "map") && is_map_of(look, i, true);
}

static bool is_dear_map(const struct look *look, size_t i)
{
    return is_map_of(look, i, false);
}

/* Returns the known size of an element. A component that is a string or has an unknown
 * dimension counts as 0, and *ret_all is then false. */
static double known_bytes(const struct stg_schema *schema, bool *ret_all)
{
    double bytes = 0;
    *ret_all = true;
    for (size_t c = 0; c < schema->n; c++) {
        const struct stg_component *component = &schema->components[c];
        double of = stg_dtype_bytes(component->dtype);
        for (int d = 0; d < component->ndim; d++)
            of *= component->shape[d] > 0 ? (double)component->shape[d] : 0;
        *ret_all &= of > 0;
        bytes += of;
    }
    return bytes;
}

/* Returns whether the step decodes images. A decoded image is many times as large as its
 * file. */
static bool decodes_images(const struct stg_step *step)
{
    for (size_t i = 0; i < step->n_nodes; i++) {
        if (strcmp(step->nodes[i].op, "decode_image") == 0 ||
            strcmp(step->nodes[i].op, "decode_jpeg") == 0)
            return true;
    }
    return false;
}

/* Returns whether no component of the schema has a known size. */
static bool is_open(const struct stg_schema *schema)
{
    bool all;
    return known_bytes(schema, &all) == 0;
}

static bool is_growing_map(const struct look *look, size_t i)
{
    if (!is(look, i, "map") || look->schemas[i].n == 0)
        return false;
    if (decodes_images(&look->steps[i]) && is_open(&look->schemas[i]))
        return true;
    bool all, ignored;
    double from = known_bytes(&look->schemas[i - 1], &all);
    double to = known_bytes(&look->schemas[i], &ignored);
    return all ? to >= 2 * from : to >= LARGE_BYTES;
}

/* ---- rules ---- */

/* A rule: advice about a step `first` with a step `then` somewhere after it. */
static const struct rule {
    bool (*first)(const struct look *look, size_t i);
    bool (*then)(const struct look *look, size_t i);
    bool near; /* only steps that pass elements on may be between the two */
    const char *text;
} rules[] = {
    {is_repeat, is_shuffle, false,
     "epochs mix: an element may come twice before another one has come once; with "
     "shuffle before repeat each epoch is whole, and there is no pause between them"},
    {is_growing_map, is_shuffle, false,
     "the buffer of shuffle holds what map makes, which is larger than what it is made "
     "of: put shuffle before map"},
    {is_growing_map, is_prefetch, false,
     "the buffer of prefetch holds what map makes, which is larger than what it is made "
     "of: put prefetch before map"},
    {is_growing_map, is_cache, false,
     "the cache holds what map makes, which is larger than what it is made of: put cache "
     "before map unless the work of map is the dearer"},
    {is_batch, is_shuffle, false,
     "whole batches change places, and their elements stay together: put shuffle before "
     "the batches are made"},
    {is_shuffle, is_cache, false,
     "the cache keeps the order of its first epoch for all others: put shuffle behind "
     "cache"},
    {is_repeat, is_cache, false,
     "the cache holds every repetition: put repeat behind cache"},
    {is_cache, is_take, false,
     "the cache is complete only when its input was read to its end, which take "
     "prevents: put take before cache"},
    {is_cache, is_dear_map, false,
     "map works anew in each epoch: put cache behind map, if what it makes has room"},
    {is_shuffle, is_fixed_shard, false,
     "all elements are read and shuffled, and most are then left out: put shard first"},
    {is_map, is_shard, false,
     "map works on elements that are then left out: put shard before map"},
    {is_batch, is_ignore_errors, false,
     "an element in error costs its batch: put ignore_errors before the batches are "
     "made"},
    {is_cheap_map, is_batch, true,
     "every op of this map is elementwise: behind batch it runs once for each batch; as "
     "nodes of the pipeline's `graph:` also on all num_threads, and it writes where "
     "trainers read (an element in error then costs its batch)"},
};

/* Returns whether a later step takes the batches of step i apart: the rule does not apply
 * then. */
static bool is_undone(const struct look *look, const struct rule *rule, size_t i,
                      size_t then)
{
    for (size_t k = i + 1; rule->first == is_batch && k <= then; k++) {
        if (is(look, k, "unbatch") || is(look, k, "rebatch"))
            return true;
    }
    return false;
}

/* Returns whether step i passes elements on unchanged, in any order. */
static bool passes_on(const struct look *look, size_t i)
{
    return is_shuffle(look, i) || is_repeat(look, i) || is_prefetch(look, i) ||
           is_take(look, i) || is(look, i, "skip");
}

static bool are_near(const struct look *look, size_t i, size_t then)
{
    for (size_t k = i + 1; k < then; k++) {
        if (!passes_on(look, k))
            return false;
    }
    return true;
}

/* Finds the first two steps to which the rule applies. */
static bool find(const struct look *look, const struct rule *rule, size_t *ret_first,
                 size_t *ret_then)
{
    for (size_t i = 1; i < look->n; i++) {
        if (!rule->first(look, i))
            continue;
        for (size_t k = i + 1; k < look->n; k++) {
            if (!rule->then(look, k) || is_undone(look, rule, i, k) ||
                (rule->near && !are_near(look, i, k)))
                continue;
            *ret_first = i;
            *ret_then = k;
            return true;
        }
    }
    return false;
}

/* Returns the names of all steps in the better order. Moves `first` right after `then`
 * (first_moves), or `then` right before `first`. */
static const char *better_order(const struct look *look, size_t first, size_t then,
                                bool first_moves, struct stg_bump *bump)
{
    const char *text = "";
    for (size_t k = 0; text != NULL && k < look->n; k++) {
        size_t i = k;
        if (first_moves && k >= first && k <= then)
            i = k == then ? first : k + 1;
        else if (k >= first && k <= then)
            i = k == first ? then : k - 1;
        text =
            stg_bump_printf(bump, "%s%s%s", text, k > 0 ? ", " : "", look->steps[i].name);
    }
    return text;
}

/* Advises on a map with far more parallel calls than CPUs. */
static const char *say_calls(const struct look *look, struct stg_bump *bump)
{
    unsigned n_cpus = stg_cpus_whole();
    for (size_t i = 1; i < look->n; i++) {
        const struct stg_step *step = &look->steps[i];
        int64_t n = stg_attr_int(step->attrs, step->n_attrs, "num_parallel_calls", 0);
        if (is_map(look, i) && n > (int64_t)n_cpus * MANY_CALLS)
            return stg_bump_printf(
                bump,
                "step %s (line %d): num_parallel_calls %lld is far above the %u CPUs "
                "that stagerd may use: more calls than CPUs wait for one another, and "
                "hold memory; num_parallel_calls: auto finds the number",
                step->name, step->line, (long long)n, n_cpus);
    }
    return NULL;
}

/* Advises on a map that works on one element at a time where several threads could. */
static const char *say_parallel(const struct look *look, struct stg_bump *bump)
{
    for (size_t i = 1; i < look->n; i++) {
        const struct stg_step *step = &look->steps[i];
        if (is(look, i, "map") && is_dear_map(look, i) &&
            stg_attr_find(step->attrs, step->n_attrs, "num_parallel_calls") == NULL)
            return stg_bump_printf(
                bump,
                "step map (line %d): its ops run once for each element, in the "
                "thread that pulls; num_parallel_calls: auto lets all CPUs work "
                "on elements",
                step->line);
    }
    return NULL;
}

/* Returns how many elements come to step i, if all steps before it only count: 0 if one
 * does not, or if the number depends on files. */
static uint64_t count_elements(const struct look *look, size_t i)
{
    const struct stg_step *range = &look->steps[0];
    int64_t start = stg_step_int(range, "start", 0),
            stop = stg_step_int(range, "stop", 0);
    if (!is(look, 0, "range") || stg_step_int(range, "step", 1) != 1 || stop <= start)
        return 0;
    uint64_t n = (uint64_t)stop - (uint64_t)start;
    for (size_t k = 1; k < i; k++) {
        const struct stg_step *step = &look->steps[k];
        int64_t count = stg_step_int(step, "count", -1);
        if (is_take(look, k) && count >= 0 && (uint64_t)count < n)
            n = (uint64_t)count;
        else if (is_fixed_shard(look, k))
            n /= (uint64_t)stg_step_int(step, "num_shards", 1);
        else if (!is_take(look, k) && !is(look, k, "map") && !is(look, k, "enumerate"))
            return 0;
    }
    return n;
}

bool stg_step_lint_is_small(uint64_t window, uint64_t n)
{
    return n >= SMALL_DATA && n / SMALL_PART >= window;
}

/* Advises on a window that is a small part of what it shuffles. */
static const char *say_global(const struct look *look, struct stg_bump *bump)
{
    for (size_t i = 1; i < look->n; i++) {
        const struct stg_step *step = &look->steps[i];
        uint64_t window = (uint64_t)stg_step_int(step, "buffer_size", 0);
        if (!is_shuffle(look, i) || stg_step_bool(step, "global", false))
            continue;
        uint64_t n = count_elements(look, i);
        if (!stg_step_lint_is_small(window, n))
            return NULL;
        return stg_bump_printf(
            bump,
            "step %s (line %d): the buffer holds %llu of %llu elements, and each comes "
            "out near its place in the input: global: true shuffles all of them, in less "
            "memory",
            step->name, step->line, (unsigned long long)window, (unsigned long long)n);
    }
    return NULL;
}

/* Returns whether the step names several files on other machines. */
static bool is_far(const struct stg_step *step)
{
    const struct stg_attr *patterns =
        stg_attr_find(step->attrs, step->n_attrs, "pattern");
    size_t n_far = 0;
    for (size_t i = 0; patterns != NULL && i < patterns->n_values; i++) {
        const struct stg_storage *storage;
        const char *url = patterns->values[i].s, *path;
        if (stg_storage_find(url, &storage, &path, NULL) == 0 && storage->remote)
            n_far += strpbrk(path, "*[") != NULL ? 2 : 1;
    }
    return n_far > 1;
}

/* Advises on files on other machines that are read one at a time. */
static const char *say_interleave(const struct look *look, struct stg_bump *bump)
{
    if (look->n < 2 || !is(look, 0, "files") || !is_far(&look->steps[0]))
        return NULL;
    for (size_t i = 1; i < look->n; i++) {
        if (is(look, i, "interleave") || is(look, i, "parallel_interleave"))
            return NULL;
    }
    return stg_bump_printf(bump,
                           "step files (line %d): files on other machines are read one "
                           "after the other, each waited for anew: interleave with a "
                           "large cycle_length reads many at once",
                           look->steps[0].line);
}

/* Infers the schema of each step. The schemas of steps with several inputs, and of all
 * steps after them, stay unknown. */
static void infer(struct look *look, struct stg_bump *bump)
{
    for (size_t i = 0; i < look->n; i++) {
        const struct stg_transformation *of =
            stg_transformation_find(look->steps[i].name);
        const struct stg_schema *in = i > 0 ? &look->schemas[i - 1] : NULL;
        bool known = of != NULL && of->infer != NULL && (in == NULL || in->n > 0);
        if (!known || of->infer(&look->steps[i], in, bump, &look->schemas[i], NULL) < 0)
            look->schemas[i].n = 0;
    }
}

static const char *say_rule(const struct look *look, const struct rule *rule,
                            struct stg_bump *bump)
{
    size_t first, then;
    if (!find(look, rule, &first, &then))
        return NULL;
    const char *better = better_order(look, first, then, rule->near, bump);
    if (better == NULL)
        return NULL;
    return stg_bump_printf(bump, "step %s (line %d) before %s (line %d): %s; better: %s",
                           look->steps[first].name, look->steps[first].line,
                           look->steps[then].name, look->steps[then].line, rule->text,
                           better);
}

size_t stg_step_lint(const struct stg_pipeline_spec *spec, struct stg_bump *bump,
                     const char **ret, size_t n)
{
    struct look look = {.steps = spec->steps, .n = spec->n_steps};
    look.schemas = stg_bump_alloc(bump, look.n * sizeof(*look.schemas));
    if (look.schemas == NULL)
        return 0;
    infer(&look, bump);
    size_t n_lines = 0;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && n_lines < n; i++) {
        const char *line = say_rule(&look, &rules[i], bump);
        if (line != NULL)
            ret[n_lines++] = line;
    }
    static const char *(*const others[])(const struct look *, struct stg_bump *) = {
        say_parallel, say_calls, say_interleave, say_global};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && n_lines < n; i++) {
        const char *line = others[i](&look, bump);
        if (line != NULL)
            ret[n_lines++] = line;
    }
    return n_lines;
}
