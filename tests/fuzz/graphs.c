/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/graphs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/ops/op_rows.h"

#define MAX_NODES 6
#define MAX_VALUES 64
#define TEXT_BYTES 32768
#define TENSOR_BYTES ((uint64_t)1 << 20)

void stg_fuzz_numbers(struct stg_fuzz_input *input, const char *text, const char *but,
                      char *ret, size_t bytes)
{
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "7",
                                          "-1",
                                          "-2",
                                          "1000",
                                          "0.5",
                                          "9223372036854775807",
                                          "-9223372036854775808"};
    unsigned change = stg_fuzz_byte(input), n = 0;
    size_t at = 0;
    for (const char *p = text; *p != '\0' && at + 32 < bytes;) {
        bool begins =
            isdigit((unsigned char)*p) && (p == text || strchr(" [=,", p[-1]) != NULL);
        bool stays = but != NULL && (size_t)(p - text) > strlen(but) &&
                     strncmp(p - strlen(but), but, strlen(but)) == 0;
        if (!begins || stays || change < 128 || n++ != change % 16) {
            ret[at++] = *p++;
            continue;
        }
        p += strspn(p, "0123456789.");
        const char *number = numbers[stg_fuzz_byte(input) % 11];
        at += (size_t)sprintf(ret + at, "%s", number);
        change = stg_fuzz_byte(input);
    }
    ret[at] = '\0';
}

/* ---- rows ---- */

struct row {
    bool is_read;
    size_t n_inputs, n_outputs;
    struct stg_tensor inputs[OP_CASE_TENSORS];
    struct stg_tensor outputs[OP_CASE_TENSORS];
};

/* Rows live as long as the process. */
static const struct row *row_of(size_t i)
{
    static struct row **rows;
    static struct stg_bump bump;
    if (rows == NULL)
        rows = calloc(n_op_rows, sizeof(struct row *));
    FUZZ_CHECK(rows != NULL);
    if (rows[i] != NULL)
        return rows[i];
    struct row *row = rows[i] = calloc(1, sizeof(*row));
    FUZZ_CHECK(row != NULL);
    row->n_inputs = op_case_inputs(&op_rows[i], &bump, row->inputs, &row->n_outputs);
    const char *want = op_rows[i].want;
    for (size_t k = 0; want != NULL && k < row->n_outputs; k++)
        row->outputs[k] = case_tensor(&bump, &want);
    return row;
}

/* Ops that wait, or read files. */
static bool is_meant(size_t i)
{
    return strcmp(op_rows[i].op, "sleep") != 0 &&
           strcmp(op_rows[i].op, "vocabulary") != 0;
}

/* ---- a graph ---- */

struct value {
    char name[32];
    int dtype, ndim;
};

struct made {
    struct stg_bump bump;
    struct stg_tensor feeds[OP_CASE_TENSORS];
    size_t n_feeds;
    struct value values[MAX_VALUES];
    size_t n_values;
    char elements[TEXT_BYTES / 8], nodes[TEXT_BYTES];
    size_t elements_bytes, nodes_bytes;
};

static void add_value(struct made *made, const char *name, int dtype, int ndim)
{
    if (made->n_values == MAX_VALUES)
        return;
    struct value *value = &made->values[made->n_values++];
    *value = (struct value){.dtype = dtype, .ndim = ndim};
    snprintf(value->name, sizeof(value->name), "%s", name);
}

static size_t elements_of(const struct stg_tensor *tensor)
{
    return (size_t)stg_tensor_n(tensor);
}

/* Gives the tensor fewer rows, or none. */
static void cut(struct stg_fuzz_input *input, struct stg_tensor *tensor)
{
    if (tensor->ndim == 0 || tensor->shape[0] == 0)
        return;
    tensor->shape[0] = (int64_t)stg_fuzz_byte(input) % (tensor->shape[0] + 1);
    if (tensor->dtype != STAGER_STRING)
        tensor->data_bytes = elements_of(tensor) * stg_dtype_bytes(tensor->dtype);
}

/* Another number; a bool stays one. */
static void set_number(struct stg_fuzz_input *input, struct stg_tensor *tensor)
{
    static const uint64_t odd[] = {0,          UINT64_MAX,      1ull << 63,
                                   INT64_MAX,  0x7ff0ull << 48, 0x7f800000,
                                   0x80000000, 0x7fc00000};
    size_t n = elements_of(tensor), bytes = stg_dtype_bytes(tensor->dtype);
    size_t at = stg_fuzz_byte(input);
    unsigned kind = stg_fuzz_byte(input);
    uint64_t number = kind < 128 ? odd[kind % 8] : kind - 160ull;
    if (tensor->dtype == STAGER_BOOL)
        number &= 1;
    if (n > 0)
        memcpy((char *)tensor->data + at % n * bytes, &number, bytes);
}

/* A string that is a part of the input. */
static void set_string(struct stg_fuzz_input *input, struct stg_tensor *tensor)
{
    size_t n = elements_of(tensor), at = stg_fuzz_byte(input);
    size_t length = stg_fuzz_byte(input), left = stg_fuzz_left(input);
    length = length < left ? length : left;
    if (n == 0)
        return;
    FUZZ_CHECK(tensor->begin != NULL);
    ((int64_t *)(uintptr_t)tensor->begin)[at % n] = (int64_t)tensor->data_bytes;
    if (length > 0)
        memcpy((char *)tensor->data + tensor->data_bytes, input->at, length);
    tensor->data_bytes += length;
    ((int64_t *)(uintptr_t)tensor->end)[at % n] = (int64_t)tensor->data_bytes;
    input->at += length;
}

/* Copies a tensor, and makes room for `more` bytes of strings. */
static void copy(struct stg_bump *bump, const struct stg_tensor *from, size_t more,
                 struct stg_tensor *ret)
{
    size_t n = elements_of(from);
    *ret = *from;
    ret->data = stg_bump_alloc(bump, from->data_bytes + more + 1);
    if (from->data_bytes > 0)
        memcpy(ret->data, from->data, from->data_bytes);
    if (from->dtype != STAGER_STRING)
        return;
    int64_t *begin = stg_bump_alloc(bump, (2 * n + 1) * sizeof(*begin));
    if (n > 0) {
        memcpy(begin, from->begin, n * sizeof(*begin));
        memcpy(begin + n, from->end, n * sizeof(*begin));
    }
    ret->begin = begin;
    ret->end = begin + n;
}

static void feed(struct stg_fuzz_input *input, struct made *made,
                 const struct stg_tensor *from, char *ret, size_t bytes)
{
    struct stg_tensor *to = &made->feeds[made->n_feeds];
    unsigned kind = stg_fuzz_byte(input);
    copy(&made->bump, from, 4 * 256, to);
    if ((kind & 3) == 3)
        cut(input, to);
    for (unsigned n = kind >> 2 & 3; n > 0; n--) {
        if (to->dtype == STAGER_STRING)
            set_string(input, to);
        else
            set_number(input, to);
    }
    snprintf(ret, bytes, "in%zu", made->n_feeds++);
    char *at = made->elements + made->elements_bytes;
    size_t n = (size_t)sprintf(at, "element %s %s [", ret, stg_dtype_name(to->dtype));
    for (int d = 0; d < to->ndim; d++)
        n += (size_t)sprintf(at + n, "-1,");
    made->elements_bytes += n + (size_t)sprintf(at + n, "]\n");
    add_value(made, ret, to->dtype, to->ndim);
}

/* Chooses a value of the type, or feeds the tensor. */
static bool choose(struct stg_fuzz_input *input, struct made *made,
                   const struct stg_tensor *from, char *ret, size_t bytes)
{
    unsigned kind = stg_fuzz_byte(input);
    for (size_t i = 0; (kind & 1) != 0 && i < made->n_values; i++) {
        const struct value *value = &made->values[(i + kind / 2) % made->n_values];
        if (value->dtype != from->dtype ||
            (value->ndim != from->ndim && (kind & 64) == 0))
            continue;
        snprintf(ret, bytes, "%s", value->name);
        return true;
    }
    if (made->n_feeds == OP_CASE_TENSORS ||
        made->elements_bytes + 128 > sizeof(made->elements))
        return false;
    feed(input, made, from, ret, bytes);
    return true;
}

static bool add_node(struct stg_fuzz_input *input, struct made *made, unsigned number)
{
    size_t r = stg_fuzz_number(input) % n_op_rows;
    const struct row *row = row_of(r);
    static char attrs[TEXT_BYTES / 4];
    char name[32], inputs[OP_CASE_TENSORS * 16] = "";
    size_t n = 0;
    if (!is_meant(r) || strlen(op_rows[r].attrs) + 64 > sizeof(attrs))
        return false;
    for (size_t k = 0; k < row->n_inputs; k++) {
        if (!choose(input, made, &row->inputs[k], name, sizeof(name)))
            return false;
        n += (size_t)snprintf(inputs + n, sizeof(inputs) - n, "%s,", name);
        if (n >= sizeof(inputs))
            return false;
    }
    stg_fuzz_numbers(input, op_rows[r].attrs, NULL, attrs, sizeof(attrs));
    size_t needs = strlen(attrs) + n + row->n_outputs * 40 + 64;
    if (made->nodes_bytes + needs > sizeof(made->nodes))
        return false;
    char *at = made->nodes + made->nodes_bytes;
    n = (size_t)sprintf(at, "n%u = %s(%s) %s\n", number, op_rows[r].op, inputs, attrs);
    for (size_t k = 0; k < row->n_outputs; k++) {
        snprintf(name, sizeof(name), "n%u:%zu", number, k);
        n += (size_t)sprintf(at + n, "feature f%u_%zu = %s\n", number, k, name);
        if (op_rows[r].want != NULL)
            add_value(made, name, row->outputs[k].dtype, row->outputs[k].ndim);
    }
    made->nodes_bytes += n;
    return true;
}

/* ---- a run ---- */

static uint64_t check_output(uint64_t hash, const struct stg_tensor *tensor,
                             const struct stg_component *component)
{
    struct stg_component is = {.dtype = tensor->dtype, .ndim = tensor->ndim};
    memcpy(is.shape, tensor->shape, sizeof(is.shape));
    FUZZ_CHECK_TEXT(stg_component_fits(&is, component), component->name);
    size_t n = elements_of(tensor);
    hash = stg_fuzz_hash(hash, tensor->shape, (size_t)tensor->ndim * sizeof(int64_t));
    if (tensor->dtype != STAGER_STRING)
        return stg_fuzz_hash(hash, tensor->data, n * stg_dtype_bytes(tensor->dtype));
    for (size_t i = 0; i < n; i++) {
        uint64_t length;
        const char *text = stg_tensor_string(tensor, (int64_t)i, &length);
        FUZZ_CHECK(length <= tensor->data_bytes);
        hash = stg_fuzz_hash(hash, text, length);
        hash = stg_fuzz_hash(hash, &length, sizeof(length));
    }
    return hash;
}

/* Returns a hash of the outputs, or of the error. */
static uint64_t run_once(struct stg_run *run, const struct stg_graph *graph,
                         const struct stg_tensor *feeds)
{
    static struct stg_tensor outputs[MAX_NODES * OP_CASE_TENSORS];
    const struct stg_schema *schema = stg_graph_boundary(graph);
    struct stg_err err = {.row = -1};
    uint64_t hash = 0xcbf29ce484222325ull;
    FUZZ_CHECK(schema->n <= sizeof(outputs) / sizeof(outputs[0]));
    int rc = stg_run_exec(run, feeds, NULL, NULL, outputs, &err);
    if (rc < 0) {
        FUZZ_CHECK_TEXT(strncmp(err.text, "node ", 5) == 0, err.text);
        return stg_fuzz_hash(hash, err.text, strlen(err.text));
    }
    for (size_t i = 0; i < schema->n; i++)
        hash = check_output(hash, &outputs[i], &schema->components[i]);
    return hash;
}

static void run_text(const char *text, const struct stg_tensor *feeds)
{
    struct fixture fx = {0};
    struct stg_graph *graph = NULL;
    struct stg_run *run = NULL;
    struct stg_err err = {.row = -1};
    int rc = fixture_parse(&fx, text, &err);
    if (getenv("STG_FUZZ_SHOW") != NULL)
        fprintf(stderr, "%s", text);
    if (rc == 0)
        rc = stg_graph_create(&fx.spec, &fx.element, NULL, &graph, &err);
    if (rc == 0)
        rc = stg_run_create_stage(graph, &run, &err);
    FUZZ_CHECK(rc == 0 || err.text[0] != '\0');
    if (rc == 0) {
        stg_run_limit(run, TENSOR_BYTES);
        uint64_t hash = run_once(run, graph, feeds);
        FUZZ_CHECK_TEXT(run_once(run, graph, feeds) == hash, text);
    } else if (getenv("STG_FUZZ_SHOW") != NULL) {
        fprintf(stderr, "    %s\n", err.text);
    }
    stg_run_destroy(run);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
}

void stg_fuzz_graph(const uint8_t *data, size_t bytes)
{
    static struct made made;
    static char text[sizeof(made.elements) + sizeof(made.nodes)];
    struct stg_fuzz_input input = {data, data + bytes};
    memset(&made, 0, sizeof(made));
    stg_bump_init(&made.bump, 0);
    for (unsigned n = 0; n < MAX_NODES && (n == 0 || input.at < input.end); n++) {
        if (!add_node(&input, &made, n))
            break;
    }
    snprintf(text, sizeof(text), "%s%s", made.elements, made.nodes);
    run_text(text, made.feeds);
    stg_bump_finish(&made.bump);
}

/* Some rows of each op, as they are; then each of them over the values of the first. */
void stg_fuzz_graph_seeds(void)
{
    static const uint8_t zeros[16];
    size_t n_same = 0;
    for (size_t i = 0; i < n_op_rows; i++) {
        uint8_t seed[32] = {(uint8_t)(i >> 8), (uint8_t)i};
        n_same = i > 0 && strcmp(op_rows[i].op, op_rows[i - 1].op) == 0 ? n_same + 1 : 0;
        const struct row *row = row_of(i);
        if (!is_meant(i) || row->n_inputs > 4 || n_same % 8 != 0)
            continue;
        stg_fuzz_seed("graph", seed, 2, zeros, 2 * row->n_inputs + 1);
    }
}
