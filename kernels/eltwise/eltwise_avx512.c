/* eltwise_avx512.c - element-wise functions and conversions with AVX-512; formulas: math_avx512.h.
 *
 * One loop a function, 16 elements a step; the last step runs the same instructions under a load and a store mask.
 * Bound: memory for the cheap operations, arithmetic for exp (17 instructions), erf, tanh and GELU (some 30). */
#include "eltwise.h"

#include "../math_avx512.h"

enum { LANES = 16 };

WOK_INLINE __m512 load(const float *p, int64_t n) {
    return n >= LANES ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(wok_mask_avx512(n), p);
}

WOK_INLINE void store(float *p, int64_t n, __m512 x) {
    if (n >= LANES)
        _mm512_storeu_ps(p, x);
    else
        _mm512_mask_storeu_ps(p, wok_mask_avx512(n), x);
}

/* ---- unary ------------------------------------------------------------------------------------------------------- */

WOK_INLINE __m512 hard_sigmoid(__m512 a, __m512 slope, __m512 offset) {
    return wok_clamp_avx512(_mm512_fmadd_ps(slope, a, offset), _mm512_setzero_ps(), _mm512_set1_ps(1));
}

WOK_INLINE __m512 negate(__m512 a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
WOK_INLINE __m512 magnitude(__m512 a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }

WOK_INLINE __m512 silu(__m512 a) {
    return _mm512_div_ps(a, _mm512_add_ps(_mm512_set1_ps(1), wok_exp_avx512(negate(a))));
}

/* a: 16 elements; p0 and p1: the operation's parameters */
#define UNARY(name, formula)                                                                                           \
    static void name(const wok_eltwise_args *args, int64_t begin, int64_t end) {                                       \
        const float *x = args->a;                                                                                      \
        float *y = args->y;                                                                                            \
        const __m512 p0 = _mm512_set1_ps(args->p0), p1 = _mm512_set1_ps(args->p1);                                     \
        (void)p0, (void)p1;                                                                                            \
        for (int64_t i = begin; i < end; i += LANES) {                                                                 \
            __m512 a = load(x + i, end - i);                                                                           \
            store(y + i, end - i, formula);                                                                            \
        }                                                                                                              \
    }
UNARY(clamp_range, wok_clamp_avx512(a, p0, p1))
UNARY(gelu_range, wok_gelu_avx512(a))
UNARY(gelu_tanh_range, wok_gelu_tanh_avx512(a))
UNARY(tanh_range, wok_tanh_avx512(a))
UNARY(sigmoid_range, wok_sigmoid_avx512(a))
UNARY(erf_range, wok_erf_avx512(a))
UNARY(exp_range, wok_exp_avx512(a))
UNARY(sqrt_range, _mm512_sqrt_ps(a))
UNARY(reciprocal_range, _mm512_div_ps(_mm512_set1_ps(1), a))
UNARY(neg_range, negate(a))
UNARY(abs_range, magnitude(a))
UNARY(hard_sigmoid_range, hard_sigmoid(a, p0, p1))
UNARY(hard_swish_range, _mm512_mul_ps(a, hard_sigmoid(a, _mm512_set1_ps(1.0f / 6), _mm512_set1_ps(0.5f))))
UNARY(silu_range, silu(a))

/* ---- binary ------------------------------------------------------------------------------------------------------ */

/* min and max return their second operand where they cannot decide: b for equal values; a NaN in a is put back. */
WOK_INLINE __m512 keep_nan(__m512 a, __m512 y) {
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}

#define BINARY(name, formula)                                                                                          \
    static void name(const wok_eltwise_args *args, int64_t begin, int64_t end) {                                       \
        const float *x = args->a, *z = args->b;                                                                        \
        float *y = args->y;                                                                                            \
        const int64_t a_step = args->a_step, b_step = args->b_step;                                                    \
        const __m512 lo = _mm512_set1_ps(args->p0), hi = _mm512_set1_ps(args->p1);                                     \
        __m512 a = _mm512_set1_ps(*x), b = _mm512_set1_ps(*z);                                                         \
        for (int64_t i = begin; i < end; i += LANES) {                                                                 \
            if (a_step) a = load(x + i, end - i);                                                                      \
            if (b_step) b = load(z + i, end - i);                                                                      \
            store(y + i, end - i, wok_clamp_avx512(formula, lo, hi));                                                  \
        }                                                                                                              \
    }
BINARY(add_range, _mm512_add_ps(a, b))
BINARY(sub_range, _mm512_sub_ps(a, b))
BINARY(mul_range, _mm512_mul_ps(a, b))
BINARY(div_range, _mm512_div_ps(a, b))
BINARY(min_range, keep_nan(a, _mm512_min_ps(a, b)))
BINARY(max_range, keep_nan(a, _mm512_max_ps(a, b)))

/* ---- conversions ------------------------------------------------------------------------------------------------- */

WOK_INLINE __m256i load16(const uint16_t *p, int64_t n) { return _mm256_maskz_loadu_epi16(wok_mask_avx512(n), p); }

WOK_INLINE void store16(uint16_t *p, int64_t n, __m256i x) { _mm256_mask_storeu_epi16(p, wok_mask_avx512(n), x); }

WOK_INLINE __m512 widen_bf16(__m256i h) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }

WOK_INLINE __m256i narrow_bf16(__m512 x) {
    __m512i u = _mm512_castps_si512(x), upper = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd)), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40)));
}

#define WIDEN(name, formula)                                                                                           \
    static void name(const wok_eltwise_args *args, int64_t begin, int64_t end) {                                       \
        const uint16_t *x = args->a;                                                                                   \
        float *y = args->y;                                                                                            \
        for (int64_t i = begin; i < end; i += LANES) {                                                                 \
            __m256i h = load16(x + i, end - i);                                                                        \
            store(y + i, end - i, formula);                                                                            \
        }                                                                                                              \
    }
#define NARROW(name, formula)                                                                                          \
    static void name(const wok_eltwise_args *args, int64_t begin, int64_t end) {                                       \
        const float *x = args->a;                                                                                      \
        uint16_t *y = args->y;                                                                                         \
        for (int64_t i = begin; i < end; i += LANES) {                                                                 \
            __m512 a = load(x + i, end - i);                                                                           \
            store16(y + i, end - i, formula);                                                                          \
        }                                                                                                              \
    }
WIDEN(f16_to_f32_range, _mm512_cvtph_ps(h))
NARROW(f32_to_f16_range, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT))
WIDEN(bf16_to_f32_range, widen_bf16(h))
NARROW(f32_to_bf16_range, narrow_bf16(a))

static const wok_eltwise_range_fn ranges[] = {
    [WOK_ELT_CLAMP] = clamp_range,
    [WOK_ELT_GELU] = gelu_range,
    [WOK_ELT_GELU_TANH] = gelu_tanh_range,
    [WOK_ELT_TANH] = tanh_range,
    [WOK_ELT_SIGMOID] = sigmoid_range,
    [WOK_ELT_ERF] = erf_range,
    [WOK_ELT_EXP] = exp_range,
    [WOK_ELT_SQRT] = sqrt_range,
    [WOK_ELT_RECIPROCAL] = reciprocal_range,
    [WOK_ELT_NEG] = neg_range,
    [WOK_ELT_ABS] = abs_range,
    [WOK_ELT_HARD_SIGMOID] = hard_sigmoid_range,
    [WOK_ELT_HARD_SWISH] = hard_swish_range,
    [WOK_ELT_SILU] = silu_range,
    [WOK_ELT_ADD] = add_range,
    [WOK_ELT_SUB] = sub_range,
    [WOK_ELT_MUL] = mul_range,
    [WOK_ELT_DIV] = div_range,
    [WOK_ELT_MIN] = min_range,
    [WOK_ELT_MAX] = max_range,
    [WOK_ELT_F16_TO_F32] = f16_to_f32_range,
    [WOK_ELT_F32_TO_F16] = f32_to_f16_range,
    [WOK_ELT_BF16_TO_F32] = bf16_to_f32_range,
    [WOK_ELT_F32_TO_BF16] = f32_to_bf16_range,
};

static void eltwise_run(const wok_eltwise_problem *problem, const wok_eltwise_args *args,
                        const wok_parallel *parallel) {
    wok_eltwise_ranges(args, parallel, ranges[problem->op]);
}

const wok_eltwise_kernel wok_eltwise__avx512 = {
    .base = {"wok_eltwise__avx512", WOK_ISA_avx512, 0, wok_eltwise_accept},
    .run = eltwise_run,
};
