/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/reader.h"

#define MIB (1ll << 20)
#define CHUNK_READS 4 /* reads that a chunk has room for: batches end in mid-chunk */
#define MAX_BUFFER_BYTES (1ll << 30)
#define MAX_RECORD_BYTES (1ll << 40)

/* A share of the budget, so that a few chunks and a few long lines fit into it at once.
 * It depends on the budget alone, not on what is taken: which lines are too long is the
 * same in every run. */
#define BUDGET_SHARE 8
/* A chunk takes no more than this share of the budget where one is filled ahead. */
#define AHEAD_SHARE 16
#define AHEAD_MIN_READ 65536

static int text_line_infer(const struct stg_step *step, const struct stg_schema *in,
                           struct stg_bump *bump, struct stg_schema *ret,
                           struct stg_err *err)
{
    int rc = stg_reader_needs_files(step, in, err);
    if (rc < 0)
        return rc;
    int64_t buffer = stg_step_int(step, "buffer_size", MIB);
    if (buffer < 1 || buffer > MAX_BUFFER_BYTES)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "buffer_size is %lld bytes; it must be 1 to 1073741824",
                            (long long)buffer);
    int64_t most = stg_step_int(step, "max_record_bytes", 64 * MIB);
    if (most < 1 || most > MAX_RECORD_BYTES)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "max_record_bytes is %lld; it must be 1 to 2^40",
                            (long long)most);
    int64_t skip = stg_step_int(step, "skip_header_lines", 0);
    if (skip < 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "skip_header_lines is %lld; it must be 0 or more",
                            (long long)skip);
    bool with_key = stg_step_bool(step, "with_key", false);
    rc = stg_schema_create(bump, with_key ? 2 : 1, ret, err);
    if (rc < 0)
        return rc;
    ret->components[0] = (struct stg_component){.name = "record", .dtype = STAGER_STRING};
    if (with_key)
        ret->components[1] =
            (struct stg_component){.name = "key", .dtype = STAGER_STRING};
    return 0;
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

/* Only one reader of a dataset reads ahead, and only where what it takes for that is
 * little: what fits into the budget does not depend on it. */
static int want_ahead(struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_format_config *config, struct stg_err *err)
{
    if (dataset->ahead != NULL || config->read_bytes < AHEAD_MIN_READ ||
        stg_quota_limit(dataset->quota) / AHEAD_SHARE < config->chunk_bytes)
        return 0;
    int rc = stg_ahead_create(&dataset->ahead);
    return rc < 0 ? stg_step_err(step, rc, err, "out of memory") : 0;
}

static int text_line_create(struct stg_dataset *dataset, const struct stg_step *step,
                            const struct stg_schema *schema, struct stg_iter *input,
                            struct stg_iter **ret, struct stg_err *err)
{
    uint64_t share = stg_quota_limit(dataset->quota) / BUDGET_SHARE + 64;
    uint64_t buffer = (uint64_t)stg_step_int(step, "buffer_size", MIB);
    uint64_t most = (uint64_t)stg_step_int(step, "max_record_bytes", 64 * MIB);
    const char *advice =
        most <= share ? "raise max_record_bytes of text_line if it is data"
                      : "that is an eighth of the dataset's buffers, less than "
                        "max_record_bytes: raise staged.memory_budget if it is data";
    struct stg_reader_config config = {
        .format = &stg_format_text_line,
        .config = {.read_bytes = at_most(buffer, share),
                   .chunk_bytes = at_most(CHUNK_READS * buffer, share),
                   .max_record_bytes = at_most(most, share),
                   .advice = advice,
                   .skip_header_lines =
                       (uint64_t)stg_step_int(step, "skip_header_lines", 0)},
        .with_key = stg_step_bool(step, "with_key", false),
    };
    int rc = want_ahead(dataset, step, &config.config, err);
    if (rc < 0)
        return rc;
    dataset->has_lines = true;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_text_line = {"text_line", text_line_infer,
                                                 text_line_create};
