/* SPDX-License-Identifier: Apache-2.0
 *
 * explain --ideal: what a perfect loader would give: as streams with replay_batches have
 * measured it, and estimated from the waits of the trainers in a window.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"
#include "client/stagerctl/report/advice.h"
#include "core/clock.h"

#define DEFAULT_SECONDS 5

struct trainer {
    char name[65];
    uint32_t pid;
    uint64_t taken, wait_ns; /* of the window, at its end */
    bool is_whole;           /* it was attached at both ends */
};

struct window {
    struct trainer *trainers;
    size_t n;
    uint64_t ns;
};

static bool is_attached(const struct stg_client_status *client)
{
    return strcmp(stg_text_or(client->state, ""), "attached") == 0;
}

static int begin(const struct stg_pipeline_status *s, struct window *ret)
{
    ret->trainers = calloc(s->n_clients + 1, sizeof(*ret->trainers));
    if (ret->trainers == NULL)
        return stg_ctl_fail(-STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < s->n_clients; i++) {
        const struct stg_client_status *c = &s->clients[i];
        struct trainer *t = &ret->trainers[ret->n];
        if (!is_attached(c))
            continue;
        snprintf(t->name, sizeof(t->name), "%s", stg_text_or(c->client_id, "-"));
        stg_ctl_clean(t->name);
        t->pid = c->pid;
        t->taken = c->taken;
        t->wait_ns = c->wait_ns;
        ret->n++;
    }
    ret->ns = stg_now_ns();
    return 0;
}

static void end(const struct stg_pipeline_status *s, struct window *window)
{
    window->ns = stg_now_ns() - window->ns;
    for (size_t i = 0; i < s->n_clients; i++) {
        const struct stg_client_status *c = &s->clients[i];
        for (size_t k = 0; k < window->n && is_attached(c); k++) {
            struct trainer *t = &window->trainers[k];
            if (t->is_whole || t->pid != c->pid || c->taken < t->taken ||
                c->wait_ns < t->wait_ns ||
                strcmp(t->name, stg_text_or(c->client_id, "-")) != 0)
                continue;
            t->taken = c->taken - t->taken;
            t->wait_ns = c->wait_ns - t->wait_ns;
            t->wait_ns = t->wait_ns < window->ns ? t->wait_ns : window->ns;
            t->is_whole = true;
        }
    }
}

static double wait_share(const struct window *window, const struct trainer *t)
{
    return (double)t->wait_ns / (double)window->ns;
}

/* Of one that took no batch nothing can be said. */
static bool has_speedup(const struct window *window, const struct trainer *t)
{
    return t->taken > 0 && t->wait_ns < window->ns;
}

static double speedup(const struct window *window, const struct trainer *t)
{
    return 1 / (1 - wait_share(window, t)) - 1;
}

/* ---- replays ---- */

static double mean_ns(uint64_t ns, uint64_t n)
{
    return (double)ns / (double)n;
}

/* How much less time a batch takes. */
static double replay_speedup(const struct stg_replay_result *r)
{
    return mean_ns(r->run_ns, r->n_run) / mean_ns(r->replayed_ns, r->n_replayed) - 1;
}

/* A client sent the numbers. */
static bool is_measured(const struct stg_replay_result *r)
{
    return r->n_run > 0 && r->run_ns > 0 && r->n_replayed > 0 && r->replayed_ns > 0;
}

static void print_replays_json(struct stg_json_writer *json, const struct stg_explain *e)
{
    stg_json_key(json, "replays");
    stg_json_array_begin(json);
    for (size_t i = 0; i < e->n_replays; i++) {
        const struct stg_replay_result *r = &e->replays[i];
        if (!is_measured(r))
            continue;
        stg_json_object_begin(json);
        stg_json_put_string(json, "client_id", stg_text_or(r->client_id, ""));
        stg_json_put_uint(json, "pid", r->pid);
        stg_json_put_uint(json, "age_ns", r->age_ns);
        stg_json_put_uint(json, "held", r->n_held);
        stg_json_put_uint(json, "run_batches", r->n_run);
        stg_json_put_uint(json, "run_ns", r->run_ns);
        stg_json_put_uint(json, "run_wait_ns", r->run_wait_ns);
        stg_json_put_uint(json, "replay_batches", r->n_replayed);
        stg_json_put_uint(json, "replay_ns", r->replayed_ns);
        stg_json_put_float(json, "speedup", replay_speedup(r));
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static void add_replay(struct stg_table *table, const struct stg_replay_result *r)
{
    char name[65], rate[32], share[32];
    snprintf(name, sizeof(name), "%s", stg_text_or(r->client_id, "-"));
    stg_ctl_clean(name);
    stg_table_add(table, "%s", name);
    stg_table_add(table, "%s",
                  stg_ctl_number(stg_ctl_rate(r->n_run, r->run_ns), rate, sizeof(rate)));
    stg_table_add(
        table, "%s",
        stg_ctl_number(stg_ctl_rate(r->n_replayed, r->replayed_ns), rate, sizeof(rate)));
    stg_table_add(table, "%s",
                  stg_ctl_share(r->run_wait_ns, r->run_ns, share, sizeof(share)));
    stg_table_add(table, "%+.1f %%", 100 * replay_speedup(r));
    stg_table_add(table, "%.0f s ago", (double)r->age_ns / 1e9);
}

static void print_replays(const struct stg_explain *e)
{
    static const char *const titles[] = {"TRAINER", "BATCHES/S",      "REPLAYED",
                                         "WAIT",    "PERFECT LOADER", "MEASURED"};
    struct stg_table table = {.n_columns = sizeof(titles) / sizeof(titles[0])};
    for (size_t i = 0; i < table.n_columns; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; i < e->n_replays; i++) {
        if (is_measured(&e->replays[i]))
            add_replay(&table, &e->replays[i]);
    }
    printf("%s: measured by trainers that replayed batches (replay_batches)\n", e->name);
    stg_table_print(&table, "  ");
}

static void print_json(const struct stg_explain *e, const struct window *window)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "name", e->name);
    stg_json_put_string(&json, "method", "estimate from measured waits");
    stg_json_put_float(&json, "seconds", (double)window->ns / 1e9);
    print_replays_json(&json, e);
    stg_json_key(&json, "trainers");
    stg_json_array_begin(&json);
    for (size_t i = 0; i < window->n; i++) {
        const struct trainer *t = &window->trainers[i];
        if (!t->is_whole)
            continue;
        stg_json_object_begin(&json);
        stg_json_put_string(&json, "client_id", t->name);
        stg_json_put_uint(&json, "pid", t->pid);
        stg_json_put_uint(&json, "batches", t->taken);
        stg_json_put_uint(&json, "wait_ns", t->wait_ns);
        stg_json_put_float(&json, "wait_share", wait_share(window, t));
        if (has_speedup(window, t)) {
            stg_json_put_float(&json, "speedup", speedup(window, t));
        } else {
            stg_json_key(&json, "speedup");
            stg_json_null(&json);
        }
        stg_json_object_end(&json);
    }
    stg_json_array_end(&json);
    stg_json_put_string(&json, "bottleneck", e->bottleneck);
    stg_json_put_string(&json, "why", e->why);
    stg_reply_advice_json(&json, e);
    stg_json_object_end(&json);
    putchar('\n');
}

static void add_trainer(struct stg_table *table, const struct window *window,
                        const struct trainer *t)
{
    char share[32], rate[32];
    stg_table_add(table, "%s", t->name);
    stg_table_add(table, "%s",
                  stg_ctl_number(stg_ctl_rate(t->taken, window->ns), rate, sizeof(rate)));
    if (t->taken > 0)
        stg_table_add(table, "%.3f ms", (double)t->wait_ns / 1e6 / (double)t->taken);
    else
        stg_table_add(table, "-");
    stg_table_add(table, "%s",
                  stg_ctl_share(t->wait_ns, window->ns, share, sizeof(share)));
    if (has_speedup(window, t))
        stg_table_add(table, "+%.0f %%", 100 * speedup(window, t));
    else
        stg_table_add(table, "-");
}

static void print_estimate(const struct stg_explain *e, const struct window *window)
{
    static const char *const titles[] = {"TRAINER", "BATCHES/S", "WAIT A BATCH", "WAIT",
                                         "PERFECT LOADER"};
    struct stg_table table = {.n_columns = sizeof(titles) / sizeof(titles[0])};
    printf("%s: an estimate from the waits of %.1f s\n", e->name,
           (double)window->ns / 1e9);
    for (size_t i = 0; i < table.n_columns; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; i < window->n; i++) {
        if (window->trainers[i].is_whole)
            add_trainer(&table, window, &window->trainers[i]);
    }
    stg_table_print(&table, "  ");
}

static void print_text(const struct stg_explain *e, const struct window *window)
{
    if (e->n_replays > 0)
        print_replays(e);
    if (window->n > 0)
        print_estimate(e, window);
    stg_ctl_write_verdict(stdout, e);
}

static void sleep_for(uint64_t seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
}

/* Without a trainer the window is empty: replays are all there is to show. */
static int measure(struct stg_ctl_link *link, const struct stg_ctl_options *options,
                   struct window *window)
{
    struct stg_request request = {.kind = STG_REQUEST_STATUS, .name = options->argument};
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status == 0)
        status = begin(&reply.status, window);
    if (status != 0 || window->n == 0) {
        window->ns = 0;
        return status;
    }
    sleep_for(options->seconds > 0 ? options->seconds : DEFAULT_SECONDS);
    status = stg_ctl_ask(link, &request, &reply);
    if (status == 0)
        end(&reply.status, window);
    return status;
}

int stg_ctl_ideal(const struct stg_ctl_options *options)
{
    struct window window = {0};
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_request request = {.kind = STG_REQUEST_EXPLAIN, .name = options->argument};
    struct stg_reply reply;
    int status = measure(link, options, &window);
    if (status == 0)
        status = stg_ctl_ask(link, &request, &reply);
    if (status == 0 && window.n == 0 && reply.explain.n_replays == 0)
        status =
            stg_ctl_fail(-STAGER_FAILED_PRECONDITION,
                         "no trainer is attached, and none replayed batches: explain "
                         "--ideal measures the waits of trainers that run, and shows "
                         "what streams with replay_batches have measured");
    if (status == 0) {
        (options->json ? print_json : print_text)(&reply.explain, &window);
        status = stg_ctl_finish();
    }
    free(window.trainers);
    stg_ctl_hang_up(link);
    return status;
}
