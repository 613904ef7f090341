/* SPDX-License-Identifier: Apache-2.0
 *
 * The client of etcd and a real etcd: keys, leases, transactions of several clients, and
 * an etcd that is paused, killed, compacted, full, locked, or behind TLS.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/daemon/cluster/etcd_server.h"

static struct stg_etcd_server server;
static struct stg_err err;

static struct stg_etcd *connect_to(const char *url)
{
    const char *const endpoints[] = {url};
    struct stg_etcd_settings settings = stg_etcd_server_settings(endpoints, 1);
    struct stg_etcd *etcd;
    static const char *kept[8];
    static size_t n_kept;
    CHECK(n_kept < 8);
    kept[n_kept] = url;
    settings.endpoints = &kept[n_kept++];
    CHECK_OK(stg_etcd_create(&settings, &etcd, &err), err);
    return etcd;
}

static struct stg_etcd *begin(void)
{
    stg_etcd_server_start(&server);
    return connect_to(server.url);
}

static void end(struct stg_etcd *etcd)
{
    stg_etcd_destroy(etcd);
    stg_etcd_server_finish(&server);
}

static int64_t put_with(struct stg_etcd *etcd, const char *key, const char *value,
                        int64_t lease)
{
    struct stg_etcd_put put = {.key = key,
                               .value = value,
                               .value_bytes = value != NULL ? strlen(value) : 0,
                               .lease = lease};
    bool is_done = false;
    int64_t revision = 0;
    CHECK_OK(stg_etcd_txn(etcd, NULL, 0, &put, 1, &is_done, &revision, &err), err);
    CHECK(is_done && revision > 0);
    return revision;
}

static int64_t put(struct stg_etcd *etcd, const char *key, const char *value)
{
    return put_with(etcd, key, value, 0);
}

/* Returns how many keys begin with it. */
static size_t count(struct stg_etcd *etcd, const char *prefix)
{
    struct stg_etcd_range range;
    CHECK_OK(stg_etcd_get(etcd, prefix, true, &range, &err), err);
    size_t n = range.n;
    stg_etcd_range_finish(&range);
    return n;
}

/* ---- keys ---- */

static void a_key_is_put_read_and_deleted(void)
{
    struct stg_etcd *etcd = begin();
    struct stg_etcd_range range;
    CHECK_OK(stg_etcd_get(etcd, "stager/a", false, &range, &err), err);
    CHECK_INT(range.n, 0);
    stg_etcd_range_finish(&range);
    int64_t first = put(etcd, "stager/a", "1"), second = put(etcd, "stager/a", "two");
    CHECK_INT(second, first + 1);
    CHECK_OK(stg_etcd_get(etcd, "stager/a", false, &range, &err), err);
    CHECK_INT(range.n, 1);
    CHECK_INT(range.revision, second);
    CHECK_STR(range.entries[0].key, "stager/a");
    CHECK_STR(range.entries[0].value, "two");
    CHECK_INT(range.entries[0].value_bytes, 3);
    CHECK_INT(range.entries[0].create_revision, first);
    CHECK_INT(range.entries[0].mod_revision, second);
    CHECK_INT(range.entries[0].lease, 0);
    stg_etcd_range_finish(&range);
    put(etcd, "stager/a", NULL);
    CHECK_INT(count(etcd, "stager/"), 0);
    end(etcd);
}

static void values_are_any_bytes(void)
{
    struct stg_etcd *etcd = begin();
    char bytes[259];
    for (size_t n = 0; n < sizeof(bytes); n++)
        bytes[n] = (char)(255 - n);
    for (size_t n = 0; n <= sizeof(bytes); n += n < 5 ? 1 : 127) {
        struct stg_etcd_put put = {.key = "k", .value = bytes, .value_bytes = n};
        struct stg_etcd_range range;
        bool is_done;
        int64_t revision;
        CHECK_OK(stg_etcd_txn(etcd, NULL, 0, &put, 1, &is_done, &revision, &err), err);
        CHECK_OK(stg_etcd_get(etcd, "k", false, &range, &err), err);
        CHECK_INT(range.n, 1);
        CHECK_INT(range.entries[0].value_bytes, n);
        CHECK(memcmp(range.entries[0].value, bytes, n) == 0);
        CHECK(range.entries[0].value[n] == '\0');
        stg_etcd_range_finish(&range);
    }
    end(etcd);
}

static void a_prefix_has_the_keys_that_begin_with_it(void)
{
    static const char *const keys[] = {"p",      "p/",         "p/a", "p/\xc3\xbf",
                                       "p/\xff", "p/\xff\xff", "p0",  "q"};
    struct stg_etcd *etcd = begin();
    struct stg_etcd_range range;
    for (size_t i = sizeof(keys) / sizeof(keys[0]); i-- > 0;)
        put(etcd, keys[i], keys[i]);
    CHECK_OK(stg_etcd_get(etcd, "p/", true, &range, &err), err);
    CHECK_INT(range.n, 5);
    for (size_t i = 0; i < range.n; i++)
        CHECK_STR(range.entries[i].key, keys[1 + i]);
    stg_etcd_range_finish(&range);
    CHECK_INT(count(etcd, "p/\xff"), 2);
    CHECK_INT(count(etcd, "\xff"), 0);
    put(etcd, "\xff\xff", "");
    CHECK_INT(count(etcd, "\xff"), 1);
    end(etcd);
}

/* ---- transactions ---- */

struct racer {
    struct stg_etcd *etcd;
    pthread_barrier_t *barrier;
    unsigned n_won;
    bool won[40];
    int64_t revisions[40];
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    struct stg_err why = {0};
    for (unsigned i = 0; i < 40; i++) {
        char key[16], value[32];
        snprintf(key, sizeof(key), "race/%u", i);
        snprintf(value, sizeof(value), "%p", arg);
        const struct stg_etcd_compare compare = {.key = key, .mod_revision = 0};
        const struct stg_etcd_put change = {
            .key = key, .value = value, .value_bytes = strlen(value)};
        pthread_barrier_wait(racer->barrier);
        CHECK_OK(stg_etcd_txn(racer->etcd, &compare, 1, &change, 1, &racer->won[i],
                              &racer->revisions[i], &why),
                 why);
        racer->n_won += racer->won[i];
    }
    return NULL;
}

static void of_two_clients_one_makes_a_change(void)
{
    struct racer racers[2] = {{.etcd = begin()}, {.etcd = connect_to(server.url)}};
    pthread_t threads[2];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    for (int i = 0; i < 2; i++) {
        racers[i].barrier = &barrier;
        CHECK(pthread_create(&threads[i], NULL, race, &racers[i]) == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(racers[0].n_won + racers[1].n_won, 40);
    for (unsigned i = 0; i < 40; i++) {
        const struct racer *winner = &racers[racers[1].won[i]];
        char key[16], value[32];
        struct stg_etcd_range range;
        CHECK(racers[0].won[i] != racers[1].won[i]);
        snprintf(key, sizeof(key), "race/%u", i);
        snprintf(value, sizeof(value), "%p", (const void *)winner);
        CHECK_OK(stg_etcd_get(racers[0].etcd, key, false, &range, &err), err);
        CHECK_STR(range.entries[0].value, value);
        CHECK_INT(range.entries[0].mod_revision, winner->revisions[i]);
        stg_etcd_range_finish(&range);
    }
    pthread_barrier_destroy(&barrier);
    stg_etcd_destroy(racers[1].etcd);
    end(racers[0].etcd);
}

static void a_transaction_changes_all_or_nothing(void)
{
    struct stg_etcd *etcd = begin();
    int64_t a = put(etcd, "t/a", "1"), b = put(etcd, "t/b", "2"), revision = 0;
    struct stg_etcd_compare compares[] = {{.key = "t/a", .mod_revision = a},
                                          {.key = "t/b", .mod_revision = b + 1}};
    const struct stg_etcd_put puts[] = {{.key = "t/a"},
                                        {.key = "t/c", .value = "3", .value_bytes = 1}};
    bool is_done = true;
    CHECK_OK(stg_etcd_txn(etcd, compares, 2, puts, 2, &is_done, &revision, &err), err);
    CHECK(!is_done);
    CHECK_INT(revision, b);
    CHECK_INT(count(etcd, "t/"), 2);
    compares[1].mod_revision = b;
    CHECK_OK(stg_etcd_txn(etcd, compares, 2, puts, 2, &is_done, &revision, &err), err);
    CHECK(is_done);
    CHECK_INT(revision, b + 1);
    CHECK_INT(count(etcd, "t/"), 2);
    CHECK_INT(count(etcd, "t/a"), 0);
    const struct stg_etcd_put twice[] = {{.key = "t/a"}, {.key = "t/a", .value = ""}};
    CHECK_INT(stg_etcd_txn(etcd, NULL, 0, twice, 2, &is_done, &revision, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "duplicate key given in txn request");
    CHECK_CONTAINS(err.text, server.url);
    end(etcd);
}

/* ---- leases ---- */

static void a_lease_that_is_not_renewed_expires_with_its_keys(void)
{
    struct stg_etcd *etcd = begin();
    int64_t lease = 0, other = 0, revision;
    uint32_t ttl = 0;
    bool is_done;
    CHECK_OK(stg_etcd_grant(etcd, 1, &lease, &err), err);
    CHECK_OK(stg_etcd_grant(etcd, 3600, &other, &err), err);
    CHECK(lease != 0 && other != 0 && lease != other);
    CHECK_OK(stg_etcd_renew(etcd, other, &ttl, &err), err);
    CHECK_INT(ttl, 3600);
    put_with(etcd, "l/long", "", other);
    put_with(etcd, "l/short", "", lease);
    while (count(etcd, "l/") > 1)
        usleep(20000);
    CHECK_INT(count(etcd, "l/long"), 1);
    CHECK_INT(stg_etcd_renew(etcd, lease, &ttl, &err), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "has expired");
    const struct stg_etcd_put late = {.key = "l/late", .value = "", .lease = lease};
    CHECK_INT(stg_etcd_txn(etcd, NULL, 0, &late, 1, &is_done, &revision, &err),
              -STAGER_NOT_FOUND);
    CHECK_INT(count(etcd, "l/"), 1);
    end(etcd);
}

static void a_revoked_lease_takes_its_keys_along(void)
{
    struct stg_etcd *etcd = begin();
    struct stg_etcd_range range;
    int64_t lease = 0;
    CHECK_OK(stg_etcd_grant(etcd, 3600, &lease, &err), err);
    put_with(etcd, "r/a", "1", lease);
    CHECK_OK(stg_etcd_get(etcd, "r/a", false, &range, &err), err);
    CHECK_INT(range.entries[0].lease, lease);
    stg_etcd_range_finish(&range);
    CHECK_OK(stg_etcd_revoke(etcd, lease, &err), err);
    CHECK_INT(count(etcd, "r/"), 0);
    CHECK_OK(stg_etcd_revoke(etcd, lease, &err), err);
    end(etcd);
}

/* ---- an etcd in trouble ---- */

static void the_next_endpoint_is_asked_when_one_is_away(void)
{
    struct stg_etcd_server away = {0};
    stg_etcd_server_start(&away);
    stg_etcd_server_kill(&away);
    stg_etcd_server_start(&server);
    const char *const endpoints[] = {away.url, server.url};
    struct stg_etcd_settings settings = stg_etcd_server_settings(endpoints, 2);
    struct stg_etcd *etcd;
    CHECK_OK(stg_etcd_create(&settings, &etcd, &err), err);
    put(etcd, "a", "1"); /* not even sent to the first one */
    CHECK_INT(count(etcd, "a"), 1);
    stg_etcd_server_kill(&server);
    struct stg_etcd_range range;
    CHECK_INT(stg_etcd_get(etcd, "a", false, &range, &err), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, away.url);
    CHECK_CONTAINS(err.text, server.url);
    stg_etcd_server_finish(&away);
    end(etcd);
}

static void a_paused_etcd_may_still_make_a_change(void)
{
    stg_etcd_server_start(&server);
    const char *const endpoints[] = {server.url};
    struct stg_etcd_settings settings = stg_etcd_server_settings(endpoints, 1);
    struct stg_etcd *etcd, *hasty;
    struct stg_etcd_range range;
    int status;
    CHECK_OK(stg_etcd_create(&settings, &etcd, &err), err);
    settings.timeout_millis = 300;
    CHECK_OK(stg_etcd_create(&settings, &hasty, &err), err);
    put(etcd, "a", "1");
    CHECK(kill(server.pid, SIGSTOP) == 0);
    CHECK(waitpid(server.pid, &status, WUNTRACED) == server.pid && WIFSTOPPED(status));
    CHECK_INT(stg_etcd_get(hasty, "a", false, &range, &err), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, "no answer within");
    CHECK(strstr(err.text, "may have been made") == NULL);
    const struct stg_etcd_put change = {.key = "b", .value = "2", .value_bytes = 1};
    bool is_done;
    int64_t revision;
    CHECK_INT(stg_etcd_txn(hasty, NULL, 0, &change, 1, &is_done, &revision, &err),
              -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, "the changes may have been made");
    CHECK(kill(server.pid, SIGCONT) == 0);
    CHECK(count(etcd, "b") <= 1);
    put(etcd, "b", "3");
    stg_etcd_destroy(hasty);
    end(etcd);
}

static void a_killed_etcd_that_returns_is_used_again(void)
{
    struct stg_etcd *etcd = begin();
    int64_t before = put(etcd, "a", "1");
    stg_etcd_server_kill(&server);
    stg_etcd_server_start(&server);
    CHECK(put(etcd, "b", "2") > before);
    CHECK_INT(count(etcd, "a"), 1);
    end(etcd);
}

static void compacted_revisions_do_not_matter(void)
{
    struct stg_etcd *etcd = begin();
    int64_t kept = put(etcd, "kept", "1"), revision = 0;
    char body[64];
    bool is_done = false;
    for (int i = 0; i < 20; i++)
        revision = put(etcd, "a", "x");
    snprintf(body, sizeof(body), "{\"revision\":\"%lld\",\"physical\":true}",
             (long long)revision);
    stg_etcd_server_post(&server, NULL, "/v3/kv/compaction", body);
    const struct stg_etcd_compare compare = {.key = "kept", .mod_revision = kept};
    const struct stg_etcd_put change = {.key = "kept", .value = "2", .value_bytes = 1};
    CHECK_OK(stg_etcd_txn(etcd, &compare, 1, &change, 1, &is_done, &revision, &err), err);
    CHECK(is_done);
    CHECK_INT(count(etcd, "kept"), 1);
    end(etcd);
}

static void a_full_etcd_refuses_changes_and_renews(void)
{
    server = (struct stg_etcd_server){.more = {"--quota-backend-bytes", "4194304"}};
    struct stg_etcd *etcd = begin();
    static char big[1 << 20];
    const struct stg_etcd_put change = {
        .key = "big", .value = big, .value_bytes = sizeof(big)};
    bool is_done;
    int64_t lease = 0, revision;
    uint32_t ttl = 0;
    int rc = 0;
    CHECK_OK(stg_etcd_grant(etcd, 3600, &lease, &err), err);
    put_with(etcd, "host", "1", lease);
    for (int i = 0; i < 32 && rc == 0; i++)
        rc = stg_etcd_txn(etcd, NULL, 0, &change, 1, &is_done, &revision, &err);
    CHECK_INT(rc, -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "database space exceeded");
    CHECK_OK(stg_etcd_renew(etcd, lease, &ttl, &err), err);
    CHECK_INT(count(etcd, "host"), 1);
    put(etcd, "host", NULL);
    CHECK_INT(stg_etcd_grant(etcd, 3600, &lease, &err), -STAGER_RESOURCE_EXHAUSTED);
    end(etcd);
}

/* ---- no leader ---- */

/* A member of a cluster whose other member never comes. */
static void a_cluster_without_a_leader_is_unavailable(void)
{
    char members[160];
    struct stg_etcd_range range;
    stg_etcd_server_start(&server);
    stg_etcd_server_finish(&server);
    snprintf(members, sizeof(members),
             "default=http://127.0.0.1:%d,other=http://127.0.0.1:1", server.peer_port);
    server.folder[0] = '\0';
    server.more[0] = "--initial-cluster";
    server.more[1] = members;
    stg_etcd_server_launch(&server);
    const char *const endpoints[] = {server.url};
    struct stg_etcd_settings settings = stg_etcd_server_settings(endpoints, 1);
    struct stg_etcd *etcd;
    settings.timeout_millis = 500;
    CHECK_OK(stg_etcd_create(&settings, &etcd, &err), err);
    CHECK_INT(stg_etcd_get(etcd, "a", false, &range, &err), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, server.url);
    end(etcd);
}

/* ---- users ---- */

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* ada may read and write below "stager/". */
static void add_users(void)
{
    static const char *const requests[][2] = {
        {"user/add", "{\"name\":\"root\",\"password\":\"r\"}"},
        {"role/add", "{\"name\":\"root\"}"},
        {"user/grant", "{\"user\":\"root\",\"role\":\"root\"}"},
        {"user/add", "{\"name\":\"ada\",\"password\":\"open sesame\"}"},
        {"role/add", "{\"name\":\"hosts\"}"},
        {"role/grant", "{\"name\":\"hosts\",\"perm\":{\"permType\":\"READWRITE\",\"key\":"
                       "\"c3RhZ2VyLw==\",\"range_end\":\"c3RhZ2VyMA==\"}}"},
        {"user/grant", "{\"user\":\"ada\",\"role\":\"hosts\"}"},
        {"enable", "{}"},
    };
    char path[64];
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        snprintf(path, sizeof(path), "/v3/auth/%s", requests[i][0]);
        stg_etcd_server_post(&server, NULL, path, requests[i][1]);
    }
}

static void a_user_logs_in_and_has_the_keys_of_its_role(void)
{
    char file[96];
    struct stg_etcd *none = begin(), *etcd;
    struct stg_etcd_range range;
    const struct stg_etcd_put other = {.key = "other", .value = ""};
    bool is_done;
    int64_t revision, lease = 0;
    uint32_t ttl = 0;
    add_users();
    CHECK_INT(stg_etcd_get(none, "stager/a", false, &range, &err),
              -STAGER_UNAUTHENTICATED);
    CHECK_CONTAINS(err.text, "(etcd requires a user and a password)");
    const char *const endpoints[] = {server.url};
    struct stg_etcd_settings settings = stg_etcd_server_settings(endpoints, 1);
    snprintf(file, sizeof(file), "%s/password", server.folder);
    settings.user = "ada";
    settings.password_file = file;
    CHECK_OK(stg_etcd_create(&settings, &etcd, &err), err);
    write_file(file, "open\n");
    CHECK_INT(stg_etcd_get(etcd, "stager/a", false, &range, &err),
              -STAGER_UNAUTHENTICATED);
    CHECK_CONTAINS(err.text, "user ada cannot log in");
    write_file(file, "open sesame\n");
    CHECK_OK(stg_etcd_grant(etcd, 60, &lease, &err), err);
    put_with(etcd, "stager/a", "1", lease);
    CHECK_INT(count(etcd, "stager/"), 1);
    CHECK_INT(stg_etcd_get(etcd, "other", false, &range, &err),
              -STAGER_PERMISSION_DENIED);
    CHECK_INT(stg_etcd_get(etcd, "stager", true, &range, &err),
              -STAGER_PERMISSION_DENIED);
    CHECK_INT(stg_etcd_txn(etcd, NULL, 0, &other, 1, &is_done, &revision, &err),
              -STAGER_PERMISSION_DENIED);
    /* etcd forgets its tokens. */
    stg_etcd_server_kill(&server);
    stg_etcd_server_start(&server);
    put(etcd, "stager/b", "2");
    CHECK_OK(stg_etcd_renew(etcd, lease, &ttl, &err), err);
    CHECK_OK(stg_etcd_revoke(etcd, lease, &err), err);
    CHECK_INT(count(etcd, "stager/"), 1);
    stg_etcd_destroy(none);
    end(etcd);
}

/* ---- TLS ---- */

static char files[6][96]; /* ca.pem, ca.key, host.pem, host.key, other.pem, other.key */

/* Runs openssl in the folder; skips the test if it is not installed. */
static void openssl(const char *args)
{
    char line[640];
    snprintf(line, sizeof(line), "cd %s && openssl %s >>openssl.log 2>&1", server.folder,
             args);
    int status = system(line);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        stg_etcd_server_finish(&server);
        SKIP("openssl is not installed");
    }
    CHECK_INT(status, 0);
}

/* An authority, a certificate of it for 127.0.0.1, and one that it has not signed. */
static void make_certificates(void)
{
    static const char *const names[] = {"ca.pem",   "ca.key",    "host.pem",
                                        "host.key", "other.pem", "other.key"};
    char path[96];
    strcpy(server.folder, "/tmp/stg-etcd-XXXXXX");
    CHECK(mkdtemp(server.folder) != NULL);
    for (int i = 0; i < 6; i++)
        snprintf(files[i], sizeof(files[i]), "%s/%s", server.folder, names[i]);
    snprintf(path, sizeof(path), "%s/ext", server.folder);
    write_file(path, "subjectAltName=IP:127.0.0.1\n");
#define KEY "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    openssl("req -x509 " KEY " -keyout ca.key -out ca.pem -days 2 -subj /CN=authority");
    openssl("req -x509 " KEY " -keyout other.key -out other.pem -days 2 -subj /CN=other");
    openssl("req " KEY " -keyout host.key -out host.csr -subj /CN=host");
    openssl("x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
            "-extfile ext -out host.pem");
}

static int get_with(const struct stg_etcd_settings *settings)
{
    struct stg_etcd *etcd;
    struct stg_etcd_range range;
    CHECK_OK(stg_etcd_create(settings, &etcd, &err), err);
    int rc = stg_etcd_get(etcd, "a", false, &range, &err);
    if (rc == 0)
        stg_etcd_range_finish(&range);
    stg_etcd_destroy(etcd);
    return rc;
}

static void both_sides_show_certificates(void)
{
    char missing[112];
    make_certificates();
    server.scheme = "https";
    server.more[0] = "--cert-file";
    server.more[1] = files[2];
    server.more[2] = "--key-file";
    server.more[3] = files[3];
    server.more[4] = "--client-cert-auth";
    server.more[5] = "--trusted-ca-file";
    server.more[6] = files[0];
    stg_etcd_server_start(&server);
    const char *const endpoints[] = {server.url};
    struct stg_etcd_settings settings = stg_etcd_server_settings(endpoints, 1);
    settings.ca_file = files[0];
    settings.cert_file = files[2];
    settings.key_file = files[3];
    CHECK_OK(get_with(&settings), err);

    settings.ca_file = files[4];
    CHECK_INT(get_with(&settings), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, files[4]);
    CHECK_CONTAINS(err.text, server.url);
    settings.ca_file = NULL;
    CHECK_INT(get_with(&settings), -STAGER_FAILED_PRECONDITION);
    snprintf(missing, sizeof(missing), "%s/missing.pem", server.folder);
    settings.ca_file = missing;
    CHECK_INT(get_with(&settings), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, missing);

    settings.ca_file = files[0];
    settings.cert_file = settings.key_file = NULL;
    CHECK(get_with(&settings) < 0);
    settings.cert_file = missing;
    CHECK_INT(get_with(&settings), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, missing);
    settings.cert_file = files[4];
    settings.key_file = files[5];
    CHECK(get_with(&settings) < 0);
    CHECK_CONTAINS(err.text, server.url);

    char plain[64];
    snprintf(plain, sizeof(plain), "http://127.0.0.1:%d", server.port);
    const char *const plain_endpoints[] = {plain};
    settings.endpoints = plain_endpoints;
    CHECK(get_with(&settings) < 0);
    CHECK_CONTAINS(err.text, plain);
    stg_etcd_server_finish(&server);
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_key_is_put_read_and_deleted, 60),
    TEST_SLOW(values_are_any_bytes, 60),
    TEST_SLOW(a_prefix_has_the_keys_that_begin_with_it, 60),
    TEST_SLOW(of_two_clients_one_makes_a_change, 60),
    TEST_SLOW(a_transaction_changes_all_or_nothing, 60),
    TEST_SLOW(a_lease_that_is_not_renewed_expires_with_its_keys, 60),
    TEST_SLOW(a_revoked_lease_takes_its_keys_along, 60),
    TEST_SLOW(the_next_endpoint_is_asked_when_one_is_away, 60),
    TEST_SLOW(a_paused_etcd_may_still_make_a_change, 60),
    TEST_SLOW(a_killed_etcd_that_returns_is_used_again, 60),
    TEST_SLOW(compacted_revisions_do_not_matter, 60),
    TEST_SLOW(a_full_etcd_refuses_changes_and_renews, 60),
    TEST_SLOW(a_cluster_without_a_leader_is_unavailable, 60),
    TEST_SLOW(a_user_logs_in_and_has_the_keys_of_its_role, 60),
    TEST_SLOW(both_sides_show_certificates, 60),
};

TEST_MAIN(tests)
