/* SPDX-License-Identifier: Apache-2.0 */
#include "core/batch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"

static_assert(STG_MAX_DIMS == STG_LAYOUT_MAX_DIMS, "a tensor in hand fits at rest");

int64_t stg_tensor_n(const struct stg_tensor *tensor)
{
    const int64_t *splits = tensor->splits;
    int64_t n = splits != NULL ? splits[tensor->shape[0]] - splits[0] : 1;
    for (int i = splits != NULL ? 2 : 0; i < tensor->ndim; i++)
        n = (int64_t)((uint64_t)n * (uint64_t)tensor->shape[i]);
    return n;
}

bool stg_tensor_size(int dtype, int ndim, const int64_t *shape, uint64_t string_bytes,
                     uint64_t *ret_n, uint64_t *ret_bytes)
{
    uint64_t n = 1, bytes = string_bytes;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0 || __builtin_mul_overflow(n, (uint64_t)shape[d], &n))
            return false;
    }
    if (dtype == STAGER_STRING
            ? n >= SIZE_MAX / 16
            : __builtin_mul_overflow(n, stg_dtype_bytes(dtype), &bytes))
        return false;
    *ret_n = n;
    *ret_bytes = bytes;
    return true;
}

const char *stg_shape_text(const int64_t *shape, int ndim, char *buf, size_t bytes)
{
    size_t used = (size_t)snprintf(buf, bytes, "[");
    for (int i = 0; i < ndim && used < bytes; i++) {
        const char *comma = i > 0 ? ", " : "";
        if (shape[i] < 0)
            used += (size_t)snprintf(buf + used, bytes - used, "%s?", comma);
        else
            used +=
                (size_t)snprintf(buf + used, bytes - used, "%s%" PRId64, comma, shape[i]);
    }
    if (used < bytes)
        snprintf(buf + used, bytes - used, "]");
    return buf;
}

/* Elements of a shape. False when a dimension is negative or when the bytes, zeros
 * counted as ones, do not fit an int64: numpy and others refuse such shapes too. */
static bool shape_n(const int64_t *shape, int ndim, unsigned elem_bytes, uint64_t *ret)
{
    int64_t bytes = elem_bytes;
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return false;
        empty = empty || shape[i] == 0;
        if (__builtin_mul_overflow(bytes, shape[i] == 0 ? 1 : shape[i], &bytes))
            return false;
    }
    *ret = empty ? 0 : (uint64_t)bytes / elem_bytes;
    return true;
}

/* What an element takes in the shape's arithmetic: of a string, its offset. */
static unsigned slot_bytes(int dtype)
{
    return dtype == STAGER_STRING ? sizeof(int64_t) : stg_dtype_bytes(dtype);
}

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + STG_TENSOR_ALIGN - 1) & ~(uint64_t)(STG_TENSOR_ALIGN - 1);
}

/* ---- writing ---- */

static struct stg_tensor_entry *entry_at(char *base, uint32_t i)
{
    return (struct stg_tensor_entry *)(void *)(base + sizeof(struct stg_batch_header)) +
           i;
}

/* Grows the capacity to at least `needed` bytes. */
static int reach(struct stg_batch_writer *w, uint64_t needed, struct stg_err *err)
{
    if (needed <= w->capacity_bytes)
        return 0;
    if (w->room.grow != NULL && needed <= w->room.limit_bytes)
        return w->room.grow(w->room.owner, needed, &w->capacity_bytes, err);
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "batch needs %" PRIu64 " bytes, max_batch_bytes is %" PRIu64
                   ": raise it, or make smaller batches",
                   needed, w->room.limit_bytes);
}

int stg_batch_writer_begin(struct stg_batch_writer *w, void *base,
                           uint64_t capacity_bytes, const struct stg_schema *schema,
                           struct stg_err *err)
{
    struct stg_batch_room none = {.limit_bytes = capacity_bytes};
    return stg_batch_writer_begin_growing(w, base, capacity_bytes, &none, schema, err);
}

int stg_batch_writer_begin_growing(struct stg_batch_writer *w, void *base,
                                   uint64_t capacity_bytes,
                                   const struct stg_batch_room *room,
                                   const struct stg_schema *schema, struct stg_err *err)
{
    assert((uintptr_t)base % STG_TENSOR_ALIGN == 0);
    struct stg_batch_writer writer = {.base = base,
                                      .capacity_bytes = capacity_bytes,
                                      .n_tensors = (uint32_t)schema->n,
                                      .room = *room};
    uint64_t names = sizeof(struct stg_batch_header) +
                     (uint64_t)schema->n * sizeof(struct stg_tensor_entry);
    uint64_t end = names;
    for (size_t i = 0; i < schema->n; i++)
        end += strlen(schema->components[i].name) + 1;
    writer.used_bytes = align_up(end);
    int rc = reach(&writer, end > UINT32_MAX ? UINT64_MAX : writer.used_bytes, err);
    if (rc < 0)
        return rc;

    memset(base, 0, writer.used_bytes);
    struct stg_batch_header *header = base;
    header->magic = STG_MAGIC_BATCH;
    header->major = STG_LAYOUT_MAJOR;
    header->minor = STG_LAYOUT_MINOR;
    header->kind = STG_BATCH_TENSORS;
    header->n_tensors = writer.n_tensors;
    header->header_bytes = sizeof(*header);
    header->entry_bytes = sizeof(struct stg_tensor_entry);
    for (uint32_t i = 0; i < writer.n_tensors; i++) {
        const struct stg_component *component = &schema->components[i];
        size_t bytes = strlen(component->name);
        struct stg_tensor_entry *entry = entry_at(base, i);
        entry->name_offset = (uint32_t)names;
        entry->name_bytes = (uint32_t)bytes;
        entry->dtype = (uint32_t)component->dtype;
        entry->ndim = (uint32_t)component->ndim;
        entry->part = component->part;
        memcpy(writer.base + names, component->name, bytes + 1);
        names += bytes + 1;
    }
    *w = writer;
    return 0;
}

/* Allocates bytes behind *used; ret is their offset. */
static int bump(struct stg_batch_writer *w, uint64_t *used, uint64_t bytes, uint64_t *ret,
                struct stg_err *err)
{
    *ret = *used;
    if (bytes > (uint64_t)INT64_MAX)
        return reach(w, UINT64_MAX, err);
    int rc = reach(w, *used + bytes, err);
    *used = align_up(*used + bytes);
    return rc;
}

/* The offsets come first, so that the unused end of the last strings can be given back.
 */
int stg_batch_writer_alloc(struct stg_batch_writer *w, uint32_t i, int dtype, int ndim,
                           const int64_t *shape, uint64_t string_bytes,
                           struct stg_tensor *ret, struct stg_err *err)
{
    assert(i < w->n_tensors && ndim >= 0 && ndim <= STG_MAX_DIMS &&
           slot_bytes(dtype) > 0);
    struct stg_tensor_entry *entry = entry_at(w->base, i);
    const char *name = w->base + entry->name_offset;
    if (entry->dtype != (uint32_t)dtype || entry->ndim != (uint32_t)ndim)
        return stg_err(err, -STAGER_INTERNAL,
                       "tensor %s is %s of rank %d; the inferred type is %s of rank %u",
                       name, stg_dtype_name(dtype), ndim,
                       stg_dtype_name((int)entry->dtype), entry->ndim);
    uint64_t n;
    if (!shape_n(shape, ndim, slot_bytes(dtype), &n)) {
        char text[256];
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "tensor %s cannot have shape %s",
                       name, stg_shape_text(shape, ndim, text, sizeof(text)));
    }

    bool is_string = dtype == STAGER_STRING;
    uint64_t used = w->used_bytes, offsets = 0, data = 0;
    uint64_t offsets_bytes = is_string ? (n + 1) * sizeof(int64_t) : 0;
    uint64_t data_bytes = is_string ? string_bytes : n * stg_dtype_bytes(dtype);
    int rc = is_string ? bump(w, &used, offsets_bytes, &offsets, err) : 0;
    if (rc == 0)
        rc = bump(w, &used, data_bytes, &data, err);
    if (rc < 0)
        return rc;

    w->used_bytes = used;
    for (int k = 0; k < ndim; k++)
        entry->shape[k] = shape[k];
    entry->data_offset = data;
    entry->data_bytes = data_bytes;
    entry->offsets_offset = offsets;
    entry->offsets_bytes = offsets_bytes;
    if (is_string)
        *(int64_t *)(void *)(w->base + offsets) = 0;
    stg_batch_tensor_at(w->base, i, ret, NULL);
    return 0;
}

uint64_t stg_tensor_text_bytes(const struct stg_tensor *tensor)
{
    const struct stg_strings *dictionary = tensor->dictionary;
    int64_t n = stg_tensor_n(tensor);
    uint64_t bytes = 0;
    if (dictionary == NULL) {
        for (int64_t i = 0; i < n; i++)
            bytes += (uint64_t)(tensor->end[i] - tensor->begin[i]);
        return bytes;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t code = tensor->codes[i];
        bytes += (uint64_t)(dictionary->end[code] - dictionary->begin[code]);
    }
    return bytes;
}

void stg_tensor_spread(const struct stg_tensor *tensor, int64_t first, int64_t n,
                       int64_t *begin, int64_t *end)
{
    const struct stg_strings *dictionary = tensor->dictionary;
    const int32_t *codes = tensor->codes + first;
    for (int64_t i = 0; i < n; i++) {
        begin[i] = dictionary->begin[codes[i]];
        end[i] = dictionary->end[codes[i]];
    }
}

/* Strings of `tensor` end to end, runs without gaps in one copy. */
static void copy_strings(const struct stg_tensor *tensor, int64_t n, char *data,
                         int64_t *offsets)
{
    int64_t used = 0, i = 0;
    offsets[0] = 0;
    while (i < n) {
        int64_t first = i;
        do {
            offsets[i + 1] = used + (tensor->end[i] - tensor->begin[first]);
            i++;
        } while (i < n && tensor->begin[i] == tensor->end[i - 1]);
        int64_t bytes = tensor->end[i - 1] - tensor->begin[first];
        if (bytes > 0)
            memcpy(data + used, (const char *)tensor->data + tensor->begin[first],
                   (size_t)bytes);
        used += bytes;
    }
}

static void copy_entries(const struct stg_tensor *tensor, int64_t n, char *data,
                         int64_t *offsets)
{
    const struct stg_strings *from = tensor->dictionary;
    int64_t used = 0;
    offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t first = from->begin[tensor->codes[i]];
        int64_t bytes = from->end[tensor->codes[i]] - first;
        if (bytes > 0)
            memcpy(data + used, from->data + first, (size_t)bytes);
        used += bytes;
        offsets[i + 1] = used;
    }
}

/* The entry of another tensor of this batch whose memory this is, or NULL. */
static const struct stg_tensor_entry *find_written(const struct stg_batch_writer *w,
                                                   const struct stg_tensor *tensor)
{
    uint64_t n = (uint64_t)stg_tensor_n(tensor);
    bool is_string = tensor->dtype == STAGER_STRING;
    for (uint32_t k = 0; k < w->n_tensors; k++) {
        const struct stg_tensor_entry *entry = entry_at(w->base, k);
        if (entry->data_offset == 0 || w->base + entry->data_offset != tensor->data ||
            entry->dtype != (uint32_t)tensor->dtype)
            continue;
        if (is_string ? entry->offsets_bytes == (n + 1) * sizeof(int64_t) &&
                            w->base + entry->offsets_offset == (const char *)tensor->begin
                      : entry->data_bytes == n * stg_dtype_bytes(tensor->dtype))
            return entry;
    }
    return NULL;
}

/* Two entries, one memory. */
static void share(struct stg_tensor_entry *entry, const struct stg_tensor_entry *with,
                  const int64_t *shape)
{
    for (uint32_t k = 0; k < entry->ndim; k++)
        entry->shape[k] = shape[k];
    entry->data_offset = with->data_offset;
    entry->data_bytes = with->data_bytes;
    entry->offsets_offset = with->offsets_offset;
    entry->offsets_bytes = with->offsets_bytes;
}

int stg_batch_writer_copy(struct stg_batch_writer *w, uint32_t i,
                          const struct stg_tensor *tensor, struct stg_err *err)
{
    struct stg_tensor_entry *entry = entry_at(w->base, i);
    const struct stg_tensor_entry *written = find_written(w, tensor);
    if (written != NULL && entry->dtype == (uint32_t)tensor->dtype &&
        entry->ndim == (uint32_t)tensor->ndim) {
        share(entry, written, tensor->shape);
        return 0;
    }
    int64_t n = stg_tensor_n(tensor);
    uint64_t string_bytes =
        tensor->dtype == STAGER_STRING ? stg_tensor_text_bytes(tensor) : 0;
    struct stg_tensor copy;
    int rc = stg_batch_writer_alloc(w, i, tensor->dtype, tensor->ndim, tensor->shape,
                                    string_bytes, &copy, err);
    if (rc < 0)
        return rc;
    if (tensor->dictionary != NULL)
        copy_entries(tensor, n, copy.data, (int64_t *)copy.begin);
    else if (tensor->dtype == STAGER_STRING)
        copy_strings(tensor, n, copy.data, (int64_t *)copy.begin);
    else if (copy.data_bytes > 0)
        memcpy(copy.data, tensor->data, copy.data_bytes);
    return 0;
}

void stg_batch_writer_share(struct stg_batch_writer *w, uint32_t i, uint32_t k)
{
    struct stg_tensor_entry *entry = entry_at(w->base, i);
    const struct stg_tensor_entry *with = entry_at(w->base, k);
    assert(with->data_offset != 0 && entry->dtype == with->dtype &&
           entry->ndim == with->ndim);
    share(entry, with, with->shape);
}

uint64_t stg_batch_writer_seal(struct stg_batch_writer *w)
{
    struct stg_batch_header *header = (struct stg_batch_header *)(void *)w->base;
    uint64_t total = sizeof(*header);
    for (uint32_t i = 0; i < w->n_tensors; i++) {
        struct stg_tensor_entry *entry = entry_at(w->base, i);
        assert(entry->data_offset != 0); /* every tensor was given room */
        if (entry->dtype == STAGER_STRING) {
            const int64_t *offsets =
                (const int64_t *)(const void *)(w->base + entry->offsets_offset);
            int64_t last = offsets[entry->offsets_bytes / sizeof(int64_t) - 1];
            assert(last >= 0 && (uint64_t)last <= entry->data_bytes);
            entry->data_bytes = (uint64_t)last;
        }
        if (entry->data_offset + entry->data_bytes > total)
            total = entry->data_offset + entry->data_bytes;
        if (entry->offsets_offset + entry->offsets_bytes > total)
            total = entry->offsets_offset + entry->offsets_bytes;
    }
    header->total_bytes = total;
    return total;
}

/* Truncates before a byte that continues a UTF-8 character. */
static size_t truncate_text(const char *text, size_t max_bytes)
{
    size_t bytes = strlen(text);
    if (bytes <= max_bytes)
        return bytes;
    bytes = max_bytes;
    while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80)
        bytes--;
    return bytes;
}

uint64_t stg_batch_write_error(void *base, uint64_t capacity_bytes, int code,
                               const char *text)
{
    assert((uintptr_t)base % STG_TENSOR_ALIGN == 0);
    assert(capacity_bytes >= STG_GRANULE_BYTES);
    struct stg_batch_header *header = base;
    uint64_t room = capacity_bytes - sizeof(*header) - 1;
    size_t bytes = truncate_text(text, room < UINT32_MAX ? room : UINT32_MAX - 1);
    *header = (struct stg_batch_header){
        .magic = STG_MAGIC_BATCH,
        .major = STG_LAYOUT_MAJOR,
        .minor = STG_LAYOUT_MINOR,
        .kind = STG_BATCH_ERROR,
        .header_bytes = sizeof(*header),
        .entry_bytes = sizeof(struct stg_tensor_entry),
        .total_bytes = sizeof(*header) + bytes + 1,
        .error_code = (uint32_t)code,
        .error_offset = sizeof(*header),
        .error_bytes = (uint32_t)bytes,
    };
    char *dst = (char *)base + sizeof(*header);
    memcpy(dst, text, bytes);
    dst[bytes] = '\0';
    return header->total_bytes;
}

/* ---- reading ---- */

/* A checked batch's limits: [low, high) is where names and data may lie. */
struct limits {
    const char *base;
    uint64_t low, high;
};

static bool inside(const struct limits *limits, uint64_t offset, uint64_t bytes)
{
    return offset >= limits->low && offset <= limits->high &&
           bytes <= limits->high - offset;
}

static int loss(struct stg_err *err, uint32_t i, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "batch is damaged: tensor %u: %s", i, what);
}

/* header: a private copy; bytes: what there is. */
static int check_header(const struct stg_batch_header *header, uint64_t bytes,
                        struct stg_err *err)
{
    const char *what = NULL;
    if (header->magic != STG_MAGIC_BATCH)
        what = "it does not start with BTCH";
    else if (header->major != STG_LAYOUT_MAJOR)
        what = "its layout has another major version";
    else if (header->header_bytes < sizeof(*header) || header->header_bytes % 8 != 0)
        what = "header_bytes";
    else if (header->entry_bytes < sizeof(struct stg_tensor_entry) ||
             header->entry_bytes % 8 != 0)
        what = "entry_bytes";
    else if (header->total_bytes > bytes || header->total_bytes < header->header_bytes)
        what = "total_bytes";
    else if (header->kind != STG_BATCH_TENSORS && header->kind != STG_BATCH_ERROR)
        what = "kind";
    else if (header->kind == STG_BATCH_TENSORS && header->error_code != STAGER_OK)
        what = "error_code";
    if (what != NULL)
        return stg_err(err, -STAGER_DATA_LOSS, "batch is damaged: %s", what);
    return 0;
}

/* header: a private copy. */
static int check_error(const struct stg_batch_header *header, const char *base,
                       struct stg_err *err)
{
    struct limits limits = {base, header->header_bytes, header->total_bytes};
    const char *what = NULL;
    if (header->n_tensors != 0)
        what = "an error item has tensors";
    else if (header->error_code == STAGER_OK ||
             header->error_code > STAGER_UNAUTHENTICATED)
        what = "error_code";
    else if (!inside(&limits, header->error_offset, (uint64_t)header->error_bytes + 1))
        what = "the error's text lies outside";
    else if (base[(uint64_t)header->error_offset + header->error_bytes] != '\0')
        what = "the error's text does not end";
    if (what != NULL)
        return stg_err(err, -STAGER_DATA_LOSS, "batch is damaged: %s", what);
    return 0;
}

static int check_strings(const struct stg_tensor_entry *entry, uint64_t n,
                         const struct limits *limits, bool full, const char **ret_what)
{
    *ret_what = "string offsets";
    if (entry->offsets_bytes != (n + 1) * sizeof(int64_t) ||
        entry->offsets_offset % STG_TENSOR_ALIGN != 0 ||
        !inside(limits, entry->offsets_offset, entry->offsets_bytes))
        return -1;
    const int64_t *offsets =
        (const int64_t *)(const void *)(limits->base + entry->offsets_offset);
    if (offsets[0] != 0 || (uint64_t)offsets[n] != entry->data_bytes)
        return -1;
    if (full) {
        *ret_what = "string offsets decrease";
        for (uint64_t k = 0; k < n; k++) {
            if (offsets[k + 1] < offsets[k])
                return -1;
        }
    }
    return 0;
}

/* entry: a private copy. */
static int check_entry(const struct stg_tensor_entry *entry, uint32_t i,
                       const struct limits *limits, bool full, struct stg_err *err)
{
    if (!inside(limits, entry->name_offset, (uint64_t)entry->name_bytes + 1))
        return loss(err, i, "its name lies outside");
    if (strnlen(limits->base + entry->name_offset, (size_t)entry->name_bytes + 1) !=
        entry->name_bytes)
        return loss(err, i, "its name has a wrong length");
    unsigned elem_bytes = entry->dtype <= INT32_MAX ? slot_bytes((int)entry->dtype) : 0;
    if (elem_bytes == 0)
        return loss(err, i, "dtype");
    if (entry->part > STG_PART_DENSE_SHAPE)
        return loss(err, i, "part");
    uint64_t n;
    if (entry->ndim > STG_LAYOUT_MAX_DIMS ||
        !shape_n(entry->shape, (int)entry->ndim, elem_bytes, &n))
        return loss(err, i, "shape");
    if (entry->data_offset % STG_TENSOR_ALIGN != 0 ||
        !inside(limits, entry->data_offset, entry->data_bytes))
        return loss(err, i, "its data lies outside");
    if (entry->dtype == STAGER_STRING) {
        const char *what;
        if (check_strings(entry, n, limits, full, &what) < 0)
            return loss(err, i, what);
        return 0;
    }
    if (entry->data_bytes != n * elem_bytes)
        return loss(err, i, "its data does not have the size of its shape");
    if (entry->offsets_offset != 0 || entry->offsets_bytes != 0)
        return loss(err, i, "offsets without strings");
    return 0;
}

int stg_batch_check(const void *base, uint64_t bytes, bool full, struct stg_err *err)
{
    struct stg_batch_header header;
    if ((uintptr_t)base % STG_TENSOR_ALIGN != 0 || bytes < sizeof(header))
        return stg_err(err, -STAGER_DATA_LOSS,
                       "batch is damaged: it does not start at a multiple of 64, or is "
                       "shorter than its header");
    memcpy(&header, base, sizeof(header));
    int rc = check_header(&header, bytes, err);
    if (rc < 0)
        return rc;
    if (header.kind == STG_BATCH_ERROR)
        return check_error(&header, base, err);

    const char *entries = (const char *)base + header.header_bytes;
    struct limits limits = {.base = base, .high = header.total_bytes};
    limits.low = header.header_bytes + (uint64_t)header.n_tensors * header.entry_bytes;
    if (limits.low > limits.high)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "batch is damaged: %u tensors do not fit %" PRIu64 " bytes",
                       header.n_tensors, header.total_bytes);
    for (uint32_t i = 0; i < header.n_tensors; i++) {
        struct stg_tensor_entry entry;
        memcpy(&entry, entries + (uint64_t)i * header.entry_bytes, sizeof(entry));
        rc = check_entry(&entry, i, &limits, full, err);
        if (rc < 0)
            return rc;
    }
    struct stg_err why = {0};
    if (stg_batch_check_parts(base, full, &why) < 0)
        return stg_err(err, -STAGER_DATA_LOSS, "batch is damaged: %s", why.text);
    return 0;
}

static const struct stg_tensor_entry *entry_of(const void *base, uint32_t i)
{
    const struct stg_batch_header *header = base;
    return (const void *)((const char *)base + header->header_bytes +
                          (uint64_t)i * header->entry_bytes);
}

void stg_batch_tensor_at(const void *base, uint32_t i, struct stg_tensor *ret,
                         const char **ret_name)
{
    const struct stg_tensor_entry *entry = entry_of(base, i);
    char *bytes = (char *)base;
    *ret = (struct stg_tensor){
        .dtype = (int)entry->dtype,
        .ndim = (int)entry->ndim,
        .data = bytes + entry->data_offset,
        .data_bytes = entry->data_bytes,
    };
    for (int k = 0; k < ret->ndim; k++)
        ret->shape[k] = entry->shape[k];
    if (ret->dtype == STAGER_STRING) {
        ret->begin = (const int64_t *)(const void *)(bytes + entry->offsets_offset);
        ret->end = ret->begin + 1;
    }
    if (ret_name != NULL)
        *ret_name = bytes + entry->name_offset;
}

uint32_t stg_batch_part(const void *base, uint32_t i)
{
    return entry_of(base, i)->part;
}

void stg_batch_device_span(const void *base, uint64_t *ret_first, uint64_t *ret_bytes)
{
    uint64_t first = UINT64_MAX, end = 0;
    uint32_t n = ((const struct stg_batch_header *)base)->n_tensors;
    for (uint32_t i = 0; i < n; i++) {
        struct stg_tensor tensor;
        stg_batch_tensor_at(base, i, &tensor, NULL);
        if (tensor.dtype == STAGER_STRING || tensor.data_bytes == 0)
            continue;
        uint64_t at = (uint64_t)((const char *)tensor.data - (const char *)base);
        first = at < first ? at : first;
        end = at + tensor.data_bytes > end ? at + tensor.data_bytes : end;
    }
    *ret_first = end > 0 ? first : 0;
    *ret_bytes = end > 0 ? end - first : 0;
}

int stg_batch_find(const void *base, const char *name)
{
    const struct stg_batch_header *header = base;
    size_t bytes = strlen(name);
    for (uint32_t i = 0; i < header->n_tensors; i++) {
        const struct stg_tensor_entry *entry = entry_of(base, i);
        if (entry->name_bytes == bytes &&
            memcmp((const char *)base + entry->name_offset, name, bytes) == 0)
            return (int)i;
    }
    return -1;
}

/* ---- parts of sparse and ragged features: do they fit one another? ---- */

/* One tensor of the batch, and what a message calls it. */
struct part {
    struct stg_tensor tensor;
    const char *name;
};

static struct part part_at(const void *base, uint32_t i)
{
    struct part part;
    stg_batch_tensor_at(base, i, &part.tensor, &part.name);
    return part;
}

static int misfit(struct stg_err *err, const struct part *part, const char *what)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "tensor %s: %s", part->name, what);
}

static int check_index_type(const struct part *part, int ndim, struct stg_err *err)
{
    if (part->tensor.dtype == STAGER_INT64 && part->tensor.ndim == ndim)
        return 0;
    return misfit(err, part,
                  ndim == 2 ? "indices must be int64 of rank 2"
                            : "row_splits and dense_shape must be int64 of rank 1");
}

static int check_splits(const struct part *part, int64_t n_values, struct stg_err *err)
{
    const int64_t *splits = part->tensor.data;
    int64_t n = part->tensor.shape[0], before = 0;
    if (splits[0] != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s: row_splits must begin with 0, not with %" PRId64,
                       part->name, splits[0]);
    for (int64_t i = 1; i < n; i++) {
        if (splits[i] < before)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "tensor %s: row_splits decrease at row %" PRId64
                           ", from %" PRId64 " to %" PRId64,
                           part->name, i - 1, before, splits[i]);
        before = splits[i];
    }
    if (before != n_values)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s: row_splits end with %" PRId64 ", there are %" PRId64
                       " values",
                       part->name, before, n_values);
    return 0;
}

static int check_ragged(const void *base, uint32_t i, bool content, struct stg_err *err)
{
    struct part values = part_at(base, i - 1), splits = part_at(base, i);
    int rc = check_index_type(&splits, 1, err);
    if (rc < 0)
        return rc;
    if (splits.tensor.shape[0] < 1)
        return misfit(err, &splits, "row_splits must have at least one entry");
    if (values.tensor.ndim < 1)
        return misfit(err, &values,
                      "the values of a ragged feature must have rank 1 or more");
    return content ? check_splits(&splits, values.tensor.shape[0], err) : 0;
}

static int check_indices(const struct part *indices, const struct part *shape,
                         struct stg_err *err)
{
    const int64_t *at = indices->tensor.data, *limit = shape->tensor.data;
    int64_t n = indices->tensor.shape[0], rank = indices->tensor.shape[1];
    for (int64_t d = 0; d < rank; d++) {
        if (limit[d] < 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "tensor %s: dimension %" PRId64 " is %" PRId64, shape->name, d,
                           limit[d]);
    }
    for (int64_t i = 0; i < n; i++, at += rank) {
        for (int64_t d = 0; d < rank; d++) {
            if (at[d] < 0 || at[d] >= limit[d])
                return stg_err(err, -STAGER_INVALID_ARGUMENT,
                               "tensor %s: entry %" PRId64 " has index %" PRId64
                               " in dimension %" PRId64 ", which has %" PRId64,
                               indices->name, i, at[d], d, limit[d]);
        }
    }
    return 0;
}

static int check_sparse(const void *base, uint32_t i, bool content, struct stg_err *err)
{
    struct part values = part_at(base, i - 1), indices = part_at(base, i),
                shape = part_at(base, i + 1);
    int rc = check_index_type(&indices, 2, err);
    if (rc == 0)
        rc = check_index_type(&shape, 1, err);
    if (rc < 0)
        return rc;
    if (values.tensor.ndim != 1)
        return misfit(err, &values, "the values of a sparse feature must have rank 1");
    if (values.tensor.shape[0] != indices.tensor.shape[0])
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s: %" PRId64 " indices for %" PRId64 " values",
                       indices.name, indices.tensor.shape[0], values.tensor.shape[0]);
    if (indices.tensor.shape[1] < 1 || indices.tensor.shape[1] != shape.tensor.shape[0])
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s: indices of rank %" PRId64
                       " for a dense_shape of rank %" PRId64,
                       indices.name, indices.tensor.shape[1], shape.tensor.shape[0]);
    return content ? check_indices(&indices, &shape, err) : 0;
}

/* The part that tensor i is, or what no part is when there is no such tensor. */
static uint32_t kind_at(const void *base, uint32_t n, uint32_t i)
{
    return i < n ? stg_batch_part(base, i) : UINT32_MAX;
}

/* before: the part of tensor i - 1. */
static bool is_stray(const void *base, uint32_t n, uint32_t i, uint32_t before)
{
    switch (stg_batch_part(base, i)) {
    case STG_PART_ROW_SPLITS: return before != STG_PART_VALUES;
    case STG_PART_INDICES:
        return before != STG_PART_VALUES ||
               kind_at(base, n, i + 1) != STG_PART_DENSE_SHAPE;
    case STG_PART_DENSE_SHAPE: return before != STG_PART_INDICES;
    default: return false;
    }
}

int stg_batch_check_parts(const void *base, bool content, struct stg_err *err)
{
    uint32_t n = ((const struct stg_batch_header *)base)->n_tensors;
    uint32_t before = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t part = stg_batch_part(base, i);
        int rc = 0;
        if (is_stray(base, n, i, before)) {
            struct part stray = part_at(base, i);
            return misfit(err, &stray, "a part without the other parts of its feature");
        }
        if (part == STG_PART_ROW_SPLITS)
            rc = check_ragged(base, i, content, err);
        else if (part == STG_PART_INDICES)
            rc = check_sparse(base, i, content, err);
        if (rc < 0)
            return rc;
        before = part;
    }
    return 0;
}

/* ---- picking features ---- */

static bool is_at(const char *path, const char *name)
{
    size_t n = strlen(path);
    return strncmp(name, path, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

bool stg_schema_pick(const struct stg_schema *schema, const char *path, bool *picked)
{
    bool any = false;
    for (size_t i = 0; i < schema->n; i++) {
        if (!is_at(path, schema->components[i].name))
            continue;
        picked[i] = true;
        any = true;
    }
    stg_schema_pick_whole(schema, picked);
    return any;
}

/* The first part of a feature is VALUES, the others follow. */
void stg_schema_pick_whole(const struct stg_schema *schema, bool *picked)
{
    for (size_t first = 0, end; first < schema->n; first = end) {
        bool any = picked[first];
        for (end = first + 1;
             end < schema->n && schema->components[end].part != STG_PART_VALUES; end++)
            any = any || picked[end];
        for (size_t i = first; i < end; i++)
            picked[i] = any;
    }
}

int stg_schema_copy(const struct stg_schema *schema, struct stg_bump *bump,
                    struct stg_schema *ret, struct stg_err *err)
{
    struct stg_component *to = stg_bump_alloc(bump, schema->n * sizeof(*to));
    bool ok = to != NULL;
    for (size_t i = 0; ok && i < schema->n; i++) {
        to[i] = schema->components[i];
        to[i].name = stg_bump_strdup(bump, to[i].name);
        ok = to[i].name != NULL;
    }
    if (!ok)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *ret = (struct stg_schema){.components = to, .n = schema->n};
    return 0;
}
