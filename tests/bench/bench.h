/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the benchmarks: clocks, percentiles, arguments, JSON as the last line.
 */
#ifndef STG_TESTS_BENCH_H
#define STG_TESTS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct bench_options {
    bool json;
    double seconds;   /* approximate duration of the measurement */
    unsigned clients; /* number of trainers; 0: the benchmark has no such option */
};

/* Parses --json, --seconds S, --help. Exits on invalid arguments. */
void bench_options_parse(int argc, char **argv, double seconds, const char *about,
                         struct bench_options *ret);

uint64_t bench_now_ns(void);

/* Returns the CPU time of all threads of an existing process. */
uint64_t bench_process_ns(pid_t pid);

/* Like bench_options_parse, with --clients N, which defaults to this number. */
void bench_options_parse_clients(int argc, char **argv, double seconds, unsigned clients,
                                 const char *about, struct bench_options *ret);

/* Sorts the samples; p in [0, 1]. */
uint64_t bench_percentile(uint64_t *samples, size_t n, double p);

/* Sorts the samples, at least one. For an even number, returns the mean of the two in the
 * middle.
 */
double bench_median(double *samples, size_t n);

/* Drops a file from the page cache and reads it from the disk again: how the kernel keeps
 * a file in memory depends on whether it was written or read. */
void bench_read_anew(const char *path);

/* Ends the program with a message. */
void bench_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
