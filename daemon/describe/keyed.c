/* SPDX-License-Identifier: Apache-2.0
 *
 * Records whose values have names: JSON objects, and tf.train.Example. Of the first
 * records: which keys there are, of which kind their values are, and how many.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/describe/records.h"
#include "daemon/format/format.h"
#include "daemon/storage/codec/crc32c.h"
#include "ops/base/json.h"
#include "ops/kernels/example/wire.h"

#define MAX_KEYS 4096
#define MAX_RECORDS 100
#define READ_BYTES 262144u
#define RECORD_BYTES ((uint64_t)8 << 20)

enum kind { NOTHING, INTEGER, NUMBER, BOOLEAN, TEXT, MIXED };

struct key {
    const char *name; /* in the description's memory */
    size_t bytes;
    enum kind kind;
    int64_t n;       /* values of a record; -1: that varies */
    bool is_list;    /* JSON: in brackets */
    bool is_nested;  /* JSON: an object, or a list of lists */
    uint32_t n_seen; /* records that have it, not null */
};

struct keys {
    struct key *at; /* MAX_KEYS */
    size_t n, next; /* next: where the search of the next name begins */
    uint32_t n_records;
    bool is_over; /* there are more than MAX_KEYS */
};

static struct key *find(struct keys *keys, struct stg_describing *to, const char *name,
                        size_t bytes)
{
    for (size_t i = 0; i < keys->n; i++) {
        struct key *key = &keys->at[(keys->next + i) % keys->n];
        if (key->bytes == bytes && memcmp(key->name, name, bytes) == 0) {
            keys->next = (size_t)(key - keys->at) + 1;
            return key;
        }
    }
    keys->is_over |= keys->n == MAX_KEYS;
    char *copy = keys->is_over ? NULL : stg_bump_strndup(&to->bump, name, bytes);
    if (copy == NULL)
        return NULL;
    keys->at[keys->n] = (struct key){.name = copy, .bytes = bytes};
    return &keys->at[keys->n++];
}

static void see(struct key *key, enum kind kind, int64_t n)
{
    bool are_numbers = (kind == INTEGER && key->kind == NUMBER) ||
                       (kind == NUMBER && key->kind == INTEGER);
    if (key->n_seen++ == 0) {
        key->kind = kind;
        key->n = n;
        return;
    }
    if (kind != NOTHING && key->kind != kind)
        key->kind = are_numbers ? NUMBER : key->kind == NOTHING ? kind : MIXED;
    if (key->n != n)
        key->n = -1;
}

static int dtype_of(enum kind kind)
{
    return kind == INTEGER   ? STAGER_INT64
           : kind == NUMBER  ? STAGER_FLOAT32
           : kind == BOOLEAN ? STAGER_BOOL
                             : STAGER_STRING;
}

static void refuse(struct stg_describing *to, struct stg_file_column *column,
                   const char *what)
{
    struct stg_err why;
    stg_err(&why, -STAGER_UNIMPLEMENTED, "%s", what);
    stg_describing_refuse(to, column, &why);
}

static struct stg_file_column *add_key(struct stg_describing *to, const struct keys *keys,
                                       const struct key *key)
{
    struct stg_file_column *column = stg_describing_add(to, key->name, key->bytes);
    if (column == NULL)
        return NULL;
    column->dtype = dtype_of(key->kind);
    column->nullable = key->n_seen < keys->n_records;
    return column;
}

static int begin(struct keys *keys, struct stg_err *err)
{
    *keys = (struct keys){.at = calloc(MAX_KEYS, sizeof(struct key))};
    return keys->at != NULL ? 0
                            : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static int finish(struct stg_described_file *file, struct keys *keys, const char *format,
                  struct stg_err *err)
{
    file->to->schema.format = format;
    file->to->schema.note =
        stg_describing_text(file->to, "of the first %u record%s", keys->n_records,
                            keys->n_records == 1 ? "" : "s");
    free(keys->at);
    return keys->is_over ? stg_err(err, -STAGER_INVALID_ARGUMENT,
                                   "its records have more than %d keys", MAX_KEYS)
                         : 0;
}

/* ---- JSON ---- */

static enum kind kind_of(const struct stg_json_token *token)
{
    switch (token->kind) {
    case '"': return TEXT;
    case 't':
    case 'f': return BOOLEAN;
    case '0':
        return memchr(token->s, '.', token->bytes) != NULL ||
                       memchr(token->s, 'e', token->bytes) != NULL ||
                       memchr(token->s, 'E', token->bytes) != NULL
                   ? NUMBER
                   : INTEGER;
    default: return NOTHING;
    }
}

/* Reads the values of a list whose bracket was read. */
static void see_list(struct key *key, struct stg_json json)
{
    struct stg_json_token token;
    enum kind kind = NOTHING;
    int64_t n = 0;
    key->is_list = true;
    while (!stg_json_take(&json, ']')) {
        if (!stg_json_next(&json, &token) || token.kind == '[' || token.kind == '{') {
            key->is_nested = true;
            return;
        }
        enum kind other = kind_of(&token);
        bool are_numbers =
            (kind == INTEGER && other == NUMBER) || (kind == NUMBER && other == INTEGER);
        kind = n == 0 || kind == other ? other : are_numbers ? NUMBER : MIXED;
        n++;
        stg_json_take(&json, ',');
    }
    see(key, kind, n);
}

static void see_value(struct key *key, struct stg_json json)
{
    struct stg_json_token token;
    if (!stg_json_next(&json, &token) || token.kind == 'n')
        return;
    if (token.kind == '[') {
        see_list(key, json);
        return;
    }
    key->is_nested |= token.kind == '{';
    see(key, kind_of(&token), key->is_list ? -1 : 1);
}

/* Returns whether the line is a JSON object. keys NULL: looks only. */
static bool see_object(struct stg_describing *to, struct keys *keys, const char *s,
                       const char *end)
{
    struct stg_json json = {.p = s, .end = end};
    struct stg_json_token token;
    if (!stg_json_next(&json, &token) || token.kind != '{')
        return false;
    while (!stg_json_take(&json, '}')) {
        if (!stg_json_next(&json, &token) || token.kind != '"' ||
            !stg_json_take(&json, ':'))
            return false;
        char name[1024];
        bool is_long = token.bytes > sizeof(name);
        struct stg_json value = json;
        if (!stg_json_skip(&json))
            return false;
        size_t bytes = is_long ? 0 : stg_json_unescape(&token, name);
        struct key *key = keys != NULL && !is_long ? find(keys, to, name, bytes) : NULL;
        if (key != NULL)
            see_value(key, value);
        stg_json_take(&json, ',');
    }
    return stg_json_ends(&json);
}

/* Returns the next line that is not empty, whole. NULL: there is none. */
static const char *next_line(const struct stg_described_file *file, uint64_t *at,
                             const char **ret_end)
{
    while (*at < file->head_bytes) {
        const char *s = file->head->data + *at;
        const char *end = memchr(s, '\n', file->head_bytes - *at);
        if (end == NULL && !file->is_whole)
            return NULL;
        if (end == NULL)
            end = file->head->data + file->head_bytes;
        *at = (uint64_t)(end - file->head->data) + 1;
        *ret_end = end;
        const char *p = s;
        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
            p++;
        if (p < end)
            return s;
    }
    return NULL;
}

bool stg_described_is_jsonl(const struct stg_described_file *file)
{
    uint64_t at = 0;
    const char *end, *s = next_line(file, &at, &end);
    return s != NULL && see_object(file->to, NULL, s, end);
}

static void add_json(struct stg_describing *to, const struct keys *keys,
                     const struct key *key)
{
    static const char *const names[] = {"null", "integer", "number",
                                        "bool", "string",  "values of several kinds"};
    struct stg_file_column *column = add_key(to, keys, key);
    if (column == NULL)
        return;
    column->type = stg_describing_text(to, "%s%s",
                                       key->is_nested ? "object or nested list"
                                       : key->is_list ? "list of "
                                                      : "",
                                       key->is_nested ? "" : names[key->kind]);
    if (key->is_list && key->n > 0) {
        column->ndim = 1;
        column->shape[0] = key->n;
    }
    if (key->is_nested)
        refuse(to, column,
               "parse_json reads no objects in objects, and needs the shape "
               "of nested lists");
    else if (key->kind == MIXED)
        refuse(to, column, "its values are of several kinds");
    else if (key->is_list && key->n <= 0)
        refuse(to, column,
               "its lists differ in length, and parse_json reads those of one "
               "shape");
}

int stg_describe_jsonl(struct stg_described_file *file, struct stg_err *err)
{
    struct keys keys;
    uint64_t at = 0;
    const char *end, *s;
    int rc = begin(&keys, err);
    if (rc < 0)
        return rc;
    while (keys.n_records < MAX_RECORDS && (s = next_line(file, &at, &end)) != NULL)
        keys.n_records += see_object(file->to, &keys, s, end);
    for (size_t i = 0; i < keys.n; i++)
        add_json(file->to, &keys, &keys.at[i]);
    return finish(file, &keys, "jsonl", err);
}

/* ---- tf.train.Example ---- */

bool stg_described_is_tfrecord(const struct stg_described_file *file)
{
    const char *head = file->head->data;
    uint32_t crc;
    if (file->head_bytes < STG_FRAME_HEAD)
        return false;
    memcpy(&crc, head + 8, sizeof(crc));
    return crc == stg_crc32c_mask(stg_crc32c()->extend(0, head, 8));
}

/* message Feature: the last list counts. */
static bool see_feature(struct key *key, struct stg_wire feature)
{
    struct stg_example_span span = {0};
    uint64_t tag, n, bytes = 0;
    const uint8_t *s;
    while (feature.p < feature.end) {
        if (!stg_wire_varint(&feature, &tag))
            return false;
        bool is_list = (tag & 7) == STG_WIRE_BYTES && tag >> 3 >= 1 && tag >> 3 <= 3;
        if (!is_list && !stg_wire_skip(&feature, tag))
            return false;
        if (is_list && !stg_wire_bytes(&feature, &s, &n))
            return false;
        if (is_list)
            span = (struct stg_example_span){s, (uint32_t)n, (uint32_t)(tag >> 3)};
    }
    if (span.kind == STG_EXAMPLE_NONE)
        return true;
    int64_t count = stg_example_count(&span, &bytes, feature.fault);
    if (count >= 0)
        see(key,
            span.kind == STG_EXAMPLE_INTS     ? INTEGER
            : span.kind == STG_EXAMPLE_FLOATS ? NUMBER
                                              : TEXT,
            count);
    return count >= 0;
}

/* An entry of the map of features. */
static bool see_entry(struct stg_describing *to, struct keys *keys, struct stg_wire entry)
{
    const uint8_t *s, *name = NULL, *value = NULL;
    uint64_t tag, n, name_bytes = 0, value_bytes = 0;
    while (entry.p < entry.end) {
        if (!stg_wire_varint(&entry, &tag))
            return false;
        bool is_name = tag == STG_WIRE_TAG(1, STG_WIRE_BYTES);
        if (!is_name && tag != STG_WIRE_TAG(2, STG_WIRE_BYTES)) {
            if (!stg_wire_skip(&entry, tag))
                return false;
            continue;
        }
        if (!stg_wire_bytes(&entry, &s, &n))
            return false;
        *(is_name ? &name : &value) = s;
        *(is_name ? &name_bytes : &value_bytes) = n;
    }
    if (name == NULL || value == NULL)
        return true;
    struct key *key = find(keys, to, (const char *)name, name_bytes);
    return key == NULL ||
           see_feature(key, (struct stg_wire){value, value + value_bytes, entry.fault});
}

/* Calls see_entry for each entry of message Features. */
static bool see_features(struct stg_describing *to, struct keys *keys,
                         struct stg_wire features)
{
    const uint8_t *s;
    uint64_t tag, n;
    while (features.p < features.end) {
        if (!stg_wire_varint(&features, &tag))
            return false;
        if (tag != STG_WIRE_TAG(1, STG_WIRE_BYTES)) {
            if (!stg_wire_skip(&features, tag))
                return false;
            continue;
        }
        if (!stg_wire_bytes(&features, &s, &n) ||
            !see_entry(to, keys, (struct stg_wire){s, s + n, features.fault}))
            return false;
    }
    return true;
}

/* Returns whether the record is an Example. */
static bool see_example(struct stg_describing *to, struct keys *keys, const uint8_t *s,
                        size_t bytes)
{
    struct stg_example_fault fault;
    struct stg_wire example = {s, s + bytes, &fault};
    uint64_t tag, n;
    while (example.p < example.end) {
        if (!stg_wire_varint(&example, &tag))
            return false;
        if (tag != STG_WIRE_TAG(1, STG_WIRE_BYTES)) {
            if (!stg_wire_skip(&example, tag))
                return false;
            continue;
        }
        if (!stg_wire_bytes(&example, &s, &n) ||
            !see_features(to, keys, (struct stg_wire){s, s + n, &fault}))
            return false;
    }
    return true;
}

static void add_feature(struct stg_describing *to, const struct keys *keys,
                        const struct key *key)
{
    struct stg_file_column *column = add_key(to, keys, key);
    if (column == NULL)
        return;
    column->type = key->kind == INTEGER  ? "int64_list"
                   : key->kind == NUMBER ? "float_list"
                                         : "bytes_list";
    if (key->kind == NOTHING || key->kind == MIXED)
        refuse(to, column,
               key->kind == MIXED ? "its lists are of several kinds"
                                  : "it has no values");
    if (key->n == 1)
        return;
    column->ndim = 1;
    column->shape[0] = key->n > 1 ? key->n : -1;
}

/* Reads up to MAX_RECORDS records. *ret_others: one of them is no Example. */
static int read_examples(struct stg_described_file *file, void *reader, struct keys *keys,
                         bool *ret_others, struct stg_err *err)
{
    int64_t begin[MAX_RECORDS], end[MAX_RECORDS];
    while (keys->n_records < MAX_RECORDS && !*ret_others) {
        struct stg_records records = {0};
        int rc = stg_format_tfrecord.next(reader, MAX_RECORDS - keys->n_records, false,
                                          begin, end, &records, err);
        file->is_storage = rc < 0;
        if (rc < 0)
            return rc;
        if (rc == STG_FORMAT_END)
            return 0;
        if (records.bad.code != 0) {
            if (keys->n_records > 0)
                return 0;
            *err = records.bad;
            return err->code;
        }
        for (int64_t i = 0; i < records.n && !*ret_others; i++) {
            const uint8_t *s = (const uint8_t *)records.chunk->data + begin[i];
            *ret_others = !see_example(file->to, keys, s, (size_t)(end[i] - begin[i]));
            keys->n_records++;
        }
    }
    return 0;
}

static int add_examples(struct stg_described_file *file, const struct keys *keys,
                        bool others)
{
    if (!others && keys->n > 0) {
        for (size_t i = 0; i < keys->n; i++)
            add_feature(file->to, keys, &keys->at[i]);
        return 0;
    }
    struct stg_file_column *column = stg_describing_add(file->to, "record", 6);
    if (column != NULL) {
        column->type = "no tf.train.Example";
        column->dtype = STAGER_STRING;
    }
    return 0;
}

int stg_describe_tfrecord(struct stg_described_file *file, struct stg_err *err)
{
    struct stg_format_config config = {.read_bytes = READ_BYTES,
                                       .chunk_bytes = 4 * READ_BYTES,
                                       .max_record_bytes = RECORD_BYTES,
                                       .advice = "schema looks at no longer ones",
                                       .quota = file->quota,
                                       .stopped = file->user->stopped};
    struct keys keys;
    void *reader = NULL;
    bool others = false;
    int rc = begin(&keys, err);
    if (rc < 0)
        return rc;
    rc = stg_described_rewind(file, err);
    if (rc == 0 && stg_format_tfrecord.create(&config, &reader) < 0)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == 0) {
        stg_format_tfrecord.start(reader, file->source);
        rc = read_examples(file, reader, &keys, &others, err);
        stg_format_tfrecord.stop(reader);
    }
    stg_format_tfrecord.destroy(reader);
    if (rc == 0)
        rc = add_examples(file, &keys, others);
    int done = finish(file, &keys, "tfrecord", rc == 0 ? err : NULL);
    return rc < 0 ? rc : done;
}
