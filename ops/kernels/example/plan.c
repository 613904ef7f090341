/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/base/element.h"
#include "ops/kernels/example/example.h"

#define SHORT_KEY_MAX 127

static const char *const type_names[] = {
    [STG_EXAMPLE_FIXED_LEN] = "fixed_len",
    [STG_EXAMPLE_FIXED_LEN_SEQUENCE] = "fixed_len_sequence",
    [STG_EXAMPLE_VAR_LEN] = "var_len",
    [STG_EXAMPLE_RAGGED] = "ragged",
    [STG_EXAMPLE_SPARSE] = "sparse",
};

static const struct stg_param fields[] = {
    {.name = "type",
     .type = STG_PARAM_STRING,
     .preset = "fixed_len",
     .help = "fixed_len, fixed_len_sequence, var_len, ragged or sparse"},
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .required = true,
     .help = "int64, float32 or string"},
    {.name = "shape",
     .type = STG_PARAM_SHAPE,
     .preset = "[]",
     .help = "fixed_len: of a record; fixed_len_sequence: of a step"},
    {.name = "default_value",
     .type = STG_PARAM_VALUES,
     .help = "fixed_len: where a record has none; fixed_len_sequence: behind the last"},
    {.name = "value_key",
     .type = STG_PARAM_STRING,
     .help = "ragged, sparse: the key in the Example; default: the name"},
    {.name = "index_key",
     .type = STG_PARAM_STRINGS,
     .help = "sparse: the keys of the indices, one a dimension"},
    {.name = "size", .type = STG_PARAM_SHAPE, .help = "sparse: the dimensions"},
    {.name = "already_sorted",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "sparse: the indices are in order"},
};

const struct stg_param stg_example_params[1] = {
    {.name = "features",
     .type = STG_PARAM_FIELDS,
     .required = true,
     .fields = fields,
     .n_fields = sizeof(fields) / sizeof(fields[0]),
     .help = "what to take from each Example, by key: {label: {dtype: float32}}"},
};

/* ---- attributes ---- */

/* The attributes of one feature. */
struct entry {
    const struct stg_attr *attrs;
    size_t n;
};

static const struct stg_attr *field_of(const struct entry *entry, const char *field)
{
    struct stg_attr_path path;
    for (size_t i = 0; i < entry->n; i++) {
        if (stg_attr_path(&entry->attrs[i], "features", &path) &&
            strcmp(path.field, field) == 0)
            return &entry->attrs[i];
    }
    return NULL;
}

/* The next feature from *at on. */
static bool next_entry(const struct stg_node *node, size_t *at, struct entry *ret)
{
    while (*at < node->n_attrs) {
        ret->attrs = node->attrs + *at;
        ret->n = stg_attr_entry(ret->attrs, node->n_attrs - *at, "features");
        *at += ret->n > 0 ? ret->n : 1;
        if (ret->n > 0)
            return true;
    }
    return false;
}

/* -1: there is no such type. */
static int type_of(const struct entry *entry)
{
    const struct stg_attr *attr = field_of(entry, "type");
    const char *name = attr != NULL ? attr->values->s : type_names[STG_EXAMPLE_FIXED_LEN];
    for (size_t i = 0; i < sizeof(type_names) / sizeof(type_names[0]); i++) {
        if (strcmp(type_names[i], name) == 0)
            return (int)i;
    }
    return -1;
}

bool stg_example_next_output(const struct stg_node *node, struct stg_output_name *name)
{
    static const char *const dense[] = {"", NULL};
    static const char *const ragged[] = {"/values", "/row_splits", NULL};
    static const char *const sparse[] = {"/values", "/indices", "/dense_shape", NULL};
    static const char *const *const parts[] = {
        [STG_EXAMPLE_FIXED_LEN] = dense, [STG_EXAMPLE_FIXED_LEN_SEQUENCE] = dense,
        [STG_EXAMPLE_VAR_LEN] = sparse,  [STG_EXAMPLE_RAGGED] = ragged,
        [STG_EXAMPLE_SPARSE] = sparse,
    };
    struct entry entry;
    for (size_t at = name->attr; next_entry(node, &at, &entry); at = name->attr) {
        struct stg_attr_path path;
        int type = type_of(&entry);
        if (type < 0 || parts[type][name->n_part] == NULL) {
            name->attr = at;
            name->n_part = 0;
            continue;
        }
        stg_attr_path(entry.attrs, "features", &path);
        name->entry = path.entry;
        name->entry_bytes = path.entry_bytes;
        name->part = parts[type][name->n_part++];
        return true;
    }
    return false;
}

/* ---- keys ---- */

/* Tried for the table of keys. */
#define N_FACTORS 32

struct builder {
    struct stg_op_infer *ctx;
    struct stg_example_plan *plan;
    struct stg_example_key *keys;
    struct stg_example_feature *features;
    struct entry entry;
};

static void plan_head(struct stg_example_key *key)
{
    char head[16] = {0}, mask[16] = {0};
    size_t n = key->bytes + 3;
    /* A key with a longer length is never met in a short entry: nothing matches. */
    if (key->bytes > SHORT_KEY_MAX) {
        mask[0] = (char)0xff;
    } else {
        head[0] = 0x0a;
        head[1] = (char)key->bytes;
        for (size_t i = 2; i < n && i < sizeof(head); i++)
            head[i] = i < n - 1 ? key->name[i - 2] : 0x12;
        memset(mask, 0xff, n < sizeof(mask) ? n : sizeof(mask));
        key->rest = key->name + (n > sizeof(head) ? sizeof(head) - 2 : 0);
        key->rest_bytes = n > sizeof(head) ? (uint32_t)(n - 1 - sizeof(head)) : 0;
    }
    memcpy(key->head, head, sizeof(head));
    memcpy(key->mask, mask, sizeof(mask));
}

static uint32_t intern_key(struct builder *b, const char *name, size_t bytes)
{
    struct stg_example_plan *plan = b->plan;
    for (uint32_t k = 0; k < plan->n_keys; k++) {
        if (b->keys[k].bytes == bytes && memcmp(b->keys[k].name, name, bytes) == 0)
            return k;
    }
    struct stg_example_key *key = &b->keys[plan->n_keys];
    key->name = name;
    key->bytes = (uint32_t)bytes;
    plan_head(key);
    return plan->n_keys++;
}

uint32_t stg_example_place_of(const struct stg_example_plan *plan, const char *s,
                              size_t n)
{
    uint64_t first = 0, last = 0;
    memcpy(&first, s, n < sizeof(first) ? n : sizeof(first));
    memcpy(&last, n > sizeof(last) ? s + n - sizeof(last) : s,
           n < sizeof(last) ? n : sizeof(last));
    return stg_example_place(plan, first, last, n);
}

/* Returns how many keys have to be searched for behind their place. */
static uint32_t fill_table(struct builder *b, uint32_t *table)
{
    struct stg_example_plan *plan = b->plan;
    uint32_t n_moved = 0;
    for (uint32_t i = 0; i <= plan->table_mask; i++)
        table[i] = plan->n_keys;
    for (uint32_t k = 0; k < plan->n_keys; k++) {
        uint32_t at = stg_example_place_of(plan, b->keys[k].name, b->keys[k].bytes);
        n_moved += table[at] != plan->n_keys;
        while (table[at & plan->table_mask] != plan->n_keys)
            at++;
        table[at & plan->table_mask] = k;
    }
    return n_moved;
}

/* Of some factors the one that leaves most keys in their place. */
static bool plan_table(struct builder *b)
{
    struct stg_example_plan *plan = b->plan;
    uint32_t bits = 4, least = UINT32_MAX;
    while (bits < 31 && 1u << bits < plan->n_keys * 8)
        bits++;
    uint32_t *table = stg_bump_alloc(b->ctx->bump, sizeof(*table) << bits);
    if (table == NULL)
        return false;
    plan->table = table;
    plan->table_mask = (1u << bits) - 1;
    plan->table_shift = 64 - bits;
    uint64_t best = 0, random = 0;
    for (int i = 0; i < N_FACTORS && least > 0; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        plan->table_factor = random | 1;
        uint32_t n_moved = fill_table(b, table);
        best = n_moved < least ? plan->table_factor : best;
        least = n_moved < least ? n_moved : least;
    }
    plan->table_factor = best;
    fill_table(b, table);
    return true;
}

/* ---- features ---- */

static int read_dtype(const struct entry *entry, struct stg_example_feature *f,
                      struct stg_err *err)
{
    const char *name = field_of(entry, "dtype")->values->s;
    f->dtype = stg_dtype_from_name(name);
    switch (f->dtype) {
    case STAGER_INT64: f->kind = STG_EXAMPLE_INTS; return 0;
    case STAGER_FLOAT32: f->kind = STG_EXAMPLE_FLOATS; return 0;
    case STAGER_STRING: f->kind = STG_EXAMPLE_BYTES; return 0;
    default:
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "dtype cannot be %s, only int64, float32, string: an Example has "
                       "no other",
                       name);
    }
}

/* Which fields go with which types; bits are 1 << enum stg_example_type. */
static int check_fields(const struct entry *entry, const struct stg_example_feature *f,
                        struct stg_err *err)
{
    static const struct {
        const char *field;
        unsigned types;
    } rules[] = {
        {"shape", 1u << STG_EXAMPLE_FIXED_LEN | 1u << STG_EXAMPLE_FIXED_LEN_SEQUENCE},
        {"default_value",
         1u << STG_EXAMPLE_FIXED_LEN | 1u << STG_EXAMPLE_FIXED_LEN_SEQUENCE},
        {"value_key", 1u << STG_EXAMPLE_RAGGED | 1u << STG_EXAMPLE_SPARSE},
        {"index_key", 1u << STG_EXAMPLE_SPARSE},
        {"size", 1u << STG_EXAMPLE_SPARSE},
        {"already_sorted", 1u << STG_EXAMPLE_SPARSE},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (field_of(entry, rules[i].field) != NULL &&
            (rules[i].types & 1u << f->type) == 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "%s cannot be combined with type %s", rules[i].field,
                           type_names[f->type]);
    }
    return 0;
}

static int read_shape(const struct stg_attr *attr, int ndim, const char *what,
                      struct stg_example_feature *f, struct stg_err *err)
{
    f->n = 1;
    f->ndim = attr != NULL ? (int)attr->n_values : 0;
    if (attr != NULL && attr->n_values + (size_t)ndim > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s has %zu dimensions; with those of the batch there are at most "
                       "%d",
                       what, attr->n_values, STG_MAX_DIMS);
    for (int d = 0; d < f->ndim; d++) {
        f->shape[d] = attr->values[d].i;
        if (__builtin_mul_overflow(f->n, f->shape[d], &f->n) || f->n > INT32_MAX)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s has too many elements",
                           what);
    }
    return 0;
}

static int read_default(struct builder *b, struct stg_example_feature *f,
                        struct stg_err *err)
{
    const struct stg_attr *attr = field_of(&b->entry, "default_value");
    bool sequence = f->type == STG_EXAMPLE_FIXED_LEN_SEQUENCE;
    int64_t one = 1;
    struct stg_value zero = {.kind = STG_VALUE_INT, .s = ""};
    zero.kind = f->dtype == STAGER_STRING ? STG_VALUE_STRING : STG_VALUE_INT;
    if (attr != NULL && attr->n_values == 1 && attr->values->kind == STG_VALUE_NULL)
        attr = NULL;
    if (attr == NULL && !sequence)
        return 0;
    const struct stg_value *values = attr != NULL ? attr->values : &zero;
    size_t n_values = attr != NULL ? attr->n_values : 1;
    f->has_default = true;
    int rc = stg_literal_tensor(values, n_values, f->dtype, sequence ? 1 : f->ndim,
                                sequence ? &one : f->shape, b->ctx->bump, &f->fill, err);
    return rc < 0 ? stg_err_prefix(err, rc, "default_value") : 0;
}

static int read_indices(struct builder *b, struct stg_example_feature *f,
                        struct stg_err *err)
{
    const struct stg_attr *keys = field_of(&b->entry, "index_key");
    const struct stg_attr *size = field_of(&b->entry, "size");
    int rc = read_shape(size, 2, "size", f, err);
    if (rc < 0)
        return rc;
    if (keys == NULL || keys->n_values == 0 || size == NULL ||
        keys->n_values != size->n_values)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "sparse needs an index_key and a size for each dimension: "
                       "{index_key: [ids], size: [1000]}");
    uint32_t *indices = stg_bump_alloc(b->ctx->bump, keys->n_values * sizeof(*indices));
    if (indices == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < keys->n_values; i++)
        indices[i] = intern_key(b, keys->values[i].s, keys->values[i].s_bytes);
    f->index_keys = indices;
    f->n_index_keys = (uint32_t)keys->n_values;
    const struct stg_attr *sorted = field_of(&b->entry, "already_sorted");
    f->already_sorted = sorted != NULL && sorted->values->i != 0;
    return 0;
}

static int plan_feature(struct builder *b, struct stg_example_feature *f,
                        struct stg_err *err)
{
    const struct stg_attr *key = field_of(&b->entry, "value_key");
    int type = type_of(&b->entry), rc = read_dtype(&b->entry, f, err);
    if (rc == 0 && type < 0)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT,
                     "unknown type \"%.64s\"; known: fixed_len, fixed_len_sequence, "
                     "var_len, ragged, sparse",
                     field_of(&b->entry, "type")->values->s);
    if (rc < 0)
        return rc;
    f->type = (enum stg_example_type)type;
    f->key = intern_key(b, key != NULL ? key->values->s : f->name,
                        key != NULL ? key->values->s_bytes : f->name_bytes);
    rc = check_fields(&b->entry, f, err);
    if (rc == 0 && f->type == STG_EXAMPLE_SPARSE)
        return read_indices(b, f, err);
    if (rc == 0)
        rc = read_shape(field_of(&b->entry, "shape"),
                        f->type == STG_EXAMPLE_FIXED_LEN ? 1 : 2, "shape", f, err);
    if (rc < 0 || f->type == STG_EXAMPLE_VAR_LEN || f->type == STG_EXAMPLE_RAGGED)
        return rc;
    if (f->type == STG_EXAMPLE_FIXED_LEN_SEQUENCE && f->n == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "a step has no elements");
    b->keys[f->key].is_dense = true;
    return read_default(b, f, err);
}

static int name_feature(struct builder *b, struct stg_example_feature *f,
                        struct stg_err *err)
{
    struct stg_attr_path path;
    stg_attr_path(b->entry.attrs, "features", &path);
    f->name = path.entry;
    f->name_bytes = path.entry_bytes;
    for (const struct stg_example_feature *other = b->features; other < f; other++) {
        if (other->name_bytes == f->name_bytes &&
            memcmp(other->name, f->name, f->name_bytes) == 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "the feature is given twice");
    }
    return 0;
}

static int blame_feature(const struct stg_example_feature *f, int code,
                         struct stg_err *err)
{
    char name[STG_QUOTE_BYTES];
    return stg_err_prefix(err, code, "feature %s",
                          stg_quote(f->name, f->name_bytes, name));
}

static int plan_features(struct builder *b, struct stg_err *err)
{
    size_t at = 0;
    while (next_entry(b->ctx->node, &at, &b->entry)) {
        struct stg_example_feature *f = &b->features[b->plan->n_features++];
        int rc = name_feature(b, f, err);
        if (rc == 0)
            rc = plan_feature(b, f, err);
        if (rc < 0)
            return blame_feature(f, rc, err);
    }
    return 0;
}

/* ---- outputs ---- */

static struct stg_component vector(int dtype, int64_t n)
{
    return (struct stg_component){.dtype = dtype, .ndim = 1, .shape = {n}};
}

/* Rank of indices: the batch's dimension, then those of a record. */
static int sparse_rank(const struct stg_example_feature *f, int batch_ndim)
{
    return batch_ndim + (f->type == STG_EXAMPLE_SPARSE ? (int)f->n_index_keys : 1);
}

/* Returns how many there are; ret may be NULL. */
static uint32_t set_outputs(const struct stg_component *input,
                            const struct stg_example_feature *f,
                            struct stg_component *ret)
{
    bool dense =
        f->type == STG_EXAMPLE_FIXED_LEN || f->type == STG_EXAMPLE_FIXED_LEN_SEQUENCE;
    uint32_t n = dense ? 1 : f->type == STG_EXAMPLE_RAGGED ? 2 : 3;
    if (ret == NULL)
        return n;
    if (dense) {
        ret[0] = *input;
        ret[0].dtype = f->dtype;
        if (f->type == STG_EXAMPLE_FIXED_LEN_SEQUENCE)
            ret[0].shape[ret[0].ndim++] = -1;
        for (int d = 0; d < f->ndim; d++)
            ret[0].shape[ret[0].ndim++] = f->shape[d];
        return n;
    }
    int64_t rows = input->ndim == 0 ? 1 : input->shape[0];
    ret[0] = vector(f->dtype, -1);
    ret[1] = vector(STAGER_INT64, rows < 0 ? -1 : rows + 1);
    if (f->type == STG_EXAMPLE_RAGGED)
        return n;
    int rank = sparse_rank(f, input->ndim);
    ret[1] =
        (struct stg_component){.dtype = STAGER_INT64, .ndim = 2, .shape = {-1, rank}};
    ret[2] = vector(STAGER_INT64, rank);
    return n;
}

static int plan_outputs(struct builder *b, struct stg_err *err)
{
    const struct stg_component *input = &b->ctx->inputs[0];
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->plan->n_features; i++) {
        b->features[i].output = n;
        n += set_outputs(input, &b->features[i], NULL);
    }
    struct stg_component *outputs = stg_op_outputs(b->ctx, n);
    if (outputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t i = 0; i < b->plan->n_features; i++)
        set_outputs(input, &b->features[i], outputs + b->features[i].output);
    return 0;
}

/* Features and keys that there can be at most. */
static void count(const struct stg_node *node, size_t *ret_features, size_t *ret_keys)
{
    struct entry entry;
    *ret_features = *ret_keys = 0;
    for (size_t at = 0; next_entry(node, &at, &entry);) {
        const struct stg_attr *keys = field_of(&entry, "index_key");
        *ret_features += 1;
        *ret_keys += 1 + (keys != NULL ? keys->n_values : 0);
    }
}

int stg_example_infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    if (input->dtype != STAGER_STRING || input->ndim > 1)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "input \"%s\" is %s of rank %d; Examples must be strings of rank 0 or 1",
            input->name, stg_dtype_name(input->dtype), input->ndim);
    size_t n_features, n_keys;
    count(ctx->node, &n_features, &n_keys);
    struct stg_example_plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct builder b = {.ctx = ctx, .plan = plan};
    b.keys = stg_bump_alloc(ctx->bump, n_keys * sizeof(*b.keys));
    b.features = stg_bump_alloc(ctx->bump, n_features * sizeof(*b.features));
    if (plan == NULL || b.keys == NULL || b.features == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->keys = b.keys;
    plan->features = b.features;
    int rc = plan_features(&b, err);
    if (rc == 0)
        rc = plan_outputs(&b, err);
    if (rc == 0 && !plan_table(&b))
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    ctx->plan = plan;
    return rc;
}

/* ---- hashes ---- */

/* Single strings that are only hashed are never written. */
const void *stg_example_absorb(const void *own, struct stg_absorb *readers, size_t n,
                               struct stg_bump *bump)
{
    const struct stg_example_plan *plan = own;
    struct stg_example_plan *ret = stg_bump_alloc(bump, sizeof(*ret));
    struct stg_example_feature *features =
        stg_bump_alloc(bump, plan->n_features * sizeof(*features));
    if (ret == NULL || features == NULL)
        return NULL;
    memcpy(features, plan->features, plan->n_features * sizeof(*features));
    *ret = *plan;
    ret->features = features;
    for (size_t i = 0; i < n; i++) {
        struct stg_example_feature *f = features;
        while (f < features + plan->n_features && f->output != readers[i].output)
            f++;
        if (f == features + plan->n_features || f->type != STG_EXAMPLE_FIXED_LEN ||
            f->dtype != STAGER_STRING || f->n != 1 ||
            readers[i].op != &stg_op_string_to_hash_bucket_fast)
            continue;
        f->hash = readers[i].plan;
        if (f->has_default)
            f->hash_default = (int64_t)stg_modulus(
                stg_fingerprint64(f->fill.data, (size_t)f->fill.end[0]),
                &f->hash->buckets);
        readers[i].taken = true;
    }
    return ret;
}
