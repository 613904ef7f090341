/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/host/heap.h"
#include "daemon/host/limit.h"
#include "daemon/host/text_file.h"
#include "daemon/pipeline/definition.h"
#include "daemon/pipeline_test/pipeline_test.h"
#include "daemon/server/check_config.h"
#include "daemon/server/config.h"
#include "daemon/server/server.h"
#include "daemon/server/stop.h"
#include "daemon/worker/run.h"
#include "proto/load.h"
#include "proto/wire.h"

static const char usage[] =
    "usage: stagerd [--config FILE] [--foreground] [--until-eof]\n"
    "       stagerd [--config FILE] --check PIPELINE.yaml\n"
    "       stagerd --test TESTS.yaml [--json]\n"
    "       stagerd [--config FILE] --check-config\n"
    "       stagerd --worker [--listen ADDRESS] [--token-file FILE] [--threads N]\n"
    "               [--tls-cert FILE --tls-key FILE] [--zone ZONE] [--until-eof]\n"
    "               PIPELINE.yaml...\n"
    "       stagerd --version | --help\n"
    "\n"
    "Runs the IO-bound half of training jobs and hands out batches through shared "
    "memory.\n"
    "\n"
    "  -c, --config FILE   settings; default " STG_CONFIG_PATH " if it exists\n"
    "  -f, --foreground    accepted for clarity: stagerd never leaves the foreground\n"
    "  -e, --until-eof     stop, as on SIGTERM, when standard input (a pipe) ends\n"
    "  -C, --check FILE    check a pipeline file without a daemon, print its features, "
    "exit\n"
    "      --test FILE     run the tests of a pipeline, as stagerctl test does, exit\n"
    "      --json          print their results as JSON\n"
    "      --check-config  check the settings and what they refer to, exit\n"
    "  -W, --worker        make batches of these pipelines for stagerds of other hosts\n"
    "      --listen, --token-file, --tls-cert, --tls-key, --zone, --threads\n"
    "                      of --worker: its address (127.0.0.1:9465), access, zone, and\n"
    "                      the batches that it makes at once (as many as CPUs)\n"
    "  -V, --version       the release, and the protocol versions it supports\n"
    "  -h, --help          this text\n"
    "\n"
    "Signals: SIGTERM and SIGINT stop it cleanly, SIGHUP reloads the settings.\n";

struct options {
    const char *config;
    const char *check;
    const char *test;
    bool check_config, until_eof, json, is_worker;
    struct stg_worker_options worker;
};

static int parse_options(int argc, char **argv, struct options *ret)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"foreground", no_argument, NULL, 'f'},
        {"until-eof", no_argument, NULL, 'e'},
        {"check", required_argument, NULL, 'C'},
        {"check-config", no_argument, NULL, 'S'},
        {"version", no_argument, NULL, 'V'},
        {"test", required_argument, NULL, 't'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {"worker", no_argument, NULL, 'W'},
        {"listen", required_argument, NULL, 'l'},
        {"token-file", required_argument, NULL, 'o'},
        {"tls-cert", required_argument, NULL, 'T'},
        {"tls-key", required_argument, NULL, 'k'},
        {"zone", required_argument, NULL, 'z'},
        {"threads", required_argument, NULL, 'n'},
        {0},
    };
    bool of_worker = false;
    int c;
    while ((c = getopt_long(argc, argv, "c:feC:VhW", options, NULL)) != -1) {
        switch (c) {
        case 'c': ret->config = optarg; break;
        case 'f': break;
        case 'e': ret->until_eof = true; break;
        case 'C': ret->check = optarg; break;
        case 't': ret->test = optarg; break;
        case 'j': ret->json = true; break;
        case 'S': ret->check_config = true; break;
        case 'W': ret->is_worker = true; break;
        case 'l': ret->worker.listen = optarg; break;
        case 'o': ret->worker.token_file = optarg; break;
        case 'T': ret->worker.certificate = optarg; break;
        case 'k': ret->worker.key = optarg; break;
        case 'z': ret->worker.zone = optarg; break;
        case 'n': ret->worker.threads = optarg; break;
        case 'V':
            printf("stagerd %s (protocol %u to %u)\n", STG_VERSION, STG_PROTOCOL_MIN,
                   STG_PROTOCOL_MAX);
            exit(0);
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); return -1;
        }
        of_worker |= strchr("loTkzn", c) != NULL;
    }
    if (of_worker && !ret->is_worker) {
        fprintf(stderr, "stagerd: --listen, --token-file, --tls-cert, --tls-key, "
                        "--zone and --threads need --worker\n");
        return -1;
    }
    ret->worker.until_eof = ret->until_eof;
    ret->worker.files = argv + optind;
    ret->worker.n_files = (size_t)(argc - optind);
    if (optind < argc && !ret->is_worker) {
        fprintf(stderr, "stagerd: unexpected \"%s\"\n%s", argv[optind], usage);
        return -1;
    }
    return 0;
}

/* Settings that were not asked for and cannot be read are as none. */
static int check_settings(const struct stg_definition *definition, const char *config,
                          struct stg_err *err)
{
    struct stg_settings settings = {0};
    int rc = stg_config_load(config, &settings, err);
    if (rc < 0 && config != NULL)
        return rc;
    rc = stg_definition_check_settings(definition, &settings, err);
    stg_settings_finish(&settings);
    return rc;
}

static int check(const char *path, const char *config)
{
    struct stg_err err = {0};
    char *text = NULL;
    size_t bytes;
    struct stg_definition *definition = NULL;
    struct stg_identity identity = {.uid = getuid(), .gid = getgid()};
    int rc = stg_text_file_read(path, STG_TEXT_MAX_BYTES, NULL, &text, &bytes, &err);
    if (rc == 0)
        rc = stg_definition_create(text, bytes, path, &identity, NULL, &definition, &err);
    if (rc == 0)
        rc = check_settings(definition, config, &err);
    free(text);
    if (rc < 0) {
        fprintf(stderr, "stagerd: %s: %s\n", stg_status_name(rc), err.text);
        stg_definition_unref(definition);
        return 1;
    }
    const struct stg_schema *boundary = stg_graph_boundary(definition->graph);
    for (size_t i = 0; i < boundary->n; i++) {
        const struct stg_component *c = &boundary->components[i];
        char shape[256];
        printf("%-24s %-8s %s\n", c->name, stg_dtype_name(c->dtype),
               stg_shape_text(c->shape, c->ndim, shape, sizeof(shape)));
    }
    printf("%s: ok\n", path);
    stg_definition_unref(definition);
    return 0;
}

static int run(struct stg_settings *settings, const struct options *options,
               struct stg_err *err)
{
    struct stg_server server;
    stg_log_set_level((enum stg_log_level)stg_log_level_from_name(settings->log_level));
    int rc = stg_server_start(&server, settings, options->config, err);
    if (rc == 0 && options->until_eof)
        rc = stg_server_stop_with_input(&server, err);
    if (rc < 0)
        stg_log(STG_LOG_ERROR, "%s", err->text);
    else
        stg_server_run(&server);
    stg_server_finish(&server);
    return rc;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct stg_settings settings;
    struct stg_err err = {0};
    stg_log_fill_standard();
    if (parse_options(argc, argv, &options) < 0)
        return 2;
    if (options.check != NULL)
        return check(options.check, options.config);
    if (options.test != NULL)
        return stg_pipeline_test_run(options.test, options.json);
    if (options.check_config) {
        stg_limit_raise_files();
        return stg_check_config(options.config);
    }

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write */
    stg_heap_bound();
    stg_limit_raise_files();
    if (options.is_worker)
        stg_worker_block_signals();
    int number = stg_log_start();
    if (number == 0 && !options.is_worker)
        number = stg_stop_start();
    if (number != 0) {
        stg_log(STG_LOG_ERROR,
                "cannot start the threads of the log and of signals: %s; raise TasksMax",
                strerror(number));
        return 1;
    }
    int rc = options.is_worker ? stg_worker_run(&options.worker, &err)
                               : stg_config_load(options.config, &settings, &err);
    if (rc < 0) {
        stg_log(STG_LOG_ERROR, "%s", err.text);
    } else if (!options.is_worker) {
        rc = run(&settings, &options, &err);
        stg_settings_finish(&settings);
    }
    stg_log_stop();
    return rc < 0 ? 1 : 0;
}
