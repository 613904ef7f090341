/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/slow_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/frame.h"

#define PIECE_BYTES (128u << 10)

static char object[SLOW_OBJECT_BYTES];
static struct slow_pace *pace;

static void make_object(void)
{
    uint64_t seed = 1;
    for (char *at = object; at < object + SLOW_OBJECT_BYTES;)
        at += bench_frame_random(at, SLOW_RECORD_BYTES, &seed);
}

static void sleep_until(uint64_t ns)
{
    struct timespec t = stg_timespec(ns);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* At the rate of one connection. */
static bool send_slowly(int fd, const char *bytes, size_t n)
{
    uint64_t next = bench_now_ns();
    for (size_t at = 0; at < n;) {
        size_t piece = n - at < PIECE_BYTES ? n - at : PIECE_BYTES;
        ssize_t sent = send(fd, bytes + at, piece, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += (size_t)sent;
        next += (uint64_t)sent * 1000000000u / atomic_load(&pace->bytes_per_s);
        sleep_until(next);
    }
    return true;
}

static bool answer(int fd, const char *request)
{
    uint64_t asked_ns = bench_now_ns();
    unsigned long first = 0, last = SLOW_OBJECT_BYTES - 1;
    char head[256];
    const char *range = strstr(request, "Range: bytes=");
    if (range != NULL && sscanf(range, "Range: bytes=%lu-%lu", &first, &last) != 2)
        return false;
    if (last >= SLOW_OBJECT_BYTES)
        last = SLOW_OBJECT_BYTES - 1;
    if (first > last)
        return false;
    if (strncmp(request, "GET /never", 10) == 0)
        pause();
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 206 Partial Content\r\nContent-Length: %lu\r\n"
                     "Content-Range: bytes %lu-%lu/%u\r\nETag: \"1\"\r\n\r\n",
                     last - first + 1, first, last, (unsigned)SLOW_OBJECT_BYTES);
    sleep_until(asked_ns + atomic_load(&pace->delay_ns));
    return send(fd, head, (size_t)n, MSG_NOSIGNAL) == n &&
           send_slowly(fd, object + first, last - first + 1);
}

/* Serves one request after the other. */
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

static void run(int listen_fd)
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

static int listen_on_loopback(unsigned *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) < 0 ||
        listen(fd, 512) < 0 || getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        bench_die("no socket on loopback");
    *ret_port = ntohs(address.sin_port);
    return fd;
}

void slow_server_start(struct slow_server *server, uint64_t delay_ns,
                       uint64_t bytes_per_s)
{
    make_object();
    pace = mmap(NULL, sizeof(*pace), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    if (pace == MAP_FAILED)
        bench_die("no memory to share with the server");
    atomic_store(&pace->delay_ns, delay_ns);
    atomic_store(&pace->bytes_per_s, bytes_per_s);
    *server = (struct slow_server){.pace = pace, .object = object};
    int fd = listen_on_loopback(&server->port);
    server->pid = fork();
    if (server->pid == 0)
        run(fd);
    close(fd);
    if (server->pid < 0)
        bench_die("no process for the server");
    setenv("no_proxy", "127.0.0.1", 1);
}

void slow_server_stop(struct slow_server *server)
{
    kill(server->pid, SIGTERM);
    waitpid(server->pid, NULL, 0);
    munmap(server->pace, sizeof(*server->pace));
}
