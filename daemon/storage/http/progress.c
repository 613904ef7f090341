/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/progress.h"

#include <assert.h>
#include <string.h>

static void limit_end(struct stg_progress *progress, uint64_t size)
{
    if (size < progress->end)
        progress->end = size > progress->begin ? size : progress->begin;
}

void stg_progress_init(struct stg_progress *progress, enum stg_fetch_kind kind,
                       bool in_query, bool may_keep, uint64_t begin, uint64_t end,
                       const struct stg_version *version)
{
    assert(begin <= end);
    *progress = (struct stg_progress){.kind = kind,
                                      .in_query = in_query,
                                      .may_keep = may_keep,
                                      .begin = begin,
                                      .asked_end = end,
                                      .version = *version,
                                      .end = end};
    if (version->known)
        limit_end(progress, version->size);
}

void stg_progress_attempt(struct stg_progress *progress)
{
    progress->n = progress->n_sure = stg_progress_sure(progress);
    progress->got = (struct stg_version){.known = false};
    progress->status = 0;
    progress->is_sure = false;
    progress->is_cached = false;
    progress->skip = progress->room = 0;
}

uint64_t stg_progress_from(const struct stg_progress *progress)
{
    return progress->begin + progress->n;
}

bool stg_progress_may_keep(const struct stg_progress *progress)
{
    return progress->may_keep && !progress->version.known;
}

uint64_t stg_progress_sure(const struct stg_progress *progress)
{
    return progress->is_sure ? progress->n : progress->n_sure;
}

/* ---- versions ---- */

/* Compares all but the size, which not every head has. Times count where neither has an
 * ETag: copies of one object may differ in them. */
static enum stg_verdict compare(const struct stg_progress *progress)
{
    const struct stg_version *want = &progress->version, *got = &progress->got;
    if (strcmp(want->etag, got->etag) != 0)
        return STG_VERDICT_OTHER_ETAG;
    return want->etag[0] != '\0' || strcmp(want->modified, got->modified) == 0
               ? STG_VERDICT_GO
               : STG_VERDICT_OTHER_TIME;
}

/* The object has `size` bytes. An object that is empty after bytes of it came was
 * replaced, also if those bytes were of no version. */
static enum stg_verdict pin(struct stg_progress *progress, uint64_t size)
{
    progress->got.known = true;
    progress->got.size = size;
    if (progress->version.known) {
        enum stg_verdict verdict = compare(progress);
        if (verdict != STG_VERDICT_GO)
            return verdict;
        return size == progress->version.size ? STG_VERDICT_GO : STG_VERDICT_OTHER_SIZE;
    }
    if (size == 0 && progress->most_n > 0)
        return STG_VERDICT_OTHER_SIZE;
    progress->version = progress->got;
    limit_end(progress, size);
    return STG_VERDICT_GO;
}

static uint64_t left(const struct stg_progress *progress)
{
    assert(progress->n <= progress->end - progress->begin);
    return progress->end - progress->begin - progress->n;
}

/* ---- heads ---- */

static enum stg_verdict judge_part(struct stg_progress *progress,
                                   const struct stg_head *head)
{
    if (!head->has_range || head->from != stg_progress_from(progress) ||
        head->last < head->from || head->last >= head->size)
        return STG_VERDICT_OTHER_RANGE;
    enum stg_verdict verdict = pin(progress, head->size);
    if (verdict != STG_VERDICT_GO)
        return verdict;
    if (head->last >= progress->end)
        return STG_VERDICT_OTHER_RANGE;
    progress->is_sure = true;
    progress->room = head->last - head->from + 1;
    return STG_VERDICT_GO;
}

/* The whole object, though a part was asked for. A missing length is known at the end. */
static enum stg_verdict judge_whole(struct stg_progress *progress,
                                    const struct stg_head *head)
{
    enum stg_verdict verdict = STG_VERDICT_GO;
    bool was_known = progress->version.known;
    if (!was_known && head->has_length && head->length > progress->asked_end) {
        progress->got.size = head->length;
        return STG_VERDICT_NO_RANGES;
    }
    if (head->has_length)
        verdict = pin(progress, head->length);
    else if (was_known)
        verdict = compare(progress);
    if (verdict != STG_VERDICT_GO)
        return verdict;
    if (progress->begin > 0 ||
        (progress->version.known && progress->version.size > progress->asked_end))
        return STG_VERDICT_NO_RANGES;
    progress->is_sure =
        head->has_length || (was_known && (progress->version.etag[0] != '\0' ||
                                           progress->version.modified[0] != '\0'));
    progress->skip = progress->n;
    progress->room = left(progress);
    return STG_VERDICT_GO;
}

/* The answer is the one that was asked for, and does not name its version: the caller
 * has it, or it stays unknown. */
static enum stg_verdict judge_plain(struct stg_progress *progress)
{
    progress->is_sure = progress->kind == STG_FETCH_RANGE && progress->version.known;
    progress->room = left(progress);
    return STG_VERDICT_GO;
}

static enum stg_verdict judge_beyond(struct stg_progress *progress,
                                     const struct stg_head *head)
{
    if (!head->has_size)
        return STG_VERDICT_REFUSED;
    if (progress->version.known && head->size != progress->version.size) {
        progress->got.size = head->size;
        return STG_VERDICT_OTHER_SIZE;
    }
    if (head->size > 0 || progress->begin > 0)
        return STG_VERDICT_REFUSED;
    enum stg_verdict verdict = pin(progress, 0);
    progress->is_sure = verdict == STG_VERDICT_GO;
    return verdict;
}

enum stg_verdict stg_progress_head(struct stg_progress *progress,
                                   const struct stg_head *head)
{
    assert(progress->status == 0);
    bool plain = progress->kind == STG_FETCH_ALL || progress->in_query;
    progress->status = head->status;
    progress->got = head->version;
    progress->got.known = false;
    progress->got.size = 0;
    switch (head->status) {
    case 200: return plain ? judge_plain(progress) : judge_whole(progress, head);
    case 206: return plain ? STG_VERDICT_REFUSED : judge_part(progress, head);
    case 304:
        progress->is_cached = stg_progress_may_keep(progress);
        return progress->is_cached ? STG_VERDICT_GO : STG_VERDICT_REFUSED;
    case 412:
        return progress->version.known ? STG_VERDICT_OTHER_ETAG : STG_VERDICT_REFUSED;
    case 416: return plain ? STG_VERDICT_REFUSED : judge_beyond(progress, head);
    default: return STG_VERDICT_REFUSED;
    }
}

bool stg_progress_says_which(const struct stg_progress *progress)
{
    return progress->version.known || progress->is_cached;
}

/* ---- bodies ---- */

static enum stg_verdict judge_excess(struct stg_progress *progress)
{
    if (progress->kind == STG_FETCH_ALL || progress->in_query)
        return STG_VERDICT_TOO_MUCH;
    if (progress->status == 206)
        return STG_VERDICT_OTHER_RANGE;
    if (!progress->version.known)
        return STG_VERDICT_NO_RANGES;
    progress->got.size = STG_SIZE_LARGER;
    return STG_VERDICT_OTHER_SIZE;
}

enum stg_verdict stg_progress_body(struct stg_progress *progress, uint64_t bytes,
                                   uint64_t *ret_skip, uint64_t *ret_at,
                                   uint64_t *ret_take)
{
    uint64_t skip = progress->skip < bytes ? progress->skip : bytes;
    uint64_t take = bytes - skip;
    if (take > progress->room)
        return judge_excess(progress);
    assert(take <= left(progress));
    *ret_skip = skip;
    *ret_at = progress->n;
    *ret_take = take;
    progress->skip -= skip;
    progress->room -= take;
    progress->n += take;
    if (progress->n > progress->most_n)
        progress->most_n = progress->n;
    return STG_VERDICT_GO;
}

/* ---- ends ---- */

/* What came is all that there is. */
static enum stg_verdict end_of_unknown(struct stg_progress *progress)
{
    enum stg_verdict verdict = STG_VERDICT_GO;
    if (progress->kind == STG_FETCH_RANGE)
        verdict = pin(progress, progress->begin + progress->n);
    progress->is_sure = verdict == STG_VERDICT_GO;
    return verdict;
}

enum stg_verdict stg_progress_end(struct stg_progress *progress, bool clean)
{
    if (progress->status == 0 || (!clean && !progress->is_sure))
        return STG_VERDICT_BROKEN;
    if (progress->is_cached)
        return STG_VERDICT_GO;
    if (progress->kind == STG_FETCH_ALL ||
        (!progress->version.known && !progress->in_query))
        return end_of_unknown(progress);
    if (left(progress) > 0)
        return clean ? STG_VERDICT_SHORT : STG_VERDICT_BROKEN;
    progress->is_sure = true;
    return STG_VERDICT_GO;
}
