/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of an answer. The extent is not published yet, so that nothing changes its
 * bytes during the check.
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/remote_stage/priv.h"

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "%s", what);
}

static int check_frame(const unsigned char *head, uint64_t bytes, uint32_t got,
                       struct stg_err *err)
{
    uint64_t length;
    uint32_t crc;
    memcpy(&length, head, sizeof(length));
    memcpy(&crc, head + 8, sizeof(crc));
    if (length != bytes)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "the frame has %" PRIu64 " bytes, and the answer %" PRIu64, length,
                       bytes);
    return crc == got ? 0 : damaged(err, "the checksum of the batch differs");
}

static bool has_shape(const struct stg_component *component,
                      const struct stg_tensor *tensor)
{
    bool fits = component->ndim == tensor->ndim;
    for (int d = 0; fits && d < tensor->ndim; d++)
        fits = component->shape[d] < 0 || component->shape[d] == tensor->shape[d];
    return fits;
}

static int check_tensors(const char *base, const struct stg_schema *schema,
                         struct stg_err *err)
{
    const struct stg_batch_header *header = (const void *)base;
    if (header->n_tensors != schema->n)
        return damaged(err, "the batch has another number of tensors");
    for (uint32_t i = 0; i < header->n_tensors; i++) {
        const struct stg_component *component = &schema->components[i];
        struct stg_tensor tensor;
        const char *name;
        stg_batch_tensor_at(base, i, &tensor, &name);
        if (strcmp(name, component->name) != 0 || tensor.dtype != component->dtype ||
            stg_batch_part(base, i) != component->part || !has_shape(component, &tensor))
            return stg_err(err, -STAGER_DATA_LOSS,
                           "tensor %.64s of the batch has another name, dtype or shape",
                           component->name);
    }
    return 0;
}

static int check_place(const struct stg_remote_wanted *wanted,
                       const struct stg_batch_header *header, struct stg_err *err)
{
    static const struct stg_data_identity none;
    if (header->pass != wanted->pass || header->epoch != wanted->epoch ||
        header->index != wanted->index)
        return damaged(err, "it is the batch of another place");
    if (wanted->rows != 0 && header->n_rows != wanted->rows)
        return damaged(err, "the batch has another number of rows");
    if (memcmp(&header->data, &none, sizeof(none)) != 0 && wanted->data->n_files != 0 &&
        memcmp(&header->data, wanted->data, sizeof(none)) != 0)
        return damaged(err, "the worker reads other files (their names or sizes differ)");
    return 0;
}

int stg_answer_check(const struct stg_remote_wanted *wanted,
                     const struct stg_schema *schema, const unsigned char *head,
                     uint64_t bytes, uint32_t crc, struct stg_err *err)
{
    struct stg_batch_header *header = (void *)wanted->base;
    int rc = check_frame(head, bytes, crc, err);
    if (rc == 0 && bytes < sizeof(*header))
        rc = damaged(err, "it is shorter than a batch");
    if (rc == 0)
        rc = stg_batch_check(wanted->base, bytes, true, err);
    if (rc == 0 && (header->kind != STG_BATCH_TENSORS || header->total_bytes != bytes))
        rc = damaged(err, "it is no batch of tensors");
    if (rc == 0)
        rc = check_tensors(wanted->base, schema, err);
    if (rc == 0)
        rc = check_place(wanted, header, err);
    if (rc < 0)
        return rc;
    *header = (struct stg_batch_header){.magic = STG_MAGIC_BATCH,
                                        .major = STG_LAYOUT_MAJOR,
                                        .minor = STG_LAYOUT_MINOR,
                                        .kind = STG_BATCH_TENSORS,
                                        .n_tensors = header->n_tensors,
                                        .header_bytes = header->header_bytes,
                                        .entry_bytes = header->entry_bytes,
                                        .total_bytes = bytes,
                                        .n_rows = header->n_rows};
    return 0;
}
