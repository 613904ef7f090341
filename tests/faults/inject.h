/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls into libc that fail when they are told to: memory, descriptors, files, sockets,
 * threads. The functions are defined in the test program, so that every library of the
 * process, libuv and libyaml with it, comes by here; what libc calls inside itself does
 * not. Threads that are immune (the test's own: it is the client) are neither counted nor
 * failed.
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

/* From now on calls of this thread are the test's own. */
void inject_immune(bool immune);

/* The other way round: only calls of this thread are counted and failed. */
void inject_only_this(bool only);

/* libuv ends the process when it cannot wake its loop, make its pipe or its threads
 * (daemon/server/loop.h). Those calls of its own are left alone, until this is called. */
void inject_into_libuv(void);

/* So is its first table, while a loop is being made. */
void inject_starting(bool now);

/* Counts from 0 again; the n-th such call (from 1) fails, alone or with all after it. n
 * 0: none does. */
void inject_arm(enum inject_call call, uint64_t n, bool for_ever);

/* No call fails. Returns how many did since inject_arm. */
uint64_t inject_off(void);

/* Such calls since inject_arm. */
uint64_t inject_count(enum inject_call call);

/* Blocks that are allocated now, by any thread. */
int64_t inject_blocks(void);

#endif
