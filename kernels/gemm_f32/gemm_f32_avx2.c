/* gemm_f32_avx2.c - 6 x 16 tiles with AVX2 and FMA; gemm_f32_driver.h has the loops, gemm_f32.h layout and bound.
 *
 * Registers of the 6 x 16 tile: 12 accumulators (6 rows x 2 vectors), 2 vectors of B, 1 broadcast element of A.
 *
 *                      b[0] 8 columns   b[1] 8 columns       one step of k: 2 loads, 6 broadcasts, 12 FMA,
 *     a[0*lda + k]     acc[0][0]        acc[0][1]            6 cycles on two FMA ports
 *     ...
 *     a[5*lda + k]     acc[5][0]        acc[5][1]
 *
 * Row tails: each height 1 .. 6 is an instance of its own, no row is computed in vain. A product of 1, 2 or 3 rows takes
 * 4, 2 or 2 panels at once instead: 8 to 12 chains hide the latency of FMA, and as many streams of B more of the latency
 * of memory. Column tails: the packed zeros are computed with, masks guard bias, residual and C.
 *
 * Bound: FMA for M >= 12, reading B below. Measured by bench_gemm on one Zen 3 core, every call with other weights: 92 - 96 %
 * of the FMA peak (50 GMAC/s) at 128 x 768 x 768, 128 x 3072 x 768, 128 x 768 x 3072 and the 3x3 convolutions of ResNet-18;
 * 21 - 25 GB/s of B at M = 1 .. 3. */
#include "gemm_f32_driver.h"
#include "../math_avx2.h"

enum { PANEL = WOK_GEMM_F32_PANEL, LANES = 8 };

/* Every loop over registers must be unrolled whole, or the accumulators become an array in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* acc += x * y. gcc 12 mixes vfmadd132 with copies and spills into the loop (10 % slower) unless the form is spelled out;
 * clang does not, and needs to see the operation. */
#if defined(__clang__)
#define FMA(acc, x, y) acc = _mm256_fmadd_ps(x, y, acc)
#else
#define FMA(acc, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(x), "xm"(y))
#endif

WOK_INLINE void finish_in_registers(const wok_gemm_f32_tile *t, __m256 acc[][8], const int rows, const int vectors) {
    if (t->bias) UNROLL for (int v = 0; v < vectors; v++) {
        const __m256 bias = _mm256_loadu_ps(t->bias + v * LANES);
        UNROLL for (int i = 0; i < rows; i++) acc[i][v] = _mm256_add_ps(acc[i][v], bias);
    }
    if (t->residual) UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
        acc[i][v] = _mm256_add_ps(acc[i][v], _mm256_loadu_ps(t->residual + i * t->ldr + v * LANES));
    if (t->epilogue->act == WOK_ACT_CLAMP) {
        const __m256 lo = _mm256_set1_ps(t->epilogue->lo), hi = _mm256_set1_ps(t->epilogue->hi);
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
            acc[i][v] = wok_clamp_avx2(acc[i][v], lo, hi);
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
        _mm256_storeu_ps(t->c + i * t->ldc + v * LANES, acc[i][v]);
}

/* k = `u`: the smaller of the two sides rests in registers, the other passes through one. */
WOK_INLINE void step(__m256 acc[][8], const float *const *a, const float *const *b, const int u, const int rows,
                     const int panels, const bool stream) {
    const int vectors = 2 * panels;
    if (rows < vectors) {
        __m256 x[3];
        UNROLL for (int i = 0; i < rows; i++) x[i] = _mm256_broadcast_ss(a[i] + u);
        UNROLL for (int v = 0; v < vectors; v++) {
            const __m256 y = _mm256_load_ps(b[v / 2] + u * PANEL + v % 2 * LANES);
            UNROLL for (int i = 0; i < rows; i++) FMA(acc[i][v], x[i], y);
        }
    } else {
        __m256 y[2];
        UNROLL for (int v = 0; v < vectors; v++) y[v] = _mm256_load_ps(b[0] + u * PANEL + v * LANES);
        UNROLL for (int i = 0; i < rows; i++) {
            const __m256 x = _mm256_broadcast_ss(a[i] + u);
            UNROLL for (int v = 0; v < vectors; v++) FMA(acc[i][v], x, y[v]);
        }
    }
    if (stream) UNROLL for (int p = 0; p < panels; p++)
        _mm_prefetch((const char *)(b[p] + (u + WOK_GEMM_F32_AHEAD) * PANEL), _MM_HINT_T0);
    __asm__ volatile("" ::: "memory"); /* no load moves to another step: all registers are taken */
}

/* rows, panels and stream are constants in every instance. */
WOK_INLINE void run_tile(const wok_gemm_f32_tile *t, const int rows, const int panels, const bool stream) {
    const int vectors = 2 * panels;
    __m256 acc[6][8];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
        acc[i][v] = t->first ? _mm256_setzero_ps() : _mm256_load_ps(t->acc + (v / 2 * rows + i) * PANEL + v % 2 * LANES);

    const float *a[6], *b[4], *next = t->next;
    UNROLL for (int i = 0; i < rows; i++) a[i] = t->a + i * t->lda;
    UNROLL for (int p = 0; p < panels; p++) b[p] = t->b + p * t->panel_stride;
    const int64_t next_step = t->next_step;
    int64_t k = t->k;
    for (; k >= 4; k -= 4) {
        UNROLL for (int u = 0; u < 4; u++) {
            if (!stream) _mm_prefetch((const char *)next, _MM_HINT_T1);
            next += next_step;
            step(acc, a, b, u, rows, panels, stream);
        }
        UNROLL for (int i = 0; i < rows; i++) a[i] += 4;
        UNROLL for (int p = 0; p < panels; p++) b[p] += 4 * PANEL;
    }
    for (; k > 0; k--) {
        step(acc, a, b, 0, rows, panels, stream);
        UNROLL for (int i = 0; i < rows; i++) a[i]++;
        UNROLL for (int p = 0; p < panels; p++) b[p] += PANEL;
    }

    if (t->direct) {
        finish_in_registers(t, acc, rows, vectors);
        return;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
        _mm256_store_ps(t->acc + (v / 2 * rows + i) * PANEL + v % 2 * LANES, acc[i][v]);
}

/* Eight columns, all of them there or under a mask: a masked store costs Zen processors some 20 cycles. */
WOK_INLINE void finish_columns(const wok_gemm_f32_tile *t, int64_t rows, int64_t n, const wok_act act, const bool masked) {
    const __m256 lo = _mm256_set1_ps(t->epilogue->lo), hi = _mm256_set1_ps(t->epilogue->hi);
    const __m256i mask = wok_mask_avx2(t->columns - n);
    const float *acc = t->acc + n / PANEL * PANEL * rows + n % PANEL, *bias = t->bias, *residual = t->residual;
    float *c = t->c + n;
    for (int64_t i = 0; i < rows; i++, acc += PANEL, c += t->ldc) {
        __m256 x = _mm256_load_ps(acc);
        if (bias) x = _mm256_add_ps(x, _mm256_maskload_ps(bias + n, mask));
        if (residual) x = _mm256_add_ps(x, _mm256_maskload_ps(residual + i * t->ldr + n, mask));
        x = wok_act_avx2(x, act, lo, hi);
        if (masked) _mm256_maskstore_ps(c, mask, x);
        else _mm256_storeu_ps(c, x);
    }
}

WOK_INLINE void finish_with(const wok_gemm_f32_tile *t, int64_t rows, const wok_act act) {
    int64_t n = 0;
    for (; n + LANES <= t->columns; n += LANES) finish_columns(t, rows, n, act, false);
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
#define SMALL(rows, panels)                                                                                               \
    static void small_##rows##_##panels(const wok_gemm_f32_tile *t) { run_tile(t, rows, panels, true); }
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

static const signed char small_width[] = {1, 4, 2, 2, 1, 1, 1};
static const wok_gemm_f32_tiles tiles = {
    .mr = 6,
    .width = 1,
    .kc = 512, /* 192 .. 3072 measure alike on Zen 3; 512 lines and 6 rows fit in 48 KB */
    .small_rows = 6,
    .small_width = small_width,
    .many = {{0}, {0}, {0}, {0, many_3_1}, {0, many_4_1}, {0, many_5_1}, {0, many_6_1}}, /* 7 rows are 4 + 3 */
    .small = {{0},
              {0, small_1_1, small_1_2, small_1_3, small_1_4},
              {0, small_2_1, small_2_2},
              {0, small_3_1, small_3_2},
              {0, small_4_1},
              {0, small_5_1},
              {0, small_6_1}},
    .finish = finish,
};

static void run(const wok_gemm_f32_args *args, const wok_parallel *parallel) {
    wok_gemm_f32_drive(args, &tiles, parallel);
}

const wok_gemm_f32_kernel wok_gemm_f32_6x16__avx2 = {
    .base = {"wok_gemm_f32_6x16__avx2", WOK_ISA_avx2, 0, wok_gemm_f32_accept},
    .layout = WOK_GEMM_F32_LAYOUT,
    .mr = 6,
    .nr = PANEL,
    .packed_bytes = wok_gemm_f32_packed_bytes,
    .pack = wok_gemm_f32_pack,
    .run = run,
};
