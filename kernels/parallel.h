/* parallel.h - how kernels use a wok_parallel (internal). */
#ifndef WOK_PARALLEL_H
#define WOK_PARALLEL_H

#include "wok_kernels.h"

static inline int wok_parallel_threads(const wok_parallel *p) { return p && p->threads > 1 ? p->threads : 1; }

/* fn(arg, i, worker) for every i in [0, tasks), on this thread where one task or one thread makes splitting pointless. */
static inline void wok_parallel_for(const wok_parallel *p, wok_task_fn fn, void *arg, int64_t tasks) {
    if (tasks <= 0) return;
    if (tasks == 1 || wok_parallel_threads(p) == 1) {
        for (int64_t i = 0; i < tasks; i++) fn(arg, i, 0);
        return;
    }
    p->run(p->self, fn, arg, tasks);
}

/* Part `task` of `tasks` of [0, total) in units of `unit`: balanced, contiguous, in order. */
static inline void wok_parallel_range(int64_t total, int64_t unit, int64_t task, int64_t tasks, int64_t *begin,
                                      int64_t *end) {
    int64_t units = (total + unit - 1) / unit;
    int64_t b = units * task / tasks * unit, e = units * (task + 1) / tasks * unit;
    *begin = b < total ? b : total;
    *end = e < total ? e : total;
}

#endif
