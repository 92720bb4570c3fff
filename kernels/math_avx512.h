/* math_avx512.h - exp, erf, tanh, sigmoid, GELU on sixteen floats: math_avx2.h on wider registers, bit for bit, so that
 * methods and errors are described there. Differences are of form only: masks where AVX2 blends. */
#ifndef WOK_MATH_AVX512_H
#define WOK_MATH_AVX512_H

#include "common.h"

#include <immintrin.h>

#define WOK_V(c) _mm512_set1_ps(c)

/* The first n lanes; n is cut to 0 .. 16. */
WOK_INLINE __mmask16 wok_mask_avx512(int64_t n) {
    return (__mmask16)(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1);
}

/* Upper onto lower half, and from there as wok_sum_avx2. */
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

WOK_INLINE __m512 wok_exp_reduced_avx512(__m512 x, __m512i *scale) {
    const __m512 magic = WOK_V(0x1.8p23f + 127.0f);
    __m512 shifted = _mm512_fmadd_ps(x, WOK_V(0x1.715476p+0f), magic);
    __m512 n = _mm512_sub_ps(shifted, magic);
    *scale = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    __m512 r = _mm512_fnmadd_ps(n, WOK_V(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, WOK_V(0x1.7f7d1cp-20f), r);
    __m512 q = WOK_V(0.001381446475204299f);
    q = _mm512_fmadd_ps(q, r, WOK_V(0.008368780622225425f));
    q = _mm512_fmadd_ps(q, r, WOK_V(0.04166839425915821f));
    q = _mm512_fmadd_ps(q, r, WOK_V(0.16666520105546237f));
    q = _mm512_fmadd_ps(q, r, WOK_V(0.4999999341226102f));
    return _mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r);
}

/* Lanes whose e^x is not below 2^-126, NaN among them. */
WOK_INLINE __mmask16 wok_exp_normal_avx512(__m512 x) {
    return _mm512_cmp_ps_mask(x, WOK_V(-0x1.5d589ep+6f), _CMP_NLT_UQ);
}

WOK_INLINE __m512 wok_exp_low_avx512(__m512 x) {
    __m512i scale;
    __m512 s = wok_exp_reduced_avx512(x, &scale);
    return _mm512_maskz_fmadd_ps(wok_exp_normal_avx512(x), s, _mm512_castsi512_ps(scale), _mm512_castsi512_ps(scale));
}

WOK_INLINE __m512 wok_exp_avx512(__m512 x) {
    __m512i scale;
    __m512 p = _mm512_add_ps(wok_exp_reduced_avx512(x, &scale), WOK_V(1.0f));
    scale = _mm512_sub_epi32(scale, _mm512_castps_si512(WOK_V(1.0f)));
    __m512 y = _mm512_castsi512_ps(
        _mm512_maskz_add_epi32(wok_exp_normal_avx512(x), _mm512_castps_si512(p), scale));
    __mmask16 beyond = _mm512_cmp_ps_mask(x, WOK_V(0x1.62e42ep+6f), _CMP_NLE_UQ);
    return _mm512_mask_mul_ps(y, beyond, x, WOK_V(0x1p127f));
}

WOK_INLINE __m512 wok_sigmoid_avx512(__m512 x) {
    __m512 e = wok_exp_avx512(_mm512_xor_ps(x, WOK_V(-0.0f)));
    return _mm512_div_ps(WOK_V(1.0f), _mm512_add_ps(WOK_V(1.0f), e));
}

WOK_INLINE __m512 wok_tanh_avx512(__m512 x) {
    const __m512 sign = WOK_V(-0.0f), one = WOK_V(1.0f);
    __m512 t = _mm512_min_ps(WOK_V(10.0f), _mm512_andnot_ps(sign, x));
    __m512i scale;
    __m512 s = wok_exp_reduced_avx512(_mm512_add_ps(t, t), &scale);
    __m512 e = _mm512_fmadd_ps(s, _mm512_castsi512_ps(scale), _mm512_sub_ps(_mm512_castsi512_ps(scale), one));
    __m512 y = _mm512_div_ps(e, _mm512_add_ps(e, WOK_V(2.0f)));
    return _mm512_or_ps(y, _mm512_and_ps(sign, x));
}

WOK_INLINE __m512 wok_erf_avx512(__m512 x) {
    const __m512 sign = WOK_V(-0.0f);
    __m512 t = _mm512_min_ps(WOK_V(4.0f), _mm512_andnot_ps(sign, x)), t2 = _mm512_mul_ps(t, t);
    __m512 p = WOK_V(8.483828279956751e-05f);
    p = _mm512_fmadd_ps(p, t2, WOK_V(-0.0008169026299129802f));
    p = _mm512_fmadd_ps(p, t2, WOK_V(0.0052033025761592565f));
    p = _mm512_fmadd_ps(p, t2, WOK_V(-0.02686029416828063f));
    p = _mm512_fmadd_ps(p, t2, WOK_V(0.11283711336371742f));
    p = _mm512_fmadd_ps(p, t2, WOK_V(-0.3761263474910606f));
    p = _mm512_fmadd_ps(p, t2, WOK_V(0.128379166741314f));
    p = _mm512_fmadd_ps(p, t, t);
    __m512 q = WOK_V(0.00021511167142330078f);
    q = _mm512_fmadd_ps(q, t, WOK_V(-0.0032241999853791247f));
    q = _mm512_fmadd_ps(q, t, WOK_V(0.02291945770971645f));
    q = _mm512_fmadd_ps(q, t, WOK_V(-0.10530759339559992f));
    q = _mm512_fmadd_ps(q, t, WOK_V(-0.6356837929739986f));
    q = _mm512_fmadd_ps(q, t, WOK_V(-1.128524506051094f));
    __m512 tail = _mm512_sub_ps(WOK_V(1.0f), wok_exp_low_avx512(_mm512_mul_ps(q, t)));
    __m512 y = _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(t, WOK_V(0.9f), _CMP_GE_OQ), tail);
    return _mm512_or_ps(y, _mm512_and_ps(sign, x));
}

WOK_INLINE __m512 wok_gelu_avx512(__m512 x) {
    __m512 t = _mm512_mul_ps(_mm512_andnot_ps(WOK_V(-0.0f), x), WOK_V(0.70710678118654752f));
    t = _mm512_min_ps(WOK_V(9.0f), t);
    __m512 q = WOK_V(-2.902215866531121e-07f);
    q = _mm512_fmadd_ps(q, t, WOK_V(7.2577236452558e-06f));
    q = _mm512_fmadd_ps(q, t, WOK_V(-7.610301707137314e-05f));
    q = _mm512_fmadd_ps(q, t, WOK_V(0.0004216591058187166f));
    q = _mm512_fmadd_ps(q, t, WOK_V(-0.001149047762472566f));
    q = _mm512_fmadd_ps(q, t, WOK_V(-0.0005329242519844016f));
    q = _mm512_fmadd_ps(q, t, WOK_V(0.01966674506007114f));
    q = _mm512_fmadd_ps(q, t, WOK_V(-0.10297807389290702f));
    q = _mm512_fmadd_ps(q, t, WOK_V(-0.6365835210147491f));
    q = _mm512_fmadd_ps(q, t, WOK_V(-1.128381252982719f));
    __m512 left = _mm512_mul_ps(WOK_V(0.5f), wok_exp_low_avx512(_mm512_mul_ps(q, t)));
    __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
    return _mm512_mul_ps(x, _mm512_mask_mov_ps(_mm512_sub_ps(WOK_V(1.0f), left), negative, left));
}

WOK_INLINE __m512 wok_gelu_tanh_avx512(__m512 x) {
    __m512 c = _mm512_fmadd_ps(_mm512_mul_ps(x, x), WOK_V(-0.071354816272600f), WOK_V(-1.5957691216057308f));
    __m512 e = wok_exp_avx512(_mm512_mul_ps(c, x));
    return _mm512_div_ps(x, _mm512_add_ps(WOK_V(1.0f), e));
}

WOK_INLINE __m512 wok_clamp_avx512(__m512 x, __m512 lo, __m512 hi) {
    return _mm512_min_ps(hi, _mm512_max_ps(lo, x));
}

WOK_INLINE __m512 wok_act_avx512(__m512 x, wok_act act, __m512 lo, __m512 hi) {
    switch (act) {
    case WOK_ACT_CLAMP: return wok_clamp_avx512(x, lo, hi);
    case WOK_ACT_GELU: return wok_gelu_avx512(x);
    case WOK_ACT_GELU_TANH: return wok_gelu_tanh_avx512(x);
    case WOK_ACT_TANH: return wok_tanh_avx512(x);
    case WOK_ACT_SIGMOID: return wok_sigmoid_avx512(x);
    case WOK_ACT_NONE: break;
    }
    return x;
}

#undef WOK_V
#endif
