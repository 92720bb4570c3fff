/* gemm_s8_finish_avx2.h - from sums to outputs with AVX2, for levels avx2 and avxvnni (internal).
 *
 * Eight columns at a time, all rows of the block below one another, so that what belongs to the columns stays in registers.
 * The output's kind and activation, and whether zero points are plain (one offset for all columns, one a_zero for all rows:
 * a vector add instead of two multiplications), are constants of each instance. */
#ifndef WOK_GEMM_S8_FINISH_AVX2_H
#define WOK_GEMM_S8_FINISH_AVX2_H

#include "gemm_s8_driver.h"
#include "../math_avx2.h"

enum { WOK_GEMM_S8_LANES = 8 };

/* sum of a row, as unsigned bytes a + 128 */
static int32_t wok_gemm_s8_rowsum_avx2(const int8_t *a, int64_t k) {
    const __m256i flip = _mm256_set1_epi8(-128);
    __m256i sums = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 32 <= k; i += 32) {
        __m256i x = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)(a + i)), flip);
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(x, _mm256_setzero_si256()));
    }
    __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    int64_t sum = _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1) - 128 * i;
    for (; i < k; i++) sum += a[i];
    return (int32_t)sum;
}

typedef struct wok_gemm_s8_columns_avx2 {
    __m256i colsum, offset, mask;
    __m256 scale, bias;
} wok_gemm_s8_columns_avx2;

/* Eight bytes, of which only the first `columns` are there. */
static inline __m128i wok_load_bytes_avx2(const int8_t *p, int64_t columns) {
    if (columns >= 8) return _mm_loadl_epi64((const __m128i *)(const void *)p);
    uint64_t bytes = 0;
    memcpy(&bytes, p, (size_t)columns);
    return _mm_cvtsi64_si128((long long)bytes);
}

static inline void wok_store_bytes_avx2(int8_t *p, __m128i x, int64_t columns) {
    uint64_t bytes = (uint64_t)_mm_cvtsi128_si64(x);
    if (columns >= 8) {
        memcpy(p, &bytes, 8);
        return;
    }
    if (columns & 4) {
        memcpy(p, &bytes, 4);
        bytes >>= 32;
        p += 4;
    }
    if (columns & 2) {
        memcpy(p, &bytes, 2);
        bytes >>= 16;
        p += 2;
    }
    if (columns & 1) *p = (int8_t)bytes;
}

WOK_INLINE void wok_store_f32_avx2(float *p, __m256 x, __m256i mask, const bool masked) {
    if (masked)
        _mm256_maskstore_ps(p, mask, x);
    else
        _mm256_storeu_ps(p, x);
}

/* The low bytes of eight 32-bit integers within [-128, 127]. */
WOK_INLINE __m128i wok_narrow_avx2(__m256i x) {
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_packs_epi16(words, words);
}

WOK_INLINE void wok_gemm_s8_out_f32_avx2(const wok_gemm_s8_rows *g, const wok_gemm_s8_columns_avx2 *c, __m256 x,
                                         int64_t m, int64_t n, const wok_act act, const bool masked) {
    const wok_epilogue_s8 *e = &g->epilogue;
    __m256 s = e->row_scale ? _mm256_mul_ps(_mm256_set1_ps(e->row_scale[m]), c->scale) : c->scale;
    x = _mm256_fmadd_ps(x, s, c->bias);
    if (e->residual) {
        const float *r = (const float *)e->residual + m * e->residual_stride + n;
        x = _mm256_add_ps(x, masked ? _mm256_maskload_ps(r, c->mask) : _mm256_loadu_ps(r));
    }
    x = wok_act_avx2(x, act, _mm256_set1_ps(e->act_lo), _mm256_set1_ps(e->act_hi));
    wok_store_f32_avx2((float *)g->c + m * g->ldc + n, x, c->mask, masked);
}

WOK_INLINE void wok_gemm_s8_out_s8_avx2(const wok_gemm_s8_rows *g, const wok_gemm_s8_columns_avx2 *c, __m256 x,
                                        int64_t m, int64_t n, int64_t columns) {
    const wok_epilogue_s8 *e = &g->epilogue;
    x = _mm256_fmadd_ps(x, c->scale, c->bias);
    if (e->residual) {
        const int8_t *r = (const int8_t *)e->residual + m * e->residual_stride + n;
        __m256i q = _mm256_cvtepi8_epi32(wok_load_bytes_avx2(r, columns));
        q = _mm256_sub_epi32(q, _mm256_set1_epi32(e->residual_zero));
        x = _mm256_fmadd_ps(_mm256_cvtepi32_ps(q), _mm256_set1_ps(e->residual_scale), x);
    }
    /* clamped before it is converted, as in the reference */
    x = wok_clamp_avx2(x, _mm256_set1_ps((float)(e->lo - e->zero)), _mm256_set1_ps((float)(e->hi - e->zero)));
    __m256i q = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(e->zero));
    wok_store_bytes_avx2((int8_t *)g->c + m * g->ldc + n, wok_narrow_avx2(q), columns);
}

/* Columns [n, n + 8) of the job, `columns` of them there. */
WOK_INLINE void wok_gemm_s8_finish_columns_avx2(const wok_gemm_s8_rows *g, const wok_gemm_s8_packed *p,
                                                const wok_gemm_s8_sums *sums, int64_t n, const int64_t columns,
                                                const wok_s8_out out, const wok_act act, const bool plain) {
    const bool masked = columns < WOK_GEMM_S8_LANES;
    const wok_epilogue_s8 *e = &g->epilogue;
    wok_gemm_s8_columns_avx2 c = {
        .mask = wok_mask_avx2(columns), .scale = _mm256_setzero_ps(), .bias = _mm256_setzero_ps()};
    c.colsum = _mm256_loadu_si256((const __m256i *)(const void *)(p->colsum + n));
    c.offset = _mm256_loadu_si256((const __m256i *)(const void *)(p->offset + n));
    if (out != WOK_S8_OUT_S32) {
        c.scale = _mm256_maskload_ps(e->scale + n, c.mask);
        if (e->bias) c.bias = _mm256_maskload_ps(e->bias + n, c.mask);
    }
    if (plain) c.colsum = _mm256_mullo_epi32(c.colsum, _mm256_set1_epi32(g->a_zero));
    const int32_t *acc = sums->acc + (n - sums->column);
    for (int64_t i = 0; i < sums->count; i++, acc += sums->acc_stride) {
        int64_t m = sums->row + i;
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)acc);
        if (plain) {
            uint32_t row = (uint32_t)p->offset[0] * (uint32_t)sums->rowsum[i];
            x = _mm256_sub_epi32(x, _mm256_add_epi32(c.colsum, _mm256_set1_epi32((int32_t)row)));
        } else {
            int32_t zero = g->row_zero ? g->row_zero[m] : g->a_zero;
            x = _mm256_sub_epi32(x, _mm256_mullo_epi32(c.offset, _mm256_set1_epi32(sums->rowsum[i])));
            x = _mm256_sub_epi32(x, _mm256_mullo_epi32(c.colsum, _mm256_set1_epi32(zero)));
        }
        if (out == WOK_S8_OUT_S32)
            wok_store_f32_avx2((float *)g->c + m * g->ldc + n, _mm256_castsi256_ps(x), c.mask, masked);
        else if (out == WOK_S8_OUT_F32)
            wok_gemm_s8_out_f32_avx2(g, &c, _mm256_cvtepi32_ps(x), m, n, act, masked);
        else
            wok_gemm_s8_out_s8_avx2(g, &c, _mm256_cvtepi32_ps(x), m, n, columns);
    }
}

WOK_INLINE void wok_gemm_s8_finish_with_avx2(const wok_gemm_s8_rows *g, const wok_gemm_s8_packed *p,
                                             const wok_gemm_s8_sums *sums, const wok_s8_out out, const wok_act act,
                                             const bool plain) {
    int64_t n = sums->column, end = n + sums->columns;
    for (; n + WOK_GEMM_S8_LANES <= end; n += WOK_GEMM_S8_LANES)
        wok_gemm_s8_finish_columns_avx2(g, p, sums, n, WOK_GEMM_S8_LANES, out, act, plain);
    if (n < end) wok_gemm_s8_finish_columns_avx2(g, p, sums, n, end - n, out, act, plain);
}

/* The bytes that the block has just stored, through the table: one load and one store each. */
static void wok_gemm_s8_map_avx2(const wok_gemm_s8_rows *g, const wok_gemm_s8_sums *sums) {
    const int8_t *table = g->epilogue.table + 128;
    for (int64_t i = 0; i < sums->count; i++) {
        int8_t *c = (int8_t *)g->c + (sums->row + i) * g->ldc + sums->column;
        for (int64_t j = 0; j < sums->columns; j++) c[j] = table[c[j]];
    }
}

#define WOK_FINISH(name, out, act)                                                                                     \
    static void wok_gemm_s8_finish_##name##_avx2(const wok_gemm_s8_rows *g, const wok_gemm_s8_packed *p,               \
                                                 const wok_gemm_s8_sums *sums) {                                       \
        if (p->uniform && !g->row_zero)                                                                                \
            wok_gemm_s8_finish_with_avx2(g, p, sums, out, act, true);                                                  \
        else                                                                                                           \
            wok_gemm_s8_finish_with_avx2(g, p, sums, out, act, false);                                                 \
    }
WOK_FINISH(s32, WOK_S8_OUT_S32, WOK_ACT_NONE)
WOK_FINISH(s8, WOK_S8_OUT_S8, WOK_ACT_NONE)
WOK_FINISH(none, WOK_S8_OUT_F32, WOK_ACT_NONE)
WOK_FINISH(clamp, WOK_S8_OUT_F32, WOK_ACT_CLAMP)
WOK_FINISH(gelu, WOK_S8_OUT_F32, WOK_ACT_GELU)
WOK_FINISH(gelu_tanh, WOK_S8_OUT_F32, WOK_ACT_GELU_TANH)
WOK_FINISH(tanh, WOK_S8_OUT_F32, WOK_ACT_TANH)
WOK_FINISH(sigmoid, WOK_S8_OUT_F32, WOK_ACT_SIGMOID)
#undef WOK_FINISH

static void wok_gemm_s8_finish_avx2(const wok_gemm_s8_rows *g, const wok_gemm_s8_packed *p,
                                    const wok_gemm_s8_sums *sums) {
    if (g->epilogue.out == WOK_S8_OUT_S32) {
        wok_gemm_s8_finish_s32_avx2(g, p, sums);
        return;
    }
    if (g->epilogue.out == WOK_S8_OUT_S8) {
        wok_gemm_s8_finish_s8_avx2(g, p, sums);
        if (g->epilogue.table) wok_gemm_s8_map_avx2(g, sums);
        return;
    }
    switch (g->epilogue.act) {
    case WOK_ACT_NONE:
        wok_gemm_s8_finish_none_avx2(g, p, sums);
        break;
    case WOK_ACT_CLAMP:
        wok_gemm_s8_finish_clamp_avx2(g, p, sums);
        break;
    case WOK_ACT_GELU:
        wok_gemm_s8_finish_gelu_avx2(g, p, sums);
        break;
    case WOK_ACT_GELU_TANH:
        wok_gemm_s8_finish_gelu_tanh_avx2(g, p, sums);
        break;
    case WOK_ACT_TANH:
        wok_gemm_s8_finish_tanh_avx2(g, p, sums);
        break;
    case WOK_ACT_SIGMOID:
        wok_gemm_s8_finish_sigmoid_avx2(g, p, sums);
        break;
    }
}

#endif
