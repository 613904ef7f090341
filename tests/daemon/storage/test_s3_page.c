/* SPDX-License-Identifier: Apache-2.0
 *
 * What S3 answers in XML: pages of a list and refusals, those of servers that follow the
 * rules, and those that no server should send. Each document lies in memory of exactly
 * its length, so that a sanitizer sees what is read beyond it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/http/s3.h"
#include "tests/check.h"
#include "tests/failalloc.h"

struct page {
    char text[1024];
    unsigned n_keys;
    char token[STG_S3_TOKEN_BYTES];
    int rc;
    struct stg_err err;
};

static int add_key(void *owner, const char *key, struct stg_err *err)
{
    struct page *page = owner;
    size_t n = strlen(page->text);
    page->n_keys++;
    snprintf(page->text + n, sizeof(page->text) - n, "%s|", key);
    return 0;
}

static struct page page_of_bytes(const char *bytes, size_t n)
{
    static struct page page;
    char *text = malloc(n > 0 ? n : 1);
    CHECK(text != NULL);
    memcpy(text, bytes, n);
    page = (struct page){.rc = 1};
    page.rc = stg_s3_page(text, n, add_key, &page, page.token, &page.err);
    free(text);
    return page;
}

static struct page page_of(const char *body)
{
    return page_of_bytes(body, strlen(body));
}

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define PAGE(body) HEAD "<ListBucketResult>" body "</ListBucketResult>"
#define KEY(key) "<Contents><Key>" key "</Key></Contents>"

/* ---- what a server answers ---- */

static void a_page_of_a_list_is_taken_apart(void)
{
    static const struct {
        const char *document, *keys, *token;
    } rows[] = {
        {PAGE("<Contents><Size>1</Size><Key>a&amp;b&lt;&#x41;&#66;</Key></Contents>"
              "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>" KEY("c%20d")),
         "a&b<AB|c%20d|", ""},
        {PAGE("<EncodingType>url</EncodingType>" KEY("c%20d+e%2b")), "c d e+|", ""},
        {PAGE(KEY("c%20d") "<EncodingType>url</EncodingType>"), "c d|", ""},
        {PAGE("<IsTruncated>true</IsTruncated><NextContinuationToken>1&amp;2"
              "</NextContinuationToken>"),
         "", "1&2"},
        {PAGE("<NextContinuationToken>1</NextContinuationToken>"), "", ""},
        {PAGE("<IsTruncated>false</IsTruncated>"), "", ""},
        {"<ListBucketResult/>", "", ""},
        {HEAD "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" KEY(
             "a") "</ListBucketResult>",
         "a|", ""},
        {"<s:ListBucketResult xmlns:s=\"u\"><s:Contents><s:Key>a</s:Key></s:Contents>"
         "</s:ListBucketResult>",
         "a|", ""},
        {PAGE("<Contents>\n  <Key>a<!-- c -->b<?p i?><![CDATA[<&]]></Key>\n</Contents>"),
         "ab<&|", ""},
        {PAGE(KEY("&#xe9;\xc3\xa9")), "\xc3\xa9\xc3\xa9|", ""},
        {"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><ListBucketResult>" KEY(
             "\xe9") "</ListBucketResult>",
         "\xc3\xa9|", ""},
        /* Only the first key of an object, and only where keys are. */
        {PAGE("<Contents><Key>a</Key><Key>b</Key></Contents>"
              "<Key>c</Key><Contents><Owner><Key>d</Key></Owner><Key>e</Key></Contents>"),
         "a|e|", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct page page = page_of(rows[i].document);
        CHECK_OK(page.rc, page.err);
        CHECK_STR(page.text, rows[i].keys);
        CHECK_STR(page.token, rows[i].token);
    }
}

static void a_page_in_utf_16_is_read(void)
{
    static const char text[] = "<ListBucketResult><Contents><Key>ab</Key></Contents>"
                               "</ListBucketResult>";
    char wide[2 * sizeof(text)] = "\xff\xfe";
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        wide[2 + 2 * i] = text[i];
        wide[3 + 2 * i] = 0;
    }
    struct page page = page_of_bytes(wide, sizeof(wide));
    CHECK_OK(page.rc, page.err);
    CHECK_STR(page.text, "ab|");
    CHECK_INT(page_of_bytes(wide, sizeof(wide) - 1).rc, -STAGER_DATA_LOSS);
}

/* ---- what none should ---- */

static void an_invalid_page_is_refused_with_the_reason(void)
{
    static const struct {
        const char *document, *why;
    } rows[] = {
        {"", "XML, line 1: no element found"},
        {"<html>hello</html>", "its root is not ListBucketResult"},
        {"404 not found", "XML, line 1"},
        {"{\"a\": 1}", "XML, line 1"},
        {"<ListBucketResult><Contents>", "no element found"},
        {PAGE("<a></b>"), "XML, line 2: mismatched tag"},
        {PAGE("") "<a/>", "junk after document element"},
        {PAGE("<a b='1' b='2'/>"), "duplicate attribute"},
        {PAGE("<p:a/>"), "unbound prefix"},
        {PAGE("<Contents></Contents>"), "an object without a key"},
        {PAGE("<IsTruncated>true</IsTruncated>"), "has no continuation token"},
        {PAGE("<EncodingType>url</EncodingType>" KEY("a%00")), "a key with a NUL"},
        {PAGE(KEY("&#0;")), "reference to invalid character number"},
        {PAGE(KEY("&#99999999999;")), "reference to invalid character number"},
        {PAGE(KEY("&#xd800;")), "reference to invalid character number"},
        {PAGE(KEY("&bad;")), "undefined entity"},
        {PAGE(KEY("&")), "not well-formed"},
        {PAGE(KEY("\x07")), "not well-formed"},
        {PAGE(KEY("\xff\xfe")), "not well-formed"},
        {PAGE(KEY("\xc0\xaf")), "not well-formed"},         /* an overlong "/" */
        {PAGE(KEY("\xed\xa0\x80")), "not well-formed"},     /* half of a pair */
        {PAGE(KEY("\xf4\x90\x80\x80")), "not well-formed"}, /* behind the last */
        {"<?xml version=\"1.0\" encoding=\"martian\"?><ListBucketResult/>",
         "unknown encoding"},
        {"<?xml version=\"1.0\" encoding=\"UTF-7\"?><ListBucketResult/>",
         "unknown encoding"},
        {"<?xml version=\"1.0\" encoding=\"UTF-16\"?><ListBucketResult/>",
         "encoding specified in XML declaration is incorrect"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct page page = page_of(rows[i].document);
        CHECK_INT(page.rc, -STAGER_DATA_LOSS);
        CHECK_CONTAINS(page.err.text, rows[i].why);
        CHECK_STR(page.text, "");
    }
    CHECK_STR(page_of("<html/>").err.text,
              "the server's answer is not a list of a bucket: its root is not "
              "ListBucketResult: is the endpoint an S3 endpoint?");
    CHECK_INT(page_of_bytes("<ListBucketResult>\0</ListBucketResult>", 38).rc,
              -STAGER_DATA_LOSS);
}

/* Entities that grow, that lead to files, that have defaults: none is looked at. */
static void a_document_with_a_doctype_is_refused(void)
{
    static const char *const types[] = {
        "<!DOCTYPE l [<!ENTITY a \"0123456789\">"
        "<!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\">"
        "<!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;\">"
        "<!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;\">"
        "<!ENTITY e \"&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;\">"
        "<!ENTITY f \"&e;&e;&e;&e;&e;&e;&e;&e;&e;&e;\">"
        "<!ENTITY x \"&f;&f;&f;&f;&f;&f;&f;&f;&f;&f;\">]>",
        "<!DOCTYPE l [<!ENTITY x SYSTEM \"file:///etc/hostname\">]>",
        "<!DOCTYPE l SYSTEM \"http://127.0.0.1/x.dtd\">",
        "<!DOCTYPE l [<!ENTITY % p SYSTEM \"file:///etc/hostname\"> %p;]>",
        "<!DOCTYPE l [<!ENTITY x \"&x;\">]>",
        "<!DOCTYPE l>",
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        char text[1024];
        snprintf(text, sizeof(text), "%s<ListBucketResult>" KEY("&x;") "%s", types[i],
                 "</ListBucketResult>");
        struct page page = page_of(text);
        CHECK_INT(page.rc, -STAGER_DATA_LOSS);
        CHECK_CONTAINS(page.err.text, "DOCTYPE");
    }
}

/* head, then `middle` n times, then tail. */
static struct page page_of_many(const char *head, const char *middle, size_t n,
                                const char *tail)
{
    char *text;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    CHECK(to != NULL);
    fputs(head, to);
    for (size_t i = 0; i < n; i++)
        fputs(middle, to);
    fputs(tail, to);
    CHECK_INT(fclose(to), 0);
    struct page page = page_of_bytes(text, bytes);
    free(text);
    return page;
}

#define OPEN "<ListBucketResult>"
#define CLOSE "</ListBucketResult>"
#define MIB ((size_t)1 << 20)

static void depth_names_and_texts_are_bounded(void)
{
    static const struct {
        const char *head, *middle, *tail, *why;
        size_t n;
    } rows[] = {
        {"", "<a>", "", "too deep", 4 * MIB},
        {OPEN, "<Contents>", "", "too deep", MIB},
        {OPEN "<", "n", "/>" CLOSE, "names are too long", 8 * MIB},
        {OPEN "<Contents><Key>", "k", "</Key></Contents>" CLOSE,
         "a key of more than 4095 bytes", 4096},
        {OPEN "<Contents><Key>", "k", "</Key></Contents>" CLOSE,
         "a key of more than 4095 bytes", 8 * MIB},
        {OPEN "<Contents><Key>", "&#x1F600;", "</Key></Contents>" CLOSE,
         "a key of more than 4095 bytes", MIB},
        {OPEN "<IsTruncated>true</IsTruncated><NextContinuationToken>", "t",
         "</NextContinuationToken>" CLOSE, "has no continuation token",
         STG_S3_TOKEN_BYTES},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct page page =
            page_of_many(rows[i].head, rows[i].middle, rows[i].n, rows[i].tail);
        CHECK_INT(page.rc, -STAGER_DATA_LOSS);
        CHECK_CONTAINS(page.err.text, rows[i].why);
    }
    CHECK_INT(
        page_of_many(OPEN "<Contents><Key>", "k", 4095, "</Key></Contents>" CLOSE).rc, 0);
}

static void what_is_large_and_not_understood_is_passed_over(void)
{
    static const struct {
        const char *head, *middle, *tail;
        size_t n;
    } rows[] = {
        {OPEN "<Name>", "n", "</Name>" KEY("a") CLOSE, 8 * MIB},
        {OPEN "<Name a=\"", "v", "\"/>" KEY("a") CLOSE, 8 * MIB},
        {OPEN "<!--", "c", "-->" KEY("a") CLOSE, 8 * MIB},
        {OPEN, "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>", KEY("a") CLOSE,
         MIB / 16},
        {OPEN "<Contents><Key>", "<![CDATA[]]>", "a</Key></Contents>" CLOSE, MIB / 2},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct page page =
            page_of_many(rows[i].head, rows[i].middle, rows[i].n, rows[i].tail);
        CHECK_OK(page.rc, page.err);
        CHECK_STR(page.text, "a|");
    }
    CHECK_INT(page_of_many(OPEN, KEY("a"), 100000, CLOSE).n_keys, 100000);
}

/* ---- truncation and other damage ---- */

static const char *const wholes[] = {
    PAGE("<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
         "<NextContinuationToken>1&amp;2</NextContinuationToken>" KEY("a%2")
             KEY("&#x41;")),
    HEAD "<s:ListBucketResult xmlns:s=\"http://s3\"><s:Contents a=\"1\" b='&lt;'>"
         "<s:Key><![CDATA[x]]>y</s:Key><s:Owner><s:ID>1</s:ID></s:Owner></s:Contents>"
         "<!-- c --><?p i?></s:ListBucketResult>",
    "<!DOCTYPE l [<!ENTITY x \"y\">]><ListBucketResult>" KEY("&x;") "</ListBucketResult>",
    HEAD "<Error><Code>NoSuchKey</Code><Message>no &quot;a&quot;</Message></Error>",
};
#define N_WHOLES (sizeof(wholes) / sizeof(wholes[0]))

static void a_truncated_page_is_refused_and_gives_no_key(void)
{
    for (size_t n = 0; n < strlen(wholes[0]); n++) {
        struct page page = page_of_bytes(wholes[0], n);
        CHECK_INT(page.rc, -STAGER_DATA_LOSS);
        CHECK_INT(page.n_keys, 0);
    }
}

static uint64_t state;

/* xorshift64* */
static size_t draw(size_t below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (size_t)(state * 0x2545f4914f6cdd1dull >> 33) % below;
}

/* One of the documents, with bytes changed, taken out, doubled, or put from another. */
static size_t damage(char text[4096])
{
    static const char *const pieces[] = {
        "<",    ">",  "&",   "/",    "]]>", "<!--",   "&#x",    ";", "<![CDATA[",
        "\xff", "\0", "<a>", "</a>", "\"",  "xmlns=", "<Key>%", "<?"};
    const char *whole = wholes[draw(N_WHOLES)];
    size_t n = strlen(whole);
    memcpy(text, whole, n);
    for (size_t k = 1 + draw(3); k > 0; k--) {
        const char *other = wholes[draw(N_WHOLES)];
        const char *piece = draw(2) ? pieces[draw(sizeof(pieces) / sizeof(pieces[0]))]
                                    : other + draw(strlen(other));
        size_t at = draw(n + 1), bytes = 1 + draw(strlen(piece) + 1);
        if (draw(3) == 0) {
            size_t out = draw(n - at + 1);
            memmove(text + at, text + at + out, n - at - out);
            n -= out;
        } else if (draw(2) && at < n) {
            text[at] = (char)draw(256);
        } else if (n + bytes < 2048) {
            memmove(text + at + bytes, text + at, n - at);
            memcpy(text + at, piece, bytes);
            n += bytes;
        }
    }
    return n;
}

static void damage_is_refused_or_read_without_harm(void)
{
    const char *seed = getenv("STG_FUZZ_SEED"), *runs = getenv("STG_FUZZ_RUNS");
    state = 2 * (seed != NULL ? strtoull(seed, NULL, 10) : 1) + 1;
    unsigned n_read = 0, n_runs = runs != NULL ? (unsigned)atoi(runs) : 100000;
    fprintf(stderr, "    STG_FUZZ_SEED=%s\n", seed != NULL ? seed : "1");
    for (unsigned i = 0; i < n_runs; i++) {
        char text[4096], code[16], message[16];
        size_t n = damage(text);
        struct page page = page_of_bytes(text, n);
        CHECK(page.rc == 0 || page.rc == -STAGER_DATA_LOSS);
        CHECK(page.rc == 0 || page.err.text[0] != '\0');
        CHECK(page.rc == 0 || page.token[0] == '\0' ||
              strlen(page.token) < STG_S3_TOKEN_BYTES);
        n_read += page.rc == 0;
        stg_s3_refusal(text, n, code, sizeof(code), message, sizeof(message));
        CHECK(strlen(code) < sizeof(code) && strlen(message) < sizeof(message));
    }
    fprintf(stderr, "    %u documents, %u read\n", n_runs, n_read);
    CHECK(n_read > n_runs / 500 && n_read < n_runs / 2);
}

/* ---- refusals ---- */

static void a_truncated_refusal_is_reported_as_far_as_it_was_received(void)
{
    static const struct {
        const char *text, *code, *message;
    } rows[] = {
        {HEAD "<Error><Code>NoSuchKey</Code><Message>no &quot;a&quot;</Message></Error>",
         "NoSuchKey", "no \"a\""},
        {"<ErrorResponse xmlns=\"u\"><Error><Code>A</Code></Error><Code>B</Code>", "A",
         ""},
        {"<Error><Code>A</Code><Message>cut", "A", ""},
        {"<Error><Code>ThisCodeIsLongerThanItsRoom</Code></Error>", "ThisCodeIsLonge",
         ""},
        {"<!DOCTYPE html><html><Code>A</Code></html>", "", ""},
        {"{\"Code\": \"A\"}", "", ""},
        {"", "", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char code[16], message[16];
        stg_s3_refusal(rows[i].text, strlen(rows[i].text), code, sizeof(code), message,
                       sizeof(message));
        CHECK_STR(code, rows[i].code);
        CHECK_STR(message, rows[i].message);
    }
}

/* ---- memory ---- */

static int read_once(void *owner)
{
    struct page page = {.rc = 1};
    page.rc =
        stg_s3_page(wholes[1], strlen(wholes[1]), add_key, &page, page.token, &page.err);
    if (page.rc == 0)
        CHECK_STR(page.text, "xy|");
    else
        CHECK_INT(page.n_keys, 0);
    return page.rc;
}

static void without_memory_nothing_is_read(void)
{
    CHECK(stg_failalloc_each(read_once, NULL) >= 3);
}

static const struct stg_test tests[] = {
    TEST(a_page_of_a_list_is_taken_apart),
    TEST(a_page_in_utf_16_is_read),
    TEST(an_invalid_page_is_refused_with_the_reason),
    TEST(a_document_with_a_doctype_is_refused),
    TEST(depth_names_and_texts_are_bounded),
    TEST(what_is_large_and_not_understood_is_passed_over),
    TEST(a_truncated_page_is_refused_and_gives_no_key),
    TEST_SLOW(damage_is_refused_or_read_without_harm, 60),
    TEST(a_truncated_refusal_is_reported_as_far_as_it_was_received),
    TEST(without_memory_nothing_is_read),
};
TEST_MAIN(tests)
