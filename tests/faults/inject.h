/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls into libc that fail on request: memory, descriptors, files, sockets, threads. The
 * test program defines these functions, so that every library of the process calls them,
 * libuv and libyaml included. Calls inside libc do not pass through here. Calls of immune
 * threads (the test's, which is the client) are neither counted nor failed.
 */
#ifndef STG_TESTS_FAULTS_INJECT_H
#define STG_TESTS_FAULTS_INJECT_H

#include <stdbool.h>
#include <stdint.h>

/* The calls, in the order of the table in inject.c. */
enum inject_call {
    INJECT_MALLOC,
    INJECT_CALLOC,
    INJECT_REALLOC,
    INJECT_ALIGNED_ALLOC,
    INJECT_POSIX_MEMALIGN,
    INJECT_MMAP,
    INJECT_MEMFD_CREATE,
    INJECT_FALLOCATE,
    INJECT_FTRUNCATE,
    INJECT_FCNTL,
    INJECT_IOCTL,
    INJECT_OPEN,
    INJECT_OPENAT,
    INJECT_FOPEN,
    INJECT_FDOPENDIR,
    INJECT_SCANDIR,
    INJECT_FSTAT,
    INJECT_READ,
    INJECT_PREAD,
    INJECT_WRITE,
    INJECT_PWRITE,
    INJECT_FSYNC,
    INJECT_RENAME,
    INJECT_UNLINK,
    INJECT_MKDIR,
    INJECT_CHMOD,
    INJECT_FLOCK,
    INJECT_SOCKET,
    INJECT_BIND,
    INJECT_LISTEN,
    INJECT_ACCEPT4,
    INJECT_CONNECT,
    INJECT_GETSOCKOPT,
    INJECT_RECV,
    INJECT_RECVMSG,
    INJECT_SEND,
    INJECT_SENDMSG,
    INJECT_EPOLL_CREATE1,
    INJECT_EPOLL_CTL,
    INJECT_EVENTFD,
    INJECT_PIPE2,
    INJECT_GETRANDOM,
    INJECT_PTHREAD_CREATE,
    INJECT_N,
};

const char *inject_name(enum inject_call call);

/* Makes this thread immune. */
void inject_immune(bool immune);

/* The reverse: only calls of this thread are counted and failed. */
void inject_only_this(bool only);

/* libuv aborts the process if it cannot wake its loop or make its pipe or threads
 * (daemon/server/loop.h). Those calls do not fail until this is called. */
void inject_into_libuv(void);

/* The same for its first table, while a loop is created. */
void inject_starting(bool now);

/* Resets the counters. The n-th call of that kind (from 1) then fails, alone or with all
 * after it. n 0: none fails. */
void inject_arm(enum inject_call call, uint64_t n, bool for_ever);

/* Disarms. Returns the number of failures since inject_arm. */
uint64_t inject_off(void);

/* Returns the number of such calls since inject_arm. */
uint64_t inject_count(enum inject_call call);

/* Returns the number of blocks currently allocated, by any thread. */
int64_t inject_blocks(void);

#endif
