/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cluster/etcd_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/json.h"
#include "ops/base/json.h"

/* ---- requests ---- */

struct body {
    struct stg_json_writer json;
    char *text;
    size_t bytes;
};

static bool begin(struct body *body)
{
    *body = (struct body){0};
    body->json.out = open_memstream(&body->text, &body->bytes);
    if (body->json.out == NULL)
        return false;
    stg_json_object_begin(&body->json);
    return true;
}

static char *end(struct body *body, size_t *ret_bytes)
{
    stg_json_object_end(&body->json);
    bool is_whole = ferror(body->json.out) == 0;
    if (fclose(body->json.out) != 0 || !is_whole) {
        free(body->text);
        return NULL;
    }
    *ret_bytes = body->bytes;
    return body->text;
}

static void put_bytes(struct body *body, const char *name, const char *data, size_t n)
{
    stg_json_key(&body->json, name);
    stg_json_base64(&body->json, data, n);
}

/* As a string: a reader of JSON may lose digits of a number. */
static void put_int(struct body *body, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, value);
    stg_json_put_string(&body->json, name, text);
}

/* Returns the first key behind all those that begin with `key`; the caller frees. */
static char *key_behind(const char *key, size_t *ret_bytes)
{
    size_t n = strlen(key);
    char *behind = strdup(key);
    if (behind == NULL)
        return NULL;
    while (n > 0 && (unsigned char)behind[n - 1] == 0xff)
        n--;
    if (n > 0)
        behind[n - 1]++;
    else
        behind[0] = '\0'; /* there is none: etcd takes one NUL for no end */
    *ret_bytes = n > 0 ? n : 1;
    return behind;
}

char *stg_etcd_text_range(const char *key, bool prefix, size_t *ret_bytes)
{
    struct body body;
    size_t n = 0;
    char *behind = prefix ? key_behind(key, &n) : NULL;
    char *text = NULL;
    if ((behind != NULL || !prefix) && begin(&body)) {
        put_bytes(&body, "key", key, strlen(key));
        if (prefix)
            put_bytes(&body, "range_end", behind, n);
        text = end(&body, ret_bytes);
    }
    free(behind);
    return text;
}

static void put_compare(struct body *body, const struct stg_etcd_compare *compare)
{
    stg_json_object_begin(&body->json);
    put_bytes(body, "key", compare->key, strlen(compare->key));
    stg_json_put_string(&body->json, "target", "MOD");
    stg_json_put_string(&body->json, "result", "EQUAL");
    put_int(body, "mod_revision", compare->mod_revision);
    stg_json_object_end(&body->json);
}

static void put_change(struct body *body, const struct stg_etcd_put *put)
{
    bool deletes = put->value == NULL;
    stg_json_object_begin(&body->json);
    stg_json_key(&body->json, deletes ? "request_delete_range" : "request_put");
    stg_json_object_begin(&body->json);
    put_bytes(body, "key", put->key, strlen(put->key));
    if (!deletes)
        put_bytes(body, "value", put->value, put->value_bytes);
    if (!deletes && put->lease != 0)
        put_int(body, "lease", put->lease);
    stg_json_object_end(&body->json);
    stg_json_object_end(&body->json);
}

char *stg_etcd_text_txn(const struct stg_etcd_compare *compares, size_t n_compares,
                        const struct stg_etcd_put *puts, size_t n_puts, size_t *ret_bytes)
{
    struct body body;
    if (!begin(&body))
        return NULL;
    stg_json_key(&body.json, "compare");
    stg_json_array_begin(&body.json);
    for (size_t i = 0; i < n_compares; i++)
        put_compare(&body, &compares[i]);
    stg_json_array_end(&body.json);
    stg_json_key(&body.json, "success");
    stg_json_array_begin(&body.json);
    for (size_t i = 0; i < n_puts; i++)
        put_change(&body, &puts[i]);
    stg_json_array_end(&body.json);
    return end(&body, ret_bytes);
}

char *stg_etcd_text_grant(uint32_t ttl_seconds, size_t *ret_bytes)
{
    struct body body;
    if (!begin(&body))
        return NULL;
    put_int(&body, "TTL", ttl_seconds);
    return end(&body, ret_bytes);
}

char *stg_etcd_text_lease(int64_t lease, size_t *ret_bytes)
{
    struct body body;
    if (!begin(&body))
        return NULL;
    put_int(&body, "ID", lease);
    return end(&body, ret_bytes);
}

char *stg_etcd_text_login(const char *user, const char *password, size_t *ret_bytes)
{
    struct body body;
    if (!begin(&body))
        return NULL;
    stg_json_put_string(&body.json, "name", user);
    stg_json_put_string(&body.json, "password", password);
    return end(&body, ret_bytes);
}

/* ---- answers: values ---- */

struct reader {
    struct stg_json at;
    const char *fault; /* of the answer, where its JSON is well formed */
    bool has_no_memory;
    void *owner; /* what the members go to */
};

static bool is_named(const struct stg_json_token *token, const char *name)
{
    return token->bytes == strlen(name) && memcmp(token->s, name, token->bytes) == 0;
}

static bool fault(struct reader *reader, const char *text)
{
    if (reader->fault == NULL)
        reader->fault = text;
    return false;
}

/* Takes the value of a member; false: a fault. */
typedef bool take_member(struct reader *reader, const struct stg_json_token *name);

static bool take_object(struct reader *reader, take_member *take)
{
    struct stg_json_token name;
    if (!stg_json_take(&reader->at, '{'))
        return fault(reader, "a member is not an object");
    if (stg_json_take(&reader->at, '}'))
        return true;
    do {
        if (!stg_json_next(&reader->at, &name) || name.kind != '"' ||
            !stg_json_take(&reader->at, ':') || !take(reader, &name))
            return false;
    } while (stg_json_take(&reader->at, ','));
    return stg_json_take(&reader->at, '}');
}

/* Copies the digits of a number, which may be a string. */
static bool take_digits(struct reader *reader, char ret[24])
{
    struct stg_json_token token;
    if (!stg_json_next(&reader->at, &token))
        return false;
    if ((token.kind != '"' && token.kind != '0') || token.bytes == 0 || token.bytes > 20)
        return fault(reader, "a value is not a number");
    memcpy(ret, token.s, token.bytes);
    ret[token.bytes] = '\0';
    size_t sign = ret[0] == '-';
    return (ret[sign] != '\0' &&
            strspn(ret + sign, "0123456789") == token.bytes - sign) ||
           fault(reader, "a value is not a number");
}

static bool take_int(struct reader *reader, int64_t *ret)
{
    char digits[24];
    if (!take_digits(reader, digits))
        return false;
    errno = 0;
    int64_t value = strtoll(digits, NULL, 10);
    if (errno != 0)
        return fault(reader, "a number is out of range");
    *ret = value;
    return true;
}

static bool take_uint(struct reader *reader, uint64_t *ret)
{
    char digits[24];
    if (!take_digits(reader, digits))
        return false;
    errno = 0;
    uint64_t value = strtoull(digits, NULL, 10);
    if (errno != 0 || digits[0] == '-')
        return fault(reader, "a number is out of range");
    *ret = value;
    return true;
}

static bool take_bool(struct reader *reader, bool *ret)
{
    struct stg_json_token token;
    if (!stg_json_next(&reader->at, &token))
        return false;
    if (token.kind != 't' && token.kind != 'f')
        return fault(reader, "a value is not true or false");
    *ret = token.kind == 't';
    return true;
}

/* Replaces *ret by the string, which a NUL follows. */
static bool take_string(struct reader *reader, char **ret, size_t *ret_bytes)
{
    struct stg_json_token token;
    if (!stg_json_next(&reader->at, &token))
        return false;
    if (token.kind != '"')
        return fault(reader, "a value is not a string");
    char *text = malloc(token.bytes + 1);
    if (text == NULL) {
        reader->has_no_memory = true;
        return false;
    }
    *ret_bytes = stg_json_unescape(&token, text);
    text[*ret_bytes] = '\0';
    free(*ret);
    *ret = text;
    return true;
}

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes in place, which takes no more room. Returns false: it is no base64. */
static bool decode(char *text, size_t *bytes)
{
    size_t n = *bytes, at = 0;
    if (n % 4 != 0)
        return false;
    for (unsigned i = 0; i < 2 && n > 0 && text[n - 1] == '='; i++)
        n--;
    uint32_t word = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = digit_of(text[i]);
        if (digit < 0)
            return false;
        word = word << 6 | (uint32_t)digit;
        if (i % 4 != 0)
            text[at++] = (char)(word >> (6 - 2 * (i % 4)));
    }
    text[at] = '\0';
    *bytes = at;
    return true;
}

static bool take_bytes(struct reader *reader, char **ret, size_t *ret_bytes)
{
    return take_string(reader, ret, ret_bytes) &&
           (decode(*ret, ret_bytes) || fault(reader, "a key or value is not base64"));
}

/* ---- answers: what all have ---- */

struct answer {
    struct stg_etcd_head head;
    struct stg_etcd_range *range;
    size_t room; /* entries of range */
    int64_t count;
    bool has_more, is_done;
    int64_t lease, ttl;
    char *token;
};

static bool take_head_member(struct reader *reader, const struct stg_json_token *name)
{
    struct answer *answer = reader->owner;
    if (is_named(name, "cluster_id"))
        return take_uint(reader, &answer->head.cluster);
    if (is_named(name, "revision"))
        return take_int(reader, &answer->head.revision);
    return stg_json_skip(&reader->at);
}

static int foreign(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "the answer is not valid: %s", what);
}

/* Reads the whole text. The answer has what it says, also after a failure. */
static int read_answer(const char *text, size_t bytes, take_member *take,
                       struct answer *answer, struct stg_err *err)
{
    struct reader reader = {.at = {.p = text, .end = text + bytes}, .owner = answer};
    bool is_good = take_object(&reader, take);
    if (reader.has_no_memory)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (reader.fault != NULL)
        return foreign(err, reader.fault);
    if (!is_good || !stg_json_ends(&reader.at))
        return foreign(err, "the JSON is malformed or incomplete");
    if (answer->head.cluster == 0 || answer->head.revision < 0)
        return foreign(err, "the header names no cluster");
    return 0;
}

/* ---- answers: ranges ---- */

static bool take_entry_member(struct reader *reader, const struct stg_json_token *name)
{
    struct answer *answer = reader->owner;
    struct stg_etcd_entry *entry = &answer->range->entries[answer->range->n - 1];
    size_t key_bytes;
    if (is_named(name, "key"))
        return take_bytes(reader, &entry->key, &key_bytes) &&
               (strlen(entry->key) == key_bytes ||
                fault(reader, "a key contains a NUL byte"));
    if (is_named(name, "value"))
        return take_bytes(reader, &entry->value, &entry->value_bytes);
    if (is_named(name, "create_revision"))
        return take_int(reader, &entry->create_revision);
    if (is_named(name, "mod_revision"))
        return take_int(reader, &entry->mod_revision);
    if (is_named(name, "lease"))
        return take_int(reader, &entry->lease);
    return stg_json_skip(&reader->at);
}

static bool add_entry(struct reader *reader)
{
    struct answer *answer = reader->owner;
    struct stg_etcd_range *range = answer->range;
    if (range->n == answer->room) {
        size_t room = answer->room > 0 ? 2 * answer->room : 16;
        struct stg_etcd_entry *grown = realloc(range->entries, room * sizeof(*grown));
        if (grown == NULL) {
            reader->has_no_memory = true;
            return false;
        }
        range->entries = grown;
        answer->room = room;
    }
    range->entries[range->n++] = (struct stg_etcd_entry){0};
    return true;
}

static bool take_entry(struct reader *reader)
{
    struct answer *answer = reader->owner;
    if (!add_entry(reader) || !take_object(reader, take_entry_member))
        return false;
    struct stg_etcd_entry *entry = &answer->range->entries[answer->range->n - 1];
    if (entry->value != NULL)
        return true;
    entry->value = calloc(1, 1); /* JSON of protobuf leaves out what is empty */
    reader->has_no_memory |= entry->value == NULL;
    return entry->value != NULL;
}

static bool take_range_member(struct reader *reader, const struct stg_json_token *name)
{
    struct answer *answer = reader->owner;
    if (is_named(name, "header"))
        return take_object(reader, take_head_member);
    if (is_named(name, "count"))
        return take_int(reader, &answer->count);
    if (is_named(name, "more"))
        return take_bool(reader, &answer->has_more);
    if (!is_named(name, "kvs"))
        return stg_json_skip(&reader->at);
    if (!stg_json_take(&reader->at, '['))
        return fault(reader, "kvs is not a list");
    if (stg_json_take(&reader->at, ']'))
        return true;
    do {
        if (!take_entry(reader))
            return false;
    } while (stg_json_take(&reader->at, ','));
    return stg_json_take(&reader->at, ']');
}

/* Returns what is wrong about the entries, or NULL. */
static const char *wrong_about(const struct answer *answer, const char *key, bool prefix)
{
    const struct stg_etcd_range *range = answer->range;
    size_t n = strlen(key);
    if (answer->has_more || answer->count != (int64_t)range->n)
        return "keys are missing";
    for (size_t i = 0; i < range->n; i++) {
        const struct stg_etcd_entry *entry = &range->entries[i];
        if (entry->key == NULL ||
            (prefix ? strncmp(entry->key, key, n) : strcmp(entry->key, key)) != 0)
            return "it has a key that was not requested";
        if (i > 0 && strcmp(entry[-1].key, entry->key) >= 0)
            return "the keys are not sorted";
        if (entry->create_revision < 1 || entry->create_revision > entry->mod_revision ||
            entry->mod_revision > answer->head.revision)
            return "the revisions of a key contradict one another";
    }
    return NULL;
}

int stg_etcd_read_range(const char *text, size_t bytes, const char *key, bool prefix,
                        struct stg_etcd_range *ret, struct stg_etcd_head *head,
                        struct stg_err *err)
{
    struct stg_etcd_range range = {0};
    struct answer answer = {.range = &range};
    int rc = read_answer(text, bytes, take_range_member, &answer, err);
    const char *wrong = rc == 0 ? wrong_about(&answer, key, prefix) : NULL;
    if (wrong != NULL)
        rc = foreign(err, wrong);
    if (rc < 0) {
        stg_etcd_range_finish(&range);
        return rc;
    }
    range.revision = answer.head.revision;
    *ret = range;
    *head = answer.head;
    return 0;
}

void stg_etcd_range_finish(struct stg_etcd_range *range)
{
    for (size_t i = 0; i < range->n; i++) {
        free(range->entries[i].key);
        free(range->entries[i].value);
    }
    free(range->entries);
    *range = (struct stg_etcd_range){0};
}

/* ---- answers: the others ---- */

static bool take_other_member(struct reader *reader, const struct stg_json_token *name)
{
    struct answer *answer = reader->owner;
    if (is_named(name, "header"))
        return take_object(reader, take_head_member);
    if (is_named(name, "succeeded"))
        return take_bool(reader, &answer->is_done);
    if (is_named(name, "ID"))
        return take_int(reader, &answer->lease);
    if (is_named(name, "TTL"))
        return take_int(reader, &answer->ttl);
    return stg_json_skip(&reader->at);
}

/* A renewal is a stream of answers, each in an envelope. */
static bool take_envelope(struct reader *reader, const struct stg_json_token *name)
{
    if (is_named(name, "result"))
        return take_object(reader, take_other_member);
    return stg_json_skip(&reader->at);
}

int stg_etcd_read_txn(const char *text, size_t bytes, bool *ret_done,
                      struct stg_etcd_head *head, struct stg_err *err)
{
    struct answer answer = {0};
    int rc = read_answer(text, bytes, take_other_member, &answer, err);
    if (rc < 0)
        return rc;
    *ret_done = answer.is_done;
    *head = answer.head;
    return 0;
}

int stg_etcd_read_grant(const char *text, size_t bytes, int64_t *ret_lease,
                        struct stg_etcd_head *head, struct stg_err *err)
{
    struct answer answer = {0};
    int rc = read_answer(text, bytes, take_other_member, &answer, err);
    if (rc < 0)
        return rc;
    if (answer.lease == 0)
        return foreign(err, "the lease is missing");
    *ret_lease = answer.lease;
    *head = answer.head;
    return 0;
}

int stg_etcd_read_renew(const char *text, size_t bytes, int64_t lease,
                        uint32_t *ret_ttl_seconds, struct stg_etcd_head *head,
                        struct stg_err *err)
{
    struct answer answer = {0};
    int rc = read_answer(text, bytes, take_envelope, &answer, err);
    if (rc < 0)
        return rc;
    if (answer.lease != lease)
        return foreign(err, "it names another lease");
    if (answer.ttl < 0 || answer.ttl > UINT32_MAX)
        return foreign(err, "the time to live is out of range");
    *ret_ttl_seconds = (uint32_t)answer.ttl;
    *head = answer.head;
    return 0;
}

int stg_etcd_read_revoke(const char *text, size_t bytes, struct stg_etcd_head *head,
                         struct stg_err *err)
{
    struct answer answer = {0};
    int rc = read_answer(text, bytes, take_other_member, &answer, err);
    if (rc == 0)
        *head = answer.head;
    return rc;
}

static bool take_login_member(struct reader *reader, const struct stg_json_token *name)
{
    struct answer *answer = reader->owner;
    size_t n;
    if (!is_named(name, "token"))
        return take_other_member(reader, name);
    return take_string(reader, &answer->token, &n) &&
           (strlen(answer->token) == n || fault(reader, "the token contains a NUL byte"));
}

static bool is_fit(const char *token)
{
    if (token == NULL || token[0] == '\0')
        return false;
    for (; *token != '\0'; token++) {
        if (*token <= ' ' || *token > '~')
            return false;
    }
    return true;
}

static void drop_secret(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}

int stg_etcd_read_login(const char *text, size_t bytes, char **ret_token,
                        struct stg_etcd_head *head, struct stg_err *err)
{
    struct answer answer = {0};
    int rc = read_answer(text, bytes, take_login_member, &answer, err);
    if (rc == 0 && !is_fit(answer.token))
        rc = foreign(err, "the token is missing or malformed");
    if (rc < 0) {
        drop_secret(answer.token);
        return rc;
    }
    *ret_token = answer.token;
    *head = answer.head;
    return 0;
}

/* ---- refusals ---- */

struct refusal {
    int64_t code;
    char *reason; /* has STG_ETCD_REASON_BYTES */
};

static bool take_reason(struct reader *reader, char *ret)
{
    struct stg_json_token token;
    if (!stg_json_next(&reader->at, &token) || token.kind != '"')
        return false;
    if (token.bytes > STG_ETCD_REASON_BYTES - 1)
        token.bytes = STG_ETCD_REASON_BYTES - 1;
    size_t n = stg_json_unescape(&token, ret);
    for (size_t i = 0; i < n; i++) {
        if (ret[i] < ' ' || ret[i] > '~')
            ret[i] = ' ';
    }
    ret[n] = '\0';
    return true;
}

/* In an answer "error" is the reason; in a stream of answers it is an object that has
 * one. The code is "code" or, in such an object, "grpc_code". */
static bool take_refusal_member(struct reader *reader, const struct stg_json_token *name)
{
    struct refusal *refusal = reader->owner;
    if (is_named(name, "code") || is_named(name, "grpc_code"))
        return take_int(reader, &refusal->code);
    if (is_named(name, "message"))
        return take_reason(reader, refusal->reason);
    return stg_json_skip(&reader->at);
}

static bool take_refusal(struct reader *reader, const struct stg_json_token *name)
{
    struct refusal *refusal = reader->owner;
    struct stg_json before = reader->at;
    bool is_object = is_named(name, "error") && stg_json_take(&before, '{');
    if (is_object)
        return take_object(reader, take_refusal_member);
    if (is_named(name, "error"))
        return take_reason(reader, refusal->reason);
    return take_refusal_member(reader, name);
}

int stg_etcd_read_refusal(const char *text, size_t bytes,
                          char ret_reason[STG_ETCD_REASON_BYTES])
{
    char reason[STG_ETCD_REASON_BYTES] = "";
    struct refusal refusal = {.reason = reason};
    struct reader reader = {.at = {.p = text, .end = text + bytes}, .owner = &refusal};
    if (!take_object(&reader, take_refusal) || refusal.code < 1 || refusal.code > 16)
        return 0;
    memcpy(ret_reason, reason, sizeof(reason));
    return (int)refusal.code;
}
