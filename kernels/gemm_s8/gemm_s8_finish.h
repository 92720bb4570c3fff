/* gemm_s8_finish.h - from sums to outputs, for every level that has lanes_<level>.h; include that first (internal).
 *
 * A panel at a time, all rows of the block below one another, so that what belongs to the columns stays in registers.
 * The output's kind and activation are constants of each instance, and so is whether zero points are plain: one offset for
 * all columns and one a_zero for all rows cost two additions, everything else a multiplication or two.
 * S8 goes by two rows, whose bytes share the narrowing. Tables are a pass over whole rows of finished bytes. */
#ifndef WOK_GEMM_S8_FINISH_H
#define WOK_GEMM_S8_FINISH_H

#include "gemm_s8_driver.h"
#include "../epilogue_s8_lanes.h"

#define EACH(t) _Pragma("GCC unroll 2") for (int t = 0; t < V_TILE; t++)

/* What belongs to the columns of a panel, `count` of which are there. */
typedef struct finish_columns {
    const wok_gemm_s8_walk *walk;
    const wok_gemm_s8_sums *sums;
    int64_t n, count;
    v_s32 colsum[V_TILE], offset[V_TILE]; /* plain: colsum times a_zero */
    v_f32 scale[V_TILE], bias[V_TILE];
} finish_columns;

/* The exact sums of row i of the block. */
WOK_INLINE void finish_exact(const finish_columns *c, int64_t i, const bool plain, v_s32 *x) {
    const wok_gemm_s8_rows *g = c->walk->job;
    const int32_t *acc = c->sums->acc + i * c->sums->acc_stride + (c->n - c->sums->column);
    const v_s32 row = v_set1_s32(c->sums->row_term[i]);
    EACH(t) {
        x[t] = v_load_s32(acc + t * V_LANES);
        if (plain) {
            x[t] = v_sub_s32(x[t], v_add_s32(c->colsum[t], row));
            continue;
        }
        const v_s32 zero = v_set1_s32(g->row_zero ? g->row_zero[c->sums->row + i] : g->a_zero);
        x[t] = v_sub_s32(x[t], c->walk->packed.uniform ? row : v_mul_s32(c->offset[t], row));
        x[t] = v_sub_s32(x[t], v_mul_s32(c->colsum[t], zero));
    }
}

WOK_INLINE void finish_s32(const finish_columns *c, int64_t i, const bool whole, const bool plain) {
    const wok_gemm_s8_rows *g = c->walk->job;
    int32_t *y = (int32_t *)g->c + (c->sums->row + i) * g->ldc + c->n;
    v_s32 x[V_TILE];
    finish_exact(c, i, plain, x);
    EACH(t) {
        if (whole)
            v_store_s32(y + t * V_LANES, x[t]);
        else
            v_store_part_s32(y + t * V_LANES, x[t], c->count - t * V_LANES);
    }
}

WOK_INLINE void finish_f32(const finish_columns *c, int64_t i, const wok_act act, const bool whole, const bool plain) {
    const wok_gemm_s8_rows *g = c->walk->job;
    const wok_epilogue_s8 *e = &g->epilogue;
    const int64_t m = c->sums->row + i;
    const float *r = e->residual ? (const float *)e->residual + m * e->residual_stride + c->n : NULL;
    float *y = (float *)g->c + m * g->ldc + c->n;
    v_s32 x[V_TILE];
    finish_exact(c, i, plain, x);
    EACH(t) {
        const int64_t left = c->count - t * V_LANES;
        v_f32 scale = e->row_scale ? v_mul(v_set1(e->row_scale[m]), c->scale[t]) : c->scale[t];
        v_f32 v = v_fma(v_float(x[t]), scale, c->bias[t]);
        if (r) v = v_add(v, whole ? v_load(r + t * V_LANES) : v_load_part(r + t * V_LANES, left));
        v = v_act(v, act, v_set1(e->act_lo), v_set1(e->act_hi));
        if (whole)
            v_store(y + t * V_LANES, v);
        else
            v_store_part(y + t * V_LANES, v, left);
    }
}

/* Row i of an S8 output as integers: what is far below has become INT32_MIN; zero and lo are left to do. */
WOK_INLINE void finish_requantize(const finish_columns *c, int64_t i, const bool whole, const bool plain, v_s32 *x) {
    const wok_epilogue_s8 *e = &c->walk->job->epilogue;
    const int8_t *r = (const int8_t *)e->residual;
    if (r) r += (c->sums->row + i) * e->residual_stride + c->n;
    finish_exact(c, i, plain, x);
    EACH(t) {
        v_f32 v = v_fma(v_float(x[t]), c->scale[t], c->bias[t]);
        if (r) {
            const v_s32 q = whole ? v_widen(r + t * V_LANES) : v_widen_part(r + t * V_LANES, c->count - t * V_LANES);
            v = v_fma(v_float(v_sub_s32(q, v_set1_s32(e->residual_zero))), v_set1(e->residual_scale), v);
        }
        x[t] = v_round(v_min(v_set1((float)(e->hi - e->zero)), v));
    }
}

/* Rows i and j; both may be the same. */
WOK_INLINE void finish_s8(const finish_columns *c, int64_t i, int64_t j, const bool whole, const bool plain) {
    const wok_gemm_s8_rows *g = c->walk->job;
    const v_pairs zero = v_set1_s32((int32_t)((uint16_t)g->epilogue.zero * 0x10001u)); /* 16-bit lanes */
    const v_bytes lo = v_set1_bytes((int8_t)g->epilogue.lo);
    int8_t *p = (int8_t *)g->c + (c->sums->row + i) * g->ldc + c->n, *q = p + (j - i) * g->ldc;
    v_s32 x[V_TILE], y[V_TILE];
    finish_requantize(c, i, whole, plain, x);
    finish_requantize(c, j, whole, plain, y);
    if (whole) {
        v_store_tiles(p, q, x, y, zero, lo);
        return;
    }
    int8_t bytes[2][WOK_GEMM_S8_PANEL];
    v_store_tiles(bytes[0], bytes[1], x, y, zero, lo);
    memcpy(p, bytes[0], (size_t)c->count);
    memcpy(q, bytes[1], (size_t)c->count);
}

/* Columns [n, n + count) of a panel; whole: count is all 16. */
WOK_INLINE void finish_panel(const wok_gemm_s8_walk *w, const wok_gemm_s8_sums *sums, int64_t n, int64_t count,
                             const wok_s8_out out, const wok_act act, const bool whole, const bool plain) {
    const wok_epilogue_s8 *e = &w->job->epilogue;
    finish_columns c = {.walk = w, .sums = sums, .n = n, .count = count};
    EACH(t) {
        c.colsum[t] = v_load_s32(w->packed.colsum + n + t * V_LANES);
        c.offset[t] = v_sub_s32(v_load_s32(w->packed.offset + n + t * V_LANES), v_set1_s32(w->tiles->shift));
        if (plain) c.colsum[t] = v_mul_s32(c.colsum[t], v_set1_s32(w->job->a_zero));
        if (out == WOK_S8_OUT_S32) continue;
        c.scale[t] = v_load_part(e->scale + n + t * V_LANES, count - t * V_LANES);
        c.bias[t] = e->bias ? v_load_part(e->bias + n + t * V_LANES, count - t * V_LANES) : v_set1(0);
    }
    for (int64_t i = 0; i < sums->count; i += out == WOK_S8_OUT_S8 ? 2 : 1) {
        if (out == WOK_S8_OUT_S32)
            finish_s32(&c, i, whole, plain);
        else if (out == WOK_S8_OUT_F32)
            finish_f32(&c, i, act, whole, plain);
        else
            finish_s8(&c, i, wok_min64(i + 1, sums->count - 1), whole, plain);
    }
}

WOK_INLINE void finish_with(const wok_gemm_s8_walk *w, const wok_gemm_s8_sums *sums, const wok_s8_out out,
                            const wok_act act, const bool plain) {
    int64_t n = sums->column, end = n + sums->columns;
    for (; n + WOK_GEMM_S8_PANEL <= end; n += WOK_GEMM_S8_PANEL)
        finish_panel(w, sums, n, WOK_GEMM_S8_PANEL, out, act, true, plain);
    if (n < end) finish_panel(w, sums, n, end - n, out, act, false, plain);
}

#define FINISH(name, out, act)                                                                                         \
    static void finish_out_##name(const wok_gemm_s8_walk *w, const wok_gemm_s8_sums *sums) {                           \
        if (w->packed.uniform && !w->job->row_zero)                                                                    \
            finish_with(w, sums, out, act, true);                                                                      \
        else                                                                                                           \
            finish_with(w, sums, out, act, false);                                                                     \
    }
FINISH(s32, WOK_S8_OUT_S32, WOK_ACT_NONE)
FINISH(s8, WOK_S8_OUT_S8, WOK_ACT_NONE)
FINISH(none, WOK_S8_OUT_F32, WOK_ACT_NONE)
FINISH(clamp, WOK_S8_OUT_F32, WOK_ACT_CLAMP)
FINISH(gelu, WOK_S8_OUT_F32, WOK_ACT_GELU)
FINISH(gelu_tanh, WOK_S8_OUT_F32, WOK_ACT_GELU_TANH)
FINISH(tanh, WOK_S8_OUT_F32, WOK_ACT_TANH)
FINISH(sigmoid, WOK_S8_OUT_F32, WOK_ACT_SIGMOID)
#undef FINISH
#undef EACH

static void finish(const wok_gemm_s8_walk *w, const wok_gemm_s8_sums *sums) {
    if (w->job->epilogue.out == WOK_S8_OUT_S32) {
        finish_out_s32(w, sums);
        return;
    }
    if (w->job->epilogue.out == WOK_S8_OUT_S8) {
        finish_out_s8(w, sums);
        return;
    }
    switch (w->job->epilogue.act) {
    case WOK_ACT_NONE:
        finish_out_none(w, sums);
        break;
    case WOK_ACT_CLAMP:
        finish_out_clamp(w, sums);
        break;
    case WOK_ACT_GELU:
        finish_out_gelu(w, sums);
        break;
    case WOK_ACT_GELU_TANH:
        finish_out_gelu_tanh(w, sums);
        break;
    case WOK_ACT_TANH:
        finish_out_tanh(w, sums);
        break;
    case WOK_ACT_SIGMOID:
        finish_out_sigmoid(w, sums);
        break;
    }
}

/* The table's pass: columns [n, n + columns) of a chunk, in the second-level cache at worst. */
static void finish_table(const wok_gemm_s8_walk *w, int64_t n, int64_t columns) {
    int8_t *y = (int8_t *)w->job->c + w->row * w->job->ldc + n;
    for (int64_t i = 0; i < w->rows; i++, y += w->job->ldc) v_table_bytes(w->scratch->table, y, columns);
}

#endif
