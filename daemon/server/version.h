/* SPDX-License-Identifier: Apache-2.0
 *
 * The release, as meson.build says it (-DSTG_RELEASE).
 */
#ifndef STG_DAEMON_SERVER_VERSION_H
#define STG_DAEMON_SERVER_VERSION_H

#ifndef STG_RELEASE
#define STG_RELEASE "0.0.0"
#endif
#define STG_VERSION STG_RELEASE

#endif
