/* SPDX-License-Identifier: Apache-2.0 */
#include "client/metrics/board.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stager.h"

#define NAME_BYTES 65
#define STATE_BYTES 16
#define RANKS                                                                            \
    128 /* of a pipeline; further ones count neither for its mean nor its worst */
#define MAX_VALUE 1e18 /* what is not below is no count */
#define SHARE_NONE UINT16_MAX
#define SHARE_ONE 10000 /* in a point */

enum value {
    VALUE_BATCHES,
    VALUE_ROWS,
    VALUE_BYTES,
    VALUE_BUFFERED,
    VALUE_CAPACITY,
    VALUE_CLIENTS_WANTED,
    VALUE_MEMORY,
    VALUE_MEMORY_USED,
    N_VALUES
};

static const struct {
    const char *metric, *key; /* in JSON */
} values[N_VALUES] = {
    [VALUE_BATCHES] = {"stager_delivered_batches_total", "batches"},
    [VALUE_ROWS] = {"stager_delivered_rows_total", "rows"},
    [VALUE_BYTES] = {"stager_delivered_bytes_total", "bytes"},
    [VALUE_BUFFERED] = {"stager_buffered_batches", "buffered"},
    [VALUE_CAPACITY] = {"stager_buffer_capacity_batches", "capacity"},
    [VALUE_CLIENTS_WANTED] = {"stager_clients_wanted", "num_clients"},
    [VALUE_MEMORY] = {"stager_arena_bytes", "memory_bytes"},
    [VALUE_MEMORY_USED] = {"stager_arena_used_bytes", "memory_used_bytes"},
};

struct rank {
    double waited_s, waiting_s; /* in batches that it got; for the next one */
    double before_s;            /* all of it at the begin of the step */
    bool is_attached;
};

/* A step of ten seconds. */
struct point {
    uint16_t mean, worst; /* of the ranks: the share of the time that they waited */
    float rows_per_s;
};

struct entry {
    char name[NAME_BYTES], state[STATE_BYTES];
    uint64_t sample;   /* the last one that has it */
    uint64_t since;    /* the sample at the begin of the step; 0: it was not in it */
    int64_t last_step; /* the newest point */
    double values[N_VALUES], rows_before;
    struct rank ranks[RANKS];
    size_t n_ranks;
    struct point points[STG_BOARD_STEPS];
};

struct stg_board {
    struct entry *entries[STG_BOARD_PIPELINES];
    size_t n, n_left_out;
    uint64_t sample; /* its number; 0: none */
    uint64_t step_sample;
    int64_t at_ns, step_ns; /* of the sample; of the begin of the step */
    double started_s;       /* stagerd */
    double budget, budget_used;
};

/* One line of the text. */
struct line {
    const char *metric, *labels;
    size_t metric_bytes, labels_bytes;
    double value;
};

/* The number of a step: the machine may have started just now, and the hour before has
 * numbers too. */
static int64_t step_of(int64_t ns)
{
    return ns / STG_BOARD_STEP_NS + STG_BOARD_STEPS;
}

/* ---- entries ---- */

static void clear(struct entry *e)
{
    for (size_t i = 0; i < STG_BOARD_STEPS; i++)
        e->points[i] = (struct point){SHARE_NONE, SHARE_NONE, NAN};
}

/* Returns where the name is or belongs: entries are sorted by it. */
static size_t search(const struct stg_board *board, const char *name)
{
    size_t from = 0, to = board->n;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (strcmp(board->entries[middle]->name, name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static struct entry *find(const struct stg_board *board, const char *name)
{
    size_t at = search(board, name);
    return at < board->n && strcmp(board->entries[at]->name, name) == 0
               ? board->entries[at]
               : NULL;
}

static void take_out(struct stg_board *board, size_t at)
{
    free(board->entries[at]);
    board->n--;
    memmove(&board->entries[at], &board->entries[at + 1],
            (board->n - at) * sizeof(board->entries[0]));
}

/* The one that was away for longest makes room; none, while all are there. */
static bool make_room(struct stg_board *board)
{
    size_t oldest = 0;
    if (board->n < STG_BOARD_PIPELINES)
        return true;
    for (size_t i = 1; i < board->n; i++) {
        if (board->entries[i]->sample < board->entries[oldest]->sample)
            oldest = i;
    }
    bool is_away = board->entries[oldest]->sample + 1 < board->sample;
    if (is_away)
        take_out(board, oldest);
    return is_away;
}

static struct entry *add(struct stg_board *board, const char *name)
{
    struct entry *e = make_room(board) ? calloc(1, sizeof(*e)) : NULL;
    if (e == NULL)
        return NULL;
    snprintf(e->name, sizeof(e->name), "%s", name);
    e->last_step = step_of(board->at_ns);
    clear(e);
    size_t at = search(board, name);
    memmove(&board->entries[at + 1], &board->entries[at],
            (board->n - at) * sizeof(board->entries[0]));
    board->entries[at] = e;
    board->n++;
    return e;
}

/* ---- the text ---- */

/* False: a comment, or no sample. */
static bool read_line(const char *text, size_t bytes, struct line *ret)
{
    const char *end = text + bytes;
    const char *space = memrchr(text, ' ', bytes);
    const char *brace = space != NULL ? memchr(text, '{', (size_t)(space - text)) : NULL;
    if (space == NULL || text[0] == '#' || space + 1 == end)
        return false;
    *ret = (struct line){.metric = text,
                         .metric_bytes = (size_t)((brace != NULL ? brace : space) - text),
                         .labels = brace != NULL ? brace + 1 : space,
                         .value = strtod(space + 1, NULL)};
    ret->labels_bytes = brace != NULL ? (size_t)(space - ret->labels) : 0;
    return ret->value >= 0 && ret->value < MAX_VALUE;
}

static bool is(const struct line *line, const char *metric)
{
    return strlen(metric) == line->metric_bytes &&
           memcmp(line->metric, metric, line->metric_bytes) == 0;
}

/* Copies the value of a label: names of pipelines, states and ranks have no character to
 * escape. False: there is none, or it is longer. */
static bool label(const struct line *line, const char *name, char *buf, size_t bytes)
{
    char key[32];
    int n = snprintf(key, sizeof(key), "%s=\"", name);
    const char *at = memmem(line->labels, line->labels_bytes, key, (size_t)n);
    const char *value = at != NULL ? at + n : NULL;
    const char *end =
        at != NULL
            ? memchr(value, '"', line->labels_bytes - (size_t)(value - line->labels))
            : NULL;
    if (end == NULL || (size_t)(end - value) >= bytes)
        return false;
    memcpy(buf, value, (size_t)(end - value));
    buf[end - value] = '\0';
    return true;
}

static void take_rank(struct entry *e, const struct line *line)
{
    char text[16];
    unsigned long i =
        label(line, "rank", text, sizeof(text)) ? strtoul(text, NULL, 10) : RANKS;
    if (i >= RANKS)
        return;
    e->n_ranks = i + 1 > e->n_ranks ? i + 1 : e->n_ranks;
    if (is(line, "stager_client_wait_seconds_sum"))
        e->ranks[i].waited_s = line->value;
    else if (is(line, "stager_client_waiting_seconds"))
        e->ranks[i].waiting_s = line->value;
    else if (is(line, "stager_client_attached"))
        e->ranks[i].is_attached = line->value != 0;
}

/* The first family of pipelines. */
static void take_info(struct stg_board *board, const char *name, struct entry *e)
{
    e = e != NULL ? e : add(board, name);
    if (e != NULL)
        e->sample = board->sample;
    else
        board->n_left_out++;
}

static void take_pipeline(struct stg_board *board, const struct line *line)
{
    char name[NAME_BYTES], state[STATE_BYTES];
    if (!label(line, "pipeline", name, sizeof(name)))
        return;
    struct entry *e = find(board, name);
    if (is(line, "stager_pipeline_info"))
        take_info(board, name, e);
    if (e == NULL)
        return;
    if (is(line, "stager_pipeline_state") && line->value == 1 &&
        label(line, "state", state, sizeof(state)))
        memcpy(e->state, state, sizeof(state));
    take_rank(e, line);
    for (size_t i = 0; i < N_VALUES; i++) {
        if (is(line, values[i].metric))
            e->values[i] = line->value;
    }
}

static void take(struct stg_board *board, const struct line *line)
{
    if (line->labels_bytes > 0)
        take_pipeline(board, line);
    else if (is(line, "stager_memory_budget_bytes"))
        board->budget = line->value;
    else if (is(line, "stager_memory_used_bytes"))
        board->budget_used = line->value;
    else if (is(line, "stager_start_time_seconds"))
        board->started_s = line->value;
}

/* Most lines are buckets of histograms, which the board does not need. */
static void take_all(struct stg_board *board, const char *text, size_t bytes)
{
    static const char bucket[] = "stager_client_wait_seconds_bucket";
    const char *end = text + bytes, *next;
    for (; text < end && (next = memchr(text, '\n', (size_t)(end - text))) != NULL;
         text = next + 1) {
        size_t n = (size_t)(next - text);
        struct line line;
        bool is_bucket =
            n > sizeof(bucket) && memcmp(text, bucket, sizeof(bucket) - 1) == 0;
        if (!is_bucket && read_line(text, n, &line))
            take(board, &line);
    }
}

/* ---- steps ---- */

static double all_s(const struct rank *rank)
{
    return rank->waited_s + rank->waiting_s;
}

static uint16_t to_share(double share)
{
    double within = share < 0 ? 0 : share > 1 ? 1 : share;
    return (uint16_t)lrint(within * SHARE_ONE);
}

static struct point make_point(const struct entry *e, double seconds)
{
    double sum = 0, worst = 0;
    unsigned n = 0;
    for (size_t i = 0; i < e->n_ranks; i++) {
        const struct rank *rank = &e->ranks[i];
        double share = (all_s(rank) - rank->before_s) / seconds;
        if (!rank->is_attached)
            continue;
        n++;
        sum += share;
        worst = share > worst ? share : worst;
    }
    return (struct point){
        .mean = n > 0 ? to_share(sum / n) : SHARE_NONE,
        .worst = n > 0 ? to_share(worst) : SHARE_NONE,
        .rows_per_s = (float)((e->values[VALUE_ROWS] - e->rows_before) / seconds)};
}

/* Steps in between have no point. */
static void put_point(struct entry *e, int64_t step, struct point point)
{
    int64_t from = e->last_step + 1;
    from = from > step - STG_BOARD_STEPS ? from : step - STG_BOARD_STEPS + 1;
    for (int64_t i = from; i < step; i++)
        e->points[i % STG_BOARD_STEPS] = (struct point){SHARE_NONE, SHARE_NONE, NAN};
    e->points[step % STG_BOARD_STEPS] = point;
    e->last_step = step;
}

static void begin_step(struct stg_board *board)
{
    board->step_ns = board->at_ns;
    board->step_sample = board->sample;
    for (size_t i = 0; i < board->n; i++) {
        struct entry *e = board->entries[i];
        e->rows_before = e->values[VALUE_ROWS];
        e->since = e->sample == board->sample ? board->sample : 0;
        for (size_t k = 0; k < e->n_ranks; k++)
            e->ranks[k].before_s = all_s(&e->ranks[k]);
    }
}

/* Too short or long: it began or ended late, because stagerd was away. */
static void end_step(struct stg_board *board)
{
    int64_t step = step_of(board->at_ns);
    int64_t long_ns = board->at_ns - board->step_ns;
    double seconds = (double)long_ns / 1e9;
    bool is_good =
        long_ns > STG_BOARD_STEP_NS / 10 && long_ns < 5 * STG_BOARD_STEP_NS / 2;
    for (size_t i = 0; is_good && i < board->n; i++) {
        struct entry *e = board->entries[i];
        if (e->sample == board->sample && e->since == board->step_sample &&
            step > e->last_step)
            put_point(e, step, make_point(e, seconds));
    }
    begin_step(board);
}

/* Steps end at multiples of their length, so that none is left out over time. */
int64_t stg_board_due_ns(const struct stg_board *board)
{
    return board->sample > 0
               ? (board->step_ns / STG_BOARD_STEP_NS + 1) * STG_BOARD_STEP_NS
               : 0;
}

void stg_board_add(struct stg_board *board, const char *text, size_t bytes,
                   int64_t now_ns)
{
    double started_s = board->started_s;
    board->sample++;
    board->at_ns = now_ns;
    board->n_left_out = 0;
    for (size_t i = 0; i < board->n; i++)
        board->entries[i]->n_ranks = 0;
    take_all(board, text, bytes);
    bool is_same = board->sample > 1 && board->started_s == started_s;
    if (!is_same)
        begin_step(board);
    else if (now_ns >= stg_board_due_ns(board))
        end_step(board);
}

/* ---- JSON ---- */

static void put_entry(struct stg_json_writer *json, const struct entry *e)
{
    double waited_s = 0;
    unsigned n = 0;
    for (size_t i = 0; i < e->n_ranks; i++) {
        waited_s += all_s(&e->ranks[i]);
        n += e->ranks[i].is_attached;
    }
    stg_json_object_begin(json);
    stg_json_put_string(json, "name", e->name);
    stg_json_put_string(json, "state", e->state);
    for (size_t i = 0; i < N_VALUES; i++)
        stg_json_put_uint(json, values[i].key, (uint64_t)e->values[i]);
    stg_json_put_uint(json, "n_clients", n);
    stg_json_put_float(json, "waited_seconds", waited_s);
    stg_json_object_end(json);
}

void stg_board_put_status(const struct stg_board *board, struct stg_json_writer *json)
{
    stg_json_put_float(json, "at_seconds", (double)board->at_ns / 1e9);
    stg_json_put_float(json, "started_seconds", board->started_s);
    stg_json_key(json, "memory");
    stg_json_object_begin(json);
    stg_json_put_uint(json, "budget_bytes", (uint64_t)board->budget);
    stg_json_put_uint(json, "used_bytes", (uint64_t)board->budget_used);
    stg_json_object_end(json);
    stg_json_key(json, "pipelines");
    stg_json_array_begin(json);
    for (size_t i = 0; i < board->n; i++) {
        if (board->entries[i]->sample == board->sample)
            put_entry(json, board->entries[i]);
    }
    stg_json_array_end(json);
    stg_json_put_uint(json, "n_left_out", board->n_left_out);
}

enum series { SERIES_MEAN, SERIES_WORST, SERIES_ROWS, N_SERIES };

static double value_of(const struct point *point, enum series series)
{
    uint16_t share = series == SERIES_MEAN ? point->mean : point->worst;
    if (series == SERIES_ROWS)
        return (double)point->rows_per_s;
    return share == SHARE_NONE ? NAN : (double)share / SHARE_ONE;
}

static void put_series(struct stg_json_writer *json, const struct entry *e, int64_t step,
                       enum series series)
{
    stg_json_array_begin(json);
    for (int64_t i = step - STG_BOARD_STEPS + 1; i <= step; i++) {
        bool is_there = i <= e->last_step && i > e->last_step - STG_BOARD_STEPS;
        double value =
            is_there ? value_of(&e->points[i % STG_BOARD_STEPS], series) : (double)NAN;
        if (isnan(value))
            stg_json_null(json);
        else
            stg_json_float(json, value, STAGER_FLOAT32);
    }
    stg_json_array_end(json);
}

bool stg_board_put_history(const struct stg_board *board, const char *name,
                           int64_t now_ns, struct stg_json_writer *json)
{
    static const char *const keys[N_SERIES] = {
        [SERIES_MEAN] = "exposed_wait_mean",
        [SERIES_WORST] = "exposed_wait_worst",
        [SERIES_ROWS] = "rows_per_second",
    };
    const struct entry *e = find(board, name);
    if (e == NULL)
        return false;
    int64_t step = step_of(now_ns);
    stg_json_put_string(json, "name", e->name);
    stg_json_put_uint(json, "step_seconds", STG_BOARD_STEP_NS / 1000000000);
    /* The last one in the series: its number, and how long ago it ended. */
    stg_json_put_uint(json, "step", (uint64_t)step);
    stg_json_put_float(json, "age_seconds", (double)(now_ns % STG_BOARD_STEP_NS) / 1e9);
    for (enum series i = 0; i < N_SERIES; i++) {
        stg_json_key(json, keys[i]);
        put_series(json, e, step, i);
    }
    return true;
}

/* ---- life ---- */

struct stg_board *stg_board_create(void)
{
    return calloc(1, sizeof(struct stg_board));
}

void stg_board_destroy(struct stg_board *board)
{
    for (size_t i = 0; board != NULL && i < board->n; i++)
        free(board->entries[i]);
    free(board);
}
