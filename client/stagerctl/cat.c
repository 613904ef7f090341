/* SPDX-License-Identifier: Apache-2.0
 *
 * cat: prints the batches of a private run of a pipeline on standard output.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/text/values.h"

#define PREVIEW_VALUES 8

static void print_json(const struct stager_batch *batch,
                       const struct stager_batch_info *info)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_put_uint(&json, "batch", info->number);
    stg_json_put_uint(&json, "epoch", info->epoch);
    stg_json_key(&json, "tensors");
    stg_json_object_begin(&json);
    for (uint32_t i = 0; i < info->n_tensors; i++) {
        struct stager_tensor tensor;
        stager_batch_tensor_at(batch, i, &tensor);
        stg_json_key(&json, tensor.name);
        stg_values_json(&json, &tensor);
    }
    stg_json_object_end(&json);
    stg_json_object_end(&json);
    putchar('\n');
}

static void print_head(const struct stager_batch_info *info)
{
    char bytes[32];
    printf("batch %" PRIu64 " (pass %" PRIu64 ", epoch %" PRIu64 ", index %" PRIu64
           "): %" PRIu64 " rows, %s\n",
           info->number, info->pass, info->epoch, info->index, info->n_rows,
           stg_ctl_bytes(info->bytes, bytes, sizeof(bytes)));
}

static void print_tensors(const struct stager_batch *batch,
                          const struct stager_batch_info *info)
{
    for (uint32_t i = 0; i < info->n_tensors; i++) {
        struct stager_tensor tensor;
        stager_batch_tensor_at(batch, i, &tensor);
        printf("  %s %s ", tensor.name, stager_dtype_name(tensor.dtype));
        stg_values_shape(stdout, &tensor);
        printf(": ");
        stg_values_preview(stdout, &tensor, PREVIEW_VALUES);
        printf("\n");
    }
}

/* Prints " ids=" for "ids/values". */
static void print_name(const struct stager_tensor *values)
{
    const char *slash = strrchr(values->name, '/');
    printf(
        " %.*s=", slash != NULL ? (int)(slash - values->name) : (int)strlen(values->name),
        values->name);
}

/* Prints a row of a ragged feature: " ids=[3, 1]". */
static void print_ragged_row(const struct stager_tensor *values,
                             const struct stager_tensor *row_splits, int64_t row)
{
    const int64_t *splits = row_splits->data;
    if (row + 1 >= row_splits->shape[0])
        return;
    int64_t first = splits[row] > 0 ? splits[row] : 0; /* from the daemon: not trusted */
    print_name(values);
    putchar('[');
    for (int64_t k = first; k < splits[row + 1] && k < values->shape[0]; k++) {
        fputs(k > first ? ", " : "", stdout);
        stg_values_row(stdout, values, k);
    }
    putchar(']');
}

/* Prints a row of a sparse feature: " tags={0: "a", 7: "b"}". The indices leave out the
 * row. */
static void print_sparse_row(const struct stager_tensor *values,
                             const struct stager_tensor *indices, int64_t row)
{
    const int64_t *at = indices->data;
    int64_t rank = indices->shape[1], n = 0;
    print_name(values);
    putchar('{');
    for (int64_t k = 0; k < values->shape[0]; k++, at += rank) {
        if (at[0] != row)
            continue;
        fputs(n++ > 0 ? ", " : "", stdout);
        for (int64_t d = 1; d < rank; d++)
            printf("%" PRId64 "%s", at[d], d + 1 < rank ? "," : ": ");
        stg_values_row(stdout, values, k);
    }
    putchar('}');
}

static uint32_t part_at(const struct stager_batch *batch,
                        const struct stager_batch_info *info, uint32_t i,
                        struct stager_tensor *ret)
{
    if (i >= info->n_tensors || stager_batch_tensor_at(batch, i, ret) < 0)
        return STAGER_PART_VALUES;
    return ret->part;
}

/* Prints one row of all tensors. A scalar is part of every row. A tensor whose first
 * dimension is not the number of rows is left out. */
static void print_row(const struct stager_batch *batch,
                      const struct stager_batch_info *info, int64_t row)
{
    for (uint32_t i = 0; i < info->n_tensors; i++) {
        struct stager_tensor tensor, next = {0};
        if (part_at(batch, info, i, &tensor) != STAGER_PART_VALUES)
            continue;
        uint32_t part = part_at(batch, info, i + 1, &next);
        if (part == STAGER_PART_ROW_SPLITS) {
            print_ragged_row(&tensor, &next, row);
        } else if (part == STAGER_PART_INDICES) {
            print_sparse_row(&tensor, &next, row);
        } else if (tensor.ndim == 0) {
            printf(" %s=", tensor.name);
            stg_values_preview(stdout, &tensor, 1);
        } else if ((uint64_t)tensor.shape[0] == info->n_rows) {
            printf(" %s=", tensor.name);
            stg_values_row(stdout, &tensor, row);
        }
    }
}

static void print_rows(const struct stager_batch *batch,
                       const struct stager_batch_info *info)
{
    for (uint64_t row = 0; row < info->n_rows; row++) {
        printf("  row %" PRIu64 ":", row);
        print_row(batch, info, (int64_t)row);
        printf("\n");
    }
}

static void print_batch(const struct stager_batch *batch,
                        const struct stg_ctl_options *options)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    if (options->json) {
        print_json(batch, &info);
        return;
    }
    print_head(&info);
    (options->rows ? print_rows : print_tensors)(batch, &info);
}

/* Prints the batches. Prints the error of an error item and continues. Error items count
 * towards the limit, because a pipeline may yield nothing else. The exit status reports
 * them. */
static int print_all(struct stager_stream *stream, const struct stg_ctl_options *options)
{
    int status = EXIT_OK;
    uint64_t n = 0;
    while ((options->limit == 0 || n < options->limit) && !ferror(stdout)) {
        struct stager_batch *batch;
        int rc = stager_next(stream, -1, &batch);
        if (rc == 0) {
            print_batch(batch, options);
            stager_release(batch);
            n++;
            continue;
        }
        struct stager_stream_info info = {.struct_size = sizeof(info)};
        stager_stream_info(stream, &info);
        if (info.at_end && n == 0)
            fprintf(stderr, "stagerctl: the pass has no batch; `drop_remainder: true` "
                            "leaves out an incomplete one\n");
        if (info.at_end)
            break;
        n++;
        status = stg_ctl_fail(rc, stager_error_text(stream));
        if (info.finished)
            break;
    }
    return status;
}

int stg_ctl_cat(const struct stg_ctl_options *options)
{
    static const char *const none[] = {NULL};
    struct stager_options open_options = {
        .struct_size = sizeof(open_options),
        .fetches = none, /* nothing is computed ahead */
        .client_id = "stagerctl-cat",
        .runtime_dir = options->runtime_dir,
        .max_in_flight = 1,
        .private_run = 1,
    };
    struct stager_stream *stream;
    int rc = stager_open(NULL, options->argument, &open_options, &stream);
    if (rc < 0)
        return stg_ctl_fail(rc, stager_error_text(NULL));
    int status = print_all(stream, options);
    stager_close(stream);
    return status == EXIT_OK ? stg_ctl_finish() : status;
}
