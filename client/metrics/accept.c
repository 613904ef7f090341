/* SPDX-License-Identifier: Apache-2.0 */
#include "client/metrics/accept.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#define BLANKS " \t"

/* A part of the header, from `at` on, without blanks at its ends. */
struct part {
    const char *at;
    size_t n;
};

/* Returns the part up to `mark`, and moves *rest behind it. */
static struct part next_part(struct part *rest, char mark)
{
    const char *end = memchr(rest->at, mark, rest->n);
    size_t n = end != NULL ? (size_t)(end - rest->at) : rest->n;
    struct part ret = {rest->at, n};
    rest->at += n + (end != NULL);
    rest->n -= n + (end != NULL);
    while (ret.n > 0 && strchr(BLANKS, ret.at[0]) != NULL) {
        ret.at++;
        ret.n--;
    }
    while (ret.n > 0 && strchr(BLANKS, ret.at[ret.n - 1]) != NULL)
        ret.n--;
    return ret;
}

static bool is(struct part part, const char *text)
{
    return part.n == strlen(text) && strncasecmp(part.at, text, part.n) == 0;
}

/* Returns a weight such as "0.75" in thousandths. */
static unsigned read_weight(struct part part)
{
    unsigned ret = part.n > 0 && part.at[0] == '1' ? 1000 : 0;
    for (size_t i = 2, unit = 100; i < part.n && i < 5 && ret < 1000; i++, unit /= 10)
        ret += part.at[i] >= '0' && part.at[i] <= '9'
                   ? (unsigned)((size_t)(part.at[i] - '0') * unit)
                   : 0;
    return ret;
}

/* Returns the weight of a media type with these parameters; 0 of another version. */
static unsigned weigh(struct part parameters, bool is_open)
{
    unsigned ret = 1000;
    while (parameters.n > 0) {
        struct part value = next_part(&parameters, ';');
        struct part key = next_part(&value, '=');
        value = next_part(&value, ';');
        if (is(key, "q"))
            ret = read_weight(value);
        else if (is(key, "version") && is_open && !is(value, "1.0.0") &&
                 !is(value, "\"1.0.0\""))
            return 0;
    }
    return ret;
}

bool stg_metrics_wants_open(const char *accept)
{
    struct part rest = {accept, accept != NULL ? strlen(accept) : 0};
    unsigned open = 0, plain = 0;
    while (rest.n > 0) {
        struct part parameters = next_part(&rest, ',');
        struct part type = next_part(&parameters, ';');
        bool is_open = is(type, "application/openmetrics-text");
        bool is_plain = is(type, "text/plain") || is(type, "text/*") || is(type, "*/*");
        unsigned weight = is_open || is_plain ? weigh(parameters, is_open) : 0;
        if (is_open && weight > open)
            open = weight;
        if (is_plain && weight > plain)
            plain = weight;
    }
    return open > 0 && open >= plain;
}
