/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stagerctl/command.h"

/* Counters of a pipeline: one row each, for JSON and for people. */
struct counter {
    const char *name;
    size_t offset; /* in struct stg_pipeline_status */
    bool is_wide;  /* uint64_t, else uint32_t */
};

#define COUNTER(field, wide)                                                             \
    {                                                                                    \
#field, offsetof(struct stg_pipeline_status, field), wide                        \
    }

static const struct counter counters[] = {
    COUNTER(generation, true),
    COUNTER(pass, true),
    COUNTER(epoch, true),
    COUNTER(capacity, false),
    COUNTER(num_threads, false),
    COUNTER(num_clients, false),
    COUNTER(buffered, false),
    COUNTER(published, true),
    COUNTER(assigned, true),
    COUNTER(released, true),
    COUNTER(dropped, true),
    COUNTER(timeouts, true),
    COUNTER(errors, true),
    COUNTER(redelivered, true),
    COUNTER(lost, true),
    COUNTER(rows, true),
    COUNTER(bytes, true),
    COUNTER(memory_bytes, true),
    COUNTER(memory_used_bytes, true),
    COUNTER(quarantined_bytes, true),
    COUNTER(max_batch_bytes, true),
    COUNTER(producer_wait_ns, true),
    COUNTER(producer_busy_ns, true),
    COUNTER(n_clients_left_out, false),
};

static uint64_t counter_of(const struct stg_pipeline_status *status,
                           const struct counter *c)
{
    const char *at = (const char *)status + c->offset;
    return c->is_wide ? *(const uint64_t *)(const void *)at
                      : *(const uint32_t *)(const void *)at;
}

static const char *text_or(const char *text, const char *otherwise)
{
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

/* ---- JSON ---- */

static void client_json(struct stg_json *json, const struct stg_client_status *c)
{
    const struct {
        const char *name;
        const char *text;
    } texts[] = {
        {"client_id", c->client_id}, {"program", c->program}, {"state", c->state}};
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"pid", c->pid},           {"uid", c->uid},
        {"max_held", c->max_held}, {"held", c->held},
        {"assigned", c->assigned}, {"taken", c->taken},
        {"released", c->released}, {"redelivered", c->redelivered},
        {"wait_ns", c->wait_ns},   {"violations", c->violations},
    };
    stg_json_object_begin(json);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        stg_json_key(json, texts[i].name);
        stg_json_string(json, text_or(texts[i].text, ""));
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        stg_json_key(json, numbers[i].name);
        stg_json_uint(json, numbers[i].value);
    }
    stg_json_object_end(json);
}

static void pipeline_json(struct stg_json *json, const struct stg_pipeline_status *status)
{
    stg_json_object_begin(json);
    stg_json_key(json, "name");
    stg_json_string(json, text_or(status->name, ""));
    stg_json_key(json, "state");
    stg_json_string(json, text_or(status->state, ""));
    stg_json_key(json, "delivery");
    stg_json_string(json, text_or(status->delivery, ""));
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        stg_json_key(json, counters[i].name);
        stg_json_uint(json, counter_of(status, &counters[i]));
    }
    stg_json_key(json, "last_error");
    stg_json_string(json, text_or(status->last_error, ""));
    stg_json_key(json, "clients");
    stg_json_array_begin(json);
    for (size_t i = 0; i < status->n_clients; i++)
        client_json(json, &status->clients[i]);
    stg_json_array_end(json);
    stg_json_key(json, "boundary");
    stg_ctl_boundary_json(json, &status->boundary);
    stg_json_object_end(json);
}

/* ---- for people ---- */

static void print_clients(const struct stg_pipeline_status *status)
{
    static const char *const titles[] = {"CLIENT",   "PROGRAM", "PID",   "STATE",
                                         "ASSIGNED", "HELD",    "WAITED"};
    struct stg_table table = {.n_columns = sizeof(titles) / sizeof(titles[0])};
    for (size_t i = 0; i < table.n_columns; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; i < status->n_clients; i++) {
        const struct stg_client_status *c = &status->clients[i];
        stg_table_add(&table, "%s", text_or(c->client_id, "-"));
        stg_table_add(&table, "%s", text_or(c->program, "-"));
        if (c->pid != 0)
            stg_table_add(&table, "%u", c->pid);
        else /* of another pid namespace */
            stg_table_add(&table, "%s", "-");
        stg_table_add(&table, "%s", text_or(c->state, "-"));
        stg_table_add(&table, "%" PRIu64, c->assigned);
        stg_table_add(&table, "%u of %u", c->held, c->max_held);
        stg_table_add(&table, "%.3f s", (double)c->wait_ns / 1e9);
    }
    stg_table_print(&table, "  ");
}

/* Those who left but still hold batches are listed too. */
static unsigned count_attached(const struct stg_pipeline_status *s)
{
    unsigned n = 0;
    for (size_t i = 0; i < s->n_clients; i++)
        n += strcmp(text_or(s->clients[i].state, ""), "attached") == 0;
    return n;
}

static void print_pipeline(const struct stg_pipeline_status *s)
{
    char used[32], all[32], bytes[32];
    printf("%s: %s, generation %" PRIu64 ", pass %" PRIu64 ", epoch %" PRIu64 "\n",
           s->name, text_or(s->state, "?"), s->generation, s->pass, s->epoch);
    printf("  delivery   %s to %u client%s; %u%s attached\n", text_or(s->delivery, "?"),
           s->num_clients, s->num_clients == 1 ? "" : "s", count_attached(s),
           s->n_clients_left_out > 0 ? " or more" : "");
    printf("  buffer     %u of %u, filled by %u thread%s\n", s->buffered, s->capacity,
           s->num_threads, s->num_threads == 1 ? "" : "s");
    printf("  published  %" PRIu64 " batches, %" PRIu64 " rows, %s\n", s->published,
           s->rows, stg_ctl_bytes(s->bytes, bytes, sizeof(bytes)));
    printf("  trouble    %" PRIu64 " error items, %" PRIu64 " dropped, %" PRIu64
           " redelivered, %" PRIu64 " lost\n",
           s->errors, s->dropped, s->redelivered, s->lost);
    printf("  memory     %s of %s in use\n",
           stg_ctl_bytes(s->memory_used_bytes, used, sizeof(used)),
           stg_ctl_bytes(s->memory_bytes, all, sizeof(all)));
    printf("  threads    %.3f s at work, %.3f s waiting for room\n",
           (double)s->producer_busy_ns / 1e9, (double)s->producer_wait_ns / 1e9);
    if (s->last_error != NULL && s->last_error[0] != '\0') {
        char error[1024];
        snprintf(error, sizeof(error), "%s", s->last_error);
        stg_ctl_clean(error);
        printf("  last error %s\n", error);
    }
    if (s->n_clients > 0)
        print_clients(s);
    if (s->n_clients_left_out > 0)
        printf("  … and %u more, which did not fit the daemon's reply\n",
               s->n_clients_left_out);
}

/* ---- all of them ---- */

static void daemon_json(struct stg_json *json, const struct stg_admin_daemon *daemon)
{
    stg_json_object_begin(json);
    stg_json_key(json, "release");
    stg_json_string(json, daemon->release);
    stg_json_key(json, "pid");
    stg_json_uint(json, daemon->pid);
    stg_json_key(json, "socket");
    stg_json_string(json, daemon->path);
    stg_json_object_end(json);
}

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

static int print_each(struct stg_ctl_link *link, char **names, size_t n,
                      struct stg_json *json)
{
    for (size_t i = 0; i < n; i++) {
        struct stg_request request = {.kind = STG_REQUEST_STATUS, .name = names[i]};
        struct stg_reply reply;
        struct stg_err err = {0};
        int rc = stg_ctl_call(link, &request, &reply, &err);
        if (rc == -STAGER_NOT_FOUND)
            continue; /* deleted meanwhile */
        if (rc < 0)
            return stg_ctl_fail(rc, err.text);
        if (json != NULL)
            pipeline_json(json, &reply.status);
        else
            print_pipeline(&reply.status);
    }
    return 0;
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
    struct stg_json json = {.out = stdout};
    if (as_json) {
        stg_json_object_begin(&json);
        stg_json_key(&json, "daemon");
        daemon_json(&json, &daemon);
        stg_json_key(&json, "pipelines");
        stg_json_array_begin(&json);
    } else {
        printf("stagerd %s, pid %u, at %s; %zu pipeline%s\n", daemon.release, daemon.pid,
               daemon.path, n, n == 1 ? "" : "s");
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
        struct stg_json json = {.out = stdout};
        pipeline_json(&json, &reply.status);
        putchar('\n');
    } else {
        print_pipeline(&reply.status);
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
