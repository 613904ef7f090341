/* SPDX-License-Identifier: Apache-2.0
 *
 * What the daemon answered, as JSON: the objects of `stagerctl --json`, which the Python
 * package gives as dicts. One thread at a time.
 */
#ifndef STG_STAGERCTL_REPLY_H
#define STG_STAGERCTL_REPLY_H

#include "client/transport/admin.h"
#include "core/text/json.h"

/* Returns `otherwise` for a text that is NULL or "". */
static inline const char *stg_text_or(const char *text, const char *otherwise)
{
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

/* Of check, apply and rollback: name, tensors, memory, advice; is_applied: generation
 * too.
 */
void stg_reply_definition_json(struct stg_json_writer *json,
                               const struct stg_reply *reply, bool is_applied);

/* Of list: the key "quarantined" of an object, with those of all pipelines. */
void stg_reply_quarantined_json(struct stg_json_writer *json,
                                const struct stg_reply *reply);

/* Of list: an array. A pipeline that was deleted is in it while batches of it are kept.
 */
void stg_reply_list_json(struct stg_json_writer *json, const struct stg_reply *reply);

/* Puts the key "time": in UTC, to the second. */
void stg_reply_time_json(struct stg_json_writer *json, uint64_t time_ns);

/* Of commits: one object. */
void stg_reply_commits_json(struct stg_json_writer *json, const struct stg_reply *reply);

/* Of versions: an array, the current generation last. */
void stg_reply_versions_json(struct stg_json_writer *json, const struct stg_reply *reply);

/* Of status: one pipeline. */
void stg_reply_status_json(struct stg_json_writer *json,
                           const struct stg_pipeline_status *status);

/* The key "advice" of an object. */
void stg_reply_advice_json(struct stg_json_writer *json,
                           const struct stg_explain *explain);

/* Of explain. */
void stg_reply_explain_json(struct stg_json_writer *json,
                            const struct stg_explain *explain);

/* Of schema: one object, with all columns of a file. */
void stg_reply_schema_json(struct stg_json_writer *json,
                           const struct stg_file_schema *schema);

/* The daemon that answered. */
void stg_reply_daemon_json(struct stg_json_writer *json,
                           const struct stg_admin_daemon *daemon);

#endif
