/* attn_avx512.c - attention with AVX-512; loops and layout: attn_blocked.h.
 *
 * Micro-kernel for both products: 6 rows x 64 columns (four panels of B), 24 accumulators + 4 of B + 1 broadcast of A =
 * 29 zmm; narrower and lower tiles are instances with fewer of each. The last panel of Y is loaded and stored under a
 * mask. A head of 64 columns is one tile wide, so T is read once for P V.
 * Softmax: 16 lanes, so key j is added in lane j % 16, then a fixed tree.
 * Bound: FMA throughput for the products (32 MAC a cycle with two units), arithmetic of exp between them. */
#include "attn_tile.h"
#include "attn_x86.h"

#include "../math_avx512.h"

enum { VECTORS = 4, ATTN_COLS = VECTORS * ATTN_PANEL };

/* `rows` and `vectors` are constants in every instance and loops run to the constants 6 and 4: only then both gcc and
 * clang unroll them and keep the accumulators in registers. */
WOK_INLINE void tile(const attn_product *p, int64_t row, const int rows, int64_t col, int cols, const int vectors) {
    const float *a = p->a + row * p->lda, *b = p->b + col * p->depth;
    const int64_t lda = p->lda, ldc = p->ldc, panel = p->depth * ATTN_PANEL;
    float *c = p->c + row * ldc + col;
    const __mmask16 tail = wok_mask_avx512(cols - (vectors - 1) * ATTN_PANEL);
    __m512 acc[ATTN_ROWS][VECTORS];
#pragma GCC unroll 6
    for (int i = 0; i < ATTN_ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            if (i >= rows || v >= vectors) continue;
            const __mmask16 lanes = v == vectors - 1 ? tail : (__mmask16)0xffff;
            acc[i][v] = _mm512_setzero_ps();
            if (p->rescale)
                acc[i][v] = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, c + i * ldc + v * ATTN_PANEL),
                                          _mm512_set1_ps(p->rescale[row + i]));
        }
    for (int64_t k = 0; k < p->depth; k++, a++, b += ATTN_PANEL) {
        __m512 x[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            if (v < vectors) x[v] = _mm512_load_ps(b + v * panel);
#pragma GCC unroll 6
        for (int i = 0; i < ATTN_ROWS; i++) {
            if (i >= rows) continue;
            const __m512 q = _mm512_set1_ps(a[i * lda]);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++)
                if (v < vectors) acc[i][v] = _mm512_fmadd_ps(q, x[v], acc[i][v]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < ATTN_ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            if (i >= rows || v >= vectors) continue;
            const __mmask16 lanes = v == vectors - 1 ? tail : (__mmask16)0xffff;
            if (p->inverse)
                acc[i][v] = _mm512_fmadd_ps(acc[i][v], _mm512_set1_ps(p->inverse[row + i]), _mm512_setzero_ps());
            _mm512_mask_storeu_ps(c + i * ldc + v * ATTN_PANEL, lanes, acc[i][v]);
        }
}

#define TILES(vectors)                                                                                                 \
    static void tile_##vectors(const attn_product *p, int64_t row, int rows, int64_t col, int cols) {                  \
        switch (rows) {                                                                                                \
        case 1: tile(p, row, 1, col, cols, vectors); break;                                                            \
        case 2: tile(p, row, 2, col, cols, vectors); break;                                                            \
        case 3: tile(p, row, 3, col, cols, vectors); break;                                                            \
        case 4: tile(p, row, 4, col, cols, vectors); break;                                                            \
        case 5: tile(p, row, 5, col, cols, vectors); break;                                                            \
        default: tile(p, row, 6, col, cols, vectors); break;                                                           \
        }                                                                                                              \
    }
TILES(1)
TILES(2)
TILES(3)
TILES(4)

static void attn_tile(const attn_product *p, int64_t row, int rows, int64_t col, int cols) {
    static void (*const tiles[VECTORS])(const attn_product *, int64_t, int, int64_t, int) = {tile_1, tile_2, tile_3,
                                                                                             tile_4};
    tiles[(cols - 1) / ATTN_PANEL](p, row, rows, col, cols);
}

WOK_INLINE __m512 load_bias(const float *bias, int64_t stride, int64_t keys, __mmask16 lanes) {
    if (stride == 1) return _mm512_maskz_loadu_ps(lanes, bias);
    float values[ATTN_PANEL] = {0};
    for (int64_t j = 0; j < ATTN_PANEL && j < keys; j++) values[j] = bias[j * stride];
    return _mm512_loadu_ps(values);
}

/* One row of T becomes weights under the running maximum; returns the factor for what was summed under the old one. */
static float attn_softmax(float *t, int64_t keys, float scale, const float *bias, int64_t bias_stride, float *max,
                          float *sum) {
    const __m512 factor = _mm512_set1_ps(scale), nothing = _mm512_set1_ps(-INFINITY);
    __m512 m = _mm512_set1_ps(*max);
    for (int64_t j = 0; j < keys; j += ATTN_PANEL) { /* keys that do not exist get -inf */
        const __mmask16 lanes = wok_mask_avx512(keys - j);
        __m512 x = _mm512_mul_ps(_mm512_load_ps(t + j), factor);
        if (bias) x = _mm512_add_ps(x, load_bias(bias + j * bias_stride, bias_stride, keys - j, lanes));
        x = _mm512_mask_mov_ps(nothing, lanes, x);
        _mm512_store_ps(t + j, x);
        m = _mm512_max_ps(x, m); /* an unordered compare keeps m */
    }
    float new_max = wok_max_avx512(m), origin = new_max == -INFINITY ? 0 : new_max;
    const __m512 x0 = _mm512_set1_ps(origin);
    __m512 s = _mm512_setzero_ps();
    for (int64_t j = 0; j < keys; j += ATTN_PANEL) {
        __m512 p = wok_exp_low_avx512(_mm512_sub_ps(_mm512_load_ps(t + j), x0));
        _mm512_store_ps(t + j, p);
        s = _mm512_add_ps(s, p);
    }
    float rescale = _mm_cvtss_f32(_mm512_castps512_ps128(wok_exp_low_avx512(_mm512_set1_ps(*max - origin))));
    *sum = *sum * rescale + wok_sum_avx512(s);
    *max = new_max;
    return rescale;
}

#include "attn_blocked.h"

const wok_attn_kernel wok_attn__avx512 = {
    .base = {"wok_attn__avx512", WOK_ISA_avx512, 0, wok_attn_accept},
    .workspace_bytes = attn_workspace_bytes,
    .run = attn_run,
};
