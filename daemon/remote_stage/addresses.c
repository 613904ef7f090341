/* SPDX-License-Identifier: Apache-2.0
 *
 * URLs of workers, and the addresses of their names. A name with several addresses, such
 * as that of a headless Service of Kubernetes, is as many workers.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "daemon/remote_stage/priv.h"
#include "daemon/storage/confine.h"
#include "daemon/storage/http/attempt.h"
#include "daemon/storage/http/url.h"

static int check(const char *url, struct stg_err *err)
{
    struct stg_url_place place;
    return stg_url_place(url, &place)
               ? stg_confine_check_url(url, err)
               : stg_err(err, -STAGER_INVALID_ARGUMENT,
                         "\"%.128s\" is not the URL of a worker, such as "
                         "http://host:9465",
                         url);
}

int stg_remote_check(const struct stg_remote_workers *workers, struct stg_err *err)
{
    for (size_t i = 0; i < workers->n_urls; i++) {
        int rc = check(workers->urls[i], err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "remote.workers");
    }
    return 0;
}

static void add(struct stg_worker_list *list, const char *url,
                const struct stg_url_place *place, const char *address)
{
    if (list->n == STG_MAX_WORKERS) {
        list->has_more = true;
        return;
    }
    bool is_6 = strchr(address, ':') != NULL;
    struct stg_worker_address *to = &list->each[list->n++];
    snprintf(to->url, sizeof(to->url), "%s", url);
    snprintf(to->address, sizeof(to->address), "%s", address);
    snprintf(to->connect, sizeof(to->connect), "%s:%s:%s%s%s:%s", place->host,
             place->port, is_6 ? "[" : "", address, is_6 ? "]" : "", place->port);
    if (strcmp(place->host, address) == 0)
        snprintf(to->shown, sizeof(to->shown), "%.300s", url);
    else
        snprintf(to->shown, sizeof(to->shown), "%.300s (%s)", url, address);
}

static void add_all(struct stg_worker_list *list, const char *url,
                    const struct stg_url_place *place, const struct addrinfo *all,
                    bool may_loop, struct stg_err *err)
{
    struct stg_object object = {.loopback = may_loop};
    char address[64];
    for (const struct addrinfo *at = all; at != NULL; at = at->ai_next) {
        if (getnameinfo(at->ai_addr, at->ai_addrlen, address, sizeof(address), NULL, 0,
                        NI_NUMERICHOST) != 0)
            continue;
        const char *why = stg_attempt_refuses(&object, address);
        if (why == NULL)
            add(list, url, place, address);
        else
            stg_err(err, -STAGER_PERMISSION_DENIED,
                    "%.300s: stagerd asks no worker there: the address %s", url, why);
    }
}

int stg_worker_list_add(struct stg_worker_list *list, const char *url, bool may_loop,
                        struct stg_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *all = NULL;
    struct stg_url_place place;
    char host[256];
    int rc = check(url, err);
    if (rc < 0 || !stg_url_place(url, &place))
        return 0;
    bool is_6 = place.host[0] == '[';
    snprintf(host, sizeof(host), "%.*s", (int)(strlen(place.host) - 2 * is_6),
             place.host + is_6);
    int number = getaddrinfo(host, place.port, &hints, &all);
    if (number == 0) {
        add_all(list, url, &place, all, may_loop, err);
        freeaddrinfo(all);
        return 0;
    }
    stg_err(err, -STAGER_UNAVAILABLE, "%.300s: cannot look the name up: %s", url,
            gai_strerror(number));
    return number == EAI_NONAME || number == EAI_NODATA ? 0 : -STAGER_UNAVAILABLE;
}
