/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faults/inside.h"

#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/transport/admin.h"
#include "core/log.h"
#include "daemon/pipeline/catalog_priv.h"
#include "daemon/server/config.h"
#include "daemon/server/session.h"
#include "daemon/server/stop.h"
#include "tests/check.h"

int64_t inside_millis(int64_t millis)
{
    const char *factor = getenv("STG_TEST_SLOW");
    return factor != NULL && atoi(factor) > 0 ? millis * atoi(factor) : millis;
}

static int64_t now_millis(void)
{
    return (int64_t)(uv_hrtime() / 1000000);
}

/* ---- folders ---- */

const char *inside_file(struct inside *inside, const char *name, const char *text)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", inside->dir, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
    return path;
}

void inside_init(struct inside *inside)
{
    char text[1024];
    inject_immune(true);
    *inside = (struct inside){0};
    /* The daemon syncs files at each change: memory is faster. */
    snprintf(inside->dir, sizeof(inside->dir), "%s/stg-faults-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(inside->dir) != NULL);
    snprintf(inside->runtime, sizeof(inside->runtime), "%s/run", inside->dir);
    snprintf(inside->pipelines, sizeof(inside->pipelines), "%s/pipelines", inside->dir);
    snprintf(text, sizeof(text),
             "runtime_dir: %s\nstate_dir: %s/state\npipeline_dir: %s\n"
             "memory_budget: 134217728\ndefault_pipeline_memory: 4194304\n"
             "log_level: %s\n",
             inside->runtime, inside->dir, inside->pipelines, "error");
    snprintf(inside->config, sizeof(inside->config), "%s",
             inside_file(inside, "stagerd.yaml", text));
    setenv("STG_CUDA_DIR", inside->dir, 1);
    signal(SIGPIPE, SIG_IGN);
}

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    return remove(path);
}

void inside_finish(struct inside *inside)
{
    uv_library_shutdown(); /* the pipe of its signals, its threads */
    nftw(inside->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- the daemon ---- */

int inside_count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir != NULL);
    int n = 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static void on_probe(uv_async_t *probe)
{
    struct inside *inside = probe->data;
    struct inside_state state = {0};
    for (struct stg_session *s = inside->server.sessions; s != NULL; s = s->next)
        state.n_sessions++;
    for (struct stg_instance *i = inside->server.catalog->instances; i != NULL;
         i = i->next)
        state.n_instances++;
    for (struct stg_pipeline *p = inside->server.catalog->pipelines; p != NULL;
         p = p->next)
        state.n_pipelines++;
    state.max_clients = inside->server.settings->max_clients;
    state.budget_used = stg_budget_used(&inside->server.budget);
    pthread_mutex_lock(&inside->lock);
    inside->seen = state;
    inside->n_seen++;
    pthread_cond_signal(&inside->changed);
    pthread_mutex_unlock(&inside->lock);
}

static void *run_loop(void *owner)
{
    struct inside *inside = owner;
    stg_server_run(&inside->server);
    return NULL;
}

void inside_start(struct inside *inside)
{
    struct stg_err err = {0};
    CHECK_OK(stg_config_load(inside->config, &inside->settings, &err), err);
    stg_log_set_level((enum stg_log_level)0);
    CHECK_OK(stg_server_start(&inside->server, &inside->settings, inside->config, &err),
             err);
    pthread_mutex_init(&inside->lock, NULL);
    pthread_cond_init(&inside->changed, NULL);
    CHECK(uv_async_init(&inside->server.loop, &inside->probe, on_probe) == 0);
    inside->probe.data = inside;
    CHECK(pthread_create(&inside->thread, NULL, run_loop, inside) == 0);
}

void inside_stop(struct inside *inside)
{
    stg_stop_begin();
    pthread_join(inside->thread, NULL);
    stg_server_finish(&inside->server);
    stg_settings_finish(&inside->settings);
    pthread_cond_destroy(&inside->changed);
    pthread_mutex_destroy(&inside->lock);
}

static struct inside_state look(struct inside *inside)
{
    struct inside_state state;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += inside_millis(5000) / 1000;
    pthread_mutex_lock(&inside->lock);
    uint64_t n_seen = inside->n_seen;
    uv_async_send(&inside->probe);
    while (inside->n_seen == n_seen) {
        if (pthread_cond_timedwait(&inside->changed, &inside->lock, &until) != 0)
            FAIL("%s: the loop stands still", inside->doing);
    }
    state = inside->seen;
    pthread_mutex_unlock(&inside->lock);
    return state;
}

static void wait_for(struct inside *inside, bool with_instances, struct inside_state *ret)
{
    int64_t end = now_millis() + inside_millis(5000);
    struct timespec wait = {.tv_nsec = 200000};
    for (;;) {
        *ret = look(inside);
        if (ret->n_sessions == 0 && (ret->n_instances == 0 || with_instances))
            break;
        if (now_millis() > end)
            FAIL("%s: after 5 s there are still %u sessions and %u instances",
                 inside->doing, ret->n_sessions, ret->n_instances);
        nanosleep(&wait, NULL);
    }
    ret->n_blocks = inject_blocks();
    ret->n_fds = inside_count_fds();
}

void inside_wait_idle(struct inside *inside, struct inside_state *ret)
{
    wait_for(inside, false, ret);
}

void inside_wait_alone(struct inside *inside, struct inside_state *ret)
{
    wait_for(inside, true, ret);
}

/* ---- requests ---- */

int inside_call(struct inside *inside, struct stg_request *request, char text[512])
{
    struct stager *client;
    struct stg_reply reply;
    struct stg_err err = {0};
    int rc = stager_connect(inside->runtime, &client);
    if (rc < 0) {
        snprintf(text, 512, "%s", stager_error_text(NULL));
        return rc;
    }
    rc = stg_admin_call(client, request, &reply, &err);
    snprintf(text, 512, "%.500s", rc < 0 ? err.text : "");
    stager_disconnect(client);
    return rc;
}

int inside_apply(struct inside *inside, const char *name, const char *yaml, bool replace,
                 char text[512])
{
    struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                  .name = name,
                                  .text = yaml,
                                  .text_bytes = strlen(yaml),
                                  .file = "test.yaml",
                                  .replace = replace};
    return inside_call(inside, &request, text);
}

int inside_delete(struct inside *inside, const char *name, char text[512])
{
    struct stg_request request = {.kind = STG_REQUEST_DELETE, .name = name};
    return inside_call(inside, &request, text);
}
