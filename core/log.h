/* SPDX-License-Identifier: Apache-2.0
 *
 * One line of log at a time to standard error; with the "<N>" prefixes of sd-daemon(3)
 * when standard error is the journal. Only daemon/ and stagerctl call it. Any thread.
 *
 * After stg_log_start, lines pass through a queue of 256 KiB and a thread that writes
 * them: stg_log does not wait for a reader, whatever lock its caller holds. When the
 * queue is full, further lines are dropped and counted; a line of the log says how many
 * are missing as soon as it can be written. So are lines that find the queue locked by a
 * thread that stands still; the first of them waits a second. Lines are whole, and in the
 * order of the calls.
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

/* Starts the thread. 0, or what is wrong as errno says it, and then stg_log writes by
 * itself, as it does before and in a child of fork. From here on a process that abort(3)
 * ends gives the thread a moment to write what is queued. */
int stg_log_start(void);

/* Waits until what is queued is written, for a second at most. Any thread. */
void stg_log_flush(void);

/* Writes what is queued, for a second at most, and ends the thread. The last thing that a
 * program does before it exits. Does nothing without the thread. */
void stg_log_stop(void);

void stg_log(enum stg_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
