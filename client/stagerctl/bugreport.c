/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerctl bugreport: a text for the authors of a fix. Each part is made as for a
 * terminal, and masked line by line.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"
#include "client/stagerctl/report/mask.h"

#define SETTINGS "/etc/stager/stagerd.yaml"
#define MAX_LINES 100000

static void put_text(FILE *out, const char *text)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        fputs("  ", out);
        stg_mask_line(out, text, n);
        text += n + (text[n] == '\n');
    }
}

/* Copies lines until the end. Returns how many. */
static size_t put_lines(FILE *out, FILE *in)
{
    char *line = NULL;
    size_t size = 0, n = 0;
    ssize_t bytes;
    while (n < MAX_LINES && (bytes = getline(&line, &size, in)) > 0) {
        fputs("  ", out);
        stg_mask_line(out, line, (size_t)bytes - (line[bytes - 1] == '\n'));
        n++;
    }
    free(line);
    return n;
}

static void put_head(FILE *out, const char *title)
{
    fprintf(out, "\n== %s\n", title);
}

/* ---- parts ---- */

static void put_machine(FILE *out)
{
    struct utsname name;
    char memory[32];
    put_head(out, "machine");
    if (uname(&name) == 0)
        fprintf(out, "  %s %s, %s\n", name.sysname, name.release, name.machine);
    fprintf(
        out, "  %ld CPUs, %s\n", sysconf(_SC_NPROCESSORS_ONLN),
        stg_ctl_bytes((uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
                      memory, sizeof(memory)));
}

static void put_settings(FILE *out)
{
    put_head(out, "settings: " SETTINGS);
    FILE *file = fopen(SETTINGS, "re");
    if (file == NULL) {
        fprintf(out, "  cannot be read: %s\n", strerror(errno));
        return;
    }
    put_lines(out, file);
    fclose(file);
}

static void put_status(FILE *out, const char *name, const struct stg_reply *reply)
{
    char *text = NULL;
    size_t n;
    FILE *stream = open_memstream(&text, &n);
    if (stream == NULL)
        return;
    put_head(out, name);
    if (reply->kind == STG_REQUEST_EXPLAIN)
        stg_ctl_write_verdict(stream, &reply->explain);
    else
        stg_ctl_write_status(stream, &reply->status);
    if (fclose(stream) == 0)
        put_text(out, text);
    free(text);
}

static void put_pipeline(FILE *out, struct stg_ctl_link *link, const char *name)
{
    static const enum stg_request_kind kinds[] = {STG_REQUEST_STATUS,
                                                  STG_REQUEST_EXPLAIN};
    for (size_t i = 0; i < 2; i++) {
        struct stg_request request = {.kind = kinds[i], .name = name};
        struct stg_reply reply;
        struct stg_err err = {0};
        char title[96];
        snprintf(title, sizeof(title), "%s of %s", i == 0 ? "status" : "bottleneck",
                 name);
        stg_ctl_clean(title);
        if (stg_ctl_call(link, &request, &reply, &err) == 0)
            put_status(out, title, &reply);
        else
            put_text(out, err.text);
    }
}

static void put_daemon(FILE *out, const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = NULL;
    struct stg_err err = {0};
    put_head(out, "stagerd");
    fprintf(out, "  stagerctl %s\n", stager_version());
    if (stg_ctl_open(options, &link, &err) < 0) {
        put_text(out, err.text);
        return;
    }
    struct stg_admin_daemon daemon;
    stg_ctl_daemon(link, &daemon);
    fprintf(out, "  stagerd %s, protocol %u, pid %u, at %s\n", daemon.release,
            daemon.version, daemon.pid, daemon.path);
    put_text(out, stg_text_or(daemon.cuda, ""));
    struct stg_request request = {.kind = STG_REQUEST_LIST};
    struct stg_reply reply;
    size_t n = 0;
    char(*names)[65] = NULL;
    if (stg_ctl_call(link, &request, &reply, &err) == 0)
        names = calloc(reply.n_entries + 1, sizeof(*names));
    for (; names != NULL && n < reply.n_entries; n++)
        snprintf(names[n], sizeof(names[n]), "%s", reply.entries[n].name);
    fprintf(out, "  %zu pipelines that this user may see\n", n);
    for (size_t i = 0; i < n; i++)
        put_pipeline(out, link, names[i]);
    free(names);
    stg_ctl_hang_up(link);
}

static void run_journal(int out)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execlp("journalctl", "journalctl", "--unit", "stagerd", "--lines", "300",
           "--no-pager", "--output", "short-iso", (char *)NULL);
    _exit(127);
}

static void put_journal(FILE *out)
{
    int ends[2], status = 0;
    size_t n = 0;
    put_head(out, "log: journalctl --unit stagerd --lines 300");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t child = fork();
    if (child == 0)
        run_journal(ends[1]);
    close(ends[1]);
    FILE *in = child > 0 ? fdopen(ends[0], "r") : NULL;
    if (in != NULL) {
        n = put_lines(out, in);
        fclose(in);
    } else {
        close(ends[0]);
    }
    if (child > 0)
        waitpid(child, &status, 0);
    if (n == 0)
        fprintf(out, "  cannot be read: there is no journal, or this user may not see "
                     "it (group systemd-journal)\n");
}

/* ---- the command ---- */

static void put_report(FILE *out, const struct stg_ctl_options *options)
{
    fprintf(out,
            "stagerctl bugreport\n"
            "\n"
            "This text has: the releases, the machine, the settings of stagerd, status "
            "and bottleneck\n"
            "of each pipeline, with the names of clients and programs, and the end of "
            "the log, with\n"
            "paths. It has no batch and no pipeline file. Texts in quotes, passwords, "
            "tokens and\n"
            "queries of URLs are replaced by ***. Read it before you send it.\n");
    put_machine(out);
    put_daemon(out, options);
    put_settings(out);
    put_journal(out);
}

int stg_ctl_bugreport(const struct stg_ctl_options *options)
{
    FILE *out = stdout;
    if (options->json)
        return stg_ctl_misused("bugreport prints text: leave out --json");
    signal(SIGPIPE, SIG_IGN);
    if (options->output != NULL) {
        int fd = open(options->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        out = fd >= 0 ? fdopen(fd, "w") : NULL;
    }
    if (out != NULL)
        put_report(out, options);
    bool failed = out == NULL || ferror(out);
    if (out != NULL && out != stdout)
        failed |= fclose(out) != 0;
    if (!failed && options->output != NULL)
        printf("Wrote %s. Read it before you send it.\n", options->output);
    if (!failed || options->output == NULL)
        return stg_ctl_finish();
    return stg_ctl_cannot_write(options->output, errno);
}
