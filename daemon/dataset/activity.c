/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/activity.h"

#include <stdio.h>

#include "core/clock.h"

void stg_activity_init(struct stg_activity *activity)
{
    pthread_mutex_init(&activity->lock, NULL);
}

void stg_activity_finish(struct stg_activity *activity)
{
    pthread_mutex_destroy(&activity->lock);
}

void stg_activity_file(struct stg_activity *activity, const char *path)
{
    if (activity == NULL)
        return;
    pthread_mutex_lock(&activity->lock);
    snprintf(activity->file, sizeof(activity->file), "%s", path);
    activity->opened_ns = stg_now_ns();
    pthread_mutex_unlock(&activity->lock);
}

void stg_activity_show(struct stg_activity *activity, char *buf, size_t bytes)
{
    const struct stg_step *step =
        atomic_load_explicit(&activity->step, memory_order_relaxed);
    int n = 0;
    buf[0] = '\0';
    if (step != NULL && step->line > 0)
        n = snprintf(buf, bytes, "in step %s (line %d)", step->name, step->line);
    else if (step != NULL)
        n = snprintf(buf, bytes, "in step %s", step->name);
    pthread_mutex_lock(&activity->lock);
    if (activity->file[0] != '\0' && n >= 0 && (size_t)n < bytes)
        snprintf(buf + n, bytes - (size_t)n, "%sthe file opened last, %.1f s ago, is %s",
                 n > 0 ? "; " : "", (double)(stg_now_ns() - activity->opened_ns) / 1e9,
                 activity->file);
    pthread_mutex_unlock(&activity->lock);
}
