/* pool.c - memory that is freed together. */
#include "quant.h"

#include <stdarg.h>
#include <stdio.h>

struct wok_qblock {
    struct wok_qblock *next;
    size_t bytes;
};
enum { HEADER = 64 };

void *wok_qpool_alloc(wok_qpool *pool, size_t count, size_t size) {
    if (size && count > (SIZE_MAX / 2 - HEADER) / size) {
        wok_ctx_fail(pool->ctx, WOK_ERR_MEMORY, "out of memory: %zu times %zu bytes were asked for", count, size);
        return NULL;
    }
    size_t bytes = HEADER + count * size;
    struct wok_qblock *block = wok_ctx_alloc(pool->ctx, bytes);
    if (!block) return NULL;
    memset(block, 0, bytes);
    *block = (struct wok_qblock){pool->blocks, bytes};
    pool->blocks = block;
    return (char *)block + HEADER;
}

char *wok_qpool_format(wok_qpool *pool, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : wok_qpool_alloc(pool, (size_t)length + 1, 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void wok_qpool_free(wok_qpool *pool) {
    for (struct wok_qblock *b = pool->blocks, *next; b; b = next) {
        next = b->next;
        wok_ctx_release(pool->ctx, b, b->bytes);
    }
    pool->blocks = NULL;
}
