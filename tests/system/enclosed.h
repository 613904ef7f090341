/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes in namespaces of their own, as in a container.
 */
#ifndef STG_TESTS_SYSTEM_ENCLOSED_H
#define STG_TESTS_SYSTEM_ENCLOSED_H

#include <sys/types.h>

/* As fork; the child is in user, pid and mount namespaces of its own, in which its user
 * and group keep their numbers and nobody else has one, and its pid is 1. Skips the test
 * where that is forbidden. */
pid_t enclosed_fork(void);

/* In such a child: from here on `below` is all that there is, as /run. `dir` is a folder
 * to make the new root in. */
void enclosed_root(const char *dir, const char *below);

#endif
