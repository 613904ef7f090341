/* SPDX-License-Identifier: Apache-2.0
 *
 * Prometheus wants the samples of a family together: the counters of all pipelines are
 * collected first, each under its lock for a moment.
 */
#include "daemon/metrics/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "daemon/autotune/measure.h"
#include "daemon/host/share.h"
#include "daemon/metrics/process.h"
#include "daemon/storage/counts.h"

#define RANK_BYTES 32

enum unit { UNIT_ONE, UNIT_NS };

/* One pipeline. */
struct row {
    struct stg_pipeline *pipeline;
    const char *labels; /* pipeline="NAME" */
    struct stg_pipeline_status status;
    struct stg_totals totals;
};

struct rows {
    struct stg_bump bump;
    struct row *all;
    size_t n;
    char (*ranks)[RANK_BYTES]; /* `rank="N"`, for the pipeline that has most */
};

/* ---- what is written of each pipeline ---- */

static const struct total_family {
    const char *name, *help;
    enum stg_total total;
    enum unit unit;
} total_families[] = {
    {"stager_made_batches_total", "Batches that runners began.", STG_TOTAL_MADE,
     UNIT_ONE},
    {"stager_published_batches_total", "Batches and error items ready for clients.",
     STG_TOTAL_PUBLISHED, UNIT_ONE},
    {"stager_published_rows_total", "Rows in published batches.",
     STG_TOTAL_PUBLISHED_ROWS, UNIT_ONE},
    {"stager_published_bytes_total", "Bytes of published batches.",
     STG_TOTAL_PUBLISHED_BYTES, UNIT_ONE},
    {"stager_delivered_batches_total",
     "Batches given to clients, each client counted, redeliveries included.",
     STG_TOTAL_DELIVERED, UNIT_ONE},
    {"stager_delivered_rows_total", "Rows in delivered batches.",
     STG_TOTAL_DELIVERED_ROWS, UNIT_ONE},
    {"stager_delivered_bytes_total", "Bytes of delivered batches.",
     STG_TOTAL_DELIVERED_BYTES, UNIT_ONE},
    {"stager_acknowledged_batches_total", "Batches acknowledged by all that got them.",
     STG_TOTAL_ACKNOWLEDGED, UNIT_ONE},
    {"stager_released_batches_total", "Batches whose memory clients gave back.",
     STG_TOTAL_RELEASED, UNIT_ONE},
    {"stager_redelivered_batches_total", "Batches given again after a client left.",
     STG_TOTAL_REDELIVERED, UNIT_ONE},
    {"stager_lost_batches_total", "Batches that no client can get any more.",
     STG_TOTAL_LOST, UNIT_ONE},
    {"stager_dropped_batches_total", "Batches dropped by on_timeout: drop.",
     STG_TOTAL_DROPPED, UNIT_ONE},
    {"stager_dropped_rows_total", "Rows in dropped batches.", STG_TOTAL_DROPPED_ROWS,
     UNIT_ONE},
    {"stager_ignored_batches_total", "Batches left out by ignored_exception_types.",
     STG_TOTAL_IGNORED, UNIT_ONE},
    {"stager_ignored_elements_total", "Elements left out by the steps ignore_errors.",
     STG_TOTAL_IGNORED_ELEMENTS, UNIT_ONE},
    {"stager_discarded_batches_total", "Batches made or begun when a run stopped.",
     STG_TOTAL_DISCARDED, UNIT_ONE},
    {"stager_remote_batches_total", "Batches that stage workers made.",
     STG_TOTAL_REMOTE_BATCHES, UNIT_ONE},
    {"stager_remote_batch_bytes_total", "Bytes of answers of stage workers.",
     STG_TOTAL_REMOTE_BYTES, UNIT_ONE},
    {"stager_remote_failed_total", "Requests to stage workers without a good answer.",
     STG_TOTAL_REMOTE_FAILED, UNIT_ONE},
    {"stager_remote_redone_total", "Times that stagerd made what no stage worker gave.",
     STG_TOTAL_REMOTE_REDONE, UNIT_ONE},
    {"stager_remote_stall_seconds_total",
     "Time that batches were late because of stage "
     "workers.",
     STG_TOTAL_REMOTE_STALL_NS, UNIT_NS},
    {"stager_remote_answer_seconds_total",
     "Time from requests to good answers of stage workers.", STG_TOTAL_REMOTE_ANSWER_NS,
     UNIT_NS},
    {"stager_remote_cpu_seconds_total",
     "CPU time that stage workers spent on good answers.", STG_TOTAL_REMOTE_CPU_NS,
     UNIT_NS},
    {"stager_timeouts_total", "Expired timeouts of clients and of publishing.",
     STG_TOTAL_TIMEOUTS, UNIT_ONE},
    {"stager_evicted_clients_total", "Clients disconnected by a timeout.",
     STG_TOTAL_EVICTED, UNIT_ONE},
    {"stager_client_attaches_total", "Clients that attached, reconnects included.",
     STG_TOTAL_ATTACHED, UNIT_ONE},
    {"stager_client_reconnects_total",
     "Clients that reconnected under their name, or after a restart of stagerd.",
     STG_TOTAL_RECONNECTED, UNIT_ONE},
    {"stager_dataset_seconds_total", "Time of runners in the steps of the dataset.",
     STG_TOTAL_PULL_NS, UNIT_NS},
    {"stager_compute_seconds_total", "Time of runners in the stage graph.",
     STG_TOTAL_COMPUTE_NS, UNIT_NS},
    {"stager_py_function_seconds_total", "Time in finished calls of a py_function.",
     STG_TOTAL_CALL_NS, UNIT_NS},
    {"stager_room_wait_seconds_total",
     "Time of runners that waited for room in the buffer or for memory.",
     STG_TOTAL_ROOM_WAIT_NS, UNIT_NS},
};

#define FIELD(name)                                                                      \
    offsetof(struct stg_pipeline_status, name),                                          \
        sizeof(((struct stg_pipeline_status *)NULL)->name)

static const struct gauge_family {
    const char *name, *help;
    size_t offset, bytes;
} gauge_families[] = {
    {"stager_pipeline_generation", "Changes of the definition.", FIELD(generation)},
    {"stager_buffered_batches", "Batches that are ready and not delivered.",
     FIELD(buffered)},
    {"stager_buffer_capacity_batches", "Batches that the buffer holds at most.",
     FIELD(capacity)},
    {"stager_runners", "Runners at work at most.", FIELD(num_threads)},
    {"stager_unacknowledged_batches", "Batches delivered and not acknowledged.",
     FIELD(unacknowledged)},
    {"stager_clients_wanted", "num_clients of the pipeline.", FIELD(num_clients)},
    {"stager_arena_bytes", "Memory for the batches of the run.", FIELD(memory_bytes)},
    {"stager_arena_used_bytes", "Memory of batches that exist.",
     FIELD(memory_used_bytes)},
    {"stager_quarantined_bytes", "Memory held by processes that were disconnected.",
     FIELD(quarantined_bytes)},
    {"stager_workers", "Workers of the py_function.", FIELD(workers)},
};

static const char *const states[] = {"idle",  "starting", "waiting", "running",
                                     "ended", "stopping", "failed"};
#define N_STATES (sizeof(states) / sizeof(states[0]))

/* ---- collecting ---- */

/* more: text behind the label. */
static const char *make_label(struct stg_bump *bump, const char *name, const char *value,
                              const char *more)
{
    size_t bytes = strlen(name) + 2 * strlen(value) + 4;
    char *buf = stg_bump_alloc(bump, bytes + strlen(more));
    return buf != NULL ? strcat(stg_metrics_label(name, value, buf, bytes), more) : NULL;
}

static bool label_ranks(struct rows *rows)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++)
        n = rows->all[i].totals.n_ranks > n ? rows->all[i].totals.n_ranks : n;
    rows->ranks = stg_bump_alloc(&rows->bump, n * sizeof(rows->ranks[0]));
    for (size_t i = 0; i < n && rows->ranks != NULL; i++)
        snprintf(rows->ranks[i], RANK_BYTES, "rank=\"%zu\"", i);
    return rows->ranks != NULL;
}

static bool fill_row(const struct stg_metrics_source *source, struct stg_bump *bump,
                     struct stg_pipeline *pipeline, struct row *ret)
{
    ret->pipeline = pipeline;
    ret->labels = make_label(bump, "pipeline", pipeline->name, "");
    stg_catalog_numbers(pipeline, &ret->status);
    stg_catalog_add_totals(source->catalog, pipeline, &ret->totals);
    return ret->labels != NULL;
}

static bool collect(const struct stg_metrics_source *source, struct rows *ret)
{
    size_t n = 0;
    struct stg_pipeline *first = stg_catalog_first(source->catalog);
    for (struct stg_pipeline *p = first; p != NULL; p = p->next)
        n++;
    ret->all = stg_bump_alloc(&ret->bump, (n + 1) * sizeof(ret->all[0]));
    bool good = ret->all != NULL;
    for (struct stg_pipeline *p = first; p != NULL && good; p = p->next) {
        if (stg_catalog_allowed(source->catalog, p, source->identity))
            good = fill_row(source, &ret->bump, p, &ret->all[ret->n++]);
    }
    return good && label_ranks(ret);
}

static void finish(struct rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        stg_totals_finish(&rows->all[i].totals);
    stg_bump_finish(&rows->bump);
}

/* ---- the process ---- */

static void put_one(struct stg_metrics_text *text, const char *name,
                    enum stg_metric_type type, const char *help, uint64_t value)
{
    stg_metrics_family(text, name, type, help);
    stg_metrics_put(text, "", "", value);
}

static void put_one_ns(struct stg_metrics_text *text, const char *name,
                       enum stg_metric_type type, const char *help, uint64_t ns)
{
    stg_metrics_family(text, name, type, help);
    stg_metrics_put_ns(text, "", "", ns);
}

static void put_process(const struct stg_metrics_source *source,
                        struct stg_metrics_text *text)
{
    struct stg_process_usage usage;
    char version[128];
    stg_process_usage(&usage);
    stg_metrics_label("version", source->release, version, sizeof(version));
    stg_metrics_family(text, "stager_build_info", STG_METRIC_INFO,
                       "The release of stagerd.");
    stg_metrics_put(text, version, "", 1);
    put_one_ns(text, "stager_start_time_seconds", STG_METRIC_GAUGE,
               "When stagerd started, since 1970.", source->counts->started_ns);
    put_one_ns(text, "stager_process_cpu_seconds_total", STG_METRIC_COUNTER,
               "CPU time of stagerd.", usage.cpu_ns);
    put_one(text, "stager_process_resident_memory_bytes", STG_METRIC_GAUGE,
            "Resident memory of stagerd.", usage.resident_bytes);
    put_one(text, "stager_process_virtual_memory_bytes", STG_METRIC_GAUGE,
            "Virtual memory of stagerd.", usage.virtual_bytes);
    put_one(text, "stager_process_open_fds", STG_METRIC_GAUGE,
            "Open descriptors of stagerd.", usage.n_fds);
    put_one(text, "stager_process_max_fds", STG_METRIC_GAUGE,
            "Descriptors that stagerd may open.", usage.max_fds);
    put_one(text, "stager_process_threads", STG_METRIC_GAUGE, "Threads of stagerd.",
            usage.n_threads);
}

static void put_codes(struct stg_metrics_text *text, const char *labels,
                      const uint64_t errors[STG_N_CODES])
{
    static char codes[STG_N_CODES][64]; /* the loop's */
    for (int code = 1; code < STG_N_CODES; code++) {
        if (codes[code][0] == '\0')
            stg_metrics_label("code", stg_status_name(code), codes[code],
                              sizeof(codes[code]));
        stg_metrics_put(text, labels, codes[code], errors[code]);
    }
}

static void put_server(const struct stg_metrics_source *source, size_t n_pipelines,
                       struct stg_metrics_text *text)
{
    const struct stg_server_counts *counts = source->counts;
    put_one(text, "stager_connections", STG_METRIC_GAUGE, "Connections to attach.sock.",
            source->n_sessions);
    put_one(text, "stager_accepted_connections_total", STG_METRIC_COUNTER,
            "Connections that attach.sock accepted.", counts->n_connections);
    put_one(text, "stager_requests_total", STG_METRIC_COUNTER,
            "Requests that stagerd served.", counts->n_requests);
    stg_metrics_family(text, "stager_request_errors_total", STG_METRIC_COUNTER,
                       "Requests that ended with an error.");
    put_codes(text, "", counts->errors);
    put_one(text, "stager_draining", STG_METRIC_GAUGE,
            "1 if stagerd drains: no new clients, no applies.", source->is_draining);
    put_one(text, "stager_lost_operations_total", STG_METRIC_COUNTER,
            "Records that the operations log does not have.", source->n_lost_operations);
    put_one(text, "stager_pipelines", STG_METRIC_GAUGE, "Pipelines that are applied.",
            n_pipelines);
    put_one(text, "stager_memory_budget_bytes", STG_METRIC_GAUGE, "memory_budget.",
            source->budget->total);
    put_one(text, "stager_memory_used_bytes", STG_METRIC_GAUGE,
            "Memory that counts on memory_budget.", stg_budget_used(source->budget));
}

/* ---- quotas ---- */

struct quotas {
    const struct stg_metrics_source *source;
    struct stg_metrics_text *text;
    const char *name;
    bool is_limit;
};

/* Of the user itself, and all for those that may see every pipeline. */
static void put_quota(void *owner, const struct stg_share_use *use)
{
    const struct quotas *quotas = owner;
    char whose[160], resource[64], number[16];
    uid_t uid = use->is_group ? 0 : use->id;
    if (!stg_catalog_allowed_of(quotas->source->catalog, uid, quotas->source->identity))
        return;
    bool is_named = strcmp(use->name, "*") != 0;
    snprintf(number, sizeof(number), "%u", (unsigned)use->id);
    stg_metrics_label(use->is_group ? "group" : "user", is_named ? use->name : number,
                      whose, sizeof(whose));
    for (size_t k = 0; k < STG_N_QUOTA_KINDS; k++) {
        if (use->limit[k] == STG_NO_QUOTA || (!quotas->is_limit && stg_quota_is_rate(k)))
            continue;
        stg_metrics_label("resource", stg_quota_key(k), resource, sizeof(resource));
        stg_metrics_put(quotas->text, whose, resource,
                        quotas->is_limit ? use->limit[k] : use->used[k]);
    }
}

static void put_quotas(const struct stg_metrics_source *source,
                       struct stg_metrics_text *text)
{
    struct quotas limits = {source, text, "stager_quota_limit", true};
    struct quotas used = {source, text, "stager_quota_used", false};
    stg_metrics_family(text, limits.name, STG_METRIC_GAUGE,
                       "What a quota allows a user, or the members of a group together.");
    stg_share_each(put_quota, &limits);
    stg_metrics_family(text, used.name, STG_METRIC_GAUGE,
                       "What is in use of a quota, but for rates.");
    stg_share_each(put_quota, &used);
}

static void put_storage(struct stg_metrics_text *text, const char *name, const char *help,
                        enum stg_storage_count local, enum stg_storage_count remote)
{
    stg_metrics_family(text, name, STG_METRIC_COUNTER, help);
    stg_metrics_put(text, "storage=\"local\"", "", stg_storage_counted(local));
    stg_metrics_put(text, "storage=\"remote\"", "", stg_storage_counted(remote));
}

static void put_reads(struct stg_metrics_text *text)
{
    put_storage(text, "stager_reads_total", "Reads of input files by datasets.",
                STG_COUNT_LOCAL_READS, STG_COUNT_REMOTE_READS);
    put_storage(text, "stager_read_bytes_total", "Bytes that these reads returned.",
                STG_COUNT_LOCAL_BYTES, STG_COUNT_REMOTE_BYTES);
    put_one(text, "stager_remote_retries_total", STG_METRIC_COUNTER,
            "Requests to servers that were made again after a failure.",
            stg_storage_counted(STG_COUNT_REMOTE_RETRIES));
    put_one(text, "stager_remote_cache_hits_total", STG_METRIC_COUNTER,
            "Ranges of remote files found in remote.cache_dir.",
            stg_storage_counted(STG_COUNT_CACHE_HITS));
    put_one(text, "stager_remote_cache_misses_total", STG_METRIC_COUNTER,
            "Ranges of remote files not found in remote.cache_dir.",
            stg_storage_counted(STG_COUNT_CACHE_MISSES));
}

/* ---- pipelines ---- */

static void put_info(const struct rows *rows, struct stg_metrics_text *text)
{
    char label[64], more[128];
    stg_metrics_family(text, "stager_pipeline_info", STG_METRIC_INFO,
                       "Settings of the pipeline.");
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->all[i];
        snprintf(
            more, sizeof(more), "%s,uid=\"%u\"",
            stg_metrics_label("delivery", row->status.delivery, label, sizeof(label)),
            (unsigned)row->pipeline->definition->applier.uid);
        stg_metrics_put(text, row->labels, more, 1);
    }
}

static void put_states(const struct rows *rows, struct stg_metrics_text *text)
{
    char labels[N_STATES][64];
    for (size_t k = 0; k < N_STATES; k++)
        stg_metrics_label("state", states[k], labels[k], sizeof(labels[k]));
    stg_metrics_family(text, "stager_pipeline_state", STG_METRIC_GAUGE,
                       "1 for the state of the pipeline, 0 for the other states.");
    for (size_t i = 0; i < rows->n; i++) {
        for (size_t k = 0; k < N_STATES; k++)
            stg_metrics_put(text, rows->all[i].labels, labels[k],
                            strcmp(rows->all[i].status.state, states[k]) == 0);
    }
}

static void put_totals(const struct rows *rows, const struct total_family *family,
                       struct stg_metrics_text *text)
{
    stg_metrics_family(text, family->name, STG_METRIC_COUNTER, family->help);
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->all[i];
        (family->unit == UNIT_NS ? stg_metrics_put_ns : stg_metrics_put)(
            text, row->labels, "", row->totals.n[family->total]);
    }
}

static void put_gauges(const struct rows *rows, const struct gauge_family *family,
                       struct stg_metrics_text *text)
{
    stg_metrics_family(text, family->name, STG_METRIC_GAUGE, family->help);
    for (size_t i = 0; i < rows->n; i++) {
        const char *at = (const char *)&rows->all[i].status + family->offset;
        uint64_t value = 0;
        memcpy(&value, at, family->bytes); /* little-endian, as every machine of stager */
        stg_metrics_put(text, rows->all[i].labels, "", value);
    }
}

static void put_errors(const struct rows *rows, struct stg_metrics_text *text)
{
    static const char name[] = "stager_error_items_total";
    stg_metrics_family(text, name, STG_METRIC_COUNTER,
                       "Error items, which take the place of a batch.");
    for (size_t i = 0; i < rows->n; i++)
        put_codes(text, rows->all[i].labels, rows->all[i].totals.errors);
}

static void put_commits(const struct rows *rows, struct stg_metrics_text *text)
{
    static const char done[] = "stager_commits_total";
    static const char failed[] = "stager_commit_failures_total";
    stg_metrics_family(text, done, STG_METRIC_COUNTER, "Commits that are on disk.");
    for (size_t i = 0; i < rows->n; i++)
        stg_metrics_put(text, rows->all[i].labels, "",
                        stg_journal_count(rows->all[i].pipeline->journal).n_commits);
    stg_metrics_family(text, failed, STG_METRIC_COUNTER,
                       "Commits that were refused, or that the disk failed to store.");
    for (size_t i = 0; i < rows->n; i++)
        stg_metrics_put(text, rows->all[i].labels, "",
                        stg_journal_count(rows->all[i].pipeline->journal).n_failed);
}

/* ---- nodes ---- */

static void put_nodes_of(const struct row *row, const struct stg_profile *profile,
                         const char *process, struct stg_bump *bump,
                         struct stg_metrics_text *text)
{
    const struct stg_pipeline_spec *spec = row->pipeline->definition->spec;
    for (size_t i = 0; i < spec->n_nodes && i < profile->n_nodes; i++) {
        if (profile->node_ns[i].n == 0)
            continue;
        const char *labels = make_label(bump, "node", spec->nodes[i].name, process);
        if (labels != NULL)
            stg_metrics_put_ns(text, row->labels, labels, stg_mean(&profile->node_ns[i]));
    }
}

/* The runners wait meanwhile: one pipeline at a time. */
static void put_nodes(struct rows *rows, struct stg_metrics_text *text)
{
    static const char name[] = "stager_node_seconds";
    stg_metrics_family(
        text, name, STG_METRIC_GAUGE,
        "Mean time of a node of the graph for one batch, measured lately.");
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->all[i];
        struct stg_instance *instance = row->pipeline->instance;
        struct stg_stage *stage = instance != NULL ? instance->stage : NULL;
        const struct stg_measure *measure =
            stage != NULL ? stg_stage_look(stage) : row->pipeline->measure;
        if (measure != NULL) {
            put_nodes_of(row, &measure->daemon, ",process=\"stagerd\"", &rows->bump,
                         text);
            put_nodes_of(row, &measure->client, ",process=\"trainer\"", &rows->bump,
                         text);
        }
        if (stage != NULL)
            stg_stage_unlook(stage);
    }
}

/* ---- clients, by rank ---- */

static void put_waits(const struct rows *rows, struct stg_metrics_text *text)
{
    static const char name[] = "stager_client_wait_seconds";
    char bounds[STG_WAIT_BOUNDS][STG_METRICS_BOUND_BYTES];
    char number[STG_METRICS_NUMBER_BYTES];
    for (size_t i = 0; i < STG_WAIT_BOUNDS; i++)
        stg_metrics_label("le", stg_metrics_seconds(stg_wait_bounds_ns[i], number),
                          bounds[i], sizeof(bounds[i]));
    stg_metrics_family(text, name, STG_METRIC_HISTOGRAM,
                       "How long a client slept for each batch that it got.");
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->all[i];
        for (size_t k = 0; k < row->totals.n_ranks; k++)
            stg_metrics_put_histogram(text, row->labels, rows->ranks[k], bounds,
                                      STG_WAIT_BOUNDS, row->totals.ranks[k].waits.n,
                                      row->totals.ranks[k].waits.sum_ns);
    }
}

enum rank_value { ACKNOWLEDGED, HELD_UP, WAITING, HELD, ATTACHED };

static uint64_t rank_value(const struct stg_rank_counts *rank, enum rank_value value)
{
    switch (value) {
    case ACKNOWLEDGED: return rank->n_acknowledged;
    case HELD_UP: return rank->held_up_ns;
    case WAITING: return rank->waiting_ns;
    case HELD: return rank->n_held;
    case ATTACHED: return rank->n_attached;
    }
    return 0;
}

static void put_ranks(const struct rows *rows, struct stg_metrics_text *text)
{
    static const struct {
        const char *name, *help;
        enum stg_metric_type type;
        enum rank_value value;
        enum unit unit;
    } families[] = {
        {"stager_client_acknowledged_batches_total", "Batches that clients acknowledged.",
         STG_METRIC_COUNTER, ACKNOWLEDGED, UNIT_ONE},
        {"stager_client_held_up_seconds_total",
         "Time in which the run waited for this client alone.", STG_METRIC_COUNTER,
         HELD_UP, UNIT_NS},
        {"stager_client_waiting_seconds", "How long the client has slept by now.",
         STG_METRIC_GAUGE, WAITING, UNIT_NS},
        {"stager_client_held_batches", "Batches that the client holds.", STG_METRIC_GAUGE,
         HELD, UNIT_ONE},
        {"stager_client_attached", "1 if a client of that rank is attached.",
         STG_METRIC_GAUGE, ATTACHED, UNIT_ONE},
    };
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        stg_metrics_family(text, families[f].name, families[f].type, families[f].help);
        for (size_t i = 0; i < rows->n; i++) {
            const struct row *row = &rows->all[i];
            for (size_t k = 0; k < row->totals.n_ranks; k++)
                (families[f].unit == UNIT_NS ? stg_metrics_put_ns : stg_metrics_put)(
                    text, row->labels, rows->ranks[k],
                    rank_value(&row->totals.ranks[k], families[f].value));
        }
    }
}

/* Those that are attached: labels that change with clients are on no counter. Many in a
 * row are of one user and job. */
static void put_clients(const struct stg_metrics_source *source, const struct rows *rows,
                        struct stg_metrics_text *text)
{
    const struct stg_rank_counts *last = NULL;
    char job[2 * STG_JOB_BYTES + 16], more[RANK_BYTES + sizeof(job) + 32];
    stg_metrics_family(text, "stager_client_info", STG_METRIC_INFO,
                       "The user and the job of the client that is attached.");
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->all[i];
        for (size_t k = 0; k < row->totals.n_ranks; k++) {
            const struct stg_rank_counts *rank = &row->totals.ranks[k];
            if (rank->n_attached == 0)
                continue;
            size_t n_rank = strlen(rows->ranks[k]);
            if (last == NULL || last->uid != rank->uid || last->job != rank->job) {
                stg_metrics_label("job", stg_jobs_name(source->jobs, rank->job), job,
                                  sizeof(job));
                snprintf(more + RANK_BYTES, sizeof(more) - RANK_BYTES, ",uid=\"%u\",%s",
                         (unsigned)rank->uid, job);
            }
            last = rank;
            stg_metrics_put(text, row->labels,
                            memcpy(more + RANK_BYTES - n_rank, rows->ranks[k], n_rank),
                            1);
        }
    }
}

/* ---- all of it ---- */

int stg_metrics_write(const struct stg_metrics_source *source,
                      struct stg_metrics_text *text, struct stg_err *err)
{
    struct rows rows = {0};
    stg_bump_init(&rows.bump, 0);
    bool good = collect(source, &rows);
    if (good) {
        put_process(source, text);
        put_server(source, rows.n, text);
        put_quotas(source, text);
        put_reads(text);
        put_info(&rows, text);
        put_states(&rows, text);
        for (size_t i = 0; i < sizeof(total_families) / sizeof(total_families[0]); i++)
            put_totals(&rows, &total_families[i], text);
        for (size_t i = 0; i < sizeof(gauge_families) / sizeof(gauge_families[0]); i++)
            put_gauges(&rows, &gauge_families[i], text);
        put_errors(&rows, text);
        put_commits(&rows, text);
        put_nodes(&rows, text);
        put_waits(&rows, text);
        put_ranks(&rows, text);
        put_clients(source, &rows, text);
        stg_metrics_end(text);
    }
    finish(&rows);
    return good && !text->has_failed
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                         "out of memory for the metrics of %zu pipelines", rows.n);
}
