/* SPDX-License-Identifier: Apache-2.0 */
#include "core/net/address.h"

#include "tests/check.h"

static bool is_loopback(int family, const char *text)
{
    struct sockaddr_storage address = {.ss_family = (sa_family_t)family};
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&address;
    void *to = family == AF_INET ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr;
    CHECK(inet_pton(family, text, to) == 1);
    return stg_address_is_loopback(&address);
}

static void addresses_of_this_machine_alone_are_loopback(void)
{
    CHECK(is_loopback(AF_INET, "127.0.0.1"));
    CHECK(is_loopback(AF_INET, "127.255.255.254"));
    CHECK(is_loopback(AF_INET6, "::1"));
    CHECK(is_loopback(AF_INET6, "::ffff:127.0.0.1"));
    CHECK(is_loopback(AF_INET6, "::ffff:127.1.2.3"));
}

static void others_are_not(void)
{
    CHECK(!is_loopback(AF_INET, "0.0.0.0"));
    CHECK(!is_loopback(AF_INET, "126.0.0.1"));
    CHECK(!is_loopback(AF_INET, "128.0.0.1"));
    CHECK(!is_loopback(AF_INET6, "::"));
    CHECK(!is_loopback(AF_INET6, "::2"));
    CHECK(!is_loopback(AF_INET6, "::ffff:0.0.0.0"));
    CHECK(!is_loopback(AF_INET6, "::ffff:128.0.0.1"));
    CHECK(!is_loopback(AF_INET6, "::127.0.0.1"));
    struct sockaddr_storage local = {.ss_family = AF_UNIX};
    CHECK(!stg_address_is_loopback(&local));
}

static const struct stg_test tests[] = {
    TEST(addresses_of_this_machine_alone_are_loopback),
    TEST(others_are_not),
};

TEST_MAIN(tests)
