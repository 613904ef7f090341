/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gate/ticket.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct stg_ticket {
    struct stg_ticket *next; /* older */
    uint64_t until_ns;
    unsigned char bytes[STG_TICKET_BYTES];
    struct stg_identity identity;
};

static void remove_at(struct stg_ticket **at)
{
    struct stg_ticket *ticket = *at;
    *at = ticket->next;
    explicit_bzero(ticket->bytes, sizeof(ticket->bytes));
    free(ticket);
}

/* What has expired goes, and what would be one too many of that user. How many are left.
 */
static size_t make_room(struct stg_tickets *tickets, uid_t uid, uint64_t now_ns)
{
    size_t n = 0, of_user = 0;
    struct stg_ticket **at = &tickets->newest;
    while (*at != NULL) {
        bool same = (*at)->identity.uid == uid;
        if ((*at)->until_ns <= now_ns || (same && of_user + 1 >= STG_TICKETS_A_USER)) {
            remove_at(at);
            continue;
        }
        of_user += same;
        n++;
        at = &(*at)->next;
    }
    return n;
}

int stg_tickets_give(struct stg_tickets *tickets, const struct stg_identity *identity,
                     uint64_t now_ns, unsigned char ret[STG_TICKET_BYTES],
                     struct stg_err *err)
{
    if (make_room(tickets, identity->uid, now_ns) >= STG_TICKETS)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "%d tickets are valid already: one expires within the hour, and a "
                       "restart of stagerd forgets them all",
                       STG_TICKETS);
    struct stg_ticket *ticket = malloc(sizeof(*ticket));
    if (ticket == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (getrandom(ticket->bytes, sizeof(ticket->bytes), 0) !=
        (ssize_t)sizeof(ticket->bytes)) {
        free(ticket);
        return stg_err(err, -STAGER_INTERNAL, "the kernel gives no random bytes");
    }
    ticket->until_ns = now_ns + STG_TICKET_SECONDS * 1000000000ull;
    ticket->identity = *identity;
    ticket->next = tickets->newest;
    tickets->newest = ticket;
    memcpy(ret, ticket->bytes, sizeof(ticket->bytes));
    return 0;
}

/* 0 when equal; looks at every byte. */
static unsigned differ(const unsigned char *a, const unsigned char *b)
{
    volatile unsigned ret = 0;
    for (size_t i = 0; i < STG_TICKET_BYTES; i++)
        ret |= (unsigned)(a[i] ^ b[i]);
    return ret;
}

const struct stg_identity *stg_tickets_find(const struct stg_tickets *tickets,
                                            const void *ticket, size_t bytes,
                                            uint64_t now_ns)
{
    const struct stg_identity *ret = NULL;
    if (bytes != STG_TICKET_BYTES)
        return NULL;
    for (const struct stg_ticket *t = tickets->newest; t != NULL; t = t->next) {
        if (differ(t->bytes, ticket) == 0 && t->until_ns > now_ns)
            ret = &t->identity;
    }
    return ret;
}

void stg_tickets_finish(struct stg_tickets *tickets)
{
    while (tickets->newest != NULL)
        remove_at(&tickets->newest);
}
