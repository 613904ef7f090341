/* SPDX-License-Identifier: Apache-2.0
 *
 *     drain_file NAME FILE SECONDS
 *
 * drain() for scripts: pipeline NAME, defined in FILE. One JSON object.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/bench/drain.h"

int main(int argc, char **argv)
{
    static char text[1 << 16];
    FILE *file = argc == 4 ? fopen(argv[2], "r") : NULL;
    if (file == NULL)
        bench_die("usage: drain_file NAME FILE SECONDS");
    size_t n = fread(text, 1, sizeof(text), file);
    fclose(file);
    if (n == sizeof(text))
        bench_die("%s: longer than %zu bytes", argv[2], sizeof(text) - 1);
    struct drain got;
    drain(argv[1], text, atof(argv[3]), &got);
    printf(
        "{\"first_s\": %.6f, \"first_cpu_s\": %.6f, \"first_bytes\": %llu, \"n_rows\": "
        "%llu, \"rows_per_s\": %.1f, \"rows_per_cpu_s\": %.1f}\n",
        got.first_s, got.first_cpu_s, (unsigned long long)got.first_bytes,
        (unsigned long long)got.n_rows, got.rows_per_s, got.rows_per_cpu_s);
    return 0;
}
