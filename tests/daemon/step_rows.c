/* SPDX-License-Identifier: Apache-2.0
 *
 * One row or more for each transformation. in_place is what TensorFlow gives for the same
 * pipeline (golden_steps.py), but for batch, which loses nothing when an error goes by:
 * there it is what client/docs/dataset.md says.
 */
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/dataset_spec.h"
#include "tests/daemon/golden_tfrecord.h"
#include "tests/daemon/step_harness.h"

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

const struct stg_step_row stg_step_rows[] = {
    {.step = "files",
     .pipeline = "dataset: [{files: {pattern: \"$DIR/*.txt\", shuffle: false}}]",
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_text},
    {.step = "files",
     .pipeline = "dataset: [{files: {pattern: \"$DIR/*.txt\", seed: 3}}]",
     .flags = STG_ROW_OWN_SOURCE | STG_ROW_RESHUFFLES,
     .prepare = make_text},
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
};

const size_t stg_n_step_rows = sizeof(stg_step_rows) / sizeof(stg_step_rows[0]);
