/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/example/layout.h"

#include <assert.h>

#include "ops/kernels/example/wire.h"

/* Bytes behind the begin of an entry that are looked at, whatever they are. */
#define SLACK 192
/* Bytes of an entry behind its tag and length. */
#define ENTRY_MAX 127
#define MAX_STEPS 512
/* Of an entry, in front of a step: two tags and lengths, and so much of the name. */
#define HEAD_BYTES 16
#define HEAD_NAME_BYTES 12
/* Records to learn from; a key that is moved counts as one more. */
#define PATIENCE 64
/* Of the records behind a block, so much is asked for. */
#define AHEAD (64 << 10)
#define LINE 64

/* Where a record was read to. */
struct cursor {
    const uint8_t *p, *end;
};

/* Of a record that no step is tried on: nothing in it matches, and it never ends. */
static const uint8_t nothing[SLACK + 1];
static const struct cursor nowhere = {nothing, nothing + 1};

bool stg_example_layout_init(struct stg_example_layout *layout,
                             const struct stg_example_plan *plan, struct stg_bump *bump)
{
    *layout = (struct stg_example_layout){
        .plan = plan,
        .max_steps = MAX_STEPS,
        .patience = PATIENCE,
        .steps = stg_bump_alloc_raw(bump, MAX_STEPS * sizeof(*layout->steps)),
        .known = stg_bump_alloc(bump, plan->n_keys * sizeof(*layout->known)),
        .ignored = stg_bump_alloc_raw(bump, STG_EXAMPLE_BLOCK * sizeof(*layout->ignored)),
    };
    return layout->steps != NULL && layout->known != NULL && layout->ignored != NULL;
}

/* ---- learning ---- */

static void put_head(struct stg_example_step *step)
{
    uint8_t head[HEAD_BYTES] = {0x0a, 0, 0x0a, (uint8_t)step->name_bytes};
    uint8_t mask[HEAD_BYTES] = {0xff, 0};
    uint32_t n = step->name_bytes < HEAD_NAME_BYTES ? step->name_bytes : HEAD_NAME_BYTES;
    memcpy(head + 4, step->name, n);
    memset(mask + 2, 0xff, n + 2);
    memcpy(step->head, head, sizeof(head));
    memcpy(step->mask, mask, sizeof(mask));
}

/* The entry at p, if it has the form of a step: key, value, and in a requested value
 * one list. */
static bool read_step(const struct stg_example_plan *plan, const uint8_t *p,
                      const uint8_t *end, struct stg_example_step *ret)
{
    if (end - p < 4 || p[0] != 0x0a || p[1] > ENTRY_MAX || p[1] > end - p - 2)
        return false;
    uint32_t bytes = p[1], name_bytes = p[3];
    if (p[2] != 0x0a || bytes < name_bytes + 4)
        return false;
    const uint8_t *value = p + 4 + name_bytes;
    uint32_t value_bytes = bytes - name_bytes - 4;
    if (value[0] != STG_WIRE_TAG(2, STG_WIRE_BYTES) || value[1] != value_bytes)
        return false;
    *ret = (struct stg_example_step){.name = p + 4,
                                     .name_bytes = name_bytes,
                                     .key = stg_example_find(plan, p + 4, name_bytes),
                                     .overhead = name_bytes + 4,
                                     .value = value[0],
                                     .times = 1u << 8,
                                     .value_mask = 0xffff};
    put_head(ret);
    if (ret->key == plan->n_keys)
        return true;
    if (value_bytes < 2 || value[3] != value_bytes - 2 ||
        (value[2] & 7) != STG_WIRE_BYTES)
        return false;
    ret->kind = value[2] >> 3;
    ret->overhead += 2;
    ret->value |= 2u << 8 | (uint32_t)value[2] << 16;
    ret->times |= 1u << 24;
    ret->value_mask = UINT32_MAX;
    return ret->kind - 1 <= STG_EXAMPLE_INTS - 1;
}

static uint32_t find_step(const struct stg_example_layout *layout, uint32_t from,
                          uint32_t to, const struct stg_example_step *like)
{
    const struct stg_example_step *steps = layout->steps;
    while (from < to && (steps[from].name_bytes != like->name_bytes ||
                         memcmp(steps[from].name, like->name, like->name_bytes) != 0))
        from++;
    return from;
}

/* Puts the step in at `at`, or finds it behind, or brings it there from before. Returns
 * what is behind it; 0: there is no room. */
static uint32_t place_step(struct stg_example_layout *layout, uint32_t at,
                           const struct stg_example_step *step)
{
    struct stg_example_step *steps = layout->steps;
    uint32_t found = find_step(layout, at, layout->n_steps, step);
    if (found < layout->n_steps)
        return found + 1;
    found = find_step(layout, 0, at, step);
    if (found < at) {
        memmove(steps + found, steps + found + 1, (at - found - 1) * sizeof(*steps));
        layout->patience -= layout->patience > 0;
        steps[at - 1] = *step;
        return at;
    }
    if (layout->n_steps == layout->max_steps)
        return 0;
    memmove(steps + at + 1, steps + at, (layout->n_steps++ - at) * sizeof(*steps));
    steps[at] = *step;
    if (step->key < layout->plan->n_keys)
        layout->known[step->key] = true;
    return at + 1;
}

/* The entries of a record of nothing but them. */
static bool open_record(const uint8_t *s, size_t bytes, struct cursor *ret)
{
    if (bytes < 2 || bytes > INT32_MAX || *s != STG_WIRE_TAG(1, STG_WIRE_BYTES))
        return false;
    struct stg_example_fault fault;
    struct stg_wire at = {.p = s + 1, .end = s + bytes, .fault = &fault};
    uint64_t n;
    if (!stg_wire_bytes(&at, &ret->p, &n) || at.p != at.end)
        return false;
    ret->end = at.end;
    return true;
}

void stg_example_layout_learn(struct stg_example_layout *layout, const uint8_t *s,
                              size_t bytes)
{
    struct cursor from;
    struct stg_example_step step;
    uint32_t at = 0;
    if (layout->patience == 0)
        return;
    layout->patience--;
    bool good = open_record(s, bytes, &from);
    while (good && from.p < from.end) {
        good = read_step(layout->plan, from.p, from.end, &step) &&
               (at = place_step(layout, at, &step)) > 0;
        from.p += good ? 2 + from.p[1] : 0;
    }
}

/* ---- taking ---- */

/* Which records have the key is hard to guess: no branch. */
static inline __attribute__((always_inline)) void take_step(
    const struct stg_example_step step, bool is_long, struct cursor *at, size_t n,
    struct stg_example_span *to)
{
    const uint32_t most = ENTRY_MAX - step.overhead;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = at[i].p, *inside = p + 2 + step.overhead;
        uint32_t bytes = p[1] - step.overhead,
                 value = stg_wire_load32(p + 4 + step.name_bytes);
        uint64_t other = ((stg_wire_load64(p) ^ step.head[0]) & step.mask[0]) |
                         ((stg_wire_load64(p + 8) ^ step.head[1]) & step.mask[1]) |
                         ((value ^ (step.value + bytes * step.times)) & step.value_mask);
        bool is_it = (other == 0) & (bytes <= most) & (bytes <= at[i].end - inside);
        if (is_long)
            is_it = is_it && memcmp(p + HEAD_BYTES, step.name + HEAD_NAME_BYTES,
                                    step.name_bytes - HEAD_NAME_BYTES) == 0;
        to[i] = (struct stg_example_span){
            .s = inside, .bytes = bytes, .kind = step.kind & -(uint32_t)is_it};
        at[i].p = p + ((2 + step.overhead + bytes) & -(uint32_t)is_it);
    }
}

static void open_block(const struct stg_example_input *input,
                       const struct stg_tensor *records, size_t first, size_t n,
                       struct cursor *at)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *s = (const uint8_t *)records->data + records->begin[first + i];
        const uint8_t *end = (const uint8_t *)records->data + records->end[first + i];
        if (input->limit - end < SLACK || !open_record(s, (size_t)(end - s), &at[i]))
            at[i] = nowhere;
    }
}

/* The records behind a block, which are asked for while it is taken: step by step one
 * jumps from record to record, which no cache foresees. */
static struct cursor open_ahead(const struct stg_tensor *records, size_t first, size_t n)
{
    const uint8_t *data = records->data;
    size_t next = first + n, n_rows = (size_t)stg_tensor_n(records);
    if (next >= n_rows)
        return nowhere;
    size_t last = n_rows - next < n ? n_rows - 1 : next + n - 1;
    int64_t begin = records->begin[next], bytes = records->end[last] - begin;
    return (struct cursor){data + begin, data + begin + (bytes < AHEAD ? bytes : AHEAD)};
}

static void ask_ahead(struct cursor *ahead, ptrdiff_t bytes)
{
    for (; bytes > 0 && ahead->p < ahead->end; bytes -= LINE, ahead->p += LINE)
        __builtin_prefetch(ahead->p);
}

static void take_steps(const struct stg_example_layout *layout, struct cursor *at,
                       size_t n, struct cursor ahead,
                       struct stg_example_span *const *spans)
{
    ptrdiff_t portion = (ahead.end - ahead.p) / layout->n_steps + LINE;
    for (uint32_t k = 0; k < layout->n_steps; k++) {
        const struct stg_example_step *step = &layout->steps[k];
        struct stg_example_span *to =
            step->key < layout->plan->n_keys ? spans[step->key] : layout->ignored;
        ask_ahead(&ahead, portion);
        if (step->name_bytes > HEAD_NAME_BYTES)
            take_step(*step, true, at, n, to);
        else
            take_step(*step, false, at, n, to);
    }
}

void stg_example_layout_take(struct stg_example_layout *layout,
                             const struct stg_example_input *input,
                             const struct stg_tensor *records, size_t first, size_t n,
                             struct stg_example_span *const *spans, bool *good)
{
    struct cursor at[STG_EXAMPLE_BLOCK];
    size_t n_good = 0;
    assert(layout->n_steps > 0 && n <= STG_EXAMPLE_BLOCK);
    open_block(input, records, first, n, at);
    for (uint32_t k = 0; k < layout->plan->n_keys; k++) {
        if (!layout->known[k])
            memset(spans[k], 0, n * sizeof(**spans));
    }
    take_steps(layout, at, n, open_ahead(records, first, n), spans);
    for (size_t i = 0; i < n; i++) {
        good[i] = at[i].p == at[i].end;
        n_good += good[i];
    }
    if (n_good * 2 < n)
        layout->n_steps = layout->patience = 0;
}
