/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the difference between two texts of a pipeline. Pure.
 */
#ifndef STG_DAEMON_PIPELINE_DIFFERENCE_H
#define STG_DAEMON_PIPELINE_DIFFERENCE_H

#include <stddef.h>

/* Fills ret with the lines that only one of the two texts has: the first few, such as
 * `"capacity: 2" becomes "capacity: 4"`, and the number of the rest. Ignores empty lines,
 * comments, indentation and order; ret is "" if nothing else differs. */
void stg_difference(const char *before, size_t before_bytes, const char *after,
                    size_t after_bytes, char *ret, size_t bytes);

#endif
