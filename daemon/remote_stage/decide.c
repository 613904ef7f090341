/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/remote_stage/decide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)
/* Where answers take too long, one is tried this often, or after so many times as long as
 * it takes. */
#define TRY_NS (2 * NS_PER_S)
#define PAUSES 8
#define FIRST_DELAY_NS (NS_PER_S / 4)
#define MOST_DELAY_NS (30 * NS_PER_S)
/* While a worker makes a batch on each CPU, so many wait there: more come later than they
 * would elsewhere. */
#define MORE_THAN_CPUS 2u
#define MOST_CPUS 4096u
#define MOST_ASKED 65536u /* nothing is known of the worker */
/* Good answers of a worker until it gets one request more at once than it refused. */
#define GOOD_FOR_MORE 1024u
/* Before so many answers, nothing is known of how long one takes. */
#define FEW_LATENCIES 8u
#define UNKNOWN_HEDGE_NS NS_PER_S
#define UNKNOWN_LIMIT_NS (10 * NS_PER_S)
#define LEAST_HEDGE_NS (20 * NS_PER_S / 1000)
#define MOST_LIMIT_NS (60 * NS_PER_S)

/* ---- mode: auto ---- */

/* Returns how many requests at once. */
static uint64_t count_wanted(const struct stg_auto_seen *seen)
{
    uint64_t low = (seen->capacity + 1) / 2;
    uint64_t n = seen->n_ready < low ? low - seen->n_ready : 0;
    return (seen->n_remote * n + low - 1) / low;
}

bool stg_auto_asks(const struct stg_auto_seen *seen)
{
    bool works = seen->is_pulling || seen->n_busy >= seen->n_active;
    return works && seen->n_asking < count_wanted(seen);
}

/* ---- which worker ---- */

bool stg_load_may_ask(const struct stg_worker_load *load, uint64_t now_ns)
{
    return load->is_listed && !load->is_out && load->until_ns <= now_ns;
}

/* Requests at once. */
static unsigned room_of(const struct stg_worker_load *load)
{
    unsigned fits = load->fits != 0 ? load->fits : MOST_ASKED;
    return load->most_asked != 0 && load->most_asked < fits ? load->most_asked : fits;
}

static bool is_full(const struct stg_worker_load *load)
{
    return load->n_asked >= room_of(load);
}

static unsigned cpus_of(const struct stg_worker_load *load)
{
    return load->fits > MORE_THAN_CPUS ? load->fits - MORE_THAN_CPUS : MOST_CPUS;
}

/* Returns how long an answer to one request more takes. */
static double expect(const struct stg_worker_load *load)
{
    double n = load->n_asked + 1, cpus = cpus_of(load);
    return (double)load->item_ns * (n > cpus ? n / cpus : 1);
}

static bool is_better(const struct stg_worker_load *load,
                      const struct stg_worker_load *than)
{
    if (load->zone != than->zone)
        return load->zone > than->zone;
    if (load->item_ns == 0 || than->item_ns == 0 || expect(load) == expect(than))
        return load->n_asked < than->n_asked;
    return expect(load) < expect(than);
}

int stg_load_choose(const struct stg_worker_load *loads, int n, uint64_t tried,
                    uint64_t now_ns)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        if ((tried >> i & 1) == 0 && stg_load_may_ask(&loads[i], now_ns) &&
            !is_full(&loads[i]) && (best < 0 || is_better(&loads[i], &loads[best])))
            best = i;
    }
    return best;
}

bool stg_load_is_full(const struct stg_worker_load *loads, int n, uint64_t tried,
                      uint64_t now_ns)
{
    bool is = false;
    for (int i = 0; i < n; i++)
        is |= (tried >> i & 1) == 0 && stg_load_may_ask(&loads[i], now_ns) &&
              is_full(&loads[i]);
    return is;
}

/* Items a nanosecond; 0: not known. */
static double speed_of(const struct stg_worker_load *load)
{
    unsigned cpus = load->fits != 0 ? cpus_of(load) : load->n_asked;
    return load->item_ns > 0 ? (double)cpus / (double)load->item_ns : 0;
}

/* Requests at once whose answers come within the time. */
static unsigned room_within(const struct stg_worker_load *load, double ns,
                            uint64_t now_ns)
{
    unsigned room = room_of(load);
    double item_ns = (double)load->item_ns, most = room;
    uint64_t pause_ns = PAUSES * load->item_ns > TRY_NS ? PAUSES * load->item_ns : TRY_NS;
    if (item_ns > ns)
        return load->n_asked > 0 ? load->n_asked : now_ns - load->asked_ns >= pause_ns;
    if (item_ns > 0)
        most = ns / item_ns * cpus_of(load);
    return most < room ? (unsigned)most : room;
}

bool stg_load_has_room(const struct stg_worker_load *loads, int n, uint32_t n_asking,
                       const struct stg_auto_runners *runners, uint64_t now_ns)
{
    double speed = runners->gap_ns > 0 ? 1 / (double)runners->gap_ns : 0;
    uint64_t most = 0, room = 0;
    for (int i = 0; i < n; i++) {
        bool may = stg_load_may_ask(&loads[i], now_ns);
        speed += may ? speed_of(&loads[i]) : 0;
        most += may ? room_of(&loads[i]) : 0;
    }
    most = runners->n_local + (most < runners->n_remote ? most : runners->n_remote);
    for (int i = 0; i < n; i++) {
        double others = speed - speed_of(&loads[i]);
        double ns = most > 0 && others > 0 ? (double)most / others : INFINITY;
        if (stg_load_may_ask(&loads[i], now_ns))
            room += room_within(&loads[i], ns, now_ns);
    }
    return room > n_asking;
}

void stg_load_begin(struct stg_worker_load *load, uint64_t now_ns)
{
    load->n_asked++;
    load->asked_ns = now_ns;
}

/* ---- what came of it ---- */

void stg_load_note_cpus(struct stg_worker_load *load, unsigned long cpus)
{
    if (cpus > 0 && cpus < MOST_CPUS)
        load->fits = (unsigned)cpus + MORE_THAN_CPUS;
}

/* Requests that wait for a CPU add to the latency. */
void stg_load_note_latency(struct stg_worker_load *load, uint64_t ns)
{
    unsigned cpus = cpus_of(load);
    if (load->n_asked > cpus)
        ns = ns * cpus / load->n_asked;
    load->item_ns =
        load->item_ns == 0 ? ns + 1 : load->item_ns - load->item_ns / 8 + ns / 8;
}

static void fail(struct stg_worker_load *load, enum stg_outcome outcome,
                 uint64_t retry_after_ns, uint64_t now_ns)
{
    unsigned doublings = load->n_failed < 7 ? load->n_failed : 7;
    uint64_t delay =
        outcome == STG_OUTCOME_REFUSED ? MOST_DELAY_NS / 3 : FIRST_DELAY_NS << doublings;
    delay = delay > retry_after_ns ? delay : retry_after_ns;
    load->until_ns = now_ns + (delay < MOST_DELAY_NS ? delay : MOST_DELAY_NS);
    load->is_out |= outcome == STG_OUTCOME_GARBAGE;
    load->n_failed++;
}

/* It refuses one more than it has. */
static void take_busy(struct stg_worker_load *load)
{
    load->most_asked = load->n_asked;
    load->n_good = 0;
}

/* Once in a while one request more is tried. */
static void take_good(struct stg_worker_load *load)
{
    load->n_failed = 0;
    if (load->most_asked == 0 || ++load->n_good < GOOD_FOR_MORE)
        return;
    load->most_asked++;
    load->n_good = 0;
}

enum stg_outcome stg_load_note(struct stg_worker_load *load, enum stg_outcome outcome,
                               uint64_t retry_after_ns, uint64_t now_ns)
{
    load->n_asked--;
    if (outcome == STG_OUTCOME_BUSY && load->n_asked == 0)
        outcome = STG_OUTCOME_AWAY;
    if (stg_outcome_is_failure(outcome))
        fail(load, outcome, retry_after_ns, now_ns);
    else if (outcome == STG_OUTCOME_BUSY)
        take_busy(load);
    else
        take_good(load);
    return outcome;
}

/* ---- bytes and time ---- */

uint64_t stg_rate_pay(uint64_t rate, uint64_t paid_ns, uint64_t bytes, uint64_t now_ns)
{
    if (rate == 0)
        return paid_ns;
    uint64_t from = paid_ns > now_ns ? paid_ns : now_ns;
    return from + (uint64_t)((double)bytes / (double)rate * (double)NS_PER_S);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

void stg_patience(const uint64_t *ring, uint64_t n_all, uint64_t *ret_hedge_ns,
                  uint64_t *ret_limit_ns)
{
    uint64_t sorted[STG_N_LATENCIES];
    size_t n = n_all < STG_N_LATENCIES ? n_all : STG_N_LATENCIES;
    *ret_hedge_ns = UNKNOWN_HEDGE_NS;
    *ret_limit_ns = UNKNOWN_LIMIT_NS;
    if (n < FEW_LATENCIES)
        return;
    memcpy(sorted, ring, n * sizeof(sorted[0]));
    qsort(sorted, n, sizeof(sorted[0]), by_size);
    uint64_t p95 = sorted[n * 95 / 100], limit = 4 * p95;
    *ret_hedge_ns = p95 > LEAST_HEDGE_NS ? p95 : LEAST_HEDGE_NS;
    *ret_limit_ns = limit < NS_PER_S        ? NS_PER_S
                    : limit < MOST_LIMIT_NS ? limit
                                            : MOST_LIMIT_NS;
}
