/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/text/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/hash.h"

#define MAGIC UINT64_C(0x31766f6361677473)

/* The block: this, offsets, slots, text. */
struct head {
    uint64_t magic;
    uint64_t n;
    uint64_t slot_mask;
    uint64_t text_bytes;
};

/* ---- made ---- */

struct line {
    const char *s;
    size_t bytes;
};

/* The next line from *at on, without its end. False: there is none. */
static bool next_line(const char **at, const char *end, struct line *ret)
{
    if (*at == end)
        return false;
    const char *feed = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = feed != NULL ? feed : end;
    ret->s = *at;
    ret->bytes = (size_t)(stop - *at);
    if (feed != NULL && ret->bytes > 0 && stop[-1] == '\r')
        ret->bytes--;
    *at = feed != NULL ? feed + 1 : end;
    return true;
}

static struct head count(const char *text, size_t bytes, uint64_t most)
{
    struct head head = {.magic = MAGIC};
    struct line line;
    for (const char *at = text;
         (most == 0 || head.n < most) && next_line(&at, text + bytes, &line); head.n++)
        head.text_bytes += line.bytes;
    head.slot_mask = 15;
    while (head.slot_mask < 2 * head.n)
        head.slot_mask = 2 * head.slot_mask + 1;
    return head;
}

/* False: it is not all there. */
static bool lay_out(const void *block, uint64_t bytes, struct stg_vocabulary *ret)
{
    struct head head;
    if (bytes < sizeof(head))
        return false;
    memcpy(&head, block, sizeof(head));
    if (head.magic != MAGIC || head.n > UINT32_MAX || head.slot_mask > UINT32_MAX ||
        (head.slot_mask & (head.slot_mask + 1)) != 0 || head.slot_mask < head.n ||
        head.text_bytes > bytes)
        return false;
    uint64_t offsets = (head.n + 1) * sizeof(uint64_t);
    uint64_t slots = (head.slot_mask + 1) * sizeof(uint32_t);
    if (sizeof(head) + offsets + slots + head.text_bytes != bytes)
        return false;
    const char *at = (const char *)block + sizeof(head);
    *ret =
        (struct stg_vocabulary){.offsets = (const uint64_t *)(const void *)at,
                                .slots = (const uint32_t *)(const void *)(at + offsets),
                                .slot_mask = head.slot_mask,
                                .n = head.n,
                                .text = at + offsets + slots,
                                .text_bytes = head.text_bytes};
    return true;
}

static int same_line(uint64_t line, int64_t first, const struct line *text,
                     struct stg_err *err)
{
    char quoted[STG_QUOTE_BYTES];
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "line %" PRIu64 " repeats %s of line %" PRId64
                   "; a vocabulary must have each word once",
                   line + 1, stg_quote(text->s, text->bytes, quoted), first + 1);
}

static int fill(const char *text, size_t bytes, const struct stg_vocabulary *v,
                struct stg_err *err)
{
    uint64_t *offsets = (uint64_t *)(uintptr_t)v->offsets, at = 0;
    uint32_t *slots = (uint32_t *)(uintptr_t)v->slots;
    const char *from = text;
    struct line line;
    offsets[0] = 0;
    for (uint64_t i = 0; i < v->n && next_line(&from, text + bytes, &line); i++) {
        uint64_t slot = stg_fingerprint64(line.s, line.bytes);
        int64_t first = stg_vocabulary_find(v, line.s, line.bytes, slot);
        if (first >= 0)
            return same_line(i, first, &line, err);
        memcpy((char *)(uintptr_t)v->text + at, line.s, line.bytes);
        at += line.bytes;
        offsets[i + 1] = at;
        while (slots[slot & v->slot_mask] != 0)
            slot++;
        slots[slot & v->slot_mask] = (uint32_t)i + 1;
    }
    return 0;
}

int stg_vocabulary_create(const char *text, size_t bytes, uint64_t most,
                          struct stg_tensor *ret, struct stg_err *err)
{
    struct head head = count(text, bytes, most);
    if (head.n == 0 || head.n < most)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the file has %" PRIu64
                       " lines; a vocabulary must have at least %" PRIu64,
                       head.n, most > 0 ? most : 1);
    uint64_t block_bytes = sizeof(head) + (head.n + 1) * sizeof(uint64_t) +
                           (head.slot_mask + 1) * sizeof(uint32_t) + head.text_bytes;
    char *block = calloc(1, block_bytes);
    if (block == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "no memory for a vocabulary of %" PRIu64 " bytes", block_bytes);
    memcpy(block, &head, sizeof(head));
    struct stg_vocabulary v = {0};
    lay_out(block, block_bytes, &v);
    int rc = fill(text, bytes, &v, err);
    if (rc < 0) {
        free(block);
        return rc;
    }
    *ret = (struct stg_tensor){.dtype = STAGER_UINT8,
                               .ndim = 1,
                               .shape = {(int64_t)block_bytes},
                               .data = block,
                               .data_bytes = block_bytes};
    return 0;
}

/* ---- read ---- */

bool stg_vocabulary_open(const struct stg_tensor *tensor, struct stg_vocabulary *ret)
{
    return ((uintptr_t)tensor->data & 7) == 0 &&
           lay_out(tensor->data, tensor->data_bytes, ret);
}

int64_t stg_vocabulary_find(const struct stg_vocabulary *v, const char *s, size_t n,
                            uint64_t fingerprint)
{
    for (uint64_t probe = 0; probe <= v->slot_mask; probe++) {
        uint32_t line = v->slots[(fingerprint + probe) & v->slot_mask];
        if (line == 0)
            return -1;
        uint64_t begin = line <= v->n ? v->offsets[line - 1] : 0;
        uint64_t end = line <= v->n ? v->offsets[line] : 0;
        if (begin <= end && end <= v->text_bytes && end - begin == n && line <= v->n &&
            memcmp(v->text + begin, s, n) == 0)
            return (int64_t)line - 1;
    }
    return -1;
}

/* ---- the op ---- */

static const struct stg_param params[] = {
    {.name = "file",
     .type = STG_PARAM_STRING,
     .required = true,
     .help = "whole path of a text file: a word a line"},
    {.name = "vocab_size",
     .type = STG_PARAM_INT,
     .min = 0,
     .max = UINT32_MAX,
     .preset = "0",
     .help = "the first lines alone; 0: all"},
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *output = (struct stg_component){.dtype = STAGER_UINT8, .ndim = 1, .shape = {-1}};
    return 0;
}

const struct stg_op stg_op_vocabulary = {
    .name = "vocabulary",
    .summary = "The lines of a file, numbered, for lookup; as "
               "tf.lookup.TextFileInitializer.",
    STG_PARAMS(params),
    .flags = STG_OP_TABLE,
    .infer = infer,
};
