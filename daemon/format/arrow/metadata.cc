/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/arrow/metadata.h"

#include "daemon/format/arrow/metadata_generated.h"

namespace fb = stg::arrow;

extern const bool stg_arrow_is_built = true;

static_assert(sizeof(stg_arrow_node) == sizeof(fb::FieldNode), "as on the wire");
static_assert(sizeof(stg_arrow_extent) == sizeof(fb::Buffer), "as on the wire");
static_assert(sizeof(stg_arrow_block) == sizeof(fb::Block), "as on the wire");

#define MAX_TABLES (1u << 24)

static flatbuffers::Verifier verifier_of(const void *data, uint64_t bytes)
{
    flatbuffers::Verifier::Options options;
    options.max_tables = MAX_TABLES;
    return flatbuffers::Verifier(static_cast<const uint8_t *>(data), bytes, options);
}

/* The library asserts that a buffer is smaller than this. */
static bool has_size(uint64_t bytes)
{
    return bytes < FLATBUFFERS_MAX_BUFFER_SIZE;
}

template <typename T> static const void *take_vector(const T *vector, uint32_t *ret)
{
    *ret = vector != nullptr ? vector->size() : 0;
    return vector != nullptr ? vector->Data() : nullptr;
}

static void take_batch(const fb::RecordBatch *batch, stg_arrow_message *ret)
{
    if (batch == nullptr)
        return;
    stg_arrow_batch_header *to = &ret->batch;
    ret->has_batch = true;
    to->n_rows = batch->length();
    to->nodes = take_vector(batch->nodes(), &to->n_nodes);
    to->extents = take_vector(batch->buffers(), &to->n_extents);
    to->variadic = take_vector(batch->variadic(), &to->n_variadic);
    to->codec = -1;
    if (batch->compression() != nullptr) {
        to->codec = batch->compression()->codec();
        to->method = batch->compression()->method();
    }
}

bool stg_arrow_message_read(const void *data, uint64_t bytes, stg_arrow_message *ret)
{
    if (!has_size(bytes))
        return false;
    flatbuffers::Verifier verifier = verifier_of(data, bytes);
    if (!fb::VerifyMessageBuffer(verifier))
        return false;
    const fb::Message *message = fb::GetMessage(data);
    *ret = {};
    ret->version = message->version();
    ret->header = message->header_type();
    ret->body_bytes = message->body_bytes();
    ret->schema = message->header_as_Schema();
    take_batch(message->header_as_RecordBatch(), ret);
    const fb::DictionaryBatch *dictionary = message->header_as_DictionaryBatch();
    if (dictionary != nullptr) {
        ret->dictionary = dictionary->id();
        ret->is_delta = dictionary->is_delta();
        take_batch(dictionary->data(), ret);
    }
    return true;
}

bool stg_arrow_footer_read(const void *data, uint64_t bytes, stg_arrow_footer *ret)
{
    if (!has_size(bytes))
        return false;
    flatbuffers::Verifier verifier = verifier_of(data, bytes);
    if (!verifier.VerifyBuffer<fb::Footer>(nullptr))
        return false;
    const fb::Footer *footer = flatbuffers::GetRoot<fb::Footer>(data);
    *ret = {};
    ret->version = footer->version();
    ret->schema = footer->schema();
    ret->dictionaries = take_vector(footer->dictionaries(), &ret->n_dictionaries);
    ret->batches = take_vector(footer->batches(), &ret->n_batches);
    return ret->schema != nullptr;
}

static void take_type(const fb::Field *field, stg_arrow_field *to)
{
    to->type = field->type_type();
    if (auto type = field->type_as_Int()) {
        to->bits = type->bits();
        to->is_signed = type->is_signed();
    } else if (auto type = field->type_as_FloatingPoint()) {
        to->bits =
            type->precision() >= 0 && type->precision() < 3 ? 16 << type->precision() : 0;
    } else if (auto type = field->type_as_Decimal()) {
        to->bits = type->bits();
        to->scale = type->scale();
    } else if (auto type = field->type_as_Date()) {
        to->bits = type->unit() == 0 ? 32 : 64;
    } else if (auto type = field->type_as_Time()) {
        to->bits = type->bits();
        to->unit = type->unit();
    } else if (auto type = field->type_as_Timestamp()) {
        to->unit = type->unit();
    } else if (auto type = field->type_as_Duration()) {
        to->unit = type->unit();
    } else if (auto type = field->type_as_FixedSizeBinary()) {
        to->size = type->bytes();
    } else if (auto type = field->type_as_FixedSizeList()) {
        to->size = type->size();
    } else if (auto type = field->type_as_Union()) {
        to->is_sparse = type->mode() == 0;
    }
}

static void take_dictionary(const fb::DictionaryEncoding *dictionary, stg_arrow_field *to)
{
    if (dictionary == nullptr)
        return;
    to->has_dictionary = true;
    to->dictionary = dictionary->id();
    to->index_bits = 32;
    to->index_is_signed = true;
    if (dictionary->index() != nullptr) {
        to->index_bits = dictionary->index()->bits();
        to->index_is_signed = dictionary->index()->is_signed();
    }
}

using Fields = flatbuffers::Vector<flatbuffers::Offset<fb::Field>>;

/* Returns the number of the fields so far. The verifier has limited the nesting. */
static uint32_t take_fields(const Fields *fields, stg_arrow_field *to, uint32_t most,
                            uint32_t n)
{
    for (uint32_t i = 0; fields != nullptr && i < fields->size(); i++) {
        const fb::Field *field = fields->Get(i);
        uint32_t at = n++;
        n = take_fields(field->children(), to, most, n);
        if (at >= most)
            continue;
        to[at] = {};
        to[at].name = field->name() != nullptr ? field->name()->c_str() : "";
        to[at].n_children = field->children() != nullptr ? field->children()->size() : 0;
        to[at].n_below = n - at - 1;
        to[at].is_nullable = field->nullable();
        take_type(field, &to[at]);
        take_dictionary(field->dictionary(), &to[at]);
    }
    return n;
}

uint32_t stg_arrow_schema_fields(const void *schema, stg_arrow_field *ret, uint32_t most)
{
    return take_fields(static_cast<const fb::Schema *>(schema)->fields(), ret, most, 0);
}

bool stg_arrow_schema_is_big_endian(const void *schema)
{
    return static_cast<const fb::Schema *>(schema)->endianness() != 0;
}
