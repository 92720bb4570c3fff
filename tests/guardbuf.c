/* guardbuf.c - see guardbuf.h. */
#define _GNU_SOURCE
#include "guardbuf.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* 0x7fc55aa5 little-endian: a quiet NaN, placed by address so that any aligned f32 in a gap is one. */
static const unsigned char canary[4] = {0xa5, 0x5a, 0xc5, 0x7f};

enum { KEPT = 64, KEPT_PAGES = 64 };
static struct {
    unsigned char *map;
    size_t pages;
} kept[KEPT];

static size_t page_bytes(void) {
    static size_t bytes;
    if (!bytes) bytes = (size_t)sysconf(_SC_PAGESIZE);
    return bytes;
}

static unsigned char *map_pages(size_t pages) {
    for (int i = 0; i < KEPT; i++) {
        if (!kept[i].map || kept[i].pages != pages) continue;
        unsigned char *map = kept[i].map;
        kept[i].map = NULL;
        return map;
    }
    size_t page = page_bytes();
    void *map = mmap(NULL, (pages + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return NULL;
    if (mprotect((unsigned char *)map + page, pages * page, PROT_READ | PROT_WRITE) != 0) {
        munmap(map, (pages + 2) * page);
        return NULL;
    }
    return map;
}

static size_t extent(const guard_rect *r) {
    return r->rows > 0 && r->row_bytes > 0 ? (size_t)(r->rows - 1) * r->stride_bytes + r->row_bytes : 0;
}

bool guard_new(guard_rect *r, int64_t rows, size_t row_bytes, size_t stride_bytes, int offset, size_t align) {
    size_t page = page_bytes();
    *r = (guard_rect){.rows = rows, .row_bytes = row_bytes, .stride_bytes = stride_bytes};
    size_t bytes = extent(r), lead = offset == GUARD_END ? 0 : (size_t)offset;
    r->pages = (bytes + lead + align + page - 1) / page;
    if (r->pages == 0) r->pages = 1;
    r->map = map_pages(r->pages);
    if (!r->map) return false;
    unsigned char *lo = r->map + page, *hi = lo + r->pages * page;
    for (unsigned char *p = lo; p < hi; p += sizeof canary) memcpy(p, canary, sizeof canary);
    r->data = offset == GUARD_END ? hi - (bytes + align - 1) / align * align : lo + lead;
    return true;
}

void guard_free(guard_rect *r) {
    if (!r->map) return;
    for (int i = 0; i < KEPT && r->pages <= KEPT_PAGES; i++) {
        if (kept[i].map) continue;
        kept[i].map = r->map;
        kept[i].pages = r->pages;
        r->map = NULL;
        return;
    }
    munmap(r->map, (r->pages + 2) * page_bytes());
    r->map = NULL;
}

void guard_release_all(void) {
    for (int i = 0; i < KEPT; i++) {
        if (kept[i].map) munmap(kept[i].map, (kept[i].pages + 2) * page_bytes());
        kept[i].map = NULL;
    }
}

static const unsigned char *first_damage(const unsigned char *p, const unsigned char *end) {
    for (; p < end && (uintptr_t)p % sizeof canary != 0; p++)
        if (*p != canary[(uintptr_t)p % sizeof canary]) return p;
    for (; end - p >= (ptrdiff_t)sizeof canary; p += sizeof canary)
        if (memcmp(p, canary, sizeof canary) != 0) break;
    for (; p < end; p++)
        if (*p != canary[(uintptr_t)p % sizeof canary]) return p;
    return NULL;
}

const unsigned char *guard_damage(const guard_rect *r) {
    const unsigned char *p = r->map + page_bytes(), *end = p + r->pages * page_bytes();
    for (int64_t i = 0; i < r->rows && r->row_bytes > 0; i++) {
        const unsigned char *row = r->data + (size_t)i * r->stride_bytes;
        const unsigned char *damage = first_damage(p, row);
        if (damage) return damage;
        p = row + r->row_bytes;
    }
    return first_damage(p, end);
}

uint64_t guard_hash(const guard_rect *r) {
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < r->rows; i++) {
        const unsigned char *p = r->data + (size_t)i * r->stride_bytes, *end = p + r->row_bytes;
        for (; end - p >= 8; p += 8) {
            uint64_t word;
            memcpy(&word, p, 8);
            h = (h ^ word) * 0x9e3779b97f4a7c15u;
            h ^= h >> 29;
        }
        for (; p < end; p++) h = (h ^ *p) * 0x100000001b3u;
    }
    return h;
}

bool guard_owns(const guard_rect *r, const void *address) {
    const unsigned char *p = address;
    return r->map && p >= r->map && p < r->map + (r->pages + 2) * page_bytes();
}
