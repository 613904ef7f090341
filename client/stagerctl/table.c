/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables: as wide as their cells, or as the terminal, where cells go on in the next line.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/stagerctl/command.h"

#define GAP 2        /* between columns */
#define MIN_COLUMN 6 /* no column is squeezed below this */

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

size_t stg_ctl_columns(void)
{
    const char *text = getenv("COLUMNS");
    struct winsize size;
    long n = text != NULL ? strtol(text, NULL, 10) : 0;
    if (n > 0)
        return (size_t)n;
    if (!isatty(STDOUT_FILENO))
        return SIZE_MAX;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                           : 80;
}

/* Takes columns away from the widest ones until a row fits. */
static void squeeze(size_t *widths, size_t n, size_t room)
{
    size_t sum = (n - 1) * GAP;
    for (size_t i = 0; i < n; i++)
        sum += widths[i];
    for (; sum > room; sum--) {
        size_t widest = 0;
        for (size_t i = 1; i < n; i++)
            widest = widths[i] > widths[widest] ? i : widest;
        if (widths[widest] <= MIN_COLUMN)
            return;
        widths[widest]--;
    }
}

/* How many bytes of the text stand in one line of that width: up to a space, if one is
 * in the second half of the line. */
static size_t line_of(const char *text, size_t width)
{
    size_t at = 0, columns = 0, space = 0;
    while (text[at] != '\0') {
        bool starts = ((unsigned char)text[at] & 0xc0) != 0x80;
        if (starts && columns == width)
            break;
        columns += starts;
        if (text[at] == ' ' && columns > width / 2)
            space = at;
        at++;
    }
    return text[at] == '\0' || text[at] == ' ' || space == 0 ? at : space;
}

/* Prints one line of a row, and moves the cells to what is left of them. */
static bool print_line(FILE *out, const char **cells, const size_t *widths, size_t n,
                       const char *indent)
{
    size_t pad = 0;
    bool more = false;
    fprintf(out, "%s", indent);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = line_of(cells[i], widths[i]);
        size_t columns = 0;
        for (size_t k = 0; k < bytes; k++)
            columns += ((unsigned char)cells[i][k] & 0xc0) != 0x80;
        if (bytes > 0) {
            fprintf(out, "%*s%.*s", (int)pad, "", (int)bytes, cells[i]);
            pad = 0;
        }
        pad += widths[i] - columns + GAP;
        cells[i] += bytes;
        cells[i] += strspn(cells[i], " ");
        more |= cells[i][0] != '\0';
    }
    fputc('\n', out);
    return more;
}

void stg_table_print(struct stg_table *table, const char *indent)
{
    size_t widths[STG_TABLE_COLUMNS] = {0};
    FILE *out = table->out != NULL ? table->out : stdout;
    size_t n = table->n_columns, room = stg_ctl_columns();
    for (size_t i = 0; i < table->n_cells; i++) {
        size_t width = width_of(table->cells[i]);
        if (width > widths[i % n])
            widths[i % n] = width;
    }
    if (room != SIZE_MAX)
        squeeze(widths, n, room > strlen(indent) ? room - strlen(indent) : 1);
    for (size_t i = 0; i + n <= table->n_cells; i += n) {
        const char *rest[STG_TABLE_COLUMNS];
        memcpy(rest, &table->cells[i], n * sizeof(rest[0]));
        while (print_line(out, rest, widths, n, indent)) {
        }
    }
    for (size_t i = 0; i < table->n_cells; i++)
        free(table->cells[i]);
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
