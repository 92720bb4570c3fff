/* conv_f32_avx512.c - indirect GEMM, 8 output pixels x 48 output channels. conv_f32.h has layout, table and loops.
 *
 * Registers: 24 accumulators (c00 .. c72), 3 vectors of weights from 3 neighbouring panels, 1 broadcast input; 8 pixel
 * pointers, 3 weight pointers and the prefetch pointer in general registers. A step of k is 3 loads, 8 broadcasts, 24
 * FMA = 12 cycles on two FMA ports.
 *
 *                 b0 [16]  b1 [16]  b2 [16]        one run: 8 pointers, `run` channels
 *     pixel 0     c00      c01      c02            table[run][0..7] -> x0 x1 ... x7
 *     ...
 *     pixel 7     c70      c71      c72
 *
 * Tails: panels go in threes; what is left is cut into twos rather than into a three and a one (a single panel has
 * only 8 chains: 90 % of the rate). The last vector of a tile is stored and its operands are loaded under a mask.
 * Blocks have mr or mr - 1 pixels (fewer only when a chunk has fewer), each height is an instance of its own.
 * Activations other than the clamp leave through a buffer on the stack.
 *
 * Bound: FMA. L2 gives 192 B of weights per 12 cycles; the next panels are prefetched into L2 meanwhile, a line every
 * 2 k.
 */
#include "conv_f32.h"
#include "../math_avx512.h"

#define MR 8
#define NR WOK_CONV_F32_NR
#define WIDE 3                 /* panels of the widest tile */
#define L1_WEIGHTS (24 * 1024) /* panels that fit into this together are visited block by block */
#define PREFETCH_BLOCKS 6      /* blocks that share out the prefetch: WIDE panels, a line every 2 k */

typedef struct tile {
    const float *const *table;
    const float *b;
    int64_t panel_size; /* floats from panel to panel */
    const float *next;  /* prefetched on the way, 32 bytes a k */
    float *y;
    const float *bias, *residual;
    __mmask16 last; /* lanes of the last vector that are output channels */
} tile;

/* The activations that the registers do not do, over a tile that has had bias and residual. */
static __attribute__((noinline)) void activate(const wok_conv_f32_job *job, const tile *t, const float *acc, int rows,
                                               int vectors) {
    const __m512 none = _mm512_setzero_ps();
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) {
            const __m512 x = wok_act_avx512(_mm512_load_ps(acc + (i * WIDE + v) * NR), job->act, none, none);
            const __mmask16 mask = v == vectors - 1 ? t->last : 0xffff;
            _mm512_mask_storeu_ps(t->y + i * job->y_stride + v * NR, mask, x);
        }
}

/* acc += x * y, written down because gcc 12 otherwise mixes in vfmadd132 with copies and spills. */
#define FMA(acc, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))

/* X(i) for every pixel of a block; `rows` and `vectors` are constants wherever they are tested. */
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

#define DECLARE(i)                                                                                                     \
    __m512 c##i##0 = _mm512_setzero_ps(), c##i##1 = c##i##0, c##i##2 = c##i##0;                                        \
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
        const __m512 x = _mm512_set1_ps(x##i[K]);                                                                      \
        FMA(c##i##0, x, w0);                                                                                           \
        if (vectors > 1) FMA(c##i##1, x, w1);                                                                          \
        if (vectors > 2) FMA(c##i##2, x, w2);                                                                          \
    }
/* The barrier keeps the loads of one step from being moved into another, which would need more registers. */
#define STEP(k)                                                                                                        \
    do {                                                                                                               \
        enum { K = k };                                                                                                \
        const __m512 w0 = _mm512_load_ps(b0 + K * NR);                                                                 \
        const __m512 w1 = vectors > 1 ? _mm512_load_ps(b1 + K * NR) : w0;                                              \
        const __m512 w2 = vectors > 2 ? _mm512_load_ps(b2 + K * NR) : w0;                                              \
        EACH_ROW(MULTIPLY)                                                                                             \
        __asm__ volatile("" ::: "memory");                                                                             \
    } while (0)
/* Vector v of a row: whole, or under the mask of the last one. */
#define LOAD(p, v) (v == vectors - 1 ? _mm512_maskz_loadu_ps(t->last, (p) + v * NR) : _mm512_loadu_ps((p) + v * NR))
#define STORE_VECTOR(v, x)                                                                                             \
    if (v == vectors - 1)                                                                                              \
        _mm512_mask_storeu_ps(y + v * NR, t->last, x);                                                                 \
    else                                                                                                               \
        _mm512_storeu_ps(y + v * NR, x);
#define ADD_BIAS(i)                                                                                                    \
    c##i##0 = _mm512_add_ps(c##i##0, bias0);                                                                           \
    c##i##1 = _mm512_add_ps(c##i##1, bias1);                                                                           \
    c##i##2 = _mm512_add_ps(c##i##2, bias2);
#define ADD_RESIDUAL(i)                                                                                                \
    if (i < rows) {                                                                                                    \
        c##i##0 = _mm512_add_ps(c##i##0, LOAD(residual, 0));                                                           \
        if (vectors > 1) c##i##1 = _mm512_add_ps(c##i##1, LOAD(residual, 1));                                          \
        if (vectors > 2) c##i##2 = _mm512_add_ps(c##i##2, LOAD(residual, 2));                                          \
        residual += job->residual_stride;                                                                              \
    }
#define CLAMP(i)                                                                                                       \
    c##i##0 = wok_clamp_avx512(c##i##0, lo, hi);                                                                       \
    c##i##1 = wok_clamp_avx512(c##i##1, lo, hi);                                                                       \
    c##i##2 = wok_clamp_avx512(c##i##2, lo, hi);
#define STORE(i)                                                                                                       \
    if (i < rows) {                                                                                                    \
        STORE_VECTOR(0, c##i##0)                                                                                       \
        if (vectors > 1) {                                                                                             \
            STORE_VECTOR(1, c##i##1)                                                                                   \
        }                                                                                                              \
        if (vectors > 2) {                                                                                             \
            STORE_VECTOR(2, c##i##2)                                                                                   \
        }                                                                                                              \
        y += job->y_stride;                                                                                            \
    }
#define SPILL(i)                                                                                                       \
    if (i < rows) {                                                                                                    \
        _mm512_store_ps(buffer + (i * WIDE + 0) * NR, c##i##0);                                                        \
        if (vectors > 1) _mm512_store_ps(buffer + (i * WIDE + 1) * NR, c##i##1);                                       \
        if (vectors > 2) _mm512_store_ps(buffer + (i * WIDE + 2) * NR, c##i##2);                                       \
    }

/* `rows` pixels times `vectors` panels. */
WOK_INLINE void run_tile(const wok_conv_f32_job *job, const tile *t, const int rows, const int vectors) {
    EACH_ROW(DECLARE)
    const float *b0 = t->b, *b1 = vectors > 1 ? b0 + t->panel_size : b0, *b2 = vectors > 2 ? b1 + t->panel_size : b0;
    const float *next = t->next;
    const float *const *table = t->table;
    for (int64_t r = job->runs; r > 0; r--, table += MR) {
        EACH_ROW(POINT)
        int64_t left = job->run;
        for (; left >= 4; left -= 4, b0 += 4 * NR, b1 += 4 * NR, b2 += 4 * NR, next += 2 * NR) {
            const int advance = 4;
            _mm_prefetch((const char *)next, _MM_HINT_T1);
            _mm_prefetch((const char *)(next + NR), _MM_HINT_T1);
            STEP(0);
            STEP(1);
            STEP(2);
            STEP(3);
            EACH_ROW(ADVANCE)
        }
        for (; left > 0; left--, b0 += NR, b1 += NR, b2 += NR) {
            const int advance = 1;
            STEP(0);
            EACH_ROW(ADVANCE)
        }
    }

    if (t->bias) {
        const __m512 bias0 = LOAD(t->bias, 0), bias1 = vectors > 1 ? LOAD(t->bias, 1) : bias0;
        const __m512 bias2 = vectors > 2 ? LOAD(t->bias, 2) : bias0;
        EACH_ROW(ADD_BIAS)
    }
    const float *residual = t->residual;
    if (residual) {
        EACH_ROW(ADD_RESIDUAL)
    }
    if (job->act != WOK_ACT_NONE && job->act != WOK_ACT_CLAMP) {
        float buffer[MR * WIDE * NR] __attribute__((aligned(64)));
        EACH_ROW(SPILL)
        activate(job, t, buffer, rows, vectors);
        return;
    }
    if (job->act == WOK_ACT_CLAMP) {
        const __m512 lo = _mm512_set1_ps(job->lo), hi = _mm512_set1_ps(job->hi);
        EACH_ROW(CLAMP)
    }
    float *y = t->y;
    EACH_ROW(STORE)
}

#define DEFINE_TILE(rows, vectors)                                                                                     \
    static __attribute__((noinline)) void tile_##rows##_##vectors(const wok_conv_f32_job *job, const tile *t) {        \
        run_tile(job, t, rows, vectors);                                                                               \
    }
#define DEFINE_TILES(vectors)                                                                                          \
    DEFINE_TILE(1, vectors)                                                                                            \
    DEFINE_TILE(2, vectors)                                                                                            \
    DEFINE_TILE(3, vectors)                                                                                            \
    DEFINE_TILE(4, vectors)                                                                                            \
    DEFINE_TILE(5, vectors)                                                                                            \
    DEFINE_TILE(6, vectors)                                                                                            \
    DEFINE_TILE(7, vectors)                                                                                            \
    DEFINE_TILE(8, vectors)
DEFINE_TILES(1)
DEFINE_TILES(2)
DEFINE_TILES(3)

typedef void (*tile_fn)(const wok_conv_f32_job *job, const tile *t);
static const tile_fn tiles[WIDE + 1][MR + 1] = {
    {NULL},
    {NULL, tile_1_1, tile_2_1, tile_3_1, tile_4_1, tile_5_1, tile_6_1, tile_7_1, tile_8_1},
    {NULL, tile_1_2, tile_2_2, tile_3_2, tile_4_2, tile_5_2, tile_6_2, tile_7_2, tile_8_2},
    {NULL, tile_1_3, tile_2_3, tile_3_3, tile_4_3, tile_5_3, tile_6_3, tile_7_3, tile_8_3},
};

/* Panels of the next tile where `left` are left: 4 are two and two. */
static int64_t tile_panels(int64_t left) {
    return left == 4 ? 2 : wok_min64(left, WIDE);
}

/* Panels [begin, end) against all blocks. A group of one tile shares out the prefetch of its successor. */
static void run_group(const wok_conv_f32_job *job, int64_t begin, int64_t end) {
    const int64_t panel_size = job->runs * job->run * NR;
    const bool prefetch = end - begin <= WIDE && job->panels - end >= WIDE;
    int64_t row = 0;
    for (int64_t block = 0; block < job->blocks; block++) {
        const int64_t rows = wok_conv_f32_rows(job, block);
        tile t = {.table = job->table + block * job->runs * MR, .panel_size = panel_size};
        for (int64_t panel = begin, count; panel < end; panel += count) {
            count = tile_panels(end - panel);
            const int64_t n = panel * NR;
            t.b = job->b + panel * panel_size;
            t.next = t.b;
            if (prefetch && block < PREFETCH_BLOCKS)
                t.next = job->b + end * panel_size + block * (WIDE * panel_size / PREFETCH_BLOCKS / NR * NR);
            t.y = job->y + row * job->y_stride + n;
            t.bias = job->bias ? job->bias + n : NULL;
            t.residual = job->residual ? job->residual + row * job->residual_stride + n : NULL;
            t.last = wok_mask_avx512(job->columns - n - (count - 1) * NR);
            tiles[count][rows](job, &t);
        }
        row += rows;
    }
}

static void run_panels(const wok_conv_f32_job *job) {
    const int64_t panel_bytes = job->runs * job->run * NR * (int64_t)sizeof(float);
    const int64_t together = L1_WEIGHTS / panel_bytes / WIDE * WIDE;
    for (int64_t panel = 0, count; panel < job->panels; panel += count) {
        count = wok_max64(tile_panels(job->panels - panel), wok_min64(together, job->panels - panel));
        run_group(job, panel, panel + count);
    }
}

static size_t workspace_bytes(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, int threads) {
    return wok_conv_f32_workspace(problem, args, MR, threads);
}

static void run(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, const wok_parallel *parallel) {
    wok_conv_f32_drive(problem, args, MR, run_panels, parallel);
}

const wok_conv_f32_kernel wok_conv_f32_8x48__avx512 = {
    .base = {"wok_conv_f32_8x48__avx512", WOK_ISA_avx512, 0, wok_conv_f32_accept},
    .layout = WOK_CONV_F32_LAYOUT,
    .mr = MR,
    .nr = WIDE * NR,
    .packed_bytes = wok_conv_f32_packed_bytes,
    .pack = wok_conv_f32_pack,
    .workspace_bytes = workspace_bytes,
    .run = run,
};
