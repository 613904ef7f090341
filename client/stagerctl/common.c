/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/stagerctl/command.h"

void stg_ctl_clean(char *text)
{
    for (; *text != '\0'; text++) {
        if (iscntrl((unsigned char)*text))
            *text = '?';
    }
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
