/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"

/* ---- for people ---- */

/* One line of the description: a label and its text. */
static void add(struct stg_table *table, const char *label, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void add(struct stg_table *table, const char *label, const char *fmt, ...)
{
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    stg_table_add(table, "%s", label);
    stg_table_add(table, "%s", text);
}

static void add_text(struct stg_table *table, const char *label, const char *text)
{
    if (text != NULL && text[0] != '\0')
        add(table, label, "%s", text);
}

static void print_clients(FILE *out, const struct stg_pipeline_status *status)
{
    static const char *const titles[] = {"CLIENT", "PID",  "STATE",  "TAKEN",
                                         "HELD",   "LOST", "WAITED", "WAITED FOR"};
    bool ranks = strcmp(stg_text_or(status->delivery, ""), "round_robin") == 0;
    size_t n = sizeof(titles) / sizeof(titles[0]);
    struct stg_table table = {.out = out, .n_columns = n + ranks};
    for (size_t i = 0; i < n; i++)
        stg_table_add(&table, "%s", titles[i]);
    if (ranks)
        stg_table_add(&table, "RANK");
    for (size_t i = 0; i < status->n_clients; i++) {
        const struct stg_client_status *c = &status->clients[i];
        stg_table_add(&table, "%s", stg_text_or(c->client_id, "-"));
        stg_table_add(&table, "%u", c->pid);
        stg_table_add(&table, "%s", stg_text_or(c->state, "-"));
        stg_table_add(&table, "%" PRIu64, c->taken);
        stg_table_add(&table, "%u of %u", c->held, c->max_in_flight);
        stg_table_add(&table, "%" PRIu64, c->lost);
        stg_table_add(&table, "%.3f s", (double)c->wait_ns / 1e9);
        stg_table_add(&table, "%.3f s", (double)c->daemon_wait_ns / 1e9);
        if (ranks)
            stg_table_add(&table, "%u", c->rank);
    }
    stg_table_print(&table, "  ");
    struct stg_table errors = {.out = out, .n_columns = 2};
    for (size_t i = 0; i < status->n_clients; i++)
        add_text(&errors, stg_text_or(status->clients[i].client_id, "-"),
                 status->clients[i].last_error);
    stg_table_print(&errors, "  ");
}

static void add_progress(struct stg_table *t, const struct stg_pipeline_status *s)
{
    char text[256];
    for (size_t i = 0; i < s->n_progress; i++)
        add(t, "progress", "%s", stg_ctl_progress(&s->progress[i], text, sizeof(text)));
}

/* Each item is in one place: the parts of a line add up to its first number. */
static void add_items(struct stg_table *t, const struct stg_pipeline_status *s)
{
    char bytes[32];
    add(t, "made",
        "%" PRIu64 ": %" PRIu64 " published, %" PRIu64 " dropped, %" PRIu64
        " ignored, %" PRIu64 " in hand, %" PRIu64 " discarded",
        s->made, s->published, s->dropped, s->ignored, s->in_hand, s->discarded);
    add(t, "published",
        "%" PRIu64 ": %" PRIu64 " acknowledged, %" PRIu64 " lost, %u buffered, %" PRIu64
        " unacknowledged, %" PRIu64 " discarded",
        s->published, s->acknowledged, s->lost, s->buffered, s->unacknowledged,
        s->discarded_published);
    add(t, "size", "%" PRIu64 " rows, %s", s->rows,
        stg_ctl_bytes(s->bytes, bytes, sizeof(bytes)));
    add(t, "trouble",
        "%" PRIu64 " error items, %" PRIu64 " redelivered, %" PRIu64
        " timeouts (%s), %" PRIu64 " clients evicted",
        s->errors, s->redelivered, s->timeouts, stg_text_or(s->on_timeout, "wait"),
        s->evicted);
    if (s->dropped > 0)
        add(t, "dropped",
            "%" PRIu64 " batches, %" PRIu64 " rows: no client took them within "
            "timeout_millis; on_timeout: wait keeps them",
            s->dropped, s->dropped_rows);
    if (s->partition != 0)
        add(t, "partition",
            "number %" PRIu64 ", %zu nodes run ahead of the boundary, %" PRIu64
            " batches made without",
            s->partition, s->n_moved, s->own_partitions);
}

static void add_rates(struct stg_table *t, const struct stg_pipeline_status *s)
{
    char batches[32], rows[32], share[32];
    if (s->window_ns > 0)
        add(t, "lately", "%s batches a second, %s rows a second; trainers wait %s",
            stg_ctl_number(stg_ctl_rate(s->window_batches, s->window_ns), batches,
                           sizeof(batches)),
            stg_ctl_number(stg_ctl_rate(s->window_rows, s->window_ns), rows,
                           sizeof(rows)),
            stg_ctl_share(s->window_wait_ns, s->window_clients_ns, share, sizeof(share)));
}

/* Clients that left are listed too. */
static unsigned count_attached(const struct stg_pipeline_status *s)
{
    unsigned n = 0;
    for (size_t i = 0; i < s->n_clients; i++)
        n += strcmp(stg_text_or(s->clients[i].state, ""), "attached") == 0;
    return n;
}

static void add_auto(struct stg_table *t, const char *name, bool is_auto, uint32_t now,
                     uint32_t max)
{
    if (is_auto && now > 0)
        add(t, "auto", "%s %u, of at most %u", name, now, max);
    else if (is_auto)
        add(t, "auto", "%s", name);
}

static void add_tuned(struct stg_table *t, const struct stg_pipeline_status *s)
{
    add_auto(t, "capacity", s->capacity_auto, s->capacity, s->max_capacity);
    add_auto(t, "num_threads", s->num_threads_auto, s->num_threads, s->max_num_threads);
    for (size_t i = 0; i < s->n_tuned; i++)
        add(t, "tuned", "%s %u -> %u: %s", stg_text_or(s->tuned[i].what, "?"),
            s->tuned[i].from, s->tuned[i].to, stg_text_or(s->tuned[i].why, ""));
}

static void add_gpu(struct stg_table *t, const struct stg_pipeline_status *s)
{
    const char *why = stg_text_or(s->gpu_why, "");
    if (stg_text_or(s->gpu, "")[0] == '\0')
        return;
    if (why[0] == '\0')
        add(t, "gpu", "%s: one copy of a batch for all trainers, %" PRIu64 " so far",
            s->gpu, s->gpu_copies);
    else
        add(t, "gpu", "%s: each trainer copies for itself: %s", s->gpu, why);
}

static void add_memory(struct stg_table *t, const struct stg_pipeline_status *s)
{
    char used[32], all[32];
    add(t, "memory", "%s of %s in use",
        stg_ctl_bytes(s->memory_used_bytes, used, sizeof(used)),
        stg_ctl_bytes(s->memory_bytes, all, sizeof(all)));
    if (stg_text_or(s->container, "")[0] != '\0')
        add(t, "container", "%s: %u table%s, %u cache%s, %s, shared", s->container,
            s->container_tables, s->container_tables == 1 ? "" : "s", s->container_caches,
            s->container_caches == 1 ? "" : "s",
            stg_ctl_bytes(s->container_bytes, used, sizeof(used)));
}

static void add_threads(struct stg_table *t, const struct stg_pipeline_status *s)
{
    add(t, "threads", "%.3f s at work, %.3f s waiting for room",
        (double)s->producer_busy_ns / 1e9, (double)s->producer_wait_ns / 1e9);
    add_text(t, "pool", s->thread_pool);
    add_tuned(t, s);
    if (stg_text_or(s->remote, "")[0] != '\0')
        printf("  remote      %s\n", s->remote);
    if (stg_text_or(s->py_function, "")[0] != '\0')
        add(t, "function", "%s: %u worker%s, %" PRIu64 " calls, %" PRIu64 " workers lost",
            s->py_function, s->workers, s->workers == 1 ? "" : "s", s->worker_calls,
            s->workers_lost);
}

void stg_ctl_write_status(FILE *out, const struct stg_pipeline_status *s)
{
    struct stg_table table = {.out = out, .n_columns = 2}, *t = &table;
    fprintf(out,
            "%s: %s, generation %" PRIu64 ", run %" PRIu64 ", pass %" PRIu64
            ", epoch %" PRIu64 "\n",
            s->name, stg_text_or(s->state, "?"), s->generation, s->run_id, s->pass,
            s->epoch);
    add(t, "delivery", "%s to %u client%s; %u%s attached", stg_text_or(s->delivery, "?"),
        s->num_clients, s->num_clients == 1 ? "" : "s", count_attached(s),
        s->n_clients_left_out > 0 ? " or more" : "");
    add(t, "buffer", "%u of %u, filled by %u thread%s", s->buffered, s->capacity,
        s->num_threads, s->num_threads == 1 ? "" : "s");
    add_rates(t, s);
    add_progress(t, s);
    add_items(t, s);
    if (s->warming_generation > 0)
        add(t, "warming",
            "generation %" PRIu64 ": %" PRIu64
            " batches are ready; it takes over when its buffer is full",
            s->warming_generation, s->warming_buffered);
    add_memory(t, s);
    add_threads(t, s);
    add_gpu(t, s);
    add_text(t, "last error", s->last_error);
    if (stg_text_or(s->commit_problem, "")[0] != '\0')
        add(t, "warning", "no commit is stored: %s", s->commit_problem);
    stg_table_print(t, "  ");
    stg_ctl_print_quarantined(out, s->quarantined, s->n_quarantined, "  ");
    if (s->n_clients > 0)
        print_clients(out, s);
    if (s->n_clients_left_out > 0)
        fprintf(out, "  … and %u more, which did not fit the daemon's reply\n",
                s->n_clients_left_out);
}

/* ---- all of them ---- */

/* A reply lives until the next call: the names are copied. */
static char **copy_names(const struct stg_reply *reply, size_t *ret_n)
{
    char **names = calloc(reply->n_entries + 1, sizeof(*names));
    for (size_t i = 0; names != NULL && i < reply->n_entries; i++) {
        names[i] = strdup(reply->entries[i].name);
        if (names[i] == NULL)
            return NULL;
    }
    *ret_n = reply->n_entries;
    return names;
}

/* One line. */
static void add_pipeline(struct stg_table *t, const struct stg_pipeline_status *s)
{
    char text[32];
    bool reads = s->window_ns > 0;
    stg_table_add(t, "%s", s->name);
    stg_table_add(t, "%s", stg_text_or(s->state, "?"));
    stg_table_add(t, "%s",
                  reads ? stg_ctl_number(stg_ctl_rate(s->window_batches, s->window_ns),
                                         text, sizeof(text))
                        : "-");
    stg_table_add(t, "%s",
                  reads ? stg_ctl_number(stg_ctl_rate(s->window_rows, s->window_ns), text,
                                         sizeof(text))
                        : "-");
    stg_table_add(t, "%s",
                  stg_ctl_share(s->window_wait_ns, reads ? s->window_clients_ns : 0, text,
                                sizeof(text)));
    stg_table_add(t, "%u of %u", count_attached(s), s->num_clients);
    stg_table_add(t, "%s", stg_ctl_bytes(s->memory_bytes, text, sizeof(text)));
}

static void add_line(struct stg_table *table, struct stg_table *progress,
                     const struct stg_pipeline_status *s)
{
    char text[256];
    add_pipeline(table, s);
    for (size_t i = 0; i < s->n_progress; i++)
        add(progress, s->name, "%s",
            stg_ctl_progress(&s->progress[i], text, sizeof(text)));
}

static int print_each(struct stg_ctl_link *link, char **names, size_t n,
                      struct stg_json_writer *json)
{
    static const char *const titles[] = {"NAME", "STATE",   "BATCHES/S", "ROWS/S",
                                         "WAIT", "CLIENTS", "MEMORY"};
    struct stg_table table = {.n_columns = sizeof(titles) / sizeof(titles[0])};
    struct stg_table progress = {.n_columns = 2};
    bool is_table = json == NULL && n > 0;
    int status = 0;
    for (size_t i = 0; is_table && i < table.n_columns; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; status == 0 && i < n; i++) {
        struct stg_request request = {.kind = STG_REQUEST_STATUS, .name = names[i]};
        struct stg_reply reply;
        struct stg_err err = {0};
        int rc = stg_ctl_call(link, &request, &reply, &err);
        if (rc == -STAGER_NOT_FOUND)
            continue; /* deleted meanwhile */
        if (rc < 0)
            status = stg_ctl_fail(rc, err.text);
        else if (json != NULL)
            stg_reply_status_json(json, &reply.status);
        else
            add_line(&table, &progress, &reply.status);
    }
    if (is_table)
        stg_table_print(&table, "");
    stg_table_print(&progress, "  ");
    return status;
}

/* What is kept of pipelines that are there no more. */
static void print_deleted(const struct stg_reply *reply)
{
    for (size_t i = 0; i < reply->n_quarantined; i++) {
        bool is_there = false;
        for (size_t k = 0; k < reply->n_entries; k++)
            is_there |=
                strcmp(reply->entries[k].name, reply->quarantined[i].pipeline) == 0;
        if (!is_there)
            stg_ctl_print_quarantined(stdout, &reply->quarantined[i], 1, "");
    }
}

static int print_all(struct stg_ctl_link *link, bool as_json)
{
    struct stg_request request = {.kind = STG_REQUEST_LIST};
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status != 0)
        return status;
    size_t n;
    char **names = copy_names(&reply, &n);
    if (names == NULL)
        return stg_ctl_fail(-STAGER_RESOURCE_EXHAUSTED, "out of memory");

    struct stg_admin_daemon daemon;
    stg_ctl_daemon(link, &daemon);
    struct stg_json_writer json = stg_ctl_json();
    if (as_json) {
        stg_json_object_begin(&json);
        stg_json_key(&json, "daemon");
        stg_reply_daemon_json(&json, &daemon);
        stg_reply_quarantined_json(&json, &reply);
        stg_json_key(&json, "pipelines");
        stg_json_array_begin(&json);
    } else {
        printf("stagerd %s, pid %u, at %s; %zu pipeline%s\n", daemon.release, daemon.pid,
               daemon.path, n, n == 1 ? "" : "s");
        print_deleted(&reply);
    }
    status = print_each(link, names, n, as_json ? &json : NULL);
    if (as_json) {
        stg_json_array_end(&json);
        stg_json_object_end(&json);
        putchar('\n');
    }
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return status;
}

static int print_one(struct stg_ctl_link *link, const struct stg_ctl_options *options)
{
    struct stg_request request = {.kind = STG_REQUEST_STATUS, .name = options->argument};
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status != 0)
        return status;
    if (options->json) {
        struct stg_json_writer json = stg_ctl_json();
        stg_reply_status_json(&json, &reply.status);
        putchar('\n');
    } else {
        stg_ctl_write_status(stdout, &reply.status);
    }
    return 0;
}

int stg_ctl_status(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    int status = options->argument != NULL ? print_one(link, options)
                                           : print_all(link, options->json);
    stg_ctl_hang_up(link);
    return status == 0 ? stg_ctl_finish() : status;
}
