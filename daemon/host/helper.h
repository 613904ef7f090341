/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of stager that stagerd starts beside itself: where they are, and how they
 * begin. Any thread.
 */
#ifndef STG_DAEMON_HOST_HELPER_H
#define STG_DAEMON_HOST_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/err.h"

/* In the build tree and in a wheel it lies in `folder` below stagerd; where it was
 * installed, at the place that the build chose, or as far from stagerd as that.
 * NOT_FOUND; path names the last place then. */
int stg_helper_find(const char *folder, const char *name, char *path, size_t bytes,
                    struct stg_err *err);

/* Signals as a program begins with them; no descriptor but standard ones, of which the
 * input is empty, and end_fd as number 3. 0, or what is wrong as errno says it. The
 * child's parent is the calling thread. */
int stg_helper_spawn(const char *program, char *const *argv, char *const *env, int end_fd,
                     pid_t *ret);

/* Kills a child and waits for its end for a second at most. Returns false if it has not
 * ended: a debugger has it, or it hangs in a driver. */
bool stg_helper_end(pid_t pid);

#endif
