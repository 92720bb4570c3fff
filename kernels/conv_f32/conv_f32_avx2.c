/* conv_f32_avx2.c - indirect GEMM, 6 output pixels x 16 output channels. conv_f32.h has layout, table and loops.
 *
 * Registers: 12 accumulators (c00 .. c51), 2 vectors of weights, 1 broadcast input; 6 pixel pointers, the weight
 * pointer and the prefetch pointer in general registers. A step of k is 2 loads, 6 broadcasts, 12 FMA = 6 cycles on
 * two FMA ports.
 *
 *                 b0 [8]   b1 [8]            one run: 6 pointers, `run` channels
 *     pixel 0     c00      c01               table[run][0..5] -> x0 x1 x2 x3 x4 x5
 *     ...
 *     pixel 5     c50      c51
 *
 * Tails: blocks have mr or mr - 1 pixels (fewer only when a chunk has fewer), each height is an instance of its own; a
 * last panel of at most 8 columns takes the 8-wide instances (6 chains: 3/4 of the rate instead of half). Columns
 * that do not fill the vectors, and activations other than the clamp, leave through a buffer on the stack.
 *
 * Bound: FMA. L2 gives 64 B of weights per 6 cycles; the next panel is prefetched into L2 meanwhile, a line every 4 k.
 * Short K (16 .. 32, the expansions of MobileNet) is bound by the stores and the start and end of a tile instead.
 * Measured on Zen 3, one thread, share of the FMA peak of 51.8 GMAC/s, weights not in cache (bench_conv):
 *     ResNet-18     stem 7x7s2 90 %   3x3 64@56 94   128@28 97   256@14 97   512@7 94   3x3s2 94-98   1x1s2 87-93
 *     MobileNetV2   1x1 K >= 64 87-97 %   24>144 81   16>96@112 70   32>16@112 76   N = 24 80   stem 3x3s2 65
 * ONNX Runtime 1.32 on the same core: 64@56 92 %, 128@28 90, 256@14 86, 512@7 79, 1x1 384@14 86, 960@7 72.
 */
#include "conv_f32.h"
#include "../math_avx2.h"

#define MR 6
#define NR WOK_CONV_F32_NR
#define L1_WEIGHTS (16 * 1024) /* panels that fit into this together are visited block by block */

typedef struct tile {
    const float *const *table;
    const float *b;
    const float *next; /* prefetched on the way, 16 bytes a k */
    float *y;
    const float *bias, *residual;
    int64_t columns; /* 1 .. 16 */
} tile;

/* The epilogue for what the registers do not do: `acc` is [rows][16]. */
static __attribute__((noinline)) void finish_slowly(const wok_conv_f32_job *job, const tile *t, const float *acc,
                                                    int rows) {
    for (int64_t n = 0; n < t->columns; n += 8) {
        const __m256i mask = wok_mask_avx2(t->columns - n);
        for (int64_t i = 0; i < rows; i++) {
            __m256 x = _mm256_load_ps(acc + i * NR + n);
            if (t->bias) x = _mm256_add_ps(x, _mm256_maskload_ps(t->bias + n, mask));
            if (t->residual) x = _mm256_add_ps(x, _mm256_maskload_ps(t->residual + i * job->residual_stride + n, mask));
            x = wok_act_avx2(x, job->act, _mm256_set1_ps(job->lo), _mm256_set1_ps(job->hi));
            _mm256_maskstore_ps(t->y + i * job->y_stride + n, mask, x);
        }
    }
}

/* acc += x * y. Written down because gcc 12 otherwise mixes in vfmadd132 with copies and spills: 10 % slower. */
#define FMA(acc, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(x), "x"(y))

/* X(i) for every pixel of a block; `rows` and `wide` are constants wherever they are tested. */
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)

#define DECLARE(i)                                                                                                     \
    __m256 c##i##0 = _mm256_setzero_ps(), c##i##1 = c##i##0;                                                           \
    const float *x##i = NULL;
#define POINT(i)                                                                                                       \
    if (i < rows) x##i = table[i] + job->offset;
/* The empty asm keeps gcc from carrying a second copy of every pointer out of the loop. */
#define ADVANCE(i)                                                                                                     \
    if (i < rows) {                                                                                                    \
        x##i += advance;                                                                                               \
        __asm__("" : "+r"(x##i));                                                                                      \
    }
#define MULTIPLY(i)                                                                                                    \
    if (i < rows) {                                                                                                    \
        const __m256 x = _mm256_broadcast_ss(x##i + K);                                                                \
        FMA(c##i##0, x, b0);                                                                                           \
        if (wide) FMA(c##i##1, x, b1);                                                                                 \
    }
/* The barrier keeps the loads of one step from being moved into another: registers are all taken. */
#define STEP(k)                                                                                                        \
    do {                                                                                                               \
        enum { K = k };                                                                                                \
        const __m256 b0 = _mm256_load_ps(b + K * NR), b1 = wide ? _mm256_load_ps(b + K * NR + 8) : b0;                 \
        EACH_ROW(MULTIPLY)                                                                                             \
        __asm__ volatile("" ::: "memory");                                                                             \
    } while (0)
#define ADD_BIAS(i)                                                                                                    \
    c##i##0 = _mm256_add_ps(c##i##0, bias0);                                                                           \
    c##i##1 = _mm256_add_ps(c##i##1, bias1);
#define ADD_RESIDUAL(i)                                                                                                \
    if (i < rows) {                                                                                                    \
        c##i##0 = _mm256_add_ps(c##i##0, _mm256_loadu_ps(residual));                                                   \
        if (wide) c##i##1 = _mm256_add_ps(c##i##1, _mm256_loadu_ps(residual + 8));                                     \
        residual += job->residual_stride;                                                                              \
    }
#define CLAMP(i)                                                                                                       \
    c##i##0 = wok_clamp_avx2(c##i##0, lo, hi);                                                                         \
    c##i##1 = wok_clamp_avx2(c##i##1, lo, hi);
#define STORE(i)                                                                                                       \
    if (i < rows) {                                                                                                    \
        _mm256_storeu_ps(y, c##i##0);                                                                                  \
        if (wide) _mm256_storeu_ps(y + 8, c##i##1);                                                                    \
        y += stride;                                                                                                   \
    }

/* `rows` pixels times 16 columns (wide) or 8. */
WOK_INLINE void run_tile(const wok_conv_f32_job *job, const tile *t, const int rows, const bool wide) {
    EACH_ROW(DECLARE)
    const float *b = t->b, *next = t->next;
    const float *const *table = t->table;
    for (int64_t r = job->runs; r > 0; r--, table += MR) {
        EACH_ROW(POINT)
        int64_t left = job->run;
        for (; left >= 4; left -= 4, b += 4 * NR, next += NR) {
            const int advance = 4;
            _mm_prefetch((const char *)next, _MM_HINT_T1);
            STEP(0);
            STEP(1);
            STEP(2);
            STEP(3);
            EACH_ROW(ADVANCE)
        }
        for (; left > 0; left--, b += NR) {
            const int advance = 1;
            STEP(0);
            EACH_ROW(ADVANCE)
        }
    }

    if (t->columns != (wide ? 16 : 8) || (job->act != WOK_ACT_NONE && job->act != WOK_ACT_CLAMP)) {
        float buffer[MR * NR] __attribute__((aligned(32)));
        float *y = buffer;
        const int64_t stride = NR;
        EACH_ROW(STORE)
        finish_slowly(job, t, buffer, rows);
        return;
    }
    if (t->bias) {
        const __m256 bias0 = _mm256_loadu_ps(t->bias), bias1 = wide ? _mm256_loadu_ps(t->bias + 8) : bias0;
        EACH_ROW(ADD_BIAS)
    }
    const float *residual = t->residual;
    if (residual) {
        EACH_ROW(ADD_RESIDUAL)
    }
    if (job->act == WOK_ACT_CLAMP) {
        const __m256 lo = _mm256_set1_ps(job->lo), hi = _mm256_set1_ps(job->hi);
        EACH_ROW(CLAMP)
    }
    float *y = t->y;
    const int64_t stride = job->y_stride;
    EACH_ROW(STORE)
}

#define DEFINE_TILE(rows)                                                                                              \
    static __attribute__((noinline)) void tile_##rows##x16(const wok_conv_f32_job *job, const tile *t) {               \
        run_tile(job, t, rows, true);                                                                                  \
    }                                                                                                                  \
    static __attribute__((noinline)) void tile_##rows##x8(const wok_conv_f32_job *job, const tile *t) {                \
        run_tile(job, t, rows, false);                                                                                 \
    }
DEFINE_TILE(1)
DEFINE_TILE(2)
DEFINE_TILE(3)
DEFINE_TILE(4)
DEFINE_TILE(5)
DEFINE_TILE(6)

typedef void (*tile_fn)(const wok_conv_f32_job *job, const tile *t);
static const tile_fn tiles[2][MR + 1] = {
    {NULL, tile_1x8, tile_2x8, tile_3x8, tile_4x8, tile_5x8, tile_6x8},
    {NULL, tile_1x16, tile_2x16, tile_3x16, tile_4x16, tile_5x16, tile_6x16},
};

/* Panels [begin, end) against all blocks. A panel alone in its group shares out the prefetch of its successor. */
static void run_group(const wok_conv_f32_job *job, int64_t begin, int64_t end) {
    const int64_t panel_size = job->runs * job->run * NR;
    const bool prefetch = end == begin + 1 && end < job->panels;
    int64_t row = 0;
    for (int64_t block = 0; block < job->blocks; block++) {
        const int64_t rows = wok_conv_f32_rows(job, block);
        tile t = {.table = job->table + block * job->runs * MR};
        for (int64_t panel = begin; panel < end; panel++) {
            const int64_t n = panel * NR;
            t.b = job->b + panel * panel_size;
            t.next = prefetch && block < 4 ? t.b + panel_size + block * (panel_size / 4) : t.b;
            t.y = job->y + row * job->y_stride + n;
            t.bias = job->bias ? job->bias + n : NULL;
            t.residual = job->residual ? job->residual + row * job->residual_stride + n : NULL;
            t.columns = wok_min64(NR, job->columns - n);
            tiles[t.columns > 8][rows](job, &t);
        }
        row += rows;
    }
}

static void run_panels(const wok_conv_f32_job *job) {
    const int64_t panel_bytes = job->runs * job->run * NR * (int64_t)sizeof(float);
    const int64_t group = wok_max64(1, L1_WEIGHTS / panel_bytes);
    for (int64_t panel = 0; panel < job->panels; panel += group)
        run_group(job, panel, wok_min64(panel + group, job->panels));
}

static size_t workspace_bytes(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, int threads) {
    return wok_conv_f32_workspace(problem, args, MR, threads);
}

static void run(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, const wok_parallel *parallel) {
    wok_conv_f32_drive(problem, args, MR, run_panels, parallel);
}

const wok_conv_f32_kernel wok_conv_f32_6x16__avx2 = {
    .base = {"wok_conv_f32_6x16__avx2", WOK_ISA_avx2, 0, wok_conv_f32_accept},
    .layout = WOK_CONV_F32_LAYOUT,
    .mr = MR,
    .nr = NR,
    .packed_bytes = wok_conv_f32_packed_bytes,
    .pack = wok_conv_f32_pack,
    .workspace_bytes = workspace_bytes,
    .run = run,
};
