/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/server.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/cgroup.h"
#include "core/layout.h"
#include "core/log.h"
#include "daemon/server/config.h"
#include "daemon/server/server.h"
#include "daemon/server/session.h"
#include "proto/wire.h"
#include "tests/check.h"
#include "tests/fuzz/fuzz.h"

#define N_CONNECTIONS 3
#define N_PAGES 4
#define WORK_NS 20000000u /* a warm apply takes as long as its buffer */
#define MAX_OPS 40

/* ---- the machine ---- */

void __wrap_stg_cgroup_each(const char *root, const char *controller,
                            stg_cgroup_visit *visit, void *owner);

/* Segments read nine files of control groups each: a third of what some modes did. */
void __wrap_stg_cgroup_each(const char *root, const char *controller,
                            stg_cgroup_visit *visit, void *owner)
{
}

/* ---- the server ---- */

static struct {
    char dir[64];
    bool runs;
    struct stg_settings settings;
    struct stg_server server;
    uint64_t budget_used; /* without a client */
} world;

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    return remove(path);
}

static void remove_dir(void)
{
    nftw(world.dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_dir(void)
{
    stg_fuzz_folder(world.dir, sizeof(world.dir));
    atexit(remove_dir);
    stg_test_keeps_descriptors();
}

static void start(void)
{
    struct stg_err err = {0};
    char path[128], text[512];
    if (world.dir[0] == '\0')
        make_dir();
    snprintf(path, sizeof(path), "%s/stagerd.yaml", world.dir);
    int n = snprintf(text, sizeof(text),
                     "runtime_dir: %s/run\nstate_dir: %s/state\npipeline_dir: %s/p\n"
                     "memory_budget: 33554432\ndefault_pipeline_memory: 1048576\n"
                     "gate: {enable: true}\n"
                     "log_level: error\n",
                     world.dir, world.dir, world.dir);
    FILE *file = fopen(path, "w");
    FUZZ_CHECK(file != NULL && fwrite(text, 1, (size_t)n, file) == (size_t)n &&
               fclose(file) == 0);
    FUZZ_CHECK_TEXT(stg_config_load(path, &world.settings, &err) == 0, err.text);
    stg_log_set_level((enum stg_log_level)0);
    FUZZ_CHECK_TEXT(stg_server_start(&world.server, &world.settings, NULL, &err) == 0,
                    err.text);
    world.budget_used = stg_budget_used(&world.server.budget);
    world.runs = true;
}

static void stop(void)
{
    stg_server_finish(&world.server);
    stg_settings_finish(&world.settings);
    world.server = (struct stg_server){0};
    world.runs = false;
}

/* ---- clients ---- */

struct client {
    int fd; /* -1: not connected */
    unsigned n_sent, n_replies;
    struct page {
        void *base;
        size_t bytes;
        bool is_writable;
    } pages[N_PAGES];
};
static struct client clients[N_CONNECTIONS];

static void forget_pages(struct client *client)
{
    for (size_t i = 0; i < N_PAGES; i++) {
        if (client->pages[i].base != NULL)
            munmap(client->pages[i].base, client->pages[i].bytes);
        client->pages[i] = (struct page){0};
    }
}

static void hang_up(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    forget_pages(client);
    *client = (struct client){.fd = -1};
}

static bool dial(struct client *client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", world.server.socket_path);
    if (client->fd >= 0)
        return true;
    client->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(client->fd >= 0);
    if (connect(client->fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return true;
    hang_up(client);
    return false;
}

static void take_page(struct client *client, int fd)
{
    struct stat st;
    size_t i = 0;
    while (i < N_PAGES && client->pages[i].base != NULL)
        i++;
    if (i < N_PAGES && fstat(fd, &st) == 0 && st.st_size > 0) {
        struct page page = {.bytes = (size_t)st.st_size, .is_writable = true};
        page.base = mmap(NULL, page.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page.base == MAP_FAILED) {
            page.is_writable = false;
            page.base = mmap(NULL, page.bytes, PROT_READ, MAP_SHARED, fd, 0);
        }
        if (page.base != MAP_FAILED)
            client->pages[i] = page;
    }
    close(fd);
}

static void take_pages(struct client *client, struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL;
         c = CMSG_NXTHDR(message, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            take_page(client, fd);
        }
    }
}

static void check_reply(const void *bytes, size_t n)
{
    struct stg_bump bump = {0};
    struct stg_reply reply;
    struct stg_err err = {0};
    FUZZ_CHECK_TEXT(stg_wire_decode_reply(bytes, n, &bump, &reply, &err) == 0, err.text);
    FUZZ_CHECK(reply.code == 0 || (reply.text != NULL && reply.text[0] != '\0'));
    stg_bump_finish(&bump);
}

/* Takes what has come; doorbells are one byte. */
static void receive(struct client *client)
{
    static char bytes[STG_MESSAGE_MAX_BYTES];
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control;
    ssize_t n = 0;
    while (client->fd >= 0 && n >= 0) {
        struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
        struct msghdr message = {.msg_iov = &iov,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof(control)};
        n = recvmsg(client->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0)
            break;
        take_pages(client, &message);
        if (n > 1) {
            client->n_replies++;
            check_reply(bytes, (size_t)n);
            FUZZ_CHECK(client->n_replies <= client->n_sent);
        } else if (n == 0) {
            hang_up(client);
        }
    }
}

/* Turns the loop: a few times, and for a moment while a thread works on a request. */
static void turn(void)
{
    uv_loop_t *loop = &world.server.loop;
    struct pollfd events = {.fd = uv_backend_fd(loop), .events = POLLIN};
    uint64_t end = uv_hrtime() + WORK_NS;
    uv_run(loop, UV_RUN_NOWAIT);
    uv_run(loop, UV_RUN_NOWAIT);
    while (world.server.n_probing > 0 && uv_hrtime() < end) {
        poll(&events, 1, 1);
        uv_run(loop, UV_RUN_NOWAIT);
    }
    for (size_t i = 0; i < N_CONNECTIONS; i++)
        receive(&clients[i]);
}

static void send_bytes(struct client *client, const void *bytes, size_t n)
{
    if (!dial(client))
        return;
    if (send(client->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        client->n_sent += n != 1;
}

static void send_request(struct client *client, const struct stg_request *request)
{
    static char bytes[STG_MESSAGE_MAX_BYTES];
    long n = stg_wire_encode_request(request, bytes, sizeof(bytes));
    if (n > 0)
        send_bytes(client, bytes, (size_t)n);
}

static void greet(struct client *client)
{
    struct stg_request hello = {.id = 1,
                                .kind = STG_REQUEST_HELLO,
                                .min_version = STG_PROTOCOL_MIN,
                                .max_version = STG_PROTOCOL_MAX,
                                .client = "fuzz"};
    if (client->fd < 0)
        send_request(client, &hello);
}

/* ---- requests ---- */

static const char *const names[] = {"a", "b", "", "zzz", NULL};
static const char *const texts[] = {
    "dataset: [range: {stop: 100}, batch: {batch_size: 8}]\n"
    "staged: {features: {x: value}, capacity: 2, num_threads: 1}\n",
    "dataset: [range: {stop: 5}, repeat: {count: 2}, batch: {batch_size: 2}]\n"
    "graph: {y: {op: add, input: [value, value]}}\n"
    "staged: {features: {y: y}, capacity: 1, num_threads: 1, num_clients: 2, delivery: "
    "broadcast}\n",
    "dataset: [range: {stop: 9}, batch: {batch_size: 3}]\ngraph: {f: {op: placeholder, "
    "dtype: int64, shape: []}, y: {op: add, input: [value, f]}}\n"
    "staged: {features: {y: y}, num_threads: 1, num_clients: 2, delivery: round_robin}\n",
    "dataset: nothing\n"};
static const char *const resumes[] = {NULL, "start", "current", "tag:one", "tag:"};

void stg_fuzz_request(struct stg_fuzz_input *input, struct stg_request *ret)
{
    static int64_t offsets[] = {0, 1, 2};
    unsigned kind = stg_fuzz_byte(input), flags = stg_fuzz_byte(input);
    unsigned more = stg_fuzz_byte(input);
    *ret = (struct stg_request){
        .id = 2,
        .kind = (enum stg_request_kind)(1 + kind % STG_REQUEST_METRICS),
        .min_version = flags & 7,
        .max_version = more & 15,
        .client = "fuzz",
        .name = names[stg_fuzz_byte(input) % 5],
        .text = texts[more % 4],
        .file = "f.yaml",
        .replace = (flags & 1) != 0,
        .warm = (flags & 64) != 0 && (more & 7) == 7,
        .client_id = names[flags % 5],
        .max_in_flight = more,
        .private_run = (flags & 2) != 0,
        .manual_ack = (flags & 4) != 0,
        .named = (flags & 8) != 0,
        .batch_size = (flags & 16) != 0 ? more % 9 : 0,
        .resume = resumes[more % 5],
        .tag = names[more % 5],
        .follow = (flags & 32) != 0,
        .approximate = (flags & 128) != 0,
        .rank = more % 3,
        .world_size = (flags & 2) != 0 ? flags % 3 : 0,
        .open_metrics = (flags & 1) != 0,
        .millis = 1 + more % 20,
        .most = more % 3,
        .dtype = flags % 16,
        .ndim = more % 3,
        .shape = {1 + flags % 2, 1},
        .data = "0123456789abcdef",
        .data_bytes = more % 17,
        .generation = flags % 4};
    ret->text_bytes = ret->text != NULL ? strlen(ret->text) : 0;
    if (ret->kind == STG_REQUEST_FEED && ret->dtype == STAGER_STRING) {
        ret->offsets = offsets;
        ret->n_offsets = 1 + more % 3;
    }
    if ((flags & 96) == 96)
        ret->rejoin = (struct stg_rejoin){.run = more, .member = flags, .attempt = more};
}

/* ---- pages ---- */

/* Writes to the page that the client may write: anywhere, or a release that the ring page
 * has a lease for. */
static void write_pages(struct client *client, struct stg_fuzz_input *input)
{
    size_t at = stg_fuzz_number(input);
    unsigned n = 1 + stg_fuzz_byte(input) % 12;
    uint8_t bytes[12];
    for (unsigned i = 0; i < n; i++)
        bytes[i] = (uint8_t)stg_fuzz_byte(input);
    for (size_t i = 0; i < N_PAGES; i++) {
        struct page *page = &client->pages[i];
        if (page->is_writable && page->bytes >= n)
            memcpy((char *)page->base + at % (page->bytes - n + 1), bytes, n);
    }
}

static void release(struct client *client)
{
    struct stg_control_page *control = NULL;
    const struct stg_ring_page *ring = NULL;
    for (size_t i = 0; i < N_PAGES; i++) {
        struct page *page = &client->pages[i];
        if (page->is_writable && page->bytes >= sizeof(*control))
            control = page->base;
        else if (page->base != NULL && page->bytes == STG_RING_BYTES)
            ring = page->base;
    }
    if (control == NULL || ring == NULL)
        return;
    uint64_t n = atomic_load(&control->released);
    const struct stg_descriptor *of = &ring->entries[n % STG_RING_ENTRIES];
    control->releases[n % STG_RELEASE_ENTRIES] =
        (struct stg_release_entry){of->lease, of->lease_generation};
    atomic_store(&control->asked, n + 2);
    atomic_store(&control->taken, n + 1);
    atomic_store(&control->released, n + 1);
}

/* ---- a sequence ---- */

static void step(struct stg_fuzz_input *input)
{
    struct stg_request request;
    unsigned op = stg_fuzz_byte(input);
    struct client *client = &clients[(op >> 4) % N_CONNECTIONS];
    switch (op & 15) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: /* greeted at first */
        greet(client);
        stg_fuzz_request(input, &request);
        send_request(client, &request);
        break;
    case 5: { /* any bytes */
        size_t n = stg_fuzz_byte(input), left = stg_fuzz_left(input);
        n = n < left ? n : left;
        if (n > 0)
            send_bytes(client, input->at, n);
        input->at += n;
        break;
    }
    case 6: send_bytes(client, "", 1); break;
    case 7: hang_up(client); break;
    case 8: /* as stagerctl and libstager send it: an open, then the join */
        request = (struct stg_request){.id = 3, .kind = STG_REQUEST_JOIN};
        send_request(client, &request);
        break;
    case 9:
    case 10: write_pages(client, input); break;
    case 11:
    case 12: release(client); break;
    default: break;
    }
    turn();
}

static void delete_all(void)
{
    for (size_t i = 0; i < 2; i++) {
        struct stg_request request = {
            .id = 9, .kind = STG_REQUEST_DELETE, .name = names[i]};
        greet(&clients[0]);
        send_request(&clients[0], &request);
        turn();
    }
    hang_up(&clients[0]);
}

/* Waits until the sessions are gone. False: this process holds memory, as far as the
 * server knows. */
static bool wait_idle(void)
{
    uint64_t end = uv_hrtime() / 1000000 + 50;
    do {
        turn();
        if (world.server.n_sessions == 0 && world.server.sessions == NULL &&
            stg_budget_used(&world.server.budget) == world.budget_used)
            return true;
    } while (uv_hrtime() / 1000000 < end);
    return false;
}

struct stg_server *stg_fuzz_server_begin(void)
{
    if (!world.runs)
        start();
    for (size_t i = 0; i < N_CONNECTIONS; i++)
        clients[i] = (struct client){.fd = -1};
    return &world.server;
}

void stg_fuzz_server_turn(void)
{
    turn();
}

void stg_fuzz_server_end(void)
{
    for (size_t i = 0; i < N_CONNECTIONS; i++)
        hang_up(&clients[i]);
    turn();
    delete_all();
    if (!wait_idle())
        stop(); /* the next input has a new one */
}

void stg_fuzz_server(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    stg_fuzz_server_begin();
    for (int n = 0; n < MAX_OPS && input.at < input.end; n++)
        step(&input);
    stg_fuzz_server_end();
}

void stg_fuzz_server_seeds(void)
{
    /* Apply a, open, join, release twice, a doorbell, status; then another client. */
    static const uint8_t stream[] = {0,  2,  0,  0, 0,  0,  5,  0, 5, 0, 8,
                                     13, 11, 11, 6, 13, 16, 4,  0, 0, 0, 16,
                                     5,  0,  5,  0, 24, 13, 27, 7, 23};
    static const uint8_t hostile[] = {0, 2, 0,  0, 0,   0,   5, 0, 5, 0, 8,
                                      9, 0, 64, 7, 255, 255, 0, 0, 0, 0, 0,
                                      0, 6, 13, 9, 1,   64,  3, 9, 9, 9, 9};
    stg_fuzz_seed("server", NULL, 0, stream, sizeof(stream));
    stg_fuzz_seed("server", NULL, 0, hostile, sizeof(hostile));
    for (uint8_t kind = 0; kind < STG_REQUEST_METRICS; kind++) {
        const uint8_t one[] = {0, 2, 1, 0, 0, 0, kind, 1, 1, 0, 13, 13};
        stg_fuzz_seed("server", NULL, 0, one, sizeof(one));
    }
}
