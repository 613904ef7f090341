/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/placement/smartstage.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define MS UINT64_C(1000000)

#define WARM_UP_NS (600 * MS)
#define UNMEASURED_NS (5000 * MS) /* then `explain` names what is missing */
#define TUNING_MAX_NS (4000 * MS) /* that others' trials are waited for */
#define TRIAL_TICK_MS 20
#define TICK_MS 250
#define IDLE_TICK_MS 1000

#define BLOCK_NS (10 * MS)
#define BLOCK_MAX_NS (320 * MS)
#define BLOCK_BATCHES 4u /* at least, after those that were under way */
#define NOISY 0.15       /* of a pair, after … */
#define NOISY_PAIRS 8u
#define STALL_NS (8 * MS) /* at least; and … */
#define STALLED 8         /* … so many times what a batch takes: a stall */
#define STALLS 4u         /* before they are thought to be regular */
#define CAPPED 4u         /* a block of a challenger, in blocks beside it */
#define PAIR_MAX_NS (120000 * MS)

#define WORTH_IT 0.03 /* a gain that is not to be missed, … */
#define MISSED 0.05   /* … but with this probability */
#define SLOW 0.25     /* all of the first few pairs: rejected */
#define SLOW_PAIRS 3u
#define TRIAL_MAX_NS (30000 * MS)
#define TRIAL_PAIRS 40u /* before that counts */
#define VAIN_PAIRS 100u /* without a gain */
#define MAX_PAIRS 2000u

#define CHANGED 0.3 /* of the pace, or */
#define CORES 0.75  /* of free cores: the load is another one */
#define N_LOOKS 4u  /* in a row have to see it */
#define LOOK_NS (1000 * MS)
#define PAUSE_NS (10000 * MS) /* until the next trials; doubles when they are in vain */
#define MAX_IN_VAIN 8u

/* Of a pair, as seen where batches are pulled. */
enum { NO_PAIR, FIRST, SECOND, ENDS };

static const char what[] = "smart_stage";

void stg_smart_init(struct stg_smart *smart, struct stg_decisions *decisions)
{
    *smart = (struct stg_smart){.decisions = decisions,
                                .n_partitions = 1,
                                .block_ns = BLOCK_NS,
                                .random = UINT64_C(0x9e3779b97f4a7c15)};
    snprintf(smart->partitions[0].label, sizeof(smart->partitions[0].label),
             "the file's own partition");
}

void stg_smart_begin_with(struct stg_smart *smart, const char *label, double gain)
{
    smart->n_partitions = 2;
    smart->in_force = 1;
    smart->gain = gain;
    smart->partitions[1] = (struct stg_smart_partition){.is_in_force = true};
    snprintf(smart->partitions[1].label, sizeof(smart->partitions[1].label), "%s", label);
}

static double percent(double gain)
{
    return gain * 100;
}

/* Of a mean gain as paired.h has it: by what part more batches come. */
static double pace_of(double gain)
{
    return (2 + gain) / (2 - gain) - 1;
}

/* ---- budget ---- */

static double budget_ns(const struct stg_smart *smart)
{
    return STG_SMART_BUDGET * (double)smart->running_ns + (double)STG_SMART_CONSTANT_NS;
}

/* As far as it is known: one standard error more. */
static double spent_ns(const struct stg_smart *smart)
{
    double sum = 0;
    for (uint32_t i = 0; i < STG_SMART_MAX_PARTITIONS; i++) {
        const struct stg_smart_trial *trial = &smart->trials[i];
        double error = stg_paired_error(&trial->paired) * trial->tried_ns;
        sum += fmax(0, trial->regret_ns + error);
    }
    return sum;
}

/* What the next pair is expected to lose. */
static double expected_ns(const struct stg_smart *smart)
{
    double gain = stg_paired_mean(&smart->trials[smart->trying].paired);
    uint64_t ns = smart->usual_ns > smart->block_ns ? smart->usual_ns : smart->block_ns;
    return gain < 0 ? -gain * (double)ns : 0;
}

/* ---- trials ---- */

static void hold(struct stg_smart *smart, uint64_t now_ns)
{
    smart->state = STG_SMART_HOLD;
    smart->look_ns = 0;
    smart->look_taken = smart->n_taken + smart->n_ahead; /* begins then */
    smart->held_pace = 0;
    smart->n_changed = 0;
    smart->since_ns = now_ns;
}

static void mark_in_force(struct stg_smart *smart)
{
    for (uint32_t i = 0; i < smart->n_partitions; i++)
        smart->partitions[i].is_in_force = i != 0 && i == smart->in_force;
}

/* All were tried. */
static void end_trials(struct stg_smart *smart, uint64_t now_ns)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < smart->n_partitions; i++)
        before = smart->partitions[i].is_in_force ? i : before;
    if (smart->in_force != before)
        smart->n_in_vain = 0;
    else if (smart->n_in_vain < MAX_IN_VAIN)
        smart->n_in_vain++;
    mark_in_force(smart);
    smart->has_news = true;
    smart->next_trial_ns = now_ns + (PAUSE_NS << smart->n_in_vain);
    char gain[64] = "";
    if (smart->in_force != 0)
        snprintf(gain, sizeof(gain), ", %+.1f %% over the file's own",
                 percent(smart->gain));
    stg_decide(smart->decisions, now_ns, what,
               "holds %s%s; looks again when the load has changed, not before %.0f s "
               "from now; trials took %.1f ms of %.1f s",
               smart->partitions[smart->in_force].label, gain,
               (double)(smart->next_trial_ns - now_ns) / 1e9, spent_ns(smart) / 1e6,
               (double)smart->running_ns / 1e9);
    hold(smart, now_ns);
}

/* Once one has taken over, only those that are predicted to be better than it was found;
 * and the file's own, beside what an earlier trial took. */
static bool is_worth_it(const struct stg_smart *smart, uint32_t i)
{
    return !smart->trials[i].is_judged &&
           (smart->in_force == 0 || i == 0 ||
            smart->partitions[i].predicted > 1 + smart->gain);
}

static void next_trial(struct stg_smart *smart, uint64_t now_ns)
{
    uint32_t i = 0;
    while (i < smart->n_partitions && !is_worth_it(smart, i))
        i++;
    smart->phase = NO_PAIR;
    smart->trial_began_ns = now_ns;
    smart->trying = i;
    if (i == smart->n_partitions)
        end_trials(smart, now_ns);
    else
        stg_decide(smart->decisions, now_ns, what, "compares %s with %s",
                   smart->partitions[i].label, smart->partitions[smart->in_force].label);
}

enum verdict { GO_ON, TAKE, REJECT };

/* The file's own takes over from a partition that is slower at all. */
static enum verdict judge(const struct stg_smart *smart, uint64_t now_ns)
{
    const struct stg_paired *paired = &smart->trials[smart->trying].paired;
    double least = smart->trying == 0 ? 0 : STG_SMART_LEAST;
    double worth = least + WORTH_IT - STG_SMART_LEAST;
    bool is_long =
        paired->n >= TRIAL_PAIRS && now_ns - smart->trial_began_ns >= TRIAL_MAX_NS;
    if (stg_paired_is_above(paired, least, STG_SMART_ERROR))
        return TAKE;
    bool is_vain = paired->n >= VAIN_PAIRS && stg_paired_mean(paired) < 0;
    if (stg_paired_is_below(paired, worth, MISSED) || paired->n >= MAX_PAIRS || is_long ||
        is_vain)
        return REJECT;
    return GO_ON;
}

/* `before` stays judged: it lost. What the others have measured was against it. */
static void take_over(struct stg_smart *smart)
{
    double pace = pace_of(stg_paired_mean(&smart->trials[smart->trying].paired));
    smart->gain = smart->trying == 0 ? 0 : (1 + smart->gain) * (1 + pace) - 1;
    smart->in_force = smart->trying;
    for (uint32_t i = 0; i < smart->n_partitions; i++)
        smart->trials[i].paired = (struct stg_paired){0};
}

static void end_trial(struct stg_smart *smart, enum verdict verdict, uint64_t now_ns)
{
    struct stg_smart_trial *trial = &smart->trials[smart->trying];
    const struct stg_paired *paired = &trial->paired;
    const struct stg_smart_partition *partition = &smart->partitions[smart->trying];
    char predicted[48] = "";
    if (partition->predicted > 0)
        snprintf(predicted, sizeof(predicted), ", predicted %+.1f %%",
                 percent(partition->predicted - 1));
    double gain = stg_paired_mean(paired), error = 2 * stg_paired_error(paired);
    stg_decide(
        smart->decisions, now_ns, what,
        "%s %s: %+.1f %% against %s in %u pairs of %" PRIu64 " ms, within %.1f %%%s",
        verdict == TAKE ? "likes" : "rejects", partition->label, percent(pace_of(gain)),
        smart->in_force == 0 ? "the file's own"
                             : smart->partitions[smart->in_force].label,
        paired->n, smart->block_ns / MS, percent(error), predicted);
    trial->is_judged = true;
    if (verdict == TAKE)
        take_over(smart);
    else if (smart->trying == 0) /* so the one in force was better by that */
        smart->gain = pace_of(-gain);
    next_trial(smart, now_ns);
}

/* ---- pairs ---- */

static uint32_t least_batches(const struct stg_smart *smart)
{
    uint32_t more = smart->is_noisy ? 2 * smart->n_ahead : smart->n_ahead / 2;
    return smart->n_ahead + (more > BLOCK_BATCHES ? more : BLOCK_BATCHES);
}

static double cost_of(const struct stg_smart_block *block)
{
    bool is_short = block->n_start == 0 || block->n_end - block->n_start < 2;
    uint64_t n = block->n_end - (is_short ? block->n_begin : block->n_start);
    uint64_t ns = block->end_ns - (is_short ? block->begin_ns : block->start_ns);
    return n > 0 ? (double)ns / (double)n : 0;
}

/* What the slower of the two lost; a pause of the trainer counts as some blocks, and
 * comes in either as often. */
static void account(struct stg_smart *smart, const struct stg_smart_block *tried,
                    const struct stg_smart_block *beside)
{
    double cost = cost_of(tried), usual = cost_of(beside), least = fmin(cost, usual);
    bool is_slower = cost > usual;
    const struct stg_smart_block *slow = is_slower ? tried : beside;
    double most = CAPPED * fmax((double)smart->block_ns, least * least_batches(smart));
    double ns = fmin((double)(slow->end_ns - slow->begin_ns), most);
    double lost = cost > 0 && usual > 0 ? ns * (1 - least / fmax(cost, usual)) : ns;
    smart->trials[smart->trying].regret_ns += is_slower ? lost : -lost;
    smart->trials[smart->trying].tried_ns += ns;
}

/* Most of a noisy block is measured. */
static void lengthen(struct stg_smart *smart, const struct stg_smart_trial *trial)
{
    if (smart->is_noisy || trial->paired.n < NOISY_PAIRS ||
        stg_paired_spread(&trial->paired) < NOISY)
        return;
    smart->is_noisy = true;
    smart->block_ns = smart->block_ns > 2 * BLOCK_NS ? smart->block_ns : 2 * BLOCK_NS;
}

/* Stalls that come every so often, like those of a quota, have to be in each block:
 * a partition that runs faster between them may be the one that causes them. */
static void see_gap(struct stg_smart *smart, uint64_t ns, uint64_t now_ns)
{
    if (ns < STALL_NS || (double)ns < STALLED * smart->cost_ns || smart->cost_ns <= 0)
        return;
    if (smart->n_stalls++ == 0)
        smart->stalls_began_ns = now_ns;
    if (smart->n_stalls <= STALLS)
        return;
    uint64_t block_ns = 2 * (now_ns - smart->stalls_began_ns) / (smart->n_stalls - 1);
    smart->n_stalls = 0;
    if (block_ns <= BLOCK_MAX_NS && block_ns > smart->block_ns)
        smart->block_ns = block_ns;
}

static bool is_slow(const struct stg_smart_trial *trial, double gain)
{
    return trial->paired.n == SLOW_PAIRS && gain < -SLOW &&
           stg_paired_mean(&trial->paired) < -SLOW &&
           stg_paired_spread(&trial->paired) < SLOW;
}

static void end_pair(struct stg_smart *smart, uint64_t now_ns)
{
    struct stg_smart_trial *trial = &smart->trials[smart->trying];
    const struct stg_smart_block *tried = &smart->blocks[!smart->challenger_first];
    const struct stg_smart_block *beside = &smart->blocks[smart->challenger_first];
    smart->phase = NO_PAIR;
    double gain = stg_paired_gain(cost_of(beside), cost_of(tried));
    account(smart, tried, beside);
    smart->cost_ns = cost_of(beside);
    if (!trial->is_warm) {
        trial->is_warm = true;
        return;
    }
    stg_paired_add(&trial->paired, gain);
    lengthen(smart, trial);
    enum verdict verdict = is_slow(trial, gain) ? REJECT : judge(smart, now_ns);
    if (verdict != GO_ON)
        end_trial(smart, verdict, now_ns);
}

void stg_smart_taken(struct stg_smart *smart, uint32_t tag, uint64_t n_taken,
                     uint64_t now_ns)
{
    struct stg_smart_block *blocks = smart->blocks;
    if (smart->state != STG_SMART_TRIAL)
        return;
    if (smart->taken_ns != 0)
        see_gap(smart, now_ns - smart->taken_ns, now_ns);
    if (smart->phase != NO_PAIR && (tag == smart->tag || tag == smart->tag + 1)) {
        struct stg_smart_block *block = &blocks[tag - smart->tag];
        if (!block->is_seen) {
            block->is_seen = true;
            block->n_begin = smart->n_taken;
            block->begin_ns = smart->taken_ns;
        }
        if (block->n_start == 0 && n_taken - block->n_begin >= smart->n_ahead) {
            block->n_start = n_taken;
            block->start_ns = now_ns;
        }
        block->n_end = n_taken;
        block->end_ns = now_ns;
    }
    smart->n_taken = n_taken;
    smart->taken_ns = now_ns;
    if (smart->phase == ENDS && tag == 0 && blocks[0].is_seen && blocks[1].is_seen)
        end_pair(smart, now_ns);
}

static bool next_bit(struct stg_smart *smart)
{
    smart->random = smart->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return smart->random >> 63;
}

/* The first pair of a challenger shows how long a block of the other takes. */
static bool begin_pair(struct stg_smart *smart, uint64_t now_ns)
{
    bool waits = smart->is_tuning && now_ns - smart->trial_began_ns < TUNING_MAX_NS;
    smart->is_resting = spent_ns(smart) + expected_ns(smart) > budget_ns(smart);
    if (waits || smart->is_resting || smart->taken_ns == 0)
        return false;
    smart->phase = FIRST;
    smart->tag += 2;
    smart->pair_ns = now_ns;
    smart->blocks[0] = smart->blocks[1] = (struct stg_smart_block){0};
    smart->challenger_first =
        smart->trials[smart->trying].is_warm ? next_bit(smart) : false;
    return true;
}

static bool is_challengers(const struct stg_smart *smart)
{
    return smart->challenger_first == (smart->phase == FIRST);
}

static bool is_full(struct stg_smart *smart, const struct stg_smart_block *block,
                    uint64_t now_ns)
{
    uint64_t took = now_ns - block->pull_began_ns;
    bool is_long = took >= smart->block_ns && block->n_pulled >= least_batches(smart);
    if (block->n_pulled == 0)
        return false;
    if (!is_challengers(smart)) {
        smart->usual_ns = is_long ? took : smart->usual_ns;
        return is_long;
    }
    return is_long || (smart->usual_ns > 0 && took >= CAPPED * smart->usual_ns);
}

bool stg_smart_pull(struct stg_smart *smart, uint64_t now_ns, uint32_t *ret_tag)
{
    *ret_tag = 0;
    if (smart->state != STG_SMART_TRIAL)
        return false;
    if (smart->phase == NO_PAIR && !begin_pair(smart, now_ns))
        return false;
    if (smart->phase != ENDS &&
        is_full(smart, &smart->blocks[smart->phase - FIRST], now_ns))
        smart->phase++;
    if (smart->phase == ENDS)
        return false;
    struct stg_smart_block *block = &smart->blocks[smart->phase - FIRST];
    if (block->n_pulled++ == 0)
        block->pull_began_ns = now_ns;
    *ret_tag = smart->tag + (smart->phase == SECOND);
    return is_challengers(smart);
}

/* ---- plans ---- */

/* The file's own is a challenger of what an earlier trial took. */
void stg_smart_plan(struct stg_smart *smart, uint64_t now_ns,
                    const struct stg_smart_partition *partitions, uint32_t n,
                    const char *why)
{
    assert(smart->state == STG_SMART_PLAN && n < STG_SMART_MAX_PARTITIONS);
    double regret_ns = spent_ns(smart);
    smart->n_partitions = n + 1;
    smart->in_force = 0;
    smart->has_others = false;
    for (uint32_t i = 0; i < STG_SMART_MAX_PARTITIONS; i++)
        smart->trials[i] = (struct stg_smart_trial){0};
    smart->trials[0].regret_ns = regret_ns; /* what was lost stays lost */
    for (uint32_t i = 0; i < n; i++) {
        smart->partitions[i + 1] = partitions[i];
        if (partitions[i].is_in_force)
            smart->in_force = i + 1;
    }
    smart->trials[smart->in_force].is_judged = true;
    smart->gain = smart->in_force != 0 ? smart->gain : 0;
    smart->taken_ns = 0;
    if (n > 0) {
        smart->state = STG_SMART_TRIAL;
        next_trial(smart, now_ns);
        return;
    }
    stg_decide(smart->decisions, now_ns, what, "holds %s: %s", smart->partitions[0].label,
               why);
    smart->next_trial_ns = now_ns + (PAUSE_NS << smart->n_in_vain);
    if (smart->n_in_vain < MAX_IN_VAIN)
        smart->n_in_vain++;
    hold(smart, now_ns);
}

/* ---- while nothing is tried ---- */

static bool is_another_load(const struct stg_smart *smart, double pace, double cores)
{
    double ratio = pace / smart->held_pace;
    return ratio > 1 + CHANGED || ratio < 1 - CHANGED ||
           fabs(cores - smart->held_cores) > CORES;
}

static void look_at_load(struct stg_smart *smart, const struct stg_smart_view *view)
{
    if (smart->look_ns == 0) {
        if (smart->held_pace <= 0 && view->n_taken < smart->look_taken)
            return;
        smart->look_ns = view->now_ns;
        smart->look_taken = view->n_taken;
        return;
    }
    if (view->now_ns - smart->look_ns < LOOK_NS)
        return;
    double pace = (double)(view->n_taken - smart->look_taken) /
                  (double)(view->now_ns - smart->look_ns);
    smart->look_ns = view->now_ns;
    smart->look_taken = view->n_taken;
    if (pace <= 0)
        return;
    if (smart->held_pace <= 0) {
        smart->held_pace = pace;
        smart->held_cores = view->free_cores;
        return;
    }
    bool changed = is_another_load(smart, pace, view->free_cores);
    smart->n_changed = changed ? smart->n_changed + 1 : 0;
    bool is_over = smart->n_changed >= N_LOOKS || smart->has_others;
    if (!is_over || view->now_ns < smart->next_trial_ns)
        return;
    stg_decide(smart->decisions, view->now_ns, what,
               "looks again: %s%.1f batches a second, %.1f when it was decided; %.1f "
               "cores are free, %.1f then",
               smart->has_others ? "trainers came or went; " : "", pace * 1e9,
               smart->held_pace * 1e9, view->free_cores, smart->held_cores);
    smart->state = STG_SMART_PLAN;
}

static void look_at_warm_up(struct stg_smart *smart, const struct stg_smart_view *view)
{
    if (smart->since_ns == 0)
        smart->since_ns = view->now_ns;
    uint64_t took = view->now_ns - smart->since_ns;
    if (view->is_measured && took >= WARM_UP_NS)
        smart->state = STG_SMART_PLAN;
    if (view->is_measured || took < UNMEASURED_NS || smart->has_told)
        return;
    smart->has_told = true;
    stg_decide(smart->decisions, view->now_ns, what,
               "holds %s until a few batches were measured on both sides: that needs "
               "trainers which call stager_run",
               smart->partitions[smart->in_force].label);
}

/* ---- the clock ---- */

bool stg_smart_in_trial(const struct stg_smart *smart)
{
    return smart->state == STG_SMART_TRIAL && !smart->is_resting;
}

/* A pair that something else disturbed is no pair. */
static void disturb(struct stg_smart *smart)
{
    smart->phase = NO_PAIR;
    smart->taken_ns = 0;
    smart->look_ns = 0;
    if (smart->state == STG_SMART_WARM_UP)
        smart->since_ns = 0;
}

/* Other trainers need other tensors: what is on trial may not move any more. */
static void see_change(struct stg_smart *smart, const struct stg_smart_view *view)
{
    smart->n_changes = view->n_changes;
    smart->has_others = true;
    if (smart->state == STG_SMART_TRIAL || smart->state == STG_SMART_PLAN) {
        mark_in_force(smart);
        smart->state = STG_SMART_WARM_UP;
    }
    disturb(smart);
}

int stg_smart_tick(struct stg_smart *smart, const struct stg_smart_view *view)
{
    uint64_t passed = smart->tick_ns != 0 ? view->now_ns - smart->tick_ns : 0;
    smart->tick_ns = view->now_ns;
    smart->n_ahead = view->n_ahead;
    smart->is_tuning = view->is_tuning;
    if (view->n_changes != smart->n_changes)
        see_change(smart, view);
    if (!view->is_running) {
        disturb(smart);
        return IDLE_TICK_MS;
    }
    if (view->n_taken != smart->tick_taken) /* else trainers pause */
        smart->running_ns += passed < 2 * IDLE_TICK_MS * MS ? passed : 0;
    smart->tick_taken = view->n_taken;
    switch (smart->state) {
    case STG_SMART_WARM_UP: look_at_warm_up(smart, view); break;
    case STG_SMART_PLAN: break;
    case STG_SMART_TRIAL:
        if (smart->phase != NO_PAIR && view->now_ns - smart->pair_ns > PAIR_MAX_NS)
            disturb(smart);
        break;
    case STG_SMART_HOLD: look_at_load(smart, view); break;
    }
    return smart->state == STG_SMART_TRIAL ? TRIAL_TICK_MS : TICK_MS;
}
