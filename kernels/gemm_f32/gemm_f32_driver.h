/* gemm_f32_driver.h - the loops around the register tiles, shared by the SIMD variants (internal).
 *
 *   task          a range of rows x a range of panels; how many there are depends on the number of threads only
 *   chunk         at most WOK_GEMM_F32_CHUNK rows of it, so that the sums of one group fit on the stack and in L1
 *   group         1 .. 4 panels of B side by side, as wide as the tile is
 *   K block       kc rows of the group: they stay in L1 or L2 while all row blocks of the chunk pass by
 *   row block     mr or mr - 1 rows: 128 rows are 18 x 6 + 4 x 5, not 21 x 6 + 2
 *
 * A tile continues the sums of the previous K block, so every output is one chain over k. The sums rest in `acc` on the
 * stack between K blocks (never in C: C may be the residual). A chunk of one row block has no use for K blocks: each line
 * of B is used once, and the tile runs through up to four panels as parallel streams.
 *
 * While a row block computes, it prefetches its share of the group or K block that comes next. */
#ifndef WOK_GEMM_F32_DRIVER_H
#define WOK_GEMM_F32_DRIVER_H

#include "gemm_f32.h"

enum {
    WOK_GEMM_F32_MR = 8,      /* most rows of a tile */
    WOK_GEMM_F32_WIDTH = 4,   /* most panels of a tile */
    WOK_GEMM_F32_CHUNK = 144, /* rows: a multiple of 6 and 8, and enough for a sequence of 128 */
    WOK_GEMM_F32_AHEAD = 48,  /* lines of B that a single row block prefetches ahead, 3 KB */
    WOK_GEMM_F32_SERIAL = 1 << 16 /* products below this many multiplications are not worth a second thread */
};

/* One row block times one group, over one K block. */
typedef struct wok_gemm_f32_tile {
    const float *a; /* rows, lda apart */
    const float *b; /* panels, panel_stride apart; elements */
    const float *next; /* prefetched on the way, next_step elements a k */
    int64_t next_step;
    int64_t lda, panel_stride, k;
    float *acc; /* [panels][rows][16], 64-byte aligned: sums of the K blocks before, and of this one unless direct */
    bool first;  /* there are no sums yet */
    bool direct; /* finish in registers: the last K block, full panels, and an activation of NONE or CLAMP */
    float *c;
    const float *bias, *residual; /* at the tile's first element, or NULL */
    int64_t ldc, ldr;
    const wok_epilogue_f32 *epilogue;
    int64_t columns; /* of C, 1 .. 16 * panels */
} wok_gemm_f32_tile;

typedef struct wok_gemm_f32_tiles {
    int mr;           /* rows of the tile for many rows */
    int width;        /* its panels */
    int64_t kc;       /* rows of a K block */
    int small_rows;   /* up to here a lone row block uses `small` */
    const signed char *small_width; /* [rows]: its panels */
    /* [rows][panels]; NULL where the combination does not occur. `many` prefetches `next`, `small` its own panels. */
    void (*many[WOK_GEMM_F32_MR + 1][WOK_GEMM_F32_WIDTH + 1])(const wok_gemm_f32_tile *tile);
    void (*small[WOK_GEMM_F32_MR + 1][WOK_GEMM_F32_WIDTH + 1])(const wok_gemm_f32_tile *tile);
    /* acc + bias + residual, activation, store; masked where columns end */
    void (*finish)(const wok_gemm_f32_tile *tile, int64_t rows);
} wok_gemm_f32_tiles;

typedef struct wok_gemm_f32_job {
    const wok_gemm_f32_args *args;
    const wok_gemm_f32_tiles *tiles;
    int64_t row_parts, panel_parts, panels, unit;
} wok_gemm_f32_job;

/* The start of part i when `total` is cut into `parts` that differ by one at most. */
static inline int64_t wok_gemm_f32_cut(int64_t total, int64_t parts, int64_t i) {
    return total / parts * i + wok_min64(i, total % parts);
}

static inline void wok_gemm_f32_tile_at(wok_gemm_f32_tile *t, const wok_gemm_f32_args *g, int64_t m, int64_t panel,
                                        int64_t k, int64_t width) {
    const wok_epilogue_f32 *e = &g->epilogue;
    int64_t n = panel * WOK_GEMM_F32_PANEL;
    t->a = g->a + m * g->lda + k;
    t->b = (const float *)g->packed + panel * t->panel_stride + k * WOK_GEMM_F32_PANEL;
    t->c = g->c + m * g->ldc + n;
    t->bias = e->bias ? e->bias + n : NULL;
    t->residual = e->residual ? e->residual + m * t->ldr + n : NULL;
    t->columns = wok_min64(width * WOK_GEMM_F32_PANEL, g->n - n);
    t->first = k == 0;
}

/* Line `i` of the k x width block of B at `from`; `from` itself where the block has no such line. */
static inline const float *wok_gemm_f32_line(const float *from, int64_t panel_stride, int64_t k, int64_t width, int64_t i) {
    if (k <= 0 || i >= k * width) return from;
    return from + i / k * panel_stride + i % k * WOK_GEMM_F32_PANEL;
}

/* Rows [m0, m1), one group of `width` panels. `last`: the task ends with this group. */
static inline void wok_gemm_f32_group(const wok_gemm_f32_job *job, int64_t m0, int64_t m1, int64_t panel, int64_t width,
                                      bool last, float *acc) {
    const wok_gemm_f32_args *g = job->args;
    const wok_gemm_f32_tiles *tiles = job->tiles;
    int64_t rows = m1 - m0, blocks = wok_ceil_div(rows, tiles->mr);
    bool small = blocks == 1 && rows <= tiles->small_rows;
    int64_t k_blocks = small ? 1 : wok_max64(1, wok_ceil_div(g->k, tiles->kc));
    bool simple = g->epilogue.act == WOK_ACT_NONE || g->epilogue.act == WOK_ACT_CLAMP;
    wok_gemm_f32_tile t = {.lda = g->lda, .panel_stride = g->k * WOK_GEMM_F32_PANEL, .ldc = g->ldc, .epilogue = &g->epilogue};
    t.ldr = g->epilogue.residual_stride;
    int64_t lines = wok_min64(4, wok_ceil_div(4 * width, blocks)); /* of `next`, in four k */
    t.next_step = lines * WOK_GEMM_F32_PANEL / 4;
    for (int64_t kb = 0; kb < k_blocks; kb++) {
        int64_t k0 = wok_gemm_f32_cut(g->k, k_blocks, kb);
        bool final = kb + 1 == k_blocks;
        t.k = wok_gemm_f32_cut(g->k, k_blocks, kb + 1) - k0;
        t.acc = acc;
        const float *next = (const float *)g->packed + panel * t.panel_stride;
        next += !final ? (k0 + t.k) * WOK_GEMM_F32_PANEL : last ? 0 : width * t.panel_stride;
        for (int64_t i = 0; i < blocks; i++) {
            int64_t begin = wok_gemm_f32_cut(rows, blocks, i), height = wok_gemm_f32_cut(rows, blocks, i + 1) - begin;
            wok_gemm_f32_tile_at(&t, g, m0 + begin, panel, k0, width);
            t.next = wok_gemm_f32_line(next, t.panel_stride, t.k, width, i * lines * (t.k / 4));
            t.direct = final && simple && t.columns == width * WOK_GEMM_F32_PANEL;
            (small ? tiles->small : tiles->many)[height][width](&t);
            if (final && !t.direct) tiles->finish(&t, height);
            t.acc += height * width * WOK_GEMM_F32_PANEL;
        }
    }
}

static inline void wok_gemm_f32_task(void *arg, int64_t task, int worker) {
    (void)worker;
    const wok_gemm_f32_job *job = arg;
    const wok_gemm_f32_tiles *tiles = job->tiles;
    float acc[WOK_GEMM_F32_CHUNK * WOK_GEMM_F32_PANEL * 3] __attribute__((aligned(64)));
    int64_t m0, m1, p0, p1;
    wok_parallel_range(job->args->m, 1, task / job->panel_parts, job->row_parts, &m0, &m1);
    wok_parallel_range(job->panels, job->unit, task % job->panel_parts, job->panel_parts, &p0, &p1);
    int64_t chunks = wok_ceil_div(m1 - m0, WOK_GEMM_F32_CHUNK);
    for (int64_t i = 0; i < chunks; i++) {
        int64_t begin = m0 + wok_gemm_f32_cut(m1 - m0, chunks, i), end = m0 + wok_gemm_f32_cut(m1 - m0, chunks, i + 1);
        int64_t width = end - begin <= tiles->small_rows ? tiles->small_width[end - begin] : tiles->width;
        int64_t groups = wok_ceil_div(p1 - p0, width);
        for (int64_t j = 0; j < groups; j++) {
            int64_t panel = p0 + wok_gemm_f32_cut(p1 - p0, groups, j), until = p0 + wok_gemm_f32_cut(p1 - p0, groups, j + 1);
            wok_gemm_f32_group(job, begin, end, panel, until - panel, j + 1 == groups, acc);
        }
    }
}

/* Columns are split first; rows only where there are too few columns to keep all threads busy. */
static inline void wok_gemm_f32_drive(const wok_gemm_f32_args *args, const wok_gemm_f32_tiles *tiles,
                                      const wok_parallel *parallel) {
    wok_gemm_f32_job job = {.args = args, .tiles = tiles, .row_parts = 1, .panel_parts = 1};
    int64_t threads = wok_parallel_threads(parallel);
    if (args->m <= 0) return;
    job.panels = wok_ceil_div(args->n, WOK_GEMM_F32_PANEL);
    job.unit = args->m <= tiles->small_rows ? tiles->small_width[args->m] : tiles->width;
    if (threads > 1 && (double)args->m * (double)args->n * (double)args->k >= WOK_GEMM_F32_SERIAL) {
        job.panel_parts = wok_min64(wok_ceil_div(job.panels, job.unit), 4 * threads);
        if (job.panel_parts < 2 * threads)
            job.row_parts = wok_min64(wok_ceil_div(args->m, tiles->mr), wok_ceil_div(2 * threads, job.panel_parts));
    }
    wok_parallel_for(parallel, wok_gemm_f32_task, &job, job.row_parts * job.panel_parts);
}

#endif
