/* resize_avx2.c - resize for AVX2 + FMA.
 *
 * Fixed point, 3 or 4 channels. Weights are split (resize.h); a group is 4 taps, padded with zero weights.
 *   horizontal: 4 source rows at once. 16 bytes hold the 4 pixels of a group; both 128-bit lanes get them, and a byte
 *     shuffle leaves pairs (p0 p1) of r g b x in the low lane and (p2 p3) in the high one, as 16-bit words:
 *         low   r0 r1  g0 g1  b0 b1  x0 x1      times (lo0 lo1), and times (hi0 hi1), in every 32 bits
 *         high  r2 r3  g2 g3  b2 b3  x2 x3      times (lo2 lo3), and times (hi2 hi3)
 *     ymm: 4 rows x {lo, hi} sums, 2 weights, 3 shuffles, 1 group of pixels. The lanes are added once a pixel.
 *   vertical: 32 bytes of two rows a and b unpack to 4 x 8 pairs (a_i b_i). ymm: 4 x {lo, hi} sums, 2 weights, rows.
 *   Tails: the last 32 bytes of a vertical pass overlap the ones before; the last source columns of a horizontal pass
 *     come as a copy with room behind it (resize_run_ref.c).
 *   Bound: a group of 4 rows is 27 vector operations for 48 products, so 7 cycles at 4 a cycle.
 *
 * Floating point. Vertical: 32 elements over all taps in 4 ymm, then 8 at a time; the last 8 overlap the ones before,
 * which shows nowhere since an element's chain of FMAs does not depend on where it stands. Horizontal: one xmm a pixel,
 * one FMA a tap; pixels are independent, so their latencies overlap. Bound: 3 operations for 8 products vertically
 * (load, convert, FMA), 2 for 3 horizontally.
 *
 * Measured by bench/compare_resize.py on a busy 2-core Zen 3 machine, one thread, 640x427 to 224x224: u8 288 us (Pillow
 * 1570, torch's u8, which keeps 16 bits of a weight, 322), f32 out of u8 315 us (torch 1504); 1920x1080 to 224x224:
 * 1930 us (Pillow 7300, torch 960) and 1275 us (torch 7340). About half of the bounds above, beside busy neighbours. */
#include "resize.h"

#include <immintrin.h>

/* ---- fixed point ----------------------------------------------------------------------------------------------- */

enum { Z = -128 }; /* a shuffle index that gives zero */

WOK_INLINE __m256i pixel_pairs(int64_t channels) {
    if (channels == 3)
        return _mm256_setr_epi8(0, Z, 3, Z, 1, Z, 4, Z, 2, Z, 5, Z, Z, Z, Z, Z, /* pixels 0 and 1 */
                                6, Z, 9, Z, 7, Z, 10, Z, 8, Z, 11, Z, Z, Z, Z, Z);
    return _mm256_setr_epi8(0, Z, 4, Z, 1, Z, 5, Z, 2, Z, 6, Z, 3, Z, 7, Z, /* pixels 0 and 1 */
                            8, Z, 12, Z, 9, Z, 13, Z, 10, Z, 14, Z, 11, Z, 15, Z);
}

/* Dword `low` of each lane four times in the low lane, dword `low` + 1 in the high one. */
WOK_INLINE __m256i weight_pairs(char low) {
    char a = (char)(4 * low), b = (char)(a + 4);
    return _mm256_setr_epi8(a, a + 1, a + 2, a + 3, a, a + 1, a + 2, a + 3, /* the low lane */
                            a, a + 1, a + 2, a + 3, a, a + 1, a + 2, a + 3, /* ... */
                            b, b + 1, b + 2, b + 3, b, b + 1, b + 2, b + 3, /* the high one */
                            b, b + 1, b + 2, b + 3, b, b + 1, b + 2, b + 3);
}

WOK_INLINE __m256i broadcast16(const void *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128(p)); }

WOK_INLINE __m256i join_halves(__m256i lo, __m256i hi) {
    return _mm256_add_epi32(lo, _mm256_slli_epi32(hi, WOK_RESIZE_SPLIT));
}

WOK_INLINE __m256i descale(__m256i sum) {
    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (WOK_RESIZE_BITS - 1))), WOK_RESIZE_BITS);
}

WOK_INLINE void store4(uint8_t *p, int v) { memcpy(p, &v, sizeof v); }

/* Four rows' sums, lanes to be added -> 4 bytes at p[r]. */
WOK_INLINE void finish_pixel(const __m256i sum[WOK_RESIZE_BLOCK], uint8_t *const p[WOK_RESIZE_BLOCK], int64_t at) {
    __m256i s01 = descale(_mm256_add_epi32(_mm256_permute2x128_si256(sum[0], sum[1], 0x20),
                                           _mm256_permute2x128_si256(sum[0], sum[1], 0x31)));
    __m256i s23 = descale(_mm256_add_epi32(_mm256_permute2x128_si256(sum[2], sum[3], 0x20),
                                           _mm256_permute2x128_si256(sum[2], sum[3], 0x31)));
    __m256i words = _mm256_packs_epi32(s01, s23); /* rows 0 and 2 in the low lane, 1 and 3 in the high one */
    __m256i bytes = _mm256_packus_epi16(words, words);
    __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
    store4(p[0] + at, _mm_cvtsi128_si32(even));
    store4(p[1] + at, _mm_cvtsi128_si32(odd));
    store4(p[2] + at, _mm_extract_epi32(even, 1));
    store4(p[3] + at, _mm_extract_epi32(odd, 1));
}

/* `channels` is a constant after inlining. With 3 channels a store's 4th byte is overwritten by the next pixel. */
WOK_INLINE void horizontal(const wok_resize_axis *axis, int64_t begin, int64_t end, int64_t origin, int64_t channels,
                           const uint8_t *const src[WOK_RESIZE_BLOCK], uint8_t *const dst[WOK_RESIZE_BLOCK]) {
    const __m256i pixels = pixel_pairs(channels), take_lo = weight_pairs(0), take_hi = weight_pairs(2);
    const uint8_t *const x0 = src[0], *const x1 = src[1], *const x2 = src[2], *const x3 = src[3];
    uint8_t *const to[WOK_RESIZE_BLOCK] = {dst[0], dst[1], dst[2], dst[3]};
    for (int64_t i = begin; i < end; i++) {
        const int32_t *weights = (const int32_t *)axis->weights + i * axis->stride;
        const int64_t taps = axis->taps[i];
        int64_t at = (axis->first[i] - origin) * channels;
        __m256i lo0, lo1, lo2, lo3, hi0, hi1, hi2, hi3;
        lo0 = lo1 = lo2 = lo3 = hi0 = hi1 = hi2 = hi3 = _mm256_setzero_si256();
        for (int64_t t = 0; t < taps; t += 4, at += 4 * channels) {
            __m256i w = broadcast16(weights + t), v;
            __m256i wlo = _mm256_shuffle_epi8(w, take_lo), whi = _mm256_shuffle_epi8(w, take_hi);
            v = _mm256_shuffle_epi8(broadcast16(x0 + at), pixels);
            lo0 = _mm256_add_epi32(lo0, _mm256_madd_epi16(v, wlo));
            hi0 = _mm256_add_epi32(hi0, _mm256_madd_epi16(v, whi));
            v = _mm256_shuffle_epi8(broadcast16(x1 + at), pixels);
            lo1 = _mm256_add_epi32(lo1, _mm256_madd_epi16(v, wlo));
            hi1 = _mm256_add_epi32(hi1, _mm256_madd_epi16(v, whi));
            v = _mm256_shuffle_epi8(broadcast16(x2 + at), pixels);
            lo2 = _mm256_add_epi32(lo2, _mm256_madd_epi16(v, wlo));
            hi2 = _mm256_add_epi32(hi2, _mm256_madd_epi16(v, whi));
            v = _mm256_shuffle_epi8(broadcast16(x3 + at), pixels);
            lo3 = _mm256_add_epi32(lo3, _mm256_madd_epi16(v, wlo));
            hi3 = _mm256_add_epi32(hi3, _mm256_madd_epi16(v, whi));
        }
        const __m256i sum[WOK_RESIZE_BLOCK] = {join_halves(lo0, hi0), join_halves(lo1, hi1), join_halves(lo2, hi2),
                                               join_halves(lo3, hi3)};
        finish_pixel(sum, to, (i - begin) * channels);
    }
}

static void horizontal_u8(const wok_resize_axis *axis, int64_t begin, int64_t end, int64_t origin, int64_t channels,
                          const uint8_t *const src[WOK_RESIZE_BLOCK], uint8_t *const dst[WOK_RESIZE_BLOCK]) {
    if (channels == 3) horizontal(axis, begin, end, origin, 3, src, dst);
    else horizontal(axis, begin, end, origin, 4, src, dst);
}

/* Elements i .. i + 31. */
WOK_INLINE void vertical32(const uint8_t *const *rows, const int32_t *weights, int64_t taps, int64_t i, uint8_t *dst) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i lo0, lo1, lo2, lo3, hi0, hi1, hi2, hi3;
    lo0 = lo1 = lo2 = lo3 = hi0 = hi1 = hi2 = hi3 = zero;
    for (int64_t t = 0; t < taps; t += 2) {
        const int32_t *pair = weights + (t & ~(int64_t)3) + (t >> 1 & 1); /* lo01 lo23 hi01 hi23 */
        __m256i wlo = _mm256_set1_epi32(pair[0]), whi = _mm256_set1_epi32(pair[2]);
        __m256i a = _mm256_loadu_si256((const void *)(rows[t] + i));
        __m256i b = _mm256_loadu_si256((const void *)(rows[t + 1] + i));
        __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b), v;
        v = _mm256_unpacklo_epi8(left, zero);
        lo0 = _mm256_add_epi32(lo0, _mm256_madd_epi16(v, wlo));
        hi0 = _mm256_add_epi32(hi0, _mm256_madd_epi16(v, whi));
        v = _mm256_unpackhi_epi8(left, zero);
        lo1 = _mm256_add_epi32(lo1, _mm256_madd_epi16(v, wlo));
        hi1 = _mm256_add_epi32(hi1, _mm256_madd_epi16(v, whi));
        v = _mm256_unpacklo_epi8(right, zero);
        lo2 = _mm256_add_epi32(lo2, _mm256_madd_epi16(v, wlo));
        hi2 = _mm256_add_epi32(hi2, _mm256_madd_epi16(v, whi));
        v = _mm256_unpackhi_epi8(right, zero);
        lo3 = _mm256_add_epi32(lo3, _mm256_madd_epi16(v, wlo));
        hi3 = _mm256_add_epi32(hi3, _mm256_madd_epi16(v, whi));
    }
    /* unpack and pack both work within lanes, so the order comes out right */
    __m256i w01 = _mm256_packs_epi32(descale(join_halves(lo0, hi0)), descale(join_halves(lo1, hi1)));
    __m256i w23 = _mm256_packs_epi32(descale(join_halves(lo2, hi2)), descale(join_halves(lo3, hi3)));
    _mm256_storeu_si256((void *)(dst + i), _mm256_packus_epi16(w01, w23));
}

static void vertical_u8(const uint8_t *const *rows, const int32_t *weights, int64_t taps, int64_t n, uint8_t *dst) {
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) vertical32(rows, weights, taps, i, dst);
    if (i == n) return;
    if (n >= 32) vertical32(rows, weights, taps, n - 32, dst); /* again for some: the same sums */
    else wok_resize_vertical_split(rows, weights, taps, n, dst);
}

/* ---- floating point -------------------------------------------------------------------------------------------- */

WOK_INLINE __m256 load8(const void *row, bool is_u8, int64_t i) {
    if (is_u8)
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)((const uint8_t *)row + i))));
    return _mm256_loadu_ps((const float *)row + i);
}

WOK_INLINE float load1(const void *row, bool is_u8, int64_t i) {
    return is_u8 ? (float)((const uint8_t *)row)[i] : ((const float *)row)[i];
}

WOK_INLINE void vertical8(const void *const *rows, bool is_u8, int64_t at, const float *weights, int64_t taps,
                          float *dst) {
    __m256 sum = _mm256_setzero_ps();
    for (int64_t t = 0; t < taps; t++)
        sum = _mm256_fmadd_ps(_mm256_set1_ps(weights[t]), load8(rows[t], is_u8, at), sum);
    _mm256_storeu_ps(dst, sum);
}

WOK_INLINE void vertical(const void *const *rows, bool is_u8, int64_t offset, const float *weights, int64_t taps,
                         int64_t n, float *dst) {
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t t = 0; t < taps; t++) {
            const __m256 w = _mm256_set1_ps(weights[t]);
            s0 = _mm256_fmadd_ps(w, load8(rows[t], is_u8, offset + i), s0);
            s1 = _mm256_fmadd_ps(w, load8(rows[t], is_u8, offset + i + 8), s1);
            s2 = _mm256_fmadd_ps(w, load8(rows[t], is_u8, offset + i + 16), s2);
            s3 = _mm256_fmadd_ps(w, load8(rows[t], is_u8, offset + i + 24), s3);
        }
        _mm256_storeu_ps(dst + i, s0);
        _mm256_storeu_ps(dst + i + 8, s1);
        _mm256_storeu_ps(dst + i + 16, s2);
        _mm256_storeu_ps(dst + i + 24, s3);
    }
    for (; i + 8 <= n; i += 8) vertical8(rows, is_u8, offset + i, weights, taps, dst + i);
    if (i == n) return;
    if (n >= 8) {
        vertical8(rows, is_u8, offset + n - 8, weights, taps, dst + n - 8);
        return;
    }
    for (; i < n; i++) {
        float sum = 0.0f;
        for (int64_t t = 0; t < taps; t++) sum = fmaf(weights[t], load1(rows[t], is_u8, offset + i), sum);
        dst[i] = sum;
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

/* Any channels: 8 at a time, reading and writing beyond the last one, which the next pixel (or the slack) absorbs. */
static void horizontal_any(const wok_resize_axis *axis, int64_t origin, int64_t channels, const float *src,
                           float *dst) {
    for (int64_t i = 0; i < axis->count; i++) {
        const float *weights = (const float *)axis->weights + i * axis->stride;
        const float *x = src + (axis->first[i] - origin) * channels;
        for (int64_t c = 0; c < channels; c += 8) {
            __m256 sum = _mm256_setzero_ps();
            for (int64_t t = 0; t < axis->taps[i]; t++)
                sum = _mm256_fmadd_ps(_mm256_set1_ps(weights[t]), _mm256_loadu_ps(x + t * channels + c), sum);
            _mm256_storeu_ps(dst + i * channels + c, sum);
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

WOK_INLINE __m128 three(const float *v, float otherwise) {
    return v ? _mm_setr_ps(v[0], v[1], v[2], otherwise) : _mm_set1_ps(otherwise);
}

static void store_f32(const float *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y) {
    int64_t i = 0, plane = args->y_channel_stride;
    const bool planar = args->y_pixel_stride == 1, packed = args->y_pixel_stride == 3 && plane == 1;
    if (channels == 3 && (planar || packed)) {
        const __m128 scale = three(args->scale, 1.0f), shift = three(args->shift, 0.0f);
        for (; planar && i + 4 <= n; i += 4) {
            __m128 a = _mm_fmadd_ps(_mm_loadu_ps(src + 4 * i), scale, shift);
            __m128 b = _mm_fmadd_ps(_mm_loadu_ps(src + 4 * i + 4), scale, shift);
            __m128 c = _mm_fmadd_ps(_mm_loadu_ps(src + 4 * i + 8), scale, shift);
            __m128 d = _mm_fmadd_ps(_mm_loadu_ps(src + 4 * i + 12), scale, shift);
            _MM_TRANSPOSE4_PS(a, b, c, d);
            _mm_storeu_ps(y + i, a);
            _mm_storeu_ps(y + plane + i, b);
            _mm_storeu_ps(y + 2 * plane + i, c);
        }
        for (; packed && i + 1 < n; i++) /* the 4th lane is overwritten by the next pixel */
            _mm_storeu_ps(y + 3 * i, _mm_fmadd_ps(_mm_loadu_ps(src + 4 * i), scale, shift));
    }
    wok_resize_store_f32(src + i * wok_resize_lanes(channels), n - i, channels, args, y + i * args->y_pixel_stride);
}

/* 8 bytes of channel c out of 24 bytes of pixels, where a holds bytes 0..15 and b 8..23. */
WOK_INLINE __m256 channel8(__m128i a, __m128i b, __m128i from_a, __m128i from_b) {
    __m128i bytes = _mm_or_si128(_mm_shuffle_epi8(a, from_a), _mm_shuffle_epi8(b, from_b));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

static void store_unit(const uint8_t *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y) {
    int64_t i = 0, plane = args->y_channel_stride;
    if (channels == 3 && args->y_pixel_stride == 1) {
        const __m128i ra = _mm_setr_epi8(0, 3, 6, 9, 12, 15, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z);
        const __m128i rb = _mm_setr_epi8(Z, Z, Z, Z, Z, Z, 10, 13, Z, Z, Z, Z, Z, Z, Z, Z);
        const __m128i ga = _mm_setr_epi8(1, 4, 7, 10, 13, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z);
        const __m128i gb = _mm_setr_epi8(Z, Z, Z, Z, Z, 8, 11, 14, Z, Z, Z, Z, Z, Z, Z, Z);
        const __m128i ba = _mm_setr_epi8(2, 5, 8, 11, 14, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z);
        const __m128i bb = _mm_setr_epi8(Z, Z, Z, Z, Z, 9, 12, 15, Z, Z, Z, Z, Z, Z, Z, Z);
        float scale[3] = {1.0f, 1.0f, 1.0f}, shift[3] = {0.0f, 0.0f, 0.0f};
        if (args->scale) memcpy(scale, args->scale, sizeof scale);
        if (args->shift) memcpy(shift, args->shift, sizeof shift);
        for (; i + 8 <= n; i += 8) {
            const __m128i a = _mm_loadu_si128((const void *)(src + 3 * i));
            const __m128i b = _mm_loadu_si128((const void *)(src + 3 * i + 8));
            _mm256_storeu_ps(y + i, _mm256_fmadd_ps(channel8(a, b, ra, rb), _mm256_set1_ps(scale[0]),
                                                    _mm256_set1_ps(shift[0])));
            _mm256_storeu_ps(y + plane + i, _mm256_fmadd_ps(channel8(a, b, ga, gb), _mm256_set1_ps(scale[1]),
                                                            _mm256_set1_ps(shift[1])));
            _mm256_storeu_ps(y + 2 * plane + i, _mm256_fmadd_ps(channel8(a, b, ba, bb), _mm256_set1_ps(scale[2]),
                                                                _mm256_set1_ps(shift[2])));
        }
    }
    wok_resize_store_unit(src + i * channels, n - i, channels, args, y + i * args->y_pixel_stride);
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

const wok_resize_kernel wok_resize__avx2 = {
    .base = {"wok_resize__avx2", WOK_ISA_avx2, 0, accept},
    .workspace_bytes = wok_resize_workspace_bytes,
    .run = run,
};
