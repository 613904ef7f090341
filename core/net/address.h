/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of the Internet. Pure; any thread.
 */
#ifndef STG_CORE_NET_ADDRESS_H
#define STG_CORE_NET_ADDRESS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/* Returns whether it is an address by which only this machine reaches itself:
 * 127.0.0.0/8, also as IPv6 writes it (::ffff:127.0.0.1), or ::1. */
static inline bool stg_address_is_loopback(const struct sockaddr_storage *address)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, address, sizeof(v4));
    memcpy(&v6, address, sizeof(v6));
    if (address->ss_family == AF_INET)
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    if (address->ss_family != AF_INET6)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
}

#endif
