/* gemm_s8_avx2.c - 6 x 16 tiles of 16-bit products with AVX2; gemm_s8_driver.h has the loops, gemm_s8.h layout and sums.
 *
 * AVX2 multiplies bytes only by vpmaddubsw, which saturates. So bytes become 16-bit words: even k and odd k of a line apart,
 * which on the packed side is one instruction each (u & 255, u >> 8) and leaves a whole dword per column:
 *
 *      line of B, 8 columns     u0 u1 u2 u3 | u0 u1 u2 u3 | ...
 *      even half                u0    u2    | u0    u2    | ...      x  a0 a2 | a0 a2 | ...    vpmaddwd, vpaddd
 *      odd half                 u1    u3    | u1    u3    | ...      x  a1 a3 | a1 a3 | ...
 *
 * A block of K of the chunk's rows is widened once (a plane of even words and a plane of odd words a row, both at fixed
 * distances), the panel's halves are made by the first row block that meets them and kept for the others.
 *
 * Registers of the 6 x 16 tile: 12 accumulators (6 rows x 2 vectors), 2 halves of B, 1 broadcast of A, 1 product = all 16.
 * Half a line: 2 loads, 6 broadcasts, 12 vpmaddwd, 12 vpaddd, 6 cycles where two of each start in a cycle.
 *
 * Row tails: each height 1 .. 6 is an instance of its own. A product of 1, 2 or 3 rows takes 4, 2 or 2 panels at once, whose
 * streams hide the latency of memory. Column tails: the packed zeros are computed with, masks guard the epilogue.
 *
 * Bound: vpmaddwd and vpaddd for M >= 12, reading B below. Registers alone make 80 GMAC/s of them on one Zen 3 core (roofline;
 * the FMA peak is 50), 32 products a cycle being 102: its scheduler sends some additions to the ports that multiply.
 * Measured by bench_gemm there, every call with other weights: 90 - 91 % of the 80 at 128 x 768 x 768, 128 x 3072 x 768 and
 * 128 x 768 x 3072, 1.55 - 1.6 times gemm_f32. Blocks of 384 .. 1536 of K measure within 7 % of each other. */
#include "../lanes_avx2.h"
#include "gemm_s8_finish.h"

enum {
    PANEL = WOK_GEMM_S8_PANEL,
    LINE = WOK_GEMM_S8_LINE,
    ROWS = 6,
    KC = 768,
    PLANE = KC / 2,   /* int16: half of the words of a row */
    WIDE = 2 * PLANE, /* int16 from row to row */
    CHUNK = 48,
    SLAB = 8,
    HALVES = 64 /* int16 of a line's two halves */
};

/* Every loop over registers must be unrolled whole, or the accumulators become an array in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

WOK_INLINE __m256i load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
WOK_INLINE void store(void *p, __m256i x) {
    _mm256_storeu_si256((__m256i *)p, x);
}

/* Two words of a row in every lane. */
WOK_INLINE __m256i pair(const int16_t *wide) {
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)wide));
}

/* acc += x * y. gcc 12 adds products to each other before it adds them to the sums, runs out of registers and spills in the
 * loop, unless the instructions are spelled out; clang does not, and needs to see the operations. */
WOK_INLINE __m256i multiply_add(__m256i acc, __m256i x, __m256i y) {
#if defined(__clang__)
    return _mm256_add_epi32(acc, _mm256_madd_epi16(x, y));
#else
    __m256i product;
    __asm__("vpmaddwd %2, %1, %0" : "=x"(product) : "x"(x), "x"(y));
    __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(product));
    return acc;
#endif
}

/* Vector v of the even or odd half of a line, signed: (u & 255) - 128 or (u >> 8) - 128. */
WOK_INLINE __m256i half_of(const uint8_t *const *b, const int v, const bool odd) {
    const __m256i u = load(b[v / 2] + v % 2 * 32);
    return _mm256_sub_epi16(odd ? _mm256_srli_epi16(u, 8) : _mm256_and_si256(u, _mm256_set1_epi16(255)),
                            _mm256_set1_epi16(128));
}

/* Half a line of several panels: the smaller side rests in registers, the other passes through one. */
WOK_INLINE void small_step(__m256i acc[][8], const int16_t *wide, const uint8_t *const *b, const int rows,
                           const int vectors, const bool odd) {
    __m256i x[3];
    UNROLL for (int i = 0; i < rows; i++) x[i] = pair(wide + i * WIDE + odd * PLANE);
    UNROLL for (int v = 0; v < vectors; v++) {
        const __m256i y = half_of(b, v, odd);
        UNROLL for (int i = 0; i < rows; i++) acc[i][v] = multiply_add(acc[i][v], x[i], y);
    }
}

/* Half a line of one panel. */
WOK_INLINE void step(__m256i acc[][8], const int16_t *wide, const uint8_t *const *b, int16_t *halves, const int rows,
                     const bool split, const bool odd) {
    __m256i y[2];
    UNROLL for (int v = 0; v < 2; v++) {
        y[v] = split ? half_of(b, v, odd) : load(halves + odd * 32 + v * 16);
        if (split) store(halves + odd * 32 + v * 16, y[v]);
    }
    UNROLL for (int i = 0; i < rows; i++) {
        const __m256i x = pair(wide + i * WIDE + odd * PLANE);
        UNROLL for (int v = 0; v < 2; v++) acc[i][v] = multiply_add(acc[i][v], x, y[v]);
    }
}

/* rows, panels, split and stream are constants in every instance. */
WOK_INLINE void run_tile(const wok_gemm_s8_tile *t, const int rows, const int panels, const bool split,
                         const bool stream) {
    const int vectors = 2 * panels;
    __m256i acc[ROWS][8];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++) acc[i][v] =
        t->first ? _mm256_setzero_si256() : load(t->acc + i * t->acc_stride + v * 8);

    const int16_t *wide = t->wide;
    const uint8_t *b[4], *next = t->next;
    int16_t *halves = t->halves;
    const int64_t next_step = t->next_step;
    UNROLL for (int p = 0; p < panels; p++) b[p] = t->b + p * t->panel_stride;
    for (int64_t lines = (t->k + 3) / 4; lines > 0; lines--) {
        UNROLL for (int odd = 0; odd < 2; odd++) {
            if (stream)
                small_step(acc, wide, b, rows, vectors, odd);
            else
                step(acc, wide, b, halves, rows, split, odd);
        }
        if (stream)
            UNROLL for (int p = 0; p < panels; p++)
                _mm_prefetch((const char *)(b[p] + WOK_GEMM_S8_AHEAD * LINE), _MM_HINT_T0);
        else
            _mm_prefetch((const char *)next, _MM_HINT_T1);
        next += next_step;
        wide += 2;
        halves += HALVES;
        UNROLL for (int p = 0; p < panels; p++) b[p] += LINE;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
        store(t->acc + i * t->acc_stride + v * 8, acc[i][v]);
}

#define MANY(rows)                                                                                                     \
    static void many_##rows(const wok_gemm_s8_tile *t) {                                                               \
        if (t->split)                                                                                                  \
            run_tile(t, rows, 1, true, false);                                                                         \
        else                                                                                                           \
            run_tile(t, rows, 1, false, false);                                                                        \
    }
#define SMALL(rows, panels)                                                                                            \
    static void small_##rows##_##panels(const wok_gemm_s8_tile *t) {                                                   \
        run_tile(t, rows, panels, true, true);                                                                         \
    }
MANY(3)
MANY(4)
MANY(5)
MANY(6)
SMALL(1, 1)
SMALL(1, 2)
SMALL(1, 3)
SMALL(1, 4)
SMALL(2, 1)
SMALL(2, 2)
SMALL(3, 1)
SMALL(3, 2)
static void small_4(const wok_gemm_s8_tile *t) {
    run_tile(t, 4, 1, true, false);
}
static void small_5(const wok_gemm_s8_tile *t) {
    run_tile(t, 5, 1, true, false);
}
static void small_6(const wok_gemm_s8_tile *t) {
    run_tile(t, 6, 1, true, false);
}

/* 32 bytes of a row, zeros where it ends. */
WOK_INLINE __m256i load_row(const int8_t *a, int64_t left) {
    if (left >= 32) return load(a);
    int8_t rest[32] = {0};
    memcpy(rest, a, (size_t)left);
    return load(rest);
}

/* A row of bytes as words: the even ones, and a plane further the odd ones; zeros up to a whole line. */
static void widen_row(const int8_t *a, int64_t k, int16_t *wide) {
    for (int64_t i = 0; i < k; i += 32, a += 32, wide += 16) {
        const __m256i x = load_row(a, k - i);
        store(wide, _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
        store(wide + PLANE, _mm256_srai_epi16(x, 8));
    }
}

/* Only needed where B has zero points. */
static void rowsums(const int8_t *a, int64_t lda, int64_t rows, int64_t k, int32_t *sums) {
    for (int64_t i = 0; i < rows; i++, a += lda) {
        __m256i sum = _mm256_setzero_si256();
        for (int64_t j = 0; j < k; j += 32) {
            const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), load_row(a + j, k - j));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
        __m128i x = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        x = _mm_hadd_epi32(x, x);
        sums[i] = _mm_cvtsi128_si32(_mm_hadd_epi32(x, x));
    }
}

static void widen(const int8_t *a, int64_t lda, int64_t rows, int64_t k, int16_t *wide) {
    for (int64_t i = 0; i < rows; i++) widen_row(a + i * lda, k, wide + i * WIDE);
}

static const signed char small_width[] = {1, 4, 2, 2, 1, 1, 1};
static const wok_gemm_s8_tiles tiles = {
    .mr = ROWS,
    .width = 1,
    .kc = KC,
    .chunk = CHUNK,
    .slab = SLAB,
    .small_rows = ROWS,
    .small_width = small_width,
    .many = {{0}, {0}, {0}, {0, many_3}, {0, many_4}, {0, many_5}, {0, many_6}}, /* 7 rows are 4 + 3 */
    .small = {{0},
              {0, small_1_1, small_1_2, small_1_3, small_1_4},
              {0, small_2_1, small_2_2},
              {0, small_3_1, small_3_2},
              {0, small_4},
              {0, small_5},
              {0, small_6}},
    .shift = 128,
    .rowsums = rowsums,
    .widen = widen,
    .wide_stride = WIDE,
    .finish = finish,
    .table = finish_table,
};

void wok_gemm_s8_rows__avx2(const wok_gemm_s8_rows *rows) {
    int32_t acc[CHUNK * SLAB * PANEL] __attribute__((aligned(64)));
    int16_t wide[CHUNK * WIDE] __attribute__((aligned(64)));
    int16_t halves[KC * PANEL] __attribute__((aligned(64)));
    int32_t row_term[CHUNK];
    v_table table;
    const bool mapped = rows->epilogue.out == WOK_S8_OUT_S8 && rows->epilogue.table;
    if (mapped) v_table_make(&table, rows->epilogue.table);
    const wok_gemm_s8_scratch scratch = {acc, row_term, wide, halves, mapped ? &table : NULL};
    wok_gemm_s8_walk_rows(rows, &tiles, &scratch);
}

static void run(const wok_gemm_s8_args *args, const wok_parallel *parallel) {
    wok_gemm_s8_drive(args, wok_gemm_s8_rows__avx2, args->m <= ROWS ? small_width[args->m] : 1, ROWS, parallel);
}

const wok_gemm_s8_kernel wok_gemm_s8_6x16__avx2 = {
    .base = {"wok_gemm_s8_6x16__avx2", WOK_ISA_avx2, 0, wok_gemm_s8_accept},
    .layout = WOK_GEMM_S8_LAYOUT,
    .mr = ROWS,
    .nr = PANEL,
    .packed_bytes = wok_gemm_s8_packed_bytes,
    .pack = wok_gemm_s8_pack,
    .run = run,
};
