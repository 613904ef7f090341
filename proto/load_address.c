/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/load.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

/* Splits at the last colon. Returns the port; 0: there is none. */
static unsigned long split(const char *text, char *ret_host, size_t bytes)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon != NULL ? (size_t)(colon - text) : 0;
    if (colon == NULL || n >= bytes || colon[1] < '0' || colon[1] > '9')
        return 0;
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    bool has_brackets = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    snprintf(ret_host, bytes, "%.*s", (int)(has_brackets ? n - 2 : n),
             text + has_brackets);
    bool is_bare = strchr(ret_host, ':') != NULL && !has_brackets;
    return *end == '\0' && port <= 65535 && !is_bare ? port : 0;
}

int stg_load_address(const char *text, struct sockaddr_storage *ret, struct stg_err *err)
{
    char host[INET6_ADDRSTRLEN + 2] = "";
    unsigned long port = split(text, host, sizeof(host));
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons((uint16_t)port)};
    memset(ret, 0, sizeof(*ret));
    if (port != 0 && inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        memcpy(ret, &v4, sizeof(v4));
        return 0;
    }
    if (port != 0 && inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        memcpy(ret, &v6, sizeof(v6));
        return 0;
    }
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "\"%.64s\" is not an address with a port, such as 127.0.0.1:9464 or "
                   "[::1]:9464",
                   text);
}
