/* SPDX-License-Identifier: Apache-2.0 */
#include "core/state.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/fingerprint.h"
#include "core/param.h"

/* The fields of the text: numbers, numbers of 32 bits, hexadecimal numbers, and one
 * string. */
enum kind { NUMBER, SMALL, HEX, STRING };

/* Which states have the field: all; those of a split among several clients; those of
 * records that hosts divide; those of hosts that have weights. */
enum part { ALWAYS, SHARED, DIVIDED, WEIGHTED };

struct field {
    const char *key;
    enum kind kind;
    size_t offset;
    size_t bytes; /* of a string */
    enum part part;
};

#define FIELD(key, kind, member)                                                         \
    {                                                                                    \
        key, kind, offsetof(struct stg_state, member),                                   \
            sizeof(((struct stg_state *)NULL)->member), ALWAYS                           \
    }
#define OF_SPLIT(key, kind, member)                                                      \
    {                                                                                    \
        key, kind, offsetof(struct stg_state, member),                                   \
            sizeof(((struct stg_state *)NULL)->member), SHARED                           \
    }
#define HOSTS(key, member, part)                                                         \
    {                                                                                    \
        key, NUMBER, offsetof(struct stg_state, member),                                 \
            sizeof(((struct stg_state *)NULL)->member), part                             \
    }

static const struct field fields[] = {
    FIELD("order", NUMBER, order),
    FIELD("steps", STRING, steps),
    FIELD("pass", NUMBER, pass),
    FIELD("position", NUMBER, place.elements),
    FIELD("items", NUMBER, place.items),
    FIELD("iteration", NUMBER, place.epoch),
    FIELD("index", NUMBER, place.index),
    FIELD("passed", SMALL, place.passed),
    FIELD("errors", SMALL, place.errors_from),
    FIELD("rows", NUMBER, rows),
    FIELD("told", NUMBER, n_delivered),
    FIELD("ranks", NUMBER, ranks),
    FIELD("files", NUMBER, data.n_files),
    FIELD("bytes", NUMBER, data.bytes),
    FIELD("names", HEX, data.names),
    FIELD("data", HEX, data.sum),
    HOSTS("hosts", hosts, DIVIDED),
    HOSTS("base", base, DIVIDED),
    HOSTS("weight", weight, WEIGHTED),
    OF_SPLIT("run", HEX, run),
    OF_SPLIT("consumers", NUMBER, consumers),
    OF_SPLIT("consumer", NUMBER, consumer),
    OF_SPLIT("batch", NUMBER, batch),
    OF_SPLIT("start_position", NUMBER, start.elements),
    OF_SPLIT("start_items", NUMBER, start.items),
    OF_SPLIT("start_iteration", NUMBER, start.epoch),
    OF_SPLIT("start_index", NUMBER, start.index),
    OF_SPLIT("start_passed", SMALL, start.passed),
    OF_SPLIT("start_errors", SMALL, start.errors_from),
    OF_SPLIT("client", STRING, client),
    OF_SPLIT("taken", STRING, taken),
    OF_SPLIT("n_before", NUMBER, n_before),
    OF_SPLIT("before", STRING, before),
};

#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))
#define VERSION_KEY "stager_state"
#define SUM_KEY "sum"

static void *member_of(const struct stg_state *state, const struct field *field)
{
    return (char *)(uintptr_t)state + field->offset;
}

static uint64_t number_of(const struct stg_state *state, const struct field *field)
{
    const void *at = member_of(state, field);
    return field->kind == SMALL ? *(const uint32_t *)at : *(const uint64_t *)at;
}

static bool has_part(const struct stg_state *state, enum part part)
{
    return part == ALWAYS || (part == SHARED && state->consumers != 0) ||
           (part == DIVIDED && state->hosts != 0) ||
           (part == WEIGHTED && state->hosts != 0 && state->weight != 0);
}

/* ---- writing ---- */

static size_t write_fields(const struct stg_state *state, char *buf, size_t bytes)
{
    size_t n = (size_t)snprintf(buf, bytes, "{\"" VERSION_KEY "\":%d", STG_STATE_VERSION);
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[i];
        char *at = buf + n;
        size_t left = bytes - n;
        if (!has_part(state, f->part))
            continue;
        if (f->kind == STRING)
            n += (size_t)snprintf(at, left, ",\"%s\":\"%s\"", f->key,
                                  (const char *)member_of(state, f));
        else if (f->kind == HEX)
            n += (size_t)snprintf(at, left, ",\"%s\":\"%016" PRIx64 "\"", f->key,
                                  number_of(state, f));
        else
            n += (size_t)snprintf(at, left, ",\"%s\":%" PRIu64, f->key,
                                  number_of(state, f));
    }
    return n;
}

size_t stg_state_write(const struct stg_state *state, char *buf)
{
    size_t n = write_fields(state, buf, STG_STATE_TEXT_BYTES);
    uint64_t sum = stg_farm_hash(buf, n);
    n += (size_t)snprintf(buf + n, STG_STATE_TEXT_BYTES - n,
                          ",\"" SUM_KEY "\":\"%016" PRIx64 "\"}", sum);
    return n;
}

/* ---- comparing ---- */

const char *stg_state_differs(const struct stg_state *a, const struct stg_state *b)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[i];
        bool same = f->kind == STRING ? strcmp(member_of(a, f), member_of(b, f)) == 0
                                      : number_of(a, f) == number_of(b, f);
        if (!same)
            return f->key;
    }
    return NULL;
}

/* ---- reading ---- */

struct reader {
    const char *at, *end;
    struct stg_err *err;
};

static int refuse(struct reader *r, const char *what)
{
    return stg_err(r->err, -STAGER_INVALID_ARGUMENT, "not a state of a stream: %s", what);
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) != NULL && *r->at != '\0')
        r->at++;
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* A string without escapes: none of ours has any. */
static int take_string(struct reader *r, char *buf, size_t bytes)
{
    size_t n = 0;
    if (!take(r, '"'))
        return refuse(r,
                      "a key or a string is missing (the text is truncated or edited)");
    while (r->at < r->end && *r->at != '"') {
        if (*r->at == '\\' || (unsigned char)*r->at < ' ' || n + 1 == bytes)
            return refuse(r,
                          "a string is not one that stager writes (the text is edited)");
        buf[n++] = *r->at++;
    }
    buf[n] = '\0';
    return take(r, '"') ? 0 : refuse(r, "the text is truncated inside a string");
}

static int take_number(struct reader *r, uint64_t *ret)
{
    uint64_t value = 0;
    skip_space(r);
    const char *begin = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        unsigned digit = (unsigned)(*r->at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return refuse(r, "a number is too large (the text is edited)");
        value = value * 10 + digit;
    }
    if (r->at == begin || r->at == r->end)
        return refuse(r, "a number is missing or cut (the text is truncated or edited)");
    *ret = value;
    return 0;
}

static int read_hex(struct reader *r, uint64_t *ret)
{
    char text[32];
    uint64_t value = 0;
    int rc = take_string(r, text, sizeof(text));
    if (rc < 0)
        return rc;
    for (const char *s = text; *s != '\0'; s++) {
        int digit = stg_hex_digit(*s);
        if (digit < 0 || s - text >= 16)
            return refuse(r, "a hexadecimal number is malformed (the text is edited)");
        value = value << 4 | (uint64_t)digit;
    }
    *ret = value;
    return 0;
}

static int take_small(struct reader *r, uint32_t *ret)
{
    uint64_t value;
    int rc = take_number(r, &value);
    if (rc == 0 && value > UINT32_MAX)
        return refuse(r, "a number is too large (the text is edited)");
    if (rc == 0)
        *ret = (uint32_t)value;
    return rc;
}

static const struct field *find_field(const char *key, size_t *ret)
{
    for (*ret = 0; *ret < N_FIELDS; ++*ret) {
        if (strcmp(fields[*ret].key, key) == 0)
            return &fields[*ret];
    }
    return NULL;
}

/* What a state consists of beside its fields. */
struct seen {
    uint64_t version, sum;
    bool has_version, has_sum, has[N_FIELDS];
};

static int take_value(struct reader *r, const char *key, struct stg_state *state,
                      struct seen *seen)
{
    size_t i;
    const struct field *field = find_field(key, &i);
    if (strcmp(key, VERSION_KEY) == 0) {
        seen->has_version = true;
        return take_number(r, &seen->version);
    }
    if (strcmp(key, SUM_KEY) == 0) {
        seen->has_sum = true;
        return read_hex(r, &seen->sum);
    }
    if (field == NULL || seen->has[i])
        return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                       "not a state of a stream: key \"%s\" is unknown or there twice "
                       "(the text is edited, or of a newer release)",
                       key);
    seen->has[i] = true;
    if (field->kind == STRING)
        return take_string(r, member_of(state, field), field->bytes);
    if (field->kind == SMALL)
        return take_small(r, member_of(state, field));
    return field->kind == HEX ? read_hex(r, member_of(state, field))
                              : take_number(r, member_of(state, field));
}

static int refuse_version(struct reader *r, uint64_t version)
{
    return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                   "the state has version %" PRIu64
                   ", and this release reads version %d: load it with the release that "
                   "wrote it, or a later one",
                   version, STG_STATE_VERSION);
}

static int take_all(struct reader *r, struct stg_state *state, struct seen *seen)
{
    if (!take(r, '{'))
        return refuse(r, "it does not begin with {");
    do {
        char key[32];
        int rc = take_string(r, key, sizeof(key));
        if (rc == 0 && !take(r, ':'))
            rc = refuse(r, "a value is missing (the text is truncated or edited)");
        if (rc == 0)
            rc = take_value(r, key, state, seen);
        if (seen->version > STG_STATE_VERSION)
            return refuse_version(r, seen->version);
        if (rc < 0)
            return rc;
    } while (take(r, ','));
    if (!take(r, '}'))
        return refuse(r, "the closing } is missing (the text is truncated or edited)");
    skip_space(r);
    return r->at == r->end ? 0 : refuse(r, "text follows the closing }");
}

static int check_taken(struct reader *r, const struct stg_state *state)
{
    struct stg_taken taken = {0};
    int rc = stg_taken_read(state->taken, &taken, r->err);
    stg_taken_clear(&taken);
    if (rc == 0)
        rc = stg_taken_read(state->before, &taken, r->err);
    stg_taken_finish(&taken);
    if (rc == 0 && state->consumer > state->consumers)
        rc = refuse(r, "it has no consumer of that number (the text is edited)");
    return rc;
}

static int check(struct reader *r, const struct stg_state *state, const struct seen *seen)
{
    char text[STG_STATE_TEXT_BYTES];
    if (!seen->has_version)
        return refuse(r, "key \"" VERSION_KEY "\" is missing");
    if (seen->version != STG_STATE_VERSION)
        return refuse(r, "version 0 does not exist (the text is edited)");
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (seen->has[i] && !has_part(state, fields[i].part))
            return refuse(r, fields[i].part == SHARED
                                 ? "it has no consumers (the text is edited)"
                                 : "it has no hosts (the text is edited)");
        if (!seen->has[i] && has_part(state, fields[i].part))
            return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                           "not a state of a stream: key \"%s\" is missing",
                           fields[i].key);
    }
    size_t n = write_fields(state, text, sizeof(text));
    if (n >= sizeof(text) - 32 || !seen->has_sum || seen->sum != stg_farm_hash(text, n))
        return refuse(r, "its sum does not match its values (the text is edited)");
    return check_taken(r, state);
}

int stg_state_read(const char *text, size_t bytes, struct stg_state *ret,
                   struct stg_err *err)
{
    struct reader r = {.at = text, .end = text + bytes, .err = err};
    struct stg_state state = {0};
    struct seen seen = {0};
    int rc = take_all(&r, &state, &seen);
    if (rc == 0)
        rc = check(&r, &state, &seen);
    if (rc == 0)
        *ret = state;
    return rc;
}
