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
 * finish is not stored. Rows are taken in groups, so that what belongs to channels is prepared once for some rows whose
 * inputs stay in the first-level cache.
 *
 * What lies outside the picture: the weights of rows are set to 0 and any row is read; columns are read from a vector
 * of x_zero, in a second instance of the step. A last block of fewer than 16 channels has partial loads and stores;
 * other windows take one pixel at a time. Outputs other than S8 without a residual go through v_epilogue_s8(). */
#ifndef WOK_DWCONV_S8_LOOPS_H
#define WOK_DWCONV_S8_LOOPS_H

#include "dwconv_s8.h"
#include "../epilogue_s8_lanes.h"

enum { DW_BLOCK = WOK_DWCONV_BLOCK, DW_MOST_PAIRS = 5 / 2 * 5 + 6, DW_MOST_SUMS = 6, DW_GROUP = 8 };

#define DW_EACH_HALF _Pragma("GCC unroll 2") for (int half = 0; half < V_TILE; half++)
#define DW_EACH_OUTPUT _Pragma("GCC unroll 6") for (int d = -1; d < size; d++)

/* What a launch has in common. */
typedef struct dw_launch {
    const wok_dwconv_problem *problem;
    const wok_dwconv_s8_args *args;
    v_pairs zero;
    v_bytes lo, hi;
    int8_t outside[DW_BLOCK]; /* x_zero */
} dw_launch;

static dw_launch dw_launch_of(const wok_dwconv_s8_job *job) {
    const wok_epilogue_s8 *e = &job->args->epilogue;
    dw_launch k = {.problem = job->problem, .args = job->args};
    k.zero = v_set1_pairs((int16_t)e->zero, (int16_t)e->zero);
    k.lo = v_set1_bytes((int8_t)e->lo);
    k.hi = v_set1_bytes((int8_t)e->hi);
    memset(k.outside, job->args->x_zero, sizeof k.outside);
    return k;
}

/* Part `half` of the weights of pair i. */
WOK_INLINE v_pairs dw_weights(const int16_t *pairs, int64_t i, int64_t half) {
    return v_load_pairs(pairs + 2 * DW_BLOCK * i + 2 * V_LANES * half);
}

/* What x_zero adds to sums. */
WOK_INLINE void dw_start(v_s32 *start, const int32_t *weight_sums, int32_t x_zero) {
    DW_EACH_HALF start[half] = v_mul_s32(v_load_s32(weight_sums + half * V_LANES), v_set1_s32(-x_zero));
}

/* 16 channels from c on. */
typedef struct dw_span {
    int64_t c, count;    /* count: those that exist */
    const int16_t *w;    /* pairs of weights */
    v_s32 start[V_TILE]; /* of a sum */
    v_f32 scale[V_TILE], bias[V_TILE];
    bool plain; /* S8 without a residual, and no product with a scale that leaves int32 */
} dw_span;

static dw_span dw_span_of(const dw_launch *k, int64_t c, int64_t end) {
    const wok_epilogue_s8 *e = &k->args->epilogue;
    const char *block = (const char *)k->args->packed + c / DW_BLOCK * wok_dwconv_s8_block_bytes(k->problem);
    dw_span s;
    s.c = c;
    s.count = wok_min64(DW_BLOCK, end - c);
    s.w = (const int16_t *)(const void *)block;
    s.plain = e->out == WOK_S8_OUT_S8 && !e->residual;
    const int32_t *weight_sums = (const int32_t *)(const void *)block + wok_dwconv_s8_pairs(k->problem) * DW_BLOCK;
    dw_start(s.start, weight_sums, k->args->x_zero);
    DW_EACH_HALF s.scale[half] = s.bias[half] = v_set1(0);
    if (!s.plain) return s;
    v_load_mixed(s.scale, e->scale + c, s.count);
    if (e->bias) v_load_mixed(s.bias, e->bias + c, s.count);
    /* the sums of 25 products of 9-bit numbers are below 2^21 */
    DW_EACH_HALF s.plain &=
        v_all_below(v_fma(v_abs(s.scale[half]), v_set1(0x1p21f), v_abs(s.bias[half])), v_set1(0x1p30f));
    return s;
}

/* The tile of output pixel m, whatever the epilogue is. */
static __attribute__((noinline)) void dw_store_any(const dw_launch *k, const dw_span *s, int64_t m, v_s32 *tile) {
    const wok_dwconv_s8_args *a = k->args;
    v_mix_s32(tile);
    for (int half = 0; half < V_TILE && half * V_LANES < s->count; half++) {
        const int64_t c = s->c + half * V_LANES, count = wok_min64(s->count - half * V_LANES, V_LANES);
        v_epilogue_s8(tile[half], m, c, count, &a->epilogue, a->y, m * a->y_stride + c);
    }
}

/* ---- any window, one pixel --------------------------------------------------------------------------------------- */

/* A cursor over the taps of a window in scan order. */
typedef struct dw_taps {
    const wok_dwconv_s8_row *row;
    const int8_t *outside;
    int64_t c, left, ky, kx;
} dw_taps;

static const int8_t *dw_next(dw_taps *t) {
    const wok_dwconv_problem *p = t->row->problem;
    const wok_dwconv_s8_args *a = t->row->args;
    if (t->ky == p->kernel_h) return t->outside; /* the second of a last pair */
    const int8_t *line = wok_dwconv_s8_input(t->row, t->ky);
    const int64_t ix = t->left + t->kx * p->dilation_w;
    if (++t->kx == p->kernel_w) t->kx = 0, t->ky++;
    return line && ix >= 0 && ix < a->in_w ? line + ix * a->x_stride + t->c : t->outside;
}

static __attribute__((noinline)) void dw_pixels(const dw_launch *k, const wok_dwconv_s8_row *row, const dw_span *s,
                                                int64_t m) {
    const int64_t pairs = wok_dwconv_s8_pairs(row->problem);
    for (int64_t ox = 0; ox < row->args->out_w; ox++) {
        dw_taps taps = {row, k->outside, s->c, ox * row->problem->stride_w - row->args->pad_left, 0, 0};
        v_s32 sums[V_TILE];
        DW_EACH_HALF sums[half] = s->start[half];
        for (int64_t i = 0; i < pairs; i++) {
            v_pairs x[V_TILE];
            const int8_t *p = dw_next(&taps), *q = dw_next(&taps);
            v_pair_mixed_part(x, p, q, s->count);
            DW_EACH_HALF sums[half] = v_add_products(sums[half], x[half], dw_weights(s->w, i, half));
        }
        dw_store_any(k, s, m + ox, sums);
    }
}

/* ---- 3x3 and 5x5, a row ------------------------------------------------------------------------------------------ */

/* A row of outputs. Rows of the window outside the picture become any row inside, without weight. */
typedef struct dw_line {
    const int8_t *rows[5];    /* column 0, channel 0 */
    bool inside[5], whole;    /* whole: all are inside */
    int64_t width, pixel;     /* columns that may be read; output pixel 0 */
} dw_line;

static dw_line dw_line_of(const dw_launch *k, int64_t i) {
    const wok_dwconv_s8_row row = wok_dwconv_s8_row_at(k->problem, k->args, i);
    const int64_t size = k->problem->kernel_h;
    dw_line l = {.whole = true, .pixel = i * k->args->out_w};
    const int8_t *any = NULL;
    for (int64_t ky = 0; ky < size; ky++) {
        l.rows[ky] = wok_dwconv_s8_input(&row, ky);
        l.inside[ky] = l.rows[ky] != NULL;
        l.whole &= l.inside[ky];
        if (l.inside[ky]) any = l.rows[ky];
    }
    for (int64_t ky = 0; ky < size; ky++)
        if (!l.inside[ky]) l.rows[ky] = any ? any : k->args->x;
    l.width = any ? k->args->in_w : 0;
    return l;
}

/* Weights and what starts their sums, without those of rows outside the picture. */
static __attribute__((noinline)) void dw_mask_rows(const dw_span *s, const dw_line *l, int32_t x_zero, int size,
                                                   int16_t *masked, v_s32 *start) {
    const int upright = size / 2 * size;
    int32_t sums[DW_BLOCK];
    for (int half = 0; half < V_TILE; half++) {
        v_s32 sum = v_set1_s32(0);
        for (int i = 0; i <= upright + size; i++) {
            const int ky = i < upright ? i / size * 2 : size - 1;
            const bool first = l->inside[ky], second = i < upright ? l->inside[ky + 1] : first;
            const v_pairs w = v_and_pairs(dw_weights(s->w, i, half), v_set1_pairs(first ? -1 : 0, second ? -1 : 0));
            v_store_pairs(masked + 2 * (DW_BLOCK * i + V_LANES * half), w);
            sum = v_add_products(sum, w, v_set1_pairs(i < upright ? 1 : 0, 1)); /* the last row is there twice */
        }
        v_store_s32(sums + half * V_LANES, sum);
    }
    dw_start(start, sums, x_zero);
}

/* Rows of the window and of outputs, channel c on. Everything that the loop over a row needs is copied to where stores
 * of bytes cannot change it. */
typedef struct dw_line_span {
    const dw_launch *k;
    const dw_span *s; /* for outputs of any kind */
    const int8_t *rows[5], *outside;
    int64_t step, width, count;
    const int16_t *w;
    v_s32 start[V_TILE];
    v_f32 scale[V_TILE], bias[V_TILE];
    v_pairs zero;
    v_bytes lo, hi;
    bool plain;
    int64_t y_step;
} dw_line_span;

WOK_INLINE const int8_t *dw_tap(const dw_line_span *t, int k, int64_t column, const bool bordered) {
    if (bordered && (column < 0 || column >= t->width)) return t->outside;
    return t->rows[k] + column * t->step;
}

WOK_INLINE void dw_pair(const dw_line_span *t, v_pairs *pairs, int k0, int64_t column0, int k1, int64_t column1,
                        const bool bordered, const bool slow) {
    const int8_t *p = dw_tap(t, k0, column0, bordered), *q = dw_tap(t, k1, column1, bordered);
    if (slow)
        v_pair_mixed_part(pairs, p, q, t->count);
    else
        v_pair_mixed(pairs, p, q);
}

/* Columns e and e + 1. sums[d + 1] belongs to output d; sums[size] and sums[size - 1] are finished. */
WOK_INLINE void dw_step(const dw_line_span *t, int64_t e, v_s32 sums[][V_TILE], const int size, const int stride,
                        const bool bordered, const bool slow) {
    v_pairs v0[V_TILE], v1[V_TILE], h[V_TILE];
#pragma GCC unroll 6
    for (int d = size - 1; d > 0; d--) DW_EACH_HALF sums[d + 1][half] = sums[d - 1][half];
    DW_EACH_HALF sums[0][half] = sums[1][half] = t->start[half];
#pragma GCC unroll 2
    for (int k = 0; k < size - 1; k += 2) {
        const int first = k / 2 * size;
        dw_pair(t, v0, k, e, k + 1, e, bordered, slow);
        dw_pair(t, v1, k, e + 1, k + 1, e + 1, bordered, slow);
        DW_EACH_OUTPUT {
            if (stride == 2 && (d & 1)) continue;
            DW_EACH_HALF {
                v_s32 *sum = &sums[d + 1][half];
                if (d >= 0) *sum = v_add_products(*sum, v0[half], dw_weights(t->w, first + d, half));
                if (d + 1 < size) *sum = v_add_products(*sum, v1[half], dw_weights(t->w, first + d + 1, half));
            }
        }
    }
    dw_pair(t, h, size - 1, e, size - 1, e + 1, bordered, slow);
    DW_EACH_OUTPUT {
        if (stride == 2 && (d & 1)) continue;
        DW_EACH_HALF sums[d + 1][half] =
            v_add_products(sums[d + 1][half], h[half], dw_weights(t->w, size / 2 * size + d + 1, half));
    }
}

WOK_INLINE v_s32 dw_convert(v_s32 sum, v_f32 scale, v_f32 bias) { return v_round(v_fma(v_float(sum), scale, bias)); }

/* Outputs m and m + 1, the second if it exists, at y. */
WOK_INLINE void dw_store(const dw_line_span *t, int8_t *y, int64_t m, const v_s32 *first, const v_s32 *second,
                         const bool both, const bool slow) {
    v_s32 a[V_TILE], b[V_TILE]; /* copies: sums whose address is taken would leave their registers for good */
    if (slow && !t->plain) {
        DW_EACH_HALF a[half] = first[half];
        DW_EACH_HALF b[half] = second[half];
        dw_store_any(t->k, t->s, m, a);
        if (both) dw_store_any(t->k, t->s, m + 1, b);
        return;
    }
    int8_t bytes[2][DW_BLOCK];
    DW_EACH_HALF a[half] = dw_convert(first[half], t->scale[half], t->bias[half]);
    DW_EACH_HALF b[half] = dw_convert(second[half], t->scale[half], t->bias[half]);
    if (!slow) {
        v_store_mixed(y, both ? y + t->y_step : bytes[1], a, b, t->zero, t->lo, t->hi);
        return;
    }
    v_store_mixed(bytes[0], bytes[1], a, b, t->zero, t->lo, t->hi);
    memcpy(y, bytes[0], (size_t)t->count);
    if (both) memcpy(y + t->y_step, bytes[1], (size_t)t->count);
}

/* Outputs m and m + 1 from columns e on. */
WOK_INLINE void dw_two(const dw_line_span *t, int64_t e, int8_t *y, int64_t m, const bool both, v_s32 sums[][V_TILE],
                       const int size, const int stride, const bool bordered, const bool slow) {
    v_s32 first[V_TILE];
    dw_step(t, e, sums, size, stride, bordered, slow);
    DW_EACH_HALF first[half] = sums[size][half];
    if (stride == 2) dw_step(t, e + 2, sums, size, stride, bordered, slow);
    dw_store(t, y, m, first, sums[size + stride - 2], both, slow);
}

/* A row of outputs. */
WOK_INLINE void dw_row(const dw_line_span *t, int64_t pad_left, int8_t *y, int64_t m, int64_t end, const int size,
                       const int stride, const bool slow) {
    v_s32 sums[DW_MOST_SUMS][V_TILE];
#pragma GCC unroll 6
    for (int i = 0; i < DW_MOST_SUMS; i++) DW_EACH_HALF sums[i][half] = t->start[half];
    const int64_t last = t->width - 2 * stride;
    int64_t e = -pad_left;
    for (int i = 0; i < size / 2; i++, e += 2) dw_step(t, e, sums, size, stride, true, slow);
    while (m < end) {
        for (; !slow && e >= 0 && e <= last && m + 1 < end; m += 2, e += 2 * stride, y += 2 * t->y_step)
            dw_two(t, e, y, m, true, sums, size, stride, false, false);
        if (m >= end) break;
        dw_two(t, e, y, m, m + 1 < end, sums, size, stride, true, slow);
        m += 2, e += 2 * stride, y += 2 * t->y_step;
    }
}

/* `count` rows of outputs. */
WOK_INLINE void dw_group(const dw_launch *k, const dw_line *lines, int64_t count, const dw_span *s, const int size,
                         const int stride, const bool slow) {
    const wok_dwconv_s8_args *a = k->args;
    int16_t masked[2 * DW_BLOCK * DW_MOST_PAIRS];
    dw_line_span t = {.k = k, .s = s, .outside = k->outside, .step = a->x_stride, .count = s->count};
    t.plain = s->plain, t.zero = k->zero, t.lo = k->lo, t.hi = k->hi, t.y_step = a->y_stride;
    DW_EACH_HALF t.scale[half] = s->scale[half], t.bias[half] = s->bias[half];
    for (const dw_line *l = lines; l < lines + count; l++) {
        v_s32 start[V_TILE];
        t.w = l->whole ? s->w : masked;
        if (!l->whole) dw_mask_rows(s, l, a->x_zero, size, masked, start);
        DW_EACH_HALF t.start[half] = l->whole ? s->start[half] : start[half];
        t.width = l->width;
        for (int ky = 0; ky < size; ky++) t.rows[ky] = l->rows[ky] + s->c;
        int8_t *y = (int8_t *)a->y + l->pixel * t.y_step + s->c;
        dw_row(&t, a->pad_left, y, l->pixel, l->pixel + a->out_w, size, stride, slow);
    }
}

typedef void (*dw_group_fn)(const dw_launch *k, const dw_line *lines, int64_t count, const dw_span *s);

#define DW_GROUP_FN(name, size, stride, slow)                                                                          \
    static __attribute__((noinline)) void name(const dw_launch *k, const dw_line *lines, int64_t count,                \
                                               const dw_span *s) {                                                     \
        dw_group(k, lines, count, s, size, stride, slow);                                                              \
    }
DW_GROUP_FN(dw_3x3, 3, 1, false)
DW_GROUP_FN(dw_3x3_slow, 3, 1, true)
DW_GROUP_FN(dw_3x3s2, 3, 2, false)
DW_GROUP_FN(dw_3x3s2_slow, 3, 2, true)
DW_GROUP_FN(dw_5x5, 5, 1, false)
DW_GROUP_FN(dw_5x5_slow, 5, 1, true)
DW_GROUP_FN(dw_5x5s2, 5, 2, false)
DW_GROUP_FN(dw_5x5s2_slow, 5, 2, true)

/* Rows first .. last - 1, at most DW_GROUP, channels begin .. end - 1. */
static void dw_special(const dw_launch *k, int64_t first, int64_t last, int64_t begin, int64_t end) {
    static const dw_group_fn fns[2][2][2] = {{{dw_3x3, dw_3x3_slow}, {dw_3x3s2, dw_3x3s2_slow}},
                                             {{dw_5x5, dw_5x5_slow}, {dw_5x5s2, dw_5x5s2_slow}}};
    const dw_group_fn *fn = fns[k->problem->kernel_w == 5][k->problem->stride_w == 2];
    dw_line lines[DW_GROUP];
    for (int64_t i = first; i < last; i++) lines[i - first] = dw_line_of(k, i);
    for (int64_t c = begin; c < end; c += DW_BLOCK) {
        const dw_span s = dw_span_of(k, c, end);
        fn[!s.plain || s.count < DW_BLOCK](k, lines, last - first, &s);
    }
}

static void dw_tabulate(const wok_dwconv_s8_args *a, int64_t first, int64_t last, int64_t begin, int64_t end) {
    v_table table;
    v_table_make(&table, a->epilogue.table);
    for (int64_t m = first * a->out_w; m < last * a->out_w; m++)
        v_table_bytes(&table, (int8_t *)a->y + m * a->y_stride + begin, end - begin);
}

static void dw_rows(const void *arg, int64_t first, int64_t last, int64_t begin, int64_t end) {
    const dw_launch k = dw_launch_of(arg);
    /* a line of cache for every column and row: a quarter of a small first-level cache */
    const int64_t rows = wok_max64(1, wok_min64(DW_GROUP, 128 / wok_max64(k.args->in_w, 1)));
    for (int64_t i = first; i < last; i += rows) {
        const int64_t group = wok_min64(i + rows, last);
        if (wok_dwconv_s8_special(k.problem)) {
            dw_special(&k, i, group, begin, end);
        } else {
            for (int64_t r = i; r < group; r++) {
                const wok_dwconv_s8_row row = wok_dwconv_s8_row_at(k.problem, k.args, r);
                for (int64_t c = begin; c < end; c += DW_BLOCK) {
                    const dw_span s = dw_span_of(&k, c, end);
                    dw_pixels(&k, &row, &s, r * k.args->out_w);
                }
            }
        }
        if (k.args->epilogue.out == WOK_S8_OUT_S8 && k.args->epilogue.table) dw_tabulate(k.args, i, group, begin, end);
    }
}

static void dw_run(const wok_dwconv_problem *problem, const wok_dwconv_s8_args *args, const wok_parallel *parallel) {
    wok_dwconv_split(problem->channels, args->batch * args->out_h, dw_rows, &(wok_dwconv_s8_job){problem, args},
                     parallel);
}

#endif
