/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptions of files: what pyarrow was given when it wrote them; errors; damage.
 */
#include "daemon/describe/describe.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/format/arrow/metadata.h"
#include "tests/check.h"
#include "tests/daemon/format/golden_arrow.h"
#include "tests/daemon/format/golden_npy.h"
#include "tests/daemon/format/golden_parquet.h"
#include "tests/daemon/format/golden_tar.h"
#include "tests/daemon/format/golden_tfrecord.h"

#define SECOND UINT64_C(1000000000)
#define MUTATIONS 150 /* of each file; STG_DESCRIBE_MUTATIONS=n draws others */

static char folder[64];

static void begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/stg-describe-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    CHECK_INT(chmod(folder, 0755), 0);
}

static void end(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    CHECK_INT(system(command), 0);
}

static void put(const char *name, const void *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

static int describe(const char *name, uint32_t first, uid_t uid,
                    struct stg_description **ret, struct stg_err *err)
{
    struct stg_identity identity = {.uid = uid, .gid = uid};
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return stg_describe(
        &(struct stg_describe_config){
            .url = path, .first = first, .identity = &identity, .wait_ns = 60 * SECOND},
        ret, err);
}

static void add(char *to, size_t size, const char *text)
{
    size_t n = strlen(to);
    snprintf(to + n, size - n, "%s", text);
}

/* "NAME TYPE LOGICAL DTYPE SHAPE null\n" for each column, after a line for the file. */
static const char *text_of(const char *name, uint32_t first)
{
    static char all[16384];
    struct stg_description *d = NULL;
    struct stg_err err = {0};
    if (describe(name, first, getuid(), &d, &err) < 0) {
        snprintf(all, sizeof(all), "%d %s\n", err.code, err.text);
        return all;
    }
    const struct stg_file_schema *schema = stg_description_schema(d);
    snprintf(all, sizeof(all), "%s%s%s %llu rows %u parts%s\n", schema->format,
             schema->compression != NULL ? " " : "",
             schema->compression != NULL ? schema->compression : "",
             (unsigned long long)schema->n_rows, schema->n_parts,
             schema->has_more ? ", more" : "");
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *c = &schema->columns[i];
        char shape[64] = "";
        add(all, sizeof(all), c->name);
        for (int k = 0; k < 2; k++) {
            const char *text = k == 0 ? c->type : c->logical;
            add(all, sizeof(all), text != NULL ? " " : "");
            add(all, sizeof(all), text != NULL ? text : "");
        }
        add(all, sizeof(all), c->dtype != 0 ? ": " : ": -");
        add(all, sizeof(all), c->dtype != 0 ? stg_dtype_name(c->dtype) : "");
        if (c->ndim > 0)
            add(all, sizeof(all),
                stg_shape_text(c->shape, c->ndim, shape, sizeof(shape)));
        add(all, sizeof(all), c->nullable ? " null" : "");
        add(all, sizeof(all), c->problem != NULL ? " " : "");
        add(all, sizeof(all), c->problem != NULL ? c->problem : "");
        add(all, sizeof(all), "\n");
    }
    stg_description_free(d);
    return all;
}

/* ---- Parquet ---- */

static void a_parquet_file_has_its_columns(void)
{
    begin();
    put("a", parquet_plain, sizeof(parquet_plain));
    CHECK_STR(text_of("a", 0), "parquet 23 rows 3 parts\n"
                               "id INT64: int64\n"
                               "price FLOAT: float32\n"
                               "name BYTE_ARRAY STRING: string\n"
                               "flag BOOLEAN: bool\n");
    put("a", parquet_types, sizeof(parquet_types));
    CHECK_STR(text_of("a", 0), "parquet 23 rows 1 parts\n"
                               "day INT32 DATE: int32 null\n"
                               "moment INT96: int64 null\n"
                               "cents INT32 DECIMAL(9, 2): int32 null\n"
                               "small INT32 INT_8: int8 null\n"
                               "code FIXED_LEN_BYTE_ARRAY(3): string null\n"
                               "user/id INT64: int64 null\n"
                               "user/tag/word BYTE_ARRAY STRING: string null\n");
    put("a", parquet_lists_v1, sizeof(parquet_lists_v1));
    CHECK_STR(text_of("a", 0), "parquet 23 rows 2 parts\n"
                               "id INT64: int64 null\n"
                               "ids INT64: int64[?] null\n"
                               "words BYTE_ARRAY STRING: string[?] null\n"
                               "deep INT64: int64[?, ?] null\n"
                               "point FLOAT: float32[?] null\n"
                               "map/key BYTE_ARRAY STRING: string[?] null\n"
                               "map/value INT32: int32[?] null\n"
                               "structs/a INT64: int64[?] null\n"
                               "structs/b BYTE_ARRAY STRING: string[?] null\n");
    end();
}

static void a_parquet_column_has_encodings_codec_and_sizes(void)
{
    struct stg_description *d = NULL;
    struct stg_err err = {0};
    begin();
    put("a", parquet_delta, sizeof(parquet_delta));
    CHECK_INT(describe("a", 0, getuid(), &d, &err), 0);
    const struct stg_file_schema *schema = stg_description_schema(d);
    CHECK_STR(schema->columns[0].encodings, "RLE, DELTA_BINARY_PACKED");
    CHECK_STR(schema->columns[0].codec, "UNCOMPRESSED");
    CHECK_STR(schema->columns[1].encodings, "RLE, BYTE_STREAM_SPLIT");
    CHECK_STR(schema->columns[1].codec, "LZ4_RAW");
    CHECK_INT(schema->bytes, sizeof(parquet_delta));
    CHECK(schema->columns[0].bytes > 0 &&
          schema->columns[0].bytes == schema->columns[0].plain_bytes);
    stg_description_free(d);
    end();
}

static void a_column_that_cannot_be_read_has_the_reason(void)
{
    begin();
    put("a", parquet_brotli, sizeof(parquet_brotli));
    CHECK_STR(text_of("a", 0), "parquet 2 rows 1 parts\n"
                               "id INT64: - null its codec is BROTLI, which is not "
                               "supported\n");
    end();
}

static void columns_from_a_number_on_are_described(void)
{
    begin();
    put("a", parquet_plain, sizeof(parquet_plain));
    CHECK_STR(text_of("a", 3), "parquet 23 rows 3 parts\nflag BOOLEAN: bool\n");
    CHECK_STR(text_of("a", 4), "parquet 23 rows 3 parts\n");
    CHECK_STR(text_of("a", UINT32_MAX), "parquet 23 rows 3 parts\n");
    end();
}

/* ---- Arrow ---- */

static void an_arrow_file_has_its_columns(void)
{
    if (!stg_arrow_is_built)
        SKIP("this build has no flatbuffers");
    begin();
    put("a", arrow_plain, sizeof(arrow_plain));
    CHECK_CONTAINS(text_of("a", 0), "id int64: int64 null\n"
                                    "price float32: float32 null\n"
                                    "name utf8: string null\n"
                                    "flag bool: bool null\n");
    end();
}

/* ---- records ---- */

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

static void csv_has_names_and_guessed_dtypes(void)
{
    begin();
    put_text("a", "id,price,site\n1,0.5,a\n-2,7,\"b,\n\"\"c\"\"\"\n3,,\n");
    CHECK_STR(text_of("a", 0), "csv 0 rows 0 parts\n"
                               "id integer: int64\n"
                               "price number: float32 null\n"
                               "site text: string null\n");
    put_text("a", "1;2;x\n3;4;y\n");
    CHECK_STR(text_of("a", 0), "csv 0 rows 0 parts\n"
                               "column_0 integer: int64\n"
                               "column_1 integer: int64\n"
                               "column_2 text: string\n");
    put_text("a", "name\tcity\nann\tparis\nbob\trome");
    CHECK_STR(text_of("a", 0), "csv 0 rows 0 parts\n"
                               "name text: string\n"
                               "city text: string\n");
    put_text("a", "a line\nand another\n");
    CHECK_STR(text_of("a", 0), "text_line 0 rows 0 parts\nrecord a line: string\n");
    put_text("a", "a,a\n1,2\n");
    CHECK_STR(text_of("a", 0), "csv 0 rows 0 parts\n"
                               "column_0 text: string\n"
                               "column_1 text: string\n");
    end();
}

static void json_lines_have_keys(void)
{
    begin();
    put_text("a", "{\"a\": 1, \"b\": [1, 2.5], \"c\": \"x\", \"d\": true}\n\n"
                  "{\"a\": 1.5, \"b\": [3, 4], \"e\": {\"f\": 1}, \"d\": null}\n");
    CHECK_STR(
        text_of("a", 0),
        "jsonl 0 rows 0 parts\n"
        "a number: float32\n"
        "b list of number: float32[2]\n"
        "c string: string null\n"
        "d bool: bool null\n"
        "e object or nested list: - null parse_json reads no objects in objects, and "
        "needs the shape of nested lists\n");
    end();
}

/* ---- files ---- */

static void a_pattern_stands_for_its_first_file(void)
{
    begin();
    put("b.parquet", parquet_plain, sizeof(parquet_plain));
    put("a.parquet", parquet_empty, sizeof(parquet_empty));
    CHECK_STR(text_of("*.parquet", 0), "parquet 0 rows 1 parts, more\n"
                                       "id INT64: int64 null\n");
    CHECK_CONTAINS(text_of("{b,a}.parquet", 0), "parquet 23 rows 3 parts, more\n");
    CHECK_CONTAINS(text_of("b.parquet", 0), "parquet 23 rows 3 parts\n");
    CHECK_CONTAINS(text_of("*.csv", 0), "-5 no files matched ");
    end();
}

static void a_file_that_the_user_may_not_read_is_not_described(void)
{
    struct stg_description *d = NULL;
    struct stg_err err = {0};
    char path[128];
    begin();
    put("a", parquet_plain, sizeof(parquet_plain));
    snprintf(path, sizeof(path), "%s/a", folder);
    CHECK_INT(chmod(path, 0600), 0);
    if (getuid() != 0)
        SKIP("only root can ask as another user");
    CHECK_INT(describe("a", 0, 54321, &d, &err), -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(err.text, "user 54321 may not read ");
    end();
}

static void a_file_of_no_format_is_an_error(void)
{
    begin();
    put("a", "\0\1\2\3\4\5\6\7", 8);
    CHECK_CONTAINS(text_of("a", 0), "/a: it is of no format that stager knows");
    put("a", "", 0);
    CHECK_CONTAINS(text_of("a", 0), "/a: it is empty");
    put("a", "PAR1PAR1", 8);
    CHECK_CONTAINS(text_of("a", 0), "/a: it is not a Parquet file, or it is truncated");
    end();
}

static void a_cancelled_description_ends(void)
{
    struct stg_identity identity = {.uid = getuid()};
    struct stg_description *d = NULL;
    struct stg_err err = {0};
    _Atomic int stopped = 1;
    char path[128];
    begin();
    snprintf(path, sizeof(path), "%s/fifo", folder);
    CHECK_INT(mkfifo(path, 0644), 0); /* an open of it would hang */
    struct stg_describe_config config = {
        .url = path, .identity = &identity, .wait_ns = 60 * SECOND, .stopped = &stopped};
    int rc = stg_describe(&config, &d, &err);
    CHECK(rc == -STAGER_CANCELLED || rc == -STAGER_INVALID_ARGUMENT);
    end();
}

/* ---- damage ---- */

static uint64_t random_state = 1;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % below;
}

static int n_mutations(void)
{
    const char *text = getenv("STG_DESCRIBE_MUTATIONS");
    return text != NULL ? atoi(text) : MUTATIONS;
}

/* A description or an error with the file; columns are whole. */
static void describe_damaged(const void *data, size_t bytes)
{
    struct stg_description *d = NULL;
    struct stg_err err = {0};
    put("a", data, bytes);
    if (describe("a", 0, getuid(), &d, &err) < 0) {
        CHECK_CONTAINS(err.text, "/a");
        CHECK(err.code != -STAGER_RESOURCE_EXHAUSTED);
        return;
    }
    const struct stg_file_schema *schema = stg_description_schema(d);
    CHECK(schema->n <= schema->n_total);
    for (size_t i = 0; i < schema->n; i++) {
        CHECK((schema->columns[i].dtype == 0) == (schema->columns[i].problem != NULL));
        CHECK(schema->columns[i].ndim <= STG_MAX_DIMS);
    }
    stg_description_free(d);
}

static const char *const texts[] = {
    "id,price,site\n1,0.5,a\n-2,7,\"b,\n\"\"c\"\"\"\n3,,\n",
    "{\"a\": 1, \"b\": [1, 2.5], \"c\": \"x\\u00e9\", \"d\": {\"e\": [[]]}}\n{\"a\": "
    "2}\n"};

static void mutate(const void *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes);
    for (int k = n_mutations(); k > 0; k--) {
        memcpy(copy, data, bytes);
        for (uint64_t n = draw(3) + 1; n > 0; n--) {
            uint64_t at = draw(2) == 0 ? draw(bytes) : bytes - 1 - draw(bytes / 4 + 1);
            if (draw(2) == 0)
                copy[at] ^= (uint8_t)(1u << draw(8));
            else
                copy[at] = draw(3) == 0 ? 0xff : (uint8_t)draw(256);
        }
        describe_damaged(copy, draw(8) == 0 ? draw(bytes + 1) : bytes);
    }
    free(copy);
}

static void a_damaged_file_is_an_error_or_a_description(void)
{
    begin();
    for (size_t i = 0; i < sizeof(parquet_files) / sizeof(parquet_files[0]); i++)
        mutate(parquet_files[i].data, parquet_files[i].bytes);
    for (size_t i = 0; i < sizeof(arrow_files) / sizeof(arrow_files[0]); i++)
        mutate(arrow_files[i].data, arrow_files[i].bytes);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        mutate(texts[i], strlen(texts[i]));
    mutate(golden_plain, sizeof(golden_plain));
    mutate(golden_gzip, sizeof(golden_gzip));
    mutate(golden_payloads, sizeof(golden_payloads));
    mutate(tar_pax, sizeof(tar_pax));
    mutate(npy_grid, sizeof(npy_grid));
    end();
}

static const struct stg_test tests[] = {
    TEST(a_parquet_file_has_its_columns),
    TEST(a_parquet_column_has_encodings_codec_and_sizes),
    TEST(a_column_that_cannot_be_read_has_the_reason),
    TEST(columns_from_a_number_on_are_described),
    TEST(an_arrow_file_has_its_columns),
    TEST(csv_has_names_and_guessed_dtypes),
    TEST(json_lines_have_keys),
    TEST(a_pattern_stands_for_its_first_file),
    TEST(a_file_that_the_user_may_not_read_is_not_described),
    TEST(a_file_of_no_format_is_an_error),
    TEST(a_cancelled_description_ends),
    TEST_SLOW(a_damaged_file_is_an_error_or_a_description, 240),
};

TEST_MAIN(tests)
