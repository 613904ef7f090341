/* SPDX-License-Identifier: Apache-2.0
 *
 *     criteo_write csv|example ROWS FILE
 *
 * The rows of criteo.h for scripts, as lines with commas or as TFRecords of
 * tf.train.Example.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/bench/criteo_example.h"

int main(int argc, char **argv)
{
    if (argc != 4 || (strcmp(argv[1], "csv") != 0 && strcmp(argv[1], "example") != 0))
        bench_die("usage: criteo_write csv|example ROWS FILE");
    size_t n_rows = strtoul(argv[2], NULL, 10);
    if (argv[1][0] == 'c')
        criteo_write(n_rows, ',', argv[3]);
    else
        criteo_example_file(n_rows, argv[3]);
    return 0;
}
