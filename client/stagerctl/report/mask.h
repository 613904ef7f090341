/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes secrets and data out of a line that leaves the machine. Any thread.
 */
#ifndef STG_STAGERCTL_MASK_H
#define STG_STAGERCTL_MASK_H

#include <stdio.h>

/* Writes the line without: texts in quotes, which may be of the data; users, passwords
 * and queries of URLs; values of keys whose names are of secrets; long runs of letters
 * and digits, as tokens are. Each becomes ***. Control characters become '?'. */
void stg_mask_line(FILE *out, const char *line, size_t n);

#endif
