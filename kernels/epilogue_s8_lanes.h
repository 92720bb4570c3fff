/* epilogue_s8_lanes.h - the integer families' epilogue on V_LANES columns of a row, with the bits of epilogue_s8_ref.h;
 * include lanes_<level>.h before it (internal).
 *
 * For S8, the upper bound is applied before the conversion, which turns what is far below into INT32_MIN, and the lower
 * bound after it; so a NaN becomes lo. Tables are a pass of their own over finished bytes (v_table_bytes), which are in
 * the first-level cache. */
#ifndef WOK_EPILOGUE_S8_LANES_H
#define WOK_EPILOGUE_S8_LANES_H

#include "table_s8.h"

/* Stores columns n .. n + count - 1 (count <= V_LANES) of row m, `index` elements into y; any output but the table. */
static __attribute__((noinline, unused)) void v_epilogue_s8(v_s32 acc, int64_t m, int64_t n, int64_t count,
                                                    const wok_epilogue_s8 *e, void *y, int64_t index) {
    if (e->out == WOK_S8_OUT_S32) {
        v_store_part_s32((int32_t *)y + index, acc, count);
        return;
    }
    const int64_t r = m * e->residual_stride + n;
    v_f32 scale = v_load_part(e->scale + n, count);
    if (e->out == WOK_S8_OUT_F32 && e->row_scale) scale = v_mul(v_set1(e->row_scale[m]), scale);
    v_f32 v = v_fma(v_float(acc), scale, e->bias ? v_load_part(e->bias + n, count) : v_set1(0));
    if (e->out == WOK_S8_OUT_F32) {
        if (e->residual) v = v_add(v, v_load_part((const float *)e->residual + r, count));
        v_store_part((float *)y + index, v_act(v, e->act, v_set1(e->act_lo), v_set1(e->act_hi)), count);
        return;
    }
    if (e->residual) {
        v_s32 q = v_sub_s32(v_widen_part((const int8_t *)e->residual + r, count), v_set1_s32(e->residual_zero));
        v = v_fma(v_float(q), v_set1(e->residual_scale), v);
    }
    v = v_max(v_min(v_set1((float)(e->hi - e->zero)), v), v_set1((float)(e->lo - e->zero)));
    const v_s32 q = v_add_s32(v_round(v), v_set1_s32(e->zero));
    int8_t bytes[V_BYTES];
    v_store_bytes(bytes, v_narrow(q, q, q, q));
    memcpy((int8_t *)y + index, bytes, (size_t)count);
}

/* y = table[y + 128] for n bytes. */
static inline void v_table_bytes(const v_table *t, int8_t *y, int64_t n) {
    for (; n >= V_BYTES; n -= V_BYTES, y += V_BYTES) v_store_bytes(y, v_table_apply(t, v_load_bytes(y)));
    if (n <= 0) return;
    int8_t tail[V_BYTES] = {0};
    memcpy(tail, y, (size_t)n);
    v_store_bytes(tail, v_table_apply(t, v_load_bytes(tail)));
    memcpy(y, tail, (size_t)n);
}

#endif
