/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/operations/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/text/json.h"

#define SHORT_BYTES 128 /* of names, at most */
#define LONG_BYTES 1024 /* of reasons */

/* The ids are part of the interface: docs/stagerd.md. */
static const struct {
    const char *name, *id;
    int priority; /* of syslog(3) */
} kinds[STG_N_OPERATIONS] = {
    [STG_OPERATION_APPLIED] = {"applied", "acc48cafe73249b194ad89fa7f481b7a", 5},
    [STG_OPERATION_REPLACED] = {"replaced", "ac36aeb0ae16480b9fe27035902deacc", 5},
    [STG_OPERATION_ROLLED_BACK] = {"rolled_back", "6282878d28a24995a2223e4618b372b7", 5},
    [STG_OPERATION_DELETED] = {"deleted", "f9df7becb6c141e2a4e62c56c06a013c", 5},
    [STG_OPERATION_ATTACHED] = {"attached", "9b605b429acf448e9e45ef198927ef8a", 6},
    [STG_OPERATION_REFUSED] = {"refused", "8fe4c287da414d3b9c05c699540335da", 4},
    [STG_OPERATION_DRAINED] = {"drained", "40e354d6d5944d40b771de617c232854", 5},
    [STG_OPERATION_RESUMED] = {"resumed", "63063832d60547e899dbca84989f2079", 5},
    [STG_OPERATION_RELOADED] = {"reloaded", "91b383833e0c499f8fe37492dd618303", 5},
    [STG_OPERATION_LOST] = {"lost", "1aab878560d3471ca38946b7dbee036b", 4},
};

/* ---- text ---- */

/* Returns the length of the prefix of at most `most` bytes that ends with a whole
 * character. */
static size_t whole_prefix(const char *text, size_t most)
{
    size_t n = strnlen(text, most + 1);
    if (n <= most)
        return n;
    for (n = most; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
        n--;
    return n;
}

/* Copies the text so that it is one line of UTF-8: a client chooses it. */
static const char *clean(const char *text, size_t most, char buf[LONG_BYTES + 1])
{
    size_t n = text != NULL ? whole_prefix(text, most) : 0;
    bool is_text = n == 0 || stg_json_is_text(text, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_control = c < ' ' || c == 0x7f;
        buf[i] = is_control || (c >= 0x80 && !is_text) ? '?' : text[i];
        if (i > 0 && (unsigned char)buf[i - 1] == 0xc2 && c >= 0x80 && c < 0xa0)
            buf[i - 1] = buf[i] = '?'; /* U+0080 to U+009F are controls too */
    }
    buf[n] = '\0';
    return buf;
}

/* ---- fields ---- */

/* What a record is written with, in both forms. */
struct writer {
    void (*put_text)(FILE *out, const char *key, const char *value);
    void (*put_number)(FILE *out, const char *key, uint64_t value);
};

static void put_text(const struct writer *writer, FILE *out, const char *key,
                     const char *text, size_t most)
{
    char buf[LONG_BYTES + 1];
    if (text != NULL && text[0] != '\0')
        writer->put_text(out, key, clean(text, most, buf));
}

static void put_fields(const struct writer *writer, FILE *out,
                       const struct stg_operation *o)
{
    if (o->has_user) {
        writer->put_number(out, "uid", o->uid);
        writer->put_number(out, "gid", o->gid);
    }
    if (o->pid != 0)
        writer->put_number(out, "pid", (uint64_t)o->pid);
    put_text(writer, out, "program", o->program, SHORT_BYTES);
    put_text(writer, out, "request", o->request, SHORT_BYTES);
    put_text(writer, out, "pipeline", o->pipeline, SHORT_BYTES);
    if (o->generation != 0)
        writer->put_number(out, "generation", o->generation);
    if (o->unchanged)
        writer->put_number(out, "unchanged", 1);
    put_text(writer, out, "client", o->client, SHORT_BYTES);
    put_text(writer, out, "status", o->status, SHORT_BYTES);
    put_text(writer, out, "reason", o->reason, LONG_BYTES);
    put_text(writer, out, "settings", o->settings, LONG_BYTES);
    if (o->n_lost != 0)
        writer->put_number(out, "lost", o->n_lost);
}

/* Returns what was written, 0 if it did not fit. */
static size_t end(FILE *out, const char *buf)
{
    bool is_whole = fflush(out) == 0 && ferror(out) == 0;
    long n = is_whole ? ftell(out) : 0;
    fclose(out);
    return n > 0 && n < STG_OPERATION_BYTES ? (size_t)n : 0;
}

/* ---- journald ---- */

static void put_key(FILE *out, const char *key)
{
    fputs("STAGER_", out);
    for (; *key != '\0'; key++)
        fputc(*key >= 'a' && *key <= 'z' ? *key - 'a' + 'A' : *key, out);
    fputc('=', out);
}

static void put_journal_text(FILE *out, const char *key, const char *value)
{
    put_key(out, key);
    fprintf(out, "%s\n", value);
}

static void put_journal_number(FILE *out, const char *key, uint64_t value)
{
    put_key(out, key);
    fprintf(out, "%" PRIu64 "\n", value);
}

static void put_message(FILE *out, const struct stg_operation *o)
{
    char buf[LONG_BYTES + 1];
    fprintf(out, "MESSAGE=%s", kinds[o->kind].name);
    if (o->request != NULL && o->request[0] != '\0')
        fprintf(out, " %s", clean(o->request, SHORT_BYTES, buf));
    if (o->pipeline != NULL && o->pipeline[0] != '\0')
        fprintf(out, " of pipeline %s", clean(o->pipeline, SHORT_BYTES, buf));
    if (o->has_user)
        fprintf(out, ", uid %u", (unsigned)o->uid);
    if (o->settings != NULL && o->settings[0] != '\0')
        fprintf(out, ": %s", clean(o->settings, LONG_BYTES, buf));
    if (o->reason != NULL && o->reason[0] != '\0')
        fprintf(out, ": %s", clean(o->reason, LONG_BYTES, buf));
    if (o->n_lost != 0)
        fprintf(out, ": %" PRIu64 " records are missing", o->n_lost);
    fputc('\n', out);
}

size_t stg_operation_for_journal(const struct stg_operation *operation,
                                 char buf[STG_OPERATION_BYTES])
{
    static const struct writer writer = {put_journal_text, put_journal_number};
    FILE *out = fmemopen(buf, STG_OPERATION_BYTES, "w");
    if (out == NULL)
        return 0;
    put_message(out, operation);
    fprintf(out, "MESSAGE_ID=%s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=stagerd\n",
            kinds[operation->kind].id, kinds[operation->kind].priority);
    put_journal_text(out, "operation", kinds[operation->kind].name);
    put_fields(&writer, out, operation);
    return end(out, buf);
}

/* ---- JSON ---- */

static void put_json_text(FILE *out, const char *key, const char *value)
{
    struct stg_json_writer json = {.out = out, .comma = true};
    stg_json_put_string(&json, key, value);
}

static void put_json_number(FILE *out, const char *key, uint64_t value)
{
    struct stg_json_writer json = {.out = out, .comma = true};
    stg_json_put_uint(&json, key, value);
}

size_t stg_operation_for_file(const struct stg_operation *operation, uint64_t time_ns,
                              char buf[STG_OPERATION_BYTES])
{
    static const struct writer writer = {put_json_text, put_json_number};
    FILE *out = fmemopen(buf, STG_OPERATION_BYTES, "w");
    time_t second = (time_t)(time_ns / 1000000000);
    char text[32];
    struct tm tm;
    if (out == NULL)
        return 0;
    gmtime_r(&second, &tm);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    fprintf(out,
            "{\"time\":\"%s.%06" PRIu64 "Z\",\"operation\":\"%s\",\"message_id\":\"%s\"",
            text, time_ns % 1000000000 / 1000, kinds[operation->kind].name,
            kinds[operation->kind].id);
    put_fields(&writer, out, operation);
    fputs("}\n", out);
    return end(out, buf);
}
