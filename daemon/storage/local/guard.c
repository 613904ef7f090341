/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/local/guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* The copy that a thread makes. */
struct guarded {
    sigjmp_buf escape;
    const char *from, *end, *behind;
};

static _Thread_local struct guarded *volatile current;
static struct sigaction before;

static bool is_of_copy(const struct guarded *guarded, const char *at)
{
    return (at >= guarded->from && at < guarded->end) || at == guarded->behind;
}

/* The action before this one, or the default, which ends the process. */
static void leave(int number, siginfo_t *info, void *context)
{
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        signal(number, SIG_DFL);
        raise(number);
    }
}

/* A signal that the kernel sends for a copy comes from an instruction that reads, so that
 * the jump leaves no lock behind. */
static void on_sigbus(int number, siginfo_t *info, void *context)
{
    struct guarded *guarded = current;
    bool is_of_kernel = info->si_code > 0;
    if (is_of_kernel && guarded != NULL && is_of_copy(guarded, info->si_addr))
        siglongjmp(guarded->escape, 1);
    leave(number, info, context);
}

/* SA_NODEFER: the jump does not restore the mask. */
static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus,
                               .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
}

static void read_byte(const char *at)
{
    (void)*(const volatile char *)at;
}

bool stg_guard_copy(void *to, const char *from, size_t n, const char *behind)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct guarded guarded = {.from = from, .end = from + n, .behind = behind};
    pthread_once(&once, install);
    if (sigsetjmp(guarded.escape, 0) != 0) {
        current = NULL;
        return false;
    }
    current = &guarded;
    atomic_signal_fence(memory_order_seq_cst);
    read_byte(behind);
    memcpy(to, from, n);
    read_byte(behind);
    atomic_signal_fence(memory_order_seq_cst);
    current = NULL;
    return true;
}
