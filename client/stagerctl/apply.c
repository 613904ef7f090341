/* SPDX-License-Identifier: Apache-2.0
 *
 * check and apply: the text goes to the daemon, which is the only parser.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"
#include "proto/wire.h"

static int fail_file(const char *file, const char *why, int code)
{
    char message[1024];
    snprintf(message, sizeof(message), "%s: %s", file, why);
    return stg_ctl_fail(code, message);
}

int stg_ctl_read_text(const char *path, struct stg_ctl_text *ret)
{
    bool is_stdin = strcmp(path, "-") == 0;
    ret->file = is_stdin ? "<stdin>" : path;
    FILE *in = is_stdin ? stdin : fopen(path, "re");
    if (in == NULL)
        return fail_file(path, strerror(errno), stg_ctl_file_code(errno));
    ret->bytes = fread(ret->data, 1, sizeof(ret->data), in);
    int number = ferror(in) ? errno : 0;
    if (!is_stdin)
        fclose(in);
    if (number != 0)
        return fail_file(ret->file, strerror(number), stg_ctl_file_code(number));
    if (ret->bytes > STG_TEXT_MAX_BYTES) {
        char why[128];
        snprintf(why, sizeof(why),
                 "a pipeline file has at most %u bytes, this one has more",
                 STG_TEXT_MAX_BYTES);
        return fail_file(ret->file, why, -STAGER_INVALID_ARGUMENT);
    }
    return 0;
}

static void print_json(const struct stg_reply *reply, bool is_applied)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_reply_definition_json(&json, reply, is_applied);
    putchar('\n');
}

/* Says what it is by itself. */
static bool has_word(const char *advice)
{
    return strncmp(advice, "problem: ", strlen("problem: ")) == 0 ||
           strncmp(advice, "smart_stage: ", strlen("smart_stage: ")) == 0;
}

static void print_outcome(const struct stg_reply *reply, bool is_applied)
{
    if (!is_applied)
        printf("%s is a valid pipeline.", reply->name[0] != '\0' ? reply->name : "This");
    else if (reply->restored > 0)
        printf("%s %s: generation %" PRIu64 " has the definition of generation %" PRIu64
               ".",
               reply->unchanged ? "Nothing changed in" : "Rolled back", reply->name,
               reply->generation, reply->restored);
    else if (reply->unchanged)
        printf("%s is unchanged: generation %" PRIu64 " goes on.", reply->name,
               reply->generation);
    else
        printf("Applied %s, generation %" PRIu64 ".", reply->name, reply->generation);
}

static void print_text(const struct stg_reply *reply, bool is_applied)
{
    char batch[32], memory[32];
    print_outcome(reply, is_applied);
    printf(" A batch holds:\n\n");
    stg_ctl_boundary_table(&reply->boundary);
    printf("\n");
    if (reply->max_batch_bytes > 0)
        printf("  at most %s a batch, %s of shared memory in all\n",
               stg_ctl_bytes(reply->max_batch_bytes, batch, sizeof(batch)),
               stg_ctl_bytes(reply->memory_bytes, memory, sizeof(memory)));
    if (!is_applied && reply->reproducible[0] != '\0')
        printf(
            "  reproducible: %s%s\n",
            strcmp(reply->reproducible, "yes") == 0 ? "" : "no: ", reply->reproducible);
    for (size_t i = 0; i < reply->n_advice; i++)
        printf("  %s%s\n",
               has_word(reply->advice[i]) ? "" : "advice: ", reply->advice[i]);
}

void stg_ctl_print_applied(const struct stg_ctl_options *options,
                           const struct stg_reply *reply)
{
    if (options->json)
        print_json(reply, true);
    else
        print_text(reply, true);
}

static int send_text(const struct stg_ctl_options *options, struct stg_request *request)
{
    static struct stg_ctl_text text;
    int status = stg_ctl_read_text(options->argument, &text);
    if (status != 0)
        return status;
    request->text = text.data;
    request->text_bytes = text.bytes;
    request->file = text.file;

    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_reply reply;
    status = stg_ctl_ask(link, request, &reply);
    if (status == 0) {
        bool is_applied = request->kind == STG_REQUEST_APPLY;
        if (options->json)
            print_json(&reply, is_applied);
        else
            print_text(&reply, is_applied);
        status = stg_ctl_finish();
    }
    stg_ctl_hang_up(link);
    return status;
}

int stg_ctl_check(const struct stg_ctl_options *options)
{
    struct stg_request request = {.kind = STG_REQUEST_CHECK};
    return send_text(options, &request);
}

int stg_ctl_apply(const struct stg_ctl_options *options)
{
    struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                  .name = options->name,
                                  .replace = options->replace,
                                  .warm = options->warm,
                                  .has_if_generation = options->has_if_generation,
                                  .if_generation = options->if_generation};
    return send_text(options, &request);
}
