/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/index_job.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "daemon/dataset/files/braces.h"
#include "daemon/dataset/step.h"
#include "daemon/index/index.h"
#include "proto/load.h"

#define MAX_JOBS 2
/* Records that are skipped at once, between two looks at `stopped`. */
#define PIECE_RECORDS (1u << 20)

/* The session and the thread hold one reference each. */
struct stg_index_job {
    atomic_int refs;
    _Atomic int stopped;
    pthread_mutex_t lock;        /* guards these: */
    struct stg_dataset *dataset; /* that reads a file now, or NULL */
    struct stg_index_report report;
    uint64_t file_bytes; /* of that file */
    char file[512], problem[STG_ERR_TEXT_BYTES];

    /* Of the thread alone. */
    struct stg_index_job_config config;
    uint64_t began_ns;
};

static atomic_int n_jobs;

static void unref(struct stg_index_job *job)
{
    if (job == NULL || atomic_fetch_sub(&job->refs, 1) > 1)
        return;
    pthread_mutex_destroy(&job->lock);
    free((char *)(uintptr_t)job->config.text);
    free((gid_t *)(uintptr_t)job->config.groups);
    free(job);
}

static bool is_stopped(const struct stg_index_job *job)
{
    return atomic_load(&job->stopped) != 0;
}

static struct stg_dataset_env env_of(struct stg_index_job *job)
{
    return (struct stg_dataset_env){.uid = job->config.uid,
                                    .gid = job->config.gid,
                                    .groups = job->config.groups,
                                    .n_groups = job->config.n_groups,
                                    .buffer_bytes = job->config.buffer_bytes,
                                    .stopped = &job->stopped};
}

/* ---- a file ---- */

static void fail(struct stg_index_job *job, const struct stg_err *err)
{
    pthread_mutex_lock(&job->lock);
    job->report.n_failed += !is_stopped(job);
    if (job->problem[0] == '\0' && !is_stopped(job))
        snprintf(job->problem, sizeof(job->problem), "%s", err->text);
    pthread_mutex_unlock(&job->lock);
}

static void show_dataset(struct stg_index_job *job, struct stg_dataset *dataset)
{
    pthread_mutex_lock(&job->lock);
    job->dataset = dataset;
    pthread_mutex_unlock(&job->lock);
}

/* Reads the one file of the pipeline, or finds that it has an index. */
static void read_file(struct stg_index_job *job, const struct stg_pipeline_spec *spec)
{
    struct stg_dataset_env env = env_of(job);
    struct stg_dataset *dataset = NULL;
    struct stg_err err = {0};
    uint64_t n_records = 0, n = PIECE_RECORDS;
    int rc = stg_dataset_create(spec, &env, &dataset, &err);
    if (rc == 0)
        show_dataset(job, dataset);
    while (rc == 0 && n == PIECE_RECORDS && !is_stopped(job)) {
        rc = stg_iter_skip(dataset->last, PIECE_RECORDS, &n, &err);
        n_records += rc == 0 ? n : 0;
    }
    if (rc < 0)
        fail(job, &err);
    show_dataset(job, NULL);
    if (dataset != NULL) {
        pthread_mutex_lock(&job->lock);
        job->report.n_records += n_records;
        job->report.n_built += (uint32_t)atomic_load(&dataset->indexes.n_built);
        job->report.n_existing += (uint32_t)atomic_load(&dataset->indexes.n_found);
        job->report.index_bytes += atomic_load(&dataset->indexes.bytes);
        pthread_mutex_unlock(&job->lock);
    }
    stg_dataset_destroy(dataset);
}

/* Returns the size of a file that can have an index, or 0. */
static uint64_t size_of(struct stg_index_job *job, const char *url, struct stg_err *err)
{
    struct stg_dataset_env env = env_of(job);
    const struct stg_file_user user = {.uid = env.uid,
                                       .gid = env.gid,
                                       .groups = env.groups,
                                       .n_groups = env.n_groups,
                                       .stopped = env.stopped};
    const struct stg_storage *storage;
    struct stg_source *source;
    const char *path;
    uint64_t bytes = 0, version;
    if (stg_storage_find(url, &storage, &path, err) < 0 || storage->version == NULL ||
        storage->open(path, &user, &source, err) < 0)
        return 0;
    if (storage->size(source, &bytes, err) < 0 ||
        storage->version(source, &version, NULL) < 0)
        bytes = 0;
    storage->close(source);
    return bytes;
}

/* Runs a pipeline of two steps: that file, and its reader. */
static void index_file(struct stg_index_job *job, const struct stg_step *files,
                       const struct stg_step *reader, const char *url)
{
    struct stg_err err = {0};
    char shown[512];
    uint64_t bytes = size_of(job, url, &err);
    char *pattern = stg_braces_escape(url);
    struct stg_value value = {.kind = STG_VALUE_STRING,
                              .s = pattern,
                              .s_bytes = pattern != NULL ? strlen(pattern) : 0};
    struct stg_attr attr = {.name = "pattern", .n_values = 1, .values = &value};
    struct stg_step steps[2] = {*files, *reader};
    steps[0].attrs = &attr;
    steps[0].n_attrs = 1;
    struct stg_pipeline_spec one = {.steps = steps, .n_steps = 2};
    pthread_mutex_lock(&job->lock);
    job->file_bytes = bytes;
    snprintf(job->file, sizeof(job->file), "%s",
             stg_storage_shown(url, shown, sizeof(shown)));
    pthread_mutex_unlock(&job->lock);
    if (err.code != 0)
        fail(job, &err);
    else if (bytes >= stg_index_min_bytes() && pattern != NULL)
        read_file(job, &one);
    free(pattern);
    pthread_mutex_lock(&job->lock);
    job->report.n_done++;
    job->report.n_small += err.code == 0 && bytes < stg_index_min_bytes();
    job->report.bytes_done += bytes;
    pthread_mutex_unlock(&job->lock);
}

/* ---- all of them ---- */

/* Returns the step that reads the files of steps[0] if its files can have indexes. */
static const struct stg_step *find_reader(const struct stg_step *steps, size_t n)
{
    static const char *const readers[] = {"text_line", "csv", "jsonl", "tfrecord", "tar"};
    for (size_t i = 1; i < n; i++) {
        const struct stg_step *step =
            steps[i].reader != NULL ? steps[i].reader : &steps[i];
        for (size_t k = 0; k < sizeof(readers) / sizeof(readers[0]); k++) {
            if (strcmp(step->name, readers[k]) == 0)
                return step;
        }
    }
    return NULL;
}

/* The sizes of all files first: they say how far the job is. */
static void index_files(struct stg_index_job *job, const struct stg_step *steps, size_t n)
{
    const struct stg_step *reader = n > 0 ? find_reader(steps, n) : NULL;
    if (reader == NULL || strcmp(steps[0].name, "files") != 0)
        return;
    struct stg_pipeline_spec spec = {.steps = steps, .n_steps = 1};
    struct stg_dataset_env env = env_of(job);
    struct stg_dataset *names = NULL;
    struct stg_err err = {0};
    if (stg_dataset_create(&spec, &env, &names, &err) < 0) {
        fail(job, &err);
        return;
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < names->n_files && !is_stopped(job); i++)
        bytes += size_of(job, stg_dataset_file(names, i), NULL);
    pthread_mutex_lock(&job->lock);
    job->report.n_files += names->n_files;
    job->report.bytes += bytes;
    pthread_mutex_unlock(&job->lock);
    for (uint32_t i = 0; i < names->n_files && !is_stopped(job); i++)
        index_file(job, &steps[0], reader, stg_dataset_file(names, i));
    stg_dataset_destroy(names);
}

static void *job_main(void *arg)
{
    struct stg_index_job *job = arg;
    struct stg_pipeline_spec *spec = NULL;
    struct stg_err err = {0};
    if (stg_load_pipeline(job->config.text, job->config.text_bytes, "<text>", &spec,
                          &err) == 0) {
        index_files(job, spec->steps, spec->n_steps);
        for (size_t i = 0; i < spec->n_branches; i++)
            index_files(job, spec->branches[i].steps, spec->branches[i].n_steps);
        stg_pipeline_spec_destroy(spec);
    } else {
        fail(job, &err);
    }
    pthread_mutex_lock(&job->lock);
    job->report.elapsed_ns = stg_now_ns() - job->began_ns;
    job->report.done = true;
    job->file[0] = '\0';
    pthread_mutex_unlock(&job->lock);
    unref(job);
    atomic_fetch_sub(&n_jobs, 1);
    return NULL;
}

/* ---- the session ---- */

static struct stg_index_job *job_create(const struct stg_index_job_config *config)
{
    struct stg_index_job *job = calloc(1, sizeof(*job));
    char *text = malloc(config->text_bytes + 1);
    gid_t *groups = calloc(config->n_groups + 1, sizeof(*groups));
    if (job == NULL || text == NULL || groups == NULL) {
        free(job);
        free(text);
        free(groups);
        return NULL;
    }
    memcpy(text, config->text, config->text_bytes);
    text[config->text_bytes] = '\0';
    if (config->n_groups > 0)
        memcpy(groups, config->groups, config->n_groups * sizeof(*groups));
    job->config = *config;
    job->config.text = text;
    job->config.groups = groups;
    job->refs = 2;
    job->began_ns = stg_now_ns();
    pthread_mutex_init(&job->lock, NULL);
    return job;
}

int stg_index_job_start(const struct stg_index_job_config *config,
                        struct stg_index_job **ret, struct stg_err *err)
{
    pthread_t thread;
    if (atomic_fetch_add(&n_jobs, 1) >= MAX_JOBS) {
        atomic_fetch_sub(&n_jobs, 1);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "stagerd builds the indexes of %d pipelines already: try again "
                       "when one of them is done",
                       MAX_JOBS);
    }
    struct stg_index_job *job = job_create(config);
    if (job == NULL || pthread_create(&thread, NULL, job_main, job) != 0) {
        if (job != NULL)
            job->refs = 1;
        unref(job);
        atomic_fetch_sub(&n_jobs, 1);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "cannot start a thread that builds indexes: out of memory");
    }
    pthread_detach(thread);
    *ret = job;
    return 0;
}

void stg_index_job_report(struct stg_index_job *job, struct stg_bump *bump,
                          struct stg_index_report *ret)
{
    pthread_mutex_lock(&job->lock);
    *ret = job->report;
    ret->file = stg_bump_strdup(bump, job->file);
    ret->problem = stg_bump_strdup(bump, job->problem);
    uint64_t offset =
        job->dataset != NULL ? atomic_load(&job->dataset->indexes.offset) : 0;
    ret->bytes_done += offset < job->file_bytes ? offset : job->file_bytes;
    if (ret->done)
        ret->bytes_done = job->report.bytes_done;
    else
        ret->elapsed_ns = stg_now_ns() - job->began_ns;
    pthread_mutex_unlock(&job->lock);
}

void stg_index_job_end(struct stg_index_job *job)
{
    if (job != NULL)
        atomic_store(&job->stopped, 1);
    unref(job);
}
