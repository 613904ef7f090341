/* SPDX-License-Identifier: Apache-2.0
 *
 * The difference between two texts of a pipeline, in a few words. Pure.
 */
#ifndef STG_DAEMON_PIPELINE_DIFFERENCE_H
#define STG_DAEMON_PIPELINE_DIFFERENCE_H

#include <stddef.h>

/* Fills ret with the lines that one text has and the other lacks, such as
 * `"capacity: 2" becomes "capacity: 4"`: the first few, and the number of the others.
 * Ignores empty lines, comments, indentation and order: "" if nothing else differs. */
void stg_difference(const char *before, size_t before_bytes, const char *after,
                    size_t after_bytes, char *ret, size_t bytes);

#endif
