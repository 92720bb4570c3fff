/* math_avx512.h - vector functions and small tools for files of level avx512 (internal); approximations: math_poly.h.
 *
 * The same formulas in the same order as math_avx2.h: an element has the same bits at both levels. */
#ifndef WOK_MATH_AVX512_H
#define WOK_MATH_AVX512_H

#include "common.h"
#include "math_poly.h"

#include <immintrin.h>

#define WOK_V(x) _mm512_set1_ps(x)

/* The first n lanes: none for n <= 0, all for n >= 16. */
WOK_INLINE __mmask16 wok_mask_avx512(int64_t n) {
    return (__mmask16)(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1);
}

/* Lanes in a fixed tree: halves, quarters, eighths, neighbours. (_mm512_reduce_add_ps leaves the order to the compiler.) */
WOK_INLINE float wok_sum_avx512(__m512 x) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

WOK_INLINE float wok_max_avx512(__m512 x) {
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* min(max(x, lo), hi); x where a comparison is unordered, because the instructions then return their second operand. */
WOK_INLINE __m512 wok_clamp_avx512(__m512 x, __m512 lo, __m512 hi) { return _mm512_min_ps(hi, _mm512_max_ps(lo, x)); }

/* e^x up to WOK_EXP_MAX; beyond it the result is of no use. */
WOK_INLINE __m512 wok_exp_finite_avx512(__m512 x) {
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, WOK_V(WOK_LOG2_E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, WOK_V(WOK_LN2_HIGH), x);
    r = _mm512_fnmadd_ps(n, WOK_V(WOK_LN2_LOW), r);
    __m512 q = _mm512_fmadd_ps(WOK_V(WOK_EXP_E4), r, WOK_V(WOK_EXP_E3));
    q = _mm512_fmadd_ps(q, r, WOK_V(WOK_EXP_E2));
    q = _mm512_fmadd_ps(q, r, WOK_V(WOK_EXP_E1));
    q = _mm512_fmadd_ps(q, r, WOK_V(WOK_EXP_E0));
    __m512 p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r), WOK_V(1));
    /* 2^n: n into the exponent field. NaN stays NaN, because its n converts to 2^31 and leaves no bit. */
    __m512i y = _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23));
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, WOK_V(WOK_EXP_MIN), _CMP_NLT_UQ), _mm512_castsi512_ps(y));
}

WOK_INLINE __m512 wok_exp_avx512(__m512 x) {
    __mmask16 overflow = _mm512_cmp_ps_mask(x, WOK_V(WOK_EXP_MAX), _CMP_GT_OQ);
    return _mm512_mask_blend_ps(overflow, wok_exp_finite_avx512(x), WOK_V(INFINITY));
}

/* erfc(t) for t >= 0 */
WOK_INLINE __m512 wok_erfc_avx512(__m512 t) {
    __m512 c = _mm512_min_ps(WOK_V(WOK_ERFC_LIMIT), t);
    __m512 q = _mm512_fmadd_ps(WOK_V(WOK_ERFC_Q10), c, WOK_V(WOK_ERFC_Q9));
    q = _mm512_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q8));
    q = _mm512_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q7));
    q = _mm512_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q6));
    q = _mm512_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q5));
    q = _mm512_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q4));
    q = _mm512_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q3));
    q = _mm512_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q2));
    q = _mm512_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q1));
    q = _mm512_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q0));
    return wok_exp_finite_avx512(_mm512_mul_ps(_mm512_xor_ps(t, WOK_V(-0.0f)), q));
}

WOK_INLINE __m512 wok_erf_avx512(__m512 x) {
    const __m512 sign = WOK_V(-0.0f);
    __m512 t = _mm512_andnot_ps(sign, x), s = _mm512_mul_ps(x, x);
    __m512 q = _mm512_fmadd_ps(WOK_V(WOK_ERF_F5), s, WOK_V(WOK_ERF_F4));
    q = _mm512_fmadd_ps(q, s, WOK_V(WOK_ERF_F3));
    q = _mm512_fmadd_ps(q, s, WOK_V(WOK_ERF_F2));
    q = _mm512_fmadd_ps(q, s, WOK_V(WOK_ERF_F1));
    q = _mm512_fmadd_ps(q, s, WOK_V(WOK_ERF_F0));
    __m512 large = _mm512_or_ps(_mm512_sub_ps(WOK_V(1), wok_erfc_avx512(t)), _mm512_and_ps(sign, x));
    __mmask16 small = _mm512_cmp_ps_mask(t, WOK_V(WOK_ERF_LIMIT), _CMP_LT_OQ);
    return _mm512_mask_blend_ps(small, large, _mm512_fmadd_ps(x, q, x));
}

WOK_INLINE __m512 wok_tanh_avx512(__m512 x) {
    const __m512 sign = WOK_V(-0.0f);
    __m512 t = _mm512_andnot_ps(sign, x), s = _mm512_mul_ps(x, x);
    __m512 q = _mm512_fmadd_ps(WOK_V(WOK_TANH_T4), s, WOK_V(WOK_TANH_T3));
    q = _mm512_fmadd_ps(q, s, WOK_V(WOK_TANH_T2));
    q = _mm512_fmadd_ps(q, s, WOK_V(WOK_TANH_T1));
    q = _mm512_fmadd_ps(q, s, WOK_V(WOK_TANH_T0));
    __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(s, x), q, x);
    __m512 e = wok_exp_finite_avx512(_mm512_min_ps(WOK_V(20), _mm512_add_ps(t, t))); /* 1 - tanh(10) < 2^-27 */
    __m512 large = _mm512_sub_ps(WOK_V(1), _mm512_div_ps(WOK_V(2), _mm512_add_ps(e, WOK_V(1))));
    __mmask16 is_small = _mm512_cmp_ps_mask(t, WOK_V(WOK_TANH_LIMIT), _CMP_LT_OQ);
    return _mm512_mask_blend_ps(is_small, _mm512_or_ps(large, _mm512_and_ps(sign, x)), small);
}

/* 1 / (1 + e^-x) */
WOK_INLINE __m512 wok_sigmoid_avx512(__m512 x) {
    return _mm512_div_ps(WOK_V(1), _mm512_add_ps(WOK_V(1), wok_exp_avx512(_mm512_xor_ps(x, WOK_V(-0.0f)))));
}

/* x/2 (1 + erf(x / sqrt 2)), from erfc of |x|: nothing cancels on the negative side. */
WOK_INLINE __m512 wok_gelu_avx512(__m512 x) {
    __m512 t = _mm512_mul_ps(_mm512_andnot_ps(WOK_V(-0.0f), x), WOK_V(0x1.6a09e6p-1f));
    __m512 tail = _mm512_mul_ps(WOK_V(0.5f), wok_erfc_avx512(t));
    __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
    return _mm512_mul_ps(x, _mm512_mask_blend_ps(negative, _mm512_sub_ps(WOK_V(1), tail), tail));
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x / (1 + e^-2(...)) */
WOK_INLINE __m512 wok_gelu_tanh_avx512(__m512 x) {
    const float c = -0x1.988454p+0f; /* -2 sqrt(2 / pi) */
    __m512 u = _mm512_mul_ps(x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), WOK_V(c * 0.044715f), WOK_V(c)));
    return _mm512_div_ps(x, _mm512_add_ps(WOK_V(1), wok_exp_avx512(u)));
}

/* The activation of an epilogue; `act` is a constant where it matters. */
WOK_INLINE __m512 wok_act_avx512(__m512 x, wok_act act, __m512 lo, __m512 hi) {
    switch (act) {
    case WOK_ACT_CLAMP: return wok_clamp_avx512(x, lo, hi);
    case WOK_ACT_GELU: return wok_gelu_avx512(x);
    case WOK_ACT_GELU_TANH: return wok_gelu_tanh_avx512(x);
    case WOK_ACT_TANH: return wok_tanh_avx512(x);
    case WOK_ACT_SIGMOID: return wok_sigmoid_avx512(x);
    default: return x;
    }
}

#undef WOK_V
#endif
