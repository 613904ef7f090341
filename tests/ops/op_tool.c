/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs small graphs (tests/ops/fixture.h) for a driver that compares them with another
 * implementation. Requests come on standard input, replies go to standard output, until
 * the input ends; integers are little-endian.
 *
 *   request  u32 bytes of the text, text, u32 side (0 stage, 1 compute), u32 n, n tensors
 *   reply    i32 0, u32 n, n tensors      or      i32 code, i64 row, u32 bytes, text
 *   tensor   u32 dtype, u32 ndim, i64 shape[ndim], then the elements, or for each string
 *            u32 bytes and the bytes
 *
 * The stage side takes the element's components and gives the features, the compute side
 * takes the features and gives the targets, over a graph made as a client makes it. Every
 * feed lies in an allocation of its own exact size, strings apart by one newline, so that
 * a sanitizer sees any byte read beyond. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ops/fixture.h"

static void die(const char *what)
{
    fprintf(stderr, "op_tool: %s\n", what);
    exit(2);
}

static bool get(void *to, size_t n)
{
    return n == 0 || fread(to, 1, n, stdin) == n;
}

static void must_get(void *to, size_t n)
{
    if (!get(to, n))
        die("request truncated");
}

static void put(const void *from, size_t n)
{
    if (n > 0 && fwrite(from, 1, n, stdout) != n)
        die("cannot write");
}

static uint32_t get_u32(void)
{
    uint32_t value;
    must_get(&value, sizeof(value));
    return value;
}

static void put_u32(uint32_t value)
{
    put(&value, sizeof(value));
}

static void *must_alloc(size_t n)
{
    void *ret = malloc(n > 0 ? n : 1);
    if (ret == NULL)
        die("out of memory");
    return ret;
}

/* ---- tensors ---- */

static void get_strings(struct stg_tensor *tensor, size_t n)
{
    int64_t *begin = must_alloc(2 * n * sizeof(*begin)), *end = begin + n;
    char *data = NULL;
    size_t used = 0, capacity = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bytes = get_u32();
        if (used + bytes + 1 > capacity) {
            capacity = 2 * (used + bytes + 1);
            char *larger = realloc(data, capacity);
            if (larger == NULL)
                die("out of memory");
            data = larger;
        }
        must_get(data + used, bytes);
        begin[i] = (int64_t)used;
        end[i] = (int64_t)(used + bytes);
        used += bytes;
        data[used++] = '\n';
    }
    tensor->data_bytes = used > 0 ? used - 1 : 0;
    tensor->data = must_alloc(tensor->data_bytes);
    if (tensor->data_bytes > 0)
        memcpy(tensor->data, data, tensor->data_bytes);
    free(data);
    tensor->begin = begin;
    tensor->end = end;
}

static void get_tensor(struct stg_tensor *tensor)
{
    *tensor = (struct stg_tensor){0};
    tensor->dtype = (int)get_u32();
    tensor->ndim = (int)get_u32();
    if (tensor->ndim > STG_MAX_DIMS)
        die("too many dimensions");
    must_get(tensor->shape, (size_t)tensor->ndim * sizeof(tensor->shape[0]));
    size_t n = (size_t)stg_tensor_n(tensor);
    if (tensor->dtype == STAGER_STRING) {
        get_strings(tensor, n);
        return;
    }
    tensor->data_bytes = n * stg_dtype_bytes(tensor->dtype);
    tensor->data = must_alloc(tensor->data_bytes);
    must_get(tensor->data, tensor->data_bytes);
}

static void put_tensor(const struct stg_tensor *tensor)
{
    put_u32((uint32_t)tensor->dtype);
    put_u32((uint32_t)tensor->ndim);
    put(tensor->shape, (size_t)tensor->ndim * sizeof(tensor->shape[0]));
    size_t n = (size_t)stg_tensor_n(tensor);
    if (tensor->dtype != STAGER_STRING) {
        put(tensor->data, n * stg_dtype_bytes(tensor->dtype));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)(tensor->end[i] - tensor->begin[i]);
        put_u32((uint32_t)bytes);
        put((const char *)tensor->data + tensor->begin[i], bytes);
    }
}

/* ---- requests ---- */

static int make_run(const struct fixture *fx, bool compute, struct stg_graph **graph,
                    struct stg_graph **client, struct stg_resources **resources,
                    struct stg_run **ret, struct stg_err *err)
{
    int rc = stg_graph_create(&fx->spec, &fx->element, NULL, graph, err);
    if (rc < 0)
        return rc;
    rc = fixture_tables(*graph, err);
    if (rc < 0)
        return rc;
    if (!compute)
        return stg_run_create_stage(*graph, ret, err);
    rc = stg_graph_create(&fx->spec, NULL, stg_graph_boundary(*graph), client, err);
    if (rc < 0)
        return rc;
    rc = stg_resources_create(*client, resources, err);
    if (rc < 0)
        return rc;
    return stg_run_create_compute(*client, *resources, fx->spec.targets,
                                  fx->spec.n_targets, ret, err);
}

static void put_reply(int rc, const struct stg_err *err, const struct stg_tensor *outputs,
                      size_t n)
{
    int32_t code = rc;
    put(&code, sizeof(code));
    if (rc < 0) {
        put(&err->row, sizeof(err->row));
        put_u32((uint32_t)strlen(err->text));
        put(err->text, strlen(err->text));
    } else {
        put_u32((uint32_t)n);
        for (size_t i = 0; i < n; i++)
            put_tensor(&outputs[i]);
    }
    fflush(stdout);
}

static void serve(const char *text, bool compute, struct stg_tensor *feeds)
{
    struct stg_err err = {.row = -1};
    struct fixture fx;
    struct stg_graph *graph = NULL, *client = NULL;
    struct stg_resources *resources = NULL;
    struct stg_run *run = NULL;
    static struct stg_tensor outputs[256];
    size_t n = 0;
    int rc = fixture_parse(&fx, text, &err);
    if (rc == 0)
        rc = make_run(&fx, compute, &graph, &client, &resources, &run, &err);
    if (rc == 0) {
        n = compute ? fx.spec.n_targets : stg_graph_boundary(graph)->n;
        rc = stg_run_exec(run, feeds, NULL, NULL, outputs, &err);
    }
    put_reply(rc, &err, outputs, n);
    stg_run_destroy(run);
    stg_resources_destroy(resources);
    stg_graph_destroy(client);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
}

int main(void)
{
    uint32_t bytes;
    while (get(&bytes, sizeof(bytes))) {
        char *text = must_alloc((size_t)bytes + 1);
        must_get(text, bytes);
        text[bytes] = '\0';
        uint32_t compute = get_u32(), n = get_u32();
        struct stg_tensor *feeds = must_alloc(n * sizeof(*feeds));
        for (uint32_t i = 0; i < n; i++)
            get_tensor(&feeds[i]);
        serve(text, compute != 0, feeds);
        for (uint32_t i = 0; i < n; i++) {
            free(feeds[i].data);
            free((void *)(uintptr_t)feeds[i].begin);
        }
        free(feeds);
        free(text);
    }
    return 0;
}
