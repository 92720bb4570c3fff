/* offsets.h - packing buffers with known lifetimes into one block of memory (internal). */
#ifndef WOK_OFFSETS_H
#define WOK_OFFSETS_H

#include "wok_build.h"

enum { WOK_ARENA_ALIGN = 64 };

/* A buffer that is in use from step `first` to step `last`, both included. */
typedef struct wok_interval {
    size_t bytes;
    int first, last;
    size_t offset; /* the answer, a multiple of WOK_ARENA_ALIGN */
} wok_interval;

/* Gives every interval an offset such that two which are in use at one time never share a byte. *total: bytes of the
 * block. *bound (may be NULL): the most that is in use at one step, which no packing can beat.
 *
 * Greedy by size: Y. Pisarchyk, J. Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020): largest first,
 * each into the smallest gap that holds it between those already placed that it meets in time. */
wok_status wok_plan_offsets(wok_ctx *ctx, wok_interval *items, int count, size_t *total, size_t *bound);

#endif
