/* SPDX-License-Identifier: Apache-2.0
 *
 * The named points of a client's life, in its order, and a process that dies at one of
 * them. libstager's calls of its own parts are bent here by the linker (--wrap): a point
 * is reached in the process that uses the library, between two of its steps.
 */
#ifndef STG_TESTS_FAULTS_POINTS_H
#define STG_TESTS_FAULTS_POINTS_H

#include <stdbool.h>
#include <stdint.h>

enum point {
    POINT_NONE,          /* it lives */
    POINT_ANYWHERE,      /* at any instruction, by a timer */
    POINT_CONNECTED,     /* before it says hello */
    POINT_GREETED,       /* hello was answered */
    POINT_OPEN_SENT,     /* the daemon may have read it, or not */
    POINT_OPEN_ANSWERED, /* the reply lies in the socket */
    POINT_OPEN_READ,     /* the client has the descriptors */
    POINT_MAPPED,        /* it has the memory, and did not join */
    POINT_JOIN_SENT,
    POINT_JOIN_ANSWERED,
    POINT_JOIN_READ, /* it is attached, and asked for nothing */
    POINT_OPENED,    /* stager_open returned */
    POINT_ASKED,     /* it asked for the next batch, which acknowledges the last */
    POINT_ARMED,     /* it said that it sleeps */
    POINT_ASLEEP,
    POINT_WOKEN,
    POINT_TOOK,    /* out of the ring, and did not say so */
    POINT_TAKEN,   /* it said so; stager_next did not return */
    POINT_IN_HAND, /* stager_next returned a batch */
    POINT_RELEASING,
    POINT_RELEASED, /* the release is posted */
    POINT_RANG,
    POINT_ENDED,    /* stager_next returned the end of a pass */
    POINT_ASKED_ON, /* it asked for the next pass */
    POINT_PARTING,  /* it says that it closes */
    POINT_PARTED,   /* the daemon has closed its end */
    POINT_CLOSED,
    N_POINTS
};

const char *point_name(enum point point);

/* This process dies (SIGKILL) when it reaches that point for the n-th time, from 1;
 * ANYWHERE: n microseconds from now. *died is set to the point first. */
void point_plan(enum point point, uint32_t n, _Atomic int *died);

/* The process is at that point. */
void point_reach(enum point point);

#endif
