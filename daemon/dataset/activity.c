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

/* That of the owner; NULL: there is none. Lock held. */
static struct stg_activity_task *find(struct stg_activity *activity, const void *owner)
{
    struct stg_activity_task *found = NULL;
    for (size_t i = 0; i < STG_ACTIVITY_TASKS && found == NULL; i++) {
        if (activity->tasks[i].owner == owner)
            found = &activity->tasks[i];
    }
    return found;
}

void stg_activity_progress(struct stg_activity *activity, const void *owner,
                           const struct stg_step *step, const char *unit, uint64_t done,
                           uint64_t total)
{
    if (activity == NULL)
        return;
    pthread_mutex_lock(&activity->lock);
    struct stg_activity_task *task = find(activity, owner);
    if (task == NULL && (task = find(activity, NULL)) != NULL)
        *task = (struct stg_activity_task){
            .owner = owner, .step = step, .unit = unit, .began_ns = stg_now_ns()};
    if (task != NULL) {
        task->done = done;
        task->total = total;
    }
    pthread_mutex_unlock(&activity->lock);
}

void stg_activity_end(struct stg_activity *activity, const void *owner)
{
    if (activity == NULL || owner == NULL)
        return;
    pthread_mutex_lock(&activity->lock);
    struct stg_activity_task *task = find(activity, owner);
    if (task != NULL)
        *task = (struct stg_activity_task){0};
    pthread_mutex_unlock(&activity->lock);
}

size_t stg_activity_tasks(struct stg_activity *activity,
                          struct stg_activity_task ret[STG_ACTIVITY_TASKS])
{
    size_t n = 0;
    pthread_mutex_lock(&activity->lock);
    for (size_t i = 0; i < STG_ACTIVITY_TASKS; i++) {
        if (activity->tasks[i].owner != NULL)
            ret[n++] = activity->tasks[i];
    }
    pthread_mutex_unlock(&activity->lock);
    return n;
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
