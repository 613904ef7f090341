/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of a record index: what was noted is found; a file that is cut, flipped,
 * forged or of another identity is never believed; size, rights and leftovers of the
 * folder.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/index/layout.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static const struct stg_index_key key = {
    .url = "/data/a.csv", .reader = "csv", .version = 77, .bytes = 1 << 20};

static void configure(uint64_t most_bytes)
{
    struct stg_err err = {0};
    stg_log_set_level(STG_LOG_ERROR);
    CHECK_OK(stg_index_configure(stg_test_path("index"), most_bytes, &err), err);
}

/* Record k is at position 3k + 1: an error lies before each, and another behind. */
static struct stg_index_place place_of(uint64_t k)
{
    return (struct stg_index_place){.position = 3 * k + 1,
                                    .record = 2 * k + 5,
                                    .offset = 10 + k * (STG_INDEX_SPACING + k),
                                    .check = k * k};
}

static struct stg_index_totals totals_of(uint64_t n)
{
    return (struct stg_index_totals){.n_positions = 3 * n,
                                     .n_records = n,
                                     .end = place_of(n > 0 ? n - 1 : 0).offset + 5};
}

static uint64_t store(const struct stg_index_key *of, uint64_t n)
{
    struct stg_index_totals totals = totals_of(n);
    struct stg_index_builder *builder = stg_index_build(of);
    uint64_t bytes;
    CHECK(builder != NULL);
    for (uint64_t k = 0; k < n; k++) {
        struct stg_index_place place = place_of(k);
        CHECK(place.offset >= builder->next);
        stg_index_note(builder, &place);
    }
    CHECK(stg_index_commit(builder, &totals, &bytes));
    return bytes;
}

/* Returns whether the index is there; then it says what was stored, or nothing. */
static bool is_right(uint64_t n)
{
    struct stg_index *index;
    struct stg_index_totals want = totals_of(n);
    if (!stg_index_open(&key, &index))
        return false;
    CHECK(memcmp(stg_index_totals(index), &want, sizeof(want)) == 0);
    bool found = true;
    for (uint64_t position = 1; found && position <= 3 * n; position++) {
        struct stg_index_place place = {0}, right = place_of((position - 2) / 3);
        uint64_t last = 0;
        found = stg_index_find(index, position, &place, &last);
        if (position == 1) {
            CHECK(!found);
            found = true;
        } else if (found) {
            CHECK(memcmp(&place, &right, sizeof(place)) == 0);
            uint64_t k = (position - 2) / 3 + 1;
            CHECK(last == (k < n ? place_of(k).position : UINT64_MAX));
        }
    }
    stg_index_close(index);
    return found;
}

static const char *path_of_file(void)
{
    static char path[4096];
    size_t bytes;
    char name[STG_FOLDER_NAME], *text = stg_index_key_text(&key, &bytes);
    stg_folder_name(text, bytes, name);
    free(text);
    snprintf(path, sizeof(path), "%s/%s", stg_test_path("index"), name);
    return path;
}

static char *read_whole(const char *path, size_t *ret_bytes)
{
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    char *data = malloc(1 << 20);
    *ret_bytes = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

static void write_whole(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "we");
    CHECK(file != NULL && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
}

static unsigned n_files(void)
{
    unsigned n = 0;
    DIR *dir = opendir(stg_test_path("index"));
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void what_was_noted_is_found(void)
{
    static const uint64_t sizes[] = {0, 1, 2, 127, 128, 129, 300, 1024};
    configure(1 << 20);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t bytes = store(&key, sizes[i]);
        struct stat st;
        CHECK(stat(path_of_file(), &st) == 0);
        CHECK_INT(st.st_size, bytes);
        CHECK(sizes[i] == 0 || is_right(sizes[i]));
        CHECK_INT(n_files(), 1);
    }
    stg_index_finish();
}

static void an_index_that_is_cut_or_has_a_flipped_bit_is_never_believed(void)
{
    enum { N = 140 }; /* more than a piece */
    configure(1 << 20);
    size_t bytes;
    store(&key, N);
    char *data = read_whole(path_of_file(), &bytes);
    for (size_t n = 0; n < bytes; n++) {
        write_whole(path_of_file(), data, n);
        CHECK(!is_right(N));
    }
    unsigned n_refused = 0;
    for (size_t bit = 0; bit < 8 * bytes; bit += bit < 8 * 512 ? 1 : 7) {
        data[bit / 8] ^= (char)(1 << bit % 8);
        write_whole(path_of_file(), data, bytes);
        n_refused += !is_right(N);
        data[bit / 8] ^= (char)(1 << bit % 8);
    }
    CHECK(n_refused > 8 * 128);
    data = realloc(data, bytes + 32);
    CHECK(data != NULL);
    memset(data + bytes, 0, 32);
    write_whole(path_of_file(), data, bytes + 32);
    CHECK(!is_right(N));
    CHECK_INT(access(path_of_file(), F_OK), -1);
    free(data);
    stg_index_finish();
}

static void an_index_of_another_file_or_reader_is_not_used(void)
{
    struct stg_index_key others[] = {key, key, key, key};
    others[0].version++;
    others[1].bytes++;
    others[2].reader = "csv2";
    others[3].url = "/data/b.csv";
    configure(1 << 20);
    for (size_t i = 0; i < 4; i++) {
        struct stg_index *index;
        store(&key, 3);
        CHECK(!stg_index_open(&others[i], &index));
        /* A changed file has lost its index; another key did no harm. */
        CHECK_INT(is_right(3), i >= 2);
    }
    stg_index_finish();
}

/* The name is a hash of the key: two keys may have the same one. */
static void an_index_with_the_name_of_another_key_is_not_used(void)
{
    struct stg_index_key other = key;
    other.url = "/data/b.csv";
    configure(1 << 20);
    store(&other, 3);
    DIR *dir = opendir(stg_test_path("index"));
    char from[4096] = "";
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.')
            snprintf(from, sizeof(from), "%s/%s", stg_test_path("index"), entry->d_name);
    }
    closedir(dir);
    CHECK_INT(rename(from, path_of_file()), 0);
    CHECK(!is_right(3));
    stg_index_finish();
}

/* ---- forged: all sums are right ---- */

static void forge(char *data, size_t bytes, uint64_t n)
{
    struct stg_index_head *head = (struct stg_index_head *)data;
    const char *places = data + stg_index_places_at(head->key_bytes);
    head->places_sum =
        stg_fingerprint64_join(0, places, n * sizeof(struct stg_index_place));
    head->sum = stg_index_head_sum(head);
    write_whole(path_of_file(), data, bytes);
}

static void places_out_of_order_or_beyond_the_end_are_refused(void)
{
    enum { N = 5 };
    configure(1 << 20);
    size_t bytes;
    store(&key, N);
    char *data = read_whole(path_of_file(), &bytes);
    struct stg_index_head *head = (struct stg_index_head *)data;
    struct stg_index_place *places =
        (struct stg_index_place *)(data + stg_index_places_at(head->key_bytes));
    uint64_t *const fields[] = {&places[2].position, &places[2].record,
                                &places[2].offset};
    uint64_t *const last[] = {&places[4].position, &places[4].offset};
    forge(data, bytes, N);
    CHECK(is_right(N));
    for (size_t i = 0; i < 3; i++) {
        uint64_t was = *fields[i];
        *fields[i] = fields[i] == &places[2].position ? places[1].position
                     : i == 1                         ? places[3].record
                                                      : places[1].offset - 1;
        forge(data, bytes, N);
        CHECK(!is_right(N));
        *fields[i] = was;
    }
    for (size_t i = 0; i < 2; i++) {
        uint64_t was = *last[i];
        *last[i] = UINT64_MAX;
        forge(data, bytes, N);
        CHECK(!is_right(N));
        *last[i] = was;
    }
    head->n_places = UINT64_MAX / 32 + 2; /* its bytes overflow */
    head->totals.n_records = head->totals.n_positions = UINT64_MAX;
    forge(data, bytes, N);
    struct stg_index *index;
    CHECK(!stg_index_open(&key, &index));
    free(data);
    stg_index_finish();
}

static void an_index_of_another_layout_is_replaced(void)
{
    configure(1 << 20);
    size_t bytes;
    store(&key, 3);
    char *data = read_whole(path_of_file(), &bytes);
    ((struct stg_index_head *)data)->version++;
    forge(data, bytes, 3);
    CHECK(!is_right(3));
    store(&key, 3);
    CHECK(is_right(3));
    free(data);
    stg_index_finish();
}

/* ---- the folder ---- */

static void a_refuted_index_is_deleted(void)
{
    configure(1 << 20);
    store(&key, 3);
    struct stg_index *index;
    struct stg_index_place place;
    uint64_t last;
    CHECK(stg_index_open(&key, &index));
    stg_index_refute(index);
    CHECK(!stg_index_find(index, 3, &place, &last));
    stg_index_close(index);
    CHECK_INT(n_files(), 0);
    stg_index_finish();
}

static void the_least_recently_used_indexes_make_room(void)
{
    configure(16 * 4096);
    struct stg_index *index;
    char url[32];
    struct stg_index_key other = key;
    other.url = url;
    store(&key, 2);
    for (int i = 0; i < 100; i++) {
        snprintf(url, sizeof(url), "/data/%d", i);
        store(&other, 2);
        CHECK(n_files() <= 16);
        CHECK(stg_index_open(&other, &index));
        stg_index_close(index);
    }
    CHECK(!stg_index_open(&key, &index));
    CHECK(n_files() >= 8);
    stg_index_finish();
}

static void an_index_larger_than_half_of_the_limit_is_not_stored(void)
{
    configure(4 * 4096);
    struct stg_index_totals totals = totals_of(1000);
    struct stg_index_builder *builder = stg_index_build(&key);
    for (uint64_t k = 0; k < 1000; k++) {
        struct stg_index_place place = place_of(k);
        stg_index_note(builder, &place);
    }
    CHECK(!stg_index_commit(builder, &totals, NULL));
    CHECK_INT(n_files(), 0);
    stg_index_finish();
}

static void without_a_folder_no_index_is_built_or_used(void)
{
    struct stg_index *index;
    struct stg_err err = {0};
    CHECK(stg_index_build(&key) == NULL);
    CHECK(!stg_index_open(&key, &index));
    configure(0);
    CHECK(stg_index_build(&key) == NULL);
    CHECK_INT(stg_index_configure("/proc/none", 1 << 20, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "/proc/none");
    CHECK(stg_index_build(&key) == NULL);
}

static void a_folder_that_disappears_costs_the_index_alone(void)
{
    configure(1 << 20);
    struct stg_index_totals totals = totals_of(0);
    struct stg_index_builder *builder = stg_index_build(&key);
    CHECK_INT(rmdir(stg_test_path("index")), 0);
    CHECK(!stg_index_commit(builder, &totals, NULL));
    stg_index_finish();
}

static void only_the_daemons_user_may_read_it_and_nothing_is_left_behind(void)
{
    struct stat st;
    configure(1 << 20);
    store(&key, 3);
    CHECK(stat(path_of_file(), &st) == 0);
    CHECK_INT(st.st_mode & 07777, 0600);
    CHECK(stat(stg_test_path("index"), &st) == 0);
    CHECK_INT(st.st_mode & 07777, 0700);
    struct stg_index_builder *builder = stg_index_build(&key);
    for (uint64_t k = 0; k < 1000; k++) {
        struct stg_index_place place = place_of(k);
        stg_index_note(builder, &place);
    }
    CHECK_INT(n_files(), 2);
    stg_index_abandon(builder);
    CHECK_INT(n_files(), 1);
    stg_test_file("index/new-1-1", "half", 4); /* of a daemon that crashed */
    configure(1 << 20);
    CHECK_INT(n_files(), 1);
    CHECK(is_right(3));
    stg_index_finish();
}

static void of_two_builders_of_one_file_either_result_is_whole(void)
{
    configure(1 << 20);
    struct stg_index_totals totals = totals_of(300);
    struct stg_index_builder *builders[2] = {stg_index_build(&key),
                                             stg_index_build(&key)};
    for (uint64_t k = 0; k < 300; k++) {
        struct stg_index_place place = place_of(k);
        stg_index_note(builders[0], &place);
        stg_index_note(builders[1], &place);
    }
    CHECK(stg_index_commit(builders[1], &totals, NULL));
    CHECK(is_right(300));
    CHECK(stg_index_commit(builders[0], &totals, NULL));
    CHECK(is_right(300));
    CHECK_INT(n_files(), 1);
    stg_index_finish();
}

static const struct stg_test tests[] = {
    TEST(what_was_noted_is_found),
    TEST(an_index_that_is_cut_or_has_a_flipped_bit_is_never_believed),
    TEST(an_index_of_another_file_or_reader_is_not_used),
    TEST(an_index_with_the_name_of_another_key_is_not_used),
    TEST(places_out_of_order_or_beyond_the_end_are_refused),
    TEST(an_index_of_another_layout_is_replaced),
    TEST(a_refuted_index_is_deleted),
    TEST(the_least_recently_used_indexes_make_room),
    TEST(an_index_larger_than_half_of_the_limit_is_not_stored),
    TEST(without_a_folder_no_index_is_built_or_used),
    TEST(a_folder_that_disappears_costs_the_index_alone),
    TEST(only_the_daemons_user_may_read_it_and_nothing_is_left_behind),
    TEST(of_two_builders_of_one_file_either_result_is_whole),
};

TEST_MAIN(tests)
