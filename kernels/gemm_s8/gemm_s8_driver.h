/* gemm_s8_driver.h - the loops around the register tiles, shared by the SIMD variants (internal).
 *
 *   task          a range of rows x a range of panels; how many there are depends on the number of threads only
 *   chunk         at most `chunk` rows of it; their sums are made first
 *   slab          a range of panels whose sums fit into `acc` for a whole chunk; everything where K is one block
 *   K block       at most kc of K: what the tiles touch stays in L1 or L2 while all row blocks of the chunk pass by
 *   group         1 .. 4 panels of B side by side, as wide as the tile is
 *   row block     mr or mr - 1 rows: 128 rows are 18 x 6 + 4 x 5, not 21 x 6 + 2
 *
 * A tile leaves its sums in `acc`, and adds to them where K has several blocks; integers do not mind the order. After the
 * last K block `finish` makes outputs of them while they are in L1. While a row block computes, it prefetches its share of
 * the group that comes next. */
#ifndef WOK_GEMM_S8_DRIVER_H
#define WOK_GEMM_S8_DRIVER_H

#include "gemm_s8.h"

enum {
    WOK_GEMM_S8_MR = 8,          /* most rows of a tile */
    WOK_GEMM_S8_WIDTH = 4,       /* most panels of a tile */
    WOK_GEMM_S8_AHEAD = 48,      /* lines of B that a lone row block prefetches ahead, 3 KB */
    WOK_GEMM_S8_SERIAL = 1 << 18 /* products below this many multiplications are not worth a second thread */
};

/* One row block times one group, over one K block. */
typedef struct wok_gemm_s8_tile {
    const int8_t *a; /* rows, lda apart */
    int64_t lda;
    const int16_t *wide; /* the rows as the level's `widen` left them */
    const uint8_t *b;    /* panels, panel_stride bytes apart */
    int64_t panel_stride;
    int64_t k;
    int32_t *acc; /* [rows][acc_stride] */
    int64_t acc_stride;
    bool first;          /* there are no sums yet */
    int16_t *halves;     /* AVX2: the group as 16-bit halves */
    bool split, keep;    /* AVX2: make the halves; leave them for the row blocks that follow */
    const uint8_t *next; /* prefetched on the way, next_step bytes a line */
    int64_t next_step;
} wok_gemm_s8_tile;

/* Complete sums: rows [row, row + count) x columns [column, column + columns) of a job. */
typedef struct wok_gemm_s8_sums {
    const int32_t *acc, *row_term; /* row_term: of row `row` */
    int64_t acc_stride, row, count, column, columns;
} wok_gemm_s8_sums;

struct wok_gemm_s8_walk;

typedef struct wok_gemm_s8_tiles {
    int mr, width;                  /* of the tile for many rows */
    int64_t kc;                     /* a multiple of 4 */
    int chunk, slab;                /* rows, panels */
    int small_rows;                 /* up to here a lone row block uses `small` */
    const signed char *small_width; /* [rows]: its panels */
    /* [rows][panels]; NULL where the combination does not occur. `many` prefetches `next`, `small` its own panels. */
    void (*many[WOK_GEMM_S8_MR + 1][WOK_GEMM_S8_WIDTH + 1])(const wok_gemm_s8_tile *tile);
    void (*small[WOK_GEMM_S8_MR + 1][WOK_GEMM_S8_WIDTH + 1])(const wok_gemm_s8_tile *tile);
    int32_t shift; /* the tiles' sums are those of u - shift: 0, or 128 where B is made signed on the way */
    /* sums of rows of A, lda apart */
    void (*rowsums)(const int8_t *a, int64_t lda, int64_t rows, int64_t k, int32_t *sums);
    /* Rows as 16-bit words, wide_stride elements apart; NULL: tiles read A as it is. */
    void (*widen)(const int8_t *a, int64_t lda, int64_t rows, int64_t k, int16_t *wide);
    int64_t wide_stride;
    void (*finish)(const struct wok_gemm_s8_walk *walk, const wok_gemm_s8_sums *sums);
    /* the table of S8 outputs, over columns [n, n + columns) of the walk's rows */
    void (*table)(const struct wok_gemm_s8_walk *walk, int64_t n, int64_t columns);
} wok_gemm_s8_tiles;

/* Memory of a level's rows function, on its stack, aligned to 64. */
typedef struct wok_gemm_s8_scratch {
    int32_t *acc;      /* chunk x slab x 16, and chunk x width x 16 */
    int32_t *row_term; /* chunk */
    int16_t *wide;     /* chunk x wide_stride */
    int16_t *halves;   /* kc x width x 16 */
    const void *table; /* the epilogue's table as the level looks it up, or NULL */
} wok_gemm_s8_scratch;

/* A chunk of rows on its way through the panels. */
typedef struct wok_gemm_s8_walk {
    const wok_gemm_s8_rows *job;
    const wok_gemm_s8_tiles *tiles;
    const wok_gemm_s8_scratch *scratch;
    wok_gemm_s8_packed packed;
    int64_t row, rows, blocks; /* first row, how many, in how many row blocks */
    int64_t width, k_blocks;
    bool small;
} wok_gemm_s8_walk;

/* The start of part i when `total` is cut into `parts` that differ by one at most. */
static inline int64_t wok_gemm_s8_cut(int64_t total, int64_t parts, int64_t i) {
    return total / parts * i + wok_min64(i, total % parts);
}

/* The start of K block i: whole lines, so that only the last one has a K that is no multiple of 4. */
static inline int64_t wok_gemm_s8_cut_k(const wok_gemm_s8_walk *w, int64_t i) {
    return wok_min64(w->job->k, 4 * wok_gemm_s8_cut(wok_ceil_div(w->job->k, 4), w->k_blocks, i));
}

/* Line `i` of the group of `width` panels at `from`, `lines` of each; `from` itself where the group has no such line. */
static inline const uint8_t *wok_gemm_s8_line(const uint8_t *from, int64_t panel_stride, int64_t lines, int64_t width,
                                              int64_t i) {
    if (lines <= 0 || i >= lines * width) return from;
    return from + i / lines * panel_stride + i % lines * WOK_GEMM_S8_LINE;
}

/* Outputs of all rows of the chunk, one group: at once, since setting the columns up costs as much as a few rows. */
static inline void wok_gemm_s8_finish(const wok_gemm_s8_walk *w, const int32_t *acc, int64_t acc_stride, int64_t panel,
                                      int64_t width) {
    int64_t n = panel * WOK_GEMM_S8_PANEL;
    wok_gemm_s8_sums sums = {.acc = acc, .row_term = w->scratch->row_term, .acc_stride = acc_stride};
    sums.row = w->row;
    sums.count = w->rows;
    sums.column = n;
    sums.columns = wok_min64(width * WOK_GEMM_S8_PANEL, w->job->n - n);
    w->tiles->finish(w, &sums);
}

/* All row blocks times one group, over K block kb. `sums`: of the group's first column; `next`: the first line of what comes
 * afterwards. */
static inline void wok_gemm_s8_group(const wok_gemm_s8_walk *w, int64_t kb, int64_t panel, int64_t width, int32_t *sums,
                                     int64_t sums_stride, const uint8_t *next) {
    const wok_gemm_s8_tiles *tiles = w->tiles;
    int64_t k0 = wok_gemm_s8_cut_k(w, kb), lines;
    wok_gemm_s8_tile t = {.lda = w->job->lda, .panel_stride = w->packed.panel_stride, .acc_stride = sums_stride};
    t.b = w->packed.panels + panel * t.panel_stride + k0 / 4 * WOK_GEMM_S8_LINE;
    t.k = wok_gemm_s8_cut_k(w, kb + 1) - k0;
    t.first = kb == 0;
    t.halves = w->scratch->halves;
    t.keep = w->blocks > 1;
    lines = wok_min64(4, wok_ceil_div(4 * width, w->blocks)); /* of `next`, in four steps */
    t.next_step = lines * WOK_GEMM_S8_LINE / 4;
    for (int64_t i = 0; i < w->blocks; i++) {
        int64_t begin = wok_gemm_s8_cut(w->rows, w->blocks, i),
                height = wok_gemm_s8_cut(w->rows, w->blocks, i + 1) - begin;
        t.a = w->job->a + (w->row + begin) * t.lda + k0;
        t.wide = w->scratch->wide + begin * tiles->wide_stride;
        t.acc = sums + begin * sums_stride;
        t.split = i == 0;
        t.next = wok_gemm_s8_line(next, t.panel_stride, t.k / 4, width, i * lines * (t.k / 16));
        (w->small ? tiles->small : tiles->many)[height][width](&t);
    }
    if (kb + 1 == w->k_blocks) wok_gemm_s8_finish(w, sums, sums_stride, panel, width);
}

/* One slab: panels [p0, p1). */
static inline void wok_gemm_s8_slab(const wok_gemm_s8_walk *w, int64_t p0, int64_t p1) {
    const wok_gemm_s8_tiles *tiles = w->tiles;
    int64_t groups = wok_ceil_div(p1 - p0, w->width);
    int64_t stride = WOK_GEMM_S8_PANEL * (w->k_blocks > 1 ? p1 - p0 : w->width);
    for (int64_t kb = 0; kb < w->k_blocks; kb++) {
        int64_t k0 = wok_gemm_s8_cut_k(w, kb), k1 = wok_gemm_s8_cut_k(w, kb + 1);
        if (tiles->widen)
            tiles->widen(w->job->a + w->row * w->job->lda + k0, w->job->lda, w->rows, k1 - k0, w->scratch->wide);
        for (int64_t j = 0; j < groups; j++) {
            int64_t panel = p0 + wok_gemm_s8_cut(p1 - p0, groups, j),
                    until = p0 + wok_gemm_s8_cut(p1 - p0, groups, j + 1);
            bool last = j + 1 == groups;
            const uint8_t *next = w->packed.panels + (last ? p0 : until) * w->packed.panel_stride;
            next += (!last ? k0 : kb + 1 < w->k_blocks ? k1 : 0) / 4 * WOK_GEMM_S8_LINE;
            int32_t *sums = w->scratch->acc + (w->k_blocks > 1 ? (panel - p0) * WOK_GEMM_S8_PANEL : 0);
            wok_gemm_s8_group(w, kb, panel, until - panel, sums, stride, next);
        }
    }
    int64_t n = p0 * WOK_GEMM_S8_PANEL;
    if (w->scratch->table) tiles->table(w, n, wok_min64(p1 * WOK_GEMM_S8_PANEL, w->job->n) - n);
}

/* What the epilogue takes off a row's sums: rowsum times offset where that is one for all columns, else rowsum. */
static inline void wok_gemm_s8_row_terms(const wok_gemm_s8_walk *w) {
    const wok_gemm_s8_rows *g = w->job;
    int32_t *terms = w->scratch->row_term, offset = w->packed.offset[0] - w->tiles->shift;
    if (w->packed.uniform && offset == 0) {
        memset(terms, 0, (size_t)w->rows * sizeof *terms);
        return;
    }
    w->tiles->rowsums(g->a + w->row * g->lda, g->lda, w->rows, g->k, terms);
    for (int64_t i = 0; w->packed.uniform && i < w->rows; i++) terms[i] *= offset;
}

static inline void wok_gemm_s8_walk_rows(const wok_gemm_s8_rows *job, const wok_gemm_s8_tiles *tiles,
                                         const wok_gemm_s8_scratch *scratch) {
    wok_gemm_s8_walk w = {.job = job, .tiles = tiles, .scratch = scratch};
    int64_t chunks = wok_ceil_div(job->m, tiles->chunk), panels = job->panel_end - job->panel_begin;
    w.packed = wok_gemm_s8_unpack(job->n, job->k, job->packed);
    for (int64_t i = 0; i < chunks; i++) {
        w.row = wok_gemm_s8_cut(job->m, chunks, i);
        w.rows = wok_gemm_s8_cut(job->m, chunks, i + 1) - w.row;
        w.blocks = wok_ceil_div(w.rows, tiles->mr);
        w.small = w.rows <= tiles->small_rows;
        /* a lone row block that reads A as it is has no use for K blocks: each line of B is used once */
        w.k_blocks = w.small && !tiles->widen ? 1 : wok_max64(1, wok_ceil_div(job->k, tiles->kc));
        w.width = w.small ? tiles->small_width[w.rows] : tiles->width;
        wok_gemm_s8_row_terms(&w);
        int64_t slabs = w.k_blocks > 1 ? wok_ceil_div(panels, tiles->slab) : 1;
        for (int64_t s = 0; s < slabs; s++)
            wok_gemm_s8_slab(&w, job->panel_begin + wok_gemm_s8_cut(panels, slabs, s),
                             job->panel_begin + wok_gemm_s8_cut(panels, slabs, s + 1));
    }
}

/* ---- gemm_s8's tasks ------------------------------------------------------------------------------------------------ */

typedef struct wok_gemm_s8_job {
    const wok_gemm_s8_args *args;
    wok_gemm_s8_rows_fn rows;
    int64_t row_parts, panel_parts, panels, unit;
} wok_gemm_s8_job;

static inline void wok_gemm_s8_task(void *arg, int64_t task, int worker) {
    (void)worker;
    const wok_gemm_s8_job *job = arg;
    const wok_gemm_s8_args *g = job->args;
    int64_t m0, m1, p0, p1;
    wok_parallel_range(g->m, 1, task / job->panel_parts, job->row_parts, &m0, &m1);
    wok_parallel_range(job->panels, job->unit, task % job->panel_parts, job->panel_parts, &p0, &p1);
    wok_gemm_s8_rows r = {.m = m1 - m0, .n = g->n, .k = g->k, .a = g->a + m0 * g->lda, .lda = g->lda};
    r.a_zero = g->a_zero;
    r.row_zero = g->row_zero ? g->row_zero + m0 : NULL;
    r.packed = g->packed;
    r.panel_begin = p0;
    r.panel_end = p1;
    r.c = g->c;
    r.ldc = g->ldc;
    r.epilogue = g->epilogue;
    wok_gemm_s8_advance(&r, m0);
    job->rows(&r);
}

/* Columns are split first, in units of `unit` panels; rows only where there are too few columns to keep all threads busy. */
static inline void wok_gemm_s8_drive(const wok_gemm_s8_args *args, wok_gemm_s8_rows_fn rows, int64_t unit, int64_t mr,
                                     const wok_parallel *parallel) {
    wok_gemm_s8_job job = {.args = args, .rows = rows, .row_parts = 1, .panel_parts = 1, .unit = unit};
    int64_t threads = wok_parallel_threads(parallel);
    if (args->m <= 0) return;
    job.panels = wok_ceil_div(args->n, WOK_GEMM_S8_PANEL);
    if (threads > 1 && (double)args->m * (double)args->n * (double)args->k >= WOK_GEMM_S8_SERIAL) {
        job.panel_parts = wok_min64(wok_ceil_div(job.panels, job.unit), 4 * threads);
        if (job.panel_parts < 2 * threads)
            job.row_parts = wok_min64(wok_ceil_div(args->m, mr), wok_ceil_div(2 * threads, job.panel_parts));
    }
    wok_parallel_for(parallel, wok_gemm_s8_task, &job, job.row_parts * job.panel_parts);
}

#endif
