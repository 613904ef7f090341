/* SPDX-License-Identifier: Apache-2.0
 *
 * test: becomes `stagerd --test`, which has the steps and the ops.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/stagerctl/command.h"

/* Returns only if that program cannot be run. */
static void try_program(char *path, const struct stg_ctl_options *options)
{
    char test[] = "--test", json[] = "--json";
    char *argv[] = {path, test, (char *)(uintptr_t)options->argument,
                    options->json ? json : NULL, NULL};
    execvp(path, argv);
}

/* Beside stagerctl, in the build tree, then on PATH. */
int stg_ctl_test(const struct stg_ctl_options *options)
{
    static const char *const places[] = {"stagerd", "../../daemon/stagerd"};
    char self[3072], path[3200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    for (size_t i = 0; slash != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        *slash = '\0';
        snprintf(path, sizeof(path), "%s/%s", self, places[i]);
        try_program(path, options);
    }
    snprintf(path, sizeof(path), "stagerd");
    try_program(path, options);
    char text[128];
    snprintf(text, sizeof(text),
             "cannot run stagerd, which runs the tests: %s; install all of stager",
             strerror(errno));
    return stg_ctl_fail(-STAGER_NOT_FOUND, text);
}
