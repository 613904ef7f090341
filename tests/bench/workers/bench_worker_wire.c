/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that a stagerd takes from a worker over loopback, beside plain sendfile of the
 * same file to a reader: one connection each, the sender on one CPU and the reader on
 * another, by turns. The batches are 4 MiB of fixed-length records, which cost a worker
 * little more than two copies and a checksum. `ratio` is bytes per second, `cpu_ratio`
 * bytes per second of CPU of all processes, and `wire_cpu_ratio` the same without the
 * process that makes the batches. Only the CPU ratios hold on a busy machine.
 *
 * The asking end is that of stagerd (daemon/remote_stage), with the place of a batch in
 * memory as in an extent, but without a stage and its local runners.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/status.h"
#include "daemon/remote_stage/remote.h"
#include "tests/bench/bench.h"
#include "tests/bench/workers/stage_worker.h"

#define RECORD_BYTES (64u << 10)
#define BATCH_RECORDS 64u
#define N_BATCHES 32u /* of an epoch */
#define FILE_BYTES ((size_t)RECORD_BYTES * BATCH_RECORDS * N_BATCHES)
#define EXTENT_BYTES (5u << 20)
#define N_EXTENTS 4u
#define MAX_ROUNDS 64
#define N_WARM 8

static const char pipeline[] = "name: wire\n"
                               "dataset:\n"
                               "- files: {pattern: [\"%s\"]}\n"
                               "- fixed_length_record: {record_bytes: 65536}\n"
                               "- repeat: {}\n"
                               "- batch: {batch_size: 64, drop_remainder: true}\n"
                               "staged: {features: {record: record}}\n";

struct side {
    double bytes, seconds;
    double reader_s, sender_s, maker_s; /* CPU; maker: stagerd --worker */
};

static char *extents;

static char *extent(uint64_t i)
{
    return extents + i % N_EXTENTS * EXTENT_BYTES;
}

static double cpu_s(pid_t pid)
{
    return (double)bench_process_ns(pid) / 1e9;
}

/* ---- sendfile ---- */

static int send_file(int listening, int cpu, const char *path)
{
    bench_pin(cpu);
    signal(SIGPIPE, SIG_IGN);
    int to = accept(listening, NULL, NULL), fd = open(path, O_RDONLY | O_CLOEXEC);
    if (to < 0 || fd < 0)
        bench_die("%s: cannot be sent: %s", path, strerror(errno));
    for (;;) {
        off_t at = 0;
        while (at < (off_t)FILE_BYTES) {
            if (sendfile(to, fd, &at, FILE_BYTES - (size_t)at) <= 0)
                return 0;
        }
    }
}

static void read_one(int fd, char *to, size_t bytes)
{
    size_t n = 0;
    while (n < bytes) {
        ssize_t got = recv(fd, to + n, bytes - n, 0);
        if (got <= 0)
            bench_die("the sender has ended");
        n += (size_t)got;
    }
}

static void take_plain(int cpu, const char *path, double seconds, struct side *ret)
{
    unsigned port;
    int listening = bench_listen(&port);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(send_file(listening, cpu, path));
    close(listening);
    int fd = bench_http_connect(port);
    uint64_t bytes = (uint64_t)RECORD_BYTES * BATCH_RECORDS, n = 0;
    for (; n < N_WARM; n++)
        read_one(fd, extent(n), bytes);
    double own = cpu_s(getpid()), sender = cpu_s(pid);
    uint64_t began = bench_now_ns(), now = began;
    for (n = 0; (double)(now - began) < seconds * 1e9; n++) {
        read_one(fd, extent(n), bytes);
        now = bench_now_ns();
    }
    *ret = (struct side){.bytes = (double)(n * bytes),
                         .seconds = (double)(now - began) / 1e9,
                         .reader_s = cpu_s(getpid()) - own,
                         .sender_s = cpu_s(pid) - sender};
    close(fd);
    waitpid(pid, NULL, 0);
}

/* ---- a worker ---- */

static bool is_void(void *owner)
{
    return false;
}

static uint64_t ask(struct stg_remote_lane *lane, const struct bench_worker *worker,
                    uint64_t n)
{
    static const struct stg_data_identity data;
    struct stg_batch_room room = {.limit_bytes = EXTENT_BYTES};
    struct stg_remote_wanted wanted = {
        .digest = worker->digest,
        .item = n,
        .epoch = n / N_BATCHES,
        .index = n % N_BATCHES,
        .rows = BATCH_RECORDS,
        .data = &data,
        .base = extent(n),
        .capacity = EXTENT_BYTES,
        .room = &room,
        .is_void = is_void,
    };
    uint64_t bytes = stg_remote_ask(lane, &wanted);
    if (bytes == 0)
        bench_die("the worker does not answer");
    return bytes;
}

static void take_batches(struct stg_remote_lane *lane, const struct bench_worker *worker,
                         double seconds, struct side *ret)
{
    static uint64_t n;
    for (int i = 0; i < (int)N_WARM; i++)
        ask(lane, worker, n++);
    double own = cpu_s(getpid()), maker = cpu_s(worker->pid);
    double sender = cpu_s(worker->http_pid);
    uint64_t began = bench_now_ns(), now = began;
    *ret = (struct side){0};
    while ((double)(now - began) < seconds * 1e9) {
        ret->bytes += (double)ask(lane, worker, n++);
        now = bench_now_ns();
    }
    ret->seconds = (double)(now - began) / 1e9;
    ret->reader_s = cpu_s(getpid()) - own;
    ret->sender_s = cpu_s(worker->http_pid) - sender;
    ret->maker_s = cpu_s(worker->pid) - maker;
}

/* ---- figures ---- */

struct figures {
    double ratios[MAX_ROUNDS], cpu_ratios[MAX_ROUNDS], wire_cpu_ratios[MAX_ROUNDS];
    double plain[MAX_ROUNDS], worker[MAX_ROUNDS];              /* bytes per second */
    double plain_reader[MAX_ROUNDS], plain_sender[MAX_ROUNDS]; /* ns a byte */
    double reader[MAX_ROUNDS], sender[MAX_ROUNDS], maker[MAX_ROUNDS];
    size_t n;
};

static double rate(const struct side *side)
{
    return side->bytes / side->seconds;
}

/* Seconds of CPU for a byte between the sender's memory and the reader's. */
static double wire_cost(const struct side *side)
{
    return (side->reader_s + side->sender_s) / side->bytes;
}

static void note(struct figures *figures, const struct side *plain,
                 const struct side *worker)
{
    size_t i = figures->n++;
    figures->plain[i] = rate(plain);
    figures->worker[i] = rate(worker);
    figures->ratios[i] = rate(worker) / rate(plain);
    figures->wire_cpu_ratios[i] = wire_cost(plain) / wire_cost(worker);
    figures->cpu_ratios[i] =
        wire_cost(plain) / (wire_cost(worker) + worker->maker_s / worker->bytes);
    figures->plain_reader[i] = plain->reader_s * 1e9 / plain->bytes;
    figures->plain_sender[i] = plain->sender_s * 1e9 / plain->bytes;
    figures->reader[i] = worker->reader_s * 1e9 / worker->bytes;
    figures->sender[i] = worker->sender_s * 1e9 / worker->bytes;
    figures->maker[i] = worker->maker_s * 1e9 / worker->bytes;
}

static void tell(struct figures *figures, const struct bench_options *options)
{
    size_t n = figures->n;
    double plain = bench_median(figures->plain, n);
    double plain_sender = bench_median(figures->plain_sender, n);
    double plain_reader = bench_median(figures->plain_reader, n);
    double worker = bench_median(figures->worker, n);
    double maker = bench_median(figures->maker, n);
    double sender = bench_median(figures->sender, n);
    double reader = bench_median(figures->reader, n);
    double ratio = bench_median(figures->ratios, n);
    double cpu_ratio = bench_median(figures->cpu_ratios, n);
    double wire_cpu_ratio = bench_median(figures->wire_cpu_ratios, n);
    printf("sendfile %.2f GB/s (%.3f ns of CPU a byte to send, %.3f to read)\n",
           plain / 1e9, plain_sender, plain_reader);
    printf("a worker %.2f GB/s (%.3f ns to make, %.3f to send, %.3f to take): %.2f; by "
           "CPU time %.2f, without making %.2f\n",
           worker / 1e9, maker, sender, reader, ratio, cpu_ratio, wire_cpu_ratio);
    if (options->json)
        printf("{\"bench\": \"worker_wire\", \"rounds\": %zu, "
               "\"baseline_bytes_per_s\": %.4g, \"bytes_per_s\": %.4g, \"make_ns\": "
               "%.3f, \"send_ns\": %.3f, \"take_ns\": %.3f, \"baseline_send_ns\": %.3f, "
               "\"baseline_read_ns\": %.3f, \"ratio\": %.3f, \"cpu_ratio\": %.3f, "
               "\"wire_cpu_ratio\": %.3f}\n",
               n, plain, worker, maker, sender, reader, plain_sender, plain_reader, ratio,
               cpu_ratio, wire_cpu_ratio);
}

/* ---- main ---- */

static void write_records(char *path)
{
    static uint64_t record[RECORD_BYTES / 8];
    uint64_t noise = 1;
    int fd = mkstemp(path);
    if (fd < 0)
        bench_die("%s: cannot be made", path);
    for (size_t i = 0; i < FILE_BYTES / RECORD_BYTES; i++) {
        for (size_t k = 0; k < RECORD_BYTES / 8; k++)
            record[k] = noise = noise * 6364136223846793005u + 1442695040888963407u;
        if (write(fd, record, RECORD_BYTES) != (ssize_t)RECORD_BYTES)
            bench_die("%s: cannot be written", path);
    }
    close(fd);
    bench_read_anew(path);
}

static void run(const char *file, const char *yaml, double seconds,
                struct figures *figures)
{
    static _Atomic int stopped;
    struct stg_component component = {
        .name = "record", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}};
    struct stg_schema schema = {.components = &component, .n = 1};
    struct bench_worker worker;
    struct stg_remote *remote;
    struct stg_remote_lane *lane;
    struct stg_err err = {0};
    char url[64];
    int cpus[2];
    bench_two_cpus(cpus);
    bench_pin(cpus[0]);
    bench_worker_start(&worker, cpus[1], yaml);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", worker.port);
    const char *urls[] = {url};
    struct stg_remote_workers workers = {.urls = urls, .n_urls = 1};
    struct stg_remote_config config = {.workers = &workers,
                                       .pipeline = "wire",
                                       .schema = &schema,
                                       .uid = getuid(),
                                       .gid = getgid(),
                                       .stopped = &stopped};
    if (stg_remote_create(&config, &remote, &err) < 0 ||
        stg_lane_create(remote, &lane, &err) < 0)
        bench_die("%s", err.text);
    stg_remote_look(remote);
    double slice = seconds < 6 ? seconds / 2 : 3;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        struct side plain, taken;
        take_plain(cpus[1], file, slice, &plain);
        take_batches(lane, &worker, slice, &taken);
        note(figures, &plain, &taken);
    } while (bench_now_ns() < end && figures->n < MAX_ROUNDS);
    stg_lane_destroy(lane);
    stg_remote_destroy(remote);
    bench_worker_stop(&worker);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    static struct figures figures;
    char file[] = "/tmp/stg-wire-XXXXXX", yaml[64];
    bench_options_parse(argc, argv, 30.0,
                        "Bytes that a stagerd takes from a stage worker over loopback, "
                        "over plain sendfile of the same bytes to a reader.",
                        &options);
    extents = mmap(NULL, N_EXTENTS * EXTENT_BYTES, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (extents == MAP_FAILED)
        bench_die("no memory");
    write_records(file);
    snprintf(yaml, sizeof(yaml), "%s.yaml", file);
    FILE *to = fopen(yaml, "we");
    if (to == NULL)
        bench_die("%s: cannot be written", yaml);
    fprintf(to, pipeline, file);
    fclose(to);
    run(file, yaml, options.seconds, &figures);
    tell(&figures, &options);
    unlink(yaml);
    unlink(file);
    return 0;
}
