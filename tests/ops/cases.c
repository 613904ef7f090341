/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ops/cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/element.h"
#include "tests/check.h"

#define TEXT_BYTES 65536

/* ---- tensors ---- */

static void skip(const char **text, const char *what)
{
    *text += strspn(*text, what);
}

static void read_strings(struct stg_bump *bump, const char **text, size_t n,
                         struct stg_tensor *tensor)
{
    int64_t *offsets = stg_bump_alloc(bump, (n + 1) * sizeof(*offsets));
    char *data = stg_bump_alloc(bump, strlen(*text) + 1);
    int64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        skip(text, " ");
        if (*(*text)++ != '"')
            FAIL("no string at \"%.20s\"", *text - 1);
        while (**text != '"') {
            if ((*text)[0] == '\\' && (*text)[1] == 'x') {
                char hex[3] = {(*text)[2], (*text)[3], 0};
                data[at++] = (char)strtol(hex, NULL, 16);
                *text += 4;
                continue;
            }
            *text += **text == '\\';
            data[at++] = *(*text)++;
        }
        (*text)++;
        offsets[i + 1] = at;
    }
    tensor->data = data;
    tensor->data_bytes = (uint64_t)at;
    tensor->begin = offsets;
    tensor->end = offsets + 1;
}

static void read_element(const char **text, int dtype, void *data, size_t i)
{
    char *end;
    skip(text, " ");
    switch (dtype) {
    case STAGER_FLOAT32: ((float *)data)[i] = strtof(*text, &end); break;
    case STAGER_FLOAT64: ((double *)data)[i] = strtod(*text, &end); break;
    case STAGER_FLOAT16:
        ((uint16_t *)data)[i] = stg_f16_from_f64(strtod(*text, &end));
        break;
    case STAGER_BFLOAT16:
        ((uint16_t *)data)[i] = stg_bf16_from_f32(strtof(*text, &end));
        break;
    case STAGER_UINT64: ((uint64_t *)data)[i] = strtoull(*text, &end, 10); break;
    default: {
        int64_t value = strtoll(*text, &end, 10);
        unsigned bytes = stg_dtype_bytes(dtype);
        memcpy((char *)data + i * bytes, &value, bytes);
        break;
    }
    }
    if (end == *text)
        FAIL("no %s at \"%.20s\"", stg_dtype_name(dtype), *text);
    *text = end;
}

struct stg_tensor case_tensor(struct stg_bump *bump, const char **text)
{
    struct stg_tensor tensor = {0};
    char name[16] = "";
    skip(text, " \n");
    size_t n = strcspn(*text, "[");
    CHECK(n < sizeof(name));
    memcpy(name, *text, n);
    tensor.dtype = stg_dtype_from_name(name);
    CHECK(tensor.dtype != STAGER_DT_INVALID);
    *text += n + 1;
    for (skip(text, " ,"); **text != ']'; skip(text, " ,")) {
        char *end;
        CHECK(tensor.ndim < STG_MAX_DIMS);
        tensor.shape[tensor.ndim++] = strtoll(*text, &end, 10);
        CHECK(end != *text);
        *text = end;
    }
    (*text)++;
    size_t n_elements = (size_t)stg_tensor_n(&tensor);
    if (tensor.dtype == STAGER_STRING) {
        read_strings(bump, text, n_elements, &tensor);
        return tensor;
    }
    tensor.data_bytes = n_elements * stg_dtype_bytes(tensor.dtype);
    tensor.data = stg_bump_alloc(bump, tensor.data_bytes);
    for (size_t i = 0; i < n_elements; i++)
        read_element(text, tensor.dtype, tensor.data, i);
    return tensor;
}

static size_t read_tensors(struct stg_bump *bump, const char *text,
                           struct stg_tensor *ret)
{
    size_t n = 0;
    for (skip(&text, " \n"); *text != '\0'; skip(&text, " \n")) {
        CHECK(n < OP_CASE_TENSORS);
        ret[n++] = case_tensor(bump, &text);
    }
    return n;
}

/* ---- comparison ---- */

static bool is_nan_at(const struct stg_tensor *t, size_t i)
{
    switch (t->dtype) {
    case STAGER_FLOAT32: return isnan(((const float *)t->data)[i]);
    case STAGER_FLOAT64: return isnan(((const double *)t->data)[i]);
    case STAGER_FLOAT16: return isnan(stg_f32_from_f16(((const uint16_t *)t->data)[i]));
    case STAGER_BFLOAT16: return isnan(stg_f32_from_bf16(((const uint16_t *)t->data)[i]));
    default: return false;
    }
}

static bool same_at(const struct stg_tensor *a, const struct stg_tensor *b, size_t i,
                    bool exact_nan)
{
    if (a->dtype == STAGER_STRING) {
        int64_t n = a->end[i] - a->begin[i];
        return n == b->end[i] - b->begin[i] &&
               memcmp((const char *)a->data + a->begin[i],
                      (const char *)b->data + b->begin[i], (size_t)n) == 0;
    }
    unsigned bytes = stg_dtype_bytes(a->dtype);
    if (memcmp((const char *)a->data + i * bytes, (const char *)b->data + i * bytes,
               bytes) == 0)
        return true;
    return !exact_nan && is_nan_at(a, i) && is_nan_at(b, i);
}

static double number_at(const struct stg_tensor *t, size_t i)
{
    return t->dtype == STAGER_FLOAT64 ? ((const double *)t->data)[i]
                                      : (double)((const float *)t->data)[i];
}

/* The difference allowed between two tensors. */
struct slack {
    bool exact_nan;
    double tolerance; /* of float32 and float64 */
};

static bool near_at(const struct stg_tensor *a, const struct stg_tensor *b, size_t i,
                    const struct slack *slack)
{
    if (same_at(a, b, i, slack->exact_nan))
        return true;
    if (a->dtype != STAGER_FLOAT32 && a->dtype != STAGER_FLOAT64)
        return false;
    double got = number_at(a, i), want = number_at(b, i);
    return fabs(got - want) <= slack->tolerance * fmax(1, fabs(want));
}

static void check_tensor(const struct op_case *c, size_t output,
                         const struct stg_tensor *got, const struct stg_tensor *want,
                         const struct slack *slack)
{
    char a[128], b[128];
    stg_shape_text(got->shape, got->ndim, a, sizeof(a));
    stg_shape_text(want->shape, want->ndim, b, sizeof(b));
    if (got->dtype != want->dtype || strcmp(a, b) != 0)
        FAIL("%s(%s) %s: output %zu is %s%s, not %s%s", c->op, c->inputs, c->attrs,
             output, stg_dtype_name(got->dtype), a, stg_dtype_name(want->dtype), b);
    size_t n = (size_t)stg_tensor_n(want);
    for (size_t i = 0; i < n; i++) {
        if (!near_at(got, want, i, slack))
            FAIL("%s(%s) %s: output %zu differs from %s at element %zu", c->op, c->inputs,
                 c->attrs, output, c->want, i);
    }
}

/* ---- running ---- */

static size_t print_inputs(char *text, const struct stg_tensor *feeds, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at += (size_t)sprintf(text + at, "element in%zu %s [", i,
                              stg_dtype_name(feeds[i].dtype));
        for (int d = 0; d < feeds[i].ndim; d++)
            at += (size_t)sprintf(text + at, "-1,");
        at += (size_t)sprintf(text + at, "]\n");
    }
    return at;
}

int op_case_fixture(const struct op_case *c, const struct stg_tensor *feeds, size_t n,
                    size_t n_outputs, struct fixture *fixture, struct stg_err *err)
{
    static char text[TEXT_BYTES];
    size_t at = print_inputs(text, feeds, n);
    at += (size_t)sprintf(text + at, "y = %s(", c->op);
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "in%zu,", i);
    at += (size_t)sprintf(text + at, ") %s\n", c->attrs);
    for (size_t k = 0; k < n_outputs; k++)
        at += (size_t)sprintf(text + at, "feature f%zu = y:%zu\n", k, k);
    return fixture_parse(fixture, text, err);
}

int op_case_graph(const struct op_case *c, const struct stg_tensor *feeds, size_t n,
                  size_t n_outputs, struct fixture *fixture, struct stg_graph **ret,
                  struct stg_err *err)
{
    int rc = op_case_fixture(c, feeds, n, n_outputs, fixture, err);
    return rc < 0 ? rc
                  : stg_graph_create(&fixture->spec, &fixture->element, NULL, ret, err);
}

static int run_case(const struct op_case *c, const struct stg_tensor *feeds, size_t n,
                    size_t n_outputs, void (*each)(void *, const struct stg_tensor *),
                    void *owner, struct stg_err *err)
{
    static struct stg_tensor outputs[OP_CASE_TENSORS];
    struct fixture fx;
    struct stg_graph *graph = NULL;
    struct stg_run *run = NULL;
    int rc = op_case_graph(c, feeds, n, n_outputs, &fx, &graph, err);
    if (rc == 0)
        rc = stg_run_create_stage(graph, &run, err);
    if (rc == 0)
        rc = stg_run_exec(run, feeds, NULL, NULL, outputs, err);
    if (rc == 0)
        each(owner, outputs);
    stg_run_destroy(run);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
    return rc;
}

struct expected {
    const struct op_case *c;
    const struct stg_tensor *want;
    size_t n;
    const struct slack *slack;
};

static void check_outputs(void *owner, const struct stg_tensor *outputs)
{
    const struct expected *expected = owner;
    if (expected->c->want == NULL)
        FAIL("%s(%s) %s: was not refused", expected->c->op, expected->c->inputs,
             expected->c->attrs);
    for (size_t i = 0; i < expected->n; i++)
        check_tensor(expected->c, i, &outputs[i], &expected->want[i], expected->slack);
}

size_t op_case_inputs(const struct op_case *c, struct stg_bump *bump,
                      struct stg_tensor *ret, size_t *ret_n_outputs)
{
    static struct stg_tensor want[OP_CASE_TENSORS];
    *ret_n_outputs = c->want != NULL ? read_tensors(bump, c->want, want) : 1;
    return read_tensors(bump, c->inputs, ret);
}

static void check_case(const struct op_case *c, const struct slack *slack)
{
    struct stg_bump bump = {0};
    struct stg_err err = {.row = -1};
    static struct stg_tensor feeds[OP_CASE_TENSORS], want[OP_CASE_TENSORS];
    size_t n = read_tensors(&bump, c->inputs, feeds);
    size_t n_want = c->want != NULL ? read_tensors(&bump, c->want, want) : 1;
    struct expected expected = {.c = c, .want = want, .n = n_want, .slack = slack};
    int rc = run_case(c, feeds, n, n_want, check_outputs, &expected, &err);
    if (rc < 0 && c->want != NULL)
        FAIL("%s(%s) %s: %s", c->op, c->inputs, c->attrs, err.text);
    if (rc < 0 && c->error != NULL) {
        CHECK_INT(rc, -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, c->error);
        CHECK_INT(err.row, c->row);
    }
    stg_bump_finish(&bump);
}

void op_case_check(const struct op_case *c, bool exact_nan)
{
    check_case(c, &(struct slack){.exact_nan = exact_nan});
}

void op_case_check_near(const struct op_case *c, double tolerance)
{
    check_case(c, &(struct slack){.tolerance = tolerance});
}
