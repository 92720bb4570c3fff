/* conv_split.h - how convolutions cut their work into tasks (internal; conv_f32 and conv_s8). */
#ifndef WOK_CONV_SPLIT_H
#define WOK_CONV_SPLIT_H

#include "common.h"

/* Sizes are products of caller's numbers. Past this nothing can be addressed; saturating keeps later sums defined. */
#define WOK_SIZE_LIMIT ((int64_t)1 << 56)

static inline int64_t wok_mul_sat(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) || r > WOK_SIZE_LIMIT ? WOK_SIZE_LIMIT : r;
}

/* What a convolution costs, in cycles of a core and in bytes. A unit is what pixels are cut by: a block, or a row of
 * the picture. */
typedef struct wok_conv_cost {
    int64_t units, panels;
    double unit_panel;   /* cycles: one unit against one panel */
    double unit_prepare; /* cycles: pointers and copies of one unit */
    double weight_bytes, pixel_bytes;
} wok_conv_cost;

typedef struct wok_conv_split {
    int64_t chunks, ranges; /* tasks = chunks * ranges */
} wok_conv_split;

/* Cuts the pixels into at least `chunks` parts and the panels into ranges, so that the slowest thread is done soonest.
 * Half a task is added because threads never start and run evenly, and the traffic of reading every weight once a part
 * and every pixel once a range. */
static inline wok_conv_split wok_conv_choose_split(const wok_conv_cost *c, int64_t chunks, int threads) {
    wok_conv_split split = {chunks, 1};
    double best = INFINITY;
    const int64_t most_ranges = threads > 1 ? wok_min64(c->panels, 4 * (int64_t)threads) : 1;
    for (int64_t ranges = 1, step = 1; ranges <= most_ranges; ranges += step) { /* 1 2 3 4 6 8 12 16 24 ... */
        if (ranges == 4 * step) step *= 2;
        for (int64_t rounds = 1; rounds <= (threads > 1 ? 4 : 1); rounds++) {
            const int64_t tasks = wok_round_up(wok_mul_sat(chunks, ranges), threads * rounds);
            const int64_t parts = wok_min64(wok_ceil_div(tasks, ranges), c->units);
            const double turns = (double)wok_ceil_div(parts * ranges, threads);
            const double task = (double)wok_ceil_div(c->units, parts) *
                                (c->unit_panel * (double)wok_ceil_div(c->panels, ranges) + c->unit_prepare);
            const double traffic = (double)parts * c->weight_bytes + (double)ranges * c->pixel_bytes;
            const double cost = (turns + 0.5) * task + traffic / (8.0 * threads);
            if (cost >= best) continue;
            best = cost;
            split = (wok_conv_split){parts, ranges};
        }
    }
    return split;
}

#endif
