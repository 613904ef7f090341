/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines as files: state_dir/pipelines/NAME.yaml is an applied one, with two lines
 * about its application before the text; pipeline_dir has texts alone, and
 * state_dir/pipelines/NAME.seen a copy with the lines. Any thread; one writes.
 */
#ifndef STG_DAEMON_PIPELINE_STORE_H
#define STG_DAEMON_PIPELINE_STORE_H

#include <dirent.h>

#include "daemon/pipeline/text_header.h"

/* Where a pipeline is read from. */
struct stg_store_source {
    const struct stg_settings *settings;
    struct stg_containers *containers; /* as stg_definition_create takes them */
    const char *path;
    bool from_dir; /* the file is of pipeline_dir */
};

struct stg_stored {
    struct stg_definition *definition; /* the caller's reference */
    char name[65];
    uint64_t generation; /* one more than on disk if the content is another one */
    bool is_saved;       /* the generation is on disk */
};

/* Checks that a text may be the name of a pipeline, and so of a file. INVALID_ARGUMENT.
 */
int stg_store_check_name(const char *name, struct stg_err *err);

/* Makes state_dir/pipelines and the missing folders above it: the home of a new user may
 * have no ~/.local yet. Returns 0, or -1 with errno. */
int stg_store_make_folders(const struct stg_settings *settings);

/* Fills in the path of the folder of applied pipelines. Returns false if state_dir is too
 * long a path. */
bool stg_store_folder(const struct stg_settings *settings, char *ret, size_t bytes);

/* Lists the files of a folder that hold pipelines, by name, as scandir(3). */
int stg_store_list(const char *directory, struct dirent ***ret);

/* Reads a pipeline and makes its definition. */
int stg_store_read(const struct stg_store_source *source, struct stg_stored *ret,
                   struct stg_err *err);

/* Makes the definition of a text, which ends with NUL, after the lines that the header
 * describes. source->path is for messages. */
int stg_store_define(const struct stg_store_source *source, const char *text,
                     size_t bytes, const struct stg_text_header *header,
                     struct stg_definition **ret, struct stg_err *err);

/* Reads NAME.seen; the caller frees. Errors as stg_text_file_read. */
int stg_store_read_seen(const struct stg_settings *settings, const char *name, char **ret,
                        size_t *ret_bytes);

/* Writes NAME.yaml, or NAME.seen if from_dir. The file is whole and on disk when the call
 * returns: written beside, synced, renamed. */
int stg_store_save(const struct stg_settings *settings, const char *name, bool from_dir,
                   const struct stg_definition *definition, uint64_t generation,
                   struct stg_err *err);

/* Returns the bytes that stg_store_save would write. */
uint64_t stg_store_needs(const struct stg_definition *definition, uint64_t generation);

/* Returns the bytes of NAME.yaml and NAME.seen. */
uint64_t stg_store_bytes(const struct stg_settings *settings, const char *name);

/* Removes NAME.yaml. */
int stg_store_forget(const struct stg_settings *settings, const char *name,
                     struct stg_err *err);

#endif
