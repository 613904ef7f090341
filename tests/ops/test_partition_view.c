/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a graph for a search for partitions, compared with the partitions
 * themselves.
 */
#include <string.h>

#include "ops/partition/view.h"
#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

#define MAX_SETS 256

struct subject {
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_partitions *partitions;
    struct stg_partition_needs *needs;
    struct stg_bump bump;
    struct stg_partition_view view;
};

static void subject_init(struct subject *s, const char *text, const char *const *fields,
                         size_t n_fields)
{
    *s = (struct subject){0};
    struct stg_err err = {0};
    struct stg_partition_wanted wanted = {
        .has_fields = true, .fields = fields, .n_fields = n_fields};
    CHECK_OK(fixture_parse(&s->fx, text, &err), err);
    CHECK_OK(stg_graph_create(&s->fx.spec, &s->fx.element, NULL, &s->graph, &err), err);
    CHECK_OK(stg_partitions_create(s->graph, &s->partitions, &err), err);
    CHECK_OK(stg_partition_needs_create(s->partitions, &wanted, &s->needs, &err), err);
    const struct stg_partition_needs *needs[] = {s->needs};
    CHECK_OK(stg_partition_view_create(s->partitions, needs, 1, &s->bump, &s->view, &err),
             err);
}

static void subject_finish(struct subject *s)
{
    stg_bump_finish(&s->bump);
    stg_partition_needs_destroy(s->needs);
    stg_partitions_destroy(s->partitions);
    stg_graph_destroy(s->graph);
    fixture_finish(&s->fx);
}

/* The search's calculation: computed before the boundary, and read behind it. moved: of
 * all nodes that stg_partitions has. */
static bool crosses(const struct stg_partition_view *view,
                    const struct stg_partition_tensor *tensor, const bool *moved)
{
    if (tensor->producer != UINT32_MAX && !moved[view->places[tensor->producer]])
        return false;
    bool is_read = tensor->is_required;
    for (size_t i = 0; i < tensor->n_readers; i++)
        is_read |= !moved[view->places[tensor->readers[i]]];
    return is_read;
}

static bool carries(const struct stg_partition *partition, const char *name)
{
    const struct stg_schema *schema = stg_partition_schema(partition);
    bool found = false;
    for (size_t i = 0; i < schema->n; i++)
        found |= strcmp(schema->components[i].name, name) == 0;
    return found;
}

static void check_set(const struct subject *s, const bool *moved)
{
    const struct stg_partition_needs *needs[] = {s->needs};
    struct stg_partition *partition = NULL;
    struct stg_err err = {0};
    size_t n = 0;
    CHECK_OK(
        stg_partition_create(s->partitions, needs, 1, moved, false, &partition, &err),
        err);
    for (size_t i = 0; i < s->view.n_tensors; i++) {
        const struct stg_partition_tensor *tensor = &s->view.tensors[i];
        const char *name =
            stg_partitions_slots(s->partitions)->components[tensor->slot].name;
        bool crossing = crosses(&s->view, tensor, moved);
        if (carries(partition, name) != crossing)
            FAIL("%s %s", name, crossing ? "is not carried" : "is carried");
        n += crossing;
    }
    CHECK_INT(stg_partition_schema(partition)->n, n);
    stg_partition_destroy(partition);
}

/* Tries every set of movable nodes; returns their number. */
static size_t check_all(const char *text, const char *const *fields, size_t n_fields)
{
    static bool sets[MAX_SETS * 32];
    struct subject s;
    subject_init(&s, text, fields, n_fields);
    const struct stg_partition_needs *needs[] = {s.needs};
    size_t n_nodes = stg_partitions_n_nodes(s.partitions);
    CHECK(n_nodes <= 32);
    size_t n = stg_partitions_enumerate(s.partitions, needs, 1, sets, MAX_SETS);
    for (size_t i = 0; i < n; i++)
        check_set(&s, sets + i * n_nodes);
    subject_finish(&s);
    return n;
}

#define CHAIN                                                                            \
    "element record string [-1]\n"                                                       \
    "feature record = record\n"                                                          \
    "columns = decode_csv(staged:record) record_defaults=[0.0, \"x\", \"y\"]\n"          \
    "a = string_to_hash_bucket_fast(columns:1) num_buckets=10\n"                         \
    "b = string_to_hash_bucket_fast(columns:2) num_buckets=10\n"                         \
    "ids = stack(a, b) axis=1\n"                                                         \
    "table = variable() shape=[10, 2]\n"                                                 \
    "rows = embedding_lookup(table, ids)\n"                                              \
    "target rows\n"

static void what_crosses_is_what_every_partition_carries(void)
{
    CHECK_INT(check_all(CHAIN, NULL, 0), 6);
    CHECK_INT(check_all(CHAIN "target columns:0\n", NULL, 0), 1);
    CHECK_INT(check_all(CHAIN, (const char *[]){"record"}, 1), 6);
}

static void a_tensor_with_two_readers_and_one_that_waits_cross_like_the_partitions(void)
{
    static const char text[] = "element v int64 [-1]\n"
                               "feature x = v\n"
                               "a = add(staged:x, staged:x)\n"
                               "b = multiply(a, staged:x)\n"
                               "c = add(a, b)\n"
                               "d = identity(staged:x, ^c)\n"
                               "w = variable() shape=[4]\n"
                               "e = gather(w, c)\n"
                               "target e\n"
                               "target d\n";
    CHECK(check_all(text, NULL, 0) >= 4);
}

static void a_tensor_says_what_it_is_of(void)
{
    struct subject s;
    subject_init(&s, CHAIN, NULL, 0);
    const struct stg_partition_tensor *record = &s.view.tensors[0];
    CHECK_INT(s.view.n_nodes, 4);
    CHECK(record->is_component && record->index == 0 && record->producer == UINT32_MAX);
    CHECK(!record->is_required && record->n_readers == 1);
    CHECK_INT(s.view.nodes[record->readers[0]], 0); /* columns is the first node */
    const struct stg_partition_tensor *last = &s.view.tensors[s.view.n_tensors - 1];
    CHECK_INT(last->index, 3); /* ids */
    CHECK(last->is_required && last->n_readers == 0 && !last->is_component);
    subject_finish(&s);
}

static int make(void *owner)
{
    struct subject *s = owner;
    const struct stg_partition_needs *needs[] = {s->needs};
    struct stg_bump bump = {0};
    struct stg_partition_view view;
    struct stg_err err = {0};
    int rc = stg_partition_view_create(s->partitions, needs, 1, &bump, &view, &err);
    stg_bump_finish(&bump);
    return rc;
}

static void without_memory_there_is_no_view_and_no_leak(void)
{
    struct subject s;
    subject_init(&s, CHAIN, NULL, 0);
    CHECK(stg_failalloc_each(make, &s) >= 2);
    subject_finish(&s);
}

static const struct stg_test tests[] = {
    TEST(what_crosses_is_what_every_partition_carries),
    TEST(a_tensor_with_two_readers_and_one_that_waits_cross_like_the_partitions),
    TEST(a_tensor_says_what_it_is_of),
    TEST(without_memory_there_is_no_view_and_no_leak),
};
TEST_MAIN(tests)
