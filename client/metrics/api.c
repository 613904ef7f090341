/* SPDX-License-Identifier: Apache-2.0 */
#include "client/metrics/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/metrics/board.h"
#include "client/stagerctl/reply.h"
#include "client/transport/connect.h"
#include "core/status.h"

/* A little less than the second after which a viewer asks again. */
#define FRESH_NS 900000000
#define NAME_BYTES 65
#define SCHEMA_VERSION 1

enum { OK = 200, BAD_REQUEST = 400, NOT_FOUND = 404, UNAVAILABLE = 503 };

struct text {
    char *data; /* NULL: none */
    size_t bytes;
    unsigned status;
    int64_t at_ns;
};

/* A pipeline that is looked at. */
struct slot {
    char name[NAME_BYTES]; /* "": none */
    struct text text;
};

struct stg_api {
    struct stg_scrape *scrape;
    struct stg_board *board;
    int64_t added_ns; /* the text that the board has */
    int64_t next_ns;  /* when stg_api_run asks again */
    struct text last; /* an answer that is not for all */
    struct slot slots[STG_API_PIPELINES];
};

/* ---- texts ---- */

static struct stg_api_answer answer(const struct text *text)
{
    static const char failed[] =
        "{\"schema_version\": 1, \"error\": {\"code\": \"RESOURCE_EXHAUSTED\", "
        "\"text\": \"stager-metrics is out of memory\"}}\n";
    if (text->data == NULL)
        return (struct stg_api_answer){UNAVAILABLE, failed, sizeof(failed) - 1};
    return (struct stg_api_answer){text->status, text->data, text->bytes};
}

/* The writer of a text, which replaces the one that was there. */
static bool begin(struct text *text, struct stg_json_writer *ret)
{
    free(text->data);
    *text = (struct text){.status = OK};
    *ret = (struct stg_json_writer){.out = open_memstream(&text->data, &text->bytes),
                                    .schema_version = SCHEMA_VERSION};
    if (ret->out != NULL)
        stg_json_object_begin(ret);
    return ret->out != NULL;
}

static void end(struct text *text, struct stg_json_writer *json)
{
    stg_json_object_end(json);
    fputc('\n', json->out);
    if (fclose(json->out) == 0)
        return;
    free(text->data);
    text->data = NULL;
}

static void write_error(struct text *text, unsigned status, const struct stg_err *err)
{
    struct stg_json_writer json;
    if (!begin(text, &json))
        return;
    text->status = status;
    stg_json_key(&json, "error");
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "code", stg_status_name(err->code));
    stg_json_put_string(&json, "text", err->text);
    stg_json_object_end(&json);
    end(text, &json);
}

static struct stg_api_answer fail(struct stg_api *api, unsigned status,
                                  const struct stg_err *err)
{
    write_error(&api->last, status, err);
    return answer(&api->last);
}

/* ---- all pipelines ---- */

static int renew_board(struct stg_api *api, struct stg_err *err)
{
    const struct stg_scrape_text *text;
    int rc = stg_scrape_get(api->scrape, false, FRESH_NS, &text, err);
    if (rc == 0 && text->at_ns != api->added_ns) {
        stg_board_add(api->board, text->text, text->bytes, text->at_ns);
        api->added_ns = text->at_ns;
    }
    return rc;
}

struct stg_api_answer stg_api_status(struct stg_api *api)
{
    struct stg_err err = {0};
    struct stg_json_writer json;
    struct stg_origin *origin = api->scrape->origin;
    if (renew_board(api, &err) < 0)
        return fail(api, UNAVAILABLE, &err);
    if (begin(&api->last, &json)) {
        stg_json_key(&json, "daemon");
        stg_json_object_begin(&json);
        stg_json_put_string(&json, "release", origin->release);
        stg_json_put_uint(&json, "pid", origin->pid);
        stg_json_object_end(&json);
        stg_board_put_status(api->board, &json);
        end(&api->last, &json);
    }
    return answer(&api->last);
}

/* ---- one pipeline ---- */

static int ask(const struct stg_origin *origin, struct stager *client,
               enum stg_request_kind kind, const char *name, struct stg_reply *ret,
               struct stg_err *err)
{
    struct stg_request request = {.kind = kind, .name = name};
    return stg_client_call(client, &request, stg_origin_left_ns(origin), ret, NULL, 0,
                           NULL, err);
}

/* A reply lives until the next request. */
static int write_both(const struct stg_origin *origin, struct stager *client,
                      const char *name, struct text *text, struct stg_err *err)
{
    struct stg_reply reply;
    struct stg_json_writer json;
    int rc = ask(origin, client, STG_REQUEST_STATUS, name, &reply, err);
    if (rc < 0)
        return rc;
    if (!begin(text, &json))
        return 0;
    stg_json_put_float(&json, "at_seconds", (double)stg_clock_ns() / 1e9);
    stg_json_key(&json, "status");
    stg_reply_status_json(&json, &reply.status);
    rc = ask(origin, client, STG_REQUEST_EXPLAIN, name, &reply, err);
    if (rc == 0) {
        stg_json_key(&json, "explain");
        stg_reply_explain_json(&json, &reply.explain);
    }
    end(text, &json);
    return rc;
}

/* An error that stagerd answered with is that of this pipeline. */
static void renew(struct stg_api *api, struct slot *slot)
{
    struct stg_err err = {0};
    struct stg_origin *origin = api->scrape->origin;
    struct stager *client;
    int rc = stg_origin_begin(origin, &client, &err);
    if (rc == 0)
        rc = write_both(origin, client, slot->name, &slot->text, &err);
    bool is_answered = client != NULL && client->is_answered;
    if (rc < 0)
        write_error(&slot->text, rc == -STAGER_NOT_FOUND ? NOT_FOUND : UNAVAILABLE, &err);
    stg_origin_end(origin, client, is_answered ? 0 : rc, &err);
    slot->text.at_ns = stg_clock_ns();
}

/* The slot of that name, else the oldest. */
static struct slot *find(struct stg_api *api, const char *name)
{
    struct slot *ret = &api->slots[0];
    for (size_t i = 0; i < STG_API_PIPELINES; i++) {
        struct slot *slot = &api->slots[i];
        if (strcmp(slot->name, name) == 0)
            return slot;
        if (slot->text.at_ns < ret->text.at_ns)
            ret = slot;
    }
    return ret;
}

static bool is_name(const char *name)
{
    return name != NULL && name[0] != '\0' && strlen(name) < NAME_BYTES;
}

static struct stg_api_answer refuse_name(struct stg_api *api)
{
    struct stg_err err;
    stg_err(&err, -STAGER_INVALID_ARGUMENT,
            "the request names no pipeline (add ?name=NAME)");
    return fail(api, BAD_REQUEST, &err);
}

struct stg_api_answer stg_api_pipeline(struct stg_api *api, const char *name)
{
    struct stg_err err;
    if (!is_name(name))
        return refuse_name(api);
    struct slot *slot = find(api, name);
    bool is_its_own = strcmp(slot->name, name) == 0;
    bool is_fresh = slot->text.at_ns != 0 && stg_clock_ns() - slot->text.at_ns < FRESH_NS;
    if (is_fresh && !is_its_own) {
        stg_err(&err, -STAGER_RESOURCE_EXHAUSTED,
                "more than %d pipelines are looked at in this second (try again)",
                STG_API_PIPELINES);
        return fail(api, UNAVAILABLE, &err);
    }
    if (!is_fresh) {
        snprintf(slot->name, sizeof(slot->name), "%s", name);
        renew(api, slot);
    }
    return answer(&slot->text);
}

/* ---- history ---- */

struct stg_api_answer stg_api_history(struct stg_api *api, const char *name)
{
    struct stg_err err;
    struct stg_json_writer json;
    if (!is_name(name))
        return refuse_name(api);
    if (!begin(&api->last, &json))
        return answer(&api->last);
    bool is_there = stg_board_put_history(api->board, name, stg_clock_ns(), &json);
    end(&api->last, &json);
    if (is_there)
        return answer(&api->last);
    stg_err(&err, -STAGER_NOT_FOUND, "nothing was measured of pipeline \"%s\"", name);
    return fail(api, NOT_FOUND, &err);
}

/* The next step; while stagerd is away, a step later. */
int stg_api_run(struct stg_api *api)
{
    struct stg_err err;
    if (api->next_ns <= stg_clock_ns()) {
        bool is_good = renew_board(api, &err) == 0;
        int64_t now_ns = stg_clock_ns(), due_ns = stg_board_due_ns(api->board);
        api->next_ns = !is_good          ? now_ns + STG_BOARD_STEP_NS
                       : due_ns > now_ns ? due_ns
                                         : now_ns + FRESH_NS;
    }
    int64_t left_ns = api->next_ns - stg_clock_ns();
    return left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0;
}

/* ---- life ---- */

struct stg_api *stg_api_create(struct stg_scrape *scrape)
{
    struct stg_api *api = calloc(1, sizeof(*api));
    if (api == NULL)
        return NULL;
    api->scrape = scrape;
    api->board = stg_board_create();
    if (api->board != NULL)
        return api;
    free(api);
    return NULL;
}

void stg_api_destroy(struct stg_api *api)
{
    if (api == NULL)
        return;
    for (size_t i = 0; i < STG_API_PIPELINES; i++)
        free(api->slots[i].text.data);
    free(api->last.data);
    stg_board_destroy(api->board);
    free(api);
}
