/* gemm_s8_avx512vnni.c - 8 x 48 tiles of vpdpbusd; gemm_s8_vnni.h has the tile, gemm_s8_driver.h the loops, gemm_s8.h layout
 * and sums.
 *
 * Registers of the 8 x 48 tile: 24 accumulators (8 rows x 3 panels), 3 lines of B, 1 broadcast of A = 28 of 32. A line, four
 * k: 3 loads, 8 broadcasts, 24 vpdpbusd, 12 cycles on two ports.
 *
 * Row tails: blocks have 8 or 7 rows; each height is an instance of its own. Column tails: N is cut into groups of 3, or 3
 * and 2 panels (64 columns: 2 + 2); the columns of the last panel are masked in the epilogue. A product of up to 4 rows
 * takes 4 panels, whose streams hide the latency of memory.
 *
 * Bound: vpdpbusd for M >= 8, reading B below. A prototype of this tile reached 98 - 100 % of 288 GMAC/s on one Sapphire
 * Rapids thread at 128 x 768 x 768; this file has not been measured yet. tests/twin_gemm_s8_avx512.c makes vpdpbusd of
 * AVX-512 BW's instructions, so that it is checked on processors, real or emulated, without VNNI. */
#include "../lanes_avx512.h"

enum { ROWS = 8, WIDTH = 4 };

/* acc += u * s, spelled out for gcc 12 as in gemm_s8_avx2.c. tests/twin_gemm_s8_avx512.c brings its own. */
#if defined(DOT)
#elif defined(__clang__)
#define DOT(acc, u, s) acc = _mm512_dpbusd_epi32(acc, u, s)
#else
#define DOT(acc, u, s) __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s))
#endif

#include "gemm_s8_vnni.h"

enum { CHUNK = 128, SLAB = 3 };

#define THREE(X, rows) X(rows, 1) X(rows, 2) X(rows, 3)
THREE(MANY, 4)
THREE(MANY, 5)
THREE(MANY, 6)
THREE(MANY, 7)
THREE(MANY, 8)
THREE(SMALL, 1)
THREE(SMALL, 2)
THREE(SMALL, 3)
THREE(SMALL, 4)
THREE(SMALL, 5)
THREE(SMALL, 6)
THREE(SMALL, 7)
THREE(SMALL, 8)
SMALL(1, 4)
SMALL(2, 4)
SMALL(3, 4)
SMALL(4, 4)

/* 64 bytes of a row, zeros where it ends. */
WOK_INLINE __m512i load_row(const int8_t *a, int64_t left) {
    return _mm512_maskz_loadu_epi8(left >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << left) - 1, a);
}

/* Four rows at a time, whose sixteen partial sums each are added up together. */
static void rowsums(const int8_t *a, int64_t lda, int64_t rows, int64_t k, int32_t *sums) {
    const __m512i ones = _mm512_set1_epi8(1);
    for (int64_t i = 0; i < rows; i += 4, a += 4 * lda) {
        int64_t d1 = i + 1 < rows ? lda : 0, d2 = i + 2 < rows ? 2 * lda : 0, d3 = i + 3 < rows ? 3 * lda : 0;
        __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t j = 0; j < k; j += 64) {
            DOT(s0, ones, load_row(a + j, k - j));
            DOT(s1, ones, load_row(a + d1 + j, k - j));
            DOT(s2, ones, load_row(a + d2 + j, k - j));
            DOT(s3, ones, load_row(a + d3 + j, k - j));
        }
        /* within 128-bit lanes: four partial sums of each row side by side, added up by a transposition */
        __m512i p = _mm512_add_epi32(_mm512_unpacklo_epi32(s0, s1), _mm512_unpackhi_epi32(s0, s1));
        __m512i q = _mm512_add_epi32(_mm512_unpacklo_epi32(s2, s3), _mm512_unpackhi_epi32(s2, s3));
        __m512i r = _mm512_add_epi32(_mm512_unpacklo_epi64(p, q), _mm512_unpackhi_epi64(p, q));
        __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(r), _mm512_extracti64x4_epi64(r, 1));
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
        _mm_mask_storeu_epi32(sums + i, (__mmask8)(rows - i >= 4 ? 15 : (1 << (rows - i)) - 1), four);
    }
}

static const signed char small_width[] = {1, 4, 4, 4, 4, 3, 3, 3, 3};
static const wok_gemm_s8_tiles tiles = {
    .mr = ROWS,
    .width = 3,
    .kc = 1536,
    .chunk = CHUNK,
    .slab = SLAB,
    .small_rows = ROWS,
    .small_width = small_width,
    .many = {{0},
             {0},
             {0},
             {0}, /* 9 rows are 5 + 4 */
             {0, many_4_1, many_4_2, many_4_3},
             {0, many_5_1, many_5_2, many_5_3},
             {0, many_6_1, many_6_2, many_6_3},
             {0, many_7_1, many_7_2, many_7_3},
             {0, many_8_1, many_8_2, many_8_3}},
    .small = {{0},
              {0, small_1_1, small_1_2, small_1_3, small_1_4},
              {0, small_2_1, small_2_2, small_2_3, small_2_4},
              {0, small_3_1, small_3_2, small_3_3, small_3_4},
              {0, small_4_1, small_4_2, small_4_3, small_4_4},
              {0, small_5_1, small_5_2, small_5_3},
              {0, small_6_1, small_6_2, small_6_3},
              {0, small_7_1, small_7_2, small_7_3},
              {0, small_8_1, small_8_2, small_8_3}},
    .rowsums = rowsums,
    .finish = finish,
    .table = finish_table,
};

void wok_gemm_s8_rows__avx512vnni(const wok_gemm_s8_rows *rows) {
    int32_t acc[CHUNK * SLAB * PANEL] __attribute__((aligned(64)));
    int32_t row_term[CHUNK];
    v_table table;
    const bool mapped = rows->epilogue.out == WOK_S8_OUT_S8 && rows->epilogue.table;
    if (mapped) v_table_make(&table, rows->epilogue.table);
    const wok_gemm_s8_scratch scratch = {.acc = acc, .row_term = row_term, .table = mapped ? &table : NULL};
    wok_gemm_s8_walk_rows(rows, &tiles, &scratch);
}

static void run(const wok_gemm_s8_args *args, const wok_parallel *parallel) {
    wok_gemm_s8_drive(args, wok_gemm_s8_rows__avx512vnni, args->m <= ROWS ? small_width[args->m] : tiles.width, ROWS,
                      parallel);
}

const wok_gemm_s8_kernel wok_gemm_s8_8x48__avx512vnni = {
    .base = {"wok_gemm_s8_8x48__avx512vnni", WOK_ISA_avx512vnni, 0, wok_gemm_s8_accept},
    .layout = WOK_GEMM_S8_LAYOUT,
    .mr = ROWS,
    .nr = 3 * PANEL,
    .packed_bytes = wok_gemm_s8_packed_bytes,
    .pack = wok_gemm_s8_pack,
    .run = run,
};
