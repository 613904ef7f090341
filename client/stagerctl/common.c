/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
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

/* ---- errors ---- */

static bool errors_are_json;

void stg_ctl_errors_as_json(bool is)
{
    errors_are_json |= is;
}

struct stg_json_writer stg_ctl_json(void)
{
    return (struct stg_json_writer){.out = stdout,
                                    .schema_version = STG_CTL_SCHEMA_VERSION};
}

static void print_error(int code, const char *text)
{
    char line[4096];
    snprintf(line, sizeof(line), "%s", text);
    stg_ctl_clean(line);
    fflush(stdout);
    if (!errors_are_json) {
        fprintf(stderr, "stagerctl: %s: %s\n", stager_status_name(code), line);
        return;
    }
    struct stg_json_writer json = {.out = stderr,
                                   .schema_version = STG_CTL_SCHEMA_VERSION};
    stg_json_object_begin(&json);
    stg_json_key(&json, "error");
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "code", stager_status_name(code));
    stg_json_put_string(&json, "text", line);
    stg_json_object_end(&json);
    stg_json_object_end(&json);
    fputc('\n', stderr);
}

int stg_ctl_fail(int code, const char *text)
{
    print_error(code, text);
    return EXIT_FAILED;
}

int stg_ctl_misused(const char *text)
{
    print_error(-STAGER_INVALID_ARGUMENT, text);
    return EXIT_USAGE;
}

int stg_ctl_file_code(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR: return -STAGER_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS: return -STAGER_PERMISSION_DENIED;
    case EISDIR: return -STAGER_INVALID_ARGUMENT;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return -STAGER_RESOURCE_EXHAUSTED;
    default: return -STAGER_DATA_LOSS;
    }
}

int stg_ctl_cannot_write(const char *path, int error)
{
    char text[4200];
    snprintf(text, sizeof(text), "cannot write %s: %s",
             strcmp(path, "-") == 0 ? "to standard output" : path, strerror(error));
    return stg_ctl_fail(stg_ctl_file_code(error), text);
}

int stg_ctl_finish(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_OK;
    return stg_ctl_cannot_write("-", errno);
}

double stg_ctl_rate(uint64_t n, uint64_t ns)
{
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

const char *stg_ctl_number(double value, char *buf, size_t size)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        value /= 1000;
    bool is_small = unit == 0 && value == (double)(uint64_t)value;
    int decimals = is_small || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(buf, size, "%.*f%s", decimals, value, units[unit]);
    return buf;
}

static const char *amount(uint64_t n, bool is_bytes, char *buf, size_t size)
{
    return is_bytes ? stg_ctl_bytes(n, buf, size) : stg_ctl_number((double)n, buf, size);
}

const char *stg_ctl_progress(const struct stg_status_progress *p, char *buf, size_t size)
{
    char done[32], total[32], rate[32], end[48] = "";
    bool is_bytes = strcmp(p->unit, "bytes") == 0;
    const char *unit = is_bytes ? "" : " ", *word = is_bytes ? "" : p->unit;
    double seconds = (double)p->elapsed_ns / 1e9;
    uint64_t each = seconds > 0 ? (uint64_t)((double)p->done / seconds) : 0;
    amount(p->done, is_bytes, done, sizeof(done));
    amount(p->total, is_bytes, total, sizeof(total));
    if (p->total > 0 && p->done > 0 && p->done <= p->total)
        snprintf(end, sizeof(end), ", %.0f s left",
                 seconds * (double)(p->total - p->done) / (double)p->done);
    snprintf(buf, size, "%s: %s%s%s%s%s, %s/s%s", p->what, done,
             p->total > 0 ? " of " : "", p->total > 0 ? total : "", unit, word,
             amount(each, is_bytes, rate, sizeof(rate)), end);
    return buf;
}

const char *stg_ctl_share(uint64_t part, uint64_t of, char *buf, size_t size)
{
    if (of == 0)
        snprintf(buf, size, "-");
    else
        snprintf(buf, size, "%.0f %%", 100.0 * (double)part / (double)of);
    return buf;
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
