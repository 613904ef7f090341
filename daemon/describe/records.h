/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptions of files of records, by the first of them: csv, jsonl and text_line by the
 * head of the file, tfrecord, tar and npy by the first records. One thread.
 */
#ifndef STG_DAEMON_DESCRIBE_RECORDS_H
#define STG_DAEMON_DESCRIBE_RECORDS_H

#include "daemon/describe/file.h"

bool stg_described_is_npy(const struct stg_described_file *file);
bool stg_described_is_tar(const struct stg_described_file *file);
bool stg_described_is_tfrecord(const struct stg_described_file *file);
bool stg_described_is_jsonl(const struct stg_described_file *file);
bool stg_described_is_image(const struct stg_described_file *file);
bool stg_described_is_text(const struct stg_described_file *file); /* after jsonl */

/* Set format and columns. Errors name no file, unless file->is_storage is set. */
int stg_describe_npy(struct stg_described_file *file, struct stg_err *err);
int stg_describe_tar(struct stg_described_file *file, struct stg_err *err);
int stg_describe_tfrecord(struct stg_described_file *file, struct stg_err *err);
int stg_describe_jsonl(struct stg_described_file *file, struct stg_err *err);
int stg_describe_image(struct stg_described_file *file, struct stg_err *err);
int stg_describe_text(struct stg_described_file *file, struct stg_err *err);

#endif
