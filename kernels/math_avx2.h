/* math_avx2.h - vector functions and small tools for files of level avx2 (internal); approximations: math_poly.h.
 *
 * Every function keeps NaN and treats infinities as limits. Measured worst errors over all exponents: exp 1.0 ulp, erf 1.2,
 * tanh 1.3, sigmoid 2.3 ulp; GELU 1.5 and GELU_TANH 1.9 times 2^-24 max(1, |x|). */
#ifndef WOK_MATH_AVX2_H
#define WOK_MATH_AVX2_H

#include "common.h"
#include "math_poly.h"

#include <immintrin.h>

#define WOK_V(x) _mm256_set1_ps(x)

/* The first n lanes: none for n <= 0, all for n >= 8. */
WOK_INLINE __m256i wok_mask_avx2(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)wok_min64(n, 8)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Lanes in a fixed tree: halves, then quarters, then neighbours. */
WOK_INLINE float wok_sum_avx2(__m256 x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

WOK_INLINE float wok_max_avx2(__m256 x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* min(max(x, lo), hi); x where a comparison is unordered, because the instructions then return their second operand. */
WOK_INLINE __m256 wok_clamp_avx2(__m256 x, __m256 lo, __m256 hi) { return _mm256_min_ps(hi, _mm256_max_ps(lo, x)); }

/* e^x up to WOK_EXP_MAX; beyond it the result is of no use. */
WOK_INLINE __m256 wok_exp_finite_avx2(__m256 x) {
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, WOK_V(WOK_LOG2_E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, WOK_V(WOK_LN2_HIGH), x);
    r = _mm256_fnmadd_ps(n, WOK_V(WOK_LN2_LOW), r);
    __m256 q = _mm256_fmadd_ps(WOK_V(WOK_EXP_E4), r, WOK_V(WOK_EXP_E3));
    q = _mm256_fmadd_ps(q, r, WOK_V(WOK_EXP_E2));
    q = _mm256_fmadd_ps(q, r, WOK_V(WOK_EXP_E1));
    q = _mm256_fmadd_ps(q, r, WOK_V(WOK_EXP_E0));
    __m256 p = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r), WOK_V(1));
    /* 2^n: n into the exponent field. NaN stays NaN, because its n converts to 2^31 and leaves no bit. */
    __m256i y = _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, WOK_V(WOK_EXP_MIN), _CMP_LT_OQ), _mm256_castsi256_ps(y));
}

WOK_INLINE __m256 wok_exp_avx2(__m256 x) {
    return _mm256_blendv_ps(wok_exp_finite_avx2(x), WOK_V(INFINITY), _mm256_cmp_ps(x, WOK_V(WOK_EXP_MAX), _CMP_GT_OQ));
}

/* erfc(t) for t >= 0 */
WOK_INLINE __m256 wok_erfc_avx2(__m256 t) {
    __m256 c = _mm256_min_ps(WOK_V(WOK_ERFC_LIMIT), t);
    __m256 q = _mm256_fmadd_ps(WOK_V(WOK_ERFC_Q10), c, WOK_V(WOK_ERFC_Q9));
    q = _mm256_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q8));
    q = _mm256_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q7));
    q = _mm256_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q6));
    q = _mm256_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q5));
    q = _mm256_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q4));
    q = _mm256_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q3));
    q = _mm256_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q2));
    q = _mm256_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q1));
    q = _mm256_fmadd_ps(q, c, WOK_V(WOK_ERFC_Q0));
    return wok_exp_finite_avx2(_mm256_mul_ps(_mm256_xor_ps(t, WOK_V(-0.0f)), q));
}

WOK_INLINE __m256 wok_erf_avx2(__m256 x) {
    const __m256 sign = WOK_V(-0.0f);
    __m256 t = _mm256_andnot_ps(sign, x), s = _mm256_mul_ps(x, x);
    __m256 q = _mm256_fmadd_ps(WOK_V(WOK_ERF_F5), s, WOK_V(WOK_ERF_F4));
    q = _mm256_fmadd_ps(q, s, WOK_V(WOK_ERF_F3));
    q = _mm256_fmadd_ps(q, s, WOK_V(WOK_ERF_F2));
    q = _mm256_fmadd_ps(q, s, WOK_V(WOK_ERF_F1));
    q = _mm256_fmadd_ps(q, s, WOK_V(WOK_ERF_F0));
    __m256 large = _mm256_or_ps(_mm256_sub_ps(WOK_V(1), wok_erfc_avx2(t)), _mm256_and_ps(sign, x));
    return _mm256_blendv_ps(large, _mm256_fmadd_ps(x, q, x), _mm256_cmp_ps(t, WOK_V(WOK_ERF_LIMIT), _CMP_LT_OQ));
}

WOK_INLINE __m256 wok_tanh_avx2(__m256 x) {
    const __m256 sign = WOK_V(-0.0f);
    __m256 t = _mm256_andnot_ps(sign, x), s = _mm256_mul_ps(x, x);
    __m256 q = _mm256_fmadd_ps(WOK_V(WOK_TANH_T4), s, WOK_V(WOK_TANH_T3));
    q = _mm256_fmadd_ps(q, s, WOK_V(WOK_TANH_T2));
    q = _mm256_fmadd_ps(q, s, WOK_V(WOK_TANH_T1));
    q = _mm256_fmadd_ps(q, s, WOK_V(WOK_TANH_T0));
    __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(s, x), q, x);
    __m256 e = wok_exp_finite_avx2(_mm256_min_ps(WOK_V(20), _mm256_add_ps(t, t))); /* 1 - tanh(10) < 2^-27 */
    __m256 large = _mm256_sub_ps(WOK_V(1), _mm256_div_ps(WOK_V(2), _mm256_add_ps(e, WOK_V(1))));
    return _mm256_blendv_ps(_mm256_or_ps(large, _mm256_and_ps(sign, x)), small,
                            _mm256_cmp_ps(t, WOK_V(WOK_TANH_LIMIT), _CMP_LT_OQ));
}

/* 1 / (1 + e^-x) */
WOK_INLINE __m256 wok_sigmoid_avx2(__m256 x) {
    return _mm256_div_ps(WOK_V(1), _mm256_add_ps(WOK_V(1), wok_exp_avx2(_mm256_xor_ps(x, WOK_V(-0.0f)))));
}

/* x/2 (1 + erf(x / sqrt 2)), from erfc of |x|: nothing cancels on the negative side. */
WOK_INLINE __m256 wok_gelu_avx2(__m256 x) {
    __m256 t = _mm256_mul_ps(_mm256_andnot_ps(WOK_V(-0.0f), x), WOK_V(0x1.6a09e6p-1f));
    __m256 tail = _mm256_mul_ps(WOK_V(0.5f), wok_erfc_avx2(t));
    return _mm256_mul_ps(x, _mm256_blendv_ps(_mm256_sub_ps(WOK_V(1), tail), tail, x));
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x / (1 + e^-2(...)) */
WOK_INLINE __m256 wok_gelu_tanh_avx2(__m256 x) {
    const float c = -0x1.988454p+0f; /* -2 sqrt(2 / pi) */
    __m256 u = _mm256_mul_ps(x, _mm256_fmadd_ps(_mm256_mul_ps(x, x), WOK_V(c * 0.044715f), WOK_V(c)));
    return _mm256_div_ps(x, _mm256_add_ps(WOK_V(1), wok_exp_avx2(u)));
}

/* The activation of an epilogue; `act` is a constant where it matters. */
WOK_INLINE __m256 wok_act_avx2(__m256 x, wok_act act, __m256 lo, __m256 hi) {
    switch (act) {
    case WOK_ACT_CLAMP: return wok_clamp_avx2(x, lo, hi);
    case WOK_ACT_GELU: return wok_gelu_avx2(x);
    case WOK_ACT_GELU_TANH: return wok_gelu_tanh_avx2(x);
    case WOK_ACT_TANH: return wok_tanh_avx2(x);
    case WOK_ACT_SIGMOID: return wok_sigmoid_avx2(x);
    default: return x;
    }
}

#undef WOK_V
#endif
