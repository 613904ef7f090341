/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/load_text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "proto/load.h"

/* ---- scalars: the core schema of YAML 1.2 ----
 *
 * https://yaml.org/spec/1.2.2/#103-core-schema */

static bool is_one_of(const char *s, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(s, words[i]) == 0)
            return true;
    }
    return false;
}

#define IS_ONE_OF(s, ...)                                                                \
    is_one_of(s, (const char *const[]){__VA_ARGS__},                                     \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

bool stg_text_is_null(const struct stg_text_node *node)
{
    return node->kind == STG_TEXT_SCALAR && node->plain &&
           IS_ONE_OF(node->s, "", "~", "null", "Null", "NULL");
}

static const char *skip_sign(const char *s)
{
    return *s == '+' || *s == '-' ? s + 1 : s;
}

static const char *skip_digits(const char *s)
{
    while (isdigit((unsigned char)*s))
        s++;
    return s;
}

/* The base of an integer, or 0 when it is none. */
static int integer_base(const char *s)
{
    if (s[0] == '0' && s[1] == 'x' && s[2] != '\0')
        return s[2 + strspn(s + 2, "0123456789abcdefABCDEF")] == '\0' ? 16 : 0;
    if (s[0] == '0' && s[1] == 'o' && s[2] != '\0')
        return s[2 + strspn(s + 2, "01234567")] == '\0' ? 8 : 0;
    s = skip_sign(s);
    return *s != '\0' && *skip_digits(s) == '\0' ? 10 : 0;
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_decimal(const char *s)
{
    s = skip_sign(s);
    const char *whole = s;
    s = skip_digits(s);
    bool has_whole = s != whole;
    if (*s == '.') {
        const char *fraction = ++s;
        s = skip_digits(s);
        if (!has_whole && s == fraction)
            return false;
    } else if (!has_whole) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        const char *digits = skip_sign(s + 1);
        s = skip_digits(digits);
        if (s == digits)
            return false;
    }
    return *s == '\0';
}

static bool parse_float(const char *s, double *ret)
{
    if (IS_ONE_OF(s, ".nan", ".NaN", ".NAN", "nan", "NaN", "NAN")) {
        *ret = NAN;
        return true;
    }
    /* Without the dot as C, Python and Python's JSON write them. */
    if (IS_ONE_OF(skip_sign(s), ".inf", ".Inf", ".INF", "inf", "Inf", "INF",
                  "Infinity")) {
        *ret = *s == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (!is_decimal(s))
        return false;
    *ret = strtod(s, NULL);
    return true;
}

bool stg_text_value(const struct stg_text_node *node, struct stg_value *ret)
{
    const char *s = node->s;
    struct stg_value value = {.kind = STG_VALUE_STRING, .s = s, .s_bytes = node->s_bytes};
    int base = node->plain ? integer_base(s) : 0;
    double number;
    if (!node->plain) {
        *ret = value;
    } else if (stg_text_is_null(node)) {
        *ret = (struct stg_value){.kind = STG_VALUE_NULL};
    } else if (IS_ONE_OF(s, "true", "True", "TRUE", "false", "False", "FALSE")) {
        *ret = (struct stg_value){.kind = STG_VALUE_BOOL, .i = *s == 't' || *s == 'T'};
    } else if (base != 0) {
        errno = 0;
        long long i = strtoll(base == 10 ? s : s + 2, NULL, base);
        if (errno == ERANGE)
            return false;
        *ret = (struct stg_value){.kind = STG_VALUE_INT, .i = i, .f = (double)i};
    } else if (parse_float(s, &number)) {
        *ret = (struct stg_value){.kind = STG_VALUE_FLOAT, .f = number};
    } else {
        *ret = value;
    }
    return true;
}

const char *stg_text_printable(const char *s, size_t n, char *buf, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        bool escape = c < 0x20 || c == 0x7f;
        bool continues = (c & 0xc0) == 0x80;
        if (used + (continues ? 5 : 12) > bytes) {
            used += (size_t)snprintf(buf + used, bytes - used, "...");
            break;
        }
        if (escape)
            used += (size_t)snprintf(buf + used, bytes - used, "\\x%02x", c);
        else
            buf[used++] = (char)c;
    }
    buf[used] = '\0';
    return buf;
}

const char *stg_text_found(const struct stg_text_node *node, char *buf, size_t bytes)
{
    char shown[48];
    if (node->kind == STG_TEXT_LIST) {
        snprintf(buf, bytes, "a list");
    } else if (node->kind == STG_TEXT_MAPPING) {
        snprintf(buf, bytes, "a mapping");
    } else if (node->plain && node->s_bytes == 0) {
        snprintf(buf, bytes, "nothing");
    } else {
        stg_text_printable(node->s, node->s_bytes, shown, sizeof(shown));
        snprintf(buf, bytes, node->plain ? "%s" : "the string \"%s\"", shown);
    }
    return buf;
}

/* ---- parsing ---- */

/* One run of the parser. The stack holds the open lists and mappings. */
struct parse {
    yaml_parser_t yaml;
    const char *text, *file;
    size_t bytes;
    struct stg_bump *bump;
    struct stg_err *err;

    struct stg_text_node *open[STG_TEXT_MAX_DEPTH];
    struct stg_text_node **tail[STG_TEXT_MAX_DEPTH];
    int depth;
    const char *key; /* of the value that comes next */
    int key_line, key_column;

    struct stg_text_node *root;
    unsigned n_documents;
    size_t n_nodes;
};

static int fail_at(struct parse *p, yaml_mark_t mark, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int fail_at(struct parse *p, yaml_mark_t mark, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return stg_err(p->err, -STAGER_INVALID_ARGUMENT, "%s:%zu:%zu: %s", p->file,
                   mark.line + 1, mark.column + 1, text);
}

static int out_of_memory(struct parse *p)
{
    return stg_err(p->err, -STAGER_RESOURCE_EXHAUSTED,
                   "%s: out of memory while reading the text", p->file);
}

/* ---- what libyaml says, in our words ---- */

/* The byte at a mark, or 0: marks count characters, the text is UTF-8. */
static char char_at(const struct parse *p, yaml_mark_t mark)
{
    size_t i = 0, line = 0, column = 0;
    for (; i < p->bytes && line < mark.line; i++)
        line += p->text[i] == '\n';
    for (; i < p->bytes && column < mark.column; i++)
        column += ((unsigned char)p->text[i] & 0xc0) != 0x80;
    return i < p->bytes ? p->text[i] : '\0';
}

/* The mark of an offset in bytes. */
static yaml_mark_t mark_of(const struct parse *p, size_t offset)
{
    yaml_mark_t ret = {0};
    for (size_t i = 0; i < p->bytes && i < offset; i++) {
        unsigned char c = (unsigned char)p->text[i];
        ret.column = c == '\n' ? 0 : ret.column + ((c & 0xc0) != 0x80);
        ret.line += c == '\n';
    }
    return ret;
}

/* libyaml puts the end of a text without a last newline on a line of its own. */
static yaml_mark_t mark_inside(const struct parse *p, yaml_mark_t mark)
{
    yaml_mark_t end = mark_of(p, p->bytes);
    return mark.line > end.line ? end : mark;
}

/* The reader stops before any mark is made, at an offset in bytes. */
static int fail_reader(struct parse *p)
{
    yaml_mark_t mark = mark_of(p, p->yaml.problem_offset);
    if (p->yaml.problem_value >= 0 && p->yaml.problem_value < 0x20)
        return fail_at(p, mark,
                       "control character \\x%02x in the text; write it as an escape "
                       "inside double quotes",
                       (unsigned)p->yaml.problem_value);
    return fail_at(p, mark, "not UTF-8 text (%s); save the file as UTF-8",
                   p->yaml.problem);
}

static int fail_syntax(struct parse *p)
{
    switch (p->yaml.error) {
    case YAML_MEMORY_ERROR: return out_of_memory(p);
    case YAML_READER_ERROR: return fail_reader(p);
    default: break;
    }
    yaml_mark_t mark = mark_inside(p, p->yaml.problem_mark);
    if (char_at(p, mark) == '\t')
        return fail_at(p, mark, "a tab in the indentation; YAML needs spaces");
    const char *problem = p->yaml.problem != NULL ? p->yaml.problem : "syntax error";
    if (p->yaml.context != NULL)
        return fail_at(p, mark, "not valid YAML: %s (%s that began at line %zu)", problem,
                       p->yaml.context, mark_inside(p, p->yaml.context_mark).line + 1);
    return fail_at(p, mark, "not valid YAML: %s", problem);
}

/* ---- the tree ---- */

static bool awaits_key(const struct parse *p)
{
    return p->depth > 0 && p->open[p->depth - 1]->kind == STG_TEXT_MAPPING &&
           p->key == NULL;
}

static int key_take(struct parse *p, const yaml_event_t *event)
{
    const char *s = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    if (n == 0)
        return fail_at(p, event->start_mark, "a key is missing before ':'");
    if (memchr(s, '\0', n) != NULL)
        return fail_at(p, event->start_mark, "a key with a NUL inside");
    p->key = stg_bump_strndup(p->bump, s, n);
    if (p->key == NULL)
        return out_of_memory(p);
    p->key_line = (int)event->start_mark.line + 1;
    p->key_column = (int)event->start_mark.column + 1;
    return 0;
}

/* Makes a node and hangs it under the innermost open one. */
static int node_add(struct parse *p, yaml_mark_t mark, enum stg_text_kind kind,
                    struct stg_text_node **ret)
{
    if (awaits_key(p))
        return fail_at(p, mark, "a key must be a word, not a list or mapping");
    if (++p->n_nodes > STG_TEXT_MAX_NODES)
        return fail_at(p, mark, "more than %u values in one text; make it smaller",
                       STG_TEXT_MAX_NODES);

    struct stg_text_node *node = stg_bump_alloc(p->bump, sizeof(*node));
    if (node == NULL)
        return out_of_memory(p);
    node->kind = kind;
    node->line = (int)mark.line + 1;
    node->column = (int)mark.column + 1;
    node->key = p->key;
    node->key_line = p->key_line;
    node->key_column = p->key_column;
    p->key = NULL;
    if (p->depth == 0) {
        p->root = node;
    } else {
        *p->tail[p->depth - 1] = node;
        p->tail[p->depth - 1] = &node->next;
        p->open[p->depth - 1]->n++;
    }
    *ret = node;
    return 0;
}

static int fail_tag(struct parse *p, yaml_mark_t mark, const yaml_char_t *tag)
{
    static const char standard[] = "tag:yaml.org,2002:";
    const char *s = (const char *)tag;
    char shown[64];
    bool is_standard = strncmp(s, standard, strlen(standard)) == 0;
    if (is_standard)
        s += strlen(standard);
    return fail_at(
        p, mark, "tags (%s%s) are not supported; quote a value to make it a string",
        is_standard ? "!!" : "", stg_text_printable(s, strlen(s), shown, sizeof(shown)));
}

static int scalar_take(struct parse *p, const yaml_event_t *event)
{
    if (event->data.scalar.tag != NULL)
        return fail_tag(p, event->start_mark, event->data.scalar.tag);
    if (awaits_key(p))
        return key_take(p, event);

    struct stg_text_node *node;
    int rc = node_add(p, event->start_mark, STG_TEXT_SCALAR, &node);
    if (rc < 0)
        return rc;
    node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    node->s_bytes = event->data.scalar.length;
    node->s =
        stg_bump_strndup(p->bump, (const char *)event->data.scalar.value, node->s_bytes);
    return node->s != NULL ? 0 : out_of_memory(p);
}

static int collection_open(struct parse *p, const yaml_event_t *event,
                           enum stg_text_kind kind, const yaml_char_t *tag)
{
    if (tag != NULL)
        return fail_tag(p, event->start_mark, tag);
    if (p->depth == STG_TEXT_MAX_DEPTH)
        return fail_at(p, event->start_mark, "nested deeper than %d levels; flatten it",
                       STG_TEXT_MAX_DEPTH);
    struct stg_text_node *node;
    int rc = node_add(p, event->start_mark, kind, &node);
    if (rc < 0)
        return rc;
    p->open[p->depth] = node;
    p->tail[p->depth] = &node->first;
    p->depth++;
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct stg_text_node *x = *(struct stg_text_node *const *)a;
    const struct stg_text_node *y = *(struct stg_text_node *const *)b;
    int order = strcmp(x->key, y->key);
    if (order != 0)
        return order;
    if (x->key_line != y->key_line)
        return x->key_line < y->key_line ? -1 : 1;
    return x->key_column < y->key_column ? -1 : x->key_column > y->key_column;
}

struct stg_text_node **stg_text_sorted(const struct stg_text_node *mapping,
                                       struct stg_bump *bump)
{
    struct stg_text_node **ret =
        stg_bump_alloc(bump, mapping->n * sizeof(struct stg_text_node *));
    if (ret == NULL)
        return NULL;
    size_t n = 0;
    for (struct stg_text_node *e = mapping->first; e != NULL; e = e->next)
        ret[n++] = e;
    qsort(ret, n, sizeof(struct stg_text_node *), by_key);
    return ret;
}

static int mapping_close(struct parse *p)
{
    const struct stg_text_node *mapping = p->open[--p->depth];
    if (mapping->n < 2)
        return 0;
    struct stg_text_node **entries = stg_text_sorted(mapping, p->bump);
    if (entries == NULL)
        return out_of_memory(p);
    for (size_t i = 1; i < mapping->n; i++) {
        const struct stg_text_node *e = entries[i];
        if (strcmp(entries[i - 1]->key, e->key) != 0)
            continue;
        char key[64];
        yaml_mark_t mark = {.line = (size_t)e->key_line - 1,
                            .column = (size_t)e->key_column - 1};
        return fail_at(p, mark, "key \"%s\" is given twice (first at line %d); keep one",
                       stg_text_printable(e->key, strlen(e->key), key, sizeof(key)),
                       entries[i - 1]->key_line);
    }
    return 0;
}

static bool has_anchor(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT: return event->data.scalar.anchor != NULL;
    case YAML_SEQUENCE_START_EVENT: return event->data.sequence_start.anchor != NULL;
    case YAML_MAPPING_START_EVENT: return event->data.mapping_start.anchor != NULL;
    default: return event->type == YAML_ALIAS_EVENT;
    }
}

static int event_take(struct parse *p, const yaml_event_t *event)
{
    if (has_anchor(event))
        return fail_at(p, event->start_mark,
                       "anchors (&) and aliases (*) are not supported, because they can "
                       "make a small text huge; write the value out, or quote it");
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (p->n_documents++ > 0)
            return fail_at(p, event->start_mark,
                           "a second document begins here; a file holds one");
        return 0;
    case YAML_SCALAR_EVENT: return scalar_take(p, event);
    case YAML_SEQUENCE_START_EVENT:
        return collection_open(p, event, STG_TEXT_LIST, event->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return collection_open(p, event, STG_TEXT_MAPPING, event->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT: p->depth--; return 0;
    case YAML_MAPPING_END_EVENT: return mapping_close(p);
    default: return 0;
    }
}

static int events_run(struct parse *p)
{
    yaml_event_type_t type = YAML_NO_EVENT;
    while (type != YAML_STREAM_END_EVENT) {
        yaml_event_t event;
        if (!yaml_parser_parse(&p->yaml, &event))
            return fail_syntax(p);
        type = event.type;
        int rc = event_take(p, &event);
        yaml_event_delete(&event);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int stg_text_parse(const char *text, size_t bytes, const char *file,
                   struct stg_bump *bump, struct stg_text_node **ret, struct stg_err *err)
{
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3; /* a byte order mark */
        bytes -= 3;
    }
    struct parse p = {
        .text = text, .bytes = bytes, .file = file, .bump = bump, .err = err};
    if (bytes > STG_TEXT_MAX_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s: the text has %zu bytes; the maximum is %u", file, bytes,
                       STG_TEXT_MAX_BYTES);
    if (!yaml_parser_initialize(&p.yaml))
        return out_of_memory(&p);
    yaml_parser_set_encoding(&p.yaml, YAML_UTF8_ENCODING);
    const char *input = bytes > 0 ? text : "";
    yaml_parser_set_input_string(&p.yaml, (const unsigned char *)input, bytes);
    int rc = events_run(&p);
    yaml_parser_delete(&p.yaml);
    if (rc < 0)
        return rc;
    assert(p.depth == 0);
    *ret = p.root;
    return 0;
}

int stg_text_sort(struct stg_text_node *node, struct stg_bump *bump)
{
    if (node->kind == STG_TEXT_MAPPING && node->n > 1) {
        struct stg_text_node **entries = stg_text_sorted(node, bump);
        if (entries == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
        for (size_t i = 0; i + 1 < node->n; i++)
            entries[i]->next = entries[i + 1];
        entries[node->n - 1]->next = NULL;
        node->first = entries[0];
    }
    for (struct stg_text_node *e = node->first; e != NULL; e = e->next) {
        int rc = stg_text_sort(e, bump);
        if (rc < 0)
            return rc;
    }
    return 0;
}
