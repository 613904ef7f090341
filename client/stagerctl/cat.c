/* SPDX-License-Identifier: Apache-2.0
 *
 * cat: a private run of a pipeline, batch by batch, on standard output.
 */
#include <inttypes.h>
#include <stdio.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/values.h"

#define PREVIEW_VALUES 8

static void print_json(const struct stager_batch *batch,
                       const struct stager_batch_info *info)
{
    struct stg_json json = {.out = stdout};
    stg_json_object_begin(&json);
    stg_json_key(&json, "batch");
    stg_json_uint(&json, info->number);
    stg_json_key(&json, "epoch");
    stg_json_uint(&json, info->epoch);
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

/* Row by row; a tensor that has no such row is left out of it. */
static void print_rows(const struct stager_batch *batch,
                       const struct stager_batch_info *info)
{
    for (uint64_t row = 0; row < info->n_rows; row++) {
        printf("  row %" PRIu64 ":", row);
        for (uint32_t i = 0; i < info->n_tensors; i++) {
            struct stager_tensor tensor;
            stager_batch_tensor_at(batch, i, &tensor);
            if (tensor.ndim == 0 || (uint64_t)tensor.shape[0] != info->n_rows)
                continue;
            printf(" %s=", tensor.name);
            stg_values_row(stdout, &tensor, (int64_t)row);
        }
        printf("\n");
    }
}

static void print_batch(const struct stager_batch *batch,
                        const struct stg_ctl_options *options)
{
    struct stager_batch_info info;
    stager_batch_info(batch, &info);
    if (options->json) {
        print_json(batch, &info);
        return;
    }
    print_head(&info);
    (options->rows ? print_rows : print_tensors)(batch, &info);
}

/* Error items are told and passed over; the status says at the end that there were some.
 */
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
        struct stager_stream_info info;
        stager_stream_info(stream, &info);
        if (info.at_end)
            break;
        status = stg_ctl_fail(rc, stager_error_text(stream));
        if (info.finished)
            break;
    }
    return status;
}

int stg_ctl_cat(const struct stg_ctl_options *options)
{
    struct stager_options open_options = {
        .client_id = "stagerctl-cat",
        .runtime_dir = options->runtime_dir,
        .max_held = 1,
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
