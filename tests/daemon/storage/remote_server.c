/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/storage/remote_server.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/storage/http/fetcher.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static struct {
    pid_t pid;
    int to;
    int port;
    char log[4096];
} server;

static void run(const char *script, int in, int out)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", getenv("STG_REMOTE_SERVERS"), script);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in, 0);
    dup2(out, 1);
    execlp("python3", "python3", path, server.log, (char *)NULL);
    _exit(127);
}

void stg_test_server_start_as(const char *script)
{
    int to[2], from[2];
    char line[32] = "";
    if (getenv("STG_REMOTE_SERVERS") == NULL)
        FAIL("STG_REMOTE_SERVERS is not set: it is tests/daemon");
    snprintf(server.log, sizeof(server.log), "%s", stg_test_path("requests"));
    /* A proxy of the machine must not serve loopback. */
    setenv("no_proxy", "127.0.0.1", 1);
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    server.pid = fork();
    CHECK(server.pid >= 0);
    if (server.pid == 0) {
        close(to[1]);
        close(from[0]);
        run(script, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    server.to = to[1];
    FILE *said = fdopen(from[0], "r");
    if (said == NULL || fgets(line, sizeof(line), said) == NULL)
        FAIL("%s did not start", script);
    fclose(said);
    server.port = atoi(line);
    CHECK(server.port > 0);
}

void stg_test_server_start(void)
{
    stg_test_server_start_as("remote_server.py");
}

int stg_test_server_port(void)
{
    return server.port;
}

void stg_test_server_stop(void)
{
    stg_fetchers_finish();
    close(server.to);
    kill(server.pid, SIGTERM);
    waitpid(server.pid, NULL, 0);
    server.pid = 0;
}

const char *stg_test_server_url(const char *fmt, ...)
{
    static char urls[16][1024];
    static unsigned turn;
    char *url = urls[turn++ % 16];
    int n = snprintf(url, 1024, "http://127.0.0.1:%d", server.port);
    va_list args;
    va_start(args, fmt);
    vsnprintf(url + n, 1024 - (size_t)n, fmt, args);
    va_end(args);
    return url;
}

char *stg_test_server_log(void)
{
    FILE *file = fopen(server.log, "r");
    CHECK(file != NULL);
    char *text = NULL;
    size_t size = 0;
    if (getdelim(&text, &size, '\0', file) < 0)
        text[0] = '\0';
    fclose(file);
    return text;
}

unsigned stg_test_server_asked(const char *part)
{
    char *log = stg_test_server_log(), *rest = log, *line;
    unsigned n = 0;
    while ((line = strsep(&rest, "\n")) != NULL)
        n += line[0] != '\0' && strstr(line, part) != NULL;
    free(log);
    return n;
}

uint8_t stg_test_server_value(uint64_t i)
{
    return (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16) * 13);
}

int stg_test_open_url(const char *url, const struct stg_file_user *identity,
                      struct stg_source **ret, struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    CHECK_OK(stg_storage_find(url, &storage, &path, err), *err);
    return storage->open(path, identity, ret, err);
}

int64_t stg_test_read_url(const char *url, uint8_t salt, struct stg_err *err)
{
    static const struct stg_file_user root = {.uid = 0};
    struct stg_source *source;
    uint8_t buf[10000];
    uint64_t at = 0;
    int64_t n = stg_test_open_url(url, &root, &source, err);
    if (n < 0)
        return n;
    while ((n = source->storage->read(source, at, buf, sizeof(buf), err)) > 0) {
        for (int64_t i = 0; i < n; i++)
            CHECK_INT(buf[i], (uint8_t)(stg_test_server_value(at + (uint64_t)i) + salt));
        at += (uint64_t)n;
    }
    source->storage->close(source);
    return n < 0 ? n : (int64_t)at;
}

void stg_test_fetch_with(uint32_t stall_millis, uint32_t retries)
{
    const struct stg_remote_settings settings = {.read_ahead_bytes = 4u << 20,
                                                 .range_bytes = STG_TEST_RANGE_BYTES,
                                                 .ranges_per_file = 4,
                                                 .connect_timeout_millis = 5000,
                                                 .stall_timeout_millis = stall_millis,
                                                 .retries = retries};
    stg_fetchers_configure(&settings);
}
