/* SPDX-License-Identifier: Apache-2.0
 *
 * One call: the batch goes into the worker's input, a message over its channel, and the
 * answer lies in its scratch.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/pyworker/priv.h"

#define LOOK_MILLIS 100      /* how often it is asked whether all is stopped */
#define GRACE_NS 1000000000u /* what a call may still take once it is */
#define DIED "exited during a call (its standard error may have the reason)"

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + STG_GRANULE_BYTES - 1) / STG_GRANULE_BYTES * STG_GRANULE_BYTES;
}

/* ---- memory ---- */

/* Of another size. Its old one stays mapped in the worker as long as it likes. */
static int resize(struct stg_worker *worker, struct stg_segment *segment, uint64_t bytes,
                  bool is_writable, const char *what, struct stg_err *err)
{
    struct stg_workers *workers = worker->workers;
    uint64_t before = segment->base != NULL ? segment->bytes : 0;
    int rc = stg_budget_take(workers->config.budget, bytes, workers->name, err);
    if (rc < 0)
        return rc;
    struct stg_segment fresh;
    rc = stg_segment_create(what, bytes, is_writable, NULL, &fresh, err);
    if (rc < 0) {
        stg_budget_give(workers->config.budget, bytes, workers->name);
        return rc;
    }
    stg_segment_destroy(segment);
    stg_budget_give(workers->config.budget, before, workers->name);
    *segment = fresh;
    worker->budget_bytes += bytes - before;
    return 0;
}

/* An upper bound of the item as a batch at rest. */
static uint64_t input_bytes(const struct stg_schema *schema,
                            const struct stg_block *block)
{
    uint64_t bytes = sizeof(struct stg_batch_header) + STG_TENSOR_ALIGN;
    for (size_t c = 0; c < schema->n; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        uint64_t n = (uint64_t)stg_tensor_n(tensor);
        bytes += sizeof(struct stg_tensor_entry) + strlen(schema->components[c].name) +
                 3 * STG_TENSOR_ALIGN;
        if (tensor->dtype != STAGER_STRING) {
            bytes += n * stg_dtype_bytes(tensor->dtype);
            continue;
        }
        bytes += (n + 1) * sizeof(int64_t);
        for (uint64_t i = 0; i < n; i++)
            bytes += (uint64_t)(tensor->end[i] - tensor->begin[i]);
    }
    return bytes;
}

static uint64_t scratch_bytes(const struct stg_workers *workers,
                              const struct stg_work_call *call)
{
    const struct stg_step *step = workers->step;
    int64_t said = stg_attr_int(step->attrs, step->n_attrs, "max_output_bytes", 0);
    uint64_t bytes = said > 0 ? (uint64_t)said : call->max_output_bytes;
    return round_up(bytes > 0 ? bytes : 1);
}

/* Private memory, which is there once it is written to. */
static int make_copy(struct stg_worker *worker, uint64_t bytes, struct stg_err *err)
{
    struct stg_workers *workers = worker->workers;
    if (bytes <= worker->copy.bytes)
        return 0;
    int rc = stg_budget_take(workers->config.budget, bytes - worker->copy.bytes,
                             workers->name, err);
    if (rc < 0)
        return rc;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        stg_budget_give(workers->config.budget, bytes - worker->copy.bytes,
                        workers->name);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "cannot allocate %" PRIu64 " bytes for the result of a worker: %s",
                       bytes, strerror(errno));
    }
    if (worker->copy.base != NULL)
        munmap(worker->copy.base, worker->copy.bytes);
    worker->budget_bytes += bytes - worker->copy.bytes;
    worker->copy = (struct stg_segment){.fd = -1, .base = base, .bytes = bytes};
    return 0;
}

static int make_room(struct stg_worker *worker, const struct stg_work_call *call,
                     struct stg_err *err)
{
    struct stg_workers *workers = worker->workers;
    uint64_t input = round_up(input_bytes(&workers->input, call->block));
    uint64_t scratch = scratch_bytes(workers, call);
    int rc = 0;
    if (worker->input.base == NULL || worker->input.bytes < input) {
        /* The next item may be a little larger. */
        uint64_t bytes = worker->input.base == NULL ? input : round_up(input + input / 4);
        rc = resize(worker, &worker->input, bytes, false, "stager-input", err);
        worker->unsent |= rc == 0 ? STG_WORK_INPUT : 0;
    }
    if (rc == 0 && (worker->scratch.base == NULL || worker->scratch.bytes != scratch)) {
        rc = resize(worker, &worker->scratch, scratch, true, "stager-scratch", err);
        worker->unsent |= rc == 0 ? STG_WORK_SCRATCH : 0;
    }
    if (rc == 0)
        rc = make_copy(worker,
                       stg_work_copy_bytes(&workers->output, scratch, call->is_computed),
                       err);
    return rc;
}

static int write_input(struct stg_worker *worker, const struct stg_work_call *call,
                       uint64_t *ret, struct stg_err *err)
{
    const struct stg_schema *schema = &worker->workers->input;
    struct stg_batch_writer writer;
    int rc = stg_batch_writer_begin(&writer, worker->input.base, worker->input.bytes,
                                    schema, err);
    for (uint32_t c = 0; rc == 0 && c < schema->n; c++)
        rc = stg_batch_writer_copy(&writer, c, &call->block->tensors[c], err);
    if (rc < 0)
        return rc;
    struct stg_batch_header *header = worker->input.base;
    header->pass = call->pass;
    header->epoch = call->epoch;
    header->index = call->index;
    header->n_rows = (uint64_t)call->block->n_rows;
    *ret = stg_batch_writer_seal(&writer);
    return 0;
}

/* ---- messages ---- */

static int send_job(struct stg_worker *worker, uint64_t bytes, struct stg_err *err)
{
    struct stg_work_job job = {.magic = STG_MAGIC_WORK,
                               .memory = worker->unsent,
                               .job = ++worker->job,
                               .input_bytes = bytes,
                               .input_segment_bytes = worker->input.bytes,
                               .scratch_segment_bytes = worker->scratch.bytes};
    int fds[2];
    size_t n = 0;
    if ((job.memory & STG_WORK_INPUT) != 0)
        fds[n++] = worker->input.fd;
    if ((job.memory & STG_WORK_SCRATCH) != 0)
        fds[n++] = worker->scratch.fd;
    union {
        char bytes[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = &job, .iov_len = sizeof(job)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * n);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * n);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * n);
    }
    if (sendmsg(worker->channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        worker->unsent = 0;
        return 0;
    }
    return stg_work_disconnect(worker, err, "does not accept its work (%s)",
                               strerror(errno));
}

/* As the starter of the worker reports it, unchecked. */
static int say_ended(struct stg_worker *worker, int32_t status, struct stg_err *err)
{
    if (status >= 0)
        return stg_work_disconnect(
            worker, err,
            "ended with exit status %d (its standard error may have the reason)",
            (int)status);
    uint32_t number = 0u - (uint32_t)status;
    const char *name = sigabbrev_np((int)number);
    return stg_work_disconnect(worker, err, "was killed by signal %" PRIu32 "%s%s%s",
                               number, name != NULL ? " (SIG" : "",
                               name != NULL ? name : "", name != NULL ? ")" : "");
}

/* Its answers to this job alone are answers; I5: no descriptor is accepted. */
static int receive(struct stg_worker *worker, uint64_t *ret, struct stg_err *err)
{
    struct stg_work_answer answer;
    ssize_t n = recv(worker->channel, &answer, sizeof(answer), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (n <= 0)
        return stg_work_disconnect(worker, err, DIED);
    bool is_ours = n == sizeof(answer) && answer.magic == STG_MAGIC_WORK;
    if (is_ours && answer.kind == STG_WORK_ENDED)
        return say_ended(worker, answer.status, err);
    if (!is_ours || answer.kind != STG_WORK_GIVES || answer.job != worker->job)
        return stg_work_disconnect(worker, err, "sent an unexpected answer");
    *ret = answer.bytes;
    return 0;
}

/* One that is free has nothing to say: it died meanwhile, or breaks the rules. */
static int check_silent(struct stg_worker *worker, struct stg_err *err)
{
    uint64_t bytes;
    int rc = receive(worker, &bytes, err);
    if (rc == 0)
        rc = stg_work_disconnect(worker, err, "sent an unexpected answer");
    return rc < 0 ? rc : 0;
}

static uint64_t sooner(uint64_t deadline, uint64_t other)
{
    return deadline < other ? deadline : other;
}

static int say_late(struct stg_worker *worker, bool is_stopped, bool is_gone,
                    struct stg_err *err)
{
    if (is_stopped)
        return stg_work_disconnect(worker, err,
                                   "was working when the pipeline was stopped");
    if (is_gone)
        return stg_work_disconnect(worker, err, DIED);
    return stg_work_disconnect(worker, err,
                               "was still working after timeout_millis %" PRIu64,
                               worker->workers->timeout_ns / 1000000u);
}

/* What a worker that was stopped in the middle of a call could answer in a moment, it
 * may: else it would have to be started again. If the starter of a worker reports how it
 * ended, the report comes in a moment. */
static int wait_for_answer(struct stg_worker *worker, const struct stg_work_call *call,
                           uint64_t *ret, struct stg_err *err)
{
    uint64_t deadline = stg_now_ns() + worker->workers->timeout_ns;
    bool is_stopped = false, is_gone = false;
    for (;;) {
        uint64_t now = stg_now_ns();
        if (!is_stopped && call->stopped != NULL && atomic_load(call->stopped)) {
            is_stopped = true;
            deadline = sooner(deadline, now + GRACE_NS);
        }
        if (!is_gone && stg_work_is_lost(worker)) {
            is_gone = true;
            deadline = sooner(deadline, now + GRACE_NS);
        }
        if (now >= deadline)
            return say_late(worker, is_stopped, is_gone, err);
        uint64_t left = (deadline - now) / 1000000u + 1;
        struct pollfd poll_fd = {.fd = worker->channel, .events = POLLIN};
        poll(&poll_fd, 1, left < LOOK_MILLIS ? (int)left : LOOK_MILLIS);
        int rc = receive(worker, ret, err);
        if (rc <= 0)
            return rc;
    }
}

/* ---- a call ---- */

static int call_once(struct stg_worker *worker, const struct stg_work_call *call,
                     struct stg_tensor *tensors, bool *ret_asked, struct stg_err *err)
{
    uint64_t bytes = 0;
    int rc = check_silent(worker, err);
    *ret_asked = rc == 0;
    if (rc == 0)
        rc = make_room(worker, call, err);
    if (rc == 0)
        rc = write_input(worker, call, &bytes, err);
    if (rc == 0)
        rc = send_job(worker, bytes, err);
    if (rc == 0)
        rc = wait_for_answer(worker, call, &bytes, err);
    if (rc == 0)
        rc = stg_work_answer(worker, bytes, call->is_computed, tensors, err);
    return rc;
}

int stg_work_call(struct stg_workers *workers, const struct stg_work_call *call,
                  struct stg_tensor *tensors, struct stg_worker **ret,
                  struct stg_err *err)
{
    const struct stg_step *step = workers->step;
    int64_t retries = stg_attr_int(step->attrs, step->n_attrs, "retries", 0);
    *ret = NULL;
    for (;;) {
        struct stg_worker *worker;
        bool asked;
        int rc = stg_work_take(workers, call, &worker, err);
        if (rc < 0)
            return rc;
        rc = call_once(worker, call, tensors, &asked, err);
        if (rc == 0) {
            err->code = 0; /* of a worker that was tried before */
            *ret = worker;
            return 0;
        }
        bool is_lost = rc == -STAGER_ABORTED && stg_work_is_lost(worker);
        stg_work_release(worker);
        bool is_stopped = call->stopped != NULL && atomic_load(call->stopped);
        if (is_lost && is_stopped)
            return stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
        if (!is_lost || (asked && retries-- == 0))
            return rc;
    }
}
