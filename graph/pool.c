/* pool.c - fork-join on a fixed set of worker threads.
 *
 * One word holds the state of the current job: an epoch, whether it is open to workers, and how many have joined. A worker
 * joins with one compare-and-swap, which can only succeed while the job is open; the caller closes the job when no slice
 * holds a task any more and waits until all who joined have left. A worker that comes late finds the job closed and
 * touches nothing of it, so a job's fields may change as soon as run() returns.
 *
 * Cost with two threads that are awake: the two transfers of the state's cache line that any fork-join needs. */
#define _GNU_SOURCE
#include "ctx.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { JOINED_BITS = 10, JOINED = (1 << JOINED_BITS) - 1, OPEN = 1 << JOINED_BITS, EPOCH = OPEN << 1 };
static inline uint32_t epoch_of(uint32_t state) {
    return state / EPOCH;
}

typedef struct slice {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} slice;

typedef struct worker {
    wok_pool *pool;
    int index; /* from 1 on: the caller is 0 */
    pthread_t thread;
} worker;

struct wok_pool {
    _Alignas(64) _Atomic uint32_t state;
    _Alignas(64) _Atomic int sleepers; /* workers that need a wake-up */
    _Atomic int caller_sleeps;
    _Atomic uint32_t done; /* changes when a worker leaves while the caller sleeps */
    _Alignas(64) _Atomic int busy;
    _Atomic bool quit;
    wok_task_fn fn; /* of the open job */
    void *arg;
    int slice_count;

    wok_ctx *ctx;
    int threads, workers; /* workers: started */
    int64_t spin_ns;
    wok_parallel parallel;
    worker *list;
    wok_pool *next;        /* of all pools */
    pthread_mutex_t mutex; /* where there is no futex */
    pthread_cond_t cond;
    slice slices[];
};

static size_t pool_bytes(int threads) {
    return sizeof(wok_pool) + (size_t)threads * sizeof(slice);
}

/* ---- the lock of the process, and fork --------------------------------------------------------------------------------- */

static pthread_mutex_t process_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t process_cond = PTHREAD_COND_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static wok_pool *all_pools;
static unsigned generation;

/* The child has one thread: the workers are gone, and so is whoever ran a job. */
static void forget_workers(void) {
    for (wok_pool *p = all_pools; p; p = p->next) {
        p->workers = 0;
        atomic_store(&p->state, 0);
        atomic_store(&p->sleepers, 0);
        atomic_store(&p->caller_sleeps, 0);
        atomic_store(&p->busy, 0);
        p->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        p->cond = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    }
    process_cond = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    generation++;
    pthread_mutex_unlock(&process_mutex);
}

static void before_fork(void) {
    pthread_mutex_lock(&process_mutex);
}
static void after_fork(void) {
    pthread_mutex_unlock(&process_mutex);
}
static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, forget_workers);
}

void wok_process_lock(void) {
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&process_mutex);
}
void wok_process_unlock(void) {
    pthread_mutex_unlock(&process_mutex);
}
void wok_process_wait(void) {
    pthread_cond_wait(&process_cond, &process_mutex);
}
void wok_process_wake(void) {
    pthread_cond_broadcast(&process_cond);
}
unsigned wok_process_generation(void) {
    return generation;
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------ */

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

#if defined(__linux__)
static void sleep_while(wok_pool *pool, _Atomic uint32_t *word, uint32_t value) {
    (void)pool;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}
static void wake(wok_pool *pool, _Atomic uint32_t *word, int count) {
    (void)pool;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}
#else
static void sleep_while(wok_pool *pool, _Atomic uint32_t *word, uint32_t value) {
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load(word) == value) pthread_cond_wait(&pool->cond, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}
static void wake(wok_pool *pool, _Atomic uint32_t *word, int count) {
    (void)word, (void)count;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->cond);
    pthread_mutex_unlock(&pool->mutex);
}
#endif

/* True as soon as ready(pool, arg); false when the spinning time is over. */
static inline bool spin(wok_pool *pool, bool (*ready)(wok_pool *, uint32_t), uint32_t arg) {
    if (ready(pool, arg)) return true;
    if (pool->spin_ns == 0) return false;
    int64_t until = now_ns() + pool->spin_ns;
    do {
        for (int i = 0; i < 32; i++) {
            if (ready(pool, arg)) return true;
            relax();
        }
    } while (now_ns() < until);
    return false;
}

static bool has_work(wok_pool *pool, uint32_t seen) {
    uint32_t state = atomic_load_explicit(&pool->state, memory_order_acquire);
    return ((state & OPEN) && epoch_of(state) != seen) || atomic_load_explicit(&pool->quit, memory_order_relaxed);
}

static bool all_left(wok_pool *pool, uint32_t unused) {
    (void)unused;
    return (atomic_load_explicit(&pool->state, memory_order_acquire) & JOINED) == 0;
}

/* ---- work ---------------------------------------------------------------------------------------------------------------- */

/* Own slice first, then what others have left. */
static void work(wok_pool *pool, int index) {
    wok_task_fn fn = pool->fn;
    void *arg = pool->arg;
    int slices = pool->slice_count, own = index < slices ? index : index % slices;
    for (int k = 0; k < slices; k++) {
        slice *s = &pool->slices[own + k < slices ? own + k : own + k - slices];
        while (atomic_load_explicit(&s->next, memory_order_relaxed) < s->end) {
            int64_t task = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (task >= s->end) break;
            fn(arg, task, index);
        }
    }
}

static bool join(wok_pool *pool, uint32_t *seen) {
    uint32_t state = atomic_load(&pool->state);
    while ((state & OPEN) && epoch_of(state) != *seen) {
        if (!atomic_compare_exchange_weak(&pool->state, &state, state + 1)) continue;
        *seen = epoch_of(state);
        return true;
    }
    return false;
}

static void leave(wok_pool *pool) {
    atomic_fetch_sub(&pool->state, 1);
    if (!atomic_load(&pool->caller_sleeps)) return;
    atomic_fetch_add(&pool->done, 1);
    wake(pool, &pool->done, 1);
}

static void sleep_until_work(wok_pool *pool, uint32_t seen) {
    atomic_fetch_add(&pool->sleepers, 1);
    for (;;) {
        uint32_t state = atomic_load(&pool->state);
        if (has_work(pool, seen)) break;
        sleep_while(pool, &pool->state, state);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *worker_main(void *arg) {
    const worker *self = arg;
    wok_pool *pool = self->pool;
    uint32_t seen = UINT32_MAX;
    wok_fp_enter();
    while (!atomic_load(&pool->quit)) {
        if (!spin(pool, has_work, seen)) sleep_until_work(pool, seen);
        if (!join(pool, &seen)) continue;
        work(pool, self->index);
        leave(pool);
    }
    return NULL;
}

/* The host's signals are not for us. A thread that cannot be had is done without. */
static void start_workers(wok_pool *pool) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < pool->threads; i++) {
        worker *w = &pool->list[pool->workers];
        *w = (worker){pool, i, 0};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) break;
        pool->workers++;
#if defined(__linux__)
        char name[16];
        snprintf(name, sizeof name, "wok-%d", i);
        pthread_setname_np(w->thread, name);
#endif
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->workers == pool->threads - 1) return;
    wok_ctx_log(pool->ctx, WOK_LOG_WARNING, "only %d of %d threads could be started", pool->workers + 1, pool->threads);
    if (pool->workers == 0) pool->workers = -1; /* do not try again at every run */
}

static void publish(wok_pool *pool, wok_task_fn fn, void *arg, int64_t tasks) {
    int slices = tasks < pool->workers + 1 ? (int)tasks : pool->workers + 1;
    for (int i = 0; i < slices; i++) {
        int64_t begin = tasks / slices * i + (tasks % slices) * i / slices;
        int64_t end = tasks / slices * (i + 1) + (tasks % slices) * (i + 1) / slices;
        atomic_store_explicit(&pool->slices[i].next, begin, memory_order_relaxed);
        pool->slices[i].end = end;
    }
    pool->slice_count = slices;
    pool->fn = fn;
    pool->arg = arg;
    uint32_t state = atomic_load_explicit(&pool->state, memory_order_relaxed);
    atomic_store(&pool->state, (epoch_of(state) + 1) * EPOCH + OPEN);
    int sleepers = atomic_load(&pool->sleepers);
    if (sleepers > 0) wake(pool, &pool->state, slices - 1);
}

static void wait_for_workers(wok_pool *pool) {
    atomic_fetch_and(&pool->state, ~(uint32_t)OPEN);
    if (spin(pool, all_left, 0)) return;
    atomic_store(&pool->caller_sleeps, 1);
    for (;;) {
        uint32_t done = atomic_load(&pool->done);
        if (all_left(pool, 0)) break;
        sleep_while(pool, &pool->done, done);
    }
    atomic_store(&pool->caller_sleeps, 0);
}

static void pool_run(void *self, wok_task_fn fn, void *arg, int64_t tasks) {
    wok_pool *pool = self;
    int idle = 0;
    bool mine = tasks > 1 && atomic_compare_exchange_strong(&pool->busy, &idle, 1);
    if (mine && pool->workers == 0) start_workers(pool);
    if (!mine || pool->workers <= 0) {
        for (int64_t i = 0; i < tasks; i++) fn(arg, i, 0);
    } else {
        publish(pool, fn, arg, tasks);
        work(pool, 0);
        wait_for_workers(pool);
    }
    if (mine) atomic_store_explicit(&pool->busy, 0, memory_order_release);
}

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

wok_pool *wok_pool_new(wok_ctx *ctx, int threads, int64_t spin_ns) {
    wok_pool *pool = wok_ctx_alloc(ctx, pool_bytes(threads));
    worker *list = wok_ctx_alloc(ctx, (size_t)threads * sizeof *list);
    if (!pool || !list) {
        wok_ctx_release(ctx, pool, pool_bytes(threads));
        wok_ctx_release(ctx, list, (size_t)threads * sizeof *list);
        return NULL;
    }
    memset(pool, 0, pool_bytes(threads));
    pool->ctx = ctx;
    pool->threads = threads;
    pool->spin_ns = spin_ns;
    pool->list = list;
    pool->parallel = (wok_parallel){pool_run, pool, threads};
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->cond, NULL);
    wok_process_lock();
    pool->next = all_pools;
    all_pools = pool;
    wok_process_unlock();
    return pool;
}

void wok_pool_free(wok_pool *pool) {
    if (!pool) return;
    wok_process_lock();
    for (wok_pool **link = &all_pools; *link; link = &(*link)->next)
        if (*link == pool) {
            *link = pool->next;
            break;
        }
    wok_process_unlock();
    atomic_store(&pool->quit, true);
    atomic_fetch_add(&pool->state, EPOCH);
    wake(pool, &pool->state, INT_MAX);
    for (int i = 0; i < pool->workers; i++) pthread_join(pool->list[i].thread, NULL);
    pthread_cond_destroy(&pool->cond);
    pthread_mutex_destroy(&pool->mutex);
    wok_ctx *ctx = pool->ctx;
    wok_ctx_release(ctx, pool->list, (size_t)pool->threads * sizeof *pool->list);
    wok_ctx_release(ctx, pool, pool_bytes(pool->threads));
}

const wok_parallel *wok_pool_parallel(const wok_pool *pool) {
    return &pool->parallel;
}
