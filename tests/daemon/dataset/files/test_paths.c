/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/files/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

#define N 20000
#define NAME_BYTES 64

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted like qsort sorts them, with the given pointers. */
static void check_sorted(const char **names, size_t n)
{
    const char **want = malloc((n + 1) * sizeof(char *));
    memcpy(want, names, n * sizeof(char *));
    qsort(want, n, sizeof(char *), by_bytes);
    CHECK_INT(stg_paths_sort(names, n), 0);
    for (size_t i = 0; i < n; i++)
        CHECK_STR(names[i], want[i]);
    free(want);
}

static char text[N][NAME_BYTES];
static const char *names[N];

/* In arbitrary order. */
static unsigned mixed(unsigned i)
{
    return i * 7919u % N;
}

static void paths_that_begin_alike_are_sorted_by_their_bytes(void)
{
    for (unsigned i = 0; i < N; i++) {
        snprintf(text[i], NAME_BYTES, "/data/train/n%05u/n%05u.JPEG", mixed(i) / 100,
                 mixed(i));
        names[i] = text[i];
    }
    check_sorted(names, N);
}

static void folders_that_are_found_one_by_one_are_sorted(void)
{
    for (unsigned i = 0; i < N; i++) {
        snprintf(text[i], NAME_BYTES, "/data/train/n%03u/n%05u.JPEG", i / 100 * 77 % 200,
                 mixed(i));
        names[i] = text[i];
    }
    check_sorted(names, N);
}

/* Files of the outer folder come before and after those of the inner one. */
static void a_folder_within_the_names_of_another_is_sorted(void)
{
    for (unsigned i = 0; i < N; i++) {
        if (i < N / 2)
            snprintf(text[i], NAME_BYTES, "/data/m/%05u", mixed(i));
        else
            snprintf(text[i], NAME_BYTES, "/data/%c%05u", i % 2 == 0 ? 'a' : 'z',
                     mixed(i));
        names[i] = text[i];
    }
    check_sorted(names, N);
}

static void numbers_are_sorted_by_their_bytes(void)
{
    for (unsigned i = 0; i < N; i++) {
        snprintf(text[i], NAME_BYTES, "/%u/%x", mixed(i) % 10, mixed(i));
        names[i] = text[i];
    }
    check_sorted(names, N);
}

static void a_name_comes_before_those_that_it_begins(void)
{
    const char *few[] = {"/a/bcdefgh",
                         "/a/bcdefg",
                         "/a",
                         "",
                         "/a/b-c",
                         "/a/b/c",
                         "/a/b",
                         "/a/bcdefghijklmnop",
                         "/a/bcdefghijklmno",
                         "/a/b",
                         "/",
                         "/a/"};
    check_sorted(few, sizeof(few) / sizeof(few[0]));
    CHECK_STR(few[0], "");
    CHECK_STR(few[5], "/a/b");
    CHECK_STR(few[6], "/a/b-c");
}

static void names_that_are_there_twice_stay_twice(void)
{
    for (unsigned i = 0; i < N; i++)
        names[i] = mixed(i) % 2 == 0 ? "/data/same/as/others" : "/data/same/as/all";
    check_sorted(names, N);
}

static void bytes_above_127_come_last(void)
{
    const char *few[] = {"/\xc3\xa9", "/z", "/\x7f", "/\xff\xff", "/\x01", "/\x80"};
    check_sorted(few, 6);
    CHECK_STR(few[5], "/\xff\xff");
}

static void none_and_one_are_sorted(void)
{
    const char *few[] = {"/a"};
    CHECK_INT(stg_paths_sort(few, 0), 0);
    CHECK_INT(stg_paths_sort(few, 1), 0);
    CHECK_STR(few[0], "/a");
}

static void random_names_are_sorted(void)
{
    srand(1);
    for (int i = 0; i < N; i++) {
        int n = rand() % (NAME_BYTES - 1);
        for (int k = 0; k < n; k++)
            text[i][k] = (char)(k < 20 ? 'a' + rand() % 2 : 1 + rand() % 255);
        text[i][n] = '\0';
        names[i] = text[i];
    }
    check_sorted(names, N);
}

static const struct stg_test tests[] = {
    TEST(paths_that_begin_alike_are_sorted_by_their_bytes),
    TEST(folders_that_are_found_one_by_one_are_sorted),
    TEST(a_folder_within_the_names_of_another_is_sorted),
    TEST(numbers_are_sorted_by_their_bytes),
    TEST(a_name_comes_before_those_that_it_begins),
    TEST(names_that_are_there_twice_stay_twice),
    TEST(bytes_above_127_come_last),
    TEST(none_and_one_are_sorted),
    TEST(random_names_are_sorted),
};

TEST_MAIN(tests)
