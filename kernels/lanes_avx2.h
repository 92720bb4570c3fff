/* lanes_avx2.h - the vector operations that loops shared by AVX2 and AVX-512 are written in (internal).
 *
 * lanes_avx512.h defines the same names on wider registers; a kernel file includes the one of its level, then the
 * shared loops (FAMILY_loops.h). A function is one instruction or a fixed short sequence, so that the bits of a lane do
 * not depend on the width. V_LANES: 32-bit lanes of a register; V_BYTES: its bytes. */
#ifndef WOK_LANES_AVX2_H
#define WOK_LANES_AVX2_H

#include "math_avx2.h"

typedef __m256 v_f32;
typedef __m256i v_s32;   /* V_LANES x int32 */
typedef __m256i v_bytes; /* V_BYTES x int8 */
enum { V_LANES = 8, V_BYTES = 32 };

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
WOK_INLINE v_f32 v_act(v_f32 x, wok_act act, v_f32 lo, v_f32 hi) { return wok_act_avx2(x, act, lo, hi); }

/* ---- int32 ------------------------------------------------------------------------------------------------------- */

WOK_INLINE v_s32 v_zero_s32(void) { return _mm256_setzero_si256(); }
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

#endif
