/* SPDX-License-Identifier: Apache-2.0
 *
 * A file stagerd.lock in runtime_dir and one in state_dir keep a second daemon out. Each
 * holds the pid of its daemon, then the runtime_dir. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_LOCK_H
#define STG_DAEMON_SERVER_LOCK_H

#include "core/spec.h"

struct stg_locks {
    int runtime_fd, state_fd; /* -1: not locked */
};

#define STG_LOCKS_NONE                                                                   \
    {                                                                                    \
        .runtime_fd = -1, .state_fd = -1                                                 \
    }

/* Makes both folders and locks them. FAILED_PRECONDITION: another daemon has one; the
 * text names its pid and the setting. A state_dir that cannot be written is a warning
 * only: no daemon keeps pipelines there. */
int stg_locks_take(const struct stg_settings *settings, struct stg_locks *ret,
                   struct stg_err *err);

/* What failed at a path in runtime_dir, with a number of errno. */
int stg_runtime_dir_error(const char *what, const char *path, int number,
                          struct stg_err *err);

/* Removes the files and releases the locks. */
void stg_locks_release(const struct stg_settings *settings, struct stg_locks *locks);

#endif
