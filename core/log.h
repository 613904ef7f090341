/* SPDX-License-Identifier: Apache-2.0
 *
 * One line of log at a time to standard error; with the "<N>" prefixes of sd-daemon(3)
 * when standard error is the journal. Only daemon/ and stagerctl call it. Any thread.
 */
#ifndef STG_CORE_LOG_H
#define STG_CORE_LOG_H

enum stg_log_level {
    STG_LOG_ERROR = 3,
    STG_LOG_WARNING = 4,
    STG_LOG_INFO = 6,
    STG_LOG_DEBUG = 7
};

/* Lines above this level are dropped. Default STG_LOG_INFO. */
void stg_log_set_level(enum stg_log_level level);

/* "error", "warning", "info", "debug" to a level; -1 for anything else. */
int stg_log_level_from_name(const char *name);

/* Puts /dev/null where descriptor 0, 1 or 2 is closed, so that nothing which is opened
 * later is read from, or printed to, in its place: reading and writing fail. The first
 * thing that a program does. */
void stg_log_fill_standard(void);

void stg_log(enum stg_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
