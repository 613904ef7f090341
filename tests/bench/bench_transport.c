/* SPDX-License-Identifier: Apache-2.0
 *
 * The speed of batches of 4 MiB: the daemon copies them into the arena, and a trainer
 * reads every byte; relative to one thread's memcpy of the same 4 MiB, hot, into rotating
 * destinations of 256 MiB, in turn in the same run. Also the cost of a wake-up: from the
 * daemon's hand-over to stager_next's return, relative to a bare socket's; the sender
 * copies 4 MiB between two in both cases.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define BATCH_BYTES (4u << 20)
#define DESTINATION_BYTES (256u << 20)
#define ROUNDS 8
#define MAX_SAMPLES 100000u

static volatile uint64_t sink;

/* Reads every byte into several sums: at the speed of memory. */
static void read_all(const void *data, size_t bytes)
{
    const uint64_t *words = data;
    uint64_t sums[16] = {0};
    for (size_t i = 0; i + 16 <= bytes / 8; i += 16) {
        for (size_t k = 0; k < 16; k++)
            sums[k] += words[i + k];
    }
    for (size_t k = 0; k < 16; k++)
        sink += sums[k];
}

static char *map_bytes(size_t bytes)
{
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (base == MAP_FAILED)
        bench_die("no memory");
    memset(base, 1, bytes);
    return base;
}

static double memcpy_rate(char *destination, const char *source, double seconds)
{
    size_t at = 0;
    uint64_t bytes = 0, began = bench_now_ns(), now = began;
    while ((double)(now - began) < seconds * 1e9) {
        memcpy(destination + at, source, BATCH_BYTES);
        at = (at + BATCH_BYTES) % DESTINATION_BYTES;
        bytes += BATCH_BYTES;
        now = bench_now_ns();
    }
    return (double)bytes * 1e9 / (double)(now - began);
}

static struct stager_batch *take(struct stager_stream *stream)
{
    struct stager_batch *batch;
    if (stager_next(stream, 10000, &batch) < 0)
        bench_die("next: %s", stager_error_text(stream));
    return batch;
}

static double transport_rate(struct stager_stream *stream, double seconds)
{
    uint64_t bytes = 0, began = bench_now_ns(), now = began;
    while ((double)(now - began) < seconds * 1e9) {
        struct stager_batch *batch = take(stream);
        struct stager_tensor x;
        stager_batch_tensor_at(batch, 0, &x);
        read_all(x.data, x.data_bytes);
        bytes += x.data_bytes;
        stager_release(batch);
        now = bench_now_ns();
    }
    return (double)bytes * 1e9 / (double)(now - began);
}

/* ---- wake-ups ---- */

static size_t stream_wakeups(struct stager_stream *stream, double seconds,
                             uint64_t *samples)
{
    size_t n = 0;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    struct stager_stream_info before = {.struct_size = sizeof(before)},
                              after = {.struct_size = sizeof(after)};
    while (bench_now_ns() < end && n < MAX_SAMPLES) {
        stager_stream_info(stream, &before);
        struct stager_batch *batch = take(stream);
        uint64_t now = bench_now_ns();
        stager_stream_info(stream, &after);
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        stager_batch_info(batch, &info);
        if (after.sleeps > before.sleeps && now > info.assigned_ns)
            samples[n++] = now - info.assigned_ns;
        stager_release(batch);
    }
    return n;
}

static void bare_sender(int fd, char *destination, const char *source, double seconds)
{
    size_t at = 0;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    while (bench_now_ns() < end) {
        memcpy(destination + at, source, BATCH_BYTES);
        at = (at + BATCH_BYTES) % DESTINATION_BYTES;
        uint64_t now = bench_now_ns();
        if (send(fd, &now, sizeof(now), MSG_NOSIGNAL) < 0)
            break;
    }
    _exit(0);
}

static size_t bare_wakeups(char *destination, const char *source, double seconds,
                           uint64_t *samples)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        bench_die("socketpair");
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        bare_sender(fds[1], destination, source, seconds);
    }
    close(fds[1]);
    size_t n = 0;
    uint64_t sent;
    struct pollfd poll_fd = {.fd = fds[0], .events = POLLIN};
    while (poll(&poll_fd, 1, 10000) == 1 &&
           recv(fds[0], &sent, sizeof(sent), 0) == sizeof(sent) && n < MAX_SAMPLES)
        samples[n++] = bench_now_ns() - sent;
    close(fds[0]);
    return n;
}

struct wakeups {
    uint64_t ours_p50, ours_p99, bare_p50;
};

static void measure_wakeups(struct stager_stream *stream, char *destination,
                            const char *source, double seconds, struct wakeups *ret)
{
    uint64_t *ours = malloc(MAX_SAMPLES * sizeof(*ours));
    uint64_t *bare = malloc(MAX_SAMPLES * sizeof(*bare));
    size_t n_ours = 0, n_bare = 0;
    for (int i = 0; i < ROUNDS; i++) {
        n_ours += stream_wakeups(stream, seconds / ROUNDS / 2, ours + n_ours);
        /* With every credit used, the daemon rests during the measurement of the bare
         * sockets. */
        n_bare += bare_wakeups(destination, source, seconds / ROUNDS / 2, bare + n_bare);
    }
    ret->ours_p50 = bench_percentile(ours, n_ours, 0.5);
    ret->ours_p99 = bench_percentile(ours, n_ours, 0.99);
    ret->bare_p50 = bench_percentile(bare, n_bare, 0.5);
    free(ours);
    free(bare);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 12,
                        "4 MiB batches from daemon to trainer, over memcpy", &options);
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture,
                  "name: transport\n"
                  "dataset:\n  - range: {stop: 1000000000}\n"
                  "graph:\n  - {name: x, op: constant, value: 1.5, shape: [1048576]}\n"
                  "staged: {features: {x: x}, capacity: 4}\n");
    char *source = map_bytes(BATCH_BYTES);
    char *destination = map_bytes(DESTINATION_BYTES);
    struct stager_stream *stream = fixture_open(&fixture, "transport", "bench", 3);

    double copies[ROUNDS], ours[ROUNDS], best_copy = 0, best_ours = 0, ratios = 0;
    double slice = options.seconds * 2 / 3 / ROUNDS / 2;
    transport_rate(stream, slice);
    for (int i = 0; i < ROUNDS; i++) {
        copies[i] = memcpy_rate(destination, source, slice);
        ours[i] = transport_rate(stream, slice);
        ratios += ours[i] / copies[i] / ROUNDS;
        best_copy = copies[i] > best_copy ? copies[i] : best_copy;
        best_ours = ours[i] > best_ours ? ours[i] : best_ours;
    }
    struct wakeups wakeups;
    measure_wakeups(stream, destination, source, options.seconds / 3, &wakeups);
    stager_close(stream);
    fixture_finish(&fixture);

    double wake_ratio = (double)wakeups.ours_p50 / (double)wakeups.bare_p50;
    printf("memcpy, one thread:   %6.2f GB/s at best\n", best_copy / 1e9);
    printf("daemon to trainer:    %6.2f GB/s at best, %.2f of memcpy on average\n",
           best_ours / 1e9, ratios);
    printf(
        "wake-up:              p50 %llu ns, p99 %llu ns; bare socket p50 %llu ns: %.2f\n",
        (unsigned long long)wakeups.ours_p50, (unsigned long long)wakeups.ours_p99,
        (unsigned long long)wakeups.bare_p50, wake_ratio);
    if (options.json)
        printf(
            "{\"bench\": \"transport\", \"bytes_per_s\": %.0f, \"memcpy_bytes_per_s\": "
            "%.0f, "
            "\"ratio\": %.3f, \"p50_ns\": %llu, \"p99_ns\": %llu, \"bare_p50_ns\": %llu, "
            "\"wakeup_ratio\": %.3f}\n",
            best_ours, best_copy, ratios, (unsigned long long)wakeups.ours_p50,
            (unsigned long long)wakeups.ours_p99, (unsigned long long)wakeups.bare_p50,
            wake_ratio);
    return 0;
}
