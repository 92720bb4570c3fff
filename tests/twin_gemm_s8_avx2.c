/* twin_gemm_s8_avx2.c - gemm_s8_avxvnni.c with vpdpbusd made of AVX2's instructions: its tiles, loops and epilogue, checked
 * by checkwok on machines that have no AVX-VNNI. Compiled for level avx2; never part of the library. */
#if defined(__x86_64__)
#undef WOK_LEVEL_ref
#define WOK_LEVEL_avx2
#include "lanes_avx2.h"
#include "gemm_s8/gemm_s8.h"

void wok_gemm_s8_rows__twin_avx2(const wok_gemm_s8_rows *rows);
extern const wok_gemm_s8_kernel wok_gemm_s8_6x16__twin_avx2, wok_gemm_s8_6x16__twin;

/* Even and odd bytes apart, in 16 bits: vpmaddwd does not saturate. */
static inline __m256i dot(__m256i acc, __m256i u, __m256i s) {
    const __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(u, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
    return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}

#define DOT(acc, u, s) acc = dot(acc, u, s)
#define wok_gemm_s8_rows__avxvnni wok_gemm_s8_rows__twin_avx2
#define wok_gemm_s8_6x16__avxvnni wok_gemm_s8_6x16__twin_avx2
#include "gemm_s8/gemm_s8_avxvnni.c"

const wok_gemm_s8_kernel wok_gemm_s8_6x16__twin = {
    .base = {"wok_gemm_s8_6x16__twin", WOK_ISA_avx2, 0, wok_gemm_s8_accept},
    .layout = WOK_GEMM_S8_LAYOUT,
    .mr = ROWS,
    .nr = PANEL,
    .packed_bytes = wok_gemm_s8_packed_bytes,
    .pack = wok_gemm_s8_pack,
    .run = run,
};
#else
typedef int wok_nothing_to_check; /* an empty file is no C */
#endif
