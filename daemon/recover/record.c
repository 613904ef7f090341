/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/recover/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fingerprint.h"
#include "core/record/line.h"

#define MAGIC "stager_run"
#define SUM_BYTES 21 /* "sum 0123456789abcdef\n" */

void stg_run_record_finish(struct stg_run_record *record)
{
    for (size_t i = 0; record->members != NULL && i < record->n_members; i++)
        free(record->members[i].acknowledged);
    free(record->vacant);
    free(record->members);
    record->vacant = NULL;
    record->members = NULL;
    record->n_vacant = record->n_members = 0;
}

/* ---- writing ---- */

static void write_head(FILE *file, const struct stg_run_record *record)
{
    fprintf(file, MAGIC " %d %s %s %" PRIu64 " %016" PRIx64 "\n", STG_RUN_RECORD_VERSION,
            record->boot, record->name, record->generation, record->fingerprint);
    fprintf(file,
            "run %016" PRIx64 " %" PRIu64 " %u %" PRIu64 " %" PRIu64
            " %u %d %d %zu %zu\n",
            record->run, record->attempt, record->num_clients, record->pass,
            record->numbers_pass, record->consumers, record->has_begun, record->is_full,
            record->n_vacant, record->n_members);
    fprintf(file, "definition %d %" PRIu64 " =%s\n", (int)record->delivery,
            record->batch_size, record->steps);
    fprintf(file, "left =%s\n", record->left);
}

static void write_origin(FILE *file, const struct stg_run_record *record)
{
    char text[STG_STATE_TEXT_BYTES] = "";
    if (record->has_origin)
        stg_state_write(&record->origin, text);
    fprintf(file, "origin %s\n", text);
}

static void write_member(FILE *file, const struct stg_run_member *member)
{
    char name[STG_LINE_NAME_BYTES(sizeof(member->client_id) - 1)];
    stg_line_escape(member->client_id, name);
    fprintf(file,
            "member %016" PRIx64 " %" PRIu64 " %" PRIu64 " %u %u %u %u %d %d %d %d ",
            member->member, member->attempt, member->process, member->pid, member->uid,
            member->rank, member->consumer, member->is_named, member->is_late,
            member->took_over, member->follows);
    fprintf(file, "=%s %s\n", member->acknowledged != NULL ? member->acknowledged : "",
            name);
}

char *stg_run_record_write(const struct stg_run_record *record, size_t *ret_bytes)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL)
        return NULL;
    write_head(file, record);
    write_origin(file, record);
    for (size_t i = 0; i < record->n_vacant; i++)
        fprintf(file, "vacant %u\n", record->vacant[i]);
    for (size_t i = 0; i < record->n_members; i++)
        write_member(file, &record->members[i]);
    bool ok = fflush(file) == 0;
    uint64_t sum = ok ? stg_farm_hash(text, bytes) : 0;
    fprintf(file, "sum %016" PRIx64 "\n", sum);
    ok = fclose(file) == 0 && ok;
    if (!ok) {
        free(text);
        return NULL;
    }
    *ret_bytes = bytes;
    return text;
}

/* ---- reading: a text whose checksum is right, whatever wrote it ---- */

struct reader {
    char *at;
    struct stg_err *err;
};

static int refuse(const struct reader *r, const char *what)
{
    return stg_err(r->err, -STAGER_INVALID_ARGUMENT, "not a record of a run: %s", what);
}

/* Returns the next line without the word that it begins with; NULL: it does not. */
static char *take_line(struct reader *r, const char *word)
{
    size_t n = strlen(word);
    char *end = strchr(r->at, '\n');
    if (end == NULL || strncmp(r->at, word, n) != 0 || r->at[n] != ' ')
        return NULL;
    char *line = r->at + n + 1;
    *end = '\0';
    r->at = end + 1;
    return line;
}

static int read_head(struct reader *r, struct stg_run_record *ret)
{
    int version = 0;
    char *line = take_line(r, MAGIC);
    if (line == NULL || sscanf(line, "%d", &version) != 1)
        return refuse(r, "it does not begin with " MAGIC);
    if (version != STG_RUN_RECORD_VERSION)
        return refuse(r, "it is of another release of stagerd");
    if (sscanf(line, "%*d %39s %64s %" SCNu64 " %" SCNx64, ret->boot, ret->name,
               &ret->generation, &ret->fingerprint) != 4)
        return refuse(r, "its first line is incomplete");
    return 0;
}

static int read_run(struct reader *r, struct stg_run_record *ret)
{
    int has_begun = 0, is_full = 0;
    char *line = take_line(r, "run");
    if (line == NULL ||
        sscanf(line,
               "%" SCNx64 " %" SCNu64 " %" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu32
               " %d %d %zu %zu",
               &ret->run, &ret->attempt, &ret->num_clients, &ret->pass,
               &ret->numbers_pass, &ret->consumers, &has_begun, &is_full, &ret->n_vacant,
               &ret->n_members) != 10 ||
        ret->num_clients == 0)
        return refuse(r, "the line of the run is incomplete");
    ret->has_begun = has_begun != 0;
    ret->is_full = is_full != 0;
    if (ret->n_vacant > STG_RUN_MAX_MEMBERS || ret->n_members > STG_RUN_MAX_MEMBERS) {
        ret->n_vacant = ret->n_members = 0;
        return refuse(r, "it has too many members");
    }
    return 0;
}

static int read_definition(struct reader *r, struct stg_run_record *ret)
{
    int delivery = 0, n = 0;
    const char *line = take_line(r, "definition");
    if (line == NULL ||
        sscanf(line, "%d %" SCNu64 " =%n", &delivery, &ret->batch_size, &n) != 2 ||
        n == 0 || strlen(line + n) >= sizeof(ret->steps))
        return refuse(r, "the line of the definition is incomplete");
    ret->delivery = (enum stg_delivery)delivery;
    memcpy(ret->steps, line + n, strlen(line + n) + 1);
    return 0;
}

static int read_left(struct reader *r, struct stg_run_record *ret)
{
    struct stg_taken set = {0};
    const char *line = take_line(r, "left");
    if (line == NULL || line[0] != '=' || strlen(line + 1) >= sizeof(ret->left))
        return refuse(r, "the items of clients that left are missing");
    memcpy(ret->left, line + 1, strlen(line + 1) + 1);
    int rc = stg_taken_read(ret->left, &set, r->err);
    stg_taken_finish(&set);
    return rc;
}

static int read_origin(struct reader *r, struct stg_run_record *ret)
{
    const char *line = take_line(r, "origin");
    if (line == NULL)
        return refuse(r, "the line of the origin is missing");
    ret->has_origin = line[0] != '\0';
    return ret->has_origin ? stg_state_read(line, strlen(line), &ret->origin, r->err) : 0;
}

static int read_vacant(struct reader *r, struct stg_run_record *ret)
{
    for (size_t i = 0; i < ret->n_vacant; i++) {
        const char *line = take_line(r, "vacant");
        if (line == NULL || sscanf(line, "%" SCNu32, &ret->vacant[i]) != 1)
            return refuse(r, "a number of a consumer is missing");
    }
    return 0;
}

static int read_acknowledged(struct reader *r, char *text, struct stg_run_member *ret)
{
    struct stg_taken set = {0};
    if (*text++ != '=')
        return refuse(r, "the items of a member are missing");
    int rc = stg_taken_read(text, &set, r->err);
    bool has_some = rc == 0 && set.n > 0;
    stg_taken_finish(&set);
    ret->acknowledged = has_some ? strdup(text) : NULL;
    if (has_some && ret->acknowledged == NULL)
        rc = stg_err(r->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return rc;
}

static int read_member(struct reader *r, struct stg_run_member *ret)
{
    int is_named, is_late, took_over, follows, n = 0;
    char *line = take_line(r, "member");
    if (line == NULL ||
        sscanf(line,
               "%" SCNx64 " %" SCNu64 " %" SCNu64 " %" SCNu32 " %" SCNu32 " %" SCNu32
               " %" SCNu32 " %d %d %d %d %n",
               &ret->member, &ret->attempt, &ret->process, &ret->pid, &ret->uid,
               &ret->rank, &ret->consumer, &is_named, &is_late, &took_over, &follows,
               &n) != 11 ||
        n == 0 || ret->member == 0)
        return refuse(r, "a member is missing or incomplete");
    ret->is_named = is_named != 0;
    ret->is_late = is_late != 0;
    ret->took_over = took_over != 0;
    ret->follows = follows != 0;
    char *name = strchr(line + n, ' ');
    if (name == NULL)
        return refuse(r, "a member has no name");
    *name++ = '\0';
    struct stg_words words = {.at = name, .end = name + strlen(name)};
    return stg_words_name(&words, ret->client_id, sizeof(ret->client_id)) &&
                   words.at == words.end
               ? read_acknowledged(r, line + n, ret)
               : refuse(r, "the name of a member is damaged");
}

static int read_members(struct reader *r, struct stg_run_record *ret)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ret->n_members; i++)
        rc = read_member(r, &ret->members[i]);
    return rc == 0 && *r->at != '\0' ? refuse(r, "text follows its members") : rc;
}

static int read_body(struct reader *r, struct stg_run_record *ret)
{
    int rc = read_head(r, ret);
    if (rc == 0)
        rc = read_run(r, ret);
    if (rc == 0)
        rc = read_definition(r, ret);
    if (rc == 0)
        rc = read_left(r, ret);
    if (rc == 0)
        rc = read_origin(r, ret);
    if (rc < 0)
        return rc;
    ret->vacant = calloc(ret->n_vacant + 1, sizeof(ret->vacant[0]));
    ret->members = calloc(ret->n_members + 1, sizeof(ret->members[0]));
    if (ret->vacant == NULL || ret->members == NULL)
        return stg_err(r->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    rc = read_vacant(r, ret);
    return rc == 0 ? read_members(r, ret) : rc;
}

static bool is_sum_right(const char *text, size_t bytes)
{
    char sum[SUM_BYTES + 1];
    if (bytes < SUM_BYTES)
        return false;
    snprintf(sum, sizeof(sum), "sum %016" PRIx64 "\n",
             stg_farm_hash(text, bytes - SUM_BYTES));
    return memcmp(sum, text + bytes - SUM_BYTES, SUM_BYTES) == 0;
}

int stg_run_record_read(const char *text, size_t bytes, struct stg_run_record *ret,
                        struct stg_err *err)
{
    if (!is_sum_right(text, bytes))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "not a record of a run: its sum does not match its text");
    char *copy = malloc(bytes + 1);
    if (copy == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    memcpy(copy, text, bytes - SUM_BYTES);
    copy[bytes - SUM_BYTES] = '\0';
    struct reader r = {.at = copy, .err = err};
    int rc = read_body(&r, ret);
    free(copy);
    return rc;
}
