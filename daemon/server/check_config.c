/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/check_config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"
#include "daemon/host/helper.h"
#include "daemon/host/limit.h"
#include "daemon/host/pool.h"
#include "daemon/host/share.h"
#include "daemon/host/text_file.h"
#include "daemon/operations/operations.h"
#include "daemon/pipeline/store.h"
#include "daemon/server/config.h"
#include "daemon/server/rules.h"
#include "daemon/storage/confine.h"
#include "proto/load.h"

struct check {
    char path[4096]; /* of the settings; "" when there is none */
    char *text;
    struct stg_settings settings;
    unsigned n_mistakes;
};

static void say(struct check *check, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct check *check, const char *key, const char *fmt, ...)
{
    unsigned line = check->text != NULL ? stg_config_line(check->text, key) : 0;
    va_list args;
    check->n_mistakes++;
    if (line != 0)
        fprintf(stderr, "%s:%u: %s: ", check->path, line, key);
    else
        fprintf(stderr, "%s: %s (the default): ",
                check->path[0] != '\0' ? check->path : "stagerd", key);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

/* Checks that stagerd can write the folder, or can make it. */
static void check_folder(struct check *check, const char *key, const char *path)
{
    char above[4096];
    struct stat st;
    snprintf(above, sizeof(above), "%s", path);
    while (stat(above, &st) < 0 && (errno == ENOENT || errno == ENOTDIR) &&
           strrchr(above, '/') > above)
        *strrchr(above, '/') = '\0';
    if (stat(above, &st) == 0 && !S_ISDIR(st.st_mode))
        say(check, key, "%s is not a directory", above);
    else if (access(above, W_OK | X_OK) < 0)
        say(check, key, "%s: cannot write into %s: %s", path, above, strerror(errno));
}

static void check_socket_path(struct check *check)
{
    size_t most = 107 - strlen("/attach.sock");
    if (strlen(check->settings.runtime_dir) > most)
        say(check, "runtime_dir",
            "%s is longer than the %zu bytes that the path of a socket allows",
            check->settings.runtime_dir, most);
}

static void check_metrics_address(struct check *check)
{
    struct sockaddr_storage address;
    struct stg_err err = {0};
    const char *text = check->settings.metrics_address;
    if (text[0] != '\0' && stg_load_address(text, &address, &err) < 0)
        say(check, "metrics_address", "%s", err.text);
}

static void check_operations_log(struct check *check)
{
    const char *where = check->settings.operations_log;
    if (where[0] != '/')
        return; /* stg_config_load has checked it */
    int fd = open(where, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    char folder[4096];
    snprintf(folder, sizeof(folder), "%s", where);
    *strrchr(folder, '/') = '\0';
    if (fd >= 0)
        close(fd);
    else if (errno != ENOENT)
        say(check, "operations_log", "%s: %s", where, strerror(errno));
    else if (access(folder[0] != '\0' ? folder : "/", W_OK | X_OK) < 0)
        say(check, "operations_log", "%s: cannot write into %s: %s", where, folder,
            strerror(errno));
}

static void check_group(struct check *check)
{
    const char *group = check->settings.access_group;
    bool is_set =
        check->text != NULL && stg_config_line(check->text, "access_group") != 0;
    if (is_set && group[0] != '\0' && stg_group_id(group) == (gid_t)-1)
        say(check, "access_group", "there is no group %s: `groupadd --system %s`", group,
            group);
}

static void check_pools(struct check *check)
{
    struct stg_err err = {0};
    struct stg_pools *pools = NULL;
    if (stg_pools_create(check->settings.thread_pools, check->settings.n_thread_pools,
                         &pools, &err) < 0)
        say(check, "thread_pools", "%s", err.text);
    stg_pools_destroy(pools);
}

static void check_quotas(struct check *check)
{
    struct stg_err err = {0};
    if (stg_share_configure(check->settings.quotas, check->settings.n_quotas, &err) < 0)
        say(check, "quotas", "%s", err.text);
    stg_share_finish();
}

static void check_rules(struct check *check)
{
    const struct stg_read_rules *read = &check->settings.read_rules;
    struct stg_rules *rules = NULL;
    struct stg_err err = {0};
    char normal[4096];
    stg_rules_create(&check->settings.rules, &rules, &err);
    stg_rules_destroy(rules);
    if (err.code != 0)
        say(check, "rules", "%s", err.text);
    for (size_t i = 0; i < read->n_paths; i++) {
        if (read->paths[i][0] != '/')
            say(check, "paths", "%s is not an absolute path", read->paths[i]);
    }
    for (size_t i = 0; i < read->n_urls; i++) {
        if (!stg_confine_normal(read->urls[i], normal, sizeof(normal)))
            say(check, "urls", "%s is not a URL such as https://host/folder/",
                read->urls[i]);
    }
}

static void check_limits(struct check *check)
{
    struct stg_err err = {0};
    if (stg_limit_check_memory("", check->settings.memory_budget, &err) < 0)
        say(check, "memory_budget", "%s", err.text);
}

static void check_gate(struct check *check)
{
    char path[4096];
    struct stg_err err = {0};
    if (check->settings.gate_enable &&
        stg_helper_find("gate", "stager-gate", path, sizeof(path), &err) < 0)
        say(check, "gate", "%s, or write `gate: {enable: false}`", err.text);
}

static void check_remote(struct check *check)
{
    const struct stg_remote_settings *remote = &check->settings.remote;
    if (remote->cache_dir[0] != '\0')
        check_folder(check, "cache_dir", remote->cache_dir);
    for (size_t i = 0; i < remote->n_stores; i++) {
        const char *file = remote->stores[i].credentials_file;
        if (file != NULL && file[0] != '\0' && access(file, R_OK) < 0)
            say(check, "credentials_file", "of prefix %s: %s: %s",
                remote->stores[i].prefix, file, strerror(errno));
    }
}

static void check_etcd(struct check *check)
{
    const struct stg_etcd_spec *etcd = &check->settings.cluster.etcd;
    const struct {
        const char *key, *path;
    } files[] = {{"password_file", etcd->password_file},
                 {"ca_file", etcd->ca_file},
                 {"cert_file", etcd->cert_file},
                 {"key_file", etcd->key_file}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (files[i].path[0] != '\0' && access(files[i].path, R_OK) < 0)
            say(check, files[i].key, "%s: %s", files[i].path, strerror(errno));
    }
}

static void check_cluster(struct check *check)
{
    check_etcd(check);
    const char *dir = check->settings.cluster.compare_dir;
    struct stat st;
    if (dir[0] == '\0')
        return;
    if (dir[0] != '/')
        say(check, "compare_dir", "%s is not an absolute path", dir);
    else if (stat(dir, &st) < 0)
        say(check, "compare_dir", "%s: %s", dir, strerror(errno));
    else
        check_folder(check, "compare_dir", dir);
}

/* ---- pipelines ---- */

static int check_pipeline(struct check *check, const char *path, struct stg_err *err)
{
    char *text;
    size_t bytes;
    struct stat st;
    struct stg_definition *definition = NULL;
    int rc = stg_text_file_read(path, STG_TEXT_MAX_BYTES, NULL, &text, &bytes, err);
    if (rc < 0)
        return rc;
    struct stg_identity identity = {.uid = getuid(), .gid = getgid()};
    if (stat(path, &st) == 0)
        identity = (struct stg_identity){.uid = st.st_uid, .gid = st.st_gid};
    rc = stg_definition_create(text, bytes, path, &identity, NULL, &definition, err);
    if (rc == 0)
        rc = stg_definition_check_settings(definition, &check->settings, err);
    stg_definition_unref(definition);
    free(text);
    return rc;
}

static void check_pipelines(struct check *check)
{
    const char *dir = check->settings.pipeline_dir;
    struct dirent **entries;
    int n = stg_store_list(dir, &entries);
    if (n < 0 && errno != ENOENT)
        say(check, "pipeline_dir", "%s: %s", dir, strerror(errno));
    for (int i = 0; i < n; i++) {
        char path[4096];
        struct stg_err err = {0};
        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        if (check_pipeline(check, path, &err) < 0)
            fprintf(stderr, "%s (stagerd does not load this pipeline)\n", err.text);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

int stg_check_config(const char *path)
{
    struct check check = {0};
    struct stg_err err = {0};
    size_t bytes;
    if (stg_config_load(path, &check.settings, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    stg_config_find(path, check.path, sizeof(check.path));
    if (stg_text_file_read(check.path, STG_TEXT_MAX_BYTES, NULL, &check.text, &bytes,
                           &err) < 0)
        check.path[0] = '\0';
    check_folder(&check, "runtime_dir", check.settings.runtime_dir);
    check_socket_path(&check);
    check_metrics_address(&check);
    check_folder(&check, "state_dir", check.settings.state_dir);
    check_operations_log(&check);
    check_group(&check);
    check_pools(&check);
    check_limits(&check);
    check_quotas(&check);
    check_rules(&check);
    check_gate(&check);
    check_remote(&check);
    check_cluster(&check);
    check_pipelines(&check);
    if (check.n_mistakes == 0)
        printf("%s: ok\n", check.path[0] != '\0' ? check.path : "no settings file");
    free(check.text);
    stg_settings_finish(&check.settings);
    return check.n_mistakes == 0 ? 0 : 1;
}
