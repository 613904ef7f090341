/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of the first design document, as a trainer of stager: stagerd reads 1.txt,
 * makes batches of two lines and splits them into two columns; the rest of the graph
 * (hash bucket, embedding lookup, concat) runs here, through stager_run. Five steps;
 * prints the target of each.
 *
 *     stagerctl apply seed_staged.yaml && seed_staged [PIPELINE] [STEPS]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/stager.h"

static int fail(const char *what, int code, const struct stager_stream *stream)
{
    fprintf(stderr, "seed_staged: %s: %s: %s\n", what, stager_status_name(code),
            stager_error_text(stream));
    return 1;
}

/* A matrix of strings, as Python prints a list of lists. */
static int print_strings(const struct stager_tensor *tensor)
{
    if (tensor->dtype != STAGER_STRING || tensor->ndim != 2) {
        fprintf(stderr, "seed_staged: %s is no matrix of strings\n", tensor->name);
        return 1;
    }
    const char *bytes = tensor->data;
    printf("[");
    for (int64_t row = 0; row < tensor->shape[0]; row++) {
        printf("%s[", row > 0 ? ", " : "");
        for (int64_t column = 0; column < tensor->shape[1]; column++) {
            int64_t i = row * tensor->shape[1] + column;
            printf("%s'%.*s'", column > 0 ? ", " : "",
                   (int)(tensor->offsets[i + 1] - tensor->offsets[i]),
                   bytes + tensor->offsets[i]);
        }
        printf("]");
    }
    printf("]\n");
    return 0;
}

static int step(struct stager_stream *stream)
{
    struct stager_batch *batch;
    int rc = stager_next(stream, -1, &batch);
    if (rc < 0)
        return fail("next", rc, stream);

    const char *fetches[] = {stager_target(stream, 0)};
    struct stager_tensor target;
    rc = stager_run(stream, batch, fetches, 1, &target);
    int status = rc < 0 ? fail("run", rc, stream) : print_strings(&target);
    stager_release(batch);
    return status;
}

int main(int argc, char **argv)
{
    const char *pipeline = argc > 1 ? argv[1] : "seed_staged";
    int n_steps = argc > 2 ? atoi(argv[2]) : 5;

    struct stager_stream *stream;
    int rc = stager_open(NULL, pipeline, NULL, &stream);
    if (rc < 0)
        return fail("open", rc, NULL);
    int status = 0;
    if (stager_target_count(stream) != 1) {
        fprintf(stderr, "seed_staged: pipeline %s has %zu targets, not one\n", pipeline,
                stager_target_count(stream));
        status = 1;
    }
    for (int i = 0; i < n_steps && status == 0; i++)
        status = step(stream);
    stager_close(stream);
    return status;
}
