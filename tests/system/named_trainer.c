/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer that others look at: opens a pipeline under a name, says "open", and leaves
 * when its standard input ends.
 *
 *     named_trainer PIPELINE CLIENT_ID
 */
#include <stdio.h>

#include "client/stager.h"

int main(int argc, char **argv)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = argc == 3 ? argv[2] : NULL};
    struct stager_stream *stream;
    if (argc != 3 || stager_open(NULL, argv[1], &options, &stream) < 0) {
        fprintf(stderr, "%s\n", argc == 3 ? stager_error_text(NULL) : "two arguments");
        return 1;
    }
    printf("open\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    stager_close(stream);
    return 0;
}
