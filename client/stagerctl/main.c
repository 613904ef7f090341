/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerctl: looks at and changes the pipelines of a running stagerd.
 */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stagerctl/command.h"
#include "core/log.h"
#include "core/param.h"

enum { ARGUMENT_NONE, ARGUMENT_MAYBE, ARGUMENT_ONE, ARGUMENT_PAIR, ARGUMENT_SOME };

struct command {
    const char *name;
    int argument;
    const char *synopsis;
    /* Letters of its own options (long_options); '-': it has no --json. */
    const char *options;
    const char *help;
    int (*run)(const struct stg_ctl_options *options);
};

static int explain(const struct stg_ctl_options *options)
{
    return (options->ideal ? stg_ctl_ideal : stg_ctl_explain)(options);
}

static const struct command commands[] = {
    {"check", ARGUMENT_ONE, "FILE", "gt",
     "Checks a pipeline file and prints the features of its batches. FILE - is standard "
     "input.",
     stg_ctl_check},
    {"apply", ARGUMENT_ONE, "FILE [--name NAME] [--replace] [--if-generation G] [--warm]",
     "nrgtiW",
     "Defines a pipeline in stagerd. Other content under an existing name needs "
     "--replace:\n"
     "  attached clients receive the published batches, then ABORTED. With --warm the "
     "new version fills\n"
     "  its buffer first; Control-C ends it, and nothing changes.",
     stg_ctl_apply},
    {"test", ARGUMENT_ONE, "FILE", "",
     "Runs a pipeline on the inputs in FILE, and compares its features with those that "
     "FILE\n"
     "  expects. No stagerd has to run. Exit status 1: a test failed.",
     stg_ctl_test},
    {"list", ARGUMENT_NONE, "", "gt", "Lists the pipelines.", stg_ctl_list},
    {"status", ARGUMENT_MAYBE, "[NAME]", "gt",
     "Prints the state of a pipeline, or of all, and its clients.", stg_ctl_status},
    {"top", ARGUMENT_MAYBE, "[NAME] [--count N]", "cgt-",
     "Shows the pipelines, or one, and refreshes every second. Keys: r w m n sort by "
     "rate, "
     "wait,\n"
     "  memory, name; up and down choose, Enter shows a pipeline, Escape goes back, q "
     "ends. Not on\n"
     "  a terminal it prints plain text; --count N ends after N times.",
     stg_ctl_top},
    {"explain", ARGUMENT_ONE, "NAME [--dot] [--ideal [--seconds S]]", "gtDIs",
     "Prints the bottleneck of a pipeline, the time of each node of its graph, its "
     "partition,\n"
     "  and the decisions of stagerd. --dot prints the graph for Graphviz. --ideal "
     "measures "
     "the trainers\n"
     "  for S (5) seconds and prints how much faster a perfect loader would make them, "
     "as "
     "estimated\n"
     "  from their waits and as measured by streams with replay_batches.",
     explain},
    {"cat", ARGUMENT_ONE, "NAME [--limit N] [--rows]", "lw",
     "Prints the batches of a private run, from the start of the data. Other clients do "
     "not\n"
     "  see it. --limit N ends after N batches or error items. --json prints a line per "
     "batch.",
     stg_ctl_cat},
    {"tap", ARGUMENT_ONE, "NAME [--batches N] [--seconds S]", "bs",
     "Prints the first values of the next batch, or the next N, that a pipeline "
     "publishes. Its\n"
     "  clients do not notice. Waits for S (5) seconds for each.",
     stg_ctl_tap},
    {"delete", ARGUMENT_ONE, "NAME [--if-generation G]", "gti", "Deletes a pipeline.",
     stg_ctl_delete},
    {"versions", ARGUMENT_ONE, "NAME", "gt",
     "Lists the last 10 generations of a pipeline, whose definitions stagerd keeps, and "
     "the user\n"
     "  that applied each. The same digest means the same content.",
     stg_ctl_versions},
    {"rollback", ARGUMENT_PAIR, "NAME [GENERATION] [--if-generation G] [--warm]", "gtiW",
     "Applies the definition of an earlier generation again, as a new one. Without "
     "GENERATION: the\n"
     "  last one with other content. Attached clients receive the published batches, "
     "then ABORTED.",
     stg_ctl_rollback},
    {"watch", ARGUMENT_MAYBE, "[NAME] [--count N] [--seconds S]", "cs",
     "Prints the events of a pipeline, or of all, as they happen: N events, for S "
     "seconds,\n"
     "  or until Control-C. --json prints a line per event.",
     stg_ctl_watch},
    {"trace", ARGUMENT_ONE, "NAME [--seconds S] [-o FILE] [--text]", "sox",
     "Records stagerd and the clients of a pipeline for S (5) seconds into FILE\n"
     "  (trace.json; - is standard output), for Perfetto and Chrome. --text prints where "
     "the\n"
     "  time went; with -o it also writes FILE. Control-C ends the trace early.",
     stg_ctl_trace},
    {"commits", ARGUMENT_ONE, "NAME [--job JOB]", "gtJ",
     "Lists the last commits of a pipeline, from the oldest on: what a trainer can "
     "resume "
     "from.\n"
     "  --job JOB: those of a job whose hosts come and go by etcd.",
     stg_ctl_commits},
    {"audit", ARGUMENT_SOME,
     "NAME|FILE[@ATTEMPT] [NAME|FILE[@ATTEMPT]] [--job JOB] [-o FILE]", "oJ",
     "Prints which client got and acknowledged which items, in each attempt, and whether "
     "the\n  attempts that led to the last commit delivered each item exactly once. Of "
     "two runs: prints\n  the first item in which they differ. -o writes the audit to a "
     "file, which a later command\n  can name by a path with a /. --job JOB: the share "
     "of "
     "this host in a job whose hosts come and\n  go by etcd. Exit status 1: not exactly "
     "once, or a difference.",
     stg_ctl_audit},
    {"metrics", ARGUMENT_NONE, "", "-",
     "Prints the counters of stagerd and of all pipelines, in the text format of "
     "Prometheus.\n"
     "  stager-metrics serves the same text over HTTP.",
     stg_ctl_metrics},
    {"schema", ARGUMENT_ONE, "FILE", "gt",
     "Prints the format and the columns of a data file: what each is in the file, the "
     "dtype that\n"
     "  a step declares for it, and why stager cannot read it. Of a pattern or a folder: "
     "of its\n"
     "  first file.",
     stg_ctl_schema},
    {"init", ARGUMENT_SOME, "FILE... [--name NAME] [-o OUTPUT] [--force]", "gtnoF",
     "Writes a pipeline file for data files, by what is in the first one: to OUTPUT, or "
     "to\n"
     "  standard output. --force overwrites OUTPUT.",
     stg_ctl_init},
    {"index", ARGUMENT_SOME, "NAME|FILE...", "",
     "Builds the record indexes of the files of pipelines: applied ones by name, or "
     "those "
     "of\n  pipeline files. With it a pass continues in the middle of a file without "
     "reading what lies\n  before. The first full pass builds them too. Control-C stops "
     "it; what is built stays.",
     stg_ctl_index},
    {"cache list", ARGUMENT_ONE, "PATH", "",
     "The entries of a step `cache: {filename: PATH}`, one for each content of the steps "
     "and\n  files before it, the last read first. stagerd is not asked.",
     stg_ctl_cache_list},
    {"cache rm", ARGUMENT_ONE, "PATH [--key KEY]", "k",
     "Removes that entry of a step `cache: {filename: PATH}`, or all of them.",
     stg_ctl_cache_rm},
    {"token", ARGUMENT_NONE, "", "",
     "Prints a token for the gate, valid for an hour: what stagerctl --gate and "
     "programs in\n"
     "  other languages ask with. It gives all your rights.",
     stg_ctl_token},
    {"drain", ARGUMENT_NONE, "[--timeout S] [--disable]", "TE",
     "Ends the admission of clients and applies, and waits until no client is left: "
     "without\n"
     "  limit, or for S seconds. stagerd goes on draining until --disable or its "
     "restart.\n"
     "  Only root and the user of stagerd may.",
     stg_ctl_drain},
    {"bugreport", ARGUMENT_NONE, "[-o FILE]", "o-",
     "Prints, or writes to FILE, what a report of a fault needs: releases, machine, "
     "settings,\n"
     "  status of each pipeline, the end of the log. Without data and secrets.",
     stg_ctl_bugreport},
    {"doctor", ARGUMENT_NONE, "", "",
     "Reports what works and what is missing: stagerd; GPUs, their driver, IPC, MPS.",
     stg_ctl_doctor},
    {"version", ARGUMENT_NONE, "", "",
     "Prints the releases and protocols of stagerctl, stagerd and CUDA.",
     stg_ctl_version},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_usage(FILE *out)
{
    fprintf(out, "usage: stagerctl COMMAND [--json] [--runtime-dir DIR]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  stagerctl %s%s%s\n", commands[i].name,
                commands[i].synopsis[0] != '\0' ? " " : "", commands[i].synopsis);
    fprintf(out,
            "\n"
            "`stagerctl COMMAND --help` shows the details. stagerctl looks for stagerd "
            "in DIR, else\n"
            "in environment STAGER_RUNTIME_DIR, /run/stager, $XDG_RUNTIME_DIR/stager.\n"
            "check, apply, list, status, top, explain, commits, delete, versions, "
            "rollback,\n"
            "schema and init also go through the gate: --gate URL, with --token-file "
            "FILE or environment\n"
            "STAGER_TOKEN.\n"
            "Exit status: 0 success, 1 an error was reported, 2 wrong usage.\n");
}

static int usage_error(const char *what, const char *value)
{
    char text[512];
    snprintf(text, sizeof(text), "%s%s%s (stagerctl --help shows the usage)", what,
             value != NULL ? " " : "", value != NULL ? value : "");
    return stg_ctl_misused(text);
}

static int print_help(const struct command *command)
{
    printf("usage: stagerctl %s%s%s%s [--runtime-dir DIR]\n  %s\n", command->name,
           command->synopsis[0] != '\0' ? " " : "", command->synopsis,
           strchr(command->options, '-') != NULL ? "" : " [--json]", command->help);
    return EXIT_OK;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS];
    if (strcmp(name, "cache") == 0)
        return usage_error("cache needs list or rm, and PATH", NULL);
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    const char *near = stg_nearest(name, names, N_COMMANDS);
    char text[256];
    snprintf(text, sizeof(text),
             near != NULL ? "unknown command \"%s\"; did you mean \"%s\"?"
                          : "unknown command \"%s\"",
             name, near);
    return usage_error(text, NULL);
}

static int read_number(const char *option, const char *text, uint64_t *ret)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    char what[64];
    snprintf(what, sizeof(what), "%s takes a number of at least 1, not", option);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || n == 0 || n > UINT32_MAX)
        return usage_error(what, text);
    *ret = n;
    return 0;
}

static int read_generation(const char *text, struct stg_ctl_options *ret)
{
    char *end;
    ret->if_generation = strtoull(text, &end, 10);
    ret->has_if_generation = true;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0'
               ? 0
               : usage_error("--if-generation takes a number (0: the pipeline must not "
                             "exist yet), not",
                             text);
}

static const struct option long_options[] = {
    {"json", no_argument, NULL, 'j'},
    {"runtime-dir", required_argument, NULL, 'd'},
    {"help", no_argument, NULL, 'h'},
    {"name", required_argument, NULL, 'n'},
    {"replace", no_argument, NULL, 'r'},
    {"force", no_argument, NULL, 'F'},
    {"warm", no_argument, NULL, 'W'},
    {"limit", required_argument, NULL, 'l'},
    {"rows", no_argument, NULL, 'w'},
    {"dot", no_argument, NULL, 'D'},
    {"ideal", no_argument, NULL, 'I'},
    {"count", required_argument, NULL, 'c'},
    {"batches", required_argument, NULL, 'b'},
    {"timeout", required_argument, NULL, 'T'},
    {"disable", no_argument, NULL, 'E'},
    {"seconds", required_argument, NULL, 's'},
    {"gate", required_argument, NULL, 'g'},
    {"token-file", required_argument, NULL, 't'},
    {"output", required_argument, NULL, 'o'},
    {"text", no_argument, NULL, 'x'},
    {"if-generation", required_argument, NULL, 'i'},
    {"key", required_argument, NULL, 'k'},
    {"job", required_argument, NULL, 'J'},
    {NULL, 0, NULL, 0},
};

/* Options may stand anywhere; ret_seen gets the letters of those that were there. */
static int read_options(int argc, char **argv, struct stg_ctl_options *ret,
                        char *ret_seen)
{
    int letter;
    while ((letter = getopt_long(argc, argv, ":ho:", long_options, NULL)) != -1) {
        if (letter == '?' || letter == ':') {
            char text[256];
            const char *word = argv[optind - 1];
            snprintf(text, sizeof(text),
                     letter == '?' ? "unknown option \"%s\"" : "%s needs a value", word);
            return usage_error(text, NULL);
        }
        if (strchr(ret_seen, letter) == NULL)
            ret_seen[strlen(ret_seen)] = (char)letter;
        if (letter == 'd')
            ret->runtime_dir = optarg;
        if (letter == 'n')
            ret->name = optarg;
        if (letter == 'g')
            ret->gate = optarg;
        if (letter == 'i' && read_generation(optarg, ret) != 0)
            return EXIT_USAGE;
        if (letter == 't')
            ret->token_file = optarg;
        if (letter == 'o')
            ret->output = optarg;
        if (letter == 'k')
            ret->key = optarg;
        if (letter == 'J')
            ret->job = optarg;
        if ((letter == 'l' && read_number("--limit", optarg, &ret->limit) != 0) ||
            (letter == 'c' && read_number("--count", optarg, &ret->count) != 0) ||
            (letter == 'T' && read_number("--timeout", optarg, &ret->timeout) != 0) ||
            (letter == 'b' && read_number("--batches", optarg, &ret->batches) != 0) ||
            (letter == 's' && read_number("--seconds", optarg, &ret->seconds) != 0))
            return EXIT_USAGE;
    }
    ret->json = strchr(ret_seen, 'j') != NULL;
    ret->replace = strchr(ret_seen, 'r') != NULL;
    ret->force = strchr(ret_seen, 'F') != NULL;
    ret->warm = strchr(ret_seen, 'W') != NULL;
    ret->text = strchr(ret_seen, 'x') != NULL;
    ret->rows = strchr(ret_seen, 'w') != NULL;
    ret->dot = strchr(ret_seen, 'D') != NULL;
    ret->disable = strchr(ret_seen, 'E') != NULL;
    ret->ideal = strchr(ret_seen, 'I') != NULL;
    return 0;
}

/* Does the command take what was given? */
static int check_options(const struct command *command,
                         const struct stg_ctl_options *options, const char *seen)
{
    for (const struct option *o = long_options; o->name != NULL; o++) {
        if (strchr("jdh", o->val) != NULL || strchr(command->options, o->val) != NULL ||
            strchr(seen, o->val) == NULL)
            continue;
        char text[128];
        snprintf(text, sizeof(text), "%s takes no --%s", command->name, o->name);
        return usage_error(text, NULL);
    }
    if (options->json && options->rows)
        return usage_error(
            "--json prints one line per batch and cannot be combined with --rows", NULL);
    if (options->warm && options->gate != NULL)
        return usage_error("--warm cannot be combined with --gate: a warm apply lasts as "
                           "long as a connection",
                           NULL);
    if (options->disable && options->timeout > 0)
        return usage_error("--disable does not wait: leave out --timeout", NULL);
    if (options->ideal && options->dot)
        return usage_error("--ideal cannot be combined with --dot", NULL);
    if (strchr(command->options, 'I') != NULL && options->seconds > 0 && !options->ideal)
        return usage_error("--seconds is for --ideal", NULL);
    if (options->json && options->dot)
        return usage_error("--json cannot be combined with --dot", NULL);
    return 0;
}

static int check_arguments(const struct command *command, int argc, char **argv,
                           struct stg_ctl_options *ret)
{
    static const int most[] = {[ARGUMENT_NONE] = 0,
                               [ARGUMENT_MAYBE] = 1,
                               [ARGUMENT_ONE] = 1,
                               [ARGUMENT_PAIR] = 2,
                               [ARGUMENT_SOME] = INT_MAX};
    if (argc > most[command->argument])
        return usage_error("too many arguments:", argv[argc - 1]);
    if (argc == 0 && command->argument >= ARGUMENT_ONE) {
        char text[64];
        snprintf(text, sizeof(text), "%s needs", command->name);
        return usage_error(text, command->synopsis);
    }
    ret->argument = argc > 0 ? argv[0] : NULL;
    ret->arguments = argv;
    ret->n_arguments = argc;
    return 0;
}

/* "cache list" is one command in two words: they become one argument. */
static void join_words(int argc, char **argv, char *joined, size_t bytes)
{
    if (optind + 1 >= argc || strcmp(argv[optind], "cache") != 0)
        return;
    snprintf(joined, bytes, "cache %s", argv[optind + 1]);
    if (find_command(joined) != NULL)
        argv[++optind] = joined;
}

int main(int argc, char **argv)
{
    stg_log_fill_standard();
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        argv[1] += 2;
    struct stg_ctl_options options = {0};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        stg_ctl_errors_as_json(strcmp(argv[i], "--json") == 0);
    char seen[32] = "", joined[64];
    int status = read_options(argc, argv, &options, seen);
    if (status != 0)
        return status;
    join_words(argc, argv, joined, sizeof(joined));
    bool wants_help = strchr(seen, 'h') != NULL;
    const char *name = optind < argc ? argv[optind] : NULL;
    if (name == NULL || strcmp(name, "help") == 0) {
        print_usage(wants_help || name != NULL ? stdout : stderr);
        return wants_help || name != NULL ? stg_ctl_finish() : EXIT_USAGE;
    }
    const struct command *command = find_command(name);
    if (command == NULL)
        return unknown_command(name);
    if (wants_help)
        return print_help(command);
    status = check_options(command, &options, seen);
    if (status == 0)
        status = check_arguments(command, argc - optind - 1, argv + optind + 1, &options);
    return status != 0 ? status : command->run(&options);
}
