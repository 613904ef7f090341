/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ops/fixture.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/kernels/text/vocabulary.h"
#include "tests/check.h"

#define MAX_NODES 256
#define MAX_VALUES 4096
#define MAX_INPUTS 128
#define MAX_ATTRS 512

struct parser {
    struct fixture *fixture;
    struct stg_bump *bump;
    const char *p;
    int line;
    struct stg_err *err;
};

static int wrong(struct parser *ps, const char *what)
{
    return stg_err(ps->err, -STAGER_INVALID_ARGUMENT, "fixture line %d: %s at \"%.20s\"",
                   ps->line, what, ps->p);
}

static void skip_blanks(struct parser *ps)
{
    while (*ps->p == ' ' || *ps->p == '\t')
        ps->p++;
}

static bool take(struct parser *ps, char c)
{
    skip_blanks(ps);
    if (*ps->p != c)
        return false;
    ps->p++;
    return true;
}

static const char *take_word(struct parser *ps)
{
    skip_blanks(ps);
    const char *start = ps->p;
    while (*ps->p != '\0' && strchr(" \t\n(),=[]", *ps->p) == NULL)
        ps->p++;
    return stg_bump_strndup(ps->bump, start, (size_t)(ps->p - start));
}

/* ---- values ---- */

static int take_string(struct parser *ps, struct stg_value *ret)
{
    char *buf = stg_bump_alloc(ps->bump, strlen(ps->p) + 1);
    size_t n = 0;
    ps->p++;
    while (*ps->p != '"') {
        if (*ps->p == '\0')
            return wrong(ps, "string without end");
        if (ps->p[0] == '\\' && ps->p[1] == 'x') {
            char hex[3] = {ps->p[2], ps->p[3], 0};
            buf[n++] = (char)strtol(hex, NULL, 16);
            ps->p += 4;
            continue;
        }
        ps->p += *ps->p == '\\';
        buf[n++] = *ps->p++;
    }
    ps->p++;
    *ret = (struct stg_value){.kind = STG_VALUE_STRING, .s = buf, .s_bytes = n};
    return 0;
}

static int take_scalar(struct parser *ps, struct stg_value *ret)
{
    skip_blanks(ps);
    if (*ps->p == '"')
        return take_string(ps, ret);
    const char *word = take_word(ps);
    if (word[0] == '\0')
        return wrong(ps, "no value");
    *ret = (struct stg_value){.kind = STG_VALUE_NULL};
    if (strcmp(word, "null") == 0)
        return 0;
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        ret->kind = STG_VALUE_BOOL;
        ret->i = word[0] == 't';
        return 0;
    }
    char *end;
    ret->kind = STG_VALUE_FLOAT;
    ret->f = strtod(word, &end);
    if (*end != '\0')
        return wrong(ps, "no such value");
    if (strpbrk(word, ".einEIN") == NULL) {
        ret->kind = STG_VALUE_INT;
        ret->i = strtoll(word, NULL, 10);
    }
    return 0;
}

/* Lists must be rectangular: the first one at each depth sets the length. */
static int take_list(struct parser *ps, struct stg_attr *attr, struct stg_value *values,
                     int depth)
{
    if (!take(ps, '[')) {
        if (depth > attr->ndim)
            attr->ndim = depth;
        if (attr->n_values == MAX_VALUES)
            return wrong(ps, "too many values");
        return take_scalar(ps, &values[attr->n_values++]);
    }
    if (depth >= STG_ATTR_MAX_DIMS)
        return wrong(ps, "too deep");
    int64_t n = 0;
    while (!take(ps, ']')) {
        int rc = take_list(ps, attr, values, depth + 1);
        if (rc < 0)
            return rc;
        n++;
        take(ps, ',');
    }
    attr->shape[depth] = n;
    if (depth + 1 > attr->ndim)
        attr->ndim = depth + 1;
    return 0;
}

static int take_attr(struct parser *ps, struct stg_attr *attr)
{
    static struct stg_value values[MAX_VALUES];
    *attr = (struct stg_attr){.line = ps->line, .column = 1};
    attr->name = take_word(ps);
    if (!take(ps, '='))
        return wrong(ps, "no '='");
    int rc = take_list(ps, attr, values, 0);
    if (rc < 0)
        return rc;
    struct stg_value *copy = stg_bump_alloc(ps->bump, attr->n_values * sizeof(*copy));
    memcpy(copy, values, attr->n_values * sizeof(*copy));
    attr->values = copy;
    return 0;
}

/* ---- statements ---- */

static int take_element(struct parser *ps)
{
    struct stg_schema *schema = &ps->fixture->element;
    struct stg_component *c = &schema->components[schema->n++];
    c->name = take_word(ps);
    c->dtype = stg_dtype_from_name(take_word(ps));
    struct stg_attr attr = {0};
    struct stg_value values[STG_MAX_DIMS];
    int rc = take_list(ps, &attr, values, 0);
    if (rc < 0)
        return rc;
    c->ndim = (int)attr.n_values;
    for (int d = 0; d < c->ndim; d++)
        c->shape[d] = values[d].i;
    return 0;
}

static int take_node(struct parser *ps, const char *name, struct stg_node *node)
{
    const char **inputs = stg_bump_alloc(ps->bump, MAX_INPUTS * sizeof(*inputs));
    struct stg_attr *attrs = stg_bump_alloc(ps->bump, MAX_ATTRS * sizeof(*attrs));
    *node = (struct stg_node){.name = name, .inputs = inputs, .attrs = attrs};
    node->line = ps->line;
    node->column = 1;
    node->op = take_word(ps);
    if (!take(ps, '('))
        return wrong(ps, "no '('");
    while (!take(ps, ')')) {
        inputs[node->n_inputs++] = take_word(ps);
        if (node->n_inputs == MAX_INPUTS || *ps->p == '\0' || *ps->p == '\n')
            return wrong(ps, "no ')'");
        take(ps, ',');
    }
    for (skip_blanks(ps); *ps->p != '\n' && *ps->p != '\0'; skip_blanks(ps)) {
        int rc = take_attr(ps, &attrs[node->n_attrs++]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int take_statement(struct parser *ps)
{
    struct stg_pipeline_spec *spec = &ps->fixture->spec;
    const char *word = take_word(ps);
    if (word[0] == '\0' || word[0] == '#')
        return 0;
    if (strcmp(word, "element") == 0)
        return take_element(ps);
    if (strcmp(word, "target") == 0) {
        ((const char **)(uintptr_t)spec->targets)[spec->n_targets++] = take_word(ps);
        return 0;
    }
    if (strcmp(word, "feature") == 0) {
        struct stg_feature *feature =
            &((struct stg_feature *)(uintptr_t)
                  spec->staged.features)[spec->staged.n_features++];
        feature->path = take_word(ps);
        take(ps, '=');
        feature->tensor = take_word(ps);
        feature->line = ps->line;
        return 0;
    }
    if (!take(ps, '='))
        return wrong(ps, "no statement");
    struct stg_node *nodes = (struct stg_node *)(uintptr_t)spec->nodes;
    return take_node(ps, word, &nodes[spec->n_nodes++]);
}

int fixture_parse(struct fixture *fixture, const char *text, struct stg_err *err)
{
    *fixture = (struct fixture){0};
    struct stg_bump *bump = &fixture->spec.bump;
    struct parser ps = {.fixture = fixture, .bump = bump, .p = text, .err = err};
    fixture->spec.name = "test";
    fixture->spec.nodes = stg_bump_alloc(bump, MAX_NODES * sizeof(struct stg_node));
    fixture->spec.staged.features =
        stg_bump_alloc(bump, MAX_NODES * sizeof(struct stg_feature));
    fixture->spec.targets = stg_bump_alloc(bump, MAX_NODES * sizeof(char *));
    fixture->element.components =
        stg_bump_alloc(bump, MAX_NODES * sizeof(struct stg_component));
    while (*ps.p != '\0') {
        ps.line++;
        int rc = take_statement(&ps);
        if (rc < 0)
            return rc;
        while (*ps.p != '\0' && *ps.p != '\n')
            ps.p++;
        ps.p += *ps.p == '\n';
        if (fixture->spec.n_nodes >= MAX_NODES ||
            fixture->spec.staged.n_features >= MAX_NODES)
            return wrong(&ps, "too many statements");
    }
    return 0;
}

void fixture_finish(struct fixture *fixture)
{
    stg_bump_finish(&fixture->spec.bump);
}

/* ---- vocabularies ---- */

static int read_table(void *owner, const struct stg_node *node, struct stg_tensor *ret,
                      struct stg_err *err)
{
    static char text[65536];
    const char *path = stg_attr_string(node->attrs, node->n_attrs, "file", "");
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return stg_err(err, -STAGER_NOT_FOUND, "%s: cannot be opened", path);
    size_t n = fread(text, 1, sizeof(text), file);
    fclose(file);
    return stg_vocabulary_create(
        text, n, (uint64_t)stg_attr_int(node->attrs, node->n_attrs, "vocab_size", 0), ret,
        err);
}

int fixture_tables(struct stg_graph *graph, struct stg_err *err)
{
    return stg_graph_load_tables(graph, false, read_table, NULL, err);
}

/* ---- tensors ---- */

void fixture_stage_init(struct fixture_stage *stage, const char *text)
{
    struct stg_err err = {0};
    *stage = (struct fixture_stage){0};
    CHECK_OK(fixture_parse(&stage->fx, text, &err), err);
    CHECK_OK(
        stg_graph_create(&stage->fx.spec, &stage->fx.element, NULL, &stage->graph, &err),
        err);
    CHECK_OK(stg_run_create_stage(stage->graph, &stage->run, &err), err);
}

void fixture_stage_finish(struct fixture_stage *stage)
{
    stg_run_destroy(stage->run);
    stg_graph_destroy(stage->graph);
    fixture_finish(&stage->fx);
    stg_bump_finish(&stage->bump);
}

struct stg_tensor fixture_strings(struct stg_bump *bump, size_t n, const char *const *s)
{
    int64_t *offsets = stg_bump_alloc(bump, (n + 1) * sizeof(*offsets));
    for (size_t i = 0; i < n; i++)
        offsets[i + 1] = offsets[i] + (int64_t)strlen(s[i]);
    char *data = stg_bump_alloc(bump, (size_t)offsets[n]);
    for (size_t i = 0; i < n; i++)
        memcpy(data + offsets[i], s[i], strlen(s[i]));
    return (struct stg_tensor){.dtype = STAGER_STRING,
                               .ndim = 1,
                               .shape = {(int64_t)n},
                               .data = data,
                               .data_bytes = (uint64_t)offsets[n],
                               .begin = offsets,
                               .end = offsets + 1};
}

struct stg_tensor fixture_dense(struct stg_bump *bump, int dtype, int ndim,
                                const int64_t *shape, const void *data)
{
    struct stg_tensor tensor = {.dtype = dtype, .ndim = ndim};
    memcpy(tensor.shape, shape, (size_t)ndim * sizeof(*shape));
    tensor.data_bytes = (uint64_t)stg_tensor_n(&tensor) * stg_dtype_bytes(dtype);
    tensor.data = stg_bump_alloc(bump, tensor.data_bytes);
    memcpy(tensor.data, data, tensor.data_bytes);
    return tensor;
}
