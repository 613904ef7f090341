/* SPDX-License-Identifier: Apache-2.0
 *
 * What the benchmarks share: clocks, percentiles, arguments, JSON as the last line.
 */
#ifndef STG_TESTS_BENCH_H
#define STG_TESTS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_options {
    bool json;
    double seconds; /* how long to measure, about */
};

/* --json, --seconds S, --help. Exits on nonsense. */
void bench_options_parse(int argc, char **argv, double seconds, const char *about,
                         struct bench_options *ret);

uint64_t bench_now_ns(void);

/* Sorts the samples; p in [0, 1]. */
uint64_t bench_percentile(uint64_t *samples, size_t n, double p);

/* Ends the program with a message. */
void bench_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
