/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer for tests/system/boot.py: takes a pipeline with a feature `id` (int32) to its
 * end and reports the rows it received. If the daemon exits, it opens again and restarts
 * its count, like a trainer that restarts from the beginning of its data.
 *
 *     boot_trainer PIPELINE ROWS [HOLD]
 *
 * After HOLD batches it prints "held" and waits for a line on standard input. Its last
 * line: rows N sum S missing M twice T reopened R
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/stager.h"

#define REOPEN_S 30

struct tally {
    long n_rows;
    unsigned char *seen;
    long rows, sum, twice, reopened;
};

static int die(const char *what, int rc, const struct stager_stream *stream)
{
    printf("%s: %s: %s\n", what, stager_status_name(rc), stager_error_text(stream));
    return 1;
}

static void restart(struct tally *tally)
{
    memset(tally->seen, 0, (size_t)tally->n_rows);
    tally->rows = tally->sum = tally->twice = 0;
}

static int count(struct tally *tally, const struct stager_batch *batch)
{
    struct stager_tensor id;
    int rc = stager_batch_tensor(batch, "id", &id);
    if (rc < 0 || id.dtype != STAGER_INT32)
        return -STAGER_INTERNAL;
    const int32_t *values = id.data;
    for (int64_t i = 0; i < id.shape[0]; i++) {
        if (values[i] < 0 || values[i] >= tally->n_rows)
            return -STAGER_DATA_LOSS;
        tally->twice += tally->seen[values[i]];
        tally->seen[values[i]] = 1;
        tally->sum += values[i];
        tally->rows++;
    }
    return 0;
}

/* The daemon is restarting: the trainer retries for a limited time. */
static int reopen(const char *pipeline, struct stager_stream **ret)
{
    struct timespec pause = {.tv_nsec = 20000000}, now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t end = now.tv_sec + REOPEN_S;
    int rc = stager_open(NULL, pipeline, NULL, ret);
    while (rc == -STAGER_UNAVAILABLE && now.tv_sec < end) {
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        rc = stager_open(NULL, pipeline, NULL, ret);
    }
    return rc;
}

static void hold(void)
{
    char line[16];
    printf("held\n");
    if (fgets(line, sizeof(line), stdin) == NULL)
        exit(3);
}

static int train(const char *pipeline, long hold_after, struct tally *tally)
{
    struct stager_stream *stream;
    struct stager_batch *batch;
    struct stager_options options = {.struct_size = sizeof(options),
                                     .daemon_reconnect_millis = STAGER_NEVER};
    int rc = stager_open(NULL, pipeline, &options, &stream);
    if (rc < 0)
        return die("open", rc, NULL);
    for (;;) {
        rc = stager_next(stream, -1, &batch);
        if (rc == -STAGER_UNAVAILABLE) {
            printf("unavailable\n");
            stager_close(stream);
            restart(tally);
            tally->reopened++;
            rc = reopen(pipeline, &stream);
            if (rc < 0)
                return die("open again", rc, NULL);
            continue;
        }
        if (rc < 0)
            break;
        rc = count(tally, batch);
        stager_release(batch);
        if (rc < 0) {
            stager_close(stream);
            return die("a batch", rc, NULL);
        }
        if (hold_after > 0 && --hold_after == 0)
            hold();
    }
    rc = rc == -STAGER_OUT_OF_RANGE ? 0 : die("next", rc, stream);
    stager_close(stream);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct tally tally = {.n_rows = strtol(argv[2], NULL, 10)};
    tally.seen = calloc((size_t)tally.n_rows + 1, 1);
    int rc = train(argv[1], argc > 3 ? strtol(argv[3], NULL, 10) : 0, &tally);
    long missing = tally.n_rows;
    for (long i = 0; i < tally.n_rows; i++)
        missing -= tally.seen[i];
    printf("rows %ld sum %ld missing %ld twice %ld reopened %ld\n", tally.rows, tally.sum,
           missing, tally.twice, tally.reopened);
    free(tally.seen);
    return rc;
}
