/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes all rights from stager-gate that it does not need: an attacker that takes it over
 * by a hole in libnanomsg can open no file, start no program, and connect nowhere.
 */
#ifndef STG_DAEMON_GATE_CONFINE_H
#define STG_DAEMON_GATE_CONFINE_H

#include <sys/types.h>

#include "core/err.h"

/* Connections, and room for descriptors that a peer makes libnanomsg leak: when they are
 * nearly used up the gate ends, and a fresh one is started. */
#define STG_GATE_MAX_FILES 1024

/* As root: becomes uid and gid without further groups. Then: no capability, no new
 * privilege, no core, few descriptors, bounded memory; dies with `parent`. */
int stg_gate_confine(uid_t uid, gid_t gid, pid_t parent, struct stg_err *err);

/* System calls that an endpoint does not need fail from here on, in threads to come too.
 * 0, or UNIMPLEMENTED where the kernel or a sandbox around us has no such filter. */
int stg_gate_filter(struct stg_err *err);

#endif
