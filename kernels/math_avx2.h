/* math_avx2.h - exp, erf, tanh, sigmoid, GELU on eight floats, shared by all avx2 kernels (internal).
 *
 * A lane's result depends on that lane only, so a masked tail has the bits of the body. NaN stays NaN. Nothing here
 * depends on flush-to-zero: results below 2^-126 are 0.
 * Largest error over all floats (tests: check_eltwise.c), u = 2^-24:
 *   exp      1.5 u |y|         erf      1.5 u |y|     tanh     3.1 u |y|     sigmoid  2.5 u |y|
 *   gelu     2 u max(1, |x|), relative 2.5e-5 down to x = -7    gelu_tanh 2.1 u max(1, |x|)
 * Polynomials are weighted minimax fits (Lawson's iteration on the weights of a least-squares fit, in 50 digits):
 *   exp   2^n e^r, |r| <= ln2 / 2, n rounded by adding 1.5 * 2^23; ln2 in two terms (Cody and Waite 1980)
 *   erf   t P(t^2) below 0.9, else 1 - e^(t Q(t)) with Q(t) ~ log(erfc t) / t
 *   gelu  x Phi(x), Phi from e^(t Q(t)) / 2 on either side: one branch, and no cancellation on the left
 *   tanh  e / (e + 2), e = e^(2|x|) - 1 put together so that it does not cancel
 * As in the formulas of PyTorch and ONNX, GELU of -inf is NaN. math_avx512.h is the same arithmetic, bit for bit. */
#ifndef WOK_MATH_AVX2_H
#define WOK_MATH_AVX2_H

#include "common.h"

#include <immintrin.h>

#define WOK_V(c) _mm256_set1_ps(c)

/* All ones in the first n lanes; n is cut to 0 .. 8. */
WOK_INLINE __m256i wok_mask_avx2(int64_t n) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < 8 ? n : 8)), lane);
}

/* ((0+4)+(2+6)) + ((1+5)+(3+7)) */
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

/* x = n ln2 + r. Returns e^r - 1; *scale is 2^n, as bits, for n in -126 .. 127 and NaN goes through the former. The
 * rounding constant carries the exponent bias. */
WOK_INLINE __m256 wok_exp_reduced_avx2(__m256 x, __m256i *scale) {
    const __m256 magic = WOK_V(0x1.8p23f + 127.0f);
    __m256 shifted = _mm256_fmadd_ps(x, WOK_V(0x1.715476p+0f), magic); /* log2 e */
    __m256 n = _mm256_sub_ps(shifted, magic);
    *scale = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    __m256 r = _mm256_fnmadd_ps(n, WOK_V(0x1.62e4p-1f), x); /* 15 bits: n times it is exact */
    r = _mm256_fnmadd_ps(n, WOK_V(0x1.7f7d1cp-20f), r);
    __m256 q = WOK_V(0.001381446475204299f);
    q = _mm256_fmadd_ps(q, r, WOK_V(0.008368780622225425f));
    q = _mm256_fmadd_ps(q, r, WOK_V(0.04166839425915821f));
    q = _mm256_fmadd_ps(q, r, WOK_V(0.16666520105546237f));
    q = _mm256_fmadd_ps(q, r, WOK_V(0.4999999341226102f));
    return _mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r);
}

WOK_INLINE __m256 wok_exp_underflow_avx2(__m256 y, __m256 x) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, WOK_V(-0x1.5d589ep+6f), _CMP_LT_OQ), y); /* -126 ln2 */
}

/* e^x for x <= 88 or NaN (softmax arguments, tails of GELU): three instructions less. */
WOK_INLINE __m256 wok_exp_low_avx2(__m256 x) {
    __m256i scale;
    __m256 s = wok_exp_reduced_avx2(x, &scale);
    return wok_exp_underflow_avx2(_mm256_fmadd_ps(s, _mm256_castsi256_ps(scale), _mm256_castsi256_ps(scale)), x);
}

/* 2^128 is no float, so the exponent is added to e^r as an integer: e^r < 1 there. */
WOK_INLINE __m256 wok_exp_avx2(__m256 x) {
    __m256i scale;
    __m256 p = _mm256_add_ps(wok_exp_reduced_avx2(x, &scale), WOK_V(1.0f));
    scale = _mm256_sub_epi32(scale, _mm256_castps_si256(WOK_V(1.0f)));
    __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), scale));
    __m256 beyond = _mm256_cmp_ps(x, WOK_V(0x1.62e42ep+6f), _CMP_NLE_UQ); /* over 128 ln2, or NaN */
    return wok_exp_underflow_avx2(_mm256_blendv_ps(y, _mm256_mul_ps(x, WOK_V(0x1p127f)), beyond), x);
}

WOK_INLINE __m256 wok_sigmoid_avx2(__m256 x) {
    __m256 e = wok_exp_avx2(_mm256_xor_ps(x, WOK_V(-0.0f)));
    return _mm256_div_ps(WOK_V(1.0f), _mm256_add_ps(WOK_V(1.0f), e));
}

WOK_INLINE __m256 wok_tanh_avx2(__m256 x) {
    const __m256 sign = WOK_V(-0.0f), one = WOK_V(1.0f);
    __m256 t = _mm256_min_ps(WOK_V(10.0f), _mm256_andnot_ps(sign, x)); /* NaN passes: the second operand wins */
    __m256i scale;
    __m256 s = wok_exp_reduced_avx2(_mm256_add_ps(t, t), &scale);
    __m256 e = _mm256_fmadd_ps(s, _mm256_castsi256_ps(scale), _mm256_sub_ps(_mm256_castsi256_ps(scale), one));
    __m256 y = _mm256_div_ps(e, _mm256_add_ps(e, WOK_V(2.0f)));
    return _mm256_or_ps(y, _mm256_and_ps(sign, x));
}

WOK_INLINE __m256 wok_erf_avx2(__m256 x) {
    const __m256 sign = WOK_V(-0.0f);
    __m256 t = _mm256_min_ps(WOK_V(4.0f), _mm256_andnot_ps(sign, x)), t2 = _mm256_mul_ps(t, t);
    __m256 p = WOK_V(8.483828279956751e-05f);
    p = _mm256_fmadd_ps(p, t2, WOK_V(-0.0008169026299129802f));
    p = _mm256_fmadd_ps(p, t2, WOK_V(0.0052033025761592565f));
    p = _mm256_fmadd_ps(p, t2, WOK_V(-0.02686029416828063f));
    p = _mm256_fmadd_ps(p, t2, WOK_V(0.11283711336371742f));
    p = _mm256_fmadd_ps(p, t2, WOK_V(-0.3761263474910606f));
    p = _mm256_fmadd_ps(p, t2, WOK_V(0.128379166741314f));
    p = _mm256_fmadd_ps(p, t, t); /* t + 0.128.. t: the leading 1 costs no rounding */
    __m256 q = WOK_V(0.00021511167142330078f);
    q = _mm256_fmadd_ps(q, t, WOK_V(-0.0032241999853791247f));
    q = _mm256_fmadd_ps(q, t, WOK_V(0.02291945770971645f));
    q = _mm256_fmadd_ps(q, t, WOK_V(-0.10530759339559992f));
    q = _mm256_fmadd_ps(q, t, WOK_V(-0.6356837929739986f));
    q = _mm256_fmadd_ps(q, t, WOK_V(-1.128524506051094f));
    __m256 tail = _mm256_sub_ps(WOK_V(1.0f), wok_exp_low_avx2(_mm256_mul_ps(q, t)));
    __m256 y = _mm256_blendv_ps(p, tail, _mm256_cmp_ps(t, WOK_V(0.9f), _CMP_GE_OQ));
    return _mm256_or_ps(y, _mm256_and_ps(sign, x));
}

WOK_INLINE __m256 wok_gelu_avx2(__m256 x) {
    __m256 t = _mm256_mul_ps(_mm256_andnot_ps(WOK_V(-0.0f), x), WOK_V(0.70710678118654752f));
    t = _mm256_min_ps(WOK_V(9.0f), t); /* Q is good to 5.2, falls from there on, and e^(9 Q(9)) is 0 */
    __m256 q = WOK_V(-2.902215866531121e-07f);
    q = _mm256_fmadd_ps(q, t, WOK_V(7.2577236452558e-06f));
    q = _mm256_fmadd_ps(q, t, WOK_V(-7.610301707137314e-05f));
    q = _mm256_fmadd_ps(q, t, WOK_V(0.0004216591058187166f));
    q = _mm256_fmadd_ps(q, t, WOK_V(-0.001149047762472566f));
    q = _mm256_fmadd_ps(q, t, WOK_V(-0.0005329242519844016f));
    q = _mm256_fmadd_ps(q, t, WOK_V(0.01966674506007114f));
    q = _mm256_fmadd_ps(q, t, WOK_V(-0.10297807389290702f));
    q = _mm256_fmadd_ps(q, t, WOK_V(-0.6365835210147491f));
    q = _mm256_fmadd_ps(q, t, WOK_V(-1.128381252982719f));
    __m256 left = _mm256_mul_ps(WOK_V(0.5f), wok_exp_low_avx2(_mm256_mul_ps(q, t)));
    __m256 phi = _mm256_blendv_ps(_mm256_sub_ps(WOK_V(1.0f), left), left, x); /* by the sign of x */
    return _mm256_mul_ps(x, phi);
}

/* x / (1 + e^-z), z = 2 sqrt(2/pi) (x + 0.044715 x^3) */
WOK_INLINE __m256 wok_gelu_tanh_avx2(__m256 x) {
    __m256 c = _mm256_fmadd_ps(_mm256_mul_ps(x, x), WOK_V(-0.071354816272600f), WOK_V(-1.5957691216057308f));
    __m256 e = wok_exp_avx2(_mm256_mul_ps(c, x));
    return _mm256_div_ps(x, _mm256_add_ps(WOK_V(1.0f), e));
}

/* x wins ties and NaN wins all: the second operand of vmaxps and vminps. */
WOK_INLINE __m256 wok_clamp_avx2(__m256 x, __m256 lo, __m256 hi) {
    return _mm256_min_ps(hi, _mm256_max_ps(lo, x));
}

/* For use with a constant `act`, or out of the hot loop. */
WOK_INLINE __m256 wok_act_avx2(__m256 x, wok_act act, __m256 lo, __m256 hi) {
    switch (act) {
    case WOK_ACT_CLAMP: return wok_clamp_avx2(x, lo, hi);
    case WOK_ACT_GELU: return wok_gelu_avx2(x);
    case WOK_ACT_GELU_TANH: return wok_gelu_tanh_avx2(x);
    case WOK_ACT_TANH: return wok_tanh_avx2(x);
    case WOK_ACT_SIGMOID: return wok_sigmoid_avx2(x);
    case WOK_ACT_NONE: break;
    }
    return x;
}

#undef WOK_V
#endif
