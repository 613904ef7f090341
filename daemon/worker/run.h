/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerd --worker: makes batches for stagerds of other hosts, which ask for them over
 * HTTP, until SIGTERM, SIGINT or the end of its input.
 */
#ifndef STG_DAEMON_WORKER_RUN_H
#define STG_DAEMON_WORKER_RUN_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

struct stg_worker_options {
    const char *listen;                         /* NULL: the default */
    const char *token_file, *certificate, *key; /* NULL: none */
    const char *zone;                           /* NULL: none */
    char *const *files;                         /* of pipelines */
    size_t n_files;
    const char *threads; /* a number; NULL: a thread for each CPU */
    bool until_eof;      /* drains when standard input ends, as on SIGTERM */
};

/* Call it before the first thread starts: signals come to stg_worker_run alone. */
void stg_worker_block_signals(void);

/* Runs until a signal ends it. Errors: those of the pipelines and of the start;
 * UNAVAILABLE: stager-worker has ended. */
int stg_worker_run(const struct stg_worker_options *options, struct stg_err *err);

#endif
