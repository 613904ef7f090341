/* SPDX-License-Identifier: Apache-2.0
 *
 * One row or more for each transformation. in_place is TensorFlow's result for the same
 * pipeline (golden_steps.py). If TensorFlow loses collected or counted elements at an
 * error (batch, rebatch, skip, shard), in_place follows docs/dataset.md instead.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/dataset/step_harness.h"
#include "tests/daemon/format/golden_arrow.h"
#include "tests/daemon/format/golden_npy.h"
#include "tests/daemon/format/golden_parquet.h"
#include "tests/daemon/format/golden_tar.h"
#include "tests/daemon/format/golden_tfrecord.h"

/* Divides 12 by the number minus 3. With one call for all numbers, 3 fails. */
#define DIVIDE                                                                           \
    "graph: {three: {op: constant, value: 3, dtype: int64}, "                            \
    "twelve: {op: constant, value: 12, dtype: int64}, "                                  \
    "rest: {op: subtract, input: [value, three]}, "                                      \
    "part: {op: floordiv, input: [twelve, rest]}}, "                                     \
    "output: {part: part, text: text, weight: weight}"

/* One by one: with unknown shapes, and with known ones. */
#define SUM "graph: {sum: {op: reduce_sum, input: list}}, output: {sum: sum, list: list}"
#define WIDEN                                                                            \
    "graph: {wide: {op: expand_dims, input: value, axis: 0}, "                           \
    "half: {op: expand_dims, input: weight, axis: 0}}, output: {wide: wide, half: half}"

static void make_text(void)
{
    STG_TEST_FILE("a.txt", "one\ntwo\na line that is too long\nfour\r\n\nsix");
    STG_TEST_FILE("b.txt", "");
    STG_TEST_FILE("c.txt", "seven\n");
}

/* The second file is damaged: one record, then a length. */
static void make_tfrecords(void)
{
    unsigned char damaged[sizeof(golden_plain)];
    memcpy(damaged, golden_plain, sizeof(damaged));
    damaged[16 + 12] ^= 1;
    damaged[33 + 25] ^= 1;
    stg_test_file("a.tfrecord", golden_plain, sizeof(golden_plain));
    stg_test_file("b.tfrecord", damaged, sizeof(damaged));
    stg_test_file("c.tfrecord", golden_plain, sizeof(golden_plain));
}

/* The second file is truncated. */
static void make_compressed(void)
{
    stg_test_file("a.gz", golden_gzip, sizeof(golden_gzip));
    stg_test_file("b.gz", golden_gzip, sizeof(golden_gzip) / 2);
    stg_test_file("c.gz", golden_gzip, sizeof(golden_gzip));
}

/* Allocates nothing: the failing allocator is active. */
static void remove_cache(void)
{
    _Alignas(struct dirent64) char names[4096];
    int dir = open(stg_test_dir(), O_RDONLY | O_DIRECTORY);
    for (ssize_t n; (n = getdents64(dir, names, sizeof(names))) > 0;) {
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *entry = (const void *)(names + at);
            if (strncmp(entry->d_name, "cache.", 6) == 0)
                unlinkat(dir, entry->d_name, 0);
            at += entry->d_reclen;
        }
    }
    close(dir);
}

static void make_words(void)
{
    STG_TEST_FILE("words", "text 3\n\nt5\n");
}

/* One file is listed twice, and one is missing: this row opens none of them. */
static void make_listing(void)
{
    char text[1000];
    make_text();
    snprintf(text, sizeof(text), "%s/c.txt\r\n\n# nothing\nfile://%s/a.txt\n%s/none",
             stg_test_dir(), stg_test_dir(), stg_test_dir());
    stg_test_file("names", text, strlen(text));
}

static void make_csv(void)
{
    STG_TEST_FILE("a.csv", "h\n1,\"a\nb\"\n\nlong,long,long\r\n2,3");
    STG_TEST_FILE("b.csv", "");
    STG_TEST_FILE("c.csv", "h\n4,\"5");
}

/* The second file has its columns in another order, and a wrong number; the third lacks
 * one, the fourth another one, which has a default; the fifth is empty, and the last one
 * ends inside quotes. */
static void make_named_csv(void)
{
    STG_TEST_FILE("a.csv", "id,name,price\n1,x,0.5\n2,,\n3,\"a \"\"b\"\"\",1\n");
    STG_TEST_FILE("b.csv", "price,more,name,id\r\n1,0,y,4\r\n2,0,z,five\r\n3,0,,6\r\n"
                           "3,0,7\r\n8,0,\"z\nz\",8\r\n");
    STG_TEST_FILE("c.csv", "name,price\nw,2\n");
    STG_TEST_FILE("d.csv", "name,id\n\"u,v\",9\nt,10");
    STG_TEST_FILE("e.csv", "");
    STG_TEST_FILE("f.csv", "id,name,price\n11,s,1\n12,\"r");
}

/* The second file has other rows, the third is truncated. */
static void make_arrays(void)
{
    stg_test_file("a.npy", npy_grid, sizeof(npy_grid));
    stg_test_file("b.npy", npy_line, sizeof(npy_line));
    stg_test_file("c.npy", npy_grid, sizeof(npy_grid) - 30);
    stg_test_file("d.npy", npy_grid, sizeof(npy_grid));
}

/* The second file has a page that is damaged, the third is truncated, and the fourth has
 * no column `price`. */
static void make_tables(void)
{
    unsigned char damaged[sizeof(parquet_lengths)];
    memcpy(damaged, parquet_lengths, sizeof(damaged));
    unsigned char *name = memmem(damaged, sizeof(damaged), "name-1-x", 8);
    name[0] = 'N';
    stg_test_file("a.parquet", parquet_nulls, sizeof(parquet_nulls));
    stg_test_file("b.parquet", damaged, sizeof(damaged));
    stg_test_file("c.parquet", parquet_plain, sizeof(parquet_plain) - 20);
    stg_test_file("d.parquet", parquet_types, sizeof(parquet_types));
    stg_test_file("e.parquet", parquet_dictionary, sizeof(parquet_dictionary));
}

static void make_indexed(void)
{
    stg_test_file("a.indexed", arrow_plain, sizeof(arrow_plain));
    stg_test_file("b.indexed", arrow_plain, sizeof(arrow_plain));
    stg_test_file("order", arrow_indices, sizeof(arrow_indices));
}

/* The second file has a buffer that is damaged, the third is truncated, and two have
 * other columns: dictionaries that are replaced, and that grow. */
static void make_arrows(void)
{
    static const unsigned char frame[] = {0x28, 0xb5, 0x2f, 0xfd};
    unsigned char damaged[sizeof(arrow_zstd)];
    memcpy(damaged, arrow_zstd, sizeof(damaged));
    unsigned char *at = memmem(damaged, sizeof(damaged), frame, sizeof(frame));
    at[0] = 0;
    stg_test_file("a.arrow", arrow_nulls, sizeof(arrow_nulls));
    stg_test_file("b.arrow", damaged, sizeof(damaged));
    stg_test_file("c.arrow", arrow_plain, sizeof(arrow_plain) - 20);
    stg_test_file("d.arrow", arrow_replaced, sizeof(arrow_replaced));
    stg_test_file("e.arrow", arrow_file_deltas, sizeof(arrow_file_deltas));
    stg_test_file("f.arrow", arrow_stream, sizeof(arrow_stream));
}

static void make_archives(void)
{
    stg_test_file("a.tar", tar_small, sizeof(tar_small));
    stg_test_file("b.tar", tar_ustar, sizeof(tar_ustar));
    stg_test_file("c.tar", tar_small, sizeof(tar_small) - 20);
}

#define READER(kind, step)                                                               \
    "dataset:\n- files: {pattern: \"$DIR/*." kind "\", shuffle: false}\n- " step "\n"
static void make_many(void)
{
    STG_TEST_FILE("i1.txt", "a\nb\nc\nd\ne\n");
    STG_TEST_FILE("i2.txt", "f\na line that is too long\ng\n");
    STG_TEST_FILE("i3.txt", "");
    STG_TEST_FILE("i4.txt", "h\ni\nj\nk\nl\nm\nn");
    STG_TEST_FILE("i5.txt", "o\n");
}

#define MANY_FILES "dataset:\n- files: {pattern: \"$DIR/i*.txt\", shuffle: false}\n"
#define TWO_BRANCHES "datasets: {a: [range: {stop: 20}], b: [range: {stop: 20}]}\n"

#define GLOBAL "shuffle: {global: true, seed: 7, "
#define GLOBAL_FLAGS STG_ROW_RESHUFFLES | STG_ROW_COUNTS_ERRORS

const struct stg_step_row stg_step_rows[] = {
    {.step = "files",
     .pipeline = "dataset: [{files: {pattern: \"$DIR/*.txt\", shuffle: false}}]",
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_text},
    {.step = "files",
     .pipeline = "dataset: [{files: {pattern: \"$DIR/*.txt\", seed: 3}}]",
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_RESHUFFLES,
     .prepare = make_text},
    {.step = "files",
     .pipeline = "dataset: [{files: {pattern: $DIR/a.txt, listing: [$DIR/names, "
                 "$DIR/names], shuffle: false}}]",
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_listing},
    {.step = "text_line",
     .pipeline = "dataset:\n- files: {pattern: \"$DIR/*.txt\", shuffle: false}\n"
                 "- text_line: {with_key: true, buffer_size: 4, max_record_bytes: 9}\n",
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_text},
    {.step = "tfrecord",
     .pipeline = "dataset:\n- files: {pattern: \"$DIR/*.tfrecord\", shuffle: false}\n"
                 "- tfrecord: {buffer_size: 50, max_record_bytes: 300}\n",
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_tfrecords},
    {.step = "tfrecord",
     .pipeline = "dataset:\n- files: {pattern: \"$DIR/*.gz\", shuffle: false}\n"
                 "- tfrecord: {buffer_size: 100}\n",
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_compressed},
    {.step = "fixed_length_record",
     .pipeline = READER("txt", "fixed_length_record: {record_bytes: 3, header_bytes: 1, "
                               "footer_bytes: 2, buffer_size: 5}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_text},
    {.step = "csv",
     .pipeline =
         READER("csv", "csv: {header: true, buffer_size: 7, max_record_bytes: 9}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_csv},
    {.step = "csv",
     .pipeline = READER("csv", "csv: {header: true, columns: {id: int64, name: string, "
                               "price: float32}, defaults: {name: none, price: 7.5}, "
                               "buffer_size: 7}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_named_csv},
    {.step = "csv",
     .pipeline = READER("csv", "csv: {header: true, columns: {name: string, id: int32}, "
                               "buffer_size: 20}\n"
                               "- shuffle: {global: true, seed: 3, block_size: 2, "
                               "buffer_size: 6}"),
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_RESHUFFLES,
     .prepare = make_named_csv},
    {.step = "jsonl",
     .pipeline = READER("txt", "jsonl: {buffer_size: 3, max_record_bytes: 9}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_text},
    {.step = "read_file",
     .pipeline = READER("txt", "read_file: {buffer_size: 3, max_record_bytes: 20}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_text},
    {.step = "npy",
     .pipeline = READER("npy", "npy: {dtype: float32, shape: [2, 3], buffer_size: 9}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_arrays},
    {.step = "tar",
     .pipeline = READER("tar", "tar: {parts: [y, x], buffer_size: 600}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_archives},
    {.step = "parquet",
     .pipeline = READER("parquet", "parquet: {columns: {id: int64, name: string, price: "
                                   "float32}, defaults: {name: none, price: 1}}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_tables},
    {.step = "parquet",
     .pipeline = READER("parquet", "parquet: {columns: {name: string, flag: bool}}\n"
                                   "- shuffle: {global: true, seed: 3, block_size: 2, "
                                   "buffer_size: 6}"),
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_RESHUFFLES,
     .prepare = make_tables},
    {.step = "parquet",
     .pipeline = READER("parquet", "parquet: {columns: {id: int64, name: string}, "
                                   "defaults: {name: none}}\n"
                                   "- shuffle: {global: true, seed: 3, buffer_size: 20}"),
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_RESHUFFLES,
     .prepare = make_tables},
    {.step = "parquet",
     .pipeline = READER("parquet", "parquet: {columns: {id: int64, name: string}, "
                                   "defaults: {name: none}, filters: [[[flag, =, "
                                   "false], [id, <, 500]], [[price, \">\", 2]]]}\n"
                                   "- repeat: {count: 2}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_tables},
    {.step = "parquet",
     .pipeline = READER("parquet", "interleave: {cycle_length: 3, num_parallel_calls: 0, "
                                   "reader: {parquet: {columns: {id: int64, name: "
                                   "string}, filters: [[id, <, 500]]}}}\n"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_tables},
    {.step = "arrow",
     .pipeline = READER("arrow", "arrow: {columns: {id: int64, name: string, price: "
                                 "float32}, defaults: {name: none, price: 1}}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_arrows},
    {.step = "arrow",
     .pipeline = READER("arrow", "arrow: {columns: {word: string, number: int32}}\n"
                                 "- shuffle: {global: true, seed: 3, buffer_size: 6}"),
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_RESHUFFLES,
     .prepare = make_arrows},
    {.step = "arrow",
     .pipeline = READER("arrow", "arrow: {columns: {id: int64, name: string}, defaults: "
                                 "{name: none}, filters: [[[id, <, 500], [name, is not "
                                 "null]], [[price, \">\", 2]]]}\n- repeat: {count: 2}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_arrows},
    {.step = "arrow",
     .pipeline = READER("indexed", "arrow: {columns: {id: int64, name: string}, indices: "
                                   "\"$DIR/order\"}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_indexed},
    {.step = "text_line",
     .pipeline = READER("txt", "text_line: {max_record_bytes: 9}"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_text},
    {.step = "tfrecord",
     .pipeline = READER("tfrecord", "tfrecord"),
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_tfrecords},
    {.step = "range",
     .pipeline = "dataset: [{range: {start: 30, stop: -3, step: -4}}]",
     .flags = STG_ROW_OWN_SOURCE},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE("shuffle: {buffer_size: 6, seed: 7, "
                                  "reshuffle_each_iteration: false}")},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE("shuffle: {buffer_size: 1}"),
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE("shuffle: {buffer_size: 4, seed: 7}"),
     .flags = STG_ROW_RESHUFFLES},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE(GLOBAL "block_size: 3, buffer_size: 7}"),
     .flags = GLOBAL_FLAGS},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE(GLOBAL "block_size: 3, buffer_size: 7, "
                                         "reshuffle_each_iteration: false}\n"
                                         "- batch: {batch_size: 2}"),
     .flags = STG_ROW_COUNTS_ERRORS},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE(GLOBAL "exact: true, buffer_size: 6}\n"
                                         "- repeat: {count: 3}"),
     .flags = GLOBAL_FLAGS},
    {.step = "shuffle", .pipeline = STG_AFTER_SOURCE(GLOBAL "}"), .flags = GLOBAL_FLAGS},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE("skip: {count: 2}\n- take: {count: 16}\n"
                                  "- enumerate\n- map: {output: [index, value]}\n"
                                  "- shuffle: {global: true, block_size: 2, "
                                  "buffer_size: 4}"),
     .flags = GLOBAL_FLAGS | STG_ROW_DROPS_ERRORS},
    {.step = "shuffle",
     .flags = GLOBAL_FLAGS | STG_ROW_THREADS,
     .pipeline = STG_AFTER_SOURCE("map: {" DIVIDE ", num_parallel_calls: $CALLS, "
                                  "deterministic: false}\n"
                                  "- " GLOBAL "block_size: 2, buffer_size: 4}")},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: 3, index: 1}\n"
                                  "- " GLOBAL "block_size: 2, buffer_size: 4}"),
     .flags = GLOBAL_FLAGS | STG_ROW_DROPS_ERRORS},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 3}\n"
                                  "- " GLOBAL "block_size: 2, buffer_size: 4}"),
     .flags = GLOBAL_FLAGS | STG_ROW_DROPS_ERRORS},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE("padded_batch: {batch_size: 2, padded_shapes: "
                                  "{list: [2]}, drop_remainder: true}\n"
                                  "- " GLOBAL "exact: true, buffer_size: 3}"),
     .elements = STG_ELEMENTS_VARIED,
     .flags = GLOBAL_FLAGS | STG_ROW_DROPS_ERRORS},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE("ragged_batch: {batch_size: 3}\n"
                                  "- " GLOBAL "block_size: 2, buffer_size: 4}"),
     .elements = STG_ELEMENTS_VARIED,
     .flags = GLOBAL_FLAGS | STG_ROW_DROPS_ERRORS},
    {.step = "shuffle",
     .flags = GLOBAL_FLAGS | STG_ROW_DROPS_ERRORS | STG_ROW_THREADS,
     .pipeline = STG_AFTER_SOURCE("map_and_batch: {" DIVIDE ", batch_size: 2, "
                                  "num_parallel_calls: $CALLS}\n"
                                  "- " GLOBAL "block_size: 2, buffer_size: 4}")},
    {.step = "shuffle",
     .pipeline = TWO_BRANCHES "dataset:\n- concatenate: {from: [a, b]}\n"
                              "- " GLOBAL "block_size: 3, buffer_size: 8}\n",
     .flags = GLOBAL_FLAGS},
    {.step = "shuffle",
     .pipeline = TWO_BRANCHES "dataset:\n- zip: {from: [a, b]}\n"
                              "- " GLOBAL "block_size: 3, buffer_size: 8}\n",
     .flags = GLOBAL_FLAGS | STG_ROW_DROPS_ERRORS},
    {.step = "shuffle",
     .pipeline = MANY_FILES "- text_line: {max_record_bytes: 9, buffer_size: 4}\n"
                            "- " GLOBAL "block_size: 2, buffer_size: 6}\n",
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_RESHUFFLES,
     .prepare = make_many},
    {.step = "shuffle",
     .pipeline = "dataset:\n- files: {pattern: \"$DIR/*.gz\"}\n"
                 "- tfrecord: {buffer_size: 100}\n"
                 "- shuffle: {global: true, exact: true, buffer_size: 3}\n",
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_RESHUFFLES,
     .prepare = make_compressed},
    {.step = "shuffle_and_repeat",
     .pipeline = STG_AFTER_SOURCE("shuffle_and_repeat: {global: true, block_size: 3, "
                                  "buffer_size: 7, count: 2}"),
     .flags = GLOBAL_FLAGS},
    {.step = "repeat",
     .pipeline = STG_AFTER_SOURCE("repeat: {count: 2}"),
     .in_place = "0 1 ! 2 3 4 5 6 7 ! 0 1 ! 2 3 4 5 6 7 !"},
    {.step = "repeat",
     .pipeline = STG_AFTER_SOURCE("shuffle: {buffer_size: 5}\n- repeat: {count: 3}"),
     .flags = STG_ROW_RESHUFFLES},
    {.step = "repeat",
     .pipeline = STG_AFTER_SOURCE("repeat: {count: 0}"),
     .flags = STG_ROW_DROPS_ERRORS,
     .in_place = ""},
    {.step = "batch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 3}"),
     .in_place = "! [0 1 2] [3 4 5] ! [6 7]"},
    {.step = "batch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 3, drop_remainder: true}\n"
                                  "- batch: {batch_size: 2}"),
     .in_place = "! [[0 1 2] [3 4 5]] !"},
    {.step = "batch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 1}"),
     .elements = STG_ELEMENTS_VARIED},
    {.step = "map",
     .pipeline = STG_AFTER_SOURCE("map: {" DIVIDE "}"),
     .in_place = "-4 -6 ! -12 ! 12 6 4 3 !"},
    {.step = "map",
     .flags = STG_ROW_THREADS,
     .pipeline = STG_AFTER_SOURCE("map: {" DIVIDE ", num_parallel_calls: $CALLS}"),
     .in_place = "-4 -6 ! -12 ! 12 6 4 3 !"},
    {.step = "map",
     .pipeline = STG_AFTER_SOURCE("map: {" WIDEN "}\n- batch: {batch_size: 3}"),
     .in_place = "! [[0] [1] [2]] [[3] [4] [5]] ! [[6] [7]]"},
    {.step = "map",
     .flags = STG_ROW_THREADS,
     .pipeline = STG_AFTER_SOURCE("map: {" WIDEN ", num_parallel_calls: $CALLS}\n"
                                  "- batch: {batch_size: 3}"),
     .in_place = "! [[0] [1] [2]] [[3] [4] [5]] ! [[6] [7]]"},
    {.step = "map",
     .pipeline = STG_AFTER_SOURCE("map: {" SUM "}"),
     .elements = STG_ELEMENTS_VARIED},
    {.step = "map",
     .flags = STG_ROW_THREADS,
     .pipeline = STG_AFTER_SOURCE("map: {" DIVIDE ", num_parallel_calls: auto}"),
     .in_place = "-4 -6 ! -12 ! 12 6 4 3 !"},
    {.step = "map",
     .flags = STG_ROW_THREADS,
     .pipeline = STG_AFTER_SOURCE("map: {" SUM ", num_parallel_calls: $CALLS}"),
     .elements = STG_ELEMENTS_VARIED},
    {.step = "map",
     .pipeline = STG_AFTER_SOURCE(
         "map: {graph: {known: {op: vocabulary, file: $DIR/words}, id: {op: lookup, "
         "input: [known, text], num_oov_buckets: 3}}, output: [value, id]}"),
     .in_place = "0 1 ! 2 3 4 5 6 7 !",
     .prepare = make_words},
    {.step = "map_and_batch",
     .flags = STG_ROW_THREADS,
     .pipeline = STG_AFTER_SOURCE("map_and_batch: {" DIVIDE ", batch_size: 2, "
                                  "num_parallel_calls: $CALLS}"),
     .in_place = "[-4 -6] ! ! [-12 12] [6 4] ! [3]"},
    {.step = "padded_batch",
     .pipeline = STG_AFTER_SOURCE("padded_batch: {batch_size: 3}"),
     .in_place = "! [0 1 2] [3 4 5] ! [6 7]"},
    {.step = "padded_batch",
     .pipeline = STG_AFTER_SOURCE("padded_batch: {batch_size: 3, padded_shapes: "
                                  "{list: [2]}, padding_values: {text: pad, list: 7}}"),
     .elements = STG_ELEMENTS_VARIED},
    {.step = "padded_batch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 3}\n"
                                  "- padded_batch: {batch_size: 3}"),
     .in_place = "! ! [[0 1 2] [3 4 5] [6 7 0]]"},
    {.step = "ragged_batch",
     .pipeline = STG_AFTER_SOURCE("ragged_batch: {batch_size: 3}"),
     .elements = STG_ELEMENTS_VARIED},
    {.step = "ragged_batch",
     .pipeline = STG_AFTER_SOURCE("ragged_batch: {batch_size: 3, drop_remainder: true}"),
     .in_place = "! [0 1 2] [3 4 5] !"},
    {.step = "bucket_by_sequence_length",
     .pipeline = STG_AFTER_SOURCE(
         "bucket_by_sequence_length: {element_length: list, bucket_boundaries: [1, 3], "
         "bucket_batch_sizes: [1, 3, 2], pad_to_bucket_boundary: true}"),
     .elements = STG_ELEMENTS_VARIED},
    {.step = "bucket_by_sequence_length",
     .pipeline = STG_AFTER_SOURCE(
         "bucket_by_sequence_length: {graph: {four: {op: constant, value: 4, dtype: "
         "int64}, n: {op: floormod, input: [value, four]}}, element_length: n, "
         "bucket_boundaries: [2], bucket_batch_sizes: [3, 2]}"),
     .in_place = "! [2 3] [0 1 4] [6 7] ! [5]"},
    {.step = "filter",
     .pipeline = STG_AFTER_SOURCE(
         "filter: {graph: {three: {op: constant, value: 3, dtype: int64}, "
         "two: {op: constant, value: 2, dtype: int64}, "
         "rest: {op: floormod, input: [value, three]}, "
         "is: {op: less, input: [rest, two]}}, predicate: is}"),
     .in_place = "0 1 ! 3 4 6 7 !"},
    {.step = "filter",
     .pipeline = STG_AFTER_SOURCE(
         "filter: {graph: {seven: {op: constant, value: 7, dtype: int64}, "
         "sum: {op: reduce_sum, input: list}, "
         "is: {op: less, input: [seven, sum]}}, predicate: is}"),
     .elements = STG_ELEMENTS_VARIED},
    {.step = "take",
     .pipeline = STG_AFTER_SOURCE("take: {count: 5}"),
     .flags = STG_ROW_DROPS_ERRORS,
     .in_place = "0 1 ! 2 3 4"},
    {.step = "take",
     .pipeline = STG_AFTER_SOURCE("take: {count: 2}"),
     .flags = STG_ROW_DROPS_ERRORS,
     .in_place = "0 1"},
    {.step = "take",
     .pipeline = STG_AFTER_SOURCE("take: {count: 0}"),
     .flags = STG_ROW_DROPS_ERRORS,
     .in_place = ""},
    {.step = "take",
     .pipeline = STG_AFTER_SOURCE("take: {count: -1}"),
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "take",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 3}\n- take: {count: 2}\n"
                                  "- repeat: {count: 3}"),
     .flags = STG_ROW_DROPS_ERRORS},
    {.step = "skip",
     .pipeline = STG_AFTER_SOURCE("skip: {count: 3}"),
     .in_place = "! 3 4 5 6 7 !"},
    {.step = "skip",
     .pipeline = STG_AFTER_SOURCE("skip: {count: 2}"),
     .in_place = "! 2 3 4 5 6 7 !"},
    {.step = "skip",
     .pipeline = STG_AFTER_SOURCE("skip: {count: 0}"),
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "skip", .pipeline = STG_AFTER_SOURCE("skip: {count: 8}"), .in_place = "! !"},
    {.step = "skip",
     .pipeline = STG_AFTER_SOURCE("skip: {count: -1}"),
     .flags = STG_ROW_DROPS_ERRORS,
     .in_place = ""},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: 3, index: 1}"),
     .in_place = "1 ! 4 7 !"},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: 3, index: 0}"),
     .in_place = "0 ! 3 6 !"},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: 1, index: 0}"),
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: 2147483647, index: 3}"),
     .in_place = "! 3 !"},
    {.step = "shard", /* a run of no job */
     .pipeline = STG_AFTER_SOURCE("shard: auto"),
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: auto, remainder: pad}"),
     .deal = {.n_hosts = 3, .host = 2},
     .in_place = "! 2 5 ! 6"},
    /* Rounds of weights, of which a position may be in the middle. */
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: auto, weights: [2, 1, 1]}"),
     .deal = {.n_hosts = 3, .host = 0},
     .in_place = "! 0 1 4 5 !"},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: auto, weights: [2, 1, 1]}\n"
                                  "- repeat: {count: 2}"),
     .deal = {.n_hosts = 3, .host = 1},
     .in_place = "! 2 6 ! ! 2 6 !"},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("repeat: {count: 3}\n"
                                  "- shard: {num_shards: auto, weights: [1, 5]}\n"
                                  "- batch: {batch_size: 3}"),
     .deal = {.n_hosts = 2, .host = 1}},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: auto, weights: [4, 2], remainder: "
                                  "pad}"),
     .deal = {.n_hosts = 2, .host = 0},
     .in_place = "! 0 1 2 3 ! 6 7 6 6"},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("shard: {num_shards: auto, weights: [3, 2], remainder: "
                                  "pad}"),
     .deal = {.n_hosts = 2, .host = 1},
     .in_place = "! 3 4 ! 5 5"},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 2}\n"
                                  "- shard: {num_shards: auto, weights: [3], remainder: "
                                  "pad}")},
    {.step = "shard",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 2}\n"
                                  "- shard: {num_shards: 2, index: 1}")},
    {.step = "enumerate",
     .pipeline = STG_AFTER_SOURCE("enumerate: {start: 5}"),
     .flags = STG_ROW_COUNTS_ERRORS,
     .in_place = "5 6 ! 8 9 10 11 12 13 !"},
    {.step = "enumerate",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 3}\n- enumerate\n"
                                  "- enumerate: {start: -4, name: again}\n"
                                  "- repeat: {count: 2}"),
     .flags = STG_ROW_COUNTS_ERRORS},
    {.step = "unbatch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 1}\n- unbatch"),
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "unbatch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 6}\n- unbatch\n"
                                  "- shuffle: {buffer_size: 1}")},
    {.step = "unbatch",
     .pipeline =
         STG_AFTER_SOURCE("batch: {batch_size: 2}\n"
                          "- batch: {batch_size: 3, drop_remainder: true}\n- unbatch")},
    {.step = "unbatch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 4}\n- unbatch\n"
                                  "- batch: {batch_size: 6}\n- unbatch\n"
                                  "- batch: {batch_size: 5}"),
     .in_place = "! [0 1 2 3 4] ! [5 6 7]"},
    {.step = "rebatch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 1}\n- rebatch: {batch_size: 2}"),
     .in_place = "[0 1] ! [2 3] [4 5] [6 7] !"},
    {.step = "rebatch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 1}\n"
                                  "- rebatch: {batch_size: [1, 3]}"),
     .in_place = "[0] ! [1 2 3] [4] [5 6 7] !"},
    {.step = "rebatch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 4}\n"
                                  "- rebatch: {batch_size: 3, drop_remainder: true}"),
     .in_place = "! [0 1 2] [3 4 5] !"},
    {.step = "rebatch",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 2}\n- batch: {batch_size: 2}\n"
                                  "- rebatch: {batch_size: 3}")},
    {.step = "shuffle_and_repeat",
     .pipeline = STG_AFTER_SOURCE("shuffle_and_repeat: {buffer_size: 1, count: 2}"),
     .in_place = "0 1 ! 2 3 4 5 6 7 ! 0 1 ! 2 3 4 5 6 7 !"},
    {.step = "shuffle_and_repeat",
     .pipeline =
         STG_AFTER_SOURCE("shuffle_and_repeat: {buffer_size: 6, count: 3, seed: 7}"),
     .flags = STG_ROW_RESHUFFLES},
    {.step = "ignore_errors",
     .pipeline = STG_AFTER_SOURCE("ignore_errors"),
     .flags = STG_ROW_DROPS_ERRORS,
     .in_place = "0 1 2 3 4 5 6 7"},
    {.step = "ignore_errors",
     .pipeline = STG_AFTER_SOURCE("ignore_errors: {max_ignored: 6}\n"
                                  "- batch: {batch_size: 3}"),
     .flags = STG_ROW_DROPS_ERRORS,
     .in_place = "[0 1 2] [3 4 5] [6 7]"},
    {.step = "prefetch",
     .flags = STG_ROW_AHEAD,
     .pipeline = STG_AFTER_SOURCE("prefetch: {buffer_size: 3}"),
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "prefetch",
     .flags = STG_ROW_AHEAD,
     .pipeline = STG_AFTER_SOURCE("prefetch: {buffer_size: 1}"),
     .elements = STG_ELEMENTS_VARIED | STG_ELEMENTS_SCALAR,
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "prefetch",
     .flags = STG_ROW_THREADS,
     .pipeline = STG_AFTER_SOURCE("prefetch: {buffer_size: auto}\n- repeat: {count: 2}"),
     .in_place = "0 1 ! 2 3 4 5 6 7 ! 0 1 ! 2 3 4 5 6 7 !"},
    {.step = "prefetch",
     .flags = STG_ROW_AHEAD,
     .pipeline =
         STG_AFTER_SOURCE("prefetch: {buffer_size: 1000}\n- batch: {batch_size: 3}\n"
                          "- prefetch: {buffer_size: 2}\n- repeat: {count: 2}"),
     .in_place = "! [0 1 2] [3 4 5] ! [6 7] ! [0 1 2] [3 4 5] ! [6 7]"},
    {.step = "cache",
     .pipeline = STG_AFTER_SOURCE("cache"),
     .elements = STG_ELEMENTS_USUAL | STG_ELEMENTS_VARIED,
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "cache",
     .pipeline = STG_AFTER_SOURCE("batch: {batch_size: 3}\n- cache\n"
                                  "- take: {count: 2}\n- repeat: {count: 3}"),
     .flags = STG_ROW_DROPS_ERRORS,
     .in_place = "! [0 1 2] [3 4 5] ! [0 1 2] [3 4 5] ! [0 1 2] [3 4 5]"},
    {.step = "cache",
     .pipeline = STG_AFTER_SOURCE("cache: {filename: $DIR/cache}"),
     .elements = STG_ELEMENTS_USUAL | STG_ELEMENTS_VARIED,
     .in_place = "0 1 ! 2 3 4 5 6 7 !",
     .reset = remove_cache},
    {.step = "cache",
     .pipeline = STG_AFTER_SOURCE("ignore_errors\n- batch: {batch_size: 3}\n"
                                  "- cache: {filename: $DIR/cache}\n- unbatch\n"
                                  "- repeat: {count: 3}"),
     .flags = STG_ROW_DROPS_ERRORS,
     .in_place = "0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7",
     .reset = remove_cache},
    {.step = "interleave",
     .pipeline = MANY_FILES "- interleave: {cycle_length: 2, block_length: 2, reader: "
                            "{text_line: {max_record_bytes: 9, buffer_size: 4}}}\n",
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_THREADS,
     .prepare = make_many},
    {.step = "interleave",
     .pipeline = MANY_FILES "- interleave: {cycle_length: 7, num_parallel_calls: $CALLS, "
                            "reader: {text_line: {buffer_size: 64}}}\n",
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_THREADS,
     .prepare = make_many},
    {.step = "interleave",
     .pipeline = MANY_FILES "- interleave: {cycle_length: 4, num_parallel_calls: 0, "
                            "buffer_output_elements: 1, reader: {text_line: {with_key: "
                            "true}}}\n- repeat: {count: 2}\n",
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_many},
    {.step = "parallel_interleave",
     .pipeline = MANY_FILES
     "- parallel_interleave: {cycle_length: 3, reader: {text_line: {buffer_size: 64}}}\n",
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_THREADS,
     .prepare = make_many},
    {.step = "zip",
     .pipeline = TWO_BRANCHES "dataset: [zip: {from: [a, b]}]",
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "zip",
     .pipeline = "datasets: {a: [range: {stop: 20}, batch: {batch_size: 3}]}\n"
                 "dataset: [range: {stop: 5}, zip: {from: [a]}]",
     .flags = STG_ROW_COUNTS_ERRORS | STG_ROW_DROPS_ERRORS},
    {.step = "sample_from_datasets",
     .pipeline = TWO_BRANCHES "dataset: [sample_from_datasets: {from: [a, b], weights: "
                              "[1, 3], seed: 4}]",
     .flags = STG_ROW_COUNTS_ERRORS},
    {.step = "sample_from_datasets",
     .pipeline = "datasets: {a: [range: {stop: 20}, batch: {batch_size: 3}]}\n"
                 "dataset: [range: {stop: 9}, batch: {batch_size: 2}, "
                 "sample_from_datasets: {from: [a], rerandomize_each_iteration: true}]",
     .flags = STG_ROW_RESHUFFLES | STG_ROW_COUNTS_ERRORS},
    {.step = "sample_from_datasets",
     .pipeline = "dataset: [range: {stop: 20}, sample_from_datasets: {}]",
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
    {.step = "choose_from_datasets",
     .pipeline =
         MANY_FILES "- text_line\n- choose_from_datasets: {from: [b], "
                    "choice_dataset: c, stop_on_empty_dataset: false}\n"
                    "datasets:\n  b:\n  - files: {pattern: \"$DIR/i4.txt\"}\n"
                    "  - text_line\n  c: [range: {stop: 2}, repeat: {count: 40}]\n",
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_many},
    {.step = "concatenate",
     .pipeline = TWO_BRANCHES "dataset: [concatenate: {from: [a, b]}]",
     .in_place = "0 1 ! 2 3 4 5 6 7 ! 0 1 ! 2 3 4 5 6 7 !"},
    {.step = "concatenate",
     .pipeline = TWO_BRANCHES "dataset: [range: {stop: 20}, concatenate: {from: [b, a]}, "
                              "batch: {batch_size: 4}]"},
    {.step = "py_function", /* runners call it: here the step before it does */
     .pipeline = STG_AFTER_SOURCE("py_function: {function: \"m:f\"}"),
     .elements = STG_ELEMENTS_USUAL | STG_ELEMENTS_VARIED,
     .in_place = "0 1 ! 2 3 4 5 6 7 !"},
};

const size_t stg_n_step_rows = sizeof(stg_step_rows) / sizeof(stg_step_rows[0]);
