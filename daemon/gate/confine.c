/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gate/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_BYTES (1ull << 30)

static int system_error(const char *what, struct stg_err *err)
{
    return stg_err(err, -STAGER_INTERNAL, "%s: %s", what, strerror(errno));
}

static void limit(int resource, rlim_t most)
{
    struct rlimit now;
    if (getrlimit(resource, &now) < 0)
        return;
    if (now.rlim_max < most)
        most = now.rlim_max;
    now = (struct rlimit){.rlim_cur = most, .rlim_max = most};
    setrlimit((__rlimit_resource_t)resource, &now);
}

static bool has_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct held[2] = {0};
    if (syscall(SYS_capget, &header, held) < 0)
        return true;
    return (held[0].effective | held[0].permitted | held[0].inheritable |
            held[1].effective | held[1].permitted | held[1].inheritable) != 0;
}

/* A unit may forbid the call; it leaves nothing to drop either. */
static int drop_capabilities(struct stg_err *err)
{
    for (int i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
        prctl(PR_CAPBSET_DROP, i, 0, 0, 0); /* refused unless root: then there are none */
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    if (has_capabilities() && syscall(SYS_capset, &header, none) < 0)
        return system_error("cannot drop capabilities", err);
    return 0;
}

int stg_gate_confine(uid_t uid, gid_t gid, pid_t parent, struct stg_err *err)
{
    if (geteuid() == 0 && uid != 0 &&
        (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0))
        return system_error("cannot drop root's groups", err);
    for (int i = 0; geteuid() == 0 && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
        prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
    if (geteuid() == 0 && uid != 0 && setresuid(uid, uid, uid) < 0)
        return system_error("cannot drop root", err);
    int rc = drop_capabilities(err);
    if (rc < 0)
        return rc;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return system_error("no_new_privs", err);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_NOFILE, STG_GATE_MAX_FILES);
#ifndef STG_SANITIZED
    limit(RLIMIT_AS, MAX_BYTES);
#endif
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    /* After the change of user, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return system_error("cannot set the signal for the end of stagerd", err);
    if (getppid() != parent)
        return stg_err(err, -STAGER_UNAVAILABLE, "stagerd has exited");
    return 0;
}

/* ---- system calls ---- */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#if defined(ARCH) && !defined(STG_SANITIZED)

#define LOAD(field)                                                                      \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
#define REFUSE(number)                                                                   \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), RETURN(SECCOMP_RET_ERRNO | EPERM)

int stg_gate_filter(struct stg_err *err)
{
    struct sock_filter program[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
#ifdef __x86_64__
        /* The x32 numbers of the same calls. */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
        RETURN(SECCOMP_RET_ERRNO | ENOSYS),
        REFUSE(SYS_open),
        REFUSE(SYS_creat),
        REFUSE(SYS_fork),
        REFUSE(SYS_vfork),
#endif
        REFUSE(SYS_openat),
        REFUSE(SYS_openat2),
        REFUSE(SYS_open_by_handle_at),
        REFUSE(SYS_execve),
        REFUSE(SYS_execveat),
        REFUSE(SYS_connect),
        REFUSE(SYS_ptrace),
        REFUSE(SYS_process_vm_readv),
        REFUSE(SYS_process_vm_writev),
        REFUSE(SYS_pidfd_open),
        REFUSE(SYS_pidfd_getfd),
        REFUSE(SYS_kill),
        REFUSE(SYS_tkill),
        REFUSE(SYS_rt_sigqueueinfo),
        REFUSE(SYS_rt_tgsigqueueinfo),
        REFUSE(SYS_pidfd_send_signal),
        REFUSE(SYS_unshare),
        REFUSE(SYS_mount),
        REFUSE(SYS_io_uring_setup),
        REFUSE(SYS_bpf),
        /* glibc starts threads by clone3, and by clone where that is not known: whose
         * flags can be looked at. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        RETURN(SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
        RETURN(SECCOMP_RET_ALLOW),
        RETURN(SECCOMP_RET_ERRNO | EPERM),
        /* abort(3) signals its own process. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 4),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 0, 1),
        RETURN(SECCOMP_RET_ALLOW),
        RETURN(SECCOMP_RET_ERRNO | EPERM),
        RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]),
                                .filter = program};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) < 0)
        return stg_err(err, -STAGER_UNIMPLEMENTED, "no filter for system calls: %s",
                       strerror(errno));
    return 0;
}

#else

int stg_gate_filter(struct stg_err *err)
{
    return stg_err(err, -STAGER_UNIMPLEMENTED,
                   "no filter for system calls on this machine, or in this build");
}

#endif
