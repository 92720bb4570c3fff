/* attn_x86.h - packing of K and V for the x86 variants, with 256-bit instructions. */
#ifndef WOK_ATTN_X86_H
#define WOK_ATTN_X86_H

#include "../math_avx2.h"
#include "attn_tile.h"

/* dst[d * 16 + j] = src[j * stride + d] for d < depth <= 8 and 8 keys, of which `keys` exist; the others are 0. */
WOK_INLINE void attn_transpose_8x8(const float *src, int64_t stride, int64_t keys, int64_t depth, float *dst) {
    __m256 row[8], pair[8];
    __m256i lanes = wok_mask_avx2(depth);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        row[i] = _mm256_setzero_ps();
        if (i < keys)
            row[i] = depth == 8 ? _mm256_loadu_ps(src + i * stride) : _mm256_maskload_ps(src + i * stride, lanes);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* 2x2 blocks of rows i, i + 4 by halves: then columns c and c + 4 meet */
        pair[i] = _mm256_permute2f128_ps(row[i], row[i + 4], 0x20);
        pair[i + 4] = _mm256_permute2f128_ps(row[i], row[i + 4], 0x31);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const __m256 *p = pair + 4 * half;
        __m256 a = _mm256_unpacklo_ps(p[0], p[1]), b = _mm256_unpackhi_ps(p[0], p[1]);
        __m256 c = _mm256_unpacklo_ps(p[2], p[3]), d = _mm256_unpackhi_ps(p[2], p[3]);
        row[4 * half + 0] = _mm256_shuffle_ps(a, c, 0x44);
        row[4 * half + 1] = _mm256_shuffle_ps(a, c, 0xee);
        row[4 * half + 2] = _mm256_shuffle_ps(b, d, 0x44);
        row[4 * half + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        if (i < depth) _mm256_storeu_ps(dst + i * ATTN_PANEL, row[i]);
}

/* packed[(j / 16 * head_dim + d) * 16 + j % 16] = K[j][d]; keys up to the next multiple of 16 are 0. */
static void attn_pack_keys(const float *k, int64_t stride, int64_t keys, int64_t head_dim, float *packed) {
    for (int64_t j = 0; j < keys; j += 8) {
        float *panel = packed + j / ATTN_PANEL * head_dim * ATTN_PANEL + j % ATTN_PANEL;
        const float *rows = k + j * stride;
        int64_t d = 0;
        if (keys - j >= 8)
            for (; d + 8 <= head_dim; d += 8) attn_transpose_8x8(rows + d, stride, 8, 8, panel + d * ATTN_PANEL);
        for (; d < head_dim; d += 8)
            attn_transpose_8x8(rows + d, stride, wok_min64(keys - j, 8), wok_min64(head_dim - d, 8),
                               panel + d * ATTN_PANEL);
    }
    if ((keys - 1) % ATTN_PANEL < 8) /* the last panel has no second half */
        for (int64_t d = 0; d < head_dim; d++)
            _mm256_storeu_ps(packed + ((keys - 1) / ATTN_PANEL * head_dim + d) * ATTN_PANEL + 8, _mm256_setzero_ps());
}

/* packed[(n / 16 * keys + j) * 16 + n % 16] = V[j][n]; columns up to the next multiple of 16 are 0. */
static void attn_pack_values(const float *v, int64_t stride, int64_t keys, int64_t value_dim, float *packed) {
    for (int64_t n = 0; n < value_dim; n += ATTN_PANEL) {
        float *panel = packed + n * keys;
        __m256i low = wok_mask_avx2(value_dim - n), high = wok_mask_avx2(value_dim - n - 8);
        bool whole = value_dim - n >= ATTN_PANEL;
        for (int64_t j = 0; j < keys; j++) {
            const float *row = v + j * stride + n;
            _mm256_store_ps(panel + j * ATTN_PANEL, whole ? _mm256_loadu_ps(row) : _mm256_maskload_ps(row, low));
            _mm256_store_ps(panel + j * ATTN_PANEL + 8,
                            whole ? _mm256_loadu_ps(row + 8) : _mm256_maskload_ps(row + 8, high));
        }
    }
}

#endif
