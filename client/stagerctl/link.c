/* SPDX-License-Identifier: Apache-2.0
 *
 * A request goes through attach.sock, or with --gate through the gate and with a token.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/endpoint.h"
#include "core/bump.h"
#include "core/param.h"

#define REQUEST_ID_BYTES 16

struct stg_ctl_link {
    struct stager *client; /* attach.sock, or NULL */
    int endpoint;          /* the gate, or -1 */
    const char *url;
    uint64_t last_id;
    unsigned char token[STG_TOKEN_BYTES];
    struct stg_bump bump; /* of the last reply */
    unsigned char buf[STG_MESSAGE_MAX_BYTES];
    char release[64]; /* of the daemon behind the gate, and its pid */
    uint32_t hello_pid;
};

/* ---- the token ---- */

static bool parse_token(const char *text, unsigned char ret[STG_TOKEN_BYTES])
{
    for (size_t i = 0; i < STG_TOKEN_BYTES; i++) {
        int high = stg_hex_digit(text[2 * i]);
        int low = high >= 0 ? stg_hex_digit(text[2 * i + 1]) : -1;
        if (low < 0)
            return false;
        ret[i] = (unsigned char)(high << 4 | low);
    }
    const char *rest = text + 2 * STG_TOKEN_BYTES;
    return rest[strspn(rest, "\r\n ")] == '\0';
}

/* Of --token-file, else of the environment. */
static int find_token(const struct stg_ctl_options *options,
                      unsigned char ret[STG_TOKEN_BYTES], struct stg_err *err)
{
    char text[256] = "";
    const char *from = options->token_file != NULL ? options->token_file : "STAGER_TOKEN";
    if (options->token_file != NULL) {
        FILE *file = fopen(options->token_file, "re");
        if (file == NULL)
            return stg_err(err, -STAGER_NOT_FOUND, "%s: %s", from, strerror(errno));
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
    } else if (getenv("STAGER_TOKEN") != NULL) {
        snprintf(text, sizeof(text), "%s", getenv("STAGER_TOKEN"));
    } else {
        return stg_err(err, -STAGER_UNAUTHENTICATED,
                       "--gate needs a token: `export STAGER_TOKEN=$(stagerctl "
                       "token)`, or --token-file FILE");
    }
    if (!parse_token(text, ret))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s: a token is %d hexadecimal digits, as `stagerctl token` "
                       "prints them",
                       from, 2 * STG_TOKEN_BYTES);
    return 0;
}

/* ---- through the gate ---- */

static int ask_gate(struct stg_ctl_link *link, struct stg_request *request,
                    struct stg_reply *ret, struct stg_err *err)
{
    unsigned char id[REQUEST_ID_BYTES];
    request->id = ++link->last_id;
    request->token = link->token;
    request->token_bytes = sizeof(link->token);
    if (request->kind == STG_REQUEST_APPLY || request->kind == STG_REQUEST_DELETE ||
        request->kind == STG_REQUEST_ROLLBACK) {
        if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
            return stg_err(err, -STAGER_INTERNAL,
                           "cannot get random bytes from the kernel");
        request->request_id = id;
        request->request_id_bytes = sizeof(id);
    }
    long n = stg_wire_encode_request(request, link->buf, sizeof(link->buf));
    if (n < 0)
        return stg_err(err, (int)n,
                       "the request exceeds the limit of %u bytes for a message: if the "
                       "pipeline names many paths, use a pattern or a `listing` file",
                       STG_MESSAGE_MAX_BYTES);
    n = stg_endpoint_ask(link->endpoint, link->buf, (size_t)n, link->buf,
                         sizeof(link->buf), err);
    if (n < 0)
        return (int)n;
    stg_bump_reset(&link->bump);
    int rc = stg_wire_decode_reply(link->buf, (size_t)n, &link->bump, ret, err);
    if (rc == 0 && ret->code != 0)
        rc = stg_err(err, ret->code, "%s", ret->text);
    else if (rc == 0 && (ret->id != request->id || ret->kind != request->kind))
        rc = stg_err(err, -STAGER_INTERNAL, "the gate replied to a different request");
    return rc;
}

static int say_hello(struct stg_ctl_link *link, struct stg_err *err)
{
    struct stg_request request = {.kind = STG_REQUEST_HELLO,
                                  .min_version = STG_PROTOCOL_MIN,
                                  .max_version = STG_PROTOCOL_MAX,
                                  .client = "stagerctl"};
    struct stg_reply reply;
    int rc = ask_gate(link, &request, &reply, err);
    if (rc == 0)
        snprintf(link->release, sizeof(link->release), "%s", reply.daemon);
    link->hello_pid = rc == 0 ? reply.pid : 0;
    return rc;
}

/* ---- either way ---- */

int stg_ctl_open(const struct stg_ctl_options *options, struct stg_ctl_link **ret,
                 struct stg_err *err)
{
    struct stg_ctl_link *link = calloc(1, sizeof(*link));
    if (link == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    link->endpoint = -1;
    link->url = options->gate;
    int rc;
    if (options->gate == NULL) {
        rc = stager_connect(options->runtime_dir, &link->client);
        if (rc < 0)
            stg_err(err, rc, "%s", stager_error_text(NULL));
    } else {
        rc = find_token(options, link->token, err);
        if (rc == 0)
            rc = stg_endpoint_open_admin(options->gate, &link->endpoint, err);
        if (rc == 0)
            rc = say_hello(link, err);
    }
    if (rc == 0)
        *ret = link;
    else
        stg_ctl_hang_up(link);
    return rc;
}

struct stg_ctl_link *stg_ctl_connect(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = NULL;
    struct stg_err err = {0};
    int rc = stg_ctl_open(options, &link, &err);
    if (rc < 0)
        stg_ctl_fail(rc, err.text);
    return link;
}

void stg_ctl_hang_up(struct stg_ctl_link *link)
{
    if (link == NULL)
        return;
    stager_disconnect(link->client);
    stg_endpoint_close(link->endpoint);
    stg_bump_finish(&link->bump);
    free(link);
}

/* ---- interrupts ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = 1;
}

void stg_ctl_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool stg_ctl_interrupted(void)
{
    return interrupted != 0;
}

int stg_ctl_run(const struct stg_ctl_options *options,
                int (*command)(struct stager *client,
                               const struct stg_ctl_options *options))
{
    struct stager *client;
    int rc = stager_connect(options->runtime_dir, &client);
    if (rc < 0)
        return stg_ctl_fail(rc, stager_error_text(NULL));
    stg_ctl_catch_interrupts();
    int status = command(client, options);
    stager_disconnect(client);
    return status;
}

/* ---- requests ---- */

int stg_ctl_call(struct stg_ctl_link *link, struct stg_request *request,
                 struct stg_reply *ret, struct stg_err *err)
{
    return link->client != NULL ? stg_admin_call(link->client, request, ret, err)
                                : ask_gate(link, request, ret, err);
}

int stg_ctl_ask(struct stg_ctl_link *link, struct stg_request *request,
                struct stg_reply *ret)
{
    struct stg_err err = {0};
    int rc = stg_ctl_call(link, request, ret, &err);
    return rc < 0 ? stg_ctl_fail(rc, err.text) : 0;
}

void stg_ctl_daemon(const struct stg_ctl_link *link, struct stg_admin_daemon *ret)
{
    if (link->client != NULL)
        stg_admin_daemon(link->client, ret);
    else
        *ret = (struct stg_admin_daemon){
            .path = link->url, .release = link->release, .pid = link->hello_pid};
}
