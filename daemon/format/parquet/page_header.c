/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/page_header.h"

#include "daemon/format/parquet/thrift.h"

/* Sizes and counts have 31 bits. */
static uint32_t size(struct stg_thrift *thrift, const struct stg_thrift_field *field)
{
    int64_t value = stg_thrift_int(thrift, field);
    if (value < 0 || value > INT32_MAX)
        thrift->is_bad = true;
    return (uint32_t)value;
}

static void read_data(struct stg_thrift *thrift, struct stg_parquet_page_header *to)
{
    struct stg_thrift_field field = {0};
    while (stg_thrift_next(thrift, &field)) {
        switch (field.id) {
        case 1: to->n = size(thrift, &field); break;
        case 2: to->encoding = (int)size(thrift, &field); break;
        case 3: to->level_encoding = (int)size(thrift, &field); break;
        case 4: to->repetition_encoding = (int)size(thrift, &field); break;
        default: stg_thrift_skip(thrift, &field);
        }
    }
}

static void read_dictionary(struct stg_thrift *thrift, struct stg_parquet_page_header *to)
{
    struct stg_thrift_field field = {0};
    while (stg_thrift_next(thrift, &field)) {
        switch (field.id) {
        case 1: to->n = size(thrift, &field); break;
        case 2: to->encoding = (int)size(thrift, &field); break;
        default: stg_thrift_skip(thrift, &field);
        }
    }
}

static void read_data_v2(struct stg_thrift *thrift, struct stg_parquet_page_header *to)
{
    struct stg_thrift_field field = {0};
    uint32_t definition_bytes = 0;
    while (stg_thrift_next(thrift, &field)) {
        switch (field.id) {
        case 1: to->n = size(thrift, &field); break;
        case 4: to->encoding = (int)size(thrift, &field); break;
        case 5: definition_bytes = size(thrift, &field); break;
        case 6: to->repetition_bytes = size(thrift, &field); break;
        case 7: to->is_plain = !stg_thrift_bool(thrift, &field); break;
        default: stg_thrift_skip(thrift, &field);
        }
    }
    to->level_bytes = definition_bytes + to->repetition_bytes;
}

uint64_t stg_parquet_page_header_parse(const void *data, uint64_t n,
                                       struct stg_parquet_page_header *ret)
{
    struct stg_thrift thrift = {.at = data, .end = (const uint8_t *)data + n};
    struct stg_thrift_field field = {0};
    bool has_bytes = false, has_plain = false, has_part = false;
    *ret = (struct stg_parquet_page_header){.kind = -1, .encoding = -1};
    while (stg_thrift_next(&thrift, &field)) {
        int part = field.id == 5   ? STG_PARQUET_DATA_PAGE
                   : field.id == 7 ? STG_PARQUET_DICTIONARY_PAGE
                   : field.id == 8 ? STG_PARQUET_DATA_PAGE_V2
                                   : -1;
        if (part >= 0 && part == ret->kind && stg_thrift_struct(&thrift, &field)) {
            has_part = true;
            if (part == STG_PARQUET_DATA_PAGE)
                read_data(&thrift, ret);
            else if (part == STG_PARQUET_DICTIONARY_PAGE)
                read_dictionary(&thrift, ret);
            else
                read_data_v2(&thrift, ret);
        } else if (field.id == 1) {
            ret->kind = (int)size(&thrift, &field);
        } else if (field.id == 2) {
            has_plain = true;
            ret->plain_bytes = size(&thrift, &field);
        } else if (field.id == 3) {
            has_bytes = true;
            ret->bytes = size(&thrift, &field);
        } else if (field.id == 4) {
            ret->has_crc = true;
            ret->crc = (uint32_t)stg_thrift_int(&thrift, &field);
        } else {
            stg_thrift_skip(&thrift, &field);
        }
    }
    bool needs_part = ret->kind == STG_PARQUET_DATA_PAGE ||
                      ret->kind == STG_PARQUET_DICTIONARY_PAGE ||
                      ret->kind == STG_PARQUET_DATA_PAGE_V2;
    if (thrift.is_bad || !has_bytes || !has_plain || has_part != needs_part)
        return 0;
    return (uint64_t)(thrift.at - (const uint8_t *)data);
}
