/* SPDX-License-Identifier: Apache-2.0 */
#include "client/metrics/host.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define HOST_BYTES 64 /* longer than any address */

static bool is_port(const char *text)
{
    return text[0] == '\0' ||
           (text[0] == ':' && strspn(text + 1, "0123456789") == strlen(text + 1));
}

bool stg_metrics_is_local(const char *host)
{
    struct in6_addr address;
    char name[HOST_BYTES];
    bool is_v6 = host[0] == '[';
    host += is_v6;
    size_t n = strcspn(host, is_v6 ? "]" : ":");
    if (n == 0 || n >= sizeof(name) || (is_v6 && host[n] != ']') ||
        !is_port(host + n + is_v6))
        return false;
    memcpy(name, host, n);
    name[n] = '\0';
    return is_v6 ? inet_pton(AF_INET6, name, &address) == 1
                 : strcasecmp(name, "localhost") == 0 ||
                       inet_pton(AF_INET, name, &address) == 1;
}
