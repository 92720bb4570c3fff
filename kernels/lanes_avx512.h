/* lanes_avx512.h - lanes_avx2.h on 512-bit registers (F BW DQ VL); what the names mean is said there (internal). */
#ifndef WOK_LANES_AVX512_H
#define WOK_LANES_AVX512_H

#include "math_avx512.h"

typedef __m512 v_f32;
typedef __m512i v_s32;
typedef __m512i v_bytes;
typedef __m512i v_pairs;
enum { V_LANES = 16, V_BYTES = 64, V_TILE = 1 };

/* ---- f32 --------------------------------------------------------------------------------------------------------- */

WOK_INLINE v_f32 v_load(const float *p) { return _mm512_loadu_ps(p); }
WOK_INLINE void v_store(float *p, v_f32 x) { _mm512_storeu_ps(p, x); }
WOK_INLINE v_f32 v_load_part(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(wok_mask_avx512(n), p); }
WOK_INLINE void v_store_part(float *p, v_f32 x, int64_t n) { _mm512_mask_storeu_ps(p, wok_mask_avx512(n), x); }
WOK_INLINE v_f32 v_set1(float x) { return _mm512_set1_ps(x); }
WOK_INLINE v_f32 v_add(v_f32 a, v_f32 b) { return _mm512_add_ps(a, b); }
WOK_INLINE v_f32 v_mul(v_f32 a, v_f32 b) { return _mm512_mul_ps(a, b); }
WOK_INLINE v_f32 v_div(v_f32 a, v_f32 b) { return _mm512_div_ps(a, b); }
WOK_INLINE v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return _mm512_fmadd_ps(a, b, c); }
WOK_INLINE v_f32 v_min(v_f32 a, v_f32 b) { return _mm512_min_ps(a, b); }
WOK_INLINE v_f32 v_max(v_f32 a, v_f32 b) { return _mm512_max_ps(a, b); }
WOK_INLINE v_f32 v_number(v_f32 x) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x); }
WOK_INLINE v_f32 v_abs(v_f32 x) { return _mm512_abs_ps(x); }
WOK_INLINE bool v_all_below(v_f32 a, v_f32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) == 0xffff; }
WOK_INLINE v_f32 v_act(v_f32 x, wok_act act, v_f32 lo, v_f32 hi) { return wok_act_avx512(x, act, lo, hi); }

/* ---- int32 ------------------------------------------------------------------------------------------------------- */

WOK_INLINE v_s32 v_set1_s32(int32_t x) { return _mm512_set1_epi32(x); }
WOK_INLINE v_s32 v_load_s32(const int32_t *p) { return _mm512_loadu_si512(p); }
WOK_INLINE void v_store_s32(int32_t *p, v_s32 x) { _mm512_storeu_si512(p, x); }
WOK_INLINE void v_store_part_s32(int32_t *p, v_s32 x, int64_t n) {
    _mm512_mask_storeu_epi32(p, wok_mask_avx512(n), x);
}
WOK_INLINE v_s32 v_add_s32(v_s32 a, v_s32 b) { return _mm512_add_epi32(a, b); }
WOK_INLINE v_s32 v_sub_s32(v_s32 a, v_s32 b) { return _mm512_sub_epi32(a, b); }
WOK_INLINE v_s32 v_mul_s32(v_s32 a, v_s32 b) { return _mm512_mullo_epi32(a, b); }
WOK_INLINE v_f32 v_float(v_s32 x) { return _mm512_cvtepi32_ps(x); }
WOK_INLINE v_s32 v_round(v_f32 x) { return _mm512_cvtps_epi32(x); }

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* The first n bytes; n is cut to 0 .. 64. */
WOK_INLINE __mmask64 v_mask_bytes_avx512(int64_t n) { return n >= 64 ? ~0ull : n <= 0 ? 0 : (1ull << n) - 1; }
WOK_INLINE __m128i v_load_16_avx512(const int8_t *p, int64_t n) {
    return _mm_maskz_loadu_epi8((__mmask16)v_mask_bytes_avx512(n), p);
}

WOK_INLINE v_bytes v_load_bytes(const int8_t *p) { return _mm512_loadu_si512(p); }
WOK_INLINE void v_store_bytes(int8_t *p, v_bytes x) { _mm512_storeu_si512(p, x); }
WOK_INLINE v_bytes v_load_bytes_part(const int8_t *p, int64_t n) {
    return _mm512_maskz_loadu_epi8(v_mask_bytes_avx512(n), p);
}
WOK_INLINE void v_store_bytes_part(int8_t *p, v_bytes x, int64_t n) {
    _mm512_mask_storeu_epi8(p, v_mask_bytes_avx512(n), x);
}
WOK_INLINE v_bytes v_set1_bytes(int8_t x) { return _mm512_set1_epi8(x); }
WOK_INLINE v_bytes v_min_bytes(v_bytes a, v_bytes b) { return _mm512_min_epi8(a, b); }
WOK_INLINE v_bytes v_max_bytes(v_bytes a, v_bytes b) { return _mm512_max_epi8(a, b); }
WOK_INLINE v_bytes v_xor_bytes(v_bytes a, v_bytes b) { return _mm512_xor_si512(a, b); }
WOK_INLINE v_bytes v_subs_bytes(v_bytes a, v_bytes b) { return _mm512_subs_epi8(a, b); }
WOK_INLINE v_s32 v_widen(const int8_t *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
WOK_INLINE v_s32 v_widen_part(const int8_t *p, int64_t n) { return _mm512_cvtepi8_epi32(v_load_16_avx512(p, n)); }
/* Dwords of the four 128-bit lanes, transposed. */
WOK_INLINE __m512i v_transpose_avx512(__m512i x) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
}
WOK_INLINE v_bytes v_narrow(v_s32 a, v_s32 b, v_s32 c, v_s32 d) {
    return v_transpose_avx512(_mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)));
}
WOK_INLINE v_bytes v_lookup16(const int8_t *table, v_bytes x) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table)), x);
}

/* ---- tiles, and products of bytes in pairs ------------------------------------------------------------ */

WOK_INLINE void v_mix_s32(v_s32 *tile) { tile[0] = _mm512_shuffle_i32x4(tile[0], tile[0], 0xd8); }
WOK_INLINE void v_load_mixed(v_f32 *tile, const float *p, int64_t n) {
    const v_f32 x = v_load_part(p, n);
    tile[0] = _mm512_shuffle_f32x4(x, x, 0xd8);
}
/* A shuffle puts a byte of a and of b into the upper bytes of their words, then the sign is spread. */
WOK_INLINE void v_pair_words_avx512(v_pairs *pairs, __m128i a, __m128i b) {
    const __m512i channel = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
    const __m512i upper = _mm512_add_epi32(_mm512_mullo_epi32(channel, _mm512_set1_epi32(0x01000100)),
                                           _mm512_set1_epi32(0x00800080));
    __m512i both = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(a), upper);
    both = _mm512_mask_shuffle_epi8(both, 0x8888888888888888ull, _mm512_broadcast_i32x4(b), upper);
    pairs[0] = _mm512_srai_epi16(both, 8);
}
WOK_INLINE void v_pair_mixed(v_pairs *pairs, const int8_t *p, const int8_t *q) {
    v_pair_words_avx512(pairs, _mm_loadu_si128((const __m128i *)(const void *)p),
                        _mm_loadu_si128((const __m128i *)(const void *)q));
}
WOK_INLINE void v_pair_mixed_part(v_pairs *pairs, const int8_t *p, const int8_t *q, int64_t n) {
    v_pair_words_avx512(pairs, v_load_16_avx512(p, n), v_load_16_avx512(q, n));
}
WOK_INLINE v_pairs v_load_pairs(const int16_t *p) { return _mm512_loadu_si512(p); }
WOK_INLINE void v_store_pairs(int16_t *p, v_pairs x) { _mm512_storeu_si512(p, x); }
WOK_INLINE v_pairs v_and_pairs(v_pairs a, v_pairs b) { return _mm512_and_si512(a, b); }
WOK_INLINE v_pairs v_set1_pairs(int16_t first, int16_t second) {
    return _mm512_set1_epi32((int32_t)((uint16_t)first | (uint32_t)(uint16_t)second << 16));
}
WOK_INLINE v_s32 v_add_products(v_s32 acc, v_pairs a, v_pairs b) {
    return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
}
/* a0-3 b0-3 a0-3 b0-3, a4-7 ..: by lanes of 128 bits, whatever their order is */
WOK_INLINE __m512i v_narrow_tiles_avx512(const v_s32 *a, const v_s32 *b, v_pairs zero) {
    const __m512i words = _mm512_adds_epi16(_mm512_packs_epi32(a[0], b[0]), zero);
    return _mm512_packs_epi16(words, words);
}
WOK_INLINE void v_store_halves_avx512(int8_t *p, int8_t *q, __m512i bytes) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_castsi512_si128(bytes));
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_extracti32x4_epi32(bytes, 1));
}
WOK_INLINE void v_store_tiles(int8_t *p, int8_t *q, const v_s32 *a, const v_s32 *b, v_pairs zero, v_bytes lo) {
    v_store_halves_avx512(p, q, v_max_bytes(v_transpose_avx512(v_narrow_tiles_avx512(a, b, zero)), lo));
}
WOK_INLINE void v_store_mixed(int8_t *p, int8_t *q, const v_s32 *a, const v_s32 *b, v_pairs zero, v_bytes lo,
                              v_bytes hi) {
    const __m512i order = _mm512_setr_epi32(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15);
    const __m512i bytes = _mm512_permutexvar_epi32(order, v_narrow_tiles_avx512(a, b, zero));
    v_store_halves_avx512(p, q, v_min_bytes(v_max_bytes(bytes, lo), hi));
}

#endif
