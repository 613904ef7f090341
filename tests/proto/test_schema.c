/* SPDX-License-Identifier: Apache-2.0
 *
 * The code's assumptions about the schema. protobuf-c has no recursion limit: a message
 * that contains itself could overflow the stack within 64 KiB.
 */
#include <stdio.h>
#include <string.h>

#include "proto/control.pb-c.h"
#include "proto/load_read.h"
#include "proto/pipeline.pb-c.h"
#include "tests/check.h"

#define MAX_DEPTH 12

static const ProtobufCMessageDescriptor *const roots[] = {
    &stager__request__descriptor,
    &stager__reply__descriptor,
    &stager__pipeline__descriptor,
    &stager__settings__descriptor,
};

#define N_ROOTS (sizeof(roots) / sizeof(roots[0]))

typedef void field_check(const ProtobufCMessageDescriptor *type,
                         const ProtobufCFieldDescriptor *field);

/* Every field below `type`; above[0..depth) are the messages around it. */
static void walk(const ProtobufCMessageDescriptor *type,
                 const ProtobufCMessageDescriptor **above, int depth, field_check *check)
{
    for (int i = 0; i < depth; i++) {
        if (above[i] == type)
            FAIL("%s contains itself", type->name);
    }
    CHECK(depth < MAX_DEPTH);
    above[depth] = type;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (check != NULL)
            check(type, field);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            walk(field->descriptor, above, depth + 1, check);
    }
}

static void no_message_contains_itself(void)
{
    for (size_t i = 0; i < N_ROOTS; i++) {
        const ProtobufCMessageDescriptor *above[MAX_DEPTH];
        walk(roots[i], above, 0, NULL);
    }
}

static void check_bits(const ProtobufCMessageDescriptor *type,
                       const ProtobufCFieldDescriptor *field)
{
    if (type->n_fields > 128)
        FAIL("%s has %u fields: they do not fit the bits of two words", type->name,
             type->n_fields);
    if (field->label == PROTOBUF_C_LABEL_NONE ||
        (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        FAIL("%s.%s: proto2 without oneof is assumed", type->name, field->name);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_PACKED)
        FAIL("%s.%s: packed fields are refused on the wire", type->name, field->name);
}

static void the_schema_keeps_to_what_is_scanned(void)
{
    for (size_t i = 0; i < N_ROOTS; i++) {
        const ProtobufCMessageDescriptor *above[MAX_DEPTH];
        walk(roots[i], above, 0, check_bits);
    }
}

/* An out-of-range default would be refused when a user writes it in a file. */
static void check_default(const ProtobufCMessageDescriptor *type,
                          const ProtobufCFieldDescriptor *field)
{
    struct stg_read_range range = stg_read_range_of(field, type);
    CHECK(range.min <= range.max);
    if (field->default_value == NULL)
        return;
    int64_t value = 0;
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32: value = *(const uint32_t *)field->default_value; break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_SINT64: value = *(const int64_t *)field->default_value; break;
    default: return;
    }
    if (value < range.min || value > range.max)
        FAIL("%s.%s: the default is out of range", type->name, field->name);
}

static void defaults_lie_in_their_ranges(void)
{
    const ProtobufCMessageDescriptor *above[MAX_DEPTH];
    walk(&stager__pipeline__descriptor, above, 0, check_default);
    walk(&stager__settings__descriptor, above, 0, check_default);
}

/* What proto/convert.c makes of the fields of a step that are messages. */
static bool is_part_of_step(const ProtobufCFieldDescriptor *field)
{
    if (field->descriptor == &stager__node__descriptor)
        return field->label == PROTOBUF_C_LABEL_REPEATED;
    return field->label != PROTOBUF_C_LABEL_REPEATED &&
           (field->descriptor == &stager__features__descriptor ||
            field->descriptor == &stager__attribute__descriptor ||
            field->descriptor == &stager__conditions__descriptor ||
            field->descriptor == &stager__values__descriptor ||
            field->descriptor == &stager__reader__descriptor);
}

/* A step has a message of arguments: a step of another type would be ignored. */
static void every_key_of_a_step_is_a_message(void)
{
    const ProtobufCMessageDescriptor *type = &stager__step__descriptor;
    unsigned n = 0;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (!stg_read_is_key(field))
            continue;
        n++;
        CHECK_INT(field->type, PROTOBUF_C_TYPE_MESSAGE);
        CHECK_INT(field->label, PROTOBUF_C_LABEL_OPTIONAL);
        const ProtobufCMessageDescriptor *arguments = field->descriptor;
        for (unsigned k = 0; k < arguments->n_fields; k++) {
            const ProtobufCFieldDescriptor *argument = &arguments->fields[k];
            if (argument->type == PROTOBUF_C_TYPE_MESSAGE && !is_part_of_step(argument))
                FAIL("%s.%s: such a message is no attribute of a step", arguments->name,
                     argument->name);
        }
    }
    CHECK(n >= 6);
}

static const struct stg_test tests[] = {
    TEST(no_message_contains_itself),
    TEST(the_schema_keeps_to_what_is_scanned),
    TEST(defaults_lie_in_their_ranges),
    TEST(every_key_of_a_step_is_a_message),
};

TEST_MAIN(tests)
