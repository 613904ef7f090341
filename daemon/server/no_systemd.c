/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of libsystemd in a wheel, whose stagerd is no unit: there is no manager.
 */
#include <systemd/sd-daemon.h>

int sd_listen_fds(int unset_environment)
{
    return 0;
}

int sd_is_socket_unix(int fd, int type, int listening, const char *path, size_t length)
{
    return 0;
}

int sd_notify(int unset_environment, const char *state)
{
    return 0;
}

int sd_notifyf(int unset_environment, const char *format, ...)
{
    return 0;
}

int sd_watchdog_enabled(int unset_environment, uint64_t *usec)
{
    return 0;
}
