/* SPDX-License-Identifier: Apache-2.0
 *
 * The answer of a worker: a batch at rest in memory that the worker may write to at any
 * moment. I3: header, entries and offsets are copied, then checked, then used; what an op
 * will read is copied whole.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/pyworker/priv.h"
#include "ops/graph/graph.h"

#define MAX_TEXT_BYTES 1000u

/* Where copies go: worker->copy, from the start. */
struct answer {
    struct stg_worker *worker;
    const struct stg_schema *schema;
    const char *base; /* hostile */
    uint64_t bytes;   /* of it */
    uint64_t low;     /* where data may begin */
    uint64_t used;    /* of worker->copy */
};

static uint64_t room(uint64_t bytes)
{
    return (bytes + STG_TENSOR_ALIGN - 1) & ~(uint64_t)(STG_TENSOR_ALIGN - 1);
}

uint64_t stg_work_copy_bytes(const struct stg_schema *output, uint64_t scratch_bytes,
                             bool is_computed)
{
    uint64_t bytes = is_computed ? scratch_bytes : 0;
    for (size_t c = 0; c < output->n; c++) {
        if (output->components[c].dtype == STAGER_STRING)
            return bytes + scratch_bytes;
    }
    return bytes;
}

/* The compiler may not look at `from` again in place of the copy. */
static void copy_once(void *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    atomic_signal_fence(memory_order_seq_cst);
}

static int broken(const struct answer *answer, struct stg_err *err, const char *what)
{
    return stg_work_disconnect(answer->worker, err, "answered with a malformed batch: %s",
                               what);
}

/* What the function said: one line, of characters that a terminal can take. */
static int read_error(const struct answer *answer, const struct stg_batch_header *header,
                      struct stg_err *err)
{
    uint64_t at = header->error_offset, n = header->error_bytes;
    if (header->error_code == STAGER_OK || header->error_code > STAGER_UNAUTHENTICATED ||
        at > answer->bytes || n > answer->bytes - at)
        return broken(answer, err, "its error has no code or no text");
    char text[MAX_TEXT_BYTES + 1];
    n = n < MAX_TEXT_BYTES ? n : MAX_TEXT_BYTES;
    copy_once(text, answer->base + at, n);
    text[n] = '\0';
    for (uint64_t i = 0; i < n && text[i] != '\0'; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = ' ';
    }
    return stg_err(err, -(int)header->error_code, "%s: %s",
                   answer->worker->workers->function, text);
}

/* entry: a copy. */
static int check_declared(const struct answer *answer, uint32_t i,
                          const struct stg_tensor_entry *entry, struct stg_err *err)
{
    const struct stg_component *wanted = &answer->schema->components[i];
    struct stg_component is = *wanted;
    if (entry->ndim > STG_LAYOUT_MAX_DIMS)
        return broken(answer, err, "a tensor of too many dimensions");
    is.dtype = (int)entry->dtype;
    is.ndim = (int)entry->ndim;
    memcpy(is.shape, entry->shape, sizeof(is.shape));
    for (int d = 0; d < is.ndim; d++) {
        if (is.shape[d] < 0)
            return broken(answer, err, "a negative dimension");
    }
    if (stg_component_fits(&is, wanted))
        return 0;
    char has[128], wants[128];
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT, "%s: %s is %s %s, but was declared as %s %s",
        answer->worker->workers->function, wanted->name, stg_dtype_name(is.dtype),
        stg_shape_text(is.shape, is.ndim, has, sizeof(has)),
        stg_dtype_name(wanted->dtype),
        stg_shape_text(wanted->shape, wanted->ndim, wants, sizeof(wants)));
}

static bool is_inside(const struct answer *answer, uint64_t offset, uint64_t bytes)
{
    return offset % STG_TENSOR_ALIGN == 0 && offset >= answer->low &&
           offset <= answer->bytes && bytes <= answer->bytes - offset;
}

/* The offsets of n strings, in private memory. */
static int take_offsets(struct answer *answer, const struct stg_tensor_entry *entry,
                        uint64_t n, struct stg_tensor *to, struct stg_err *err)
{
    uint64_t bytes = (n + 1) * sizeof(int64_t);
    if (entry->offsets_bytes != bytes || !is_inside(answer, entry->offsets_offset, bytes))
        return broken(answer, err, "string offsets outside the batch");
    if (bytes > answer->worker->copy.bytes - answer->used)
        return broken(answer, err, "overlapping strings");
    int64_t *offsets =
        (int64_t *)(void *)((char *)answer->worker->copy.base + answer->used);
    copy_once(offsets, answer->base + entry->offsets_offset, bytes);
    answer->used += room(bytes);
    bool ok = offsets[0] == 0 && (uint64_t)offsets[n] == entry->data_bytes;
    for (uint64_t k = 0; ok && k < n; k++)
        ok = offsets[k + 1] >= offsets[k];
    if (!ok)
        return broken(answer, err, "decreasing string offsets");
    to->begin = offsets;
    to->end = offsets + 1;
    return 0;
}

static int take_tensor(struct answer *answer, uint32_t i, struct stg_tensor *to,
                       struct stg_err *err)
{
    struct stg_tensor_entry entry;
    copy_once(&entry, answer->base + sizeof(struct stg_batch_header) + i * sizeof(entry),
              sizeof(entry));
    int rc = check_declared(answer, i, &entry, err);
    if (rc < 0)
        return rc;
    *to = (struct stg_tensor){.dtype = (int)entry.dtype,
                              .ndim = (int)entry.ndim,
                              .data = (char *)(uintptr_t)answer->base + entry.data_offset,
                              .data_bytes = entry.data_bytes};
    memcpy(to->shape, entry.shape, sizeof(to->shape));
    uint64_t n, bytes;
    if (!stg_tensor_size(to->dtype, to->ndim, to->shape, entry.data_bytes, &n, &bytes) ||
        bytes != entry.data_bytes || !is_inside(answer, entry.data_offset, bytes))
        return broken(answer, err, "a tensor outside the batch, or of the wrong size");
    return to->dtype == STAGER_STRING ? take_offsets(answer, &entry, n, to, err) : 0;
}

/* A bool is 0 or 1 wherever an op reads one. */
static void normalize_bools(struct stg_tensor *tensor)
{
    if (tensor->dtype != STAGER_BOOL)
        return;
    unsigned char *at = tensor->data;
    for (uint64_t i = 0; i < tensor->data_bytes; i++)
        at[i] = at[i] != 0;
}

/* Out of the worker's reach, and parts that fit one another. */
static int copy_all(struct answer *answer, struct stg_tensor *tensors,
                    struct stg_err *err)
{
    char *base = (char *)answer->worker->copy.base + answer->used;
    uint64_t capacity = answer->worker->copy.bytes - answer->used;
    struct stg_batch_writer writer;
    int rc = stg_batch_writer_begin(&writer, base, capacity, answer->schema, err);
    for (uint32_t i = 0; rc == 0 && i < answer->schema->n; i++)
        rc = stg_batch_writer_copy(&writer, i, &tensors[i], err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", answer->worker->workers->function);
    stg_batch_writer_seal(&writer);
    rc = stg_batch_check_parts(base, true, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", answer->worker->workers->function);
    for (uint32_t i = 0; i < answer->schema->n; i++) {
        stg_batch_tensor_at(base, i, &tensors[i], NULL);
        normalize_bools(&tensors[i]);
    }
    return 0;
}

int stg_work_answer(struct stg_worker *worker, uint64_t bytes, bool is_computed,
                    struct stg_tensor *tensors, struct stg_err *err)
{
    const struct stg_schema *schema = &worker->workers->output;
    struct stg_batch_header header;
    struct answer answer = {.worker = worker,
                            .schema = schema,
                            .base = worker->scratch.base,
                            .bytes = bytes,
                            .low = sizeof(header) +
                                   schema->n * sizeof(struct stg_tensor_entry)};
    if (bytes < sizeof(header) || bytes > worker->scratch.bytes)
        return broken(&answer, err, "its size");
    copy_once(&header, answer.base, sizeof(header));
    if (header.magic != STG_MAGIC_BATCH || header.major != STG_LAYOUT_MAJOR ||
        header.header_bytes != sizeof(header) ||
        header.entry_bytes != sizeof(struct stg_tensor_entry))
        return broken(&answer, err, "it does not start as one");
    if (header.kind == STG_BATCH_ERROR)
        return read_error(&answer, &header, err);
    if (header.kind != STG_BATCH_TENSORS || header.n_tensors != schema->n ||
        answer.low > bytes)
        return broken(&answer, err,
                      "the number of tensors differs from the declared one");
    for (uint32_t i = 0; i < schema->n; i++) {
        int rc = take_tensor(&answer, i, &tensors[i], err);
        if (rc < 0)
            return rc;
    }
    return is_computed ? copy_all(&answer, tensors, err) : 0;
}
