/* gemm_s8_vnni.h - the register tiles of the levels that have vpdpbusd; one body for both widths (internal).
 *
 * Before including it, a level includes its lanes_<level>.h and defines
 *   ROWS               most rows of a tile
 *   WIDTH              most panels of a tile
 *   DOT(acc, u, s)     acc += the four products of unsigned u and signed s in every lane, an assignment to acc
 *
 *      line of B      n=0: u0 u1 u2 u3    n=1: u0 u1 u2 u3    ...      V_LANES columns a register
 *      row of A            a0 a1 a2 a3         a0 a1 a2 a3    ...      one dword, broadcast from memory as it is
 *
 * Three rows share a pointer (base, + lda, + 2 lda): eight of their own would not fit into the general registers. The last
 * line of a K that is no multiple of 4 takes its dwords from a copy, so that nothing behind a row is read. */
#ifndef WOK_GEMM_S8_VNNI_H
#define WOK_GEMM_S8_VNNI_H

#include "gemm_s8_finish.h"

enum {
    PANEL = WOK_GEMM_S8_PANEL,
    LINE = WOK_GEMM_S8_LINE,
    PARTS = PANEL / V_LANES
}; /* PARTS: registers of a panel's line */
enum { VECTORS = WIDTH * PARTS };

/* Every loop over registers must be unrolled whole, or the accumulators become an array in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

WOK_INLINE v_s32 load_b(const uint8_t *line, const int part) {
    return v_load_s32((const int32_t *)(const void *)(line + part * 4 * V_LANES));
}

WOK_INLINE v_s32 load_a(const int8_t *a) {
    int32_t four;
    memcpy(&four, a, sizeof four);
    return v_set1_s32(four);
}

/* One line of every row and panel: the smaller of the two sides rests in registers, the other passes through one. */
WOK_INLINE void step(v_s32 acc[][VECTORS], const int8_t *const *a, int64_t lda, const uint8_t *const *b, const int line,
                     const int rows, const int panels, const bool stream) {
    const int vectors = panels * PARTS;
    if (rows < vectors) {
        v_s32 x[ROWS];
        UNROLL for (int i = 0; i < rows; i++) x[i] = load_a(a[i / 3] + i % 3 * lda + line * 4);
        UNROLL for (int v = 0; v < vectors; v++) {
            const v_s32 y = load_b(b[v / PARTS] + line * LINE, v % PARTS);
            UNROLL for (int i = 0; i < rows; i++) DOT(acc[i][v], y, x[i]);
        }
    } else {
        v_s32 y[VECTORS];
        UNROLL for (int v = 0; v < vectors; v++) y[v] = load_b(b[v / PARTS] + line * LINE, v % PARTS);
        UNROLL for (int i = 0; i < rows; i++) {
            const v_s32 x = load_a(a[i / 3] + i % 3 * lda + line * 4);
            UNROLL for (int v = 0; v < vectors; v++) DOT(acc[i][v], y[v], x);
        }
    }
    if (stream)
        UNROLL for (int p = 0; p < panels; p++)
            _mm_prefetch((const char *)(b[p] + (line + WOK_GEMM_S8_AHEAD) * LINE), _MM_HINT_T0);
}

/* No load moves to another line, and no compiler keeps lda + 4, lda + 8 ... in registers of their own. */
#define SEPARATE_LINES(lda) __asm__ volatile("" : "+r"(lda) : : "memory")

/* The last line, of which only k % 4 columns of A are there. */
WOK_INLINE void last_step(v_s32 acc[][VECTORS], const int8_t *const *a, int64_t lda, const uint8_t *const *b, size_t k,
                          const int rows, const int panels) {
    int8_t four[ROWS][4] = {{0}};
    UNROLL for (int i = 0; i < rows; i++) for (size_t j = 0; j < k; j++) four[i][j] =
        a[i / 3][i % 3 * lda + (int64_t)j];
    const int8_t *base[] = {four[0], four[3 % ROWS], four[6 % ROWS]};
    step(acc, base, 4, b, 0, rows, panels, false);
}

/* rows, panels and stream are constants in every instance. */
WOK_INLINE void run_tile(const wok_gemm_s8_tile *t, const int rows, const int panels, const bool stream) {
    const int vectors = panels * PARTS;
    v_s32 acc[ROWS][VECTORS];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++) acc[i][v] =
        t->first ? v_set1_s32(0) : v_load_s32(t->acc + i * t->acc_stride + v * V_LANES);

    const int8_t *a[3];
    const uint8_t *b[WIDTH], *next = t->next;
    const int64_t next_step = t->next_step;
    int64_t lda = t->lda;
    UNROLL for (int i = 0; i < rows; i += 3) a[i / 3] = t->a + i * lda;
    UNROLL for (int p = 0; p < panels; p++) b[p] = t->b + p * t->panel_stride;
    int64_t k = t->k;
    for (; k >= 16; k -= 16) {
        UNROLL for (int line = 0; line < 4; line++) {
            if (!stream) _mm_prefetch((const char *)next, _MM_HINT_T1);
            next += next_step;
            step(acc, a, lda, b, line, rows, panels, stream);
            SEPARATE_LINES(lda);
        }
        UNROLL for (int i = 0; i < rows; i += 3) a[i / 3] += 16;
        UNROLL for (int p = 0; p < panels; p++) b[p] += 4 * LINE;
    }
    for (; k >= 4; k -= 4) {
        step(acc, a, lda, b, 0, rows, panels, stream);
        UNROLL for (int i = 0; i < rows; i += 3) a[i / 3] += 4;
        UNROLL for (int p = 0; p < panels; p++) b[p] += LINE;
    }
    if (k > 0) last_step(acc, a, lda, b, (size_t)k, rows, panels);

    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
        v_store_s32(t->acc + i * t->acc_stride + v * V_LANES, acc[i][v]);
}

#define MANY(rows, panels)                                                                                             \
    static void many_##rows##_##panels(const wok_gemm_s8_tile *t) {                                                    \
        run_tile(t, rows, panels, false);                                                                              \
    }
#define SMALL(rows, panels)                                                                                            \
    static void small_##rows##_##panels(const wok_gemm_s8_tile *t) {                                                   \
        run_tile(t, rows, panels, true);                                                                               \
    }

#endif
