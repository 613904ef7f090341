/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs stagerctl's writers for test_json.py: one line in, one JSON document out.
 *
 *   number DTYPE HEXBITS         a float as its bits, big-endian hex
 *   string HEX                   bytes
 *   tensor DTYPE 2,3 HEX         elements as they lie in memory
 *   strings 2,3 HEX,HEX,…        one string each
 *   table                        an object with every kind of value and nesting
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stagerctl/text/values.h"
#include "core/status.h"
#include "core/text/json.h"

#define LINE_BYTES (1u << 20)

static struct stg_json_writer json;

static size_t read_hex(const char *hex, char *ret)
{
    size_t n = 0;
    for (; hex[0] != '\0' && hex[1] != '\0' && hex[0] != ','; hex += 2) {
        char pair[] = {hex[0], hex[1], '\0'};
        ret[n++] = (char)strtoul(pair, NULL, 16);
    }
    return n;
}

static void print_number(const char *dtype_name, const char *hex)
{
    int dtype = stg_dtype_from_name(dtype_name);
    uint64_t bits = strtoull(hex, NULL, 16);
    uint32_t bits32 = (uint32_t)bits;
    double value;
    float value32;
    if (dtype == STAGER_FLOAT64) {
        memcpy(&value, &bits, sizeof(value));
    } else if (dtype == STAGER_FLOAT32) {
        memcpy(&value32, &bits32, sizeof(value32));
        value = (double)value32;
    } else if (dtype == STAGER_FLOAT16) {
        value = stg_number_from_float16((uint16_t)bits);
    } else {
        value = stg_number_from_bfloat16((uint16_t)bits);
    }
    stg_json_float(&json, value, dtype);
}

static void read_shape(char *text, struct stager_tensor *tensor)
{
    for (char *part = strtok(text, ","); part != NULL; part = strtok(NULL, ","))
        tensor->shape[tensor->ndim++] = atoll(part);
}

static void print_tensor(const char *dtype_name, char *shape, const char *hex)
{
    static _Alignas(64) char data[LINE_BYTES];
    struct stager_tensor tensor = {.dtype = stg_dtype_from_name(dtype_name),
                                   .data = data};
    if (strcmp(shape, "-") != 0)
        read_shape(shape, &tensor);
    tensor.data_bytes = read_hex(hex, data);
    stg_values_json(&json, &tensor);
}

static void print_strings(char *shape, const char *hex)
{
    static char data[LINE_BYTES];
    static int64_t offsets[4096];
    struct stager_tensor tensor = {
        .dtype = STAGER_STRING, .data = data, .offsets = offsets};
    read_shape(shape, &tensor);
    size_t n = 0;
    for (int64_t used = 0; hex != NULL; n++) {
        used += (int64_t)read_hex(hex, data + used);
        offsets[n + 1] = used;
        tensor.data_bytes = (uint64_t)used;
        hex = strchr(hex, ',');
        hex = hex != NULL ? hex + 1 : NULL;
    }
    stg_values_json(&json, &tensor);
}

static void print_table(void)
{
    stg_json_object_begin(&json);
    stg_json_key(&json, "a \"key\"\n");
    stg_json_array_begin(&json);
    stg_json_int(&json, INT64_MIN);
    stg_json_uint(&json, UINT64_MAX);
    stg_json_bool(&json, true);
    stg_json_bool(&json, false);
    stg_json_null(&json);
    stg_json_string(&json, "x");
    stg_json_array_begin(&json);
    stg_json_array_end(&json);
    stg_json_object_begin(&json);
    stg_json_object_end(&json);
    stg_json_array_end(&json);
    stg_json_key(&json, "b");
    stg_json_object_begin(&json);
    stg_json_key(&json, "c");
    stg_json_int(&json, -1);
    stg_json_object_end(&json);
    stg_json_object_end(&json);
}

int main(void)
{
    static char line[LINE_BYTES];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        static char empty[1];
        char *word, *words[4] = {empty, empty, empty, empty};
        line[strcspn(line, "\n")] = '\0';
        char *rest = line;
        for (int i = 0; i < 4 && (word = strsep(&rest, " ")) != NULL; i++)
            words[i] = word;
        json = (struct stg_json_writer){.out = stdout};
        if (strcmp(words[0], "number") == 0)
            print_number(words[1], words[2]);
        else if (strcmp(words[0], "tensor") == 0)
            print_tensor(words[1], words[2], words[3]);
        else if (strcmp(words[0], "strings") == 0)
            print_strings(words[1], words[2]);
        else if (strcmp(words[0], "table") == 0)
            print_table();
        else {
            static char data[LINE_BYTES];
            stg_json_bytes(&json, data, read_hex(words[1], data));
        }
        putchar('\n');
    }
    return 0;
}
