/* SPDX-License-Identifier: Apache-2.0
 *
 * What of a staged batch this consumer sees, and where it lies. A batch carries features
 * and, behind them, what stagerd computed ahead; which of them, it says itself.
 */
#include "client/stream/field.h"

#include <stdlib.h>
#include <string.h>

#include "core/batch.h"

/* ---- at open ---- */

static int pick(struct stager_stream *stream, const struct stager_options *options,
                bool *picked, struct stg_err *err)
{
    for (size_t i = 0; i < options->n_fields; i++) {
        if (options->fields[i] == NULL ||
            !stg_schema_pick(&stream->boundary, options->fields[i], picked))
            return stg_err(err, -STAGER_INTERNAL,
                           "stagerd took field %zu, and pipeline %s has none of its name",
                           i, stream->name);
    }
    return 0;
}

int stg_fields_init(struct stager_stream *stream, const struct stager_options *options,
                    struct stg_err *err)
{
    size_t n = stream->boundary.n;
    stream->has_fields = options->fields != NULL;
    stream->n_all = (uint32_t)(n + stream->slots.n);
    bool *picked = calloc(n + 1, sizeof(*picked));
    stream->shown = stg_bump_alloc(&stream->bump, (n + 1) * sizeof(*stream->shown));
    stream->places =
        calloc((size_t)stream->max_held * stream->n_all + 1, sizeof(*stream->places));
    int rc = 0;
    if (picked == NULL || stream->shown == NULL || stream->places == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    else if (stream->has_fields)
        rc = pick(stream, options, picked, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        if (picked[i] || !stream->has_fields)
            stream->shown[stream->n_shown++] = i;
    }
    free(picked);
    return rc;
}

/* ---- of a batch ---- */

static const char *name_of(const struct stager_stream *stream, uint32_t i)
{
    size_t n = stream->boundary.n;
    return i < n ? stream->boundary.components[i].name
                 : stream->slots.components[i - n].name;
}

const uint32_t *stg_lent_places(const struct stager_stream *stream,
                                const struct stg_lent *lent)
{
    return lent->is_placed
               ? stream->places + (size_t)(lent - stream->lents) * stream->n_all
               : NULL;
}

/* Both lists are in one order. */
int stg_lent_place(struct stager_stream *stream, struct stg_lent *lent,
                   struct stg_err *err)
{
    const struct stg_batch_header *header = lent->base;
    uint32_t *places = stream->places + (size_t)(lent - stream->lents) * stream->n_all;
    uint32_t n = header->n_tensors, at = 0;
    if (!stream->has_fields && header->cut == 0)
        return 0;
    for (uint32_t i = 0; i < stream->n_all; i++) {
        struct stg_tensor tensor;
        const char *name = "";
        if (at < n)
            stg_batch_tensor_at(lent->base, at, &tensor, &name);
        bool is_here = at < n && strcmp(name, name_of(stream, i)) == 0;
        places[i] = is_here ? at++ : STG_NO_PLACE;
    }
    for (uint32_t k = 0; k < stream->n_shown; k++) {
        if (places[stream->shown[k]] == STG_NO_PLACE)
            return stg_err(err, -STAGER_DATA_LOSS, "batch %llu lacks the feature %s",
                           (unsigned long long)lent->number,
                           name_of(stream, stream->shown[k]));
    }
    lent->is_placed = true;
    return 0;
}

/* ---- what the trainer sees of it ---- */

uint32_t stg_batch_n_shown(const struct stager_batch *batch)
{
    const struct stg_batch_header *header = batch->lent->base;
    return batch->lent->is_placed ? batch->stream->n_shown : header->n_tensors;
}

uint32_t stg_batch_shown(const struct stager_batch *batch, uint32_t i)
{
    const uint32_t *places = stg_lent_places(batch->stream, batch->lent);
    return places != NULL ? places[batch->stream->shown[i]] : i;
}

int stg_batch_find_shown(const struct stager_batch *batch, const char *name)
{
    const struct stager_stream *stream = batch->stream;
    if (!batch->lent->is_placed)
        return stg_batch_find(batch->lent->base, name);
    for (uint32_t i = 0; i < stream->n_shown; i++) {
        if (strcmp(name_of(stream, stream->shown[i]), name) == 0)
            return (int)i;
    }
    return -1;
}

bool stg_stream_is_left_out(const struct stager_stream *stream, const char *name)
{
    for (uint32_t i = 0; stream->has_fields && i < stream->boundary.n; i++) {
        if (strcmp(name_of(stream, i), name) == 0)
            return true;
    }
    return false;
}
