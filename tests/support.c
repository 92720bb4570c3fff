/* support.c */
#define _GNU_SOURCE
#include "support.h"

#include "wok_npy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *join(const char *folder, const char *name) {
    static _Thread_local char ring[8][4096];
    static _Thread_local unsigned next;
    char *path = ring[next++ % 8];
    snprintf(path, sizeof ring[0], "%s/%s", folder, name);
    return path;
}

const char *support_data(const char *name) { return join(WOK_TEST_DATA, name); }

static bool exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

static bool in_ci(void) {
    const char *ci = getenv("CI");
    return ci && strcmp(ci, "true") == 0;
}

bool support_has_shared(void) {
    bool there = exists(WOK_SOURCE_DIR "/../shared/fixtures");
    cr_assert(there || !in_ci(), "../shared is absent, and CI=true");
    return there;
}

const char *support_shared(const char *name) {
    const char *path = join(WOK_SOURCE_DIR "/../shared", name);
    if (exists(path)) return path;
    cr_assert(!in_ci(), "%s is absent, and CI=true", path);
    cr_skip_test("%s is absent", path);
    return path;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

static void *heap_alloc(void *user, size_t bytes, size_t alignment) {
    support_heap *heap = user;
    long call = atomic_fetch_add(&heap->calls, 1) + 1;
    if (heap->fail_at && (call == heap->fail_at || (heap->lasting && call > heap->fail_at))) {
        atomic_fetch_add(&heap->failures, 1);
        return NULL;
    }
    void *ptr = NULL;
    if (posix_memalign(&ptr, alignment, bytes) != 0) return NULL;
    memset(ptr, 0xa5, bytes); /* nothing may rely on zeros */
    atomic_fetch_add(&heap->blocks, 1);
    atomic_fetch_add(&heap->bytes, (long)bytes);
    return ptr;
}

static void heap_free(void *user, void *ptr, size_t bytes) {
    support_heap *heap = user;
    atomic_fetch_sub(&heap->blocks, 1);
    atomic_fetch_sub(&heap->bytes, (long)bytes);
    free(ptr);
}

wok_allocator support_allocator(support_heap *heap) { return (wok_allocator){heap_alloc, heap_free, heap}; }

wok_ctx *support_ctx(int threads, support_heap *heap) {
    wok_allocator allocator = heap ? support_allocator(heap) : (wok_allocator){0};
    wok_ctx_options options = {.size = sizeof options, .threads = threads, .allocator = heap ? &allocator : NULL};
    return wok_ctx_create(&options);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------ */

wok_tensor support_npy(wok_ctx *ctx, const char *path) {
    wok_tensor tensor = {0};
    wok_status status = wok_npy_load(ctx, path, &tensor);
    cr_assert(status == WOK_OK, "%s: %s", path, wok_ctx_error(ctx));
    return tensor;
}

double support_distance(const float *a, const float *b, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (isnan(a[i]) != isnan(b[i])) return INFINITY;
        if (d > most) most = d;
    }
    return most;
}

void support_random(float *out, size_t count, unsigned seed) {
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out[i] = (float)((double)(state >> 11) * 0x1p-52 - 1.0);
    }
}
