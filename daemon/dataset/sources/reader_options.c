/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "daemon/dataset/sources/reader.h"
#include "daemon/storage/codec/decompress.h"

#define MIB (1ll << 20)
#define READ_BYTES (256ll << 10) /* what was read is in the cache until it is used */
/* What a chunk has room for: batches end in mid-chunk. */
#define CHUNK_READS 16
#define CHUNK_BYTES (4 * MIB)
#define CHUNK_LARGE_READS 4
#define MAX_BUFFER_BYTES (1ll << 30)
#define MAX_RECORD_BYTES (1ll << 40)

/* A share of the budget, so that a few chunks and a few long records fit into it at once.
 * It depends on the budget alone, not on what is taken: which records are too long is the
 * same in every run. Readers that run at once share what is for chunks; long records are
 * few. */
#define BUDGET_SHARE 8
/* A chunk takes no more than this share of the budget where one is filled ahead. */
#define AHEAD_SHARE 16
#define AHEAD_MIN_READ 65536

static int needs_files(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_err *err)
{
    if (in != NULL && in->n == 1 && strcmp(in->components[0].name, "path") == 0 &&
        in->components[0].dtype == STAGER_STRING && in->components[0].ndim == 0)
        return 0;
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "its input must be file names: put `files` before it, with no "
                        "step between them that changes the elements");
}

static const char *compression_of(const struct stg_step *step, const char *otherwise)
{
    return stg_attr_string(step->attrs, step->n_attrs, "compression_type", otherwise);
}

int stg_reader_check(const struct stg_step *step, const struct stg_schema *in,
                     struct stg_err *err)
{
    int rc = needs_files(step, in, err);
    if (rc < 0)
        return rc;
    int64_t buffer = stg_step_int(step, "buffer_size", READ_BYTES);
    if (buffer < 1 || buffer > MAX_BUFFER_BYTES)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "buffer_size is %lld bytes; it must be 1 to 1073741824",
                            (long long)buffer);
    int64_t most = stg_step_int(step, "max_record_bytes", 64 * MIB);
    if (most < 1 || most > MAX_RECORD_BYTES)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "max_record_bytes is %lld; it must be 1 to 2^40",
                            (long long)most);
    rc = stg_decompress_check(compression_of(step, ""), err);
    return rc < 0 ? stg_step_prefix(step, rc, err) : 0;
}

int stg_reader_infer_record(const struct stg_step *step, const struct stg_schema *in,
                            struct stg_bump *bump, struct stg_schema *ret,
                            struct stg_err *err)
{
    int rc = stg_reader_check(step, in, err);
    if (rc == 0)
        rc = stg_schema_create(bump, 1, ret, err);
    if (rc == 0)
        ret->components[0] =
            (struct stg_component){.name = "record", .dtype = STAGER_STRING};
    return rc;
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

static uint64_t chunk_bytes(uint64_t read_bytes)
{
    uint64_t large = CHUNK_LARGE_READS * read_bytes;
    return large > CHUNK_BYTES ? large : at_most(CHUNK_READS * read_bytes, CHUNK_BYTES);
}

/* What gives records of max_record_bytes their room. */
static const char *advise(struct stg_dataset *dataset, uint64_t most)
{
    struct stg_err err = {.code = -STAGER_RESOURCE_EXHAUSTED};
    uint64_t limit;
    if (__builtin_mul_overflow(most, 2 * BUDGET_SHARE, &limit))
        limit = UINT64_MAX / 8;
    stg_err_append(&err, err.code,
                   "that is an eighth of the dataset's buffers, less than "
                   "max_record_bytes: if it is data, ");
    stg_quota_advise(dataset->quota, limit, 0, &err);
    char *text = stg_bump_alloc_raw(&dataset->bump, strlen(err.text) + 1);
    return text != NULL ? strcpy(text, err.text) : "raise staged.memory_budget";
}

struct stg_reader_config stg_reader_options(struct stg_dataset *dataset,
                                            const struct stg_step *step,
                                            const struct stg_format *format,
                                            const char *compression)
{
    uint64_t share = stg_quota_limit(dataset->quota) / BUDGET_SHARE + 64;
    uint64_t chunk_share = share / dataset->n_sharing + 64;
    uint64_t buffer = (uint64_t)stg_step_int(step, "buffer_size", READ_BYTES);
    uint64_t most = (uint64_t)stg_step_int(step, "max_record_bytes", 64 * MIB);
    return (struct stg_reader_config){
        .format = format,
        .compression = compression_of(step, compression),
        .direct = stg_step_bool(step, "direct_io", false),
        .config = {.read_bytes = at_most(buffer, chunk_share),
                   .chunk_bytes = at_most(chunk_bytes(buffer), chunk_share),
                   .max_record_bytes = at_most(most, share),
                   .advice = most <= share ? "raise max_record_bytes if it is data"
                                           : advise(dataset, most)},
    };
}

int stg_reader_set_options(struct stg_dataset *dataset, const struct stg_step *step,
                           struct stg_reader_config *config, const void *options,
                           size_t bytes, struct stg_err *err)
{
    void *copy = stg_bump_alloc(&dataset->bump, bytes);
    if (copy == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    config->config.options = memcpy(copy, options, bytes);
    return 0;
}

/* Only one reader of a dataset reads ahead, and only where what it takes for that is
 * little: what fits into the budget does not depend on it. */
int stg_reader_want_ahead(struct stg_dataset *dataset, const struct stg_step *step,
                          struct stg_format_config *config, struct stg_err *err)
{
    if (dataset->ahead != NULL || dataset->n_sharing > 1 ||
        config->read_bytes < AHEAD_MIN_READ ||
        stg_quota_limit(dataset->quota) / AHEAD_SHARE < config->chunk_bytes)
        return 0;
    int rc = stg_ahead_create(&dataset->ahead);
    if (rc < 0)
        return stg_step_err(step, rc, err, "out of memory");
    config->ahead = dataset->ahead;
    return 0;
}
