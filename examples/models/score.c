/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one of the models of this folder over its pipeline: the daemon reads, and takes
 * over what smart_stage moves to it; this process has the weights and computes the rest.
 * Prints label and score of each row, and at the end how many there were.
 *
 *     score PIPELINE
 */
#include <inttypes.h>
#include <stdio.h>

#include "client/stager.h"

static int fail(const char *what, int code, const struct stager_stream *stream)
{
    fprintf(stderr, "score: %s: %s: %s\n", what, stager_status_name(code),
            stager_error_text(stream));
    return code;
}

/* All that this program reads comes by way of stager_run. */
static const char *const fetches[] = {"label", "scores"};

static int score_batch(struct stager_stream *stream, struct stager_batch *batch,
                       int64_t *n_rows)
{
    struct stager_tensor results[2];
    int rc = stager_run(stream, batch, fetches, 2, results);
    if (rc < 0)
        return fail("run", rc, stream);
    const float *labels = results[0].data, *scores = results[1].data;
    for (int64_t i = 0; i < results[1].shape[0]; i++)
        printf("%g %.6f\n", (double)labels[i], (double)scores[i]);
    *n_rows += results[1].shape[0];
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: score PIPELINE\n");
        return 2;
    }
    struct stager_stream *stream;
    struct stager_options options = {.struct_size = sizeof(options),
                                     .fields = fetches,
                                     .n_fields = 0,
                                     .fetches = fetches,
                                     .n_fetches = 2};
    int rc = stager_open(NULL, argv[1], &options, &stream);
    if (rc < 0)
        return fail("open", rc, NULL) != 0;
    int64_t n_rows = 0;
    struct stager_batch *batch;
    while ((rc = stager_next(stream, -1, &batch)) == 0) {
        rc = score_batch(stream, batch, &n_rows);
        stager_release(batch);
        if (rc < 0)
            break;
    }
    if (rc == -STAGER_OUT_OF_RANGE)
        printf("%" PRId64 " rows\n", n_rows);
    else if (rc < 0 && n_rows == 0)
        fail("next", rc, stream);
    stager_close(stream);
    return rc == -STAGER_OUT_OF_RANGE ? 0 : 1;
}
