/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder that imitates the root of a machine, with files of /proc and /sys as the
 * kernel writes them. Only one exists at a time.
 */
#ifndef STG_TESTS_FAKE_ROOT_H
#define STG_TESTS_FAKE_ROOT_H

/* Makes an empty one. Returns its path. */
const char *fake_root_begin(void);

/* Writes a file and the folders above it. */
void fake_root_write(const char *path, const char *text);

void fake_root_end(void);

#endif
