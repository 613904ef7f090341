/* SPDX-License-Identifier: Apache-2.0
 *
 * schema: what is in a data file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/stagerctl/collect.h"
#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"

static int ask(void *owner, struct stg_request *request, struct stg_reply *ret,
               struct stg_err *err)
{
    return stg_ctl_call(owner, request, ret, err);
}

int stg_ctl_describe(struct stg_ctl_link *link, const char *url, struct stg_bump *bump,
                     struct stg_file_schema *ret)
{
    struct stg_err err = {0};
    int rc = stg_collect_schema(ask, link, url, bump, ret, &err);
    return rc == 0 ? 0 : stg_ctl_fail(rc, err.text);
}

static void print_shown(const char *text)
{
    char shown[4096];
    snprintf(shown, sizeof(shown), "%s", text);
    stg_ctl_clean(shown);
    fputs(shown, stdout);
}

/* "parquet, 1000 rows in 3 row groups, 1.2 MiB" */
static void print_head(const struct stg_file_schema *schema)
{
    char bytes[32];
    bool is_parquet = strcmp(schema->format, "parquet") == 0;
    print_shown(schema->url);
    printf("%s\n%s", schema->has_more ? " (the first file of the pattern)" : "",
           schema->format);
    if (schema->compression[0] != '\0')
        printf(", %s", schema->compression);
    if (schema->has_rows)
        printf(", %" PRIu64 " row%s", schema->n_rows, schema->n_rows == 1 ? "" : "s");
    if (schema->n_parts > 0)
        printf(" in %u %s%s", schema->n_parts, is_parquet ? "row group" : "record batch",
               schema->n_parts == 1 ? "" : (is_parquet ? "s" : "es"));
    if (schema->bytes > 0)
        printf(", %s", stg_ctl_bytes(schema->bytes, bytes, sizeof(bytes)));
    if (schema->delim[0] != '\0')
        printf(", delimiter %s", schema->delim[0] == '\t' ? "tab" : schema->delim);
    if (strcmp(schema->format, "csv") == 0)
        printf(", %s header", schema->has_header ? "a" : "no");
    putchar('\n');
    if (schema->note[0] != '\0') {
        print_shown(schema->note);
        putchar('\n');
    }
}

/* "int64", "float32 [?]" */
static void add_dtype(struct stg_table *table, const struct stg_file_column *column)
{
    char shape[128] = "";
    if (column->dtype == STAGER_DT_INVALID) {
        stg_table_add(table, "-");
        return;
    }
    if (column->ndim > 0)
        stg_shape_text(column->shape, column->ndim, shape, sizeof(shape));
    stg_table_add(table, "%s%s%s", stager_dtype_name(column->dtype),
                  column->ndim > 0 ? " " : "", shape);
}

static void add_size(struct stg_table *table, const struct stg_file_column *column)
{
    char bytes[32], plain[32];
    if (column->bytes == 0)
        stg_table_add(table, "-");
    else
        stg_table_add(table, "%s of %s",
                      stg_ctl_bytes(column->bytes, bytes, sizeof(bytes)),
                      stg_ctl_bytes(column->plain_bytes, plain, sizeof(plain)));
}

/* Columns that no column of the file needs are left out. */
struct shown {
    bool nulls, size, codec, encodings;
};

static struct shown shown_of(const struct stg_file_schema *schema)
{
    struct shown ret = {0};
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *column = &schema->columns[i];
        ret.nulls |= column->nullable;
        ret.size |= column->bytes > 0;
        ret.codec |= column->codec[0] != '\0';
        ret.encodings |= column->encodings[0] != '\0' || column->has_dictionary;
    }
    return ret;
}

static void add_titles(struct stg_table *table, const struct shown *shown)
{
    const struct {
        const char *title;
        bool is_shown;
    } titles[] = {{"NAME", true},
                  {"TYPE", true},
                  {"DTYPE", true},
                  {"NULLS", shown->nulls},
                  {"SIZE", shown->size},
                  {"CODEC", shown->codec},
                  {"ENCODINGS", shown->encodings}};
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        table->n_columns += titles[i].is_shown;
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++) {
        if (titles[i].is_shown)
            stg_table_add(table, "%s", titles[i].title);
    }
}

static void print_columns(const struct stg_file_schema *schema)
{
    struct shown shown = shown_of(schema);
    struct stg_table table = {0};
    add_titles(&table, &shown);
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *column = &schema->columns[i];
        stg_table_add(&table, "%s", column->name);
        stg_table_add(&table, "%s%s%s", stg_text_or(column->type, "-"),
                      column->logical[0] != '\0' ? " " : "", column->logical);
        add_dtype(&table, column);
        if (shown.nulls)
            stg_table_add(&table, "%s", column->nullable ? "yes" : "no");
        if (shown.size)
            add_size(&table, column);
        if (shown.codec)
            stg_table_add(&table, "%s", stg_text_or(column->codec, "-"));
        if (shown.encodings)
            stg_table_add(&table, "%s",
                          column->has_dictionary ? "dictionary"
                                                 : stg_text_or(column->encodings, "-"));
    }
    stg_table_print(&table, "");
}

static void print_text(const struct stg_file_schema *schema)
{
    print_head(schema);
    if (schema->n > 0) {
        putchar('\n');
        print_columns(schema);
    }
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *column = &schema->columns[i];
        if (column->problem[0] == '\0')
            continue;
        fputs("cannot be read: ", stdout);
        print_shown(column->name);
        fputs(": ", stdout);
        print_shown(column->problem);
        putchar('\n');
    }
}

int stg_ctl_schema(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_file_schema schema;
    struct stg_bump bump = {0};
    int status = stg_ctl_describe(link, options->argument, &bump, &schema);
    struct stg_json_writer json = stg_ctl_json();
    if (status == 0 && options->json) {
        stg_reply_schema_json(&json, &schema);
        putchar('\n');
    } else if (status == 0) {
        print_text(&schema);
    }
    if (status == 0)
        status = stg_ctl_finish();
    stg_bump_finish(&bump);
    stg_ctl_hang_up(link);
    return status;
}
