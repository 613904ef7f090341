/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/worker/service.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "daemon/dataset/files/digest.h"
#include "daemon/dataset/files/identity.h"
#include "daemon/dataset/steps/division.h"
#include "daemon/dataset/steps/jump.h"
#include "daemon/pipeline/signature.h"
#include "daemon/storage/codec/crc32c.h"
#include "daemon/worker/memory.h"
#include "ops/exec/run.h"

#define QUEUED_PER_THREAD 4
/* Free memory of answers that is not given back. */
#define RETAINED_PER_THREAD 4
/* How often others may go before the first request of the queue. */
#define MAX_PASSED 8
/* Datasets that are open at once, beside one for each thread: requests of several hosts
 * of a job come in turn, and each host is elsewhere. */
#define MORE_DATASETS 8u
/* No request keeps a thread for ever: to begin an epoch takes some microseconds. */
#define MAX_EPOCHS 65536u

enum { HTTP_OK = 200, HTTP_BAD = 400, HTTP_ABSENT = 404, HTTP_CONFLICT = 409 };
enum { HTTP_RANGE = 416, HTTP_FAILED = 422, HTTP_BUSY = 503 };

struct pipeline {
    struct stg_definition *definition;
    bool divides; /* `shard: auto` */
    struct stg_stage_plan plan;
    char digest[STG_DIGEST_BYTES];
};

struct request {
    struct stg_worker_ask ask;
    struct pipeline *of;
    uint64_t reserved_bytes;
    struct request *next;
};

/* A part of a batch. */
struct span {
    uint64_t begin, end;
};

/* A dataset, and where it stands. The thread that took it uses it alone. */
struct cursor {
    bool is_taken;       /* under the lock, as is all up to `used` */
    struct pipeline *of; /* NULL: it has no dataset */
    uint64_t pass, deal_first;
    struct stg_deal deal;
    uint64_t next; /* batch */
    uint64_t used; /* number of the request that took it last */
    struct stg_dataset *dataset;
    struct stg_data_identity data;
};

/* Of one thread. */
struct maker {
    struct stg_worker_service *service;
    pthread_t thread;
    struct cursor *at;
    struct stg_run *run; /* of run_of */
    struct pipeline *run_of;
    struct stg_tensor *spread; /* of run_of; NULL: its dataset yields whole elements */
    struct span *spans;        /* of run_of: for two a tensor */
};

struct stg_worker_service {
    struct stg_worker_config config;
    struct pipeline pipelines[STG_WORKER_MAX_PIPELINES];
    gid_t groups[STG_MAX_GROUPS];
    size_t n_groups;
    pthread_mutex_t lock; /* guards what follows, and where cursors stand */
    pthread_cond_t asked;
    struct request *first;
    unsigned n_queued, n_passed;
    uint64_t n_taken; /* requests */
    struct cursor *cursors;
    unsigned n_cursors;
    struct stg_worker_memory *memory; /* has a lock of its own */
    _Atomic int stopped;
    unsigned n_started;
    struct maker makers[];
};

/* ---- which pipelines ---- */

static int check_steps(const struct stg_pipeline_spec *spec, struct stg_err *err)
{
    for (size_t i = 0; i < spec->n_steps; i++) {
        const struct stg_step *step = &spec->steps[i];
        if (strcmp(step->name, "py_function") == 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "step py_function (line %d): a worker runs no Python: put it "
                           "into another pipeline",
                           step->line);
    }
    return stg_jump_check(spec, err);
}

int stg_worker_check(const struct stg_definition *definition, struct stg_err *err)
{
    const struct stg_pipeline_spec *spec = definition->spec;
    int rc = 0;
    if (definition->irreproducible != NULL)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT, "%s", definition->irreproducible);
    else if (spec->staged.ignored_codes != 0)
        rc =
            stg_err(err, -STAGER_INVALID_ARGUMENT,
                    "staged: ignored_exception_types: which batches there are depends on "
                    "the data");
    else
        rc = check_steps(spec, err);
    return rc < 0 ? stg_err_prefix(err, rc,
                                   "%s: a worker serves pipelines whose batches follow "
                                   "from their position alone",
                                   definition->file)
                  : 0;
}

/* ---- messages ---- */

void stg_worker_send(int socket, struct stg_worker_answer *answer, const char *text,
                     int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    size_t n = strlen(text);
    answer->text_bytes =
        (uint32_t)(n < STG_WORKER_TEXT_BYTES ? n : STG_WORKER_TEXT_BYTES - 1);
    struct iovec parts[] = {{answer, sizeof(*answer)},
                            {(void *)(uintptr_t)text, answer->text_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    }
    while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
}

static void refuse(const struct stg_worker_service *service, uint64_t id, unsigned status,
                   const char *text)
{
    struct stg_worker_answer answer = {
        .id = id, .kind = STG_WORKER_ANSWER, .status = status, .end = STG_WORKER_NO_END};
    stg_worker_send(service->config.fd, &answer, text, -1);
}

/* ---- datasets ---- */

static void forget(struct maker *maker)
{
    stg_dataset_destroy(maker->at->dataset);
    maker->at->dataset = NULL;
    pthread_mutex_lock(&maker->service->lock);
    maker->at->of = NULL;
    pthread_mutex_unlock(&maker->service->lock);
}

static int open_pass(struct stg_worker_service *service, const struct pipeline *of,
                     uint64_t pass, struct stg_dataset **ret, struct stg_err *err)
{
    const struct stg_definition *definition = of->definition;
    struct stg_dataset_env env = {
        .uid = definition->applier.uid,
        .gid = definition->applier.gid,
        .groups = service->groups,
        .n_groups = service->n_groups,
        .pass = pass,
        .max_epochs = MAX_EPOCHS,
        .buffer_bytes = of->plan.buffer_bytes,
        .tensor_bytes = service->config.memory_bytes,
        .takes_codes = true,
        .stopped = &service->stopped,
    };
    return stg_dataset_create(&definition->projection.spec, &env, ret, err);
}

/* ABORTED: the data is no longer that of the digest. */
static int open_again(struct maker *maker, const struct request *request,
                      struct stg_err *err)
{
    const struct stg_definition *definition = request->of->definition;
    struct cursor *at = maker->at;
    char digest[STG_DIGEST_BYTES];
    forget(maker);
    int rc = open_pass(maker->service, request->of, request->ask.pass, &at->dataset, err);
    if (rc == 0)
        rc = stg_digest_write(at->dataset, definition->spec, definition->content, digest,
                              err);
    if (rc == 0)
        rc = stg_dataset_identify(at->dataset, definition->spec, &at->data, err);
    if (rc < 0 || strcmp(digest, request->of->digest) == 0)
        return rc;
    return stg_err(
        err, -STAGER_ABORTED,
        "the files of pipeline %s have changed since the worker started: start "
        "it again",
        definition->spec->name);
}

static bool is_of(const struct cursor *at, const struct request *request)
{
    return at->of == request->of && at->pass == request->ask.pass;
}

static bool has_deal(const struct cursor *at, const struct request *request)
{
    const struct stg_worker_ask *ask = &request->ask;
    return at->deal.n_hosts == ask->deal.n_hosts && at->deal.host == ask->deal.host &&
           at->deal_first == ask->deal_first;
}

/* A dataset of the pass, of the host that asks, not beyond the batch. */
static int open_for(struct maker *maker, const struct request *request,
                    struct stg_err *err)
{
    const struct stg_worker_ask *ask = &request->ask;
    struct cursor *at = maker->at;
    bool is_open = is_of(at, request), is_there = is_open && has_deal(at, request);
    int rc = is_open ? 0 : open_again(maker, request, err);
    if (rc < 0 || (is_there && stg_dataset_n_passed(at->dataset) <= ask->first))
        return rc;
    if (is_open || request->of->divides)
        rc = stg_dataset_restart(at->dataset, &ask->deal, ask->deal_first, err);
    pthread_mutex_lock(&maker->service->lock);
    at->of = request->of;
    at->pass = ask->pass;
    at->deal = ask->deal;
    at->deal_first = ask->deal_first;
    pthread_mutex_unlock(&maker->service->lock);
    return rc;
}

/* Moves to the first batch of a request. Returns 1 if the pass ends before it. */
static int move(struct maker *maker, const struct request *request, struct stg_err *err)
{
    uint64_t first = request->ask.first, got = 0, epoch;
    struct stg_position position;
    int rc = open_for(maker, request, err);
    if (rc < 0)
        return rc;
    uint64_t far = first - stg_dataset_n_passed(maker->at->dataset);
    if (far > 0)
        rc = stg_dataset_jump(maker->at->dataset, far, &got, &position, &epoch, err);
    return rc == 0 && got < far ? 1 : rc;
}

/* ---- a batch ---- */

static void close_run(struct maker *maker)
{
    stg_run_destroy(maker->run);
    free(maker->spread);
    free(maker->spans);
    maker->run = NULL;
    maker->spread = NULL;
    maker->spans = NULL;
    maker->run_of = NULL;
}

static int open_run(struct maker *maker, struct pipeline *of, struct stg_err *err)
{
    const struct stg_projection *projection = &of->definition->projection;
    if (maker->run_of == of)
        return 0;
    close_run(maker);
    maker->spans = calloc(2 * stg_graph_boundary(of->definition->graph)->n + 1,
                          sizeof(*maker->spans));
    if (maker->spans == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (projection->places != NULL) {
        maker->spread = calloc(projection->n_element, sizeof(*maker->spread));
        if (maker->spread == NULL)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    int rc = stg_run_create_stage(of->definition->graph, &maker->run, err);
    if (rc < 0)
        return rc;
    stg_run_limit(maker->run, maker->service->config.memory_bytes);
    maker->run_of = of;
    return 0;
}

static void add_place(const struct maker *maker, const struct stg_block *block,
                      struct stg_err *err)
{
    char place[512];
    if (err->row < 0 || block->rows == NULL || err->row >= block->n_rows)
        stg_block_add_place(maker->at->dataset, block, err);
    else
        stg_err_prefix(err, err->code, "%s",
                       stg_provenance_text(maker->at->dataset, &block->rows[err->row],
                                           place, sizeof(place)));
}

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The memory had another batch before, of which nothing stays between the tensors: a
 * batch has the same bytes each time. */
static void clear_gaps(const struct maker *maker, char *base, uint64_t bytes)
{
    const struct stg_batch_header *header = (const void *)base;
    const struct stg_tensor_entry *entries = (const void *)(base + header->header_bytes);
    struct span *spans = maker->spans;
    size_t n = 0;
    uint64_t end = 0;
    for (uint32_t i = 0; i < header->n_tensors; i++) {
        const struct stg_tensor_entry *entry = &entries[i];
        spans[n++] =
            (struct span){entry->data_offset, entry->data_offset + entry->data_bytes};
        spans[n++] = (struct span){entry->offsets_offset,
                                   entry->offsets_offset + entry->offsets_bytes};
        uint64_t name_end = entry->name_offset + entry->name_bytes + 1;
        end = name_end > end ? name_end : end;
    }
    qsort(spans, n, sizeof(*spans), by_begin);
    spans[n++] = (struct span){bytes, bytes};
    for (size_t i = 0; i < n; i++) {
        if (spans[i].begin > end)
            memset(base + end, 0, spans[i].begin - end);
        end = spans[i].end > end ? spans[i].end : end;
    }
}

static int write_batch(struct maker *maker, struct pipeline *of,
                       const struct stg_block *block, const struct stg_key *key,
                       char *base, uint64_t *ret, struct stg_err *err)
{
    const struct stg_definition *definition = of->definition;
    const struct stg_tensor *element = block->tensors;
    struct stg_batch_room room = {.limit_bytes = of->plan.max_batch_bytes};
    if (block->error.code != 0) {
        *err = block->error;
        return err->code;
    }
    if (maker->spread != NULL) {
        stg_projection_spread(&definition->projection, element, maker->spread);
        element = maker->spread;
    }
    int rc = stg_run_write(maker->run, stg_graph_boundary(definition->graph), element,
                           key, base, of->plan.max_batch_bytes, &room, ret, err);
    if (rc < 0) {
        err->code = rc;
        add_place(maker, block, err);
        return rc;
    }
    struct stg_batch_header *header = (struct stg_batch_header *)(void *)base;
    header->pass = key->pass;
    header->epoch = key->epoch;
    header->index = key->index;
    header->n_rows = (uint64_t)block->n_rows;
    header->data = maker->at->data;
    clear_gaps(maker, base, *ret);
    return 0;
}

static uint64_t align(uint64_t bytes)
{
    return (bytes + STG_TENSOR_ALIGN - 1) / STG_TENSOR_ALIGN * STG_TENSOR_ALIGN;
}

static void write_head(char *at, const char *base, uint64_t bytes)
{
    uint32_t crc = stg_crc32c()->extend(0, base, bytes);
    memset(at, 0, STG_WORKER_HEAD_BYTES);
    memcpy(at, &bytes, sizeof(bytes));
    memcpy(at + sizeof(bytes), &crc, sizeof(crc));
}

/* ---- a request ---- */

/* The coordinates of the next batch. CONFLICT: the epoch is another. */
static int find_key(const struct request *request, const struct stg_block *block,
                    struct stg_key *key, bool is_first, struct stg_err *err)
{
    const struct stg_worker_ask *ask = &request->ask;
    uint64_t epoch = ask->has_epoch ? ask->epoch : 0;
    if (is_first)
        *key = (struct stg_key){.pass = ask->pass,
                                .epoch = epoch,
                                .index = ask->has_epoch ? ask->index : ask->first};
    else
        key->index = block->epoch == key->epoch ? key->index + 1 : 0;
    if (is_first && block->epoch != epoch)
        return stg_err(err, -STAGER_ABORTED,
                       "batch %" PRIu64 " is of epoch %" PRIu64
                       ", and the request says %" PRIu64,
                       ask->first, block->epoch, epoch);
    key->epoch = block->epoch;
    return 0;
}

/* What was made of a request. */
struct made {
    uint64_t n, bytes, end;
    bool conflicts; /* the epoch, or the data, is not that of the request */
    bool is_absent; /* the pass has no such place */
    uint64_t cpu_ns;
};

static int make_one(struct maker *maker, const struct request *request,
                    struct stg_key *key, char *base, struct made *made,
                    struct stg_err *err)
{
    struct stg_block *block = NULL;
    uint64_t bytes = 0;
    int rc = stg_dataset_next(maker->at->dataset, &block, err);
    if (rc != 0)
        return rc;
    rc = find_key(request, block, key, made->n == 0, err);
    made->conflicts = rc < 0;
    char *at = base + made->bytes;
    if (rc == 0)
        rc = write_batch(maker, request->of, block, key, at + STG_WORKER_HEAD_BYTES,
                         &bytes, err);
    stg_block_unref(block);
    if (rc < 0)
        return rc;
    write_head(at, at + STG_WORKER_HEAD_BYTES, bytes);
    memset(at + STG_WORKER_HEAD_BYTES + bytes, 0, align(bytes) - bytes);
    made->bytes += STG_WORKER_HEAD_BYTES + align(bytes);
    made->n++;
    return 0;
}

/* Makes what there is. An error after the first batch leaves the batches before it. */
static int make_all(struct maker *maker, const struct request *request, char *base,
                    struct made *made, struct stg_err *err)
{
    struct stg_key key = {0};
    uint64_t n = request->ask.last - request->ask.first + 1;
    int rc = open_run(maker, request->of, err);
    if (rc == 0)
        rc = move(maker, request, err);
    made->conflicts = rc == -STAGER_ABORTED;
    made->is_absent = rc == -STAGER_OUT_OF_RANGE;
    while (rc == 0 && made->n < n)
        rc = make_one(maker, request, &key, base, made, err);
    if (rc == 1)
        made->end = stg_dataset_n_passed(maker->at->dataset);
    if (rc == 0)
        return 0;
    forget(maker);
    return rc < 0 && made->n > 0 ? 0 : rc;
}

static void note_end(struct maker *maker, const struct request *request,
                     const struct made *made)
{
    pthread_mutex_lock(&maker->service->lock);
    maker->at->next = request->ask.first + made->n;
    maker->at->is_taken = false;
    pthread_mutex_unlock(&maker->service->lock);
}

/* Code and text are those of the item that a stage makes of the error. */
static int disguise(const struct request *request, int rc, struct stg_err *err)
{
    const struct stg_staged *staged = &request->of->definition->spec->staged;
    err->code = rc;
    if ((staged->closed_codes & STG_CODE_BIT(-rc)) == 0)
        stg_error_disguise(err);
    return err->code;
}

static void answer(struct maker *maker, const struct request *request, int rc,
                   uint32_t slot, const struct made *made, struct stg_err *err)
{
    struct stg_worker_memory *memory = maker->service->memory;
    int fd = -1;
    struct stg_worker_answer ret = {.id = request->ask.id,
                                    .kind = STG_WORKER_ANSWER,
                                    .status = HTTP_OK,
                                    .slot = slot,
                                    .capacity = request->reserved_bytes,
                                    .bytes = made->bytes,
                                    .last = request->ask.first + made->n - 1,
                                    .end = made->end,
                                    .cpu_ns = made->cpu_ns};
    const char *text = "";
    if (rc < 0) {
        ret.status = made->conflicts                    ? HTTP_CONFLICT
                     : made->is_absent                  ? HTTP_ABSENT
                     : rc == -STAGER_CANCELLED          ? HTTP_BUSY
                     : rc == -STAGER_RESOURCE_EXHAUSTED ? HTTP_BUSY
                                                        : HTTP_FAILED;
        if (ret.status == HTTP_FAILED)
            rc = disguise(request, rc, err);
        ret.code = (uint32_t)-rc;
        text = err->text;
    } else if (made->n == 0) {
        ret.status = HTTP_ABSENT;
        text = "the pass ends before this batch";
    }
    if (made->n > 0)
        fd = stg_worker_memory_send(memory, slot, request->ask.id);
    stg_worker_send(maker->service->config.fd, &ret, text, fd);
}

static void serve(struct maker *maker, struct request *request)
{
    struct stg_worker_memory *memory = maker->service->memory;
    struct stg_err err = {.row = -1};
    struct made made = {.end = STG_WORKER_NO_END};
    uint32_t slot = 0;
    int taken = stg_worker_memory_take(memory, request->reserved_bytes, &slot, &err);
    int rc = taken;
    uint64_t cpu = stg_thread_cpu_ns();
    if (rc == 0)
        rc = make_all(maker, request, stg_worker_memory_base(memory, slot), &made, &err);
    made.cpu_ns = stg_thread_cpu_ns() - cpu;
    note_end(maker, request, &made);
    if (taken == 0 && made.n == 0)
        stg_worker_memory_drop(memory, slot);
    answer(maker, request, rc, slot, &made, &err);
    free(request);
}

/* ---- the queue ---- */

/* How much work it is to move there: less is better. */
enum {
    STANDS_BEFORE, /* by how much decides */
    STANDS_BEHIND, /* from here on the one that was not used for longest */
    OTHER_PASS, /* of that host, so that a job needs no more datasets in its next pass */
    IS_EMPTY,
    OTHER_HOST,
    OTHER_PIPELINE
};

static int distance(const struct cursor *at, const struct request *request)
{
    if (at->of == NULL)
        return IS_EMPTY;
    if (at->of != request->of)
        return OTHER_PIPELINE;
    if (!has_deal(at, request))
        return OTHER_HOST;
    if (at->pass != request->ask.pass)
        return OTHER_PASS;
    return at->next <= request->ask.first ? STANDS_BEFORE : STANDS_BEHIND;
}

static uint64_t rest_of(const struct cursor *at, const struct request *request)
{
    return distance(at, request) == STANDS_BEFORE ? request->ask.first - at->next
                                                  : at->used;
}

/* The lock is held. There are more cursors than threads. */
static struct cursor *nearest(struct stg_worker_service *service,
                              const struct request *request)
{
    struct cursor *best = NULL;
    for (unsigned i = 0; i < service->n_cursors; i++) {
        struct cursor *at = &service->cursors[i];
        if (at->is_taken)
            continue;
        int more = best == NULL ? -1 : distance(at, request) - distance(best, request);
        if (more < 0 || (more == 0 && rest_of(at, request) < rest_of(best, request)))
            best = at;
    }
    return best;
}

/* The lock is held. Takes the request for which a dataset moves least; the first one, if
 * others went before it often. */
static struct request *pick(struct stg_worker_service *service, struct cursor **ret_at)
{
    struct request **best = &service->first;
    struct cursor *best_at = nearest(service, *best);
    for (struct request **next = &(*best)->next;
         *next != NULL && service->n_passed < MAX_PASSED; next = &(*next)->next) {
        struct cursor *at = nearest(service, *next);
        if (distance(at, *next) == STANDS_BEFORE &&
            (distance(best_at, *best) != STANDS_BEFORE ||
             rest_of(at, *next) < rest_of(best_at, *best))) {
            best = next;
            best_at = at;
        }
    }
    struct request *ret = *best;
    service->n_passed = best == &service->first ? 0 : service->n_passed + 1;
    *best = ret->next;
    service->n_queued--;
    best_at->is_taken = true;
    best_at->used = ++service->n_taken;
    *ret_at = best_at;
    return ret;
}

static void *run(void *arg)
{
    struct maker *maker = arg;
    struct stg_worker_service *service = maker->service;
    for (;;) {
        pthread_mutex_lock(&service->lock);
        while (service->first == NULL && !service->stopped)
            pthread_cond_wait(&service->asked, &service->lock);
        struct request *request = service->stopped ? NULL : pick(service, &maker->at);
        pthread_mutex_unlock(&service->lock);
        if (request == NULL)
            return NULL;
        serve(maker, request);
    }
}

static struct pipeline *find(struct stg_worker_service *service, const char *digest)
{
    for (size_t i = 0; i < service->config.n_pipelines; i++) {
        if (strcmp(service->pipelines[i].digest, digest) == 0)
            return &service->pipelines[i];
    }
    return NULL;
}

static void refuse_unknown(struct stg_worker_service *service, uint64_t id)
{
    char text[8192] = "this worker serves";
    size_t n = strlen(text);
    for (size_t i = 0; i < service->config.n_pipelines && n < sizeof(text); i++) {
        const struct pipeline *of = &service->pipelines[i];
        int wrote = snprintf(text + n, sizeof(text) - n, "%s %s (%.60s)",
                             i > 0 ? "," : "", of->digest, of->definition->spec->name);
        n += wrote > 0 ? (size_t)wrote : 0;
    }
    refuse(service, id, HTTP_ABSENT, text);
}

/* Returns NULL, or why not now. */
static const char *enqueue(struct stg_worker_service *service, struct request *request)
{
    const char *why = NULL;
    struct request **last = &service->first;
    pthread_mutex_lock(&service->lock);
    if (service->n_queued >= QUEUED_PER_THREAD * service->config.n_threads)
        why = "the worker is busy: its queue is full";
    else if (!stg_worker_memory_reserve(service->memory, request->reserved_bytes))
        why = "the worker is busy: its memory is in use";
    while (why == NULL && *last != NULL)
        last = &(*last)->next;
    if (why == NULL) {
        *last = request;
        service->n_queued++;
        pthread_cond_signal(&service->asked);
    }
    pthread_mutex_unlock(&service->lock);
    return why;
}

static int check_deal(const struct pipeline *of, const struct stg_deal *deal,
                      struct stg_err *err)
{
    if (deal->n_hosts == 0)
        return 0;
    if (!of->divides)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "this pipeline divides nothing (shard: auto): leave host, hosts "
                       "and begin out");
    if (deal->host >= deal->n_hosts)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "host is from 0 to hosts - 1");
    /* One host takes all records. */
    return deal->n_hosts > 1 ? stg_division_check_hosts(of->definition->spec, deal, err)
                             : 0;
}

static void ask(struct stg_worker_service *service, const struct stg_worker_ask *ask)
{
    struct pipeline *of = find(service, ask->digest);
    char text[256];
    if (of == NULL) {
        refuse_unknown(service, ask->id);
        return;
    }
    struct stg_err err = {0};
    if (check_deal(of, &ask->deal, &err) < 0) {
        refuse(service, ask->id, HTTP_BAD, err.text);
        return;
    }
    uint64_t one = STG_WORKER_HEAD_BYTES + align(of->plan.max_batch_bytes);
    uint64_t n = ask->last - ask->first + 1, most = service->config.memory_bytes / one;
    if (n > most) {
        snprintf(text, sizeof(text),
                 "a range of this pipeline has %" PRIu64
                 " batches at most: the worker has %" PRIu64
                 " bytes for batches, and one may need %" PRIu64,
                 most, service->config.memory_bytes, one);
        refuse(service, ask->id, HTTP_RANGE, text);
        return;
    }
    struct request *request = calloc(1, sizeof(*request));
    const char *why = "out of memory";
    if (request != NULL) {
        *request = (struct request){.ask = *ask, .of = of, .reserved_bytes = n * one};
        if (of->divides && ask->deal.n_hosts == 0)
            request->ask.deal.n_hosts = 1;
        why = enqueue(service, request);
    }
    if (why == NULL)
        return;
    free(request);
    refuse(service, ask->id, HTTP_BUSY, why);
}

void stg_worker_take(struct stg_worker_service *service,
                     const struct stg_worker_ask *message)
{
    if (message->kind == STG_WORKER_DONE)
        stg_worker_memory_done(service->memory, message->id);
    else if (message->kind == STG_WORKER_ASK && message->last >= message->first &&
             message->last - message->first < STG_WORKER_MAX_BATCHES)
        ask(service, message);
}

/* ---- life ---- */

static int open_pipeline(struct stg_worker_service *service, struct pipeline *of,
                         struct stg_definition *definition, uint64_t default_bytes,
                         struct stg_err *err)
{
    struct stg_dataset *dataset = NULL;
    struct stg_plan_asked asked = stg_definition_asked(definition, 1, 2, default_bytes);
    of->definition = definition;
    of->divides = stg_division_find(definition->spec) != NULL;
    int rc = stg_stage_plan(&asked, &of->plan, err);
    if (rc == 0)
        rc = open_pass(service, of, 0, &dataset, err);
    if (rc == 0)
        rc = stg_digest_write(dataset, definition->spec, definition->content, of->digest,
                              err);
    stg_dataset_destroy(dataset);
    return rc < 0 ? stg_err_prefix(err, rc, "%s", definition->file) : 0;
}

static int start_all(struct stg_worker_service *service, struct stg_err *err)
{
    for (unsigned i = 0; i < service->config.n_threads; i++) {
        struct maker *maker = &service->makers[i];
        maker->service = service;
        int number = pthread_create(&maker->thread, NULL, run, maker);
        if (number != 0)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cannot start thread %u: %s",
                           i, strerror(number));
        service->n_started++;
    }
    return 0;
}

static void hello(const struct stg_worker_service *service)
{
    char text[STG_WORKER_TEXT_BYTES];
    const char *zone = service->config.zone;
    struct stg_worker_answer message = {.kind = STG_WORKER_HELLO,
                                        .last = service->config.n_threads};
    int n = snprintf(text, sizeof(text),
                     "{\"version\": \"%s\", \"cpus\": %u, \"zone\": ", STG_RELEASE,
                     service->config.n_threads);
    n += snprintf(text + n, sizeof(text) - (size_t)n,
                  zone != NULL ? "\"%.64s\", \"pipelines\": [" : "null, \"pipelines\": [",
                  zone != NULL ? zone : "");
    for (size_t i = 0; i < service->config.n_pipelines; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      "%s{\"name\": \"%.64s\", \"digest\": \"%s\"}", i > 0 ? ", " : "",
                      service->pipelines[i].definition->spec->name,
                      service->pipelines[i].digest);
    snprintf(text + n, sizeof(text) - (size_t)n, "]}\n");
    stg_worker_send(service->config.fd, &message, text, -1);
}

void stg_worker_restart(struct stg_worker_service *service)
{
    stg_worker_memory_restart(service->memory);
    hello(service);
}

int stg_worker_create(const struct stg_worker_config *config,
                      struct stg_worker_service **ret, struct stg_err *err)
{
    struct stg_worker_service *service =
        calloc(1, sizeof(*service) + config->n_threads * sizeof(struct maker));
    unsigned n_cursors = config->n_threads + MORE_DATASETS;
    struct cursor *cursors = calloc(n_cursors, sizeof(*cursors));
    if (service == NULL || cursors == NULL) {
        free(service);
        free(cursors);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    service->config = *config;
    service->cursors = cursors;
    service->n_cursors = n_cursors;
    pthread_mutex_init(&service->lock, NULL);
    pthread_cond_init(&service->asked, NULL);
    int n = getgroups(STG_MAX_GROUPS, service->groups);
    service->n_groups = n > 0 ? (size_t)n : 0;
    int rc = stg_worker_memory_create(config->memory_bytes,
                                      RETAINED_PER_THREAD * config->n_threads,
                                      &service->memory, err);
    for (size_t i = 0; rc == 0 && i < config->n_pipelines; i++)
        rc = open_pipeline(service, &service->pipelines[i], config->pipelines[i],
                           config->memory_bytes / 4, err);
    if (rc == 0)
        rc = start_all(service, err);
    if (rc < 0) {
        stg_worker_destroy(service);
        return rc;
    }
    hello(service);
    *ret = service;
    return 0;
}

void stg_worker_destroy(struct stg_worker_service *service)
{
    if (service == NULL)
        return;
    pthread_mutex_lock(&service->lock);
    service->stopped = 1;
    pthread_cond_broadcast(&service->asked);
    pthread_mutex_unlock(&service->lock);
    for (unsigned i = 0; i < service->n_started; i++) {
        struct maker *maker = &service->makers[i];
        pthread_join(maker->thread, NULL);
        close_run(maker);
    }
    for (unsigned i = 0; i < service->n_cursors; i++)
        stg_dataset_destroy(service->cursors[i].dataset);
    free(service->cursors);
    while (service->first != NULL) {
        struct request *next = service->first->next;
        free(service->first);
        service->first = next;
    }
    stg_worker_memory_destroy(service->memory);
    pthread_cond_destroy(&service->asked);
    pthread_mutex_destroy(&service->lock);
    free(service);
}
