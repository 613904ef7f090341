/* SPDX-License-Identifier: Apache-2.0
 *
 * feed_dict when a pipeline is applied, and the feeds that a client may set.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/pipeline/definition.h"
#include "daemon/stage/feed.h"
#include "tests/check.h"

static const struct stg_identity unprivileged = {.uid = 65534, .gid = 65534};

/* A pipeline of batches of 4 int64 `value`. */
static int define(const char *graph, const char *features, const char *feeds,
                  struct stg_definition **ret, struct stg_err *err)
{
    char text[2048];
    snprintf(text, sizeof(text),
             "dataset:\n  - range: {stop: 8}\n"
             "  - batch: {batch_size: 4, drop_remainder: true}\n"
             "graph:\n%s"
             "staged:\n  features: {%s}\n  feed_dict: {%s}\n",
             graph, features, feeds);
    return stg_definition_create(text, strlen(text), "p.yaml", &unprivileged, NULL, ret,
                                 err);
}

static void refuse(const char *graph, const char *features, const char *feeds,
                   const char *part)
{
    struct stg_definition *definition;
    struct stg_err err = {0};
    CHECK_INT(define(graph, features, feeds, &definition, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, part);
}

#define PLACEHOLDER "  - {name: p, op: placeholder, dtype: float32, shape: [-1, 2]}\n"
#define IDENTITY "  - {name: y, op: identity, input: [p]}\n"

static void a_feed_that_cannot_be_is_refused(void)
{
    refuse(PLACEHOLDER IDENTITY, "y: y", "q: {value: 1.0}", "did you mean \"p\"?");
    refuse(PLACEHOLDER IDENTITY, "y: y", "p: {tensor: valeu}", "did you mean \"value\"?");
    refuse(PLACEHOLDER IDENTITY, "y: y", "\"p:1\": {value: [[1.0, 2.0]]}",
           "the node has 1 outputs");
    refuse(PLACEHOLDER IDENTITY, "y: y", "p: {tensor: \"value\"}",
           "\"value\" is int64 [4], but the tensor that it replaces is float32 [?, 2]");
    refuse(PLACEHOLDER IDENTITY, "y: y", "p: {value: [1.0, 2.0]}",
           "the value is float32 [2], but the tensor that it replaces is float32 [?, 2]");
    refuse(PLACEHOLDER IDENTITY, "y: y", "p: {value: 1.0}",
           "the value is float32 [], but");
    refuse(PLACEHOLDER IDENTITY, "y: y", "p: {value: [[x, y]]}", "feed_dict.p, line");
    refuse(PLACEHOLDER IDENTITY, "y: y",
           "p: {value: [[1.0, 2.0]]}, \"p:0\": {value: [[1.0, 2.0]]}",
           "the same tensor is fed on line");
    refuse(PLACEHOLDER IDENTITY, "y: y",
           "p: {value: [[1.0, 2.0]]}, \"staged:y\": {value: 1.0}",
           "after the boundary cannot be fed");
    refuse("  - {name: t, op: variable, shape: [2]}\n", "v: value", "t: {value: 1.0}",
           "computed in the trainer");
}

static void a_placeholder_that_is_needed_has_to_be_fed(void)
{
    refuse(PLACEHOLDER IDENTITY, "y: y", "value: {value: 1}", "node p (placeholder)");
    refuse(PLACEHOLDER IDENTITY, "y: y", "value: {value: 1}", "nothing feeds it");
    struct stg_definition *definition;
    struct stg_err err = {0};
    CHECK_OK(
        define(PLACEHOLDER IDENTITY, "v: value", "value: {value: 1}", &definition, &err),
        err);
    stg_definition_unref(definition);
}

static void feeds_that_go_in_a_circle_are_refused(void)
{
    const char *graph = "  - {name: a, op: identity, input: [value]}\n"
                        "  - {name: b, op: identity, input: [a]}\n"
                        "  - {name: c, op: identity, input: [b]}\n";
    refuse(graph, "c: c", "a: {tensor: c}",
           "form a cycle (with what feed_dict replaces)");
    refuse(graph, "c: c", "value: {tensor: a}", "form a cycle");
    refuse(graph, "c: c", "a: {tensor: a}", "these feeds form a cycle");
    refuse(graph, "c: c", "a: {tensor: b}, b: {tensor: a}", "these feeds form a cycle");
    refuse(graph, "c: c", "a: {tensor: b}, b: {tensor: c}, c: {tensor: a}",
           "these feeds form a cycle");
}

static void an_unused_feed_is_reported(void)
{
    struct stg_definition *definition;
    struct stg_err err = {0};
    struct stg_bump bump = {0};
    const char *lines[8];
    CHECK_OK(define(PLACEHOLDER IDENTITY, "v: value",
                    "y: {value: [[1.0, 2.0]]}, value: {value: 3}", &definition, &err),
             err);
    size_t n = stg_definition_advice(definition, &bump, lines, 8);
    int n_told = 0;
    for (size_t i = 0; i < n; i++) {
        if (strstr(lines[i], "no feature depends on it") == NULL)
            continue;
        n_told++;
        CHECK_CONTAINS(lines[i], "feed_dict \"y\"");
    }
    CHECK_INT(n_told, 1);
    stg_bump_finish(&bump);
    stg_definition_unref(definition);
}

/* ---- feeds of a client ---- */

static struct stg_definition *with_client_feeds(void)
{
    struct stg_definition *definition;
    struct stg_err err = {0};
    CHECK_OK(define(PLACEHOLDER IDENTITY "  - {name: s, op: constant, value: [a, b]}\n"
                                         "  - {name: fixed, op: constant, value: 1}\n",
                    "y: y, s: s, fixed: fixed",
                    "p: {value: [[1.0, 2.0]], client: true}, s: {value: [c, d], client: "
                    "true}, fixed: {value: 2}",
                    &definition, &err),
             err);
    return definition;
}

static int set(const struct stg_definition *definition, const struct stg_request *request,
               struct stg_feed_value **ret, struct stg_err *err)
{
    size_t feed;
    return stg_feed_value_create(definition->graph, request, &feed, ret, err);
}

static void refuse_value(const struct stg_definition *definition, int code,
                         const char *part, struct stg_request request)
{
    struct stg_feed_value *value = NULL;
    struct stg_err err = {0};
    CHECK_INT(set(definition, &request, &value, &err), -code);
    CHECK_CONTAINS(err.text, part);
}

static void a_value_of_another_kind_is_refused_with_both(void)
{
    struct stg_definition *definition = with_client_feeds();
    static const float floats[20000];
    static const int64_t bad[] = {0, 3, 2}, far[] = {0, 1, 200}, good[] = {0, 1, 2};
    refuse_value(definition, STAGER_INVALID_ARGUMENT,
                 "is int32 [1, 2], but the tensor is float32 [?, 2]",
                 (struct stg_request){.name = "p",
                                      .dtype = STAGER_INT32,
                                      .ndim = 2,
                                      .shape = {1, 2},
                                      .data = floats,
                                      .data_bytes = 8});
    refuse_value(definition, STAGER_INVALID_ARGUMENT, "float32 [3, 3]",
                 (struct stg_request){.name = "p",
                                      .dtype = STAGER_FLOAT32,
                                      .ndim = 2,
                                      .shape = {3, 3},
                                      .data = floats,
                                      .data_bytes = 36});
    refuse_value(definition, STAGER_INVALID_ARGUMENT, "float32",
                 (struct stg_request){.name = "p",
                                      .dtype = STAGER_FLOAT32,
                                      .ndim = 2,
                                      .shape = {-1, 2},
                                      .data = floats,
                                      .data_bytes = 8});
    refuse_value(definition, STAGER_INVALID_ARGUMENT, "has 8 bytes, but",
                 (struct stg_request){.name = "p",
                                      .dtype = STAGER_FLOAT32,
                                      .ndim = 2,
                                      .shape = {2, 2},
                                      .data = floats,
                                      .data_bytes = 8});
    refuse_value(definition, STAGER_INVALID_ARGUMENT,
                 "larger than the limit of 61440 bytes",
                 (struct stg_request){.name = "p",
                                      .dtype = STAGER_FLOAT32,
                                      .ndim = 2,
                                      .shape = {8000, 2},
                                      .data = floats,
                                      .data_bytes = 64000});
    refuse_value(definition, STAGER_INVALID_ARGUMENT, "larger than",
                 (struct stg_request){.name = "p",
                                      .dtype = STAGER_FLOAT32,
                                      .ndim = 2,
                                      .shape = {INT64_MAX, 2},
                                      .data = floats,
                                      .data_bytes = 0});
    struct stg_request strings = {.name = "s",
                                  .dtype = STAGER_STRING,
                                  .ndim = 1,
                                  .shape = {2},
                                  .data = "xy",
                                  .data_bytes = 2,
                                  .offsets = bad,
                                  .n_offsets = 3};
    refuse_value(definition, STAGER_INVALID_ARGUMENT, "offsets", strings);
    strings.offsets = far;
    refuse_value(definition, STAGER_INVALID_ARGUMENT, "offsets", strings);
    strings.offsets = good;
    strings.n_offsets = 2;
    refuse_value(definition, STAGER_INVALID_ARGUMENT, "offsets", strings);
    strings.offsets = NULL;
    strings.n_offsets = 0;
    refuse_value(definition, STAGER_INVALID_ARGUMENT, "offsets", strings);
    refuse_value(definition, STAGER_FAILED_PRECONDITION, "cannot be set by a client",
                 (struct stg_request){.name = "fixed", .dtype = STAGER_INT32});
    refuse_value(definition, STAGER_FAILED_PRECONDITION, "cannot be set by a client",
                 (struct stg_request){.name = "value", .dtype = STAGER_INT64});
    refuse_value(definition, STAGER_NOT_FOUND, "unknown node",
                 (struct stg_request){.name = "unknown", .dtype = STAGER_INT64});
    stg_definition_unref(definition);
}

static void a_set_keeps_what_was_set_before(void)
{
    struct stg_definition *definition = with_client_feeds();
    struct stg_err err = {0};
    struct stg_feed_value *value;
    struct stg_feed_set *first, *second;
    const float floats[] = {5, 6};
    const int64_t offsets[] = {0, 1, 3};
    struct stg_request request = {.name = "p:0",
                                  .dtype = STAGER_FLOAT32,
                                  .ndim = 2,
                                  .shape = {1, 2},
                                  .data = floats,
                                  .data_bytes = 8};
    CHECK_OK(set(definition, &request, &value, &err), err);
    CHECK_OK(stg_feed_set_create(NULL, 3, 0, value, &first, &err), err);
    CHECK_INT(first->version, 1);
    request = (struct stg_request){.name = "s",
                                   .dtype = STAGER_STRING,
                                   .ndim = 1,
                                   .shape = {2},
                                   .data = "xyz",
                                   .data_bytes = 3,
                                   .offsets = offsets,
                                   .n_offsets = 3};
    CHECK_OK(set(definition, &request, &value, &err), err);
    CHECK_OK(stg_feed_set_create(first, 3, 1, value, &second, &err), err);
    stg_feed_set_unref(first);
    CHECK_INT(second->version, 2);
    CHECK(((const float *)second->tensors[0]->data)[1] == 6);
    CHECK_INT(second->tensors[1]->end[1] - second->tensors[1]->begin[1], 2);
    CHECK(memcmp((const char *)second->tensors[1]->data + 1, "yz", 2) == 0);
    CHECK(second->tensors[2] == NULL);
    stg_feed_set_unref(second);
    stg_definition_unref(definition);
}

static const struct stg_test tests[] = {
    TEST(a_feed_that_cannot_be_is_refused),
    TEST(a_placeholder_that_is_needed_has_to_be_fed),
    TEST(feeds_that_go_in_a_circle_are_refused),
    TEST(an_unused_feed_is_reported),
    TEST(a_value_of_another_kind_is_refused_with_both),
    TEST(a_set_keeps_what_was_set_before),
};

TEST_MAIN(tests)
