/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ring.h"

#include <sched.h>
#include <string.h>

#include "core/clock.h"
#include "core/status.h"
#include "core/trace.h"

#define VERSION ((uint32_t)STG_LAYOUT_MAJOR << 16 | STG_LAYOUT_MINOR)

#define N_SHARING (sizeof(struct stg_sharing) / sizeof(uint64_t))
/* Reads of what the daemon is writing: a writer that was preempted gets the processor
 * after the first ones. One that does not end within this time has died, or is stopped.
 * Time is the bound, not a number of reads: on a busy processor each sched_yield may take
 * milliseconds. */
#define FIRST_READS 1000u
#define LONGEST_WRITE_NS 1000000000u

static_assert((STG_RING_ENTRIES & (STG_RING_ENTRIES - 1)) == 0, "cursors wrap at 2^64");
static_assert((STG_RELEASE_ENTRIES & (STG_RELEASE_ENTRIES - 1)) == 0, "likewise");
static_assert(STG_MAX_IN_FLIGHT < STG_RING_ENTRIES &&
                  STG_MAX_IN_FLIGHT < STG_RELEASE_ENTRIES,
              "rings never overflow");

/* The thread sanitizer does not model fences and gcc says so. Nothing here leans on the
 * fence for the order of data (acquire and release do that): it only keeps "publish, then
 * look at the other's flag" in this order on both sides. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
static void full_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* Version last: a reader that sees it sees the rest. */
static void format_header(struct stg_object_header *header, uint64_t magic,
                          uint64_t total_bytes, uint64_t instance, uint32_t entry_bytes,
                          uint32_t n_entries)
{
    header->magic = magic;
    header->total_bytes = total_bytes;
    header->instance = instance;
    header->features = 0;
    header->header_bytes = sizeof(*header);
    header->entry_bytes = entry_bytes;
    header->n_entries = n_entries;
    atomic_store_explicit(&header->version, VERSION, memory_order_release);
}

void stg_ring_format(struct stg_ring_page *page, uint64_t instance)
{
    format_header(&page->header, STG_MAGIC_RING, STG_RING_BYTES, instance,
                  sizeof(struct stg_descriptor), STG_RING_ENTRIES);
}

void stg_control_format(struct stg_control_page *page, uint64_t instance)
{
    format_header(&page->header, STG_MAGIC_CONTROL, STG_CONTROL_BYTES, instance,
                  sizeof(struct stg_release_entry), STG_RELEASE_ENTRIES);
}

/* ---- daemon ---- */

static void publish(struct stg_ring_writer *writer,
                    const struct stg_descriptor *descriptor)
{
    struct stg_ring_page *page = writer->page;
    page->entries[writer->head % STG_RING_ENTRIES] = *descriptor;
    atomic_store_explicit(&page->head, ++writer->head, memory_order_release);
}

void stg_ring_place(struct stg_ring_writer *writer, const struct stg_stream_place *place)
{
    writer->page->places[writer->head % STG_RING_ENTRIES] = *place;
}

void stg_ring_begin(struct stg_ring_writer *writer, uint64_t pass,
                    const struct stg_data_identity *data)
{
    struct stg_pass_data *of = &writer->page->passes[pass % 2];
    if (of->pass != pass + 1)
        *of = (struct stg_pass_data){.pass = pass + 1, .data = *data};
}

void stg_ring_push(struct stg_ring_writer *writer,
                   const struct stg_descriptor *descriptor)
{
    if (!writer->finished)
        publish(writer, descriptor);
}

void stg_ring_finish(struct stg_ring_writer *writer, int code, const char *text)
{
    if (writer->finished)
        return;
    struct stg_final *final = &writer->page->final;
    size_t bytes = strnlen(text, STG_FINAL_TEXT_BYTES - 1);
    final->code = (uint32_t)code;
    final->text_bytes = (uint32_t)bytes;
    memcpy(final->text, text, bytes);
    final->text[bytes] = '\0';
    publish(writer, &(struct stg_descriptor){.kind = STG_DESCRIPTOR_FINAL});
    writer->finished = true;
}

void stg_ring_revoke(struct stg_ring_writer *writer)
{
    atomic_store_explicit(&writer->page->revoked, 1, memory_order_release);
}

void stg_ring_want_doorbell(struct stg_ring_writer *writer)
{
    _Atomic uint32_t *wanted = &writer->page->doorbell_wanted;
    uint32_t old = atomic_load_explicit(wanted, memory_order_relaxed);
    atomic_store_explicit(wanted, old + 1, memory_order_relaxed);
    full_fence();
}

/* A reader that sees an odd count, or another one afterwards, reads again. */
void stg_ring_share(struct stg_ring_writer *writer, const struct stg_sharing *sharing)
{
    struct stg_ring_page *page = writer->page;
    uint64_t words[N_SHARING];
    uint64_t n = atomic_load_explicit(&page->shared, memory_order_relaxed);
    memcpy(words, sharing, sizeof(words));
    atomic_store_explicit(&page->shared, n + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < N_SHARING; i++)
        atomic_store_explicit(&page->sharing[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&page->shared, n + 2, memory_order_release);
}

/* I3: the counter is loaded once and an impossible one refused; the entry is copied in
 * one load before it is used. */
int stg_control_poll(struct stg_control_reader *reader, struct stg_release_entry *ret)
{
    struct stg_control_page *page = reader->page;
    uint64_t released = atomic_load_explicit(&page->released, memory_order_acquire);
    uint64_t available = released - reader->cursor;
    if (available == 0)
        return 0;
    if (available > STG_RELEASE_ENTRIES)
        return -STAGER_INVALID_ARGUMENT;
    const struct stg_release_entry *entry =
        &page->releases[reader->cursor % STG_RELEASE_ENTRIES];
    uint64_t word =
        __atomic_load_n((const uint64_t *)(const void *)entry, __ATOMIC_RELAXED);
    reader->cursor++;
    memcpy(ret, &word, sizeof(*ret));
    return 1;
}

uint64_t stg_control_asked(const struct stg_control_reader *reader)
{
    return atomic_load_explicit(&reader->page->asked, memory_order_acquire);
}

uint64_t stg_control_taken(const struct stg_control_reader *reader)
{
    return atomic_load_explicit(&reader->page->taken, memory_order_relaxed);
}

bool stg_control_parting(const struct stg_control_reader *reader)
{
    return atomic_load_explicit(&reader->page->parting, memory_order_relaxed) != 0;
}

uint64_t stg_control_pass_wanted(const struct stg_control_reader *reader)
{
    return atomic_load_explicit(&reader->page->pass_wanted, memory_order_acquire);
}

bool stg_control_waiting(const struct stg_control_reader *reader)
{
    full_fence();
    return atomic_load_explicit(&reader->page->waiting, memory_order_relaxed) != 0;
}

uint64_t stg_control_waiting_since(const struct stg_control_reader *reader)
{
    const struct stg_control_page *page = reader->page;
    if (atomic_load_explicit(&page->waiting, memory_order_relaxed) == 0)
        return 0;
    return atomic_load_explicit(&page->waiting_since_ns, memory_order_relaxed);
}

void stg_ring_drop(struct stg_ring_writer *writer, uint64_t n_rows)
{
    struct stg_ring_page *page = writer->page;
    atomic_fetch_add_explicit(&page->dropped_rows, n_rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&page->dropped_batches, 1, memory_order_release);
}

void stg_ring_trace(struct stg_ring_writer *writer, bool traced)
{
    atomic_store_explicit(&writer->page->traced, traced, memory_order_relaxed);
}

/* I3: whatever the count says, no more is read than lies there, and inside of the page.
 * What is torn or a lie is a wrong span of its author's. */
int stg_control_poll_span(struct stg_control_reader *reader, struct stg_trace_span *ret,
                          uint64_t *ret_n_missed)
{
    struct stg_control_page *page = reader->page;
    uint64_t noted = atomic_load_explicit(&page->noted, memory_order_acquire);
    uint64_t available = noted - reader->span_cursor;
    *ret_n_missed = 0;
    if (available == 0)
        return 0;
    /* The one that it writes now lies where the oldest lies. */
    if (available >= STG_CONTROL_SPANS) {
        *ret_n_missed = available - STG_CONTROL_SPANS + 1;
        reader->span_cursor = noted - STG_CONTROL_SPANS + 1;
    }
    stg_span_load(ret, &page->spans[reader->span_cursor % STG_CONTROL_SPANS]);
    reader->span_cursor++;
    return 1;
}

void stg_control_skip_spans(struct stg_control_reader *reader)
{
    reader->span_cursor =
        atomic_load_explicit(&reader->page->noted, memory_order_acquire);
}

/* ---- client ---- */

static int check_header(const struct stg_object_header *header, const char *what,
                        uint64_t bytes, uint64_t magic, uint64_t total_bytes,
                        uint32_t entry_bytes, uint32_t n_entries, struct stg_err *err)
{
    if (bytes < total_bytes)
        return stg_err(err, -STAGER_DATA_LOSS, "%s has %llu bytes, needs %llu", what,
                       (unsigned long long)bytes, (unsigned long long)total_bytes);
    uint32_t version = atomic_load_explicit(&header->version, memory_order_acquire);
    if (version >> 16 != STG_LAYOUT_MAJOR)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s has layout %u.%u, this library reads %d.0 to %d.x: use the "
                       "libstager that came with stagerd",
                       what, version >> 16, version & 0xffff, STG_LAYOUT_MAJOR,
                       STG_LAYOUT_MAJOR);
    if (header->magic != magic)
        return stg_err(err, -STAGER_DATA_LOSS, "%s has magic %#llx, not %#llx", what,
                       (unsigned long long)header->magic, (unsigned long long)magic);
    if (header->total_bytes != total_bytes || header->header_bytes != sizeof(*header) ||
        header->entry_bytes != entry_bytes || header->n_entries != n_entries)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "%s says %llu bytes, header %u, %u entries of %u; layout %d has "
                       "%llu, %zu, %u of %u",
                       what, (unsigned long long)header->total_bytes,
                       header->header_bytes, header->n_entries, header->entry_bytes,
                       STG_LAYOUT_MAJOR, (unsigned long long)total_bytes, sizeof(*header),
                       n_entries, entry_bytes);
    return 0;
}

int stg_ring_check(const struct stg_ring_page *page, uint64_t bytes, struct stg_err *err)
{
    return check_header(&page->header, "ring page", bytes, STG_MAGIC_RING, STG_RING_BYTES,
                        sizeof(struct stg_descriptor), STG_RING_ENTRIES, err);
}

int stg_control_check(const struct stg_control_page *page, uint64_t bytes,
                      struct stg_err *err)
{
    return check_header(&page->header, "control page", bytes, STG_MAGIC_CONTROL,
                        STG_CONTROL_BYTES, sizeof(struct stg_release_entry),
                        STG_RELEASE_ENTRIES, err);
}

bool stg_ring_is_revoked(const struct stg_ring_reader *reader)
{
    return atomic_load_explicit(&reader->page->revoked, memory_order_acquire) != 0;
}

static uint64_t n_ready(const struct stg_ring_reader *reader)
{
    return atomic_load_explicit(&reader->page->head, memory_order_acquire) -
           reader->cursor;
}

bool stg_ring_ready(const struct stg_ring_reader *reader)
{
    return n_ready(reader) != 0;
}

bool stg_ring_take(struct stg_ring_reader *reader, struct stg_descriptor *ret)
{
    if (!stg_ring_ready(reader))
        return false;
    *ret = reader->page->entries[reader->cursor % STG_RING_ENTRIES];
    reader->cursor++;
    __builtin_prefetch(&reader->page->entries[reader->cursor % STG_RING_ENTRIES]);
    return true;
}

bool stg_ring_place_at(const struct stg_ring_reader *reader, uint64_t position,
                       struct stg_stream_place *ret)
{
    const struct stg_ring_page *page = reader->page;
    uint32_t version = atomic_load_explicit(&page->header.version, memory_order_relaxed);
    if ((version & 0xffff) < 1 || position == 0)
        return false;
    *ret = page->places[(position - 1) % STG_RING_ENTRIES];
    return true;
}

void stg_ring_data(const struct stg_ring_reader *reader, uint64_t pass,
                   struct stg_data_identity *ret)
{
    const struct stg_pass_data *of = &reader->page->passes[pass % 2];
    *ret = of->pass == pass + 1 ? of->data : (struct stg_data_identity){0};
}

int stg_ring_sharing(const struct stg_ring_reader *reader, struct stg_sharing *ret)
{
    const struct stg_ring_page *page = reader->page;
    uint64_t words[N_SHARING];
    uint64_t deadline = 0;
    for (unsigned i = 0;; i++) {
        uint64_t n = atomic_load_explicit(&page->shared, memory_order_acquire);
        if (n == 0)
            return -STAGER_NOT_FOUND;
        for (size_t k = 0; k < N_SHARING; k++)
            words[k] = atomic_load_explicit(&page->sharing[k], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (n % 2 == 0 &&
            atomic_load_explicit(&page->shared, memory_order_relaxed) == n) {
            memcpy(ret, words, sizeof(words));
            return 0;
        }
        if (i < FIRST_READS)
            continue;
        uint64_t now = stg_now_ns();
        if (deadline == 0)
            deadline = now + LONGEST_WRITE_NS;
        if (now >= deadline) {
            memcpy(ret, words, sizeof(words));
            return -STAGER_UNAVAILABLE;
        }
        sched_yield();
    }
}

bool stg_ring_needs_doorbell(struct stg_ring_reader *reader, uint64_t few)
{
    if (n_ready(reader) > few) /* they stay ready: no fence is needed to see it */
        return false;
    full_fence();
    uint32_t wanted =
        atomic_load_explicit(&reader->page->doorbell_wanted, memory_order_relaxed);
    if (wanted == reader->doorbell_rung)
        return false;
    reader->doorbell_rung = wanted;
    return true;
}

uint64_t stg_ring_dropped_batches(const struct stg_ring_reader *reader)
{
    return atomic_load_explicit(&reader->page->dropped_batches, memory_order_acquire);
}

uint64_t stg_ring_dropped_rows(const struct stg_ring_reader *reader)
{
    return atomic_load_explicit(&reader->page->dropped_rows, memory_order_relaxed);
}

bool stg_ring_is_traced(const struct stg_ring_reader *reader)
{
    return atomic_load_explicit(&reader->page->traced, memory_order_relaxed) != 0;
}

void stg_control_note(struct stg_control_writer *writer,
                      const struct stg_trace_span *span)
{
    struct stg_control_page *page = writer->page;
    stg_span_store(&page->spans[writer->noted % STG_CONTROL_SPANS], span);
    atomic_store_explicit(&page->noted, ++writer->noted, memory_order_release);
}

void stg_control_release(struct stg_control_writer *writer, uint32_t lease,
                         uint32_t generation)
{
    struct stg_control_page *page = writer->page;
    struct stg_release_entry entry = {.lease = lease, .lease_generation = generation};
    uint64_t word;
    memcpy(&word, &entry, sizeof(word));
    struct stg_release_entry *slot =
        &page->releases[writer->released % STG_RELEASE_ENTRIES];
    __atomic_store_n((uint64_t *)(void *)slot, word, __ATOMIC_RELAXED);
    atomic_store_explicit(&page->released, ++writer->released, memory_order_release);
}

void stg_control_part(struct stg_control_writer *writer)
{
    atomic_store_explicit(&writer->page->parting, 1, memory_order_relaxed);
}

void stg_control_set_taken(struct stg_control_writer *writer, uint64_t taken)
{
    atomic_store_explicit(&writer->page->taken, taken, memory_order_relaxed);
}

void stg_control_set_asked(struct stg_control_writer *writer, uint64_t asked)
{
    atomic_store_explicit(&writer->page->asked, asked, memory_order_release);
}

void stg_control_set_waiting_since(struct stg_control_writer *writer, uint64_t since_ns)
{
    atomic_store_explicit(&writer->page->waiting_since_ns, since_ns,
                          memory_order_relaxed);
}

void stg_control_set_waiting(struct stg_control_writer *writer, bool waiting)
{
    atomic_store_explicit(&writer->page->waiting, waiting ? 1 : 0, memory_order_relaxed);
    full_fence();
}

void stg_control_want_pass(struct stg_control_writer *writer, uint64_t pass_wanted)
{
    atomic_store_explicit(&writer->page->pass_wanted, pass_wanted, memory_order_release);
}
