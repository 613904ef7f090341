/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/worker/path.h"

#include <string.h>
#include <strings.h>

#define DIGEST_DIGITS 64u

bool stg_worker_number(const char *text, const char **ret_end, uint64_t *ret)
{
    uint64_t n = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (n > (UINT64_MAX - 1 - digit) / 10 || (at > text && text[0] == '0'))
            return false;
        n = n * 10 + digit;
    }
    *ret_end = at;
    *ret = n;
    return at > text;
}

static bool read_digest(const char **at, struct stg_worker_ask *ret)
{
    size_t n = strspn(*at, "0123456789abcdef");
    if (n != DIGEST_DIGITS || (*at)[n] != '/')
        return false;
    memcpy(ret->digest, *at, n);
    ret->digest[n] = '\0';
    *at += n + 1;
    return true;
}

const char *stg_worker_path(const char *text, struct stg_worker_ask *ret)
{
    const char *at = text;
    if (!read_digest(&at, ret))
        return "the digest must have 64 hexadecimal digits in lower case";
    if (!stg_worker_number(at, &at, &ret->pass) || *at++ != '/')
        return "the pass must be a decimal number";
    if (!stg_worker_number(at, &at, &ret->first))
        return "the index must be a decimal number";
    ret->last = ret->first;
    if (*at == '-' && !stg_worker_number(at + 1, &at, &ret->last))
        return "the last index must be a decimal number";
    if (*at != '\0')
        return "the path ends with INDEX or FIRST-LAST";
    if (ret->last < ret->first || ret->last - ret->first >= STG_WORKER_MAX_BATCHES)
        return "a range has 1 to 64 batches";
    return NULL;
}

static bool is_number(const char *text, uint64_t *ret)
{
    const char *end;
    return text != NULL && stg_worker_number(text, &end, ret) && *end == '\0';
}

static const char *read_deal(const struct stg_worker_query *query,
                             struct stg_worker_ask *ret)
{
    uint64_t host, hosts;
    if (query->host == NULL && query->hosts == NULL && query->begin == NULL)
        return NULL;
    if (!is_number(query->host, &host) || !is_number(query->hosts, &hosts) ||
        !is_number(query->begin, &ret->deal_first))
        return "host, hosts and begin must all be decimal numbers";
    if (hosts == 0 || hosts > STG_DEAL_MAX_HOSTS)
        return "hosts is from 1 to 1048576";
    if (host >= hosts)
        return "host is from 0 to hosts - 1";
    ret->deal = (struct stg_deal){.n_hosts = (uint32_t)hosts, .host = (uint32_t)host};
    return NULL;
}

const char *stg_worker_query(const struct stg_worker_query *query,
                             struct stg_worker_ask *ret)
{
    ret->has_epoch = query->epoch != NULL || query->index != NULL;
    if (ret->has_epoch != 0 &&
        (!is_number(query->epoch, &ret->epoch) || !is_number(query->index, &ret->index)))
        return "epoch and index must both be decimal numbers";
    return read_deal(query, ret);
}

bool stg_worker_is_allowed(const char *header, const char *token)
{
    static const char scheme[] = "Bearer ";
    size_t n = sizeof(scheme) - 1;
    if (header == NULL || strncasecmp(header, scheme, n) != 0)
        return false;
    size_t given = strlen(header + n), want = strlen(token);
    unsigned differs = given != want;
    for (size_t i = 0; i < given; i++)
        differs |= (unsigned)(header[n + i] ^ token[want > 0 ? i % want : 0]);
    return differs == 0;
}
