/* SPDX-License-Identifier: Apache-2.0
 *
 * A `stagerd --worker` on loopback, and a client of it that only reads: a kept
 * connection, one request at a time, the body into one buffer.
 */
#ifndef STG_TESTS_BENCH_WORKERS_STAGE_WORKER_H
#define STG_TESTS_BENCH_WORKERS_STAGE_WORKER_H

#include <stdint.h>
#include <sys/types.h>

struct bench_worker {
    pid_t pid, http_pid; /* stagerd, and its stager-worker */
    unsigned port;
    char digest[72];
};

/* Returns a socket that listens on any free port of loopback. */
int bench_listen(unsigned *ret_port);

/* Starts a worker over one pipeline file, on that CPU (-1: any), and waits until it
 * answers. Ends the program on failure, as all of these do. */
void bench_worker_start(struct bench_worker *worker, int cpu, const char *pipeline);
void bench_worker_stop(struct bench_worker *worker);

/* Returns the CPU time of both its processes. */
uint64_t bench_worker_ns(const struct bench_worker *worker);

/* Binds the calling thread, and what it starts from now on, to a CPU. */
void bench_pin(int cpu);

/* The first two CPUs that the program may use; twice the same if there is only one. */
void bench_two_cpus(int ret[2]);

/* Returns the descriptor of a connection; waits until the port listens. */
int bench_http_connect(unsigned port);

/* Gets a path and returns the bytes of the body in ret; 0: the server is busy (503), and
 * the connection is over. */
uint64_t bench_http_get(int fd, const char *path, char *ret, uint64_t capacity);

/* The path of a batch of a pass whose epochs have so many each. */
void bench_worker_path(const struct bench_worker *worker, uint64_t batch,
                       uint64_t of_epoch, char ret[192]);

#endif
