/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerctl index: stagerd builds the record indexes of the files of a pipeline as long
 * as the connection lasts. stagerctl asks how far it is, and shows that.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/stagerctl/command.h"
#include "core/clock.h"

#define ASK_NS 100000000

/* A name of a pipeline has no slash, and none of a file's endings. */
static bool is_file(const char *argument)
{
    static const char *const endings[] = {".yaml", ".yml", ".json"};
    size_t n = strlen(argument);
    bool ret = strcmp(argument, "-") == 0 || strchr(argument, '/') != NULL;
    for (size_t i = 0; i < 3; i++) {
        size_t m = strlen(endings[i]);
        ret |= n > m && strcmp(argument + n - m, endings[i]) == 0;
    }
    return ret;
}

/* ---- output ---- */

static double seconds_of(const struct stg_index_report *report)
{
    return (double)report->elapsed_ns / 1e9;
}

/* On a terminal: one line that is written over. */
static void print_progress(const struct stg_index_report *report)
{
    char done[32], all[32], rate[32], file[80];
    double seconds = seconds_of(report);
    if (!isatty(STDERR_FILENO))
        return;
    uint64_t each = seconds > 0 ? (uint64_t)((double)report->bytes_done / seconds) : 0;
    const char *name = report->file != NULL ? strrchr(report->file, '/') : NULL;
    snprintf(file, sizeof(file), "%s", name != NULL ? name + 1 : "");
    stg_ctl_clean(file);
    fprintf(stderr, "\r\033[K%u of %u files, %s of %s, %s/s  %s", report->n_done,
            report->n_files, stg_ctl_bytes(report->bytes_done, done, sizeof(done)),
            stg_ctl_bytes(report->bytes, all, sizeof(all)),
            stg_ctl_bytes(each, rate, sizeof(rate)), file);
}

static void end_progress(void)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

static void print_json(const char *argument, const struct stg_index_report *report)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "pipeline", argument);
    stg_json_put_bool(&json, "done", report->done);
    stg_json_put_uint(&json, "files", report->n_files);
    stg_json_put_uint(&json, "files_done", report->n_done);
    stg_json_put_uint(&json, "built", report->n_built);
    stg_json_put_uint(&json, "existing", report->n_existing);
    stg_json_put_uint(&json, "without_index", report->n_small);
    stg_json_put_uint(&json, "failed", report->n_failed);
    stg_json_put_uint(&json, "records", report->n_records);
    stg_json_put_uint(&json, "bytes", report->bytes);
    stg_json_put_uint(&json, "index_bytes", report->index_bytes);
    stg_json_put_uint(&json, "elapsed_ns", report->elapsed_ns);
    if (report->problem != NULL && report->problem[0] != '\0')
        stg_json_put_string(&json, "problem", report->problem);
    stg_json_object_end(&json);
    putchar('\n');
}

static void print_text(const char *argument, const struct stg_index_report *report)
{
    char all[32], index[32];
    printf("%s: %" PRIu64 " records of %u file%s (%s) in %.1f s; %u %s built, %u "
           "existed",
           argument, report->n_records, report->n_done, report->n_done == 1 ? "" : "s",
           stg_ctl_bytes(report->bytes_done, all, sizeof(all)), seconds_of(report),
           report->n_built, report->n_built == 1 ? "index" : "indexes",
           report->n_existing);
    if (report->n_built + report->n_existing > 0)
        printf(", %s in all", stg_ctl_bytes(report->index_bytes, index, sizeof(index)));
    printf("\n");
    if (report->n_small > 0)
        printf("  %u %s no index: below 4 MiB, or of unknown version\n", report->n_small,
               report->n_small == 1 ? "file has" : "files have");
    uint32_t n_left = report->n_files - report->n_done;
    if (!report->done)
        printf("  stopped: %u %s left\n", n_left, n_left == 1 ? "file is" : "files are");
}

/* ---- the command ---- */

/* Asks until it is done. strings of *ret live until the next call on the connection. */
static int wait_for(struct stager *client, struct stg_reply *reply, struct stg_err *err)
{
    int rc = 0;
    while (rc == 0 && !reply->index.done && !stg_ctl_interrupted()) {
        print_progress(&reply->index);
        if (!stg_admin_wait(client, (int64_t)stg_now_ns() + ASK_NS))
            return stg_err(err, -STAGER_UNAVAILABLE, "stagerd closed the connection");
        struct stg_request request = {.kind = STG_REQUEST_INDEX};
        rc = stg_admin_call(client, &request, reply, err);
    }
    end_progress();
    return rc;
}

static int index_one(struct stager *client, const struct stg_ctl_options *options,
                     const char *argument)
{
    static struct stg_ctl_text text;
    struct stg_request request = {.kind = STG_REQUEST_INDEX};
    struct stg_err err = {0};
    struct stg_reply reply;
    if (is_file(argument)) {
        int status = stg_ctl_read_text(argument, &text);
        if (status != 0)
            return status;
        request.text = text.data;
        request.text_bytes = text.bytes;
        request.file = text.file;
    } else {
        request.name = argument;
    }
    int rc = stg_admin_call(client, &request, &reply, &err);
    if (rc == 0)
        rc = wait_for(client, &reply, &err);
    if (rc < 0)
        return stg_ctl_fail(rc, err.text);
    if (options->json)
        print_json(argument, &reply.index);
    else
        print_text(argument, &reply.index);
    int status = stg_ctl_finish();
    if (reply.index.n_failed > 0) {
        char what[STG_ERR_TEXT_BYTES];
        snprintf(what, sizeof(what), "%u files have no index; the first: %.800s",
                 reply.index.n_failed, reply.index.problem);
        stg_ctl_clean(what);
        return stg_ctl_fail(-STAGER_UNKNOWN, what);
    }
    return reply.index.done ? status : EXIT_FAILED;
}

static int index_all(struct stager *client, const struct stg_ctl_options *options)
{
    int status = EXIT_OK;
    for (int i = 0; i < options->n_arguments && !stg_ctl_interrupted(); i++) {
        int one = index_one(client, options, options->arguments[i]);
        status = one != EXIT_OK ? one : status;
    }
    return status;
}

int stg_ctl_index(const struct stg_ctl_options *options)
{
    return stg_ctl_run(options, index_all);
}
