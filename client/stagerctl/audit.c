/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerctl audit: which client got what in which attempt, the proof that the history of
 * the last commit has each item once, and where two runs differ.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/stagerctl/audit_report.h"
#include "client/stagerctl/command.h"

#define MAX_SHOWN 3 /* ranges of a set */

/* ---- the tables ---- */

static void add_time(struct stg_table *table, uint64_t time_ns)
{
    char text[32];
    stg_table_add(table, "%s",
                  stg_ctl_time((time_t)(time_ns / 1000000000), text, sizeof(text)));
}

static void add_begin(struct stg_table *table, const struct stg_audit_begin *begin)
{
    if (!begin->is_known)
        stg_table_add(table, "a run that was there");
    else if (begin->from != 0 && begin->from != begin->attempt)
        stg_table_add(table, "%s of attempt %" PRIu64, begin->tag, begin->from);
    else if (begin->hosts.from_generation != 0)
        stg_table_add(table, "%s of generation %" PRIu64, begin->tag,
                      begin->hosts.from_generation);
    else
        stg_table_add(table, "pass %" PRIu64 ", item %" PRIu64 "%s", begin->point.pass,
                      begin->point.items,
                      begin->from != 0 ? ", after a restart or a replacement" : "");
}

static void add_commit(struct stg_table *table, const struct stg_audit_attempt *attempt)
{
    if (attempt->n_commits == 0) {
        stg_table_add(table, "-");
        return;
    }
    const struct stg_audit_commit *last = &attempt->commits[attempt->n_commits - 1];
    stg_table_add(table, "%s: pass %" PRIu64 ", item %" PRIu64, last->tag,
                  last->point.pass, last->point.items);
}

static void add_end(struct stg_table *table, const struct stg_audit_run *run)
{
    bool is_missing = run == NULL || run->is_missing;
    stg_table_add(table, "%s%s",
                  run == NULL || run->end_ns == 0 ? "runs, or was killed" : "ended",
                  is_missing ? ", lines are missing" : "");
}

static void add_hosts(struct stg_table *table, const struct stg_audit_hosts *hosts)
{
    stg_table_add(table, "%" PRIu64 ": host %" PRIu64 " of %" PRIu64, hosts->generation,
                  hosts->host, hosts->n_hosts);
}

static bool is_meant(const struct stg_audit_source *source, uint64_t attempt)
{
    return source->attempt == 0 || source->attempt == attempt;
}

static void print_attempts(const struct stg_audit_source *source)
{
    static const char *const titles[] = {"ATTEMPT",   "OF",        "TIME",
                                         "BEGINS AT", "COMMITTED", "STATE"};
    bool has_hosts = source->job != NULL;
    struct stg_table table = {.n_columns =
                                  sizeof(titles) / sizeof(titles[0]) + has_hosts};
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        stg_table_add(&table, "%s", titles[i]);
    if (has_hosts)
        stg_table_add(&table, "GENERATION");
    for (size_t i = 0; i < source->audit.n_attempts; i++) {
        const struct stg_audit_attempt *attempt = &source->audit.attempts[i];
        const struct stg_audit_begin *begin = &attempt->begin;
        if (!is_meant(source, begin->attempt))
            continue;
        stg_table_add(&table, "%" PRIu64, begin->attempt);
        stg_table_add(&table, "%s", begin->lane[0] != '\0' ? begin->lane : "-");
        add_time(&table, begin->time_ns);
        add_begin(&table, begin);
        add_commit(&table, attempt);
        add_end(&table, stg_audit_find_run(&source->audit, begin->run));
        if (has_hosts)
            add_hosts(&table, &begin->hosts);
    }
    stg_table_print(&table, "");
}

/* "0-57", "0, 2, 4, ... 98" */
static void add_set(struct stg_table *table, const struct stg_taken *set)
{
    struct stg_taken_walk walk = {.set = set};
    char text[256] = "";
    size_t n = 0, i = 0;
    for (; i < MAX_SHOWN && stg_taken_next(&walk); i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%" PRIu64, i > 0 ? ", " : "",
                              walk.begin);
        if (walk.end - walk.begin > 1)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "-%" PRIu64, walk.end - 1);
    }
    if (i == MAX_SHOWN && walk.end < set->end)
        snprintf(text + n, sizeof(text) - n, ", ... %" PRIu64, set->end - 1);
    stg_table_add(table, "%s", text[0] != '\0' ? text : "-");
}

static void print_clients(const struct stg_audit_source *source)
{
    static const char *const titles[] = {"ATTEMPT", "CLIENT", "PASS",  "DELIVERED",
                                         "ITEMS",   "ACKED",  "AGAIN", "HASH"};
    struct stg_table table = {.n_columns = sizeof(titles) / sizeof(titles[0])};
    for (size_t i = 0; i < table.n_columns; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; i < source->audit.n_shares; i++) {
        const struct stg_audit_share *share = &source->audit.shares[i];
        if (!is_meant(source, share->attempt))
            continue;
        stg_table_add(&table, "%" PRIu64, share->attempt);
        stg_table_add(&table, "%s", share->client);
        stg_table_add(&table, "%" PRIu64, share->pass);
        stg_table_add(&table, "%" PRIu64, share->delivered.n);
        add_set(&table, &share->delivered.set);
        stg_table_add(&table, "%" PRIu64, share->acknowledged.n);
        stg_table_add(&table, "%" PRIu64, share->n_redelivered);
        stg_table_add(&table, "%016" PRIx64, share->acknowledged.sum);
    }
    stg_table_print(&table, "");
}

/* ---- the proof ---- */

static void print_problems(const char *what, const struct stg_history_problems *problems)
{
    if (problems->n == 0)
        return;
    printf("  %s: %" PRIu64 " items:", what, problems->n);
    for (size_t i = 0; i < problems->n_ranges; i++) {
        const struct stg_history_range *range = &problems->first[i];
        printf("%s attempt %" PRIu64 " pass %" PRIu64 " item %" PRIu64, i > 0 ? "," : "",
               range->attempt, range->pass, range->first);
        if (range->end - range->first > 1)
            printf("-%" PRIu64, range->end - 1);
    }
    printf("%s\n", problems->has_more ? ", ..." : "");
}

static void print_name(const char *lane)
{
    char name[STG_AUDIT_NAME_BYTES];
    snprintf(name, sizeof(name), "%s", lane);
    stg_ctl_clean(name);
    if (name[0] != '\0')
        printf("Client %s: ", name);
}

static void print_proof(const char *lane, const struct stg_history *history,
                        const struct stg_history_proof *proof)
{
    const struct stg_history_link *last = &history->links[history->n - 1];
    print_name(lane);
    printf("%s up to pass %" PRIu64 ", item %" PRIu64 ", by attempt%s",
           stg_history_is_proven(proof)                 ? "Exactly once"
           : proof->missing.n > 0 || proof->twice.n > 0 ? "NOT exactly once"
                                                        : "Not proven: exactly once",
           last->end.pass, last->end.items, history->n > 1 ? "s" : "");
    for (size_t i = 0; i < history->n; i++)
        printf("%s %" PRIu64, i > 0 ? "," : "", history->links[i].attempt->begin.attempt);
    printf(".\n  %" PRIu64 " items: %" PRIu64 " acknowledged by one client, %" PRIu64
           " delivered and in the state of the commit, %" PRIu64
           " dropped, ignored or of a round that was not whole.\n",
           proof->n_items, proof->n_acknowledged, proof->n_unacknowledged,
           proof->n_skipped);
    print_problems("Not delivered", &proof->missing);
    print_problems("Acknowledged by two clients", &proof->twice);
    if (proof->n_unrecorded > 0)
        printf("  Not recorded, because stagerd was killed: %" PRIu64 " items.\n",
               proof->n_unrecorded);
    else if (!proof->is_recorded)
        printf("  Lines of the audit are missing: stagerd could not write them, or they "
               "are damaged, or too old.\n");
    const struct stg_audit_begin *first = &history->links[0].attempt->begin;
    if (!proof->is_whole && first->hosts.from_generation != 0)
        printf("  It begins at commit %s of generation %" PRIu64
               ", of which this audit has nothing.\n",
               first->tag, first->hosts.from_generation);
    else if (!proof->is_whole)
        printf("  It begins at pass %" PRIu64 ", item %" PRIu64
               ", which is no commit of this audit.\n",
               history->links[0].begin.pass, history->links[0].begin.items);
}

static int print_proofs(const struct stg_audit_source *source, bool *ret_proven,
                        struct stg_err *err)
{
    const char *lane;
    size_t n = 0;
    int rc = 0;
    *ret_proven = true;
    for (size_t i = 0; rc == 0 && (lane = stg_audit_lane(source, i)) != NULL; i++) {
        struct stg_history history = {0};
        struct stg_history_proof proof;
        rc = stg_history_find(&source->audit, lane, source->attempt, true, &history, err);
        if (rc == 0)
            rc = stg_history_prove(&history, &proof, err);
        if (rc == 0 && history.n > 0) {
            print_proof(lane, &history, &proof);
            *ret_proven = *ret_proven && stg_history_is_proven(&proof);
            n++;
        }
        stg_history_finish(&history);
    }
    if (rc == 0 && n == 0)
        printf("No commits: there is nothing to prove.\n");
    if (rc == 0 && n > 0 && source->job != NULL)
        printf("These are the items of this host alone: the job has each element once if "
               "each of its hosts proves its own.\n");
    if (rc == 0 && source->job == NULL && source->has_other)
        printf("Attempts of jobs whose commits etcd has are left out: name one, such as "
               "--job \"%s\".\n",
               source->other);
    return rc;
}

static int print_report(const struct stg_audit_source *source, bool *ret_proven,
                        struct stg_err *err)
{
    print_attempts(source);
    printf("\n");
    print_clients(source);
    printf("\n");
    int rc = print_proofs(source, ret_proven, err);
    if (rc == 0 && source->audit.n_bad > 0)
        printf("%zu lines of the audit are damaged, and are left out.\n",
               source->audit.n_bad);
    return rc;
}

/* ---- comparing ---- */

static void print_place(const struct stg_audit_source *source,
                        const struct stg_history_place *place)
{
    char client[STG_AUDIT_NAME_BYTES];
    snprintf(client, sizeof(client), "%s", place->client != NULL ? place->client : "");
    stg_ctl_clean(client);
    printf("  %s: ", source->name);
    if (!place->is_there)
        printf("not published\n");
    else if (place->client == NULL)
        printf("attempt %" PRIu64 ", delivered to no client\n", place->attempt);
    else
        printf("attempt %" PRIu64 ", client %s\n", place->attempt, client);
}

static void print_difference(const struct stg_audit_source *a,
                             const struct stg_audit_source *b, const char *lane,
                             const struct stg_history_difference *d)
{
    const char *what = d->has_contents ? "tensors" : "positions";
    print_name(lane);
    if (!d->is_different) {
        printf("The same: %" PRIu64 " items, by their %s.\n", d->n_items, what);
        return;
    }
    printf("The first difference is in pass %" PRIu64 ", item %" PRIu64, d->pass,
           d->first);
    if (d->end - d->first > 1)
        printf("-%" PRIu64, d->end - 1);
    printf(" (%" PRIu64 " items before it are the same, by their %s):\n", d->n_items,
           what);
    print_place(a, &d->a);
    print_place(b, &d->b);
}

static int print_comparison(const struct stg_audit_source *a,
                            const struct stg_audit_source *b, bool *ret_same,
                            struct stg_err *err)
{
    const char *lane;
    size_t n = 0;
    int rc = 0;
    *ret_same = true;
    for (size_t i = 0; rc == 0 && (lane = stg_audit_lane(a, i)) != NULL; i++) {
        struct stg_history_difference difference;
        if (!stg_audit_has_lane(b, lane))
            continue;
        rc = stg_audit_compare(a, b, lane, &difference, err);
        if (rc == 0)
            print_difference(a, b, lane, &difference);
        *ret_same = *ret_same && rc == 0 && !difference.is_different;
        n++;
    }
    return rc == 0 && n == 0 ? stg_audit_refuse_lanes(a, b, err) : rc;
}

/* ---- the command ---- */

static int save(const struct stg_audit_source *source, const char *path,
                struct stg_err *err)
{
    FILE *out = fopen(path, "we");
    bool is_written =
        out != NULL && fwrite(source->text, 1, source->bytes, out) == source->bytes;
    if (out != NULL)
        is_written = fclose(out) == 0 && is_written;
    return is_written ? 0
                      : stg_err(err, stg_ctl_file_code(errno), "cannot write %s: %s",
                                path, strerror(errno));
}

static int show(const struct stg_ctl_options *options, struct stg_audit_source *sources,
                bool *ret_good, struct stg_err *err)
{
    struct stg_json_writer json = stg_ctl_json();
    bool is_one = options->n_arguments == 1;
    int rc;
    if (options->output != NULL) {
        *ret_good = true;
        return save(&sources[0], options->output, err);
    }
    if (!options->json)
        return is_one ? print_report(&sources[0], ret_good, err)
                      : print_comparison(&sources[0], &sources[1], ret_good, err);
    rc = is_one ? stg_audit_report_json(&json, &sources[0], ret_good, err)
                : stg_audit_compare_json(&json, &sources[0], &sources[1], ret_good, err);
    putchar('\n');
    return rc;
}

int stg_ctl_audit(const struct stg_ctl_options *options)
{
    static struct stg_audit_source sources[2];
    struct stg_err err = {0};
    bool is_good = false;
    int rc = 0;
    if (options->n_arguments > 2 ||
        (options->n_arguments > 1 && options->output != NULL)) {
        return stg_ctl_misused("audit takes one run, or two to compare; -o writes one");
    }
    if (options->n_arguments > 1 && options->job != NULL)
        return stg_ctl_misused("audit --job takes one run: hosts that come and go number "
                               "their items anew");
    for (int i = 0; rc == 0 && i < options->n_arguments; i++) {
        rc = stg_audit_source_parse(options->arguments[i], options->job, &sources[i],
                                    &err);
        if (rc == 0)
            rc = stg_audit_source_load(&sources[i], options->runtime_dir, &err);
    }
    if (rc == 0)
        rc = show(options, sources, &is_good, &err);
    stg_audit_source_finish(&sources[0]);
    stg_audit_source_finish(&sources[1]);
    if (rc < 0)
        return stg_ctl_fail(rc, err.text);
    int status = stg_ctl_finish();
    return status != EXIT_OK ? status : is_good ? EXIT_OK : EXIT_FAILED;
}
