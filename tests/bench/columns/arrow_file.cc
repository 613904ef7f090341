/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/columns/arrow_file.h"

#include <string>
#include <vector>

#include "daemon/format/arrow/metadata_generated.h"

namespace fb = stg::arrow;

static const int16_t V5 = 4;

/* A message is preceded by a mark and its length, and has a multiple of 8 bytes. */
static void put(FILE *to, flatbuffers::FlatBufferBuilder &builder, fb::Header type,
                flatbuffers::Offset<void> header, int64_t body_bytes)
{
    builder.Finish(fb::CreateMessage(builder, V5, type, header, body_bytes));
    const uint32_t mark = 0xffffffff, bytes = (builder.GetSize() + 7) & ~7u;
    const char zeros[8] = {0};
    fwrite(&mark, 1, sizeof(mark), to);
    fwrite(&bytes, 1, sizeof(bytes), to);
    fwrite(builder.GetBufferPointer(), 1, builder.GetSize(), to);
    fwrite(zeros, 1, bytes - builder.GetSize(), to);
}

static flatbuffers::Offset<fb::Field> field_of(flatbuffers::FlatBufferBuilder &builder,
                                               int c)
{
    auto name = builder.CreateString("c" + std::to_string(c));
    auto type = c % 2 == 0 ? fb::CreateInt(builder, 64, true).Union()
                           : fb::CreateFloatingPoint(builder, 1).Union();
    fb::FieldBuilder field(builder);
    field.add_name(name);
    field.add_nullable(true);
    field.add_type_type(c % 2 == 0 ? fb::Type_Int : fb::Type_FloatingPoint);
    field.add_type(type);
    return field.Finish();
}

void bench_arrow_put_schema(FILE *to, int n_columns)
{
    flatbuffers::FlatBufferBuilder builder;
    std::vector<flatbuffers::Offset<fb::Field>> fields;
    for (int c = 0; c < n_columns; c++)
        fields.push_back(field_of(builder, c));
    auto schema = fb::CreateSchema(builder, 0, builder.CreateVector(fields));
    put(to, builder, fb::Header_Schema, schema.Union(), 0);
}

void bench_arrow_put_batch(FILE *to, int n_columns, long n_rows)
{
    flatbuffers::FlatBufferBuilder builder;
    std::vector<fb::FieldNode> nodes;
    std::vector<fb::Buffer> buffers;
    int64_t at = 0;
    for (int c = 0; c < n_columns; c++) {
        int64_t bytes = n_rows * (c % 2 == 0 ? 8 : 4);
        nodes.emplace_back(n_rows, 0);
        buffers.emplace_back(at, 0);
        buffers.emplace_back(at, bytes);
        at += bytes;
    }
    auto batch =
        fb::CreateRecordBatch(builder, n_rows, builder.CreateVectorOfStructs(nodes),
                              builder.CreateVectorOfStructs(buffers));
    put(to, builder, fb::Header_RecordBatch, batch.Union(), at);
}
