/* SPDX-License-Identifier: Apache-2.0
 *
 * The record of a run: what a stagerd that was started again must know of it to let its
 * clients go on. It is written when a client joins or leaves and when a pass ends, and
 * never on the path of a batch. Its text is lines, the last one a checksum of the others.
 * Pure functions; one thread at a time.
 */
#ifndef STG_DAEMON_RECOVER_RECORD_H
#define STG_DAEMON_RECOVER_RECORD_H

#include "core/spec.h"
#include "core/state.h"

#define STG_RUN_RECORD_VERSION 2
#define STG_RUN_BOOT_BYTES 40
#define STG_RUN_MAX_MEMBERS 65536u

/* A client that may come back. */
struct stg_run_member {
    uint64_t member; /* random, not 0 */
    uint64_t attempt;
    uint64_t process; /* stg_process_id; with pid */
    uint32_t pid;     /* 0: not known */
    uint32_t uid;
    uint32_t rank;     /* round_robin */
    uint32_t consumer; /* split: its number in the pass; 0: it has none */
    bool is_named;
    bool is_late;   /* the run went on without it once */
    bool took_over; /* it came back in the middle of a pass under its name, and has no
                       place before its first batch */
    bool follows;   /* it goes on with later versions of the pipeline */
    char client_id[128];
    char *acknowledged; /* split: its items of the pass, when the record was written;
                           NULL: none */
};

struct stg_run_record {
    char boot[STG_RUN_BOOT_BYTES]; /* of the machine */
    char name[65];                 /* of the pipeline */
    uint64_t generation, fingerprint;
    char steps[STG_STATE_STEPS_BYTES]; /* signature of the definition that it ran with;
                                          likewise: */
    enum stg_delivery delivery;
    uint64_t batch_size; /* that items of a split are counted with; 0: none */
    uint64_t run;        /* run_id of the run that began it; a restart keeps it */
    uint64_t attempt;    /* the newest of the pipeline */
    uint32_t num_clients;
    uint64_t pass;         /* the current one, or the next one */
    uint64_t numbers_pass; /* that the rest is of */
    uint32_t consumers;    /* numbers of a split */
    bool has_begun;        /* all clients were there once */
    bool is_full;          /* `left` has no room for all: the run cannot go on */
    char left[STG_TAKEN_TEXT_BYTES]; /* items that clients acknowledged that left */
    bool has_origin;
    struct stg_state origin; /* that clients of a split loaded when it began; of a
                                broadcast that has not begun: where it begins */
    uint32_t *vacant;        /* numbers of a split that are free, the highest first */
    size_t n_vacant;
    struct stg_run_member *members;
    size_t n_members;
    uint32_t n_others; /* clients that are no members; not in the text */
};

void stg_run_record_finish(struct stg_run_record *record);

/* Returns the text, which the caller frees. NULL: out of memory. */
char *stg_run_record_write(const struct stg_run_record *record, size_t *ret_bytes);

/* Reads a text into a zeroed record, which the caller finishes in any case.
 * INVALID_ARGUMENT: it is damaged, or of another version. RESOURCE_EXHAUSTED. */
int stg_run_record_read(const char *text, size_t bytes, struct stg_run_record *ret,
                        struct stg_err *err);

#endif
