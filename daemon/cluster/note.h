/* SPDX-License-Identifier: Apache-2.0
 *
 * What one host says of itself to the other hosts of a job: its number, and what it
 * divides. Two texts: the note, and the list of files, which is read only where digests
 * differ. Pure functions; any thread.
 */
#ifndef STG_DAEMON_CLUSTER_NOTE_H
#define STG_DAEMON_CLUSTER_NOTE_H

#include <stddef.h>

#include "core/err.h"
#include "core/state.h"

#define STG_NOTE_MAX_HOSTS 4096u
#define STG_NOTE_BYTES 131072u   /* of the text of a note, at most */
#define STG_NOTE_MAX_FILES 4096u /* entries of a list */
#define STG_LIST_BYTES 262144u   /* of the text of a list, at most */
#define STG_NOTE_NAME_BYTES 64

/* A file, or `span` files in a row. */
struct stg_file_mark {
    uint64_t name;  /* hash of its path below the folder of its pattern */
    uint64_t bytes; /* of a local file; else 0 */
};

struct stg_host_note {
    uint32_t number, n_hosts;
    uint64_t draw; /* random, for each comparison */
    char host[STG_NOTE_NAME_BYTES];
    char release[STG_NOTE_NAME_BYTES];
    char steps[STG_STATE_STEPS_BYTES]; /* signature of the pipeline */
    uint64_t batch_size;
    uint64_t n_files, span, files; /* how many, in an entry, and their digest */
    uint64_t vocabularies;         /* digest of their content */
    uint64_t *seen;                /* draws of the notes that the host has read */
    size_t n_seen;
};

/* Frees `seen`. */
void stg_host_note_finish(struct stg_host_note *note);

/* Returns whether the host has read the note with that draw. */
bool stg_host_note_has_seen(const struct stg_host_note *note, uint64_t draw);

/* Writes the text into buf, which has STG_NOTE_BYTES. Returns its length. n_seen is at
 * most STG_NOTE_MAX_HOSTS. */
size_t stg_host_note_write(const struct stg_host_note *note, char *buf);

/* Reads a text, which may come from anywhere. INVALID_ARGUMENT: it is no whole note;
 * RESOURCE_EXHAUSTED. The caller calls finish after 0. */
int stg_host_note_read(const char *text, struct stg_host_note *ret);

/* Returns the digest of the marks. */
uint64_t stg_file_marks_digest(const struct stg_file_mark *marks, size_t n);

/* Writes the list of files into buf, which has STG_LIST_BYTES. Returns its length. */
size_t stg_file_marks_write(uint64_t draw, const struct stg_file_mark *marks, size_t n,
                            char *buf);

/* Reads the list of the note with that draw; ret has STG_NOTE_MAX_FILES. Returns how many
 * there are. INVALID_ARGUMENT: it is no whole list of that note. */
int stg_file_marks_read(const char *text, uint64_t draw, struct stg_file_mark *ret);

/* Finds the first difference of two notes, except in their files: fills `what` with a
 * text such as "step shuffle (number 2)", and returns true. */
bool stg_host_notes_differ(const struct stg_host_note *a, const struct stg_host_note *b,
                           char *what, size_t bytes);

#endif
