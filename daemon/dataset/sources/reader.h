/* SPDX-License-Identifier: Apache-2.0
 *
 * A step over file names: opens one file after the other, lets a format split it into
 * records, and makes blocks that are views of the format's chunks. What every reader step
 * shares; the step itself says which format, and what its records are called.
 */
#ifndef STG_DAEMON_READER_H
#define STG_DAEMON_READER_H

#include "daemon/dataset/step.h"
#include "daemon/format/format.h"

/* A component behind those of the format. */
enum stg_derived {
    STG_DERIVED_NONE = 0,
    STG_DERIVED_KEY, /* "FILE:NUMBER", from 1 */
    STG_DERIVED_PATH /* "FILE" */
};

struct stg_reader_config {
    const struct stg_format *format;
    /* The reader fills in quota and stopped. What is ahead is for it alone. */
    struct stg_format_config config;
    const char *compression; /* struct stg_decompress_config.type */
    enum stg_derived derived;
    bool direct; /* read past the page cache */
};

/* What every reader step has to check: that `in` is the element {path: string} of
 * `files`, and the options that all readers have. INVALID_ARGUMENT. */
int stg_reader_check(const struct stg_step *step, const struct stg_schema *in,
                     struct stg_err *err);

/* As stg_transformation.infer, of a step without options of its own that yields {record:
 * string}. */
int stg_reader_infer_record(const struct stg_step *step, const struct stg_schema *in,
                            struct stg_bump *bump, struct stg_schema *ret,
                            struct stg_err *err);

/* A config with the options that all readers have, as far as the dataset's budget bears
 * them; `compression` is the default. The step was checked. */
struct stg_reader_config stg_reader_options(struct stg_dataset *dataset,
                                            const struct stg_step *step,
                                            const struct stg_format *format,
                                            const char *compression);

/* Sets the format's options to a copy that lives as long as the dataset: the files are
 * counted by another reader of the format. RESOURCE_EXHAUSTED. */
int stg_reader_set_options(struct stg_dataset *dataset, const struct stg_step *step,
                           struct stg_reader_config *config, const void *options,
                           size_t bytes, struct stg_err *err);

/* For formats that can read ahead: lets this reader do so, where it may. */
int stg_reader_want_ahead(struct stg_dataset *dataset, const struct stg_step *step,
                          struct stg_format_config *config, struct stg_err *err);

/* As stg_transformation.create. */
int stg_reader_create(struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      const struct stg_reader_config *config, struct stg_iter **ret,
                      struct stg_err *err);

/* Returns the reader of the format, which count and seek may replace. */
void *stg_reader_format(struct stg_iter *iter);

#endif
