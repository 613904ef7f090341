/* SPDX-License-Identifier: Apache-2.0 */
#include "client/api/work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/stager.h"

#define BUMP_BYTES (4u << 20)

/* ---- life ---- */

/* The reply lives until the next call. */
static int copy_reply(struct stg_work_client *work, const struct stg_reply *reply,
                      struct stg_err *err)
{
    work->function = stg_bump_strdup(&work->bump, reply->function);
    work->seed = reply->seed;
    work->pure = reply->pure;
    return work->function != NULL
               ? stg_schema_copy(&reply->boundary, &work->bump, &work->output, err)
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static int ask(struct stg_work_client *work, const char *name, uint32_t most,
               struct stg_err *err)
{
    struct stg_request request = {.kind = STG_REQUEST_WORK, .name = name, .most = most};
    struct stg_reply reply;
    size_t n_fds = 0;
    int rc = stg_client_call(work->client, &request, STG_REQUEST_NS, &reply,
                             &work->channel, 1, &n_fds, err);
    if (rc < 0)
        return rc;
    if (n_fds != 1) {
        work->channel = -1;
        return stg_err(err, -STAGER_INTERNAL, "stagerd sent no channel for a worker");
    }
    return copy_reply(work, &reply, err);
}

int stg_work_open(const char *runtime_dir, const char *name, uint32_t most,
                  struct stg_work_client **ret, struct stg_err *err)
{
    struct stg_work_client *work = calloc(1, sizeof(*work));
    if (work == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    work->channel = -1;
    stg_bump_init(&work->bump, BUMP_BYTES);
    struct sockaddr_un address;
    int rc = stg_socket_find(runtime_dir, &address, err);
    if (rc == 0)
        rc = stg_client_connect(&address, &work->client, err);
    if (rc == 0)
        rc = ask(work, name, most, err);
    if (rc < 0) {
        stg_work_close(work);
        return rc;
    }
    *ret = work;
    return 0;
}

void stg_work_close(struct stg_work_client *work)
{
    if (work == NULL)
        return;
    for (size_t i = 0; i < work->n_old; i++)
        stg_map_close(&work->old[i]);
    free(work->old);
    stg_map_close(&work->input);
    stg_map_close(&work->scratch);
    if (work->channel >= 0)
        close(work->channel);
    stager_disconnect(work->client);
    stg_bump_finish(&work->bump);
    free(work);
}

void stg_work_ready(struct stg_work_client *work)
{
    while (!stg_socket_doorbell(work->client->fd))
        continue;
}

/* ---- a job ---- */

/* The function may have kept views of the old one. */
static int keep_old(struct stg_work_client *work, struct stg_err *err)
{
    if (work->input.base == NULL)
        return 0;
    struct stg_map *old = realloc(work->old, (work->n_old + 1) * sizeof(*old));
    if (old == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    work->old = old;
    work->old[work->n_old++] = work->input;
    work->input = (struct stg_map){0};
    return 0;
}

static int map_memory(struct stg_work_client *work, const struct stg_work_job *job,
                      const int *fds, size_t n_fds, struct stg_err *err)
{
    size_t i = 0;
    int rc = 0;
    bool input = (job->memory & STG_WORK_INPUT) != 0;
    bool scratch = (job->memory & STG_WORK_SCRATCH) != 0;
    if (n_fds != (size_t)input + scratch)
        return stg_err(err, -STAGER_INTERNAL, "stagerd sent a job without its memory");
    if (input) {
        rc = keep_old(work, err);
        if (rc == 0)
            rc = stg_map_open(fds[i++], job->input_segment_bytes, STG_MAP_READ, "input",
                              &work->input, err);
    }
    if (rc == 0 && scratch) {
        stg_map_close(&work->scratch);
        rc = stg_map_open(fds[i], job->scratch_segment_bytes, STG_MAP_WRITE, "scratch",
                          &work->scratch, err);
    }
    return rc;
}

static int take_job(struct stg_work_client *work, const struct stg_work_job *job,
                    struct stg_err *err)
{
    if (job->magic != STG_MAGIC_WORK || work->input.base == NULL ||
        work->scratch.base == NULL || job->input_bytes > work->input.bytes)
        return stg_err(err, -STAGER_INTERNAL, "stagerd sent a malformed job");
    int rc = stg_batch_check(work->input.base, job->input_bytes, false, err);
    if (rc < 0)
        return rc;
    work->job = job->job;
    work->input_bytes = job->input_bytes;
    return 0;
}

int stg_work_next(struct stg_work_client *work, int64_t deadline_ns, struct stg_err *err)
{
    struct stg_work_job job;
    int fds[2];
    size_t n_fds = 0;
    long n = stg_socket_receive(work->channel, &job, sizeof(job), fds, 2, &n_fds,
                                deadline_ns, err);
    if (n < 0)
        return (int)n;
    int rc = n == sizeof(job)
                 ? map_memory(work, &job, fds, n_fds, err)
                 : stg_err(err, -STAGER_INTERNAL, "stagerd sent a job of %ld bytes", n);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
    return rc == 0 ? take_job(work, &job, err) : rc;
}

/* ---- its answer ---- */

static int answer(struct stg_work_client *work, uint64_t bytes, struct stg_err *err)
{
    struct stg_work_answer message = {
        .magic = STG_MAGIC_WORK, .job = work->job, .bytes = bytes};
    work->job = 0;
    return stg_socket_send(work->channel, &message, sizeof(message), STG_NEVER, err);
}

int stg_work_give(struct stg_work_client *work, const struct stg_tensor *tensors,
                  struct stg_err *err)
{
    struct stg_batch_writer writer;
    int rc = stg_batch_writer_begin(&writer, work->scratch.base, work->scratch.bytes,
                                    &work->output, err);
    for (uint32_t i = 0; rc == 0 && i < work->output.n; i++)
        rc = stg_batch_writer_copy(&writer, i, &tensors[i], err);
    return rc == 0 ? answer(work, stg_batch_writer_seal(&writer), err) : rc;
}

int stg_work_fail(struct stg_work_client *work, int code, const char *text,
                  struct stg_err *err)
{
    return answer(
        work, stg_batch_write_error(work->scratch.base, work->scratch.bytes, code, text),
        err);
}

/* ---- its end ---- */

void stg_work_tell_end(int channel, int status)
{
    struct stg_work_answer message = {
        .magic = STG_MAGIC_WORK, .kind = STG_WORK_ENDED, .status = status};
    send(channel, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
}
