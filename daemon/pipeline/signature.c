/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/signature.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/hash.h"

/* ---- hashes ---- */

static void mix(uint64_t *sum, uint64_t value)
{
    static const uint64_t key[2] = {0x7374616765722d73ull, 0x69676e6174757265ull};
    const uint64_t both[] = {*sum, value};
    *sum = stg_siphash(key, both, sizeof(both));
}

static void mix_bytes(uint64_t *sum, const void *data, size_t bytes)
{
    static const uint64_t key[2] = {0, 0};
    mix(sum, bytes);
    mix(sum, stg_siphash(key, data, bytes));
}

static void mix_string(uint64_t *sum, const char *s)
{
    mix_bytes(sum, s != NULL ? s : "", s != NULL ? strlen(s) : 0);
}

static void mix_attr(uint64_t *sum, const struct stg_attr *attr)
{
    mix_string(sum, attr->name);
    mix_bytes(sum, attr->shape, (size_t)attr->ndim * sizeof(attr->shape[0]));
    for (size_t i = 0; i < attr->n_values; i++) {
        const struct stg_value *value = &attr->values[i];
        mix(sum, (uint64_t)value->kind);
        if (value->kind == STG_VALUE_STRING)
            mix_bytes(sum, value->s, value->s_bytes);
        else if (value->kind == STG_VALUE_FLOAT)
            mix_bytes(sum, &value->f, sizeof(value->f));
        else
            mix(sum, (uint64_t)value->i);
    }
}

static void mix_node(uint64_t *sum, const struct stg_node *node)
{
    mix_string(sum, node->name);
    mix_string(sum, node->op);
    mix(sum, node->n_inputs);
    for (size_t i = 0; i < node->n_inputs; i++)
        mix_string(sum, node->inputs[i]);
    for (size_t i = 0; i < node->n_attrs; i++)
        mix_attr(sum, &node->attrs[i]);
}

static void mix_features(uint64_t *sum, const struct stg_feature *features, size_t n)
{
    mix(sum, n);
    for (size_t i = 0; i < n; i++) {
        mix_string(sum, features[i].path);
        mix_string(sum, features[i].tensor);
        mix(sum, features[i].part);
    }
}

/* ---- steps ---- */

static bool is_among(const char *name, const char *const *names, size_t n)
{
    size_t i = 0;
    while (i < n && strcmp(name, names[i]) != 0)
        i++;
    return i < n;
}

#define IS_AMONG(name, names) is_among(name, names, sizeof(names) / sizeof((names)[0]))

/* Attributes that change no item, and those of which files the data's identity is. */
static bool is_left_out(const struct stg_step *step, const char *attr)
{
    static const char *const speed[] = {
        "num_parallel_calls",
        "num_parallel_batches",
        "direct_io",
        "deterministic",
        "buffer_output_elements",
        "prefetch_input_elements",
        "timeout_millis",
        "retries",
        "max_output_bytes",
        "log_warning",
        "filename",
        "pattern",
        "listing",
        "num_parallel_reads",
    };
    static const char *const shuffles[] = {"shuffle", "shuffle_and_repeat"};
    if (strcmp(attr, "buffer_size") == 0)
        return !IS_AMONG(step->name, shuffles);
    return IS_AMONG(attr, speed);
}

/* A value that most attributes have by default. It is left out, so that a later release
 * may add an attribute. */
static bool is_nothing(const struct stg_attr *attr)
{
    const struct stg_value *value = attr->values;
    if (attr->ndim != 0 || attr->n_values != 1)
        return false;
    if (value->kind == STG_VALUE_STRING)
        return value->s_bytes == 0;
    return value->kind == STG_VALUE_NULL || (value->f == 0 && value->i == 0);
}

static bool is_batching(const struct stg_step *step)
{
    static const char *const names[] = {"batch", "padded_batch", "ragged_batch"};
    return IS_AMONG(step->name, names);
}

/* One item in, one item out, whatever the item. */
static bool is_one_to_one(const struct stg_step *step)
{
    static const char *const names[] = {"map", "prefetch", "enumerate"};
    return IS_AMONG(step->name, names);
}

/* The step whose input a position counts; NULL: a position counts items. */
static const struct stg_step *find_batching(const struct stg_pipeline_spec *spec)
{
    for (size_t i = spec->n_steps; i-- > 0;) {
        if (is_batching(&spec->steps[i]))
            return &spec->steps[i];
        if (!is_one_to_one(&spec->steps[i]))
            return NULL;
    }
    return NULL;
}

bool stg_signature_counts_rows(const struct stg_pipeline_spec *spec)
{
    const struct stg_step *batching = find_batching(spec);
    if (batching == NULL)
        return false;
    static const char *const many[] = {"batch",        "map_and_batch",
                                       "padded_batch", "ragged_batch",
                                       "rebatch",      "bucket_by_sequence_length",
                                       "py_function"};
    for (const struct stg_step *step = spec->steps; step < batching; step++) {
        if (IS_AMONG(step->name, many))
            return false;
    }
    return spec->n_branches == 0;
}

uint64_t stg_signature_batch_size(const struct stg_pipeline_spec *spec)
{
    const struct stg_step *step = find_batching(spec);
    return step == NULL
               ? 0
               : (uint64_t)stg_attr_int(step->attrs, step->n_attrs, "batch_size", 0);
}

static uint64_t hash_step(const struct stg_step *step, bool without_batch_size,
                          const struct stg_attr **ret_seed)
{
    uint64_t sum = 0;
    *ret_seed = NULL;
    mix_string(&sum, step->name);
    for (size_t i = 0; i < step->n_attrs; i++) {
        const struct stg_attr *attr = &step->attrs[i];
        if (strcmp(attr->name, "seed") == 0)
            *ret_seed = attr;
        else if (!is_nothing(attr) && !is_left_out(step, attr->name) &&
                 !(without_batch_size && strcmp(attr->name, "batch_size") == 0))
            mix_attr(&sum, attr);
    }
    mix(&sum, step->n_nodes);
    for (size_t i = 0; i < step->n_nodes; i++)
        mix_node(&sum, &step->nodes[i]);
    mix_features(&sum, step->outputs, step->n_outputs);
    const struct stg_attr *ignored;
    if (step->reader != NULL)
        mix(&sum, hash_step(step->reader, false, &ignored));
    return sum;
}

/* ---- the graph before the boundary ---- */

static const struct stg_node *find_node(const struct stg_pipeline_spec *spec,
                                        const char *tensor, size_t *ret)
{
    const char *name = tensor[0] == '^' ? tensor + 1 : tensor;
    size_t n = strcspn(name, ":");
    for (*ret = 0; *ret < spec->n_nodes; ++*ret) {
        const char *node = spec->nodes[*ret].name;
        if (strncmp(node, name, n) == 0 && node[n] == '\0')
            return &spec->nodes[*ret];
    }
    return NULL;
}

/* A graph without a cycle; each node once. */
static void mark(const struct stg_pipeline_spec *spec, const char *tensor, bool *marked)
{
    size_t i;
    const struct stg_node *node = find_node(spec, tensor, &i);
    if (node == NULL || marked[i])
        return;
    marked[i] = true;
    for (size_t k = 0; k < node->n_inputs; k++)
        mark(spec, node->inputs[k], marked);
}

static uint64_t hash_graph(const struct stg_pipeline_spec *spec, uint64_t vocabularies)
{
    uint64_t sum = vocabularies;
    bool *marked = calloc(spec->n_nodes + 1, sizeof(*marked));
    for (size_t i = 0; marked != NULL && i < spec->staged.n_features; i++)
        mark(spec, spec->staged.features[i].tensor, marked);
    for (size_t i = 0; marked != NULL && i < spec->staged.n_feeds; i++)
        mark(spec,
             spec->staged.feeds[i].tensor != NULL ? spec->staged.feeds[i].tensor : "",
             marked);
    for (size_t i = 0; i < spec->n_nodes; i++) {
        if (marked == NULL || marked[i])
            mix_node(&sum, &spec->nodes[i]);
    }
    free(marked);
    for (size_t i = 0; i < spec->staged.n_feeds; i++) {
        const struct stg_feed *feed = &spec->staged.feeds[i];
        mix_string(&sum, feed->name);
        mix_string(&sum, feed->tensor);
        if (feed->value != NULL)
            mix_attr(&sum, feed->value);
    }
    return sum;
}

static uint64_t hash_features(const struct stg_pipeline_spec *spec)
{
    uint64_t sum = 0;
    mix_features(&sum, spec->staged.features, spec->staged.n_features);
    for (size_t i = 0; i < spec->staged.n_transfers; i++)
        mix_attr(&sum, &spec->staged.transfers[i]);
    mix(&sum, spec->staged.closed_codes);
    mix(&sum, spec->staged.ignored_codes);
    return sum;
}

/* ---- the text ---- */

struct text {
    char *buf;
    size_t n, bytes;
    uint64_t sum; /* of all that was to be written */
    uint64_t n_parts;
};

static void add(struct text *text, const char *prefix, const char *name, uint64_t hash,
                const struct stg_attr *seed)
{
    char part[128];
    int n = snprintf(part, sizeof(part), "%s%s%s:%08" PRIx32, text->n > 0 ? "," : "",
                     prefix, name, (uint32_t)hash);
    if (seed != NULL && seed->n_values == 1)
        n += snprintf(part + n, sizeof(part) - (size_t)n, "@%" PRIu64,
                      (uint64_t)seed->values[0].i);
    mix_bytes(&text->sum, part, (size_t)n);
    text->n_parts++;
    if (text->n + (size_t)n < text->bytes)
        memcpy(text->buf + text->n, part, (size_t)n + 1);
    text->n += (size_t)n;
}

static void add_steps(struct text *text, const char *prefix, const struct stg_step *steps,
                      size_t n, const struct stg_step *batching)
{
    for (size_t i = 0; i < n; i++) {
        const struct stg_attr *seed;
        if (strcmp(steps[i].name, "prefetch") == 0)
            continue;
        uint64_t hash = hash_step(&steps[i], &steps[i] == batching, &seed);
        add(text, prefix, steps[i].name, hash, seed);
    }
}

void stg_signature_write(const struct stg_pipeline_spec *spec, uint64_t vocabularies,
                         char ret[STG_STATE_STEPS_BYTES])
{
    struct text text = {.buf = ret, .bytes = STG_STATE_STEPS_BYTES};
    add_steps(&text, "", spec->steps, spec->n_steps, find_batching(spec));
    for (size_t i = 0; i < spec->n_branches; i++) {
        char prefix[32];
        snprintf(prefix, sizeof(prefix), "b%zu.", i);
        add_steps(&text, prefix, spec->branches[i].steps, spec->branches[i].n_steps,
                  NULL);
    }
    add(&text, "", "graph", hash_graph(spec, vocabularies), NULL);
    add(&text, "", "features", hash_features(spec), NULL);
    if (text.n >= text.bytes)
        snprintf(ret, STG_STATE_STEPS_BYTES, "#%" PRIu64 ":%016" PRIx64, text.n_parts,
                 text.sum);
}

/* The whole hash of each step, and the seed, which hash_step leaves out. */
static void mix_steps(uint64_t *sum, const struct stg_step *steps, size_t n)
{
    mix(sum, n);
    for (size_t i = 0; i < n; i++) {
        const struct stg_attr *seed;
        mix(sum, hash_step(&steps[i], false, &seed));
        if (seed != NULL)
            mix_attr(sum, seed);
    }
}

uint64_t stg_signature_content(const struct stg_pipeline_spec *spec,
                               uint64_t vocabularies)
{
    uint64_t sum = 0;
    mix_steps(&sum, spec->steps, spec->n_steps);
    mix(&sum, spec->n_branches);
    for (size_t i = 0; i < spec->n_branches; i++) {
        mix_string(&sum, spec->branches[i].name);
        mix_steps(&sum, spec->branches[i].steps, spec->branches[i].n_steps);
    }
    mix(&sum, hash_graph(spec, vocabularies));
    mix(&sum, hash_features(spec));
    return sum;
}

/* ---- comparing ---- */

/* One part of a signature. */
struct part {
    int n_name, n_hash, n_seed; /* bytes */
    const char *name, *hash, *seed;
};

/* Returns the text behind the part, or NULL at the end. */
static const char *next_part(const char *at, struct part *ret)
{
    *ret = (struct part){.name = at};
    if (*at == '\0')
        return NULL;
    size_t n = strcspn(at, ",");
    ret->n_name = (int)strcspn(at, ":,");
    ret->hash = at + ret->n_name;
    ret->n_hash = (int)strcspn(ret->hash, "@,");
    ret->seed = ret->hash + ret->n_hash;
    ret->n_seed = (int)(at + n - ret->seed);
    return at + n + (at[n] == ',');
}

static bool same(const char *a, int n_a, const char *b, int n_b)
{
    return n_a == n_b && memcmp(a, b, (size_t)n_a) == 0;
}

static int differ(struct stg_err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static int differ(struct stg_err *err, const char *fmt, ...)
{
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "the state is of another pipeline: %s (its position would be that of "
                   "other rows); apply the pipeline that the state was taken of",
                   what);
}

static int compare_parts(const struct part *now, const struct part *then, unsigned i,
                         struct stg_err *err)
{
    bool is_graph = same(now->name, now->n_name, "graph", 5);
    if (!same(now->name, now->n_name, then->name, then->n_name))
        return differ(err, "part %u is %.*s, in the state %.*s", i, now->n_name,
                      now->name, then->n_name, then->name);
    if (!same(now->hash, now->n_hash, then->hash, then->n_hash))
        return is_graph || same(now->name, now->n_name, "features", 8)
                   ? differ(err, "the %s before the boundary differ",
                            is_graph ? "nodes of the graph" : "features")
                   : differ(err, "step %.*s (number %u) has other attributes",
                            now->n_name, now->name, i);
    if (!same(now->seed, now->n_seed, then->seed, then->n_seed))
        return differ(err, "the seed of step %.*s (number %u) is %.*s, in the state %.*s",
                      now->n_name, now->name, i, now->n_seed > 0 ? now->n_seed - 1 : 0,
                      now->seed + (now->n_seed > 0),
                      then->n_seed > 0 ? then->n_seed - 1 : 0,
                      then->seed + (then->n_seed > 0));
    return 0;
}

int stg_signature_compare(const char *pipeline, const char *state, struct stg_err *err)
{
    struct part now, then;
    if (pipeline[0] == '#' || state[0] == '#')
        return strcmp(pipeline, state) == 0
                   ? 0
                   : differ(err, "of its many steps one or more differ");
    for (unsigned i = 1;; i++) {
        const char *next_now = next_part(pipeline, &now);
        const char *next_then = next_part(state, &then);
        if (next_now == NULL && next_then == NULL)
            return 0;
        if (next_now == NULL || next_then == NULL)
            return differ(err, "%s has more parts",
                          next_now != NULL ? "it" : "the state");
        int rc = compare_parts(&now, &then, i, err);
        if (rc < 0)
            return rc;
        pipeline = next_now;
        state = next_then;
    }
}

/* ---- what depends on timing ---- */

/* NULL: the step gives the same elements in every run. */
static const char *reason_of(const struct stg_step *step, char *buf, size_t bytes)
{
    bool is_sloppy = stg_attr_bool(step->attrs, step->n_attrs, "sloppy", false);
    bool is_free = !stg_attr_bool(step->attrs, step->n_attrs, "deterministic", true);
    bool is_impure = strcmp(step->name, "py_function") == 0 &&
                     !stg_attr_bool(step->attrs, step->n_attrs, "pure", false);
    if (!is_sloppy && !is_free && !is_impure)
        return NULL;
    snprintf(buf, bytes, "step %s (line %d): %s", step->name, step->line,
             is_impure   ? "the function is not declared pure: true"
             : is_sloppy ? "sloppy: true"
                         : "deterministic: false");
    return buf;
}

const char *stg_signature_irreproducible(const struct stg_pipeline_spec *spec, char *buf,
                                         size_t bytes)
{
    const char *reason = NULL;
    if (spec->staged.on_timeout == STG_ON_TIMEOUT_DROP)
        return "staged: on_timeout: drop drops batches by time (on_timeout: wait drops "
               "none)";
    if (!spec->staged.deterministic)
        return "staged: deterministic: false";
    for (size_t i = 0; i < spec->staged.n_feeds; i++) {
        if (spec->staged.feeds[i].client)
            return "staged: feed_dict has a value that clients set (client: true)";
    }
    for (size_t i = 0; reason == NULL && i < spec->n_steps; i++)
        reason = reason_of(&spec->steps[i], buf, bytes);
    for (size_t b = 0; b < spec->n_branches; b++) {
        for (size_t i = 0; reason == NULL && i < spec->branches[b].n_steps; i++)
            reason = reason_of(&spec->branches[b].steps[i], buf, bytes);
    }
    return reason;
}
