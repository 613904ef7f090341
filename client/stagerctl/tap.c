/* SPDX-License-Identifier: Apache-2.0
 *
 * tap: prints the first values of batches that a pipeline publishes. Its clients do not
 * notice.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/text/values.h"
#include "core/clock.h"

#define DEFAULT_SECONDS 5
#define TURN_MILLIS 5000
#define NS_PER_MS UINT64_C(1000000)

/* ---- one batch ---- */

/* The values that there are, as a vector. */
static struct stager_tensor vector_of(const struct stg_tap_tensor *tensor)
{
    size_t bytes = stg_dtype_bytes(tensor->dtype);
    bool is_string = tensor->dtype == STAGER_STRING;
    return (struct stager_tensor){
        .dtype = tensor->dtype,
        .ndim = 1,
        .shape = {is_string ? (int64_t)tensor->n_offsets - 1
                            : (int64_t)(tensor->data_bytes / bytes)},
        .data = tensor->data,
        .data_bytes = tensor->data_bytes,
        .offsets = tensor->offsets,
    };
}

static bool has_more(const struct stg_tap_tensor *tensor,
                     const struct stager_tensor *vector)
{
    int64_t n = 1;
    for (int i = 0; i < tensor->ndim && n > 0; i++) {
        if (tensor->shape[i] > 0 && n > INT64_MAX / tensor->shape[i])
            return true;
        n *= tensor->shape[i];
    }
    return n > vector->shape[0];
}

static void add_values(struct stg_table *table, const struct stg_tap_tensor *tensor)
{
    char *text = NULL;
    size_t bytes = 0;
    struct stager_tensor vector = vector_of(tensor);
    FILE *out = open_memstream(&text, &bytes);
    if (out != NULL) {
        stg_values_preview(out, &vector, vector.shape[0]);
        if (tensor->shortened || has_more(tensor, &vector))
            fputs(vector.shape[0] > 0 ? ", …" : "…", out);
        fclose(out);
    }
    stg_table_add(table, "%s", text != NULL ? text : "?");
    free(text);
}

static void print_text(const char *name, const struct stg_tap_batch *batch)
{
    char bytes[32], shape[256];
    struct stg_table table = {.n_columns = 4};
    printf("%s: batch %" PRIu64 " (pass %" PRIu64 ", epoch %" PRIu64 ", index %" PRIu64
           "): %" PRIu64 " rows, %s\n",
           name, batch->number, batch->pass, batch->epoch, batch->index, batch->rows,
           stg_ctl_bytes(batch->bytes, bytes, sizeof(bytes)));
    stg_table_add(&table, "NAME");
    stg_table_add(&table, "DTYPE");
    stg_table_add(&table, "SHAPE");
    stg_table_add(&table, "FIRST VALUES");
    for (size_t i = 0; i < batch->n; i++) {
        const struct stg_tap_tensor *tensor = &batch->tensors[i];
        stg_table_add(&table, "%s", tensor->name);
        stg_table_add(&table, "%s", stager_dtype_name(tensor->dtype));
        stg_table_add(&table, "%s",
                      stg_shape_text(tensor->shape, tensor->ndim, shape, sizeof(shape)));
        add_values(&table, tensor);
    }
    stg_table_print(&table, "  ");
    if (batch->n_left_out > 0)
        printf("  … and %" PRIu32 " more tensors, which did not fit stagerd's reply\n",
               batch->n_left_out);
}

static void tensor_json(struct stg_json_writer *json, const struct stg_tap_tensor *tensor)
{
    struct stager_tensor vector = vector_of(tensor);
    stg_json_key(json, tensor->name);
    stg_json_object_begin(json);
    stg_json_put_string(json, "dtype", stager_dtype_name(tensor->dtype));
    stg_json_key(json, "shape");
    stg_json_array_begin(json);
    for (int i = 0; i < tensor->ndim; i++)
        stg_json_int(json, tensor->shape[i]);
    stg_json_array_end(json);
    stg_json_key(json, "values");
    stg_values_json_array(json, &vector);
    stg_json_put_bool(json, "complete", !tensor->shortened && !has_more(tensor, &vector));
    stg_json_object_end(json);
}

static void print_json(const char *name, const struct stg_tap_batch *batch)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "pipeline", name);
    stg_json_put_uint(&json, "batch", batch->number);
    stg_json_put_uint(&json, "pass", batch->pass);
    stg_json_put_uint(&json, "epoch", batch->epoch);
    stg_json_put_uint(&json, "index", batch->index);
    stg_json_put_uint(&json, "rows", batch->rows);
    stg_json_put_uint(&json, "bytes", batch->bytes);
    stg_json_put_uint(&json, "tensors_left_out", batch->n_left_out);
    stg_json_key(&json, "tensors");
    stg_json_object_begin(&json);
    for (size_t i = 0; i < batch->n; i++)
        tensor_json(&json, &batch->tensors[i]);
    stg_json_object_end(&json);
    stg_json_object_end(&json);
    putchar('\n');
}

/* ---- one after the other ---- */

/* stagerd waits for a few seconds: asks until the time is over. */
static int next(struct stg_ctl_link *link, const struct stg_ctl_options *options,
                struct stg_reply *ret)
{
    uint64_t seconds = options->seconds > 0 ? options->seconds : DEFAULT_SECONDS;
    uint64_t until = stg_now_ns() + seconds * 1000 * NS_PER_MS, now;
    struct stg_err err = {0};
    int rc = -STAGER_DEADLINE_EXCEEDED;
    while (rc == -STAGER_DEADLINE_EXCEEDED && (now = stg_now_ns()) < until) {
        uint64_t left = (until - now) / NS_PER_MS + 1;
        struct stg_request request = {.kind = STG_REQUEST_TAP,
                                      .name = options->argument,
                                      .millis = left < TURN_MILLIS ? (uint32_t)left
                                                                   : TURN_MILLIS};
        err = (struct stg_err){0};
        rc = stg_ctl_call(link, &request, ret, &err);
    }
    return rc < 0 ? stg_ctl_fail(rc, err.text) : 0;
}

int stg_ctl_tap(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    uint64_t n = options->batches > 0 ? options->batches : 1;
    int status = EXIT_OK;
    for (uint64_t i = 0; i < n && status == EXIT_OK; i++) {
        struct stg_reply reply;
        status = next(link, options, &reply);
        if (status != EXIT_OK)
            break;
        (options->json ? print_json : print_text)(options->argument, &reply.tap);
        status = stg_ctl_finish();
    }
    stg_ctl_hang_up(link);
    return status;
}
