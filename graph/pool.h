/* pool.h - worker threads: how many, how they share work, and their floating-point state (internal).
 *
 * A pool has threads - 1 workers; the thread that calls run() is the remaining one. Tasks are split into contiguous
 * slices, one a thread, so that a thread meets the same part of the weights in every run; a thread that is done takes
 * tasks from slices that are not, so that a worker which the system does not let run delays nobody. Workers look for work
 * for a bounded time and then sleep; they start with the first run that needs them. A pool that is busy with another
 * session's work is not waited for: the caller does all tasks alone. After fork() the child makes its own workers.
 */
#ifndef WOK_POOL_H
#define WOK_POOL_H

#include "wok_build.h"

#include <pthread.h>

enum { WOK_MAX_THREADS = 256 };

typedef struct wok_pool wok_pool;

/* threads >= 2. NULL on failure (the ctx's error is set). */
wok_pool *wok_pool_new(wok_ctx *ctx, int threads, int64_t spin_ns);
/* No run may be in progress. NULL is fine. */
void wok_pool_free(wok_pool *pool);
const wok_parallel *wok_pool_parallel(const wok_pool *pool);

/* Held by the system's fork() as well, so that what it guards is whole in the child. For a few instructions only. */
void wok_process_lock(void);
void wok_process_unlock(void);
/* Waits, with the lock held, until another thread calls wok_process_wake (or for no reason). */
void wok_process_wait(void);
void wok_process_wake(void);
/* Counts forks: work that another value began will not be finished in this process. */
unsigned wok_process_generation(void);

/* ---- how many threads --------------------------------------------------------------------------------------------- */

typedef struct wok_cpu_budget {
    int affinity;    /* CPUs that the process may run on */
    double quota;    /* CPUs that its control groups grant; 0: no limit */
    int environment; /* WOK_NUM_THREADS; 0: not set or no number */
} wok_cpu_budget;

/* Of this process. */
void wok_cpu_budget_read(wok_cpu_budget *budget);
/* The tightest CPU quota of the control groups (v2 and v1) of the process described by ROOT/proc/self/cgroup, in CPUs;
 * 0 if there is none. `root` is "" but in tests. */
double wok_cgroup_quota(const char *root);
/* asked (> 0), else WOK_NUM_THREADS, else min(affinity, quota rounded up); in [1, WOK_MAX_THREADS]. */
int wok_thread_count(const wok_cpu_budget *budget, int asked);
/* The same as a sentence; returns `text`. */
const char *wok_thread_count_text(const wok_cpu_budget *budget, int asked, char *text, size_t size);
/* Spinning pays only while every thread has a CPU of its own. */
int64_t wok_spin_ns(const wok_cpu_budget *budget, int threads, int asked_us);

/* ---- floating-point state ------------------------------------------------------------------------------------------- */

/* Round to nearest, results and operands below the normal range are zero, no traps. Set in every worker, and around every
 * run in the caller's thread. */
typedef uint64_t wok_fp_state;

#if defined(__SSE2__)
static inline wok_fp_state wok_fp_enter(void) {
    uint32_t before, ours = 0x1f80u | 0x8000u | 0x0040u; /* exceptions masked, FTZ, DAZ */
    __asm__ volatile("stmxcsr %0" : "=m"(before));
    if ((before & ~0x3fu) != ours) __asm__ volatile("ldmxcsr %0" : : "m"(ours));
    return before;
}
static inline void wok_fp_leave(wok_fp_state state) {
    uint32_t before = (uint32_t)state, now;
    __asm__ volatile("stmxcsr %0" : "=m"(now));
    if (now != before) __asm__ volatile("ldmxcsr %0" : : "m"(before));
}
#elif defined(__aarch64__)
static inline wok_fp_state wok_fp_enter(void) {
    uint64_t before, ours = UINT64_C(1) << 24; /* FZ; rounding to nearest and untrapped are zero */
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    if (before != ours) __asm__ volatile("msr fpcr, %0" : : "r"(ours));
    return before;
}
static inline void wok_fp_leave(wok_fp_state state) {
    __asm__ volatile("msr fpcr, %0" : : "r"(state));
}
#else
static inline wok_fp_state wok_fp_enter(void) {
    return 0;
}
static inline void wok_fp_leave(wok_fp_state state) {
    (void)state;
}
#endif

#endif
