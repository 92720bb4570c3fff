/* dwconv_s8_loops.h - the loops of dwconv_s8, compiled into each vector variant after lanes_<level>.h. dwconv_s8.h has
 * layout and pairs.
 *
 * A row is walked once for 16 channels, two input columns e and e + 1 a step, each loaded once: sums of the outputs
 * that they reach wait in registers. Output d starts at column e - d; for a 3x3 window and stride 1
 *
 *     columns   e    | e + 1 | last row      V: pairs of rows 0 and 1 of one column, H: of columns e, e + 1 of row 2
 *     d = 2     V w2 |       | H (w2, -)     finished
 *     d = 1     V w1 | V w2  | H (w1, w2)    finished
 *     d = 0     V w0 | V w1  | H (w0, w1)    goes on as d = 2
 *     d = -1         | V w0  | H (-, w0)     goes on as d = 1
 *
 * Stride 2 is the same without the odd d. Two finished outputs are converted together; what the first steps of a row
 * finish is not stored. Bytes are multiplied in the upper half of a word, and 1 / 256 is part of the scale.
 *
 * What lies outside the picture: the weights of rows are set to 0 and any row is read; columns are read from a vector
 * of x_zero, in a second instance of the step. A last block of fewer than 16 channels has partial loads and stores;
 * other windows take one pixel at a time. Outputs other than S8 without a residual go through v_epilogue_s8(). */
#ifndef WOK_DWCONV_S8_LOOPS_H
#define WOK_DWCONV_S8_LOOPS_H

#include "dwconv_s8.h"
#include "../epilogue_s8_lanes.h"

enum { DW_BLOCK = WOK_DWCONV_BLOCK, DW_MOST_PAIRS = 5 / 2 * 5 + 6, DW_MOST_SUMS = 6 };

static const int16_t *dw_block(const wok_dwconv_row *row, int64_t c) {
    const char *packed = wok_dwconv_s8_args_of(row)->packed;
    return (const int16_t *)(const void *)(packed + c / DW_BLOCK * wok_dwconv_s8_block_bytes(row->problem));
}

/* Part `half` of the weights of pair i. */
WOK_INLINE v_pairs dw_weights(const int16_t *pairs, int64_t i, int64_t half) {
    return v_load_pairs(pairs + 2 * DW_BLOCK * i + 2 * V_LANES * half);
}

/* `count` channels from c on of output pixel m. */
static __attribute__((noinline)) void dw_store_any(const wok_dwconv_s8_args *a, v_s32 sum, int64_t m, int64_t c,
                                                   int64_t count) {
    v_epilogue_s8(sum, m, c, wok_min64(count, V_LANES), &a->epilogue, a->y, m * a->y_stride + c);
}

/* ---- any window, one pixel --------------------------------------------------------------------------------------- */

/* A cursor over the taps of a window in scan order. */
typedef struct dw_taps {
    const wok_dwconv_row *row;
    const int8_t *outside;
    int64_t c, left, ky, kx;
} dw_taps;

static const int8_t *dw_next(dw_taps *t) {
    const wok_dwconv_problem *p = t->row->problem;
    if (t->ky == p->kernel_h) return t->outside; /* the second of a last pair */
    const wok_dwconv_s8_args *a = wok_dwconv_s8_args_of(t->row);
    const int8_t *line = wok_dwconv_s8_input(t->row, t->ky);
    const int64_t ix = t->left + t->kx * p->dilation_w;
    if (++t->kx == p->kernel_w) t->kx = 0, t->ky++;
    return line && ix >= 0 && ix < a->in_w ? line + ix * a->x_stride + t->c : t->outside;
}

/* V_LANES channels from c on. */
static v_s32 dw_window(const wok_dwconv_row *row, const int8_t *outside, int64_t c, int64_t ox) {
    const wok_dwconv_s8_args *a = wok_dwconv_s8_args_of(row);
    dw_taps taps = {row, outside, c, ox * row->problem->stride_w - a->pad_left, 0, 0};
    const int64_t half = c % DW_BLOCK / V_LANES, pairs = wok_dwconv_s8_pairs(row->problem);
    const int16_t *w = dw_block(row, c);
    const int32_t *sums = (const int32_t *)(const void *)(w + pairs * 2 * DW_BLOCK);
    v_s32 sum = v_mul_s32(v_load_s32(sums + half * V_LANES), v_set1_s32(-a->x_zero));
    for (int64_t i = 0; i < pairs; i++) {
        const int8_t *p = dw_next(&taps), *q = dw_next(&taps);
        sum = v_add_products(sum, v_pair_part(p, q, row->end - c), dw_weights(w, i, half));
    }
    return sum;
}

static __attribute__((noinline)) void dw_pixels(const wok_dwconv_row *row) {
    const wok_dwconv_s8_args *a = wok_dwconv_s8_args_of(row);
    int8_t outside[V_LANES];
    memset(outside, a->x_zero, sizeof outside);
    for (int64_t c = row->begin; c < row->end; c += V_LANES)
        for (int64_t ox = 0; ox < a->out_w; ox++)
            dw_store_any(a, dw_window(row, outside, c, ox), wok_dwconv_pixel(row, ox), c, row->end - c);
}

/* ---- 3x3 and 5x5, a row ------------------------------------------------------------------------------------------ */

/* A row of outputs. Rows of the window outside the picture become any row inside, without weight. */
typedef struct dw_row {
    const wok_dwconv_s8_args *args;
    const wok_dwconv_row *row;
    const int8_t *lines[5]; /* column 0, channel 0 */
    bool inside[5], whole;  /* whole: all are inside */
    int64_t width;          /* columns that may be read */
    int64_t pixel;          /* output pixel 0 of the row */
    v_f32 high;
    v_pairs zero;
    v_bytes lo;
    int8_t outside[DW_BLOCK];
} dw_row;

/* 16 channels of it. */
typedef struct dw_span {
    const int8_t *rows[5]; /* column 0, channel c */
    const int16_t *w;
    v_s32 start[V_TILE]; /* of a sum: what x_zero adds to it */
    v_f32 scale[V_TILE], bias[V_TILE];
    int64_t c, count; /* count: channels that exist */
    bool plain;       /* S8 without a residual, and 1 / 256 of the scales is exact */
} dw_span;

static dw_row dw_row_of(const wok_dwconv_row *row, const int size) {
    const wok_dwconv_s8_args *a = wok_dwconv_s8_args_of(row);
    const wok_epilogue_s8 *e = &a->epilogue;
    dw_row r = {.args = a, .row = row, .whole = true, .pixel = wok_dwconv_pixel(row, 0)};
    const int8_t *any = NULL;
    for (int ky = 0; ky < size; ky++) {
        r.lines[ky] = wok_dwconv_s8_input(row, ky);
        r.inside[ky] = r.lines[ky] != NULL;
        r.whole &= r.inside[ky];
        if (r.inside[ky]) any = r.lines[ky];
    }
    for (int ky = 0; ky < size; ky++)
        if (!r.inside[ky]) r.lines[ky] = any ? any : a->x;
    r.width = any ? a->in_w : 0;
    r.high = v_set1((float)(e->hi - e->zero));
    r.zero = v_set1_pairs((int16_t)e->zero, (int16_t)e->zero);
    r.lo = v_set1_bytes((int8_t)e->lo);
    memset(r.outside, a->x_zero, sizeof r.outside);
    return r;
}

WOK_INLINE void dw_start(dw_span *s, const int32_t *weight_sums, int32_t x_zero) {
    for (int half = 0; half < V_TILE; half++) /* 256 times what they are, as the products */
        s->start[half] = v_mul_s32(v_load_s32(weight_sums + half * V_LANES), v_set1_s32(-256 * x_zero));
}

/* Weights and their sums without those of rows outside the picture. */
static __attribute__((noinline)) void dw_mask_rows(const dw_row *r, dw_span *s, int16_t *masked, const int size) {
    const int upright = size / 2 * size;
    int32_t sums[DW_BLOCK];
    for (int half = 0; half < V_TILE; half++) {
        v_s32 sum = v_set1_s32(0);
        for (int i = 0; i <= upright + size; i++) {
            const int ky = i < upright ? i / size * 2 : size - 1;
            const bool first = r->inside[ky], second = i < upright ? r->inside[ky + 1] : first;
            const v_pairs w = v_and_pairs(dw_weights(s->w, i, half), v_set1_pairs(first ? -1 : 0, second ? -1 : 0));
            v_store_pairs(masked + 2 * (DW_BLOCK * i + V_LANES * half), w);
            sum = v_add_products(sum, w, v_set1_pairs(i < upright ? 1 : 0, 1)); /* the last row is there twice */
        }
        v_store_s32(sums + half * V_LANES, sum);
    }
    s->w = masked;
    dw_start(s, sums, r->args->x_zero);
}

static dw_span dw_span_of(const dw_row *r, int64_t c, int16_t *masked, const int size) {
    const wok_epilogue_s8 *e = &r->args->epilogue;
    dw_span s;
    s.c = c;
    s.count = wok_min64(DW_BLOCK, r->row->end - c);
    s.plain = e->out == WOK_S8_OUT_S8 && !e->residual;
    for (int ky = 0; ky < size; ky++) s.rows[ky] = r->lines[ky] + c;
    s.w = dw_block(r->row, c);
    if (r->whole)
        dw_start(&s, (const int32_t *)(const void *)(s.w + (size / 2 * size + size + 1) * 2 * DW_BLOCK),
                 r->args->x_zero);
    else
        dw_mask_rows(r, &s, masked, size);
    for (int half = 0; half < V_TILE; half++) {
        const int64_t n = c + half * V_LANES, count = s.count - half * V_LANES;
        s.scale[half] = s.bias[half] = v_set1(0);
        if (!s.plain || count <= 0) continue;
        const v_f32 scale = v_load_part(e->scale + n, count);
        s.scale[half] = v_mul(scale, v_set1(0x1p-8f));
        s.plain = v_all_equal(v_mul(s.scale[half], v_set1(0x1p8f)), scale);
        if (e->bias) s.bias[half] = v_load_part(e->bias + n, count);
    }
    return s;
}

#define DW_EACH_HALF _Pragma("GCC unroll 2") for (int half = 0; half < V_TILE; half++)
#define DW_EACH_OUTPUT _Pragma("GCC unroll 6") for (int d = -1; d < size; d++)

/* Taps (k0, column0) and (k1, column1); at0, at1: elements of the columns from column 0. */
WOK_INLINE void dw_pair(const dw_row *r, const dw_span *s, v_pairs *pairs, int k0, int64_t column0, int64_t at0, int k1,
                        int64_t column1, int64_t at1, const bool bordered, const bool slow) {
    const int8_t *p = s->rows[k0] + at0, *q = s->rows[k1] + at1;
    if (bordered && (column0 < 0 || column0 >= r->width)) p = r->outside;
    if (bordered && (column1 < 0 || column1 >= r->width)) q = r->outside;
    if (slow)
        v_pair_tile_part(pairs, p, q, s->count);
    else
        v_pair_tile(pairs, p, q);
}

/* Columns e and e + 1. sums[d + 1] belongs to output d; sums[size] and sums[size - 1] are finished. */
WOK_INLINE void dw_step(const dw_row *r, const dw_span *s, int64_t e, v_s32 sums[][V_TILE], const int size,
                        const int stride, const bool bordered, const bool slow) {
    const int64_t at0 = e * r->args->x_stride, at1 = at0 + r->args->x_stride;
    v_pairs v0[V_TILE], v1[V_TILE], h[V_TILE];
#pragma GCC unroll 6
    for (int d = size - 1; d > 0; d--) DW_EACH_HALF sums[d + 1][half] = sums[d - 1][half];
    DW_EACH_HALF sums[0][half] = sums[1][half] = s->start[half];
#pragma GCC unroll 2
    for (int k = 0; k < size - 1; k += 2) {
        dw_pair(r, s, v0, k, e, at0, k + 1, e, at0, bordered, slow);
        dw_pair(r, s, v1, k, e + 1, at1, k + 1, e + 1, at1, bordered, slow);
        const int first = k / 2 * size;
        DW_EACH_OUTPUT {
            if (stride == 2 && (d & 1)) continue;
            DW_EACH_HALF {
                v_s32 *sum = &sums[d + 1][half];
                if (d >= 0) *sum = v_add_products(*sum, v0[half], dw_weights(s->w, first + d, half));
                if (d + 1 < size) *sum = v_add_products(*sum, v1[half], dw_weights(s->w, first + d + 1, half));
            }
        }
    }
    dw_pair(r, s, h, size - 1, e, at0, size - 1, e + 1, at1, bordered, slow);
    DW_EACH_OUTPUT {
        if (stride == 2 && (d & 1)) continue;
        DW_EACH_HALF sums[d + 1][half] =
            v_add_products(sums[d + 1][half], h[half], dw_weights(s->w, size / 2 * size + d + 1, half));
    }
}

/* One output, by value: sums whose address is taken would leave their registers for good. */
WOK_INLINE void dw_store_slowly(const dw_row *r, const dw_span *s, int64_t ox, const v_s32 *sums) {
    DW_EACH_HALF if (half * V_LANES < s->count)
        dw_store_any(r->args, v_halve_s32(sums[half], 8), r->pixel + ox, s->c + half * V_LANES,
                     s->count - half * V_LANES);
}

WOK_INLINE v_s32 dw_convert(const dw_row *r, const dw_span *s, v_s32 sum, int half) {
    return v_round(v_min(r->high, v_fma(v_float(sum), s->scale[half], s->bias[half])));
}

/* Outputs ox and ox + 1, the second if it exists. */
WOK_INLINE void dw_store(const dw_row *r, const dw_span *s, int64_t ox, const v_s32 *first, const v_s32 *second,
                         const bool both, const bool slow) {
    int8_t *y = (int8_t *)r->args->y + (r->pixel + ox) * r->args->y_stride + s->c, bytes[2][DW_BLOCK];
    v_s32 a[V_TILE], b[V_TILE];
    if (slow && !s->plain) {
        dw_store_slowly(r, s, ox, first);
        if (both) dw_store_slowly(r, s, ox + 1, second);
        return;
    }
    DW_EACH_HALF a[half] = dw_convert(r, s, first[half], half);
    DW_EACH_HALF b[half] = dw_convert(r, s, second[half], half);
    if (!slow) {
        v_store_tiles(y, both ? y + r->args->y_stride : bytes[1], a, b, r->zero, r->lo);
        return;
    }
    v_store_tiles(bytes[0], bytes[1], a, b, r->zero, r->lo);
    memcpy(y, bytes[0], (size_t)s->count);
    if (both) memcpy(y + r->args->y_stride, bytes[1], (size_t)s->count);
}

/* Outputs ox and ox + 1 from columns e on; the two before are stored meanwhile. */
WOK_INLINE void dw_two(const dw_row *r, const dw_span *s, int64_t e, v_s32 sums[][V_TILE], v_s32 done[2][V_TILE],
                       const int size, const int stride, const bool bordered, const bool slow) {
    dw_step(r, s, e, sums, size, stride, bordered, slow);
    DW_EACH_HALF done[0][half] = sums[size][half];
    if (stride == 2) dw_step(r, s, e + 2, sums, size, stride, bordered, slow);
    DW_EACH_HALF done[1][half] = sums[size + stride - 2][half];
}

WOK_INLINE void dw_channels(const dw_row *r, const dw_span *s, const int size, const int stride, const bool slow) {
    const int64_t out_w = r->args->out_w;
    v_s32 sums[DW_MOST_SUMS][V_TILE], done[2][V_TILE];
#pragma GCC unroll 6
    for (int i = 0; i < DW_MOST_SUMS; i++) DW_EACH_HALF sums[i][half] = s->start[half];
    int64_t e = -r->args->pad_left, ox = 0;
    for (int i = 0; i < size / 2; i++, e += 2) dw_step(r, s, e, sums, size, stride, true, slow);
    while (ox < out_w) {
        for (; !slow && e >= 0 && e + 2 * stride <= r->width && ox + 1 < out_w; ox += 2, e += 2 * stride) {
            dw_two(r, s, e, sums, done, size, stride, false, false);
            dw_store(r, s, ox, done[0], done[1], true, false);
        }
        if (ox >= out_w) break;
        dw_two(r, s, e, sums, done, size, stride, true, slow);
        dw_store(r, s, ox, done[0], done[1], ox + 1 < out_w, slow);
        ox += 2, e += 2 * stride;
    }
}

WOK_INLINE void dw_special(const wok_dwconv_row *row, const int size, const int stride) {
    const dw_row r = dw_row_of(row, size);
    int16_t masked[2 * DW_BLOCK * DW_MOST_PAIRS];
    for (int64_t c = row->begin; c < row->end; c += DW_BLOCK) {
        const dw_span s = dw_span_of(&r, c, masked, size);
        if (s.plain && s.count == DW_BLOCK)
            dw_channels(&r, &s, size, stride, false);
        else
            dw_channels(&r, &s, size, stride, true);
    }
}

static __attribute__((noinline)) void dw_3x3(const wok_dwconv_row *row) { dw_special(row, 3, 1); }
static __attribute__((noinline)) void dw_3x3_stride_2(const wok_dwconv_row *row) { dw_special(row, 3, 2); }
static __attribute__((noinline)) void dw_5x5(const wok_dwconv_row *row) { dw_special(row, 5, 1); }
static __attribute__((noinline)) void dw_5x5_stride_2(const wok_dwconv_row *row) { dw_special(row, 5, 2); }

static __attribute__((noinline)) void dw_tabulate(const wok_dwconv_row *row) {
    const wok_dwconv_s8_args *a = wok_dwconv_s8_args_of(row);
    v_table table;
    v_table_make(&table, a->epilogue.table);
    for (int64_t ox = 0; ox < a->out_w; ox++)
        v_table_bytes(&table, (int8_t *)a->y + wok_dwconv_pixel(row, ox) * a->y_stride + row->begin,
                      row->end - row->begin);
}

static void dw_run_row(const wok_dwconv_row *row) {
    const wok_dwconv_problem *p = row->problem;
    const wok_epilogue_s8 *e = &wok_dwconv_s8_args_of(row)->epilogue;
    if (!wok_dwconv_s8_special(p))
        dw_pixels(row);
    else if (p->kernel_w == 3)
        p->stride_w == 1 ? dw_3x3(row) : dw_3x3_stride_2(row);
    else
        p->stride_w == 1 ? dw_5x5(row) : dw_5x5_stride_2(row);
    if (e->out == WOK_S8_OUT_S8 && e->table) dw_tabulate(row);
}

static void dw_run(const wok_dwconv_problem *problem, const wok_dwconv_s8_args *args, const wok_parallel *parallel) {
    wok_dwconv_s8_drive(problem, args, dw_run_row, parallel);
}

#endif
