/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/metrics/accept.h"
#include "client/metrics/http.h"
#include "tests/check.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/server.h"

#define LIMIT_NS 1000000000

static struct stg_http *http;
static int listener = -1;
static struct sockaddr_un address = {.sun_family = AF_UNIX};

/* An abstract address: nothing is left behind. */
static void start(void)
{
    static struct stg_origin origin = {.runtime_dir = "/nonexistent",
                                       .limit_ns = LIMIT_NS};
    static struct stg_scrape scrape = {.origin = &origin};
    static struct stg_api *api;
    struct stg_err err = {0};
    api = stg_api_create(&scrape);
    FUZZ_CHECK(api != NULL);
    snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "stg-fuzz-%d",
             (int)getpid());
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(listener >= 0);
    FUZZ_CHECK(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
               listen(listener, 8) == 0);
    FUZZ_CHECK_TEXT(stg_http_create(&scrape, api, LIMIT_NS, &http, &err) == 0, err.text);
    stg_test_keeps_descriptors();
}

static void turn(void)
{
    for (int i = 0; i < 3; i++)
        (void)stg_http_run(http);
}

void stg_fuzz_http(const uint8_t *data, size_t bytes)
{
    char answer[4096];
    if (http == NULL)
        start();
    if (bytes < 1)
        return;
    size_t first = data[0] < bytes - 1 ? data[0] : bytes - 1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    FUZZ_CHECK(stg_http_has_room(http));
    stg_http_accept(http, listener);
    (void)send(fd, data + 1, first, MSG_NOSIGNAL);
    turn();
    (void)send(fd, data + 1 + first, bytes - 1 - first, MSG_NOSIGNAL);
    turn();
    ssize_t n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
    FUZZ_CHECK(n < 7 || memcmp(answer, "HTTP/1.", 7) == 0);
    close(fd);
    turn();
    char *accept = malloc(bytes + 1);
    FUZZ_CHECK(accept != NULL);
    memcpy(accept, data, bytes);
    accept[bytes] = '\0';
    (void)stg_metrics_wants_open(accept);
    free(accept);
}
