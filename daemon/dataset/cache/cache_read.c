/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/cache/cache_layout.h"
#include "daemon/storage/local/access.h"

struct stg_cache_reader {
    int fd;
    uint64_t at, end; /* of the next block, and of the tail */
    uint64_t n_left;  /* blocks */
    char path[];
};

static int damaged(const struct stg_cache_reader *reader, const char *what,
                   struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS,
                   "%s: the cache is damaged at offset %" PRIu64
                   " (%s): delete the file; stagerd writes it again",
                   reader->path, reader->at, what);
}

/* Whole, or not at all. */
static int read_at(const struct stg_cache_reader *reader, uint64_t offset, void *buf,
                   uint64_t bytes, struct stg_err *err)
{
    char *to = buf;
    while (bytes > 0) {
        ssize_t n = pread(reader->fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return stg_err(err, stg_access_errno(errno),
                           "%s: cannot be read at offset %" PRIu64 ": %s", reader->path,
                           offset, strerror(errno));
        if (n == 0)
            return damaged(reader, "it is truncated", err);
        to += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

/* ---- opening ---- */

static int refuse(const struct stg_cache_reader *reader, const char *what,
                  struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "%s is the cache of %s: choose another filename, or delete the file; "
                   "stagerd writes it again",
                   reader->path, what);
}

static int check_head(const struct stg_cache_reader *reader, uint64_t size,
                      const struct stg_cache_key *key, struct stg_err *err)
{
    struct stg_cache_head head = {.magic = ""};
    int rc = size >= sizeof(head) ? read_at(reader, 0, &head, sizeof(head), err) : 0;
    if (rc < 0)
        return rc;
    if (memcmp(head.magic, STG_CACHE_MAGIC, sizeof(head.magic)) != 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s is not a cache of stager, and stagerd leaves it unchanged: "
                       "choose another filename",
                       reader->path);
    if (head.version != STG_CACHE_VERSION)
        return refuse(reader, "another version of stager", err);
    if (head.sum !=
        stg_fingerprint64_join(0, &head, offsetof(struct stg_cache_head, sum)))
        return damaged(reader, "its head", err);
    if (memcmp(&head.key, key, sizeof(*key)) != 0)
        return refuse(reader, "other steps, other files or another user", err);
    return 0;
}

static int check_tail(struct stg_cache_reader *reader, uint64_t size, struct stg_err *err)
{
    struct stg_cache_tail tail;
    reader->at = size < sizeof(tail) ? 0 : size - sizeof(tail);
    if (size < sizeof(struct stg_cache_head) + sizeof(tail))
        return damaged(reader, "it is truncated", err);
    int rc = read_at(reader, reader->at, &tail, sizeof(tail), err);
    if (rc < 0)
        return rc;
    if (memcmp(tail.magic, STG_CACHE_TAIL_MAGIC, sizeof(tail.magic)) != 0 ||
        tail.sum !=
            stg_fingerprint64_join(0, &tail, offsetof(struct stg_cache_tail, sum)) ||
        tail.bytes != reader->at)
        return damaged(reader, "its end is missing", err);
    reader->end = reader->at;
    reader->n_left = tail.n_blocks;
    reader->at = sizeof(struct stg_cache_head);
    return 0;
}

/* The folder as the applier, then the file, which must be the daemon's own. 1: none. */
static int open_file(struct stg_cache_reader *reader,
                     const struct stg_file_user *identity, struct stat *ret,
                     struct stg_err *err)
{
    struct stat st;
    int dir;
    char *slash = strrchr(reader->path, '/');
    *slash = '\0';
    const char *folder = slash == reader->path ? "/" : reader->path;
    int rc = stg_access_walk(-1, folder, folder, identity, &dir, &st, err);
    *slash = '/';
    if (rc < 0)
        return rc;
    reader->fd = openat(dir, slash + 1, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    int error = errno;
    close(dir);
    if (reader->fd < 0 && error == ENOENT)
        return 1;
    if (reader->fd < 0 || fstat(reader->fd, ret) < 0)
        return stg_err(err, stg_access_errno(error), "cannot open the cache %s: %s",
                       reader->path, strerror(error));
    if (S_ISREG(ret->st_mode) && ret->st_uid == geteuid())
        return 0;
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "%s is not a regular file of stagerd's user, and stagerd leaves it "
                   "unchanged: choose another filename",
                   reader->path);
}

/* `stagerctl cache list` shows when an entry was last read; a mount may not note it. */
static void note_use(const struct stg_cache_reader *reader)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    futimens(reader->fd, times);
}

char *stg_cache_path(const char *filename, const struct stg_cache_key *key)
{
    static const uint64_t hash_key[2] = {1, 2};
    size_t bytes = strlen(filename) + 18;
    char *ret = malloc(bytes);
    if (ret != NULL)
        snprintf(ret, bytes, "%s.%016" PRIx64, filename,
                 stg_siphash(hash_key, key, sizeof(*key)));
    return ret;
}

int stg_cache_open(const char *path, const struct stg_file_user *identity,
                   const struct stg_cache_key *key, struct stg_cache_reader **ret,
                   struct stg_err *err)
{
    struct stat st;
    struct stg_cache_reader *reader = malloc(sizeof(*reader) + strlen(path) + 1);
    if (reader == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    *reader = (struct stg_cache_reader){.fd = -1};
    strcpy(reader->path, path);
    int rc = open_file(reader, identity, &st, err);
    if (rc == 0)
        rc = check_head(reader, (uint64_t)st.st_size, key, err);
    if (rc == 0)
        rc = check_tail(reader, (uint64_t)st.st_size, err);
    if (rc == 0)
        note_use(reader);
    if (rc != 0) {
        stg_cache_close(reader);
        return rc;
    }
    *ret = reader;
    return 0;
}

void stg_cache_close(struct stg_cache_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader);
}

/* ---- a block ---- */

/* What of the bytes that were read is not used up. */
struct rest {
    char *at;
    uint64_t bytes;
};

static void *take(struct rest *rest, uint64_t bytes)
{
    if (bytes > rest->bytes || stg_block_room(bytes) > rest->bytes)
        return NULL;
    void *ret = rest->at;
    rest->at += stg_block_room(bytes);
    rest->bytes -= stg_block_room(bytes);
    return ret;
}

/* Shapes are what the schema says; their product is a number of elements. */
static bool shape_fits(const struct stg_cache_tensor *from,
                       const struct stg_component *component, int64_t n_records,
                       uint64_t *ret_n)
{
    if (from->dtype != component->dtype || from->ndim != component->ndim + 1 ||
        from->shape[0] != n_records)
        return false;
    *ret_n = 1;
    for (int d = 0; d < from->ndim; d++) {
        int64_t want = d > 0 ? component->shape[d - 1] : -1;
        if (from->shape[d] < 0 || (want >= 0 && from->shape[d] != want) ||
            __builtin_mul_overflow(*ret_n, (uint64_t)from->shape[d], ret_n))
            return false;
    }
    return *ret_n < UINT64_MAX / 64;
}

static bool strings_fit(const struct stg_tensor *tensor, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (tensor->begin[i] < 0 || tensor->begin[i] > tensor->end[i] ||
            (uint64_t)tensor->end[i] > tensor->data_bytes)
            return false;
    }
    return true;
}

static bool fill_tensor(const struct stg_cache_tensor *from, uint64_t n,
                        struct rest *rest, struct stg_tensor *to)
{
    *to = (struct stg_tensor){
        .dtype = from->dtype, .ndim = from->ndim, .data_bytes = from->data_bytes};
    memcpy(to->shape, from->shape, sizeof(to->shape));
    bool strings = to->dtype == STAGER_STRING;
    if (strings) {
        to->begin = take(rest, n * sizeof(int64_t));
        to->end = take(rest, n * sizeof(int64_t));
        if (to->begin == NULL || to->end == NULL)
            return false;
    } else if (from->data_bytes != n * stg_dtype_bytes(to->dtype)) {
        return false;
    }
    to->data = take(rest, from->data_bytes);
    return to->data != NULL && (!strings || strings_fit(to, n));
}

static bool fill_block(const struct stg_cache_block *head, struct rest rest,
                       const struct stg_schema *schema, struct stg_block *block)
{
    const struct stg_cache_tensor *tensors =
        take(&rest, schema->n * sizeof(struct stg_cache_tensor));
    for (size_t c = 0; c < schema->n; c++) {
        uint64_t n;
        if (tensors == NULL ||
            !shape_fits(&tensors[c], &schema->components[c], head->n_records, &n) ||
            !fill_tensor(&tensors[c], n, &rest, &block->tensors[c]))
            return false;
    }
    uint64_t rows = (uint64_t)head->n_rows * sizeof(struct stg_provenance);
    if (head->has_rows != 0)
        block->rows = take(&rest, rows);
    block->n_records = head->n_records;
    block->n_rows = head->n_rows;
    block->epoch = head->epoch;
    return head->has_rows == 0 || block->rows != NULL;
}

static bool head_fits(const struct stg_cache_reader *reader,
                      const struct stg_cache_block *head, const struct stg_schema *schema)
{
    uint64_t left = reader->end - reader->at - sizeof(*head);
    return head->head_sum == stg_fingerprint64_join(
                                 0, head, offsetof(struct stg_cache_block, head_sum)) &&
           head->bytes <= left && head->bytes % 64 == 0 && head->n_records >= 1 &&
           head->n_rows >= 0 && head->n_rows < INT64_MAX / 64 &&
           (head->n_records == 1 || head->n_rows == head->n_records) &&
           head->n_components == schema->n;
}

/* Over the parts as they were summed: each without what fills it up. */
static uint64_t sum_of(const struct stg_block *block, const char *tensors)
{
    uint64_t sum = 0;
    for (uint32_t c = 0; c < block->n_components; c++)
        sum = stg_fingerprint64_join(sum, tensors + c * sizeof(struct stg_cache_tensor),
                                     sizeof(struct stg_cache_tensor));
    for (uint32_t c = 0; c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        uint64_t n = (uint64_t)stg_tensor_n(tensor) * sizeof(int64_t);
        if (tensor->dtype == STAGER_STRING) {
            sum = stg_fingerprint64_join(sum, tensor->begin, n);
            sum = stg_fingerprint64_join(sum, tensor->end, n);
        }
        sum = stg_fingerprint64_join(sum, tensor->data, tensor->data_bytes);
    }
    if (block->rows != NULL)
        sum = stg_fingerprint64_join(
            sum, block->rows, (uint64_t)block->n_rows * sizeof(struct stg_provenance));
    return sum;
}

static int too_large(const struct stg_cache_reader *reader, uint64_t bytes,
                     const struct stg_quota *quota, struct stg_err *err)
{
    int rc = stg_err(err, -STAGER_FAILED_PRECONDITION,
                     "%s (offset %" PRIu64
                     "): the cache was made with more memory: a block of it has %" PRIu64
                     " bytes, more than a quarter of the dataset's buffers: delete the "
                     "file, which stagerd writes again, or ",
                     reader->path, reader->at, bytes);
    stg_quota_advise(quota, bytes < UINT64_MAX / 64 ? 5 * bytes : UINT64_MAX / 8, 0, err);
    return rc;
}

static int read_block(struct stg_cache_reader *reader, const struct stg_cache_block *head,
                      struct stg_quota *quota, const struct stg_schema *schema,
                      struct stg_block **ret, struct stg_err *err)
{
    struct stg_block *block;
    int rc = stg_block_create(quota, head->n_components, head->bytes, NULL,
                              "a block of a cache", &block, err);
    if (rc < 0 && stg_quota_is_large(quota, head->bytes))
        return too_large(reader, head->bytes, quota, err);
    if (rc < 0)
        return rc;
    struct rest all = {.at = stg_block_carve(block, head->bytes), .bytes = head->bytes};
    rc = read_at(reader, reader->at + sizeof(*head), all.at, all.bytes, err);
    if (rc == 0 &&
        (!fill_block(head, all, schema, block) || sum_of(block, all.at) != head->sum))
        rc = damaged(reader, "a block", err);
    if (rc < 0) {
        stg_block_unref(block);
        return rc;
    }
    *ret = block;
    return 0;
}

int stg_cache_read(struct stg_cache_reader *reader, struct stg_quota *quota,
                   const struct stg_schema *schema, struct stg_block **ret,
                   struct stg_err *err)
{
    struct stg_cache_block head;
    if (reader->n_left == 0)
        return reader->at == reader->end ? 1 : damaged(reader, "it has extra bytes", err);
    if (reader->end - reader->at < sizeof(head))
        return damaged(reader, "a block is missing", err);
    int rc = read_at(reader, reader->at, &head, sizeof(head), err);
    if (rc < 0)
        return rc;
    if (!head_fits(reader, &head, schema))
        return damaged(reader, "the header of a block", err);
    rc = read_block(reader, &head, quota, schema, ret, err);
    if (rc < 0)
        return rc;
    reader->at += sizeof(head) + head.bytes;
    reader->n_left--;
    return 0;
}
