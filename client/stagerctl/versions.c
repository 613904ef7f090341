/* SPDX-License-Identifier: Apache-2.0
 *
 * versions and rollback: the definitions of a pipeline that stagerd keeps.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"

static void print_json(const struct stg_reply *reply)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_key(&json, "versions");
    stg_reply_versions_json(&json, reply);
    stg_json_object_end(&json);
    putchar('\n');
}

static void print_text(const struct stg_reply *reply)
{
    static const char *const titles[] = {"GENERATION", "TIME", "USER", "DIGEST", "FILE"};
    struct stg_table table = {.n_columns = sizeof(titles) / sizeof(titles[0])};
    for (size_t i = 0; i < table.n_columns; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; i < reply->n_versions; i++) {
        const struct stg_version_entry *e = &reply->versions[i];
        char file[4096];
        snprintf(file, sizeof(file), "%s", stg_text_or(e->file, "-"));
        stg_ctl_clean(file);
        stg_table_add(&table, "%" PRIu64 "%s", e->generation,
                      i + 1 == reply->n_versions ? " (current)" : "");
        stg_table_add_time(&table, e->time_ns);
        stg_ctl_add_user(&table, e->uid);
        stg_table_add(&table, "%016" PRIx64, e->content);
        stg_table_add(&table, "%s", file);
    }
    stg_table_print(&table, "");
}

int stg_ctl_versions(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_request request = {.kind = STG_REQUEST_VERSIONS,
                                  .name = options->argument};
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status == 0) {
        (options->json ? print_json : print_text)(&reply);
        status = stg_ctl_finish();
    }
    stg_ctl_hang_up(link);
    return status;
}

static bool read_generation(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return text[0] >= '1' && text[0] <= '9' && *end == '\0' && errno == 0;
}

int stg_ctl_rollback(const struct stg_ctl_options *options)
{
    struct stg_request request = {.kind = STG_REQUEST_ROLLBACK,
                                  .name = options->argument,
                                  .warm = options->warm,
                                  .has_if_generation = options->has_if_generation,
                                  .if_generation = options->if_generation};
    if (options->n_arguments > 1 &&
        !read_generation(options->arguments[1], &request.generation)) {
        char text[512];
        snprintf(text, sizeof(text),
                 "rollback takes a generation, a number of at least 1, not %s: "
                 "`stagerctl versions %s` lists them",
                 options->arguments[1], options->argument);
        return stg_ctl_misused(text);
    }
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status == 0) {
        stg_ctl_print_applied(options, &reply);
        status = stg_ctl_finish();
    }
    stg_ctl_hang_up(link);
    return status;
}
