/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a fetch through every pair and triple of possible answers of a server,
 * contradictory ones included. A model plays the memory: it records the object and the
 * offset of each byte written.
 */
#include "daemon/storage/http/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

#define CAPACITY 8u

/* ---- answers ---- */

struct answer {
    long status; /* 0: the connection breaks before the headers */
    int length;  /* of Content-Length; -1: none */
    int shift;   /* 206: distance of `from` from the requested offset */
    int span;    /* 206: bytes of Content-Range; 0: the header is missing */
    int size;    /* 206, 416: size of the object; -1: missing */
    char id;     /* 'A', 'B': an ETag; 't', 'u': a time; '-': neither */
    int body;    /* bytes received */
    bool clean;
};

/* A body as long as its headers declare, and one that breaks in the middle. */
static const int lengths[] = {-1, 0, 3, 5, CAPACITY, CAPACITY + 4};

struct list {
    struct answer at[4096];
    size_t n;
};

static void add(struct list *list, struct answer answer, int whole, bool all_bodies)
{
    const int bodies[] = {whole, whole / 2, 0, whole + 1, 3 * CAPACITY};
    for (size_t i = 0; i < (all_bodies ? 5u : 2u); i++) {
        for (int clean = 0; clean < 2; clean++) {
            /* curl ends an answer with a length at exactly that length. */
            if (answer.length >= 0 &&
                (bodies[i] > answer.length || (clean && bodies[i] != answer.length)))
                continue;
            answer.body = bodies[i];
            answer.clean = clean != 0;
            CHECK(list->n < sizeof(list->at) / sizeof(list->at[0]));
            list->at[list->n++] = answer;
        }
    }
}

static void add_parts(struct list *list, char id, bool all)
{
    static const int sizes[] = {3, 5, CAPACITY, 2 * CAPACITY};
    static const int spans[] = {1, 4, CAPACITY, CAPACITY + 1};
    for (size_t i = 1; i < 4; i++) {
        for (size_t k = 1; k < (all ? 4 : 3); k++) {
            for (int shift = 0; shift < (all ? 3 : 1); shift++) {
                struct answer part = {.status = 206,
                                      .length = -1,
                                      .shift = shift - (shift == 2 ? 3 : 0),
                                      .span = spans[k],
                                      .size = sizes[i],
                                      .id = id};
                add(list, part, part.span, all);
            }
        }
    }
    add(list, (struct answer){.status = 206, .length = -1, .size = -1, .id = id}, 2, all);
}

static void make_list(struct list *list, bool all)
{
    const char *ids = all ? "-ABt" : "-AB";
    list->n = 0;
    list->at[list->n++] = (struct answer){.status = 0, .length = -1, .id = '-'};
    for (const char *id = ids; *id != '\0'; id++) {
        for (size_t i = 0; i < 6; i++)
            add(list, (struct answer){.status = 200, .length = lengths[i], .id = *id},
                lengths[i] < 0 ? 6 : lengths[i], all);
        add_parts(list, *id, all);
        static const long others[] = {304, 412, 416, 404, 503};
        for (size_t i = 0; i < 5; i++) {
            for (int size = -1; size < 6; size += 3 + 2 * (size > 0)) {
                struct answer other = {.status = others[i],
                                       .length = 0,
                                       .size = size < 0    ? -1
                                               : size == 2 ? 0
                                                           : 5,
                                       .id = *id};
                add(list, other, 0, false);
                if (others[i] != 416)
                    break;
            }
        }
    }
}

/* ---- the model ---- */

struct byte {
    int object; /* 0: never written */
    uint64_t offset;
};

struct model {
    struct stg_progress progress;
    struct byte bytes[CAPACITY];
    uint64_t n_seen; /* bytes that a reader may have taken … */
    struct byte seen[CAPACITY];
    struct stg_version pinned;
};

/* Returns the object to which the bytes of an answer belong, as far as its headers and
 * its end identify it. No client can distinguish answers with the same number. */
static int object_of(const struct answer *answer, unsigned number)
{
    if (answer->id != '-')
        return answer->id;
    if (answer->status == 206)
        return 1000 + answer->size;
    if (answer->length >= 0)
        return 1000 + answer->length;
    return answer->clean ? 1000 + answer->body : 5000 + (int)number;
}

static struct stg_head head_of(const struct answer *answer, uint64_t asked)
{
    struct stg_head head = {.status = answer->status,
                            .has_length = answer->length >= 0,
                            .length = (uint64_t)(answer->length > 0 ? answer->length : 0),
                            .has_size = answer->size >= 0 && answer->status != 200,
                            .size = (uint64_t)(answer->size > 0 ? answer->size : 0)};
    if (answer->id == 'A' || answer->id == 'B')
        snprintf(head.version.etag, sizeof(head.version.etag), "\"%c\"", answer->id);
    else if (answer->id != '-')
        snprintf(head.version.modified, sizeof(head.version.modified), "%c", answer->id);
    head.has_range = answer->status == 206 && answer->span > 0 && answer->size >= 0;
    head.from = asked + (uint64_t)answer->shift;
    head.last = head.from + (uint64_t)answer->span - 1;
    return head;
}

static void check_sure(struct model *model)
{
    const struct stg_progress *progress = &model->progress;
    uint64_t sure = stg_progress_sure(progress);
    CHECK(progress->end >= progress->begin && progress->end <= progress->asked_end);
    CHECK(progress->n <= progress->end - progress->begin);
    CHECK(sure <= progress->n && sure >= model->n_seen);
    for (uint64_t i = 0; i < sure; i++) {
        CHECK(model->bytes[i].object != 0);
        if (i < model->n_seen)
            CHECK(memcmp(&model->bytes[i], &model->seen[i], sizeof(struct byte)) == 0);
        model->seen[i] = model->bytes[i];
    }
    model->n_seen = sure;
    if (model->pinned.known)
        CHECK(memcmp(&model->pinned, &progress->version, sizeof(model->pinned)) == 0);
    model->pinned = progress->version;
}

/* The body, in pieces of three bytes. */
static enum stg_verdict send_body(struct model *model, const struct answer *answer,
                                  uint64_t first, int object)
{
    enum stg_verdict verdict = STG_VERDICT_GO;
    for (uint64_t i = 0; i < (uint64_t)answer->body && verdict == STG_VERDICT_GO;) {
        uint64_t skip = 0, at = 0, take = 0, n = (uint64_t)answer->body - i;
        n = n < 3 ? n : 3;
        verdict = stg_progress_body(&model->progress, n, &skip, &at, &take);
        if (verdict == STG_VERDICT_GO) {
            CHECK(skip + take == n && at + take <= CAPACITY);
            for (uint64_t k = 0; k < take; k++)
                model->bytes[at + k] = (struct byte){object, first + i + skip + k};
        }
        check_sure(model);
        i += n;
    }
    return verdict;
}

static enum stg_verdict run_answer(struct model *model, const struct answer *answer,
                                   unsigned number)
{
    struct stg_progress *progress = &model->progress;
    stg_progress_attempt(progress);
    check_sure(model);
    CHECK(progress->n == stg_progress_sure(progress));
    uint64_t asked = stg_progress_from(progress);
    enum stg_verdict verdict = STG_VERDICT_GO;
    bool plain = progress->kind == STG_FETCH_ALL || progress->in_query;
    if (answer->status != 0) {
        struct stg_head head = head_of(answer, asked);
        verdict = stg_progress_head(progress, &head);
        check_sure(model);
        uint64_t first = head.status == 206                          ? head.from
                         : !plain || progress->kind == STG_FETCH_ALL ? 0
                                                                     : asked;
        if (verdict == STG_VERDICT_GO && (head.status == 200 || head.status == 206))
            verdict =
                send_body(model, answer, first, plain ? 1 : object_of(answer, number));
    }
    if (verdict != STG_VERDICT_GO)
        return verdict;
    bool has_end = progress->kind == STG_FETCH_RANGE && progress->version.known;
    verdict = stg_progress_end(progress, answer->status != 0 && answer->clean);
    check_sure(model);
    /* A broken answer is complete only if its full length is known. */
    CHECK(verdict != STG_VERDICT_GO || answer->clean || has_end);
    return verdict;
}

static bool is_again(enum stg_verdict verdict)
{
    return verdict == STG_VERDICT_BROKEN || verdict == STG_VERDICT_SHORT ||
           verdict == STG_VERDICT_OTHER_RANGE;
}

/* A reader gets bytes of one object only, each at its place. */
static void check_complete(const struct model *model)
{
    const struct stg_progress *progress = &model->progress;
    uint64_t n = stg_progress_sure(progress);
    CHECK(n == progress->n);
    if (progress->is_cached) {
        CHECK(n == 0 && !progress->version.known);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        CHECK_INT(model->bytes[i].offset, progress->begin + i);
        CHECK_INT(model->bytes[i].object, model->bytes[0].object);
    }
    if (progress->kind == STG_FETCH_ALL)
        return;
    CHECK(n == progress->end - progress->begin);
    CHECK(!progress->version.known || progress->in_query ||
          progress->end == progress->asked_end ||
          progress->end == progress->version.size ||
          progress->version.size < progress->begin);
    CHECK(n > 0 || progress->most_n == 0);
}

struct start {
    const char *name;
    enum stg_fetch_kind kind;
    bool in_query, may_keep;
    uint64_t begin;
    struct stg_version version;
};

static const struct start starts[] = {
    {.name = "first range", .kind = STG_FETCH_RANGE},
    {.name = "first range, with a copy", .kind = STG_FETCH_RANGE, .may_keep = true},
    {.name = "first range of a known size",
     .kind = STG_FETCH_RANGE,
     .version = {.known = true, .size = 5}},
    {.name = "first range of a known version",
     .kind = STG_FETCH_RANGE,
     .version = {.known = true, .size = 2 * CAPACITY, .etag = "\"A\""}},
    {.name = "second range",
     .kind = STG_FETCH_RANGE,
     .begin = CAPACITY,
     .version = {.known = true, .size = 2 * CAPACITY, .etag = "\"A\""}},
    {.name = "in the query",
     .kind = STG_FETCH_RANGE,
     .in_query = true,
     .begin = 2,
     .version = {.known = true, .size = 2 * CAPACITY, .modified = "1/1"}},
    {.name = "all", .kind = STG_FETCH_ALL},
    {.name = "all, in the query", .kind = STG_FETCH_ALL, .in_query = true},
};

struct count {
    uint64_t n_runs, n_complete;
};

/* Runs `answers`. If another attempt follows the last of them, it then tries each answer
 * of the list, up to n_most answers. */
static void run_from(const struct start *start, const struct list *list,
                     const struct answer **answers, unsigned n, unsigned n_most,
                     struct count *count)
{
    struct model model = {.n_seen = 0};
    enum stg_verdict verdict = STG_VERDICT_BROKEN;
    stg_progress_init(&model.progress, start->kind, start->in_query, start->may_keep,
                      start->begin, start->begin + CAPACITY, &start->version);
    model.pinned = start->version;
    for (unsigned i = 0; i < n; i++) {
        CHECK(is_again(verdict));
        verdict = run_answer(&model, answers[i], i);
    }
    count->n_runs++;
    if (verdict == STG_VERDICT_GO) {
        check_complete(&model);
        count->n_complete++;
    }
    for (size_t i = 0; is_again(verdict) && n < n_most && i < list->n; i++) {
        answers[n] = &list->at[i];
        run_from(start, list, answers, n + 1, n_most, count);
    }
}

static void run_all(unsigned n_answers, bool all)
{
    static struct list list;
    const struct answer *answers[3];
    make_list(&list, all);
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        struct count count = {0};
        run_from(&starts[i], &list, answers, 0, n_answers, &count);
        fprintf(stderr,
                "    %s: %llu sequences of %u out of %zu answers, %llu complete\n",
                starts[i].name, (unsigned long long)count.n_runs, n_answers, list.n,
                (unsigned long long)count.n_complete);
        CHECK(count.n_complete > 0);
    }
}

static void every_pair_of_answers_gives_one_object_or_an_error(void)
{
    run_all(2, true);
}

static void every_triple_of_answers_gives_one_object_or_an_error(void)
{
    run_all(3, false);
}

static const struct stg_test tests[] = {
    TEST_SLOW(every_pair_of_answers_gives_one_object_or_an_error, 120),
    TEST_SLOW(every_triple_of_answers_gives_one_object_or_an_error, 120),
};
TEST_MAIN(tests)
