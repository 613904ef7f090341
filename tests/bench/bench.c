/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/bench.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"

void bench_die(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void bench_options_parse_clients(int argc, char **argv, double seconds, unsigned clients,
                                 const char *about, struct bench_options *ret)
{
    *ret = (struct bench_options){.seconds = seconds, .clients = clients};
    setenv("STG_TEST_SLOW", "5", 0); /* a busy machine is no failure */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            ret->json = true;
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            ret->seconds = atof(argv[++i]);
        } else if (strcmp(argv[i], "--clients") == 0 && i + 1 < argc && clients > 0 &&
                   atoi(argv[i + 1]) > 0) {
            ret->clients = (unsigned)atoi(argv[++i]);
        } else {
            fprintf(stderr, "usage: %s [--json] [--seconds S]%s\n%s\n", argv[0],
                    clients > 0 ? " [--clients N]" : "", about);
            exit(strcmp(argv[i], "--help") == 0 ? 0 : 2);
        }
    }
}

void bench_options_parse(int argc, char **argv, double seconds, const char *about,
                         struct bench_options *ret)
{
    bench_options_parse_clients(argc, argv, seconds, 0, about, ret);
}

uint64_t bench_now_ns(void)
{
    return stg_now_ns();
}

uint64_t bench_process_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec now;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) < 0)
        bench_die("cannot read the CPU time of process %d", (int)pid);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t bench_percentile(uint64_t *samples, size_t n, double p)
{
    if (n == 0)
        return 0;
    qsort(samples, n, sizeof(samples[0]), compare);
    size_t i = (size_t)(p * (double)(n - 1) + 0.5);
    return samples[i];
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(double *samples, size_t n)
{
    qsort(samples, n, sizeof(samples[0]), compare_doubles);
    return (samples[(n - 1) / 2] + samples[n / 2]) / 2;
}

void bench_read_anew(const char *path)
{
    static char buffer[256 << 10];
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        bench_die("cannot read %s", path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    while ((n = read(fd, buffer, sizeof(buffer))) > 0)
        ;
    close(fd);
    if (n < 0)
        bench_die("cannot read %s", path);
}
