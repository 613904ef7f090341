/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerctl commits: the commits of a pipeline.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"

static void print_json(const struct stg_reply *reply)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_reply_commits_json(&json, reply);
    putchar('\n');
}

static void add_cleaned(struct stg_table *table, const char *text)
{
    char cell[160];
    snprintf(cell, sizeof(cell), "%s", stg_text_or(text, "-"));
    stg_ctl_clean(cell);
    stg_table_add(table, "%s", cell);
}

static bool has_lanes(const struct stg_reply *reply)
{
    bool ret = false;
    for (size_t i = 0; i < reply->n_commits; i++)
        ret |= stg_text_or(reply->commits[i].lane, "")[0] != '\0';
    return ret;
}

static void print_text(const struct stg_reply *reply, const char *job)
{
    static const char *const titles[] = {"TAG",      "ATTEMPT", "PASS",
                                         "POSITION", "TIME",    "CLIENT"};
    struct stg_table table = {.n_columns = sizeof(titles) / sizeof(titles[0])};
    bool lanes = has_lanes(reply);
    if (reply->n_commits == 0) {
        printf("No commits of %s%s%s.\n", reply->name, job != NULL ? " in job " : "",
               stg_text_or(job, ""));
        return;
    }
    table.n_columns += lanes;
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        stg_table_add(&table, "%s", titles[i]);
    if (lanes)
        stg_table_add(&table, "OF");
    for (size_t i = 0; i < reply->n_commits; i++) {
        const struct stg_commit_entry *e = &reply->commits[i];
        add_cleaned(&table, e->tag);
        stg_table_add(&table, "%" PRIu64, e->attempt);
        stg_table_add(&table, "%" PRIu64, e->pass);
        stg_table_add(&table, "%" PRIu64, e->position);
        stg_table_add_time(&table, e->time_ns);
        add_cleaned(&table, e->client);
        if (lanes)
            add_cleaned(&table, e->lane);
    }
    stg_table_print(&table, "");
}

int stg_ctl_commits(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_request request = {
        .kind = STG_REQUEST_COMMITS, .name = options->argument, .job = options->job};
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status == 0) {
        if (options->json)
            print_json(&reply);
        else
            print_text(&reply, options->job);
        if (reply.n_left_out > 0 && !options->json)
            fprintf(stderr,
                    "stagerctl: %u older commits did not fit the daemon's reply\n",
                    reply.n_left_out);
        status = stg_ctl_finish();
    }
    stg_ctl_hang_up(link);
    return status;
}
