/* ctx.c - the context: settings, accounted allocation, errors per thread, logging. */
#define _GNU_SOURCE
#include "ctx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- errors: a few slots a thread, found by the context's id -------------------------------------------------------- */

enum { ERROR_SLOTS = 4, ERROR_BYTES = 4096 };
typedef struct error_slot {
    uint64_t ctx;
    wok_status status;
    char text[ERROR_BYTES];
} error_slot;
static _Thread_local error_slot error_slots[ERROR_SLOTS];
static _Thread_local unsigned error_next;

static error_slot *find_error(uint64_t ctx) {
    for (int i = 0; i < ERROR_SLOTS; i++)
        if (error_slots[i].ctx == ctx) return &error_slots[i];
    return NULL;
}

const char *wok_ctx_error(const wok_ctx *ctx) {
    error_slot *slot = ctx ? find_error(ctx->id) : NULL;
    return slot ? slot->text : "";
}

wok_status wok_ctx_fail(wok_ctx *ctx, wok_status status, const char *format, ...) {
    error_slot *slot = find_error(ctx->id);
    if (!slot) {
        slot = &error_slots[error_next++ % ERROR_SLOTS];
        slot->ctx = ctx->id;
    }
    /* An argument may be the old text: write beside it first. */
    static _Thread_local char text[ERROR_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length >= (int)sizeof text) memcpy(text + sizeof text - 4, "...", 4);
    for (char *c = text; *c; c++) /* names come from files: a sentence stays one line */
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    memcpy(slot->text, text, sizeof text);
    return slot->status = status;
}

wok_status wok_ctx_last(const wok_ctx *ctx) {
    const error_slot *slot = find_error(ctx->id);
    return slot && slot->status != WOK_OK ? slot->status : WOK_ERR_MEMORY;
}

wok_status wok_ctx_settle(const wok_ctx *ctx, wok_status status) {
    return status == WOK_ERR_MEMORY && wok_ctx_last(ctx) == WOK_ERR_LIMIT ? WOK_ERR_LIMIT : status;
}

void wok_ctx_log(wok_ctx *ctx, wok_log_level level, const char *format, ...) {
    if (!ctx->log) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, text);
}

/* ---- memory ----------------------------------------------------------------------------------------------------------- */

/* Large blocks come from the system and go back to it at once: in the C library's heap, the copies that packing needs for a
 * moment would leave holes as large as the weights. From one huge page on they are aligned to huge pages and offered as
 * such: packed weights are streamed, and every small page costs a walk of the page table. */
#define HUGE_PAGE ((size_t)2 << 20)
#if defined(__SANITIZE_ADDRESS__)
#define MAP_FROM SIZE_MAX /* the sanitizer watches its own heap only */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MAP_FROM SIZE_MAX
#endif
#endif
#ifndef MAP_FROM
#define MAP_FROM ((size_t)1 << 20)
#endif

static size_t whole_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static void *map_block(size_t bytes) {
    if (bytes > SIZE_MAX - 2 * HUGE_PAGE) return NULL;
    size_t slack = bytes >= HUGE_PAGE ? HUGE_PAGE : 0, need = whole_pages(bytes);
    char *map = mmap(NULL, need + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return NULL;
    if (!slack) return map;
    size_t before = (HUGE_PAGE - (uintptr_t)map % HUGE_PAGE) % HUGE_PAGE;
    if (before) munmap(map, before);
    if (slack - before) munmap(map + before + need, slack - before);
#ifdef MADV_HUGEPAGE
    madvise(map + before, need / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return map + before;
}

static void *libc_alloc(void *user, size_t bytes, size_t alignment) {
    (void)user;
    void *ptr = NULL;
    if (bytes >= MAP_FROM) return map_block(bytes);
    return posix_memalign(&ptr, alignment, bytes) == 0 ? ptr : NULL;
}

static void libc_free(void *user, void *ptr, size_t bytes) {
    (void)user;
    if (bytes >= MAP_FROM)
        munmap(ptr, whole_pages(bytes));
    else
        free(ptr);
}

/* Takes `bytes` from the limit. */
static bool reserve(wok_ctx *ctx, size_t bytes) {
    size_t used = atomic_load_explicit(&ctx->used, memory_order_relaxed), want;
    do {
        if (bytes > ctx->memory_limit || used > ctx->memory_limit - bytes) return false;
        want = used + bytes;
    } while (!atomic_compare_exchange_weak(&ctx->used, &used, want));
    size_t peak = atomic_load_explicit(&ctx->peak, memory_order_relaxed);
    while (want > peak && !atomic_compare_exchange_weak(&ctx->peak, &peak, want)) {
    }
    return true;
}

void *wok_ctx_alloc(wok_ctx *ctx, size_t bytes) {
    if (bytes == 0) bytes = 1;
    if (!reserve(ctx, bytes)) {
        wok_ctx_fail(ctx, WOK_ERR_LIMIT,
                     "the memory limit of %zu bytes is reached: %zu are in use, %zu more were asked for",
                     ctx->memory_limit, atomic_load(&ctx->used), bytes);
        return NULL;
    }
    void *ptr = ctx->allocator.alloc(ctx->allocator.user, bytes, 64);
    if (!ptr) {
        atomic_fetch_sub(&ctx->used, bytes);
        wok_ctx_fail(ctx, WOK_ERR_MEMORY, "out of memory: %zu bytes were asked for", bytes);
    }
    return ptr;
}

void *wok_ctx_alloc_zeroed(wok_ctx *ctx, size_t bytes) {
    void *ptr = wok_ctx_alloc(ctx, bytes);
    bool fresh = ctx->allocator.alloc == libc_alloc && bytes >= MAP_FROM; /* the system has cleared it */
    return ptr && !fresh ? memset(ptr, 0, bytes) : ptr;
}

void wok_ctx_release(wok_ctx *ctx, void *ptr, size_t bytes) {
    if (!ptr) return;
    if (bytes == 0) bytes = 1;
    ctx->allocator.free(ctx->allocator.user, ptr, bytes);
    atomic_fetch_sub(&ctx->used, bytes);
}

wok_status wok_ctx_grow(wok_ctx *ctx, void **ptr, size_t *bytes, size_t need) {
    if (need <= *bytes) return WOK_OK;
    size_t want = *bytes > SIZE_MAX / 2 ? need : 2 * *bytes;
    if (want < need) want = need;
    if (want < 64) want = 64;
    void *grown = wok_ctx_alloc(ctx, want);
    if (!grown) return wok_ctx_last(ctx);
    if (*bytes) memcpy(grown, *ptr, *bytes);
    wok_ctx_release(ctx, *ptr, *bytes);
    *ptr = grown;
    *bytes = want;
    return WOK_OK;
}

size_t wok_ctx_memory(const wok_ctx *ctx, size_t *peak) {
    if (peak) *peak = ctx ? atomic_load(&((wok_ctx *)ctx)->peak) : 0;
    return ctx ? atomic_load(&((wok_ctx *)ctx)->used) : 0;
}

/* ---- creation ---------------------------------------------------------------------------------------------------------- */

static void keep_failure(wok_ctx *ctx, wok_status status, const char *text) {
    if (ctx->bad_options != WOK_OK) return;
    ctx->bad_options = status;
    snprintf(ctx->bad_options_text, sizeof ctx->bad_options_text, "%s", text);
}

wok_status wok_ctx_check(wok_ctx *ctx) {
    return ctx->bad_options == WOK_OK ? WOK_OK : wok_ctx_fail(ctx, ctx->bad_options, "%s", ctx->bad_options_text);
}

/* Others' threads have their own rounding and flushing: each task sets and restores them. */
typedef struct executor_job {
    wok_task_fn fn;
    void *arg;
} executor_job;

static void executor_task(void *arg, int64_t task, int worker) {
    const executor_job *job = arg;
    wok_fp_state state = wok_fp_enter();
    job->fn(job->arg, task, worker);
    wok_fp_leave(state);
}

static void executor_run(void *self, wok_task_fn fn, void *arg, int64_t tasks) {
    const wok_parallel *executor = self;
    executor_job job = {fn, arg};
    executor->run(executor->self, executor_task, &job, tasks);
}

static void set_threads(wok_ctx *ctx, const wok_ctx_options *o) {
    if (o->executor && o->executor->run) {
        ctx->executor = *o->executor;
        ctx->threads = ctx->executor.threads > 1 ? ctx->executor.threads : 1;
        if (ctx->threads > 1) ctx->parallel = (wok_parallel){executor_run, &ctx->executor, ctx->threads};
        return;
    }
    wok_cpu_budget budget;
    wok_cpu_budget_read(&budget);
    ctx->threads = wok_thread_count(&budget, o->threads);
    char text[256];
    wok_ctx_log(ctx, WOK_LOG_INFO, "%s", wok_thread_count_text(&budget, o->threads, text, sizeof text));
    if (ctx->threads == 1) return;
    ctx->pool = wok_pool_new(ctx, ctx->threads, wok_spin_ns(&budget, ctx->threads, o->spin_us));
    if (!ctx->pool)
        keep_failure(ctx, wok_ctx_last(ctx), wok_ctx_error(ctx));
    else
        ctx->parallel = *wok_pool_parallel(ctx->pool);
}

/* The caller's struct may be older (shorter) or newer (longer) than ours. */
static wok_ctx_options read_options(const wok_ctx_options *options) {
    wok_ctx_options o = {0};
    if (options) memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    return o;
}

wok_ctx *wok_ctx_create(const wok_ctx_options *options) {
    static _Atomic uint64_t next_id = 1;
    const wok_ctx_options o = read_options(options);
    wok_allocator allocator = {libc_alloc, libc_free, NULL};
    if (o.allocator) allocator = *o.allocator;
    wok_ctx *ctx = allocator.alloc(allocator.user, sizeof *ctx, 64);
    if (!ctx) return NULL;
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = allocator;
    ctx->memory_limit = o.memory_limit ? o.memory_limit : SIZE_MAX;
    atomic_init(&ctx->used, sizeof *ctx);
    atomic_init(&ctx->peak, sizeof *ctx);
    ctx->id = atomic_fetch_add(&next_id, 1);
    ctx->log = o.log;
    ctx->log_user = o.log_user;
    if (options && options->size == 0)
        keep_failure(ctx, WOK_ERR_ARGUMENT, "wok_ctx_options.size is 0: set it to sizeof(wok_ctx_options)");
    const char *bad = wok_cpu_select(o.isa ? o.isa : getenv("WOK_ISA"), &ctx->isa);
    if (bad) keep_failure(ctx, WOK_ERR_ARGUMENT, bad);
    set_threads(ctx, &o);
    wok_ctx_check(ctx);
    return ctx;
}

void wok_ctx_free(wok_ctx **handle) {
    if (!handle || !*handle) return;
    wok_ctx *ctx = *handle;
    *handle = NULL;
    wok_pool_free(ctx->pool);
    wok_allocator allocator = ctx->allocator;
    allocator.free(allocator.user, ctx, sizeof *ctx);
}

int wok_ctx_threads(const wok_ctx *ctx) {
    return ctx->threads;
}
wok_isa_set wok_ctx_isa(const wok_ctx *ctx) {
    return ctx->isa;
}
const wok_parallel *wok_ctx_parallel(wok_ctx *ctx) {
    return ctx->threads > 1 ? &ctx->parallel : NULL;
}
