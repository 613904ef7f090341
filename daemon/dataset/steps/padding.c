/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/padding.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/param.h"
#include "ops/base/element.h"

struct padded {
    const struct stg_component *component;
    int64_t shape[STG_MAX_DIMS];
    uint64_t value; /* an element */
    const char *text;
    uint64_t text_bytes;
};

struct stg_padding {
    const struct stg_step *step;
    size_t n;
    struct padded components[];
};

/* ---- when the pipeline is applied ---- */

/* FIELD/NAME, or FIELD alone: for all. NULL: not written. */
static const struct stg_attr *find(const struct stg_step *step, const char *field,
                                   const char *name)
{
    size_t bytes = strlen(field);
    for (size_t i = 0; i < step->n_attrs; i++) {
        const char *of = step->attrs[i].name;
        if (strncmp(of, field, bytes) == 0 && of[bytes] == '/' &&
            strcmp(of + bytes + 1, name) == 0)
            return &step->attrs[i];
    }
    return stg_attr_find(step->attrs, step->n_attrs, field);
}

static int check_names(const struct stg_step *step, const char *field,
                       const struct stg_schema *in, struct stg_err *err)
{
    size_t bytes = strlen(field);
    for (size_t i = 0; i < step->n_attrs; i++) {
        const char *of = step->attrs[i].name;
        if (strncmp(of, field, bytes) != 0 || of[bytes] != '/')
            continue;
        bool found = false;
        const char *names[64];
        size_t n = 0;
        for (size_t c = 0; c < in->n; c++) {
            found |= strcmp(in->components[c].name, of + bytes + 1) == 0;
            if (n < 64)
                names[n++] = in->components[c].name;
        }
        const char *near = found ? NULL : stg_nearest(of + bytes + 1, names, n);
        if (!found)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "%s: the element has no component \"%.64s\"%s%s%s", field,
                                of + bytes + 1, near != NULL ? "; did you mean \"" : "",
                                near != NULL ? near : "", near != NULL ? "\"?" : "");
    }
    return 0;
}

static int bad_shape(const struct stg_step *step, const struct stg_component *c,
                     const char *why, struct stg_err *err)
{
    char shape[128];
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "padded_shapes of %s: %s; the component has shape %s, and each "
                        "dimension is padded to a number, or to the largest (null or -1)",
                        c->name, why,
                        stg_shape_text(c->shape, c->ndim, shape, sizeof(shape)));
}

static int read_shape(const struct stg_step *step, const struct stg_component *c,
                      struct padded *ret, struct stg_err *err)
{
    memcpy(ret->shape, c->shape, sizeof(ret->shape));
    const struct stg_attr *attr = find(step, "padded_shapes", c->name);
    if (attr == NULL)
        return 0;
    if (attr->ndim != 1 || attr->n_values != (size_t)c->ndim)
        return bad_shape(step, c, "the number of dimensions differs", err);
    for (int d = 0; d < c->ndim; d++) {
        const struct stg_value *value = &attr->values[d];
        int64_t size = value->kind == STG_VALUE_INT ? value->i : -1;
        if ((value->kind != STG_VALUE_INT && value->kind != STG_VALUE_NULL) ||
            size < -1 || size > INT32_MAX)
            return bad_shape(step, c, "a dimension is not valid", err);
        if (size >= 0 && size < c->shape[d])
            return bad_shape(step, c, "a dimension is smaller than that of the component",
                             err);
        /* What is known already stays as large as it is. */
        ret->shape[d] = size >= 0 ? size : c->shape[d];
    }
    return 0;
}

static int read_value(const struct stg_step *step, const struct stg_component *c,
                      struct padded *ret, struct stg_err *err)
{
    const struct stg_attr *attr = find(step, "padding_values", c->name);
    ret->text = "";
    if (attr == NULL)
        return 0;
    const struct stg_value *value = attr->values;
    bool is_string = c->dtype == STAGER_STRING;
    if (attr->n_values != 1 || is_string != (value->kind == STG_VALUE_STRING))
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "padding_values of %s must be one %s", c->name,
                            stg_dtype_name(c->dtype));
    if (is_string) {
        ret->text = value->s;
        ret->text_bytes = value->s_bytes;
        return 0;
    }
    int rc = stg_literal_store(value, c->dtype, &ret->value, 0, err);
    if (rc < 0) {
        stg_err_prefix(err, rc, "padding_values of %s", c->name);
        stg_step_prefix(step, rc, err);
    }
    return rc;
}

int stg_padding_create(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, const struct stg_padding **ret,
                       struct stg_err *err)
{
    struct stg_padding *padding =
        stg_bump_alloc(bump, sizeof(*padding) + in->n * sizeof(padding->components[0]));
    if (padding == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    padding->step = step;
    padding->n = in->n;
    int rc = check_names(step, "padded_shapes", in, err);
    if (rc == 0)
        rc = check_names(step, "padding_values", in, err);
    for (size_t c = 0; rc == 0 && c < in->n; c++) {
        padding->components[c].component = &in->components[c];
        rc = read_shape(step, &in->components[c], &padding->components[c], err);
        if (rc == 0)
            rc = read_value(step, &in->components[c], &padding->components[c], err);
    }
    if (rc == 0)
        *ret = padding;
    return rc;
}

int stg_padding_schema(const struct stg_padding *padding, int64_t size,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_schema_create(bump, padding->n, ret, err);
    for (size_t c = 0; rc == 0 && c < padding->n; c++) {
        const struct padded *padded = &padding->components[c];
        struct stg_component component = *padded->component;
        memcpy(component.shape, padded->shape, sizeof(padded->shape));
        stg_component_prepend(&ret->components[c], &component, size);
    }
    return rc;
}

bool stg_padding_takes_uneven(const struct stg_padding *padding)
{
    for (size_t c = 0; c < padding->n; c++) {
        const struct padded *padded = &padding->components[c];
        if (padded->component->ndim > 0 && padded->component->shape[0] < 0 &&
            padded->shape[0] >= 0)
            return false;
    }
    return true;
}

int stg_padding_check(const struct stg_padding *padding, const struct stg_block *block,
                      int64_t unknown, struct stg_err *err)
{
    for (size_t c = 0; c < padding->n; c++) {
        const struct padded *to = &padding->components[c];
        const struct stg_tensor *tensor = &block->tensors[c];
        for (int d = 0; d < to->component->ndim; d++) {
            int64_t most = to->shape[d] >= 0 ? to->shape[d] : unknown;
            char shape[128];
            if (most < 0 || tensor->shape[d + 1] <= most)
                continue;
            return stg_step_err(
                padding->step, -STAGER_INVALID_ARGUMENT, err,
                "component %s of shape %s is larger than its padded shape: dimension %d "
                "has %" PRId64 " elements; the padded shape has %" PRId64,
                to->component->name,
                stg_shape_text(tensor->shape + 1, tensor->ndim - 1, shape, sizeof(shape)),
                d, tensor->shape[d + 1], most);
        }
    }
    return 0;
}

/* ---- a batch ---- */

/* Where one component of all blocks goes. */
struct target {
    const struct padded *how;
    struct stg_tensor *tensor; /* [records, shape…] */
    uint64_t bytes;            /* of an element; strings: of an offset */
    char *data;                /* strings: all their bytes */
    uint64_t used;
    int64_t *begin, *end;
};

/* Returns the largest dimension d of the records. */
static int64_t largest(const struct stg_tensor *tensor, int d)
{
    const int64_t *splits = tensor->splits;
    int64_t ret = tensor->shape[d];
    for (int64_t i = 0; d == 1 && splits != NULL && i < tensor->shape[0]; i++)
        ret = splits[i + 1] - splits[i] > ret ? splits[i + 1] - splits[i] : ret;
    return ret;
}

/* The shape of component c of the batch: shape[0] counts records. */
static void shape_of(const struct stg_padding *padding, size_t c,
                     struct stg_block *const *blocks, size_t n, int64_t unknown,
                     struct stg_tensor *ret)
{
    const struct padded *how = &padding->components[c];
    *ret = (struct stg_tensor){.dtype = how->component->dtype,
                               .ndim = how->component->ndim + 1};
    for (size_t i = 0; i < n; i++)
        ret->shape[0] += blocks[i]->n_records;
    for (int d = 1; d < ret->ndim; d++) {
        ret->shape[d] = how->shape[d - 1] >= 0 ? how->shape[d - 1] : unknown;
        bool as_largest = ret->shape[d] < 0;
        for (size_t i = 0; as_largest && i < n; i++) {
            int64_t size = largest(&blocks[i]->tensors[c], d);
            ret->shape[d] = size > ret->shape[d] ? size : ret->shape[d];
        }
    }
}

/* Bytes of all strings of a component, and of the one to pad with. */
static uint64_t string_bytes(const struct padded *how, size_t c,
                             struct stg_block *const *blocks, size_t n)
{
    uint64_t bytes = how->text_bytes;
    for (size_t i = 0; i < n; i++) {
        const struct stg_tensor *tensor = &blocks[i]->tensors[c];
        int64_t count = stg_tensor_n(tensor);
        for (int64_t k = 0; k < count; k++)
            bytes += (uint64_t)(tensor->end[k] - tensor->begin[k]);
    }
    return bytes;
}

/* Every element is the one to pad with. */
static void fill(struct target *to)
{
    int64_t n = stg_tensor_n(to->tensor);
    if (to->tensor->dtype == STAGER_STRING) {
        memcpy(to->data, to->how->text, to->how->text_bytes);
        to->used = to->how->text_bytes;
        for (int64_t i = 0; i < n; i++) {
            to->begin[i] = 0;
            to->end[i] = (int64_t)to->used;
        }
        return;
    }
    char *data = to->tensor->data;
    if (to->how->value == 0) {
        memset(data, 0, (uint64_t)n * to->bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(data + (uint64_t)i * to->bytes, &to->how->value, to->bytes);
}

static void copy_strings(struct target *to, int64_t at, const struct stg_tensor *from,
                         int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bytes = (uint64_t)(from->end[first + i] - from->begin[first + i]);
        memcpy(to->data + to->used, (const char *)from->data + from->begin[first + i],
               bytes);
        to->begin[at + i] = (int64_t)to->used;
        to->used += bytes;
        to->end[at + i] = (int64_t)to->used;
    }
}

static void copy_run(struct target *to, int64_t at, const struct stg_tensor *from,
                     int64_t first, int64_t n)
{
    if (from->dtype == STAGER_STRING)
        copy_strings(to, at, from, first, n);
    else
        memcpy((char *)to->tensor->data + (uint64_t)at * to->bytes,
               (const char *)from->data + (uint64_t)first * to->bytes,
               (uint64_t)n * to->bytes);
}

/* Elements below dimension d, from `first` of `from` on, to `at` on. What is as large as
 * its target is one run. */
static void copy_box(struct target *to, int64_t at, const struct stg_tensor *from,
                     int64_t first, int d)
{
    int64_t from_each = 1, to_each = 1;
    bool same = true;
    for (int k = d + 1; k < from->ndim; k++) {
        from_each *= from->shape[k];
        to_each *= to->tensor->shape[k];
        same &= from->shape[k] == to->tensor->shape[k];
    }
    if (same) {
        copy_run(to, at, from, first, from->shape[d] * from_each);
        return;
    }
    for (int64_t i = 0; i < from->shape[d]; i++)
        copy_box(to, at + i * to_each, from, first + i * from_each, d + 1);
}

/* All records of a tensor, each of which takes `each`. */
static void copy_records(struct target *to, int64_t at, int64_t each,
                         const struct stg_tensor *from)
{
    if (from->splits == NULL)
        copy_box(to, at, from, 0, 0);
    for (int64_t i = 0; from->splits != NULL && i < from->shape[0]; i++) {
        struct stg_tensor record = stg_tensor_records(from, i, 1);
        copy_box(to, at + i * each, &record, 0, 0);
    }
}

static void pad_component(const struct padded *how, size_t c,
                          struct stg_block *const *blocks, size_t n, struct stg_block *to)
{
    struct stg_tensor *tensor = &to->tensors[c];
    struct target target = {
        .how = how, .tensor = tensor, .bytes = stg_dtype_bytes(tensor->dtype)};
    uint64_t count = (uint64_t)stg_tensor_n(tensor), each = 1;
    if (tensor->dtype == STAGER_STRING) {
        target.begin = stg_block_carve(to, count * sizeof(int64_t));
        target.end = stg_block_carve(to, count * sizeof(int64_t));
        tensor->data_bytes = string_bytes(how, c, blocks, n);
        tensor->begin = target.begin;
        tensor->end = target.end;
    } else {
        tensor->data_bytes = count * target.bytes;
    }
    tensor->data = target.data = stg_block_carve(to, tensor->data_bytes);
    fill(&target);
    for (int d = 1; d < tensor->ndim; d++)
        each *= (uint64_t)tensor->shape[d];
    int64_t record = 0;
    for (size_t i = 0; i < n; i++) {
        copy_records(&target, record * (int64_t)each, (int64_t)each,
                     &blocks[i]->tensors[c]);
        record += blocks[i]->n_records;
    }
}

/* Bytes to carve for a component of that shape. */
static int room_of(const struct padded *how, size_t c, struct stg_block *const *blocks,
                   size_t n, const struct stg_tensor *shape, uint64_t *bytes)
{
    uint64_t count = 1, each = stg_dtype_bytes(shape->dtype), more = 0;
    for (int d = 0; d < shape->ndim; d++) {
        if (__builtin_mul_overflow(count, (uint64_t)shape->shape[d], &count))
            return -STAGER_RESOURCE_EXHAUSTED;
    }
    if (shape->dtype == STAGER_STRING) {
        each = 2 * sizeof(int64_t);
        more = stg_block_room(string_bytes(how, c, blocks, n));
    }
    if (count > (UINT64_C(1) << 48) / each)
        return -STAGER_RESOURCE_EXHAUSTED;
    *bytes += count * each + 128 + more;
    return 0;
}

int stg_padding_batch(const struct stg_padding *padding, struct stg_quota *quota,
                      struct stg_block *const *blocks, size_t n, int64_t unknown,
                      struct stg_block **ret, struct stg_err *err)
{
    uint64_t bytes = stg_block_rows_room(blocks, n);
    for (size_t c = 0; c < padding->n; c++) {
        struct stg_tensor shape;
        shape_of(padding, c, blocks, n, unknown, &shape);
        if (room_of(&padding->components[c], c, blocks, n, &shape, &bytes) < 0)
            return stg_step_err(padding->step, -STAGER_RESOURCE_EXHAUSTED, err,
                                "a batch of %s would have more than 2^48 bytes",
                                padding->components[c].component->name);
    }
    struct stg_block *to;
    int rc = stg_block_create(quota, (uint32_t)padding->n, stg_block_room(bytes), NULL,
                              "a padded batch", &to, err);
    if (rc < 0)
        return stg_step_prefix(padding->step, rc, err);
    for (size_t c = 0; c < padding->n; c++) {
        shape_of(padding, c, blocks, n, unknown, &to->tensors[c]);
        pad_component(&padding->components[c], c, blocks, n, to);
    }
    stg_block_join_rows(to, blocks, n);
    stg_block_pack(to);
    *ret = to;
    return 0;
}
