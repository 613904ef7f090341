/* SPDX-License-Identifier: Apache-2.0
 *
 * What has changed between two texts of a pipeline, in a few words. Pure.
 */
#ifndef STG_DAEMON_PIPELINE_DIFFERENCE_H
#define STG_DAEMON_PIPELINE_DIFFERENCE_H

#include <stddef.h>

/* Fills ret with the lines that one text has and the other lacks, such as
 * `"capacity: 2" becomes "capacity: 4"`; a few of them, and how many more there are.
 * Empty lines, comments and indentation do not count. "" when nothing else differs. */
void stg_difference(const char *before, size_t before_bytes, const char *after,
                    size_t after_bytes, char *ret, size_t bytes);

#endif
