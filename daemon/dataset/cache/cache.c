/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "daemon/dataset/block.h"
#include "daemon/dataset/cache/cache_file.h"
#include "daemon/dataset/content.h"
#include "daemon/dataset/step.h"

#define PULL_RECORDS 1024 /* asked of the input at once, at most */

/* With a filename, where the elements of this epoch come from. */
enum from {
    UNDECIDED,
    THE_FILE,
    THE_INPUT,     /* and into the file */
    THE_INPUT_ONLY /* another dataset writes the file, or there was an error */
};

struct cache {
    struct stg_iter iter;
    const char *filename; /* NULL: in memory */
    char *path;           /* of the entry; NULL: not known yet */
    struct stg_cache_key key;
    int64_t pull; /* asked of the input next */
    bool ended;   /* of the input; with a filename, of this epoch */
    /* In memory: what the input has yielded so far. It is never rewound. */
    struct stg_block **blocks; /* its own, or those of `shared` */
    size_t n_blocks, size, at_block;
    bool looked;    /* whether the container has it */
    bool may_share; /* what it keeps is what `content` says */
    struct stg_content content;
    struct stg_shared *shared; /* of the container; NULL: blocks are its own */
    int64_t at;                /* record of blocks[at_block], or of block */
    /* In a file. */
    enum from from;
    bool input_used;         /* since it was rewound */
    bool said;               /* that an error keeps the file from being written */
    struct stg_block *block; /* handed out from record `at` on */
    struct stg_cache_reader *reader;
    struct stg_cache_writer *writer;
    uint64_t n_filled, n_all; /* in this epoch of the input; n_all 0: unknown */
};

static int cache_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    const char *filename = stg_attr_string(step->attrs, step->n_attrs, "filename", NULL);
    size_t n = filename != NULL ? strlen(filename) : 0;
    if (filename != NULL && (filename[0] != '/' || filename[n - 1] == '/'))
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "filename is %s; write the absolute path of a file",
                            filename);
    *ret = *in;
    return 0;
}

/* More at once from time to time: a consumer of the first few does not wait for more. */
static int64_t next_pull(struct cache *cache, int64_t want)
{
    int64_t pull = cache->pull > want ? cache->pull : want;
    if (cache->pull < PULL_RECORDS)
        cache->pull *= 2;
    return pull > STG_BLOCK_MAX_RECORDS ? STG_BLOCK_MAX_RECORDS : pull;
}

/* ---- in memory ---- */

static int grow(struct cache *cache, struct stg_err *err)
{
    struct stg_quota *quota = cache->iter.dataset->quota;
    size_t size = cache->size > 0 ? 2 * cache->size : 64;
    uint64_t more = (size - cache->size) * sizeof(struct stg_block *);
    int rc = stg_quota_take(quota, more, "the list of what is cached", err);
    if (rc < 0)
        return rc;
    struct stg_block **blocks = realloc(cache->blocks, size * sizeof(blocks[0]));
    if (blocks == NULL) {
        stg_quota_give(quota, more);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    cache->blocks = blocks;
    cache->size = size;
    return 0;
}

/* A copy of its own: a view would keep the whole chunk. Takes the block. */
static int keep(struct cache *cache, struct stg_block *block, struct stg_err *err)
{
    struct stg_block *copy = block;
    int rc = cache->n_blocks == cache->size ? grow(cache, err) : 0;
    if (rc == 0 && block->error.code == 0)
        rc = stg_block_gather(cache->iter.dataset->quota, &block, 1, "what is cached",
                              &copy, err);
    if (rc < 0 || copy != block)
        stg_block_unref(block);
    if (rc == 0)
        cache->blocks[cache->n_blocks++] = copy;
    return rc;
}

static int too_large(struct cache *cache, int rc, struct stg_err *err)
{
    if (rc == -STAGER_RESOURCE_EXHAUSTED && err != NULL) {
        const struct stg_quota *quota = cache->iter.dataset->quota;
        uint64_t used = stg_quota_used(quota), limit = stg_quota_limit(quota);
        stg_err(err, rc,
                "the cached elements take %" PRIu64 " of the %" PRIu64
                " bytes that the dataset's buffers may take: give `cache` a filename, so "
                "that it needs no memory, or, for twice as much, ",
                used, limit);
        stg_quota_advise(quota, 2 * limit + limit / 4, 0, err);
    }
    return stg_step_prefix(cache->iter.step, rc, err);
}

/* ---- in a container ---- */

static void show(struct cache *cache, struct stg_shared *shared)
{
    cache->shared = shared;
    cache->blocks = shared->blocks;
    cache->n_blocks = shared->n_blocks;
    cache->size = 0;
    cache->ended = true;
}

static int look(struct cache *cache, struct stg_err *err)
{
    struct stg_container *container = cache->iter.dataset->env.container;
    cache->looked = true;
    if (container == NULL)
        return 0;
    int rc = stg_content_of(&cache->iter, &cache->content, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cache->may_share = true;
    struct stg_shared *shared = stg_container_find(container, &cache->content);
    if (shared != NULL)
        show(cache, shared);
    return 0;
}

/* Blocks that are its own, and the list of them. */
static void drop_own(struct cache *cache)
{
    for (size_t i = 0; i < cache->n_blocks; i++)
        stg_block_unref(cache->blocks[i]);
}

static void free_list(struct cache *cache)
{
    stg_quota_give(cache->iter.dataset->quota, cache->size * sizeof(struct stg_block *));
    free(cache->blocks);
}

/* The input has ended: all of it is there, and has been emitted. Did a file change
 * meanwhile, or is the memory not there, the blocks remain its own. */
static int give_to_container(struct cache *cache, struct stg_err *err)
{
    struct stg_content now;
    int rc = stg_content_of(&cache->iter, &now, err);
    if (rc < 0)
        return rc;
    if (rc == 1 || memcmp(&now, &cache->content, sizeof(now)) != 0)
        return 0;
    struct stg_shared *shared;
    struct stg_err why = {0};
    rc = stg_container_keep(cache->iter.dataset->env.container, &now, cache->blocks,
                            cache->n_blocks, &shared, &why);
    if (rc < 0) {
        stg_log(STG_LOG_WARNING, "step cache (line %d) is not shared: %.300s",
                cache->iter.step->line, why.text);
        return 0;
    }
    if (rc == 0)
        drop_own(cache);
    free_list(cache);
    show(cache, shared);
    cache->at_block = cache->n_blocks;
    return 0;
}

/* ---- emitting ---- */

/* What is kept stays as it is: what is emitted is a view or a copy of it. */
static int emit(struct cache *cache, int64_t want, struct stg_block **ret,
                struct stg_err *err)
{
    struct stg_quota *quota = cache->iter.dataset->quota;
    struct stg_block *block = cache->blocks[cache->at_block];
    int64_t n = block->n_records - cache->at;
    n = n > want ? want : n;
    int rc = block->error.code != 0
                 ? stg_block_create_error(quota, &block->error, block->epoch, ret, err)
                 : stg_block_slice(quota, block, cache->at, n, ret, err);
    if (rc < 0)
        return too_large(cache, rc, err);
    cache->at += n;
    if (cache->at == block->n_records) {
        cache->at_block++;
        cache->at = 0;
    }
    return 0;
}

/* The input has yielded a block; NULL: it has ended. */
static void show_progress(struct cache *cache, const struct stg_block *block)
{
    uint64_t left;
    if (block == NULL) {
        cache->n_filled = 0;
        stg_iter_progressed(&cache->iter);
        return;
    }
    cache->n_filled += (uint64_t)block->n_records;
    if (cache->n_filled == (uint64_t)block->n_records)
        cache->n_all = stg_iter_left(cache->iter.input, UINT64_MAX, &left)
                           ? cache->n_filled + left
                           : 0;
    stg_iter_progress(&cache->iter, "elements", cache->n_filled, cache->n_all);
}

/* The next block of the input is kept. An error item is not what others have to see. */
static int pull_and_keep(struct cache *cache, int64_t want, struct stg_err *err)
{
    struct stg_iter *input = cache->iter.input;
    struct stg_block *block;
    int rc = stg_iter_next(input, next_pull(cache, want), &block, err);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        cache->may_share &= block->error.code == 0;
        show_progress(cache, block);
        rc = keep(cache, block, err);
        return rc < 0 ? too_large(cache, rc, err) : 0;
    }
    cache->ended = true;
    show_progress(cache, NULL);
    rc = cache->may_share ? give_to_container(cache, err) : 0;
    return rc < 0 ? stg_step_prefix(cache->iter.step, rc, err) : 0;
}

static int next_in_memory(struct cache *cache, int64_t want, struct stg_block **ret,
                          struct stg_err *err)
{
    int rc = cache->looked ? 0 : look(cache, err);
    if (rc < 0)
        return stg_step_prefix(cache->iter.step, rc, err);
    if (cache->at_block == cache->n_blocks && !cache->ended) {
        rc = pull_and_keep(cache, want, err);
        if (rc < 0)
            return rc;
    }
    if (cache->at_block == cache->n_blocks)
        return 1;
    return emit(cache, want, ret, err);
}

/* ---- in a file ---- */

static int find_key(const struct cache *cache, struct stg_cache_key *ret,
                    struct stg_err *err)
{
    struct stg_content content;
    int rc = stg_content_lasting(cache->iter.input, &content, err);
    if (rc < 0)
        return rc;
    *ret = (struct stg_cache_key){.steps = content.steps,
                                  .files = content.files,
                                  .uid = (uint32_t)cache->iter.dataset->identity.uid};
    return 0;
}

static int find_path(struct cache *cache, struct stg_err *err)
{
    int rc = find_key(cache, &cache->key, err);
    if (rc < 0)
        return rc;
    cache->path = stg_cache_path(cache->filename, &cache->key);
    return cache->path != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

/* The file if it is there, else the input, and into the file. Each epoch of the input is
 * the first one, as in the file that another dataset may write meanwhile. */
static int decide(struct cache *cache, struct stg_err *err)
{
    struct stg_iter *input = cache->iter.input;
    const struct stg_file_user *identity = &cache->iter.dataset->identity;
    int rc = cache->path == NULL ? find_path(cache, err) : 0;
    if (rc == 0)
        rc = stg_cache_open(cache->path, identity, &cache->key, &cache->reader, err);
    if (rc == 0)
        cache->from = THE_FILE;
    if (rc <= 0)
        return rc;
    rc = stg_cache_create(cache->path, identity, &cache->key, &cache->writer, err);
    if (rc < 0)
        return rc;
    cache->from = rc == 0 ? THE_INPUT : THE_INPUT_ONLY;
    rc = cache->input_used ? input->impl->rewind(input, true, err) : 0;
    cache->input_used = true;
    return rc;
}

/* An epoch with an error item is not what the next one has to be. */
static void leave_file(struct cache *cache, const struct stg_err *bad)
{
    stg_cache_abandon(cache->writer);
    cache->writer = NULL;
    cache->from = THE_INPUT_ONLY;
    show_progress(cache, NULL);
    if (!cache->said)
        stg_log(STG_LOG_WARNING,
                "step cache (line %d): %s is not written, because the pass has an error "
                "item; put `ignore_errors` before it. The error: %.300s",
                cache->iter.step->line, cache->path, bad->text);
    cache->said = true;
}

static int write_block(struct cache *cache, struct stg_block *block, struct stg_err *err)
{
    struct stg_block *compact;
    int rc = stg_block_gather(cache->iter.dataset->quota, &block, 1, "what is cached",
                              &compact, err);
    if (rc < 0)
        return rc;
    rc = stg_cache_write(cache->writer, compact, err);
    stg_block_unref(compact);
    return rc;
}

/* Not if a file changed meanwhile: the entry would not be what its key says. */
static int commit(struct cache *cache, struct stg_err *err)
{
    struct stg_cache_writer *writer = cache->writer;
    struct stg_cache_key now;
    int rc = find_key(cache, &now, err);
    cache->writer = NULL;
    if (rc == 0 && memcmp(&now, &cache->key, sizeof(now)) == 0)
        return stg_cache_commit(writer, err);
    stg_cache_abandon(writer);
    if (rc == 0)
        stg_log(STG_LOG_WARNING,
                "step cache (line %d): %s is not written, because files changed while "
                "they were read",
                cache->iter.step->line, cache->path);
    return rc;
}

/* The next block of the input, in `block`, and in the file. 1: it has ended. */
static int pull(struct cache *cache, int64_t want, struct stg_err *err)
{
    struct stg_iter *input = cache->iter.input;
    struct stg_block *block;
    int rc = stg_iter_next(input, next_pull(cache, want), &block, err);
    if (rc < 0)
        return rc;
    if (cache->from == THE_INPUT)
        show_progress(cache, rc == 0 ? block : NULL);
    if (rc == 1) {
        rc = cache->from == THE_INPUT ? commit(cache, err) : 0;
        return rc < 0 ? stg_step_prefix(cache->iter.step, rc, err) : 1;
    }
    if (cache->from == THE_INPUT && block->error.code != 0)
        leave_file(cache, &block->error);
    if (cache->from == THE_INPUT)
        rc = write_block(cache, block, err);
    if (rc < 0) {
        stg_block_unref(block);
        return stg_step_prefix(cache->iter.step, rc, err);
    }
    cache->block = block;
    return 0;
}

static int read_file(struct cache *cache, struct stg_err *err)
{
    int rc = stg_cache_read(cache->reader, cache->iter.dataset->quota, cache->iter.schema,
                            &cache->block, err);
    return rc < 0 ? stg_step_prefix(cache->iter.step, rc, err) : rc;
}

static int next_of_file(struct cache *cache, int64_t want, struct stg_block **ret,
                        struct stg_err *err)
{
    if (cache->from == UNDECIDED) {
        int rc = decide(cache, err);
        if (rc < 0)
            return stg_step_prefix(cache->iter.step, rc, err);
    }
    if (cache->block == NULL && !cache->ended) {
        int rc = cache->from == THE_FILE ? read_file(cache, err) : pull(cache, want, err);
        if (rc < 0)
            return rc;
        cache->ended = rc == 1;
    }
    if (cache->ended)
        return 1;
    int rc = stg_block_divide(cache->iter.dataset->quota, &cache->block, &cache->at, want,
                              ret, err);
    return rc < 0 ? stg_step_prefix(cache->iter.step, rc, err) : 0;
}

/* ---- the iterator ---- */

static int cache_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct cache *cache = (struct cache *)iter;
    int rc = stg_iter_stopped(iter, err);
    if (rc < 0)
        return rc;
    return cache->filename != NULL ? next_of_file(cache, want, ret, err)
                                   : next_in_memory(cache, want, ret, err);
}

static void forget(struct cache *cache)
{
    stg_block_unref(cache->block);
    cache->block = NULL;
    stg_cache_close(cache->reader);
    cache->reader = NULL;
    stg_cache_abandon(cache->writer);
    cache->writer = NULL;
    cache->at = 0;
}

/* The input is rewound when something is to come from it. */
static int cache_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct cache *cache = (struct cache *)iter;
    forget(cache);
    cache->at_block = 0;
    cache->from = UNDECIDED;
    if (cache->filename != NULL)
        cache->ended = false;
    return 0;
}

static void cache_destroy(struct stg_iter *iter)
{
    struct cache *cache = (struct cache *)iter;
    forget(cache);
    if (cache->shared != NULL) {
        stg_shared_unref(cache->shared);
    } else {
        drop_own(cache);
        free_list(cache);
    }
    free(cache->path);
    free(cache);
}

/* ---- moving forward ---- */

/* Past n records at most of the next block. Returns how many. */
static uint64_t pass(struct cache *cache, uint64_t n)
{
    const struct stg_block *block = cache->blocks[cache->at_block];
    uint64_t left = (uint64_t)(block->n_records - cache->at);
    if (left <= n) {
        cache->at_block++;
        cache->at = 0;
        return block->error.code != 0 ? 1 : left;
    }
    cache->at += (int64_t)n;
    return n;
}

/* What is not kept yet has to be made: the next iteration needs it. */
static int skip_in_memory(struct cache *cache, uint64_t n, uint64_t *ret,
                          struct stg_err *err)
{
    int rc = cache->looked ? 0 : look(cache, err);
    if (rc < 0)
        return stg_step_prefix(cache->iter.step, rc, err);
    while (*ret < n) {
        rc = stg_iter_stopped(&cache->iter, err);
        if (rc == 0 && cache->at_block == cache->n_blocks && !cache->ended)
            rc = pull_and_keep(cache, 1, err);
        if (rc < 0)
            return rc;
        if (cache->at_block == cache->n_blocks)
            return 0;
        *ret += pass(cache, n - *ret);
    }
    return 0;
}

static int cache_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                      struct stg_err *err)
{
    struct cache *cache = (struct cache *)iter;
    *ret = 0;
    return cache->filename != NULL ? stg_iter_replay(iter, n, ret, err)
                                   : skip_in_memory(cache, n, ret, err);
}

static bool cache_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct cache *cache = (struct cache *)iter;
    if (cache->filename != NULL || !cache->ended)
        return false;
    *ret = 0;
    for (size_t i = cache->at_block; i < cache->n_blocks; i++)
        *ret += (uint64_t)cache->blocks[i]->n_records;
    *ret -= (uint64_t)cache->at;
    return true;
}

static const struct stg_iter_impl cache_impl = {
    .next = cache_next,
    .rewind = cache_rewind,
    .destroy = cache_destroy,
    .skip = cache_skip,
    .left = cache_left,
};

static int cache_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct cache *cache =
        stg_iter_create(sizeof(*cache), &cache_impl, dataset, step, schema, input, err);
    if (cache == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    cache->filename = stg_attr_string(step->attrs, step->n_attrs, "filename", NULL);
    cache->pull = 1;
    *ret = &cache->iter;
    return 0;
}

/* What it stores is for pipelines with other graphs, too. */
const struct stg_transformation stg_cache = {
    .name = "cache", .infer = cache_infer, .create = cache_create, .takes_all = true};
