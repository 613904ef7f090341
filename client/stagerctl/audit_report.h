/* SPDX-License-Identifier: Apache-2.0
 *
 * Audits as stagerctl and the Python package show them: a text of a pipeline or of a
 * file, and the JSON objects of it. One thread at a time.
 */
#ifndef STG_STAGERCTL_AUDIT_REPORT_H
#define STG_STAGERCTL_AUDIT_REPORT_H

#include "client/stagerctl/report/history.h"
#include "client/transport/admin.h"
#include "core/text/json.h"

/* "NAME", "FILE" (which has a '/'), each with "@ATTEMPT" or not. */
struct stg_audit_source {
    char name[4096];
    bool is_file;
    uint64_t attempt; /* 0: the last one */
    const char *job;  /* whose commits etcd has; NULL: those of the daemon's journal */
    char other[64];   /* a job that is left out, if has_other */
    bool has_other;
    char *text;
    size_t bytes;
    struct stg_audit audit;
};

/* Reads an argument. job outlives the source. INVALID_ARGUMENT. */
int stg_audit_source_parse(const char *argument, const char *job,
                           struct stg_audit_source *ret, struct stg_err *err);
/* Reads the text, from a file, or from the daemon at runtime_dir, and the commits of the
 * job. Errors of both; DATA_LOSS: it is not an audit; NOT_FOUND: no attempt is of the
 * job. */
int stg_audit_source_load(struct stg_audit_source *source, const char *runtime_dir,
                          struct stg_err *err);
void stg_audit_source_finish(struct stg_audit_source *source);

/* Returns the lane number i of an audit, of those that the source means; NULL: there are
 * no more. */
const char *stg_audit_lane(const struct stg_audit_source *source, size_t i);

/* Writes one object. *ret_proven: each history with commits is exactly once. */
int stg_audit_report_json(struct stg_json_writer *json,
                          const struct stg_audit_source *source, bool *ret_proven,
                          struct stg_err *err);

/* Compares the histories of a lane. */
int stg_audit_compare(const struct stg_audit_source *a, const struct stg_audit_source *b,
                      const char *lane, struct stg_history_difference *ret,
                      struct stg_err *err);

/* Returns whether the source has attempts of the lane. */
bool stg_audit_has_lane(const struct stg_audit_source *source, const char *lane);

/* Returns the error of two sources without a common lane. */
int stg_audit_refuse_lanes(const struct stg_audit_source *a,
                           const struct stg_audit_source *b, struct stg_err *err);

/* Writes one object: all lanes. *ret_same: none of them differs. FAILED_PRECONDITION: the
 * audits have no lane in common. */
int stg_audit_compare_json(struct stg_json_writer *json, const struct stg_audit_source *a,
                           const struct stg_audit_source *b, bool *ret_same,
                           struct stg_err *err);

#endif
