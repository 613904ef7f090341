/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"

static void print_json(const struct stg_reply *reply)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_key(&json, "pipelines");
    stg_reply_list_json(&json, reply);
    stg_json_put_uint(&json, "n_left_out", reply->n_left_out);
    stg_json_object_end(&json);
    putchar('\n');
}

void stg_ctl_add_user(struct stg_table *table, uint32_t uid)
{
    const struct passwd *user = getpwuid(uid);
    if (user != NULL)
        stg_table_add(table, "%s", user->pw_name);
    else
        stg_table_add(table, "%u", uid);
}

void stg_ctl_print_quarantined(FILE *out, const struct stg_quarantined *all, size_t n,
                               const char *indent)
{
    for (size_t i = 0; i < n; i++) {
        char bytes[32], program[64];
        snprintf(program, sizeof(program), "%s", stg_text_or(all[i].program, "?"));
        stg_ctl_clean(program);
        fprintf(
            out,
            "%squarantined %s: process %u (%s, uid %u) closed a stream of %s and keeps "
            "%u batch%s of it\n",
            indent, stg_ctl_bytes(all[i].bytes, bytes, sizeof(bytes)), all[i].pid,
            program, all[i].uid, all[i].pipeline, all[i].n_batches,
            all[i].n_batches == 1 ? "" : "es");
    }
}

static void print_table(const struct stg_reply *reply)
{
    static const char *const titles[] = {"NAME",       "STATE", "CLIENTS",
                                         "GENERATION", "USER",  "FILE"};
    struct stg_table table = {.n_columns = sizeof(titles) / sizeof(titles[0])};
    for (size_t i = 0; i < table.n_columns; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; i < reply->n_entries; i++) {
        const struct stg_list_entry *e = &reply->entries[i];
        stg_table_add(&table, "%s", e->name);
        stg_table_add(&table, "%s", stg_text_or(e->state, "-"));
        stg_table_add(&table, "%u", e->n_clients);
        stg_table_add(&table, "%" PRIu64, e->generation);
        stg_ctl_add_user(&table, e->uid);
        stg_table_add(&table, "%s", stg_text_or(e->file, "-"));
    }
    stg_table_print(&table, "");
}

static void print_text(const struct stg_reply *reply)
{
    if (reply->n_entries == 0)
        printf("No pipelines. `stagerctl apply FILE` adds one.\n");
    else
        print_table(reply);
    stg_ctl_print_quarantined(stdout, reply->quarantined, reply->n_quarantined, "");
}

static void say_left_out(const struct stg_reply *reply)
{
    if (reply->n_left_out > 0)
        fprintf(stderr,
                "stagerctl: %u more pipelines did not fit the daemon's reply; `stagerctl "
                "status NAME` shows them\n",
                reply->n_left_out);
}

int stg_ctl_list(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_request request = {.kind = STG_REQUEST_LIST};
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status == 0) {
        (options->json ? print_json : print_text)(&reply);
        if (!options->json)
            say_left_out(&reply);
        status = stg_ctl_finish();
    }
    stg_ctl_hang_up(link);
    return status;
}

int stg_ctl_delete(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_request request = {.kind = STG_REQUEST_DELETE,
                                  .name = options->argument,
                                  .has_if_generation = options->has_if_generation,
                                  .if_generation = options->if_generation};
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status == 0 && options->json) {
        struct stg_json_writer json = stg_ctl_json();
        stg_json_object_begin(&json);
        stg_json_put_string(&json, "deleted", options->argument);
        stg_json_object_end(&json);
        putchar('\n');
    } else if (status == 0) {
        printf("Deleted %s.\n", options->argument);
    }
    stg_ctl_hang_up(link);
    return status == 0 ? stg_ctl_finish() : status;
}
