/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes metrics: the text format 0.0.4 of Prometheus, or OpenMetrics 1.0. All values are
 * integers or nanoseconds, so that no number is rounded, and none is NaN. Any thread; one
 * text by one thread at a time.
 */
#ifndef STG_DAEMON_METRICS_TEXT_H
#define STG_DAEMON_METRICS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise; the caller frees `data`. With a file, `data` holds only what is not in
 * the file yet, which stays in the processor's caches. */
struct stg_metrics_text {
    char *data;
    size_t n, capacity;
    bool has_failed; /* memory, or the file, ran out: the text is incomplete */
    bool is_open;    /* OpenMetrics */
    bool has_file;
    int fd;           /* the caller's */
    const char *name; /* of the family */
    size_t n_name;
};

enum stg_metric_type {
    STG_METRIC_COUNTER, /* its name ends with _total */
    STG_METRIC_GAUGE,
    STG_METRIC_HISTOGRAM,
    STG_METRIC_INFO, /* its name ends with _info; its value is 1 */
};

/* Begins a family: its samples follow, before another family begins. The name must live
 * as long. */
void stg_metrics_family(struct stg_metrics_text *text, const char *name,
                        enum stg_metric_type type, const char *help);

/* Writes a sample of the family. labels, more: parts such as `a="b",c="d"`, with values
 * that are escaped already; each may be "". */
void stg_metrics_put(struct stg_metrics_text *text, const char *labels, const char *more,
                     uint64_t value);

/* The same of a time, in seconds. */
void stg_metrics_put_ns(struct stg_metrics_text *text, const char *labels,
                        const char *more, uint64_t ns);

#define STG_METRICS_BOUND_BYTES 40

/* Writes a histogram of times. labels, more: not "". bounds: n_bounds labels
 * `le="SECONDS"`. counts: n_bounds + 1 of them, each without those below its bound. */
void stg_metrics_put_histogram(struct stg_metrics_text *text, const char *labels,
                               const char *more, char (*bounds)[STG_METRICS_BOUND_BYTES],
                               size_t n_bounds, const uint64_t *counts, uint64_t sum_ns);

/* Ends the text, and completes the file. */
void stg_metrics_end(struct stg_metrics_text *text);

/* Writes `NAME="VALUE"` with the value escaped to buf, shortened to fit. Bytes that are
 * not UTF-8 become '?'. Returns buf. */
char *stg_metrics_label(const char *name, const char *value, char *buf, size_t bytes);

#define STG_METRICS_NUMBER_BYTES 32

/* Writes nanoseconds as seconds, exactly: "0.0001", "12.0". Returns buf, of
 * STG_METRICS_NUMBER_BYTES. */
char *stg_metrics_seconds(uint64_t ns, char *buf);

#endif
