/* twin_gemm_s8_avx512.c - gemm_s8_avx512vnni.c with vpdpbusd made of AVX-512 BW's instructions: its tiles, loops and epilogue,
 * checked by checkwok on processors, real or emulated, that have no VNNI. Compiled for level avx512; never part of the library. */
#if defined(__x86_64__)
#undef WOK_LEVEL_ref
#define WOK_LEVEL_avx512
#include "lanes_avx512.h"
#include "gemm_s8/gemm_s8.h"

void wok_gemm_s8_rows__twin_avx512(const wok_gemm_s8_rows *rows);
extern const wok_gemm_s8_kernel wok_gemm_s8_8x48__twin_avx512, wok_gemm_s8_8x48__twin;

/* Even and odd bytes apart, in 16 bits: vpmaddwd does not saturate. */
static inline __m512i dot(__m512i acc, __m512i u, __m512i s) {
    const __m512i even =
        _mm512_madd_epi16(_mm512_and_si512(u, _mm512_set1_epi16(255)), _mm512_srai_epi16(_mm512_slli_epi16(s, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(u, 8), _mm512_srai_epi16(s, 8));
    return _mm512_add_epi32(acc, _mm512_add_epi32(even, odd));
}

#define DOT(acc, u, s) acc = dot(acc, u, s)
#define wok_gemm_s8_rows__avx512vnni wok_gemm_s8_rows__twin_avx512
#define wok_gemm_s8_8x48__avx512vnni wok_gemm_s8_8x48__twin_avx512
#include "gemm_s8/gemm_s8_avx512vnni.c"

const wok_gemm_s8_kernel wok_gemm_s8_8x48__twin = {
    .base = {"wok_gemm_s8_8x48__twin", WOK_ISA_avx512, 0, wok_gemm_s8_accept},
    .layout = WOK_GEMM_S8_LAYOUT,
    .mr = ROWS,
    .nr = 3 * PANEL,
    .packed_bytes = wok_gemm_s8_packed_bytes,
    .pack = wok_gemm_s8_pack,
    .run = run,
};
#else
typedef int wok_nothing_to_check; /* an empty file is no C */
#endif
