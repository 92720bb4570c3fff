/* gemm_f32_avx512.c - 8 x 48 tiles with AVX-512; gemm_f32_driver.h has the loops, gemm_f32.h layout and bound.
 *
 * Registers of the 8 x 48 tile: 24 accumulators (8 rows x 3 panels), 3 vectors of B, 1 broadcast element of A = 28 of 32.
 *
 *                      panel 0    panel 1    panel 2       one step of k: 3 loads, 8 broadcasts, 24 FMA,
 *     a[0*lda + k]     acc[0][0]  acc[0][1]  acc[0][2]     12 cycles on two FMA ports
 *     ...
 *     a[7*lda + k]     acc[7][0]  acc[7][1]  acc[7][2]
 *
 * Row tails: blocks have 8 or 7 rows; each height is an instance of its own. Column tails: N is cut into groups of 3, or 3
 * and 2 panels (64 columns: 2 + 2); the columns of the last panel are masked. A product of up to 4 rows takes 4 panels,
 * whose streams hide the latency of memory.
 * Three rows share a pointer (base, + lda, + 2 lda): eight of their own would not fit into the general registers.
 *
 * Bound: FMA for M >= 8, reading B below. Measured with prototypes of this tile on Sapphire Rapids (distinct weights, K
 * block 768): 96 % of the FMA peak on one thread, 91 % on two. 8 x 48 rather than 14 x 32 because it loads less per FMA
 * and so holds up better beside a busy neighbour. */
#include "gemm_f32_driver.h"
#include "../math_avx512.h"

enum { PANEL = WOK_GEMM_F32_PANEL, ROWS = 8, PANELS = 4 };

/* Every loop over registers must be unrolled whole, or the accumulators become an array in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* acc += x * y, spelled out for gcc 12 as in gemm_f32_avx2.c. */
#if defined(__clang__)
#define FMA(acc, x, y) acc = _mm512_fmadd_ps(x, y, acc)
#else
#define FMA(acc, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))
#endif

WOK_INLINE void finish_in_registers(const wok_gemm_f32_tile *t, __m512 acc[][PANELS], const int rows, const int panels) {
    if (t->bias) UNROLL for (int p = 0; p < panels; p++) {
        const __m512 bias = _mm512_loadu_ps(t->bias + p * PANEL);
        UNROLL for (int i = 0; i < rows; i++) acc[i][p] = _mm512_add_ps(acc[i][p], bias);
    }
    if (t->residual) UNROLL for (int i = 0; i < rows; i++) UNROLL for (int p = 0; p < panels; p++)
        acc[i][p] = _mm512_add_ps(acc[i][p], _mm512_loadu_ps(t->residual + i * t->ldr + p * PANEL));
    if (t->epilogue->act == WOK_ACT_CLAMP) {
        const __m512 lo = _mm512_set1_ps(t->epilogue->lo), hi = _mm512_set1_ps(t->epilogue->hi);
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int p = 0; p < panels; p++)
            acc[i][p] = wok_clamp_avx512(acc[i][p], lo, hi);
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int p = 0; p < panels; p++)
        _mm512_storeu_ps(t->c + i * t->ldc + p * PANEL, acc[i][p]);
}

/* k = `u` of every row and panel. */
WOK_INLINE void step(__m512 acc[][PANELS], const float *const *a, int64_t lda, const float *const *b, const int u,
                     const int rows, const int panels, const bool stream) {
    __m512 y[PANELS];
    UNROLL for (int p = 0; p < panels; p++) y[p] = _mm512_load_ps(b[p] + u * PANEL);
    UNROLL for (int i = 0; i < rows; i++) {
        const __m512 x = _mm512_set1_ps(a[i / 3][i % 3 * lda + u]);
        UNROLL for (int p = 0; p < panels; p++) FMA(acc[i][p], x, y[p]);
    }
    if (stream) UNROLL for (int p = 0; p < panels; p++)
        _mm_prefetch((const char *)(b[p] + (u + WOK_GEMM_F32_AHEAD) * PANEL), _MM_HINT_T0);
}

/* No load moves to another step, and no compiler keeps lda + 1, lda + 2 ... in registers of their own. */
#define SEPARATE_STEPS(lda) __asm__ volatile("" : "+r"(lda) : : "memory")

/* rows, panels and stream are constants in every instance. */
WOK_INLINE void run_tile(const wok_gemm_f32_tile *t, const int rows, const int panels, const bool stream) {
    __m512 acc[ROWS][PANELS];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int p = 0; p < panels; p++)
        acc[i][p] = t->first ? _mm512_setzero_ps() : _mm512_load_ps(t->acc + (p * rows + i) * PANEL);

    const float *a[3], *b[PANELS], *next = t->next;
    const int64_t next_step = t->next_step;
    int64_t lda = t->lda;
    UNROLL for (int i = 0; i < rows; i += 3) a[i / 3] = t->a + i * lda;
    UNROLL for (int p = 0; p < panels; p++) b[p] = t->b + p * t->panel_stride;
    int64_t k = t->k;
    for (; k >= 4; k -= 4) {
        UNROLL for (int u = 0; u < 4; u++) {
            if (!stream) _mm_prefetch((const char *)next, _MM_HINT_T1);
            next += next_step;
            step(acc, a, lda, b, u, rows, panels, stream);
            SEPARATE_STEPS(lda);
        }
        UNROLL for (int i = 0; i < rows; i += 3) a[i / 3] += 4;
        UNROLL for (int p = 0; p < panels; p++) b[p] += 4 * PANEL;
    }
    for (; k > 0; k--) {
        step(acc, a, lda, b, 0, rows, panels, stream);
        UNROLL for (int i = 0; i < rows; i += 3) a[i / 3]++;
        UNROLL for (int p = 0; p < panels; p++) b[p] += PANEL;
    }

    if (t->direct) {
        finish_in_registers(t, acc, rows, panels);
        return;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int p = 0; p < panels; p++)
        _mm512_store_ps(t->acc + (p * rows + i) * PANEL, acc[i][p]);
}

/* Sixteen columns of one panel, all of them there or under a mask. */
WOK_INLINE void finish_columns(const wok_gemm_f32_tile *t, int64_t rows, int64_t n, const wok_act act, const bool masked) {
    const __m512 lo = _mm512_set1_ps(t->epilogue->lo), hi = _mm512_set1_ps(t->epilogue->hi);
    const __mmask16 mask = wok_mask_avx512(t->columns - n);
    const float *acc = t->acc + n * rows, *bias = t->bias, *residual = t->residual;
    float *c = t->c + n;
    for (int64_t i = 0; i < rows; i++, acc += PANEL, c += t->ldc) {
        __m512 x = _mm512_load_ps(acc);
        if (bias) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, bias + n));
        if (residual) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, residual + i * t->ldr + n));
        x = wok_act_avx512(x, act, lo, hi);
        if (masked) _mm512_mask_storeu_ps(c, mask, x);
        else _mm512_storeu_ps(c, x);
    }
}

WOK_INLINE void finish_with(const wok_gemm_f32_tile *t, int64_t rows, const wok_act act) {
    int64_t n = 0;
    for (; n + PANEL <= t->columns; n += PANEL) finish_columns(t, rows, n, act, false);
    if (n < t->columns) finish_columns(t, rows, n, act, true);
}

static void finish(const wok_gemm_f32_tile *t, int64_t rows) {
    switch (t->epilogue->act) {
    case WOK_ACT_NONE: finish_with(t, rows, WOK_ACT_NONE); break;
    case WOK_ACT_CLAMP: finish_with(t, rows, WOK_ACT_CLAMP); break;
    case WOK_ACT_GELU: finish_with(t, rows, WOK_ACT_GELU); break;
    case WOK_ACT_GELU_TANH: finish_with(t, rows, WOK_ACT_GELU_TANH); break;
    case WOK_ACT_TANH: finish_with(t, rows, WOK_ACT_TANH); break;
    case WOK_ACT_SIGMOID: finish_with(t, rows, WOK_ACT_SIGMOID); break;
    }
}

#define MANY(rows, panels)                                                                                                 \
    static void many_##rows##_##panels(const wok_gemm_f32_tile *t) { run_tile(t, rows, panels, false); }
#define SMALL(rows, panels)                                                                                                \
    static void small_##rows##_##panels(const wok_gemm_f32_tile *t) { run_tile(t, rows, panels, true); }
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

static const signed char small_width[] = {1, 4, 4, 4, 4, 3, 3, 3, 3};
static const wok_gemm_f32_tiles tiles = {
    .mr = ROWS,
    .width = 3,
    .kc = 768,
    .small_rows = ROWS,
    .small_width = small_width,
    .many = {{0}, {0}, {0}, {0}, /* 9 rows are 5 + 4 */
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
    .finish = finish,
};

static void run(const wok_gemm_f32_args *args, const wok_parallel *parallel) {
    wok_gemm_f32_drive(args, &tiles, parallel);
}

const wok_gemm_f32_kernel wok_gemm_f32_8x48__avx512 = {
    .base = {"wok_gemm_f32_8x48__avx512", WOK_ISA_avx512, 0, wok_gemm_f32_accept},
    .layout = WOK_GEMM_F32_LAYOUT,
    .mr = ROWS,
    .nr = 3 * PANEL,
    .packed_bytes = wok_gemm_f32_packed_bytes,
    .pack = wok_gemm_f32_pack,
    .run = run,
};
