/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages about the tensors that cross the boundary: the client's request and the
 * daemon's reply.
 */
#include "proto/wire.h"
#include "tests/check.h"

static unsigned char buf[STG_MESSAGE_MAX_BYTES];

/* "None" differs from "unset". */
static void fields_and_fetches_of_an_open_survive_the_wire(void)
{
    static const char *const names[] = {"user/id", "label"};
    const struct stg_request sent[] = {
        {.kind = STG_REQUEST_OPEN, .name = "p"},
        {.kind = STG_REQUEST_OPEN, .name = "p", .has_fields = true, .has_fetches = true},
        {.kind = STG_REQUEST_OPEN,
         .name = "p",
         .has_fields = true,
         .fields = names,
         .n_fields = 2,
         .has_fetches = true,
         .fetches = names + 1,
         .n_fetches = 1},
        {.kind = STG_REQUEST_OPEN, .name = "p", .has_unsupported = true},
        {.kind = STG_REQUEST_OPEN,
         .name = "p",
         .has_unsupported = true,
         .unsupported_generation = 7,
         .unsupported = names,
         .n_unsupported = 2}};
    for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
        struct stg_bump bump = {0};
        struct stg_request got;
        struct stg_err err = {0};
        long n = stg_wire_encode_request(&sent[i], buf, sizeof(buf));
        CHECK(n > 0);
        CHECK_OK(stg_wire_decode_request(buf, (size_t)n, &bump, &got, &err), err);
        CHECK(got.has_fields == sent[i].has_fields);
        CHECK(got.has_fetches == sent[i].has_fetches);
        CHECK_INT(got.n_fields, sent[i].n_fields);
        CHECK_INT(got.n_fetches, sent[i].n_fetches);
        for (size_t k = 0; k < got.n_fields; k++)
            CHECK_STR(got.fields[k], names[k]);
        for (size_t k = 0; k < got.n_fetches; k++)
            CHECK_STR(got.fetches[k], names[1]);
        CHECK(got.has_unsupported == sent[i].has_unsupported);
        CHECK_INT(got.unsupported_generation, sent[i].unsupported_generation);
        CHECK_INT(got.n_unsupported, sent[i].n_unsupported);
        for (size_t k = 0; k < got.n_unsupported; k++)
            CHECK_STR(got.unsupported[k], names[k]);
        stg_bump_finish(&bump);
    }
}

static void slots_and_moved_nodes_survive_the_wire(void)
{
    static const char *const moved[] = {"a", "b"};
    struct stg_component slot = {
        .name = "a:1", .dtype = STAGER_INT64, .ndim = 2, .shape = {-1, 3}};
    struct stg_reply got,
        open = {.kind = STG_REQUEST_OPEN, .name = "p", .slots = {&slot, 1}, .asks = true},
        status = {.kind = STG_REQUEST_STATUS,
                  .status = {.name = "p",
                             .partition = 3,
                             .moved = moved,
                             .n_moved = 2,
                             .own_partitions = 5}};
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    long n = stg_wire_encode_reply(&open, buf, sizeof(buf));
    CHECK_OK(stg_wire_decode_reply(buf, (size_t)n, &bump, &got, &err), err);
    CHECK(got.asks);
    CHECK_INT(got.slots.n, 1);
    CHECK_STR(got.slots.components[0].name, "a:1");
    CHECK_INT(got.slots.components[0].shape[1], 3);
    n = stg_wire_encode_reply(&status, buf, sizeof(buf));
    CHECK_OK(stg_wire_decode_reply(buf, (size_t)n, &bump, &got, &err), err);
    CHECK_INT(got.status.partition, 3);
    CHECK_INT(got.status.own_partitions, 5);
    CHECK_INT(got.status.n_moved, 2);
    CHECK_STR(got.status.moved[1], "b");
    stg_bump_finish(&bump);
}

static const struct stg_test tests[] = {
    TEST(fields_and_fetches_of_an_open_survive_the_wire),
    TEST(slots_and_moved_nodes_survive_the_wire),
};
TEST_MAIN(tests)
