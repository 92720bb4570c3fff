/* epilogue_s8_ref.h - the integer families' epilogue, one element at a time, for the reference kernels and as the oracle of
 * the tests (internal). The order of operations and their roundings are the contract (wok_kernels.h): every variant gives
 * these bits. Activations of f32 outputs alone are computed in double here and within math_avx2.h's bound elsewhere. */
#ifndef WOK_EPILOGUE_S8_REF_H
#define WOK_EPILOGUE_S8_REF_H

#include "epilogue_ref.h"

static inline int32_t wok_clamp_s8(float v, int32_t zero, int32_t lo, int32_t hi) {
    /* clamped before it is converted: beyond int32 the conversion has no meaning, and the bounds are whole numbers; a NaN
     * (of a damaged model's scales) becomes lo */
    float low = (float)(lo - zero), high = (float)(hi - zero);
    return (int32_t)rintf(v > high ? high : v > low ? v : low) + zero;
}

/* Stores element (m, n) of the output, `index` = m * ldc + n elements into y. */
static inline void wok_epilogue_s8_ref(int32_t acc, int64_t m, int64_t n, const wok_epilogue_s8 *e, void *y,
                                       int64_t index) {
    if (e->out == WOK_S8_OUT_S32) {
        ((int32_t *)y)[index] = acc;
        return;
    }
    int64_t r = m * e->residual_stride + n;
    float bias = e->bias ? e->bias[n] : 0.0f;
    if (e->out == WOK_S8_OUT_F32) {
        float s = e->row_scale ? e->row_scale[m] * e->scale[n] : e->scale[n];
        float v = fmaf((float)acc, s, bias);
        if (e->residual) v += ((const float *)e->residual)[r];
        ((float *)y)[index] = e->act == WOK_ACT_NONE    ? v
                              : e->act == WOK_ACT_CLAMP ? wok_clampf(v, e->act_lo, e->act_hi)
                                                        : (float)wok_act_ref((double)v, e->act, e->act_lo, e->act_hi);
        return;
    }
    float v = fmaf((float)acc, e->scale[n], bias);
    if (e->residual)
        v = fmaf((float)((int32_t)((const int8_t *)e->residual)[r] - e->residual_zero), e->residual_scale, v);
    int32_t q = wok_clamp_s8(v, e->zero, e->lo, e->hi);
    ((int8_t *)y)[index] = e->table ? e->table[q + 128] : (int8_t)q;
}


#endif
