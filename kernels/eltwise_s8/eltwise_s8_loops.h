/* eltwise_s8_loops.h - the loops of eltwise_s8, compiled into each vector variant after lanes_<level>.h.
 *
 * A block is V_BYTES elements: one register of bytes, four of f32. A tail is copied into a block of its own, so that it
 * runs the same instructions. Bound: memory beyond the second level; before it the division (4 a block of 32).
 * Measured on Zen 3, 128x768 in the second level: quantize 6.7 Gelement/s, rows 3.9, dequantize 14, add 3.5, table 6.3
 * (by byte loads 1.6). */
#ifndef WOK_ELTWISE_S8_LOOPS_H
#define WOK_ELTWISE_S8_LOOPS_H

#include "eltwise_s8.h"
#include "../table_s8.h"

/* What a block needs beside its elements. */
typedef struct elt_constants {
    v_f32 a_scale, b_scale, y_scale;
    v_s32 a_zero, b_zero, y_zero;
    v_f32 lo, hi; /* of the rounded quotient, before the zero point is added */
    const v_table *table;
} elt_constants;

WOK_INLINE elt_constants quantizer(float scale, int32_t zero, int32_t lo, int32_t hi) {
    return (elt_constants){.y_scale = v_set1(scale),
                           .y_zero = v_set1_s32(zero),
                           .lo = v_set1((float)(lo - zero)),
                           .hi = v_set1((float)(hi - zero))};
}

WOK_INLINE v_s32 quantize(const elt_constants *k, v_f32 x) {
    v_f32 v = v_number(v_div(x, k->y_scale));
    return v_add_s32(v_round(v_min(v_max(v, k->lo), k->hi)), k->y_zero);
}

WOK_INLINE v_f32 dequantize(const int8_t *q, v_s32 zero, v_f32 scale) {
    return v_mul(v_float(v_sub_s32(v_widen(q), zero)), scale);
}

/* ---- one block: y from a (and b) --------------------------------------------------------------------------------- */

WOK_INLINE void quantize_block(const elt_constants *k, const void *a, const void *b, void *y) {
    const float *x = a;
    (void)b;
    v_store_bytes(y, v_narrow(quantize(k, v_load(x)), quantize(k, v_load(x + V_LANES)),
                              quantize(k, v_load(x + 2 * V_LANES)), quantize(k, v_load(x + 3 * V_LANES))));
}

WOK_INLINE void dequantize_block(const elt_constants *k, const void *a, const void *b, void *y) {
    (void)b;
#pragma GCC unroll 4
    for (int i = 0; i < V_BYTES; i += V_LANES)
        v_store((float *)y + i, dequantize((const int8_t *)a + i, k->a_zero, k->a_scale));
}

WOK_INLINE void table_block(const elt_constants *k, const void *a, const void *b, void *y) {
    (void)b;
    v_store_bytes(y, v_table_apply(k->table, v_load_bytes(a)));
}

WOK_INLINE v_s32 combine(const elt_constants *k, const int8_t *a, const int8_t *b, const bool product) {
    v_f32 u = dequantize(a, k->a_zero, k->a_scale), v = dequantize(b, k->b_zero, k->b_scale);
    return quantize(k, product ? v_mul(u, v) : v_add(u, v));
}

WOK_INLINE void combine_block(const elt_constants *k, const int8_t *a, const int8_t *b, int8_t *y, const bool product) {
    v_store_bytes(y, v_narrow(combine(k, a, b, product), combine(k, a + V_LANES, b + V_LANES, product),
                              combine(k, a + 2 * V_LANES, b + 2 * V_LANES, product),
                              combine(k, a + 3 * V_LANES, b + 3 * V_LANES, product)));
}

WOK_INLINE void add_block(const elt_constants *k, const void *a, const void *b, void *y) {
    combine_block(k, a, b, y, false);
}
WOK_INLINE void mul_block(const elt_constants *k, const void *a, const void *b, void *y) {
    combine_block(k, a, b, y, true);
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

typedef void (*elt_block_fn)(const elt_constants *k, const void *a, const void *b, void *y);

/* n elements of a_size and y_size bytes; b's are bytes. A step of 0: one byte for all. */
WOK_INLINE void walk(elt_block_fn block, const elt_constants *k, int64_t n, const void *a, const size_t a_size,
                     const bool a_step, const void *b, const bool b_step, void *y, const size_t y_size) {
    const char *x = a, *z = b;
    char *out = y;
    for (; n >= V_BYTES; n -= V_BYTES) {
        block(k, x, z, out);
        if (a_step) x += V_BYTES * a_size;
        if (b_step) z += V_BYTES;
        out += V_BYTES * y_size;
    }
    if (n == 0) return;
    char x_tail[V_BYTES * sizeof(float)] = {0}, z_tail[V_BYTES], y_tail[V_BYTES * sizeof(float)];
    memcpy(x_tail, x, (size_t)(a_step ? n : V_BYTES) * a_size);
    if (b) memcpy(z_tail, z, (size_t)(b_step ? n : V_BYTES));
    block(k, x_tail, z_tail, y_tail);
    memcpy(out, y_tail, (size_t)n * y_size);
}

static void quantize_range(const float *a, int64_t n, float scale, int32_t zero, int8_t *y) {
    const elt_constants k = quantizer(scale, zero, -128, 127);
    walk(quantize_block, &k, n, a, sizeof *a, true, NULL, true, y, 1);
}

static void dequantize_range(const wok_eltwise_s8_args *args, int64_t begin, int64_t n) {
    const elt_constants k = {.a_scale = v_set1(args->a_scale), .a_zero = v_set1_s32(args->a_zero)};
    walk(dequantize_block, &k, n, (const int8_t *)args->a + begin, 1, true, NULL, true, (float *)args->y + begin,
         sizeof(float));
}

static void table_range(const wok_eltwise_s8_args *args, int64_t begin, int64_t n) {
    v_table table;
    v_table_make(&table, args->table);
    const elt_constants k = {.table = &table};
    walk(table_block, &k, n, (const int8_t *)args->a + begin, 1, true, NULL, true, (int8_t *)args->y + begin, 1);
}

/* A repeated byte becomes a block that the walk stays on. */
WOK_INLINE const int8_t *operand(const void *p, int64_t step, int64_t begin, int8_t *repeated) {
    if (step) return (const int8_t *)p + begin;
    memset(repeated, *(const int8_t *)p, V_BYTES);
    return repeated;
}

WOK_INLINE void combine_range(elt_block_fn block, const wok_eltwise_s8_args *args, int64_t begin, int64_t n) {
    elt_constants k = quantizer(args->y_scale, args->y_zero, args->lo, args->hi);
    k.a_scale = v_set1(args->a_scale), k.a_zero = v_set1_s32(args->a_zero);
    k.b_scale = v_set1(args->b_scale), k.b_zero = v_set1_s32(args->b_zero);
    int8_t repeated[2][V_BYTES];
    walk(block, &k, n, operand(args->a, args->a_step, begin, repeated[0]), 1, args->a_step != 0,
         operand(args->b, args->b_step, begin, repeated[1]), args->b_step != 0, (int8_t *)args->y + begin, 1);
}

static void elt_range(wok_eltwise_s8_op op, const wok_eltwise_s8_args *args, int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    switch (op) {
    case WOK_ELT_S8_QUANTIZE:
        quantize_range((const float *)args->a + begin, n, args->y_scale, args->y_zero, (int8_t *)args->y + begin);
        break;
    case WOK_ELT_S8_DEQUANTIZE: dequantize_range(args, begin, n); break;
    case WOK_ELT_S8_TABLE: table_range(args, begin, n); break;
    case WOK_ELT_S8_ADD: combine_range(add_block, args, begin, n); break;
    case WOK_ELT_S8_MUL: combine_range(mul_block, args, begin, n); break;
    case WOK_ELT_S8_QUANTIZE_ROWS: break;
    }
}

/* ---- the extent of a row ----------------------------------------------------------------------------------------- */

typedef struct elt_extent {
    v_f32 lo, hi, special;
} elt_extent;

/* Infinities times 0 are NaN, and so is NaN; a NaN in x leaves lo and hi as they are. */
WOK_INLINE void look(elt_extent *e, v_f32 x) {
    e->lo = v_min(x, e->lo);
    e->hi = v_max(x, e->hi);
    e->special = v_fma(x, v_set1(0), e->special);
}

/* Four chains hide the latency; the zeros past the end of a tail change nothing, for lo <= 0 <= hi. */
static wok_extent elt_row_extent(const float *a, int64_t n) {
    elt_extent e[4];
    for (int i = 0; i < 4; i++) e[i] = (elt_extent){v_set1(0), v_set1(0), v_set1(0)};
    for (; n >= V_BYTES; n -= V_BYTES, a += V_BYTES) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) look(&e[i], v_load(a + i * V_LANES));
    }
    for (; n > 0; n -= V_LANES, a += V_LANES) look(&e[0], v_load_part(a, n));
    float lo[V_BYTES], hi[V_BYTES], special[V_BYTES];
    for (int i = 0; i < 4; i++) {
        v_store(lo + i * V_LANES, e[i].lo);
        v_store(hi + i * V_LANES, e[i].hi);
        v_store(special + i * V_LANES, e[i].special);
    }
    wok_extent all = {0, 0, 0};
    for (int i = 0; i < V_BYTES; i++) {
        all.lo = lo[i] < all.lo ? lo[i] : all.lo;
        all.hi = hi[i] > all.hi ? hi[i] : all.hi;
        all.special += special[i];
    }
    return all;
}

static void elt_run(const wok_eltwise_s8_problem *problem, const wok_eltwise_s8_args *args,
                    const wok_parallel *parallel) {
    wok_eltwise_s8_drive(problem->op, args, &(wok_eltwise_s8_loops){elt_range, elt_row_extent, quantize_range},
                         parallel);
}

#endif
