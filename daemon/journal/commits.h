/* SPDX-License-Identifier: Apache-2.0
 *
 * The commits of a pipeline in memory, and as text. The table after reading a text is the
 * table that the same commits make one after the other. One thread at a time.
 */
#ifndef STG_DAEMON_JOURNAL_COMMITS_H
#define STG_DAEMON_JOURNAL_COMMITS_H

#include "core/state.h"

#define STG_COMMITS_TAGS 16 /* of a lane: the last ones */
/* Lanes with commits, as many as a pipeline can have clients; and with those that have
 * attempts alone. */
#define STG_COMMITS_LANES 1024
#define STG_COMMITS_NAMES 4096
#define STG_TAG_MAX_BYTES 128
#define STG_LANE_MAX_BYTES 127 /* of a client_id, too */
#define STG_COMMITS_LINE_BYTES (STG_STATE_TEXT_BYTES + 2048)

struct stg_commit {
    struct stg_commit *next; /* a later one */
    uint64_t attempt;
    uint64_t time_ns;        /* since 1970 */
    uint64_t pass, position; /* of the state */
    char tag[STG_TAG_MAX_BYTES + 1];
    char client[STG_LANE_MAX_BYTES + 1]; /* that committed first */
    char state[];                        /* its text: most have less than 1 KiB */
};

/* The commits that a run resumes from: of the pipeline (name ""), or of one client under
 * broadcast. */
struct stg_lane {
    struct stg_lane *next;
    char name[STG_LANE_MAX_BYTES + 1];
    uint64_t attempt; /* the newest of it; 0: none yet */
    uint64_t used;    /* of the table's clock */
    struct stg_commit *first, *last;
    size_t n;
};

/* Zeroed: none. */
struct stg_commits {
    struct stg_lane *lanes;
    size_t n_lanes, n_used; /* n_used: with commits */
    uint64_t clock;
    uint64_t attempt; /* the newest of all lanes, also of forgotten ones */
};

void stg_commits_finish(struct stg_commits *commits);

/* Makes a copy of `head` with the state; the caller frees. NULL: out of memory. */
struct stg_commit *stg_commit_create(const struct stg_commit *head,
                                     const struct stg_state *state);

/* Returns the lane; NULL: there is none. */
struct stg_lane *stg_commits_find(const struct stg_commits *commits, const char *name);

/* Returns the lane, and makes it if there is none. Removes the lane without commits that
 * was not used for longest if there are too many; that of the pipeline stays. NULL: out
 * of memory. */
struct stg_lane *stg_commits_lane(struct stg_commits *commits, const char *name);

/* Returns the commit of a tag; NULL: there is none. */
const struct stg_commit *stg_lane_find(const struct stg_lane *lane, const char *tag);

/* Begins an attempt of the lane and returns its number. */
uint64_t stg_lane_begin(struct stg_commits *commits, struct stg_lane *lane);

/* Makes it the last commit of the lane, and owns it. Removes an older one of the same
 * tag, or the oldest one of too many, and all of another lane if too many have commits.
 * Sets the attempt of the lane, which never falls. */
void stg_lane_put(struct stg_commits *commits, struct stg_lane *lane,
                  struct stg_commit *commit);

/* Checks a tag: 1 to STG_TAG_MAX_BYTES printable ASCII characters without a space.
 * INVALID_ARGUMENT. */
int stg_commits_check_tag(const char *tag, struct stg_err *err);

/* Write the line of a commit, or of a new attempt. buf has STG_COMMITS_LINE_BYTES. Return
 * the length. */
size_t stg_commits_write_commit(const char *lane, const struct stg_commit *commit,
                                char *buf);
size_t stg_commits_write_attempt(const char *lane, uint64_t attempt, char *buf);

/* Writes the lines of the whole table; the caller frees. NULL: out of memory. */
char *stg_commits_write(const struct stg_commits *commits, size_t *ret_bytes);

/* What a text had beside good lines. */
struct stg_commits_damage {
    size_t n_bad;      /* lines that are no record: damage */
    size_t good_bytes; /* of the text, without a torn tail */
    size_t n_good;
};

/* Reads a text into an empty table. Bad lines are left out. RESOURCE_EXHAUSTED. */
int stg_commits_read(struct stg_commits *commits, const char *text, size_t bytes,
                     struct stg_commits_damage *ret, struct stg_err *err);

#endif
