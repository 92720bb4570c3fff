/* arena.c - a bump allocator: many small things that are freed together. */
#include "ctx.h"
#include "ir.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_CHUNK = 4096, LAST_CHUNK = 1 << 20, ALIGN = 64 };

typedef struct chunk {
    struct chunk *next;
    size_t bytes, used; /* of the whole block, this header included */
    bool single;        /* holds one large allocation */
} chunk;
#define HEADER ((sizeof(chunk) + ALIGN - 1) / ALIGN * ALIGN)

struct wok_arena {
    wok_ctx *ctx;
    chunk *chunks; /* the one that is filled first, large ones behind it */
    size_t next_bytes, bytes;
};

wok_arena *wok_arena_new(wok_ctx *ctx) {
    wok_arena *arena = wok_ctx_alloc(ctx, sizeof *arena);
    if (arena) *arena = (wok_arena){.ctx = ctx, .next_bytes = FIRST_CHUNK, .bytes = sizeof *arena};
    return arena;
}

void wok_arena_free(wok_arena *arena) {
    if (!arena) return;
    for (chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        wok_ctx_release(arena->ctx, c, c->bytes);
    }
    wok_ctx_release(arena->ctx, arena, sizeof *arena);
}

static chunk *add_chunk(wok_arena *arena, size_t bytes, bool single) {
    chunk *c = single ? wok_ctx_alloc_zeroed(arena->ctx, bytes) : wok_ctx_alloc(arena->ctx, bytes);
    if (!c) return NULL;
    *c = (chunk){.bytes = bytes, .used = HEADER, .single = single};
    arena->bytes += bytes;
    if (single && arena->chunks) {
        c->next = arena->chunks->next;
        arena->chunks->next = c;
    } else {
        c->next = arena->chunks;
        arena->chunks = c;
    }
    return c;
}

/* `align` is a power of two up to ALIGN. */
static void *take(wok_arena *arena, size_t bytes, size_t align, bool zero) {
    if (bytes > SIZE_MAX / 2) {
        wok_ctx_fail(arena->ctx, WOK_ERR_MEMORY, "out of memory: %zu bytes were asked for", bytes);
        return NULL;
    }
    chunk *c = arena->chunks;
    size_t at = c ? (c->used + align - 1) / align * align : 0;
    if (!c || c->single || at > c->bytes || bytes > c->bytes - at) {
        bool single = bytes > arena->next_bytes / 4;
        size_t size = single ? HEADER + bytes : arena->next_bytes;
        c = add_chunk(arena, size, single);
        if (!c) return NULL;
        if (!single && arena->next_bytes < LAST_CHUNK) arena->next_bytes *= 2;
        at = HEADER;
    }
    c->used = at + bytes;
    if (zero && !c->single && bytes) memset((char *)c + at, 0, bytes);
    return (char *)c + at;
}

void *wok_arena_alloc(wok_arena *arena, size_t bytes) {
    return take(arena, bytes, ALIGN, true);
}
void *wok_arena_small(wok_arena *arena, size_t bytes) {
    return take(arena, bytes, 8, true);
}

void *wok_arena_raw(wok_arena *arena, size_t bytes) {
    return take(arena, bytes, ALIGN, false);
}

void wok_arena_reset(wok_arena *arena) {
    chunk *largest = NULL;
    for (chunk *c = arena->chunks; c; c = c->next)
        if (!largest || c->bytes > largest->bytes) largest = c;
    for (chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        if (c == largest) continue;
        arena->bytes -= c->bytes;
        wok_ctx_release(arena->ctx, c, c->bytes);
    }
    arena->chunks = largest;
    if (largest) *largest = (chunk){.bytes = largest->bytes, .used = HEADER};
}

void wok_arena_drop(wok_arena *arena, const void *ptr) {
    for (chunk **link = &arena->chunks; *link; link = &(*link)->next) {
        chunk *c = *link;
        if (!c->single || (const char *)c + HEADER != (const char *)ptr) continue;
        *link = c->next;
        arena->bytes -= c->bytes;
        wok_ctx_release(arena->ctx, c, c->bytes);
        return;
    }
}

char *wok_arena_strdup(wok_arena *arena, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = take(arena, bytes, 1, false);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

char *wok_arena_format(wok_arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : take(arena, (size_t)length + 1, 1, false);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

size_t wok_arena_bytes(const wok_arena *arena) {
    return arena->bytes;
}
