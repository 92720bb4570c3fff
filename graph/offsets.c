/* offsets.c - greedy-by-size offsets. */
#include "offsets.h"
#include "ctx.h"

#include <stdlib.h>
#include <string.h>

static size_t aligned(size_t bytes) {
    return (bytes + WOK_ARENA_ALIGN - 1) / WOK_ARENA_ALIGN * WOK_ARENA_ALIGN;
}

/* Larger first; then earlier, then in the given order, so that the plan is a function of the graph alone. */
static int by_size(const void *a, const void *b) {
    const wok_interval *x = *(wok_interval *const *)a, *y = *(wok_interval *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* `placed`: intervals that have an offset, lowest first. */
static void place(wok_interval *item, wok_interval *const *placed, int count) {
    size_t need = aligned(item->bytes), end = 0, best = SIZE_MAX;
    bool found = false;
    for (int i = 0; i < count; i++) {
        const wok_interval *other = placed[i];
        if (other->last < item->first || other->first > item->last) continue;
        if (other->offset >= end + need && other->offset - end < best) {
            best = other->offset - end;
            item->offset = end;
            found = true;
        }
        size_t other_end = other->offset + aligned(other->bytes);
        if (other_end > end) end = other_end;
    }
    if (!found) item->offset = end;
}

static void insert(wok_interval **placed, int count, wok_interval *item) {
    int at = count;
    for (; at > 0 && placed[at - 1]->offset > item->offset; at--) placed[at] = placed[at - 1];
    placed[at] = item;
}

static int by_first(const void *a, const void *b) {
    const wok_interval *x = *(wok_interval *const *)a, *y = *(wok_interval *const *)b;
    return x->first < y->first ? -1 : x->first > y->first;
}
static int by_last(const void *a, const void *b) {
    const wok_interval *x = *(wok_interval *const *)a, *y = *(wok_interval *const *)b;
    return x->last < y->last ? -1 : x->last > y->last;
}

/* The most live bytes at a step: sweeping over starts and ends. */
static size_t most_alive(wok_interval **starts, wok_interval **ends, int count) {
    size_t alive = 0, most = 0;
    qsort(starts, (size_t)count, sizeof *starts, by_first);
    qsort(ends, (size_t)count, sizeof *ends, by_last);
    for (int s = 0, e = 0; s < count; s++) {
        while (ends[e]->last < starts[s]->first) alive -= aligned(ends[e++]->bytes);
        alive += aligned(starts[s]->bytes);
        if (alive > most) most = alive;
    }
    return most;
}

wok_status wok_plan_offsets(wok_ctx *ctx, wok_interval *items, int count, size_t *total, size_t *bound) {
    *total = 0;
    if (bound) *bound = 0;
    if (count == 0) return WOK_OK;
    size_t sum = 0, bytes = 2 * (size_t)count * sizeof(wok_interval *);
    for (int i = 0; i < count; i++)
        if (items[i].bytes > SIZE_MAX / 4 || __builtin_add_overflow(sum, aligned(items[i].bytes), &sum))
            return wok_ctx_fail(ctx, WOK_ERR_SHAPE, "the tensors of these shapes do not fit into memory");
    wok_interval **order = wok_ctx_alloc(ctx, bytes);
    if (!order) return wok_ctx_last(ctx);
    wok_interval **placed = order + count;
    for (int i = 0; i < count; i++) order[i] = placed[i] = &items[i];
    if (bound) *bound = most_alive(order, placed, count);
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int i = 0; i < count; i++) {
        place(order[i], placed, i);
        insert(placed, i, order[i]);
        size_t end = order[i]->offset + aligned(order[i]->bytes);
        if (end > *total) *total = end;
    }
    wok_ctx_release(ctx, order, bytes);
    return WOK_OK;
}
