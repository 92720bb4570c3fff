/* pool_s8_loops.h - the loops of pool_s8, compiled into each vector variant after lanes_<level>.h.
 *
 * A window is walked once for V_BYTES channels: one register for the maximum, four for a sum. The last block of a pixel
 * reaches back over channels that are done; only fewer channels than a register's take partial loads. Bound: a load and
 * one (maximum) or eight instructions (sum: widen and add) for V_BYTES values; small windows: what finding one costs.
 * Measured on one Zen 3 core: max 64 3x3s2@112 59 us, average 1280 7x7 3.6 us. */
#ifndef WOK_POOL_S8_LOOPS_H
#define WOK_POOL_S8_LOOPS_H

#include "pool_s8.h"

typedef struct pool_block {
    const wok_pool_s8_args *args;
    const wok_pool_place *place;
    int64_t c, count; /* channels */
} pool_block;

/* `partial`: count < V_BYTES */
WOK_INLINE void pool_max(const pool_block *b, const bool partial) {
    const wok_pool_place *p = b->place;
    v_bytes max = v_set1_bytes(-128);
    for (int64_t ky = 0; ky < p->rows; ky++) {
        const int8_t *x = b->args->x + p->x + ky * p->row_stride + b->c;
        for (int64_t kx = 0; kx < p->columns; kx++, x += p->column_stride)
            max = v_max_bytes(max, partial ? v_load_bytes_part(x, b->count) : v_load_bytes(x));
    }
    int8_t *y = b->args->y + p->y + b->c;
    if (partial)
        v_store_bytes_part(y, max, b->count);
    else
        v_store_bytes(y, max);
}

WOK_INLINE v_s32 pool_mean(const pool_block *b, v_s32 sum) {
    const wok_pool_s8_args *a = b->args;
    const int32_t zeros = (int32_t)(b->place->rows * b->place->columns) * a->x_zero;
    v_f32 mean = v_mul(v_float(v_sub_s32(sum, v_set1_s32(zeros))), v_set1(a->x_scale));
    mean = v_number(v_div(v_div(mean, v_set1((float)b->place->count)), v_set1(a->y_scale)));
    mean = v_min(v_max(mean, v_set1((float)(-128 - a->y_zero))), v_set1((float)(127 - a->y_zero)));
    return v_add_s32(v_round(mean), v_set1_s32(a->y_zero));
}

WOK_INLINE void pool_average(const pool_block *b, const bool partial) {
    const wok_pool_place *p = b->place;
    v_s32 s0 = v_set1_s32(0), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t ky = 0; ky < p->rows; ky++) {
        const int8_t *x = b->args->x + p->x + ky * p->row_stride + b->c;
        for (int64_t kx = 0; kx < p->columns; kx++, x += p->column_stride) {
            int8_t copy[V_BYTES];
            if (partial) v_store_bytes(copy, v_load_bytes_part(x, b->count));
            const int8_t *from = partial ? copy : x;
            s0 = v_add_s32(s0, v_widen(from));
            s1 = v_add_s32(s1, v_widen(from + V_LANES));
            s2 = v_add_s32(s2, v_widen(from + 2 * V_LANES));
            s3 = v_add_s32(s3, v_widen(from + 3 * V_LANES));
        }
    }
    const v_bytes means = v_narrow(pool_mean(b, s0), pool_mean(b, s1), pool_mean(b, s2), pool_mean(b, s3));
    int8_t *y = b->args->y + p->y + b->c;
    if (partial)
        v_store_bytes_part(y, means, b->count);
    else
        v_store_bytes(y, means);
}

WOK_INLINE void pool_channels(const void *args, const wok_pool_place *p,
                              void (*const block)(const pool_block *b, const bool partial)) {
    pool_block b = {args, p, p->begin, p->end - p->begin};
    if (b.count < V_BYTES) {
        block(&b, true);
        return;
    }
    for (; b.c + V_BYTES <= p->end; b.c += V_BYTES) block(&b, false);
    if (b.c == p->end) return;
    b.c = p->end - V_BYTES;
    block(&b, false);
}

static void pool_max_place(const void *args, const wok_pool_place *p) { pool_channels(args, p, pool_max); }
static void pool_average_place(const void *args, const wok_pool_place *p) { pool_channels(args, p, pool_average); }

static void pool_run_s8(const wok_pool_problem *problem, const wok_pool_s8_args *args, const wok_parallel *parallel) {
    wok_pool_s8_drive(problem, args, pool_max_place, pool_average_place, parallel);
}

#endif
