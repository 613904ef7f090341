/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer by remote control: for each line with a number, takes and releases so many
 * batches, and says "taken N", or "end" at the end of a pass. It leaves when its standard
 * input ends.
 *
 *     taking_trainer PIPELINE CLIENT_ID [JOB]
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/stager.h"

static int take(struct stager_stream *stream, unsigned long n)
{
    for (unsigned long i = 0; i < n; i++) {
        struct stager_batch *batch;
        int rc = stager_next(stream, -1, &batch);
        if (rc == -STAGER_OUT_OF_RANGE)
            return printf("end\n");
        if (rc < 0)
            return printf("%s\n", stager_error_text(stream));
        stager_release(batch);
    }
    return printf("taken %lu\n", n);
}

int main(int argc, char **argv)
{
    char line[64];
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = argc >= 3 ? argv[2] : NULL,
                                     .job = argc == 4 ? argv[3] : NULL};
    struct stager_stream *stream;
    if (argc < 3 || argc > 4 || stager_open(NULL, argv[1], &options, &stream) < 0) {
        fprintf(stderr, "%s\n",
                argc == 3 || argc == 4 ? stager_error_text(NULL)
                                       : "two or three arguments");
        return 1;
    }
    printf("open\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        take(stream, strtoul(line, NULL, 10));
        fflush(stdout);
    }
    stager_close(stream);
    return 0;
}
