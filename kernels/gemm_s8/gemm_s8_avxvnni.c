/* gemm_s8_avxvnni.c - 6 x 16 tiles of vpdpbusd on 256-bit registers; gemm_s8_vnni.h has the tile, gemm_s8_driver.h the loops,
 * gemm_s8.h layout and sums.
 *
 * Registers of the 6 x 16 tile: 12 accumulators (6 rows x 2 vectors), 2 vectors of B, 1 broadcast of A = 15 of 16. A line,
 * four k: 2 loads, 6 broadcasts, 12 vpdpbusd, 6 cycles on two ports.
 *
 * Row tails: each height 1 .. 6 is an instance of its own. A product of 1, 2 or 3 rows takes 4, 2 or 2 panels at once: 8 to
 * 12 chains hide the latency of vpdpbusd, and as many streams of B more of the latency of memory. Column tails: the packed
 * zeros are computed with, masks guard the epilogue.
 *
 * tests/twin_gemm_s8_avx2.c makes vpdpbusd of AVX2's instructions, so that this file is checked on machines without it.
 * Bound: vpdpbusd for M >= 12, reading B below; not measured yet. */
#include "../lanes_avx2.h"

enum { ROWS = 6, WIDTH = 4 };

/* acc += u * s, spelled out for gcc 12 as in gemm_s8_avx2.c. tests/twin_gemm_s8_avx2.c brings its own. */
#if defined(DOT)
#elif defined(__clang__)
#define DOT(acc, u, s) acc = _mm256_dpbusd_avx_epi32(acc, u, s)
#else
#define DOT(acc, u, s) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(u), "x"(s))
#endif

#include "gemm_s8_vnni.h"

enum { CHUNK = 144, SLAB = 3 };

MANY(3, 1)
MANY(4, 1)
MANY(5, 1)
MANY(6, 1)
SMALL(1, 1)
SMALL(1, 2)
SMALL(1, 3)
SMALL(1, 4)
SMALL(2, 1)
SMALL(2, 2)
SMALL(3, 1)
SMALL(3, 2)
SMALL(4, 1)
SMALL(5, 1)
SMALL(6, 1)

/* 32 bytes of a row, zeros where it ends. */
WOK_INLINE v_s32 load_row(const int8_t *a, int64_t left) {
    if (left >= 32) return v_load_bytes(a);
    int8_t rest[32] = {0};
    memcpy(rest, a, (size_t)left);
    return v_load_bytes(rest);
}

/* Four rows at a time, whose eight partial sums each are added up together. */
static void rowsums(const int8_t *a, int64_t lda, int64_t rows, int64_t k, int32_t *sums) {
    const v_s32 ones = v_set1_bytes(1);
    for (int64_t i = 0; i < rows; i += 4, a += 4 * lda) {
        int64_t d1 = i + 1 < rows ? lda : 0, d2 = i + 2 < rows ? 2 * lda : 0, d3 = i + 3 < rows ? 3 * lda : 0;
        v_s32 s0 = v_set1_s32(0), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t j = 0; j < k; j += 32) {
            DOT(s0, ones, load_row(a + j, k - j));
            DOT(s1, ones, load_row(a + d1 + j, k - j));
            DOT(s2, ones, load_row(a + d2 + j, k - j));
            DOT(s3, ones, load_row(a + d3 + j, k - j));
        }
        v_s32 r = _mm256_hadd_epi32(_mm256_hadd_epi32(s0, s1), _mm256_hadd_epi32(s2, s3));
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
        int32_t out[4];
        _mm_storeu_si128((__m128i *)(void *)out, four);
        memcpy(sums + i, out, (size_t)wok_min64(4, rows - i) * sizeof *out);
    }
}

static const signed char small_width[] = {1, 4, 2, 2, 1, 1, 1};
static const wok_gemm_s8_tiles tiles = {
    .mr = ROWS,
    .width = 1,
    .kc = 1536, /* 24 KB of B and 9 KB of A */
    .chunk = CHUNK,
    .slab = SLAB,
    .small_rows = ROWS,
    .small_width = small_width,
    .many = {{0}, {0}, {0}, {0, many_3_1}, {0, many_4_1}, {0, many_5_1}, {0, many_6_1}}, /* 7 rows are 4 + 3 */
    .small = {{0},
              {0, small_1_1, small_1_2, small_1_3, small_1_4},
              {0, small_2_1, small_2_2},
              {0, small_3_1, small_3_2},
              {0, small_4_1},
              {0, small_5_1},
              {0, small_6_1}},
    .rowsums = rowsums,
    .finish = finish,
    .table = finish_table,
};

void wok_gemm_s8_rows__avxvnni(const wok_gemm_s8_rows *rows) {
    int32_t acc[CHUNK * SLAB * PANEL] __attribute__((aligned(64)));
    int32_t row_term[CHUNK];
    v_table table;
    const bool mapped = rows->epilogue.out == WOK_S8_OUT_S8 && rows->epilogue.table;
    if (mapped) v_table_make(&table, rows->epilogue.table);
    const wok_gemm_s8_scratch scratch = {.acc = acc, .row_term = row_term, .table = mapped ? &table : NULL};
    wok_gemm_s8_walk_rows(rows, &tiles, &scratch);
}

static void run(const wok_gemm_s8_args *args, const wok_parallel *parallel) {
    wok_gemm_s8_drive(args, wok_gemm_s8_rows__avxvnni, args->m <= ROWS ? small_width[args->m] : tiles.width, ROWS,
                      parallel);
}

const wok_gemm_s8_kernel wok_gemm_s8_6x16__avxvnni = {
    .base = {"wok_gemm_s8_6x16__avxvnni", WOK_ISA_avxvnni, 0, wok_gemm_s8_accept},
    .layout = WOK_GEMM_S8_LAYOUT,
    .mr = ROWS,
    .nr = PANEL,
    .packed_bytes = wok_gemm_s8_packed_bytes,
    .pack = wok_gemm_s8_pack,
    .run = run,
};
