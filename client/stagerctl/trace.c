/* SPDX-License-Identifier: Apache-2.0
 *
 * trace: asks stagerd for a trace page, waits while it fills up, and writes what is in
 * it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/view.h"
#include "client/transport/map.h"

#define DEFAULT_SECONDS 5
#define MAX_SECONDS 600
#define TURN_NS 100000000
/* After its time stagerd has this long to say that it is over. */
#define GRACE_NS 2000000000
/* Before its time by more than it takes to notice that it is there. */
#define EARLY_NS 20000000

/* ---- waiting ---- */

static uint64_t count_spans(const struct stg_trace_page *page)
{
    uint64_t n = 0;
    uint32_t n_tracks = atomic_load_explicit(&page->n_tracks, memory_order_acquire);
    for (uint32_t i = 0; i < n_tracks && i < STG_TRACE_TRACKS; i++)
        n += atomic_load_explicit(&page->tracks[i].n, memory_order_relaxed);
    return n;
}

static void show_progress(const struct stg_trace_page *page, const char *name,
                          uint64_t now)
{
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\rtracing %s: %.1f of %.1f s, %" PRIu64 " spans ", name,
            (double)(now - page->begin_ns) / 1e9,
            (double)(page->until_ns - page->begin_ns) / 1e9, count_spans(page));
}

static bool has_ended(const struct stg_trace_page *page)
{
    return atomic_load_explicit(&page->ended_ns, memory_order_acquire) != 0;
}

/* Ended early, and not by this program. */
static void tell_early(struct stager *client, const struct stg_trace_page *page,
                       const char *name)
{
    uint64_t ended = atomic_load_explicit(&page->ended_ns, memory_order_acquire);
    if (stg_ctl_interrupted() || ended == 0 || ended + EARLY_NS >= page->until_ns)
        return;
    bool is_there = stg_admin_wait(client, (int64_t)(stg_now_ns() + TURN_NS));
    if (is_there)
        fprintf(stderr, "stagerctl: pipeline %s was replaced or deleted", name);
    else
        fprintf(stderr, "stagerctl: stagerd stopped");
    fprintf(stderr, ": the trace ends there\n");
}

/* Until the trace is over, control-C, or the end of stagerd, which is printed. */
static void wait_for_end(struct stager *client, const struct stg_trace_page *page,
                         const char *name)
{
    uint64_t now = stg_now_ns();
    while (!stg_ctl_interrupted() && !has_ended(page) &&
           now < page->until_ns + GRACE_NS) {
        show_progress(page, name, now);
        uint64_t left = page->until_ns > now ? page->until_ns - now : 0;
        uint64_t turn = left > 0 && left < TURN_NS ? left : left > 0 ? TURN_NS : 5000000;
        if (!stg_admin_wait(client, (int64_t)(now + turn)) && !has_ended(page)) {
            fprintf(stderr,
                    "%sstagerctl: stagerd closed the connection: the trace ends there\n",
                    isatty(STDERR_FILENO) ? "\n" : "");
            return;
        }
        now = stg_now_ns();
    }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\n");
    tell_early(client, page, name);
}

/* ---- writing ---- */

static bool is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

/* NULL: text alone is wanted. */
static const char *output_path(const struct stg_ctl_options *options)
{
    return options->output != NULL ? options->output
           : options->text         ? NULL
                                   : "trace.json";
}

static int write_file(const struct stg_trace_view *view, FILE *out, const char *path)
{
    struct stg_err err = {0};
    int rc = stg_view_json(view, out, &err);
    bool failed = fflush(out) != 0 || ferror(out);
    int why = errno;
    if (!is_standard(path) && fclose(out) != 0 && !failed) {
        failed = true;
        why = errno;
    }
    if (rc < 0)
        return stg_ctl_fail(rc, err.text);
    return failed ? stg_ctl_cannot_write(path, why) : EXIT_OK;
}

static void print_json(const struct stg_trace_view *view, const char *path)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "pipeline", view->page->pipeline);
    stg_json_key(&json, "file");
    if (path != NULL)
        stg_json_string(&json, path);
    else
        stg_json_null(&json);
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"generation", view->page->generation},
        {"begin_ns", view->begin_ns},
        {"end_ns", view->end_ns},
        {"threads", view->n_tracks - view->n_clients},
        {"clients", view->n_clients},
        {"spans", view->n_spans},
        {"overwritten", view->n_overwritten},
        {"lost", view->n_lost},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        stg_json_put_uint(&json, numbers[i].key, numbers[i].value);
    }
    stg_json_object_end(&json);
    putchar('\n');
}

static void print_summary(const struct stg_trace_view *view, const char *path, FILE *out)
{
    uint32_t n_threads = view->n_tracks - view->n_clients;
    fprintf(out,
            "%s%s%" PRIu64 " spans in %.2f s, of %u thread%s of stagerd and %u client%s",
            path != NULL ? path : "", path != NULL ? ": " : "", view->n_spans,
            (double)(view->end_ns - view->begin_ns) / 1e9, n_threads,
            n_threads == 1 ? "" : "s", view->n_clients, view->n_clients == 1 ? "" : "s");
    if (view->n_overwritten > 0)
        fprintf(out, "; %" PRIu64 " older ones were written over", view->n_overwritten);
    if (view->n_lost > 0)
        fprintf(out, "; %" PRIu64 " were lost", view->n_lost);
    fprintf(out, "\n");
}

/* out: where the trace goes, or NULL. */
static int show(const struct stg_trace_view *view, const struct stg_ctl_options *options,
                FILE *out)
{
    struct stg_err err = {0};
    const char *path = output_path(options);
    bool to_standard = path != NULL && is_standard(path);
    int status = path != NULL ? write_file(view, out, path) : EXIT_OK;
    if (status != EXIT_OK)
        return status;
    if (options->json)
        print_json(view, path);
    else
        print_summary(view, to_standard ? NULL : path, to_standard ? stderr : stdout);
    int rc = options->text ? stg_view_text(view, &err) : 0;
    return rc < 0 ? stg_ctl_fail(rc, err.text) : stg_ctl_finish();
}

/* ---- the command ---- */

static int check_page(const struct stg_map *map, struct stg_err *err)
{
    const struct stg_trace_page *page = map->base;
    const struct stg_object_header *header = &page->header;
    uint32_t version = atomic_load_explicit(&header->version, memory_order_acquire);
    if (map->bytes >= sizeof(*page) && version >> 16 == STG_LAYOUT_MAJOR &&
        header->magic == STG_MAGIC_TRACE && header->total_bytes == sizeof(*page) &&
        header->entry_bytes == sizeof(struct stg_trace_span))
        return 0;
    return stg_err(
        err, -STAGER_FAILED_PRECONDITION,
        "the trace of stagerd has another layout: use the stagerctl of the same release");
}

/* In vain, when what comes of it can be written nowhere: that is known before. */
static int open_output(const struct stg_ctl_options *options, FILE **ret)
{
    const char *path = output_path(options);
    if (path == NULL)
        return EXIT_OK;
    *ret = is_standard(path) ? stdout : fopen(path, "we");
    return *ret != NULL ? EXIT_OK : stg_ctl_cannot_write(path, errno);
}

static int record(struct stager *client, const struct stg_trace_page *page,
                  const struct stg_ctl_options *options)
{
    static struct stg_trace_view view; /* large */
    struct stg_err err = {0};
    FILE *out = NULL;
    int status = open_output(options, &out);
    if (status != EXIT_OK)
        return status;
    wait_for_end(client, page, options->argument);
    int rc = stg_view_load(page, &view, &err);
    status = rc < 0 ? stg_ctl_fail(rc, err.text) : show(&view, options, out);
    stg_view_finish(&view);
    return status;
}

static int trace(struct stager *client, const struct stg_ctl_options *options)
{
    struct stg_map map = {0};
    struct stg_err err = {0};
    uint64_t seconds = options->seconds != 0 ? options->seconds : DEFAULT_SECONDS;
    int rc =
        stg_admin_trace(client, options->argument, (uint32_t)seconds * 1000, &map, &err);
    if (rc == 0)
        rc = check_page(&map, &err);
    int status = rc < 0 ? stg_ctl_fail(rc, err.text) : record(client, map.base, options);
    stg_map_close(&map);
    return status;
}

int stg_ctl_trace(const struct stg_ctl_options *options)
{
    if (options->seconds > MAX_SECONDS) {
        char text[64];
        snprintf(text, sizeof(text), "the maximum of --seconds is %d", MAX_SECONDS);
        return stg_ctl_misused(text);
    }
    if (options->output != NULL && strcmp(options->output, "-") == 0 &&
        (options->json || options->text))
        return stg_ctl_misused("-o - prints the trace on standard output and cannot be "
                               "combined with --json or --text");
    if (options->json && options->text)
        return stg_ctl_misused("--json cannot be combined with --text");
    return stg_ctl_run(options, trace);
}
