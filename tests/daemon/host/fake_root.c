/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/host/fake_root.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/check.h"

static char root[64];

const char *fake_root_begin(void)
{
    snprintf(root, sizeof(root), "/tmp/stg-root-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
    return root;
}

void fake_root_write(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

void fake_root_end(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", root);
    CHECK_INT(system(command), 0);
}
