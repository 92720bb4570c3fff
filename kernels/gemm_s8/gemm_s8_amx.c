/* gemm_s8_amx.c - 32 x 32 outputs in four tiles, tdpbsud: signed A by unsigned B; gemm_s8.h has layout and sums.
 *
 * Tiles. Two tiles of rows by two panels, or, up to 16 rows, one tile of rows by four panels:
 *
 *                       B 6: panel 0   B 7: panel 1                   B 5, 6, 7, 5: panels 0 .. 3
 *      A 4: rows 0-15   C 0            C 1               A 4: rows    C 0   C 1   C 2   C 3
 *      A 5: rows 16-31  C 2            C 3
 *
 * A step is 64 of K. A is loaded as it stands, 16 rows lda apart; a tile of B is 16 lines of a panel, 1 KiB in one
 * piece, so the layout of the other levels is the layout of tiles.
 *
 * K tail: the last bytes of each row are copied into a scratch of 64 a row, zeros behind them. The lines of B that the
 * last step loads beyond K, which may be the next panel's, meet those zeros.
 *
 * Row tails: the blocks of a chunk have one height, so that one configuration with fewer rows a tile does for all; the
 * last block begins early and repeats some rows of the one before, which are not finished twice (the output may be its
 * own residual). 33 rows are two blocks of 17, at the cost of 34. Column tails: the packed zeros are computed with.
 *
 * Bound: one tdpbsud in 16 cycles with 16 rows; a step of four of them loads 4 KiB, so that the weights of a pair of
 * panels should come from L1 or L2. Sums leave through 4 KiB of stack, where `finish` meets them while later tiles
 * compute. Measured: nowhere yet, for want of a processor. The twin (amx_tile.h) is checked on every machine; the
 * machine code has been through checkwok on an emulated processor whose tile instructions were interpreted by hand. */
#include "gemm_s8_driver.h"
#include "../amx_tile.h"

/* Row sums and the epilogue; whoever compiles the twin brings scalar ones under these names. */
#if defined(WOK_LEVEL_amx)
#include "../lanes_avx512.h"
#include "gemm_s8_finish.h"

static void rowsums(const int8_t *a, int64_t lda, int64_t rows, int64_t k, int32_t *sums) {
    const __m512i ones = _mm512_set1_epi8(1);
    const __mmask64 rest = ((__mmask64)1 << k % 64) - 1;
    for (int64_t i = 0; i < rows; i++, a += lda) {
        int64_t j = 0;
        __m512i sum = _mm512_setzero_si512();
        for (; j + 64 <= k; j += 64) sum = _mm512_dpbusd_epi32(sum, ones, _mm512_loadu_si512(a + j));
        sum = _mm512_dpbusd_epi32(sum, ones, _mm512_maskz_loadu_epi8(rest, a + j));
        sums[i] = _mm512_reduce_add_epi32(sum);
    }
}
#endif

enum {
    PANEL = WOK_GEMM_S8_PANEL,
    HALF = WOK_TILE_ROWS,
    ROWS = 2 * HALF,
    STEP = WOK_TILE_ROW_BYTES,
    CHUNK = 256, /* rows whose tails and sums are held */
    SUMS = 4 * WOK_TILE_BYTES / 4
};

/* A chunk of rows on its way through the panels. */
typedef struct walk {
    wok_gemm_s8_walk base;
    int64_t height;      /* rows of every block */
    const int8_t *tails; /* [rows][64]: the last k % 64 of every row, or NULL where there are none */
} walk;

/* What a block and a group of panels have for one step. */
typedef struct operands {
    const int8_t *a;
    int64_t lda;
    const uint8_t *b;
    int64_t panel_stride;
} operands;

static void configure(wok_tiles *tiles, int64_t height) {
    wok_tile_config config __attribute__((aligned(64))) = {.palette = 1};
    const int first = height < HALF ? (int)height : HALF, second = (int)height - first;
    const int rows[] = {first, first, second, second, first, second, HALF, HALF}; /* C C C C, A A, B B */
    for (int t = 0; t < 8; t++) {
        const bool one = second == 0; /* C C C C, A, B B B */
        config.rows[t] = (uint8_t)(!one ? rows[t] : t < 5 ? first : HALF);
        config.row_bytes[t] = STEP;
    }
    WOK_TILE_CONFIGURE(tiles, &config);
}

/* The instructions of a step; panels is a constant. */
WOK_INLINE void step_two(wok_tiles *tiles, const operands *o, const int panels) {
    WOK_TILE_LOAD(tiles, 4, o->a, o->lda);
    WOK_TILE_LOAD(tiles, 6, o->b, WOK_GEMM_S8_LINE);
    WOK_TILE_DOT_SU(tiles, 0, 4, 6);
    if (panels > 1) {
        WOK_TILE_LOAD(tiles, 7, o->b + o->panel_stride, WOK_GEMM_S8_LINE);
        WOK_TILE_DOT_SU(tiles, 1, 4, 7);
    }
    WOK_TILE_LOAD(tiles, 5, o->a + HALF * o->lda, o->lda);
    WOK_TILE_DOT_SU(tiles, 2, 5, 6);
    if (panels > 1) WOK_TILE_DOT_SU(tiles, 3, 5, 7);
}

WOK_INLINE void step_one(wok_tiles *tiles, const operands *o, const int panels) {
    WOK_TILE_LOAD(tiles, 4, o->a, o->lda);
    WOK_TILE_LOAD(tiles, 5, o->b, WOK_GEMM_S8_LINE);
    WOK_TILE_DOT_SU(tiles, 0, 4, 5);
    if (panels > 1) {
        WOK_TILE_LOAD(tiles, 6, o->b + o->panel_stride, WOK_GEMM_S8_LINE);
        WOK_TILE_DOT_SU(tiles, 1, 4, 6);
    }
    if (panels > 2) {
        WOK_TILE_LOAD(tiles, 7, o->b + 2 * o->panel_stride, WOK_GEMM_S8_LINE);
        WOK_TILE_DOT_SU(tiles, 2, 4, 7);
    }
    if (panels > 3) {
        WOK_TILE_LOAD(tiles, 5, o->b + 3 * o->panel_stride, WOK_GEMM_S8_LINE);
        WOK_TILE_DOT_SU(tiles, 3, 4, 5);
    }
}

/* Block of rows from `row` of the chunk on, times `panels` panels, into acc. */
WOK_INLINE void sum_block(wok_tiles *tiles, const walk *w, int64_t row, int64_t panel, int32_t *acc, const bool two,
                          const int panels) {
    const wok_gemm_s8_rows *job = w->base.job;
    operands o = {.lda = job->lda, .panel_stride = w->base.packed.panel_stride};
    o.a = job->a + (w->base.row + row) * o.lda;
    o.b = w->base.packed.panels + panel * o.panel_stride;
    WOK_TILE_ZERO(tiles, 0);
    if (two || panels > 1) WOK_TILE_ZERO(tiles, 1);
    if (two || panels > 2) WOK_TILE_ZERO(tiles, 2);
    if (two || panels > 3) WOK_TILE_ZERO(tiles, 3);
    for (int64_t steps = job->k / STEP; steps > 0; steps--, o.a += STEP, o.b += WOK_TILE_BYTES) {
        if (two)
            step_two(tiles, &o, panels);
        else
            step_one(tiles, &o, panels);
    }
    if (w->tails) {
        o.a = w->tails + row * STEP;
        o.lda = STEP;
        if (two)
            step_two(tiles, &o, panels);
        else
            step_one(tiles, &o, panels);
    }
    const int64_t stride = (int64_t)sizeof(int32_t) * PANEL * (two ? 2 : 4); /* bytes */
    int32_t *below = acc + HALF * 2 * PANEL;
    WOK_TILE_STORE(tiles, 0, acc, stride);
    if (panels > 1) WOK_TILE_STORE(tiles, 1, acc + PANEL, stride);
    if (two)
        WOK_TILE_STORE(tiles, 2, below, stride);
    else if (panels > 2)
        WOK_TILE_STORE(tiles, 2, acc + 2 * PANEL, stride);
    if (two && panels > 1)
        WOK_TILE_STORE(tiles, 3, below + PANEL, stride);
    else if (panels > 3)
        WOK_TILE_STORE(tiles, 3, acc + 3 * PANEL, stride);
}

#define SUM(name, two, panels)                                                                                         \
    static void sum_##name(wok_tiles *tiles, const walk *w, int64_t row, int64_t panel, int32_t *acc) {                \
        sum_block(tiles, w, row, panel, acc, two, panels);                                                             \
    }
SUM(1x1, false, 1)
SUM(1x2, false, 2)
SUM(1x3, false, 3)
SUM(1x4, false, 4)
SUM(2x1, true, 1)
SUM(2x2, true, 2)

/* [two][panels - 1] */
static void (*const sums_of[2][4])(wok_tiles *tiles, const walk *w, int64_t row, int64_t panel,
                                   int32_t *acc) = {{sum_1x1, sum_1x2, sum_1x3, sum_1x4}, {sum_2x1, sum_2x2}};

/* All blocks of the chunk times the panels [panel, panel + count). */
static void run_group(wok_tiles *tiles, const walk *w, int64_t panel, int64_t count) {
    const wok_gemm_s8_walk *base = &w->base;
    const bool two = w->height > HALF;
    wok_gemm_s8_sums sums = {.acc_stride = PANEL * (two ? 2 : 4), .column = panel * PANEL};
    sums.columns = wok_min64(count * PANEL, base->job->n - sums.column);
    for (int64_t done = 0; done < base->rows; done += sums.count) {
        const int64_t row = wok_min64(done, base->rows - w->height);
        sums_of[two][count - 1](tiles, w, row, panel, base->scratch->acc);
        sums.acc = base->scratch->acc + (done - row) * sums.acc_stride;
        sums.row_term = base->scratch->row_term + done;
        sums.row = base->row + done;
        sums.count = row + w->height - done;
        finish(base, &sums);
    }
}

/* The last `count` bytes of each row of the chunk, and zeros. */
static void copy_tails(const walk *w, int64_t count, int8_t *tails) {
    const wok_gemm_s8_rows *job = w->base.job;
    const int8_t *a = job->a + w->base.row * job->lda + job->k - count;
    memset(tails, 0, (size_t)(w->base.rows * STEP));
    for (int64_t m = 0; m < w->base.rows; m++) memcpy(tails + m * STEP, a + m * job->lda, (size_t)count);
}

static void run_chunk(wok_tiles *tiles, walk *w) {
    const wok_gemm_s8_rows *job = w->base.job;
    int8_t tails[CHUNK * STEP] __attribute__((aligned(64)));
    w->tails = job->k % STEP ? tails : NULL;
    if (w->tails) copy_tails(w, job->k % STEP, tails);
    wok_gemm_s8_row_terms(&w->base);
    w->height = wok_ceil_div(w->base.rows, wok_ceil_div(w->base.rows, ROWS));
    configure(tiles, w->height);
    const int64_t width = w->height > HALF ? 2 : 4, first = job->panel_begin * PANEL;
    for (int64_t panel = job->panel_begin; panel < job->panel_end; panel += width)
        run_group(tiles, w, panel, wok_min64(width, job->panel_end - panel));
    if (w->base.scratch->table) finish_table(&w->base, first, wok_min64(job->panel_end * PANEL, job->n) - first);
}

static const wok_gemm_s8_tiles level = {.rowsums = rowsums}; /* and no shift; the driver's loops are not used */

void WOK_AMX(wok_gemm_s8_rows)(const wok_gemm_s8_rows *job) {
    int32_t acc[SUMS] __attribute__((aligned(64))), row_term[CHUNK];
    wok_tiles tiles;
    v_table table;
    const bool mapped = job->epilogue.out == WOK_S8_OUT_S8 && job->epilogue.table;
    if (mapped) v_table_make(&table, job->epilogue.table);
    const wok_gemm_s8_scratch scratch = {.acc = acc, .row_term = row_term, .table = mapped ? &table : NULL};
    walk w = {.base = {.job = job, .tiles = &level, .scratch = &scratch}};
    w.base.packed = wok_gemm_s8_unpack(job->n, job->k, job->packed);
    const int64_t chunks = wok_ceil_div(job->m, CHUNK);
    for (int64_t i = 0; i < chunks; i++) {
        w.base.row = wok_gemm_s8_cut(job->m, chunks, i);
        w.base.rows = wok_gemm_s8_cut(job->m, chunks, i + 1) - w.base.row;
        run_chunk(&tiles, &w);
    }
    WOK_TILE_RELEASE(&tiles);
}

static const char *accept(const void *problem) {
    return wok_tile_has_int8() ? wok_gemm_s8_accept(problem) : "the tiles of this processor cannot multiply bytes";
}

static void run(const wok_gemm_s8_args *args, const wok_parallel *parallel) {
    wok_gemm_s8_drive(args, WOK_AMX(wok_gemm_s8_rows), args->m <= HALF ? 4 : 2, ROWS, parallel);
}

const wok_gemm_s8_kernel WOK_AMX(wok_gemm_s8_32x32) = {
    .base = {WOK_AMX_NAME(wok_gemm_s8_32x32), WOK_AMX_ISA, 0, accept},
    .layout = WOK_GEMM_S8_LAYOUT,
    .mr = ROWS,
    .nr = 2 * PANEL,
    .packed_bytes = wok_gemm_s8_packed_bytes,
    .pack = wok_gemm_s8_pack,
    .run = run,
};
