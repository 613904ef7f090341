/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/stagerctl/command.h"

void stg_ctl_clean(char *text)
{
    for (; *text != '\0'; text++) {
        if (iscntrl((unsigned char)*text))
            *text = '?';
    }
}

const char *stg_ctl_time(time_t at, char *buf, size_t bytes)
{
    struct tm tm;
    if (localtime_r(&at, &tm) == NULL || strftime(buf, bytes, "%F %T", &tm) == 0)
        snprintf(buf, bytes, "?");
    return buf;
}

int stg_ctl_fail(int code, const char *text)
{
    char line[4096];
    snprintf(line, sizeof(line), "%s", text);
    stg_ctl_clean(line);
    fflush(stdout);
    fprintf(stderr, "stagerctl: %s: %s\n", stager_status_name(code), line);
    return EXIT_FAILED;
}

int stg_ctl_finish(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_OK;
    char text[256];
    snprintf(text, sizeof(text), "cannot write to standard output: %s", strerror(errno));
    return stg_ctl_fail(-STAGER_DATA_LOSS, text);
}

const char *stg_ctl_bytes(uint64_t bytes, char *buf, size_t size)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) {
        snprintf(buf, size, "%u B", (unsigned)bytes);
        return buf;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        value /= 1024;
    snprintf(buf, size, "%.*f %s", value < 10 ? 1 : 0, value, units[unit]);
    return buf;
}

/* ---- tables ---- */

static void out_of_memory(void)
{
    stg_ctl_fail(-STAGER_RESOURCE_EXHAUSTED, "out of memory");
    exit(EXIT_FAILED);
}

void stg_table_add(struct stg_table *table, const char *fmt, ...)
{
    if (table->n_cells == table->capacity) {
        table->capacity = table->capacity > 0 ? table->capacity * 2 : 64;
        table->cells = realloc(table->cells, table->capacity * sizeof(*table->cells));
        if (table->cells == NULL)
            out_of_memory();
    }
    va_list args;
    va_start(args, fmt);
    char *cell;
    if (vasprintf(&cell, fmt, args) < 0)
        out_of_memory();
    va_end(args);
    stg_ctl_clean(cell);
    table->cells[table->n_cells++] = cell;
}

void stg_table_add_time(struct stg_table *table, uint64_t time_ns)
{
    char text[32];
    stg_table_add(table, "%s",
                  stg_ctl_time((time_t)(time_ns / 1000000000), text, sizeof(text)));
}

/* Columns of a terminal: UTF-8 continuation bytes take none. */
static size_t width_of(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

void stg_table_print(struct stg_table *table, const char *indent)
{
    size_t widths[STG_TABLE_COLUMNS] = {0};
    for (size_t i = 0; i < table->n_cells; i++) {
        size_t width = width_of(table->cells[i]);
        if (width > widths[i % table->n_columns])
            widths[i % table->n_columns] = width;
    }
    for (size_t i = 0; i < table->n_cells; i++) {
        size_t column = i % table->n_columns;
        bool is_last = column + 1 == table->n_columns;
        int pad = is_last ? 0 : (int)(widths[column] - width_of(table->cells[i]) + 2);
        printf("%s%s%*s%s", column == 0 ? indent : "", table->cells[i], pad, "",
               is_last ? "\n" : "");
        free(table->cells[i]);
    }
    free(table->cells);
    *table = (struct stg_table){0};
}

void stg_ctl_boundary_table(const struct stg_schema *boundary)
{
    struct stg_table table = {.n_columns = 3};
    stg_table_add(&table, "NAME");
    stg_table_add(&table, "DTYPE");
    stg_table_add(&table, "SHAPE");
    for (size_t i = 0; i < boundary->n; i++) {
        const struct stg_component *c = &boundary->components[i];
        char shape[256];
        stg_table_add(&table, "%s", c->name);
        stg_table_add(&table, "%s", stager_dtype_name(c->dtype));
        stg_table_add(&table, "%s",
                      stg_shape_text(c->shape, c->ndim, shape, sizeof(shape)));
    }
    stg_table_print(&table, "  ");
}
