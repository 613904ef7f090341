/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cluster/note.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fingerprint.h"

#define FIRST_LINE "stager host 1\n"

void stg_host_note_finish(struct stg_host_note *note)
{
    free(note->seen);
    note->seen = NULL;
    note->n_seen = 0;
}

bool stg_host_note_has_seen(const struct stg_host_note *note, uint64_t draw)
{
    size_t i = 0;
    while (i < note->n_seen && note->seen[i] != draw)
        i++;
    return i < note->n_seen;
}

/* ---- writing ---- */

size_t stg_host_note_write(const struct stg_host_note *note, char *buf)
{
    int n = snprintf(buf, STG_NOTE_BYTES,
                     FIRST_LINE "number %" PRIu32 " of %" PRIu32 "\ndraw %016" PRIx64
                                "\nhost %s\nrelease %s\nsteps %s\nbatch_size %" PRIu64
                                "\nfiles %" PRIu64 " by %" PRIu64 " %016" PRIx64
                                "\nvocabularies %016" PRIx64 "\n",
                     note->number, note->n_hosts, note->draw, note->host, note->release,
                     note->steps, note->batch_size, note->n_files, note->span,
                     note->files, note->vocabularies);
    for (size_t i = 0; i < note->n_seen; i++)
        n += snprintf(buf + n, STG_NOTE_BYTES - (size_t)n, "seen %016" PRIx64 "\n",
                      note->seen[i]);
    n += snprintf(buf + n, STG_NOTE_BYTES - (size_t)n, "end\n");
    return (size_t)n;
}

size_t stg_file_marks_write(uint64_t draw, const struct stg_file_mark *marks, size_t n,
                            char *buf)
{
    int at = snprintf(buf, STG_LIST_BYTES, "draw %016" PRIx64 "\n", draw);
    for (size_t i = 0; i < n; i++)
        at += snprintf(buf + at, STG_LIST_BYTES - (size_t)at,
                       "file %016" PRIx64 " %016" PRIx64 "\n", marks[i].name,
                       marks[i].bytes);
    at += snprintf(buf + at, STG_LIST_BYTES - (size_t)at, "end\n");
    return (size_t)at;
}

uint64_t stg_file_marks_digest(const struct stg_file_mark *marks, size_t n)
{
    uint64_t hash = STG_FARM_K0;
    for (size_t i = 0; i < n; i++) {
        hash = stg_fingerprint64_of(hash, marks[i].name, 16);
        hash = stg_fingerprint64_of(hash, marks[i].bytes, 16);
    }
    return hash;
}

/* ---- reading ---- */

/* Skips the word, if the text begins with it. */
static bool skip(const char **at, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

static bool read_number(const char **at, uint64_t *ret)
{
    const char *begin = *at;
    uint64_t number = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (__builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(**at - '0'), &number))
            return false;
    }
    *ret = number;
    return *at > begin;
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char **at, uint64_t *ret)
{
    *ret = 0;
    for (int i = 0; i < 16; i++, (*at)++) {
        int digit = hex_of(**at);
        if (digit < 0)
            return false;
        *ret = *ret << 4 | (uint64_t)digit;
    }
    return true;
}

/* A word without spaces up to the end of the line: it goes into messages. */
static bool read_word(const char **at, char *ret, size_t bytes)
{
    size_t n = 0;
    while ((*at)[n] > ' ' && (*at)[n] < 0x7f && n + 1 < bytes)
        n++;
    memcpy(ret, *at, n);
    ret[n] = '\0';
    *at += n;
    return n > 0 && skip(at, "\n");
}

static bool read_head(const char **at, struct stg_host_note *ret)
{
    uint64_t number, n_hosts;
    if (!skip(at, FIRST_LINE "number ") || !read_number(at, &number) ||
        !skip(at, " of ") || !read_number(at, &n_hosts) || n_hosts > STG_NOTE_MAX_HOSTS ||
        number >= n_hosts)
        return false;
    ret->number = (uint32_t)number;
    ret->n_hosts = (uint32_t)n_hosts;
    return skip(at, "\ndraw ") && read_hex(at, &ret->draw) && skip(at, "\nhost ") &&
           read_word(at, ret->host, sizeof(ret->host)) && skip(at, "release ") &&
           read_word(at, ret->release, sizeof(ret->release)) && skip(at, "steps ") &&
           read_word(at, ret->steps, sizeof(ret->steps)) && skip(at, "batch_size ") &&
           read_number(at, &ret->batch_size) && skip(at, "\nfiles ") &&
           read_number(at, &ret->n_files) && skip(at, " by ") &&
           read_number(at, &ret->span) && ret->span > 0 && skip(at, " ") &&
           read_hex(at, &ret->files) && skip(at, "\nvocabularies ") &&
           read_hex(at, &ret->vocabularies) && skip(at, "\n");
}

static size_t count_lines(const char *text)
{
    size_t n = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        n++;
    return n;
}

int stg_host_note_read(const char *text, struct stg_host_note *ret)
{
    struct stg_host_note note = {0};
    if (!read_head(&text, &note))
        return -STAGER_INVALID_ARGUMENT;
    size_t n = count_lines(text);
    if (n == 0 || n > STG_NOTE_MAX_HOSTS)
        return -STAGER_INVALID_ARGUMENT;
    note.seen = malloc(n * sizeof(*note.seen));
    if (note.seen == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    bool ok = true; /* the last line may have no end */
    while (ok && note.n_seen < n && skip(&text, "seen "))
        ok = read_hex(&text, &note.seen[note.n_seen++]) && skip(&text, "\n");
    if (!ok || strcmp(text, "end\n") != 0) {
        stg_host_note_finish(&note);
        return -STAGER_INVALID_ARGUMENT;
    }
    *ret = note;
    return 0;
}

int stg_file_marks_read(const char *text, uint64_t draw, struct stg_file_mark *ret)
{
    uint64_t its;
    int n = 0;
    if (!skip(&text, "draw ") || !read_hex(&text, &its) || its != draw ||
        !skip(&text, "\n"))
        return -STAGER_INVALID_ARGUMENT;
    while (n < (int)STG_NOTE_MAX_FILES && skip(&text, "file ")) {
        if (!read_hex(&text, &ret[n].name) || !skip(&text, " ") ||
            !read_hex(&text, &ret[n].bytes) || !skip(&text, "\n"))
            return -STAGER_INVALID_ARGUMENT;
        n++;
    }
    return strcmp(text, "end\n") == 0 ? n : -STAGER_INVALID_ARGUMENT;
}

/* ---- what differs ---- */

/* Parts are divided by commas, and begin with their names. */
static void name_step(const char *a, const char *b, char *what, size_t bytes)
{
    unsigned number = 1;
    size_t n = strcspn(a, ","), m = strcspn(b, ",");
    while (n == m && memcmp(a, b, n) == 0 && a[n] == ',' && b[n] == ',') {
        a += n + 1;
        b += n + 1;
        n = strcspn(a, ",");
        m = strcspn(b, ",");
        number++;
    }
    const char *name = n > 0 ? a : b;
    size_t n_name = strcspn(name, ":,@");
    if (name[0] == '#')
        snprintf(what, bytes, "one of its many steps");
    else if (n_name == 5 && memcmp(name, "graph", 5) == 0)
        snprintf(what, bytes, "the graph");
    else if (n_name == 8 && memcmp(name, "features", 8) == 0)
        snprintf(what, bytes, "features");
    else
        snprintf(what, bytes, "step %.*s (number %u)", (int)(n_name < 64 ? n_name : 64),
                 name, number);
}

bool stg_host_notes_differ(const struct stg_host_note *a, const struct stg_host_note *b,
                           char *what, size_t bytes)
{
    if (strcmp(a->release, b->release) != 0)
        snprintf(what, bytes, "the release of stagerd (%s and %s)", a->release,
                 b->release);
    else if (strcmp(a->steps, b->steps) != 0)
        name_step(a->steps, b->steps, what, bytes);
    else if (a->batch_size != b->batch_size)
        snprintf(what, bytes, "batch_size (%" PRIu64 " and %" PRIu64 ")", a->batch_size,
                 b->batch_size);
    else if (a->vocabularies != b->vocabularies)
        snprintf(what, bytes, "the content of a vocabulary");
    else
        return false;
    return true;
}
