/* SPDX-License-Identifier: Apache-2.0
 *
 * The clients of a stage and their states: pure functions of their arguments. Guarded by
 * the stage's lock.
 */
#ifndef STG_DAEMON_STAGE_MEMBERSHIP_H
#define STG_DAEMON_STAGE_MEMBERSHIP_H

#include "core/ring.h"
#include "daemon/autotune/tune.h"
#include "daemon/stage/buffer.h"
#include "daemon/stage/partition.h"
#include "daemon/stage/stage.h"
#include "daemon/stage/totals.h"

#define STG_NO_EXTENT UINT32_MAX

/* One descriptor that is assigned to a client and not yet released. */
struct stg_assigned {
    struct stg_lease lease;
    uint32_t extent;
    uint64_t number;
    bool acked;
    uint64_t position; /* of the descriptor in the client's ring */
    uint64_t assigned_ns;
};

enum stg_client_state {
    STG_CLIENT_ATTACHED,
    STG_CLIENT_JOINING, /* its open is not complete: it has pages and a place, but
                           takes no part yet */
    STG_CLIENT_AWAY, /* it left, and may come back under its name until away_until_ns */
    STG_CLIENT_DETACHED, /* it is gone; its process may hold memory */
};

struct stg_client {
    struct stg_client *next;
    enum stg_client_state state;
    bool
        forgotten; /* the session does not know it any more: may be freed when DETACHED */
    bool has_lease;        /* lease_client is valid, and the pages are mapped */
    bool has_left;         /* it closed its stream; else it died */
    bool adopted;          /* its successor has its place and its counters */
    uint32_t lease_client; /* id in the lease core */
    struct stg_segment ring_segment, control_segment;
    struct stg_ring_writer ring;
    struct stg_control_reader control;
    struct stg_assigned *assigned; /* n_assigned of max_in_flight, oldest first */
    uint32_t n_assigned;
    uint32_t max_in_flight;
    bool manual_ack;
    bool named; /* the user chose client_id */
    char client_id[128];
    char program[64];
    pid_t pid;
    uid_t uid;
    uint32_t job; /* its number, for metrics */
    struct stg_endpoint *endpoint;
    uint32_t batch_size;
    uint64_t attempt;              /* of its commits */
    uint64_t member, process;      /* of the record of the run; 0: it is in none */
    bool follows;                  /* it goes on with later versions of the pipeline */
    struct stg_taken acknowledged; /* split: items of the pass that it acknowledged */
    struct stg_audit_share *share; /* in the audit's news, of the last item; or NULL */
    struct stg_partition_needs *needs; /* NULL without partitions */
    uint64_t joined;                   /* number of clients before it */

    uint32_t rank;     /* round_robin */
    uint32_t consumer; /* split: its number in the pass, from 1 */
    bool names_rank;   /* the client has named it */
    uint64_t cursor;   /* broadcast: ordinal of the next item it gets */
    bool reconnects;   /* it was in the run before stagerd was started again */
    bool took_over;    /* it has the place of a client that was away */
    bool loads;        /* it opened with a state */
    uint64_t load_pass;
    struct stg_pass_place load_place; /* broadcast, round_robin: it gets nothing before */
    uint64_t load_errors;  /* round_robin: nor so many error items of the round there */
    uint64_t base_pass;    /* the pass that pass_wanted == 1 means */
    uint64_t ends;         /* passes whose end it got, counted from base_pass */
    uint64_t end_position; /* of the last end in its ring */
    uint64_t asked;        /* its hint, last seen; at most ring.head + 1 */
    bool is_asking;        /* it has not taken the last item that it asked for */
    uint32_t pending[STG_MAX_IN_FLIGHT]; /* unacknowledged before it came back; assigned
                                            first */
    uint32_t n_pending;
    uint64_t away_until_ns;
    bool doorbell_wanted;    /* it was asked for a doorbell and has not sent it */
    bool pushed;             /* its ring has new items: send a doorbell if it sleeps */
    bool rings, disconnects; /* pending effects */
    uint64_t last_given_ns;
    uint64_t skipped_seen; /* broadcast: n_skipped up to which its gaps are counted */

    uint64_t taken_before; /* of connections before this one */
    uint64_t n_acknowledged, n_released, n_redelivered, n_given, n_gaps, n_lost;
    uint64_t wait_ns, daemon_wait_ns, n_violations;
    uint64_t wait_seen_ns;         /* of its time asleep, what members.waited_ns counts */
    struct stg_tune_consumer seen; /* by the tuners */
    uint64_t trace_session;        /* that it is asked for spans of; 0: it is not asked */
    uint32_t trace_track;          /* where they go */
    char last_error[256];          /* the last error item; once it left: the reason */
};

enum stg_pass_state {
    STG_PASS_NONE,      /* no pass yet, or all clients have the end of the last one */
    STG_PASS_RUNNING,   /* runners pull */
    STG_PASS_EXHAUSTED, /* the dataset ended or failed; items may be left */
};

struct stg_pass {
    enum stg_pass_state state;
    uint64_t n_ended; /* the current pass, or the next one when state is NONE */
    uint64_t epoch;   /* of the last item published */
    uint64_t
        publish_next; /* items that are out of the runners' hands; whose turn it is */
    uint64_t
        end_sequence; /* PULLED: the pass has no item with this sequence or a later one */
    uint64_t next_number; /* of the next item that is published, dropped or ignored */
    struct stg_err
        failure; /* code != 0: the source failed; sticky, after what is queued */
};

/* Clients, attached and detached. */
struct stg_membership {
    struct stg_client *clients;
    uint32_t n_attached, n_away, n_joining;
    uint64_t n_changes;     /* arrivals and departures in total */
    uint64_t n_joined;      /* clients in total */
    uint64_t n_attaches;    /* joins in total */
    uint64_t n_reconnected; /* of these, joins under the name of one that was away, or
                               after a restart of stagerd */
    struct stg_rank_counts *ranks; /* num_clients */
    uint64_t n_takers_left;        /* clients that left and had acknowledged items */
    uint64_t attached_ns; /* of clients that left, less when those came that did not */
    uint64_t waited_ns;   /* clients slept for want of items, as far as it was seen */
    uint32_t n_consumers; /* split: numbers of this pass */
    uint32_t n_vacant; /* split: of them, those of clients that left and took nothing */
    uint32_t *vacant;  /* split: these, the highest first; room for num_clients */
    uint64_t n_passes; /* split: passes before this pass; it may have ended */
    uint64_t n_before; /* split: items of the pass before */
    uint64_t n_items;  /* split: of this pass, once it has ended */
    struct stg_taken left;    /* split: of this pass, acknowledged by clients that left */
    bool left_is_full;        /* it has no room for all of them */
    uint32_t n_begin;         /* so many clients begin the run */
    bool begun;               /* they were attached once, and some still are */
    bool had_begun;           /* so it was before a restart of stagerd */
    struct stg_client *alone; /* all others wait for it, since alone_ns; or NULL */
    uint64_t alone_ns;
    struct stg_gone_list gone;
};

/* Returns whether the client has a connection: it is attached or joining. */
bool stg_client_is_there(const struct stg_client *client);

/* Returns whether the client takes part in the run: it is attached or away. */
bool stg_client_takes_part(const struct stg_client *client);

/* Returns the joining client with the name of this one, which is away; or NULL. */
const struct stg_client *stg_client_successor(const struct stg_membership *members,
                                              const struct stg_client *away);

/* Returns whether no client is attached, away or joining. */
bool stg_members_are_none(const struct stg_membership *members);

/* Returns whether all items of the pass are published, and no more follow. */
bool stg_pass_is_exhausted(const struct stg_pass *pass);

/* Returns the current pass of the client: the running one, or the next to begin. */
uint64_t stg_client_pass(const struct stg_client *client);

/* Returns whether the client asked for its current pass. It can ask for one pass more
 * than it has received ends, so that a client that ignores the ends does not start pass
 * after pass. */
bool stg_client_wants_pass(const struct stg_client *client);

/* Returns whether the client is attached and asks for the running or the next pass. */
bool stg_client_asks(const struct stg_pass *pass, const struct stg_client *client);

/* Returns whether the client is attached and in the running pass. Only then it gets new
 * items. */
bool stg_client_in_pass(const struct stg_pass *pass, const struct stg_client *client);

/* Returns the free credits of an attached client; 0 for any other. */
uint32_t stg_client_credits(const struct stg_buffer *buffer,
                            const struct stg_client *client);

/* Returns the oldest unacknowledged item of the client, or NULL. */
const struct stg_assigned *stg_client_unacknowledged(const struct stg_client *client);

/* Returns whether the item fits the client. partitions NULL: every item does. */
bool stg_client_may_have(const struct stg_partitions *partitions,
                         const struct stg_client *client, const struct stg_item *item);

/* Returns how long the client has slept without an assigned item. */
uint64_t stg_client_waits_ns(const struct stg_client *client, uint64_t now_ns);

/* Returns how long clients have slept without items, in total. Updates the count. */
uint64_t stg_clients_waited_ns(struct stg_membership *members, uint64_t now_ns);

/* Returns the number of items that the client took from its rings. */
uint64_t stg_client_taken(const struct stg_client *client);

/* ---- reports ---- */

/* Copies a text to bump; "?" if memory runs out. */
const char *stg_text_keep(struct stg_bump *bump, const char *text);

/* Appends the clients: attached, away, detached, gone. */
void stg_clients_show(const struct stg_membership *members, struct stg_bump *bump,
                      struct stg_pipeline_status *ret);

/* Remembers a client that is gone. */
void stg_gone_note(struct stg_membership *members, const struct stg_client *client);

#endif
