/* SPDX-License-Identifier: Apache-2.0 */
#include "core/trace.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_MAX_BYTES 127u
#define LABEL_BITS 16
/* Of a client's track, so that it is no thread's. */
#define NO_THREAD (UINT32_C(1) << 24)

static_assert(STG_TRACE_NAMES <= 1u << LABEL_BITS, "a label has room for every place");
static_assert(STG_TRACE_CHUNKS >= 2 * STG_TRACE_TRACKS,
              "each has one, and some have more");
static_assert(STG_TRACE_CHUNKS <= UINT16_MAX + 1u, "a track has their numbers");

/* The ring of this thread, and the session that it is of. */
static _Thread_local struct {
    uint64_t session;
    uint32_t track;
} mine;

/* ---- words ---- */

void stg_span_store(struct stg_trace_span *to, const struct stg_trace_span *from)
{
    uint64_t words[sizeof(*from) / sizeof(uint64_t)];
    memcpy(words, from, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        __atomic_store_n((uint64_t *)(void *)to + i, words[i], __ATOMIC_RELEASE);
}

void stg_span_load(struct stg_trace_span *to, const struct stg_trace_span *from)
{
    uint64_t words[sizeof(*from) / sizeof(uint64_t)];
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        words[i] =
            __atomic_load_n((const uint64_t *)(const void *)from + i, __ATOMIC_ACQUIRE);
    memcpy(to, words, sizeof(words));
}

/* ---- on and off ---- */

void stg_trace_init(struct stg_trace *trace)
{
    *trace = (struct stg_trace){0};
    pthread_mutex_init(&trace->lock, NULL);
}

void stg_trace_finish(struct stg_trace *trace)
{
    assert(!stg_trace_is_on(trace));
    pthread_mutex_destroy(&trace->lock);
}

/* True: the page stays until leave. */
static bool enter(struct stg_trace *trace)
{
    if (!stg_trace_is_on(trace))
        return false;
    atomic_fetch_add(&trace->n_inside, 1);
    if (atomic_load(&trace->on) != 0)
        return true;
    atomic_fetch_sub(&trace->n_inside, 1);
    return false;
}

static void leave(struct stg_trace *trace)
{
    atomic_fetch_sub_explicit(&trace->n_inside, 1, memory_order_release);
}

/* The place of a new name; 0: no room. The lock is held, or no other thread has the page.
 */
static uint32_t add_name(struct stg_trace_page *page, const char *text)
{
    size_t bytes = strlen(text);
    if (bytes > NAME_MAX_BYTES) {
        text += bytes - NAME_MAX_BYTES;
        bytes = NAME_MAX_BYTES;
    }
    uint32_t i = atomic_load_explicit(&page->n_names, memory_order_relaxed);
    if (i == STG_TRACE_NAMES || bytes > STG_TRACE_TEXT_BYTES - page->text_bytes)
        return 0;
    memcpy(page->text + page->text_bytes, text, bytes);
    page->names[i] =
        (struct stg_trace_name){.offset = page->text_bytes, .bytes = (uint32_t)bytes};
    page->text_bytes += (uint32_t)bytes;
    atomic_store_explicit(&page->n_names, i + 1, memory_order_release);
    return i;
}

static void name_nodes(struct stg_trace_page *page, const struct stg_trace_plan *plan)
{
    char text[NAME_MAX_BYTES + 1];
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        plan->name(plan->owner, i, text, sizeof(text));
        if (add_name(page, text) == 0)
            return;
        page->n_nodes = i + 1;
    }
}

void stg_trace_start(struct stg_trace *trace, struct stg_trace_page *page,
                     const struct stg_trace_plan *plan)
{
    static _Atomic uint64_t n_sessions;
    assert(!stg_trace_is_on(trace));
    page->header =
        (struct stg_object_header){.magic = STG_MAGIC_TRACE,
                                   .total_bytes = sizeof(*page),
                                   .instance = plan->instance,
                                   .header_bytes = sizeof(page->header),
                                   .entry_bytes = sizeof(struct stg_trace_span),
                                   .n_entries = STG_TRACE_CHUNKS * STG_TRACE_CHUNK_SPANS};
    snprintf(page->pipeline, sizeof(page->pipeline), "%s", plan->pipeline);
    page->generation = plan->generation;
    page->begin_ns = stg_now_ns();
    page->until_ns = plan->until_ns;
    page->pid = (uint32_t)getpid();
    atomic_store_explicit(&page->n_names, 1, memory_order_relaxed);
    name_nodes(page, plan);
    atomic_store_explicit(&page->header.version,
                          (uint32_t)STG_LAYOUT_MAJOR << 16 | STG_LAYOUT_MINOR,
                          memory_order_release);
    trace->page = page;
    atomic_store(&trace->session, atomic_fetch_add(&n_sessions, 1) + 1);
    atomic_store(&trace->on, 1);
}

void stg_trace_stop(struct stg_trace *trace)
{
    if (!stg_trace_is_on(trace))
        return;
    atomic_store(&trace->on, 0);
    while (atomic_load(&trace->n_inside) != 0)
        sched_yield();
    atomic_store_explicit(&trace->page->ended_ns, stg_now_ns(), memory_order_release);
    trace->page = NULL;
}

/* ---- tracks ---- */

/* With its first chunk. The lock is held. */
static uint32_t add_track(struct stg_trace_page *page, uint32_t pid, uint32_t tid,
                          const char *process, const char *name)
{
    uint32_t i = atomic_load_explicit(&page->n_tracks, memory_order_relaxed);
    if (i == STG_TRACE_TRACKS)
        return 0;
    struct stg_trace_track *track = &page->tracks[i];
    track->pid = pid;
    track->tid = tid != 0 ? tid : NO_THREAD + i;
    snprintf(track->process, sizeof(track->process), "%s", process);
    snprintf(track->name, sizeof(track->name), "%s", name);
    track->chunks[0] = (uint16_t)page->n_chunks++;
    atomic_store_explicit(&track->n_chunks, 1, memory_order_relaxed);
    atomic_store_explicit(&page->n_tracks, i + 1, memory_order_release);
    return i + 1;
}

/* One that is of a thread with this number, which has ended by now, or is this one, and
 * had another trace's ring meanwhile. The lock is held. */
static uint32_t find_track(const struct stg_trace_page *page, uint32_t tid)
{
    uint32_t n = atomic_load_explicit(&page->n_tracks, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        if (page->tracks[i].tid == tid)
            return i + 1;
    }
    return 0;
}

/* Of the calling thread, which is inside. */
static uint32_t my_track(struct stg_trace *trace)
{
    uint64_t session = atomic_load_explicit(&trace->session, memory_order_relaxed);
    if (mine.session == session)
        return mine.track;
    char name[16] = "";
    uint32_t tid = (uint32_t)gettid();
    pthread_getname_np(pthread_self(), name, sizeof(name));
    pthread_mutex_lock(&trace->lock);
    uint32_t track = find_track(trace->page, tid);
    if (track == 0)
        track = add_track(trace->page, trace->page->pid, tid, "stagerd", name);
    pthread_mutex_unlock(&trace->lock);
    mine.session = session;
    mine.track = track;
    return track;
}

/* One more chunk, if tracks that are yet to come are left one each. */
static bool grow(struct stg_trace *trace, struct stg_trace_track *track,
                 uint32_t n_chunks)
{
    struct stg_trace_page *page = trace->page;
    pthread_mutex_lock(&trace->lock);
    uint32_t n_tracks = atomic_load_explicit(&page->n_tracks, memory_order_relaxed);
    uint32_t to_come = STG_TRACE_TRACKS - n_tracks;
    bool ok = page->n_chunks + to_come < STG_TRACE_CHUNKS;
    if (ok)
        track->chunks[n_chunks] = (uint16_t)page->n_chunks++;
    pthread_mutex_unlock(&trace->lock);
    if (ok)
        atomic_store_explicit(&track->n_chunks, n_chunks + 1, memory_order_release);
    return ok;
}

/* Where span i of a track lies in the page's spans. */
static size_t slot_of(const struct stg_trace_track *track, uint64_t i, uint32_t n_chunks)
{
    i %= (uint64_t)n_chunks * STG_TRACE_CHUNK_SPANS;
    size_t chunk = track->chunks[i / STG_TRACE_CHUNK_SPANS] % STG_TRACE_CHUNKS;
    return chunk * STG_TRACE_CHUNK_SPANS + i % STG_TRACE_CHUNK_SPANS;
}

static void put(struct stg_trace *trace, uint32_t i, const struct stg_trace_span *span)
{
    struct stg_trace_track *track = &trace->page->tracks[i];
    uint64_t at = atomic_load_explicit(&track->n, memory_order_relaxed);
    uint32_t n_chunks = atomic_load_explicit(&track->n_chunks, memory_order_relaxed);
    if (at == (uint64_t)n_chunks * STG_TRACE_CHUNK_SPANS && grow(trace, track, n_chunks))
        n_chunks++;
    stg_span_store(&trace->page->spans[slot_of(track, at, n_chunks)], span);
    atomic_store_explicit(&track->n, at + 1, memory_order_release);
}

static void lose(struct stg_trace_page *page, uint64_t n)
{
    atomic_fetch_add_explicit(&page->n_lost, n, memory_order_relaxed);
}

void stg_trace_add(struct stg_trace *trace, const struct stg_trace_span *span)
{
    if (trace == NULL || !enter(trace))
        return;
    uint32_t track = my_track(trace);
    if (track > 0)
        put(trace, track - 1, span);
    else
        lose(trace->page, 1);
    leave(trace);
}

uint32_t stg_trace_track(struct stg_trace *trace, uint32_t pid, const char *process,
                         const char *name)
{
    if (!enter(trace))
        return 0;
    pthread_mutex_lock(&trace->lock);
    uint32_t ret = add_track(trace->page, pid, 0, process, name);
    pthread_mutex_unlock(&trace->lock);
    leave(trace);
    return ret;
}

void stg_trace_add_to(struct stg_trace *trace, uint32_t track,
                      const struct stg_trace_span *span)
{
    if (!enter(trace))
        return;
    if (track > 0)
        put(trace, track - 1, span);
    else
        lose(trace->page, 1);
    leave(trace);
}

void stg_trace_lose(struct stg_trace *trace, uint64_t n)
{
    if (!enter(trace))
        return;
    lose(trace->page, n);
    leave(trace);
}

/* ---- names ---- */

uint16_t stg_trace_known(const struct stg_trace *trace,
                         const struct stg_trace_label *label)
{
    uint64_t known = atomic_load_explicit(&label->place, memory_order_relaxed);
    uint64_t session = atomic_load_explicit(&trace->session, memory_order_relaxed);
    return known >> LABEL_BITS == session ? (uint16_t)known : 0;
}

static bool is_name(const struct stg_trace_page *page, uint32_t i, const char *text)
{
    const struct stg_trace_name *name = &page->names[i];
    size_t bytes = strlen(text),
           from = bytes > NAME_MAX_BYTES ? bytes - NAME_MAX_BYTES : 0;
    return name->bytes == bytes - from &&
           memcmp(page->text + name->offset, text + from, name->bytes) == 0;
}

/* Behind those of the nodes. The lock is held. */
static uint32_t find_name(struct stg_trace_page *page, const char *text)
{
    uint32_t n = atomic_load_explicit(&page->n_names, memory_order_relaxed);
    for (uint32_t i = page->n_nodes + 1; i < n; i++) {
        if (is_name(page, i, text))
            return i;
    }
    return add_name(page, text);
}

uint16_t stg_trace_name(struct stg_trace *trace, struct stg_trace_label *label,
                        const char *text)
{
    if (!enter(trace))
        return 0;
    uint64_t session = atomic_load_explicit(&trace->session, memory_order_relaxed);
    pthread_mutex_lock(&trace->lock);
    uint32_t place = find_name(trace->page, text);
    pthread_mutex_unlock(&trace->lock);
    atomic_store_explicit(&label->place, session << LABEL_BITS | place,
                          memory_order_relaxed);
    leave(trace);
    return (uint16_t)place;
}

/* ---- reading ---- */

/* The first span that is whole, when n are written: while it goes on, the one behind them
 * may be half written, and lies where the oldest of them lay. */
static uint64_t first_whole(uint64_t n, uint64_t room, bool ended)
{
    room -= !ended && room > 0;
    return n > room ? n - room : 0;
}

bool stg_trace_read(const struct stg_trace_page *page, uint32_t track,
                    struct stg_trace_span **ret, size_t *ret_n,
                    uint64_t *ret_n_overwritten)
{
    const struct stg_trace_track *from = &page->tracks[track];
    bool ended = atomic_load_explicit(&page->ended_ns, memory_order_acquire) != 0;
    uint64_t n = atomic_load_explicit(&from->n, memory_order_acquire);
    uint32_t n_chunks = atomic_load_explicit(&from->n_chunks, memory_order_acquire);
    n_chunks = n_chunks < STG_TRACE_CHUNKS ? n_chunks : STG_TRACE_CHUNKS;
    uint64_t room = (uint64_t)n_chunks * STG_TRACE_CHUNK_SPANS;
    uint64_t first = first_whole(n, room, ended);
    struct stg_trace_span *spans = calloc(n - first + 1, sizeof(*spans));
    if (spans == NULL)
        return false;
    for (uint64_t i = first; i < n; i++)
        stg_span_load(&spans[i - first], &page->spans[slot_of(from, i, n_chunks)]);
    uint64_t now = atomic_load_explicit(&from->n, memory_order_relaxed);
    uint64_t whole = first_whole(now, room, ended);
    whole = whole < first ? first : whole < n ? whole : n;
    memmove(spans, spans + (whole - first), (n - whole) * sizeof(*spans));
    *ret = spans;
    *ret_n = n - whole;
    *ret_n_overwritten = whole;
    return true;
}
