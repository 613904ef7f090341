/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects of a server on loopback that takes 50 ms to the first byte and sends 100 MB/s a
 * connection: `interleave` over 64 of them, one at a time and sixteen at once, and with
 * deterministic: false while one object never comes. Beside them the same pipeline over
 * local files: no more than that can be parsed. The server is a process of its own.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/dataset/dataset.h"
#include "daemon/storage/crc32c.h"
#include "daemon/storage/fetcher.h"
#include "tests/bench/bench.h"

#define DELAY_NS 50000000u
#define BYTES_PER_S 100000000u
#define PIECE_BYTES (128u << 10)
#define N_OBJECTS 64
#define RECORD_BYTES 100000u
#define N_RECORDS 40
#define FRAME_BYTES (STG_FRAME_HEAD + RECORD_BYTES + STG_FRAME_TAIL)
#define OBJECT_BYTES (N_RECORDS * FRAME_BYTES)
#define BATCH 8
#define CYCLE 16

static char object[OBJECT_BYTES];

static void put(char *at, uint64_t v, int n)
{
    for (int k = 0; k < n; k++)
        at[k] = (char)(v >> (8 * k));
}

static void make_object(void)
{
    const struct stg_crc32c_kernels *crc = stg_crc32c();
    uint64_t seed = 1;
    for (char *at = object; at < object + OBJECT_BYTES; at += FRAME_BYTES) {
        put(at, RECORD_BYTES, 8);
        put(at + 8, stg_crc32c_mask(crc->extend(0, at, 8)), 4);
        for (uint64_t k = 0; k < RECORD_BYTES; k++)
            at[STG_FRAME_HEAD + k] =
                (char)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 56);
        put(at + STG_FRAME_HEAD + RECORD_BYTES,
            stg_crc32c_mask(crc->extend(0, at + STG_FRAME_HEAD, RECORD_BYTES)), 4);
    }
}

/* ---- the server ---- */

static void sleep_until(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u),
                         .tv_nsec = (long)(ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* At the rate of one connection. */
static bool send_slowly(int fd, const char *bytes, size_t n)
{
    uint64_t begin = bench_now_ns();
    for (size_t at = 0; at < n;) {
        size_t piece = n - at < PIECE_BYTES ? n - at : PIECE_BYTES;
        ssize_t sent = send(fd, bytes + at, piece, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += (size_t)sent;
        sleep_until(begin + at * 1000000000u / BYTES_PER_S);
    }
    return true;
}

static bool answer(int fd, const char *request)
{
    uint64_t asked_ns = bench_now_ns();
    unsigned long first = 0, last = OBJECT_BYTES - 1;
    char head[256];
    const char *range = strstr(request, "Range: bytes=");
    if (range != NULL && sscanf(range, "Range: bytes=%lu-%lu", &first, &last) != 2)
        return false;
    if (last >= OBJECT_BYTES)
        last = OBJECT_BYTES - 1;
    if (first > last)
        return false;
    if (strncmp(request, "GET /never", 10) == 0)
        pause();
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 206 Partial Content\r\nContent-Length: %lu\r\n"
                     "Content-Range: bytes %lu-%lu/%u\r\nETag: \"1\"\r\n\r\n",
                     last - first + 1, first, last, (unsigned)OBJECT_BYTES);
    sleep_until(asked_ns + DELAY_NS);
    return send(fd, head, (size_t)n, MSG_NOSIGNAL) == n &&
           send_slowly(fd, object + first, last - first + 1);
}

/* One request after the other. */
static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char request[4096];
    size_t n = 0;
    ssize_t got;
    while ((got = recv(fd, request + n, sizeof(request) - 1 - n, 0)) > 0) {
        n += (size_t)got;
        request[n] = '\0';
        if (strstr(request, "\r\n\r\n") == NULL)
            continue;
        if (!answer(fd, request))
            break;
        n = 0;
    }
    close(fd);
    return NULL;
}

static void run_server(int listen_fd)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        pthread_t thread;
        int fd = accept(listen_fd, NULL, NULL);
        if (fd >= 0 && pthread_create(&thread, &attr, serve, (void *)(intptr_t)fd) != 0)
            close(fd);
    }
}

static pid_t start_server(unsigned *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) < 0 ||
        listen(fd, 512) < 0 || getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        bench_die("no socket on loopback");
    *ret_port = ntohs(address.sin_port);
    pid_t pid = fork();
    if (pid == 0)
        run_server(fd);
    close(fd);
    if (pid < 0)
        bench_die("no process for the server");
    return pid;
}

/* ---- pipelines ---- */

struct run {
    const char *const *paths;
    size_t n_paths;
    int64_t cycle, prefetch;
    bool sloppy;
    int64_t n_records; /* that are waited for */
};

static struct stg_attr attr_of(const char *name, const struct stg_value *values, size_t n)
{
    return (struct stg_attr){
        .name = name, .values = (struct stg_value *)values, .n_values = n};
}

/* Bytes of records a second. */
static double rate(const struct run *run)
{
    struct stg_value paths[N_OBJECTS + 1],
        no = {.kind = STG_VALUE_BOOL}, cycle = {.kind = STG_VALUE_INT, .i = run->cycle},
        prefetch = {.kind = STG_VALUE_INT, .i = run->prefetch},
        batch = {.kind = STG_VALUE_INT, .i = BATCH},
        in_order = {.kind = STG_VALUE_BOOL, .i = !run->sloppy};
    for (size_t i = 0; i < run->n_paths; i++)
        paths[i] = (struct stg_value){.kind = STG_VALUE_STRING,
                                      .s = run->paths[i],
                                      .s_bytes = strlen(run->paths[i])};
    struct stg_attr files[] = {attr_of("pattern", paths, run->n_paths),
                               attr_of("shuffle", &no, 1)};
    struct stg_attr interleave[] = {attr_of("cycle_length", &cycle, 1),
                                    attr_of("prefetch_input_elements", &prefetch, 1),
                                    attr_of("deterministic", &in_order, 1)};
    struct stg_attr batches[] = {attr_of("batch_size", &batch, 1)};
    struct stg_step reader = {.name = "tfrecord"};
    struct stg_step steps[] = {
        {.name = "files", .attrs = files, .n_attrs = 2},
        {.name = "interleave", .attrs = interleave, .n_attrs = 3, .reader = &reader},
        {.name = "batch", .attrs = batches, .n_attrs = 1}};
    struct stg_pipeline_spec spec = {.steps = steps, .n_steps = 3};
    _Atomic int stopped = 0;
    struct stg_dataset_env env = {.stopped = &stopped};
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err = {0};
    int64_t n = 0;
    uint64_t begin = bench_now_ns();
    if (stg_dataset_create(&spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    while (n < run->n_records && stg_dataset_next(dataset, &block, &err) == 0) {
        if (block->error.code != 0)
            bench_die("%s", block->error.text);
        n += block->tensors[0].shape[0];
        stg_block_unref(block);
    }
    uint64_t elapsed = bench_now_ns() - begin;
    atomic_store(&stopped, 1);
    stg_dataset_destroy(dataset);
    if (n != run->n_records)
        bench_die("%lld records: %s", (long long)n, err.text);
    return (double)n * RECORD_BYTES * 1e9 / (double)elapsed;
}

/* ---- rounds ---- */

enum what { ONE, MANY, LOCAL, SLOPPY, STALLED, N_WHAT };

#define MAX_ROUNDS 200

static double rates[N_WHAT][MAX_ROUNDS];

static size_t measure(const struct run runs[N_WHAT], double seconds)
{
    uint64_t until = bench_now_ns() + (uint64_t)(seconds * 1e9);
    size_t n = 0;
    do {
        for (int i = 0; i < N_WHAT; i++)
            rates[i][n] = rate(&runs[i]);
        n++;
    } while (n < MAX_ROUNDS && bench_now_ns() < until);
    return n;
}

static void report(size_t n, bool json)
{
    double found[N_WHAT];
    for (int i = 0; i < N_WHAT; i++)
        found[i] = bench_median(rates[i], n);
    double streams = CYCLE * found[ONE];
    double most = streams < found[LOCAL] ? streams : found[LOCAL];
    if (!json) {
        printf("one object at a time %.0f MB/s, %d at once %.0f MB/s, local files %.0f "
               "MB/s\n",
               found[ONE] / 1e6, CYCLE, found[MANY] / 1e6, found[LOCAL] / 1e6);
        printf("out of order %.0f MB/s, with one object that never comes %.0f MB/s\n",
               found[SLOPPY] / 1e6, found[STALLED] / 1e6);
        return;
    }
    printf("{\"bench\": \"remote\", \"rounds\": %zu, \"one_bytes_per_s\": %.4g, "
           "\"bytes_per_s\": %.4g, \"local_bytes_per_s\": %.4g, "
           "\"unordered_bytes_per_s\": %.4g, \"stalled_bytes_per_s\": %.4g, "
           "\"ratio\": %.3f, \"ratio_of_possible\": %.3f, \"ratio_stalled\": %.3f}\n",
           n, found[ONE], found[MANY], found[LOCAL], found[SLOPPY], found[STALLED],
           found[MANY] / found[ONE], found[MANY] / most, found[STALLED] / found[SLOPPY]);
}

static const char *write_local(void)
{
    static char path[] = "/tmp/stg-remote-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, object, OBJECT_BYTES) != (ssize_t)OBJECT_BYTES)
        bench_die("%s: cannot be written", path);
    close(fd);
    return path;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(
        argc, argv, 10,
        "64 objects, 50 ms to the first byte, 100 MB/s a connection: "
        "interleave with cycle_length 16 against 1 and against local files",
        &options);
    static char urls[N_OBJECTS + 1][64];
    const char *remote[N_OBJECTS + 1], *local[N_OBJECTS];
    unsigned port;
    make_object();
    setenv("no_proxy", "127.0.0.1", 1);
    pid_t pid = start_server(&port);
    const char *file = write_local();
    for (int i = 0; i <= N_OBJECTS; i++) {
        snprintf(urls[i], sizeof(urls[i]), "http://127.0.0.1:%u/%s%d", port,
                 i == 0 ? "never" : "", i);
        remote[i] = urls[i];
        if (i > 0)
            local[i - 1] = file;
    }
    const struct run runs[N_WHAT] = {
        [ONE] = {remote + 1, CYCLE / 2, 1, 0, false, CYCLE / 2 * N_RECORDS},
        [MANY] = {remote + 1, N_OBJECTS, CYCLE, CYCLE, false, N_OBJECTS * N_RECORDS},
        [LOCAL] = {local, N_OBJECTS, CYCLE, CYCLE, false, N_OBJECTS * N_RECORDS},
        [SLOPPY] = {remote + 1, N_OBJECTS, CYCLE, CYCLE, true, N_OBJECTS * N_RECORDS},
        [STALLED] = {remote, N_OBJECTS + 1, CYCLE, CYCLE, true, N_OBJECTS * N_RECORDS},
    };
    report(measure(runs, options.seconds), options.json);
    stg_fetchers_finish();
    unlink(file);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    return 0;
}
