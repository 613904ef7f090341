/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_feed: the messages on the stream's socket, and the calls refused before.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/client/rows.h"

/* Replies to one feed with a version, or with a code and a text. */
struct answer {
    struct fake *fake;
    int code;
    uint64_t version;
    struct stg_request heard;
    char name[64], data[STG_MESSAGE_MAX_BYTES];
    int64_t offsets[64];
    pthread_t thread;
};

static void *answer_feed(void *owner)
{
    struct answer *answer = owner;
    static unsigned char buf[STG_MESSAGE_MAX_BYTES];
    struct stg_bump bump;
    struct stg_err err = {0};
    ssize_t n;
    do {
        n = recv(answer->fake->socket, buf, sizeof(buf), 0);
    } while (n == 1);
    CHECK(n > 1);
    stg_bump_init(&bump, 1u << 20);
    CHECK_OK(stg_wire_decode_request(buf, (size_t)n, &bump, &answer->heard, &err), err);
    CHECK_INT(answer->heard.kind, STG_REQUEST_FEED);
    strcpy(answer->name, answer->heard.name);
    if (answer->heard.data_bytes > 0)
        memcpy(answer->data, answer->heard.data, answer->heard.data_bytes);
    for (size_t i = 0; i < answer->heard.n_offsets && i < 64; i++)
        answer->offsets[i] = answer->heard.offsets[i];
    struct stg_reply reply = {.id = answer->heard.id,
                              .code = answer->code,
                              .text = answer->code < 0 ? "no such tensor" : NULL,
                              .kind =
                                  answer->code < 0 ? STG_REQUEST_NONE : STG_REQUEST_FEED,
                              .feed_version = answer->version};
    fake_ring(answer->fake); /* a doorbell arrives in between */
    long bytes = stg_wire_encode_reply(&reply, buf, sizeof(buf));
    CHECK(send(answer->fake->socket, buf, (size_t)bytes, 0) == bytes);
    fake_ring(answer->fake);
    stg_bump_finish(&bump);
    return NULL;
}

static int feed(struct fake *fake, struct stager_stream *stream, struct answer *answer,
                const struct stager_tensor *value, uint64_t *ret)
{
    answer->fake = fake;
    CHECK(pthread_create(&answer->thread, NULL, answer_feed, answer) == 0);
    int rc = stager_feed(stream, "rate", value, ret);
    CHECK(pthread_join(answer->thread, NULL) == 0);
    return rc;
}

static void a_feed_crosses_with_shape_and_bytes_and_returns_its_version(void)
{
    struct fake fake = {0};
    static struct answer answer = {.version = 7};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    float data[] = {0.5f, -1.0f, 2.0f, 1e9f};
    struct stager_tensor value = {.dtype = STAGER_FLOAT32,
                                  .ndim = 2,
                                  .shape = {2, 2},
                                  .data = data,
                                  .data_bytes = sizeof(data)};
    uint64_t version = 0;
    CHECK_INT(feed(&fake, stream, &answer, &value, &version), 0);
    CHECK_INT(version, 7);
    CHECK_STR(answer.name, "rate");
    CHECK_INT(answer.heard.dtype, STAGER_FLOAT32);
    CHECK_INT(answer.heard.ndim, 2);
    CHECK_INT(answer.heard.shape[1], 2);
    CHECK_INT(answer.heard.data_bytes, 16);
    CHECK(memcmp(answer.data, data, 16) == 0);
    CHECK_INT(answer.heard.n_offsets, 0);

    fake_publish(&fake, 0, 3, 1, 1); /* the stream continues */
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 0, &batch), 0);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void strings_of_a_slice_are_fed_as_they_are_seen(void)
{
    struct fake fake = {0};
    static struct answer answer = {.version = 1};
    struct stager_options options = {.struct_size = sizeof(options), .batch_size = 2};
    fake_start(&fake);
    fake.boundary = rows_boundary(4);
    fake.batch_rows = 4;
    struct stager_stream *stream = fake_open(&fake, &options);
    rows_publish(&fake, 0, 0, 0, 4);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 0, &batch), 0);
    stager_release(batch);
    CHECK_INT(stager_next(stream, 0, &batch), 0);
    struct stager_tensor words;
    CHECK_INT(stager_batch_tensor(batch, "words", &words), 0);
    CHECK(words.offsets[0] > 0);
    CHECK_INT(feed(&fake, stream, &answer, &words, NULL), 0);
    /* rows 2 and 3: "a2" "bb" "a3" "" */
    static const int64_t want[] = {0, 2, 4, 6, 6};
    CHECK_INT(answer.heard.n_offsets, 5);
    for (int i = 0; i < 5; i++)
        CHECK_INT(answer.offsets[i], want[i]);
    CHECK_INT(answer.heard.data_bytes, 6);
    CHECK(memcmp(answer.data, "a2bba3", 6) == 0);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void the_daemons_refusal_is_passed_on(void)
{
    struct fake fake = {0};
    static struct answer answer = {.code = -STAGER_NOT_FOUND};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    int32_t one = 1;
    struct stager_tensor value = {.dtype = STAGER_INT32, .data = &one, .data_bytes = 4};
    uint64_t version = 99;
    CHECK_INT(feed(&fake, stream, &answer, &value, &version), -STAGER_NOT_FOUND);
    CHECK_STR(stager_error_text(stream), "no such tensor");
    CHECK_INT(version, 99);
    answer = (struct answer){.version = 2};
    CHECK_INT(feed(&fake, stream, &answer, &value, &version), 0);
    fake_finish(&fake, stream);
}

static void check_refused(struct stager_stream *stream, const struct stager_tensor *value,
                          const char *text)
{
    CHECK_INT(stager_feed(stream, "rate", value, NULL), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream), text);
}

static void what_makes_no_message_is_refused_before_it_is_sent(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    static char data[70000];
    struct stager_tensor big = {
        .dtype = STAGER_UINT8, .ndim = 1, .shape = {61441}, .data = data};
    big.data_bytes = 61441;
    check_refused(stream, &big, "feed rate: the feed takes 61441 bytes");
    check_refused(stream, &big, "61440 (60 KiB)");

    struct stager_tensor v = {.dtype = STAGER_INT32, .ndim = 1, .shape = {2}};
    v.data = data;
    v.data_bytes = 4;
    check_refused(stream, &v, "data_bytes is 4; the shape needs 8");
    v.data_bytes = 8;
    v.data = NULL;
    check_refused(stream, &v, "data is NULL");
    v.shape[0] = -1;
    check_refused(stream, &v, "dimension 0 is -1");
    v.shape[0] = INT64_MAX;
    check_refused(stream, &v, "60 KiB");
    v.ndim = 9;
    check_refused(stream, &v, "9 dimensions; the maximum is 8");
    v.ndim = -1;
    check_refused(stream, &v, "-1 dimensions");
    v = (struct stager_tensor){.dtype = 99};
    check_refused(stream, &v, "dtype 99");
    v = (struct stager_tensor){
        .dtype = STAGER_STRING, .ndim = 1, .shape = {2}, .data = data, .data_bytes = 9};
    check_refused(stream, &v, "strings need offsets");
    static const int64_t falling[] = {0, 5, 4}, beyond[] = {0, 5, 10};
    v.offsets = falling;
    check_refused(stream, &v, "string 1 lies at 5 to 4 of 9 bytes");
    v.offsets = beyond;
    check_refused(stream, &v, "string 1 lies at 5 to 10 of 9 bytes");
    CHECK_INT(stager_feed(stream, "", &v, NULL), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stager_feed(stream, "rate", NULL, NULL), -STAGER_INVALID_ARGUMENT);
    char byte;
    CHECK_INT(recv(fake.socket, &byte, 1, MSG_DONTWAIT), -1); /* nothing was sent */
    fake_finish(&fake, stream);
}

static void the_largest_feed_fits_a_message(void)
{
    struct fake fake = {0};
    static struct answer answer = {.version = 1};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    static char data[61440];
    struct stager_tensor value = {.dtype = STAGER_UINT8,
                                  .ndim = 1,
                                  .shape = {sizeof(data)},
                                  .data = data,
                                  .data_bytes = sizeof(data)};
    CHECK_INT(feed(&fake, stream, &answer, &value, NULL), 0);
    CHECK_INT(answer.heard.data_bytes, sizeof(data));

    /* The largest number of empty strings: offsets alone. */
    static int64_t offsets[61440 / 4];
    value = (struct stager_tensor){.dtype = STAGER_STRING,
                                   .ndim = 1,
                                   .shape = {61440 / 4 - 1},
                                   .data = data,
                                   .offsets = offsets};
    CHECK_INT(feed(&fake, stream, &answer, &value, NULL), 0);
    CHECK_INT(answer.heard.n_offsets, 61440 / 4);
    for (int i = 1; i < 61440 / 4; i++)
        offsets[i] = 3 * i < 3000 ? 3 * i : 3000;
    value.data_bytes = 3000;
    check_refused(stream, &value, "the feed takes 64440 bytes");
    fake_finish(&fake, stream);
}

static void a_feed_to_a_daemon_that_went_away_ends(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_hang_up(&fake);
    int32_t one = 1;
    struct stager_tensor value = {.dtype = STAGER_INT32, .data = &one, .data_bytes = 4};
    CHECK_INT(stager_feed(stream, "rate", &value, NULL), -STAGER_UNAVAILABLE);
    fake_finish(&fake, stream);
}

static const struct stg_test tests[] = {
    TEST(a_feed_crosses_with_shape_and_bytes_and_returns_its_version),
    TEST(strings_of_a_slice_are_fed_as_they_are_seen),
    TEST(the_daemons_refusal_is_passed_on),
    TEST(what_makes_no_message_is_refused_before_it_is_sent),
    TEST(the_largest_feed_fits_a_message),
    TEST(a_feed_to_a_daemon_that_went_away_ends),
};

TEST_MAIN(tests)
