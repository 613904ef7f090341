/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/cluster/etcd_server.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

#define MAX_STARTS 5

unsigned stg_etcd_server_slow(unsigned number)
{
    const char *text = getenv("STG_TEST_SLOW");
    return number * (text != NULL ? (unsigned)atoi(text) : 1);
}

struct stg_etcd_settings stg_etcd_server_settings(const char *const *endpoints, size_t n)
{
    return (struct stg_etcd_settings){.endpoints = endpoints,
                                      .n_endpoints = n,
                                      .timeout_millis = stg_etcd_server_slow(30000)};
}

static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, bytes) == 0 &&
          getsockname(fd, (struct sockaddr *)&at, &bytes) == 0);
    close(fd);
    return ntohs(at.sin_port);
}

static void prepare(struct stg_etcd_server *server)
{
    if (server->folder[0] == '\0') {
        strcpy(server->folder, "/tmp/stg-etcd-XXXXXX");
        CHECK(mkdtemp(server->folder) != NULL);
    }
    if (server->port == 0) {
        server->port = free_port();
        server->peer_port = free_port();
    }
    snprintf(server->url, sizeof(server->url), "%s://127.0.0.1:%d",
             server->scheme != NULL ? server->scheme : "http", server->port);
}

static void become_etcd(const struct stg_etcd_server *server, pid_t test)
{
    char data[96], peer[64], cluster[160], log[96];
    snprintf(data, sizeof(data), "%s/data", server->folder);
    snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", server->peer_port);
    snprintf(cluster, sizeof(cluster), "default=%s", peer);
    snprintf(log, sizeof(log), "%s/log", server->folder);
    const char *args[32] = {"etcd", "--data-dir", data, "--listen-client-urls",
                            server->url, "--advertise-client-urls", server->url,
                            "--listen-peer-urls", peer, "--initial-advertise-peer-urls",
                            peer, "--initial-cluster", cluster,
                            /* The least time of a lease follows from it. */
                            "--heartbeat-interval", "20", "--election-timeout", "200"};
    for (size_t n = 17, i = 0; server->more[i] != NULL; i++)
        args[n++] = server->more[i];
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fd < 0 || getppid() != test || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
        _exit(126);
    execvp(args[0], (char **)(uintptr_t)args);
    _exit(127);
}

void stg_etcd_server_launch(struct stg_etcd_server *server)
{
    pid_t test = getpid();
    prepare(server);
    server->pid = fork();
    CHECK(server->pid >= 0);
    if (server->pid == 0)
        become_etcd(server, test);
}

/* Whether something listens on the port. */
static bool listens(const struct stg_etcd_server *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)server->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is = fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
    close(fd);
    return is;
}

/* Returns false: it has ended. */
static bool wait_for(struct stg_etcd_server *server)
{
    int status;
    while (!listens(server)) {
        if (waitpid(server->pid, &status, WNOHANG) == server->pid) {
            server->pid = 0;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
                stg_etcd_server_finish(server);
                SKIP("etcd is not installed (Debian's package etcd-server)");
            }
            return false;
        }
        usleep(10000);
    }
    return true;
}

/* Another process may have taken a port meanwhile. */
void stg_etcd_server_start(struct stg_etcd_server *server)
{
    for (int i = 0; i < MAX_STARTS; i++) {
        stg_etcd_server_launch(server);
        if (wait_for(server))
            return;
        server->port = 0;
    }
    FAIL("etcd does not start: see %s/log", server->folder);
}

void stg_etcd_server_kill(struct stg_etcd_server *server)
{
    if (server->pid == 0)
        return;
    CHECK(kill(server->pid, SIGKILL) == 0);
    CHECK(waitpid(server->pid, NULL, 0) == server->pid);
    server->pid = 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

void stg_etcd_server_finish(struct stg_etcd_server *server)
{
    stg_etcd_server_kill(server);
    CHECK(nftw(server->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

static char answer[1 << 16];

static size_t on_body(char *bytes, size_t size, size_t count, void *userdata)
{
    size_t *n = userdata;
    CHECK(*n + size * count < sizeof(answer));
    memcpy(answer + *n, bytes, size * count);
    *n += size * count;
    answer[*n] = '\0';
    return size * count;
}

const char *stg_etcd_server_post(const struct stg_etcd_server *server, const char *token,
                                 const char *path, const char *body)
{
    char url[128], header[256];
    size_t n = 0;
    long status = 0;
    CURL *easy = curl_easy_init();
    snprintf(url, sizeof(url), "%s%s", server->url, path);
    snprintf(header, sizeof(header), "Authorization: %s", token != NULL ? token : "");
    struct curl_slist *headers = curl_slist_append(NULL, header);
    answer[0] = '\0';
    CHECK(easy != NULL && headers != NULL);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &n);
    CHECK_INT(curl_easy_perform(easy), CURLE_OK);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(easy);
    if (status != 200)
        FAIL("%s: %ld: %s", path, status, answer);
    return answer;
}
