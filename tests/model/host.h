/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stagerd has around it: its files, which outlive it, its workers, and the
 * connections of its clients. The daemon's own code opens, joins, commits and sweeps; the
 * linker redirects what it calls outside (--wrap).
 */
#ifndef STG_TESTS_MODEL_HOST_H
#define STG_TESTS_MODEL_HOST_H

#include "daemon/pipeline/catalog_priv.h"
#include "daemon/server/request.h"

#define MAX_SEATS 3
#define DAEMON 1 /* its process; that of a seat follows */
#define PROCESS_OF(seat) (2 + (seat))
#define PID_OF(seat) (1000 + (seat))
#define TEXT_BYTES 4096 /* of a state, here */

/* An exchange between a client and the daemon, in its order. */
enum phase {
    PHASE_IDLE,
    PHASE_ASKS_OPEN,
    PHASE_OPENS, /* the daemon has the request */
    PHASE_OPENED,
    PHASE_ASKS_JOIN,
    PHASE_JOINED,
    PHASE_FAILED,
    PHASE_LOST, /* the daemon ended before the join */
};

struct line {
    enum phase phase;
    /* What the client asks. */
    char client_id[24];
    bool has_state;
    char state[TEXT_BYTES];
    uint32_t max_in_flight;
    struct stg_rejoin rejoin;
    /* The answer. */
    int code;
    char text[256];
    char begin[TEXT_BYTES];
    uint64_t begins_pass, skip_rows;
    struct stg_rejoin next_rejoin;
    const char *signature;
    /* The daemon's. */
    struct stg_session *session;
    bool is_dead; /* its process has ended */
};

/* What outlives the daemon. */
struct host {
    struct line lines[MAX_SEATS];
    char record[TEXT_BYTES], journal[2 * TEXT_BYTES];
    size_t record_bytes, journal_bytes; /* 0: there is none */
    uint64_t n_lives;                   /* of stagerd, so far */
    struct life *life;
    void (*recorded)(void); /* the record was written */
    bool in_use;
};

/* Lies in the region. Call first in set_up. */
struct host *host_create(const struct stg_settings *settings,
                         struct stg_definition *definition);

/* The daemon starts; it is killed, and all that it has in memory is lost. */
void host_boot(void);
void host_crash(void);

/* What its loop does. */
void host_open(int seat);
void host_join(int seat);
void host_doorbell(int seat);
void host_end(int seat); /* the process of the seat has ended */
void host_sweep(void);
bool host_sweeps(void); /* a sweep is due */
void host_sweep_soon(void);
bool host_has_done(void); /* a worker has done its work */
void host_done(void);

struct stg_catalog *host_catalog(void);

#endif
