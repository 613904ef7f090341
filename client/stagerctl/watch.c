/* SPDX-License-Identifier: Apache-2.0
 *
 * Live events. The gate says that something happened to a pipeline by a number; what it
 * is called and how it stands is asked on attach.sock, which shows only what the user may
 * see.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/endpoint.h"
#include "core/clock.h"

#define LISTEN_MILLIS 1000
#define SILENT_TURNS 5 /* the gate repeats its last message twice a second */

struct known {
    uint64_t id, generation;
    uint32_t n_clients;
    bool gone; /* no more listed; its end is not printed yet */
    char name[65], state[24];
};

struct watch {
    const struct stg_ctl_options *options;
    struct stg_ctl_link *link;
    int endpoint;
    struct known *known;
    size_t n_known;
    uint64_t instance, sequence; /* of the last event; 0: none yet */
    uint64_t n_told;
};

/* ---- what there is ---- */

static struct known *find(const struct watch *watch, uint64_t id)
{
    for (size_t i = 0; i < watch->n_known; i++) {
        if (watch->known[i].id == id)
            return &watch->known[i];
    }
    return NULL;
}

/* A daemon that went away comes back behind the same name. */
static int list(struct watch *watch, struct stg_reply *ret)
{
    struct stg_request request = {.kind = STG_REQUEST_LIST};
    struct stg_err err = {0};
    if (watch->link != NULL && stg_ctl_call(watch->link, &request, ret, &err) == 0)
        return 0;
    stg_ctl_hang_up(watch->link);
    watch->link = stg_ctl_connect(watch->options);
    return watch->link != NULL ? stg_ctl_call(watch->link, &request, ret, &err) : -1;
}

static void take_entry(const struct stg_list_entry *entry, struct known *ret)
{
    *ret = (struct known){.id = entry->pipeline,
                          .generation = entry->generation,
                          .n_clients = entry->n_clients};
    snprintf(ret->name, sizeof(ret->name), "%s", entry->name);
    snprintf(ret->state, sizeof(ret->state), "%s", entry->state);
    stg_ctl_clean(ret->name);
}

/* A pipeline that is no longer listed stays until its end is printed: its events may
 * still be on the way. */
static void refresh(struct watch *watch)
{
    struct stg_reply reply;
    if (list(watch, &reply) < 0)
        return; /* printed by now; what was known stays */
    struct known *known = calloc(reply.n_entries + watch->n_known + 1, sizeof(*known));
    if (known == NULL)
        return;
    struct watch fresh = {.known = known, .n_known = reply.n_entries};
    for (size_t i = 0; i < reply.n_entries; i++)
        take_entry(&reply.entries[i], &known[i]);
    for (size_t i = 0; i < watch->n_known; i++) {
        if (find(&fresh, watch->known[i].id) != NULL)
            continue;
        known[fresh.n_known] = watch->known[i];
        known[fresh.n_known++].gone = true;
    }
    free(watch->known);
    watch->known = known;
    watch->n_known = fresh.n_known;
}

static void forget(struct watch *watch, struct known *known)
{
    *known = watch->known[--watch->n_known];
}

static bool is_wanted(const struct watch *watch, const struct known *known)
{
    const char *name = watch->options->argument;
    return name == NULL || strcmp(name, known->name) == 0;
}

/* ---- telling ---- */

static void begin_line(struct stg_json_writer *json, const char *event, uint64_t sequence)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    stg_json_object_begin(json);
    stg_json_key(json, "time");
    stg_json_float(json, (double)now.tv_sec + (double)(now.tv_nsec / 1000000) / 1000.0,
                   STAGER_FLOAT64);
    stg_json_put_string(json, "event", event);
    stg_json_put_uint(json, "sequence", sequence);
}

static void end_line(struct stg_json_writer *json)
{
    stg_json_object_end(json);
    putchar('\n');
    fflush(stdout);
}

static void print_clock(void)
{
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    printf("%02d:%02d:%02d.%03ld  ", local.tm_hour, local.tm_min, local.tm_sec,
           now.tv_nsec / 1000000);
}

/* "alice (died), bob (left)" */
static void list_away(const struct stg_pipeline_status *status, char *ret, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < status->n_clients && at < bytes; i++) {
        const struct stg_client_status *c = &status->clients[i];
        if (strcmp(c->state, "away") == 0)
            at += (size_t)snprintf(ret + at, bytes - at, "%s%s (%s)", at > 0 ? ", " : "",
                                   c->client_id, c->last_error);
    }
}

/* What more there is to say of an event: what went wrong, which client may come back. */
static void find_more(struct watch *watch, enum stg_event_kind kind,
                      const struct known *known, char *ret, size_t bytes)
{
    struct stg_request request = {.kind = STG_REQUEST_STATUS, .name = known->name};
    struct stg_reply reply;
    struct stg_err err = {0};
    if (watch->link == NULL || stg_ctl_call(watch->link, &request, &reply, &err) != 0)
        return;
    if (kind == STG_EVENT_FAILED)
        snprintf(ret, bytes, "%s", reply.status.last_error);
    else
        list_away(&reply.status, ret, bytes);
    stg_ctl_clean(ret);
}

/* more: of `what`, or "". */
static void tell_pipeline(struct watch *watch, const char *event, uint64_t sequence,
                          const struct known *known, const char *what, const char *more)
{
    if (watch->options->json) {
        struct stg_json_writer json = stg_ctl_json();
        begin_line(&json, event, sequence);
        stg_json_put_string(&json, "pipeline", known->name);
        stg_json_put_uint(&json, "generation", known->generation);
        stg_json_put_string(&json, "state", known->state);
        stg_json_put_uint(&json, "n_clients", known->n_clients);
        if (more[0] != '\0') {
            stg_json_put_string(&json, what, more);
        }
        end_line(&json);
        return;
    }
    print_clock();
    printf("%-20s %-9s now %s, %u client%s, generation %" PRIu64, known->name, event,
           known->state, known->n_clients, known->n_clients == 1 ? "" : "s",
           known->generation);
    if (more[0] != '\0')
        printf("; %s: %s", what, more);
    printf("\n");
    fflush(stdout);
}

static void tell_all(struct watch *watch, uint64_t sequence)
{
    for (size_t i = watch->n_known; i-- > 0;) {
        struct known *known = &watch->known[i];
        if (known->gone)
            snprintf(known->state, sizeof(known->state), "deleted");
        if (is_wanted(watch, known))
            tell_pipeline(watch, "now", sequence, known, "", "");
        if (known->gone)
            forget(watch, known);
    }
}

static void tell_beginning(struct watch *watch, uint64_t sequence)
{
    if (watch->options->json) {
        struct stg_json_writer json = stg_ctl_json();
        begin_line(&json, "watching", sequence);
        end_line(&json);
    } else {
        print_clock();
        printf("watching; end it with control-C\n");
    }
    tell_all(watch, sequence);
    fflush(stdout);
}

/* Events were lost: prints the state instead. */
static void tell_gap(struct watch *watch, uint64_t n, uint64_t sequence)
{
    if (watch->options->json) {
        struct stg_json_writer json = stg_ctl_json();
        begin_line(&json, "gap", sequence);
        stg_json_put_uint(&json, "missed", n);
        end_line(&json);
    } else {
        print_clock();
        printf("%" PRIu64 " events were lost; how it stands:\n", n);
    }
    tell_all(watch, sequence);
}

static void tell_restart(struct watch *watch, uint64_t sequence)
{
    if (watch->options->json) {
        struct stg_json_writer json = stg_ctl_json();
        begin_line(&json, "restarted", sequence);
        end_line(&json);
    } else {
        print_clock();
        printf("stagerd was started again; how it stands:\n");
    }
    tell_all(watch, sequence);
}

/* ---- listening ---- */

/* An unknown number is a pipeline of another user. */
static void take_known(struct watch *watch, const struct stg_event *event)
{
    char more[512] = "";
    refresh(watch);
    struct known *known = find(watch, event->pipeline);
    if (known == NULL)
        return;
    bool deleted = event->kind == STG_EVENT_DELETED;
    if (deleted)
        snprintf(known->state, sizeof(known->state), "deleted");
    if (is_wanted(watch, known)) {
        bool failed = event->kind == STG_EVENT_FAILED;
        if (failed || event->kind == STG_EVENT_DETACHED)
            find_more(watch, event->kind, known, more, sizeof(more));
        tell_pipeline(watch, stg_event_name(event->kind), event->sequence, known,
                      failed ? "error" : "away", more);
        watch->n_told++;
    }
    if (deleted)
        forget(watch, known);
}

static void take_event(struct watch *watch, const struct stg_event *event)
{
    bool first = watch->instance == 0;
    bool restarted = !first && event->instance != watch->instance;
    uint64_t expected = watch->sequence + 1;
    if (!first && !restarted && event->sequence < expected)
        return; /* a repeat */
    watch->instance = event->instance;
    watch->sequence = event->sequence;
    if (first || restarted || event->sequence > expected) {
        refresh(watch);
        if (first)
            tell_beginning(watch, event->sequence);
        else if (restarted)
            tell_restart(watch, event->sequence);
        else
            tell_gap(watch, event->sequence - expected, event->sequence);
    }
    if (!first && event->pipeline != 0)
        take_known(watch, event);
}

static int64_t now_millis(void)
{
    return (int64_t)(stg_now_ns() / 1000000);
}

static void listen_on(struct watch *watch)
{
    const struct stg_ctl_options *options = watch->options;
    int64_t end = options->seconds > 0 ? now_millis() + (int64_t)options->seconds * 1000
                                       : INT64_MAX;
    unsigned silent = 0;
    while (!stg_ctl_interrupted() && !ferror(stdout) &&
           (options->count == 0 || watch->n_told < options->count)) {
        int64_t left = end - now_millis();
        if (left <= 0)
            return;
        struct stg_event event;
        if (stg_endpoint_listen(watch->endpoint,
                                left < LISTEN_MILLIS ? (int)left : LISTEN_MILLIS,
                                &event)) {
            silent = 0;
            take_event(watch, &event);
        } else if (++silent == SILENT_TURNS) {
            fprintf(stderr,
                    "stagerctl: the gate has been silent for %d s; still "
                    "listening\n",
                    SILENT_TURNS * LISTEN_MILLIS / 1000);
        }
    }
}

static int open_events(struct watch *watch)
{
    struct stg_request request = {.kind = STG_REQUEST_NEW_TOKEN};
    struct stg_reply reply;
    struct stg_err err = {0};
    int status = stg_ctl_ask(watch->link, &request, &reply);
    if (status != 0)
        return status;
    int rc = stg_endpoint_open_events(reply.events_url, &watch->endpoint, &err);
    return rc < 0 ? stg_ctl_fail(rc, err.text) : 0;
}

int stg_ctl_watch(const struct stg_ctl_options *options)
{
    struct watch watch = {.options = options, .endpoint = -1};
    watch.link = stg_ctl_connect(options);
    if (watch.link == NULL)
        return EXIT_FAILED;
    stg_ctl_catch_interrupts();
    int status = open_events(&watch);
    if (status == 0) {
        listen_on(&watch);
        status = stg_ctl_finish();
    }
    stg_endpoint_close(watch.endpoint);
    stg_ctl_hang_up(watch.link);
    free(watch.known);
    return status;
}
