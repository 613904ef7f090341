/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerctl top: the pipelines, or one of them, anew every second. A frame is made in
 * memory and written at once, over the frame before: nothing flickers.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"
#include "core/clock.h"

#define REFRESH_NS UINT64_C(1000000000)
#define FIXED_COLUMNS 58 /* of a line of the overview, without the name */
#define MIN_NAME 8

#define ENTER_SCREEN "\033[?1049h\033[?25l"
#define LEAVE_SCREEN "\033[?25h\033[?1049l"

enum order { BY_NAME, BY_RATE, BY_WAIT, BY_MEMORY };

struct row {
    char name[65], state[24];
    double batches, rows, wait; /* negative: no trainer reads */
    uint32_t n_attached, num_clients, buffered, capacity;
    uint64_t memory_bytes;
};

struct top {
    const struct stg_ctl_options *options;
    struct stg_ctl_link *link; /* NULL: stagerd is away */
    struct row *rows;
    size_t n_rows;
    char chosen[65]; /* the pipeline under the cursor */
    char shown[65];  /* that is shown alone; "": all are */
    enum order order;
    size_t first; /* line of the body at the top of the screen */
    char *body;   /* of `shown`, or the reason that there is nothing */
    char head[256];
    bool is_full, has_color;
    struct termios before;
};

static volatile sig_atomic_t ended;

static void on_end(int number)
{
    ended = 1;
}

/* It ends the wait, and a frame of the new size follows. */
static void on_resize(int number)
{
}

/* ---- what is shown ---- */

static int compare(const void *a, const void *b, void *arg)
{
    const struct row *x = a, *y = b;
    const struct top *top = arg;
    double l = top->order == BY_RATE   ? x->rows
               : top->order == BY_WAIT ? x->wait
                                       : (double)x->memory_bytes;
    double r = top->order == BY_RATE   ? y->rows
               : top->order == BY_WAIT ? y->wait
                                       : (double)y->memory_bytes;
    if (top->order != BY_NAME && l != r)
        return l > r ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void sort_by(struct top *top, enum order order)
{
    top->order = order;
    qsort_r(top->rows, top->n_rows, sizeof(*top->rows), compare, top);
}

static void take_row(const struct stg_pipeline_status *s, struct row *ret)
{
    bool reads = s->window_ns > 0;
    *ret = (struct row){
        .batches = reads ? stg_ctl_rate(s->window_batches, s->window_ns) : -1,
        .rows = reads ? stg_ctl_rate(s->window_rows, s->window_ns) : -1,
        .wait = reads && s->window_clients_ns > 0
                    ? (double)s->window_wait_ns / (double)s->window_clients_ns
                    : -1,
        .num_clients = s->num_clients,
        .buffered = s->buffered,
        .capacity = s->capacity,
        .memory_bytes = s->memory_bytes,
    };
    snprintf(ret->name, sizeof(ret->name), "%s", s->name);
    snprintf(ret->state, sizeof(ret->state), "%s", stg_text_or(s->state, "?"));
    stg_ctl_clean(ret->name);
    stg_ctl_clean(ret->state);
    for (size_t i = 0; i < s->n_clients; i++)
        ret->n_attached += strcmp(stg_text_or(s->clients[i].state, ""), "attached") == 0;
}

/* A reply lives until the next call: each row has its name first. */
static int look_at_all(struct top *top, struct stg_err *err)
{
    struct stg_request list = {.kind = STG_REQUEST_LIST};
    struct stg_reply reply;
    int rc = stg_ctl_call(top->link, &list, &reply, err);
    if (rc < 0)
        return rc;
    size_t n = reply.n_entries, n_rows = 0;
    struct row *rows = calloc(n + 1, sizeof(*rows));
    if (rows == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < n; i++)
        snprintf(rows[i].name, sizeof(rows[i].name), "%s", reply.entries[i].name);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct stg_request status = {.kind = STG_REQUEST_STATUS, .name = rows[i].name};
        rc = stg_ctl_call(top->link, &status, &reply, err);
        if (rc == 0)
            take_row(&reply.status, &rows[n_rows++]);
        else if (rc == -STAGER_NOT_FOUND)
            rc = 0; /* deleted meanwhile */
    }
    free(top->rows);
    top->rows = rows;
    top->n_rows = n_rows;
    sort_by(top, top->order);
    return rc;
}

static int look_at_one(struct top *top, struct stg_err *err)
{
    struct stg_request explain = {.kind = STG_REQUEST_EXPLAIN, .name = top->shown};
    struct stg_request status = {.kind = STG_REQUEST_STATUS, .name = top->shown};
    struct stg_reply reply;
    char *nodes = NULL, *body = NULL;
    size_t n;
    FILE *out = open_memstream(&nodes, &n);
    if (out == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_ctl_call(top->link, &explain, &reply, err);
    FILE *whole = rc == 0 ? open_memstream(&body, &n) : NULL;
    if (whole != NULL) {
        stg_ctl_write_verdict(whole, &reply.explain);
        stg_ctl_write_nodes(out, &reply.explain);
    }
    fclose(out);
    if (rc == 0)
        rc = stg_ctl_call(top->link, &status, &reply, err);
    if (rc == 0 && whole != NULL) {
        stg_ctl_write_status(whole, &reply.status);
        fputs(nodes, whole);
    }
    if (whole != NULL)
        fclose(whole);
    free(nodes);
    if (rc == 0) {
        free(top->body);
        top->body = body;
    } else {
        free(body);
    }
    return rc;
}

static void say(struct top *top, const char *text)
{
    free(top->body);
    top->body = strdup(text);
    if (top->body != NULL)
        stg_ctl_clean(top->body);
}

/* Asks stagerd; what fails is shown, and asked again after a second. */
static void look(struct top *top)
{
    struct stg_err err = {0};
    int rc = 0;
    if (top->link == NULL)
        rc = stg_ctl_open(top->options, &top->link, &err);
    if (rc == 0)
        rc = top->shown[0] != '\0' ? look_at_one(top, &err) : look_at_all(top, &err);
    if (rc == -STAGER_NOT_FOUND && top->link != NULL) {
        say(top, err.text);
    } else if (rc < 0) {
        stg_ctl_hang_up(top->link);
        top->link = NULL;
        top->n_rows = 0;
        say(top, err.text);
    } else if (top->shown[0] == '\0') {
        free(top->body);
        top->body = NULL;
    }
    struct stg_admin_daemon daemon = {0};
    if (top->link != NULL)
        stg_ctl_daemon(top->link, &daemon);
    if (top->shown[0] != '\0')
        snprintf(top->head, sizeof(top->head), "stagerctl top %s", top->shown);
    else if (top->link != NULL)
        snprintf(top->head, sizeof(top->head), "stagerd %s, pid %u; %zu pipeline%s",
                 daemon.release, daemon.pid, top->n_rows, top->n_rows == 1 ? "" : "s");
    else
        snprintf(top->head, sizeof(top->head), "no stagerd");
}

/* ---- frames ---- */

struct screen {
    FILE *out;
    size_t width, height, n_lines;
    bool is_full;
};

/* One line, cut to the width. Columns are counted by the bytes that begin a character. */
static void put_line(struct screen *screen, const char *before, const char *text,
                     size_t n, const char *after)
{
    size_t bytes = 0, columns = 0;
    while (bytes < n) {
        columns += ((unsigned char)text[bytes] & 0xc0) != 0x80;
        if (columns > screen->width)
            break;
        bytes++;
    }
    if (screen->is_full && screen->n_lines > 0)
        fputs("\r\n", screen->out);
    fprintf(screen->out, "%s%.*s%s", before, (int)bytes, text, after);
    if (screen->is_full)
        fputs("\033[K", screen->out);
    else
        fputc('\n', screen->out);
    screen->n_lines++;
}

static const char *rate_text(double rate, char *buf, size_t size)
{
    if (rate < 0)
        snprintf(buf, size, "-");
    return rate < 0 ? buf : stg_ctl_number(rate, buf, size);
}

static void row_text(const struct row *row, int name, char *buf, size_t size)
{
    char batches[32], rows[32], wait[32] = "-", memory[32], clients[32], queue[32];
    if (row->wait >= 0)
        snprintf(wait, sizeof(wait), "%.0f %%", 100 * row->wait);
    snprintf(clients, sizeof(clients), "%u/%u", row->n_attached, row->num_clients);
    snprintf(queue, sizeof(queue), "%u/%u", row->buffered, row->capacity);
    snprintf(buf, size, "%-*.*s  %-8.8s  %9s %7s %5s %7s %7s %8s", name, name, row->name,
             row->state, rate_text(row->batches, batches, sizeof(batches)),
             rate_text(row->rows, rows, sizeof(rows)), wait, clients, queue,
             stg_ctl_bytes(row->memory_bytes, memory, sizeof(memory)));
}

static size_t find_chosen(const struct top *top)
{
    for (size_t i = 0; i < top->n_rows; i++) {
        if (strcmp(top->rows[i].name, top->chosen) == 0)
            return i;
    }
    return 0;
}

static int name_width(const struct top *top, size_t width)
{
    size_t longest = MIN_NAME;
    for (size_t i = 0; i < top->n_rows; i++) {
        size_t n = strlen(top->rows[i].name);
        longest = n > longest ? n : longest;
    }
    size_t room = width > FIXED_COLUMNS + MIN_NAME ? width - FIXED_COLUMNS : MIN_NAME;
    return (int)(longest < room ? longest : room);
}

static const char *color_of(const struct top *top, const struct row *row)
{
    if (!top->has_color)
        return "";
    return strcmp(row->state, "failed") == 0 ? "\033[31m"
           : row->wait >= 0.1                ? "\033[33m"
                                             : "";
}

static void draw_all(struct top *top, struct screen *screen)
{
    static const char *const marks[] = {"NAME", "ROWS/S", "WAIT", "MEMORY"};
    char line[256], title[256];
    int name = name_width(top, screen->width - (screen->is_full ? 2 : 0));
    snprintf(title, sizeof(title), "%s%-*s  %-8s  %9s %7s %5s %7s %7s %8s",
             screen->is_full ? "  " : "", name, "NAME", "STATE", "BATCHES/S", "ROWS/S",
             "WAIT", "CLIENTS", "QUEUE", "MEMORY");
    put_line(screen, top->has_color ? "\033[7m" : "", title, strlen(title),
             top->has_color ? "\033[0m" : "");
    size_t chosen = find_chosen(top), from = 0, room = top->n_rows;
    if (screen->is_full) {
        room = screen->height > 3 ? screen->height - 3 : 1;
        from = chosen >= room ? chosen - room + 1 : 0;
    }
    for (size_t i = from; i < top->n_rows && i < from + room; i++) {
        bool is_chosen = screen->is_full && i == chosen;
        const char *color = color_of(top, &top->rows[i]);
        size_t at = 0;
        if (screen->is_full)
            at = (size_t)snprintf(line, sizeof(line), "%c ", is_chosen ? '>' : ' ');
        row_text(&top->rows[i], name, line + at, sizeof(line) - at);
        put_line(screen, is_chosen && top->has_color ? "\033[1m" : color, line,
                 strlen(line), top->has_color ? "\033[0m" : "");
    }
    if (!screen->is_full)
        return;
    while (screen->n_lines + 1 < screen->height)
        put_line(screen, "", "", 0, "");
    snprintf(line, sizeof(line),
             "by %s  r rate  w wait  m memory  n name  Enter shows one  q ends",
             marks[top->order]);
    put_line(screen, "", line, strlen(line), "");
}

/* The body, line by line, from top->first on. */
static void draw_body(struct top *top, struct screen *screen)
{
    const char *text = top->body != NULL ? top->body : "";
    size_t n = 0, room = SIZE_MAX;
    for (const char *s = text; *s != '\0'; s++)
        n += *s == '\n';
    if (screen->is_full) {
        room = screen->height > 2 ? screen->height - 2 : 1;
        if (top->first + room > n)
            top->first = n > room ? n - room : 0;
    }
    for (size_t i = 0; *text != '\0'; i++) {
        size_t bytes = strcspn(text, "\n");
        if (i >= top->first && i - top->first < room)
            put_line(screen, "", text, bytes, "");
        text += bytes + (text[bytes] == '\n');
    }
    if (!screen->is_full)
        return;
    while (screen->n_lines + 1 < screen->height)
        put_line(screen, "", "", 0, "");
    const char *keys = "up and down scroll  Escape goes back  q ends";
    put_line(screen, "", keys, strlen(keys), "");
}

static void write_all(const char *text, size_t n)
{
    while (n > 0) {
        ssize_t done = write(STDOUT_FILENO, text, n);
        if (done < 0 && errno != EINTR) {
            ended = 1;
            return;
        }
        if (done > 0) {
            text += done;
            n -= (size_t)done;
        }
    }
}

static void draw(struct top *top)
{
    struct winsize size = {0};
    char *text = NULL;
    size_t n;
    struct screen screen = {.out = open_memstream(&text, &n),
                            .width = SIZE_MAX,
                            .height = SIZE_MAX,
                            .is_full = top->is_full};
    if (screen.out == NULL)
        return;
    if (top->is_full) {
        bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
        screen.width = known ? size.ws_col : 80;
        screen.height = known && size.ws_row > 0 ? size.ws_row : 24;
        fputs("\033[H", screen.out);
    }
    put_line(&screen, "", top->head, strlen(top->head), "");
    if (top->shown[0] == '\0' && top->body == NULL)
        draw_all(top, &screen);
    else
        draw_body(top, &screen);
    fputs(top->is_full ? "\033[J" : "\n", screen.out);
    if (fclose(screen.out) == 0)
        write_all(text, n);
    free(text);
}

/* ---- keys ---- */

static void move(struct top *top, int by)
{
    if (top->shown[0] != '\0') {
        top->first = by < 0 && top->first == 0 ? 0 : top->first + (size_t)by;
        return;
    }
    size_t at = find_chosen(top);
    if (by < 0 && at > 0)
        at--;
    else if (by > 0 && at + 1 < top->n_rows)
        at++;
    if (at < top->n_rows)
        memcpy(top->chosen, top->rows[at].name, sizeof(top->chosen));
}

static void show_one(struct top *top)
{
    size_t at = find_chosen(top);
    if (top->shown[0] != '\0' || at >= top->n_rows)
        return;
    memcpy(top->shown, top->rows[at].name, sizeof(top->shown));
    memcpy(top->chosen, top->shown, sizeof(top->chosen));
    top->first = 0;
    look(top);
}

static void go_back(struct top *top)
{
    if (top->shown[0] == '\0')
        return;
    top->shown[0] = '\0';
    look(top);
}

/* keys: what one read returned. An arrow is ESC [ A or ESC O A. */
static void take_keys(struct top *top, const char *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool is_arrow =
            keys[i] == 27 && i + 2 < n && (keys[i + 1] == '[' || keys[i + 1] == 'O');
        char key = is_arrow ? keys[i + 2] : keys[i];
        if (is_arrow) {
            i += 2;
            if (key == 'A' || key == 'B')
                move(top, key == 'A' ? -1 : 1);
            else if (key == 'D')
                go_back(top);
            continue;
        }
        switch (key) {
        case 'q': ended = 1; break;
        case 'r': sort_by(top, BY_RATE); break;
        case 'w': sort_by(top, BY_WAIT); break;
        case 'm': sort_by(top, BY_MEMORY); break;
        case 'n': sort_by(top, BY_NAME); break;
        case 'k': move(top, -1); break;
        case 'j': move(top, 1); break;
        case '\r':
        case '\n': show_one(top); break;
        case 27:
        case 127:
        case '\b': go_back(top); break;
        default: break;
        }
    }
}

/* Waits for a key, a signal, or that time. Signals come only in here: none is lost
 * between a look at the flags and the wait. */
static void wait_until(struct top *top, uint64_t until_ns, const sigset_t *mask)
{
    char keys[64];
    struct pollfd input = {.fd = top->is_full ? STDIN_FILENO : -1, .events = POLLIN};
    uint64_t now = stg_now_ns();
    uint64_t left = until_ns > now ? until_ns - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000),
                               .tv_nsec = (long)(left % 1000000000)};
    if (ppoll(&input, 1, &timeout, mask) <= 0)
        return;
    ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));
    if (n > 0)
        take_keys(top, keys, (size_t)n);
    else if (n == 0 || errno != EINTR)
        ended = 1; /* the terminal is gone */
}

/* ---- the terminal ---- */

static bool is_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term != NULL &&
           term[0] != '\0' && strcmp(term, "dumb") != 0;
}

static void enter(struct top *top)
{
    struct termios raw;
    const char *no_color = getenv("NO_COLOR");
    if (!is_terminal() || tcgetattr(STDIN_FILENO, &top->before) < 0)
        return;
    top->is_full = true;
    top->has_color = no_color == NULL || no_color[0] == '\0';
    unsetenv("COLUMNS"); /* the terminal may change its size */
    raw = top->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_all(ENTER_SCREEN, strlen(ENTER_SCREEN));
}

static void leave(struct top *top)
{
    if (!top->is_full)
        return;
    write_all(LEAVE_SCREEN, strlen(LEAVE_SCREEN));
    tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
}

static void block_signals(sigset_t *ret_before)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    struct sigaction end = {.sa_handler = on_end}, resize = {.sa_handler = on_resize};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        sigaction(ends[i], &end, NULL);
        sigaddset(&blocked, ends[i]);
    }
    sigaction(SIGWINCH, &resize, NULL);
    sigaddset(&blocked, SIGWINCH);
    sigprocmask(SIG_BLOCK, &blocked, ret_before);
}

static void run(struct top *top, const sigset_t *mask)
{
    for (uint64_t n = 0; !ended;) {
        look(top);
        draw(top);
        n++;
        if (top->options->count > 0 && n >= top->options->count)
            return;
        uint64_t next = stg_now_ns() + REFRESH_NS;
        while (!ended && stg_now_ns() < next) {
            wait_until(top, next, mask);
            if (!ended && top->is_full)
                draw(top);
        }
    }
}

int stg_ctl_top(const struct stg_ctl_options *options)
{
    struct top top = {.options = options};
    struct stg_err err = {0};
    sigset_t before;
    if (options->json)
        return stg_ctl_misused("top prints text: use `stagerctl status --json`");
    int rc = stg_ctl_open(options, &top.link, &err);
    if (rc < 0)
        return stg_ctl_fail(rc, err.text);
    if (options->argument != NULL) {
        snprintf(top.shown, sizeof(top.shown), "%s", options->argument);
        rc = look_at_one(&top, &err);
    }
    if (rc < 0) {
        stg_ctl_hang_up(top.link);
        return stg_ctl_fail(rc, err.text);
    }
    block_signals(&before);
    enter(&top);
    run(&top, &before);
    leave(&top);
    stg_ctl_hang_up(top.link);
    free(top.rows);
    free(top.body);
    return stg_ctl_finish();
}
