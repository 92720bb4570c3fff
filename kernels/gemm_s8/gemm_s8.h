/* gemm_s8.h - variants of the gemm_s8 family (contract: wok_kernels.h) and what they share with one another and with conv_s8.
 *
 * Packed layout "s8-n16k4-v1", common to all variants: B as UNSIGNED bytes u = b + 128, 16 columns a panel, four k of a column
 * side by side, a line of 64 bytes for four k:
 *
 *      panel 0, line 0   n=0: k=0 1 2 3   n=1: k=0 1 2 3   ...   n=15: k=0 1 2 3
 *               line 1   n=0: k=4 5 6 7   ...                                         ceil(K/4) lines, then panel 1 ...
 *      slack    16 lines, so that an AMX tile of the last lines may be loaded whole
 *      terms    int32 colsum[16 * panels]: sum_k (b - b_zero), then int32 offset[16 * panels]: 128 + b_zero
 *      flag     a line whose first int32 is 1 where all offsets are equal
 *
 * k beyond K and columns beyond N hold 128, the value 0. B is unsigned because vpdpbusd multiplies an unsigned register by a
 * signed operand, which may be a broadcast from memory: the signed A needs no instruction to be made ready.
 *
 * Arithmetic. With rowsum[m] = sum_k a[m][k] the exact sum of the contract is
 *     acc[m][n] = sum_k a[m][k] u[k][n]  -  offset[n] rowsum[m]  -  a_zero[m] colsum[n]        modulo 2^32
 * where the left sum is what the instructions make and the rest is added to it before the epilogue. Every variant therefore
 * gives the bits of the reference. Activations of f32 outputs other than NONE and CLAMP alone differ: within 2^-22 max(1, |y|).
 *
 * Split over threads: tiles of columns and rows, an output element belongs to exactly one task. */
#ifndef WOK_GEMM_S8_H
#define WOK_GEMM_S8_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_gemm_s8_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "gemm_s8.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

#define WOK_GEMM_S8_LAYOUT "s8-n16k4-v1"
enum { WOK_GEMM_S8_PANEL = 16, WOK_GEMM_S8_LINE = 64, WOK_GEMM_S8_SLACK = 1024 };

/* ---- packing, shared by all variants (gemm_s8_ref.c) ---------------------------------------------------------------- */

/* A matrix to be packed. b[k][n] stands at b[k / segment * stride_segment + k % segment * stride_k + n * stride_n]: a plain
 * matrix has one segment of K, the weights [c_out][c_in][taps] of a convolution in the order tap, channel have segments of
 * c_in with stride_segment 1, stride_k taps, stride_n c_in * taps. */
typedef struct wok_gemm_s8_source {
    const int8_t *b, *b_zero;                            /* b_zero: n zero points, or NULL for 0 */
    int64_t segment, stride_segment, stride_k, stride_n; /* segment >= 1 */
} wok_gemm_s8_source;

/* The accept rule: the problem is valid and its packed size is a size_t. */
const char *wok_gemm_s8_accept(const void *problem);
size_t wok_gemm_s8_packed_bytes(const wok_gemm_s8_problem *problem);
void wok_gemm_s8_pack(const wok_gemm_s8_problem *problem, const int8_t *b, int64_t stride_k, int64_t stride_n,
                      const int8_t *b_zero, void *packed, const wok_parallel *parallel);
void wok_gemm_s8_pack_source(const wok_gemm_s8_problem *problem, const wok_gemm_s8_source *source, void *packed,
                             const wok_parallel *parallel);

/* Where the parts of packed weights stand. */
typedef struct wok_gemm_s8_packed {
    const uint8_t *panels;
    int64_t panel_stride; /* bytes */
    const int32_t *colsum, *offset;
    bool uniform; /* all offsets are equal */
} wok_gemm_s8_packed;

static inline wok_gemm_s8_packed wok_gemm_s8_unpack(int64_t n, int64_t k, const void *packed) {
    int64_t panels = wok_ceil_div(n, WOK_GEMM_S8_PANEL);
    wok_gemm_s8_packed p = {.panels = packed, .panel_stride = wok_ceil_div(k, 4) * WOK_GEMM_S8_LINE};
    p.colsum = (const int32_t *)(const void *)(p.panels + panels * p.panel_stride + WOK_GEMM_S8_SLACK);
    p.offset = p.colsum + panels * WOK_GEMM_S8_PANEL;
    p.uniform = p.offset[panels * WOK_GEMM_S8_PANEL] == 1;
    return p;
}

/* ---- rows times panels, for gemm_s8's tasks and for conv_s8 --------------------------------------------------------- */

/* What one thread does: m rows of A times the panels [panel_begin, panel_end), finished. Rows of A may stand anywhere (those
 * that conv_s8 has gathered); nothing beyond their k bytes is read. */
typedef struct wok_gemm_s8_rows {
    int64_t m, n, k;
    const int8_t *a;
    int64_t lda;
    int32_t a_zero;
    const int32_t *row_zero; /* of row 0 of these, or NULL */
    const void *packed;
    int64_t panel_begin, panel_end;
    void *c; /* row 0 of these, column 0 */
    int64_t ldc;
    wok_epilogue_s8 epilogue; /* residual, row_scale: of row 0 of these; scale, bias: of column 0 */
} wok_gemm_s8_rows;

/* Uses up to 128 KB of stack and no other memory. Thread-safe. */
typedef void (*wok_gemm_s8_rows_fn)(const wok_gemm_s8_rows *rows);
void wok_gemm_s8_rows__avx2(const wok_gemm_s8_rows *rows);
void wok_gemm_s8_rows__avxvnni(const wok_gemm_s8_rows *rows);
void wok_gemm_s8_rows__avx512vnni(const wok_gemm_s8_rows *rows);
void wok_gemm_s8_rows__amx(const wok_gemm_s8_rows *rows);

/* Bytes of an element of the output. */
static inline int64_t wok_gemm_s8_out_bytes(const wok_epilogue_s8 *e) {
    return e->out == WOK_S8_OUT_S8 ? 1 : 4;
}

/* Moves the outputs (c, residual, row_scale) `row` rows on: for a caller that cuts its rows into blocks. */
static inline void wok_gemm_s8_advance(wok_gemm_s8_rows *r, int64_t row) {
    wok_epilogue_s8 *e = &r->epilogue;
    int64_t bytes = wok_gemm_s8_out_bytes(e);
    r->c = (char *)r->c + row * r->ldc * bytes;
    if (e->residual) e->residual = (const char *)e->residual + row * e->residual_stride * bytes;
    if (e->row_scale) e->row_scale += row;
}

#endif
