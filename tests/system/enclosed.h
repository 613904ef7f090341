/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes in separate namespaces, as in a container.
 */
#ifndef STG_TESTS_SYSTEM_ENCLOSED_H
#define STG_TESTS_SYSTEM_ENCLOSED_H

#include <sys/types.h>

/* Like fork. The child runs with pid 1 in new user, pid and mount namespaces, which map
 * only its own user and group. Skips the test if the system forbids that. */
pid_t enclosed_fork(void);

/* Called in such a child: afterwards its root contains only `below`, as /run. `dir` is a
 * folder for the new root. */
void enclosed_root(const char *dir, const char *below);

#endif
