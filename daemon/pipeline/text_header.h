/* SPDX-License-Identifier: Apache-2.0
 *
 * The two lines that stagerd writes before the text of an applied pipeline in state_dir;
 * the script may be empty:
 *
 *   # stager: generation 3 uid 1000 gid 1000 groups 1000,44 content 9f time 5 file
 * /p.yaml
 *
 *   # stager: script /home/u/train.py
 *
 * `content` is the fingerprint, in hexadecimal. `time` is when it was applied, in
 * nanoseconds since 1970.
 */
#ifndef STG_DAEMON_PIPELINE_TEXT_HEADER_H
#define STG_DAEMON_PIPELINE_TEXT_HEADER_H

#include "daemon/pipeline/definition.h"

/* More than all groups, the longest file and the longest script take. */
#define STG_TEXT_HEADER_BYTES 16384

/* What the lines before a text say. `file` and `script` point into the text. */
struct stg_text_header {
    uint64_t generation; /* 0: there are no lines */
    uint64_t content, time_ns;
    struct stg_identity applier; /* zeros: there are no lines */
    const char *file, *script;   /* NULL: none */
    size_t file_bytes, script_bytes;
    size_t bytes; /* of the lines */
};

/* Fills in the lines. The name of the file is truncated where it leaves no room. */
void stg_text_header_write(const struct stg_definition *definition, uint64_t generation,
                           char ret[STG_TEXT_HEADER_BYTES]);

/* Reads the lines of a text that ends with NUL. */
void stg_text_header_read(const char *text, struct stg_text_header *ret);

#endif
