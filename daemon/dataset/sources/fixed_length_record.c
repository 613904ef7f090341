/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/reader.h"

#define MAX_BYTES (1ll << 40)

static int check_bytes(const struct stg_step *step, const char *name, int64_t least,
                       struct stg_err *err)
{
    int64_t bytes = stg_step_int(step, name, 0);
    if (bytes >= least && bytes <= MAX_BYTES)
        return 0;
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "%s is %lld; it must be %lld to 2^40", name, (long long)bytes,
                        (long long)least);
}

static int fixed_length_infer(const struct stg_step *step, const struct stg_schema *in,
                              struct stg_bump *bump, struct stg_schema *ret,
                              struct stg_err *err)
{
    int rc = stg_reader_infer_record(step, in, bump, ret, err);
    if (rc == 0)
        rc = check_bytes(step, "record_bytes", 1, err);
    if (rc == 0)
        rc = check_bytes(step, "header_bytes", 0, err);
    return rc == 0 ? check_bytes(step, "footer_bytes", 0, err) : rc;
}

static int too_large(const struct stg_step *step,
                     const struct stg_fixed_length_options *options,
                     const struct stg_format_config *config, struct stg_err *err)
{
    return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err,
                        "record_bytes and footer_bytes are %llu and %llu, more than the "
                        "%llu that a record may have; %s",
                        (unsigned long long)options->record_bytes,
                        (unsigned long long)options->footer_bytes,
                        (unsigned long long)config->max_record_bytes,
                        config->advice != NULL ? config->advice : "");
}

static int fixed_length_create(struct stg_dataset *dataset, const struct stg_step *step,
                               const struct stg_schema *schema, struct stg_iter *input,
                               struct stg_iter **ret, struct stg_err *err)
{
    struct stg_fixed_length_options options = {
        .record_bytes = (uint64_t)stg_step_int(step, "record_bytes", 0),
        .header_bytes = (uint64_t)stg_step_int(step, "header_bytes", 0),
        .footer_bytes = (uint64_t)stg_step_int(step, "footer_bytes", 0)};
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_fixed_length, "none");
    uint64_t most = config.config.max_record_bytes;
    if (options.record_bytes > most || options.footer_bytes > most)
        return too_large(step, &options, &config.config, err);
    int rc =
        stg_reader_set_options(dataset, step, &config, &options, sizeof(options), err);
    if (rc < 0)
        return rc;
    dataset->has_records = true;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_fixed_length_record = {.name = "fixed_length_record",
                                                           .infer = fixed_length_infer,
                                                           .create = fixed_length_create,
                                                           .is_indexable = true};
