/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers on which a client of another build relies. A change breaks that client: a
 * new field uses reserved space, or the major version grows.
 */
#include <stddef.h>

#include "core/layout.h"
#include "tests/check.h"

#define FIELD(type, field, offset, bytes)                                                \
    CHECK_INT(offsetof(struct type, field), offset);                                     \
    CHECK_INT(sizeof(((struct type *)0)->field), bytes)

static void the_header_of_a_page_has_its_fields_where_they_were(void)
{
    FIELD(stg_object_header, magic, 0, 8);
    FIELD(stg_object_header, total_bytes, 8, 8);
    FIELD(stg_object_header, instance, 16, 8);
    FIELD(stg_object_header, features, 24, 8);
    FIELD(stg_object_header, header_bytes, 32, 4);
    FIELD(stg_object_header, entry_bytes, 36, 4);
    FIELD(stg_object_header, n_entries, 40, 4);
    FIELD(stg_object_header, reserved0, 44, 4);
    FIELD(stg_object_header, reserved1, 48, 8);
    FIELD(stg_object_header, reserved2, 56, 4);
    FIELD(stg_object_header, version, 60, 4);
    CHECK_INT(sizeof(struct stg_object_header), 64);
}

static void a_descriptor_has_its_fields_where_they_were(void)
{
    FIELD(stg_descriptor, number, 0, 8);
    FIELD(stg_descriptor, lease, 8, 4);
    FIELD(stg_descriptor, lease_generation, 12, 4);
    FIELD(stg_descriptor, segment, 16, 4);
    FIELD(stg_descriptor, kind, 20, 4);
    FIELD(stg_descriptor, offset, 24, 8);
    FIELD(stg_descriptor, length, 32, 8);
    FIELD(stg_descriptor, assigned_ns, 40, 8);
    FIELD(stg_descriptor, flags, 48, 4);
    FIELD(stg_descriptor, device, 52, 4);
    FIELD(stg_descriptor, elements, 56, 8);
    CHECK_INT(sizeof(struct stg_descriptor), 64);
}

static void the_final_word_has_its_fields_where_they_were(void)
{
    FIELD(stg_final, code, 0, 4);
    FIELD(stg_final, text_bytes, 4, 4);
    FIELD(stg_final, reserved, 8, 8);
    FIELD(stg_final, text, 16, 1008);
    CHECK_INT(sizeof(struct stg_final), 1024);
}

static void the_job_and_the_answer_of_a_worker_have_their_fields_where_they_were(void)
{
    FIELD(stg_work_job, magic, 0, 4);
    FIELD(stg_work_job, memory, 4, 4);
    FIELD(stg_work_job, job, 8, 8);
    FIELD(stg_work_job, input_bytes, 16, 8);
    FIELD(stg_work_job, input_segment_bytes, 24, 8);
    FIELD(stg_work_job, scratch_segment_bytes, 32, 8);
    FIELD(stg_work_job, reserved, 40, 24);
    CHECK_INT(sizeof(struct stg_work_job), 64);
    FIELD(stg_work_answer, magic, 0, 4);
    FIELD(stg_work_answer, kind, 4, 4);
    FIELD(stg_work_answer, job, 8, 8);
    FIELD(stg_work_answer, bytes, 16, 8);
    FIELD(stg_work_answer, status, 24, 4);
    FIELD(stg_work_answer, reserved1, 28, 4);
    CHECK_INT(sizeof(struct stg_work_answer), 32);
}

static void a_release_has_its_fields_where_they_were(void)
{
    FIELD(stg_release_entry, lease, 0, 4);
    FIELD(stg_release_entry, lease_generation, 4, 4);
    CHECK_INT(sizeof(struct stg_release_entry), 8);
}

static void the_header_of_a_batch_has_its_fields_where_they_were(void)
{
    FIELD(stg_batch_header, magic, 0, 4);
    FIELD(stg_batch_header, major, 4, 2);
    FIELD(stg_batch_header, minor, 6, 2);
    FIELD(stg_batch_header, kind, 8, 4);
    FIELD(stg_batch_header, n_tensors, 12, 4);
    FIELD(stg_batch_header, header_bytes, 16, 4);
    FIELD(stg_batch_header, entry_bytes, 20, 4);
    FIELD(stg_batch_header, total_bytes, 24, 8);
    FIELD(stg_batch_header, generation, 32, 8);
    FIELD(stg_batch_header, number, 40, 8);
    FIELD(stg_batch_header, pass, 48, 8);
    FIELD(stg_batch_header, epoch, 56, 8);
    FIELD(stg_batch_header, index, 64, 8);
    FIELD(stg_batch_header, n_dropped, 72, 8);
    FIELD(stg_batch_header, partition, 80, 8);
    FIELD(stg_batch_header, feed_version, 88, 8);
    FIELD(stg_batch_header, random_key, 96, 16);
    FIELD(stg_batch_header, n_rows, 112, 8);
    FIELD(stg_batch_header, error_code, 120, 4);
    FIELD(stg_batch_header, error_offset, 124, 4);
    FIELD(stg_batch_header, error_bytes, 128, 4);
    FIELD(stg_batch_header, reserved0, 132, 4);
    FIELD(stg_batch_header, run_id, 136, 8);
    FIELD(stg_batch_header, data, 144, 32);
    FIELD(stg_batch_header, before, 176, 40);
    FIELD(stg_batch_header, reserved1, 216, 40);
    FIELD(stg_data_identity, n_files, 0, 8);
    FIELD(stg_data_identity, bytes, 8, 8);
    FIELD(stg_data_identity, names, 16, 8);
    FIELD(stg_data_identity, sum, 24, 8);
    CHECK_INT(sizeof(struct stg_batch_header), 256);
}

static void the_entry_of_a_tensor_has_its_fields_where_they_were(void)
{
    FIELD(stg_tensor_entry, name_offset, 0, 4);
    FIELD(stg_tensor_entry, name_bytes, 4, 4);
    FIELD(stg_tensor_entry, dtype, 8, 4);
    FIELD(stg_tensor_entry, ndim, 12, 4);
    FIELD(stg_tensor_entry, part, 16, 4);
    FIELD(stg_tensor_entry, flags, 20, 4);
    FIELD(stg_tensor_entry, shape, 24, 64);
    FIELD(stg_tensor_entry, data_offset, 88, 8);
    FIELD(stg_tensor_entry, data_bytes, 96, 8);
    FIELD(stg_tensor_entry, offsets_offset, 104, 8);
    FIELD(stg_tensor_entry, offsets_bytes, 112, 8);
    FIELD(stg_tensor_entry, reserved, 120, 8);
    CHECK_INT(sizeof(struct stg_tensor_entry), 128);
}

static void the_pages_have_their_fields_where_they_were(void)
{
    FIELD(stg_ring_page, header, 0, 64);
    FIELD(stg_ring_page, head, 64, 8);
    FIELD(stg_ring_page, revoked, 72, 4);
    FIELD(stg_ring_page, doorbell_wanted, 128, 4);
    FIELD(stg_ring_page, traced, 132, 4);
    FIELD(stg_ring_page, dropped_batches, 136, 8);
    FIELD(stg_ring_page, dropped_rows, 144, 8);
    FIELD(stg_ring_page, final, 192, 1024);
    FIELD(stg_ring_page, entries, 1216, 32768);
    FIELD(stg_ring_page, places, 33984, 24576);
    FIELD(stg_ring_page, passes, 58560, 80);
    FIELD(stg_ring_page, shared, 58688, 8);
    FIELD(stg_ring_page, sharing, 58696, 88);
    FIELD(stg_sharing, run, 0, 8);
    FIELD(stg_sharing, pass, 8, 8);
    FIELD(stg_sharing, consumer, 16, 8);
    FIELD(stg_sharing, consumers, 24, 8);
    FIELD(stg_sharing, batch, 32, 8);
    FIELD(stg_sharing, before, 40, 8);
    FIELD(stg_sharing, start, 48, 40);
    FIELD(stg_stream_place, pass, 0, 8);
    FIELD(stg_stream_place, place, 8, 40);
    FIELD(stg_pass_data, pass, 0, 8);
    FIELD(stg_pass_data, data, 8, 32);
    FIELD(stg_pass_place, items, 0, 8);
    FIELD(stg_pass_place, elements, 8, 8);
    FIELD(stg_pass_place, epoch, 16, 8);
    FIELD(stg_pass_place, index, 24, 8);
    FIELD(stg_pass_place, passed, 32, 4);
    FIELD(stg_pass_place, errors_from, 36, 4);
    FIELD(stg_control_page, header, 0, 64);
    FIELD(stg_control_page, released, 64, 8);
    FIELD(stg_control_page, asked, 128, 8);
    FIELD(stg_control_page, waiting, 192, 4);
    FIELD(stg_control_page, waiting_since_ns, 200, 8);
    FIELD(stg_control_page, pass_wanted, 256, 8);
    FIELD(stg_control_page, releases, 320, 8192);
    FIELD(stg_control_page, noted, 8512, 8);
    FIELD(stg_control_page, spans, 8576, 7680);
}

static void a_span_has_its_fields_where_they_were(void)
{
    FIELD(stg_trace_span, begin_ns, 0, 8);
    FIELD(stg_trace_span, end_ns, 8, 8);
    FIELD(stg_trace_span, number, 16, 8);
    FIELD(stg_trace_span, value, 24, 4);
    FIELD(stg_trace_span, kind, 28, 2);
    FIELD(stg_trace_span, name, 30, 2);
    CHECK_INT(sizeof(struct stg_trace_span), 32);
    CHECK_INT(STG_SPAN_OP, 3);
    CHECK_INT(STG_SPAN_NEXT, 13);
    CHECK_INT(STG_SPAN_RUN, 14);
}

static void the_trace_page_has_its_fields_where_they_were(void)
{
    FIELD(stg_trace_page, pipeline, 64, 72);
    FIELD(stg_trace_page, generation, 136, 8);
    FIELD(stg_trace_page, begin_ns, 144, 8);
    FIELD(stg_trace_page, until_ns, 152, 8);
    FIELD(stg_trace_page, pid, 160, 4);
    FIELD(stg_trace_page, n_nodes, 164, 4);
    FIELD(stg_trace_page, ended_ns, 192, 8);
    FIELD(stg_trace_page, n_lost, 200, 8);
    FIELD(stg_trace_page, n_tracks, 208, 4);
    FIELD(stg_trace_page, n_names, 212, 4);
    FIELD(stg_trace_page, names, 224, 32768);
    FIELD(stg_trace_page, text, 32992, 262144);
    FIELD(stg_trace_page, tracks, 295168, 81920);
    FIELD(stg_trace_page, spans, 377088, 16777216);
    FIELD(stg_trace_track, n, 0, 8);
    FIELD(stg_trace_track, pid, 8, 4);
    FIELD(stg_trace_track, tid, 12, 4);
    FIELD(stg_trace_track, process, 16, 64);
    FIELD(stg_trace_track, name, 80, 128);
    FIELD(stg_trace_track, n_chunks, 208, 4);
    FIELD(stg_trace_track, chunks, 212, 1024);
}

static void the_constants_are_what_they_were(void)
{
    CHECK_INT(STG_LAYOUT_MAJOR, 1);
    CHECK_INT(STG_MAGIC_RING, 0x474e4952474754);
    CHECK_INT(STG_MAGIC_CONTROL, 0x4c525443474754);
    CHECK_INT(STG_MAGIC_TRACE, 0x435254474754);
    CHECK_INT(STG_CONTROL_SPANS, 240);
    CHECK_INT(STG_MAGIC_BATCH, 0x48435442);
    CHECK_INT(STG_GRANULE_BYTES, 65536);
    CHECK_INT(STG_TENSOR_ALIGN, 64);
    CHECK_INT(STG_LAYOUT_MAX_DIMS, 8);
    CHECK_INT(STG_RING_BYTES, 65536);
    CHECK_INT(STG_RING_ENTRIES, 512);
    CHECK_INT(STG_MAX_IN_FLIGHT, 256);
    CHECK_INT(STG_CONTROL_BYTES, 16384);
    CHECK_INT(STG_RELEASE_ENTRIES, 1024);
    CHECK_INT(STG_DESCRIPTOR_BATCH, 1);
    CHECK_INT(STG_DESCRIPTOR_ERROR, 2);
    CHECK_INT(STG_DESCRIPTOR_END, 3);
    CHECK_INT(STG_DESCRIPTOR_FINAL, 4);
    CHECK_INT(STG_DESCRIPTOR_REDELIVERED, 1);
    CHECK_INT(STG_BATCH_TENSORS, 1);
    CHECK_INT(STG_BATCH_ERROR, 2);
    CHECK_INT(STG_PART_VALUES, 0);
    CHECK_INT(STG_PART_ROW_SPLITS, 1);
    CHECK_INT(STG_PART_INDICES, 2);
    CHECK_INT(STG_PART_DENSE_SHAPE, 3);
}

/* Two processes may share only lock-free types, and each writes to separate cache
 * lines. */
static void the_shared_words_need_no_lock_and_share_no_line(void)
{
    CHECK(atomic_is_lock_free(&((struct stg_ring_page *)0)->head));
    CHECK(atomic_is_lock_free(&((struct stg_ring_page *)0)->doorbell_wanted));
    CHECK_INT(_Alignof(struct stg_ring_page), 64);
    CHECK_INT(_Alignof(struct stg_control_page), 64);
}

static const struct stg_test tests[] = {
    TEST(the_header_of_a_page_has_its_fields_where_they_were),
    TEST(a_descriptor_has_its_fields_where_they_were),
    TEST(the_final_word_has_its_fields_where_they_were),
    TEST(the_job_and_the_answer_of_a_worker_have_their_fields_where_they_were),
    TEST(a_release_has_its_fields_where_they_were),
    TEST(the_header_of_a_batch_has_its_fields_where_they_were),
    TEST(the_entry_of_a_tensor_has_its_fields_where_they_were),
    TEST(the_pages_have_their_fields_where_they_were),
    TEST(a_span_has_its_fields_where_they_were),
    TEST(the_trace_page_has_its_fields_where_they_were),
    TEST(the_constants_are_what_they_were),
    TEST(the_shared_words_need_no_lock_and_share_no_line),
};
TEST_MAIN(tests)
