/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the catalog, from below: status.c (counters), instance.c (instances),
 * catalog.c (pipelines by name).
 */
#ifndef STG_DAEMON_PIPELINE_CATALOG_PRIV_H
#define STG_DAEMON_PIPELINE_CATALOG_PRIV_H

#include "daemon/host/heap.h"
#include "daemon/pipeline/catalog.h"
#include "daemon/placement/priors.h"

/* A change of a pipeline. A worker writes it, while nothing else changes the pipeline. */
struct stg_change {
    uv_work_t work;
    struct stg_catalog *catalog;
    struct stg_pipeline *pipeline;     /* with generation 0 it is in no list yet */
    struct stg_pipeline *candidate;    /* that takes over; NULL: none */
    struct stg_definition *definition; /* the next one; NULL: it is deleted */
    struct stg_workers *workers;       /* of it; or NULL */
    struct stg_change_done done;
    struct stg_err err;
    uint64_t disk_bytes; /* of the definitions on disk, afterwards */
};

struct stg_catalog {
    uv_loop_t *loop;
    const struct stg_settings *settings;
    struct stg_budget *budget;
    struct stg_containers *containers; /* counted on it */
    uint64_t instance_id;
    struct stg_catalog_hooks hooks;
    gid_t access_gid;               /* (gid_t)-1: no such group */
    struct stg_pipeline *pipelines; /* by name */
    struct stg_instance *instances; /* all that exist, of all generations */
    uint64_t n_gone;                /* instances whose memory came back */
    struct stg_heap_trim trim;
    struct stg_priors priors; /* of smart_stage: auto */
    struct stg_journal_writers journals;
    char boot[40];             /* of the machine */
    bool has_record_problem;   /* the last record of a run could not be written */
    bool is_stopping;          /* the records of runs stay as they are */
    struct stg_change *change; /* that waits for the disk; or NULL */
};

/* status.c: returns whether clients of the instance are those of the pipeline. */
bool stg_catalog_is_of(const struct stg_instance *instance,
                       const struct stg_pipeline *pipeline);

/* status.c: keeps the counters of an instance whose runners have ended: the next instance
 * of this generation goes on with them, and status shows them without an instance. */
void stg_catalog_keep_counts(struct stg_instance *instance);

/* status.c: adds the totals of an instance that ends to those of its pipeline, also if
 * another generation has replaced it. */
void stg_catalog_keep_totals(const struct stg_instance *instance);

/* catalog.c: finds out under which name a definition is applied, and the pipeline that
 * has it; NULL: none. PERMISSION_DENIED: it is another user's. */
int stg_catalog_resolve(struct stg_catalog *catalog,
                        const struct stg_definition *definition, const char *name,
                        char ret_name[65], struct stg_pipeline **ret,
                        struct stg_err *err);
/* catalog.c: checks whether a definition may replace the pipeline's. */
int stg_catalog_check_replace(const struct stg_catalog *catalog,
                              const struct stg_pipeline *pipeline,
                              const struct stg_definition *definition,
                              enum stg_replace replace, struct stg_err *err);
/* catalog.c: makes definition and instance of a candidate, which is in no list, the next
 * generation of the pipeline. Once `done` was called, or with an error, the caller drops
 * what is left of the candidate. */
int stg_catalog_adopt(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                      struct stg_pipeline *candidate, enum stg_replace replace,
                      const struct stg_change_done *done, struct stg_err *err);
/* catalog.c: ends and frees a candidate. NULL is allowed. */
void stg_catalog_drop(struct stg_pipeline *candidate, const char *text);
/* instance.c: frees an instance whose stage no worker uses. */
void stg_catalog_free_instance(struct stg_instance *instance);
void stg_catalog_tell(const struct stg_catalog *catalog, enum stg_event_kind kind,
                      uint64_t pipeline_id);
/* instance.c: returns the budget on which runs and workers of the definition count. */
struct stg_budget *stg_catalog_budget(struct stg_catalog *catalog,
                                      struct stg_definition *definition);
/* Reads the priors of smart_stage: auto from state_dir. */
void stg_catalog_load_priors(struct stg_catalog *catalog);
/* Returns a random number, not 0, also without its upper bit. */
uint64_t stg_catalog_make_id(void);

#endif
