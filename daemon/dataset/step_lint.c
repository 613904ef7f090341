/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/step_lint.h"

#include <string.h>

#include "daemon/dataset/func.h"
#include "daemon/host/cpus.h"

/* An element that a map made is large when nothing is known of what it was made of. */
#define LARGE_BYTES 65536

/* Calls of a map for each CPU, from which on more of them only take memory. */
#define MANY_CALLS 4

struct look {
    const struct stg_step *steps;
    struct stg_schema *schemas; /* [i]: what step i yields; n 0: not known */
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

/* A map with work to do: does it take many elements at once? False for all else. */
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

/* What is known of the size of an element; strings, and unknown dimensions, count for
 * nothing. */
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

/* A decoded image is many times as large as the file. */
static bool decodes_images(const struct stg_step *step)
{
    for (size_t i = 0; i < step->n_nodes; i++) {
        if (strcmp(step->nodes[i].op, "decode_image") == 0 ||
            strcmp(step->nodes[i].op, "decode_jpeg") == 0)
            return true;
    }
    return false;
}

/* What it makes has dimensions that are not known. */
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

/* One step, and another one somewhere behind it. */
static const struct rule {
    bool (*first)(const struct look *look, size_t i);
    bool (*then)(const struct look *look, size_t i);
    bool near; /* with no step between them but those that only pass elements on */
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
    {is_shuffle, is_shard, false,
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

/* A batch that is taken apart again is none. */
static bool is_undone(const struct look *look, const struct rule *rule, size_t i,
                      size_t then)
{
    for (size_t k = i + 1; rule->first == is_batch && k <= then; k++) {
        if (is(look, k, "unbatch") || is(look, k, "rebatch"))
            return true;
    }
    return false;
}

/* Passes elements on as they are, in whatever order. */
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

/* The first two steps that the rule is about. */
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

/* All steps by name, `then` right before `first`, or `first` right behind `then`. */
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

/* Far more calls at once than there are CPUs. */
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

/* A map that works on one element after the other, where several threads could. */
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

/* Several files on other machines. */
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

/* Files that are far away, one after the other. */
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

/* Steps with several inputs, and what is behind them, are not known. */
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
        say_parallel, say_calls, say_interleave};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && n_lines < n; i++) {
        const char *line = others[i](&look, bump);
        if (line != NULL)
            ret[n_lines++] = line;
    }
    return n_lines;
}
