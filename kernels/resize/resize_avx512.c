/* resize_avx512.c - resize for AVX-512 (F BW DQ VL). The method is resize_avx2.c's; what is different:
 *
 * Fixed point, 3 or 4 channels.
 *   horizontal: one zmm holds a group of 4 taps of two rows, in 128-bit lanes
 *         [row 0 taps 0 1 | row 0 taps 2 3 | row 1 taps 0 1 | row 1 taps 2 3]
 *     filled by a broadcast and a masked broadcast. zmm: 2 pairs of rows x {lo, hi} sums, 2 weights, 3 shuffles.
 *   vertical: 64 bytes of two rows. zmm: 4 x {lo, hi} sums, 2 weights, rows.
 *   Bound: a group of 4 rows is 17 vector operations for 48 products (AVX2: 27).
 * Floating point. Vertical: 64 elements in 4 zmm, then 16. Horizontal: one xmm a pixel as on AVX2, since a pixel is no
 * longer than that.
 * Tails: masked loads and stores everywhere; the last source columns come as a copy, as on AVX2.
 *
 * An element's chain of operations equals resize_avx2.c's, and so do the bits. Not measured: no such processor at hand
 * (checked on an emulated one, tests/emulate). */
#include "resize.h"

#include <immintrin.h>

enum { Z = -128 }; /* a byte shuffle index that gives zero */

/* ---- fixed point ----------------------------------------------------------------------------------------------- */

WOK_INLINE __m512i pixel_pairs(int64_t channels) {
    __m256i two = channels == 3 ? _mm256_setr_epi8(0, Z, 3, Z, 1, Z, 4, Z, 2, Z, 5, Z, Z, Z, Z, Z, /* pixels 0 and 1 */
                                                   6, Z, 9, Z, 7, Z, 10, Z, 8, Z, 11, Z, Z, Z, Z, Z)
                                : _mm256_setr_epi8(0, Z, 4, Z, 1, Z, 5, Z, 2, Z, 6, Z, 3, Z, 7, Z, /* pixels 0 and 1 */
                                                   8, Z, 12, Z, 9, Z, 13, Z, 10, Z, 14, Z, 11, Z, 15, Z);
    return _mm512_broadcast_i64x4(two);
}

WOK_INLINE __m512i join_halves(__m512i lo, __m512i hi) {
    return _mm512_add_epi32(lo, _mm512_slli_epi32(hi, WOK_RESIZE_SPLIT));
}

WOK_INLINE __m512i descale(__m512i sum) {
    return _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(1 << (WOK_RESIZE_BITS - 1))), WOK_RESIZE_BITS);
}

WOK_INLINE __m512i load_two(const uint8_t *a, const uint8_t *b) {
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)a));
    return _mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const void *)b));
}

WOK_INLINE void store4(uint8_t *p, int v) { memcpy(p, &v, sizeof v); }

/* rows01, rows23: [row a | row a | row b | row b], lanes of a row to be added -> 4 bytes at p[r]. */
WOK_INLINE void finish_pixel(__m512i rows01, __m512i rows23, uint8_t *const p[WOK_RESIZE_BLOCK], int64_t at) {
    __m512i sum = _mm512_add_epi32(_mm512_shuffle_i32x4(rows01, rows23, _MM_SHUFFLE(2, 0, 2, 0)),
                                   _mm512_shuffle_i32x4(rows01, rows23, _MM_SHUFFLE(3, 1, 3, 1)));
    __m128i bytes = _mm512_cvtusepi32_epi8(_mm512_max_epi32(descale(sum), _mm512_setzero_si512()));
    store4(p[0] + at, _mm_cvtsi128_si32(bytes));
    store4(p[1] + at, _mm_extract_epi32(bytes, 1));
    store4(p[2] + at, _mm_extract_epi32(bytes, 2));
    store4(p[3] + at, _mm_extract_epi32(bytes, 3));
}

/* `channels` is a constant after inlining. With 3 channels a store's 4th byte is overwritten by the next pixel. */
WOK_INLINE void horizontal(const wok_resize_axis *axis, int64_t begin, int64_t end, int64_t origin, int64_t channels,
                           const uint8_t *const src[WOK_RESIZE_BLOCK], uint8_t *const dst[WOK_RESIZE_BLOCK]) {
    const __m512i pixels = pixel_pairs(channels);
    /* dword 0 (or 2) of the weights in lanes 0 and 2, dword 1 (or 3) in lanes 1 and 3 */
    const __m512i take_lo = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1);
    const __m512i take_hi = _mm512_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3, 2, 2, 2, 2, 3, 3, 3, 3);
    const uint8_t *const x0 = src[0], *const x1 = src[1], *const x2 = src[2], *const x3 = src[3];
    uint8_t *const to[WOK_RESIZE_BLOCK] = {dst[0], dst[1], dst[2], dst[3]};
    for (int64_t i = begin; i < end; i++) {
        const int32_t *weights = (const int32_t *)axis->weights + i * axis->stride;
        const int64_t taps = axis->taps[i];
        int64_t at = (axis->first[i] - origin) * channels;
        __m512i lo01, lo23, hi01, hi23;
        lo01 = lo23 = hi01 = hi23 = _mm512_setzero_si512();
        for (int64_t t = 0; t < taps; t += 4, at += 4 * channels) {
            __m512i w = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(weights + t)));
            __m512i wlo = _mm512_permutexvar_epi32(take_lo, w), whi = _mm512_permutexvar_epi32(take_hi, w);
            __m512i v01 = _mm512_shuffle_epi8(load_two(x0 + at, x1 + at), pixels);
            __m512i v23 = _mm512_shuffle_epi8(load_two(x2 + at, x3 + at), pixels);
            lo01 = _mm512_add_epi32(lo01, _mm512_madd_epi16(v01, wlo));
            hi01 = _mm512_add_epi32(hi01, _mm512_madd_epi16(v01, whi));
            lo23 = _mm512_add_epi32(lo23, _mm512_madd_epi16(v23, wlo));
            hi23 = _mm512_add_epi32(hi23, _mm512_madd_epi16(v23, whi));
        }
        finish_pixel(join_halves(lo01, hi01), join_halves(lo23, hi23), to, (i - begin) * channels);
    }
}

static void horizontal_u8(const wok_resize_axis *axis, int64_t begin, int64_t end, int64_t origin, int64_t channels,
                          const uint8_t *const src[WOK_RESIZE_BLOCK], uint8_t *const dst[WOK_RESIZE_BLOCK]) {
    if (channels == 3) horizontal(axis, begin, end, origin, 3, src, dst);
    else horizontal(axis, begin, end, origin, 4, src, dst);
}

static void vertical_u8(const uint8_t *const *rows, const int32_t *weights, int64_t taps, int64_t n, uint8_t *dst) {
    const __m512i zero = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 64) {
        const __mmask64 mask = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        __m512i lo0, lo1, lo2, lo3, hi0, hi1, hi2, hi3;
        lo0 = lo1 = lo2 = lo3 = hi0 = hi1 = hi2 = hi3 = zero;
        for (int64_t t = 0; t < taps; t += 2) {
            const int32_t *pair = weights + (t & ~(int64_t)3) + (t >> 1 & 1); /* lo01 lo23 hi01 hi23 */
            __m512i wlo = _mm512_set1_epi32(pair[0]), whi = _mm512_set1_epi32(pair[2]);
            __m512i a = _mm512_maskz_loadu_epi8(mask, rows[t] + i), b = _mm512_maskz_loadu_epi8(mask, rows[t + 1] + i);
            __m512i left = _mm512_unpacklo_epi8(a, b), right = _mm512_unpackhi_epi8(a, b), v;
            v = _mm512_unpacklo_epi8(left, zero);
            lo0 = _mm512_add_epi32(lo0, _mm512_madd_epi16(v, wlo));
            hi0 = _mm512_add_epi32(hi0, _mm512_madd_epi16(v, whi));
            v = _mm512_unpackhi_epi8(left, zero);
            lo1 = _mm512_add_epi32(lo1, _mm512_madd_epi16(v, wlo));
            hi1 = _mm512_add_epi32(hi1, _mm512_madd_epi16(v, whi));
            v = _mm512_unpacklo_epi8(right, zero);
            lo2 = _mm512_add_epi32(lo2, _mm512_madd_epi16(v, wlo));
            hi2 = _mm512_add_epi32(hi2, _mm512_madd_epi16(v, whi));
            v = _mm512_unpackhi_epi8(right, zero);
            lo3 = _mm512_add_epi32(lo3, _mm512_madd_epi16(v, wlo));
            hi3 = _mm512_add_epi32(hi3, _mm512_madd_epi16(v, whi));
        }
        /* unpack and pack both work within lanes, so the order comes out right */
        __m512i w01 = _mm512_packs_epi32(descale(join_halves(lo0, hi0)), descale(join_halves(lo1, hi1)));
        __m512i w23 = _mm512_packs_epi32(descale(join_halves(lo2, hi2)), descale(join_halves(lo3, hi3)));
        _mm512_mask_storeu_epi8(dst + i, mask, _mm512_packus_epi16(w01, w23));
    }
}

/* ---- floating point -------------------------------------------------------------------------------------------- */

WOK_INLINE __m512 load16(const void *row, bool is_u8, int64_t i, __mmask16 mask) {
    if (is_u8)
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, (const uint8_t *)row + i)));
    return _mm512_maskz_loadu_ps(mask, (const float *)row + i);
}

WOK_INLINE void vertical(const void *const *rows, bool is_u8, int64_t offset, const float *weights, int64_t taps,
                         int64_t n, float *dst) {
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512 s0 = _mm512_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t t = 0; t < taps; t++) {
            const __m512 w = _mm512_set1_ps(weights[t]);
            s0 = _mm512_fmadd_ps(w, load16(rows[t], is_u8, offset + i, 0xffff), s0);
            s1 = _mm512_fmadd_ps(w, load16(rows[t], is_u8, offset + i + 16, 0xffff), s1);
            s2 = _mm512_fmadd_ps(w, load16(rows[t], is_u8, offset + i + 32, 0xffff), s2);
            s3 = _mm512_fmadd_ps(w, load16(rows[t], is_u8, offset + i + 48, 0xffff), s3);
        }
        _mm512_storeu_ps(dst + i, s0);
        _mm512_storeu_ps(dst + i + 16, s1);
        _mm512_storeu_ps(dst + i + 32, s2);
        _mm512_storeu_ps(dst + i + 48, s3);
    }
    for (; i < n; i += 16) {
        const __mmask16 mask = (__mmask16)((1u << wok_min64(n - i, 16)) - 1);
        __m512 sum = _mm512_setzero_ps();
        for (int64_t t = 0; t < taps; t++)
            sum = _mm512_fmadd_ps(_mm512_set1_ps(weights[t]), load16(rows[t], is_u8, offset + i, mask), sum);
        _mm512_mask_storeu_ps(dst + i, mask, sum);
    }
}

static void vertical_f32(const void *const *rows, bool is_u8, int64_t offset, const float *weights, int64_t taps,
                         int64_t n, float *dst) {
    if (is_u8) vertical(rows, true, offset, weights, taps, n, dst);
    else vertical(rows, false, offset, weights, taps, n, dst);
}

WOK_INLINE void horizontal4(const wok_resize_axis *axis, int64_t origin, int64_t channels, const float *src,
                            float *dst) {
    for (int64_t i = 0; i < axis->count; i++) {
        const float *weights = (const float *)axis->weights + i * axis->stride;
        const float *x = src + (axis->first[i] - origin) * channels;
        const int64_t taps = axis->taps[i];
        __m128 sum = _mm_setzero_ps();
        for (int64_t t = 0; t < taps; t++, x += channels)
            sum = _mm_fmadd_ps(_mm_set1_ps(weights[t]), _mm_loadu_ps(x), sum);
        _mm_storeu_ps(dst + 4 * i, sum);
    }
}

static void horizontal_any(const wok_resize_axis *axis, int64_t origin, int64_t channels, const float *src,
                           float *dst) {
    for (int64_t i = 0; i < axis->count; i++) {
        const float *weights = (const float *)axis->weights + i * axis->stride;
        const float *x = src + (axis->first[i] - origin) * channels;
        for (int64_t c = 0; c < channels; c += 16) {
            const __mmask16 mask = (__mmask16)((1u << wok_min64(channels - c, 16)) - 1);
            __m512 sum = _mm512_setzero_ps();
            for (int64_t t = 0; t < axis->taps[i]; t++)
                sum = _mm512_fmadd_ps(_mm512_set1_ps(weights[t]),
                                      _mm512_maskz_loadu_ps(mask, x + t * channels + c), sum);
            _mm512_mask_storeu_ps(dst + i * channels + c, mask, sum);
        }
    }
}

static void horizontal_f32(const wok_resize_axis *axis, int64_t origin, int64_t channels, const float *src,
                           float *dst) {
    if (channels == 3) horizontal4(axis, origin, 3, src, dst);
    else if (channels == 4) horizontal4(axis, origin, 4, src, dst);
    else horizontal_any(axis, origin, channels, src, dst);
}

/* ---- stores ---------------------------------------------------------------------------------------------------- */

WOK_INLINE float value_or(const float *values, int c, float otherwise) { return values ? values[c] : otherwise; }

WOK_INLINE __m512 three(const float *v, float otherwise) {
    return _mm512_broadcast_f32x4(_mm_setr_ps(value_or(v, 0, otherwise), value_or(v, 1, otherwise),
                                              value_or(v, 2, otherwise), 0.0f));
}

/* 4 pixels at a time: planes of 4, or 12 floats in a row. */
static void store_f32(const float *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y) {
    const int64_t plane = args->y_channel_stride;
    const bool planar = args->y_pixel_stride == 1, packed = args->y_pixel_stride == 3 && plane == 1;
    if (channels != 3 || !(planar || packed)) {
        wok_resize_store_f32(src, n, channels, args, y);
        return;
    }
    const __m512i by_channel = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i dense = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
    const __m512 scale = three(args->scale, 1.0f), shift = three(args->shift, 0.0f);
    for (int64_t i = 0; i < n; i += 4) {
        const int64_t pixels = wok_min64(n - i, 4);
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)((1u << 4 * pixels) - 1), src + 4 * i);
        v = _mm512_fmadd_ps(v, scale, shift);
        if (packed) {
            _mm512_mask_storeu_ps(y + 3 * i, (__mmask16)((1u << 3 * pixels) - 1), _mm512_permutexvar_ps(dense, v));
            continue;
        }
        const __mmask8 mask = (__mmask8)((1u << pixels) - 1);
        v = _mm512_permutexvar_ps(by_channel, v);
        _mm_mask_storeu_ps(y + i, mask, _mm512_castps512_ps128(v));
        _mm_mask_storeu_ps(y + plane + i, mask, _mm512_extractf32x4_ps(v, 1));
        _mm_mask_storeu_ps(y + 2 * plane + i, mask, _mm512_extractf32x4_ps(v, 2));
    }
}

/* 16 pixels, 48 bytes, at a time: channel c of pixel k stands at byte 3 k + c. */
static void store_unit(const uint8_t *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y) {
    static const int8_t pick[3][3][16] = {
        {{0, 3, 6, 9, 12, 15, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, Z, 2, 5, 8, 11, 14, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 1, 4, 7, 10, 13}},
        {{1, 4, 7, 10, 13, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, 0, 3, 6, 9, 12, 15, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 2, 5, 8, 11, 14}},
        {{2, 5, 8, 11, 14, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, 1, 4, 7, 10, 13, Z, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 0, 3, 6, 9, 12, 15}},
    };
    if (channels != 3 || args->y_pixel_stride != 1) {
        wok_resize_store_unit(src, n, channels, args, y);
        return;
    }
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 mask = (__mmask16)((1u << wok_min64(n - i, 16)) - 1);
        const __m128i a = _mm_loadu_si128((const void *)(src + 3 * i));
        const __m128i b = _mm_loadu_si128((const void *)(src + 3 * i + 16));
        const __m128i d = _mm_loadu_si128((const void *)(src + 3 * i + 32));
        for (int c = 0; c < 3; c++) {
            __m128i bytes = _mm_shuffle_epi8(a, _mm_loadu_si128((const void *)pick[c][0]));
            bytes = _mm_or_si128(bytes, _mm_shuffle_epi8(b, _mm_loadu_si128((const void *)pick[c][1])));
            bytes = _mm_or_si128(bytes, _mm_shuffle_epi8(d, _mm_loadu_si128((const void *)pick[c][2])));
            const __m512 v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)),
                                             _mm512_set1_ps(value_or(args->scale, c, 1.0f)),
                                             _mm512_set1_ps(value_or(args->shift, c, 0.0f)));
            _mm512_mask_storeu_ps(y + c * args->y_channel_stride + i, mask, v);
        }
    }
}

/* ---- the variant ----------------------------------------------------------------------------------------------- */

static const wok_resize_rows rows = {
    .split = true,
    .horizontal_u8 = horizontal_u8,
    .vertical_u8 = vertical_u8,
    .vertical_f32 = vertical_f32,
    .horizontal_f32 = horizontal_f32,
    .store_f32 = store_f32,
    .store_unit = store_unit,
};

static const char *accept(const void *problem) {
    const wok_resize_problem *p = problem;
    if (p->op <= WOK_RESIZE_U8_UNIT && p->channels != 3 && p->channels != 4)
        return "its 8-bit passes are written for 3 and 4 channels";
    return wok_resize_accept(problem);
}

static void run(const wok_resize_problem *problem, const wok_resize_args *args, const wok_parallel *parallel) {
    wok_resize_run(&rows, problem, args, parallel);
}

const wok_resize_kernel wok_resize__avx512 = {
    .base = {"wok_resize__avx512", WOK_ISA_avx512, 0, accept},
    .workspace_bytes = wok_resize_workspace_bytes,
    .run = run,
};
