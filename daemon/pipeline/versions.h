/* SPDX-License-Identifier: Apache-2.0
 *
 * Earlier definitions of a pipeline: state_dir/versions/NAME/GENERATION.yaml is one that
 * a later generation replaced, with a checksum before the lines of text_header.h. A
 * damaged file is logged and left out. Any thread; one writes.
 */
#ifndef STG_DAEMON_PIPELINE_VERSIONS_H
#define STG_DAEMON_PIPELINE_VERSIONS_H

#include "daemon/pipeline/store.h"

#define STG_MAX_VERSIONS 10 /* of a pipeline, with the current one */

/* One generation, by what the lines before its text say. Strings live in the bump of the
 * call that filled it. */
struct stg_pipeline_version {
    uint64_t generation, content, time_ns;
    uid_t uid;
    const char *file;
};

/* Returns the time since 1970. */
uint64_t stg_versions_now_ns(void);

/* Keeps a definition that another generation is about to replace, and removes the oldest
 * one above STG_MAX_VERSIONS. The file is whole and synced. Its folder is not: a
 * journaling file system stores that with the synced write of NAME.yaml, which follows.
 */
int stg_versions_keep(const struct stg_settings *settings, const char *name,
                      const struct stg_definition *definition, uint64_t generation,
                      struct stg_err *err);

/* Keeps the text of NAME.seen, which a changed file of pipeline_dir is about to replace.
 * Returns 0 if there is none. */
int stg_versions_keep_seen(const struct stg_settings *settings, const char *name,
                           struct stg_err *err);

/* Lists the kept generations below `current`, the oldest one first: at most
 * STG_MAX_VERSIONS - 1. Returns their number. */
size_t stg_versions_list(const struct stg_settings *settings, const char *name,
                         uint64_t current, struct stg_bump *bump,
                         struct stg_pipeline_version ret[STG_MAX_VERSIONS]);

/* Makes the definition of a kept generation: its text, its applier, its file, no script.
 * Vocabularies are read anew. source->path is not read. NOT_FOUND, DATA_LOSS. */
int stg_versions_read(const struct stg_store_source *source, const char *name,
                      uint64_t generation, struct stg_definition **ret,
                      struct stg_err *err);

/* Returns the bytes of the files of all generations, and of stg_store_bytes. */
uint64_t stg_versions_bytes(const struct stg_settings *settings, const char *name);

/* Removes all of a pipeline. */
void stg_versions_forget(const struct stg_settings *settings, const char *name);

#endif
