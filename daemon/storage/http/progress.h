/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a fetch over all of its attempts: which bytes have arrived, which version
 * of the object they belong to, and which bytes an answer may add. A pure state machine:
 * no memory, network, clock, lock or text. Nothing that a server says is trusted.
 *
 * - n <= end - begin <= asked_end - begin, at all times.
 * - An answer is sure if it identifies its version before its bytes arrive. The bytes of
 *   a sure answer outlive the attempt. The bytes of another answer count at its clean end
 *   only, and the next attempt begins without them.
 * - A version is pinned once. A later answer of another version ends the fetch.
 *
 * One thread.
 */
#ifndef STG_DAEMON_PROGRESS_H
#define STG_DAEMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Identifies the content of an object. Empty strings: the server did not send them. */
struct stg_version {
    bool known;
    uint64_t size; /* of the whole object */
    char etag[256];
    char modified[64]; /* as the server writes it */
};

enum stg_fetch_kind {
    STG_FETCH_RANGE, /* begin to end, which may lie beyond the object's end */
    STG_FETCH_ALL    /* the whole answer, at most end - begin bytes */
};

/* The status line and the headers of an answer. */
struct stg_head {
    long status;
    bool has_length; /* of the body */
    uint64_t length;
    bool has_range; /* Content-Range: */
    uint64_t from, last;
    bool has_size; /* of the object, by Content-Range */
    uint64_t size;
    struct stg_version version; /* ETag and Last-Modified */
};

/* got.size of STG_VERDICT_OTHER_SIZE: more than version.size. */
#define STG_SIZE_LARGER UINT64_MAX

enum stg_verdict {
    STG_VERDICT_GO,     /* continue; at the end of an attempt: the fetch is complete */
    STG_VERDICT_BROKEN, /* the connection broke: try again */
    STG_VERDICT_SHORT,  /* the answer ended early: try again */
    STG_VERDICT_OTHER_RANGE, /* the answer has bytes that were not requested: try again */
    STG_VERDICT_REFUSED,     /* the status has the reason */
    STG_VERDICT_NO_RANGES,   /* the server sends the object as a whole, and it is large */
    STG_VERDICT_TOO_MUCH,    /* there is no room for the answer */
    STG_VERDICT_OTHER_ETAG,  /* the object was replaced: version differs from got */
    STG_VERDICT_OTHER_TIME,
    STG_VERDICT_OTHER_SIZE
};

struct stg_progress {
    /* The request. Constant. */
    enum stg_fetch_kind kind;
    bool in_query; /* offset and length are part of the URL */
    bool may_keep; /* the caller has a copy, and asks whether it is current */
    uint64_t begin, asked_end;

    /* Of all attempts. */
    struct stg_version version; /* known: pinned */
    uint64_t end;               /* of the bytes that exist, as far as known */
    uint64_t n;                 /* bytes from begin on */
    uint64_t most_n;            /* the highest n of any attempt */

    /* Of this attempt. */
    struct stg_version got;
    long status;     /* 0: no head yet */
    uint64_t n_sure; /* bytes that outlive the attempt, unless it is sure: then n */
    bool is_sure;
    bool is_cached; /* the caller's copy is current */
    uint64_t skip;  /* bytes of the answer before the requested ones */
    uint64_t room;  /* bytes that the answer may bring after those */
};

/* Initialises the state. version: the required version of the object, if known. */
void stg_progress_init(struct stg_progress *progress, enum stg_fetch_kind kind,
                       bool in_query, bool may_keep, uint64_t begin, uint64_t end,
                       const struct stg_version *version);

/* Begins an attempt: drops the bytes of an answer that was not sure. */
void stg_progress_attempt(struct stg_progress *progress);

/* Returns the offset in the object of the first byte to request. */
uint64_t stg_progress_from(const struct stg_progress *progress);

/* Returns whether the request may be conditional on the caller's copy. */
bool stg_progress_may_keep(const struct stg_progress *progress);

/* Takes the head of the answer, once in an attempt. */
enum stg_verdict stg_progress_head(struct stg_progress *progress,
                                   const struct stg_head *head);

/* After a head with STG_VERDICT_GO: returns whether the object's version is known. */
bool stg_progress_says_which(const struct stg_progress *progress);

/* Takes `bytes` of the body, after a head with STG_VERDICT_GO. The caller skips the first
 * *ret_skip of them and copies the next *ret_take to begin + *ret_at. */
enum stg_verdict stg_progress_body(struct stg_progress *progress, uint64_t bytes,
                                   uint64_t *ret_skip, uint64_t *ret_at,
                                   uint64_t *ret_take);

/* Ends an attempt. clean: the answer is complete by the rules of HTTP. STG_VERDICT_GO:
 * the fetch is complete. */
enum stg_verdict stg_progress_end(struct stg_progress *progress, bool clean);

/* Returns the number of bytes from begin on that belong to the pinned version and do not
 * change: other threads may read them. Never decreases. */
uint64_t stg_progress_sure(const struct stg_progress *progress);

#endif
