/* SPDX-License-Identifier: Apache-2.0
 *
 * One line of log at a time to standard error; with the "<N>" prefixes of sd-daemon(3)
 * when standard error is the journal. Only daemon/ and stagerctl call it. Any thread.
 *
 * After stg_log_start, lines pass through a queue of 256 KiB and a thread that writes
 * them: stg_log does not wait for a reader, whatever lock its caller holds. When the
 * queue is full, further lines are dropped and counted; as soon as the thread can write,
 * a line of the log has their number. Lines that find the queue locked by a stopped
 * thread are counted too; the first of them waits a second. Lines are whole, and in the
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

/* Opens /dev/null in place of a closed descriptor 0, 1 or 2, so that no file opened later
 * gets that number. Reading and writing it fail. A program calls it first. */
void stg_log_fill_standard(void);

/* Returns 1 if standard error is the journal of systemd, else 0. */
int stg_log_is_journal(void);

/* Starts the thread. Returns 0 or a number of errno; after an error stg_log itself
 * writes, as it does before this call and in a child of fork. From here on a process that
 * abort(3) ends gives the thread a moment to write the queue. */
int stg_log_start(void);

/* Blocks until the queue is written, for a second at most. Any thread. */
void stg_log_flush(void);

/* Writes the queue, for a second at most, and ends the thread. A program calls it last
 * before it exits. Does nothing without the thread. */
void stg_log_stop(void);

void stg_log(enum stg_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
