/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the catalog: catalog.c (names and instances), end.c (the end of
 * instances), events.c (notifications), status.c (counters), containers.c (containers
 * that instances share), replace.c (which changes are refused), persist.c (files).
 */
#ifndef STG_DAEMON_PIPELINE_CATALOG_PRIV_H
#define STG_DAEMON_PIPELINE_CATALOG_PRIV_H

#include <dirent.h>

#include "daemon/host/heap.h"
#include "daemon/pipeline/catalog.h"

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
};

/* catalog.c: frees an instance whose stage no worker uses. */
void stg_catalog_free_instance(struct stg_instance *instance);

/* events.c */
void stg_catalog_tell(const struct stg_catalog *catalog, enum stg_event_kind kind,
                      uint64_t pipeline_id);

/* status.c: keeps the counters of an instance whose runners have ended: the next instance
 * of this generation goes on with them, and status shows them without an instance. */
void stg_catalog_keep_counts(struct stg_instance *instance);

/* containers.c: makes the containers of the catalog's pipelines. The budget counts them
 * and asks them for memory that no pipeline uses. */
int stg_catalog_make_containers(struct stg_catalog *catalog, struct stg_budget *budget,
                                struct stg_err *err);
void stg_catalog_drop_containers(struct stg_catalog *catalog);
/* What is in the pipeline's. */
void stg_catalog_show_container(const struct stg_definition *definition,
                                struct stg_pipeline_status *ret);

/* Takes the definition's reference on success. */
int stg_catalog_add(struct stg_catalog *catalog, const char *name,
                    struct stg_definition *definition, uint64_t generation,
                    struct stg_pipeline **ret, struct stg_err *err);

/* replace.c: checks that a definition may replace the pipeline's. FAILED_PRECONDITION
 * with the difference and the attached clients. */
int stg_catalog_check_replace(const struct stg_pipeline *pipeline,
                              const struct stg_definition *definition,
                              enum stg_replace replace, struct stg_err *err);

/* INVALID_ARGUMENT unless it may be the name of a pipeline, and so of a file. */
int stg_catalog_check_name(const char *name, struct stg_err *err);

/* state_dir/pipelines/NAME.yaml: a first line that says who applied it, then the text.
 * Written beside, synced, renamed. */
int stg_catalog_save(struct stg_catalog *catalog, const char *name,
                     const struct stg_definition *definition, uint64_t generation,
                     struct stg_err *err);
int stg_catalog_forget(struct stg_catalog *catalog, const char *name,
                       struct stg_err *err);

/* Lists the files of a folder that hold pipelines, by name, as scandir(3). */
int stg_catalog_list_files(const char *directory, struct dirent ***ret);

/* (gid_t)-1 when there is no such group. */
gid_t stg_group_id(const char *name);

#endif
