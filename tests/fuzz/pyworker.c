/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers run on this thread: whenever stagerd waits for a worker, poll(2) lets it
 * answer first.
 */
#include "tests/fuzz/pyworker.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/pipeline/definition.h"
#include "daemon/pyworker/work.h"
#include "ops/graph/graph.h"
#include "tests/fuzz/fuzz.h"

#define N_WORKERS 2
#define MAX_CALLS 6
#define MAX_OUTPUTS 8
#define OUTPUT_BYTES ((uint64_t)64 << 10)
#define N_VALUES 4

/* What functions declare: nothing; dense ones and strings; a ragged one; scalars. */
static const char *const steps[] = {
    "function: \"m:f\"",
    "function: \"m:f\", output_types: {s: string, f: float32, b: bool}, output_shapes: "
    "{s: [null], f: [null, 2], b: [4]}",
    "function: \"m:f\", retries: 1, output_types: {ids/values: string, ids/row_splits: "
    "int64, t: string}, output_shapes: {ids/values: [null], ids/row_splits: [null], t: "
    "[2, null]}",
    "function: \"m:f\", output_types: {x: bfloat16, s: string, b: bool}, output_shapes: "
    "{x: [], s: [], b: [null, null, null]}",
};
#define N_STEPS (sizeof(steps) / sizeof(steps[0]))

static struct stg_budget budget;

static void wake(void *owner)
{
}

static void release(void *definition)
{
    stg_definition_unref(definition);
}

/* They live as long as the process. */
static struct stg_workers *workers_of(unsigned i)
{
    static struct stg_workers *all[N_STEPS];
    static const struct stg_identity identity = {.uid = 65534, .gid = 65534};
    char text[512];
    struct stg_definition *definition;
    struct stg_err err = {0};
    if (all[i] != NULL)
        return all[i];
    if (budget.total == 0)
        stg_budget_init(&budget, 64ull << 20);
    stg_log_set_level((enum stg_log_level)0);
    snprintf(text, sizeof(text),
             "dataset: [range: {stop: 9000}, batch: {batch_size: %d, drop_remainder: "
             "true}, py_function: {%s}]\n",
             N_VALUES, steps[i]);
    int rc = stg_definition_create(text, strlen(text), "p.yaml", &identity, NULL,
                                   &definition, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    struct stg_workers_config config = {.spec = definition->spec,
                                        .keeper = definition,
                                        .release = release,
                                        .name = "p",
                                        .budget = &budget,
                                        .wake = wake};
    rc = stg_workers_create(&config, &all[i], &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    return all[i];
}

/* ---- the workers ---- */

struct hand {
    struct stg_worker *worker; /* NULL: it has left */
    int channel;               /* its end; -1: closed */
    char *scratch;             /* its mapping of the memory for answers */
    uint64_t bytes;
    struct stg_work_job job; /* the last one */
    bool has_job;
};

static struct {
    struct hand hands[N_WORKERS];
    const struct stg_schema *output;
    struct stg_fuzz_input *input; /* NULL: poll(2) is that of the system */
} world;

static void hang_up(struct hand *hand)
{
    if (hand->channel >= 0)
        close(hand->channel);
    hand->channel = -1;
}

/* Nobody can make the memory smaller. */
static void map_scratch(struct hand *hand, int fd)
{
    if (hand->scratch != NULL)
        munmap(hand->scratch, hand->bytes);
    hand->bytes = hand->job.scratch_segment_bytes;
    hand->scratch = mmap(NULL, hand->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    FUZZ_CHECK(hand->scratch != MAP_FAILED && ftruncate(fd, 0) < 0);
}

static void take_job(struct hand *hand)
{
    int fds[2];
    union {
        char bytes[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = &hand->job, .iov_len = sizeof(hand->job)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    if (recvmsg(hand->channel, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) !=
        sizeof(hand->job))
        return;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    size_t n = header != NULL ? (header->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0, i = 0;
    if (n > 0)
        memcpy(fds, CMSG_DATA(header), n * sizeof(int));
    hand->has_job = true;
    FUZZ_CHECK(hand->job.magic == STG_MAGIC_WORK);
    if ((hand->job.memory & STG_WORK_INPUT) != 0)
        i++;
    if ((hand->job.memory & STG_WORK_SCRATCH) != 0)
        map_scratch(hand, fds[i++]);
    FUZZ_CHECK(i == n && hand->scratch != NULL);
    for (size_t k = 0; k < n; k++)
        close(fds[k]);
}

/* ---- answers ---- */

static void fill(struct stg_fuzz_input *input, const struct stg_component *component,
                 struct stg_tensor *tensor, int64_t text_bytes)
{
    int64_t n = stg_tensor_n(tensor);
    if (tensor->dtype == STAGER_STRING) {
        int64_t *end = (int64_t *)(uintptr_t)tensor->end;
        memset(tensor->data, 'x', (size_t)text_bytes);
        for (int64_t i = 0; i < n; i++)
            end[i] = i == n - 1 ? text_bytes : text_bytes * i / n;
    } else if (component->part == STG_PART_ROW_SPLITS) {
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)tensor->data)[i] = i;
    } else {
        memset(tensor->data, (int)stg_fuzz_byte(input),
               (size_t)n * stg_dtype_bytes(tensor->dtype));
    }
}

/* A batch as declared, whose unknown dimensions the input draws. */
static uint64_t write_batch(struct stg_fuzz_input *input, struct hand *hand)
{
    const struct stg_schema *schema = world.output;
    struct stg_batch_writer writer;
    struct stg_tensor tensor;
    struct stg_err err = {0};
    int rc = stg_batch_writer_begin(&writer, hand->scratch, hand->bytes, schema, &err);
    for (uint32_t c = 0; rc == 0 && c < schema->n; c++) {
        const struct stg_component *component = &schema->components[c];
        int64_t shape[STG_MAX_DIMS], text_bytes = 0;
        for (int d = 0; d < component->ndim; d++)
            shape[d] = component->shape[d] >= 0 ? component->shape[d]
                                                : (int64_t)stg_fuzz_byte(input) % 16;
        if (component->dtype == STAGER_STRING)
            text_bytes = (int64_t)stg_fuzz_byte(input);
        rc = stg_batch_writer_alloc(&writer, c, component->dtype, component->ndim, shape,
                                    (uint64_t)text_bytes, &tensor, &err);
        if (rc == 0)
            fill(input, component, &tensor, stg_tensor_n(&tensor) > 0 ? text_bytes : 0);
    }
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    return stg_batch_writer_seal(&writer);
}

/* Changes a number of the first 4 KiB, where header, entries and offsets are. */
static void change(struct stg_fuzz_input *input, struct hand *hand)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       7,
                                       64,
                                       4096,
                                       1ull << 31,
                                       1ull << 32,
                                       INT64_MAX,
                                       1ull << 63,
                                       UINT64_MAX - 63,
                                       UINT64_MAX};
    static const size_t widths[] = {1, 4, 8, 8};
    size_t at = stg_fuzz_number(input) % 4088;
    unsigned kind = stg_fuzz_byte(input);
    uint64_t number = kind < 128 ? numbers[kind % 12] : stg_fuzz_number(input);
    size_t width = widths[kind % 4];
    if (kind >= 64)
        at &= ~(size_t)7;
    memcpy(hand->scratch + at, &number, width);
}

static uint64_t write_any(struct stg_fuzz_input *input, struct hand *hand)
{
    size_t n = stg_fuzz_number(input), left = stg_fuzz_left(input);
    n = n < left ? n : left;
    if (n > 0)
        memcpy(hand->scratch, input->at, n);
    input->at += n;
    return n;
}

static void send_answer(struct stg_fuzz_input *input, struct hand *hand, uint64_t bytes)
{
    unsigned kind = stg_fuzz_byte(input);
    struct stg_work_answer answer = {
        .magic = STG_MAGIC_WORK, .job = hand->job.job, .bytes = bytes};
    char message[sizeof(answer) + 1] = "";
    size_t n = sizeof(answer);
    switch (kind % 16) {
    case 8: answer.magic ^= 1; break;
    case 9: answer.job += (uint64_t)stg_fuzz_byte(input) - 1; break;
    case 10: answer.bytes = (uint64_t)1 << stg_fuzz_byte(input) % 64; break;
    case 11:
        answer.kind = STG_WORK_ENDED;
        answer.status = (int32_t)((uint32_t)stg_fuzz_number(input) << 16) >>
                        stg_fuzz_byte(input) % 32;
        break;
    case 12: answer.kind = stg_fuzz_byte(input); break;
    case 13: n = stg_fuzz_byte(input) % (sizeof(answer) + 2); break;
    case 14: answer.bytes = stg_fuzz_number(input); break;
    default: break;
    }
    memcpy(message, &answer, sizeof(answer));
    (void)send(hand->channel, message, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_descriptor(struct hand *hand)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {.align = {.cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct stg_work_answer answer = {
        .magic = STG_MAGIC_WORK, .job = hand->job.job, .bytes = hand->job.input_bytes};
    struct iovec iov = {.iov_base = &answer, .iov_len = sizeof(answer)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    memcpy(CMSG_DATA(&control.align), &hand->channel, sizeof(int));
    (void)sendmsg(hand->channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void do_job(struct stg_fuzz_input *input, struct hand *hand)
{
    unsigned op = stg_fuzz_byte(input);
    uint64_t bytes = 0;
    switch (op % 8) {
    case 5:
        bytes = stg_batch_write_error(hand->scratch, hand->bytes,
                                      (int)(stg_fuzz_byte(input) % 20), "no\x1b[31m\n");
        break;
    case 6: bytes = write_any(input, hand); break;
    case 7: bytes = hand->bytes; break; /* what is there */
    default: bytes = write_batch(input, hand);
    }
    for (unsigned n = op >> 3 & 7; n > 0; n--)
        change(input, hand);
    if ((op & 64) == 0)
        send_answer(input, hand, bytes);
    else if ((op & 128) == 0)
        send_descriptor(hand);
    else
        hang_up(hand);
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);

/* A worker that says nothing any more hangs up. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    struct stg_fuzz_input *input = world.input;
    for (size_t i = 0; input != NULL && i < N_WORKERS; i++) {
        struct hand *hand = &world.hands[i];
        if (hand->channel < 0)
            continue;
        take_job(hand);
        if (hand->has_job && input->at < input->end)
            do_job(input, hand);
        else if (hand->has_job)
            hang_up(hand);
        hand->has_job = false;
    }
    return __real_poll(fds, n, input != NULL ? 0 : timeout);
}

/* ---- stagerd ---- */

static void leave(struct hand *hand)
{
    hang_up(hand);
    if (hand->scratch != NULL)
        munmap(hand->scratch, hand->bytes);
    if (hand->worker != NULL)
        stg_worker_leave(hand->worker);
    *hand = (struct hand){.channel = -1};
}

static void hire(struct stg_workers *workers, struct hand *hand, pid_t pid)
{
    struct stg_err err = {0};
    if (hand->worker != NULL && hand->channel >= 0 &&
        !stg_worker_is_disconnected(hand->worker))
        return;
    leave(hand);
    int rc =
        stg_workers_admit(workers, pid, N_WORKERS, &hand->worker, &hand->channel, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    stg_worker_ready(hand->worker);
}

static uint64_t hash_strings(uint64_t hash, const struct stg_tensor *tensor, int64_t n,
                             bool is_private)
{
    for (int64_t i = 0; i < n; i++) {
        FUZZ_CHECK(tensor->begin[i] >= 0 && tensor->begin[i] <= tensor->end[i] &&
                   (uint64_t)tensor->end[i] <= tensor->data_bytes);
        hash = stg_fuzz_hash(hash, (const char *)tensor->data + tensor->begin[i],
                             (size_t)(tensor->end[i] - tensor->begin[i]));
        if (is_private)
            hash = stg_fuzz_hash(hash, &tensor->end[i], sizeof(int64_t));
    }
    return hash;
}

static uint64_t hash_result(const struct stg_tensor *tensors, bool is_computed)
{
    uint64_t hash = 1;
    for (size_t c = 0; c < world.output->n; c++) {
        const struct stg_tensor *tensor = &tensors[c];
        const struct stg_component *wanted = &world.output->components[c];
        struct stg_component is = {.dtype = tensor->dtype, .ndim = tensor->ndim};
        memcpy(is.shape, tensor->shape, sizeof(is.shape));
        FUZZ_CHECK(stg_component_fits(&is, wanted));
        int64_t n = stg_tensor_n(tensor);
        if (tensor->dtype == STAGER_STRING) {
            hash = hash_strings(hash, tensor, n, true);
            continue;
        }
        FUZZ_CHECK((uint64_t)n * stg_dtype_bytes(tensor->dtype) == tensor->data_bytes);
        hash = stg_fuzz_hash(hash, tensor->data, tensor->data_bytes);
        for (int64_t i = 0; is_computed && tensor->dtype == STAGER_BOOL && i < n; i++)
            FUZZ_CHECK(((const uint8_t *)tensor->data)[i] <= 1);
    }
    return hash;
}

static void check_result(const struct stg_tensor *tensors, bool is_computed)
{
    uint64_t hash = hash_result(tensors, is_computed);
    for (size_t i = 0; is_computed && i < N_WORKERS; i++) {
        if (world.hands[i].scratch != NULL)
            memset(world.hands[i].scratch, 0xa5, world.hands[i].bytes);
    }
    FUZZ_CHECK(hash == hash_result(tensors, is_computed));
}

static void call(struct stg_workers *workers, bool is_computed)
{
    static int64_t values[N_VALUES] = {1, 2, 3, 4};
    struct stg_tensor result[MAX_OUTPUTS];
    struct stg_tensor tensor = {.dtype = STAGER_INT64,
                                .ndim = 1,
                                .shape = {N_VALUES},
                                .data = values,
                                .data_bytes = sizeof(values)};
    struct stg_block block = {
        .n_components = 1, .tensors = &tensor, .n_records = 1, .n_rows = N_VALUES};
    struct stg_work_call one = {
        .block = &block, .max_output_bytes = OUTPUT_BYTES, .is_computed = is_computed};
    struct stg_worker *worker;
    struct stg_err err = {0};
    int rc = stg_work_call(workers, &one, result, &worker, &err);
    if (rc == 0)
        check_result(result, is_computed);
    else
        FUZZ_CHECK(rc == err.code && err.text[0] != '\0' && worker == NULL);
    for (const char *c = err.text; *c != '\0'; c++)
        FUZZ_CHECK((unsigned char)*c >= ' ');
    stg_work_release(worker);
}

static int lowest_free(void)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    close(fd);
    return fd;
}

void stg_fuzz_pyworker(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    unsigned flags = stg_fuzz_byte(&input);
    struct stg_workers *workers = workers_of(flags % N_STEPS);
    int free_before = lowest_free();
    world.output = stg_workers_output(workers);
    world.input = &input;
    for (size_t i = 0; i < N_WORKERS; i++)
        world.hands[i] = (struct hand){.channel = -1};
    FUZZ_CHECK(world.output->n <= MAX_OUTPUTS);
    for (int n = 0; n < MAX_CALLS && (n == 0 || input.at < input.end); n++) {
        for (size_t i = 0; i < N_WORKERS; i++)
            hire(workers, &world.hands[i], (pid_t)(17 + i));
        if ((flags & 32) != 0) /* before the job */
            send_answer(&input, &world.hands[n % N_WORKERS], 0);
        call(workers, (flags >> 2 & 1) != 0);
    }
    world.input = NULL;
    for (size_t i = 0; i < N_WORKERS; i++)
        leave(&world.hands[i]);
    FUZZ_CHECK(stg_budget_used(&budget) == 0 && lowest_free() == free_before);
}

void stg_fuzz_pyworker_seeds(void)
{
    /* Both ways to take a result, of each function: batches; an error; changes of
     * entries and offsets; another message. */
    for (uint8_t i = 0; i < 2 * N_STEPS; i++) {
        const uint8_t good[] = {i, 0, 3, 5, 9, 2, 7, 0, 0, 4, 4, 4, 4, 4, 0};
        const uint8_t bad[] = {i,    0x18, 5, 3, 2, 1, 0, 0, 0, 1,   0, 2, 1,
                               0x3c, 3,    0, 9, 5, 3, 0, 7, 0, 0xb, 1, 2, 3};
        stg_fuzz_seed("pyworker", NULL, 0, good, sizeof(good));
        stg_fuzz_seed("pyworker", NULL, 0, bad, sizeof(bad));
    }
    stg_fuzz_seed("pyworker", NULL, 0, "\x20\x08\0\xc0\x40\x06\0\4abcd\x0d\1", 14);
}
