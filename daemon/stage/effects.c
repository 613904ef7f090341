/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/effects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/priv.h"

void stg_stage_ring(struct stg_stage *stage, struct stg_client *client)
{
    client->rings = true;
    stage->effects.doorbells = true;
}

void stg_stage_disconnect(struct stg_stage *stage, struct stg_client *client)
{
    client->disconnects = true;
    stage->effects.doorbells = true;
}

void stg_stage_free_client(struct stg_stage *stage, struct stg_client *client)
{
    client->next = stage->effects.dead;
    stage->effects.dead = client;
}

void stg_stage_log(struct stg_stage *stage, enum stg_log_level level, const char *fmt,
                   ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    size_t bytes = strlen(text) + 1;
    struct stg_line *line = malloc(sizeof(*line) + bytes);
    if (line == NULL) {
        stage->effects.n_no_line++;
        return;
    }
    line->before = stage->effects.line;
    line->level = level;
    memcpy(line->text, text, bytes);
    stage->effects.line = line;
}
