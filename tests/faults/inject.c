/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faults/inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The errno of each failure: the likeliest one. */
static const struct {
    const char *name;
    int code;
} calls[INJECT_N] = {
    [INJECT_MALLOC] = {"malloc", ENOMEM},
    [INJECT_CALLOC] = {"calloc", ENOMEM},
    [INJECT_REALLOC] = {"realloc", ENOMEM},
    [INJECT_ALIGNED_ALLOC] = {"aligned_alloc", ENOMEM},
    [INJECT_POSIX_MEMALIGN] = {"posix_memalign", ENOMEM},
    [INJECT_MMAP] = {"mmap", ENOMEM},
    [INJECT_MEMFD_CREATE] = {"memfd_create", EMFILE},
    [INJECT_FALLOCATE] = {"fallocate", ENOSPC},
    [INJECT_FTRUNCATE] = {"ftruncate", ENOSPC},
    [INJECT_FCNTL] = {"fcntl", EBUSY},
    [INJECT_IOCTL] = {"ioctl", ENOTTY},
    [INJECT_OPEN] = {"open", EMFILE},
    [INJECT_OPENAT] = {"openat", EMFILE},
    [INJECT_FOPEN] = {"fopen", EMFILE},
    [INJECT_FDOPENDIR] = {"fdopendir", ENOMEM},
    [INJECT_SCANDIR] = {"scandir", EMFILE},
    [INJECT_FSTAT] = {"fstat", EIO},
    [INJECT_READ] = {"read", EIO},
    [INJECT_PREAD] = {"pread", EIO},
    [INJECT_WRITE] = {"write", ENOSPC},
    [INJECT_PWRITE] = {"pwrite", ENOSPC},
    [INJECT_FSYNC] = {"fsync", EIO},
    [INJECT_RENAME] = {"rename", EIO},
    [INJECT_UNLINK] = {"unlink", EROFS},
    [INJECT_MKDIR] = {"mkdir", EROFS},
    [INJECT_CHMOD] = {"chmod", EPERM},
    [INJECT_FLOCK] = {"flock", ENOLCK},
    [INJECT_SOCKET] = {"socket", EMFILE},
    [INJECT_BIND] = {"bind", ENOSPC},
    [INJECT_LISTEN] = {"listen", EADDRINUSE},
    [INJECT_ACCEPT4] = {"accept4", EMFILE},
    [INJECT_GETSOCKOPT] = {"getsockopt", EMFILE},
    [INJECT_CONNECT] = {"connect", EAGAIN},
    [INJECT_RECVMSG] = {"recvmsg", ENOMEM},
    [INJECT_RECV] = {"recv", ECONNRESET},
    [INJECT_SEND] = {"send", ENOBUFS},
    [INJECT_SENDMSG] = {"sendmsg", ENOBUFS},
    [INJECT_EPOLL_CREATE1] = {"epoll_create1", EMFILE},
    [INJECT_EPOLL_CTL] = {"epoll_ctl", ENOSPC},
    [INJECT_EVENTFD] = {"eventfd", EMFILE},
    [INJECT_PIPE2] = {"pipe2", EMFILE},
    [INJECT_GETRANDOM] = {"getrandom", ENOSYS},
    [INJECT_PTHREAD_CREATE] = {"pthread_create", EAGAIN},
};

static _Atomic uint64_t counts[INJECT_N], first, last, n_failed;
static _Atomic int armed = INJECT_N;
static _Atomic int64_t n_blocks;
static _Thread_local bool is_immune, is_chosen;
static _Atomic bool only_chosen;
/* The address range of a library's code and data. */
struct range {
    const char *name;
    uintptr_t start, end;
};

static struct range libuv = {.name = "libuv.so"}, libc = {.name = "libc.so"};
static _Atomic bool libuv_too, starting;

const char *inject_name(enum inject_call call)
{
    return calls[call].name;
}

void inject_immune(bool immune)
{
    is_immune = immune;
}

void inject_only_this(bool only)
{
    is_chosen = only;
    atomic_store(&only_chosen, only);
}

void inject_into_libuv(void)
{
    atomic_store(&libuv_too, true);
}

void inject_starting(bool now)
{
    atomic_store(&starting, now);
}

void inject_arm(enum inject_call call, uint64_t n, bool for_ever)
{
    atomic_store(&armed, INJECT_N);
    for (int i = 0; i < INJECT_N; i++)
        atomic_store(&counts[i], 0);
    atomic_store(&n_failed, 0);
    atomic_store(&first, n);
    atomic_store(&last, for_ever ? UINT64_MAX : n);
    atomic_store(&armed, n > 0 ? (int)call : INJECT_N);
}

uint64_t inject_off(void)
{
    atomic_store(&armed, INJECT_N);
    return atomic_load(&n_failed);
}

uint64_t inject_count(enum inject_call call)
{
    return atomic_load(&counts[call]);
}

int64_t inject_blocks(void)
{
    return atomic_load(&n_blocks);
}

static bool is_in(const struct range *range, const void *address)
{
    return (uintptr_t)address >= range->start && (uintptr_t)address < range->end;
}

/* libuv aborts the process if it cannot watch an accepted descriptor, wake its loop or
 * start its threads: it has no way to report that. */
static bool libuv_would_abort(enum inject_call call, const void *caller)
{
    bool fatal = call == INJECT_READ || call == INJECT_WRITE || call == INJECT_PIPE2 ||
                 call == INJECT_PTHREAD_CREATE ||
                 (call == INJECT_REALLOC && atomic_load(&starting));
    return fatal && is_in(&libuv, caller) && !atomic_load(&libuv_too);
}

/* A sanitizer asks libc for a new thread's stack, and treats an error as a bug. */
static bool sanitizer_would_abort(enum inject_call call, const void *caller)
{
#ifdef INJECT_SANITIZED
    return call <= INJECT_POSIX_MEMALIGN && is_in(&libc, caller);
#else
    return false;
#endif
}

static bool fails(enum inject_call call, const void *caller)
{
    if ((atomic_load(&only_chosen) ? !is_chosen : is_immune) ||
        libuv_would_abort(call, caller) || sanitizer_would_abort(call, caller))
        return false;
    uint64_t n = atomic_fetch_add(&counts[call], 1) + 1;
    if (atomic_load(&armed) != (int)call || n < atomic_load(&first) ||
        n > atomic_load(&last))
        return false;
    atomic_fetch_add(&n_failed, 1);
    errno = calls[call].code;
    return true;
}

static int find_range(struct dl_phdr_info *info, size_t size, void *owner)
{
    struct range *range = owner;
    if (strstr(info->dlpi_name, range->name) == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD)
            continue;
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (range->start == 0 || start < range->start)
            range->start = start;
        if (start + part->p_memsz > range->end)
            range->end = start + part->p_memsz;
    }
    return 1;
}

/* Reports the failing call if a signal ends the process, then raises the signal again. */
static void on_crash(int number)
{
    int call = atomic_load(&armed);
    char line[128];
    int n = snprintf(line, sizeof(line), "    signal %d while %s %llu fails%s\n", number,
                     call < INJECT_N ? calls[call].name : "nothing",
                     (unsigned long long)atomic_load(&first),
                     atomic_load(&last) == UINT64_MAX ? ", and all after it" : "");
    is_immune = true;
    (void)!write(2, line, (size_t)n);
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((constructor)) static void prepare(void)
{
    dl_iterate_phdr(find_range, &libuv);
    dl_iterate_phdr(find_range, &libc);
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
}

#define CALLER __builtin_return_address(0)

/* Looks up the next definition of a function at its first call. */
#define REAL(name)                                                                       \
    static __typeof__(&name) real;                                                       \
    if (real == NULL)                                                                    \
    *(void **)(void *)&real = dlsym(RTLD_NEXT, #name)

/* Exported, so that libraries find them. */
#pragma GCC visibility push(default)

/* ---- memory ---- */

#ifdef INJECT_SANITIZED
#define LIBC(name) __interceptor_##name
#else
#define LIBC(name) __libc_##name
#endif
void *LIBC(malloc)(size_t bytes);
void *LIBC(calloc)(size_t n, size_t bytes);
void *LIBC(realloc)(void *ptr, size_t bytes);
void *LIBC(memalign)(size_t align, size_t bytes);
void LIBC(free)(void *ptr);

static void *counted(void *block)
{
    if (block != NULL)
        atomic_fetch_add(&n_blocks, 1);
    return block;
}

void *malloc(size_t bytes)
{
    return fails(INJECT_MALLOC, CALLER) ? NULL : counted(LIBC(malloc)(bytes));
}

void *calloc(size_t n, size_t bytes)
{
    return fails(INJECT_CALLOC, CALLER) ? NULL : counted(LIBC(calloc)(n, bytes));
}

void *realloc(void *ptr, size_t bytes)
{
    if (bytes > 0 && fails(INJECT_REALLOC, CALLER))
        return NULL;
    void *block = LIBC(realloc)(ptr, bytes);
    if (ptr == NULL)
        return counted(block);
    if (bytes == 0)
        atomic_fetch_sub(&n_blocks, 1);
    return block;
}

void *aligned_alloc(size_t align, size_t bytes)
{
    if (fails(INJECT_ALIGNED_ALLOC, CALLER))
        return NULL;
    return counted(LIBC(memalign)(align, bytes));
}

int posix_memalign(void **ret, size_t align, size_t bytes)
{
    if (fails(INJECT_POSIX_MEMALIGN, CALLER))
        return ENOMEM;
    void *block = counted(LIBC(memalign)(align, bytes));
    if (block == NULL)
        return ENOMEM;
    *ret = block;
    return 0;
}

void free(void *ptr)
{
    if (ptr != NULL)
        atomic_fetch_sub(&n_blocks, 1);
    LIBC(free)(ptr);
}

void *mmap64(void *at, size_t bytes, int prot, int flags, int fd, off64_t offset)
{
    REAL(mmap64);
    if (fails(INJECT_MMAP, CALLER))
        return MAP_FAILED;
    return real(at, bytes, prot, flags, fd, offset);
}

int memfd_create(const char *name, unsigned flags)
{
    REAL(memfd_create);
    return fails(INJECT_MEMFD_CREATE, CALLER) ? -1 : real(name, flags);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t bytes)
{
    REAL(fallocate64);
    return fails(INJECT_FALLOCATE, CALLER) ? -1 : real(fd, mode, offset, bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
    REAL(ftruncate64);
    return fails(INJECT_FTRUNCATE, CALLER) ? -1 : real(fd, bytes);
}

/* ---- descriptors ---- */

int fcntl64(int fd, int command, ...)
{
    REAL(fcntl64);
    va_list args;
    va_start(args, command);
    void *arg = va_arg(args, void *);
    va_end(args);
    return fails(INJECT_FCNTL, CALLER) ? -1 : real(fd, command, arg);
}

int ioctl(int fd, unsigned long command, ...)
{
    REAL(ioctl);
    va_list args;
    va_start(args, command);
    void *arg = va_arg(args, void *);
    va_end(args);
    return fails(INJECT_IOCTL, CALLER) ? -1 : real(fd, command, arg);
}

int open64(const char *path, int flags, ...)
{
    REAL(open64);
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(INJECT_OPEN, CALLER) ? -1 : real(path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...)
{
    REAL(openat64);
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(INJECT_OPENAT, CALLER) ? -1 : real(folder, path, flags, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    REAL(fopen64);
    return fails(INJECT_FOPEN, CALLER) ? NULL : real(path, mode);
}

DIR *fdopendir(int fd)
{
    REAL(fdopendir);
    return fails(INJECT_FDOPENDIR, CALLER) ? NULL : real(fd);
}

int scandir64(const char *path, struct dirent64 ***ret,
              int (*choose)(const struct dirent64 *),
              int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
    REAL(scandir64);
    return fails(INJECT_SCANDIR, CALLER) ? -1 : real(path, ret, choose, compare);
}

int fstat64(int fd, struct stat64 *ret)
{
    REAL(fstat64);
    return fails(INJECT_FSTAT, CALLER) ? -1 : real(fd, ret);
}

ssize_t read(int fd, void *buf, size_t bytes)
{
    REAL(read);
    return fails(INJECT_READ, CALLER) ? -1 : real(fd, buf, bytes);
}

ssize_t pread64(int fd, void *buf, size_t bytes, off64_t offset)
{
    REAL(pread64);
    return fails(INJECT_PREAD, CALLER) ? -1 : real(fd, buf, bytes, offset);
}

ssize_t write(int fd, const void *buf, size_t bytes)
{
    REAL(write);
    return fails(INJECT_WRITE, CALLER) ? -1 : real(fd, buf, bytes);
}

ssize_t pwrite64(int fd, const void *buf, size_t bytes, off64_t offset)
{
    REAL(pwrite64);
    return fails(INJECT_PWRITE, CALLER) ? -1 : real(fd, buf, bytes, offset);
}

int fsync(int fd)
{
    REAL(fsync);
    return fails(INJECT_FSYNC, CALLER) ? -1 : real(fd);
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    return fails(INJECT_RENAME, CALLER) ? -1 : real(from, to);
}

int unlink(const char *path)
{
    REAL(unlink);
    return fails(INJECT_UNLINK, CALLER) ? -1 : real(path);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    return fails(INJECT_MKDIR, CALLER) ? -1 : real(path, mode);
}

int chmod(const char *path, mode_t mode)
{
    REAL(chmod);
    return fails(INJECT_CHMOD, CALLER) ? -1 : real(path, mode);
}

int flock(int fd, int operation)
{
    REAL(flock);
    return fails(INJECT_FLOCK, CALLER) ? -1 : real(fd, operation);
}

/* ---- sockets ---- */

int socket(int domain, int type, int protocol)
{
    REAL(socket);
    return fails(INJECT_SOCKET, CALLER) ? -1 : real(domain, type, protocol);
}

int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes)
{
    REAL(bind);
    return fails(INJECT_BIND, CALLER) ? -1 : real(fd, address, bytes);
}

int listen(int fd, int backlog)
{
    REAL(listen);
    return fails(INJECT_LISTEN, CALLER) ? -1 : real(fd, backlog);
}

int accept4(int fd, __SOCKADDR_ARG address, socklen_t *bytes, int flags)
{
    REAL(accept4);
    return fails(INJECT_ACCEPT4, CALLER) ? -1 : real(fd, address, bytes, flags);
}

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes)
{
    REAL(connect);
    return fails(INJECT_CONNECT, CALLER) ? -1 : real(fd, address, bytes);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    REAL(recvmsg);
    return fails(INJECT_RECVMSG, CALLER) ? -1 : real(fd, message, flags);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
    REAL(getsockopt);
    return fails(INJECT_GETSOCKOPT, CALLER) ? -1 : real(fd, level, name, value, bytes);
}

ssize_t recv(int fd, void *buf, size_t bytes, int flags)
{
    REAL(recv);
    return fails(INJECT_RECV, CALLER) ? -1 : real(fd, buf, bytes, flags);
}

ssize_t send(int fd, const void *buf, size_t bytes, int flags)
{
    REAL(send);
    return fails(INJECT_SEND, CALLER) ? -1 : real(fd, buf, bytes, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(sendmsg);
    return fails(INJECT_SENDMSG, CALLER) ? -1 : real(fd, message, flags);
}

/* ---- the loop's calls, threads ---- */

/* The daemon aborts if a runner hangs: the test must not pass then. */
void _exit(int status)
{
    static void (*real)(int) __attribute__((noreturn));
    *(void **)(void *)&real = dlsym(RTLD_NEXT, "_exit");
    if (!is_immune && atomic_load(&n_blocks) > 0 && !atomic_load(&only_chosen))
        abort();
    real(status);
}

int epoll_create1(int flags)
{
    REAL(epoll_create1);
    return fails(INJECT_EPOLL_CREATE1, CALLER) ? -1 : real(flags);
}

/* uv_poll_init tries a descriptor with -1 as its data and reports a failure. Later
 * failures cannot be reported. */
int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    REAL(epoll_ctl);
    if (operation != EPOLL_CTL_ADD || event->data.fd != -1)
        return real(epoll, operation, fd, event);
    return fails(INJECT_EPOLL_CTL, CALLER) ? -1 : real(epoll, operation, fd, event);
}

int eventfd(unsigned value, int flags)
{
    REAL(eventfd);
    return fails(INJECT_EVENTFD, CALLER) ? -1 : real(value, flags);
}

int pipe2(int fds[2], int flags)
{
    REAL(pipe2);
    return fails(INJECT_PIPE2, CALLER) ? -1 : real(fds, flags);
}

ssize_t getrandom(void *buf, size_t bytes, unsigned flags)
{
    REAL(getrandom);
    return fails(INJECT_GETRANDOM, CALLER) ? -1 : real(buf, bytes, flags);
}

int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *),
                   void *arg)
{
    REAL(pthread_create);
    return fails(INJECT_PTHREAD_CREATE, CALLER) ? EAGAIN : real(ret, attr, run, arg);
}

#pragma GCC visibility pop
