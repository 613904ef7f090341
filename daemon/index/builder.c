/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/index/layout.h"

/* Places go to a temporary file by the piece, so that a builder needs the same memory for
 * every file. */
struct builder {
    struct stg_index_builder index;
    int dir, fd; /* fd -1: nothing is written yet */
    int failed;  /* an errno: the rest is not stored */
    char name[STG_FOLDER_NAME], temporary[STG_FOLDER_NAME];
    char *key;
    struct stg_index_head head;
    unsigned n; /* of places */
    struct stg_index_place places[STG_INDEX_PIECE];
};

struct stg_index_builder *stg_index_build(const struct stg_index_key *key)
{
    int dir = stg_folder_take(&stg_index_folder);
    if (dir < 0)
        return NULL;
    size_t key_bytes = 0;
    struct builder *builder = malloc(sizeof(*builder));
    char *text = builder != NULL ? stg_index_key_text(key, &key_bytes) : NULL;
    if (text == NULL) {
        free(builder);
        close(dir);
        return NULL;
    }
    memset(builder, 0, offsetof(struct builder, places));
    builder->dir = dir;
    builder->fd = -1;
    builder->key = text;
    builder->head = (struct stg_index_head){.version = STG_INDEX_VERSION,
                                            .key_bytes = (uint32_t)key_bytes,
                                            .file_version = key->version,
                                            .file_bytes = key->bytes};
    memcpy(builder->head.magic, STG_INDEX_MAGIC, sizeof(builder->head.magic));
    stg_folder_name(text, key_bytes, builder->name);
    return &builder->index;
}

static void write_at(struct builder *builder, uint64_t at, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0 && builder->failed == 0) {
        ssize_t n = pwrite(builder->fd, from, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        builder->failed = n < 0 ? errno : 0;
        from += n > 0 ? n : 0;
        at += n > 0 ? (uint64_t)n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
}

static void open_temporary(struct builder *builder)
{
    if (builder->fd >= 0 || builder->failed != 0)
        return;
    stg_folder_temporary(builder->temporary);
    builder->fd = openat(builder->dir, builder->temporary,
                         O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    builder->failed = builder->fd < 0 ? errno : 0;
}

static void flush(struct builder *builder)
{
    struct stg_index_head *head = &builder->head;
    size_t bytes = builder->n * sizeof(builder->places[0]);
    uint64_t at = stg_index_places_at(head->key_bytes) +
                  head->n_places * sizeof(builder->places[0]);
    if (builder->n == 0)
        return;
    open_temporary(builder);
    head->places_sum = stg_fingerprint64_join(head->places_sum, builder->places, bytes);
    write_at(builder, at, builder->places, bytes);
    head->n_places += builder->n;
    builder->n = 0;
}

void stg_index_note(struct stg_index_builder *index, const struct stg_index_place *place)
{
    struct builder *builder = (struct builder *)index;
    index->next = place->offset + STG_INDEX_SPACING;
    builder->places[builder->n++] = *place;
    if (builder->n == STG_INDEX_PIECE)
        flush(builder);
}

void stg_index_abandon(struct stg_index_builder *index)
{
    struct builder *builder = (struct builder *)index;
    if (builder == NULL)
        return;
    if (builder->fd >= 0) {
        close(builder->fd);
        unlinkat(builder->dir, builder->temporary, 0);
    }
    close(builder->dir);
    free(builder->key);
    free(builder);
}

/* One line for the process: each file would have the same. */
static void say_failed(const struct builder *builder)
{
    static atomic_bool said;
    char shown[512];
    if (!atomic_exchange(&said, true))
        stg_log(STG_LOG_WARNING,
                "cannot store the record index of %s: %s; a pass that continues in the "
                "middle reads such files from the start (see index_size in stagerd.yaml, "
                "and the free space of state_dir)",
                stg_index_shown(builder->key, shown, sizeof(shown)),
                strerror(builder->failed));
}

bool stg_index_commit(struct stg_index_builder *index,
                      const struct stg_index_totals *totals, uint64_t *ret_bytes)
{
    struct builder *builder = (struct builder *)index;
    struct stg_index_head *head = &builder->head;
    flush(builder);
    uint64_t places_at = stg_index_places_at(head->key_bytes);
    uint64_t bytes = places_at + head->n_places * sizeof(struct stg_index_place);
    open_temporary(builder);
    head->totals = *totals;
    head->sum = stg_index_head_sum(head);
    write_at(builder, sizeof(*head), builder->key, places_at - sizeof(*head));
    write_at(builder, 0, head, sizeof(*head));
    if (builder->failed == 0 && !stg_folder_reserve(&stg_index_folder, bytes))
        builder->failed = EFBIG;
    if (builder->failed == 0 &&
        renameat(builder->dir, builder->temporary, builder->dir, builder->name) < 0)
        builder->failed = errno;
    bool stored = builder->failed == 0;
    if (stored) {
        close(builder->fd);
        builder->fd = -1;
    } else {
        say_failed(builder);
    }
    if (ret_bytes != NULL)
        *ret_bytes = stored ? bytes : 0;
    stg_index_abandon(index);
    return stored;
}
