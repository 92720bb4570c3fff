/* lanes_avx2.h - the vector operations that loops shared by AVX2 and AVX-512 are written in (internal).
 *
 * lanes_avx512.h defines the same names on wider registers; a kernel file includes the one of its level, then the
 * shared loops (FAMILY_loops.h). A function is one instruction or a fixed short sequence, so that the bits of a lane do
 * not depend on the width. V_LANES: 32-bit lanes of a register; V_BYTES: its bytes; V_TILE: registers of a tile, which
 * is 16 numbers. A mixed tile has them in the order 0-3 8-11 4-7 12-15, which is what AVX2's unpacking makes of 16
 * words, and its packing makes good again. */
#ifndef WOK_LANES_AVX2_H
#define WOK_LANES_AVX2_H

#include "math_avx2.h"

typedef __m256 v_f32;
typedef __m256i v_s32;   /* V_LANES x int32 */
typedef __m256i v_bytes; /* V_BYTES x int8 */
typedef __m256i v_pairs; /* V_LANES x (int16, int16) */
enum { V_LANES = 8, V_BYTES = 32, V_TILE = 2 };

/* ---- f32 --------------------------------------------------------------------------------------------------------- */

WOK_INLINE v_f32 v_load(const float *p) { return _mm256_loadu_ps(p); }
WOK_INLINE void v_store(float *p, v_f32 x) { _mm256_storeu_ps(p, x); }
WOK_INLINE v_f32 v_load_part(const float *p, int64_t n) { return _mm256_maskload_ps(p, wok_mask_avx2(n)); }
WOK_INLINE void v_store_part(float *p, v_f32 x, int64_t n) { _mm256_maskstore_ps(p, wok_mask_avx2(n), x); }
WOK_INLINE v_f32 v_set1(float x) { return _mm256_set1_ps(x); }
WOK_INLINE v_f32 v_add(v_f32 a, v_f32 b) { return _mm256_add_ps(a, b); }
WOK_INLINE v_f32 v_mul(v_f32 a, v_f32 b) { return _mm256_mul_ps(a, b); }
WOK_INLINE v_f32 v_div(v_f32 a, v_f32 b) { return _mm256_div_ps(a, b); }
WOK_INLINE v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return _mm256_fmadd_ps(a, b, c); }
/* b where either is NaN */
WOK_INLINE v_f32 v_min(v_f32 a, v_f32 b) { return _mm256_min_ps(a, b); }
WOK_INLINE v_f32 v_max(v_f32 a, v_f32 b) { return _mm256_max_ps(a, b); }
/* x, and 0 for NaN */
WOK_INLINE v_f32 v_number(v_f32 x) { return _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q)); }
WOK_INLINE v_f32 v_abs(v_f32 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
/* false too where a NaN is */
WOK_INLINE bool v_all_below(v_f32 a, v_f32 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)) == 255; }
WOK_INLINE v_f32 v_act(v_f32 x, wok_act act, v_f32 lo, v_f32 hi) { return wok_act_avx2(x, act, lo, hi); }

/* ---- int32 ------------------------------------------------------------------------------------------------------- */

WOK_INLINE v_s32 v_set1_s32(int32_t x) { return _mm256_set1_epi32(x); }
WOK_INLINE v_s32 v_load_s32(const int32_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
WOK_INLINE void v_store_s32(int32_t *p, v_s32 x) { _mm256_storeu_si256((__m256i *)(void *)p, x); }
WOK_INLINE void v_store_part_s32(int32_t *p, v_s32 x, int64_t n) { _mm256_maskstore_epi32(p, wok_mask_avx2(n), x); }
WOK_INLINE v_s32 v_add_s32(v_s32 a, v_s32 b) { return _mm256_add_epi32(a, b); }
WOK_INLINE v_s32 v_sub_s32(v_s32 a, v_s32 b) { return _mm256_sub_epi32(a, b); }
WOK_INLINE v_s32 v_mul_s32(v_s32 a, v_s32 b) { return _mm256_mullo_epi32(a, b); }
WOK_INLINE v_f32 v_float(v_s32 x) { return _mm256_cvtepi32_ps(x); }
/* nearest, halves to even; INT32_MIN for NaN and beyond int32 */
WOK_INLINE v_s32 v_round(v_f32 x) { return _mm256_cvtps_epi32(x); }

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

WOK_INLINE v_bytes v_load_bytes(const int8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
WOK_INLINE void v_store_bytes(int8_t *p, v_bytes x) { _mm256_storeu_si256((__m256i *)(void *)p, x); }
WOK_INLINE v_bytes v_set1_bytes(int8_t x) { return _mm256_set1_epi8(x); }
WOK_INLINE v_bytes v_min_bytes(v_bytes a, v_bytes b) { return _mm256_min_epi8(a, b); }
WOK_INLINE v_bytes v_max_bytes(v_bytes a, v_bytes b) { return _mm256_max_epi8(a, b); }
WOK_INLINE v_bytes v_xor_bytes(v_bytes a, v_bytes b) { return _mm256_xor_si256(a, b); }
/* V_LANES bytes, widened */
WOK_INLINE v_s32 v_widen(const int8_t *p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
/* 4 * V_LANES numbers, cut to [-128, 127], in this order */
WOK_INLINE v_bytes v_narrow(v_s32 a, v_s32 b, v_s32 c, v_s32 d) {
    __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)); /* by 128-bit halves */
    return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
/* table[x & 15] of 16 bytes in every lane; 0 where x is negative */
WOK_INLINE v_bytes v_lookup16(const int8_t *table, v_bytes x) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table)), x);
}
WOK_INLINE v_bytes v_subs_bytes(v_bytes a, v_bytes b) { return _mm256_subs_epi8(a, b); }
/* The first n of 8 bytes, then zeros. */
WOK_INLINE __m128i v_load_few_avx2(const int8_t *p, int64_t n) {
    uint64_t bytes = 0;
    uint32_t four;
    uint16_t two;
    if (n >= 8) return _mm_loadl_epi64((const __m128i *)(const void *)p);
    if (n <= 0) return _mm_setzero_si128();
    if (n & 1) bytes = (uint8_t)p[n - 1];
    if (n & 2) memcpy(&two, p + (n & 4), sizeof two), bytes = bytes << 16 | two;
    if (n & 4) memcpy(&four, p, sizeof four), bytes = bytes << 32 | four;
    return _mm_cvtsi64_si128((long long)bytes);
}
WOK_INLINE __m128i v_load_16_avx2(const int8_t *p, int64_t n) {
    return _mm_unpacklo_epi64(v_load_few_avx2(p, n), v_load_few_avx2(p + 8, n - 8));
}
/* the first n < V_BYTES, then zeros */
WOK_INLINE v_bytes v_load_bytes_part(const int8_t *p, int64_t n) {
    return _mm256_set_m128i(v_load_16_avx2(p + 16, n - 16), v_load_16_avx2(p, n));
}
WOK_INLINE void v_store_bytes_part(int8_t *p, v_bytes x, int64_t n) {
    int8_t bytes[V_BYTES];
    v_store_bytes(bytes, x);
    memcpy(p, bytes, (size_t)n);
}
WOK_INLINE v_s32 v_widen_part(const int8_t *p, int64_t n) { return _mm256_cvtepi8_epi32(v_load_few_avx2(p, n)); }

/* ---- tiles, and products of bytes in pairs ------------------------------------------------------------ */

/* To the mixed order or back. */
WOK_INLINE void v_mix_s32(v_s32 *tile) {
    const v_s32 low = _mm256_permute2x128_si256(tile[0], tile[1], 0x20);
    tile[1] = _mm256_permute2x128_si256(tile[0], tile[1], 0x31);
    tile[0] = low;
}
/* The first n of 16 numbers and zeros, mixed. */
WOK_INLINE void v_load_mixed(v_f32 *tile, const float *p, int64_t n) {
    const v_f32 low = v_load_part(p, n), high = n > V_LANES ? v_load_part(p + V_LANES, n - V_LANES) : v_set1(0);
    tile[0] = _mm256_permute2f128_ps(low, high, 0x20);
    tile[1] = _mm256_permute2f128_ps(low, high, 0x31);
}
WOK_INLINE void v_pair_words_avx2(v_pairs *pairs, __m128i p, __m128i q) {
    const __m256i a = _mm256_cvtepi8_epi16(p), b = _mm256_cvtepi8_epi16(q);
    pairs[0] = _mm256_unpacklo_epi16(a, b);
    pairs[1] = _mm256_unpackhi_epi16(a, b);
}
/* 16 pairs (p[i], q[i]), or the first n of them and zeros, widened to 16 bits, mixed. */
WOK_INLINE void v_pair_mixed(v_pairs *pairs, const int8_t *p, const int8_t *q) {
    v_pair_words_avx2(pairs, _mm_loadu_si128((const __m128i *)(const void *)p),
                      _mm_loadu_si128((const __m128i *)(const void *)q));
}
WOK_INLINE void v_pair_mixed_part(v_pairs *pairs, const int8_t *p, const int8_t *q, int64_t n) {
    v_pair_words_avx2(pairs, v_load_16_avx2(p, n), v_load_16_avx2(q, n));
}
WOK_INLINE v_pairs v_load_pairs(const int16_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
WOK_INLINE void v_store_pairs(int16_t *p, v_pairs x) { _mm256_storeu_si256((__m256i *)(void *)p, x); }
WOK_INLINE v_pairs v_and_pairs(v_pairs a, v_pairs b) { return _mm256_and_si256(a, b); }
WOK_INLINE v_pairs v_set1_pairs(int16_t first, int16_t second) {
    return _mm256_set1_epi32((uint16_t)first | (int32_t)((uint32_t)(uint16_t)second << 16));
}
/* Two tiles, by 4 in any order: each number + zero (16-bit lanes), cut to [lo, 127]. */
WOK_INLINE __m256i v_narrow_tiles_avx2(const v_s32 *a, const v_s32 *b, v_pairs zero, v_bytes lo) {
    const __m256i words_a = _mm256_adds_epi16(_mm256_packs_epi32(a[0], a[1]), zero);
    const __m256i words_b = _mm256_adds_epi16(_mm256_packs_epi32(b[0], b[1]), zero);
    return _mm256_max_epi8(_mm256_packs_epi16(words_a, words_b), lo);
}
/* The bytes of these to p and q. */
WOK_INLINE void v_store_tiles(int8_t *p, int8_t *q, const v_s32 *a, const v_s32 *b, v_pairs zero, v_bytes lo) {
    const __m256i bytes = v_narrow_tiles_avx2(a, b, zero, lo); /* a0-3 a8-11 b0-3 b8-11, a4-7 .. */
    const __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_unpacklo_epi32(even, odd));
    _mm_storeu_si128((__m128i *)(void *)q, _mm_unpackhi_epi32(even, odd));
}
/* The same for mixed tiles, cut to [lo, hi]. */
WOK_INLINE void v_store_mixed(int8_t *p, int8_t *q, const v_s32 *a, const v_s32 *b, v_pairs zero, v_bytes lo,
                              v_bytes hi) {
    const __m256i bytes = v_min_bytes(v_narrow_tiles_avx2(a, b, zero, lo), hi); /* a0-7 b0-7, a8-15 b8-15 */
    const __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_unpacklo_epi64(low, high));
    _mm_storeu_si128((__m128i *)(void *)q, _mm_unpackhi_epi64(low, high));
}
/* acc[i] + a[i].first * b[i].first + a[i].second * b[i].second. Spelled out for gcc, which would add products to each
 * other before it adds them to the sums, and run out of registers. */
WOK_INLINE v_s32 v_add_products(v_s32 acc, v_pairs a, v_pairs b) {
#if defined(__clang__)
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
#else
    __m256i products;
    __asm__("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(a), "xm"(b));
    __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(products));
    return acc;
#endif
}

#endif
