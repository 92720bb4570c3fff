/* attn_avx2.c - attention with AVX2 and FMA; loops and layout: attn_blocked.h.
 *
 * Micro-kernel for both products: 6 rows x 16 columns, 12 accumulators + 2 of B + 1 broadcast of A = 15 ymm. B is
 * packed in panels of 16 columns, A is read from the contiguous copy of Q or from T. Row tails are instances with fewer
 * rows, 4 to 6 by the balanced split; column tails of Y are stored under a mask.
 * Softmax: two sums of 8 lanes, so key j is added in lane j % 16, then a fixed tree.
 * Bound: FMA throughput for the products (16 MAC a cycle), arithmetic of exp (17 instructions for 8 scores) between
 * them. Measured with softmax included (bench_attention, one Zen 3 core, 12 heads of 64): 71 % of the FMA peak at
 * length 128, 75 % at 512. */
#include "attn_tile.h"
#include "attn_x86.h"

enum { ATTN_COLS = ATTN_PANEL };

/* `rows` is a constant in every instance and loops run to the constant 6: only then both gcc and clang unroll them and
 * keep the accumulators in registers. */
WOK_INLINE void tile(const attn_product *p, int64_t row, const int rows, int64_t col, int cols) {
    const float *a = p->a + row * p->lda, *b = p->b + col * p->depth;
    const int64_t lda = p->lda, ldc = p->ldc;
    float *c = p->c + row * ldc + col;
    const __m256i low = wok_mask_avx2(cols), high = wok_mask_avx2(cols - 8);
    __m256 acc[ATTN_ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < ATTN_ROWS; i++) {
        if (i >= rows) continue;
        acc[i][0] = acc[i][1] = _mm256_setzero_ps();
        if (p->rescale) {
            __m256 factor = _mm256_broadcast_ss(p->rescale + row + i);
            acc[i][0] = _mm256_mul_ps(_mm256_maskload_ps(c + i * ldc, low), factor);
            acc[i][1] = _mm256_mul_ps(_mm256_maskload_ps(c + i * ldc + 8, high), factor);
        }
    }
    for (int64_t k = 0; k < p->depth; k++, a++, b += ATTN_PANEL) {
        __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
#pragma GCC unroll 6
        for (int i = 0; i < ATTN_ROWS; i++) {
            if (i >= rows) continue;
            __m256 x = _mm256_broadcast_ss(a + i * lda);
            acc[i][0] = _mm256_fmadd_ps(x, b0, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(x, b1, acc[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < ATTN_ROWS; i++) {
        if (i >= rows) continue;
        if (p->inverse) {
            __m256 factor = _mm256_broadcast_ss(p->inverse + row + i);
            acc[i][0] = _mm256_fmadd_ps(acc[i][0], factor, _mm256_setzero_ps());
            acc[i][1] = _mm256_fmadd_ps(acc[i][1], factor, _mm256_setzero_ps());
        }
        if (cols == ATTN_PANEL) {
            _mm256_storeu_ps(c + i * ldc, acc[i][0]);
            _mm256_storeu_ps(c + i * ldc + 8, acc[i][1]);
        } else {
            _mm256_maskstore_ps(c + i * ldc, low, acc[i][0]);
            _mm256_maskstore_ps(c + i * ldc + 8, high, acc[i][1]);
        }
    }
}

static void attn_tile(const attn_product *p, int64_t row, int rows, int64_t col, int cols) {
    switch (rows) {
    case 1: tile(p, row, 1, col, cols); break;
    case 2: tile(p, row, 2, col, cols); break;
    case 3: tile(p, row, 3, col, cols); break;
    case 4: tile(p, row, 4, col, cols); break;
    case 5: tile(p, row, 5, col, cols); break;
    default: tile(p, row, 6, col, cols); break;
    }
}

WOK_INLINE __m256 load_bias(const float *bias, int64_t stride, int64_t key, int64_t keys) {
    if (stride == 1)
        return keys - key >= 8 ? _mm256_loadu_ps(bias + key)
                               : _mm256_maskload_ps(bias + key, wok_mask_avx2(keys - key));
    float values[8] = {0};
    for (int64_t j = 0; j < 8 && key + j < keys; j++) values[j] = bias[(key + j) * stride];
    return _mm256_loadu_ps(values);
}

/* t = t * scale + bias for 8 keys; keys that do not exist get -inf. */
WOK_INLINE __m256 bias_scores(float *t, int64_t key, int64_t keys, __m256 scale, const float *bias, int64_t stride) {
    __m256 x = _mm256_mul_ps(_mm256_load_ps(t + key), scale);
    if (bias) x = _mm256_add_ps(x, load_bias(bias, stride, key, keys));
    if (keys - key < 8)
        x = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), x, _mm256_castsi256_ps(wok_mask_avx2(keys - key)));
    _mm256_store_ps(t + key, x);
    return x;
}

/* One row of T becomes weights under the running maximum; returns the factor for what was summed under the old one. */
static float attn_softmax(float *t, int64_t keys, float scale, const float *bias, int64_t bias_stride, float *max,
                          float *sum) {
    __m256 factor = _mm256_set1_ps(scale), m0 = _mm256_set1_ps(*max), m1 = m0;
    for (int64_t j = 0; j < keys; j += ATTN_PANEL) { /* max(score, m): an unordered compare keeps m */
        m0 = _mm256_max_ps(bias_scores(t, j, keys, factor, bias, bias_stride), m0);
        m1 = _mm256_max_ps(bias_scores(t, j + 8, keys, factor, bias, bias_stride), m1);
    }
    float new_max = wok_max_avx2(_mm256_max_ps(m0, m1)), origin = new_max == -INFINITY ? 0 : new_max;
    __m256 x0 = _mm256_set1_ps(origin), s0 = _mm256_setzero_ps(), s1 = s0;
    for (int64_t j = 0; j < keys; j += ATTN_PANEL) {
        __m256 p0 = wok_exp_low_avx2(_mm256_sub_ps(_mm256_load_ps(t + j), x0));
        __m256 p1 = wok_exp_low_avx2(_mm256_sub_ps(_mm256_load_ps(t + j + 8), x0));
        _mm256_store_ps(t + j, p0);
        _mm256_store_ps(t + j + 8, p1);
        s0 = _mm256_add_ps(s0, p0);
        s1 = _mm256_add_ps(s1, p1);
    }
    float rescale = _mm256_cvtss_f32(wok_exp_low_avx2(_mm256_set1_ps(*max - origin)));
    *sum = *sum * rescale + wok_sum_avx2(_mm256_add_ps(s0, s1));
    *max = new_max;
    return rescale;
}

#include "attn_blocked.h"

const wok_attn_kernel wok_attn__avx2 = {
    .base = {"wok_attn__avx2", WOK_ISA_avx2, 0, wok_attn_accept},
    .workspace_bytes = attn_workspace_bytes,
    .run = attn_run,
};
