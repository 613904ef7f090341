/* SPDX-License-Identifier: Apache-2.0
 *
 * Which hosts divide a pipeline, where hosts come and go. Each host has a key, and all of
 * them share the generation: a number, and the hosts that divide the pass in it, by
 * number. A generation is open while hosts come to it, and then closed. A step from one
 * generation to the next is a function of the keys alone, so that any host may make it.
 * Pure functions and values, without a clock or a socket; any thread.
 */
#ifndef STG_DAEMON_CLUSTER_MEMBERSHIP_H
#define STG_DAEMON_CLUSTER_MEMBERSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define STG_MEMBER_ID_BYTES 88
#define STG_MEMBER_PLACE_BYTES 96
#define STG_MEMBER_TEXT_BYTES 768 /* of the text of a member */
#define STG_GENERATION_WHY_BYTES 256
#define STG_GENERATION_MAX_HOSTS 4096u

/* A host, as its key has it. */
struct stg_member {
    char id[STG_MEMBER_ID_BYTES]; /* NAME.NUMBER; the number is random */
    uint64_t ready;    /* generation that the host is in, or comes to; 0: none, and the
                          others do not wait for it */
    uint64_t begin;    /* digest of the state at which its trainers begin */
    uint64_t pipeline; /* digest of pipeline, number of its clients, and release */
    char place[STG_MEMBER_PLACE_BYTES]; /* the state in words */
};

struct stg_generation {
    uint64_t number; /* 0: there has been none */
    bool is_closed;
    uint64_t begin;                       /* closed: of all members */
    char why[STG_GENERATION_WHY_BYTES];   /* why the one before ended */
    uint32_t n;                           /* closed: its members */
    char (*members)[STG_MEMBER_ID_BYTES]; /* sorted; the index is the host's number */
};

void stg_generation_finish(struct stg_generation *generation);

/* Returns the number of the host, or -1: it is not a member. */
int64_t stg_generation_find(const struct stg_generation *generation, const char *id);

/* Writes the host's name, "NAME" of "NAME.NUMBER", into a buffer of
 * STG_MEMBER_ID_BYTES, and returns it. */
const char *stg_member_name(const char *id, char *buf);

/* Write the text. That of a member has at most STG_MEMBER_TEXT_BYTES; that of a
 * generation is the caller's to free, NULL: out of memory. */
size_t stg_member_write(const struct stg_member *member, char *buf);
char *stg_generation_write(const struct stg_generation *generation, size_t *ret_bytes);

/* Read a text, which may come from anywhere. DATA_LOSS: it is damaged or of another
 * release; RESOURCE_EXHAUSTED. The caller calls finish after 0. id: of the key. */
int stg_member_read(const char *text, size_t bytes, const char *id,
                    struct stg_member *ret, struct stg_err *err);
int stg_generation_read(const char *text, size_t bytes, struct stg_generation *ret,
                        struct stg_err *err);

/* What a host has seen of the keys so far. */
struct stg_membership_seen {
    uint32_t steady_millis; /* for which the hosts must have been the same */
    uint64_t seen;          /* digest of what was there last; 0: nothing, or unknown */
    uint64_t since_millis;  /* for how long it has been there */
};

/* The keys could not be read: the time for which they are the same begins again. */
static inline void stg_membership_lose(struct stg_membership_seen *membership)
{
    membership->seen = 0;
}

/* The keys at one moment. */
struct stg_membership_view {
    const struct stg_generation *generation;
    const struct stg_member *hosts; /* sorted by id */
    size_t n_hosts;
    uint64_t now_millis;
};

enum stg_membership_step {
    STG_MEMBERSHIP_KEEP,  /* there is nothing to do, or it is too early */
    STG_MEMBERSHIP_OPEN,  /* the hosts have changed: the next generation opens */
    STG_MEMBERSHIP_CLOSE, /* all hosts are there and begin at one place */
    STG_MEMBERSHIP_REFUSE /* they do not: no generation comes about */
};

/* Returns the step that follows. *why, which is not NULL, has a text: OPEN: what has
 * changed; KEEP, if the generation is open: what it waits for; REFUSE: the error,
 * FAILED_PRECONDITION, which names two hosts. */
enum stg_membership_step stg_membership_decide(struct stg_membership_seen *membership,
                                               const struct stg_membership_view *view,
                                               struct stg_err *why);

/* Fills in the generation after the step OPEN or CLOSE. RESOURCE_EXHAUSTED. The caller
 * calls finish after 0. */
int stg_membership_next(const struct stg_membership_view *view,
                        enum stg_membership_step step, const struct stg_err *why,
                        struct stg_generation *ret, struct stg_err *err);

/* Returns the generation for which a host has to be ready that comes now. */
static inline uint64_t stg_membership_coming(const struct stg_generation *generation)
{
    return generation->number == 0 || generation->is_closed ? generation->number + 1
                                                            : generation->number;
}

/* Checks a host that comes to a generation with other members. FAILED_PRECONDITION: its
 * pipeline is another one; the error names two hosts. */
int stg_membership_check(const struct stg_membership_view *view,
                         const struct stg_member *host, struct stg_err *err);

#endif
