/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/tap.h"

#include <string.h>

#include "core/batch.h"

/* ---- wishes ---- */

void stg_tap_init(struct stg_tap *tap)
{
    pthread_mutex_init(&tap->lock, NULL);
    atomic_store(&tap->first, NULL);
}

void stg_tap_finish(struct stg_tap *tap)
{
    pthread_mutex_destroy(&tap->lock);
}

static struct stg_tap_wish *first_of(struct stg_tap *tap)
{
    return atomic_load_explicit(&tap->first, memory_order_relaxed);
}

void stg_tap_ask(struct stg_tap *tap, struct stg_tap_wish *wish)
{
    pthread_mutex_lock(&tap->lock);
    struct stg_tap_wish *last = first_of(tap);
    while (last != NULL && last->next != NULL)
        last = last->next;
    if (last != NULL)
        last->next = wish;
    else
        atomic_store(&tap->first, wish);
    pthread_mutex_unlock(&tap->lock);
}

void stg_tap_withdraw(struct stg_tap *tap, struct stg_tap_wish *wish)
{
    pthread_mutex_lock(&tap->lock);
    struct stg_tap_wish *before = NULL, *at = first_of(tap);
    for (; at != NULL && at != wish; at = at->next)
        before = at;
    if (at != NULL && before != NULL)
        before->next = wish->next;
    else if (at != NULL)
        atomic_store(&tap->first, wish->next);
    pthread_mutex_unlock(&tap->lock);
}

/* ---- a copy of the first values ---- */

static void *take(struct stg_tap_wish *wish, size_t bytes)
{
    size_t at = (wish->n_used + 7) & ~(size_t)7;
    if (bytes > STG_TAP_BYTES || at > STG_TAP_BYTES - bytes)
        return NULL;
    wish->n_used = at + bytes;
    return wish->bytes + at;
}

static bool copy_strings(struct stg_tap_wish *wish, const struct stg_tensor *from,
                         size_t n, struct stg_tap_tensor *to)
{
    int64_t *offsets = take(wish, (n + 1) * sizeof(*offsets));
    uint64_t bytes;
    if (offsets == NULL)
        return false;
    offsets[0] = 0;
    for (size_t i = 0; i < n; i++) {
        stg_tensor_string(from, (int64_t)i, &bytes);
        to->shortened |= bytes > STG_TAP_STRING_BYTES;
        bytes = bytes < STG_TAP_STRING_BYTES ? bytes : STG_TAP_STRING_BYTES;
        offsets[i + 1] = offsets[i] + (int64_t)bytes;
    }
    to->offsets = offsets;
    to->n_offsets = n + 1;
    to->data_bytes = (size_t)offsets[n];
    char *data = take(wish, to->data_bytes);
    for (size_t i = 0; data != NULL && i < n; i++) {
        const char *string = stg_tensor_string(from, (int64_t)i, &bytes);
        if (offsets[i + 1] > offsets[i])
            memcpy(data + offsets[i], string, (size_t)(offsets[i + 1] - offsets[i]));
    }
    to->data = data;
    return data != NULL;
}

static bool copy_numbers(struct stg_tap_wish *wish, const struct stg_tensor *from,
                         size_t n, struct stg_tap_tensor *to)
{
    to->data_bytes = n * stg_dtype_bytes(from->dtype);
    void *data = take(wish, to->data_bytes);
    if (data != NULL && to->data_bytes > 0)
        memcpy(data, from->data, to->data_bytes);
    to->data = data;
    return data != NULL;
}

static bool copy_tensor(struct stg_tap_wish *wish, const struct stg_batch_header *batch,
                        uint32_t i, struct stg_tap_tensor *to)
{
    struct stg_tensor from;
    const char *name;
    stg_batch_tensor_at(batch, i, &from, &name);
    *to = (struct stg_tap_tensor){
        .dtype = from.dtype, .ndim = from.ndim, .part = stg_batch_part(batch, i)};
    memcpy(to->shape, from.shape, sizeof(from.shape[0]) * (size_t)from.ndim);
    char *copy = take(wish, strlen(name) + 1);
    if (copy == NULL)
        return false;
    to->name = strcpy(copy, name);
    int64_t n = stg_tensor_n(&from);
    size_t shown = n < STG_TAP_VALUES ? (size_t)n : STG_TAP_VALUES;
    return from.dtype == STAGER_STRING ? copy_strings(wish, &from, shown, to)
                                       : copy_numbers(wish, &from, shown, to);
}

static void grant(struct stg_tap_wish *wish, const struct stg_batch_header *batch)
{
    uint32_t n = 0;
    while (n < batch->n_tensors && n < STG_TAP_TENSORS &&
           copy_tensor(wish, batch, n, &wish->tensors[n]))
        n++;
    wish->batch = (struct stg_tap_batch){.number = batch->number,
                                         .pass = batch->pass,
                                         .epoch = batch->epoch,
                                         .index = batch->index,
                                         .rows = batch->n_rows,
                                         .bytes = batch->total_bytes,
                                         .tensors = wish->tensors,
                                         .n = n,
                                         .n_left_out = batch->n_tensors - n};
    atomic_store_explicit(&wish->is_granted, true, memory_order_release);
}

/* One wish a batch: so a batch costs at most one copy, for any number of wishes. */
void stg_tap_show(struct stg_tap *tap, const struct stg_batch_header *batch)
{
    if (tap == NULL || first_of(tap) == NULL)
        return;
    pthread_mutex_lock(&tap->lock);
    struct stg_tap_wish *wish = first_of(tap);
    if (wish != NULL) {
        atomic_store(&tap->first, wish->next);
        grant(wish, batch);
    }
    pthread_mutex_unlock(&tap->lock);
}
