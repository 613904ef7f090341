/* SPDX-License-Identifier: Apache-2.0
 *
 * The board of stager-metrics: texts of stagerd in, totals and an hour of history out.
 */
#include "client/metrics/board.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

#define SECOND INT64_C(1000000000)
/* A step begins there. */
#define START (1000 * STG_BOARD_STEP_NS)

/* A pipeline with two ranks. */
struct numbers {
    const char *name;
    double rows, waited[2], waiting[2];
    int attached[2];
};

static char *write_text(double started_s, const struct numbers *all, size_t n)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    fprintf(out,
            "# TYPE stager_start_time_seconds gauge\nstager_start_time_seconds %.1f\n"
            "stager_memory_budget_bytes 1000\nstager_memory_used_bytes 400\n",
            started_s);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "stager_pipeline_info{pipeline=\"%s\",delivery=\"split\"} 1\n",
                all[i].name);
    for (size_t i = 0; i < n; i++)
        fprintf(out,
                "stager_pipeline_state{pipeline=\"%s\",state=\"idle\"} 0\n"
                "stager_pipeline_state{pipeline=\"%s\",state=\"running\"} 1\n"
                "stager_delivered_rows_total{pipeline=\"%s\"} %.0f\n",
                all[i].name, all[i].name, all[i].name, all[i].rows);
    for (size_t i = 0; i < n; i++) {
        for (int r = 0; r < 2; r++)
            fprintf(out,
                    "stager_client_wait_seconds_bucket{pipeline=\"%s\",rank=\"%d\",le="
                    "\"1.0\"} 7\n"
                    "stager_client_wait_seconds_sum{pipeline=\"%s\",rank=\"%d\"} %f\n"
                    "stager_client_waiting_seconds{pipeline=\"%s\",rank=\"%d\"} %f\n"
                    "stager_client_attached{pipeline=\"%s\",rank=\"%d\"} %d\n",
                    all[i].name, r, all[i].name, r, all[i].waited[r], all[i].name, r,
                    all[i].waiting[r], all[i].name, r, all[i].attached[r]);
    }
    fclose(out);
    return text;
}

static void add(struct stg_board *board, double started_s, struct numbers numbers,
                int64_t now_ns)
{
    char *text = write_text(started_s, &numbers, 1);
    stg_board_add(board, text, strlen(text), now_ns);
    free(text);
}

static const char *status(const struct stg_board *board)
{
    static char text[1 << 20];
    struct stg_json_writer json = {.out = fmemopen(text, sizeof(text), "w")};
    stg_json_object_begin(&json);
    stg_board_put_status(board, &json);
    stg_json_object_end(&json);
    fclose(json.out);
    return text;
}

/* The last values of a series, from the JSON: "[…, 0.25, null]" gives "0.25, null". */
static void check_last(const struct stg_board *board, int64_t now_ns, const char *key,
                       const char *want)
{
    char *text, name[64];
    size_t bytes;
    struct stg_json_writer json = {.out = open_memstream(&text, &bytes)};
    stg_json_object_begin(&json);
    CHECK(stg_board_put_history(board, "p", now_ns, &json));
    stg_json_object_end(&json);
    fclose(json.out);
    snprintf(name, sizeof(name), "\"%s\": [", key);
    char *from = strstr(text, name);
    CHECK(from != NULL);
    from += strlen(name);
    *strchr(from, ']') = '\0';
    size_t n = 1;
    for (const char *s = from; *s != '\0'; s++)
        n += *s == ',';
    CHECK_INT(n, STG_BOARD_STEPS);
    CHECK(strlen(from) >= strlen(want));
    CHECK_STR(from + strlen(from) - strlen(want), want);
    free(text);
}

static void a_step_has_the_share_of_waiting(void)
{
    struct stg_board *board = stg_board_create();
    struct numbers p = {"p", 100, {5, 5}, {0, 0}, {1, 1}};
    CHECK_INT(stg_board_due_ns(board), 0);
    add(board, 1, p, START);
    CHECK_INT(stg_board_due_ns(board), START + STG_BOARD_STEP_NS);
    check_last(board, START, "exposed_wait_mean", "null, null");
    p = (struct numbers){"p", 600, {6, 7}, {0, 2}, {1, 1}}; /* 1 s and 4 s of 10 s */
    add(board, 1, p, START + 4 * SECOND);                   /* a viewer's */
    add(board, 1, p, START + 10 * SECOND);
    check_last(board, START + 10 * SECOND, "exposed_wait_mean", "null, 0.25");
    check_last(board, START + 10 * SECOND, "exposed_wait_worst", "null, 0.4");
    check_last(board, START + 10 * SECOND, "rows_per_second", "null, 50.0");
    p.waited[0] = 16; /* all the time; the other one left */
    p.attached[1] = 0;
    add(board, 1, p, START + 20 * SECOND);
    check_last(board, START + 21 * SECOND, "exposed_wait_mean", "null, 0.25, 1.0");
    p.attached[0] = 0;
    add(board, 1, p, START + 30 * SECOND);
    check_last(board, START + 30 * SECOND, "exposed_wait_mean", "0.25, 1.0, null");
    check_last(board, START + 30 * SECOND, "rows_per_second", "50.0, 0.0, 0.0");
    stg_board_destroy(board);
}

static void steps_keep_to_the_grid(void)
{
    struct stg_board *board = stg_board_create();
    struct numbers p = {"p", 0, {0, 0}, {0, 0}, {1, 0}};
    add(board, 1, p, START + 3 * SECOND);
    for (int i = 1; i <= 700; i++) { /* each a little late */
        CHECK_INT(stg_board_due_ns(board), START + i * STG_BOARD_STEP_NS);
        p.waited[0] += 1;
        p.rows += 1000;
        add(board, 1, p, START + i * STG_BOARD_STEP_NS + i * SECOND / 100);
    }
    char *text, *at;
    size_t bytes;
    struct stg_json_writer json = {.out = open_memstream(&text, &bytes)};
    stg_json_object_begin(&json);
    CHECK(stg_board_put_history(board, "p", START + 708 * STG_BOARD_STEP_NS, &json));
    stg_json_object_end(&json);
    fclose(json.out);
    /* Only the eight steps after the last text are missing. */
    size_t n = 0;
    *strstr(text, "exposed_wait_worst") = '\0';
    for (at = text; (at = strstr(at, "null")) != NULL; at++)
        n++;
    CHECK_INT(n, 8);
    free(text);
    stg_board_destroy(board);
}

static void a_machine_that_has_just_started(void)
{
    struct stg_board *board = stg_board_create();
    struct numbers p = {"p", 0, {0, 0}, {0, 0}, {1, 0}};
    add(board, 1, p, SECOND);
    p.waited[0] = 1.8;
    add(board, 1, p, 10 * SECOND);
    check_last(board, 10 * SECOND, "exposed_wait_mean", "null, 0.2");
    stg_board_destroy(board);
}

static void a_restart_is_a_gap(void)
{
    struct stg_board *board = stg_board_create();
    struct numbers p = {"p", 1000, {50, 0}, {0, 0}, {1, 0}};
    add(board, 1, p, START);
    p.waited[0] = 55;
    add(board, 1, p, START + 10 * SECOND);
    p = (struct numbers){"p", 10, {1, 0}, {0, 0}, {1, 0}};
    add(board, 2, p, START + 20 * SECOND); /* another stagerd */
    p.waited[0] = 3;
    add(board, 2, p, START + 30 * SECOND);
    check_last(board, START + 30 * SECOND, "exposed_wait_mean", "0.5, null, 0.2");
    add(board, 2, p, START + 70 * SECOND); /* it hung */
    p.waited[0] = 4;
    add(board, 2, p, START + 80 * SECOND);
    check_last(board, START + 80 * SECOND, "exposed_wait_mean",
               "0.5, null, 0.2, null, null, null, null, 0.1");
    check_last(board, START + 100 * SECOND, "exposed_wait_mean", "0.1, null, null");
    stg_board_destroy(board);
}

static void add_all(struct stg_board *board, const struct numbers *all, size_t n,
                    int64_t now_ns)
{
    char *text = write_text(1, all, n);
    stg_board_add(board, text, strlen(text), now_ns);
    free(text);
}

static void the_last_text_decides_what_is_there(void)
{
    struct stg_board *board = stg_board_create();
    struct numbers two[] = {{"zebra", 7, {1, 2}, {0, 0.5}, {1, 0}},
                            {"p", 8, {0, 0}, {0, 0}, {0, 0}}};
    add_all(board, two, 2, START);
    const char *text = status(board);
    CHECK_CONTAINS(text, "\"memory\": {\"budget_bytes\": 1000, \"used_bytes\": 400}");
    CHECK_CONTAINS(text, "{\"name\": \"zebra\", \"state\": \"running\"");
    CHECK_CONTAINS(text, "\"n_clients\": 1, \"waited_seconds\": 3.5}");
    CHECK(strstr(text, "\"p\"") < strstr(text, "\"zebra\""));
    add_all(board, two, 1, START + SECOND);
    text = status(board);
    CHECK(strstr(text, "\"p\"") == NULL && strstr(text, "\"zebra\"") != NULL);
    stg_board_destroy(board);
}

static void more_pipelines_than_places(void)
{
    enum { N = STG_BOARD_PIPELINES + 3 };
    static struct numbers all[N];
    static char names[N][16];
    struct stg_board *board = stg_board_create();
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "old-%d", i);
        all[i] = (struct numbers){.name = names[i]};
    }
    add_all(board, all, N, START);
    CHECK_CONTAINS(status(board), "\"n_left_out\": 3}");
    for (int i = 0; i < N; i++)
        snprintf(names[i], sizeof(names[i]), "new-%d", i);
    for (int k = 1; k <= 2; k++) /* the old ones make room once they are away */
        add_all(board, all, N, START + k);
    CHECK_CONTAINS(status(board), "\"new-511\"");
    CHECK_CONTAINS(status(board), "\"n_left_out\": 3}");
    stg_board_destroy(board);
}

static void odd_texts_do_no_harm(void)
{
    static const char *const texts[] = {
        "",
        "\n\n\n",
        "x",
        "{} 1\n",
        "{ 1\n",
        " \n",
        "stager_pipeline_info{pipeline=\"p\"} 1",
        "stager_pipeline_info{pipeline=\"} 1\n",
        "stager_pipeline_info{pipeline=\"\"} 1\n",
        "stager_pipeline_info{pipeline=\"p} 1\n",
        "stager_pipeline_info{pipeline=\"p\"} nan\nstager_delivered_rows_total{pipeline="
        "\"p\"} inf\n",
        "stager_delivered_rows_total{pipeline=\"p\"} -1e300\n",
        "stager_pipeline_info{pipeline=\"p\"} 1\nstager_client_wait_seconds_sum{pipeline="
        "\"p\",rank=\"-1\"} 1\nstager_client_wait_seconds_sum{pipeline=\"p\",rank="
        "\"99999999999999999999\"} "
        "1\nstager_client_attached{pipeline=\"p\",rank=\"127\"} "
        "1\nstager_client_attached{pipeline=\"p\",rank=\"128\"} 1\n",
        "stager_pipeline_info{pipeline="
        "\"ppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp\"}"
        " "
        "1\n",
        "stager_pipeline_state{pipeline=\"p\",state=\"a state that is too long\"} 1\n",
        "stager_memory_used_bytes 1e999\nstager_memory_used_bytes -5\n",
    };
    struct stg_board *board = stg_board_create();
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        size_t n = strlen(texts[i]);
        char *exact = malloc(n + 1); /* no byte behind it but one */
        memcpy(exact, texts[i], n);
        exact[n] = '9';
        stg_board_add(board, exact, n, START + (int64_t)i * STG_BOARD_STEP_NS);
        free(exact);
        CHECK(strlen(status(board)) > 0);
    }
    stg_board_destroy(board);
}

static const struct stg_test tests[] = {
    TEST(a_step_has_the_share_of_waiting),
    TEST(steps_keep_to_the_grid),
    TEST(a_machine_that_has_just_started),
    TEST(a_restart_is_a_gap),
    TEST(the_last_text_decides_what_is_there),
    TEST(more_pipelines_than_places),
    TEST(odd_texts_do_no_harm),
};

TEST_MAIN(tests)
