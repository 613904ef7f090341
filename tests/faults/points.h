/* SPDX-License-Identifier: Apache-2.0
 *
 * The named points in the life of a client, in order, and a process that dies at one of
 * them. The linker redirects libstager's internal calls (--wrap): a process that uses the
 * library reaches a point between two steps of it.
 */
#ifndef STG_TESTS_FAULTS_POINTS_H
#define STG_TESTS_FAULTS_POINTS_H

#include <stdbool.h>
#include <stdint.h>

enum point {
    POINT_NONE,          /* the client lives */
    POINT_ANYWHERE,      /* at any instruction, by a timer */
    POINT_CONNECTED,     /* before the hello */
    POINT_GREETED,       /* hello was answered */
    POINT_OPEN_SENT,     /* the daemon may or may not have read it */
    POINT_OPEN_ANSWERED, /* the reply lies in the socket */
    POINT_OPEN_READ,     /* the client has the descriptors */
    POINT_MAPPED,        /* it has the memory, but has not joined */
    POINT_JOIN_SENT,
    POINT_JOIN_ANSWERED,
    POINT_JOIN_READ, /* it is attached, and has requested nothing */
    POINT_OPENED,    /* stager_open returned */
    POINT_ASKED,     /* it requested the next batch, which acknowledges the last */
    POINT_ARMED,     /* it set its sleep flag */
    POINT_ASLEEP,
    POINT_WOKEN,
    POINT_TOOK,    /* taken from the ring, but not reported */
    POINT_TAKEN,   /* reported; stager_next has not returned */
    POINT_IN_HAND, /* stager_next returned a batch */
    POINT_RELEASING,
    POINT_RELEASED, /* the release is posted */
    POINT_RANG,
    POINT_ENDED,    /* stager_next returned the end of a pass */
    POINT_ASKED_ON, /* it requested the next pass */
    POINT_PARTING,  /* it announced that it closes */
    POINT_PARTED,   /* the daemon has closed its end */
    POINT_CLOSED,
    N_POINTS
};

const char *point_name(enum point point);

/* Kills this process (SIGKILL) when it reaches that point for the n-th time, from 1;
 * ANYWHERE: n microseconds from now. Sets *died to the point first. */
void point_plan(enum point point, uint32_t n, _Atomic int *died);

/* Marks that the process has reached the point. */
void point_reach(enum point point);

#endif
