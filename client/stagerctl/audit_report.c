/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/audit_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/stagerctl/reply.h"

#define MAX_FILE_BYTES (64u << 20)
#define MAX_RANGES 4096 /* of a set, in JSON */

/* ---- sources ---- */

int stg_audit_source_parse(const char *argument, const char *job,
                           struct stg_audit_source *ret, struct stg_err *err)
{
    *ret =
        (struct stg_audit_source){.is_file = strchr(argument, '/') != NULL, .job = job};
    const char *at = strrchr(argument, '@');
    bool has_attempt = at != NULL && strchr(at, '/') == NULL;
    size_t n = has_attempt ? (size_t)(at - argument) : strlen(argument);
    char *end = NULL;
    if (has_attempt)
        ret->attempt = strtoull(at + 1, &end, 10);
    if (has_attempt && (at[1] < '0' || at[1] > '9' || *end != '\0' || ret->attempt == 0))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "\"%.256s\": what follows the @ is not the number of an attempt",
                       argument);
    if (n == 0 || n >= sizeof(ret->name))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "\"%.256s\": expected the name of a pipeline, or a path with a /",
                       argument);
    memcpy(ret->name, argument, n);
    return 0;
}

static int read_file(struct stg_audit_source *source, struct stg_err *err)
{
    FILE *file = fopen(source->name, "re");
    if (file == NULL)
        return stg_err(err,
                       errno == ENOENT ? -STAGER_NOT_FOUND : -STAGER_PERMISSION_DENIED,
                       "%s: %s", source->name, strerror(errno));
    size_t size = 0, n = 0, more = 1;
    int rc = 0;
    while (rc == 0 && more > 0) {
        char *text = n == size ? realloc(source->text, 2 * size + 65536) : source->text;
        if (text == NULL || n > MAX_FILE_BYTES) {
            rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: %s", source->name,
                         text == NULL ? "out of memory" : "longer than any audit");
            continue;
        }
        size = n == size ? 2 * size + 65536 : size;
        source->text = text;
        more = fread(text + n, 1, size - n, file);
        n += more;
    }
    if (rc == 0 && ferror(file))
        rc = stg_err(err, -STAGER_DATA_LOSS, "%s: %s", source->name, strerror(errno));
    fclose(file);
    source->bytes = n;
    return rc == 0 ? stg_audit_read(&source->audit, source->text, n, err) : rc;
}

/* Returns the attempt of that generation, of the source's job; NULL: this host was not in
 * it. */
static const struct stg_audit_begin *find_generation(
    const struct stg_audit_source *source, const struct stg_commit_entry *of)
{
    for (size_t i = source->audit.n_attempts; i-- > 0;) {
        const struct stg_audit_begin *begin = &source->audit.attempts[i].begin;
        if (begin->hosts.job != NULL && strcmp(begin->hosts.job, source->job) == 0 &&
            begin->hosts.generation == of->attempt &&
            strcmp(begin->lane, stg_text_or(of->lane, "")) == 0)
            return begin;
    }
    return NULL;
}

/* Appends the commits that etcd has to the text, which -o writes. */
static int add_commits(struct stg_audit_source *source, const struct stg_reply *reply,
                       struct stg_err *err)
{
    struct stg_audit_text lines = {0};
    for (size_t i = 0; i < reply->n_commits; i++) {
        const struct stg_commit_entry *entry = &reply->commits[i];
        const struct stg_audit_begin *begin = find_generation(source, entry);
        if (begin == NULL)
            continue;
        struct stg_audit_commit commit = {
            .run = begin->run,
            .attempt = begin->attempt,
            .time_ns = entry->time_ns,
            .tag = entry->tag,
            .point = {entry->pass, entry->items, entry->position, ""}};
        stg_audit_write_commit(&lines, &commit);
    }
    char *text = realloc(source->text, source->bytes + lines.n + 1);
    int rc = text == NULL || lines.has_failed
                 ? stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory")
                 : 0;
    if (text != NULL)
        source->text = text;
    if (rc == 0 && lines.n > 0) {
        memcpy(source->text + source->bytes, lines.bytes, lines.n);
        source->bytes += lines.n;
        rc = stg_audit_read(&source->audit, lines.bytes, lines.n, err);
    }
    free(lines.bytes);
    return rc;
}

static int ask(struct stg_audit_source *source, const char *runtime_dir,
               struct stg_err *err)
{
    struct stager *client;
    int rc = stager_connect(runtime_dir, &client);
    if (rc < 0)
        return stg_err(err, rc, "%s", stager_error_text(NULL));
    rc = stg_admin_audit(client, source->name, &source->text, &source->bytes, err);
    if (rc == 0)
        rc = stg_audit_read(&source->audit, source->text, source->bytes, err);
    stager_disconnect(client);
    return rc;
}

/* The commits are read first: the audit then has what was delivered before them. The
 * reply lives as long as its connection makes no other call. */
static int ask_job(struct stg_audit_source *source, const char *runtime_dir,
                   struct stg_err *err)
{
    struct stager *client;
    struct stg_request request = {
        .kind = STG_REQUEST_COMMITS, .name = source->name, .job = source->job};
    struct stg_reply reply;
    int rc = stager_connect(runtime_dir, &client);
    if (rc < 0)
        return stg_err(err, rc, "%s", stager_error_text(NULL));
    rc = stg_admin_call(client, &request, &reply, err);
    if (rc == 0)
        rc = ask(source, runtime_dir, err);
    if (rc == 0)
        rc = add_commits(source, &reply, err);
    stager_disconnect(client);
    return rc;
}

static bool is_meant(const struct stg_audit_source *source,
                     const struct stg_audit_attempt *attempt)
{
    return source->attempt == 0 || attempt->begin.attempt == source->attempt;
}

/* Leaves the attempts that were asked for, and notes a job of the others. */
static int choose(struct stg_audit_source *source, struct stg_err *err)
{
    const struct stg_audit *audit = &source->audit;
    for (size_t i = 0; i < audit->n_attempts && !source->has_other; i++) {
        const char *job = audit->attempts[i].begin.hosts.job;
        source->has_other =
            job != NULL && (source->job == NULL || strcmp(job, source->job) != 0);
        if (source->has_other)
            snprintf(source->other, sizeof(source->other), "%s", job);
    }
    stg_audit_keep_job(&source->audit, source->job);
    for (size_t i = 0; i < audit->n_attempts; i++) {
        if (is_meant(source, &audit->attempts[i]))
            return 0;
    }
    if (audit->n_attempts > 0)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "%s has no attempt %" PRIu64
                       ", or it is too old: `stagerctl audit %s` lists those that it has",
                       source->name, source->attempt, source->name);
    if (source->job == NULL)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "all attempts of %s are of jobs whose commits etcd has: name one, "
                       "such as --job \"%s\"",
                       source->name, source->other);
    stg_err(err, -STAGER_NOT_FOUND,
            "%s has no attempt of job \"%s\" whose hosts etcd has", source->name,
            source->job);
    return source->has_other
               ? stg_err_append(err, err->code, "; one of its jobs is \"%s\"",
                                source->other)
               : err->code;
}

int stg_audit_source_load(struct stg_audit_source *source, const char *runtime_dir,
                          struct stg_err *err)
{
    int rc = source->is_file       ? read_file(source, err)
             : source->job != NULL ? ask_job(source, runtime_dir, err)
                                   : ask(source, runtime_dir, err);
    if (rc == 0 && source->audit.n_attempts == 0)
        rc = stg_err(err, -STAGER_DATA_LOSS,
                     "%s has no attempt, and %zu lines that are damaged: it is not an "
                     "audit that `stagerctl audit -o` wrote",
                     source->name, source->audit.n_bad);
    return rc == 0 ? choose(source, err) : rc;
}

void stg_audit_source_finish(struct stg_audit_source *source)
{
    free(source->text);
    stg_audit_finish(&source->audit);
}

static bool is_first_of_lane(const struct stg_audit_source *source, size_t i)
{
    const struct stg_audit_attempt *all = source->audit.attempts;
    size_t k = 0;
    while (k < i && (strcmp(all[k].begin.lane, all[i].begin.lane) != 0 ||
                     !is_meant(source, &all[k])))
        k++;
    return k == i;
}

const char *stg_audit_lane(const struct stg_audit_source *source, size_t i)
{
    const struct stg_audit *audit = &source->audit;
    for (size_t k = 0; k < audit->n_attempts; k++) {
        if (is_meant(source, &audit->attempts[k]) && is_first_of_lane(source, k) &&
            i-- == 0)
            return audit->attempts[k].begin.lane;
    }
    return NULL;
}

/* ---- the report ---- */

static void put_hash(struct stg_json_writer *json, const char *key, uint64_t hash)
{
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, hash);
    stg_json_put_string(json, key, text);
}

/* [first, end] of each range. */
static void put_ranges(struct stg_json_writer *json, const struct stg_taken *set)
{
    struct stg_taken_walk walk = {.set = set};
    for (size_t i = 0; i < MAX_RANGES && stg_taken_next(&walk); i++) {
        stg_json_array_begin(json);
        stg_json_uint(json, walk.begin);
        stg_json_uint(json, walk.end);
        stg_json_array_end(json);
    }
}

static void put_point(struct stg_json_writer *json, const struct stg_audit_point *point)
{
    stg_json_put_uint(json, "pass", point->pass);
    stg_json_put_uint(json, "item", point->items);
    stg_json_put_uint(json, "position", point->elements);
}

static void put_commits(struct stg_json_writer *json,
                        const struct stg_audit_attempt *attempt)
{
    stg_json_key(json, "commits");
    stg_json_array_begin(json);
    for (size_t i = 0; i < attempt->n_commits; i++) {
        stg_json_object_begin(json);
        stg_json_put_string(json, "tag", attempt->commits[i].tag);
        put_point(json, &attempt->commits[i].point);
        stg_reply_time_json(json, attempt->commits[i].time_ns);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static bool is_same(const struct stg_audit_share *a, const struct stg_audit_share *b)
{
    return a->run == b->run && a->attempt == b->attempt && a->pass == b->pass &&
           strcmp(a->client, b->client) == 0;
}

/* Of all shares of the client, pass and attempt of share i. */
static void put_items(struct stg_json_writer *json, const struct stg_audit *audit,
                      size_t i, bool acknowledged)
{
    uint64_t n = 0, sum = 0;
    stg_json_key(json, acknowledged ? "acknowledged" : "delivered");
    stg_json_object_begin(json);
    stg_json_key(json, "ranges");
    stg_json_array_begin(json);
    for (size_t k = i; k < audit->n_shares; k++) {
        const struct stg_audit_share *share = &audit->shares[k];
        const struct stg_audit_items *items =
            acknowledged ? &share->acknowledged : &share->delivered;
        if (!is_same(share, &audit->shares[i]))
            continue;
        n += items->n;
        sum += items->sum;
        put_ranges(json, &items->set);
    }
    stg_json_array_end(json);
    stg_json_put_uint(json, "items", n);
    put_hash(json, "hash", sum);
    stg_json_object_end(json);
}

static void put_shares(struct stg_json_writer *json, const struct stg_audit *audit,
                       const struct stg_audit_attempt *attempt)
{
    stg_json_key(json, "clients");
    stg_json_array_begin(json);
    for (size_t i = 0; i < audit->n_shares; i++) {
        const struct stg_audit_share *share = &audit->shares[i];
        size_t k = 0;
        while (k < i && !is_same(&audit->shares[k], share))
            k++;
        if (k < i || share->run != attempt->begin.run ||
            share->attempt != attempt->begin.attempt)
            continue;
        stg_json_object_begin(json);
        stg_json_put_string(json, "client", share->client);
        stg_json_put_uint(json, "pass", share->pass);
        put_items(json, audit, i, false);
        put_items(json, audit, i, true);
        stg_json_put_uint(json, "redelivered", share->n_redelivered);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static void put_trails(struct stg_json_writer *json, const struct stg_audit *audit,
                       uint64_t run)
{
    stg_json_key(json, "published");
    stg_json_array_begin(json);
    for (size_t i = 0; i < audit->n_trails; i++) {
        const struct stg_audit_trail *trail = &audit->trails[i];
        uint64_t n = 0, sum = 0;
        if (trail->run != run)
            continue;
        for (size_t k = 0; k < trail->n; k++) {
            n += trail->cells[k].end - trail->cells[k].first;
            sum += trail->cells[k].sum;
        }
        stg_json_object_begin(json);
        stg_json_put_uint(json, "pass", trail->pass);
        stg_json_put_uint(json, "items", n);
        put_hash(json, "hash", sum);
        stg_json_put_bool(json, "contents", trail->has_contents);
        stg_json_key(json, "skipped");
        stg_json_array_begin(json);
        put_ranges(json, &trail->skipped);
        stg_json_array_end(json);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
}

static void put_attempt(struct stg_json_writer *json, const struct stg_audit *audit,
                        const struct stg_audit_attempt *attempt)
{
    const struct stg_audit_begin *begin = &attempt->begin;
    const struct stg_audit_run *run = stg_audit_find_run(audit, begin->run);
    stg_json_object_begin(json);
    stg_json_put_uint(json, "attempt", begin->attempt);
    stg_json_put_string(json, "of", begin->lane);
    if (begin->hosts.job != NULL) {
        stg_json_put_uint(json, "generation", begin->hosts.generation);
        stg_json_put_uint(json, "host", begin->hosts.host);
        stg_json_put_uint(json, "hosts", begin->hosts.n_hosts);
        stg_json_put_uint(json, "base", begin->hosts.base);
    }
    stg_json_put_string(json, "delivery", begin->delivery);
    stg_reply_time_json(json, begin->time_ns);
    stg_json_key(json, "begins");
    if (begin->is_known) {
        stg_json_object_begin(json);
        put_point(json, &begin->point);
        stg_json_put_uint(json, "from_attempt", begin->from);
        if (begin->hosts.job != NULL)
            stg_json_put_uint(json, "from_generation", begin->hosts.from_generation);
        stg_json_put_string(json, "tag", begin->tag);
        stg_json_object_end(json);
    } else {
        stg_json_null(json);
    }
    stg_json_put_bool(json, "has_ended", run != NULL && run->end_ns != 0);
    stg_json_put_bool(json, "is_complete", run != NULL && !run->is_missing);
    put_commits(json, attempt);
    put_shares(json, audit, attempt);
    put_trails(json, audit, begin->run);
    stg_json_object_end(json);
}

static void put_problems(struct stg_json_writer *json, const char *key,
                         const struct stg_history_problems *problems)
{
    stg_json_key(json, key);
    stg_json_object_begin(json);
    stg_json_put_uint(json, "items", problems->n);
    stg_json_key(json, "first");
    stg_json_array_begin(json);
    for (size_t i = 0; i < problems->n_ranges; i++) {
        const struct stg_history_range *range = &problems->first[i];
        stg_json_object_begin(json);
        stg_json_put_uint(json, "attempt", range->attempt);
        stg_json_put_uint(json, "pass", range->pass);
        stg_json_put_uint(json, "first", range->first);
        stg_json_put_uint(json, "end", range->end);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
    stg_json_object_end(json);
}

static void put_proof(struct stg_json_writer *json, const char *lane,
                      const struct stg_history *history,
                      const struct stg_history_proof *proof)
{
    stg_json_object_begin(json);
    stg_json_put_string(json, "of", lane);
    stg_json_key(json, "attempts");
    stg_json_array_begin(json);
    for (size_t i = 0; i < history->n; i++)
        stg_json_uint(json, history->links[i].attempt->begin.attempt);
    stg_json_array_end(json);
    stg_json_put_uint(json, "items", proof->n_items);
    stg_json_put_uint(json, "acknowledged", proof->n_acknowledged);
    stg_json_put_uint(json, "unacknowledged", proof->n_unacknowledged);
    stg_json_put_uint(json, "skipped", proof->n_skipped);
    put_problems(json, "missing", &proof->missing);
    put_problems(json, "twice", &proof->twice);
    stg_json_put_uint(json, "unrecorded", proof->n_unrecorded);
    stg_json_put_bool(json, "is_recorded", proof->is_recorded);
    stg_json_put_bool(json, "from_start", proof->is_whole);
    stg_json_put_bool(json, "exactly_once", stg_history_is_proven(proof));
    stg_json_object_end(json);
}

static int put_proofs(struct stg_json_writer *json, const struct stg_audit_source *source,
                      bool *ret_proven, struct stg_err *err)
{
    const char *lane;
    int rc = 0;
    stg_json_key(json, "proofs");
    stg_json_array_begin(json);
    for (size_t i = 0; rc == 0 && (lane = stg_audit_lane(source, i)) != NULL; i++) {
        struct stg_history history = {0};
        struct stg_history_proof proof;
        rc = stg_history_find(&source->audit, lane, source->attempt, true, &history, err);
        if (rc == 0)
            rc = stg_history_prove(&history, &proof, err);
        if (rc == 0 && history.n > 0) {
            put_proof(json, lane, &history, &proof);
            *ret_proven = *ret_proven && stg_history_is_proven(&proof);
        }
        stg_history_finish(&history);
    }
    stg_json_array_end(json);
    return rc;
}

int stg_audit_report_json(struct stg_json_writer *json,
                          const struct stg_audit_source *source, bool *ret_proven,
                          struct stg_err *err)
{
    const struct stg_audit *audit = &source->audit;
    *ret_proven = true;
    stg_json_object_begin(json);
    stg_json_put_string(json, source->is_file ? "file" : "pipeline", source->name);
    if (source->job != NULL)
        stg_json_put_string(json, "job", source->job);
    stg_json_key(json, "attempts");
    stg_json_array_begin(json);
    for (size_t i = 0; i < audit->n_attempts; i++) {
        if (is_meant(source, &audit->attempts[i]))
            put_attempt(json, audit, &audit->attempts[i]);
    }
    stg_json_array_end(json);
    int rc = put_proofs(json, source, ret_proven, err);
    stg_json_put_uint(json, "damaged_lines", audit->n_bad);
    stg_json_object_end(json);
    return rc;
}

/* ---- comparing ---- */

int stg_audit_compare(const struct stg_audit_source *a, const struct stg_audit_source *b,
                      const char *lane, struct stg_history_difference *ret,
                      struct stg_err *err)
{
    struct stg_history of_a = {0}, of_b = {0};
    int rc = stg_history_find(&a->audit, lane, a->attempt, false, &of_a, err);
    if (rc == 0)
        rc = stg_history_find(&b->audit, lane, b->attempt, false, &of_b, err);
    if (rc == 0)
        rc = stg_history_compare(&of_a, &of_b, ret, err);
    stg_history_finish(&of_a);
    stg_history_finish(&of_b);
    return rc;
}

static void put_place(struct stg_json_writer *json, const char *key,
                      const struct stg_history_place *place)
{
    stg_json_key(json, key);
    if (!place->is_there) {
        stg_json_null(json);
        return;
    }
    stg_json_object_begin(json);
    stg_json_put_uint(json, "attempt", place->attempt);
    stg_json_put_string(json, "client", place->client);
    stg_json_object_end(json);
}

static void put_difference(struct stg_json_writer *json, const char *lane,
                           const struct stg_history_difference *d)
{
    stg_json_object_begin(json);
    stg_json_put_string(json, "of", lane);
    stg_json_put_bool(json, "same", !d->is_different);
    stg_json_put_bool(json, "contents", d->has_contents);
    stg_json_put_uint(json, "items", d->n_items);
    if (d->is_different) {
        stg_json_put_uint(json, "pass", d->pass);
        stg_json_put_uint(json, "first", d->first);
        stg_json_put_uint(json, "end", d->end);
        put_place(json, "a", &d->a);
        put_place(json, "b", &d->b);
    }
    stg_json_object_end(json);
}

bool stg_audit_has_lane(const struct stg_audit_source *source, const char *lane)
{
    const char *name = "";
    for (size_t i = 0; (name = stg_audit_lane(source, i)) != NULL; i++) {
        if (strcmp(name, lane) == 0)
            return true;
    }
    return false;
}

int stg_audit_compare_json(struct stg_json_writer *json, const struct stg_audit_source *a,
                           const struct stg_audit_source *b, bool *ret_same,
                           struct stg_err *err)
{
    const char *lane;
    size_t n = 0;
    int rc = 0;
    *ret_same = true;
    stg_json_object_begin(json);
    stg_json_key(json, "comparisons");
    stg_json_array_begin(json);
    for (size_t i = 0; rc == 0 && (lane = stg_audit_lane(a, i)) != NULL; i++) {
        struct stg_history_difference difference;
        if (!stg_audit_has_lane(b, lane))
            continue;
        rc = stg_audit_compare(a, b, lane, &difference, err);
        if (rc == 0)
            put_difference(json, lane, &difference);
        *ret_same = *ret_same && rc == 0 && !difference.is_different;
        n++;
    }
    stg_json_array_end(json);
    stg_json_put_bool(json, "same", *ret_same);
    stg_json_object_end(json);
    return rc == 0 && n == 0 ? stg_audit_refuse_lanes(a, b, err) : rc;
}

int stg_audit_refuse_lanes(const struct stg_audit_source *a,
                           const struct stg_audit_source *b, struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "%s and %s have no attempts to compare: one has attempts of each "
                   "client, or those of other clients",
                   a->name, b->name);
}
