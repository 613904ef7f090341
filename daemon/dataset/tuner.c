/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/tuner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Windows that are held against one another, at least. */
#define MIN_WINDOWS 3u
/* What differs by less is the same. */
#define SAME 0.03
/* A consumer that waits for less of its time has nothing to gain. */
#define STARVED 0.04
/* One that waits for more of it, with as many threads as it takes in the mean, is served
 * unevenly. */
#define UNEVEN 0.1
/* Threads that are busy for less of their time are too many: the room between growing and
 * shrinking is what keeps a number where it is. */
#define FULL 0.85
/* To be a little short of a thread is no reason for another one. */
#define SHORT 0.97
/* Windows before a direction is tried again. */
#define FIRST_BAR 16u
#define LAST_BAR 1024u
/* Times that have changed by so much: it may be tried again at once. */
#define CHANGED 1.5
/* A window that is slower by so much is none, unless the next one is, too. */
#define ODD 4
/* Threads that use less of a CPU than this sleep for most of their time. */
#define ASLEEP 0.25

void stg_tuner_init(struct stg_tuner *tuner, uint32_t start,
                    const struct stg_tuner_limits *limits)
{
    *tuner = (struct stg_tuner){
        .limits = *limits,
        .value = start,
        .cpu_share = -1,
        .up = {.next = FIRST_BAR},
        .down = {.next = FIRST_BAR},
    };
}

bool stg_tuner_in_trial(const struct stg_tuner *tuner)
{
    return tuner->in_trial;
}

void stg_tuner_start_over(struct stg_tuner *tuner)
{
    tuner->n_windows = 0;
}

void stg_tuner_forget(struct stg_tuner *tuner)
{
    stg_tuner_start_over(tuner);
    tuner->in_trial = false;
    tuner->up = tuner->down = (struct stg_tuner_bar){.next = FIRST_BAR};
}

/* ---- what the windows say ---- */

static uint32_t n_retained(const struct stg_tuner *tuner)
{
    return tuner->n_windows < STG_TUNER_WINDOWS ? tuner->n_windows : STG_TUNER_WINDOWS;
}

static struct stg_tuner_sample sum(const struct stg_tuner *tuner)
{
    struct stg_tuner_sample ret = {.least = UINT32_MAX};
    for (uint32_t i = 0; i < n_retained(tuner); i++) {
        const struct stg_tuner_sample *w = &tuner->windows[i];
        ret.n_items += w->n_items;
        ret.interval_ns += w->interval_ns;
        ret.busy_ns += w->busy_ns;
        ret.serial_ns += w->serial_ns;
        ret.cpu_ns += w->cpu_ns;
        ret.wait_ns += w->wait_ns;
        ret.room_ns += w->room_ns;
        ret.least = w->least < ret.least ? w->least : ret.least;
    }
    return ret;
}

static double rate_of(const struct stg_tuner_sample *window)
{
    return (double)window->n_items * 1e9 / (double)window->interval_ns;
}

static double mean_rate(const struct stg_tuner *tuner, double *ret_deviation)
{
    uint32_t n = n_retained(tuner);
    double mean = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += rate_of(&tuner->windows[i]) / n;
    for (uint32_t i = 0; i < n; i++) {
        double off = rate_of(&tuner->windows[i]) - mean;
        squares += off * off;
    }
    *ret_deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
    return mean;
}

/* Times of one item, in nanoseconds. */
struct times {
    double make, serial; /* to make it; of that, what one thread at a time does */
    double want;         /* between two that the consumer would take if it never waited */
    double starved;      /* the part of its time for which the consumer waited */
    double waited;       /* likewise threads, all together, for room */
};

static struct times times_of(const struct stg_tuner_sample *all)
{
    double n = (double)all->n_items, interval = (double)all->interval_ns;
    double wait = (double)all->wait_ns < interval ? (double)all->wait_ns : interval;
    double want = (interval - wait) / n;
    return (struct times){
        .make = (double)all->busy_ns / n,
        .serial = (double)all->serial_ns / n,
        .want = want > 1 ? want : 1,
        .starved = wait / interval,
        .waited = (double)all->room_ns / interval,
    };
}

/* Threads it takes to make items as fast as they are wanted, or as fast as what one alone
 * does can be done; of a consumer that does nothing else but take, all there are. */
static double threads_needed(const struct stg_tuner *tuner, const struct times *t)
{
    double need = t->make / (t->want > t->serial ? t->want : t->serial);
    return need < tuner->limits.max ? need : tuner->limits.max;
}

/* How many threads the CPUs can feed. One that sleeps uses less than a CPU; with more
 * threads than CPUs one that is ready waits for a CPU, and may seem to use less of it
 * than it would. The consumer does as much as a thread, if it can do without threads. */
static uint32_t most_threads(struct stg_tuner *tuner, const struct stg_tuner_sample *all)
{
    const struct stg_tuner_limits *limits = &tuner->limits;
    if (limits->cpus <= 0 || all->cpu_ns == 0 || all->busy_ns == 0)
        return limits->max;
    double share = (double)all->cpu_ns / (double)all->busy_ns;
    if (share > 1)
        share = 1;
    if (tuner->value <= limits->cpus || share > tuner->cpu_share)
        tuner->cpu_share = share;
    double most =
        limits->cpus / (tuner->cpu_share > 1e-6 ? tuner->cpu_share : 1e-6) + 0.5;
    if (limits->min == 0)
        most -= 1;
    if (most >= limits->max)
        return limits->max;
    return most < limits->min ? limits->min : (uint32_t)most;
}

/* "40.1 ms" */
static const char *duration(double ns, char *buf, size_t bytes)
{
    if (ns < 1e6)
        snprintf(buf, bytes, "%.1f us", ns / 1e3);
    else if (ns < 1e9)
        snprintf(buf, bytes, "%.1f ms", ns / 1e6);
    else
        snprintf(buf, bytes, "%.2f s", ns / 1e9);
    return buf;
}

/* ---- trials ---- */

static bool change(struct stg_tuner *tuner, uint32_t to, struct stg_tuner_change *ret)
{
    ret->from = tuner->value;
    ret->to = to;
    tuner->value = to;
    tuner->n_windows = 0;
    return true;
}

static bool try_value(struct stg_tuner *tuner, uint32_t to, double need,
                      struct stg_tuner_change *ret)
{
    tuner->need_before = need;
    tuner->mean_before = mean_rate(tuner, &tuner->deviation_before);
    tuner->n_before = n_retained(tuner);
    tuner->back_to = tuner->value;
    tuner->in_trial = true;
    return change(tuner, to, ret);
}

static void set_bar(struct stg_tuner_bar *bar, double need)
{
    bar->left = bar->next;
    bar->next = bar->next < LAST_BAR / 2 ? bar->next * 2 : LAST_BAR;
    bar->need = need;
}

/* What takes less than one is the same however little it takes. */
static double at_least_one(double need)
{
    return need > 1 ? need : 1;
}

static bool is_barred(const struct stg_tuner_bar *bar, double need)
{
    double then = at_least_one(bar->need), now = at_least_one(need);
    bool as_before = now < then * CHANGED && then < now * CHANGED;
    return bar->left > 0 && as_before;
}

/* What two means must differ by: more than the windows of each do by chance (two standard
 * errors of their difference). */
static double noise(const struct stg_tuner *tuner, double deviation, uint32_t n)
{
    double before = tuner->deviation_before * tuner->deviation_before / tuner->n_before;
    double least = SAME * tuner->mean_before;
    double two = 2 * sqrt(before + deviation * deviation / n);
    return two > least ? two : least;
}

enum verdict { CONFIRMED, TAKEN_BACK, OPEN };

/* What seems to help, but not yet by more than chance, is looked at for longer, and so is
 * what seems to do harm. */
static enum verdict judge(struct stg_tuner *tuner, struct stg_tuner_change *ret)
{
    double deviation, before = tuner->mean_before, now = mean_rate(tuner, &deviation);
    double differ = noise(tuner, deviation, n_retained(tuner));
    bool grew = tuner->value > tuner->back_to;
    struct stg_tuner_bar *bar = grew ? &tuner->up : &tuner->down;
    bool good = grew ? now > before + differ : now > before - differ;
    bool seems_good = now > before * (grew ? 1 + SAME : 1 - SAME);
    if (good != seems_good && tuner->n_windows < STG_TUNER_WINDOWS)
        return OPEN;
    uint32_t back_to = tuner->back_to;
    tuner->in_trial = false;
    if (grew && now * ODD < before) { /* more threads do not cost that much: times have */
        stg_tuner_forget(tuner);
        return OPEN;
    }
    if (good && seems_good) {
        bar->next = FIRST_BAR;
        return CONFIRMED;
    }
    set_bar(bar, tuner->need_before);
    if (now * CHANGED < before) /* such a trial costs something */
        set_bar(bar, tuner->need_before);
    snprintf(ret->why, sizeof(ret->why),
             "taken back: %.4g items a second with %u, %.4g with %u, give or take %.3g",
             now, tuner->value, before, back_to, differ);
    change(tuner, back_to, ret);
    return TAKEN_BACK;
}

/* A consumer that pauses, to write a checkpoint, says nothing of how fast it is: the
 * first window that is so much slower than those before it is left out. With a second one
 * times have changed, and what was measured and tried before them says nothing. */
static bool is_odd(struct stg_tuner *tuner, const struct stg_tuner_sample *sample)
{
    double deviation;
    bool is_slow =
        tuner->n_windows > 0 && rate_of(sample) * ODD < mean_rate(tuner, &deviation);
    if (is_slow && tuner->was_odd)
        stg_tuner_forget(tuner);
    tuner->was_odd = is_slow && !tuner->was_odd;
    return tuner->was_odd;
}

/* One window more. True: there are enough to decide on. */
static bool add_sample(struct stg_tuner *tuner, const struct stg_tuner_sample *sample)
{
    if (sample->n_items == 0 || sample->interval_ns == 0 || is_odd(tuner, sample))
        return false;
    tuner->windows[tuner->n_windows++ % STG_TUNER_WINDOWS] = *sample;
    tuner->up.left -= tuner->up.left > 0;
    tuner->down.left -= tuner->down.left > 0;
    return tuner->n_windows >= MIN_WINDOWS && tuner->limits.min < tuner->limits.max;
}

/* ---- threads ---- */

/* As many as the times say; one more where they are just enough by the mean of what takes
 * now longer, now shorter, and the consumer waits for a good part of its time. */
static double threads_wanted(const struct stg_tuner *tuner, const struct times *t,
                             double need)
{
    double wanted = ceil(need * SHORT);
    bool is_tight = t->starved > UNEVEN && need > FULL * tuner->value;
    return is_tight && wanted <= tuner->value ? tuner->value + 1 : wanted;
}

/* To twice as many. To all that it takes from none, since each window lasts long then,
 * and if threads only sleep, since they are in the way of none. */
static uint32_t step_up(const struct stg_tuner *tuner)
{
    bool sleeps = tuner->cpu_share >= 0 && tuner->cpu_share < ASLEEP;
    return tuner->value > 0 && !sleeps ? tuner->value * 2 : tuner->limits.max;
}

static bool more_threads(struct stg_tuner *tuner, const struct times *t, double need,
                         uint32_t most, struct stg_tuner_change *ret)
{
    double wanted = threads_wanted(tuner, t, need);
    if (t->starved <= STARVED || wanted <= tuner->value || most <= tuner->value ||
        is_barred(&tuner->up, need))
        return false;
    uint32_t to = step_up(tuner) < most ? step_up(tuner) : most;
    if (wanted < to)
        to = (uint32_t)wanted;
    char make[32], want[32];
    snprintf(ret->why, sizeof(ret->why),
             "the consumer waits for %.0f %% of its time: an item takes %s and one is "
             "wanted every %s",
             t->starved * 100, duration(t->make, make, sizeof(make)),
             duration(t->want, want, sizeof(want)));
    return try_value(tuner, to, need, ret);
}

static bool fewer_threads(struct stg_tuner *tuner, const struct times *t, double need,
                          uint32_t most, struct stg_tuner_change *ret)
{
    bool idle = need < FULL * (tuner->value - 1.0);
    if (tuner->value <= tuner->limits.min || (!idle && tuner->value <= most) ||
        is_barred(&tuner->down, need))
        return false;
    double enough = idle ? ceil(need / FULL) : most;
    uint32_t to = enough < most ? (uint32_t)enough : most;
    to = to < tuner->limits.min ? tuner->limits.min : to;
    char make[32], want[32];
    if (idle)
        snprintf(ret->why, sizeof(ret->why),
                 "%.1f threads would do: an item takes %s and one is wanted every %s",
                 need, duration(t->make, make, sizeof(make)),
                 duration(t->want, want, sizeof(want)));
    else
        snprintf(
            ret->why, sizeof(ret->why),
            "there are %.1f CPUs, and a thread keeps one busy for %.0f %% of its time",
            tuner->limits.cpus, tuner->cpu_share * 100);
    return try_value(tuner, to, need, ret);
}

bool stg_tuner_threads(struct stg_tuner *tuner, const struct stg_tuner_sample *sample,
                       struct stg_tuner_change *ret)
{
    if (!add_sample(tuner, sample))
        return false;
    struct stg_tuner_sample all = sum(tuner);
    struct times t = times_of(&all);
    double need = threads_needed(tuner, &t);
    uint32_t most = most_threads(tuner, &all);
    enum verdict verdict = tuner->in_trial ? judge(tuner, ret) : CONFIRMED;
    if (verdict != CONFIRMED)
        return verdict == TAKEN_BACK;
    return more_threads(tuner, &t, need, most, ret) ||
           fewer_threads(tuner, &t, need, most, ret);
}

/* ---- capacity ---- */

/* Both have waited for the other: neither is too slow, they are not in step. */
static bool more_room(struct stg_tuner *tuner, const struct times *t, double rule,
                      struct stg_tuner_change *ret)
{
    uint32_t max = tuner->limits.max;
    if (t->starved <= STARVED || t->waited <= STARVED || tuner->value >= max ||
        is_barred(&tuner->up, rule))
        return false;
    double to = rule > 2.0 * tuner->value ? rule : 2.0 * tuner->value;
    snprintf(ret->why, sizeof(ret->why),
             "the consumer waits for %.0f %% of the time and its threads wait for room "
             "for %.0f %% of it",
             t->starved * 100, t->waited * 100);
    return try_value(tuner, to < max ? (uint32_t)to : max, rule, ret);
}

static bool less_room(struct stg_tuner *tuner, uint32_t least, double rule,
                      struct stg_tuner_change *ret)
{
    uint32_t to = tuner->value / 2;
    if (to < tuner->limits.min || to < rule || tuner->n_windows < STG_TUNER_WINDOWS ||
        least <= tuner->value - to || is_barred(&tuner->down, rule))
        return false;
    snprintf(ret->why, sizeof(ret->why), "of %u items in the buffer %u were never needed",
             tuner->value, least);
    return try_value(tuner, to, rule, ret);
}

bool stg_tuner_capacity(struct stg_tuner *tuner, const struct stg_tuner_sample *sample,
                        uint32_t n_threads, struct stg_tuner_change *ret)
{
    if (!add_sample(tuner, sample))
        return false;
    struct stg_tuner_sample all = sum(tuner);
    struct times t = times_of(&all);
    double make = t.make / n_threads > t.serial ? t.make / n_threads : t.serial;
    double rule = t.want > make ? t.want / (make > 1 ? make : 1) : 1;
    t.waited /= n_threads;
    enum verdict verdict = tuner->in_trial ? judge(tuner, ret) : CONFIRMED;
    if (verdict != CONFIRMED)
        return verdict == TAKEN_BACK;
    return more_room(tuner, &t, rule, ret) || less_room(tuner, all.least, rule, ret);
}
