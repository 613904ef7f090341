/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that no honest peer sends: the decoder refuses them with a reason.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "tests/check.h"
#include "tests/proto/golden.h"

static unsigned char buf[STG_MESSAGE_MAX_BYTES + 1];

struct bad {
    const char *bytes;
    size_t n;
    const char *want;
};

#define BAD(bytes, want)                                                                 \
    {                                                                                    \
        bytes, sizeof(bytes) - 1, "malformed message: " want                             \
    }

static void check_request_refused(const void *bytes, size_t n, const char *want)
{
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_request got = {.id = 99};
    CHECK_INT(stg_wire_decode_request(bytes, n, &bump, &got, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, want);
    CHECK_INT(got.id, 99);
    stg_bump_finish(&bump);
}

static void check_reply_refused(const void *bytes, size_t n, const char *want)
{
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_reply got = {.id = 99};
    CHECK_INT(stg_wire_decode_reply(bytes, n, &bump, &got, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, want);
    CHECK_INT(got.id, 99);
    stg_bump_finish(&bump);
}

static void a_malformed_request_is_refused_by_name(void)
{
    static const struct bad cases[] = {
        BAD("\x3a\x05\x0a\x03"
            "a\0b",
            "open.name: a NUL inside a string"),
        BAD("\x3a\x00", "open.name: missing"),
        BAD("\x12\x02\x08\x01", "hello.max_version: missing"),
        BAD("\x12\x04\x08\x01\x08\x02", "hello.min_version: given twice"),
        BAD("\x2a\x00\x2a\x00", "list: given twice"),
        BAD("\x2a\x00\x32\x03\x0a\x01p", "several requests in one"),
        BAD("\x10\x01", "hello: not of the type that the schema says"),
        BAD("\x12\x04\x0a\x01x\x10", "hello.min_version: not of the type that the schema "
                                     "says"),
        BAD("\x3a\x7f\x0a", "a length runs over the end"),
        BAD("\x3a\x03\x0a\x02p", "open: a length runs over the end"),
        BAD("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a length runs over the end"),
        BAD("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
            "a length is truncated or too long"),
        BAD("\x08\xff\xff", "a number is truncated or too long"),
        BAD("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "a number is truncated or too long"),
        BAD("\x13\x14", "a group, or no wire type"),
        BAD("\x0e", "a group, or no wire type"),
        BAD("\x00\x01", "not a field"),
        BAD("\xff\xff\xff\xff\x7f\x00", "not a field"),
        BAD("\xff", "not a field"),
        BAD("\x12\x0a\x08\xff\xff\xff\xff\xff\x01\x10\x01\x18",
            "hello.min_version: a number over 32 bits"),
        BAD("\x3a\x05\x0a\x01p\x20\x02", "open.private_run: neither true nor false"),
        BAD("\xf9\x07\x01", "a number is truncated"),
        BAD("\xfd\x07\x01", "a number is truncated"),
        {"", 0, "a request of a kind that this release does not know"},
        {"\x08\x01", 2, "a request of a kind that this release does not know"},
        {"\xfa\x07\x01x", 4, "a request of a kind that this release does not know"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_request_refused(cases[i].bytes, cases[i].n, cases[i].want);
    check_request_refused(buf, STG_MESSAGE_MAX_BYTES + 1,
                          "malformed message: 65537 bytes; at most 65536");
}

static void fields_of_a_newer_peer_are_ignored_up_to_a_bound(void)
{
    unsigned char message[3 + 3 * 65] = {0x2a, 0x00};
    size_t n = 2;
    for (unsigned i = 0; i < 64; i++, n += 3)
        memcpy(message + n, "\xf8\x07\x01", 3);
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_request got;
    CHECK_OK(stg_wire_decode_request(message, n, &bump, &got, &err), err);
    CHECK_INT(got.kind, STG_REQUEST_LIST);
    stg_bump_finish(&bump);
    memcpy(message + n, "\xf8\x07\x01", 3);
    check_request_refused(message, n + 3, "malformed message: too many unknown fields");
}

static void a_malformed_reply_is_refused_by_name(void)
{
    static const struct bad cases[] = {
        BAD("\x10\x11", "code: 17 is not a status code"),
        BAD("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "code: -1 is not a status code"),
        BAD("\x1a\x03"
            "a\0b",
            "text: a NUL inside a text"),
        BAD("\x48\x00", "kind: 0 is not a request"),
        BAD("\x48\x01", "kind: 1 is not a request"),
        BAD("\x48\x63", "kind: 99 is not a request"),
        BAD("\x48\xff\xff\xff\xff\x0f", "kind: 4294967295 is not a request"),
        BAD("\x10\x05\x48\x08", "an error that answers as if it were none"),
        BAD("\x48\x02", "a reply without its part, or with another's"),
        BAD("\x32\x00", "a reply without its part, or with another's"),
        BAD("\x32\x00\x48\x08", "a reply without its part, or with another's"),
        BAD("\x32\x00\x48\x06", "a reply without its part, or with another's"),
        BAD("\x2a\x0c\x0a\x01p\x1a\x07\x0a\x01"
            "b\x10\x01\x18\x03\x48\x04",
            "boundary \"b\" has a negative dimension"),
        BAD("\x2a\x0a\x0a\x01p\x1a\x05\x0a\x01"
            "b\x10\x63\x48\x04",
            "boundary \"b\" has dtype 99, which this release does not know"),
        BAD("\x2a\x1c\x0a\x01p\x1a\x17\x0a\x01"
            "b\x10\x01\x18\x02\x18\x02\x18\x02\x18\x02\x18\x02\x18\x02\x18\x02\x18\x02"
            "\x18\x02\x48\x04",
            "boundary \"b\" has 9 dimensions; at most 8"),
        BAD("\x2a\x04\x22\x02\x00x", "pipeline.advice: a NUL inside a string"),
        BAD("\x42\x06\x42\x04\x22\x02\x30\x09",
            "open.pipeline.staged.delivery: a value that this release does not know"),
        BAD("\x42\x0d\x42\x0b\x22\x09\x30\xff\xff\xff\xff\xff\xff\xff\x7f",
            "open.pipeline.staged.delivery: a value that this release does not know"),
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_reply_refused(cases[i].bytes, cases[i].n, cases[i].want);
}

/* An open reply that is valid except for its attribute "a" of node "n". */
static void check_attribute_refused(const char *attribute, size_t n, const char *want)
{
    unsigned char message[256], *p = message;
    static const unsigned char head[] = {0x0a, 1, 'p', 0x10, 1, 0x18, 1, 0x20, 1};
    size_t node = 6 + 2 + n, pipeline = 2 + node, open = sizeof(head) + 2 + pipeline;
    const unsigned char frame[] = {0x42, (unsigned char)open};
    memcpy(p, frame, 2);
    memcpy(p + 2, head, sizeof(head));
    p += 2 + sizeof(head);
    const unsigned char inner[] = {0x42, (unsigned char)pipeline,
                                   0x1a, (unsigned char)node,
                                   0x0a, 1,
                                   'n',  0x12,
                                   1,    'x',
                                   0x22, (unsigned char)n};
    memcpy(p, inner, sizeof(inner));
    p += sizeof(inner);
    memcpy(p, attribute, n);
    p += n;
    memcpy(p, "\x48\x07", 2);
    p += 2;
    struct stg_pipeline_spec *spec = NULL;
    struct stg_err err = {0};
    int rc = stg_wire_decode_pipeline(message, (size_t)(p - message), &spec, &err);
    if (want == NULL) {
        CHECK_OK(rc, err);
        CHECK_STR(spec->nodes[0].attrs[0].name, "a");
        stg_pipeline_spec_destroy(spec);
        return;
    }
    CHECK_INT(rc, -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, want);
}

#define ATTRIBUTE(bytes) bytes, sizeof(bytes) - 1

static void the_shape_of_an_attribute_is_that_of_its_values(void)
{
    check_attribute_refused(ATTRIBUTE("\x0a\x01"
                                      "a\x1a\x00"),
                            NULL);
    check_attribute_refused(ATTRIBUTE("\x0a\x01"
                                      "a"),
                            "node \"n\": attribute \"a\" has 0 values, but its shape "
                            "needs 1");
    check_attribute_refused(ATTRIBUTE("\x0a\x01"
                                      "a\x10\x02\x1a\x00"),
                            "node \"n\": attribute \"a\" has 1 values, but its shape "
                            "needs 2");
    check_attribute_refused(ATTRIBUTE("\x0a\x01"
                                      "a\x10\x00\x10\x01\x10\x01\x10\x01\x10\x01"),
                            "node \"n\": attribute \"a\" has 5 dimensions; at most 4");
    check_attribute_refused(
        ATTRIBUTE("\x0a\x01"
                  "a\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x10\x02"),
        "node \"n\": attribute \"a\" has a shape that is too large");
    check_attribute_refused(ATTRIBUTE("\x0a\x01"
                                      "a\x10\x80\x80\x80\x80\x10\x10\x00"),
                            "node \"n\": attribute \"a\" has a shape that is too large");
    check_attribute_refused(ATTRIBUTE("\x0a\x02"
                                      "a\0\x1a\x00"),
                            "malformed message: open.pipeline.graph.attr.name: a NUL "
                            "inside a string");
}

/* Without a limit these 64 KiB become megabytes (reference: protobuf-c keeps one struct
 * for each entry). */
static void an_amplifying_message_is_refused(void)
{
    size_t n = 0;
    const unsigned char head[] = {0x48, 0x05, 0x32, 0xf8, 0xff, 0x03};
    memcpy(buf, head, sizeof(head));
    for (n = sizeof(head); n + 4 <= STG_MESSAGE_MAX_BYTES - 2; n += 4)
        memcpy(buf + n, "\x0a\x02\x0a\x00", 4);
    size_t part = n - sizeof(head);
    buf[3] = (unsigned char)(part & 0x7f) | 0x80;
    buf[4] = (unsigned char)((part >> 7) & 0x7f) | 0x80;
    buf[5] = (unsigned char)(part >> 14);
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_reply got;
    CHECK_INT(stg_wire_decode_reply(buf, n, &bump, &got, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "malformed message: unpacked it has more than 1048576 bytes");
    CHECK(bump.total <= 4u << 20);
    stg_bump_finish(&bump);
}

static void a_reply_truncated_anywhere_is_refused_or_empty(void)
{
    static const struct {
        const unsigned char *bytes;
        size_t n;
    } replies[] = {
        {golden_reply_hello, sizeof(golden_reply_hello)},
        {golden_reply_apply, sizeof(golden_reply_apply)},
        {golden_reply_list, sizeof(golden_reply_list)},
        {golden_reply_status, sizeof(golden_reply_status)},
        {golden_reply_open, sizeof(golden_reply_open)},
    };
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        for (size_t n = 0; n < replies[i].n; n++) {
            unsigned char *copy = malloc(n > 0 ? n : 1);
            CHECK(copy != NULL);
            memcpy(copy, replies[i].bytes, n);
            struct stg_bump bump = {0};
            struct stg_err err = {0};
            struct stg_reply got;
            int rc = stg_wire_decode_reply(copy, n, &bump, &got, &err);
            if (rc == 0)
                CHECK_INT(got.kind, STG_REQUEST_NONE);
            stg_bump_finish(&bump);
            free(copy);
        }
    }
}

static void a_bump_without_room_is_said_to_be_so(void)
{
    struct stg_bump bump;
    stg_bump_init(&bump, 64);
    struct stg_err err = {0};
    struct stg_request got;
    CHECK_INT(stg_wire_decode_request(golden_request_open, sizeof(golden_request_open),
                                      &bump, &got, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    stg_bump_finish(&bump);
}

static const struct stg_test tests[] = {
    TEST(a_malformed_request_is_refused_by_name),
    TEST(fields_of_a_newer_peer_are_ignored_up_to_a_bound),
    TEST(a_malformed_reply_is_refused_by_name),
    TEST(the_shape_of_an_attribute_is_that_of_its_values),
    TEST(an_amplifying_message_is_refused),
    TEST(a_reply_truncated_anywhere_is_refused_or_empty),
    TEST(a_bump_without_room_is_said_to_be_so),
};

TEST_MAIN(tests)
