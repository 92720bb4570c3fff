/* ctx.h - inside a context (internal). */
#ifndef WOK_CTX_H
#define WOK_CTX_H

#include "pool.h"
#include "wok_build.h"

#include <stdatomic.h>

struct wok_ctx {
    wok_allocator allocator;
    size_t memory_limit; /* SIZE_MAX: none */
    _Atomic size_t used, peak;
    uint64_t id; /* never reused: a thread's error slots outlive contexts */
    wok_status bad_options;
    char bad_options_text[320];
    wok_isa_set isa;
    int threads;
    wok_pool *pool;        /* NULL: one thread, or the caller's executor */
    wok_parallel executor; /* the caller's, as he gave it */
    wok_parallel parallel; /* what kernels get */
    void (*log)(void *user, wok_log_level level, const char *text);
    void *log_user;
};

/* WOK_OK, or the failure that wok_ctx_create kept. */
wok_status wok_ctx_check(wok_ctx *ctx);
/* Status of this thread's last failure: tells WOK_ERR_LIMIT from WOK_ERR_MEMORY after a NULL from wok_ctx_alloc. */
wok_status wok_ctx_last(const wok_ctx *ctx);
/* `status`, but WOK_ERR_LIMIT where what looked like a lack of memory was the limit. For functions of the API to return. */
wok_status wok_ctx_settle(const wok_ctx *ctx, wok_status status);
/* wok_ctx_alloc, and zeros: at no cost where the system just gave the pages. */
void *wok_ctx_alloc_zeroed(wok_ctx *ctx, size_t bytes);

#endif
